/** Files that a few messages pin: what compaction gives back, and that it never costs a message. */
import { deepEqual, equal, notEqual, ok, rejects } from "node:assert/strict";
import {
  BLOCK_HEADER_BYTES,
  BlockChecker,
  CommitLog,
  type Damage,
  FileLogStore,
  LogError,
  readBlockHeader,
  RECORD_HEADER_BYTES,
  recordCrc,
  recordWordBytes,
} from "@sluice/shared/log";
import type { Disk } from "@sluice/shared/runtime";
import { DiskWrapper, SeededRandom, settle, SimClock, SimDisk } from "@sluice/shared/testing";
import { crc32 } from "node:zlib";
import { compactFile } from "./compact_file.ts";
import { LOG_FOLDER } from "./data_folder.ts";
import { MISSING } from "./index_word.ts";
import { MESSAGE_HEADER_BYTES, WIRE_HEADER_BYTES } from "./records.ts";
import type { ChannelState, TopicState } from "./state.ts";
import type { Storage, StorageOptions } from "./storage.ts";
import { createChannel, createTopic, openStorage, publish } from "./storage_test_fixture.ts";

const LOG_FILE_BYTES = 20_000;
const OPTIONS: Partial<StorageOptions> = {
  logFileBytes: LOG_FILE_BYTES,
  pageCacheBytes: 0,
  indexCacheBytes: 0,
  compaction: { rateBytes: 2 ** 40, deadBytesMin: 2000 },
};
const BODY_BYTES = 150;

/** What a message says, told from every other. */
function bodyOf(topic: string, offset: number): string {
  return `${topic} ${offset} `.padEnd(BODY_BYTES, String(offset % 10));
}

/** Publishes so many messages to a topic. */
async function fill(storage: Storage, topic: TopicState, count: number, dueMs = 0): Promise<void> {
  for (let index = 0; index < count; index++) {
    while (!storage.hasRoom(BODY_BYTES + 100)) await storage.room();
    publish(storage, topic, bodyOf(topic.name, topic.tail), dueMs);
  }
  await storage.drain();
  await settle();
}

/** Has two checkpoints pass all files that are sealed now. */
async function passCheckpoints(storage: Storage, topic: TopicState, channel: ChannelState) {
  for (let round = 0; round < 4; round++) {
    const { tail } = topic;
    await fill(storage, topic, Math.ceil(LOG_FILE_BYTES / BODY_BYTES));
    for (let offset = tail; offset < topic.tail; offset++) storage.finish(channel, offset);
    await storage.drain();
    await running(storage.maintain());
  }
}

/** The clocks of the storages under test stand still; what sleeps without delay has to be woken. */
let clock = new SimClock();
async function running<T>(work: Promise<T>): Promise<T> {
  return await clock.runUntil(work, 10_000);
}

async function open(disk: Disk, changes: Partial<StorageOptions> = {}) {
  clock = new SimClock();
  return await openStorage(disk, clock, { ...OPTIONS, ...changes });
}

/** The text of a message as a consumer would get it; null when the index does not have it. */
async function textOf(storage: Storage, topic: TopicState, offset: number): Promise<string | null> {
  await topic.index.load(offset);
  const position = topic.index.position(offset);
  if (position === MISSING) return null;
  const { reader } = storage;
  await reader.load(position, RECORD_HEADER_BYTES);
  ok(reader.view(position, RECORD_HEADER_BYTES), `header of ${offset}`);
  const view = new DataView(reader.bytes.buffer, reader.bytes.byteOffset + reader.start);
  const [word, crc] = [view.getUint32(0, true), view.getUint32(4, true)];
  const bytes = RECORD_HEADER_BYTES + recordWordBytes(word);
  await reader.load(position, bytes);
  ok(reader.view(position, bytes), `record of ${offset}`);
  const record = reader.bytes.slice(reader.start, reader.start + bytes);
  equal(recordCrc(word, record.subarray(RECORD_HEADER_BYTES)), crc, `checksum of ${offset}`);
  const text = new TextDecoder().decode(record);
  return text.slice(text.indexOf(topic.name));
}

/** A backlog of which a channel has finished all but every `keep`-th message. */
async function pinned(
  disk: Disk,
  changes: Partial<StorageOptions> = {},
  keep = 40,
  messages = 800,
) {
  const opened = await open(disk, changes);
  const { storage } = opened;
  const topic = createTopic(storage, "orders");
  const slow = createChannel(storage, topic, "slow");
  await fill(storage, topic, messages);
  const owed: number[] = [];
  for (let offset = 0; offset < messages; offset++) {
    if (offset % keep === 7) owed.push(offset);
    else storage.finish(slow, offset);
  }
  await passCheckpoints(storage, topic, slow);
  return { ...opened, topic, slow, owed };
}

