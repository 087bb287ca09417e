/**
 * What a broker owes, as plain sets: the reference that a crash test holds against it. It knows
 * nothing of logs, offsets or files, only what was asked for, in which order, and how far the broker
 * said that all of it is on disk.
 *
 * - Every event carries the log end from which on it survives. The log is one order of everything, so
 *   a crash leaves a beginning of it: {@linkcode Model.restart} drops what lies behind the recovered
 *   end, and fails when the broker had confirmed more than that.
 * - A finish may be written later than it was asked for, but with the next group at the latest: it
 *   survives if anything does that was written after it was asked for.
 * - What ephemeral topics and channels hold is owed until the next restart.
 * - Topics of a relaxed mode are promised less: what the broker said is **written** survives a crash of
 *   the process, but not one of the machine. Of it there is never more than the loss window allows.
 *   Only in mode `nsq_relaxed` may a consumer see it.
 *
 * - What is given up at a topic's limit or for want of space is every message below one, of those
 *   published to the topic, whoever was owed it: {@linkcode ModelEvent} `topic_trimmed` says how many.
 *   What each channel loses for want of space is kept to be held against the reports on disk.
 *
 * Every broken promise is thrown as a {@linkcode Violation}.
 */
import type { AckMode, LossWindowLimits, Quota } from "@sluice/broker/storage";
import { isEphemeral } from "@sluice/shared/protocol";

/** A promise that the broker did not keep. */
export class Violation extends Error {
  override name = "Violation";
}

/** Throws {@linkcode Violation} unless `condition` holds. */
export function promised(condition: boolean, message: string): asserts condition {
  if (!condition) throw new Violation(message);
}

/** One thing that was asked of the broker. Times are Unix ms, 0 for at once. */
export type ModelEvent =
  | { readonly type: "topic_created"; readonly topic: string }
  | { readonly type: "topic_deleted"; readonly topic: string }
  /** `held`: without a channel, what waits for the first one stays behind the pause. */
  | {
    readonly type: "topic_paused";
    readonly topic: string;
    readonly paused: boolean;
    readonly held: boolean;
  }
  | { readonly type: "topic_emptied"; readonly topic: string }
  /** Null for the broker's mode. */
  | {
    readonly type: "topic_configured";
    readonly topic: string;
    readonly ackMode: AckMode | null;
  }
  /** Null for the broker's limit. */
  | { readonly type: "topic_limited"; readonly topic: string; readonly limit: Quota | null }
  /** The first `count` messages ever published to the topic are given up. */
  | {
    readonly type: "topic_trimmed";
    readonly topic: string;
    readonly count: number;
    readonly isEviction: boolean;
  }
  | ChannelEvent
  | {
    readonly type: "published";
    readonly topic: string;
    readonly sequence: number;
    readonly bytes: number;
    readonly dueMs: number;
    /** What its body is made from, when its sequence was not known yet. */
    readonly seed?: number;
    /** The publish of a producer that it completes: the topic has one of a name, whatever becomes of it. */
    readonly unit?: string;
  };

type ChannelEvent =
  & { readonly topic: string; readonly channel: string }
  & (
    | { readonly type: "channel_created" }
    | { readonly type: "channel_deleted" }
    | { readonly type: "channel_paused"; readonly paused: boolean }
    /** Messages that consumers could not see yet are spared. */
    | { readonly type: "channel_emptied"; readonly shownEnd: number }
    | { readonly type: "finished"; readonly sequence: number }
    | {
      readonly type: "requeued";
      readonly sequence: number;
      readonly attempts: number;
      readonly dueMs: number;
    }
  );

/** A message as it was published. */
export interface ModelMessage {
  readonly sequence: number;
  readonly bytes: number;
  readonly dueMs: number;
  readonly seed?: number;
  /** So many were published to the topic before. */
  readonly ordinal: number;
  /** It is on disk when the log is up to here. */
  readonly end: number;
}

/** A message that a channel owes. */
export interface Debt {
  readonly message: ModelMessage;
  /** Not to be delivered before. */
  dueMs: number;
  /** Deliveries so far; after a restart those that a durable requeue told of. */
  attempts: number;
  /** Until this monotonic time nobody else may get it; -Infinity when it is not in flight. */
  heldUntilMs: number;
}

/** What one channel owes. */
export class ModelChannel {
  readonly owed = new Map<number, Debt>();
  paused = false;

