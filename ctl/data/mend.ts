/**
 * How bad bytes of a log are taken out without moving anything: positions are what sidecars,
 * checkpoints and all later blocks go by, so what is bad becomes **skips**, which mean nothing and
 * check out. A bad record becomes a skip of its size and its block gets new checksums; a place at which
 * no block can be read is filled with blocks of skips.
 */
import {
  BLOCK_HEADER_BYTES,
  type BlockHeader,
  RECORD_ALIGN_BYTES,
  RECORD_HEADER_BYTES,
  RECORD_PAYLOAD_BYTES_MAX,
  recordBytes,
  recordCrc,
  recordWord,
  recordWordBytes,
  recordWordKind,
  SKIP_KIND,
  writeBlockHeader,
} from "@sluice/shared/log";
import type { DiskFile } from "@sluice/shared/runtime";
import { crc32 } from "node:zlib";

/** The smallest filling: a block with one empty skip. */
export const FILLING_BYTES_MIN = BLOCK_HEADER_BYTES + RECORD_HEADER_BYTES;
/** The size of one block of a filling, so that no reader needs more memory for it. */
const FILLING_BLOCK_BYTES = 1024 * 1024;
const SKIP_BYTES_MAX = RECORD_PAYLOAD_BYTES_MAX -
  (RECORD_PAYLOAD_BYTES_MAX % RECORD_ALIGN_BYTES) -
  RECORD_ALIGN_BYTES;

/**
 * Turns the bad records of a block into skips, in place: those whose checksum is wrong, those at the
 * positions in `malformed`, and all from where the records do not add up. Writes the header again.
 */
export function mendBlock(
  block: Uint8Array,
  header: BlockHeader,
  malformed: ReadonlySet<number>,
): void {
  const view = new DataView(block.buffer, block.byteOffset, block.byteLength);
  let recordCount = 0;
  for (let at = BLOCK_HEADER_BYTES; at < block.length;) {
    const word = view.getUint32(at, true);
    const next = at + recordBytes(recordWordBytes(word));
    if (next > block.length) {
      recordCount += writeSkips(view, block, at, block.length);
      break;
    }
    const payload = at + RECORD_HEADER_BYTES;
    const crc = recordWordKind(word) === SKIP_KIND ? 0 : recordCrc(
      word,
      block.subarray(payload, payload + recordWordBytes(word)),
    );
    const isBad = view.getUint32(at + 4, true) !== crc ||
      malformed.has(header.position + at);
    recordCount += isBad ? writeSkips(view, block, at, next) : 1;
    at = next;
  }
  const recordsCrc = crc32(block.subarray(BLOCK_HEADER_BYTES));
  writeBlockHeader(view, 0, { ...header, recordCount, recordsCrc });
}

/** Writes blocks of skips over `[from, to)` of the log, into the file that starts at `fileStart`. */
export async function writeFilling(
  file: DiskFile,
  fileStart: number,
  from: number,
  to: number,
  stamp: { readonly epoch: number; readonly firstSequence: number },
): Promise<void> {
  for (let position = from; position < to;) {
    let bytes = Math.min(FILLING_BLOCK_BYTES, to - position);
    const rest = to - position - bytes;
    // What is left must hold a block too.
    if (rest > 0 && rest < FILLING_BYTES_MIN) bytes -= FILLING_BYTES_MIN;
    const block = new Uint8Array(bytes);
    const view = new DataView(block.buffer);
    const recordCount = writeSkips(view, block, BLOCK_HEADER_BYTES, bytes);
    writeBlockHeader(view, 0, {
      ...stamp,
      position,
      synced: position,
      recordsBytes: bytes - BLOCK_HEADER_BYTES,
      recordCount,
      recordsCrc: crc32(block.subarray(BLOCK_HEADER_BYTES)),
    });
    await file.writeAt(position - fileStart, block);
    position += bytes;
  }
}

/** Fills `[from, to)` with skips; returns how many. */
function writeSkips(
  view: DataView,
  bytes: Uint8Array,
  from: number,
  to: number,
): number {
  bytes.fill(0, from, to);
  let count = 0;
  for (let at = from; at < to; count++) {
    const skip = Math.min(to - at, SKIP_BYTES_MAX);
    view.setUint32(at, recordWord(SKIP_KIND, skip - RECORD_HEADER_BYTES), true);
    at += skip;
  }
  return count;
}
