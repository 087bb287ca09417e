/** Checkpoints of a state that takes many slices, while the broker goes on, ends or fails. */
import { deepEqual, equal, ok, rejects } from "node:assert/strict";
import { LogError } from "@sluice/shared/log";
import type { Disk, DiskFile } from "@sluice/shared/runtime";
import {
  DiskFileWrapper,
  DiskWrapper,
  SeededRandom,
  settle,
  SimClock,
  SimDisk,
} from "@sluice/shared/testing";
import { textOf } from "./checkpoint_test_fixture.ts";
import { ChannelState, type TopicState } from "./state.ts";
import type { Storage } from "./storage.ts";
import {
  createChannel,
  createTopic,
  type OpenedStorage,
  openStorage,
  publish,
} from "./storage_test_fixture.ts";

const CHANNELS = 3000;
const LOG_FILE_BYTES = 100_000;

function filesOf(disk: SimDisk, text: string): string[] {
  return disk.files().filter((path) => path.includes(text));
}

/** A storage whose checkpoint takes several slices; it is owed one. */
async function large(
  disk: Disk,
  clock: SimClock,
): Promise<OpenedStorage & { topic: TopicState; channels: ChannelState[] }> {
  const opened = await openStorage(disk, clock, { logFileBytes: LOG_FILE_BYTES });
  const { storage } = opened;
  const topic = createTopic(storage, "orders");
  const channels: ChannelState[] = [];
  while (channels.length < CHANNELS) {
    while (!storage.hasRoom(1000)) await storage.room();
    channels.push(createChannel(storage, topic, `c${channels.length}`));
  }
  for (let count = 0; count < 100; count++) publish(storage, topic, "m");
  await storage.drain();
  ok(storage.logFiles.length > 2);
  return { ...opened, topic, channels };
}

/** Finishes, requeues, publishes and makes channels, as consumers would between two slices. */
function work(storage: Storage, topic: TopicState, random: SeededRandom): void {
  const channels = [...topic.channels.values()];
  for (let count = 0; count < 20; count++) {
    const channel = random.pick(channels);
    if (random.chance(0.5)) storage.finish(channel, random.below(topic.tail));
    else storage.requeue(channel, random.below(topic.tail), count, 0);
  }
  publish(storage, topic, "meanwhile");
  const gone = random.pick(channels);
  storage.decide({ type: "channel_deleted", channel: gone.number, keepFrom: topic.keepFrom });
  createChannel(storage, topic, random.chance(0.5) ? gone.name : `${gone.name}x`);
}

/** Whether the folder, as it is after the process has gone, gives the state. */
async function sameAfterCrash(disk: SimDisk, clock: SimClock, expected: string): Promise<void> {
  disk.crash();
  const { storage } = await openStorage(disk, clock, { logFileBytes: LOG_FILE_BYTES });
  equal(textOf(storage.state), expected);
  deepEqual([storage.opening.damage, storage.opening.orphanRecords], [[], 0]);
  await storage.abandon();
  equal(disk.openFiles, 0);
}

Deno.test("close() and abandon() end a checkpoint under way; only close() leaves another", async () => {
  for (const ends of ["close", "abandon"] as const) {
    const disk = new SimDisk();
    const clock = new SimClock();
    const { storage } = await large(disk, clock);
    const expected = textOf(storage.state);
    const maintaining = storage.maintain();
    await settle();
    deepEqual([filesOf(disk, ".ckp.tmp").length, clock.pendingTimers], [1, 1]);
    // No time passes for them: they wait for nothing but the disk.
    await storage[ends]();
    await maintaining;
    deepEqual(
      [filesOf(disk, ".ckp.tmp").length, filesOf(disk, ".ckp").length, clock.pendingTimers],
      [0, ends === "close" ? 1 : 0, 0],
    );
    equal(storage.counters.checkpoints, ends === "close" ? 1 : 0);
    await sameAfterCrash(disk, clock, expected);
  }
});

Deno.test("a checkpoint is given up when the log fails meanwhile", async () => {
  const disk = new SimDisk();
  const clock = new SimClock();
  const { storage, owner, topic } = await large(disk, clock);
  const expected = textOf(storage.state);
  const maintaining = storage.maintain();
  await settle();
  disk.failNext({ operation: "write", kind: "io" });
  publish(storage, topic, "lost");
  await rejects(storage.drain(), LogError);
  await clock.runUntil(maintaining, 100);
  deepEqual([owner.errors.length, filesOf(disk, ".ckp").length], [1, 0]);
  await storage.abandon();
  await sameAfterCrash(disk, clock, expected);
});

