import { deepEqual, equal, ok, rejects } from "node:assert/strict";
import { LogError } from "@sluice/shared/log";
import { SeededRandom } from "@sluice/shared/testing";
import { encodeCheckpoint } from "./checkpoint.ts";
import type { SliceLimits } from "./checkpoint_chunk.ts";
import { decoded, slicesOf, textOf } from "./checkpoint_test_fixture.ts";
import type { Event } from "./records.ts";
import { applyFinish, applyRequeue, BrokerState, ChannelState, type TopicState } from "./state.ts";

const LARGEST = 2 ** 48 - 1;
/** With a name that only a newer release knows. */
const POLICY = { ack_mode: "write_ack", later: { "any": [1, "é"] } };
/** Every entry is a slice of its own. */
const SMALLEST: SliceLimits = { bytes: 1, work: 1 };

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
  state.applyEvent({ type: "topic_configured", topic: 1, policy: POLICY });
  return state;
}

function code(expected: LogError["code"]) {
  return (error: unknown) => error instanceof LogError && error.code === expected;
}

Deno.test("decodeCheckpoint() refuses another format and throws on what is no whole checkpoint", async () => {
  await rejects(decoded([Uint8Array.of(1, 2, 0, 0, 0)]), code("newer_format"));
  const slices = slicesOf(fullState(), 500, SMALLEST);
  const [header, first] = [slices[0]!, slices[1]!];
  const malformed: readonly Uint8Array[][] = [
    [],
    [Uint8Array.of(99)],
    [first],
    [header, header],
    [header, Uint8Array.of(99)],
    [header, first, first],
    [...slices, header],
    ...slices.map((_, length) => slices.slice(0, length)),
  ];
  for (const chunks of malformed) await rejects(decoded(chunks), code("damaged"));
  for (const tag of [3, 4, 5, 6, 7, 9]) {
    await rejects(decoded([header, Uint8Array.of(tag, ...new Uint8Array(64))]), code("damaged"));
  }
  await rejects(decoded([header, first.subarray(0, 5)]), RangeError);
});

Deno.test("decodeCheckpoint() gives the state that encodeCheckpoint() was given, in slices of any size", async () => {
  const state = fullState();
  for (const limits of [SMALLEST, { bytes: 100, work: 1000 }, undefined]) {
    const slices = slicesOf(state, LARGEST, limits);
    const { state: again, end, bytes } = await decoded(slices);
    equal(end, LARGEST);
    equal(bytes, slices.reduce((sum, slice) => sum + slice.length, 0));
    equal(textOf(again), textOf(state));
    const topic = again.topics.get("orders")!;
    equal(again.topicsByNumber.get(1), topic);
    const mail = again.channelsByNumber.get(2)!;
    equal(topic.channels.get("mail"), mail);
    equal(mail.topic, topic);
    deepEqual([topic.policy, topic.ackMode], [POLICY, "write_ack"]);
    deepEqual([mail.finished.floor, mail.finished.ranges()], [5, [9, 11, 12, 13, 18, 20]]);
    deepEqual([...mail.requeues], [[11, { attempts: 65_535, dueMs: 1_800_000_000_000 }]]);
    deepEqual([topic.includes, mail.includes, again.orphansFrom], [LARGEST, LARGEST, LARGEST]);
  }
});

Deno.test("a page of finishes is kept whether it is smaller as runs or as words", async () => {
  for (const step of [2, 31, 32, 33, 1000]) {
    const state = fullState();
    const { finished } = state.channelsByNumber.get(7)!;
    for (let offset = 5; offset < 70_000; offset += step) finished.add(offset);
    finished.addRange(100_000, 300_000);
    const slices = slicesOf(state, 0);
    const { state: again, bytes } = await decoded(slices);
    equal(textOf(again), textOf(state), `step ${step}`);
    ok(bytes < 300 + Math.min(3 * 4200, 4 * 70_000 / step + 1000), `step ${step}: ${bytes} bytes`);
  }
});

Deno.test("encodeCheckpoint() leaves ephemeral channels out", () => {
  const state = fullState();
  const topic = state.topics.get("orders")!;
  const before = slicesOf(state, 0);
  topic.channels.set("x#ephemeral", new ChannelState(0, topic, "x#ephemeral", true, 0));
  deepEqual(slicesOf(state, 0), before);
});

