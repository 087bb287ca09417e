/** Many messages that are due at one instant. */
import { deepStrictEqual as equal, ok } from "node:assert/strict";
import { applyRequeue, ChannelState, TopicState } from "../storage/mod.ts";
import type { ChannelEffects } from "./channel.ts";
import { COLD, type MessageSource } from "./message_source.ts";
import { DUE_AT_ONCE, DUE_PAUSE_MS } from "./schedule.ts";
import { Topic } from "./topic.ts";

const MESSAGES = 3 * DUE_AT_ONCE;
const NOW_MS = 1000;
const WALL_MS = 1_000_000;

const COLD_SOURCE: MessageSource = {
  isCold: true,
  view: { bytes: new Uint8Array(), start: 0, length: 0, sequence: 0, dueMs: 0, large: null },
  find: () => COLD,
  timestampMs: () => 0,
  load: () => Promise.resolve(),
};

/** A topic with one channel of which nothing is told but when it wants to be looked at. */
function world(prepare: (topic: TopicState, channel: ChannelState) => void) {
  const scheduled: number[] = [];
  const effects: ChannelEffects = {
    source: COLD_SOURCE,
    random: { u32: () => 0 },
    finish() {},
    requeue() {},
    empty() {},
    schedule: (_timed, dueMs) => scheduled.push(dueMs),
    wake() {},
  };
  const state = new TopicState(1, "t", false);
  state.tail = MESSAGES;
  state.durableTail = MESSAGES;
  const channel = new ChannelState(1, state, "c", false, 0);
  state.channels.set("c", channel);
  prepare(state, channel);
  const topic = new Topic(state, effects, {
    msgTimeoutMsMax: 1000,
    consumersMax: 0,
    requeueOnDisconnect: true,
  });
  topic.recover(NOW_MS, WALL_MS - 1);
  scheduled.length = 0;
  return { topic, channel: topic.channels.get("c")!, scheduled };
}

Deno.test("a topic hands out what is due at one instant in parts, with a turn for others between them", () => {
  const { topic, channel, scheduled } = world((state) => {
    for (let offset = 0; offset < MESSAGES; offset++) state.due.push(WALL_MS, offset);
  });
  let waiting = MESSAGES;
  for (let part = 1; waiting > 0; part++) {
    topic.tick(NOW_MS, WALL_MS);
    const handed = waiting - channel.deferredCount;
    ok(handed > 0 && handed <= DUE_AT_ONCE, `part ${part}: ${handed}`);
    waiting = channel.deferredCount;
    equal(scheduled.splice(0), waiting > 0 ? [NOW_MS + DUE_PAUSE_MS] : []);
  }
  equal(channel.depth, MESSAGES);
});

Deno.test("a channel makes ready what was requeued to one instant in parts", () => {
  const { channel, scheduled } = world((_state, owed) => {
    for (let offset = 0; offset < MESSAGES; offset++) applyRequeue(owed, offset, 1, WALL_MS);
  });
  for (let waiting = MESSAGES; waiting > 0; waiting -= DUE_AT_ONCE) {
    equal(channel.deferredCount, waiting);
    channel.tick(NOW_MS, WALL_MS);
    equal(scheduled.splice(0), waiting > DUE_AT_ONCE ? [NOW_MS + DUE_PAUSE_MS] : []);
  }
  equal([channel.deferredCount, channel.depth], [0, MESSAGES]);
});
