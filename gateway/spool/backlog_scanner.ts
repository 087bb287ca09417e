/**
 * Walks through the log and finds the publishes of the free lane, in order, one at a time. What cannot
 * be read or verified is passed over: the walk goes on at the next place that can be trusted, and the
 * numbers that are missing then are reported.
 *
 * Numbers have no gap, and each block says which one is the next, so nothing is lost unseen.
 */
import {
  BLOCK_HEADER_BYTES,
  BLOCK_MAGIC,
  type BlockHeader,
  type CommitLog,
  type LogReader,
  PAGE_BYTES,
  readBlockHeader,
  RECORD_ALIGN_BYTES,
  RECORD_HEADER_BYTES,
  recordBytes,
  recordCrc,
  recordWordBytes,
  recordWordKind,
} from "@sluice/shared/log";
import { type Clock, DiskError } from "@sluice/shared/runtime";
import {
  emptyPublishHeader,
  FREE_LANE,
  PUBLISH_KIND,
  type PublishHeader,
  readPublish,
} from "./records.ts";

/** A publish that the walk has come to. Valid until anything is awaited, read or appended. */
export interface FoundPublish {
  readonly position: number;
  readonly bytes: Uint8Array;
  /** Of its payload in `bytes`. */
  readonly start: number;
  readonly end: number;
  readonly header: PublishHeader;
}

/** Numbers `[start, end)` are lost; they were somewhere behind `position`. */
export type ReportLost = (position: number, start: number, end: number, reason: string) => void;

/** What a look came to. */
type Looked = FoundPublish | "passed" | "missing";

/** After so many records, or blocks, others have their turn. */
const LOOKED_MAX = 4000;
/** A page that the log does not hold yet when it is asked for is there after very few attempts. */
const LOADS_MAX = 8;

/** See the module. One call at a time. */
export class BacklogScanner {
  /** Where it is: everything of the free lane before is passed. */
  position: number;
  readonly #log: CommitLog;
  readonly #reader: LogReader;
  readonly #clock: Clock;
  readonly #lost: ReportLost;
  readonly #header = emptyPublishHeader();
  readonly #headerBytes = new Uint8Array(BLOCK_HEADER_BYTES);
  readonly #headerView = new DataView(this.#headerBytes.buffer);
  /** End of the block that `position` is in; the same as `position` between blocks. */
  #blockEnd: number;
  /** The number that comes next. */
  #expected: number;
  /** Since where, and why, the walk could not trust what it read. */
  #problem: { readonly position: number; readonly reason: string } | null = null;
  /** The first record, since the walk could be trusted last, that was passed unread. */
  #unverified: number | null = null;
  /** What has to be loaded. */
  #missing: { readonly position: number; readonly bytes: number } | null = null;
  #looked = 0;
  #buffer: ArrayBufferLike | null = null;
  #view: DataView = new DataView(new ArrayBuffer(0));

  /** Starts at a block. */
  constructor(
    log: CommitLog,
    reader: LogReader,
    clock: Clock,
    from: { readonly position: number; readonly expected: number },
    lost: ReportLost,
  ) {
    this.#log = log;
    this.#reader = reader;
    this.#clock = clock;
    this.position = from.position;
    this.#blockEnd = from.position;
    this.#expected = from.expected;
    this.#lost = lost;
  }

  /**
   * The next publish of the free lane that is on disk: the same until {@linkcode pass} is called. `end`
   * when there is none, `wait` when {@linkcode wait} has to be called first.
   */
  find(): FoundPublish | "end" | "wait" {
    while (this.position < this.#log.durableEnd) {
      if (this.#looked >= LOOKED_MAX) return "wait";
      const looked = this.#look();
      if (looked === "passed") this.#looked++;
      else if (looked === "missing") return "wait";
      else return looked;
    }
    return "end";
  }

  /** Loads what is missing, or lets others have their turn. Rejects when the disk refuses for now. */
  async wait(): Promise<void> {
    const missing = this.#missing;
    this.#missing = null;
    if (missing !== null) await this.#load(missing.position, missing.bytes);
    else if (this.#looked >= LOOKED_MAX) {
      this.#looked = 0;
      await this.#clock.sleep(0);
    }
  }

  /** Goes on behind the publish that was found; returns the number that is expected next. */
  pass({ header, position, start, end }: FoundPublish): number {
    this.#looked++;
    this.#expected = header.number + 1;
    this.position = position + recordBytes(end - start);
    return this.#expected;
  }

  /** Looks at what is at the position, and passes it unless it is a publish of the free lane. */
  #look(): Looked {
    return this.position === this.#blockEnd ? this.#lookAtBlock() : this.#lookAtRecord();
  }

  #lookAtBlock(): Looked {
    if (!this.#viewBytes(this.position, BLOCK_HEADER_BYTES)) return "missing";
    const header = this.#blockHeader();
    if (header === null) {
      this.#problem ??= { position: this.position, reason: "no block can be read" };
      return this.#seekBlock();
    }
    this.#continuesAt(header.firstSequence);
    this.#blockEnd = this.position + BLOCK_HEADER_BYTES + header.recordsBytes;
    this.position += BLOCK_HEADER_BYTES;
    return "passed";
  }

