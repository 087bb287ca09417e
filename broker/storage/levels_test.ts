/**
 * Nothing that an older release would pass over gets to the disk before the folder is of a level that
 * such a release refuses: one test for each kind of record, event and file that came after level 1.
 */
import { deepEqual, equal, ok, throws } from "node:assert/strict";
import { SeededRandom, SimClock, SimDisk } from "@sluice/shared/testing";
import { readCompatibility } from "./compatibility.ts";
import type { Event } from "./records.ts";
import type { Storage } from "./storage.ts";
import { createChannel, createTopic, openStorage, publish } from "./storage_test_fixture.ts";

async function readerLevel(disk: SimDisk): Promise<number> {
  return (await readCompatibility(disk, "/data"))?.reader ?? 0;
}

const LEVEL_2_EVENTS: readonly Event[] = [
  { type: "topic_configured", topic: 1, policy: { ack_mode: "write_ack" } },
  { type: "topic_trimmed", topic: 1, to: 0 },
];

for (const event of LEVEL_2_EVENTS) {
  Deno.test(`${event.type} is refused until the folder is of level 2, which a restart knows`, async () => {
    const disk = new SimDisk();
    const { storage } = await openStorage(disk, new SimClock());
    createTopic(storage, "t");
    const before = storage.log.end;
    throws(() => storage.decide(event), /of the level that an event needs/);
    equal(storage.log.end, before);
    await storage.allowPolicies();
    equal(await readerLevel(disk), 2);
    storage.decide(event);
    await storage.drain();
    await storage.abandon();
    const again = (await openStorage(disk, new SimClock())).storage;
    again.decide(event);
    await again.close();
  });
}

Deno.test("a part of a large message is refused until the folder is of level 3", async () => {
  const disk = new SimDisk();
  const { storage } = await openStorage(disk, new SimClock());
  const { large } = storage;
  const before = storage.log.end;
  const body = { parts: [], bytes: 0, pin: null };
  throws(() => large.write(body, new Uint8Array(9), 0, 9), /of the level of large messages/);
  equal([storage.log.end, large.hasRoom()].join(), `${before},false`);
  await storage.room();
  equal(await readerLevel(disk), 3);
  large.write(body, new Uint8Array(9), 0, 9);
  ok(storage.log.end > before);
  large.unpin(body.pin);
  await storage.close();
});

const JOURNAL = "/data/journal";

/** A topic with a backlog in which nearly everything is finished, and behind it as much that is new. */
async function pinned(disk: SimDisk, clock: SimClock): Promise<Storage> {
  const { storage } = await openStorage(disk, clock, {
    compaction: { rateBytes: 2 ** 40, deadBytesMin: 1000 },
  });
  const topic = createTopic(storage, "t");
  const channel = createChannel(storage, topic, "c");
  for (let round = 0; round < 7; round++) {
    for (let count = 0; count < 130; count++) {
      while (!storage.hasRoom(300)) await storage.room();
      const offset = publish(storage, topic, "x".repeat(150));
      if (offset % 60 !== 7) storage.finish(channel, offset);
    }
    await storage.drain();
    await clock.runUntil(storage.maintain(), 10_000);
  }
  return storage;
}

Deno.test("a log with its first file is of level 2 before a file of it is compacted, whenever the power goes", async () => {
  for (let cut = 1, compacted = 0;; cut++) {
    const disk = new SimDisk({ random: new SeededRandom(cut) });
    const clock = new SimClock();
    const storage = await pinned(disk, clock);
    equal(storage.logFiles[0]?.start, 0);
    const sizes = new Map(logs(disk).map((path) => [path, disk.bytes(path).slice().join()]));
    disk.powerCutAfter(cut, cut % 2 === 0 ? "after_effect" : "before_effect");
    await clock.runUntil(storage.compact(), 10_000);
    const isOver = !disk.poweredOff;
    disk.crash();
    await storage.abandon().catch(() => {});
    const isCompacted = logs(disk).some((path) =>
      sizes.get(path) !== undefined && disk.bytes(path).join() !== sizes.get(path)
    );
    if (isCompacted) compacted++;
    ok(!isCompacted || await readerLevel(disk) >= 2, `cut ${cut}`);
    if (!isOver) continue;
    ok(compacted > 3, `${compacted} cuts after a swap`);
    return;
  }
});

/** The sealed files. */
function logs(disk: SimDisk): string[] {
  return disk.files().filter((path) => path.startsWith(JOURNAL) && path.endsWith(".log"))
    .slice(0, -1);
}

Deno.test("a log whose first file is gone is compacted without a new level: older releases refuse it by themselves", async () => {
  const disk = new SimDisk();
  const clock = new SimClock();
  const { storage } = await openStorage(disk, clock, {
    compaction: { rateBytes: 0, deadBytesMin: 1000 },
  });
  const topic = createTopic(storage, "t");
  const channel = createChannel(storage, topic, "c");
  for (let round = 0; round < 5; round++) {
    for (let count = 0; count < 130; count++) {
      while (!storage.hasRoom(300)) await storage.room();
      storage.finish(channel, publish(storage, topic, "x".repeat(150)));
    }
    await storage.drain();
    await clock.runUntil(storage.maintain(), 10_000);
  }
  ok(storage.logFiles[0]!.start > 0, "the first file is gone");
  await clock.runUntil(storage.close(), 10_000);
  const later = await openStorage(disk, clock, {
    compaction: { rateBytes: 2 ** 40, deadBytesMin: 1000 },
  });
  const [again] = [later.storage];
  const known = again.state.topics.get("t")!;
  for (let round = 0; round < 6; round++) {
    for (let count = 0; count < 130; count++) {
      while (!again.hasRoom(300)) await again.room();
      const offset = publish(again, known, "x".repeat(150));
      if (offset % 60 !== 7) again.finish(known.channels.get("c")!, offset);
    }
    await again.drain();
    await clock.runUntil(again.maintain(), 10_000);
  }
  await clock.runUntil(again.compact(), 10_000);
  ok(again.compaction.filesCompacted > 0);
  deepEqual(await readerLevel(disk), 1);
  await clock.runUntil(again.close(), 10_000);
});
