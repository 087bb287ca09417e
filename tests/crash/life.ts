/**
 * One life of a broker under test: the broker with its clock, the consumers that play with it, and
 * the model that is told of everything. Operations here are done to both, and compared at once.
 */
import {
  type Broker,
  DamagedBodyError,
  type DurableWaiter,
  type LargeUpload,
  RefusedError,
} from "@sluice/broker/broker";
import type {
  Channel,
  Consumer,
  ConsumerPort,
  LargeMessage,
  MessageView,
  Topic,
} from "@sluice/broker/queue";
import type { AckMode, Origin, Quota } from "@sluice/broker/storage";
import type { SeededRandom, SimClock } from "@sluice/shared/testing";
import { bodyOf, checkBody, type Debt, type Model, promised, Violation } from "./model.ts";

/** What a publisher to a topic at its limit is told. */
const QUOTA_TEXT = "the topic has reached its limit";
/** Bytes of the wire part of a message before its body. */
const WIRE_HEADER_BYTES = 26;

/** A line of a report about messages that were given up for want of space. */
export interface ReportedGap {
  readonly topic: string;
  readonly channel?: string;
  readonly from: number;
  readonly to: number;
  readonly messages: number;
}

/** A delivery that a consumer has not answered. */
interface Held {
  readonly debt: Debt;
  readonly untilMs: number;
  readonly attempts: number;
}

/** A subscription without a connection. */
export class FakeConsumer implements ConsumerPort {
  readonly writable = true;
  readonly held = new Map<number, Held>();
  /** Sequences it ever got. */
  readonly got = new Set<number>();
  consumer: Consumer | null = null;
  gone = false;

  constructor(
    readonly life: Life,
    readonly topic: Topic,
    readonly channel: Channel,
    readonly timeoutMs: number,
  ) {}

  deliver(message: MessageView, attempts: number): void {
    const { life } = this;
    life.guard(() => {
      const nowMs = life.clock.monoMs();
      const { start, large } = message;
      const debt = life.model.deliver({
        topic: this.topic.state.name,
        channel: this.channel.state.name,
        sequence: message.sequence,
        body: large === null
          ? message.bytes.subarray(start + WIRE_HEADER_BYTES, start + message.length)
          : null,
        attempts,
        nowMs,
        wallMs: life.clock.wallMs(),
        timeoutMs: this.timeoutMs,
      });
      if (large !== null) void life.readBody(large, debt);
      this.got.add(message.sequence);
      this.held.set(message.sequence, { debt, untilMs: debt.heldUntilMs, attempts });
    });
  }

  channelDeleted(): void {
    this.gone = true;
  }
}

/** A large message on its way in. */
export interface LifeUpload {
  readonly topic: string;
  readonly upload: LargeUpload;
  readonly body: Uint8Array;
  readonly seed: number;
}

/** See the module. */
export class Life {
  readonly consumers: FakeConsumer[] = [];
  readonly uploads: LifeUpload[] = [];
  /** Bodies of large messages read whole. */
  bodiesRead = 0;
  /** The first broken promise that was seen where nothing can be thrown. */
  violation: Error | null = null;
  #isAdmitting = false;

