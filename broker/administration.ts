/**
 * Topics and channels: made, deleted, paused, emptied, configured. Each decision is in the log at once
 * and holds from then on; whoever answers it waits for the log. What is dropped on purpose is in the
 * audit trail, unless it is ephemeral: that is meant to go.
 */
import { isEphemeral } from "@sluice/shared/protocol";
import { type Clock, invariant } from "@sluice/shared/runtime";
import type { Logger } from "@sluice/shared/telemetry";
import type { Audit } from "./audit.ts";
import type { BrokerCounters } from "./counters.ts";
import type { Channel, Topic } from "./queue/mod.ts";
import { RefusedError } from "./refused.ts";
import { Tombstones } from "./tombstones.ts";
import {
  changedPolicy,
  ChannelState,
  type Storage,
  type TopicPolicy,
  TopicState,
} from "./storage/mod.ts";

/** Who is told which topics and channels there are. */
export interface RegistryListener {
  topicAdded(topic: string): void;
  topicRemoved(topic: string): void;
  channelAdded(topic: string, channel: string): void;
  channelRemoved(topic: string, channel: string): void;
}

/** What an {@linkcode Administration} works on. */
export interface AdministrationWorld {
  readonly storage: Storage;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly audit: Pick<Audit, "record">;
  readonly counters: Pick<BrokerCounters, "retire">;
  readonly options: { readonly topicsMax: number; readonly channelsPerTopicMax: number };
  /** The policy of a topic is another one. */
  configured?(topic: Topic): void;
  /** Makes the running side of a topic. */
  runningTopic(state: TopicState): Topic;
  /** Throws {@linkcode RefusedError} while nothing new is accepted. */
  checkAccepting(): void;
  /** Nothing can be decided any more. */
  isOver(): boolean;
}

/** What creating a channel takes in the log, at most. */
const CHANNEL_EVENT_BYTES = 256;

/** See the module. */
export class Administration {
  readonly topics = new Map<string, Topic>();
  /** The names that are not made. */
  readonly tombstones: Tombstones;
  /** Told of every change from now on. */
  registry: RegistryListener | null = null;
  /** Asked for the channels that others know when a topic is made; null when there is nobody to ask. */
  knownChannels: ((topic: string) => Promise<readonly string[]>) | null = null;
  /** Topics and channels that were not made because there are too many. */
  topicsRefused = 0;
  channelsRefused = 0;
  readonly #world: AdministrationWorld;

  constructor(world: AdministrationWorld) {
    this.#world = { ...world, logger: world.logger.component("topics") };
    this.tombstones = new Tombstones(world.clock);
  }

  /** Takes up a topic that a start has recovered. */
  recover(state: TopicState, nowMs: number, wallMs: number): void {
    this.#addTopic(state).recover(nowMs, wallMs);
  }

  /** The topic of a name, made when missing. Throws {@linkcode RefusedError}. */
  ensureTopic(name: string): Topic {
    const known = this.topics.get(name);
    if (known !== undefined) return known;
    this.#world.checkAccepting();
    this.#checkTombstone("topic", name, null);
    const { storage, options: { topicsMax } } = this.#world;
    if (this.topics.size >= topicsMax) {
      this.topicsRefused++;
      throw new RefusedError("too_many_topics", `there are ${topicsMax} topics already`);
    }
    const state = storage.decide({
      type: "topic_created",
      topic: storage.state.nextTopicNumber,
      name,
      ephemeral: isEphemeral(name),
    });
    invariant(state instanceof TopicState, "creating a topic gives its state");
    const topic = this.#addTopic(state);
    this.#world.logger.info("Created a topic", { topic: name });
    this.registry?.topicAdded(name);
    if (this.knownChannels !== null) void this.#adoptChannels(topic, this.knownChannels);
    return topic;
  }

