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
  /** How often it was replaced since the store was opened; absent for never. */
  readonly version?: number;
}

/**
 * A file that is to take the place of a sealed one: same start, same end, other blocks. What is never
 * written in it reads as zeros and takes no space where the file system has sparse files.
 */
export interface LogReplacement {
  /** Writes at a position of the log, within the file; `bytes` is borrowed until it resolves. */
  write(position: number, bytes: Uint8Array): Promise<void>;
  /**
   * Puts it in the place of the old file, whose sidecar goes first. Reads of the file that are under
   * way end before, new ones wait; `swapped` is called once the new file has the name, before anybody
   * reads it. Rejects without `swapped` when the old file stays. When it rejects after `swapped`, the
   * new file is read until the store is opened again, and either may be found then: no sidecar may be
   * put to it.
   */
  swap(swapped: () => void): Promise<void>;
  /** Gives it up, if it is not in place yet. Never rejects. */
  abandon(): Promise<void>;
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
   * Hands a block that starts at the log's end to the system; `parts` are its bytes, in order, borrowed
   * until it resolves. It can be read from then on, survives the process, and is durable after the next
   * {@linkcode sync}. `roll` begins a new file with this block: all before it has been synced.
   *
   * A rejection with {@linkcode LogError} `no_space` says that the disk was full, `no_descriptors` that
   * a new file could not be opened: the same call may be made again, with a sync of what was written
   * before it between at most. After any other rejection the store takes no more blocks: what is on
   * disk is unknown until the next recovery.
   */
  write(parts: readonly Uint8Array[], roll: boolean): Promise<void>;
  /** Has every block that was written durable when it resolves. A rejection is final. */
  sync(): Promise<void>;
  /** Fills `into` from `position`, within one file; resolves with the bytes read. */
  read(position: number, into: Uint8Array): Promise<number>;
  /** Drops a sealed file and its sidecar. Reads under way finish first. */
  remove(file: LogFileInfo): Promise<void>;
  /** Begins a file that will replace a sealed one. One at a time. */
  replace(file: LogFileInfo): Promise<LogReplacement>;
  putSidecar(file: LogFileInfo, bytes: Uint8Array): Promise<void>;
  /** The sidecar's bytes, or null when there is none. */
  getSidecar(file: LogFileInfo): Promise<Uint8Array | null>;
  /**
   * Fills `into` with the sidecar's bytes from `position` on, unverified; resolves with the bytes
   * read, 0 when there is no sidecar. Safe beside {@linkcode remove} and {@linkcode putSidecar}: it
   * reads the one that was there when it was called, or none.
   */
  readSidecar(file: LogFileInfo, position: number, into: Uint8Array): Promise<number>;
  /**
   * Stores a checkpoint durably under a position and resolves with its bytes. Of those before it the
   * one of position `older`, known to be good, is kept beside it, and no other. The next chunk is
   * asked for when the one before is written; until then it is borrowed. When `chunks` throws, nothing
   * has changed.
   */
  putCheckpoint(
    position: number,
    chunks: AsyncIterable<Uint8Array>,
    older: number,
  ): Promise<number>;
  /** The stored checkpoints, newest first. */
  listCheckpoints(): Promise<readonly number[]>;
  /**
   * The chunks of a checkpoint, each whole, borrowed until the next one is asked for. Throws
   * {@linkcode LogError} `damaged` at the first that is not as it was stored, or at the end when any
   * is missing: what was read before is then worth nothing.
   */
  getCheckpoint(position: number): AsyncIterable<Uint8Array>;
  close(): Promise<void>;
}

/** Why a log cannot be opened or used. `code` is what a caller decides by. */
export class LogError extends Error {
  override name = "LogError";
  constructor(
    readonly code:
      | "missing_file"
      | "newer_format"
      | "damaged"
      | "sealed"
      | "foreign"
      | "no_space"
      | "no_descriptors",
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}
