import { deepEqual, equal, ok, rejects } from "node:assert/strict";
import { BLOCK_HEADER_BYTES, FileLogStore, LogError, readBlockHeader } from "@sluice/shared/log";
import type { DiskFile } from "@sluice/shared/runtime";
import {
  DiskFileWrapper,
  DiskWrapper,
  SeededRandom,
  settle,
  SimClock,
  SimDisk,
} from "@sluice/shared/testing";
import { encodeCheckpoint } from "./checkpoint.ts";
import { chunksOf, textOf } from "./checkpoint_test_fixture.ts";
import { LOG_FOLDER } from "./data_folder.ts";
import type { Event } from "./records.ts";
import { type RecoveredState, recoverState } from "./recover_state.ts";
import type { BrokerState, TopicState } from "./state.ts";
import type { Storage } from "./storage.ts";
import {
  createChannel,
  createTopic,
  openStorage,
  positionsOf,
  publish,
} from "./storage_test_fixture.ts";

const LATER_EPOCH = 1000;

/** A disk with the same files, so that the one at work is left alone. */
function copyOf(disk: SimDisk, leaveOut: (path: string) => boolean = () => false): SimDisk {
  const copy = new SimDisk();
  for (const path of disk.files()) if (!leaveOut(path)) copy.writeDurable(path, disk.bytes(path));
  return copy;
}

async function recover(disk: SimDisk): Promise<RecoveredState> {
  try {
    const store = await FileLogStore.open(disk, `/data/${LOG_FOLDER}`, LATER_EPOCH);
    try {
      const recovered = await recoverState(store);
      // Read while the store is open.
      await positionsOfAll([...recovered.state.topics.values()]);
      return recovered;
    } finally {
      await store.close();
    }
  } finally {
    equal(disk.openFiles, 0);
  }
}

function filesOf(disk: SimDisk, extension: string): string[] {
  return disk.files().filter((path) => path.endsWith(extension));
}

function livePositions(topic: TopicState): Promise<number[]> {
  return positionsOf(topic, topic.liveFrom);
}

function positionsOfAll(topics: readonly TopicState[]): Promise<number[][]> {
  return Promise.all(topics.map(livePositions));
}

/** A storage with two topics over several files and a checkpoint in the middle, not closed. */
async function grown(): Promise<{ disk: SimDisk; storage: Storage; topics: TopicState[] }> {
  const disk = new SimDisk();
  const { storage } = await openStorage(disk, new SimClock());
  const topics = [createTopic(storage, "orders"), createTopic(storage, "mail")];
  const channel = createChannel(storage, topics[0]!, "worker");
  for (let round = 0; round < 24; round++) {
    publish(storage, topics[round % 2]!, "x".repeat(5000), round % 5 === 0 ? 1e12 + round : 0);
    if (round % 4 === 2) storage.finish(channel, round / 2);
    await storage.drain();
    if (round === 10 || round === 20) await storage.maintain();
  }
  await settle();
  return { disk, storage, topics };
}

function refused(code: LogError["code"], text: RegExp) {
  return (error: unknown) => {
    ok(error instanceof LogError, String(error));
    equal(error.code, code);
    ok(text.test(error.message), error.message);
    return true;
  };
}

Deno.test("recoverState() refuses a record of a kind that it does not know", async () => {
  const disk = new SimDisk();
  const { storage } = await openStorage(disk, new SimClock());
  createTopic(storage, "orders");
  storage.log.begin(9, 0);
  storage.log.finish();
  await storage.drain();
  await rejects(
    recover(copyOf(disk)),
    refused("newer_format", /the record at \d+ is of kind 9, which this release does not know$/),
  );
  await storage.abandon();
});

Deno.test("recoverState() refuses a log that ends before its checkpoint", async () => {
  const { disk, storage } = await grown();
  await storage.close();
  const path = filesOf(disk, ".log").at(-1)!;
  const { start, end } = storage.logFiles.at(-1)!;
  for (const cut of [1, 64, 5000]) {
    const copy = copyOf(disk);
    copy.writeDurable(path, disk.bytes(path).slice(0, end - start - cut));
    await rejects(recover(copy), refused("damaged", /ends at position \d+, but was on disk up to/));
  }
});

