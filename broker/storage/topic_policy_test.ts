import { deepEqual, equal, throws } from "node:assert/strict";
import { LogError } from "@sluice/shared/log";
import { SimClock, SimDisk } from "@sluice/shared/testing";
import { checkCompatibility, FIRST_LEVELS, readCompatibility } from "./compatibility.ts";
import { createTopic, openStorage } from "./storage_test_fixture.ts";
import { ackModeOf, changedPolicy, isAckMode } from "./topic_policy.ts";

Deno.test("a mode that is not known counts as durable, an absent one as the broker's", () => {
  deepEqual([{}, { ack_mode: "nsq_relaxed" }, { ack_mode: "later" }].map(ackModeOf), [
    null,
    "nsq_relaxed",
    "durable",
  ]);
  equal(isAckMode("Durable"), false);
});

Deno.test("changedPolicy() keeps what it does not know and what is not named; null takes a name out", () => {
  const policy = { ack_mode: "write_ack", later: { x: 1 } };
  deepEqual(changedPolicy(policy, { ack_mode: null }), { later: { x: 1 } });
  deepEqual(changedPolicy(policy, { other: 2 }), { ...policy, other: 2 });
  deepEqual(changedPolicy(policy, { ack_mode: "durable" }), { ...policy, ack_mode: "durable" });
});

Deno.test("a policy survives a restart by the log and by a checkpoint, with what is not known of it", async () => {
  const disk = new SimDisk();
  const policy = { ack_mode: "nsq_relaxed", later: [1, { x: null }] };
  const { storage } = await openStorage(disk, new SimClock());
  const topic = createTopic(storage, "t");
  await storage.allowPolicies();
  storage.decide({ type: "topic_configured", topic: topic.number, policy });
  await storage.drain();
  await storage.abandon();
  disk.crash();
  for (const replayed of [2, 0]) {
    const again = (await openStorage(disk, new SimClock())).storage;
    equal(again.opening.replayedRecords, replayed);
    const found = again.state.topics.get("t")!;
    deepEqual([found.policy, again.ackModeOf(found)], [policy, "nsq_relaxed"]);
    await again.close();
  }
});

Deno.test("a release that does not know policies opens a folder until the first one, and not after", async () => {
  const disk = new SimDisk();
  const { storage } = await openStorage(disk, new SimClock(), { ackMode: "nsq_relaxed" });
  createTopic(storage, "t");
  await storage.drain();
  const check = async () =>
    checkCompatibility("/data", (await readCompatibility(disk, "/data"))!, "read", FIRST_LEVELS);
  await check();
  await storage.allowPolicies();
  // Before anything of the kind is written, and also after a power cut.
  await storage.abandon();
  disk.crash();
  const levels = (await readCompatibility(disk, "/data"))!;
  deepEqual(levels, { reader: 2, writer: 2 });
  throws(
    () => checkCompatibility("/data", levels, "read", FIRST_LEVELS),
    (error) => error instanceof LogError && error.code === "newer_format",
  );
});
