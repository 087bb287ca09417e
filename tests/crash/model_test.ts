/** The judge is judged first: each promise it watches over is broken here once. */
import { deepEqual, equal, throws } from "node:assert/strict";
import {
  bodyOf,
  Model,
  type ModelDelivery,
  type ModelEvent,
  type ModelOptions,
  Violation,
} from "./model.ts";

const TIMEOUT_MS = 1000;

/** A model with topic `t` and channel `c`, durable, the log at 20. */
function modelOf(...given: readonly (ModelEvent | ModelOptions)[]): Model {
  const model = new Model(given.find((part) => "lossWindow" in part));
  const events = given.filter((part) => "type" in part);
  model.record({ type: "topic_created", topic: "t" }, 10);
  model.record({ type: "channel_created", topic: "t", channel: "c" }, 20);
  for (const event of events) model.record(event, 20);
  model.confirm(20);
  return model;
}

function published(sequence: number, dueMs = 0): ModelEvent {
  return { type: "published", topic: "t", sequence, bytes: 8, dueMs };
}

function finished(sequence: number, channel = "c"): ModelEvent {
  return { type: "finished", topic: "t", channel, sequence };
}

function requeued(sequence: number, attempts: number, dueMs: number): ModelEvent {
  return { type: "requeued", topic: "t", channel: "c", sequence, attempts, dueMs };
}

function delivery(sequence: number, changes: Partial<ModelDelivery> = {}): ModelDelivery {
  return {
    topic: "t",
    channel: "c",
    sequence,
    body: bodyOf(sequence, 8),
    attempts: 1,
    nowMs: 0,
    wallMs: 100,
    timeoutMs: TIMEOUT_MS,
    ...changes,
  };
}

function breaks(act: () => void, text: RegExp): void {
  throws(act, (error) => error instanceof Violation && text.test(error.message));
}

function owed(model: Model, channel = "c"): number[] {
  return [...model.channel("t", channel).owed.keys()];
}

Deno.test("record() fails when a topic gets a publish of a producer twice, and not after a crash took it", () => {
  const model = new Model();
  const published = (sequence: number) =>
    ({ type: "published", topic: "a", sequence, bytes: 1, dueMs: 0, unit: "1:7" }) as const;
  model.record({ type: "topic_created", topic: "a" }, 10);
  model.record(published(1), 20);
  throws(() => model.record(published(2), 30), /has publish 1:7 twice/);
  model.restart(15);
  model.record(published(3), 25);
});

Deno.test("deliver() takes an owed message with its body, once", () => {
  const model = modelOf(published(1));
  model.deliver(delivery(1));
  breaks(() => model.deliver(delivery(1, { attempts: 2 })), /while in flight/);
  model.deliver(delivery(1, { attempts: 2, nowMs: TIMEOUT_MS }));
  equal(model.deliveries, 2);
});

Deno.test("deliver() refuses what was never published, finished or is another's", () => {
  const model = modelOf(published(1), published(2), finished(1));
  breaks(() => model.deliver(delivery(7)), /not owed/);
  breaks(() => model.deliver(delivery(1)), /not owed/);
  breaks(() => model.deliver(delivery(2, { channel: "d" })), /no channel t\/d/);
});

Deno.test("deliver() refuses an altered, a cut and another message's body", () => {
  const model = modelOf(published(1));
  const altered = bodyOf(1, 8);
  altered[3]! ^= 1;
  breaks(() => model.deliver(delivery(1, { body: altered })), /differs/);
  breaks(() => model.deliver(delivery(1, { body: bodyOf(1, 7) })), /7 bytes/);
  breaks(() => model.deliver(delivery(1, { body: bodyOf(2, 8) })), /differs/);
});

Deno.test("deliver() refuses a message that is not durable", () => {
  const model = modelOf();
  model.record(published(1), 30);
  breaks(() => model.deliver(delivery(1)), /before it was durable/);
  model.confirm(30);
  model.deliver(delivery(1));
});

Deno.test("deliver() refuses a message before it is due", () => {
  const model = modelOf(published(1, 101), published(2));
  breaks(() => model.deliver(delivery(1)), /1 ms too early/);
  model.deliver(delivery(1, { wallMs: 101 }));
  model.deliver(delivery(2));
  model.record(requeued(2, 1, 150), 40);
  breaks(() => model.deliver(delivery(2, { attempts: 2 })), /50 ms too early/);
  model.deliver(delivery(2, { attempts: 2, wallMs: 150 }));
});

