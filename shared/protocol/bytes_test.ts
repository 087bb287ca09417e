import assert from "node:assert/strict";
import fc from "fast-check";
import { ByteStage } from "./byte_stage.ts";
import {
  concatBytes,
  copyBytes,
  equalBytes,
  parseDecimal,
  readInt32,
  utf8Bytes,
  utf8Text,
  writeInt32,
} from "./bytes.ts";

Deno.test("parseDecimal() takes digits only, empty as 0, and stops at 2^53 - 1", () => {
  const cases: [string, number][] = [
    ["", 0],
    ["0", 0],
    ["007", 7],
    ["2500", 2500],
    ["9007199254740991", Number.MAX_SAFE_INTEGER],
    ["18446744073709551617", Number.MAX_SAFE_INTEGER],
    ["9".repeat(400), Number.MAX_SAFE_INTEGER],
    ["-1", -1],
    ["+1", -1],
    ["1x", -1],
    ["1 ", -1],
    ["/", -1],
    [":", -1],
  ];
  for (const [text, value] of cases) {
    assert.equal(parseDecimal(utf8Bytes(`?${text}?`), 1, 1 + text.length), value, text);
  }
});

Deno.test("writeInt32() and readInt32() agree with DataView for every value", () => {
  fc.assert(fc.property(fc.integer(), fc.integer({ min: 0, max: 3 }), (value, offset) => {
    const buffer = new Uint8Array(8);
    writeInt32(buffer, offset, value);
    assert.equal(new DataView(buffer.buffer).getInt32(offset), value);
    assert.equal(readInt32(buffer, offset), value);
  }));
});

Deno.test("copyBytes() copies short and long ranges and nothing around them", () => {
  const source = new Uint8Array(300).map((_, index) => index);
  for (const bytes of [0, 1, 63, 64, 65, 200]) {
    const target = new Uint8Array(300).fill(0xff);
    copyBytes(target, 7, source, 11, 11 + bytes);
    assert.deepEqual(target.subarray(7, 7 + bytes), source.subarray(11, 11 + bytes));
    assert.ok(target.subarray(0, 7).every((byte) => byte === 0xff));
    assert.ok(target.subarray(7 + bytes).every((byte) => byte === 0xff));
  }
});

Deno.test("equalBytes() compares length and content", () => {
  const buffer = utf8Bytes("xabcx");
  assert.ok(equalBytes(buffer, 1, 4, utf8Bytes("abc")));
  assert.ok(!equalBytes(buffer, 1, 3, utf8Bytes("abc")));
  assert.ok(!equalBytes(buffer, 0, 3, utf8Bytes("abc")));
});

Deno.test("utf8Text() keeps a byte order mark and replaces what is not UTF-8", () => {
  assert.equal(utf8Text(Uint8Array.of(0xef, 0xbb, 0xbf, 0x61, 0xff)), "\ufeffa\ufffd");
});

Deno.test("ByteStage holds no more than asked for, rounded up to 1 KiB", () => {
  const stage = new ByteStage();
  assert.equal(stage.capacity, 0);
  stage.begin(1025);
  assert.equal(stage.capacity, 2048);
  const first = stage.buffer;
  stage.begin(700);
  assert.equal(stage.buffer, first, "a buffer that fits is used again");
  stage.begin(100_000);
  stage.begin(700);
  assert.equal(stage.capacity, 1024, "one that is far too large is not");
});

Deno.test("ByteStage.release() gives back what is over the bound and keeps what is not", () => {
  const stage = new ByteStage();
  stage.begin(2048);
  stage.release(2048);
  assert.equal(stage.capacity, 2048);
  stage.release(2047);
  assert.equal(stage.capacity, 0);
});

Deno.test("ByteStage.appendGrowing() keeps what it has while it grows", () => {
  const stage = new ByteStage();
  const piece = utf8Bytes("0123456789");
  for (let count = 0; count < 100; count++) stage.appendGrowing(piece, 0, piece.length);
  assert.equal(utf8Text(stage.buffer, 0, stage.length), "0123456789".repeat(100));
  assert.deepEqual(concatBytes(piece, piece).length, 20);
});
