import { deepEqual, equal, ok } from "node:assert/strict";
import { RECORD_HEADER_BYTES } from "@sluice/shared/log";
import { writeMessageId } from "@sluice/shared/protocol";
import { Logger } from "@sluice/shared/telemetry";
import { settle, SimClock, SimDisk } from "@sluice/shared/testing";
import { MessageReader } from "./message_reader.ts";
import { COLD, FOUND, GONE } from "./queue/mod.ts";
import {
  NOT_LOADED,
  Storage,
  TopicState,
  WIRE_HEADER_BYTES,
  WIRE_ID_OFFSET,
} from "./storage/mod.ts";

const NODE_ID = 5;
const RING_BYTES = 65_536;
const BODY_BYTES_MAX = 200_000;

interface World {
  readonly disk: SimDisk;
  readonly clock: SimClock;
  readonly storage: Storage;
  readonly reader: MessageReader;
  readonly topic: TopicState;
  readonly lines: string[];
  readonly passedOver: string[];
}

async function openWorld(
  disk = new SimDisk(),
  ringBytes = RING_BYTES,
  caches = { pageCacheBytes: 1 << 20, indexCacheBytes: 1 << 20 },
): Promise<World> {
  const clock = new SimClock();
  const storage = await Storage.open(disk, clock, {
    dataPath: "/data",
    nodeId: { value: NODE_ID, required: false },
    ringBytes,
    logFileBytes: 70_000,
    ...caches,
    bodyBytesMax: BODY_BYTES_MAX,
    finishSyncIntervalMs: 10,
  }, { durable() {}, stalled() {}, failed() {}, warn() {} });
  const lines: string[] = [];
  const logger = new Logger({ sink: (line) => lines.push(line), clock });
  const topic = storage.state.topics.get("orders") ?? storage.decide({
    type: "topic_created",
    topic: storage.state.nextTopicNumber,
    name: "orders",
    ephemeral: false,
  });
  ok(topic instanceof TopicState);
  const passedOver: string[] = [];
  const reader = new MessageReader(
    storage,
    clock,
    logger,
    (topic, offset, position) => passedOver.push(`${topic} ${offset} ${position}`),
  );
  return { disk, clock, storage, reader, topic, lines, passedOver };
}

async function publish({ storage, topic }: World, body: Uint8Array, dueMs = 0): Promise<number> {
  const sequence = storage.nextSequence;
  const wire = storage.beginMessage(topic, WIRE_HEADER_BYTES + body.length, dueMs);
  const { ring } = storage.log;
  ring.fill(0, wire, wire + WIRE_HEADER_BYTES);
  writeMessageId(ring, wire + WIRE_ID_OFFSET, storage.nodeId, sequence);
  ring.set(body, wire + WIRE_HEADER_BYTES);
  storage.endMessage();
  await storage.drain();
  return sequence;
}

/** Publishes until what was there before is no longer in the ring. */
async function makeCold(world: World): Promise<void> {
  const { end } = world.storage.log;
  while (world.storage.log.hotStart < end) await publish(world, new Uint8Array(5000));
}

function bodyOf({ reader }: World): Uint8Array {
  const { bytes, start, length } = reader.view;
  return bytes.slice(start + WIRE_HEADER_BYTES, start + length);
}

async function loaded({ reader, topic }: World, offset: number): Promise<number> {
  for (let round = 0; round < 10; round++) {
    const found = reader.find(topic, offset);
    if (found !== COLD) return found;
    await reader.load(topic, offset);
  }
  return COLD;
}

function logPath(disk: SimDisk): string {
  return disk.files().find((path) => path.endsWith(".log"))!;
}

Deno.test("find() is GONE for an offset that is not in the log, and load() resolves", async () => {
  const world = await openWorld();
  await publish(world, Uint8Array.of(1));
  equal(world.reader.find(world.topic, 1), GONE);
  await world.reader.load(world.topic, 1);
  equal(world.reader.damagedCount, 0);
  await world.storage.close();
});

