/**
 * What a broker knows durably: topics, channels, what each channel has finished and what it owes at
 * which time. Every change is an `apply...` of one record, live and in replay alike, so that
 * replaying the log gives the state that was.
 *
 * A state restored from a checkpoint holds each topic and channel as of a position of its own, what it
 * **includes**; records below it are passed over for that topic or channel. Live, there are none.
 *
 * Which messages a channel sees:
 * - A topic is a dense run of offsets `[0, tail)`; a channel owes those from its start that it has
 *   not finished.
 * - `keepFrom` is where the next channel starts while the topic has no durable channel: messages
 *   published meanwhile are kept for it. With durable channels a new one starts at the visible end.
 * - A paused topic shows its channels nothing from `pausedAt` on.
 */
import { LogError } from "@sluice/shared/log";
import { DedupBudget, DedupWindow } from "./dedup_window.ts";
import { DueHeap } from "./due_heap.ts";
import { countUnfinished, FinishedSet } from "./finished_set.ts";
import type { Event, Requeue } from "./records.ts";
import { RequeueTable } from "./requeue_table.ts";
import { TopicIndex } from "./topic_index.ts";
import { type AckMode, ackModeOf, NO_POLICY, type TopicPolicy } from "./topic_policy.ts";

/** A channel's durable part. `number` is 0 for an ephemeral one, which the log knows nothing of. */
export class ChannelState {
  readonly finished: FinishedSet;
  readonly requeues = new RequeueTable();
  paused = false;
  /** Records below this position are in it already. */
  includes = 0;
  /** Finished since the last group was closed; written as one record with it. */
  unwritten: number[] = [];

  constructor(
    readonly number: number,
    readonly topic: TopicState,
    readonly name: string,
    readonly ephemeral: boolean,
    /** The first offset it ever owed. */
    readonly start: number,
  ) {
    this.finished = new FinishedSet(start);
  }
}

/** A large message whose body begins in an earlier log file than its record. */
export interface LargePin {
  readonly offset: number;
  /** Position of the body's first part. */
  readonly first: number;
}

/** A topic's durable part. */
export class TopicState {
  readonly channels = new Map<string, ChannelState>();
  readonly index = new TopicIndex();
  /** Deferred messages that are durable, visible and not due yet. */
  readonly due = new DueHeap();
  /** Records below this position are in its own values already; each channel has its own. */
  includes = 0;
  /** The next offset. */
  tail = 0;
  /** Messages below may be delivered: they are on disk, or in mode `nsq_relaxed` written. */
  durableTail = 0;
  /** What `durableTail` becomes at the next sync. */
  syncingTail = 0;
  /** What `syncingTail` becomes when the group being written is. */
  writingTail = 0;
  /** Whether the group being filled holds messages of this topic. */
  touched = false;
  /** Whether a group that is written and not synced does. */
  unsynced = false;
  keepFrom = 0;
  /** False while the channels that others know for it are being asked for. */
  settled = true;
  paused = false;
  pausedAt = 0;
  /** Deferred messages that are not durable or not visible yet: pairs of Unix ms and offset, ascending. */
  hiddenDue: number[] = [];
  /** Deferred messages that came due while kept for the first channel. */
  keptDue: number[] = [];
  /** Bodies that keep files before their messages'; ascending by offset. */
  largePins: LargePin[] = [];
  /** The publishes with a sequence that it has; null while there was none. */
  dedup: DedupWindow | null = null;
  #policy = NO_POLICY;
  #ackMode: AckMode | null = null;

  constructor(readonly number: number, readonly name: string, readonly ephemeral: boolean) {}

  /** What was decided for this topic alone. */
  get policy(): TopicPolicy {
    return this.#policy;
  }

  set policy(policy: TopicPolicy) {
    this.#policy = policy;
    this.#ackMode = ackModeOf(policy);
  }