Deno.test("recoverState() refuses to start without the files that its checkpoint builds on", async () => {
  const { disk, storage, topics } = await grown();
  const gap = copyOf(disk, (path) => path === filesOf(disk, ".log").at(-2));
  await rejects(recover(gap), refused("missing_file", /bytes are missing between position/));
  const channel = topics[0]!.channels.get("worker")!;
  storage.emptyChannel(channel, topics[0]!.tail);
  createChannel(storage, topics[1]!, "worker");
  storage.emptyChannel(topics[1]!.channels.get("worker")!, topics[1]!.tail);
  await storage.drain();
  await storage.maintain();
  await storage.close();
  ok(storage.logFiles[0]!.start > 0);
  const copy = copyOf(disk, (path) => path.endsWith(".ckp"));
  await rejects(
    recover(copy),
    refused("damaged", /no checkpoint can be read and the log before position \d+ is gone$/),
  );
});

Deno.test("recoverState() loses one message to a flipped bit in the last group before a clean stop", async () => {
  const disk = new SimDisk();
  const { storage } = await openStorage(disk, new SimClock());
  const topic = createTopic(storage, "orders");
  for (const body of ["first", "damaged", "third"]) publish(storage, topic, body);
  await storage.close();
  const position = topic.index.position(1);
  const copy = copyOf(disk);
  copy.flipBit(filesOf(disk, ".log")[0]!, position + 20, 1);
  const recovered = await recover(copy);
  equal(recovered.damage.length, 1);
  const again = recovered.state.topics.get("orders")!;
  deepEqual(await livePositions(again), [topic.index.position(0), -1, topic.index.position(2)]);
  deepEqual([again.tail, recovered.end], [3, storage.log.end]);
});

Deno.test("recoverState() does not give an offset out again whose damaged message was finished", async () => {
  const disk = new SimDisk();
  const clock = new SimClock();
  const { storage } = await openStorage(disk, clock);
  const topic = createTopic(storage, "orders");
  const channel = createChannel(storage, topic, "worker");
  publish(storage, topic, "damaged");
  await storage.drain();
  storage.finish(channel, 0);
  await storage.drain();
  await storage.abandon();
  disk.flipBit(filesOf(disk, ".log")[0]!, topic.index.position(0) + 20, 1);
  const again = await openStorage(disk, clock);
  equal(again.storage.opening.damage.length, 1);
  const recovered = again.storage.state.topics.get("orders")!;
  const offset = publish(again.storage, recovered, "new");
  await again.storage.drain();
  equal(recovered.channels.get("worker")!.finished.has(offset), false);
  await again.storage.close();
});

Deno.test("recoverState() rebuilds sidecars that are missing or damaged, and stores them", async () => {
  const { disk, storage, topics } = await grown();
  const expected = await positionsOfAll(topics);
  await storage.close();
  const sidecars = filesOf(disk, ".idx");
  ok(sidecars.length >= 4);
  const spoilt: readonly ((copy: SimDisk, path: string) => Promise<void> | void)[] = [
    () => {},
    (copy, path) => copy.remove(path),
    (copy, path) => copy.flipBit(path, 30, 2),
    (copy, path) => copy.writeDurable(path, new Uint8Array()),
  ];
  for (const spoil of spoilt) {
    const copy = copyOf(disk);
    for (const path of sidecars) await spoil(copy, path);
    const { state, damage } = await recover(copy);
    deepEqual(damage, []);
    deepEqual(await positionsOfAll(topics.map(({ name }) => state.topics.get(name)!)), expected);
    deepEqual(filesOf(copy, ".idx"), sidecars);
    for (const path of sidecars) deepEqual(copy.bytes(path), disk.bytes(path), path);
  }
});

Deno.test("recoverState() falls back to the older checkpoint when the newest is damaged", async () => {
  const { disk, storage, topics } = await grown();
  const [older, newer] = filesOf(disk, ".ckp");
  ok(older !== undefined && newer !== undefined);
  const expected = textOf(storage.state);
  const whole = await recover(copyOf(disk));
  equal(whole.checkpoint, Number(/(\d{16})/.exec(newer)![1]));
  for (const damaged of [[newer], [older, newer]]) {
    const copy = copyOf(disk);
    for (const path of damaged) copy.flipBit(path, 12, 5);
    const recovered = await recover(copy);
    equal(recovered.checkpoint < whole.checkpoint, true);
    equal(textOf(recovered.state), expected);
    deepEqual(
      await positionsOfAll(topics.map(({ name }) => recovered.state.topics.get(name)!)),
      await positionsOfAll(topics),
    );
  }
  await storage.abandon();
});

Deno.test("recoverState() forgets ephemeral topics, also one that came and went and came again", async () => {
  const disk = new SimDisk();
  const clock = new SimClock();
  for (let start = 0; start < 3; start++) {
    const { storage } = await openStorage(disk, clock);
    deepEqual(
      [storage.state.topics.size, storage.state.topicsByNumber.size],
      [0, 0],
      `start ${start}`,
    );
    equal(storage.state.channelsByNumber.size, 0);
    const topic = createTopic(storage, "trace#ephemeral");
    equal(topic.number, start + 1);
    createChannel(storage, topic, "worker");
    publish(storage, topic, "m");
    await storage.drain();
    await storage.abandon();
  }
});