Deno.test("maintain() lets others run between the slices of a checkpoint, and what they do is kept", async () => {
  const disk = new SimDisk();
  const clock = new SimClock();
  const { storage, topic, channels } = await large(disk, clock);
  // One channel that takes several slices itself.
  const last = channels.at(-1)!;
  for (let page = 1; page < 60; page++) {
    for (let offset = 1; offset < 2000; offset += 2) last.finished.add(page * 32_768 + offset);
  }
  const random = new SeededRandom(1);
  let turns = 0;
  const maintaining = storage.maintain();
  let isDone = false;
  void maintaining.then(() => isDone = true);
  while (!isDone) {
    turns++;
    work(storage, topic, random);
    // Only what is due now: a pause made meanwhile is for the next turn.
    clock.advance(0);
    await settle();
  }
  await maintaining;
  ok(turns >= 4, `${turns} turns`);
  equal(storage.counters.checkpoints, 1);
  const [path] = filesOf(disk, ".ckp");
  ok(path !== undefined && disk.bytes(path).length > turns * 20_000);
  // The sparse finishes above were in no record: the checkpoint alone knows them.
  work(storage, topic, random);
  await storage.drain();
  const expected = textOf(storage.state);
  await storage.abandon();
  await sameAfterCrash(disk, clock, expected);
});

Deno.test("a checkpoint is not there before the log is durable up to what it holds", async () => {
  const sim = new SimDisk();
  const clock = new SimClock();
  let held = false;
  const waiting: (() => void)[] = [];
  class HeldSyncs extends DiskWrapper {
    override wrapFile(file: DiskFile, path: string): DiskFile {
      return !path.endsWith(".log") ? file : new class extends DiskFileWrapper {
        override async syncData(): Promise<void> {
          if (held) await new Promise<void>((resolve) => waiting.push(resolve));
          await super.syncData();
        }
      }(file);
    }
  }
  const { storage, topic } = await large(new HeldSyncs(sim), clock);
  held = true;
  const maintaining = storage.maintain();
  work(storage, topic, new SeededRandom(3));
  await clock.run(1000);
  deepEqual([filesOf(sim, ".ckp.tmp").length, filesOf(sim, ".ckp").length], [1, 1]);
  held = false;
  for (const wake of waiting) wake();
  await maintaining;
  deepEqual([filesOf(sim, ".ckp.tmp").length, filesOf(sim, ".ckp").length], [0, 1]);
  await storage.close();
});

Deno.test("a power cut at any moment of a checkpoint leaves the state that was durable", async () => {
  const met = { old: 0, written: 0 };
  for (let cut = 1; cut <= 15; cut++) {
    const moment = cut % 2 === 0 ? "before_effect" : "after_effect";
    const disk = new SimDisk({ random: new SeededRandom(cut), tornSectorChance: 0.5 });
    const clock = new SimClock();
    const { storage } = await large(disk, clock);
    const expected = textOf(storage.state);
    disk.powerCutAfter(cut, moment);
    const maintaining = storage.maintain().catch(() => {});
    await clock.runUntil(maintaining, 1000);
    await storage.abandon().catch(() => {});
    await sameAfterCrash(disk, clock, expected);
    met[filesOf(disk, ".ckp").length === 0 ? "old" : "written"]++;
  }
  ok(met.old > 3 && met.written > 2, JSON.stringify(met));
});