Deno.test("a slice of encodeCheckpoint() is bounded, whatever the state is made of", () => {
  const limits = { bytes: 2000, work: 64 };
  const entryBytesMax = 4200;
  const pageWork = 16;
  const wide = new BrokerState();
  for (let number = 1; number <= 500; number++) {
    wide.applyEvent({ type: "topic_created", topic: number, name: `t${number}`, ephemeral: false });
  }
  const deep = fullState();
  const mail = deep.channelsByNumber.get(2)!;
  for (let page = 1; page < 40; page++) mail.finished.add(page * 32_768 + 5);
  for (let page = 1; page < 10; page++) {
    for (let offset = 1; offset < 5000; offset += 2) mail.finished.add(page * 32_768 + offset);
  }
  for (let offset = 0; offset < 2000; offset++) {
    applyRequeue(mail, 3e6 + offset, 1, 0);
  }
  const idle = fullState();
  const orders = idle.topics.get("orders")!;
  for (let number = 0; number < 1000; number++) {
    const name = `${number}#ephemeral`;
    orders.channels.set(name, new ChannelState(0, orders, name, true, 0));
  }
  const expected: readonly [string, BrokerState, number][] = [
    ["many topics", wide, 500 / 64],
    ["one large channel", deep, (2000 + 48 * pageWork) / 64],
    ["nothing to write", idle, 1000 / 64],
  ];
  for (const [what, state, slicesMin] of expected) {
    const slices = slicesOf(state, 0, limits);
    ok(slices.length >= Math.floor(slicesMin), `${what}: ${slices.length} slices`);
    for (const slice of slices) ok(slice.length < limits.bytes + entryBytesMax, what);
  }
});

Deno.test("encodeCheckpoint() ends although the state grows faster than it writes", () => {
  const state = fullState();
  const mail = state.channelsByNumber.get(2)!;
  mail.finished.add(40);
  let next = 100;
  const writing = encodeCheckpoint(state, () => 0, SMALLEST);
  for (let slices = 0; writing.next().done !== true; slices++) {
    ok(slices < 100, "it goes on and on");
    for (let count = 0; count < 2; count++) {
      next++;
      const name = `n${next}`;
      state.applyEvent({ type: "topic_created", topic: next, name, ephemeral: false });
      state.applyEvent({ type: "channel_created", topic: 1, channel: next, name, start: 0 });
      applyRequeue(mail, next, 1, 0);
      mail.finished.add(next * 32_768);
    }
  }
});

interface Record {
  readonly position: number;
  apply(state: BrokerState, position: number): void;
}

/** A broker's state and its log, with finishes that are written some time after they took effect. */
class Recorded {
  readonly state = new BrokerState();
  readonly log: Record[] = [];
  end = 64;
  readonly #random: SeededRandom;
  /** Mostly makes and deletes. */
  readonly #churns: boolean;
  #unwritten: [number, number][] = [];

  constructor(random: SeededRandom) {
    this.#random = random;
    this.#churns = random.chance(0.4);
  }

  /** Something that a broker does. */
  step(): void {
    const random = this.#random;
    const topics = [...this.state.topics.values()];
    const topic = topics.length === 0 ? null : random.pick(topics);
    const channels = topic === null ? [] : [...topic.channels.values()];
    const channel = channels.length === 0 ? null : random.pick(channels);
    const what = this.#churns ? random.pick([5, 5, 10, 10, 20, 40, 60, 90]) : random.below(100);
    if (topic === null || what < 8) this.#createTopic();
    else if (channel === null || what < 16) this.#createChannel(topic);
    else if (what < 34) this.#publish(topic);
    else if (what < 60) this.#finish(channel);
    else if (what < 75) this.#requeue(channel);
    else if (what < 80) this.writeFinishes();
    else this.#decide(topic, channel);
  }

  writeFinishes(): void {
    for (const [channel, offset] of this.#unwritten) {
      if (!this.state.channelsByNumber.has(channel)) continue;
      this.#record((state, position) => state.applyFinish(channel, offset, position));
    }
    this.#unwritten = [];
  }

  #createTopic(): void {
    const name = `t${this.#random.below(5)}`;
    if (this.state.topics.has(name)) return;
    const topic = this.state.nextTopicNumber;
    this.#event({ type: "topic_created", topic, name, ephemeral: false });
  }

  #createChannel(topic: TopicState): void {
    const name = `c${this.#random.below(3)}`;
    if (topic.channels.has(name)) return;
    const channel = this.state.nextChannelNumber;
    const start = topic.channelStart;
    this.#event({ type: "channel_created", topic: topic.number, channel, name, start });
  }

  #publish(topic: TopicState): void {
    const offset = topic.tail + this.#random.pick([0, 0, 0, 0, 0, 0, 20_000]);
    const { number } = topic;
    const apply = (state: BrokerState, position: number) =>
      state.applyMessage(number, offset, 0, 0, position);
    apply(this.state, this.end);
    this.#record(apply);
  }

  #finish(channel: ChannelState): void {
    const offset = this.#offset(channel);
    if (offset < channel.topic.tail && applyFinish(channel, offset)) {
      this.#unwritten.push([channel.number, offset]);
    }
  }

  #requeue(channel: ChannelState): void {
    const offset = this.#offset(channel);
    if (offset >= channel.topic.tail) return;
    const attempts = this.#random.below(100);
    const requeue = { channel: channel.number, offset, attempts, dueMs: 0 };
    this.#record((state, position) => state.applyRequeue(requeue, position));
    applyRequeue(channel, offset, attempts, 0);
  }

  #decide(topic: TopicState, channel: ChannelState): void {
    const random = this.#random;
    const paused = random.chance(0.5);
    const from = Math.max(0, topic.tail - random.below(20));
    const to = Math.min(topic.tail, channel.finished.floor + random.below(20));
    const keepFrom = Math.max(0, topic.tail - random.below(3));
    const events: readonly Event[] = [
      { type: "channel_paused", channel: channel.number, paused },
      { type: "topic_paused", topic: topic.number, paused, at: topic.tail },
      { type: "topic_emptied", topic: topic.number, from, to: topic.tail },
      { type: "topic_configured", topic: topic.number, policy: paused ? { from } : {} },
      { type: "channel_emptied", channel: channel.number, to },
      { type: "channel_deleted", channel: channel.number, keepFrom },
      { type: "channel_deleted", channel: channel.number, keepFrom: topic.keepFrom },
      { type: "topic_deleted", topic: topic.number },
    ];
    this.#event(random.pick(this.#churns ? events.slice(5) : events));
  }

  #event(event: Event): void {
    this.#record((state, position) => void state.applyEvent(event, position));
    this.state.applyEvent(event);
  }

  #offset(channel: ChannelState): number {
    const { floor } = channel.finished;
    return this.#random.pick([floor, floor + 1, floor + this.#random.below(40_000)]);
  }

  #record(apply: Record["apply"]): void {
    this.log.push({ position: this.end, apply });
    this.end += 64;
  }
}

