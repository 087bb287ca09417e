import { deepEqual, equal, ok, throws } from "node:assert/strict";
import { InvariantError } from "@sluice/shared/runtime";
import { SeededRandom } from "@sluice/shared/testing";
import {
  decodeEvent,
  decodeFinish,
  DUE_ATTRIBUTE_BYTES,
  encodeEvent,
  encodeFinish,
  type Event,
  finishBytesMax,
  MESSAGE_HEADER_BYTES,
  type MessageHeader,
  OFFSET_MAX,
  readMessageHeader,
  readRequeue,
  REQUEUE_BYTES,
  writeMessageHeader,
  writeRequeue,
} from "./records.ts";

function readHeader(bytes: Uint8Array, start: number): MessageHeader {
  const header = { topic: 0, offset: 0, dueMs: 0, wireStart: 0 };
  readMessageHeader(bytes, start, header);
  return header;
}

function finishBytes(channel: number, offsets: readonly number[]): Uint8Array {
  const into = new Uint8Array(finishBytesMax(offsets.length) + 3).fill(255);
  const bytes = encodeFinish(into, channel, Float64Array.from(offsets));
  ok(bytes <= finishBytesMax(offsets.length));
  return into.slice(0, bytes);
}

function finished(bytes: Uint8Array, start = 0, end = bytes.length) {
  const offsets: number[] = [];
  let number = -1;
  decodeFinish(bytes, start, end, (channel, offset) => {
    number = channel;
    offsets.push(offset);
  });
  return { channel: number, offsets };
}

function hex(bytes: Uint8Array): string {
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
}

Deno.test("decodeFinish() stops at the end of its bytes, whatever count they claim", () => {
  const bytes = finishBytes(3, [5, 6, 400]);
  new DataView(bytes.buffer).setUint32(4, 1000, true);
  deepEqual(finished(bytes).offsets, [5, 6, 400]);
  new DataView(bytes.buffer).setUint32(4, 0, true);
  deepEqual(finished(bytes).offsets, []);
});

Deno.test("encodeFinish() needs an offset", () => {
  throws(() => encodeFinish(new Uint8Array(100), 1, new Float64Array()), InvariantError);
});

Deno.test("decodeFinish() gives what encodeFinish() was given, with gaps up to 2^48", () => {
  const cases: number[][] = [
    [0],
    [OFFSET_MAX],
    [0, OFFSET_MAX],
    [0, 1, 2, 3],
    [5, 5 + 127, 5 + 127 + 128, 2 ** 14 + 300, 2 ** 21 + 400, 2 ** 32 + 1, 2 ** 47],
  ];
  for (let seed = 0; seed < 200; seed++) {
    const random = new SeededRandom(seed);
    const offsets: number[] = [];
    let offset = random.below(1000);
    for (let count = random.between(1, 60); count > 0 && offset <= OFFSET_MAX; count--) {
      offsets.push(offset);
      offset += 1 + Math.floor(2 ** (random.below(470) / 10));
    }
    cases.push(offsets);
  }
  for (const offsets of cases) {
    const bytes = finishBytes(0xfffffff0, offsets);
    deepEqual(finished(bytes), { channel: 0xfffffff0, offsets });
    const placed = new Uint8Array(bytes.length + 30);
    placed.set(bytes, 13);
    deepEqual(finished(placed, 13, 13 + bytes.length).offsets, offsets);
  }
});

Deno.test("encodeFinish() takes one byte for each message finished in order", () => {
  equal(finishBytes(1, Array.from({ length: 100 }, (_, index) => 2 ** 40 + index)).length, 16 + 99);
});

Deno.test("readMessageHeader() gives what writeMessageHeader() was given", () => {
  for (const offset of [0, 1, 2 ** 32 - 1, 2 ** 32, OFFSET_MAX]) {
    for (const dueMs of [0, 1, 1_700_000_000_000, 2 ** 52]) {
      const bytes = new Uint8Array(64).fill(255);
      const wireStart = writeMessageHeader(
        new DataView(bytes.buffer),
        5,
        0xfedcba98,
        offset,
        dueMs,
      );
      equal(wireStart, 5 + MESSAGE_HEADER_BYTES + (dueMs === 0 ? 0 : DUE_ATTRIBUTE_BYTES));
      deepEqual(readHeader(bytes, 5), { topic: 0xfedcba98, offset, dueMs, wireStart });
      equal(bytes[wireStart], 255);
    }
  }
});

