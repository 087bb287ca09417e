/**
 * Group commit over a {@linkcode LogStore}. Records are written once, into a ring that is the group
 * being filled, the group being synced, and the hot tail that readers copy from.
 *
 * ```
 *   hotStart        durableEnd        writtenEnd      groupStart          end
 *      | served from memory | to be synced | being written | being filled |
 * ```
 *
 * - One group is written at a time; what arrives meanwhile is the next group. There is no timer and no
 *   added delay.
 * - {@linkcode CommitLog.flush} has the group synced as soon as it is written: a lone record pays one
 *   sync. {@linkcode CommitLog.write} leaves the sync to a `flush` to come. A sync takes along all that
 *   was written before it, and nothing is written while it runs.
 * - `written(end)` is called once everything below `end` is with the system, which keeps it when the
 *   process dies; `durable(end)` once everything below is on disk. Neither is called before.
 * - When a small group is next, its write and its sync begin before `durable` is called for the ones
 *   before it: what that sets off, many answers to many connections, is done while the disk works.
 *   `durable` and `written` are called in the order of the groups all the same.
 * - A file is synced before the next one takes blocks, so what is not durable is in the last file.
 * - A record is contiguous in the ring, and its ring index is its position modulo the ring's size.
 * - Bytes that are not yet durable never exceed half the ring: {@linkcode CommitLog.hasRoom} says
 *   when to stop and {@linkcode CommitLog.room} when to go on. The other half is always readable.
 * - The first failed write or sync seals the log for good: after it nobody knows what is on the disk.
 *   Only a write that found the disk full, or no descriptor for a new file, is waited for: the same
 *   bytes are written to the same place again, until they fit ({@linkcode CommitLog.stalled}). What was
 *   written before is synced first, so that it does not wait as well.
 */
import { crc32 } from "node:zlib";
import { type Clock, invariant } from "../runtime/mod.ts";
import { Histogram, LATENCY_BOUNDS_SECONDS } from "../telemetry/mod.ts";
import {
  BLOCK_HEADER_BYTES,
  RECORD_ALIGN_BYTES,
  RECORD_HEADER_BYTES,
  recordBytes,
  recordCrc,
  recordWord,
  SKIP_KIND,
  writeBlockHeader,
} from "./block.ts";
import { LogError, type LogFileInfo, type LogStore } from "./log_store.ts";

/** A larger group is not begun before the ones before it are told of: its write takes a while. */
const BEGUN_FIRST_BYTES_MAX = 32 * 1024;

/** Sizes of a {@linkcode CommitLog}, in bytes. */
export interface CommitLogOptions {
  /** A power of two from 64 KiB to 1 GiB. Memory is touched only as it is used. */
  readonly ringBytes: number;
  /** A file that has reached this size is sealed and the next group starts a new one. */
  readonly fileBytes: number;
  /** Tells {@linkcode CommitLog.askedMs}; nothing is told without. */
  readonly clock?: Pick<Clock, "monoMs">;
}

/** Who writes a log. Called on the event loop, never from inside `begin` or `finish`. */
export interface CommitLogOwner {
  /** A group is about to be closed: the last moment to add records to it. */
  closing(): void;
  /** The sequence to put in the header of the group that is opened. */
  firstSequence(): number;
  /** Everything below `end` is written; what was not durable before still is not. */
  written(end: number): void;
  /** Everything below `end` is on disk. */
  durable(end: number): void;
  /** A file was sealed; it is complete and on disk. */
  sealed(file: LogFileInfo): void;
  /**
   * The disk is too full for the group under way. Resolves when it is worth trying again; a rejection
   * seals the log.
   */
  stalled(error: LogError): Promise<void>;
  /** The log is sealed: nothing that was not reported durable may be confirmed. */
  failed(error: Error): void;
}

/** The log a broker (or a spool) appends to. See the module's promises. */
export class CommitLog {
  /** The ring. Records of `[hotStart, end)` are at their position modulo its size. */
  readonly ring: Uint8Array;
  readonly ringView: DataView;
  readonly mask: number;
  /** Position of the record that `begin` last started. */
  recordPosition = 0;
  /** Start of the file that the group being filled goes to. */
  fileStart: number;
  /** How long syncs took; nothing without a clock. */
  readonly syncSeconds = new Histogram(LATENCY_BOUNDS_SECONDS);
  /** From the first record that a sync made durable to the sync: the longest that any of them waited. */
  readonly waitSeconds = new Histogram(LATENCY_BOUNDS_SECONDS);

