import { deepEqual, equal, ok, throws } from "node:assert/strict";
import { LogError } from "@sluice/shared/log";
import { decodeCheckpoint, encodeCheckpoint } from "./checkpoint.ts";
import { BrokerState, ChannelState } from "./state.ts";

const LARGEST = 2 ** 48 - 1;

function bytesOf(text: string): Uint8Array {
  return new TextEncoder().encode(text);
}

function fullState(): BrokerState {
  const state = new BrokerState();
  state.applyEvent({ type: "topic_created", topic: 1, name: "orders", ephemeral: false });
  state.applyEvent({ type: "topic_created", topic: 4, name: "a#ephemeral", ephemeral: true });
  state.applyEvent({ type: "topic_created", topic: 9, name: "gone", ephemeral: false });
  state.applyEvent({ type: "channel_created", topic: 1, channel: 2, name: "mail", start: 3 });
  state.applyEvent({ type: "channel_created", topic: 1, channel: 7, name: "audit", start: 0 });
  state.applyEvent({ type: "topic_deleted", topic: 9 });
  for (let offset = 0; offset < 20; offset++) state.applyMessage(1, offset, 0, 0, 8 * offset);
  for (const offset of [3, 4, 9, 10, 12]) state.applyFinish(2, offset);
  state.applyRequeue({ channel: 2, offset: 11, attempts: 65_535, dueMs: 1_800_000_000_000 });
  state.applyRequeue({ channel: 7, offset: 0, attempts: 1, dueMs: 0 });
  state.applyEvent({ type: "channel_paused", channel: 7, paused: true });
  state.applyEvent({ type: "topic_paused", topic: 1, paused: true, at: 18 });
  state.applyEvent({ type: "topic_emptied", topic: 1, from: 18, to: 20 });
  return state;
}

Deno.test("decodeCheckpoint() refuses another format and throws on what is no checkpoint", () => {
  throws(
    () => decodeCheckpoint(bytesOf(`{"format":2}`)),
    (error) => error instanceof LogError && error.code === "newer_format",
  );
  for (const text of ["", "null", "{", `{"format":1}`]) {
    throws(() => decodeCheckpoint(bytesOf(text)), Error, text);
  }
});

Deno.test("decodeCheckpoint() gives the state that encodeCheckpoint() was given", () => {
  const state = fullState();
  const bytes = encodeCheckpoint(state, LARGEST);
  const { state: decoded, position } = decodeCheckpoint(bytes);
  equal(position, LARGEST);
  deepEqual(encodeCheckpoint(decoded, LARGEST), bytes);
  deepEqual([decoded.nextTopicNumber, decoded.nextChannelNumber], [10, 8]);
  deepEqual([...decoded.topics.keys()], ["orders", "a#ephemeral"]);
  const topic = decoded.topics.get("orders")!;
  deepEqual(
    [topic.number, topic.tail, topic.keepFrom, topic.paused, topic.pausedAt],
    [1, 20, 20, true, 20],
  );
  equal(decoded.topicsByNumber.get(1), topic);
  const mail = decoded.channelsByNumber.get(2)!;
  equal(topic.channels.get("mail"), mail);
  equal(mail.topic, topic);
  deepEqual([mail.start, mail.finished.floor, mail.finished.ranges()], [3, 5, [
    9,
    11,
    12,
    13,
    18,
    20,
  ]]);
  deepEqual([...mail.requeues], [[11, { attempts: 65_535, dueMs: 1_800_000_000_000 }]]);
  const audit = decoded.channelsByNumber.get(7)!;
  deepEqual([audit.paused, audit.finished.floor, audit.requeues.size], [true, 0, 1]);
});

Deno.test("encodeCheckpoint() leaves ephemeral channels out", () => {
  const state = fullState();
  const topic = state.topics.get("orders")!;
  const before = encodeCheckpoint(state, 0);
  topic.channels.set("x#ephemeral", new ChannelState(0, topic, "x#ephemeral", true, 0));
  deepEqual(encodeCheckpoint(state, 0), before);
});

Deno.test("a checkpoint of a channel that finished far above its floor is small", () => {
  const state = fullState();
  state.applyEvent({ type: "topic_emptied", topic: 1, from: 500, to: 100_000 });
  ok(encodeCheckpoint(state, 0).length < 1000);
});