Deno.test("a checkpoint that took its time, with the log replayed from where it began, is the live state", async () => {
  const met = { behind: 0, topicTwice: 0, channelTwice: 0, pages: 0 };
  for (let seed = 0; seed < 1500; seed++) {
    const random = new SeededRandom(seed);
    const live = new Recorded(random);
    for (let count = random.below(120); count > 0; count--) live.step();
    const from = live.end;
    const limits = random.pick([SMALLEST, { bytes: 60, work: 4 }, { bytes: 5000, work: 16 }]);
    const slices: Uint8Array[] = [];
    const writing = encodeCheckpoint(live.state, () => live.end, limits);
    for (let slice = writing.next();; slice = writing.next()) {
      slices.push(slice.value.slice());
      if (slice.done === true) break;
      for (let count = random.below(5); count > 0; count--) live.step();
    }
    for (let count = random.below(20); count > 0; count--) live.step();
    live.writeFinishes();
    const { state, end } = await decoded(slices);
    if (textOf(state) !== textOf(live.state)) met.behind++;
    if (state.topicsByNumber.size > state.topics.size) met.topicTwice++;
    const channels = [...state.topicsByNumber.values()].map((topic) => topic.channels.size);
    if (state.channelsByNumber.size > channels.reduce((a, b) => a + b, 0)) met.channelTwice++;
    if (slices.some((slice) => slice[0] === 4)) met.pages++;
    ok(from <= end && end <= live.end);
    for (const { position, apply } of live.log) if (position >= from) apply(state, position);
    equal(textOf(state), textOf(live.state), `seed ${seed}`);
    equal(state.orphanRecords, 0, `seed ${seed}`);
  }
  const { behind, topicTwice, channelTwice, pages } = met;
  ok(behind > 1000 && topicTwice > 3 && channelTwice > 0 && pages > 100, JSON.stringify(met));
});

Deno.test("a checkpoint has the bytes that docs/format/data_folder.md shows", () => {
  const state = new BrokerState();
  state.applyEvent({ type: "topic_created", topic: 7, name: "orders", ephemeral: false });
  state.applyEvent({ type: "channel_created", topic: 7, channel: 2, name: "mail", start: 3 });
  for (let offset = 0; offset < 13; offset++) state.applyMessage(7, offset, 0, 0, 8 * offset);
  for (const offset of [3, 4, 9, 10, 12]) state.applyFinish(2, offset);
  state.applyRequeue({ channel: 2, offset: 5, attempts: 3, dueMs: 1_700_000_060_000 });
  const lines = slicesOf(state, 4096, SMALLEST).map((slice) =>
    [...slice].map((byte) => byte.toString(16).padStart(2, "0")).join(" ")
  );
  deepEqual(lines, [
    "01 01 00 00 00",
    "02 07 00 00 00 00 06 00 6f 72 64 65 72 73",
    "03 02 00 00 00 00 10 00 00 00 00 00 00 00 03 00 00 00 00 00 00 00 05 00 00 00 00 00 00 00 04 00 6d 61 69 6c",
    "04 00 00 00 00 00 00 00 00 02 00 09 00 0a 00 0c 00 0c 00",
    "05 05 00 00 00 00 00 00 00",
    "06 05 00 00 00 00 00 00 00 03 00 00 00 60 52 e6 cf 8b 01 00 00",
    "07 00 10 00 00 00 00 00 00 0d 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00",
    "08 00 10 00 00 00 00 00 00 08 00 00 00 03 00 00 00",
  ]);
  const page = new URL("../../docs/format/data_folder.md", import.meta.url);
  const text = Deno.readTextFileSync(page);
  for (const line of lines) ok(text.includes(line), line);
});
