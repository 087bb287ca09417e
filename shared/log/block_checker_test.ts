import { deepStrictEqual as equal } from "node:assert/strict";
import { crc32 } from "node:zlib";
import {
  BLOCK_HEADER_BYTES,
  type BlockHeader,
  recordBytes,
  recordCrc,
  recordWord,
  SKIP_KIND,
} from "./block.ts";
import { BlockChecker } from "./block_checker.ts";

const POSITION = 4096;
const RECORDS_POSITION = POSITION + BLOCK_HEADER_BYTES;
/** Payload lengths; null is a skip of 24 bytes. */
const RECORDS = [5, 0, 40, null, 16] as const;

function block(): { header: BlockHeader; records: Uint8Array; starts: number[] } {
  const starts: number[] = [];
  let end = 0;
  for (const length of RECORDS) {
    starts.push(end);
    end += recordBytes(length ?? 16);
  }
  const records = new Uint8Array(end);
  const view = new DataView(records.buffer);
  for (const [index, length] of RECORDS.entries()) {
    const at = starts[index]!;
    const payload = records.subarray(at + 8, at + 8 + (length ?? 0)).fill(index + 1);
    const word = length === null ? recordWord(SKIP_KIND, 16) : recordWord(1, length);
    view.setUint32(at, word, true);
    view.setUint32(at + 4, length === null ? 0 : recordCrc(word, payload), true);
  }
  const header = {
    epoch: 1,
    position: POSITION,
    synced: POSITION,
    firstSequence: 1,
    recordsBytes: records.length,
    recordCount: RECORDS.length,
    recordsCrc: crc32(records),
  };
  return { header, records, starts };
}

/** What is found, as `position+bytes reason`. */
function check(header: BlockHeader, records: Uint8Array, pieceBytes: number): string[] {
  const found: string[] = [];
  const checker = new BlockChecker(
    header,
    ({ position, bytes, reason }) => found.push(`${position}+${bytes} ${reason}`),
  );
  for (let at = 0; at < records.length; at += pieceBytes) {
    checker.add(records.subarray(at, at + pieceBytes));
  }
  checker.finish();
  return found;
}

Deno.test("a good block is good in pieces of any size", () => {
  const { header, records } = block();
  for (let bytes = 8; bytes <= records.length; bytes += 8) {
    equal(check(header, records, bytes), []);
  }
});

Deno.test("a flipped bit anywhere is found, in pieces of any size alike", () => {
  const { header, records } = block();
  for (let bit = 0; bit < records.length * 8; bit++) {
    const flipped = records.slice();
    flipped[bit >>> 3]! ^= 1 << (bit & 7);
    const whole = check(header, flipped, flipped.length - flipped.length % 8);
    equal(whole.length > 0, true, `bit ${bit} is found`);
    equal(check(header, flipped, 8), whole);
  }
});

Deno.test("a damaged record is named, and the ones around it are not", () => {
  const { header, records, starts } = block();
  records[starts[0]! + 8]! ^= 1;
  records[starts[2]! + 30]! ^= 1;
  equal(check(header, records, 16), [
    `${RECORDS_POSITION + starts[0]!}+16 the record's checksum is wrong`,
    `${RECORDS_POSITION + starts[2]!}+48 the record's checksum is wrong`,
  ]);
});

Deno.test("damage that no record is to blame for is the block's", () => {
  const { header, records, starts } = block();
  const whole = `${POSITION}+${BLOCK_HEADER_BYTES + records.length}`;
  equal(check({ ...header, recordCount: 6 }, records, 64), [
    `${whole} the block has 5 records, not 6`,
  ]);
  const padding = records.slice();
  padding[starts[0]! + 15]! ^= 1;
  equal(check(header, padding, 64), [
    `${whole} the block's checksum is wrong, though each record's is right`,
  ]);
  const long = records.slice();
  long[starts[4]! + 1]! ^= 1;
  equal(check(header, long, 64), [`${whole} a record is longer than its block`]);
  const cut = records.subarray(0, -4);
  equal(check({ ...header, recordsBytes: cut.length, recordsCrc: crc32(cut) }, cut, 64), [
    `${POSITION}+${BLOCK_HEADER_BYTES + cut.length} a record is longer than its block`,
  ]);
});