  /** Owed messages that may be delivered at `wallMs`. */
  dueBy(wallMs: number): number {
    let count = 0;
    for (const debt of this.owed.values()) if (debt.dueMs <= wallMs) count++;
    return count;
  }
}

/** What one topic holds for its channels. */
export class ModelTopic {
  readonly channels = new Map<string, ModelChannel>();
  /** Published while there was no channel that lasts: for the first one. */
  kept = new Map<number, ModelMessage>();
  /** Published behind a pause. */
  held = new Map<number, ModelMessage>();
  /** The publishes of producers that it has, and where each is on disk. */
  readonly units = new Map<string, number>();
  paused = false;
  ackMode: AckMode | null = null;
  limit: Quota | null = null;
  published = 0;
  /** Consumers may see what ends below, though it is not durable. */
  shownEnd = 0;

  constructor(readonly name: string) {}

  /** Nobody is or will be owed anything of it. */
  get isEmpty(): boolean {
    return this.kept.size + this.held.size === 0 &&
      [...this.channels.values()].every(({ owed }) => owed.size === 0);
  }

  get lastingChannels(): number {
    let count = 0;
    for (const name of this.channels.keys()) if (!isEphemeral(name)) count++;
    return count;
  }
}

interface Entry {
  readonly event: ModelEvent;
  readonly end: number;
}

/** What a channel, or a topic that kept it, lost for want of space. */
export interface ModelGap {
  readonly topic: string;
  /** Null for what no channel had been given. */
  readonly channel: string | null;
  /** Of the messages published to the topic the first so many are gone. */
  readonly count: number;
}

/** A delivery, as a consumer saw it. */
export interface ModelDelivery {
  readonly topic: string;
  readonly channel: string;
  readonly sequence: number;
  /** Null when it is read later, and checked then. */
  readonly body: Uint8Array | null;
  readonly attempts: number;
  readonly nowMs: number;
  readonly wallMs: number;
  readonly timeoutMs: number;
}

/** What the broker is set to. */
export interface ModelOptions {
  readonly ackMode: AckMode;
  readonly lossWindow: Pick<LossWindowLimits, "messages" | "bytes">;
  /** The limit of every topic without one of its own; none when absent. */
  readonly quota?: Quota;
}

const NO_QUOTA: Quota = { bytesMax: 0, action: "refuse" };
/** What a message takes of the loss window besides its body. */
const WIRE_HEADER_BYTES = 26;

/** See the module. */
export class Model {
  topics = new Map<string, ModelTopic>();
  /** The broker said that everything below is on disk. */
  confirmedEnd = 0;
  /** The broker said that everything below is written. */
  writtenEnd = 0;
  deliveries = 0;
  /** Messages of relaxed topics that were said to be written and went with the power. */
  lostWritten = 0;
  /** What was given up for want of space, by decisions that are in the log. */
  gaps: ModelGap[] = [];
  /** Decisions that gave up something. */
  trims = 0;
  readonly #options: ModelOptions;
  #entries: Entry[] = [];
  #sequenceMax = 0;
  /** Messages published in a relaxed mode that are not durable. */
  #relaxed: { readonly end: number; readonly bytes: number }[] = [];

  constructor(
    options: ModelOptions = { ackMode: "durable", lossWindow: { messages: 0, bytes: 0 } },
  ) {
    this.#options = options;
  }

  /** The mode in which a topic takes a publish. */
  ackModeOf(topic: string): AckMode {
    return this.topics.get(topic)?.ackMode ?? this.#options.ackMode;
  }

  /** The limit of a topic. */
  limitOf(topic: string): Quota {
    return this.topics.get(topic)?.limit ?? this.#options.quota ?? NO_QUOTA;
  }

  /** Consumers of a topic may see what ends below. */
  shownEndOf(topic: string): number {
    return Math.max(this.confirmedEnd, this.topics.get(topic)?.shownEnd ?? 0);
  }

  /** Something was asked for; it survives a crash that leaves the log up to `end`. */
  record(event: ModelEvent, end: number): void {
    if (event.type === "published") {
      promised(
        event.sequence > this.#sequenceMax,
        `sequence ${event.sequence} was used before (up to ${this.#sequenceMax})`,
      );
      this.#sequenceMax = event.sequence;
      if (this.ackModeOf(event.topic) !== "durable") {
        this.#relaxed.push({ end, bytes: WIRE_HEADER_BYTES + event.bytes });
      }
    }
    this.#entries.push({ event, end });
    this.#apply(event, end);
  }

