/**
 * Writes a sealed log file anew without what nobody is owed: its live messages one after another at the
 * front, and up to its end blocks of one skip each, which are a hole where the file system has holes.
 * Start and end stay, so positions elsewhere mean the same, and every reader of blocks can read it.
 *
 * - The caller says which messages are owed. Finishes, requeues and events are dropped: the file must
 *   lie before every checkpoint that is kept.
 * - A file that is damaged, or holds a record of a kind that is not known here, is left alone.
 * - A block that is written here says that the log was durable up to the end of its file, which is
 *   beyond its own start: so it can be told from one that was written by a group.
 * - In memory are 256 KiB, or one record, of what is read, and one block of what is written.
 */
import {
  BLOCK_HEADER_BYTES,
  type BlockHeader,
  type LogFileInfo,
  type LogReplacement,
  type LogStore,
  readBlockHeader,
  RECORD_HEADER_BYTES,
  recordBytes,
  recordCrc,
  recordWord,
  recordWordBytes,
  recordWordKind,
  SKIP_KIND,
  writeBlockHeader,
} from "@sluice/shared/log";
import { crc32 } from "node:zlib";
import { HOLE_BLOCK_BYTES, isRewritten } from "./file_usage.ts";
import {
  EVENT_KIND,
  FINISH_KIND,
  MESSAGE_KIND,
  type MessageHeader,
  readMessageHeader,
  REQUEUE_KIND,
} from "./records.ts";
import { IndexRun } from "./topic_index.ts";

/** What is needed to write a file anew. */
export interface CompactFileWorld {
  readonly store: Pick<LogStore, "read" | "replace">;
  /** Whether anybody is or may be owed a message; once it is false it must stay so. */
  isOwed(topic: number, offset: number): boolean;
  /** Resolves when `bytes` may be read or written; a rejection ends the work. */
  turn(bytes: number): Promise<void>;
}

/** A file written anew that is not in its place yet. */
export interface CompactedFile {
  readonly replacement: LogReplacement;
  /** What it says of its messages, by topic number, in memory. */
  readonly runs: ReadonlyMap<number, IndexRun>;
  /** Bytes of it that take no space. */
  readonly holeBytes: number;
}

/** Why a file stays as it is: it cannot be judged, or there is too much in it that is owed. */
export type Spared = "unfit" | "live";

const READ_BYTES = 256 * 1024;
/** A block is not larger, unless its only record is. */
const BLOCK_BYTES_MAX = 1024 * 1024;
/** A recovery has a whole block in memory, also one of nothing. */
const HOLE_BYTES_MAX = 4 * 1024 * 1024;
const ZEROS = new Uint8Array(64 * 1024);

/** The file cannot be judged. */
class Unfit extends Error {
  override name = "Unfit";
}

/**
 * Writes `file` anew, if it comes to at most `bytesMax` then. The caller has the replacement swapped in
 * or abandons it; of a file that is spared, and when this rejects, nothing is left.
 */
export async function compactFile(
  world: CompactFileWorld,
  file: LogFileInfo,
  bytesMax: number,
): Promise<CompactedFile | Spared> {
  const replacement = await world.store.replace(file);
  let isDone = false;
  try {
    const packed = new PackedFile(world, file, replacement, bytesMax);
    if (!await pack(world, file, packed)) return "live";
    const holeBytes = await packed.finish();
    if (holeBytes === null) return "live";
    isDone = true;
    return { replacement, runs: packed.runs, holeBytes };
  } catch (error) {
    if (error instanceof Unfit) return "unfit";
    throw error;
  } finally {
    if (!isDone) await replacement.abandon();
  }
}

