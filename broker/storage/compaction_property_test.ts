/**
 * Compacting any file at any time changes nothing of what anybody is owed: random work on storages, of
 * which files are compacted in between, by the storage itself and, while it is down, every file that
 * may be; then it is opened with and without sidecars, with one checkpoint and with none.
 */
import { deepEqual, equal, ok } from "node:assert/strict";
import { FileLogStore, LogError, RECORD_HEADER_BYTES, recordWordBytes } from "@sluice/shared/log";
import { SeededRandom, SimClock, SimDisk } from "@sluice/shared/testing";
import { createHash } from "node:crypto";
import { textOf } from "./checkpoint_test_fixture.ts";
import { compactFile } from "./compact_file.ts";
import { LOG_FOLDER } from "./data_folder.ts";
import { NOT_LOADED } from "./index_word.ts";
import { isPart, type LargeBody, readTable } from "./large_body.ts";
import type { WrittenBody } from "./large_messages.ts";
import { recoverState } from "./recover_state.ts";
import { readMessageHeader, WIRE_HEADER_BYTES } from "./records.ts";
import type { TopicState } from "./state.ts";
import type { Storage, StorageOptions } from "./storage.ts";
import { createChannel, createTopic, openStorage, publish } from "./storage_test_fixture.ts";

const SEEDS = 10;
const OPTIONS: Partial<StorageOptions> = {
  logFileBytes: 8192,
  pageCacheBytes: 1 << 20,
  indexCacheBytes: 1 << 20,
  largeBodyBytes: 2000,
  compaction: { rateBytes: 2 ** 40, deadBytesMin: 1 },
};
const JOURNAL = `/data/${LOG_FOLDER}`;

/** A record as it is in the log, header and all. */
async function recordAt(storage: Storage, position: number): Promise<Uint8Array> {
  const { reader } = storage;
  await reader.load(position, RECORD_HEADER_BYTES);
  ok(reader.view(position, RECORD_HEADER_BYTES));
  const view = new DataView(reader.bytes.buffer, reader.bytes.byteOffset + reader.start);
  const bytes = RECORD_HEADER_BYTES + recordWordBytes(view.getUint32(0, true));
  await reader.load(position, bytes);
  ok(reader.view(position, bytes));
  return reader.bytes.slice(reader.start, reader.start + bytes);
}

/** The state, and every message that anybody is or may be owed: its record, its parts, its due time. */
async function owedText(storage: Storage): Promise<string> {
  const lines = [textOf(storage.state)];
  for (const topic of storage.state.topics.values()) {
    for (let offset = topic.liveFrom; offset < topic.tail; offset++) {
      if (!topic.isOwed(offset)) continue;
      let position = topic.index.position(offset);
      for (let tries = 0; position === NOT_LOADED && tries < 9; tries++) {
        await topic.index.load(offset);
        position = topic.index.position(offset);
      }
      ok(position >= 0, `${topic.name} ${offset} has a place`);
      const record = await recordAt(storage, position);
      const hash = createHash("sha1").update(record).digest("hex");
      const parts = await partsOf(storage, record, position);
      lines.push(`${topic.name} ${offset} ${hash} ${parts}`);
    }
    const due: string[] = [];
    const add = (dueMs: number, offset: number) => {
      if (topic.isOwed(offset)) due.push(`${offset} ${dueMs}`);
    };
    topic.due.each(add);
    for (let at = 0; at < topic.hiddenDue.length; at += 2) {
      add(topic.hiddenDue[at]!, topic.hiddenDue[at + 1]!);
    }
    lines.push(`${topic.name} due ${due.sort()}`);
  }
  return lines.join("\n");
}

/** How many parts a large message has, all of which are there. */
async function partsOf(storage: Storage, record: Uint8Array, position: number): Promise<number> {
  const header = { topic: 0, offset: 0, dueMs: 0, wireStart: 0 };
  readMessageHeader(record, RECORD_HEADER_BYTES, header);
  const end = RECORD_HEADER_BYTES +
    recordWordBytes(new DataView(record.buffer).getUint32(0, true));
  const body: LargeBody | null = readTable(
    record,
    header.wireStart + WIRE_HEADER_BYTES,
    end,
    position,
  );
  if (body === null) return 0;
  for (const part of body.parts) {
    const bytes = await recordAt(storage, part.position);
    ok(isPart(part, bytes.subarray(RECORD_HEADER_BYTES, RECORD_HEADER_BYTES + part.bytes)));
  }
  return body.parts.length;
}

