/**
 * Checks the records of one block piece by piece, so that a block of any size is checked in little
 * memory: the checksum over all of them, their framing, and the checksum of each. What is good here
 * is what a reader of single records, and a recovery that reads whole groups, would both take.
 */
import { crc32 } from "node:zlib";
import { invariant } from "../runtime/mod.ts";
import {
  BLOCK_HEADER_BYTES,
  type BlockHeader,
  RECORD_ALIGN_BYTES,
  RECORD_HEADER_BYTES,
  recordBytes,
  recordWordBytes,
  recordWordKind,
  SKIP_KIND,
} from "./block.ts";
import type { Damage } from "./log_store.ts";

/** The record that the last piece ended in. */
interface OpenRecord {
  readonly start: number;
  readonly end: number;
  readonly payloadEnd: number;
  readonly isSkip: boolean;
  readonly expectedCrc: number;
  crc: number;
}

/** See the module. */
export class BlockChecker {
  readonly #header: BlockHeader;
  readonly #end: number;
  readonly #onDamage: (damage: Damage) => void;
  #position: number;
  #recordsCrc = 0;
  #records = 0;
  #open: OpenRecord | null = null;
  /** What is wrong with the framing: nothing behind that place can be told apart. */
  #problem: string | null = null;
  #foundAny = false;

  /** `onDamage` is called once for each damaged record, and for the block when no record is to blame. */
  constructor(header: BlockHeader, onDamage: (damage: Damage) => void) {
    this.#header = header;
    this.#onDamage = onDamage;
    this.#position = header.position + BLOCK_HEADER_BYTES;
    this.#end = this.#position + header.recordsBytes;
  }

  /** The next bytes of the records: all that is left of them, or a multiple of 8. */
  add(bytes: Uint8Array): void {
    const end = this.#position + bytes.length;
    invariant(end <= this.#end, "no more is checked than the block has");
    invariant(
      end === this.#end || bytes.length % RECORD_ALIGN_BYTES === 0,
      "a piece ends where a record header can start",
    );
    this.#recordsCrc = crc32(bytes, this.#recordsCrc);
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    const piece = this.#position;
    while (this.#position < end && this.#problem === null) {
      const at = this.#position - piece;
      const open = this.#open;
      if (open === null) this.#begin(view, at);
      else this.#goOn(open, bytes, at, Math.min(open.end, end));
    }
    this.#position = end;
  }

  /** After the last piece: reports what is wrong with the block as a whole. */
  finish(): void {
    invariant(this.#position === this.#end, "all of the block has been added");
    const { recordsCrc, recordCount, position, recordsBytes } = this.#header;
    let problem = this.#problem;
    if (problem === null && !this.#foundAny) {
      if (this.#recordsCrc !== recordsCrc) {
        problem = "the block's checksum is wrong, though each record's is right";
      } else if (this.#records !== recordCount) {
        problem = `the block has ${this.#records} records, not ${recordCount}`;
      }
    }
    if (problem === null) return;
    this.#onDamage({ position, bytes: BLOCK_HEADER_BYTES + recordsBytes, reason: problem });
  }

  #begin(view: DataView, at: number): void {
    const start = this.#position;
    if (view.byteLength - at < RECORD_HEADER_BYTES) {
      this.#problem = "a record header is cut off";
      return;
    }
    const word = view.getUint32(at, true);
    const end = start + recordBytes(recordWordBytes(word));
    if (end > this.#end) {
      this.#problem = "a record is longer than its block";
      return;
    }
    const isSkip = recordWordKind(word) === SKIP_KIND;
    this.#records++;
    this.#position = start + RECORD_HEADER_BYTES;
    this.#open = {
      start,
      end,
      payloadEnd: this.#position + recordWordBytes(word),
      isSkip,
      expectedCrc: view.getUint32(at + 4, true),
      // A record's checksum starts from its first word; that of a skip is 0.
      crc: isSkip ? 0 : word,
    };
    if (end === this.#position) this.#close(this.#open);
  }

  #goOn(open: OpenRecord, bytes: Uint8Array, at: number, end: number): void {
    const payloadEnd = Math.min(open.payloadEnd, end);
    if (!open.isSkip && payloadEnd > this.#position) {
      open.crc = crc32(bytes.subarray(at, at + payloadEnd - this.#position), open.crc);
    }
    this.#position = end;
    if (end === open.end) this.#close(open);
  }

  #close(open: OpenRecord): void {
    this.#open = null;
    // A record without a payload: crc32 of nothing, started from its word, is that word.
    if (open.crc === open.expectedCrc) return;
    this.#foundAny = true;
    this.#onDamage({
      position: open.start,
      bytes: open.end - open.start,
      reason: "the record's checksum is wrong",
    });
  }
}
