import { deepEqual, equal, ok } from "node:assert/strict";
import { recordCrc, recordWord } from "@sluice/shared/log";
import { settle, SimClock, SimDisk } from "@sluice/shared/testing";
import { firstPartOf, isPart, readTable, tableBytes, writeTable } from "./large_body.ts";
import { WrittenBody } from "./large_messages.ts";
import { PART_KIND, WIRE_HEADER_BYTES } from "./records.ts";
import type { Storage } from "./storage.ts";
import type { TopicState } from "./state.ts";
import {
  createChannel,
  createTopic,
  type OpenedStorage,
  openStorage,
  publish,
} from "./storage_test_fixture.ts";

/** Writes all parts of a body of `bytes`, one group each. */
async function upload(storage: Storage, bytes: number): Promise<WrittenBody> {
  const body = new WrittenBody();
  const { partBytes } = storage.large;
  for (let left = bytes; left > 0; left -= partBytes) {
    const count = Math.min(left, partBytes);
    while (!storage.hasPartRoom(count, 1)) await storage.room();
    storage.large.write(body, new Uint8Array(count).fill(left % 251), 0, count);
    await storage.drain();
  }
  return body;
}

async function complete(storage: Storage, topic: TopicState, body: WrittenBody): Promise<number> {
  const offset = topic.tail;
  const wire = storage.beginLargeMessage(topic, body, 0);
  storage.log.ring.fill(0, wire, wire + WIRE_HEADER_BYTES);
  storage.endMessage();
  await storage.drain();
  return offset;
}

/** Has files sealed, and everything removed that may be. */
async function reclaim(storage: Storage, filler: TopicState): Promise<number> {
  for (let round = 0; round < 12; round++) {
    for (let count = 0; count < 8; count++) publish(storage, filler, "x".repeat(1500));
    await storage.drain();
    for (const channel of filler.channels.values()) {
      for (let at = channel.finished.floor; at < filler.tail; at++) storage.finish(channel, at);
    }
    await storage.maintain();
  }
  return storage.logFiles[0]!.start;
}

/** A storage with topic `t`, whose messages are owed, and `filler`, whose are finished. */
async function open(disk: SimDisk): Promise<OpenedStorage & { t: TopicState; filler: TopicState }> {
  const opened = await openStorage(disk, new SimClock());
  const { storage } = opened;
  const make = (name: string) => {
    const known = storage.state.topics.get(name);
    if (known !== undefined) return known;
    const topic = createTopic(storage, name);
    createChannel(storage, topic, "c");
    return topic;
  };
  return { ...opened, t: make("t"), filler: make("filler") };
}

Deno.test("readTable() reads what writeTable() wrote, and nothing that does not add up", () => {
  const parts = [
    { position: 64, bytes: 4096, crc: 0xdeadbeef },
    { position: 2 ** 40 + 8, bytes: 100, crc: 1 },
  ];
  const bytes = new Uint8Array(3 + tableBytes(2));
  writeTable(new DataView(bytes.buffer), 3, { bytes: 4196, parts });
  const read = (changed = bytes, end = bytes.length, position = 2 ** 41) =>
    readTable(changed, 3, end, position);
  deepEqual(read(), { bytes: 4196, parts });
  equal(firstPartOf(bytes, 3), 64);
  equal(read(bytes, bytes.length - 16), null, "fewer entries than it says");
  equal(read(bytes, 3 + 15), null, "no whole table");
  equal(read(bytes, bytes.length, 2 ** 40 + 8), null, "a part at the message's own place");
  const wrongSum = bytes.slice();
  wrongSum[3] = wrongSum[3]! + 1;
  equal(read(wrongSum), null);
  const outOfOrder = bytes.slice();
  writeTable(new DataView(outOfOrder.buffer), 3, { bytes: 4196, parts: parts.toReversed() });
  equal(read(outOfOrder), null);
});

Deno.test("isPart() takes the bytes of the part and no others", () => {
  const payload = Uint8Array.of(1, 2, 3);
  const part = { position: 64, bytes: 3, crc: recordCrc(recordWord(PART_KIND, 3), payload) };
  equal(isPart(part, payload), true);
  equal(isPart(part, Uint8Array.of(1, 2, 4)), false);
  equal(isPart(part, Uint8Array.of(1, 2)), false);
});

Deno.test("hasPartRoom() stops at the share of a group, and room() brings it back", async () => {
  const { storage } = await open(new SimDisk());
  await storage.drain();
  await upload(storage, 100);
  const { large } = storage;
  const body = new WrittenBody();
  let written = 0;
  while (storage.hasPartRoom(large.partBytes, 1)) {
    large.write(body, new Uint8Array(large.partBytes), 0, large.partBytes);
    written += large.partBytes;
  }
  equal(written, large.groupBytesMax);
  equal(storage.hasRoom(1000), true, "small messages still have room");
  await storage.room();
  equal(storage.hasPartRoom(large.partBytes, 1), true);
  await storage.close();
});

