/**
 * The blocks a log is made of. One block is one group commit: a header and the records of the group,
 * written together and made durable by one sync.
 *
 * ```
 * block   = header records                                          ; starts and ends at multiples of 8
 * header  = magic:u32 header_crc:u32 format:u16 flags:u16 epoch:u32
 *           position:u64 synced:u64 first_sequence:u64
 *           records_bytes:u32 record_count:u32 records_crc:u32 3*0:u32 ; 64 bytes, little endian
 * records = *record
 * record  = kind_and_length:u32 payload_crc:u32 payload 0*7(0)        ; kind in the 4 high bits
 * ```
 *
 * `header_crc` covers the header behind it, `records_crc` all of `records`, and `payload_crc` one
 * payload, started from `kind_and_length`: so a header is never trusted alone, a whole group is
 * checked in one pass, and one record can be read and checked by itself. A record of kind 0 is a skip:
 * it counts as a record, its payload is zeros and its `payload_crc` is 0. `position` and `epoch` are
 * under the checksum, so a block left over from an earlier use of the same file bytes is not taken
 * for a new one. `synced` is the position up to which the log was durable when the block was
 * written: anything bad below it is damage, above it a write that a crash cut short.
 */
import { crc32 } from "node:zlib";
import { invariant } from "../runtime/mod.ts";

/** "SLB1" as a little-endian number. */
export const BLOCK_MAGIC = 0x31424c53;
export const BLOCK_FORMAT = 1;
export const BLOCK_HEADER_BYTES = 64;
export const RECORD_HEADER_BYTES = 8;
/** Records start at multiples of this. */
export const RECORD_ALIGN_BYTES = 8;
/** The largest payload of one record. */
export const RECORD_PAYLOAD_BYTES_MAX = 2 ** 28 - 1;
/** The record kind that fills space and means nothing. Owners of a log number theirs from 1 to 15. */
export const SKIP_KIND = 0;

invariant(
  new Uint8Array(new Uint32Array([1]).buffer)[0] === 1,
  "the machine is little endian, as the log's numbers are",
);

/** What a block header says. Positions and lengths are bytes. */
export interface BlockHeader {
  epoch: number;
  position: number;
  synced: number;
  /** For the owner of the log; the log itself only carries it. */
  firstSequence: number;
  recordsBytes: number;
  recordCount: number;
  recordsCrc: number;
}

/** Bytes a record takes in the log, header and padding included. */
export function recordBytes(payloadBytes: number): number {
  return (RECORD_HEADER_BYTES + payloadBytes + RECORD_ALIGN_BYTES - 1) & ~(RECORD_ALIGN_BYTES - 1);
}

/** The first word of a record. */
export function recordWord(kind: number, payloadBytes: number): number {
  return ((kind << 28) | payloadBytes) >>> 0;
}

/** The kind in a record's first word. */
export function recordWordKind(word: number): number {
  return word >>> 28;
}

/** The payload bytes in a record's first word. */
export function recordWordBytes(word: number): number {
  return word & RECORD_PAYLOAD_BYTES_MAX;
}

/** The checksum of a record, from its first word and its payload. */
export function recordCrc(word: number, payload: Uint8Array): number {
  return crc32(payload, word);
}

/** Writes a header at `offset`; 64 bytes. */
export function writeBlockHeader(into: DataView, offset: number, header: BlockHeader): void {
  into.setUint32(offset, BLOCK_MAGIC, true);
  into.setUint16(offset + 8, BLOCK_FORMAT, true);
  into.setUint16(offset + 10, 0, true);
  into.setUint32(offset + 12, header.epoch, true);
  writeU64(into, offset + 16, header.position);
  writeU64(into, offset + 24, header.synced);
  writeU64(into, offset + 32, header.firstSequence);
  into.setUint32(offset + 40, header.recordsBytes, true);
  into.setUint32(offset + 44, header.recordCount, true);
  into.setUint32(offset + 48, header.recordsCrc, true);
  for (let at = 52; at < BLOCK_HEADER_BYTES; at += 4) into.setUint32(offset + at, 0, true);
  into.setUint32(offset + 4, headerCrc(into, offset), true);
}

/** What bytes at a place where a block should start turn out to be. */
export type HeaderReading =
  | { readonly kind: "block"; readonly header: BlockHeader }
  | { readonly kind: "zero" }
  | { readonly kind: "newer_format"; readonly format: number }
  | { readonly kind: "bad" };

/** Reads the 64 bytes at `offset`. Checks the checksum, not whether the header belongs here. */
export function readBlockHeader(from: DataView, offset: number): HeaderReading {
  if (from.getUint32(offset, true) !== BLOCK_MAGIC) {
    for (let at = 0; at < BLOCK_HEADER_BYTES; at += 4) {
      if (from.getUint32(offset + at, true) !== 0) return { kind: "bad" };
    }
    return { kind: "zero" };
  }
  if (from.getUint32(offset + 4, true) !== headerCrc(from, offset)) return { kind: "bad" };
  const format = from.getUint16(offset + 8, true);
  if (format !== BLOCK_FORMAT) return { kind: "newer_format", format };
  return {
    kind: "block",
    header: {
      epoch: from.getUint32(offset + 12, true),
      position: readU64(from, offset + 16),
      synced: readU64(from, offset + 24),
      firstSequence: readU64(from, offset + 32),
      recordsBytes: from.getUint32(offset + 40, true),
      recordCount: from.getUint32(offset + 44, true),
      recordsCrc: from.getUint32(offset + 48, true),
    },
  };
}

/** Writes an integer below 2^53 as 8 little-endian bytes. */
export function writeU64(into: DataView, offset: number, value: number): void {
  into.setUint32(offset, value >>> 0, true);
  into.setUint32(offset + 4, Math.floor(value / 2 ** 32), true);
}

/** Reads what {@linkcode writeU64} wrote. */
export function readU64(from: DataView, offset: number): number {
  return from.getUint32(offset, true) + from.getUint32(offset + 4, true) * 2 ** 32;
}

/** One record found by {@linkcode walkRecords}. */
export interface RecordVisit {
  /** Kind, and where the payload is in the bytes given. */
  (kind: number, payloadStart: number, payloadEnd: number): void;
}

/**
 * Calls `visit` for each record of a block's records, skips left out. Returns what is wrong with the
 * framing, or null. With `verify`, records whose checksum is bad are not visited but handed to `onBad`,
 * and so is what has become a skip by a flipped bit.
 */
export function walkRecords(
  bytes: Uint8Array,
  start: number,
  end: number,
  visit: RecordVisit,
  verify: boolean,
  onBad?: (start: number, end: number) => void,
): string | null {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let at = start;
  while (at < end) {
    if (end - at < RECORD_HEADER_BYTES) return "a record header is cut off";
    const word = view.getUint32(at, true);
    const length = recordWordBytes(word);
    const next = at + recordBytes(length);
    if (next > end) return "a record is longer than its block";
    const kind = recordWordKind(word);
    const isSkip = kind === SKIP_KIND;
    const payloadStart = at + RECORD_HEADER_BYTES;
    const good = !verify ||
      view.getUint32(at + 4, true) ===
        (isSkip ? 0 : recordCrc(word, bytes.subarray(payloadStart, payloadStart + length)));
    if (!good) onBad?.(at, next);
    else if (!isSkip) visit(kind, payloadStart, payloadStart + length);
    at = next;
  }
  return null;
}

function headerCrc(view: DataView, offset: number): number {
  return crc32(new Uint8Array(view.buffer, view.byteOffset + offset + 8, BLOCK_HEADER_BYTES - 8));
}