  constructor(
    readonly broker: Broker,
    readonly clock: SimClock,
    readonly model: Model,
    readonly random: SeededRandom,
    readonly note: (line: string) => void,
    /** What the reports on disk say of messages that were given up for want of space. */
    readonly readReports: () => Promise<readonly ReportedGap[]>,
  ) {
    broker.await(this.#waiter());
    this.#watchTrims();
  }

  /** Messages are given up in the middle of other things, at a decision that is seen here. */
  #watchTrims(): void {
    const { storage } = this.broker;
    const decide = storage.decide.bind(storage);
    storage.decide = (event) => {
      const topic = event.type === "topic_trimmed"
        ? storage.state.topicsByNumber.get(event.topic)?.name
        : undefined;
      if (event.type !== "topic_trimmed" || topic === undefined) return decide(event);
      this.guard(() => this.#checkTrim(topic, event.to));
      const result = decide(event);
      this.note(`give up ${topic} below ${event.to}, ${this.#isAdmitting ? "limit" : "eviction"}`);
      const isEviction = !this.#isAdmitting;
      const { position } = this.broker;
      this.model.record({ type: "topic_trimmed", topic, count: event.to, isEviction }, position);
      this.#forgetHeld(topic);
      return result;
    };
  }

  /** What may be given up: what can be seen at a limit that says so, what is in old files otherwise. */
  #checkTrim(name: string, count: number): void {
    const topic = this.model.topics.get(name);
    promised(topic !== undefined, `${name} is there when its messages are given up`);
    if (this.#isAdmitting) {
      const { action, bytesMax } = this.model.limitOf(name);
      promised(action === "drop_oldest" && bytesMax > 0, `${name} may give up its oldest messages`);
      for (const { ordinal } of topic.held.values()) {
        promised(ordinal >= count, `${name} gives up what waits behind its pause`);
      }
    }
    const seenEnd = this.#isAdmitting ? this.model.shownEndOf(name) : this.model.confirmedEnd;
    for (const { owed } of topic.channels.values()) {
      for (const { message } of owed.values()) {
        const isSeen = message.ordinal >= count || message.end <= seenEnd;
        promised(
          isSeen,
          `${name} gives up message ${message.sequence}, which nobody could see yet`,
        );
      }
    }
  }