Deno.test("the first part waits for the folder's level, also while the disk refuses it", async () => {
  const disk = new SimDisk();
  const { storage, owner } = await open(disk);
  await storage.drain();
  equal(storage.hasPartRoom(100, 1), false);
  disk.failNext({ operation: "sync", kind: "io" });
  let done = false;
  void storage.room().then(() => done = true);
  await settle();
  deepEqual(owner.warnings, ["Cannot raise the folder's compatibility level for large messages"]);
  equal([done, storage.hasPartRoom(100, 1)].join(), "false,false");
  await storage.large.unlock();
  equal(storage.hasPartRoom(100, 1), true);
  await storage.abandon();
});

Deno.test("a message whose parts are in earlier files keeps them after a crash without a checkpoint", async () => {
  const disk = new SimDisk();
  const first = await open(disk);
  await first.storage.drain();
  await complete(first.storage, first.t, await upload(first.storage, 50_000));
  equal(first.t.largePins.length, 1);
  await first.storage.abandon();
  const { storage, t, filler } = await open(disk);
  deepEqual(t.largePins, first.t.largePins);
  const { first: from, offset } = t.largePins[0]!;
  ok(await reclaim(storage, filler) <= from, "the first part is there");
  storage.finish(t.channels.get("c")!, offset);
  ok(await reclaim(storage, filler) > from + 50_000, "all of it is gone");
  deepEqual(t.largePins, []);
  await storage.close();
});

Deno.test("an upload that a crash cuts off is nobody's: no message, and its files go", async () => {
  const disk = new SimDisk();
  const first = await open(disk);
  await first.storage.drain();
  const body = await upload(first.storage, 50_000);
  ok(await reclaim(first.storage, first.filler) <= body.parts[0]!.position, "kept while under way");
  await first.storage.abandon();
  const { storage, t, filler } = await open(disk);
  deepEqual([t.tail, storage.opening.damage.length], [0, 0]);
  ok(await reclaim(storage, filler) > body.parts.at(-1)!.position);
  await storage.close();
});

Deno.test("largePinnedFrom() keeps what a channel yet to be made would be owed", async () => {
  const { storage, t } = await open(new SimDisk());
  const channel = t.channels.get("c")!;
  t.pinLarge(5, 1000);
  t.pinLarge(5, 0);
  t.pinLarge(7, 2000);
  t.tail = 10;
  channel.finished.raise(6);
  equal(t.largePinnedFrom(), 2000);
  t.paused = true;
  t.pausedAt = 7;
  channel.finished.add(7);
  equal(t.largePinnedFrom(), 2000, "behind the pause");
  t.paused = false;
  equal(t.largePinnedFrom(), Infinity);
  await storage.abandon();
});

Deno.test("a sidecar that is made again knows large messages", async () => {
  const disk = new SimDisk();
  const first = await open(disk);
  await first.storage.drain();
  await complete(first.storage, first.t, await upload(first.storage, 9000));
  await first.storage.maintain();
  await reclaim(first.storage, first.filler);
  await first.t.index.load(0);
  const position = first.t.index.position(0);
  ok(position > 0);
  await first.storage.close();
  for (const path of disk.files().filter((name) => name.endsWith(".idx"))) await disk.remove(path);
  const { storage, t } = await open(disk);
  await t.index.load(0);
  equal(t.index.position(0), position);
  await storage.close();
});

/** Each look at it takes time: so does each group, between its closing and its being durable. */
class SteppingClock extends SimClock {
  stepMs = 0;
  #passedMs = 0;

  override monoMs(): number {
    this.#passedMs += this.stepMs;
    return super.monoMs() + this.#passedMs;
  }
}

Deno.test("a slow disk gets fewer parts in a group, a fast one more again, and always one", async () => {
  const clock = new SteppingClock();
  const { storage } = await openStorage(new SimDisk(), clock);
  await upload(storage, 100);
  const { large } = storage;
  const { partBytes } = large;
  const body = new WrittenBody();
  const groupTaking = async (ms: number): Promise<number> => {
    clock.stepMs = ms;
    let parts = 0;
    for (; large.hasRoom(); parts++) large.write(body, new Uint8Array(partBytes), 0, partBytes);
    await storage.drain();
    return parts;
  };
  const counts: number[] = [];
  for (const ms of [0, 50, 50, 7, 1, 1]) counts.push(await groupTaking(ms));
  const most = large.groupBytesMax / partBytes;
  deepEqual(counts, [most, most, 1, 1, 1, 2]);
  await storage.close();
});
