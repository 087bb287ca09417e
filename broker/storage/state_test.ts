import { deepEqual, equal, ok, throws } from "node:assert/strict";
import { LogError } from "@sluice/shared/log";
import type { Event } from "./records.ts";
import { applyRequeue, BrokerState, ChannelState, TopicState } from "./state.ts";

function stateOf(...events: readonly Event[]): BrokerState {
  const state = new BrokerState();
  for (const event of events) state.applyEvent(event);
  return state;
}

const TOPIC: Event = { type: "topic_created", topic: 1, name: "orders", ephemeral: false };
const CHANNEL: Event = { type: "channel_created", topic: 1, channel: 1, name: "mail", start: 0 };

/** Topic 1 with ten messages, and channel 1 on it. */
function orders(): { state: BrokerState; topic: TopicState; channel: ChannelState } {
  const state = stateOf(TOPIC, CHANNEL);
  for (let offset = 0; offset < 10; offset++) state.applyMessage(1, offset, 0, 0, 64 + 8 * offset);
  const topic = state.topics.get("orders")!;
  topic.durableTail = topic.tail;
  return { state, topic, channel: topic.channels.get("mail")! };
}

Deno.test("an event of a type that is not known is refused, not passed over", () => {
  const { state } = orders();
  throws(
    () => state.applyEvent({ type: "topic_policy", topic: 1 } as unknown as Event),
    (error) => error instanceof LogError && error.code === "newer_format",
  );
  equal(state.orphanRecords, 0);
});

Deno.test("records of a topic or channel that is not known are counted and change nothing", () => {
  const state = new BrokerState();
  const events: Event[] = [
    { type: "topic_deleted", topic: 4 },
    { type: "topic_paused", topic: 4, paused: true, at: 1 },
    { type: "topic_emptied", topic: 4, from: 0, to: 1 },
    { type: "topic_trimmed", topic: 4, to: 1 },
    { type: "topic_configured", topic: 4, policy: {} },
    { type: "channel_created", topic: 4, channel: 5, name: "mail", start: 0 },
    { type: "channel_deleted", channel: 5, keepFrom: 0 },
    { type: "channel_paused", channel: 5, paused: true },
    { type: "channel_emptied", channel: 5, to: 1 },
  ];
  for (const event of events) equal(state.applyEvent(event), null);
  state.applyMessage(4, 0, 0, 0, 64);
  state.applyFinish(5, 0);
  state.applyRequeue({ channel: 5, offset: 0, attempts: 1, dueMs: 0 });
  equal(state.orphanRecords, events.length + 3);
  deepEqual([state.topics.size, state.channelsByNumber.size], [0, 0]);
});

Deno.test("the number of a topic or channel whose creation is lost is not used again", () => {
  const state = new BrokerState();
  state.applyMessage(4, 0, 0, 0, 64);
  state.applyFinish(5, 0);
  state.applyRequeue({ channel: 7, offset: 0, attempts: 1, dueMs: 0 });
  deepEqual([state.nextTopicNumber, state.nextChannelNumber], [5, 8]);
});

Deno.test("an offset that any record names is not given out again, though its message is lost", () => {
  const changes: readonly [string, (state: BrokerState) => void][] = [
    ["finish", (state) => state.applyFinish(1, 19)],
    ["requeue", (state) => state.applyRequeue({ channel: 1, offset: 19, attempts: 1, dueMs: 0 })],
    [
      "pause",
      (state) => state.applyEvent({ type: "topic_paused", topic: 1, paused: true, at: 20 }),
    ],
    ["empty", (state) => state.applyEvent({ type: "topic_emptied", topic: 1, from: 10, to: 20 })],
    ["trim", (state) => state.applyEvent({ type: "topic_trimmed", topic: 1, to: 20 })],
    ["channel", (state) =>
      state.applyEvent({
        type: "channel_created",
        topic: 1,
        channel: 2,
        name: "new",
        start: 20,
      })],
    [
      "channel deleted",
      (state) => state.applyEvent({ type: "channel_deleted", channel: 1, keepFrom: 20 }),
    ],
    [
      "channel emptied",
      (state) => state.applyEvent({ type: "channel_emptied", channel: 1, to: 20 }),
    ],
  ];
  for (const [what, change] of changes) {
    const { state, topic } = orders();
    change(state);
    equal(topic.tail, 20, what);
    state.applyMessage(1, topic.tail, 0, 0, 1000);
    equal(topic.index.position(20), 1000, what);
  }
});