class Work {
  readonly clock = new SimClock();
  compactions = 0;

  constructor(readonly disk: SimDisk, readonly random: SeededRandom) {}

  async open(): Promise<Storage> {
    const { storage } = await openStorage(this.disk, this.clock, OPTIONS);
    deepEqual([storage.opening.damage, storage.opening.orphanRecords], [[], 0]);
    return storage;
  }

  /** A life of a storage, left without a goodbye; returns what it owes. */
  async live(): Promise<string> {
    const storage = await this.open();
    await storage.allowPolicies();
    for (let steps = 60; steps > 0; steps--) {
      await this.step(storage);
      if (this.random.chance(0.2)) await this.maintain(storage);
      if (this.random.chance(0.15)) await this.compact(storage);
    }
    await storage.drain();
    const owed = await owedText(storage);
    this.compactions += storage.compaction.filesCompacted;
    await storage.abandon();
    return owed;
  }

  async compact(storage: Storage): Promise<void> {
    await storage.drain();
    const before = await owedText(storage);
    await this.clock.runUntil(storage.compact(), 10_000);
    equal(await owedText(storage), before);
  }

  async maintain(storage: Storage): Promise<void> {
    await storage.drain();
    await this.clock.runUntil(storage.maintain(), 10_000);
    // What that has begun beside it is not to move what is looked at.
    await this.clock.runUntil(storage.compact(), 10_000);
  }

  async step(storage: Storage): Promise<void> {
    const { random } = this;
    const topics = [...storage.state.topics.values()];
    if (topics.length < 2) return void createTopic(storage, `t${storage.state.nextTopicNumber}`);
    const topic = random.pick(topics);
    const channels = [...topic.channels.values()];
    const kind = random.below(20);
    if (kind < 8) return await this.publishMany(storage, topic);
    if (kind < 10) return await this.publishLarge(storage, topic);
    if (kind === 10 && channels.length < 3) {
      return void createChannel(storage, topic, `c${storage.state.nextChannelNumber}`);
    }
    if (kind === 11) {
      const { tail, number, visibleTail } = topic;
      const way = random.below(8);
      const to = Math.max(topic.liveFrom, visibleTail - random.between(0, 40));
      const paused = !topic.paused;
      const at = channels.length === 0 ? topic.keepFrom : tail;
      if (way < 4) storage.decide({ type: "topic_trimmed", topic: number, to });
      else if (way < 7) storage.decide({ type: "topic_paused", topic: number, paused, at });
      else storage.decide({ type: "topic_deleted", topic: number });
      return;
    }
    if (channels.length === 0) return;
    const channel = random.pick(channels);
    if (kind === 12 && random.chance(0.3)) {
      const keepFrom = channels.length === 1 ? topic.visibleTail : topic.keepFrom;
      return void storage.decide({ type: "channel_deleted", channel: channel.number, keepFrom });
    }
    // Nearly everything, so that few messages pin much.
    const keep = random.pick([7, 23, 1000]);
    for (let offset = channel.finished.floor; offset < topic.visibleTail; offset++) {
      if (random.below(keep) > 0) storage.finish(channel, offset);
      else if (random.chance(0.5)) storage.requeue(channel, offset, 1 + random.below(4), 5000);
    }
  }

  async publishMany(storage: Storage, topic: TopicState): Promise<void> {
    const { random } = this;
    for (let count = random.between(1, 40); count > 0; count--) {
      while (!storage.hasRoom(1000)) await storage.room();
      const dueMs = random.chance(0.1) ? 10 ** 12 + random.below(1000) : 0;
      publish(storage, topic, `${topic.name} ${topic.tail}`.padEnd(random.below(500), "."), dueMs);
    }
    await storage.drain();
  }