Deno.test("deliver() counts attempts on from the last durable requeue", () => {
  const model = modelOf(published(1), published(2));
  model.deliver(delivery(1));
  model.deliver(delivery(2));
  model.record(requeued(1, 1, 0), 40);
  model.restart(40);
  breaks(() => model.deliver(delivery(1, { attempts: 1 })), /attempt 1 after 1/);
  model.deliver(delivery(1, { attempts: 2 }));
  // A delivery that nobody answered leaves nothing behind.
  model.deliver(delivery(2, { attempts: 1 }));
});

Deno.test("record() refuses a sequence that was used before, also by a lost message", () => {
  const model = modelOf(published(1));
  model.record(published(2), 30);
  model.restart(20);
  breaks(() => model.record(published(2), 30), /used before/);
  breaks(() => model.record(published(1), 30), /used before/);
  model.record(published(3), 30);
});

Deno.test("restart() refuses a log that ends before what was confirmed", () => {
  const model = modelOf();
  model.confirm(50);
  breaks(() => model.restart(49), /ends at 49, but everything up to 50 was confirmed/);
  model.restart(50);
});

const RELAXED: ModelOptions = {
  ackMode: "write_ack",
  lossWindow: { messages: 2, bytes: 1000 },
};

Deno.test("restart() refuses a log that ends before what was written, but only after a kill", () => {
  for (const onlyProcess of [true, false]) {
    const model = modelOf(RELAXED);
    model.record(published(1), 30);
    model.record(published(2), 40);
    model.write(40);
    if (onlyProcess) breaks(() => model.restart(30, true), /after a kill.*up to 40 was written/);
    else model.restart(30);
    equal(model.lostWritten, onlyProcess ? 0 : 1);
  }
});

Deno.test("write() refuses more than the loss window takes, which a sync empties", () => {
  const model = modelOf(RELAXED);
  for (const sequence of [1, 2, 3]) model.record(published(sequence), 20 + 10 * sequence);
  model.write(40);
  breaks(() => model.write(50), /3 messages of 102 bytes: more than the loss window of 2/);
  model.confirm(30);
  model.write(50);
  const small = modelOf({ ...RELAXED, lossWindow: { messages: 9, bytes: 67 } });
  for (const sequence of [1, 2]) small.record(published(sequence), 20 + 10 * sequence);
  breaks(() => small.write(40), /2 messages of 68 bytes/);
});

Deno.test("write() shows messages in nsq_relaxed and in no other mode", () => {
  const modes = ["durable", "write_ack", "nsq_relaxed"] as const;
  for (const mode of modes) {
    const model = modelOf({ ...RELAXED, ackMode: "durable" });
    model.record({ type: "topic_configured", topic: "t", ackMode: mode }, 25);
    model.record(published(1), 30);
    breaks(() => model.deliver(delivery(1)), /before it was durable/);
    model.write(30);
    equal(model.shownEndOf("t"), mode === "nsq_relaxed" ? 30 : 20);
    if (mode === "nsq_relaxed") model.deliver(delivery(1));
    else breaks(() => model.deliver(delivery(1)), /before it was durable/);
    model.restart(25);
    deepEqual([model.shownEndOf("t"), model.ackModeOf("t")], [25, mode]);
  }
});

Deno.test("restart() keeps what the log holds and forgets what it lost", () => {
  const model = modelOf(published(1));
  model.record(published(2), 30);
  model.record(published(3), 40);
  model.restart(30);
  deepEqual(owed(model), [1, 2]);
  equal(model.confirmedEnd, 30);
});

Deno.test("restart() keeps a finish exactly when anything behind it was kept", () => {
  const mark = 20;
  for (const [end, left] of [[20, [1]], [21, []]] as const) {
    const model = modelOf(published(1));
    model.record(finished(1), mark + 1);
    deepEqual(owed(model), []);
    model.restart(end);
    deepEqual(owed(model), left);
  }
});

Deno.test("restart() forgets ephemeral topics and channels, and nothing else", () => {
  const model = modelOf();
  model.record({ type: "topic_created", topic: "u#ephemeral" }, 20);
  model.record({ type: "channel_created", topic: "t", channel: "e#ephemeral" }, 20);
  model.record(published(1), 20);
  deepEqual(owed(model, "e#ephemeral"), [1]);
  model.restart(20);
  deepEqual([...model.topics.keys()], ["t"]);
  deepEqual([...model.topics.get("t")!.channels.keys()], ["c"]);
  deepEqual(owed(model), [1]);
});

