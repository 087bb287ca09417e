import { deepEqual, equal, notEqual } from "node:assert/strict";
import { SeededRandom } from "@sluice/shared/testing";
import {
  copyProducer,
  decodeAssign,
  decodeKeep,
  decodeQuarantine,
  decodeRetry,
  decodeSettle,
  emptyPublishHeader,
  encodeAssign,
  encodeKeep,
  encodeQuarantine,
  encodeRetry,
  encodeSettle,
  type EntryName,
  FREE_LANE,
  type LaneRun,
  PINNED_LANE,
  PUBLISH_HEADER_BYTES,
  readPublish,
  type SpoolLane,
  TEXT_BYTES_MAX,
  textBytes,
  textOf,
  writePublish,
} from "./records.ts";

const PRODUCER = Uint8Array.from({ length: 16 }, (_, index) => 0xa0 + index);

const QUARANTINE = {
  lane: PINNED_LANE,
  number: 1,
  id: 1200,
  topic: "t",
  bodyBytes: 9,
  messageCount: 2,
  spooledWallMs: 1,
  assignedWallMs: 2,
  broker: "b",
  reason: "bad",
  isDamaged: true,
};

function hex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function publishBytes(): Uint8Array {
  const topic = textBytes("orders");
  const broker = textBytes("b:1");
  const body = textBytes("hello");
  const bytes = new Uint8Array(PUBLISH_HEADER_BYTES + 6 + 3 + 5);
  writePublish(
    bytes,
    new DataView(bytes.buffer),
    0,
    {
      isBatch: true,
      messageCount: 3,
      dueWallMs: 0,
      producer: PRODUCER,
      sequence: 2 ** 40 + 5,
      body,
    },
    { lane: PINNED_LANE, number: 7, spooledWallMs: 1_700_000_000_000 },
    topic,
    broker,
  );
  return bytes;
}

Deno.test("a publish record has its bytes, and is read back", () => {
  const bytes = publishBytes();
  equal(
    hex(bytes),
    "03060300" + "03000000" + "0700000000000000" + "0068e5cf8b010000" + "0000000000000000" +
      "0500000000010000" + "a0a1a2a3a4a5a6a7a8a9aaabacadaeaf" + "6f7264657273" + "623a31" +
      "68656c6c6f",
  );
  const header = emptyPublishHeader();
  equal(readPublish(new DataView(bytes.buffer), 0, bytes.length, header), true);
  deepEqual(header, {
    isBatch: true,
    lane: PINNED_LANE,
    number: 7,
    messageCount: 3,
    spooledWallMs: 1_700_000_000_000,
    dueWallMs: 0,
    sequence: 2 ** 40 + 5,
    topicStart: 56,
    brokerStart: 62,
    bodyStart: 65,
  });
  deepEqual(copyProducer(bytes, 0), PRODUCER);
});

Deno.test("decisions have their bytes", () => {
  const first: EntryName = { lane: FREE_LANE, number: 300, id: 1000 };
  const second: EntryName = { lane: PINNED_LANE, number: 1, id: 1200 };
  equal(
    hex(encodeAssign(textBytes("b:1"), 1_700_000_000_000, [first, second])),
    "0068e5cf8b010000" + "02000000" + "0300" + "0000" + "623a31" + "d804" + "e807" + "03" + "c801",
  );
  equal(
    hex(encodeSettle([
      { lane: FREE_LANE, start: 5, end: 9 },
      { lane: FREE_LANE, start: 10, end: 11 },
      { lane: PINNED_LANE, start: 0, end: 1 },
    ])),
    "03000000" + "0a04" + "0201" + "0101",
  );
  equal(hex(encodeRetry(second)), "b004000000000000" + "0100000000000000" + "0100000000000000");
  equal(
    hex(encodeQuarantine(QUARANTINE)),
    "b004000000000000" + "0100000000000000" + "0100000000000000" + "0200000000000000" +
      "09000000" + "02000000" + "06" + "01" + "0100" + "0300" + "0000" + "74" + "62" + "626164",
  );
  equal(
    hex(encodeKeep({ id: 1200, broker: "b", assignedWallMs: 2, reason: "bad" })),
    "b004000000000000" + "0200000000000000" + "0300" + "0100" + "0300" + "0000" + "62" + "626164",
  );
});

