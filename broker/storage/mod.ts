/** The broker's durable state: records, index, checkpoints, reclaim. Message payloads are opaque bytes. */
export {
  COMPACTION_OPTIONS_DEFAULT,
  type CompactionOptions,
  type CompactionReport,
} from "./compaction.ts";
export { type CompatibilityLevels, OWN_LEVELS } from "./compatibility.ts";
export { DATA_FORMAT } from "./data_folder.ts";
export * from "./dedup_window.ts";
export * from "./due_heap.ts";
export * from "./finished_set.ts";
export * from "./large_body.ts";
export * from "./large_messages.ts";
export * from "./loss_window.ts";
export * from "./records.ts";
export * from "./requeue_table.ts";
export * from "./run_bytes.ts";
export * from "./scrub.ts";
export * from "./state.ts";
export * from "./storage.ts";
export * from "./index_word.ts";
export * from "./topic_index.ts";
export * from "./topic_policy.ts";