  /** The channel of a name, made when missing. Throws {@linkcode RefusedError}. */
  ensureChannel(topic: Topic, name: string): Channel {
    const known = topic.channels.get(name);
    if (known !== undefined) return known;
    this.#world.checkAccepting();
    this.#checkTombstone("channel", topic.state.name, name);
    const { channelsPerTopicMax } = this.#world.options;
    if (topic.channels.size >= channelsPerTopicMax) {
      this.channelsRefused++;
      throw new RefusedError(
        "too_many_channels",
        `topic ${topic.state.name} has ${channelsPerTopicMax} channels already`,
      );
    }
    const channel = topic.addChannel(this.#createChannelState(topic, name));
    channel.createdEnd = this.#world.storage.log.end;
    this.#world.logger.info("Created a channel", { topic: topic.state.name, channel: name });
    this.registry?.channelAdded(topic.state.name, name);
    return channel;
  }

  /** Deletes a topic with its channels and messages; their consumers' connections close. */
  deleteTopic(topic: Topic): void {
    const { state } = topic;
    const messages = topic.depth;
    const channels = state.channels.size;
    let owed = 0;
    for (const channel of state.channels.values()) owed += owedCount(channel);
    topic.deleted = true;
    this.topics.delete(state.name);
    this.#world.storage.decide({ type: "topic_deleted", topic: state.number });
    for (const channel of topic.channels.values()) {
      this.#world.counters.retire(channel);
      channel.delete();
    }
    this.#world.logger.info("Deleted a topic", { topic: state.name });
    // What is ephemeral is meant to go.
    if (!state.ephemeral) {
      this.#world.audit.record({
        event: "topic_deleted",
        topic: state.name,
        messages,
        channels,
        owed,
      });
    }
    this.registry?.topicRemoved(state.name);
  }

  /** Deletes a channel; what it had not finished is gone for it. */
  deleteChannel(topic: Topic, channel: Channel): void {
    const { state } = channel;
    const messages = owedCount(state);
    topic.channels.delete(state.name);
    this.#world.counters.retire(channel);
    if (state.number === 0) {
      topic.state.channels.delete(state.name);
    } else {
      const isLast = topic.state.durableChannelCount === 1;
      const keepFrom = isLast ? this.#visibleEnd(topic.state) : topic.state.keepFrom;
      this.#world.storage.decide({ type: "channel_deleted", channel: state.number, keepFrom });
      if (isLast) topic.state.keptDue = [];
    }
    channel.delete();
    this.#world.logger.info("Deleted a channel", { topic: topic.state.name, channel: state.name });
    this.#auditChannel("channel_deleted", state, messages);
    this.registry?.channelRemoved(topic.state.name, state.name);
    if (topic.state.ephemeral && topic.channels.size === 0 && !topic.deleted) {
      this.deleteTopic(topic);
    }
  }

  /** Stops or starts the flow from a topic to its channels; publishing goes on. */
  pauseTopic(topic: Topic, paused: boolean): void {
    const { state } = topic;
    if (state.paused === paused) return;
    // Without a channel nothing has left the topic: the first one gets nothing before the end.
    const at = topic.channels.size === 0 ? state.keepFrom : state.tail;
    this.#world.storage.decide({ type: "topic_paused", topic: state.number, paused, at });
    if (paused && topic.channels.size === 0) topic.hide();
    const { clock } = this.#world;
    if (!paused) topic.appended(clock.monoMs(), clock.wallMs());
  }

  /**
   * Changes the policy of a topic, null for the broker's setting; a topic made anew has none. Returns
   * whether anything has changed. `Storage.allowPolicies` has resolved.
   */
  configureTopic(topic: Topic, changes: TopicPolicy): boolean {
    const { state } = topic;
    const policy = changedPolicy(state.policy, changes);
    const text = JSON.stringify(policy);
    if (text === JSON.stringify(state.policy)) return false;
    this.#world.storage.decide({ type: "topic_configured", topic: state.number, policy });
    // The bound may be another one now.
    topic.quotaRoomBytes = 0;
    this.#world.configured?.(topic);
    this.#world.logger.info("Configured a topic", { topic: state.name, policy: text });
    if (!state.ephemeral) {
      this.#world.audit.record({ event: "topic_configured", topic: state.name, policy: text });
    }
    return true;
  }

  /** Stops or starts delivery of a channel. */
  pauseChannel(channel: Channel, paused: boolean): void {
    const { state } = channel;
    if (state.paused === paused) return;
    if (state.number !== 0) {
      this.#world.storage.decide({ type: "channel_paused", channel: state.number, paused });
    }
    channel.setPaused(paused);
  }

  /** Drops what the topic holds that no channel has been given. */
  emptyTopic(topic: Topic): void {
    const { state } = topic;
    const keeps = state.durableChannelCount === 0;
    const from = keeps
      ? Math.min(state.keepFrom, this.#visibleEnd(state))
      : this.#visibleEnd(state);
    const to = state.tail;
    if (from >= to) return;
    const { visibleTail } = state;
    state.hiddenDue = [];
    state.keptDue = [];
    this.#world.storage.decide({ type: "topic_emptied", topic: state.number, from, to });
    if (!state.ephemeral) {
      this.#world.audit.record({ event: "topic_emptied", topic: state.name, messages: to - from });
    }
    // Only what can be seen is in it: behind that there is nothing to look for.
    const isSeen = from < visibleTail;
    if (isSeen && topic.channels.size === 0) state.due.clear();
    else if (isSeen) state.due.retain((offset) => offset < from || offset >= to);
    for (const channel of topic.channels.values()) {
      channel.finishedOutside(to);
      if (isSeen) channel.countTopicDeferred();
    }
  }

  /** A channel was emptied, of so many messages. */
  emptied(state: ChannelState, messages: number): void {
    this.#auditChannel("channel_emptied", state, messages);
  }

  /** What is ephemeral is meant to go: it is not recorded. */
  #auditChannel(
    event: "channel_deleted" | "channel_emptied",
    state: ChannelState,
    messages: number,
  ): void {
    if (state.ephemeral || state.topic.ephemeral) return;
    this.#world.audit.record({ event, topic: state.topic.name, channel: state.name, messages });
  }

  #checkTombstone(kind: "topic" | "channel", topic: string, channel: string | null): void {
    if (!this.tombstones.holds(topic, channel)) return;
    throw new RefusedError("tombstoned", `${kind} is tombstoned`);
  }

  #addTopic(state: TopicState): Topic {
    const topic = this.#world.runningTopic(state);
    this.topics.set(state.name, topic);
    return topic;
  }

  #createChannelState(topic: Topic, name: string): ChannelState {
    const { storage } = this.#world;
    const start = topic.state.channelStart;
    if (isEphemeral(name)) {
      const state = new ChannelState(0, topic.state, name, true, start);
      topic.state.channels.set(name, state);
      return state;
    }
    const state = storage.decide({
      type: "channel_created",
      topic: topic.state.number,
      channel: storage.state.nextChannelNumber,
      name,
      start,
    });
    invariant(state instanceof ChannelState, "creating a channel gives its state");
    return state;
  }

  /** Makes the channels that discovery knows for a new topic, so that each gets its first messages. */
  async #adoptChannels(
    topic: Topic,
    knownChannels: (topic: string) => Promise<readonly string[]>,
  ): Promise<void> {
    const { storage } = this.#world;
    topic.state.settled = false;
    const names = await knownChannels(topic.state.name);
    if (topic.deleted || this.#world.isOver()) return;
    try {
      for (const name of names) {
        if (isEphemeral(name) || this.tombstones.holds(topic.state.name, name)) continue;
        while (!storage.hasRoom(CHANNEL_EVENT_BYTES)) await storage.room();
        if (topic.deleted || this.#world.isOver()) return;
        this.ensureChannel(topic, name);
      }
    } catch (error) {
      if (!(error instanceof RefusedError)) throw error;
      this.#world.logger.warn("Cannot make the channels that others know", {
        topic: topic.state.name,
        error: error.message,
      });
    }
    topic.state.settled = true;
    topic.settle();
  }

  #visibleEnd(state: TopicState): number {
    return state.paused ? state.pausedAt : state.tail;
  }
}

/** The messages that a channel has been given and has not finished: waiting, in flight, deferred. */
export function owedCount({ finished, topic }: ChannelState): number {
  return Math.max(0, topic.visibleTail - finished.floor - finished.above);
}
