/** The real {@linkcode ProcessFigures}. */
import process from "node:process";
import type { ProcessFigures } from "./process_figures.ts";

/** Reads them; costs some microseconds. */
export function processFigures(): ProcessFigures {
  const { rss, heapTotal, heapUsed, external } = Deno.memoryUsage();
  const { user, system } = process.cpuUsage();
  return {
    residentBytes: rss,
    heapBytes: heapTotal,
    heapUsedBytes: heapUsed,
    externalBytes: external,
    cpuSeconds: (user + system) / 1e6,
    startSeconds: performance.timeOrigin / 1000,
  };
}
