import { deepEqual, equal, notEqual } from "node:assert/strict";
import {
  BLOCK_HEADER_BYTES,
  type BlockHeader,
  readBlockHeader,
  readU64,
  RECORD_PAYLOAD_BYTES_MAX,
  recordBytes,
  recordCrc,
  recordWord,
  recordWordBytes,
  recordWordKind,
  walkRecords,
  writeBlockHeader,
  writeU64,
} from "./block.ts";
import { buildBlock, textRecord } from "./log_test_fixture.ts";

const HEADER: BlockHeader = {
  epoch: 2 ** 32 - 1,
  position: 2 ** 53 - 8,
  synced: 2 ** 40 + 8,
  firstSequence: 2 ** 48 - 1,
  recordsBytes: 2 ** 30,
  recordCount: 7,
  recordsCrc: 0xdeadbeef,
};

function headerBytes(header: BlockHeader, offset = 0): Uint8Array {
  const bytes = new Uint8Array(offset + BLOCK_HEADER_BYTES);
  writeBlockHeader(new DataView(bytes.buffer), offset, header);
  return bytes;
}

function read(bytes: Uint8Array, offset = 0) {
  return readBlockHeader(new DataView(bytes.buffer, bytes.byteOffset), offset);
}

/** Bytes as lines of 16, as a page of documentation shows them. */
function hexLines(bytes: Uint8Array): string[] {
  const lines: string[] = [];
  for (let at = 0; at < bytes.length; at += 16) {
    const hex = [...bytes.subarray(at, at + 16)].map((byte) => byte.toString(16).padStart(2, "0"));
    lines.push(hex.join(" "));
  }
  return lines;
}

interface Walked {
  readonly problem: string | null;
  readonly visited: readonly [kind: number, text: string][];
  readonly bad: readonly [start: number, end: number][];
}

function walk(bytes: Uint8Array, verify: boolean, start = 0, end = bytes.length): Walked {
  const visited: [number, string][] = [];
  const bad: [number, number][] = [];
  const problem = walkRecords(
    bytes,
    start,
    end,
    (kind, from, to) => visited.push([kind, new TextDecoder().decode(bytes.subarray(from, to))]),
    verify,
    (from, to) => bad.push([from, to]),
  );
  return { problem, visited, bad };
}

function recordsOf(...texts: readonly string[]): Uint8Array<ArrayBuffer> {
  return buildBlock({}, texts.map(textRecord)).slice(BLOCK_HEADER_BYTES);
}

Deno.test("readBlockHeader() detects every flipped bit of a header", () => {
  for (let bit = 0; bit < BLOCK_HEADER_BYTES * 8; bit++) {
    const bytes = headerBytes(HEADER);
    bytes[bit >>> 3]! ^= 1 << (bit & 7);
    equal(read(bytes).kind, "bad", `bit ${bit}`);
  }
});

Deno.test("readBlockHeader() tells zeros from bytes that are no header", () => {
  equal(read(new Uint8Array(BLOCK_HEADER_BYTES)).kind, "zero");
  for (let at = 4; at < BLOCK_HEADER_BYTES; at++) {
    const bytes = new Uint8Array(BLOCK_HEADER_BYTES);
    bytes[at] = 1;
    equal(read(bytes).kind, "bad", `byte ${at}`);
  }
});

Deno.test("readBlockHeader() names the format of a block that a newer release wrote", () => {
  // Format 2 under a right checksum.
  const text = "534c4231ea7e2e810200000001000000" + "00".repeat(48);
  const bytes = Uint8Array.from(text.match(/../g)!, (hex) => parseInt(hex, 16));
  deepEqual(read(bytes), { kind: "newer_format", format: 2 });
});

Deno.test("readBlockHeader() gives what writeBlockHeader() was given, at any offset", () => {
  for (const offset of [0, 8, 13]) {
    deepEqual(read(headerBytes(HEADER, offset), offset), { kind: "block", header: HEADER });
  }
});

Deno.test("a block has the bytes that docs/format/log.md shows", () => {
  const block = buildBlock({ epoch: 3, position: 4096, synced: 4096, firstSequence: 41 }, [
    textRecord("hello"),
    { kind: 0, payload: new Uint8Array(8) },
  ]);
  deepEqual(hexLines(block), GOLDEN_BLOCK);
  const page = Deno.readTextFileSync(new URL("../../docs/format/log.md", import.meta.url));
  for (const line of GOLDEN_BLOCK) equal(page.includes(line), true, line);
});

Deno.test("writeU64() and readU64() keep every integer below 2^53", () => {
  const view = new DataView(new ArrayBuffer(9));
  for (const value of [0, 1, 2 ** 31, 2 ** 32 - 1, 2 ** 32, 2 ** 48 - 1, 2 ** 53 - 1]) {
    writeU64(view, 1, value);
    equal(readU64(view, 1), value);
    equal(view.getBigUint64(1, true), BigInt(value));
  }
});

