import assert from "node:assert/strict";
import fc from "fast-check";
import { InvariantError } from "../runtime/invariant.ts";
import { concatBytes, utf8Bytes } from "./bytes.ts";
import { hexBytes } from "./decode_test_trace.ts";
import { ProtocolError } from "./error_code.ts";
import {
  encodeErrorFrame,
  encodeFrame,
  encodeMessageFrame,
  encodeResponseFrame,
  FRAME_HEADER_BYTES,
  FrameDecoder,
  FrameEvent,
  FrameType,
  HEARTBEAT_FRAME,
  MESSAGE_BODY_OFFSET,
  messageFrameBytes,
  OK_FRAME,
  readAttempts,
  readTimestampMs,
  TIMESTAMP_MS_MAX,
  writeAttempts,
  writeErrorFrame,
  writeMessageFrame,
  writeResponseFrame,
  writeStoredMessageFrame,
  writeTimestampMs,
} from "./frame.ts";

Deno.test("writeTimestampMs() is exact to the nanosecond over the whole range", () => {
  const timestamps = fc.oneof(
    fc.integer({ min: 0, max: TIMESTAMP_MS_MAX }),
    fc.integer({ min: 0, max: 2 ** 21 }),
    fc.integer({ min: 1_600_000_000_000, max: 1_900_000_000_000 }),
    fc.constantFrom(0, 2 ** 20 - 1, 2 ** 20, 2 ** 32, 2 ** 40 - 1, TIMESTAMP_MS_MAX),
  );
  fc.assert(
    fc.property(timestamps, (ms) => {
      const buffer = new Uint8Array(10);
      writeTimestampMs(buffer, 1, ms);
      assert.equal(new DataView(buffer.buffer).getBigInt64(1), BigInt(ms) * 1_000_000n);
      assert.equal(readTimestampMs(buffer, 1), ms);
    }),
    { numRuns: 2000 },
  );
});

Deno.test("readTimestampMs() rounds nanoseconds down", () => {
  const nanoseconds = fc.bigInt({ min: 0n, max: 2n ** 63n - 1n });
  const edges = fc.constantFrom(999_999n, 1_000_000n, 1_999_999n, 2n ** 63n - 1n, 2n ** 32n - 1n);
  fc.assert(fc.property(fc.oneof(nanoseconds, edges), (ns) => {
    const buffer = new Uint8Array(8);
    new DataView(buffer.buffer).setBigInt64(0, ns);
    assert.equal(readTimestampMs(buffer, 0), Number(ns / 1_000_000n));
  }));
});

Deno.test("attempts stop at 32767 on the wire", () => {
  const data = new Uint8Array(MESSAGE_BODY_OFFSET + 2);
  for (
    const [attempts, written] of [[1, 1], [256, 256], [32767, 32767], [32768, 32767], [1e9, 32767]]
  ) {
    writeAttempts(data, 1, attempts!);
    assert.equal(readAttempts(data, 1), written);
    assert.equal(new DataView(data.buffer).getInt16(9), written);
  }
});

Deno.test("writers fill exactly their bytes at the offset and return how many", () => {
  const buffer = new Uint8Array(80).fill(0xaa);
  const error = new ProtocolError("E_INVALID", "invalid command é");
  const bytes = writeErrorFrame(buffer, 5, error);
  assert.deepEqual(buffer.subarray(5, 5 + bytes), encodeErrorFrame(error));
  assert.ok(buffer.subarray(0, 5).every((byte) => byte === 0xaa));
  assert.ok(buffer.subarray(5 + bytes).every((byte) => byte === 0xaa));
  assert.equal(writeResponseFrame(buffer, 0, "OK"), OK_FRAME.length);
  assert.deepEqual(buffer.subarray(0, OK_FRAME.length), OK_FRAME);
});

Deno.test("writeStoredMessageFrame() equals writeMessageFrame() but for the attempts", () => {
  const head = { timestampMs: 1_796_034_325_123, attempts: 0, nodeId: 7, sequence: 99 };
  const body = new Uint8Array(100).map((_, index) => index);
  const first = encodeMessageFrame(head, body);
  const again = new Uint8Array(first.length + 3);
  const bytes = writeStoredMessageFrame(again, 3, first, FRAME_HEADER_BYTES, first.length, 4);
  assert.equal(bytes, messageFrameBytes(body.length));
  assert.deepEqual(again.subarray(3), encodeMessageFrame({ ...head, attempts: 4 }, body));
  const partly = new Uint8Array(messageFrameBytes(10));
  writeMessageFrame(partly, 0, head, body, 20, 30);
  assert.deepEqual(partly, encodeMessageFrame(head, body.subarray(20, 30)));
});

// FrameDecoder -----------------------------------------------------------------------------------

function decodeFrames(stream: Uint8Array, cuts: readonly number[], frameBytesMax = 1000): string[] {
  const decoder = new FrameDecoder(frameBytesMax, { retainBytesMax: 0 });
  const seen: string[] = [];
  let start = 0;
  for (const end of [...cuts, stream.length]) {
    const chunk = new Uint8Array(end - start + 4);
    chunk.set(stream.subarray(start, end), 2);
    decoder.feed(chunk, 2, chunk.length - 2);
    for (;;) {
      const event = decoder.next();
      if (event === FrameEvent.NEED_MORE) break;
      if (event === FrameEvent.BAD_FRAME) {
        assert.equal(decoder.next(), FrameEvent.BAD_FRAME);
        return [...seen, `BAD_FRAME ${decoder.size}`];
      }
      seen.push(`${decoder.type} ${decoder.text()}`);
    }
    chunk.fill(0xee);
    start = end;
  }
  if (decoder.isBetweenFrames) assert.equal(decoder.stagedBytes, 0);
  return [...seen, decoder.isBetweenFrames ? "clean" : "cut"];
}