Deno.test("readMessageHeader() passes over attributes it does not know, before and behind its own", () => {
  const due = [1, 8, 0x88, 0x13, 0, 0, 0, 0, 0, 0];
  const cases: readonly [readonly number[], number][] = [
    [[7, 3, 1, 2, 3, ...due], 5000],
    [[...due, 7, 3, 1, 2, 3], 5000],
    [[200, 0, 201, 1, 9, ...due, 7, 0], 5000],
    [[7, 3, 1, 8, 3], 0],
    [[1, 4, 1, 2, 3, 4], 0],
    // Cut off: a newer release does not write this, so nothing is made of it.
    [due.slice(0, -1), 0],
    [[7], 0],
    [[7, 200, 1], 0],
  ];
  for (const [attributes, dueMs] of cases) {
    const bytes = new Uint8Array(MESSAGE_HEADER_BYTES + attributes.length + 20);
    writeMessageHeader(new DataView(bytes.buffer), 0, 4, 9, 0);
    bytes[6] = attributes.length;
    bytes.set(attributes, MESSAGE_HEADER_BYTES);
    deepEqual(readHeader(bytes, 0), {
      topic: 4,
      offset: 9,
      dueMs,
      wireStart: MESSAGE_HEADER_BYTES + attributes.length,
    });
  }
});

Deno.test("readRequeue() gives what writeRequeue() was given", () => {
  for (
    const requeue of [
      { channel: 1, offset: 0, attempts: 0, dueMs: 0 },
      { channel: 2 ** 32 - 1, offset: OFFSET_MAX, attempts: 2 ** 32 - 1, dueMs: 2 ** 52 },
    ]
  ) {
    const bytes = new Uint8Array(REQUEUE_BYTES + 7);
    writeRequeue(new DataView(bytes.buffer), 7, requeue);
    deepEqual(readRequeue(bytes, 7), requeue);
  }
});

Deno.test("decodeEvent() gives every event that encodeEvent() was given, and throws on other text", () => {
  const events: Event[] = [
    { type: "topic_created", topic: 1, name: "orders", ephemeral: false },
    { type: "topic_deleted", topic: 1 },
    { type: "topic_paused", topic: 1, paused: true, at: OFFSET_MAX },
    { type: "topic_emptied", topic: 1, from: 0, to: 7 },
    { type: "topic_trimmed", topic: 1, to: 7 },
    { type: "topic_configured", topic: 1, policy: { ack_mode: "durable", later: 7 } },
    { type: "channel_created", topic: 1, channel: 2, name: "mail", start: 3 },
    { type: "channel_deleted", channel: 2, keepFrom: 5 },
    { type: "channel_paused", channel: 2, paused: false },
    { type: "channel_emptied", channel: 2, to: 9 },
  ];
  for (const event of events) deepEqual(decodeEvent(encodeEvent(event)), event);
  throws(() => decodeEvent(new TextEncoder().encode("{")), SyntaxError);
});

Deno.test("records have the bytes that docs/format/data_folder.md shows", () => {
  const message = new Uint8Array(MESSAGE_HEADER_BYTES + DUE_ATTRIBUTE_BYTES);
  writeMessageHeader(new DataView(message.buffer), 0, 7, 2 ** 32 + 5, 1_700_000_000_000);
  const requeue = new Uint8Array(REQUEUE_BYTES);
  const owed = { channel: 2, attempts: 3, offset: 5, dueMs: 1_700_000_060_000 };
  writeRequeue(new DataView(requeue.buffer), 0, owed);
  const golden = {
    message: hex(message),
    finish: hex(finishBytes(2, [5, 6, 300])),
    requeue: hex(requeue),
  };
  deepEqual(golden, {
    message: "07 00 00 00 01 00 0a 00 05 00 00 00 01 08 00 68 e5 cf 8b 01 00 00",
    finish: "02 00 00 00 03 00 00 00 05 00 00 00 00 00 00 00 01 a6 02",
    requeue: "02 00 00 00 03 00 00 00 05 00 00 00 00 00 00 00 60 52 e6 cf 8b 01 00 00",
  });
  const page = new URL("../../docs/format/data_folder.md", import.meta.url);
  const text = Deno.readTextFileSync(page);
  for (const bytes of Object.values(golden)) ok(text.includes(bytes), bytes);
});