Deno.test("recoverState() has deferred messages wait again that somebody is still owed", async () => {
  const disk = new SimDisk();
  const { storage } = await openStorage(disk, new SimClock());
  const topic = createTopic(storage, "orders");
  const kept = createTopic(storage, "kept");
  const [one, two] = [createChannel(storage, topic, "one"), createChannel(storage, topic, "two")];
  for (const dueMs of [500, 0, 300, 400]) publish(storage, topic, "m", dueMs);
  publish(storage, kept, "m", 900);
  storage.finish(one, 0);
  storage.finish(one, 3);
  storage.finish(two, 3);
  await storage.drain();
  const { state } = await recover(copyOf(disk));
  const due: [number, number][] = [];
  const heap = state.topics.get("orders")!.due;
  while (heap.size > 0) {
    const dueMs = heap.earliestMs;
    heap.pop();
    due.push([dueMs, heap.poppedOffset]);
  }
  deepEqual(due, [[300, 2], [500, 0]]);
  equal(state.topics.get("kept")!.due.earliestMs, 900);
  await storage.abandon();
});

/** One of a few names, so that names come again. */
function freeName(taken: ReadonlyMap<string, unknown>, random: SeededRandom): string {
  while (true) {
    const name = `n${random.below(6)}`;
    if (!taken.has(name)) return name;
  }
}

/** One random thing that a broker does. */
function step(storage: Storage, random: SeededRandom): void {
  const topics = [...storage.state.topics.values()];
  const topic = topics.length === 0 ? null : random.pick(topics);
  const channels = topic === null ? [] : [...topic.channels.values()];
  const channel = channels.length === 0 ? null : random.pick(channels);
  const what = random.below(100);
  if (topic === null || (what < 2 && topics.length < 4)) {
    createTopic(storage, freeName(storage.state.topics, random));
  } else if (channel === null || (what < 5 && channels.length < 4)) {
    if (random.chance(0.4)) createChannel(storage, topic, freeName(topic.channels, random));
    else publish(storage, topic, "k".repeat(random.below(800)));
  } else if (what < 50) {
    publish(storage, topic, "m".repeat(random.below(900)), random.chance(0.2) ? random.u32() : 0);
  } else if (what < 80) {
    const { floor } = channel.finished;
    const offset = random.chance(0.5) ? floor : floor + random.below(30);
    if (offset < topic.tail) storage.finish(channel, offset);
  } else if (what < 90) {
    const offset = channel.finished.floor + random.below(10);
    if (offset < topic.tail) {
      storage.requeue(channel, offset, random.below(9), random.chance(0.5) ? random.u32() : 0);
    }
  } else {
    const paused = random.chance(0.5);
    const events: readonly Event[] = [
      { type: "channel_paused", channel: channel.number, paused },
      { type: "topic_paused", topic: topic.number, paused, at: topic.tail },
      {
        type: "topic_emptied",
        topic: topic.number,
        from: Math.max(0, topic.tail - random.below(20)),
        to: topic.tail,
      },
      {
        type: "channel_emptied",
        channel: channel.number,
        to: Math.min(topic.tail, channel.finished.floor + random.below(40)),
      },
      { type: "channel_deleted", channel: channel.number, keepFrom: topic.tail },
      { type: "topic_deleted", topic: topic.number },
    ];
    const event = events[random.pick([0, 1, 2, 3, 3, 3, 3, 4, 5])]!;
    if (event.type !== "topic_deleted" || random.chance(0.3)) storage.decide(event);
  }
}

