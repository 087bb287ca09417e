/** What a power cut may take: its bounds, and who asks for the sync that empties it. */
import { deepEqual, equal } from "node:assert/strict";
import { settle, SimClock, SimDisk } from "@sluice/shared/testing";
import { LossWindow } from "./loss_window.ts";
import { createChannel, createTopic, openStorage, publish } from "./storage_test_fixture.ts";

const LIMITS = { messages: 5, bytes: 1000, intervalMs: 10 };

function fixture(): { clock: SimClock; window: LossWindow; asked: () => number } {
  const clock = new SimClock();
  let count = 0;
  const window = new LossWindow(clock, LIMITS, () => count++);
  return { clock, window, asked: () => count };
}

/** Adds a group of messages and has it written; returns whether it is exposed. */
function group(window: LossWindow, ...bytes: number[]): boolean {
  for (const size of bytes) window.add(size);
  window.closing();
  return window.written();
}

Deno.test("a LossWindow never holds more than its limits: a group that does not fit waits for the sync", () => {
  const { window, asked } = fixture();
  equal(group(window, 10, 10, 10), true);
  equal(asked(), 0);
  equal(group(window, 10, 10, 10), false);
  equal(asked(), 1);
  // It would fit, but not before the one that waits.
  equal(group(window, 10), false);
  deepEqual([window.messages, window.messagesHighest, window.bytes], [3, 3, 30]);
  window.synced();
  deepEqual([window.messages, window.bytes, window.ageMs], [0, 0, 0]);
  equal(group(window, 1, 1, 1, 1, 1), true);
  equal(group(window, 999), false);
  window.synced();
  equal(group(window, 1001), false);
  window.synced();
  deepEqual([window.messagesHighest, window.bytesHighest], [5, 30]);
  window.stop();
});

Deno.test("a LossWindow asks for a sync at the first of three limits, once, and counts which it was", async () => {
  const { clock, window, asked } = fixture();
  group(window, 1, 1, 1, 1);
  equal(asked(), 0);
  window.add(1);
  equal(asked(), 1);
  window.add(1);
  equal(asked(), 1);
  window.synced();
  equal(window.syncs.messages, 1);
  group(window, 998);
  window.add(1);
  equal(asked(), 2);
  window.synced();
  group(window, 1);
  await clock.run(9);
  equal([asked(), window.ageMs].join(), "2,9");
  await clock.run(1);
  equal(asked(), 3);
  await clock.run(5);
  window.synced();
  group(window, 1);
  window.synced();
  deepEqual(window.syncs, { messages: 1, bytes: 1, time: 1, other: 1 });
  deepEqual([window.ageMsHighest, clock.pendingTimers], [15, 0]);
});

Deno.test("a LossWindow counts no sync that found it empty, and needs no timer then", () => {
  const { clock, window } = fixture();
  window.closing();
  equal(window.written(), false);
  window.synced();
  deepEqual(window.syncs, { messages: 0, bytes: 0, time: 0, other: 0 });
  equal(clock.pendingTimers, 0);
});

Deno.test("a sync leaves a group in the window's count that is closed and not written", () => {
  const { clock, window } = fixture();
  group(window, 1);
  window.add(1);
  window.closing();
  // The disk was full for the second one: the first is synced meanwhile.
  window.synced();
  deepEqual([window.messages, clock.pendingTimers], [0, 1]);
  equal(window.written(), true);
  equal(window.messages, 1);
  window.stop();
});

Deno.test("relaxed messages are synced after the interval, and shown as their topic's mode says", async () => {
  const disk = new SimDisk();
  const clock = new SimClock();
  const { storage, owner } = await openStorage(disk, clock, { ackMode: "nsq_relaxed" });
  const [fast, safe] = [createTopic(storage, "fast"), createTopic(storage, "safe")];
  safe.policy = { ack_mode: "write_ack" };
  await storage.drain();
  publish(storage, fast, "a");
  publish(storage, safe, "b");
  storage.commitTo(fast);
  await settle();
  const { log } = storage;
  deepEqual([fast.durableTail, safe.durableTail], [1, 0]);
  deepEqual([storage.confirmableEnd, log.durableEnd < log.end], [log.end, true]);
  equal(storage.lossWindow.messages, 2);
  await clock.run(10);
  deepEqual([fast.durableTail, safe.durableTail], [1, 1]);
  deepEqual([log.durableEnd, storage.lossWindow.messages], [log.end, 0]);
  deepEqual(owner.groups.at(-1), ["fast", "safe"]);
  await storage.close();
  equal(clock.pendingTimers, 0);
});

for (const ackMode of ["durable", "write_ack", "nsq_relaxed"] as const) {
  Deno.test(`${ackMode}: close() leaves nothing in the loss window`, async () => {
    const disk = new SimDisk();
    const clock = new SimClock();
    const { storage } = await openStorage(disk, clock, { ackMode });
    const topic = createTopic(storage, "t");
    await storage.drain();
    for (const body of ["a", "b", "c"]) publish(storage, topic, body);
    storage.commitTo(topic);
    await storage.close();
    equal(clock.pendingTimers, 0);
    disk.crash();
    const again = await openStorage(disk, clock, { ackMode });
    equal(again.storage.state.topics.get("t")?.tail, 3);
    await again.storage.close();
  });
}

Deno.test("a message that waits for space is not shown by the sync of what was written before it", async () => {
  const disk = new SimDisk();
  const clock = new SimClock();
  const { storage, owner } = await openStorage(disk, clock, { ackMode: "write_ack" });
  const topic = createTopic(storage, "t");
  await storage.drain();
  publish(storage, topic, "a");
  storage.commitTo(topic);
  await settle();
  disk.failNext({ operation: "write", kind: "no_space" });
  publish(storage, topic, "b");
  storage.commitTo(topic);
  await settle();
  deepEqual([owner.stalls, topic.durableTail, storage.lossWindow.messages], [1, 1, 0]);
  await clock.run(1000);
  await storage.drain();
  deepEqual([topic.durableTail, topic.tail], [2, 2]);
  await storage.close();
});

Deno.test("a finish that survives a power cut never finishes a message that did not", async () => {
  let [lost, finished] = [0, 0];
  for (let seed = 1; seed <= 80; seed++) {
    const disk = new SimDisk();
    const clock = new SimClock();
    const options = { ackMode: "nsq_relaxed", finishSyncIntervalMs: 4 } as const;
    const { storage } = await openStorage(disk, clock, options);
    const topic = createTopic(storage, "t");
    const channel = createChannel(storage, topic, "c");
    await storage.drain();
    disk.powerCutAfter(seed % 9 + 1);
    try {
      for (let count = 0; count < 12; count++) {
        const offset = publish(storage, topic, `message ${count}`);
        storage.commitTo(topic);
        await clock.run(seed % 3);
        if (topic.durableTail > offset) storage.finish(channel, offset);
      }
    } catch {
      // The log is sealed: the power is gone.
    }
    const handedOut = topic.tail;
    await storage.abandon();
    disk.crash();
    const again = await openStorage(disk, clock, options);
    const found = again.storage.state.topics.get("t");
    const { finished: done } = found!.channels.get("c")!;
    lost += handedOut - found!.tail;
    finished += done.floor + done.above;
    // All that is finished was there; what is given out next is owed.
    equal(done.floor <= found!.tail, true, `seed ${seed}`);
    const next = publish(again.storage, found!, "later");
    equal(next, found!.tail - 1);
    equal(done.has(next), false, `seed ${seed}`);
    await again.storage.close();
  }
  equal(lost > 20 && finished > 20, true, `${lost} are lost, ${finished} are finished`);
});
