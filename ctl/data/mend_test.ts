import {
  BLOCK_HEADER_BYTES,
  type BlockHeader,
  type Damage,
  readBlockHeader,
  recordBytes,
  recordCrc,
  recordWord,
  recoverFile,
  walkRecords,
  writeBlockHeader,
} from "@sluice/shared/log";
import { SimDisk } from "@sluice/shared/testing";
import assert from "node:assert/strict";
import { crc32 } from "node:zlib";
import { mendBlock, writeFilling } from "./mend.ts";

const START = 4096;
const MIB = 1024 * 1024;

function buildBlock(texts: readonly string[]): { bytes: Uint8Array; header: BlockHeader } {
  const payloads = texts.map((text) => new TextEncoder().encode(text));
  const recordsBytes = payloads.reduce((sum, { length }) => sum + recordBytes(length), 0);
  const bytes = new Uint8Array(BLOCK_HEADER_BYTES + recordsBytes);
  const view = new DataView(bytes.buffer);
  let at = BLOCK_HEADER_BYTES;
  for (const payload of payloads) {
    const word = recordWord(1, payload.length);
    view.setUint32(at, word, true);
    view.setUint32(at + 4, recordCrc(word, payload), true);
    bytes.set(payload, at + 8);
    at += recordBytes(payload.length);
  }
  const header: BlockHeader = {
    epoch: 7,
    position: START,
    synced: 4000,
    firstSequence: 41,
    recordsBytes,
    recordCount: texts.length,
    recordsCrc: crc32(bytes.subarray(BLOCK_HEADER_BYTES)),
  };
  writeBlockHeader(view, 0, header);
  return { bytes, header };
}

/** The texts that are left; fails unless the block checks out. */
function textsOf(block: Uint8Array): string[] {
  const reading = readBlockHeader(new DataView(block.buffer, block.byteOffset), 0);
  assert.equal(reading.kind, "block");
  assert.ok(reading.kind === "block");
  const { epoch, position, synced, firstSequence, recordsCrc } = reading.header;
  assert.deepEqual([epoch, position, synced, firstSequence], [7, START, 4000, 41]);
  assert.equal(recordsCrc, crc32(block.subarray(BLOCK_HEADER_BYTES)));
  const texts: string[] = [];
  const problem = walkRecords(
    block,
    BLOCK_HEADER_BYTES,
    block.length,
    (_kind, start, end) => texts.push(new TextDecoder().decode(block.subarray(start, end))),
    true,
    () => assert.fail("every record is good"),
  );
  assert.equal(problem, null);
  return texts;
}

Deno.test("mendBlock() leaves a good block as it is", () => {
  const { bytes, header } = buildBlock(["one", "two"]);
  const before = bytes.slice();
  mendBlock(bytes, header, new Set());
  assert.deepEqual(bytes, before);
});

Deno.test("mendBlock() keeps all records but the bad ones, whatever bit is flipped", () => {
  const { bytes, header } = buildBlock(["first", "second record", "third"]);
  for (let bit = BLOCK_HEADER_BYTES * 8; bit < bytes.length * 8; bit++) {
    const block = bytes.slice();
    block[bit >>> 3] = block[bit >>> 3]! ^ (1 << (bit & 7));
    mendBlock(block, header, new Set());
    const texts = textsOf(block);
    assert.deepEqual(
      texts,
      ["first", "second record", "third"].filter((text) => texts.includes(text)),
    );
    assert.ok(
      bit >= (BLOCK_HEADER_BYTES + 16) * 8 || !texts.includes("first") || texts.length === 3,
    );
  }
});

Deno.test("mendBlock() takes out what it is told to", () => {
  const { bytes, header } = buildBlock(["one", "two", "three"]);
  mendBlock(bytes, header, new Set([START + BLOCK_HEADER_BYTES + recordBytes(3)]));
  assert.deepEqual(textsOf(bytes), ["one", "three"]);
});

Deno.test("writeFilling() fills any size with blocks that check out and hold nothing", async () => {
  for (const bytes of [64, 72, 136, MIB, MIB + 8, MIB + 64, MIB + 72, 3 * MIB + 16]) {
    const disk = new SimDisk();
    const file = await disk.open("/log", "create");
    // Old bytes must not show through.
    await file.writeAt(0, new Uint8Array(bytes).fill(0x55));
    await writeFilling(file, START, START, START + bytes, { epoch: 7, firstSequence: 41 });
    assert.equal(await file.size(), bytes);
    const damage: Damage[] = [];
    const found = await recoverFile(
      file,
      {
        info: { start: START, end: START + bytes },
        last: false,
        epochMax: 7,
        from: START,
        syncedTo: 0,
      },
      { block: () => {}, record: () => assert.fail("it holds nothing") },
    );
    damage.push(...found.damage);
    assert.deepEqual(damage, [], `${bytes} bytes`);
    assert.equal(found.end, START + bytes);
    file.close();
  }
});
