/** Publishes with a sequence in the log: what a start knows of them again. */
import { deepEqual, equal, ok, rejects, throws } from "node:assert/strict";
import { SeededRandom, settle, SimClock, SimDisk } from "@sluice/shared/testing";
import { decoded, slicesOf } from "./checkpoint_test_fixture.ts";
import { decodeCheckpoint } from "./checkpoint.ts";
import { checkCompatibility, readCompatibility } from "./compatibility.ts";
import { DEDUP_LIMITS_DEFAULT } from "./dedup_window.ts";
import { type Origin, PRODUCER_ATTRIBUTE_BYTES, WIRE_HEADER_BYTES } from "./records.ts";
import type { TopicState } from "./state.ts";
import type { Storage } from "./storage.ts";
import { createChannel, createTopic, openStorage, publish } from "./storage_test_fixture.ts";

const DEDUP = { ...DEDUP_LIMITS_DEFAULT, windowMs: 60_000, sequences: 2000, producers: 5 };

function origin(producer: number, sequence: number): Origin {
  return { producer: new Uint8Array(16).fill(producer), sequence };
}

/** Publishes a message that completes a publish of a producer. */
function complete(
  storage: Storage,
  topic: TopicState,
  producer: number,
  sequence: number,
  timeMs: number,
  bodyBytes = 10,
): void {
  const from = origin(producer, sequence);
  const wireBytes = WIRE_HEADER_BYTES + bodyBytes;
  const wire = storage.beginMessage(topic, wireBytes, sequence % 3 === 0 ? timeMs : 0, from);
  storage.log.ring.fill(0, wire, wire + wireBytes);
  const nanoseconds = BigInt(timeMs) * 1_000_000n;
  new DataView(storage.log.ring.buffer, storage.log.ring.byteOffset).setBigUint64(
    wire,
    nanoseconds,
  );
  storage.endMessage();
  storage.completed(topic, from, timeMs);
}

/** All that is remembered, in its order. */
function textOf(topic: TopicState): string {
  const window = topic.dedup;
  return JSON.stringify(
    window?.entries().map((entry) => {
      const { id, lastMs, low, highest } = entry;
      const pages = window.pagesOf(entry).map(([number, page]) => [number, page.join()]);
      return { id: id[0], lastMs, low, highest, pages };
    }),
  );
}

Deno.test("what was durable is a repeat after a crash, and what was torn off is new", async () => {
  const disk = new SimDisk();
  const clock = new SimClock();
  const first = await openStorage(disk, clock, { dedup: DEDUP });
  await first.storage.allowProducers();
  const topic = createTopic(first.storage, "orders");
  complete(first.storage, topic, 1, 7, clock.wallMs());
  await first.storage.drain();
  complete(first.storage, topic, 1, 8, clock.wallMs());
  equal(topic.dedup?.judge(origin(1, 8), clock.wallMs()), "repeat");
  equal(topic.dedup?.endOf(origin(1, 8)), first.storage.log.end);
  disk.crash();
  await first.storage.abandon().catch(() => {});
  const { storage } = await openStorage(disk, clock, { dedup: DEDUP });
  const again = storage.state.topics.get("orders")!;
  deepEqual(
    [7, 8].map((sequence) => again.dedup?.judge(origin(1, sequence), clock.wallMs())),
    ["repeat", "new"],
  );
  equal(again.dedup?.endOf(origin(1, 7)), 0);
  equal(again.tail, 1);
  await storage.close();
});