Deno.test("a checkpoint that is damaged or cut off at any slice costs nothing while there is an older", async () => {
  const disk = new SimDisk();
  const clock = new SimClock();
  const { storage, topic } = await large(disk, clock);
  const random = new SeededRandom(2);
  for (let round = 0; round < 2; round++) {
    work(storage, topic, random);
    const grown = storage.log.end + 500_000;
    while (storage.log.end < grown) {
      publish(storage, topic, "x".repeat(5000));
      await storage.drain();
    }
    await clock.runUntil(storage.maintain(), 1000);
  }
  work(storage, topic, random);
  await storage.drain();
  const expected = textOf(storage.state);
  await storage.abandon();
  const [older, newer] = filesOf(disk, ".ckp") as [string, string];
  const whole = disk.bytes(newer).slice();
  const starts: number[] = [];
  const view = new DataView(whole.buffer, whole.byteOffset, whole.byteLength);
  for (let at = 12; at < whole.length; at += 8 + view.getUint32(at, true)) starts.push(at);
  ok(starts.length >= 3);
  for (const start of starts) {
    disk.writeDurable(newer, whole.slice(0, start));
    await sameAfterCrash(disk, clock, expected);
    disk.writeDurable(newer, whole);
    disk.flipBit(newer, Math.min(start + 20, whole.length - 1), 4);
    await sameAfterCrash(disk, clock, expected);
  }
  disk.flipBit(older, 1000, 4);
  await rejects(openStorage(disk, clock), LogError);
  equal(disk.openFiles, 0);
});

Deno.test("two damaged checkpoints refuse the start once files are gone", async () => {
  const disk = new SimDisk();
  const clock = new SimClock();
  const { storage } = await openStorage(disk, clock);
  const topic = createTopic(storage, "orders");
  const channel = createChannel(storage, topic, "mail");
  for (let round = 0; round < 30; round++) {
    publish(storage, topic, "x".repeat(5000));
    await storage.drain();
    storage.emptyChannel(channel, topic.tail);
    await storage.maintain();
  }
  await storage.close();
  const { start } = storage.logFiles[0]!;
  ok(start > 0);
  for (const path of filesOf(disk, ".ckp")) disk.flipBit(path, 30, 1);
  await rejects(openStorage(disk, clock), (error) => {
    ok(error instanceof LogError && error.code === "damaged");
    equal(
      error.message,
      "Cannot open the log: no checkpoint can be read and the log before position " +
        `${start} is gone`,
    );
    ok(error.cause instanceof LogError && error.cause.code === "damaged");
    return true;
  });
  equal(disk.openFiles, 0);
});

Deno.test("maintain() writes no checkpoint before the log has grown by as much as the last one had", async () => {
  const disk = new SimDisk();
  const clock = new SimClock();
  const { storage, topic } = await large(disk, clock);
  await clock.runUntil(storage.maintain(), 1000);
  equal(storage.counters.checkpoints, 1);
  const { length } = disk.bytes(filesOf(disk, ".ckp")[0]!);
  const { end } = storage.log;
  ok(length > LOG_FILE_BYTES);
  const files = storage.logFiles.length;
  while (storage.log.end < end + length) {
    await clock.runUntil(storage.maintain(), 1000);
    equal(storage.counters.checkpoints, 1);
    publish(storage, topic, "x".repeat(5000));
    await storage.drain();
  }
  ok(storage.logFiles.length > files);
  await clock.runUntil(storage.maintain(), 1000);
  equal(storage.counters.checkpoints, 2);
  // Nor at the end, when the next start has less to read without it.
  publish(storage, topic, "x");
  const expected = textOf(storage.state);
  await storage.close();
  equal(storage.counters.checkpoints, 2);
  await sameAfterCrash(disk, clock, expected);
});

Deno.test("maintain() lets others run while it looks whether a file may go", async () => {
  const disk = new SimDisk();
  const clock = new SimClock();
  const { storage } = await openStorage(disk, clock);
  const topic = createTopic(storage, "orders");
  const channel = createChannel(storage, topic, "mail");
  while (storage.logFiles.length < 3) {
    publish(storage, topic, "x".repeat(5000));
    await storage.drain();
  }
  storage.emptyChannel(channel, topic.tail);
  const busy = createTopic(storage, "busy");
  for (let count = 0; count < 5000; count++) {
    const name = `${count}#ephemeral`;
    busy.channels.set(name, new ChannelState(0, busy, name, true, 0));
  }
  await storage.drain();
  const maintaining = storage.maintain(true);
  await settle();
  deepEqual([clock.pendingTimers, filesOf(disk, ".ckp").length], [1, 0]);
  await clock.runUntil(maintaining, 1000);
  equal(storage.counters.checkpoints, 1);
  await clock.runUntil(storage.maintain(true), 1000);
  ok(storage.logFiles[0]!.start > 0);
  await storage.close();
  equal(clock.pendingTimers, 0);
});