Deno.test("find() is GONE for a cold message with any flipped bit, and for no other", async () => {
  const world = await openWorld();
  await publish(world, Uint8Array.of(1));
  await publish(world, new TextEncoder().encode("the damaged"), 5000);
  await publish(world, Uint8Array.of(3));
  await makeCold(world);
  await world.storage.drain();
  await world.topic.index.load(1);
  const position = world.topic.index.position(1);
  await world.storage.close();
  const recordBytes = RECORD_HEADER_BYTES + 12 + 10 + WIRE_HEADER_BYTES + 11;
  for (let bit = 0; bit < recordBytes * 8; bit++) {
    const disk = new SimDisk();
    for (const path of world.disk.files()) disk.writeDurable(path, world.disk.bytes(path));
    const again = await openWorld(disk);
    // Damaged after the start, so that recovery has not seen it.
    disk.flipBit(logPath(disk), position + (bit >>> 3), bit & 7);
    equal(await loaded(again, 1), GONE, `bit ${bit}`);
    equal(again.reader.damagedCount, 1, `bit ${bit}`);
    deepEqual([await loaded(again, 0), bodyOf(again)], [FOUND, Uint8Array.of(1)]);
    deepEqual([await loaded(again, 2), bodyOf(again)], [FOUND, Uint8Array.of(3)]);
    equal(again.lines.length, 1);
    deepEqual(again.passedOver, [`orders 1 ${position}`]);
    ok(again.lines[0]!.includes("damaged on disk"), again.lines[0]);
    await again.storage.abandon();
  }
});

Deno.test("find() does not take another message of the topic for the one at a wrong position", async () => {
  const world = await openWorld();
  await publish(world, Uint8Array.of(1));
  await publish(world, Uint8Array.of(2));
  const run = world.topic.index.runs[0]!;
  const { words } = run;
  ok(words !== null);
  words[0] = words[1]!;
  equal(world.reader.find(world.topic, 0), GONE);
  equal(world.reader.find(world.topic, 1), FOUND);
  await world.storage.close();
});

Deno.test("load() waits a second after a failed read and then the message is found", async () => {
  const world = await openWorld();
  await publish(world, Uint8Array.of(7));
  await makeCold(world);
  equal(world.reader.find(world.topic, 0), COLD);
  world.disk.failNext({ operation: "read", kind: "io" });
  let done = false;
  const load = world.reader.load(world.topic, 0).then(() => done = true);
  await settle();
  equal(done, false);
  await world.clock.run(1000);
  await load;
  ok(world.lines[0]?.includes("Cannot read a message"));
  deepEqual([await loaded(world, 0), bodyOf(world)], [FOUND, Uint8Array.of(7)]);
  equal(world.reader.damagedCount, 0);
  await world.storage.close();
});

Deno.test("find() shows a hot message at once with its id, body and due time", async () => {
  const world = await openWorld();
  const first = await publish(world, new TextEncoder().encode("body"));
  const second = await publish(world, new Uint8Array(), 1_700_000_000_000);
  equal(world.reader.find(world.topic, 0), FOUND);
  equal(world.reader.isCold, false);
  deepEqual(
    [world.reader.view.sequence, world.reader.view.dueMs, new TextDecoder().decode(bodyOf(world))],
    [first, 0, "body"],
  );
  equal(world.reader.find(world.topic, 1), FOUND);
  deepEqual(
    [world.reader.view.sequence, world.reader.view.dueMs, bodyOf(world).length],
    [second, 1_700_000_000_000, 0],
  );
  await world.storage.close();
});

Deno.test("find() finds every message again after a start, small and of several pages", async () => {
  const world = await openWorld(new SimDisk(), 1 << 20);
  const bodies = [0, 1, 150, 128 * 1024, BODY_BYTES_MAX, 40].map((bytes, index) =>
    new Uint8Array(bytes).fill(index + 1)
  );
  const sequences: number[] = [];
  for (const body of bodies) sequences.push(await publish(world, body));
  await world.storage.close();
  const again = await openWorld(world.disk);
  equal(again.reader.find(again.topic, 0), COLD);
  equal(again.reader.isCold, true);
  for (const [offset, body] of bodies.entries()) {
    equal(await loaded(again, offset), FOUND);
    equal(again.reader.isCold, true);
    deepEqual([again.reader.view.sequence, bodyOf(again)], [sequences[offset], body]);
  }
  await again.storage.close();
  equal(again.disk.openFiles, 0);
});

Deno.test("find() finds a message that is larger than what may be published today", async () => {
  const world = await openWorld(new SimDisk(), 1 << 22);
  const large = new Uint8Array(7 * BODY_BYTES_MAX / 2).fill(9);
  for (const body of [Uint8Array.of(1), large, Uint8Array.of(2)]) await publish(world, body);
  await world.storage.close();
  const again = await openWorld(world.disk);
  for (const [offset, body] of [Uint8Array.of(1), large, Uint8Array.of(2)].entries()) {
    deepEqual([await loaded(again, offset), bodyOf(again)], [FOUND, body]);
  }
  await again.storage.close();
});

