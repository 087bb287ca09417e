/** The commit log: blocks of opaque records, group commit, recovery, reading back. */
export * from "./block.ts";
export * from "./block_checker.ts";
export * from "./checkpoint_file.ts";
export * from "./commit_log.ts";
export * from "./file_log_store.ts";
export * from "./folder_files.ts";
export * from "./log_reader.ts";
export * from "./log_store.ts";
export * from "./recovery.ts";