  /** Its own mode; null for the broker's. */
  get ackMode(): AckMode | null {
    return this.#ackMode;
  }

  get durableChannelCount(): number {
    let count = 0;
    for (const channel of this.channels.values()) if (!channel.ephemeral) count++;
    return count;
  }

  /** Channels may see offsets below this. */
  get visibleTail(): number {
    return this.paused ? Math.min(this.pausedAt, this.durableTail) : this.durableTail;
  }

  /** Where a channel created now starts. */
  get channelStart(): number {
    if (this.durableChannelCount === 0 || !this.settled) return this.keepFrom;
    return this.paused ? this.pausedAt : this.tail;
  }

  /** The oldest offset that anybody is owed. */
  get liveFrom(): number {
    let oldest = this.durableChannelCount === 0 || !this.settled ? this.keepFrom : this.tail;
    for (const channel of this.channels.values()) {
      oldest = Math.min(oldest, channel.finished.floor);
    }
    // A channel made during a pause starts there.
    return this.paused ? Math.min(oldest, this.pausedAt) : oldest;
  }

  /** What its messages take in the log, those that are finished but still there too. */
  get storedBytes(): number {
    return this.index.storedBytes;
  }

  /**
   * Every offset from here on is owed, whatever the channels have finished: kept for a channel to
   * come. Infinity when there is none. It only grows.
   */
  get keptFrom(): number {
    const kept = this.durableChannelCount === 0 || !this.settled ? this.keepFrom : Infinity;
    // A channel made during a pause starts there.
    return this.paused ? Math.min(kept, this.pausedAt) : kept;
  }

  /** Whether anybody is or may be owed this message. Once it is false it stays so. */
  isOwed(offset: number): boolean {
    for (const { finished } of this.channels.values()) if (!finished.has(offset)) return true;
    return offset >= this.keptFrom;
  }

  /** How many messages of `[from, to)` somebody is or may be owed. */
  owedCount(from: number, to: number): number {
    const kept = Math.max(from, Math.min(to, this.keptFrom));
    const sets: FinishedSet[] = [];
    for (const { finished } of this.channels.values()) sets.push(finished);
    return to - kept + countUnfinished(sets, from, kept);
  }

  /** Keeps the log from `first` on for a large message; one that is known already stays as it is. */
  pinLarge(offset: number, first: number): void {
    const last = this.largePins.at(-1);
    if (last === undefined || last.offset < offset) this.largePins.push({ offset, first });
  }

  /** Forgets the bodies that nobody is owed, and gives the lowest position that the others keep. */
  largePinnedFrom(): number {
    if (this.largePins.length === 0) return Infinity;
    const { liveFrom } = this;
    // What a channel that is yet to be made would be owed stays as well.
    const isKept = this.durableChannelCount === 0 || !this.settled;
    const keptFrom = isKept ? liveFrom : this.paused ? this.pausedAt : Infinity;
    const channels = [...this.channels.values()];
    this.largePins = this.largePins.filter(({ offset }) =>
      offset >= liveFrom &&
      (offset >= keptFrom || channels.some(({ finished }) => !finished.has(offset)))
    );
    return this.largePins.reduce((lowest, { first }) => Math.min(lowest, first), Infinity);
  }
}

/** All topics and channels of a broker. */
export class BrokerState {
  readonly topics = new Map<string, TopicState>();
  readonly topicsByNumber = new Map<number, TopicState>();
  readonly channelsByNumber = new Map<number, ChannelState>();
  nextTopicNumber = 1;
  nextChannelNumber = 1;
  /** Records that named a topic or channel that is not known; only damage makes them. */
  orphanRecords = 0;
  /** Records below this position may name what was deleted before a checkpoint came to it. */
  orphansFrom = 0;

  constructor(readonly dedup: DedupBudget = new DedupBudget()) {}

