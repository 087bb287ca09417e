/**
 * Where a log's blocks are kept. `FileLogStore` keeps them in files; another engine can take its
 * place, so nothing outside this folder knows about files.
 *
 * A store holds a run of bytes from `start` to `end`, cut in **files** at block boundaries. The last
 * file takes appends, the ones before it are sealed. Each file can have a **sidecar**: bytes of the
 * owner that are kept with a sealed file and go with it (an index that can always be rebuilt).
 */
import type { BlockHeader } from "./block.ts";

/** One file of a log. Positions are bytes of the whole log. */
export interface LogFileInfo {
  readonly start: number;
  /** One past the last byte; for the last file, the end of the log. */
  readonly end: number;
}

/** Something that could not be read during recovery although it had been synced. */
export interface Damage {
  readonly position: number;
  readonly bytes: number;
  readonly reason: string;
}

/** What recovery found. */
export interface Recovery {
  /** Position at which the next block goes. */
  readonly end: number;
  /** Bytes of a group that was being written when the process stopped, cut off. */
  readonly tornBytes: number;
  readonly damage: readonly Damage[];
}

/** What a store hands to its owner during recovery, in log order. */
export interface RecoveryVisitor {
  /** A good block's header, before its records. */
  block(header: BlockHeader): void;
  /** A record: the payload is `bytes[start, end)`, borrowed for the call; `position` is its header's. */
  record(kind: number, bytes: Uint8Array, start: number, end: number, position: number): void;
}

/** How the owner learns which sealed files it must scan itself and which have a usable sidecar. */
export interface LogStore {
  readonly files: readonly LogFileInfo[];
  /**
   * Finds the end of the log and visits every record from `from` on, a position at which a block
   * starts. Torn bytes at the end are cut off, but nothing below `syncedTo`, which was durable once:
   * bad bytes there are damage. Everything visited is durable when it resolves.
   * Rejects with {@linkcode LogError} when serving on could lose or bring back a message.
   */
  recover(from: number, visitor: RecoveryVisitor, syncedTo?: number): Promise<Recovery>;
  /** Visits the records of one sealed file, for an index that has to be rebuilt. */
  scan(file: LogFileInfo, visitor: RecoveryVisitor): Promise<readonly Damage[]>;
  /**
   * Appends a block that starts at the log's end; `parts` are its bytes, in order, borrowed until it
   * resolves. It is durable when it resolves. `roll` begins a new file with this block. After a
   * rejection the store takes no more blocks: what is on disk is unknown until the next recovery.
   */
  append(parts: readonly Uint8Array[], roll: boolean): Promise<void>;
  /** Fills `into` from `position`, within one file; resolves with the bytes read. */
  read(position: number, into: Uint8Array): Promise<number>;
  /** Drops a sealed file and its sidecar. Reads under way finish first. */
  remove(file: LogFileInfo): Promise<void>;
  putSidecar(file: LogFileInfo, bytes: Uint8Array): Promise<void>;
  /** The sidecar's bytes, or null when there is none. */
  getSidecar(file: LogFileInfo): Promise<Uint8Array | null>;
  /** Stores a checkpoint durably under a position; the two newest are kept. */
  putCheckpoint(position: number, bytes: Uint8Array): Promise<void>;
  /** The stored checkpoints, newest first. */
  listCheckpoints(): Promise<readonly number[]>;
  getCheckpoint(position: number): Promise<Uint8Array>;
  close(): Promise<void>;
}

/** Why a log cannot be opened or used. `code` is what a caller decides by. */
export class LogError extends Error {
  override name = "LogError";
  constructor(
    readonly code: "missing_file" | "newer_format" | "damaged" | "sealed" | "foreign",
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}