Deno.test("recordBytes() is the header and the payload, rounded up to 8", () => {
  deepEqual([0, 1, 8, 9, 16].map(recordBytes), [8, 16, 16, 24, 24]);
  equal(recordBytes(RECORD_PAYLOAD_BYTES_MAX), 2 ** 28 + 8);
});

Deno.test("recordWord() keeps each kind with the largest and the smallest payload", () => {
  for (let kind = 0; kind < 16; kind++) {
    for (const bytes of [0, 1, RECORD_PAYLOAD_BYTES_MAX]) {
      const word = recordWord(kind, bytes);
      deepEqual([recordWordKind(word), recordWordBytes(word)], [kind, bytes]);
    }
  }
});

Deno.test("recordCrc() differs for the same payload under another kind", () => {
  for (const payload of [new Uint8Array(), new Uint8Array(5)]) {
    notEqual(
      recordCrc(recordWord(1, payload.length), payload),
      recordCrc(recordWord(2, payload.length), payload),
    );
  }
});

Deno.test("walkRecords() says that a record header is cut off", () => {
  const bytes = recordsOf("first", "second");
  const cut = recordBytes(5) + 4;
  deepEqual(walk(bytes, false, 0, cut), {
    problem: "a record header is cut off",
    visited: [[1, "first"]],
    bad: [],
  });
});

Deno.test("walkRecords() says that a record is longer than its block", () => {
  const bytes = recordsOf("first", "second");
  for (const verify of [false, true]) {
    const { problem, visited } = walk(bytes, verify, 0, bytes.length - 8);
    equal(problem, "a record is longer than its block");
    deepEqual(visited, [[1, "first"]]);
  }
  new DataView(bytes.buffer).setUint32(0, recordWord(1, RECORD_PAYLOAD_BYTES_MAX), true);
  equal(walk(bytes, true).problem, "a record is longer than its block");
});

Deno.test("walkRecords() with verify keeps a damaged record back and shows the ones around it", () => {
  const first = recordBytes(5);
  const second = recordBytes(11);
  const padding = 5;
  for (let bit = 32; bit < (8 + 11) * 8; bit++) {
    const bytes = recordsOf("first", "the damaged", "third");
    bytes[first + (bit >>> 3)]! ^= 1 << (bit & 7);
    deepEqual(walk(bytes, true), {
      problem: null,
      visited: [[1, "first"], [1, "third"]],
      bad: [[first, first + second]],
    }, `bit ${bit}`);
  }
  // Padding is under the checksum of the block only; nothing is lost with it.
  const bytes = recordsOf("first", "the damaged", "third");
  bytes[first + second - padding + 1]! ^= 1;
  equal(walk(bytes, true).visited.length, 3);
});

Deno.test("walkRecords() with verify never shows a record whose first word has a flipped bit", () => {
  const first = recordBytes(5);
  for (let bit = 0; bit < 32; bit++) {
    const bytes = recordsOf("first", "the damaged", "third");
    bytes[first + (bit >>> 3)]! ^= 1 << (bit & 7);
    const { problem, visited, bad } = walk(bytes, true);
    equal(visited.some(([, text]) => text !== "first" && text !== "third"), false, `bit ${bit}`);
    equal(problem !== null || bad.length > 0, true, `bit ${bit} goes unnoticed`);
  }
});

Deno.test("walkRecords() passes over skips, with and without verify", () => {
  const bytes = buildBlock({}, [
    { kind: 0, payload: new Uint8Array() },
    textRecord("kept"),
    { kind: 0, payload: new Uint8Array(48) },
  ]).slice(BLOCK_HEADER_BYTES);
  for (const verify of [false, true]) {
    deepEqual(walk(bytes, verify), { problem: null, visited: [[1, "kept"]], bad: [] });
  }
});

Deno.test("walkRecords() shows records of every kind and an empty payload", () => {
  const records = Array.from({ length: 15 }, (_, index) => ({
    kind: index + 1,
    payload: new Uint8Array(index).fill(65),
  }));
  const bytes = buildBlock({}, records).slice(BLOCK_HEADER_BYTES);
  deepEqual(walk(bytes, true).visited, records.map(({ kind }) => [kind, "A".repeat(kind - 1)]));
});

const GOLDEN_BLOCK: readonly string[] = [
  "53 4c 42 31 ae f9 19 91 01 00 00 00 03 00 00 00",
  "00 10 00 00 00 00 00 00 00 10 00 00 00 00 00 00",
  "29 00 00 00 00 00 00 00 20 00 00 00 02 00 00 00",
  "bc b5 ac af 00 00 00 00 00 00 00 00 00 00 00 00",
  "05 00 00 10 a7 3b 32 b4 68 65 6c 6c 6f 00 00 00",
  "08 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00",
];