Deno.test("find() is COLD while the place of a message is on disk only, failed reads and damage included", async () => {
  const world = await openWorld();
  for (let offset = 0; offset < 3; offset++) await publish(world, Uint8Array.of(offset));
  await makeCold(world);
  await makeCold(world);
  await world.storage.close();
  const again = await openWorld(world.disk);
  const { index } = again.topic;
  equal(index.position(0), NOT_LOADED);
  equal(again.reader.find(again.topic, 0), COLD);
  again.disk.failNext({ operation: "read", kind: "io" });
  let done = false;
  const load = again.reader.load(again.topic, 0).then(() => done = true);
  await settle();
  deepEqual([done, again.lines.length, index.position(0)], [false, 1, NOT_LOADED]);
  await again.clock.run(1000);
  await load;
  const sidecar = again.disk.files().find((path) => path.endsWith(".idx"))!;
  again.disk.writeDurable(sidecar, new Uint8Array());
  for (let offset = 0; offset < 3; offset++) {
    deepEqual([await loaded(again, offset), bodyOf(again)], [FOUND, Uint8Array.of(offset)]);
  }
  equal(again.reader.damagedCount, 0);
  ok(again.disk.bytes(sidecar).length > 0);
  await again.storage.close();
  equal(again.disk.openFiles, 0);
});

Deno.test("find() needs the place of the next message too, which is in another file", async () => {
  const world = await openWorld();
  for (let round = 0; round < 3; round++) await makeCold(world);
  const [first, second] = world.topic.index.runs;
  const last = second!.firstOffset - 1;
  equal(last, first!.endOffset - 1);
  await world.storage.close();
  const again = await openWorld(world.disk);
  const { index } = again.topic;
  await index.load(last);
  deepEqual([index.position(last) >= 0, index.position(last + 1)], [true, NOT_LOADED]);
  equal(again.reader.find(again.topic, last), COLD);
  deepEqual([await loaded(again, last), bodyOf(again).length], [FOUND, 5000]);
  ok(index.position(last + 1) >= 0);
  await again.storage.close();
});

Deno.test("load() brings every one of many cold messages with the smallest caches", async () => {
  const { disk, storage } = await openWorld();
  const topics = Array.from({ length: 40 }, (_, number) => {
    const topic = storage.decide({
      type: "topic_created",
      topic: storage.state.nextTopicNumber,
      name: `many-${number}`,
      ephemeral: false,
    });
    ok(topic instanceof TopicState);
    return topic;
  });
  // Each message of a topic is in a file, and so in an index page, of its own.
  for (let round = 0; round < 12; round++) {
    for (const topic of topics) {
      storage.beginMessage(topic, WIRE_HEADER_BYTES + 2000, 0);
      storage.endMessage();
      await storage.drain();
    }
  }
  await storage.close();
  const again = await openWorld(disk, RING_BYTES, { pageCacheBytes: 0, indexCacheBytes: 0 });
  const sought = topics.map(({ name }) => again.storage.state.topics.get(name)!);
  let left = sought.length;
  let loads = 0;
  for (const topic of sought) {
    void (async () => {
      for (let offset = 0; offset < 12; offset++) {
        while (again.reader.find(topic, offset) === COLD) {
          if (++loads > 2000) return;
          await again.reader.load(topic, offset);
        }
      }
      left--;
    })();
  }
  // After a miss a load waits for a millisecond.
  for (let ms = 0; ms < 100 && left > 0; ms++) {
    await settle();
    await again.clock.run(1);
  }
  deepEqual([left, loads <= 2000], [0, true], `${loads} loads`);
  await again.storage.close();
});

Deno.test("load() lets others in while it waits after a failed read", async () => {
  const world = await openWorld(new SimDisk(), RING_BYTES, {
    pageCacheBytes: 0,
    indexCacheBytes: 0,
  });
  for (let offset = 0; offset < 2; offset++) await publish(world, Uint8Array.of(offset));
  await makeCold(world);
  world.disk.failNext({ operation: "read", kind: "io" });
  let isFailedOver = false;
  const failed = world.reader.load(world.topic, 0).then(() => isFailedOver = true);
  equal(await loaded(world, 1), FOUND);
  equal(isFailedOver, false);
  await world.clock.run(1000);
  await failed;
  await world.storage.close();
});