/** Goes through the records of a file; false when what is owed does not fit. */
async function pack(
  world: CompactFileWorld,
  file: LogFileInfo,
  packed: PackedFile,
): Promise<boolean> {
  const source = new Source(world, file);
  const message: MessageHeader = { topic: 0, offset: 0, dueMs: 0, wireStart: 0 };
  let epoch = 0;
  let position = file.start;
  while (position < file.end) {
    let at = source.find(position, BLOCK_HEADER_BYTES);
    if (at < 0) at = await source.load(position, BLOCK_HEADER_BYTES);
    const reading = readBlockHeader(source.view, at);
    if (reading.kind !== "block") throw new Unfit();
    const { header } = reading;
    const end = position + BLOCK_HEADER_BYTES + header.recordsBytes;
    if (header.position !== position || header.epoch < epoch || end > file.end) throw new Unfit();
    epoch = header.epoch;
    position += BLOCK_HEADER_BYTES;
    if (await source.isHole(header)) {
      position = end;
      continue;
    }
    source.beginBlock(position, end);
    let count = 0;
    for (; position < end; count++) {
      at = source.find(position, RECORD_HEADER_BYTES);
      if (at < 0) at = await source.load(position, RECORD_HEADER_BYTES);
      const word = source.view.getUint32(at, true);
      const bytes = recordBytes(recordWordBytes(word));
      if (position + bytes > end) throw new Unfit();
      at = source.find(position, bytes);
      if (at < 0) at = await source.load(position, bytes);
      const kind = recordWordKind(word);
      if (kind === MESSAGE_KIND) {
        readMessageHeader(source.bytes, at + RECORD_HEADER_BYTES, message);
        if (world.isOwed(message.topic, message.offset)) {
          const record = source.record(at, word, bytes);
          if (!packed.add(record, message, header)) {
            if (!await packed.flush()) return false;
            packed.add(record, message, header);
          }
        }
      } else if (
        kind !== SKIP_KIND && kind !== FINISH_KIND && kind !== REQUEUE_KIND && kind !== EVENT_KIND
      ) {
        throw new Unfit();
      }
      position += bytes;
    }
    if (count !== header.recordCount || source.endBlock() !== header.recordsCrc) throw new Unfit();
  }
  return true;
}

/** A part of the old file in memory. */
class Source {
  bytes = new Uint8Array(READ_BYTES);
  view = new DataView(this.bytes.buffer);
  readonly #world: CompactFileWorld;
  readonly #file: LogFileInfo;
  #start: number;
  #length = 0;
  /** The records of the block at hand, and how far they are in its checksum. */
  #blockEnd = 0;
  #summedTo = 0;
  #crc = 0;

  constructor(world: CompactFileWorld, file: LogFileInfo) {
    this.#world = world;
    this.#file = file;
    this.#start = file.start;
  }

  /** Where `length` bytes from a position on are in `bytes`; -1 when they have to be loaded. */
  find(position: number, length: number): number {
    return position + length <= this.#start + this.#length ? position - this.#start : -1;
  }