  /** Goes on at the next place in the page where a block might stand: they are at multiples of 8. */
  #seekBlock(): Looked {
    const { position } = this;
    const page = (Math.floor(position / PAGE_BYTES) + 1) * PAGE_BYTES;
    const bytes = Math.min(page, this.#log.durableEnd) - position;
    if (!this.#viewBytes(position, bytes)) return "missing";
    const { start } = this.#reader;
    const limit = Math.min(bytes, this.#reader.bytes.length - start);
    let at = RECORD_ALIGN_BYTES;
    while (at < limit && this.#view.getUint32(start + at, true) !== BLOCK_MAGIC) {
      at += RECORD_ALIGN_BYTES;
    }
    this.position += at;
    this.#blockEnd = this.position;
    return "passed";
  }

  #lookAtRecord(): Looked {
    const { position } = this;
    const left = this.#blockEnd - position;
    if (left < RECORD_HEADER_BYTES) return this.#leaveBlock("a record header is cut off");
    if (!this.#viewBytes(position, RECORD_HEADER_BYTES)) return "missing";
    const word = this.#view.getUint32(this.#reader.start, true);
    const length = recordWordBytes(word);
    const bytes = recordBytes(length);
    if (bytes > left) return this.#leaveBlock("a record is longer than its block");
    if (recordWordKind(word) !== PUBLISH_KIND) {
      // A publish whose kind is damaged shows by its number, which is missing then.
      this.#unverified ??= position;
      this.position += bytes;
      return "passed";
    }
    if (!this.#viewBytes(position, RECORD_HEADER_BYTES + length)) return "missing";
    const from = this.#reader.start;
    const start = from + RECORD_HEADER_BYTES;
    const end = start + length;
    const payload = this.#reader.bytes.subarray(start, end);
    const header = this.#header;
    if (
      this.#view.getUint32(from + 4, true) !== recordCrc(word, payload) ||
      !readPublish(this.#view, start, end, header)
    ) {
      this.#problem ??= { position, reason: "the record's checksum is wrong" };
      this.position += bytes;
      return "passed";
    }
    if (header.lane !== FREE_LANE) {
      this.position += bytes;
      return "passed";
    }
    this.#continuesAt(header.number);
    return { position, bytes: this.#reader.bytes, start, end, header };
  }

  /** The walk can be trusted again, and `number` is the next one: those before are lost. */
  #continuesAt(number: number): void {
    const problem = this.#problem;
    if (number > this.#expected) {
      const { position, reason } = problem ??
        { position: this.#unverified ?? this.position, reason: "a publish is missing" };
      const start = this.#expected;
      this.#expected = number;
      this.#lost(position, start, number, reason);
    }
    this.#problem = null;
    this.#unverified = null;
  }

  #leaveBlock(reason: string): "passed" {
    this.#problem ??= { position: this.position, reason };
    // Its length is under a checksum of its own.
    this.position = this.#blockEnd;
    return "passed";
  }

  #blockHeader(): BlockHeader | null {
    const { bytes, start } = this.#reader;
    // Cheap where one is looked for: most places are none.
    if (start + 4 <= bytes.length && this.#view.getUint32(start, true) !== BLOCK_MAGIC) return null;
    // Only the first header after a start can go round the end of the ring.
    const first = Math.min(BLOCK_HEADER_BYTES, bytes.length - start);
    this.#headerBytes.set(bytes.subarray(start, start + first));
    this.#headerBytes.set(bytes.subarray(0, BLOCK_HEADER_BYTES - first), first);
    const reading = readBlockHeader(this.#headerView, 0);
    if (reading.kind !== "block" || reading.header.position !== this.position) return null;
    const end = this.position + BLOCK_HEADER_BYTES + reading.header.recordsBytes;
    return end <= this.#log.durableEnd ? reading.header : null;
  }

  #viewBytes(position: number, bytes: number): boolean {
    const reader = this.#reader;
    if (!reader.view(position, bytes)) {
      this.#missing = { position, bytes };
      return false;
    }
    if (reader.bytes.buffer !== this.#buffer) {
      this.#buffer = reader.bytes.buffer;
      this.#view = new DataView(
        reader.bytes.buffer,
        reader.bytes.byteOffset,
        reader.bytes.byteLength,
      );
    }
    return true;
  }

  async #load(position: number, bytes: number): Promise<void> {
    for (let attempt = 1;; attempt++) {
      try {
        await this.#reader.load(position, bytes);
      } catch (error) {
        if (!(error instanceof DiskError) || error.kind !== "io") throw error;
        if (attempt < 2) continue;
        this.#problem ??= { position, reason: `the disk cannot read it: ${error.message}` };
        this.#skipPage(position);
        return;
      }
      // Another reader may have pushed it out again already.
      if (attempt < LOADS_MAX) {
        if (this.#reader.view(position, bytes)) return;
        continue;
      }
      this.#problem ??= { position, reason: "the file is shorter than the log" };
      this.#skipPage(position);
      return;
    }
  }

  /** A page cannot be read: a block is looked for behind it. */
  #skipPage(position: number): void {
    const next = (Math.floor(position / PAGE_BYTES) + 1) * PAGE_BYTES;
    this.position = Math.min(next, this.#log.durableEnd);
    this.#blockEnd = this.position;
  }
}