  /**
   * Applies a decision and returns what it created, if anything; in replay `position` is its record's.
   * Throws {@linkcode LogError} for one of a type that only a newer release knows.
   */
  applyEvent(event: Event, position = Infinity): TopicState | ChannelState | null {
    switch (event.type) {
      case "topic_created": {
        // Made anew if a checkpoint had it already: all that is about it follows in the log.
        const before = this.topics.get(event.name);
        if (before !== undefined) this.#deleteTopic(before);
        const topic = new TopicState(event.topic, event.name, event.ephemeral);
        this.topics.set(topic.name, topic);
        this.topicsByNumber.set(topic.number, topic);
        this.nextTopicNumber = Math.max(this.nextTopicNumber, topic.number + 1);
        return topic;
      }
      case "channel_created": {
        const topic = this.topicsByNumber.get(event.topic);
        if (topic === undefined) return this.#orphan(position);
        const before = topic.channels.get(event.name);
        if (before !== undefined) this.channelsByNumber.delete(before.number);
        known(topic, event.start);
        const channel = new ChannelState(event.channel, topic, event.name, false, event.start);
        topic.channels.set(channel.name, channel);
        this.channelsByNumber.set(channel.number, channel);
        this.nextChannelNumber = Math.max(this.nextChannelNumber, channel.number + 1);
        return channel;
      }
      case "topic_deleted": {
        const topic = this.topicsByNumber.get(event.topic);
        if (topic === undefined) return this.#orphan(position);
        this.#deleteTopic(topic);
        return null;
      }
      case "topic_paused": {
        const topic = this.topicsByNumber.get(event.topic);
        if (topic === undefined) return this.#orphan(position);
        known(topic, event.at);
        if (position < topic.includes) return null;
        topic.paused = event.paused;
        topic.pausedAt = event.at;
        return null;
      }
      case "topic_configured": {
        const topic = this.topicsByNumber.get(event.topic);
        if (topic === undefined) return this.#orphan(position);
        if (position >= topic.includes) topic.policy = event.policy;
        return null;
      }
      case "topic_emptied": {
        const topic = this.topicsByNumber.get(event.topic);
        if (topic === undefined) return this.#orphan(position);
        known(topic, event.to);
        if (position >= topic.includes) {
          topic.keepFrom = Math.max(topic.keepFrom, event.to);
          if (topic.paused) topic.pausedAt = event.to;
        }
        for (const channel of topic.channels.values()) {
          if (position < channel.includes) continue;
          channel.finished.addRange(event.from, event.to);
          channel.requeues.deleteRange(event.from, event.to);
        }
        return null;
      }
      case "topic_trimmed": {
        const topic = this.topicsByNumber.get(event.topic);
        if (topic === undefined) return this.#orphan(position);
        known(topic, event.to);
        if (position >= topic.includes) {
          topic.keepFrom = Math.max(topic.keepFrom, event.to);
          if (topic.paused) topic.pausedAt = Math.max(topic.pausedAt, event.to);
        }
        for (const channel of topic.channels.values()) {
          if (position >= channel.includes) applyEmptied(channel, event.to);
        }
        return null;
      }
      case "channel_deleted": {
        const channel = this.channelsByNumber.get(event.channel);
        if (channel === undefined) return this.#orphan(position);
        const { topic } = channel;
        known(topic, event.keepFrom);
        if (topic.channels.get(channel.name) === channel) topic.channels.delete(channel.name);
        if (position >= topic.includes) topic.keepFrom = event.keepFrom;
        this.channelsByNumber.delete(channel.number);
        return null;
      }
      case "channel_paused": {
        const channel = this.channelsByNumber.get(event.channel);
        if (channel === undefined) return this.#orphan(position);
        if (position >= channel.includes) channel.paused = event.paused;
        return null;
      }
      case "channel_emptied": {
        const channel = this.channelsByNumber.get(event.channel);
        if (channel === undefined) return this.#orphan(position);
        known(channel.topic, event.to);
        if (position >= channel.includes) applyEmptied(channel, event.to);
        return null;
      }
      default:
        // Passing over what a newer release decided could lose or bring back messages.
        throw new LogError(
          "newer_format",
          `Cannot open the log: an event is of type "${
            (event as { type?: unknown }).type
          }", which ` +
            "this release does not know",
        );
    }
  }

