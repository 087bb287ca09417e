/** The spool: publishes that no broker can take now, kept on disk until one does. */
export {
  type QuarantinedEntry,
  type SpoolEntry,
  SpoolRefusal,
  type SpoolRefusalCode,
} from "./spool_entry.ts";
export { Spool } from "./spool.ts";
export type { SpoolFigures, SpoolOptions, SpoolSeams } from "./spool_options.ts";
