/**
 * One way through the log from block to block, checking every checksum in it.
 *
 * - At most 256 KiB are in memory, whatever the size of a block, and every byte is read once.
 * - Before each read it waits until the bytes before it are paid for at the rate given, which also
 *   lets others run. At most one read is ever saved up, by timers that were late or by a pause.
 * - Files that are removed meanwhile are passed over, one that is replaced is begun again.
 * - A place where no block can be read is passed over up to the next block, as recovery does. A read
 *   that fails is tried once more, and then in small pieces, so that little is given up.
 */
import {
  BLOCK_HEADER_BYTES,
  BLOCK_MAGIC,
  BlockChecker,
  type BlockHeader,
  type Damage,
  type LogFileInfo,
  type LogStore,
  readBlockHeader,
  RECORD_ALIGN_BYTES,
} from "@sluice/shared/log";
import { type Clock, DiskError } from "@sluice/shared/runtime";

/** What a {@linkcode ScrubPass} reads, and when. */
export interface ScrubPassWorld {
  readonly store: Pick<LogStore, "files" | "read">;
  readonly clock: Clock;
  /** Whether the disk is to be left alone for now. */
  isHeld(): boolean;
}

/** Who is told how it goes. */
export interface ScrubListener {
  /** So many bytes more have been read. */
  read(bytes: number): void;
  /** Everything of the pass below `position` has been checked, and a block starts there. */
  reached(position: number): void;
  found(damage: Damage): void;
}

/** The part of the log that a pass goes through, and how fast. */
export interface ScrubRange {
  readonly from: number;
  /** A position up to which the log is durable. */
  readonly to: number;
  /** `from` was noted by another process: if no block starts there, its file is read from the start. */
  readonly isResumed: boolean;
  readonly rateBytes: number;
}

/** So much at a time keeps everybody else waiting for half a millisecond, with small records. */
export const SCRUB_READ_BYTES_MAX = 256 * 1024;
/** While the disk is to be left alone, that is asked so often; and a failed read is repeated then. */
export const SCRUB_HELD_MS = 1000;
/** The size of a read where a larger one failed. */
const CAREFUL_READ_BYTES = 4096;
const REASON_CHARACTERS_MAX = 200;

/** The file that was being read is not part of the log any more. */
class FileGone extends Error {
  override name = "FileGone";
}

/** The file that was being read has been replaced: its blocks begin elsewhere now. */
class FileReplaced extends Error {
  override name = "FileReplaced";
}

/** Bytes that the disk does not give. */
class Unreadable extends Error {
  override name = "Unreadable";
  constructor(readonly end: number, reason: string, options?: ErrorOptions) {
    super(reason.slice(0, REASON_CHARACTERS_MAX), options);
  }
}

/** See the module. */
export class ScrubPass {
  readonly #world: ScrubPassWorld;
  readonly #range: ScrubRange;
  readonly #listener: ScrubListener;
  readonly #signal: AbortSignal;
  readonly #readBytesMax: number;
  /** When the bytes read so far are paid for. */
  #paidMs: number;
  /** Reads below are small ones. */
  #carefulTo = 0;
  /** What is in memory: `#length` bytes of the log from `#start` on. */
  readonly #window = new Uint8Array(SCRUB_READ_BYTES_MAX);
  readonly #view = new DataView(this.#window.buffer);
  #start = 0;
  #length = 0;
  /** The file being read, and the epoch of its last good block. */
  #file: LogFileInfo = { start: -1, end: -1 };
  #epoch = 0;

  /** An abort of `signal` ends the pass before its next read. */
  constructor(
    world: ScrubPassWorld,
    range: ScrubRange,
    listener: ScrubListener,
    signal: AbortSignal,
  ) {
    this.#world = world;
    this.#range = range;
    this.#listener = listener;
    this.#signal = signal;
    const bytes = Math.min(SCRUB_READ_BYTES_MAX, range.rateBytes);
    this.#readBytesMax = bytes - bytes % RECORD_ALIGN_BYTES;
    this.#paidMs = world.clock.monoMs();
  }