Deno.test("a topic or channel made again takes the place of one whose deletion is lost", () => {
  const { state, channel } = orders();
  state.applyEvent({ ...CHANNEL, channel: 9 });
  equal(state.channelsByNumber.get(1), undefined);
  ok(state.channelsByNumber.get(9) !== channel);
  state.applyEvent({ ...TOPIC, topic: 2 });
  deepEqual([...state.topicsByNumber.keys()], [2]);
  deepEqual([...state.channelsByNumber.keys()], []);
  equal(state.topics.get("orders")?.tail, 0);
});

Deno.test("topic_created and channel_created give their states and never use a number again", () => {
  const state = new BrokerState();
  const topic = state.applyEvent({ ...TOPIC, topic: 7 });
  ok(topic instanceof TopicState);
  deepEqual([topic.number, topic.name, topic.ephemeral], [7, "orders", false]);
  const channel = state.applyEvent({ ...CHANNEL, topic: 7, channel: 30, start: 4 });
  ok(channel instanceof ChannelState);
  deepEqual([channel.number, channel.start, channel.finished.floor], [30, 4, 4]);
  equal(channel.topic, topic);
  deepEqual([state.nextTopicNumber, state.nextChannelNumber], [8, 31]);
  state.applyEvent({ type: "topic_deleted", topic: 7 });
  deepEqual([state.nextTopicNumber, state.nextChannelNumber], [8, 31]);
});

Deno.test("topic_deleted takes the topic's channels along", () => {
  const { state } = orders();
  state.applyEvent({ type: "topic_deleted", topic: 1 });
  deepEqual(
    [state.topics.size, state.topicsByNumber.size, state.channelsByNumber.size],
    [0, 0, 0],
  );
});

Deno.test("a finish takes the requeue of its message along, and a later requeue is ignored", () => {
  const { state, channel } = orders();
  state.applyRequeue({ channel: 1, offset: 3, attempts: 2, dueMs: 500 });
  deepEqual([...channel.requeues], [[3, { attempts: 2, dueMs: 500 }]]);
  state.applyRequeue({ channel: 1, offset: 3, attempts: 3, dueMs: 0 });
  deepEqual([...channel.requeues], [[3, { attempts: 3, dueMs: 0 }]]);
  state.applyFinish(1, 3);
  equal(channel.requeues.size, 0);
  applyRequeue(channel, 3, 4, 0);
  equal(channel.requeues.size, 0);
});

Deno.test("channel_emptied finishes everything below its end and forgets what is requeued there", () => {
  const { state, channel } = orders();
  for (const offset of [2, 6, 7]) {
    state.applyRequeue({ channel: 1, offset, attempts: 1, dueMs: 0 });
  }
  state.applyEvent({ type: "channel_emptied", channel: 1, to: 7 });
  equal(channel.finished.floor, 7);
  deepEqual([...channel.requeues].map(([offset]) => offset), [7]);
});

Deno.test("topic_emptied finishes its range for every channel and what was kept for the first", () => {
  const { state, topic, channel } = orders();
  state.applyEvent({ type: "topic_paused", topic: 1, paused: true, at: 6 });
  state.applyEvent({ type: "topic_emptied", topic: 1, from: 6, to: 10 });
  deepEqual([channel.finished.floor, channel.finished.ranges()], [0, [6, 10]]);
  deepEqual([topic.keepFrom, topic.pausedAt, topic.visibleTail], [10, 10, 10]);
});

Deno.test("topic_trimmed gives up what is below for every channel, for the first one and at a pause", () => {
  const { state, topic, channel } = orders();
  state.applyFinish(1, 5);
  state.applyRequeue({ channel: 1, offset: 6, attempts: 1, dueMs: 9 });
  state.applyRequeue({ channel: 1, offset: 8, attempts: 1, dueMs: 9 });
  state.applyEvent({ type: "topic_paused", topic: 1, paused: true, at: 6 });
  state.applyEvent({ type: "topic_trimmed", topic: 1, to: 7 });
  deepEqual([channel.finished.floor, channel.finished.above], [7, 0]);
  deepEqual([...channel.requeues].map(([offset]) => offset), [8]);
  deepEqual([topic.keepFrom, topic.pausedAt, topic.liveFrom], [7, 7, 7]);
  state.applyEvent({ type: "topic_trimmed", topic: 1, to: 3 });
  deepEqual([channel.finished.floor, topic.keepFrom, topic.pausedAt], [7, 7, 7]);
});