  /** A message of a topic that is not known any more is nobody's. */
  applyMessage(
    topicNumber: number,
    offset: number,
    dueMs: number,
    fileStart: number,
    position: number,
    bytes = 0,
    firstPart = Infinity,
  ): void {
    const topic = this.topicsByNumber.get(topicNumber);
    if (topic === undefined) {
      // Its creation may be lost to damage; its number is used all the same.
      this.nextTopicNumber = Math.max(this.nextTopicNumber, topicNumber + 1);
      this.#orphan(position);
      return;
    }
    topic.index.append(offset, fileStart, position, dueMs, bytes);
    if (firstPart < fileStart) topic.pinLarge(offset, firstPart);
    known(topic, offset + 1);
  }

  /**
   * A message of a topic completes the publish `sequence` of the producer whose id is at
   * `bytes[start]`; for the rest see `DedupWindow.add`.
   */
  applySequence(
    topic: TopicState,
    bytes: Uint8Array,
    start: number,
    sequence: number,
    timeMs: number,
    end: number,
    position = Infinity,
  ): void {
    const dedup = topic.dedup ??= new DedupWindow(this.dedup);
    if (position >= dedup.includes) dedup.add(bytes, start, sequence, timeMs, end);
  }

  applyFinish(channelNumber: number, offset: number, position = Infinity): void {
    const channel = this.#channel(channelNumber, offset, position);
    if (channel !== null && position >= channel.includes) applyFinish(channel, offset);
  }

  applyRequeue(requeue: Requeue, position = Infinity): void {
    const { offset, attempts, dueMs } = requeue;
    const channel = this.#channel(requeue.channel, offset, position);
    if (channel === null || position < channel.includes) return;
    applyRequeue(channel, offset, attempts, dueMs);
  }

  /** The channel that a record about a message names. */
  #channel(number: number, offset: number, position: number): ChannelState | null {
    const channel = this.channelsByNumber.get(number);
    if (channel === undefined) {
      this.nextChannelNumber = Math.max(this.nextChannelNumber, number + 1);
      return this.#orphan(position);
    }
    known(channel.topic, offset + 1);
    return channel;
  }

  #deleteTopic(topic: TopicState): void {
    topic.dedup?.close();
    topic.dedup = null;
    for (const channel of topic.channels.values()) this.channelsByNumber.delete(channel.number);
    this.topicsByNumber.delete(topic.number);
    if (this.topics.get(topic.name) === topic) this.topics.delete(topic.name);
  }

  #orphan(position: number): null {
    if (position >= this.orphansFrom) this.orphanRecords++;
    return null;
  }
}

/**
 * A record speaks of offsets below `end`: they were given out, also when damage took the messages.
 * Given out again, a new message would count as finished already.
 */
function known(topic: TopicState, end: number): void {
  topic.tail = Math.max(topic.tail, end);
}

/** Finishes one message of a channel; false when it was finished already. */
export function applyFinish(channel: ChannelState, offset: number): boolean {
  if (!channel.finished.add(offset)) return false;
  if (channel.requeues.size > 0) channel.requeues.delete(offset);
  return true;
}

/** Owes a message again, unless it is finished. */
export function applyRequeue(
  channel: ChannelState,
  offset: number,
  attempts: number,
  dueMs: number,
): void {
  if (!channel.finished.has(offset)) channel.requeues.set(offset, attempts, dueMs);
}

/** Finishes everything below `to`. */
export function applyEmptied(channel: ChannelState, to: number): void {
  channel.finished.raise(to);
  channel.requeues.deleteRange(0, to);
}