  async publishLarge(storage: Storage, topic: TopicState): Promise<void> {
    const { random } = this;
    const { large, log } = storage;
    const body: WrittenBody = { parts: [], bytes: 0, pin: null };
    for (let count = random.between(1, 4); count > 0; count--) {
      while (!storage.hasPartRoom(large.partBytes, 5)) await storage.room();
      large.write(body, random.bytes(large.partBytes), 0, large.partBytes);
      if (random.chance(0.5)) await this.publishMany(storage, topic);
    }
    while (!storage.hasPartRoom(100, 5)) await storage.room();
    const wire = storage.beginLargeMessage(topic, body, 0);
    log.ring.fill(0, wire, wire + WIRE_HEADER_BYTES);
    storage.endMessage();
    await storage.drain();
  }

  /** Compacts every file that may be, whether it is worth it or not. */
  async compactAll(): Promise<void> {
    const store = await FileLogStore.open(this.disk, JOURNAL, 1000);
    const { state } = await recoverState(store);
    // Of one checkpoint that is read and one that may have to be.
    const [, older = 0] = await store.listCheckpoints();
    for (const file of store.files.slice(0, -1)) {
      if (file.end > older) break;
      const compacted = await compactFile(
        {
          store,
          isOwed: (topic, offset) => state.topicsByNumber.get(topic)?.isOwed(offset) ?? false,
          turn: () => Promise.resolve(),
        },
        file,
        Infinity,
      );
      if (typeof compacted === "string") continue;
      await compacted.replacement.swap(() => {});
      this.compactions++;
    }
    await store.close();
  }
}

/** What a folder owes to whoever opens it after some of its files are gone; null when it is refused. */
async function owedWithout(
  disk: SimDisk,
  random: SeededRandom,
  isGone: (path: string) => boolean,
): Promise<string | null> {
  const copy = new SimDisk();
  for (const path of disk.files()) {
    const parts = path.split("/").slice(1, -1);
    for (let depth = 1; depth <= parts.length; depth++) {
      await copy.makeDirectory(`/${parts.slice(0, depth).join("/")}`);
    }
    if (!isGone(path) && !path.endsWith("LOCK")) copy.writeDurable(path, disk.bytes(path).slice());
  }
  let storage: Storage;
  try {
    storage = await new Work(copy, random).open();
  } catch (error) {
    if (error instanceof LogError && error.code === "damaged") return null;
    throw error;
  }
  const owed = await owedText(storage);
  await storage.abandon();
  return owed;
}

Deno.test("compacting any sealed file at any time changes nothing that anybody is owed, however it is opened then", async () => {
  let compactions = 0;
  let refusals = 0;
  for (let seed = 1; seed <= SEEDS; seed++) {
    const random = new SeededRandom(seed);
    const disk = new SimDisk({ random: random.fork() });
    const work = new Work(disk, random);
    await work.live();
    const owed = await work.live();
    equal(await owedWithout(disk, random, () => false), owed, `seed ${seed} after a restart`);
    const before = work.compactions;
    await work.compactAll();
    const checkpoints = disk.files().filter((path) => path.endsWith(".ckp")).sort();
    const ways: [string, (path: string) => boolean][] = [
      ["as it is", () => false],
      ["without sidecars", (path) => path.endsWith(".idx")],
      ["without the newest checkpoint", (path) => path === checkpoints.at(-1)],
      ["without that and sidecars", (path) => path.endsWith(".idx") || path === checkpoints.at(-1)],
    ];
    for (const [what, isGone] of ways) {
      if (checkpoints.length < 2 && what.includes("checkpoint")) continue;
      equal(await owedWithout(disk, random, isGone), owed, `seed ${seed} ${what}`);
    }
    // Decisions are gone with what was compacted: it is refused, and never taken for whole.
    const bare = await owedWithout(disk, random, (path) => path.endsWith(".ckp"));
    if (bare === null) refusals++;
    else equal(bare, owed, `seed ${seed} without checkpoints`);
    if (work.compactions > before) equal(bare, null, `seed ${seed} is refused`);
    compactions += work.compactions;
    await work.live();
  }
  ok(compactions > 2 * SEEDS, `${compactions} compactions`);
  ok(refusals > SEEDS / 3, `${refusals} refusals`);
});