Deno.test("a paused topic shows nothing behind the pause, and a new channel starts there", () => {
  const { state, topic } = orders();
  state.applyEvent({ type: "topic_paused", topic: 1, paused: true, at: 8 });
  deepEqual([topic.visibleTail, topic.channelStart], [8, 8]);
  topic.durableTail = 5;
  equal(topic.visibleTail, 5);
  state.applyEvent({ type: "topic_paused", topic: 1, paused: false, at: 10 });
  topic.durableTail = 10;
  deepEqual([topic.visibleTail, topic.channelStart], [10, 10]);
});

Deno.test("channel_deleted keeps what follows for the next channel when it was the last", () => {
  const { state, topic } = orders();
  state.applyEvent({ type: "channel_deleted", channel: 1, keepFrom: 8 });
  deepEqual([topic.keepFrom, topic.channelStart, topic.liveFrom], [8, 8, 8]);
  equal(topic.channels.size, 0);
});

Deno.test("liveFrom is the oldest offset that a channel or the next channel is owed", () => {
  const { state, topic, channel } = orders();
  equal(topic.liveFrom, 0);
  state.applyFinish(1, 1);
  equal(topic.liveFrom, 0);
  state.applyFinish(1, 0);
  equal(topic.liveFrom, 2);
  const ephemeral = new ChannelState(0, topic, "tail#ephemeral", true, 1);
  topic.channels.set(ephemeral.name, ephemeral);
  deepEqual([topic.liveFrom, topic.durableChannelCount], [1, 1]);
  topic.channels.delete(ephemeral.name);
  channel.finished.raise(10);
  equal(topic.liveFrom, 10);
  // A channel made during a pause starts at the pause.
  state.applyEvent({ type: "topic_paused", topic: 1, paused: true, at: 4 });
  deepEqual([topic.liveFrom, topic.channelStart], [4, 4]);
  state.applyEvent({ type: "topic_paused", topic: 1, paused: false, at: 4 });
  topic.settled = false;
  deepEqual([topic.liveFrom, topic.channelStart], [0, 0]);
  const empty = stateOf(TOPIC).topics.get("orders")!;
  state.applyMessage(1, 10, 0, 0, 500);
  deepEqual([empty.liveFrom, empty.channelStart], [0, 0]);
});

Deno.test("channel_paused changes the channel alone", () => {
  const { state, topic, channel } = orders();
  state.applyEvent({ type: "channel_paused", channel: 1, paused: true });
  deepEqual([channel.paused, topic.paused], [true, false]);
  state.applyEvent({ type: "channel_paused", channel: 1, paused: false });
  equal(channel.paused, false);
});

Deno.test("records of what a topic or channel includes already are passed over for it alone", () => {
  const { state, topic, channel } = orders();
  state.applyEvent({ ...CHANNEL, channel: 2, name: "later" });
  const later = state.channelsByNumber.get(2)!;
  topic.includes = 100;
  later.includes = 100;
  state.applyEvent({ type: "topic_emptied", topic: 1, from: 0, to: 3 }, 99);
  deepEqual([topic.keepFrom, later.finished.floor, channel.finished.floor], [0, 0, 3]);
  state.applyEvent({ type: "topic_trimmed", topic: 1, to: 3 }, 99);
  deepEqual([topic.keepFrom, later.finished.floor, channel.finished.floor], [0, 0, 3]);
  state.applyEvent({ type: "topic_paused", topic: 1, paused: true, at: 8 }, 99);
  state.applyEvent({ type: "topic_configured", topic: 1, policy: { ack_mode: "write_ack" } }, 99);
  deepEqual([topic.paused, topic.policy], [false, {}]);
  state.applyEvent({ type: "channel_paused", channel: 2, paused: true }, 99);
  equal(later.paused, false);
  state.applyEvent({ type: "channel_emptied", channel: 2, to: 5 }, 99);
  state.applyFinish(2, 6, 99);
  state.applyRequeue({ channel: 2, offset: 7, attempts: 1, dueMs: 0 }, 99);
  deepEqual([later.finished.floor, later.finished.above, later.requeues.size], [0, 0, 0]);
  state.applyEvent({ type: "channel_deleted", channel: 1, keepFrom: 9 }, 99);
  deepEqual([topic.keepFrom, [...topic.channels.keys()]], [0, ["later"]]);

  state.applyEvent({ type: "topic_emptied", topic: 1, from: 0, to: 3 }, 100);
  state.applyEvent({ type: "topic_paused", topic: 1, paused: true, at: 8 }, 100);
  state.applyEvent({ type: "channel_paused", channel: 2, paused: true }, 100);
  state.applyFinish(2, 6, 100);
  state.applyRequeue({ channel: 2, offset: 7, attempts: 1, dueMs: 0 }, 100);
  state.applyEvent({ type: "topic_configured", topic: 1, policy: { ack_mode: "write_ack" } }, 100);
  deepEqual([topic.keepFrom, topic.paused, later.paused], [3, true, true]);
  equal(topic.ackMode, "write_ack");
  deepEqual([later.finished.floor, later.finished.above, later.requeues.size], [3, 1, 1]);
  state.applyEvent({ type: "channel_deleted", channel: 2, keepFrom: 9 }, 100);
  equal(topic.keepFrom, 9);
});