  /** The broker says that everything below `end` is on disk. */
  confirm(end: number): void {
    this.confirmedEnd = Math.max(this.confirmedEnd, end);
    this.writtenEnd = Math.max(this.writtenEnd, end);
    this.#relaxed = this.#relaxed.filter((message) => message.end > this.confirmedEnd);
  }

  /** The broker says that everything below `end` is written: a power cut may take it still. */
  write(end: number): void {
    this.writtenEnd = Math.max(this.writtenEnd, end);
    for (const topic of this.topics.values()) {
      if (this.ackModeOf(topic.name) === "nsq_relaxed") topic.shownEnd = this.writtenEnd;
    }
    const { messages, bytes } = this.#options.lossWindow;
    const exposed = this.#relaxed.filter((message) => message.end <= this.writtenEnd);
    const exposedBytes = exposed.reduce((sum, message) => sum + message.bytes, 0);
    promised(
      exposed.length <= messages && exposedBytes <= bytes,
      `a power cut would take ${exposed.length} messages of ${exposedBytes} bytes: more than the ` +
        `loss window of ${messages} and ${bytes}`,
    );
  }

  /**
   * The broker is up again with a log up to `end`: what had not been written is gone, and unless only
   * the process ended, what was not durable may be.
   */
  restart(end: number, onlyProcess = false): void {
    promised(
      end >= this.confirmedEnd,
      `the log ends at ${end}, but everything up to ${this.confirmedEnd} was confirmed`,
    );
    promised(
      !onlyProcess || end >= this.writtenEnd,
      `the log ends at ${end} after a kill, but everything up to ${this.writtenEnd} was written`,
    );
    for (const message of this.#relaxed) {
      if (message.end > end && message.end <= this.writtenEnd) this.lostWritten++;
    }
    this.#entries = this.#entries.filter((entry) => entry.end <= end && lasts(entry.event));
    this.topics = new Map();
    this.gaps = [];
    for (const { event, end } of this.#entries) this.#apply(event, end);
    this.confirmedEnd = end;
    this.writtenEnd = end;
    this.#relaxed = [];
  }

  /** A consumer got a message. */
  deliver(delivery: ModelDelivery): Debt {
    const { topic, channel, sequence, body, attempts, nowMs, wallMs } = delivery;
    const what = `message ${sequence} on ${topic}/${channel}`;
    const debt = this.channel(topic, channel).owed.get(sequence);
    promised(debt !== undefined, `${what} was delivered, but is not owed`);
    promised(
      debt.message.end <= this.shownEndOf(topic),
      `${what} was delivered before it was durable`,
    );
    promised(debt.dueMs <= wallMs, `${what} was delivered ${debt.dueMs - wallMs} ms too early`);
    promised(debt.heldUntilMs <= nowMs, `${what} was delivered while in flight`);
    promised(
      attempts === debt.attempts + 1,
      `${what} was delivered as attempt ${attempts} after ${debt.attempts}`,
    );
    if (body !== null) checkBody(what, debt.message, body);
    debt.attempts = attempts;
    debt.heldUntilMs = nowMs + delivery.timeoutMs;
    this.deliveries++;
    return debt;
  }

  /** A channel that is there. */
  channel(topic: string, channel: string): ModelChannel {
    const found = this.topics.get(topic)?.channels.get(channel);
    promised(found !== undefined, `there is no channel ${topic}/${channel}`);
    return found;
  }

  #apply(event: ModelEvent, end: number): void {
    if (event.type === "topic_created") {
      this.topics.set(event.topic, new ModelTopic(event.topic));
      return;
    }
    const topic = this.topics.get(event.topic);
    promised(topic !== undefined, `there is no topic ${event.topic}`);
    switch (event.type) {
      case "topic_deleted":
        this.topics.delete(event.topic);
        return;
      case "topic_configured":
        topic.ackMode = event.ackMode;
        return;
      case "topic_limited":
        topic.limit = event.limit;
        return;
      case "topic_trimmed":
        this.#trim(topic, event.count, event.isEviction);
        return;
      case "topic_paused": {
        topic.paused = event.paused;
        if (event.paused) {
          if (event.held) [topic.held, topic.kept] = [topic.kept, new Map()];
          return;
        }
        const { held } = topic;
        topic.held = new Map();
        for (const message of held.values()) give(topic, message);
        return;
      }
      case "topic_emptied":
        // What is kept for the first lasting channel goes for ephemeral ones as well.
        for (const channel of topic.channels.values()) {
          for (const sequence of topic.kept.keys()) channel.owed.delete(sequence);
        }
        topic.held.clear();
        topic.kept.clear();
        return;
      case "published": {
        const { sequence, bytes, dueMs, seed, unit } = event;
        if (unit !== undefined) {
          promised(!topic.units.has(unit), `${topic.name} has publish ${unit} twice`);
          topic.units.set(unit, end);
        }
        const ordinal = topic.published++;
        const more = seed === undefined ? {} : { seed };
        const message = { sequence, bytes, dueMs, ordinal, end, ...more };
        if (topic.paused) topic.held.set(sequence, message);
        else give(topic, message);
        return;
      }
      case "channel_created": {
        const channel = new ModelChannel();
        if (topic.lastingChannels === 0) {
          for (const message of topic.kept.values()) owe(channel, message);
          if (!isEphemeral(event.channel)) topic.kept.clear();
        }
        topic.channels.set(event.channel, channel);
        return;
      }
      default:
        this.#applyToChannel(topic, event);
    }
  }