  /** What consumers hold and is not owed any more is not in flight any more. */
  #forgetHeld(topic: string): void {
    for (const fake of this.consumers.filter(({ topic: { state } }) => state.name === topic)) {
      const owed = this.model.topics.get(topic)?.channels.get(fake.channel.state.name)?.owed;
      for (const sequence of fake.held.keys()) {
        if (owed?.has(sequence) !== true) fake.held.delete(sequence);
      }
    }
  }

  /** Whether a publish to a topic is taken: the log and the topic may be full. */
  admits(topicName: string): boolean {
    const { broker, model } = this;
    const topic = broker.topics.get(topicName);
    this.#isAdmitting = true;
    try {
      broker.admit();
      if (topic !== undefined) broker.admitTo(topic);
    } catch (error) {
      if (!(error instanceof RefusedError) || error.code !== "throttled") throw error;
      this.note(`refused on ${topicName}: ${error.message}`);
      const isLimit = error.message === QUOTA_TEXT;
      promised(
        !isLimit || model.topics.get(topicName)?.isEmpty === false,
        `${topicName} holds nothing, and refuses a publish`,
      );
      return false;
    } finally {
      this.#isAdmitting = false;
    }
    return true;
  }

  /** Runs a check where nothing may be thrown; {@linkcode rethrow} throws what it found. */
  guard(check: () => void): void {
    try {
      check();
    } catch (error) {
      this.violation ??= error instanceof Error ? error : new Violation(String(error));
    }
  }

  rethrow(): void {
    if (this.violation !== null) throw this.violation;
  }

  topic(name: string): Topic {
    const known = this.broker.topics.get(name);
    if (known !== undefined) return known;
    const topic = this.broker.ensureTopic(name);
    this.note(`create ${name}`);
    this.model.record({ type: "topic_created", topic: name }, this.broker.position);
    return topic;
  }

  channel(topic: Topic, name: string): Channel {
    const known = topic.channels.get(name);
    if (known !== undefined) return known;
    this.note(`create ${topic.state.name}/${name}`);
    const channel = this.broker.ensureChannel(topic, name);
    this.model.record(
      { type: "channel_created", topic: topic.state.name, channel: name },
      this.broker.position,
    );
    return channel;
  }

  /** With an origin, `unit` is its name. */
  publish(
    topic: Topic,
    bytes: number,
    dueMs: number,
    origin: Origin | null = null,
    unit?: string,
  ): void {
    const { broker } = this;
    if (!this.admits(topic.state.name)) return;
    const sequence = broker.storage.nextSequence;
    const body = bodyOf(sequence, bytes);
    broker.publish(topic, body, 0, bytes, dueMs, origin);
    const names = unit === undefined ? {} : { unit };
    this.note(`publish ${topic.state.name} ${sequence} ${bytes} bytes due ${dueMs} ${unit ?? ""}`);
    this.model.record(
      { type: "published", topic: topic.state.name, sequence, bytes, dueMs, ...names },
      broker.position,
    );
  }

  beginUpload(topic: string, bytes: number): void {
    if (!this.admits(topic)) return;
    const upload = this.broker.beginUpload(() => {});
    if (upload === null) return;
    const seed = this.random.below(2 ** 31);
    this.note(`upload to ${topic}: ${bytes} bytes of seed ${seed}`);
    this.uploads.push({ topic, upload, body: bodyOf(seed, bytes), seed });
  }

  /** Gives an upload some more bytes, and makes a message of it once it has all. */
  feedUpload(one: LifeUpload, bytes: number): void {
    const { upload, body, topic: name, seed } = one;
    const { broker } = this;
    const before = upload.bytes;
    upload.receive(body, before, Math.min(body.length, before + bytes));
    // What it has to wait for happens meanwhile.
    broker.room().catch((error) => this.note(`room: ${error}`));
    if (upload.bytes < body.length) return;
    const topic = this.topic(name);
    const sequence = broker.storage.nextSequence;
    if (!upload.finish(topic, 0)) return;
    this.uploads.splice(this.uploads.indexOf(one), 1);
    this.note(`publish ${name} ${sequence} in parts, ${body.length} bytes of seed ${seed}`);
    this.model.record(
      { type: "published", topic: name, sequence, bytes: body.length, dueMs: 0, seed },
      broker.position,
    );
  }

  abandonUpload(one: LifeUpload): void {
    this.note(`abandon an upload to ${one.topic}`);
    this.uploads.splice(this.uploads.indexOf(one), 1);
    one.upload.abandon();
  }

  /** Reads a body as a connection would, and checks it. What a crash interrupts is not held against it. */
  async readBody(large: LargeMessage, { message }: Debt): Promise<void> {
    const reader = this.broker.readBody(large.body);
    const body = new Uint8Array(large.body.bytes);
    let at = 0;
    try {
      for (let part = await reader.next(); part !== null; part = await reader.next()) {
        body.set(part, at);
        at += part.length;
      }
      this.bodiesRead++;
    } catch (error) {
      if (error instanceof DamagedBodyError) this.violation ??= error;
      return;
    } finally {
      reader.close();
    }
    this.guard(() => checkBody(`message ${message.sequence} in parts`, message, body));
  }

  join(topic: Topic, channel: Channel, timeoutMs: number): FakeConsumer {
    const fake = new FakeConsumer(this, topic, channel, timeoutMs);
    fake.consumer = channel.join(fake, timeoutMs, 0);
    promised(fake.consumer !== null, "a channel without a limit takes a consumer");
    this.consumers.push(fake);
    return fake;
  }

  credit(fake: FakeConsumer, ready: number): void {
    fake.channel.credit(consumerOf(fake), ready);
  }

  leave(fake: FakeConsumer): void {
    this.note(`leave ${nameOf(fake)}`);
    this.consumers.splice(this.consumers.indexOf(fake), 1);
    for (const { debt, untilMs } of fake.held.values()) {
      if (debt.heldUntilMs === untilMs) debt.heldUntilMs = -Infinity;
    }
    const { topic, channel } = fake;
    const wasDeleted = [topic.deleted, channel.deleted];
    this.broker.leave(topic, channel, consumerOf(fake));
    const names = { topic: topic.state.name, channel: channel.state.name };
    const { position } = this.broker;
    if (channel.deleted && !wasDeleted[1]) {
      this.model.record({ type: "channel_deleted", ...names }, position);
    }
    if (topic.deleted && !wasDeleted[0]) {
      this.model.record({ type: "topic_deleted", topic: names.topic }, position);
    }
  }

  finish(fake: FakeConsumer, sequence: number): void {
    const mark = this.broker.position;
    const outcome = fake.channel.finish(consumerOf(fake), sequence);
    this.note(`finish ${nameOf(fake)} ${sequence}: ${outcome}`);
    if (this.#answered(fake, sequence, outcome)) {
      this.model.record({ type: "finished", ...namesOf(fake), sequence }, mark + 1);
    }
  }

  requeue(fake: FakeConsumer, sequence: number, delayMs: number): void {
    const { clock } = this;
    const held = fake.held.get(sequence);
    const outcome = fake.channel.requeue(
      consumerOf(fake),
      sequence,
      delayMs,
      clock.monoMs(),
      clock.wallMs(),
    );
    this.note(`requeue ${nameOf(fake)} ${sequence} by ${delayMs}: ${outcome}`);
    if (!this.#answered(fake, sequence, outcome) || held === undefined) return;
    const dueMs = delayMs === 0 ? 0 : clock.wallMs() + delayMs;
    this.model.record(
      { type: "requeued", ...namesOf(fake), sequence, attempts: held.attempts, dueMs },
      this.broker.position,
    );
  }

  touch(fake: FakeConsumer, sequence: number): void {
    const nowMs = this.clock.monoMs();
    const outcome = fake.channel.touch(consumerOf(fake), sequence, nowMs);
    const held = fake.held.get(sequence);
    if (!this.#answered(fake, sequence, outcome) || held === undefined) return;
    const untilMs = nowMs + fake.timeoutMs;
    held.debt.heldUntilMs = untilMs;
    fake.held.set(sequence, { ...held, untilMs });
  }

  /** Has publishes to a topic confirmed in another mode from now on; null for the broker's. */
  async configureTopic(topic: Topic, ackMode: AckMode | null): Promise<void> {
    await this.broker.storage.allowPolicies();
    if (topic.deleted) return;
    this.note(`configure ${topic.state.name} ${ackMode}`);
    this.#decide(
      () => this.broker.administration.configureTopic(topic, { ack_mode: ackMode }),
      () => ({
        type: "topic_configured",
        topic: topic.state.name,
        ackMode,
      }),
    );
  }

  /** Bounds what a topic holds from now on; null for the broker's bound. */
  async limitTopic(topic: Topic, limit: Quota | null): Promise<void> {
    await this.broker.storage.allowPolicies();
    if (topic.deleted) return;
    this.note(`limit ${topic.state.name} ${JSON.stringify(limit)}`);
    const changes = { quota_bytes: limit?.bytesMax ?? null, quota_action: limit?.action ?? null };
    this.#decide(() => this.broker.administration.configureTopic(topic, changes), () => ({
      type: "topic_limited",
      topic: topic.state.name,
      limit,
    }));
  }

  pauseTopic(topic: Topic, paused: boolean): void {
    this.note(`pause ${topic.state.name} ${paused}`);
    const held = topic.channels.size === 0;
    this.#decide(() => this.broker.administration.pauseTopic(topic, paused), () => ({
      type: "topic_paused",
      topic: topic.state.name,
      paused,
      held,
    }));
  }

  pauseChannel(topic: Topic, channel: Channel, paused: boolean): void {
    this.note(`pause ${topic.state.name}/${channel.state.name} ${paused}`);
    if (channel.state.paused === paused) return;
    this.broker.administration.pauseChannel(channel, paused);
    this.model.record({
      type: "channel_paused",
      topic: topic.state.name,
      channel: channel.state.name,
      paused,
    }, this.broker.position);
  }

  emptyTopic(topic: Topic): void {
    this.note(`empty ${topic.state.name}`);
    this.#decide(() => this.broker.administration.emptyTopic(topic), () => ({
      type: "topic_emptied",
      topic: topic.state.name,
    }));
    this.#forgetHeld(topic.state.name);
  }

  emptyChannel(topic: Topic, channel: Channel): void {
    this.note(`empty ${topic.state.name}/${channel.state.name}`);
    const shownEnd = this.model.shownEndOf(topic.state.name);
    channel.empty();
    for (const fake of this.consumers) if (fake.channel === channel) fake.held.clear();
    this.model.record({
      type: "channel_emptied",
      topic: topic.state.name,
      channel: channel.state.name,
      shownEnd,
    }, this.broker.position);
  }

  deleteChannel(topic: Topic, channel: Channel): void {
    this.note(`delete ${topic.state.name}/${channel.state.name}`);
    const names = { topic: topic.state.name, channel: channel.state.name };
    this.broker.administration.deleteChannel(topic, channel);
    const { position } = this.broker;
    this.model.record({ type: "channel_deleted", ...names }, position);
    if (topic.deleted) this.model.record({ type: "topic_deleted", topic: names.topic }, position);
    this.#dropGone();
  }

  deleteTopic(topic: Topic): void {
    this.note(`delete ${topic.state.name}`);
    this.broker.administration.deleteTopic(topic);
    this.model.record({ type: "topic_deleted", topic: topic.state.name }, this.broker.position);
    this.#dropGone();
  }

  /** Asks for everything so far to be durable, and checks the answer when it comes. */
  confirm(): void {
    const { position } = this.broker;
    this.note(`confirm ${position}`);
    this.broker.durableTo(position).then(
      () => this.guard(() => promised(this.model.confirmedEnd >= position, "confirmed too early")),
      () => this.guard(() => promised(this.broker.failure !== null, "refused without a failure")),
    );
  }

  /** Asks for what was published to a topic to be confirmed as its mode says, and checks the answer. */
  acknowledge(topic: Topic): void {
    const { position } = this.broker;
    const isDurable = this.model.ackModeOf(topic.state.name) === "durable";
    this.note(`acknowledge ${position}`);
    this.broker.confirmable(topic, position).then(
      () =>
        this.guard(() => {
          const end = isDurable ? this.model.confirmedEnd : this.model.writtenEnd;
          promised(end >= position, "acknowledged too early");
        }),
      () => this.guard(() => promised(this.broker.failure !== null, "refused without a failure")),
    );
  }

  #decide(act: () => void, event: () => Parameters<Model["record"]>[0]): void {
    const before = this.broker.position;
    act();
    if (this.broker.position > before) this.model.record(event(), this.broker.position);
  }

  #dropGone(): void {
    for (const fake of this.consumers.filter((candidate) => candidate.gone)) {
      this.consumers.splice(this.consumers.indexOf(fake), 1);
      this.broker.leave(fake.topic, fake.channel, consumerOf(fake));
    }
  }

  /** Takes a delivery off a consumer; false when it had been taken back, as it may be when timed out. */
  #answered(fake: FakeConsumer, sequence: number, outcome: string): boolean {
    const held = fake.held.get(sequence);
    fake.held.delete(sequence);
    if (outcome === "done") return true;
    const stillHeld = held !== undefined && held.debt.heldUntilMs === held.untilMs &&
      held.untilMs > this.clock.monoMs();
    promised(!stillHeld, `message ${sequence} is in flight on ${nameOf(fake)}, but: ${outcome}`);
    return false;
  }

  #waiter(): DurableWaiter {
    return {
      durable: (end) => {
        this.guard(() => {
          promised(this.broker.failure === null, "something was confirmed after a failed write");
        });
        this.model.confirm(end);
        return true;
      },
      written: (end) => {
        this.guard(() => this.model.write(end));
        return true;
      },
      failed: () => this.note("the log has failed"),
    };
  }
}

function consumerOf(fake: FakeConsumer): Consumer {
  promised(fake.consumer !== null, "the consumer has joined");
  return fake.consumer;
}

function namesOf(fake: FakeConsumer): { topic: string; channel: string } {
  return { topic: fake.topic.state.name, channel: fake.channel.state.name };
}

function nameOf(fake: FakeConsumer): string {
  return `${fake.topic.state.name}/${fake.channel.state.name}`;
}