Deno.test("records below what a checkpoint knows may name what it does not have", () => {
  const state = new BrokerState();
  state.orphansFrom = 100;
  state.applyFinish(5, 0, 99);
  state.applyMessage(4, 0, 0, 0, 99);
  state.applyEvent({ type: "topic_deleted", topic: 4 }, 99);
  equal(state.orphanRecords, 0);
  state.applyFinish(5, 0, 100);
  equal(state.orphanRecords, 1);
});

Deno.test("of two topics or channels of one name the deletion of the older leaves the newer", () => {
  const { state, topic, channel } = orders();
  const newChannel = new ChannelState(9, topic, channel.name, false, 0);
  topic.channels.set(channel.name, newChannel);
  state.applyEvent({ type: "channel_deleted", channel: 1, keepFrom: 0 });
  equal(topic.channels.get(channel.name), newChannel);
  const newTopic = new TopicState(9, topic.name, false);
  state.topics.set(topic.name, newTopic);
  state.applyEvent({ type: "topic_deleted", topic: 1 });
  deepEqual([state.topics.get(topic.name), state.topicsByNumber.size], [newTopic, 0]);
});

Deno.test("isOwed() and owedCount() say what a channel has not finished, or one to come may get", () => {
  const { state, topic, channel } = orders();
  const owed = () => {
    const offsets: number[] = [];
    for (let offset = 0; offset < 14; offset++) if (topic.isOwed(offset)) offsets.push(offset);
    for (let from = 0; from < 14; from++) {
      for (let to = from; to <= 14; to++) {
        const within = offsets.filter((offset) => offset >= from && offset < to).length;
        equal(topic.owedCount(from, to), within, `[${from}, ${to})`);
      }
    }
    return offsets.filter((offset) => offset < 10);
  };
  for (const offset of [0, 1, 2, 4, 5, 8, 9]) state.applyFinish(1, offset);
  deepEqual(owed(), [3, 6, 7]);
  // One that nobody else knows of owes them all the same.
  const ephemeral = new ChannelState(0, topic, "e#ephemeral", true, 8);
  topic.channels.set(ephemeral.name, ephemeral);
  deepEqual(owed(), [3, 6, 7, 8, 9]);
  topic.channels.delete(ephemeral.name);
  // Behind a pause they wait for a channel that may still be made.
  state.applyEvent({ type: "topic_paused", topic: 1, paused: true, at: 9 });
  deepEqual(owed(), [3, 6, 7, 9]);
  state.applyEvent({ type: "topic_paused", topic: 1, paused: false, at: 10 });
  state.applyEvent({ type: "channel_deleted", channel: 1, keepFrom: 8 });
  deepEqual(owed(), [8, 9]);
  topic.settled = false;
  state.applyEvent({ ...CHANNEL, channel: 2, start: 9 } as Event);
  deepEqual(owed(), [8, 9]);
  topic.settled = true;
  deepEqual(owed(), [9]);
  equal(channel.finished.has(3), false);
});

Deno.test("requeues are forgotten with what finishes them, all at once or those of a range", () => {
  const { state, channel } = orders();
  for (const offset of [0, 3, 5, 8]) applyRequeue(channel, offset, 1, 0);
  const owedAgain = () => [...channel.requeues].map(([offset]) => offset).sort();
  state.applyEvent({ type: "topic_emptied", topic: 1, from: 4, to: 7 });
  deepEqual(owedAgain(), [0, 3, 8]);
  state.applyEvent({ type: "topic_emptied", topic: 1, from: 9, to: 10 });
  deepEqual(owedAgain(), [0, 3, 8]);
  state.applyEvent({ type: "channel_emptied", channel: 1, to: 4 });
  deepEqual(owedAgain(), [8]);
  state.applyEvent({ type: "channel_emptied", channel: 1, to: 9 });
  deepEqual(owedAgain(), []);
});