  readonly #store: LogStore;
  readonly #owner: CommitLogOwner;
  readonly #options: CommitLogOptions;
  readonly #epoch: number;
  readonly #words: Uint32Array;
  readonly #header = new Uint8Array(BLOCK_HEADER_BYTES);
  readonly #firstPosition: number;
  #end: number;
  #writtenEnd: number;
  #durableEnd: number;
  /** What the owner was told of, which is less only while a group is being begun. */
  #toldWrittenEnd: number;
  #toldDurableEnd: number;
  #groupStart: number;
  #groupRolls = false;
  #groupRecords = 0;
  #groupSequence = 0;
  /** When the first record came of the group being filled, and of all that is not durable before it. */
  #groupSinceMs = NaN;
  #unsyncedSinceMs = NaN;
  #word = 0;
  #payloadIndex = -1;
  #payloadBytes = 0;
  #writeWanted = false;
  #syncWanted = false;
  #running = false;
  #error: Error | null = null;
  #stalled: LogError | null = null;
  #askedMs: number | null = null;
  #roomWaiters: (() => void)[] = [];
  #idleWaiters: (() => void)[] = [];

  /** `end` and `fileStart` are what recovery found; `epoch` is higher than any block's before. */
  constructor(
    store: LogStore,
    owner: CommitLogOwner,
    options: CommitLogOptions,
    opened: { readonly end: number; readonly fileStart: number; readonly epoch: number },
  ) {
    const { ringBytes } = options;
    invariant(
      ringBytes >= 65_536 && ringBytes <= 2 ** 30 && (ringBytes & (ringBytes - 1)) === 0,
      "the ring's size is a power of two from 64 KiB to 1 GiB",
    );
    invariant(opened.end % RECORD_ALIGN_BYTES === 0, "the log ends at a record boundary");
    this.#store = store;
    this.#owner = owner;
    this.#options = options;
    this.#epoch = opened.epoch;
    this.ring = new Uint8Array(ringBytes);
    this.ringView = new DataView(this.ring.buffer);
    this.#words = new Uint32Array(this.ring.buffer);
    this.mask = ringBytes - 1;
    this.fileStart = opened.fileStart;
    this.#firstPosition = opened.end;
    this.#end = opened.end;
    this.#writtenEnd = opened.end;
    this.#durableEnd = opened.end;
    this.#toldWrittenEnd = opened.end;
    this.#toldDurableEnd = opened.end;
    this.#groupStart = opened.end;
  }

  /** Position at which the next byte goes. */
  get end(): number {
    return this.#end;
  }

  /** Everything below survives the process, if not the machine, and the owner was told so. */
  get writtenEnd(): number {
    return this.#toldWrittenEnd;
  }

  /** Everything below is on disk, and the owner was told so: nobody is confirmed before that. */
  get durableEnd(): number {
    return this.#toldDurableEnd;
  }

  /** Names the group being filled: records appended under the same value become durable together. */
  get groupStart(): number {
    return this.#groupStart;
  }

