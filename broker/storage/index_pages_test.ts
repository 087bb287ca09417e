import { deepEqual, equal, ok, rejects } from "node:assert/strict";
import { type Disk, DiskError, type DiskFile, type DiskLock } from "@sluice/shared/runtime";
import {
  DiskFileWrapper,
  DiskWrapper,
  SeededRandom,
  settle,
  SimClock,
  SimDisk,
} from "@sluice/shared/testing";
import { PAGE_ENTRIES } from "./sidecar.ts";
import type { TopicState } from "./state.ts";
import type { Storage } from "./storage.ts";
import {
  createChannel,
  createTopic,
  openStorage,
  positionsOf,
  publish,
} from "./storage_test_fixture.ts";
import { MISSING, NOT_LOADED } from "./index_word.ts";

/** Pages that are held whatever the bound. */
const PAGES_MIN = 8;
const WHOLE_PAGE_BYTES = PAGE_ENTRIES * 4;

/** Counts, holds back and garbles reads of sidecars. */
class SidecarReads extends DiskWrapper {
  count = 0;
  held = false;
  garbles = false;
  #waiting: (() => void)[] = [];

  override wrapFile(file: DiskFile, path: string): DiskFile {
    if (!path.endsWith(".idx")) return file;
    const read = async (inner: Promise<number>, into: Uint8Array) => {
      this.count++;
      if (this.held) await new Promise<void>((resolve) => this.#waiting.push(resolve));
      const bytes = await inner;
      if (this.garbles) into[0]! ^= 1;
      return bytes;
    };
    return new class extends DiskFileWrapper {
      override readAt(position: number, into: Uint8Array): Promise<number> {
        return read(super.readAt(position, into), into);
      }
    }(file);
  }

  release(): void {
    this.held = false;
    for (const wake of this.#waiting.splice(0)) wake();
  }
}

function sidecars(disk: SimDisk): string[] {
  return disk.files().filter((path) => path.endsWith(".idx"));
}

async function publishMany(storage: Storage, topic: TopicState, count: number): Promise<void> {
  for (let index = 0; index < count; index++) {
    while (!storage.hasRoom(100)) await storage.room();
    publish(storage, topic, "", index % 3 === 0 ? 1_700_000_000_000 + index : 0);
  }
  await storage.drain();
  await settle();
}

/** A topic with three sealed files and one that takes appends; `expected` are its positions. */
async function backlog(disk: Disk, count = 2000) {
  const clock = new SimClock();
  const opened = await openStorage(disk, clock, { indexCacheBytes: 0 });
  const topic = createTopic(opened.storage, "orders");
  await publishMany(opened.storage, topic, count);
  return { ...opened, clock, topic, expected: await positionsOf(topic) };
}

async function reopened(disk: Disk) {
  const opened = await openStorage(disk, new SimClock(), { indexCacheBytes: 0 });
  return { ...opened, topic: opened.storage.state.topics.get("orders")! };
}

Deno.test("places of messages in sealed files are not in memory, and those of the last file are", async () => {
  const disk = new SimDisk();
  const { storage, topic, expected } = await backlog(disk);
  const check = (index: TopicState["index"]) => {
    const runs = index.runs;
    ok(runs.length > 3);
    for (const run of runs.slice(0, -1)) deepEqual([run.words, run.due.length], [null, 0]);
    ok(runs.at(-1)!.words !== null);
    equal(index.position(index.runs.at(-1)!.firstOffset), expected[runs.at(-1)!.firstOffset]);
  };
  check(topic.index);
  await storage.close();
  const again = await reopened(disk);
  check(again.topic.index);
  equal(again.storage.indexCachedBytes, 0);
  equal(again.topic.index.position(0), NOT_LOADED);
  deepEqual(await positionsOf(again.topic), expected);
  await again.storage.close();
  equal(disk.openFiles, 0);
});

Deno.test("a start reads nothing of a sidecar behind its directory when nothing is deferred", async () => {
  const sim = new SimDisk();
  const first = await openStorage(sim, new SimClock(), { logFileBytes: 1 << 20 });
  const topic = createTopic(first.storage, "orders");
  for (let index = 0; index < 60_000; index++) {
    while (!first.storage.hasRoom(100)) await first.storage.room();
    publish(first.storage, topic, "");
  }
  await first.storage.close();
  ok(sidecars(sim).length >= 2);
  ok(sidecars(sim).every((path) => sim.bytes(path).length > 3 * PAGE_ENTRIES));
  const disk = new SidecarReads(sim);
  const { storage } = await openStorage(disk, new SimClock(), { logFileBytes: 1 << 20 });
  equal(disk.count, sidecars(sim).length);
  const again = storage.state.topics.get("orders")!;
  equal(again.index.position(2 * PAGE_ENTRIES), NOT_LOADED);
  await again.index.load(2 * PAGE_ENTRIES);
  equal(disk.count, sidecars(sim).length + 1);
  ok(again.index.position(2 * PAGE_ENTRIES) > 0);
  ok(again.index.position(3 * PAGE_ENTRIES - 1) > 0);
  equal(again.index.position(3 * PAGE_ENTRIES), NOT_LOADED);
  deepEqual(await positionsOf(again), await positionsOf(topic));
  await storage.close();
});

Deno.test("index pages stay within their bound, the least lately used going first", async () => {
  const disk = new SimDisk();
  const changes = { logFileBytes: 1 << 20, indexCacheBytes: 10 * (WHOLE_PAGE_BYTES + 200) };
  const { storage } = await openStorage(disk, new SimClock(), changes);
  const topic = createTopic(storage, "orders");
  await publishMany(storage, topic, 60_000);
  await topic.index.load(0);
  let loaded = 0;
  for (let offset = 0; offset < topic.tail; offset += PAGE_ENTRIES / 2) {
    await topic.index.load(offset);
    ok(topic.index.position(offset) > 0);
    // Used again and again, so that it stays.
    ok(topic.index.position(0) > 0, `offset ${offset}`);
    ok(storage.indexCachedBytes <= changes.indexCacheBytes);
    loaded = Math.max(loaded, storage.indexCachedBytes);
  }
  ok(loaded > changes.indexCacheBytes * 0.7, `${loaded}`);
  equal(topic.index.position(PAGE_ENTRIES), NOT_LOADED);
  await storage.close();
});

Deno.test("an index page is read once however many want it", async () => {
  const sim = new SimDisk();
  await (await backlog(sim)).storage.close();
  const disk = new SidecarReads(sim);
  const { storage, topic } = await reopened(disk);
  const before = disk.count;
  disk.held = true;
  const loads = [0, 1, 2, 3, 4].map((offset) => topic.index.load(offset));
  await settle();
  disk.release();
  await Promise.all(loads);
  await topic.index.load(5);
  equal(disk.count, before + 1);
  ok(topic.index.position(4) > 0);
  await storage.close();
});

Deno.test("an index page that cannot be read rejects, and can be read later", async () => {
  const disk = new SimDisk();
  const { storage: first, expected } = await backlog(disk);
  await first.close();
  const { storage, topic, owner } = await reopened(disk);
  disk.failNext({ operation: "read", kind: "io" });
  await rejects(topic.index.load(0), DiskError);
  equal(topic.index.position(0), NOT_LOADED);
  await topic.index.load(0);
  equal(topic.index.position(0), expected[0]);
  deepEqual(owner.warnings, []);
  await storage.close();
});

Deno.test("a damaged index page has the sidecar rebuilt once, and its messages are found", async () => {
  const sim = new SimDisk();
  const { storage: first, expected } = await backlog(sim);
  await first.close();
  const disk = new SidecarReads(sim);
  const { storage, topic, owner } = await reopened(disk);
  const path = sidecars(sim)[0]!;
  const whole = sim.bytes(path).slice();
  const spoilt: readonly (() => void)[] = [
    () => sim.flipBit(path, 8 + 24 + 32 + 8 + 7, 3),
    () => sim.writeDurable(path, whole.slice(0, 60)),
    () => sim.writeDurable(path, new Uint8Array()),
  ];
  spoilt[0]!();
  await Promise.all([0, 1, 2].map((offset) => topic.index.load(offset)));
  deepEqual(owner.warnings, ["A log file's index is damaged and is rebuilt"]);
  deepEqual(sim.bytes(path), whole);
  equal(topic.index.runs[0]!.words, null);
  deepEqual([0, 1, 2].map((offset) => topic.index.position(offset)), expected.slice(0, 3));
  await storage.close();
  for (const spoil of spoilt) {
    const again = await reopened(sim);
    spoil();
    deepEqual(await positionsOf(again.topic), expected);
    equal(again.owner.warnings.length, 1);
    await again.storage.close();
    deepEqual(sim.bytes(path), whole);
  }
  equal(sim.openFiles, 0);
});

Deno.test("an index that cannot be written again stays in memory", async () => {
  const disk = new SimDisk();
  const { storage: first, expected } = await backlog(disk);
  await first.close();
  const { storage, topic, owner } = await reopened(disk);
  const { firstOffset } = topic.index.runs[1]!;
  disk.writeDurable(sidecars(disk)[1]!, new Uint8Array());
  disk.failNext({ operation: "rename", kind: "no_space" });
  await topic.index.load(firstOffset);
  ok(topic.index.runs[1]!.words !== null);
  equal(topic.index.position(firstOffset), expected[firstOffset]);
  deepEqual(owner.warnings, [
    "A log file's index is damaged and is rebuilt",
    "Cannot write a log file's index; it will be rebuilt at the next start",
  ]);
  deepEqual(await positionsOf(topic), expected);
  await storage.close();
  equal(disk.openFiles, 0);
});

Deno.test("an index that is damaged again after a rebuild stays in memory", async () => {
  const sim = new SimDisk();
  const { storage: first, expected } = await backlog(sim);
  await first.close();
  const disk = new SidecarReads(sim);
  const { storage, topic, owner } = await reopened(disk);
  disk.garbles = true;
  equal(topic.index.position(0), NOT_LOADED);
  await topic.index.load(0);
  ok(topic.index.runs[0]!.words !== null);
  equal(topic.index.position(0), expected[0]);
  equal(owner.warnings.length, 2);
  deepEqual(await positionsOf(topic), expected);
  await storage.close();
  equal(sim.openFiles, 0);
});

Deno.test("a rebuild marks what damage took from the log as missing, and keeps the offsets", async () => {
  const disk = new SimDisk();
  const { storage: first, expected } = await backlog(disk);
  await first.close();
  const { storage, topic, owner } = await reopened(disk);
  const path = disk.files().find((name) => name.endsWith(".log"))!;
  disk.flipBit(path, expected[3]! + 20, 0);
  disk.writeDurable(sidecars(disk)[0]!, new Uint8Array());
  const found = await positionsOf(topic);
  const lost = found.filter((position) => position === MISSING).length;
  ok(lost > 0 && lost < topic.index.runs[0]!.count, `${lost}`);
  for (const [offset, position] of found.entries()) {
    if (position !== MISSING) equal(position, expected[offset]);
  }
  ok(owner.warnings.includes("Messages are damaged on disk"));
  await storage.close();
});

Deno.test("a file may go while a page of its index is being read or rebuilt", async () => {
  for (const damaged of [false, true]) {
    const sim = new SimDisk();
    const { storage: first, topic: before } = await backlog(sim);
    createChannel(first, before, "mail");
    await first.close();
    const disk = new SidecarReads(sim);
    const { storage, topic } = await reopened(disk);
    // So that the older of the two checkpoints is past the file.
    await publishMany(storage, topic, 500);
    await storage.maintain();
    await publishMany(storage, topic, 500);
    await storage.maintain();
    const path = sidecars(sim)[0]!;
    if (damaged) sim.writeDurable(path, new Uint8Array());
    disk.held = true;
    const load = topic.index.load(0);
    await settle();
    storage.emptyChannel(topic.channels.get("mail")!, topic.index.runs[1]!.firstOffset);
    if (damaged) disk.release();
    await storage.maintain();
    disk.release();
    await load;
    await settle();
    equal(topic.index.position(0), MISSING);
    ok(storage.logFiles[0]!.start > 0);
    ok(!sidecars(sim).includes(path));
    equal(storage.indexCachedBytes, 0);
    await storage.close();
    equal(sim.openFiles, 0);
  }
});

Deno.test("abandon() waits for an index that is being rebuilt, and none begins after it", async () => {
  const sim = new SimDisk();
  await (await backlog(sim)).storage.close();
  const locks: boolean[] = [];
  class Locks extends SidecarReads {
    override async lock(path: string): Promise<DiskLock> {
      const lock = await super.lock(path);
      locks.push(true);
      return { release: () => (locks.pop(), lock.release()) };
    }
    override async rename(from: string, to: string): Promise<void> {
      equal(locks.length, 1, "the folder is held");
      await settle();
      await super.rename(from, to);
    }
  }
  const disk = new Locks(sim);
  const { storage, topic } = await reopened(disk);
  const [one, two] = sidecars(sim) as [string, string];
  sim.writeDurable(one, new Uint8Array());
  sim.writeDurable(two, new Uint8Array());
  const load = topic.index.load(0);
  await settle();
  const inSecond = topic.index.runs[1]!.firstOffset;
  const abandoned = storage.abandon();
  const late = rejects(topic.index.load(inSecond), /the broker is stopping/);
  await Promise.all([load, abandoned, late]);
  equal(locks.length, 0);
});

Deno.test("deferred messages wait again after a start with damaged due times, each once", async () => {
  const disk = new SimDisk();
  const { storage: first, topic: before } = await backlog(disk);
  const channel = createChannel(first, before, "mail");
  first.finish(channel, 0);
  await first.drain();
  const expected = Array.from({ length: before.tail }, (_, offset) => offset)
    .filter((offset) => offset % 3 === 0 && offset > 0);
  await first.close();
  const sidecar = sidecars(disk)[0]!;
  const whole = disk.bytes(sidecar).slice();
  for (const damaged of [false, true]) {
    if (damaged) disk.flipBit(sidecar, whole.length - 5, 1);
    const { storage, topic } = await reopened(disk);
    deepEqual(storage.opening.damage, []);
    deepEqual(disk.bytes(sidecar), whole);
    const offsets: number[] = [];
    while (topic.due.size > 0) {
      const dueMs = topic.due.earliestMs;
      topic.due.pop();
      offsets.push(topic.due.poppedOffset);
      equal(dueMs, 1_700_000_000_000 + topic.due.poppedOffset);
    }
    deepEqual(offsets, expected);
    await storage.close();
  }
});

Deno.test("positions equal a plain map over seals, failed writes, starts, damage and reclaim", async () => {
  const seen = { reclaimed: 0, starts: 0, damaged: 0, missing: 0, found: 0 };
  for (let seed = 0; seed < 12; seed++) {
    const random = new SeededRandom(seed);
    const disk = new SimDisk();
    const clock = new SimClock();
    const changes = { indexCacheBytes: 0, logFileBytes: random.pick([4096, 20_000]) };
    const plain = new Map<string, number[]>();
    let { storage } = await openStorage(disk, clock, changes);
    for (let step = 0; step < 250; step++) {
      const topics = [...storage.state.topics.values()];
      const what = random.below(100);
      if (topics.length === 0 || (what < 3 && topics.length < 12)) {
        const topic = createTopic(storage, `topic${topics.length}`);
        createChannel(storage, topic, "mail");
        plain.set(topic.name, []);
        continue;
      }
      const topic = random.pick(topics);
      const positions = plain.get(topic.name)!;
      if (what < 50) {
        for (let count = random.below(40); count > 0; count--) {
          while (!storage.hasRoom(200)) await storage.room();
          publish(storage, topic, "x".repeat(random.below(100)), random.below(3));
          positions.push(topic.index.position(topic.tail - 1));
        }
      } else if (what < 60) {
        const { finished } = topic.channels.get("mail")!;
        const to = Math.min(topic.tail, finished.floor + random.below(100));
        storage.emptyChannel(topic.channels.get("mail")!, to);
      } else if (what < 66) {
        await storage.drain();
        await storage.maintain();
        if (storage.logFiles[0]!.start > 0) seen.reclaimed++;
      } else if (what < 69) {
        await storage.drain();
        await settle();
        await (random.chance(0.5) ? storage.close() : storage.abandon());
        if (random.chance(0.3)) disk.crash();
        ({ storage } = await openStorage(disk, clock, changes));
        seen.starts++;
      } else if (what < 71) {
        disk.failNext({ operation: "rename", kind: "io" });
        // Enough to have a file sealed.
        for (let count = 0; count < 200; count++) {
          while (!storage.hasRoom(200)) await storage.room();
          publish(storage, topic, "y".repeat(100));
          positions.push(topic.index.position(topic.tail - 1));
        }
        await storage.drain();
        await settle();
      } else if (what < 74 && sidecars(disk).length > 0) {
        await storage.drain();
        await settle();
        const path = random.pick(sidecars(disk));
        const { length } = disk.bytes(path);
        if (length === 0) continue;
        if (random.chance(0.3)) disk.writeDurable(path, new Uint8Array());
        else disk.flipBit(path, random.below(length), random.below(8));
        seen.damaged++;
      } else {
        const offset = random.below(topic.tail + 2);
        const place = `seed ${seed} step ${step} ${topic.name} ${offset}`;
        // Some at once, so that they push each other's pages out; only the last one's is sure.
        await Promise.all(topics.map((other) => other.index.load(random.below(other.tail + 2))));
        for (let tries = 0; topic.index.position(offset) === NOT_LOADED; tries++) {
          ok(tries < 10, place);
          await topic.index.load(offset);
        }
        const position = topic.index.position(offset);
        const isGone = offset < topic.index.firstOffset(topic.tail) || offset >= topic.tail;
        equal(position, isGone ? MISSING : positions[offset], place);
        if (position === MISSING) seen.missing++;
        else seen.found++;
        ok(storage.indexCachedBytes <= PAGES_MIN * (WHOLE_PAGE_BYTES + 200));
      }
    }
    await storage.drain();
    for (const topic of storage.state.topics.values()) {
      const from = topic.index.firstOffset(topic.tail);
      ok(from <= topic.liveFrom);
      deepEqual(await positionsOf(topic, from), plain.get(topic.name)!.slice(from), `seed ${seed}`);
    }
    await storage.close();
    equal(disk.openFiles, 0, `seed ${seed}`);
  }
  for (const [what, count] of Object.entries(seen)) ok(count > 10, `${what}: ${count}`);
});