  /** Goes all the way. Rejects with the signal's reason when that is aborted. */
  async run(): Promise<void> {
    const { from, to } = this.#range;
    let position = from;
    let isUncertain = this.#range.isResumed;
    while (position < to) {
      const file = this.#fileOf(position);
      if (file === undefined) {
        // Given back, with everything before it.
        const first = this.#world.store.files[0]?.start ?? to;
        if (first <= position) return;
        position = first;
      } else {
        if (file.start !== this.#file.start) this.#epoch = 0;
        const isBegun = file.start === this.#file.start && file.version !== this.#file.version;
        this.#file = file;
        position = isBegun
          ? this.#beginAgain(file)
          : await this.#next(position, isUncertain && position > file.start);
      }
      isUncertain = false;
      this.#listener.reached(Math.min(position, to));
    }
  }

  /** Checks the block at a position and returns where the next one starts. */
  async #next(position: number, isUncertain: boolean): Promise<number> {
    const limit = Math.min(this.#file.end, this.#range.to);
    try {
      const header = await this.#header(position, limit);
      if (typeof header !== "string") return await this.#records(header, limit);
      return isUncertain ? this.#file.start : await this.#skip(position, position, limit, header);
    } catch (error) {
      if (error instanceof FileGone) return this.#file.end;
      if (error instanceof FileReplaced) return this.#beginAgain(this.#file);
      throw error;
    }
  }

  #beginAgain({ start }: LogFileInfo): number {
    this.#length = 0;
    this.#epoch = 0;
    return start;
  }

  /** Reports damage, unless it is the difference between a file and its replacement. */
  #found(damage: Damage): void {
    const file = this.#fileOf(this.#file.start);
    if (file !== undefined && file.version !== this.#file.version) throw new FileReplaced();
    this.#listener.found(damage);
  }

  /** The header at a position, or why there is none, in the words of recovery. */
  async #header(position: number, limit: number): Promise<BlockHeader | string> {
    if (limit - position < BLOCK_HEADER_BYTES) return "no block can be read here (short)";
    try {
      await this.#fill(position, BLOCK_HEADER_BYTES, limit);
    } catch (error) {
      if (error instanceof Unreadable) return error.message;
      throw error;
    }
    const reading = readBlockHeader(this.#view, position - this.#start);
    if (reading.kind === "newer_format") return "no block can be read here (newer_format)";
    if (reading.kind !== "block") {
      return `no block can be read here (${reading.kind === "zero" ? "zero" : "bad_header"})`;
    }
    const { header } = reading;
    if (header.position !== position || header.epoch < this.#epoch) {
      return "no block can be read here (foreign_block)";
    }
    if (position + BLOCK_HEADER_BYTES + header.recordsBytes > limit) {
      return "no block can be read here (cut_block)";
    }
    return header;
  }

