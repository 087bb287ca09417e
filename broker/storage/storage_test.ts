import { deepEqual, equal, ok, rejects, throws } from "node:assert/strict";
import { LogError } from "@sluice/shared/log";
import { DiskError, type DiskFile } from "@sluice/shared/runtime";
import {
  DiskFileWrapper,
  DiskWrapper,
  SeededRandom,
  settle,
  SimClock,
  SimDisk,
} from "@sluice/shared/testing";
import { SEQUENCE_BLOCK } from "./data_folder.ts";
import { ChannelState } from "./state.ts";
import type { Storage } from "./storage.ts";
import {
  createChannel,
  createTopic,
  openStorage,
  positionsOf,
  publish,
} from "./storage_test_fixture.ts";

const LARGE = "x".repeat(5000);

/** Fills log files with messages of the topic until `count` more are sealed. */
async function sealFiles(
  storage: Storage,
  topic: Parameters<typeof publish>[1],
  count: number,
): Promise<void> {
  await storage.drain();
  const until = storage.logFiles.length + count;
  while (storage.logFiles.length < until) {
    publish(storage, topic, LARGE);
    await storage.drain();
  }
}

function checkpoints(disk: SimDisk): string[] {
  return disk.files().filter((path) => path.endsWith(".ckp"));
}

/** A disk whose log syncs wait while `held`. */
class SlowDisk extends DiskWrapper {
  held = false;
  #waiting: (() => void)[] = [];

  override wrapFile(file: DiskFile, path: string): DiskFile {
    const pass = () => this.#pass();
    return !path.endsWith(".log") ? file : new class extends DiskFileWrapper {
      override async syncData(): Promise<void> {
        await pass();
        await super.syncData();
      }
    }(file);
  }