Deno.test("a start remembers what was, whether by a checkpoint of any slices or by the log", async () => {
  for (const seed of [1, 2, 3, 4, 5, 6]) {
    const random = new SeededRandom(seed);
    const disk = new SimDisk();
    const clock = new SimClock();
    const options = {
      dedup: DEDUP,
      logFileBytes: 30_000,
      checkpointSlice: random.pick([{ bytes: 1, work: 1 }, { bytes: 3000, work: 40 }]),
    };
    let { storage } = await openStorage(disk, clock, options);
    await storage.allowProducers();
    let topic = createTopic(storage, "orders");
    let channel = createChannel(storage, topic, "mail");
    const highest = [0, 0, 0, 0, 0, 0, 0, 0];
    let checkpoints = 0;
    for (let life = 0; life < 4; life++) {
      let maintaining: Promise<void> | null = null;
      for (let step = 0; step < 400; step++) {
        while (!storage.hasRoom(1000)) await storage.room();
        const producer = random.pick([0, 1, 2, 3, 4, 5, 6, 7]);
        const ahead = random.pick([1, 1, 1, 40, 1000, -5, -300]);
        const sequence = Math.max(0, highest[producer]! + ahead);
        const now = clock.wallMs();
        const verdict = topic.dedup?.judge(origin(producer, sequence), now) ?? "new";
        if (verdict === "new") {
          complete(storage, topic, producer, sequence, now, 200);
          highest[producer] = Math.max(highest[producer]!, sequence);
        }
        if (random.chance(0.3)) publish(storage, topic, "without");
        if (random.chance(0.02)) await clock.run(random.pick([10, 30_000, 61_000]));
        if (random.chance(0.05)) topic.dedup?.forgetIdle(clock.wallMs());
        if (random.chance(0.1)) storage.emptyChannel(channel, topic.tail);
        if (random.chance(0.05) && maintaining === null) {
          maintaining = storage.maintain().then(() => {
            maintaining = null;
          });
        }
        if (random.chance(0.5)) {
          clock.advance(0);
          await settle();
        }
      }
      await storage.drain();
      if (maintaining !== null) await clock.runUntil(maintaining, 10_000);
      const nowMs = clock.wallMs();
      topic.dedup?.forgetIdle(nowMs);
      const expected = textOf(topic);
      ok(expected.length > 100);
      checkpoints += storage.counters.checkpoints;
      if (life === 3) await storage.close();
      else {
        disk.crash();
        await storage.abandon().catch(() => {});
      }
      ({ storage } = await openStorage(disk, clock, options));
      topic = storage.state.topics.get("orders")!;
      channel = topic.channels.get("mail")!;
      topic.dedup?.forgetIdle(nowMs);
      equal(textOf(topic), expected, `seed ${seed}, life ${life}`);
      const bytes = storage.state.dedup.bytes;
      ok(bytes > 0 && storage.state.dedup.producers === topic.dedup?.producerCount);
    }
    ok(checkpoints > 4, `${checkpoints} checkpoints`);
    await storage.close();
  }
});

Deno.test("a checkpoint without producers has nothing of them, and a producer without its topic is none", async () => {
  const disk = new SimDisk();
  const { storage } = await openStorage(disk, new SimClock());
  createTopic(storage, "orders");
  const { state } = await decoded(slicesOf(storage.state, storage.log.end));
  equal(state.topics.get("orders")?.dedup, null);
  await storage.close();
  const header = Uint8Array.of(1, 1, 0, 0, 0);
  async function* chunks(): AsyncGenerator<Uint8Array> {
    await Promise.resolve();
    yield header;
    yield new Uint8Array(41).fill(12, 0, 1);
  }
  await rejects(decodeCheckpoint(chunks()), { code: "damaged" });
});

Deno.test("a topic that is deleted gives back what it remembered, and one made anew knows nothing", async () => {
  const disk = new SimDisk();
  const clock = new SimClock();
  const { storage } = await openStorage(disk, clock);
  await storage.allowProducers();
  const topic = createTopic(storage, "orders");
  complete(storage, topic, 1, 1, clock.wallMs());
  ok(storage.state.dedup.bytes > 0);
  storage.decide({ type: "topic_deleted", topic: topic.number });
  deepEqual([storage.state.dedup.bytes, storage.state.dedup.producers], [0, 0]);
  equal(createTopic(storage, "orders").dedup, null);
  await storage.close();
  const again = await openStorage(disk, clock);
  equal(again.storage.state.dedup.bytes, 0);
  await again.storage.close();
});

Deno.test("messages without an origin take no more than before; the first with one has raised the level", async () => {
  const disk = new SimDisk();
  const clock = new SimClock();
  const { storage } = await openStorage(disk, clock);
  const topic = createTopic(storage, "orders");
  const bytesOf = (act: () => void): number => {
    const before = storage.log.end;
    act();
    return storage.log.end - before;
  };
  publish(storage, topic, "x".repeat(14));
  const plain = bytesOf(() => publish(storage, topic, "x".repeat(14)));
  equal(plain, 8 + 12 + 26 + 14 + (8 - (8 + 12 + 26 + 14) % 8) % 8);
  equal(topic.dedup, null);
  deepEqual(await readCompatibility(disk, "/data"), { reader: 1, writer: 1 });
  equal(storage.allowsProducers, false);
  await storage.allowProducers();
  equal(storage.allowsProducers, true);
  const levels = (await readCompatibility(disk, "/data"))!;
  deepEqual(levels, { reader: 4, writer: 4 });
  throws(() => checkCompatibility("/data", levels, "read", { reader: 3, writer: 3 }), {
    code: "newer_format",
  });
  publish(storage, topic, "opens the group");
  const named = bytesOf(() => complete(storage, topic, 1, 1, clock.wallMs(), 14));
  ok(named - plain <= PRODUCER_ATTRIBUTE_BYTES + 8);
  await storage.close();
  const again = await openStorage(disk, clock);
  equal(again.storage.allowsProducers, true);
  await again.storage.close();
});

Deno.test("allowProducers() rejects while the disk refuses, and may be asked again", async () => {
  const disk = new SimDisk();
  const { storage } = await openStorage(disk, new SimClock());
  disk.failNext({ operation: "write", kind: "io" });
  await rejects(storage.allowProducers());
  equal(storage.allowsProducers, false);
  await storage.allowProducers();
  await storage.close();
});