Deno.test("replay equals the live state at any point, with any checkpoint and sidecars, over starts", async () => {
  let withoutCheckpoint = 0;
  let reclaimed = 0;
  for (let seed = 0; seed < 14; seed++) {
    const random = new SeededRandom(seed);
    const disk = new SimDisk();
    const clock = new SimClock();
    let { storage } = await openStorage(disk, clock);
    for (let count = 0; count < 1200; count++) {
      while (!storage.hasRoom(1000)) await storage.room();
      step(storage, random);
      if (random.chance(0.05)) await storage.drain();
      if (random.chance(0.02)) await storage.maintain();
      if (random.chance(0.005)) {
        await storage.drain();
        await (random.chance(0.5) ? storage.close() : storage.abandon());
        ({ storage } = await openStorage(disk, clock));
      }
      if (!random.chance(0.008)) continue;
      await storage.drain();
      await settle();
      if (storage.logFiles[0]!.start > 0) reclaimed++;
      const live = textOf(storage.state);
      for (const leaveOut of [/none/, /\.idx$/, /\.ckp$/]) {
        if (leaveOut.test(".ckp")) {
          if (storage.logFiles[0]!.start > 0) continue;
          withoutCheckpoint++;
        }
        const copy = copyOf(disk, (path) => leaveOut.test(path));
        const recovered = await recover(copy);
        const what = `seed ${seed} step ${count} without ${leaveOut}`;
        equal(textOf(recovered.state), live, what);
        deepEqual([recovered.damage, recovered.end], [[], storage.log.end], what);
        for (const topic of storage.state.topics.values()) {
          const other = recovered.state.topics.get(topic.name)!;
          deepEqual(await livePositions(other), await livePositions(topic), what);
        }
      }
    }
    await storage.close();
    equal(disk.openFiles, 0);
  }
  ok(withoutCheckpoint > 5 && reclaimed > 5, `${withoutCheckpoint} ${reclaimed}`);
});

/** A disk that calls `writing` when a group begins to be written, in the turn in which it was closed. */
class GroupsSeen extends DiskWrapper {
  writing: (path: string, position: number, group: Uint8Array) => void = () => {};

  override wrapFile(file: DiskFile, path: string): DiskFile {
    const seen = (position: number, bytes: Uint8Array) => {
      const isGroup = readBlockHeader(new DataView(bytes.buffer, bytes.byteOffset), 0).kind ===
        "block";
      if (isGroup) this.writing(path, position, bytes);
    };
    return !path.endsWith(".log") ? file : new class extends DiskFileWrapper {
      override writeAt(position: number, bytes: Uint8Array): Promise<void> {
        // A group that opens a file is written some turns later.
        if (position > 0 && bytes.length >= BLOCK_HEADER_BYTES) seen(position, bytes);
        return super.writeAt(position, bytes);
      }
    }(file);
  }
}

/** A folder in which a group is the last thing, and what was then. */
interface Beginning {
  readonly copy: SimDisk;
  readonly text: string;
  readonly due: readonly string[];
  readonly step: number;
}

/** What is deferred and owed still, in order. */
function dueOf(state: BrokerState): string[] {
  const entries: string[] = [];
  for (const topic of state.topics.values()) {
    const channels = [...topic.channels.values()];
    const note = (offset: number, dueMs: number) => {
      const isOwed = channels.length === 0 ||
        channels.some(({ finished }) => !finished.has(offset));
      if (isOwed && offset >= topic.liveFrom) entries.push(`${topic.name} ${offset} ${dueMs}`);
    };
    for (let at = 0; at < topic.hiddenDue.length; at += 2) {
      note(topic.hiddenDue[at + 1]!, topic.hiddenDue[at]!);
    }
    const popped: [number, number][] = [];
    while (topic.due.size > 0) {
      const dueMs = topic.due.earliestMs;
      topic.due.pop();
      popped.push([dueMs, topic.due.poppedOffset]);
    }
    for (const [dueMs, offset] of popped) {
      note(offset, dueMs);
      topic.due.push(dueMs, offset);
    }
  }
  return entries.sort();
}

