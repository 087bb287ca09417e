/**
 * The body of a large message: parts of it are records of the log, written while it arrived; the
 * message's record has this table where a small one has its body.
 *
 * ```
 * table = body_bytes:u64 part_count:u32 0:u32 1*part     ; little endian
 * part  = position:u64 bytes:u32 payload_crc:u32         ; of a record of kind 5, before this one
 * ```
 *
 * `payload_crc` is the checksum that the part's record carries. It is here as well, so that what is
 * read at a position is known to be the part that was meant, and by one checksum only.
 */
import { readU64, recordBytes, recordCrc, recordWord, writeU64 } from "@sluice/shared/log";
import { LARGE_MESSAGE_KIND, PART_KIND, readU32, WIRE_HEADER_BYTES } from "./records.ts";

/** One slice of a body. */
export interface BodyPart {
  /** Of the record in the log. */
  readonly position: number;
  readonly bytes: number;
  readonly crc: number;
}

/** Where a body is; the parts in order. */
export interface LargeBody {
  readonly bytes: number;
  readonly parts: readonly BodyPart[];
}

const HEADER_BYTES = 16;
/** What the table takes for each part. */
export const TABLE_ENTRY_BYTES = 16;

/** Bytes of a table of so many parts. */
export function tableBytes(parts: number): number {
  return HEADER_BYTES + parts * TABLE_ENTRY_BYTES;
}

/** Writes the table; {@linkcode tableBytes}. */
export function writeTable(view: DataView, start: number, body: LargeBody): void {
  writeU64(view, start, body.bytes);
  view.setUint32(start + 8, body.parts.length, true);
  view.setUint32(start + 12, 0, true);
  let at = start + HEADER_BYTES;
  for (const { position, bytes, crc } of body.parts) {
    writeU64(view, at, position);
    view.setUint32(at + 8, bytes, true);
    view.setUint32(at + 12, crc, true);
    at += TABLE_ENTRY_BYTES;
  }
}

/** Reads the table `bytes[start, end)` of a record at `position`; null when it does not add up. */
export function readTable(
  bytes: Uint8Array,
  start: number,
  end: number,
  position: number,
): LargeBody | null {
  if (end - start < tableBytes(1)) return null;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const bodyBytes = readU64(view, start);
  const count = view.getUint32(start + 8, true);
  if (end - start !== tableBytes(count)) return null;
  const parts: BodyPart[] = [];
  let sum = 0;
  let before = -1;
  for (let at = start + HEADER_BYTES; at < end; at += TABLE_ENTRY_BYTES) {
    const part = {
      position: readU64(view, at),
      bytes: view.getUint32(at + 8, true),
      crc: view.getUint32(at + 12, true),
    };
    if (part.position <= before || part.position >= position || part.bytes === 0) return null;
    before = part.position;
    sum += part.bytes;
    parts.push(part);
  }
  return sum === bodyBytes ? { bytes: bodyBytes, parts } : null;
}

/** The position of the first part in a table at `start`; the table was checked, or is so by its record. */
export function firstPartOf(bytes: Uint8Array, start: number): number {
  const at = start + HEADER_BYTES;
  return readU32(bytes, at) + readU32(bytes, at + 4) * 2 ** 32;
}

/**
 * What a message takes in the log, its parts included: its record of `kind` has the payload
 * `bytes[start, end)`, in which the wire part begins at `wireStart`.
 */
export function messageBytes(
  kind: number,
  bytes: Uint8Array,
  start: number,
  end: number,
  wireStart: number,
): number {
  const ownBytes = recordBytes(end - start);
  if (kind !== LARGE_MESSAGE_KIND) return ownBytes;
  const table = wireStart + WIRE_HEADER_BYTES;
  return ownBytes + readU32(bytes, table) + readU32(bytes, table + 4) * 2 ** 32;
}

/** Whether `payload` is what the part holds. */
export function isPart(part: BodyPart, payload: Uint8Array): boolean {
  return payload.length === part.bytes &&
    recordCrc(recordWord(PART_KIND, part.bytes), payload) === part.crc;
}