/** Every message that is owed can be read, and nothing else is owed. */
async function check(storage: Storage, owed: readonly number[]): Promise<void> {
  const topic = storage.state.topics.get("orders");
  ok(topic !== undefined, "the topic is there");
  const { finished } = topic.channels.get("slow")!;
  for (let offset = 0; offset < topic.tail; offset++) {
    equal(finished.has(offset), !owed.includes(offset), `whether ${offset} is finished`);
  }
  for (const offset of owed) {
    equal(await textOf(storage, topic, offset), bodyOf("orders", offset), `message ${offset}`);
  }
}

/** Damage in the blocks of a log file. */
function damageIn(bytes: Uint8Array, start: number): Damage[] {
  const damage: Damage[] = [];
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let at = 0;
  while (at < bytes.length) {
    const reading = readBlockHeader(view, at);
    ok(reading.kind === "block" && reading.header.position === start + at, `block at ${at}`);
    const checker = new BlockChecker(reading.header, (one) => damage.push(one));
    at += BLOCK_HEADER_BYTES;
    checker.add(bytes.subarray(at, at + reading.header.recordsBytes));
    checker.finish();
    at += reading.header.recordsBytes;
  }
  equal(at, bytes.length);
  return damage;
}

const JOURNAL = `/data/${LOG_FOLDER}`;
function nameOf(start: number): string {
  return String(start).padStart(16, "0");
}

Deno.test("a crash at any operation of a compaction leaves every message that is owed, whole", async () => {
  let ends = 0;
  for (const moment of ["before_effect", "after_effect"] as const) {
    for (let cut = 1;; cut++) {
      const random = new SeededRandom(1000 + cut);
      const disk = new SimDisk({ random, tornSectorChance: cut % 2 === 0 ? 0.5 : 0 });
      const { storage, owed } = await pinned(disk, {}, 40, 120);
      disk.powerCutAfter(cut, moment);
      await running(storage.compact());
      const isOver = !disk.poweredOff;
      disk.crash();
      await storage.abandon().catch(() => {});
      const { storage: after, owner } = await open(disk);
      deepEqual(after.opening.damage, []);
      await check(after, owed);
      // Of the log; small files that are replaced leave theirs to the next time.
      const left = disk.files().filter((path) => path.startsWith(JOURNAL) && path.endsWith(".tmp"));
      deepEqual(left, []);
      await running(after.compact());
      await check(after, owed);
      deepEqual(owner.warnings, []);
      await running(after.close());
      if (isOver) break;
      ends++;
    }
  }
  ok(ends > 40, `${ends} ends`);
});

Deno.test("a failure of any operation of a compaction costs nothing, now or after a crash", async () => {
  let failures = 0;
  for (
    const operation of [
      "create",
      "truncate",
      "write",
      "sync",
      "rename",
      "remove",
      "syncDirectory",
    ] as const
  ) {
    for (const kind of ["io", "no_space"] as const) {
      for (let skip = 0; skip < 10; skip += kind === "io" ? 1 : 4) {
        const disk = new SimDisk({ random: new SeededRandom(skip) });
        const { storage, owed, owner } = await pinned(disk, {}, 40, 120);
        const before = owner.warnings.length;
        disk.failNext({ operation, kind, skip });
        await running(storage.compact());
        if (owner.warnings.length > before) failures++;
        await check(storage, owed);
        disk.crash();
        await storage.abandon().catch(() => {});
        const { storage: after } = await open(disk);
        deepEqual(after.opening.damage, [], `${operation} ${kind} ${skip}`);
        await check(after, owed);
        await running(after.close());
      }
    }
  }
  ok(failures > 25, `${failures} failures`);
});

Deno.test("a file that holds damage, or a record of a kind not known, is left as it is", async () => {
  for (const spoil of ["bit", "kind"] as const) {
    const disk = new SimDisk();
    const { storage, owed } = await pinned(disk);
    const file = storage.logFiles[1]!;
    const path = `${JOURNAL}/${nameOf(file.start)}.log`;
    const bytes = disk.bytes(path).slice();
    if (spoil === "bit") bytes[bytes.length >> 1]! ^= 4;
    else {
      // The first record of the file becomes one of kind 5, with every checksum right.
      const view = new DataView(bytes.buffer);
      const word = (view.getUint32(64, true) & 0x0fffffff | 5 << 28) >>> 0;
      view.setUint32(64, word, true);
      const payload = bytes.subarray(72, 72 + recordWordBytes(word));
      view.setUint32(68, recordCrc(word, payload), true);
      reseal(bytes);
    }
    disk.writeDurable(path, bytes);
    const before = storage.logFiles.length;
    await running(storage.compact());
    deepEqual(disk.bytes(path), bytes);
    equal(storage.logFiles.length, before);
    ok(storage.compaction.filesCompacted >= 2);
    ok(owed.length > 0);
    // Nor is it tried again and again.
    const reads = disk.trace.count("read");
    await running(storage.compact());
    equal(disk.trace.count("read"), reads);
    await running(storage.close());
  }
});