  #trim(topic: ModelTopic, count: number, isEviction: boolean): void {
    this.trims++;
    const gap = (channel: string | null, lost: number) => {
      if (isEviction && lost > 0) this.gaps.push({ topic: topic.name, channel, count });
    };
    gap(null, withoutFirst(topic.kept, count) + withoutFirst(topic.held, count));
    for (const [name, { owed }] of topic.channels) {
      let lost = 0;
      for (const [sequence, { message }] of owed) {
        if (message.ordinal < count && owed.delete(sequence)) lost++;
      }
      gap(name, lost);
    }
  }

  #applyToChannel(
    topic: ModelTopic,
    event: Exclude<ChannelEvent, { type: "channel_created" }>,
  ): void {
    const channel = topic.channels.get(event.channel);
    promised(channel !== undefined, `there is no channel ${event.topic}/${event.channel}`);
    switch (event.type) {
      case "channel_deleted":
        topic.channels.delete(event.channel);
        return;
      case "channel_paused":
        channel.paused = event.paused;
        return;
      case "channel_emptied":
        for (const { message } of channel.owed.values()) {
          if (message.end <= event.shownEnd) channel.owed.delete(message.sequence);
        }
        return;
      case "finished":
        channel.owed.delete(event.sequence);
        return;
      case "requeued": {
        const debt = channel.owed.get(event.sequence);
        promised(debt !== undefined, `message ${event.sequence} was requeued, but is not owed`);
        debt.attempts = event.attempts;
        debt.dueMs = event.dueMs;
        debt.heldUntilMs = -Infinity;
        return;
      }
    }
  }
}

/** The body of a message, from its sequence: any two differ, and so do neighbouring bytes. */
export function bodyOf(sequence: number, bytes: number): Uint8Array {
  const body = new Uint8Array(bytes);
  let word = Math.imul(sequence + 1, 0x9e3779b1);
  for (let index = 0; index < bytes; index++) {
    word = (Math.imul(word, 0x01000193) + 0x6d2b79f5) | 0;
    body[index] = word >>> 24;
  }
  return body;
}

/** Throws {@linkcode Violation} unless `body` is what was published. */
export function checkBody(what: string, message: ModelMessage, body: Uint8Array): void {
  promised(
    body.length === message.bytes,
    `${what} has ${body.length} bytes, published were ${message.bytes}`,
  );
  const expected = bodyOf(message.seed ?? message.sequence, message.bytes);
  for (let index = 0; index < body.length; index++) {
    promised(body[index] === expected[index], `${what} differs from what was published`);
  }
}

function lasts(event: ModelEvent): boolean {
  return !isEphemeral(event.topic) && !("channel" in event && isEphemeral(event.channel));
}

/** Takes out what was published first; returns how many went. */
function withoutFirst(messages: Map<number, ModelMessage>, count: number): number {
  const before = messages.size;
  for (const { sequence, ordinal } of messages.values()) {
    if (ordinal < count) messages.delete(sequence);
  }
  return before - messages.size;
}

function give(topic: ModelTopic, message: ModelMessage): void {
  for (const channel of topic.channels.values()) owe(channel, message);
  if (topic.lastingChannels === 0) topic.kept.set(message.sequence, message);
}

function owe(channel: ModelChannel, message: ModelMessage): void {
  channel.owed.set(message.sequence, {
    message,
    dueMs: message.dueMs,
    attempts: 0,
    heldUntilMs: -Infinity,
  });
}
