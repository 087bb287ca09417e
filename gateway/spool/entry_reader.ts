/** Reads the record of one entry back, wherever it is now, and checks it. */
import {
  type CommitLog,
  type LogReader,
  RECORD_HEADER_BYTES,
  recordCrc,
  recordWordBytes,
  recordWordKind,
} from "@sluice/shared/log";
import { DiskError } from "@sluice/shared/runtime";
import type { Publish } from "../publish.ts";
import {
  copyProducer,
  decodeKeep,
  emptyPublishHeader,
  KEEP_KIND,
  PUBLISH_KIND,
  type PublishHeader,
  readPublish,
} from "./records.ts";
import type { TrackedEntry } from "./tracked_entry.ts";
import { TopicNames } from "./topic_names.ts";

/** The payload of a publish: a record's, or the part of a keep record. Valid until anything is awaited, read or appended. */
export interface ReadPublish {
  readonly bytes: Uint8Array;
  readonly start: number;
  readonly end: number;
  readonly header: PublishHeader;
}

const MISSES_MAX = 16;

/** See the module. */
export class EntryReader {
  readonly #log: CommitLog;
  readonly #reader: LogReader;
  readonly #recordBytesMax: number;
  readonly #header = emptyPublishHeader();
  readonly #topics = new TopicNames();
  /** Loads in a row after which nothing was there. */
  #misses = 0;

  /** `recordBytesMax` bounds what is believed of a length that is not verified yet. */
  constructor(log: CommitLog, reader: LogReader, recordBytesMax: number) {
    this.#log = log;
    this.#reader = reader;
    this.#recordBytesMax = recordBytesMax;
  }

  /**
   * The publish of an entry, why it cannot be read, or null when {@linkcode load} has to be called
   * first.
   */
  read(entry: TrackedEntry): ReadPublish | string | null {
    const reader = this.#reader;
    if (!reader.view(entry.location, RECORD_HEADER_BYTES)) return null;
    const word = this.#word();
    const length = RECORD_HEADER_BYTES + recordWordBytes(word);
    if (length > this.#recordBytesMax || entry.location + length > this.#log.end) {
      return "its length is wrong";
    }
    if (!reader.view(entry.location, length)) return null;
    const { bytes } = reader;
    let start = reader.start + RECORD_HEADER_BYTES;
    const end = reader.start + length;
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    const crc = view.getUint32(reader.start + 4, true);
    if (crc !== recordCrc(word, bytes.subarray(start, end))) return "its checksum is wrong";
    const kind = recordWordKind(word);
    if (kind === KEEP_KIND) {
      const kept = decodeKeep(bytes, start, end);
      if (kept === null || kept.id !== entry.id) return "another record is in its place";
      start = kept.publishStart;
    } else if (kind !== PUBLISH_KIND) return "another record is in its place";
    const header = this.#header;
    const isRight = readPublish(view, start, end, header) && header.lane === entry.lane &&
      header.number === entry.number;
    return isRight ? { bytes, start, end, header } : "another record is in its place";
  }

  /**
   * Loads what {@linkcode read} did not find; resolves with why that cannot be done, or null. Rejects
   * when the disk refuses for a reason that may pass.
   */
  async load(entry: TrackedEntry): Promise<string | null> {
    const { location } = entry;
    const isHeadThere = this.#reader.view(location, RECORD_HEADER_BYTES);
    const bytes = RECORD_HEADER_BYTES + (isHeadThere ? recordWordBytes(this.#word()) : 0);
    for (let attempt = 1;; attempt++) {
      try {
        await this.#reader.load(location, bytes);
        break;
      } catch (error) {
        if (!(error instanceof DiskError) || error.kind !== "io") throw error;
        if (attempt > 1) return `the disk cannot read it: ${error.message}`;
      }
    }
    if (this.#reader.view(location, bytes)) {
      this.#misses = 0;
      return null;
    }
    // Another reader may have pushed it out again, but not for ever.
    return ++this.#misses < MISSES_MAX ? null : "its file is shorter than the log";
  }

  /** A publish with a memory of its own. */
  copy({ bytes, start, end, header }: ReadPublish): Publish {
    return {
      topic: this.#topics.at(bytes, header.topicStart, header.brokerStart),
      isBatch: header.isBatch,
      messageCount: header.messageCount,
      body: bytes.slice(header.bodyStart, end),
      dueWallMs: header.dueWallMs,
      producer: copyProducer(bytes, start),
      sequence: header.sequence,
    };
  }

  #word(): number {
    const { bytes, start } = this.#reader;
    return (bytes[start]! | (bytes[start + 1]! << 8) | (bytes[start + 2]! << 16) |
      (bytes[start + 3]! << 24)) >>> 0;
  }
}