  release(): void {
    this.held = false;
    for (const wake of this.#waiting) wake();
    this.#waiting = [];
  }

  async #pass(): Promise<void> {
    if (this.held) await new Promise<void>((resolve) => this.#waiting.push(resolve));
  }
}

Deno.test("after a failed sync nothing is written or shown any more, and every decision throws", async () => {
  const disk = new SimDisk();
  const clock = new SimClock();
  const { storage, owner } = await openStorage(disk, clock);
  const topic = createTopic(storage, "orders");
  const channel = createChannel(storage, topic, "mail");
  publish(storage, topic, "kept");
  await storage.drain();
  disk.failNext({ operation: "sync", kind: "io" });
  publish(storage, topic, "in doubt");
  storage.finish(channel, 0);
  await rejects(storage.drain(), LogError);
  deepEqual([owner.errors.length, topic.durableTail, topic.tail], [1, 1, 2]);
  const sealed = (error: unknown) => error instanceof LogError && error.code === "sealed";
  throws(() => publish(storage, topic, "more"), sealed);
  throws(() => storage.requeue(channel, 1, 1, 0), sealed);
  throws(() => storage.decide({ type: "topic_deleted", topic: topic.number }), sealed);
  throws(() => storage.emptyChannel(channel, 1), sealed);
  equal(storage.state.topics.get("orders"), topic);
  equal(channel.requeues.size, 0);
  ok(storage.hasRoom(1e9), "a publisher is let through to meet the error");
  await storage.room();
  storage.finish(channel, 1);
  await clock.run(1000);
  await storage.maintain();
  deepEqual(checkpoints(disk), []);
  // Not everything is on disk, so close() does not say so; the folder is given back all the same.
  await rejects(storage.close(), sealed);
  equal(disk.openFiles, 0);
  equal(clock.pendingTimers, 0);
});

Deno.test("open() gives files and lock back when recovery fails", async () => {
  const disk = new SimDisk();
  const clock = new SimClock();
  const first = await openStorage(disk, clock);
  createTopic(first.storage, "orders");
  await first.storage.close();
  // FORMAT, COMPATIBILITY, broker.meta, and the log; a checkpoint that cannot be read, by two reads, is passed over.
  for (const skip of [0, 1, 2, 5]) {
    disk.failNext({ operation: "read", kind: "io", skip });
    await rejects(
      openStorage(disk, clock),
      (error) => error instanceof DiskError || error instanceof LogError,
      `read ${skip}`,
    );
    equal(disk.openFiles, 0);
  }
  await (await openStorage(disk, clock)).storage.close();
});

Deno.test("a message is shown only when its bytes are on disk, and its topic is named", async () => {
  const sim = new SimDisk();
  const disk = new SlowDisk(sim);
  const { storage, owner } = await openStorage(disk, new SimClock());
  const [orders, mail] = [createTopic(storage, "orders"), createTopic(storage, "mail")];
  await storage.drain();
  owner.groups.length = 0;
  disk.held = true;
  publish(storage, orders, "first");
  storage.commit();
  await settle();
  publish(storage, orders, "second");
  publish(storage, mail, "third");
  storage.commit();
  await settle();
  deepEqual([orders.durableTail, mail.durableTail, owner.groups], [0, 0, []]);
  disk.release();
  disk.held = true;
  await settle();
  deepEqual([orders.durableTail, mail.durableTail, owner.groups], [1, 0, [["orders"]]]);
  disk.release();
  await settle();
  deepEqual(
    [orders.durableTail, mail.durableTail, owner.groups],
    [2, 1, [["orders"], ["orders", "mail"]]],
  );
  await storage.close();
});

Deno.test("finishes of one interval are one record and one sync", async () => {
  const disk = new SimDisk();
  const clock = new SimClock();
  const { storage } = await openStorage(disk, clock);
  const topic = createTopic(storage, "orders");
  const channel = createChannel(storage, topic, "mail");
  for (let count = 0; count < 100; count++) publish(storage, topic, "m");
  await storage.drain();
  const syncs = disk.trace.count("sync");
  const { end } = storage.log;
  for (let offset = 99; offset >= 0; offset--) ok(storage.finish(channel, offset));
  equal(storage.finish(channel, 5), false);
  await settle();
  equal(storage.log.end, end);
  await clock.run(9);
  equal(disk.trace.count("sync"), syncs);
  await clock.run(1);
  equal(disk.trace.count("sync") - syncs, 1);
  // A block header and one record: 16 bytes and a byte for each further message.
  equal(storage.log.end - end, 64 + 8 + 120);
  equal(clock.pendingTimers, 0);
  await storage.abandon();
  disk.crash();
  const again = await openStorage(disk, clock);
  equal(again.storage.state.topics.get("orders")!.channels.get("mail")!.finished.floor, 100);
  await again.storage.close();
});

Deno.test("finishes go along with the group of a publish and need no timer of their own", async () => {
  const disk = new SimDisk();
  const clock = new SimClock();
  const { storage } = await openStorage(disk, clock);
  const topic = createTopic(storage, "orders");
  const channel = createChannel(storage, topic, "mail");
  publish(storage, topic, "first");
  await storage.drain();
  const syncs = disk.trace.count("sync");
  storage.finish(channel, 0);
  equal(clock.pendingTimers, 1);
  publish(storage, topic, "second");
  await storage.drain();
  deepEqual([disk.trace.count("sync") - syncs, clock.pendingTimers], [1, 0]);
  deepEqual(channel.unwritten, []);
  await storage.close();
});

Deno.test("finishes of a deleted channel and of an ephemeral one are not written", async () => {
  const disk = new SimDisk();
  const clock = new SimClock();
  const { storage } = await openStorage(disk, clock);
  const topic = createTopic(storage, "orders");
  const channel = createChannel(storage, topic, "mail");
  const ephemeral = new ChannelState(0, topic, "tail#ephemeral", true, 0);
  topic.channels.set(ephemeral.name, ephemeral);
  publish(storage, topic, "first");
  publish(storage, topic, "second");
  await storage.drain();
  storage.finish(channel, 0);
  storage.decide({ type: "channel_deleted", channel: channel.number, keepFrom: 0 });
  await storage.drain();
  const { end } = storage.log;
  storage.finish(ephemeral, 0);
  storage.requeue(ephemeral, 1, 2, 5);
  storage.emptyChannel(ephemeral, 2);
  await clock.run(100);
  await storage.drain();
  equal(storage.log.end, end);
  deepEqual([ephemeral.finished.floor, ephemeral.requeues.size], [2, 0]);
  await storage.abandon();
  const again = await openStorage(disk, clock);
  equal(again.storage.opening.orphanRecords, 0);
  await again.storage.close();
});

Deno.test("hasRoom() comes back once a publisher waits for room, also after very many finishes", async () => {
  const disk = new SimDisk();
  const clock = new SimClock();
  const { storage } = await openStorage(disk, clock);
  const topic = createTopic(storage, "orders");
  const channel = createChannel(storage, topic, "mail");
  for (let offset = 0; offset < 3000; offset++) {
    while (!storage.hasRoom(1)) await storage.room();
    publish(storage, topic, "m");
  }
  await storage.drain();
  for (let offset = 0; offset < 3000; offset++) storage.finish(channel, offset);
  equal(storage.hasRoom(1), false);
  // No timer runs: whoever waits must not wait for one.
  let rounds = 0;
  while (!storage.hasRoom(1)) {
    ok(++rounds < 100, "waiting for room ends");
    await storage.room();
  }
  await storage.close();
});

Deno.test("hasRoom() stops publishes at half the ring while a sync runs, and room() waits for it", async () => {
  const disk = new SlowDisk(new SimDisk());
  const { storage } = await openStorage(disk, new SimClock());
  const topic = createTopic(storage, "orders");
  await storage.drain();
  disk.held = true;
  let published = 0;
  for (; storage.hasRoom(LARGE.length); published++) publish(storage, topic, LARGE);
  equal(published, 6);
  ok(storage.fitsGroup(16_000, 1));
  ok(!storage.fitsGroup(16_000, 100));
  let woken = false;
  const room = storage.room().then(() => woken = true);
  await settle();
  equal(woken, false);
  disk.release();
  await room;
  ok(storage.hasRoom(LARGE.length));
  equal(topic.durableTail, 6);
  await storage.close();
});

Deno.test("hasRoom() stops publishes at the reserved message ids until more are on disk", async () => {
  const disk = new SimDisk();
  const { storage, owner } = await openStorage(disk, new SimClock());
  const topic = createTopic(storage, "orders");
  await storage.drain();
  ok(storage.hasRoom(0, 400));
  ok(!storage.hasRoom(0, SEQUENCE_BLOCK));
  const first = storage.nextSequence;
  publish(storage, topic, "m");
  equal(storage.nextSequence, first + 1);
  await storage.close();
  equal(owner.warnings.length, 0);
  const again = await openStorage(disk, new SimClock());
  equal(again.storage.nextSequence, first + SEQUENCE_BLOCK);
  await again.storage.close();
});

Deno.test("maintain() writes a checkpoint once a file was sealed, and none without", async () => {
  const disk = new SimDisk();
  const { storage } = await openStorage(disk, new SimClock());
  const topic = createTopic(storage, "orders");
  publish(storage, topic, "small");
  await storage.drain();
  await storage.maintain();
  deepEqual(checkpoints(disk), []);
  await sealFiles(storage, topic, 1);
  await Promise.all([storage.maintain(), storage.maintain()]);
  equal(storage.counters.checkpoints, 1);
  equal(checkpoints(disk).length, 1);
  await storage.maintain();
  equal(storage.counters.checkpoints, 1);
  await storage.close();
});

Deno.test("maintain() removes the oldest files that nobody is owed anything of, and no other", async () => {
  const disk = new SimDisk();
  const { storage } = await openStorage(disk, new SimClock());
  const topic = createTopic(storage, "orders");
  const [fast, slow] = [
    createChannel(storage, topic, "fast"),
    createChannel(storage, topic, "slow"),
  ];
  await sealFiles(storage, topic, 4);
  const files = storage.logFiles.slice();
  const secondEnd = topic.index.endOffsetOf(files[1]!.start);
  for (let offset = 0; offset < topic.tail; offset++) storage.finish(fast, offset);
  for (let offset = 0; offset < secondEnd - 1; offset++) storage.finish(slow, offset);
  await storage.maintain();
  await sealFiles(storage, topic, 1);
  await storage.maintain();
  equal(storage.logFiles[0]?.start, files[1]?.start);
  storage.finish(slow, secondEnd - 1);
  await storage.maintain();
  equal(storage.logFiles[0]?.start, files[2]?.start);
  equal(topic.index.position(0), -1);
  equal(topic.index.firstOffset(-1), secondEnd);
  // Sidecars go with their files.
  deepEqual(
    disk.files().filter((path) => path.endsWith(".idx")).length,
    storage.logFiles.length - 1,
  );
  await storage.close();
  equal(disk.openFiles, 0);
});

Deno.test("maintain() keeps what is kept for the first channel and what an ephemeral channel owes", async () => {
  const disk = new SimDisk();
  const { storage } = await openStorage(disk, new SimClock());
  const topic = createTopic(storage, "orders");
  await sealFiles(storage, topic, 2);
  await storage.maintain();
  await sealFiles(storage, topic, 1);
  await storage.maintain();
  equal(storage.logFiles[0]?.start, 0);
  const channel = createChannel(storage, topic, "mail");
  equal(channel.start, 0);
  const ephemeral = new ChannelState(0, topic, "tail#ephemeral", true, 0);
  topic.channels.set(ephemeral.name, ephemeral);
  storage.emptyChannel(channel, topic.tail);
  await storage.maintain();
  equal(storage.logFiles[0]?.start, 0);
  topic.channels.delete(ephemeral.name);
  await storage.maintain();
  ok(storage.logFiles[0]!.start > 0);
  await storage.close();
});

Deno.test("maintain() leaves the files that the older of the two checkpoints needs", async () => {
  const disk = new SimDisk();
  const clock = new SimClock();
  const { storage } = await openStorage(disk, clock);
  const topic = createTopic(storage, "orders");
  const channel = createChannel(storage, topic, "mail");
  for (let round = 0; round < 6; round++) {
    await sealFiles(storage, topic, 2);
    for (let offset = 0; offset < topic.tail; offset++) storage.finish(channel, offset);
    await storage.drain();
    await storage.maintain();
  }
  const { tail } = topic;
  ok(storage.logFiles[0]!.start > 0);
  await storage.close();
  const [older, newer] = checkpoints(disk);
  ok(older !== undefined && newer !== undefined);
  disk.flipBit(newer, 20, 3);
  const again = await openStorage(disk, clock);
  const recovered = again.storage.state.topics.get("orders")!;
  deepEqual([recovered.tail, recovered.channels.get("mail")!.finished.floor], [tail, tail]);
  deepEqual(again.storage.opening.damage, []);
  await again.storage.close();
});

Deno.test("close() makes all durable and leaves a checkpoint, so that nothing is replayed", async () => {
  const disk = new SimDisk();
  const clock = new SimClock();
  const { storage } = await openStorage(disk, clock);
  const topic = createTopic(storage, "orders");
  const channel = createChannel(storage, topic, "mail");
  await sealFiles(storage, topic, 2);
  publish(storage, topic, "last");
  storage.finish(channel, 0);
  storage.requeue(channel, 1, 3, 1_800_000_000_000);
  const { tail } = topic;
  await storage.close();
  equal(clock.pendingTimers, 0);
  equal(disk.openFiles, 0);
  disk.crash();
  const again = await openStorage(disk, clock);
  const recovered = again.storage.state.topics.get("orders")!;
  deepEqual([recovered.tail, recovered.durableTail], [tail, tail]);
  const mail = recovered.channels.get("mail")!;
  deepEqual(mail.finished.floor, 1);
  deepEqual([...mail.requeues], [[1, { attempts: 3, dueMs: 1_800_000_000_000 }]]);
  // Only the places of the messages in the last file are read again.
  equal(
    again.storage.opening.replayedRecords,
    tail - recovered.index.runs.at(-1)!.firstOffset,
  );
  await again.storage.close();
});

Deno.test("close() gives the folder back only when nothing of it is being written any more", async () => {
  class SlowRename extends DiskWrapper {
    held = false;
    waiting: (() => void)[] = [];

    override async rename(from: string, to: string): Promise<void> {
      if (this.held) await new Promise<void>((resolve) => this.waiting.push(resolve));
      await super.rename(from, to);
    }
  }
  const sim = new SimDisk();
  const disk = new SlowRename(sim);
  const { storage } = await openStorage(disk, new SimClock());
  const topic = createTopic(storage, "orders");
  disk.held = true;
  await sealFiles(storage, topic, 1);
  await settle();
  equal(disk.waiting.length, 1);
  let closed = false;
  const closing = storage.abandon().then(() => closed = true);
  await settle();
  equal(closed, false);
  await rejects(sim.lock("/data/LOCK"), DiskError);
  for (const wake of disk.waiting) wake();
  await closing;
  (await sim.lock("/data/LOCK")).release();
  equal(sim.openFiles, 0);
});

Deno.test("a sidecar that cannot be written is a warning and is rebuilt at the next start", async () => {
  const disk = new SimDisk();
  const clock = new SimClock();
  const { storage, owner } = await openStorage(disk, clock);
  const topic = createTopic(storage, "orders");
  disk.failNext({ operation: "rename", kind: "io" });
  await sealFiles(storage, topic, 2);
  await settle();
  equal(owner.warnings.length, 1);
  const positions = await positionsOf(topic);
  await storage.close();
  const again = await openStorage(disk, clock);
  deepEqual(await positionsOf(again.storage.state.topics.get("orders")!), positions);
  equal(
    disk.files().filter((path) => path.endsWith(".idx")).length,
    again.storage.logFiles.length - 1,
  );
  await again.storage.close();
});

Deno.test("message ids go on growing over crashes, whatever became of the messages", async () => {
  const clock = new SimClock();
  for (let seed = 0; seed < 10; seed++) {
    const random = new SeededRandom(seed);
    const disk = new SimDisk({ random: random.fork() });
    let next = 0;
    for (let start = 0; start < 5; start++) {
      const { storage } = await openStorage(disk, clock);
      ok(storage.nextSequence > next);
      const topic = storage.state.topics.get("orders") ?? createTopic(storage, "orders");
      for (let count = random.below(20); count > 0; count--) publish(storage, topic, "m");
      if (random.chance(0.5)) await storage.drain();
      next = storage.nextSequence;
      await storage.abandon();
      disk.crash();
    }
  }
});