  /** Everything from here to `end` can be read from the ring. */
  get hotStart(): number {
    return Math.max(this.#firstPosition, this.#end - this.ring.length);
  }

  /** The failure that sealed the log, if any. */
  get error(): Error | null {
    return this.#error;
  }

  /** Set while the group under way waits for space on the disk, or for a descriptor. */
  get stalled(): LogError | null {
    return this.#stalled;
  }

  /** Since when the disk owes the answer to a write or a sync, monotonic ms; null when it owes none. */
  get askedMs(): number | null {
    return this.#askedMs;
  }

  /** Whether `bytes` more of publishes fit below the bound on bytes that are not durable. */
  hasRoom(bytes: number): boolean {
    return this.#end + bytes - this.#durableEnd <= this.ring.length / 2;
  }

  /**
   * Resolves when the group under way is durable or has failed, or has found the disk full once more;
   * at once when there is none.
   */
  room(): Promise<void> {
    if (this.#error !== null || this.#end === this.#durableEnd) return Promise.resolve();
    this.flush();
    return new Promise((resolve) => this.#roomWaiters.push(resolve));
  }

  /**
   * Starts a record and returns the index in `ring` at which its payload of `payloadBytes` goes. The
   * caller fills all of it and calls `finish`. Throws {@linkcode LogError} `sealed` after a failure.
   */
  begin(kind: number, payloadBytes: number): number {
    if (this.#error !== null) throw this.#sealedError();
    invariant(this.#payloadIndex < 0, "the record before has been ended");
    const bytes = recordBytes(payloadBytes);
    if (this.#groupRecords === 0) this.#openGroup();
    const toWrap = this.ring.length - (this.#end & this.mask);
    const skipBytes = bytes > toWrap ? toWrap : 0;
    // Checked before anything is overwritten that is still on its way to the disk.
    invariant(
      this.#end + skipBytes + bytes + BLOCK_HEADER_BYTES - this.#durableEnd <= this.ring.length,
      "bytes that are not durable fit the ring",
    );
    if (skipBytes > 0) this.#skip(skipBytes);
    const index = this.#end & this.mask;
    this.#word = recordWord(kind, payloadBytes);
    this.#words[index >>> 2] = this.#word;
    // The padding of the last word; whatever of it is payload is overwritten by the caller.
    this.#words[(index + bytes - 8) >>> 2] = bytes === 8 ? this.#word : 0;
    this.#words[(index + bytes - 4) >>> 2] = 0;
    this.recordPosition = this.#end;
    this.#payloadIndex = index + RECORD_HEADER_BYTES;
    this.#payloadBytes = payloadBytes;
    return this.#payloadIndex;
  }

  /** Completes the record that `begin` started. */
  finish(): void {
    const index = this.#payloadIndex;
    const payload = this.ring.subarray(index, index + this.#payloadBytes);
    this.#words[(index - 4) >>> 2] = recordCrc(this.#word, payload);
    this.#end += recordBytes(this.#payloadBytes);
    this.#groupRecords++;
    this.#payloadIndex = -1;
  }

  /** Adds a record that means nothing, so that the log has another end. */
  pad(): void {
    if (this.#error !== null) throw this.#sealedError();
    if (this.#groupRecords === 0) this.#openGroup();
    this.#skip(RECORD_ALIGN_BYTES);
  }

  /** Asks for the group to be made durable as soon as the disk is free. */
  flush(): void {
    if (this.#error !== null) return;
    this.#syncWanted = true;
    if (!this.#running) this.#start();
  }

  /** Asks for the group to be written as soon as the disk is free; a later `flush` makes it durable. */
  write(): void {
    if (this.#error !== null) return;
    this.#writeWanted = true;
    if (!this.#running) this.#start();
  }

  /** Makes everything durable; resolves when the disk is idle. Rejects when the log is sealed. */
  async drain(): Promise<void> {
    this.flush();
    if (this.#running) await new Promise<void>((resolve) => this.#idleWaiters.push(resolve));
    if (this.#error !== null) throw this.#sealedError();
  }

  #start(): void {
    this.#running = true;
    queueMicrotask(() => void this.#run());
  }

  async #run(): Promise<void> {
    try {
      while (this.#isWanted || this.#tell()) {
        if (this.#rollsNext) await this.#sync();
        if (this.#rollsNext || this.#end - this.#groupStart > BEGUN_FIRST_BYTES_MAX) this.#tell();
        const syncs = this.#syncWanted;
        this.#syncWanted = false;
        this.#writeWanted = false;
        this.#owner.closing();
        if (this.#groupRecords > 0) await this.#writeGroup();
        // What is asked for meanwhile is for the next group as well: it is written first.
        if (syncs) await this.#sync();
        else this.#tell();
      }
    } catch (error) {
      this.#error = error instanceof Error ? error : new Error(String(error));
      this.#owner.failed(this.#error);
    }
    this.#running = false;
    const waiters = [...this.#roomWaiters, ...this.#idleWaiters];
    this.#roomWaiters = [];
    this.#idleWaiters = [];
    for (const wake of waiters) wake();
  }

  /** Not a number without a clock, which no histogram counts. */
  get #nowMs(): number {
    return this.#options.clock?.monoMs() ?? NaN;
  }

  /** Whether the group to be closed next begins a file. */
  get #rollsNext(): boolean {
    if (this.#groupRecords > 0) return this.#groupRolls;
    return this.#end - this.fileStart >= this.#options.fileBytes;
  }

  async #writeGroup(): Promise<void> {
    const start = this.#groupStart;
    const rolls = this.#groupRolls;
    if (Number.isNaN(this.#unsyncedSinceMs)) this.#unsyncedSinceMs = this.#groupSinceMs;
    // So that the next group's header is not split by the end of the ring.
    const toWrap = this.ring.length - (this.#end & this.mask);
    if (toWrap < BLOCK_HEADER_BYTES) this.#skip(toWrap);
    const end = this.#end;
    const parts = this.#parts(start, end);
    this.#writeHeader(start, end, parts);
    this.#groupRecords = 0;
    this.#groupStart = end;
    const before = this.#store.files.at(-1);
    while (true) {
      try {
        await this.#asked(this.#store.write(parts, rolls));
        break;
      } catch (error) {
        await this.#untilSpace(error);
      }
    }
    this.#stalled = null;
    if (rolls && before !== undefined) this.#owner.sealed({ start: before.start, end: start });
    this.#writtenEnd = end;
  }

  /** Makes durable what is written. */
  async #sync(): Promise<void> {
    const end = this.#writtenEnd;
    if (end === this.#durableEnd) return;
    const synced = this.#asked(this.#store.sync());
    const sinceMs = this.#askedMs ?? NaN;
    this.#tell();
    await synced;
    this.#durableEnd = end;
    const nowMs = this.#nowMs;
    this.syncSeconds.observe((nowMs - sinceMs) / 1000);
    this.waitSeconds.observe((nowMs - this.#unsyncedSinceMs) / 1000);
    this.#unsyncedSinceMs = NaN;
  }

  get #isWanted(): boolean {
    return this.#syncWanted || this.#writeWanted;
  }

  /** Tells the owner what it was not told of yet. Returns whether there is more to do after that. */
  #tell(): boolean {
    if (this.#toldDurableEnd < this.#durableEnd) {
      this.#toldDurableEnd = this.#durableEnd;
      const waiters = this.#roomWaiters;
      this.#roomWaiters = [];
      this.#owner.durable(this.#durableEnd);
      for (const wake of waiters) wake();
    }
    if (this.#toldWrittenEnd < this.#writtenEnd) {
      this.#toldWrittenEnd = this.#writtenEnd;
      this.#owner.written(this.#writtenEnd);
    }
    return this.#isWanted;
  }

  /** Notes for how long the disk takes. */
  async #asked(answer: Promise<void>): Promise<void> {
    this.#askedMs = this.#options.clock?.monoMs() ?? null;
    try {
      await answer;
    } finally {
      this.#askedMs = null;
    }
  }

  /** Waits until a group that found the disk full may be tried again; throws any other failure. */
  async #untilSpace(error: unknown): Promise<void> {
    this.#tell();
    if (!isPassing(error)) throw error;
    await this.#sync();
    this.#tell();
    this.#stalled = error;
    const waiters = this.#roomWaiters;
    this.#roomWaiters = [];
    for (const wake of waiters) wake();
    await this.#owner.stalled(error);
  }

  #openGroup(): void {
    this.#groupStart = this.#end;
    this.#groupSequence = this.#owner.firstSequence();
    this.#groupSinceMs = this.#nowMs;
    this.#groupRolls = this.#end - this.fileStart >= this.#options.fileBytes;
    if (this.#groupRolls) this.fileStart = this.#end;
    this.#end += BLOCK_HEADER_BYTES;
  }

  #skip(bytes: number): void {
    const index = this.#end & this.mask;
    // Old ring bytes must not reach the disk under a new checksum by way of a skip.
    this.ring.fill(0, index, index + bytes);
    this.#words[index >>> 2] = recordWord(SKIP_KIND, bytes - RECORD_HEADER_BYTES);
    this.#end += bytes;
    this.#groupRecords++;
  }

  #parts(start: number, end: number): Uint8Array[] {
    const from = start & this.mask;
    const bytes = end - start;
    const first = Math.min(bytes, this.ring.length - from);
    const parts = [this.ring.subarray(from, from + first)];
    if (first < bytes) parts.push(this.ring.subarray(0, bytes - first));
    return parts;
  }

  #writeHeader(start: number, end: number, parts: readonly Uint8Array[]): void {
    let recordsCrc = 0;
    let headerBytes = BLOCK_HEADER_BYTES;
    for (const part of parts) {
      recordsCrc = crc32(part.subarray(headerBytes), recordsCrc);
      headerBytes = Math.max(0, headerBytes - part.length);
    }
    writeBlockHeader(new DataView(this.#header.buffer), 0, {
      epoch: this.#epoch,
      position: start,
      synced: this.#durableEnd,
      firstSequence: this.#groupSequence,
      recordsBytes: end - start - BLOCK_HEADER_BYTES,
      recordCount: this.#groupRecords,
      recordsCrc,
    });
    // Only the first header after an opening can be split: recovery ends where it ends.
    const index = start & this.mask;
    const first = Math.min(BLOCK_HEADER_BYTES, this.ring.length - index);
    this.ring.set(this.#header.subarray(0, first), index);
    this.ring.set(this.#header.subarray(first), 0);
  }

  #sealedError(): LogError {
    return new LogError("sealed", "Cannot append: the log is sealed by a failed write", {
      cause: this.#error,
    });
  }
}

/** Whether a write failed for want of something that may be there again soon. */
function isPassing(error: unknown): error is LogError {
  return error instanceof LogError &&
    (error.code === "no_space" || error.code === "no_descriptors");
}