Deno.test("docs/format/spool.md shows these bytes", () => {
  const page = Deno.readTextFileSync(new URL("../../docs/format/spool.md", import.meta.url));
  const shown = page.replaceAll(/```|\s/g, "");
  const second: EntryName = { lane: PINNED_LANE, number: 1, id: 1200 };
  for (
    const bytes of [
      publishBytes(),
      encodeAssign(textBytes("b:1"), 1_700_000_000_000, [
        { lane: FREE_LANE, number: 300, id: 1000 },
        second,
      ]),
      encodeSettle([
        { lane: FREE_LANE, start: 5, end: 9 },
        { lane: FREE_LANE, start: 10, end: 11 },
        { lane: PINNED_LANE, start: 0, end: 1 },
      ]),
      encodeRetry(second),
      encodeQuarantine(QUARANTINE),
      encodeKeep({ id: 1200, broker: "b", assignedWallMs: 2, reason: "bad" }),
    ]
  ) {
    equal(shown.includes(hex(bytes)), true, hex(bytes));
  }
});

Deno.test("what was encoded is decoded, whatever it was", () => {
  for (let seed = 0; seed < 300; seed++) {
    const random = new SeededRandom(seed);
    const numbers = [random.below(2 ** 31) * 2 ** 10, random.below(1000)];
    let id = 0;
    const entries: EntryName[] = [];
    const runs: LaneRun[] = [];
    const ends = [0, 0];
    for (let count = random.below(20); count > 0; count--) {
      const lane: SpoolLane = random.chance(0.3) ? PINNED_LANE : FREE_LANE;
      numbers[lane]! += 1 + random.below(random.pick([1, 100, 2 ** 30]));
      id += 8 * (1 + random.below(random.pick([4, 2 ** 20, 2 ** 31])));
      entries.push({ lane, number: numbers[lane]!, id });
    }
    for (const lane of [FREE_LANE, PINNED_LANE]) {
      for (let count = random.below(10); count > 0; count--) {
        const start = ends[lane]! + random.below(2 ** 31);
        const end = start + 1 + random.below(2 ** 20);
        ends[lane] = end;
        runs.push({ lane, start, end });
      }
    }
    const label = `seed ${seed}`;
    deepEqual(
      decodeAssign(encodeAssign(textBytes("büro:4150"), 2 ** 45, entries)),
      { broker: "büro:4150", assignedWallMs: 2 ** 45, entries },
      label,
    );
    deepEqual(decodeSettle(encodeSettle(runs)), runs, label);
    const name = { lane: PINNED_LANE, number: 2 ** 44, id: 2 ** 50 };
    deepEqual(decodeRetry(encodeRetry(name)), name);
    const quarantine = {
      ...name,
      topic: random.pick(["", "topic"]),
      bodyBytes: random.u32(),
      messageCount: random.u32(),
      spooledWallMs: 2 ** 42,
      assignedWallMs: random.pick([0, 2 ** 42]),
      broker: random.pick([null, "one:4150"]),
      reason: random.pick(["", "a long story".repeat(20)]),
      isDamaged: random.chance(0.5),
    };
    deepEqual(decodeQuarantine(encodeQuarantine(quarantine)), quarantine);
    const keep = {
      id: 2 ** 50,
      broker: quarantine.broker,
      assignedWallMs: 3,
      reason: random.pick([null, "", "poison"]),
    };
    const encoded = encodeKeep(keep);
    deepEqual(decodeKeep(encoded, 0, encoded.length), { ...keep, publishStart: encoded.length });
  }
});

Deno.test("a record that is cut off at any place is none", () => {
  const name = { lane: FREE_LANE, number: 300, id: 1000 };
  const quarantine = encodeQuarantine({
    ...name,
    topic: "topic",
    bodyBytes: 1,
    messageCount: 1,
    spooledWallMs: 1,
    assignedWallMs: 1,
    broker: "one:4150",
    reason: "poison",
    isDamaged: false,
  });
  const keep = encodeKeep({ id: 1, broker: "one:4150", assignedWallMs: 1, reason: "poison" });
  const decoders: [Uint8Array, (bytes: Uint8Array) => unknown][] = [
    [encodeAssign(textBytes("one"), 1, [name]), decodeAssign],
    [encodeSettle([{ lane: FREE_LANE, start: 300, end: 301 }]), decodeSettle],
    [encodeRetry(name), decodeRetry],
    [quarantine, decodeQuarantine],
    [keep, (bytes) => decodeKeep(bytes, 0, bytes.length)],
  ];
  for (const [bytes, decode] of decoders) {
    notEqual(decode(bytes), null);
    for (let end = 0; end < bytes.length; end++) equal(decode(bytes.subarray(0, end)), null);
  }
  const publish = publishBytes();
  const view = new DataView(publish.buffer);
  for (let end = 0; end < PUBLISH_HEADER_BYTES + 9; end++) {
    equal(readPublish(view, 0, end, emptyPublishHeader()), false);
  }
});

Deno.test("a text is cut at a whole character", () => {
  const bytes = textBytes("x" + "ü".repeat(TEXT_BYTES_MAX));
  equal(bytes.length, TEXT_BYTES_MAX - 1);
  equal(textOf(bytes), "x" + "ü".repeat((TEXT_BYTES_MAX - 2) / 2));
});