/** Makes the checksums of the first block right again. */
function reseal(bytes: Uint8Array): void {
  const view = new DataView(bytes.buffer);
  const reading = readBlockHeader(view, 0);
  ok(reading.kind === "block");
  const { recordsBytes } = reading.header;
  const records = bytes.subarray(BLOCK_HEADER_BYTES, BLOCK_HEADER_BYTES + recordsBytes);
  view.setUint32(48, crc32(records), true);
  view.setUint32(4, crc32(bytes.subarray(8, BLOCK_HEADER_BYTES)), true);
}

Deno.test("without a checkpoint a log that was compacted does not open as if nothing were missing", async () => {
  const disk = new SimDisk();
  const { storage } = await pinned(disk);
  await running(storage.compact());
  equal(storage.logFiles[0]!.start, 0);
  await running(storage.close());
  for (const path of disk.files()) {
    if (path.endsWith(".ckp")) disk.flipBit(path, 20, 1);
  }
  await rejects(open(disk), (error) => {
    ok(error instanceof LogError);
    equal(error.code, "damaged");
    return true;
  });
});

Deno.test("compaction gives back what nobody is owed and keeps positions, ranges and blocks right", async () => {
  const disk = new SimDisk();
  const { storage, topic, owed, owner } = await pinned(disk);
  const files = storage.logFiles.map(({ start, end }) => ({ start, end }));
  const [before, log] = [storage.storedBytes, storage.log.end];
  const topicBefore = topic.storedBytes;
  equal(before, log);
  await running(storage.compact());
  await check(storage, owed);
  deepEqual(storage.logFiles.map(({ start, end }) => ({ start, end })), files);
  const { filesCompacted, bytesGivenBack } = storage.compaction;
  ok(filesCompacted > 5, `${filesCompacted} files`);
  equal(storage.holeBytes, bytesGivenBack);
  equal(storage.storedBytes, before - bytesGivenBack);
  ok(storage.storedBytes < before / 2, `${storage.storedBytes} of ${before}`);
  ok(topic.storedBytes < topicBefore / 2);
  let sum = 0;
  for (const { start, end } of storage.logFiles.slice(0, -1)) {
    const bytes = disk.bytes(`${JOURNAL}/${nameOf(start)}.log`);
    equal(bytes.length, end - start);
    deepEqual(damageIn(bytes, start), []);
    const run = topic.index.runIn(start);
    if (run === undefined) continue;
    sum += run.bytes;
    // Nothing that is missing is in the index at either end.
    notEqual(await textOf(storage, topic, run.firstOffset), null);
    notEqual(await textOf(storage, topic, run.endOffset - 1), null);
  }
  const last = topic.index.runIn(storage.logFiles.at(-1)!.start);
  equal(topic.storedBytes, sum + (last?.bytes ?? 0));
  deepEqual(owner.warnings, []);
  const stored = storage.storedBytes;
  await running(storage.close());

  // The same figures are known after a start that reads no log file through, and after one that does.
  for (const isRebuilt of [false, true]) {
    if (isRebuilt) {
      for (const path of disk.files()) if (path.endsWith(".idx")) await disk.remove(path);
      await disk.syncDirectory(JOURNAL);
    }
    const { storage: again } = await open(disk);
    equal(again.storedBytes - again.log.end, stored - log);
    equal(again.state.topics.get("orders")!.storedBytes, topic.storedBytes);
    await check(again, owed);
    await running(again.abandon());
  }
});

Deno.test("a file is compacted again when half of what is left of it is dead", async () => {
  const disk = new SimDisk();
  const { storage, topic, slow, owed } = await pinned(disk, {
    compaction: { rateBytes: 2 ** 40, deadBytesMin: 500 },
  }, 10);
  await running(storage.compact());
  const first = storage.storedBytes;
  const left = owed.filter((_, index) => index % 5 === 0);
  for (const offset of owed) if (!left.includes(offset)) storage.finish(slow, offset);
  await storage.drain();
  await running(storage.compact());
  ok(storage.storedBytes < first - 5000, `${storage.storedBytes} after ${first}`);
  equal(await textOf(storage, topic, left[0]!), bodyOf("orders", left[0]!));
  await check(storage, left);
  for (const { start } of storage.logFiles.slice(0, -1)) {
    deepEqual(damageIn(disk.bytes(`${JOURNAL}/${nameOf(start)}.log`), start), []);
  }
  await running(storage.close());
});