Deno.test("replay of a log that ends with any of its groups is what was when that group was closed", async () => {
  let beginnings = 0;
  const met = { checkpoint: 0, underWay: 0, due: 0, reclaimed: 0 };
  for (let seed = 0; seed < 12; seed++) {
    const random = new SeededRandom(seed);
    const disk = new SimDisk();
    const seen = new GroupsSeen(disk);
    const clock = new SimClock();
    const slice = random.pick([{ bytes: 1, work: 1 }, { bytes: 100, work: 4 }]);
    const { storage } = await openStorage(seen, clock, { checkpointSlice: slice });
    const kept: Beginning[] = [];
    let at = 0;
    seen.writing = (path, position, group) => {
      const reading = readBlockHeader(new DataView(group.buffer, group.byteOffset), 0);
      const isWhole = reading.kind === "block" &&
        reading.header.recordsBytes + BLOCK_HEADER_BYTES === group.length;
      if (!isWhole || !random.chance(0.3)) return;
      const copy = copyOf(disk);
      const bytes = new Uint8Array(position + group.length);
      bytes.set(disk.bytes(path).subarray(0, position));
      bytes.set(group, position);
      copy.writeDurable(path, bytes);
      kept.push({ copy, text: textOf(storage.state), due: dueOf(storage.state), step: at });
    };
    for (; at < 600; at++) {
      while (!storage.hasRoom(1000)) await storage.room();
      step(storage, random);
      if (random.chance(0.2)) storage.commit();
      if (random.chance(0.3)) await undefined;
      if (random.chance(0.03)) void storage.maintain();
      if (random.chance(0.1)) await clock.run(random.below(3));
      if (random.chance(0.05)) await storage.drain();
    }
    await storage.abandon();
    for (const { copy, text, due, step } of kept) {
      beginnings++;
      if (filesOf(copy, ".ckp").length > 0) met.checkpoint++;
      if (filesOf(copy, ".ckp.tmp").length > 0) met.underWay++;
      if (due.length > 0) met.due++;
      const isWhole = filesOf(copy, "00.log").some((path) => /\/0+\.log$/.test(path));
      if (!isWhole) met.reclaimed++;
      for (const leaveOut of [/none/, /\.idx$/, /\.ckp$/]) {
        if (leaveOut.test(".ckp") && !isWhole) continue;
        const folder = copyOf(copy, (path) => leaveOut.test(path));
        const what = `seed ${seed} step ${step} without ${leaveOut}`;
        const { state, damage } = await recover(folder);
        equal(textOf(state), text, what);
        deepEqual([dueOf(state), damage], [due, []], what);
        // The same log gives the same state, also on what the first run has mended.
        const again = await recover(folder);
        equal(textOf(again.state), text, what);
        deepEqual(dueOf(again.state), due, what);
      }
    }
  }
  const { checkpoint, underWay, due, reclaimed } = met;
  ok(beginnings > 200 && checkpoint > 50 && underWay > 10, JSON.stringify(met));
  ok(due > 50 && reclaimed > 10, JSON.stringify(met));
});

Deno.test("recoverState() builds the live state on a checkpoint that was written while all went on", async () => {
  for (let seed = 0; seed < 60; seed++) {
    const random = new SeededRandom(seed);
    const disk = new SimDisk();
    const { storage } = await openStorage(disk, new SimClock());
    const goOn = async (count: number) => {
      for (; count > 0; count--) {
        while (!storage.hasRoom(1000)) await storage.room();
        step(storage, random);
      }
    };
    await goOn(random.below(300));
    const position = storage.log.end;
    const slices: Uint8Array[] = [];
    const limits = { bytes: 1 + random.below(100), work: 1 + random.below(5) };
    const writing = encodeCheckpoint(storage.state, () => storage.log.end, limits);
    for (let slice = writing.next();; slice = writing.next()) {
      slices.push(slice.value.slice());
      if (slice.done === true) break;
      await goOn(random.below(8));
    }
    await goOn(random.below(40));
    await storage.drain();
    await settle();
    const copy = copyOf(disk);
    const store = await FileLogStore.open(copy, `/data/${LOG_FOLDER}`, LATER_EPOCH);
    await store.putCheckpoint(position, chunksOf(slices), 0);
    await store.close();
    const recovered = await recover(copy);
    equal(recovered.checkpoint, position);
    equal(textOf(recovered.state), textOf(storage.state), `seed ${seed}`);
    deepEqual([recovered.damage, recovered.state.orphanRecords], [[], 0], `seed ${seed}`);
    for (const topic of storage.state.topics.values()) {
      const other = recovered.state.topics.get(topic.name)!;
      deepEqual(await livePositions(other), await livePositions(topic), `seed ${seed}`);
    }
    await storage.abandon();
  }
});

Deno.test("recoverState() refuses a log that ends before what its checkpoint was written beside", async () => {
  const disk = new SimDisk();
  const { storage } = await openStorage(disk, new SimClock());
  const topic = createTopic(storage, "orders");
  await storage.drain();
  const position = storage.log.end;
  const slices: Uint8Array[] = [];
  const writing = encodeCheckpoint(storage.state, () => storage.log.end, { bytes: 1, work: 1 });
  slices.push(writing.next().value.slice());
  publish(storage, topic, "beside");
  await storage.drain();
  const { end } = storage.log;
  for (let slice = writing.next();; slice = writing.next()) {
    slices.push(slice.value.slice());
    if (slice.done === true) break;
  }
  const copy = copyOf(disk);
  const store = await FileLogStore.open(copy, `/data/${LOG_FOLDER}`, LATER_EPOCH);
  await store.putCheckpoint(position, chunksOf(slices), 0);
  await store.close();
  equal((await recover(copyOf(copy))).end, end);
  const [path] = filesOf(copy, ".log");
  copy.writeDurable(path!, disk.bytes(path!).slice(0, position));
  await rejects(recover(copy), refused("damaged", /ends at position \d+, but was on disk up to/));
  await storage.abandon();
});