  async #records(header: BlockHeader, limit: number): Promise<number> {
    this.#epoch = header.epoch;
    const checker = new BlockChecker(header, (damage) => this.#found(damage));
    let position = header.position + BLOCK_HEADER_BYTES;
    const end = position + header.recordsBytes;
    while (position < end) {
      try {
        await this.#fill(position, Math.min(RECORD_ALIGN_BYTES, end - position), limit);
      } catch (error) {
        if (!(error instanceof Unreadable)) throw error;
        const reason = `${error.message}; nothing is known of the rest of the block`;
        this.#found({ position, bytes: end - position, reason });
        return end;
      }
      const from = position - this.#start;
      let bytes = Math.min(this.#length - from, end - position);
      if (position + bytes < end) bytes -= bytes % RECORD_ALIGN_BYTES;
      checker.add(this.#window.subarray(from, from + bytes));
      position += bytes;
    }
    checker.finish();
    return end;
  }

  /** Looks for the next block behind a place without one; what is between is damage. */
  async #skip(position: number, from: number, limit: number, reason: string): Promise<number> {
    let at = from;
    let next = limit;
    while (at + BLOCK_HEADER_BYTES <= limit) {
      try {
        await this.#fill(at, BLOCK_HEADER_BYTES, limit);
      } catch (error) {
        if (!(error instanceof Unreadable)) throw error;
        at = error.end;
        continue;
      }
      const found = this.#findBlock(at, position);
      if (found !== null) {
        next = found;
        break;
      }
      const end = this.#start + this.#length - BLOCK_HEADER_BYTES;
      at = end - (end - at) % RECORD_ALIGN_BYTES + RECORD_ALIGN_BYTES;
    }
    this.#found({ position, bytes: next - position, reason });
    return next;
  }

  /** The first block in memory from `from` on that is behind `bad`. */
  #findBlock(from: number, bad: number): number | null {
    const last = this.#length - BLOCK_HEADER_BYTES;
    for (let offset = from - this.#start; offset <= last; offset += RECORD_ALIGN_BYTES) {
      if (this.#view.getUint32(offset, true) !== BLOCK_MAGIC) continue;
      const at = this.#start + offset;
      const reading = readBlockHeader(this.#view, offset);
      if (
        at > bad && reading.kind === "block" && reading.header.position === at &&
        reading.header.epoch >= this.#epoch
      ) {
        return at;
      }
    }
    return null;
  }

  /**
   * Has at least `bytes` from `position` on in memory, and as much more as one read brings. Throws
   * {@linkcode FileGone} and {@linkcode Unreadable}.
   */
  async #fill(position: number, bytes: number, limit: number): Promise<void> {
    const end = this.#start + this.#length;
    if (position >= this.#start && position + bytes <= end) return;
    const kept = position >= this.#start && position < end ? end - position : 0;
    this.#window.copyWithin(0, position - this.#start, position - this.#start + kept);
    this.#start = position;
    this.#length = kept;
    while (this.#length < bytes) {
      const at = position + this.#length;
      const most = at < this.#carefulTo ? CAREFUL_READ_BYTES : this.#readBytesMax;
      const want = Math.min(most, limit - at, this.#window.length - this.#length);
      const read = await this.#read(at, want, limit);
      this.#length += read;
      this.#listener.read(read);
    }
  }

  async #read(position: number, bytes: number, limit: number): Promise<number> {
    const { store, clock } = this.#world;
    for (let attempt = 1;; attempt++) {
      await this.#turn(bytes);
      this.#stillThere(position);
      let read: number;
      try {
        const into = this.#window.subarray(this.#length, this.#length + bytes);
        read = await store.read(position, into);
      } catch (error) {
        if (!(error instanceof DiskError)) throw error;
        this.#stillThere(position);
        const isSmall = bytes <= CAREFUL_READ_BYTES;
        if (attempt === 1 && !(isSmall && position < this.#carefulTo)) {
          await clock.sleep(SCRUB_HELD_MS, this.#signal);
          continue;
        }
        const reason = `cannot be read: ${error.message}`;
        if (error.kind === "not_found") throw new Unreadable(limit, reason, { cause: error });
        if (isSmall) throw new Unreadable(position + bytes, reason, { cause: error });
        this.#carefulTo = position + bytes;
        return await this.#read(position, CAREFUL_READ_BYTES, limit);
      }
      if (read > 0) return read;
      this.#stillThere(position);
      throw new Unreadable(limit, "the file ends before its end");
    }
  }

  /** Waits until `bytes` may be read: they are paid for, and nothing else needs the disk. */
  async #turn(bytes: number): Promise<void> {
    const { clock } = this.#world;
    await clock.sleep(Math.max(0, this.#paidMs - clock.monoMs()), this.#signal);
    while (this.#world.isHeld()) await clock.sleep(SCRUB_HELD_MS, this.#signal);
    const msPerByte = 1000 / this.#range.rateBytes;
    const savedFromMs = clock.monoMs() - this.#readBytesMax * msPerByte;
    this.#paidMs = Math.max(this.#paidMs, savedFromMs) + bytes * msPerByte;
  }

  #stillThere(position: number): void {
    if (this.#fileOf(position) === undefined) throw new FileGone();
  }

  /** The file with a position; files go oldest first, and the last one grows. */
  #fileOf(position: number): LogFileInfo | undefined {
    const { files } = this.#world.store;
    const first = files[0];
    if (first === undefined || position < first.start) return undefined;
    // There may be very many.
    let low = 0;
    let high = files.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (files[middle]!.start <= position) low = middle + 1;
      else high = middle;
    }
    const file = files[low - 1];
    return file !== undefined && position < file.end ? file : undefined;
  }
}