  /** Loads what `find` did not find. Positions only grow. */
  async load(position: number, length: number): Promise<number> {
    if (position + length > this.#file.end) throw new Unfit();
    this.#sum();
    const end = this.#start + this.#length;
    const kept = Math.max(0, end - position);
    const before = this.bytes;
    if (length > before.length) {
      this.bytes = new Uint8Array(length);
      this.view = new DataView(this.bytes.buffer);
    }
    this.bytes.set(before.subarray(this.#length - kept, this.#length));
    this.#start = position;
    this.#length = kept;
    while (this.#length < length) {
      const from = position + this.#length;
      const want = Math.min(READ_BYTES, this.bytes.length - this.#length, this.#file.end - from);
      await this.#world.turn(want);
      const into = this.bytes.subarray(this.#length, this.#length + want);
      const read = await this.#world.store.read(from, into);
      if (read === 0) throw new Unfit();
      this.#length += read;
    }
    return 0;
  }

  /** A block of nothing from an earlier compaction; what is in it is no matter. */
  async isHole(header: BlockHeader): Promise<boolean> {
    if (!isRewritten(header) || header.recordCount !== 1) return false;
    const position = header.position + BLOCK_HEADER_BYTES;
    const at = await this.load(position, RECORD_HEADER_BYTES);
    const word = this.view.getUint32(at, true);
    const isHole = recordWordKind(word) === SKIP_KIND &&
      recordBytes(recordWordBytes(word)) === header.recordsBytes;
    if (isHole) this.#skipTo(position + header.recordsBytes);
    return isHole;
  }

  beginBlock(start: number, end: number): void {
    this.#summedTo = start;
    this.#blockEnd = end;
    this.#crc = 0;
  }

  /** The checksum of the block's records. */
  endBlock(): number {
    this.#sum();
    return this.#crc;
  }

  /** The bytes of a whole record that is about to be kept. */
  record(at: number, word: number, bytes: number): Uint8Array {
    const payload = at + RECORD_HEADER_BYTES;
    const crc = recordCrc(word, this.bytes.subarray(payload, payload + recordWordBytes(word)));
    // The block's own checksum comes too late for what an index is made of.
    if (crc !== this.view.getUint32(at + 4, true)) throw new Unfit();
    return this.bytes.subarray(at, at + bytes);
  }

  #sum(): void {
    const to = Math.min(this.#start + this.#length, this.#blockEnd);
    if (to <= this.#summedTo) return;
    const part = this.bytes.subarray(this.#summedTo - this.#start, to - this.#start);
    this.#crc = crc32(part, this.#crc);
    this.#summedTo = to;
  }

  #skipTo(position: number): void {
    const kept = Math.max(0, this.#start + this.#length - position);
    this.bytes.copyWithin(0, this.#length - kept, this.#length);
    this.#start = position;
    this.#length = kept;
  }
}

/** The new file. */
class PackedFile {
  readonly runs = new Map<number, IndexRun>();
  readonly #world: CompactFileWorld;
  readonly #file: LogFileInfo;
  readonly #replacement: LogReplacement;
  readonly #bytesMax: number;
  #block = new Uint8Array(BLOCK_BYTES_MAX);
  #length = BLOCK_HEADER_BYTES;
  #count = 0;
  #position: number;
  /** Of the newest block that a record was taken from. */
  #epoch = 1;
  #sequence = 0;

  constructor(
    world: CompactFileWorld,
    file: LogFileInfo,
    replacement: LogReplacement,
    bytesMax: number,
  ) {
    this.#world = world;
    this.#file = file;
    this.#replacement = replacement;
    this.#bytesMax = bytesMax;
    this.#position = file.start;
  }

  /** Adds a message's record, which came from a block; false when the block at hand is to be written first. */
  add(record: Uint8Array, { topic, offset, dueMs }: MessageHeader, source: BlockHeader): boolean {
    const end = this.#length + record.length;
    if (end > this.#block.length) {
      if (this.#count > 0) return false;
      this.#block = new Uint8Array(end);
    }
    let run = this.runs.get(topic);
    if (run === undefined) this.runs.set(topic, run = new IndexRun(this.#file.start, offset));
    else if (offset < run.endOffset) throw new Unfit();
    run.add(offset, this.#position + this.#length, dueMs, record.length);
    this.#block.set(record, this.#length);
    this.#length = end;
    if (this.#count === 0) this.#sequence = source.firstSequence;
    this.#epoch = source.epoch;
    this.#count++;
    return true;
  }

  /** Writes the block at hand; false when it does not fit. */
  async flush(): Promise<boolean> {
    if (this.#count === 0) return true;
    const bytes = this.#length;
    if (this.#position + bytes - this.#file.start > this.#bytesMax) return false;
    const block = this.#block.subarray(0, bytes);
    const recordsCrc = crc32(block.subarray(BLOCK_HEADER_BYTES));
    this.#header(block, bytes, this.#count, recordsCrc);
    await this.#world.turn(bytes);
    await this.#replacement.write(this.#position, block);
    this.#position += bytes;
    this.#length = BLOCK_HEADER_BYTES;
    this.#count = 0;
    return true;
  }

  /** Covers the rest with blocks of nothing; returns what they spare, or null when there is no room. */
  async finish(): Promise<number | null> {
    if (!await this.flush()) return null;
    let holeBytes = 0;
    let wholeCrc = -1;
    const head = new Uint8Array(HOLE_BLOCK_BYTES);
    const view = new DataView(head.buffer);
    while (this.#position < this.#file.end) {
      const left = this.#file.end - this.#position;
      if (left < HOLE_BLOCK_BYTES) return null;
      let bytes = Math.min(left, HOLE_BYTES_MAX);
      // What is left must hold a block too.
      if (left > bytes && left - bytes < HOLE_BLOCK_BYTES) bytes -= HOLE_BLOCK_BYTES;
      const spared = bytes - HOLE_BLOCK_BYTES;
      view.setUint32(BLOCK_HEADER_BYTES, recordWord(SKIP_KIND, spared), true);
      let crc = bytes === HOLE_BYTES_MAX ? wholeCrc : -1;
      if (crc < 0) crc = crcWithZeros(head.subarray(BLOCK_HEADER_BYTES), spared);
      if (bytes === HOLE_BYTES_MAX) wholeCrc = crc;
      this.#header(head, bytes, 1, crc);
      await this.#world.turn(HOLE_BLOCK_BYTES);
      await this.#replacement.write(this.#position, head);
      this.#position += bytes;
      holeBytes += spared;
    }
    return holeBytes;
  }

  #header(block: Uint8Array, bytes: number, recordCount: number, recordsCrc: number): void {
    writeBlockHeader(new DataView(block.buffer, block.byteOffset), 0, {
      epoch: this.#epoch,
      position: this.#position,
      synced: this.#file.end,
      firstSequence: this.#sequence,
      recordsBytes: bytes - BLOCK_HEADER_BYTES,
      recordCount,
      recordsCrc,
    });
  }
}

/** The checksum of `bytes` and so many zeros behind them. */
function crcWithZeros(bytes: Uint8Array, zeros: number): number {
  let crc = crc32(bytes);
  for (let left = zeros; left > 0; left -= ZEROS.length) {
    crc = crc32(ZEROS.subarray(0, Math.min(left, ZEROS.length)), crc);
  }
  return crc;
}