Deno.test("what is kept for a channel to come, or behind a pause, is not given back", async () => {
  const disk = new SimDisk();
  const { storage, topic, slow } = await pinned(disk);
  const kept = createTopic(storage, "kept");
  await fill(storage, kept, 300);
  const held = createTopic(storage, "held");
  const channel = createChannel(storage, held, "c");
  storage.decide({ type: "topic_paused", topic: held.number, paused: true, at: 0 });
  await fill(storage, held, 300);
  storage.emptyChannel(channel, 300);
  await passCheckpoints(storage, topic, slow);
  await running(storage.compact());
  for (let offset = 0; offset < 300; offset++) {
    equal(await textOf(storage, kept, offset), bodyOf("kept", offset));
    equal(await textOf(storage, held, offset), bodyOf("held", offset));
  }
  await running(storage.close());
});

Deno.test("a file that is served from memory still is not compacted", async () => {
  const disk = new SimDisk();
  const { storage, topic, slow, owed } = await pinned(disk, { ringBytes: 1 << 19 });
  await running(storage.compact());
  equal(storage.compaction.filesCompacted, 0);
  await check(storage, owed);
  while (storage.log.hotStart < storage.logFiles[0]!.end) {
    await passCheckpoints(storage, topic, slow);
  }
  await running(storage.compact());
  ok(storage.logFiles[0]!.end <= storage.log.hotStart);
  ok(storage.compaction.filesCompacted > 0);
  await check(storage, owed);
  await running(storage.close());
});

Deno.test("messages that are deferred for long outlive the compaction of their file, and its start", async () => {
  const disk = new SimDisk();
  const { storage } = await open(disk);
  const topic = createTopic(storage, "orders");
  const slow = createChannel(storage, topic, "slow");
  const owed: number[] = [];
  for (let count = 0; count < 20; count++) {
    await fill(storage, topic, 30);
    owed.push(topic.tail);
    await fill(storage, topic, 1, 1_800_000_000_000 + count);
  }
  for (let offset = 0; offset < topic.tail; offset++) {
    if (!owed.includes(offset)) storage.finish(slow, offset);
  }
  await passCheckpoints(storage, topic, slow);
  await running(storage.compact());
  ok(storage.compaction.filesCompacted > 3);
  await running(storage.close());
  const { storage: again } = await open(disk);
  await check(again, owed);
  const { due } = again.state.topics.get("orders")!;
  const found: number[][] = [];
  for (; due.size > 0; due.pop(), found.at(-1)!.push(due.poppedOffset)) {
    found.push([due.earliestMs]);
  }
  deepEqual(found, owed.map((offset, index) => [1_800_000_000_000 + index, offset]));
  await running(again.close());
});

Deno.test("a load under way while a file is replaced finds the message or nothing, never something else", async () => {
  for (let seed = 0; seed < 30; seed++) {
    const random = new SeededRandom(seed);
    const disk = new SimDisk({ random: random.fork(), extraTurnsMax: 6 });
    const { storage, topic, owed } = await pinned(disk);
    let isOver = false;
    let looked = 0;
    const compacting = running(storage.compact()).then(() => isOver = true);
    while (!isOver) {
      const offset = random.pick(owed);
      if (++looked % 20 === 0) await settle();
      else await undefined;
      // As a channel does it: look, load, look again.
      while (true) {
        const position = topic.index.position(offset);
        if (position < 0) {
          notEqual(position, MISSING, `message ${offset} is in the index`);
          await topic.index.load(offset);
          continue;
        }
        const bytes = RECORD_HEADER_BYTES + MESSAGE_HEADER_BYTES + WIRE_HEADER_BYTES + BODY_BYTES;
        if (storage.reader.view(position, bytes)) {
          const start = storage.reader.start;
          const text = new TextDecoder().decode(
            storage.reader.bytes.subarray(start, start + bytes),
          );
          ok(text.includes(bodyOf("orders", offset)), `seed ${seed}: message ${offset}`);
          break;
        }
        await storage.reader.load(position, bytes);
      }
    }
    await compacting;
    ok(looked > 10);
    ok(storage.compaction.filesCompacted > 5);
    await running(storage.close());
  }
});