Deno.test("the first lasting channel gets what was kept, a later one does not", () => {
  const model = new Model();
  model.record({ type: "topic_created", topic: "t" }, 10);
  model.record(published(1), 20);
  model.record({ type: "channel_created", topic: "t", channel: "e#ephemeral" }, 20);
  model.record(published(2), 30);
  model.record({ type: "channel_created", topic: "t", channel: "c" }, 40);
  model.record({ type: "channel_created", topic: "t", channel: "d" }, 50);
  deepEqual(owed(model, "e#ephemeral"), [1, 2]);
  deepEqual(owed(model, "c"), [1, 2]);
  deepEqual(owed(model, "d"), []);
  model.record({ type: "channel_deleted", topic: "t", channel: "c" }, 60);
  model.record({ type: "channel_deleted", topic: "t", channel: "d" }, 70);
  model.record(published(3), 80);
  model.record({ type: "channel_created", topic: "t", channel: "c" }, 90);
  deepEqual(owed(model, "c"), [3]);
});

Deno.test("a paused topic holds messages back until it goes on or is emptied", () => {
  const paused = (value: boolean): ModelEvent => ({
    type: "topic_paused",
    topic: "t",
    paused: value,
    held: false,
  });
  const model = modelOf(published(1), paused(true), published(2));
  deepEqual(owed(model), [1]);
  model.record({ type: "topic_emptied", topic: "t" }, 30);
  model.record(published(3), 40);
  model.record({ type: "channel_created", topic: "t", channel: "d" }, 50);
  model.record(paused(false), 60);
  deepEqual(owed(model), [1, 3]);
  deepEqual(owed(model, "d"), [3]);
});

Deno.test("a topic paused without a channel gives the first ones nothing until it goes on", () => {
  const model = new Model();
  model.record({ type: "topic_created", topic: "t" }, 10);
  model.record(published(1), 20);
  model.record({ type: "topic_paused", topic: "t", paused: true, held: true }, 30);
  model.record({ type: "channel_created", topic: "t", channel: "c" }, 40);
  model.record({ type: "channel_created", topic: "t", channel: "d" }, 50);
  deepEqual([owed(model, "c"), owed(model, "d")], [[], []]);
  model.record({ type: "topic_paused", topic: "t", paused: false, held: false }, 60);
  deepEqual([owed(model, "c"), owed(model, "d")], [[1], [1]]);
});

Deno.test("an emptied channel spares what was not durable", () => {
  const model = modelOf(published(1));
  model.record(published(2), 30);
  model.record({ type: "channel_emptied", topic: "t", channel: "c", shownEnd: 20 }, 40);
  deepEqual(owed(model), [2]);
});

function trimmed(count: number, isEviction = false): ModelEvent {
  return { type: "topic_trimmed", topic: "t", count, isEviction };
}

Deno.test("a trim takes the first messages of a topic from everybody, and no other", () => {
  const model = modelOf(published(1), published(2), finished(1), published(3), published(4));
  model.record({ type: "topic_paused", topic: "t", paused: true, held: false }, 30);
  model.record(published(5), 30);
  model.record(trimmed(2), 30);
  deepEqual(owed(model), [3, 4]);
  deepEqual([...model.topics.get("t")!.held.keys()], [5]);
  model.record(trimmed(5), 40);
  deepEqual([owed(model), model.topics.get("t")!.isEmpty], [[], true]);
  deepEqual(model.gaps, []);
});

Deno.test("restart() brings back what a trim took that is not in the log, and its gaps go", () => {
  const model = modelOf(published(1), published(2));
  model.record({ type: "channel_created", topic: "t", channel: "idle" }, 20);
  model.record(trimmed(1, true), 30);
  model.record(trimmed(2, true), 40);
  const gap = (count: number) => ({ topic: "t", channel: "c", count });
  deepEqual(model.gaps, [gap(1), gap(2)]);
  model.restart(30);
  deepEqual([owed(model), model.gaps], [[2], [gap(1)]]);
});

Deno.test("limitOf() is a topic's own limit, else the broker's", () => {
  const quota = { bytesMax: 9, action: "drop_oldest" } as const;
  const model = modelOf({ ...RELAXED, quota });
  deepEqual(model.limitOf("t"), quota);
  const limit = { bytesMax: 5, action: "refuse" } as const;
  model.record({ type: "topic_limited", topic: "t", limit }, 20);
  deepEqual(model.limitOf("t"), limit);
  model.record({ type: "topic_limited", topic: "t", limit: null }, 20);
  deepEqual(model.limitOf("t"), quota);
});

Deno.test("dueBy() counts what may be delivered at a time", () => {
  const channel = modelOf(published(1), published(2, 100), published(3, 101)).channel("t", "c");
  deepEqual([99, 100, 101].map((wallMs) => channel.dueBy(wallMs)), [1, 2, 3]);
});

Deno.test("bodyOf() differs between sequences and between neighbouring bytes", () => {
  const bodies = Array.from({ length: 200 }, (_, sequence) => bodyOf(sequence, 16).join());
  equal(new Set(bodies).size, bodies.length);
  equal(new Set(bodyOf(1, 64)).size > 40, true);
});
