/** What the offline tools make of a folder whose log was compacted. */
import assert from "node:assert/strict";
import { SimClock, SimDisk } from "@sluice/shared/testing";
import { Storage } from "@sluice/broker/storage";
import { createChannel, createTopic, ctl, OPTIONS, PATH, publishMany } from "./folder.ts";

/** A folder of which most of the log was compacted; every fiftieth of 500 messages is owed. */
async function compactedFolder(): Promise<SimDisk> {
  const disk = new SimDisk();
  const clock = new SimClock();
  const fail = (error: unknown) => {
    throw error;
  };
  const storage = await Storage.open(
    disk,
    clock,
    { ...OPTIONS, compaction: { rateBytes: 2 ** 40, deadBytesMin: 1000 } },
    { durable() {}, stalled: fail, failed: fail, warn: (_, error) => fail(error) },
  );
  const topic = createTopic(storage, "orders");
  const channel = createChannel(storage, topic, "billing");
  for (let round = 0; round < 6; round++) {
    await publishMany(storage, topic, 250);
    for (let offset = 250 * round; offset < topic.tail; offset++) {
      if (offset >= 500 || offset % 50 !== 3) storage.finish(channel, offset);
    }
    await storage.drain();
    await clock.runUntil(storage.maintain(), 1000);
  }
  await clock.runUntil(storage.compact(), 1000);
  assert.ok(storage.compaction.filesCompacted > 3);
  await clock.runUntil(storage.close(), 1000);
  return disk;
}

Deno.test("data verify takes a compacted log for clean: what nobody is owed is not lost", async () => {
  const { code, out } = await ctl(await compactedFolder(), "data", "verify", PATH, "--json");
  assert.equal(code, 0, out);
  const { findings, lost_messages } = JSON.parse(out);
  assert.deepEqual(findings, []);
  assert.deepEqual(lost_messages, []);
});

Deno.test("data verify names messages that are owed and gone, also from a compacted log", async () => {
  const disk = await compactedFolder();
  const path = disk.files().filter((name) => name.endsWith(".log"))[0]!;
  const at = new TextDecoder("latin1").decode(disk.bytes(path)).indexOf("message 53.");
  assert.ok(at > 0);
  disk.flipBit(path, at, 1);
  const { code, out } = await ctl(disk, "data", "verify", PATH, "--json");
  assert.equal(code, 1, out);
  const { lost_messages } = JSON.parse(out) as { lost_messages: { from: number; to: number }[] };
  assert.ok(lost_messages.some(({ from, to }) => from <= 53 && 53 < to), out);
});

Deno.test("data dump finds what is owed in a compacted log", async () => {
  const disk = await compactedFolder();
  const { code, out } = await ctl(disk, "data", "dump", PATH, "--topic", "orders", "--quiet");
  assert.equal(code, 0);
  const offsets = out.trim().split("\n").map((line) => JSON.parse(line).offset);
  assert.deepEqual(offsets, [3, 53, 103, 153, 203, 253, 303, 353, 403, 453]);
});