Deno.test("a sidecar that is found damaged while its file is replaced is about the new file", async () => {
  for (let seed = 0; seed < 40; seed++) {
    const random = new SeededRandom(seed);
    const disk = new SimDisk({ random: random.fork(), extraTurnsMax: 4 });
    const { storage, topic, owed } = await pinned(disk);
    let isOver = false;
    const compacting = running(storage.compact()).then(() => isOver = true);
    while (!isOver) {
      const path = random.pick(disk.files().filter((name) => name.endsWith(".idx")));
      if (random.chance(0.2) && disk.bytes(path).length > 100) {
        disk.flipBit(path, disk.bytes(path).length - 2, 3);
      }
      await topic.index.load(random.pick(owed));
      if (random.chance(0.05)) await settle();
      else await undefined;
    }
    await compacting;
    await check(storage, owed);
    disk.crash();
    await storage.abandon().catch(() => {});
    const { storage: after } = await open(disk);
    await check(after, owed);
    await running(after.close());
  }
});

/** Counts what is opened, and holds back the file that is being written anew. */
class Watched extends DiskWrapper {
  created = 0;
  override async open(path: string, mode: "create" | "read" | "write") {
    if (mode === "create" && path.endsWith(".log.tmp")) this.created++;
    return await super.open(path, mode);
  }
}

Deno.test("maintain() compacts one file a round, and none without a rate", async () => {
  const disk = new Watched(new SimDisk());
  const { storage } = await pinned(disk);
  await settle();
  for (let round = 0; round < 4; round++) {
    const before = storage.compaction.filesCompacted;
    await running(storage.maintain());
    await clock.run(1);
    ok(storage.compaction.filesCompacted - before <= 1);
  }
  ok(storage.compaction.filesCompacted >= 3);
  await running(storage.close());

  const off = new Watched(new SimDisk());
  const { storage: still } = await pinned(off, { compaction: { rateBytes: 0, deadBytesMin: 1 } });
  await running(still.compact());
  equal(off.created, 0);
  ok(still.compaction.pinnedFiles > 5);
  const { liveBytes, pinnedBytes } = still.compaction;
  ok(liveBytes !== null && liveBytes > 0 && liveBytes < pinnedBytes / 5, `${liveBytes}`);
  await running(still.close());
});

Deno.test("compactFile() keeps a record larger than a block, and spares a file that would not shrink", async () => {
  const disk = new SimDisk();
  const store = await FileLogStore.open(disk, "/log", 1);
  await store.recover(0, { block() {}, record() {} });
  const owner = {
    closing() {},
    written() {},
    firstSequence: () => 0,
    durable() {},
    sealed() {},
    stalled: (error: LogError) => Promise.reject(error),
    failed() {},
  };
  const log = new CommitLog(store, owner, { ringBytes: 1 << 24, fileBytes: 12_000_000 }, {
    end: 0,
    fileStart: 0,
    epoch: 1,
  });
  // Offsets of topic 1; every record of kind 1 says which it is.
  const sizes = [3_000_000, 100, 300_000, 2_000_000, 500_000, 700_000, 5_000_000, 800, 900_000, 64];
  for (const [offset, bytes] of sizes.entries()) {
    const at = log.begin(1, bytes);
    log.ring.fill(offset, at, at + bytes);
    log.ringView.setUint32(at, 1, true);
    log.ringView.setUint32(at + 4, 0, true);
    log.ringView.setUint32(at + 8, offset, true);
    log.finish();
    if (offset % 3 === 2) await log.drain();
  }
  await log.drain();
  log.begin(4, 8);
  log.finish();
  await log.drain();
  const file = store.files[0]!;
  ok(store.files.length > 1);
  const world = { store, turn: () => Promise.resolve() };
  const all = await compactFile(
    { ...world, isOwed: () => true },
    file,
    (file.end - file.start) / 2,
  );
  equal(all, "live");
  const isOwed = (_: number, offset: number) => offset === 0 || offset === 1 || offset === 7;
  const some = await compactFile({ ...world, isOwed }, file, (file.end - file.start) / 2);
  ok(typeof some !== "string");
  await some.replacement.swap(() => {});
  const run = some.runs.get(1)!;
  deepEqual([run.firstOffset, run.count, run.messages], [0, 8, 3]);
  const bytes = disk.bytes(`/log/${nameOf(0)}.log`);
  deepEqual(damageIn(bytes, 0), []);
  for (const offset of [0, 1, 7]) {
    const at = run.words![offset]! + RECORD_HEADER_BYTES;
    deepEqual(bytes.subarray(at + 12, at + sizes[offset]!).every((byte) => byte === offset), true);
  }
  ok(some.holeBytes > 7_000_000);
  await store.close();
});