const MESSAGE = encodeMessageFrame(
  { timestampMs: 0, attempts: 1, nodeId: 1, sequence: 1 },
  utf8Bytes("hi"),
);
const STREAM = concatBytes(
  OK_FRAME,
  MESSAGE,
  encodeFrame(FrameType.RESPONSE, new Uint8Array(0)),
  HEARTBEAT_FRAME,
  encodeErrorFrame(new ProtocolError("E_INVALID", "x")),
  encodeFrame(FrameType.RESPONSE, utf8Bytes("y".repeat(300))),
);

Deno.test("FrameDecoder gives the same frames for every split point and byte by byte", () => {
  const whole = decodeFrames(STREAM, []);
  assert.deepEqual(whole.map((entry) => entry.slice(0, 14)), [
    "0 OK",
    "2 \0\0\0\0\0\0\0\0\0\x0100",
    "0 ",
    "0 _heartbeat_",
    "1 E_INVALID x",
    "0 yyyyyyyyyyyy",
    "clean",
  ]);
  for (let cut = 0; cut <= STREAM.length; cut++) {
    assert.deepEqual(decodeFrames(STREAM, [cut]), whole);
  }
  const everywhere = Array.from({ length: STREAM.length }, (_, index) => index);
  assert.deepEqual(decodeFrames(STREAM, everywhere), whole);
});

Deno.test("FrameDecoder tells a stream that ends inside a frame", () => {
  assert.deepEqual(decodeFrames(OK_FRAME.subarray(0, 3), []), ["cut"]);
  assert.deepEqual(decodeFrames(OK_FRAME.subarray(0, 9), []), ["cut"]);
  assert.deepEqual(decodeFrames(new Uint8Array(0), []), ["clean"]);
});

Deno.test("FrameDecoder refuses sizes outside its bounds and keeps refusing", () => {
  const cases: [string, string][] = [
    ["00000003 00000000", "BAD_FRAME 3"],
    ["ffffffff 00000000", "BAD_FRAME -1"],
    ["80000000 00000000", "BAD_FRAME -2147483648"],
    ["000003e9 00000000", "BAD_FRAME 1001"],
    ["48545450 2f312e31", "BAD_FRAME 1213486160"],
    // Too short for a message's fixed fields.
    ["0000001d 00000002" + "00".repeat(25), "BAD_FRAME 29"],
  ];
  for (const [hex, outcome] of cases) {
    const bytes = hexBytes(hex);
    const everywhere = Array.from({ length: bytes.length }, (_, index) => index);
    assert.deepEqual(decodeFrames(bytes, []), [outcome]);
    assert.deepEqual(decodeFrames(bytes, everywhere), [outcome]);
  }
});

Deno.test("FrameDecoder takes a frame of exactly the cap and a message without a body", () => {
  const largest = encodeFrame(FrameType.RESPONSE, new Uint8Array(996).fill(0x61));
  assert.deepEqual(decodeFrames(largest, [100])[1], "clean");
  const empty = encodeMessageFrame(
    { timestampMs: 0, attempts: 1, nodeId: 0, sequence: 0 },
    new Uint8Array(0),
  );
  assert.equal(decodeFrames(empty, []).at(-1), "clean");
});

Deno.test("FrameDecoder hands back the bytes behind a frame for an upgrade", () => {
  const decoder = new FrameDecoder(100);
  decoder.feed(concatBytes(OK_FRAME, utf8Bytes("\x16\x03\x01")));
  assert.equal(decoder.next(), FrameEvent.FRAME);
  assert.deepEqual(decoder.takeRemaining(), utf8Bytes("\x16\x03\x01"));
  assert.equal(decoder.next(), FrameEvent.NEED_MORE);
});

Deno.test("FrameDecoder takes no chunk before the last one is used up", () => {
  const decoder = new FrameDecoder(100);
  decoder.feed(OK_FRAME);
  assert.throws(() => decoder.feed(OK_FRAME), InvariantError);
});

Deno.test("frames of any type and data come back from any cuts", () => {
  const frames = fc.array(fc.tuple(fc.constantFrom(0, 1, 7), fc.uint8Array({ maxLength: 200 })));
  fc.assert(fc.property(frames, fc.array(fc.nat()), (list, raw) => {
    const stream = concatBytes(
      ...list.map(([type, data]) => {
        const frame = encodeFrame(FrameType.RESPONSE, data);
        frame[7] = type;
        return frame;
      }),
    );
    const cuts = raw.map((value) => value % (stream.length + 1)).sort((a, b) => a - b);
    const expected = list.map(([type, data]) =>
      `${type} ${new TextDecoder("utf-8", { ignoreBOM: true }).decode(data)}`
    );
    assert.deepEqual(decodeFrames(stream, cuts), [...expected, "clean"]);
  }));
});

Deno.test("encodeResponseFrame() counts UTF-8 bytes, not characters", () => {
  assert.deepEqual(encodeResponseFrame("é"), hexBytes("00000006 00000000 c3a9"));
});
