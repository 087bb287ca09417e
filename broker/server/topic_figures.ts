/**
 * What a scrape tells of topics and channels: totals over all of them, always complete, and the topics
 * that are told of one by one, of which there may only be so many.
 *
 * - Told of are the first by name, ephemeral ones after all others. So what is told of stays the same
 *   from scrape to scrape, whatever the traffic, and over restarts; and brokers that have the same topics tell of
 *   the same ones, so that a sum over brokers is the whole of each topic. Those with the most messages
 *   would change places all the time, and leave gaps in both.
 * - Of channels, {@linkcode CHANNELS_PER_TOPIC} times as many as topics, in the order of their topics and
 *   names.
 * - Everything is walked in slices: a topic is as of the moment when its turn comes.
 * - How old a channel's oldest message is has to be read from the log. What is not in memory is read
 *   after the scrape, so much at a time, and is right the next time; until then the age of the one before counts,
 *   which was older.
 */
import { type Slices, sortInSlices } from "@sluice/shared/runtime";
import type { Broker } from "../broker.ts";
import { type Channel, type Topic, TopicOrder } from "../queue/mod.ts";

/** Channels that are told of, for each topic that may be. */
export const CHANNELS_PER_TOPIC = 4;
/** Oldest messages that are read from disk after a scrape. */
const COLD_READS_MAX = 64;

/** A channel that is told of. */
export interface ShownChannel {
  readonly channel: Channel;
  readonly labels: { readonly topic: string; readonly channel: string };
  /** Of its oldest message that is not finished, seconds; 0 when there is none, null when unknown. */
  readonly oldestAgeSeconds: number | null;
}

/** A topic that is told of. */
export interface ShownTopic {
  readonly topic: Topic;
  readonly labels: { readonly topic: string };
}

/** Over all topics and channels. */
export interface TopicTotals {
  readonly channels: number;
  readonly topicDepth: number;
  readonly depth: number;
  readonly inFlight: number;
  readonly deferred: number;
  readonly consumers: number;
  readonly delivered: number;
  readonly requeued: number;
  readonly timedOut: number;
  /** The largest that is known. */
  readonly oldestAgeSeconds: number;
}

const NOTHING = {
  channels: 0,
  topicDepth: 0,
  depth: 0,
  inFlight: 0,
  deferred: 0,
  consumers: 0,
  oldestAgeSeconds: 0,
};

/** See the module. */
export class TopicFigures {
  totals: TopicTotals = { ...NOTHING, delivered: 0, requeued: 0, timedOut: 0 };
  topics: readonly ShownTopic[] = [];
  channels: readonly ShownChannel[] = [];
  topicsOmitted = 0;
  channelsOmitted = 0;
  readonly topicsMax: number;
  readonly #order: TopicOrder;
  readonly #broker: Broker;
  /** When the oldest message of a channel was published, as last known, Unix ms. */
  readonly #lastKnown = new WeakMap<Channel, number>();
  #cold: Channel[] = [];
  #isReading = false;

  constructor(broker: Broker, topicsMax: number, order = new TopicOrder(broker.topics)) {
    this.#broker = broker;
    this.topicsMax = topicsMax;
    this.#order = order;
  }

  /** Takes all figures anew. */
  async read(slices: Slices): Promise<void> {
    const wallMs = this.#broker.clock.wallMs();
    const sorted = await this.#order.list(slices);
    const shown = this.#shown(sorted);
    const topics: ShownTopic[] = [];
    const channels: ShownChannel[] = [];
    const channelsMax = this.topicsMax * CHANNELS_PER_TOPIC;
    const { gone } = this.#broker.counters;
    const totals = { ...NOTHING, ...gone };
    for (const topic of sorted) {
      if (slices.isOver) await slices.pause();
      if (topic.deleted) continue;
      const { name } = topic.state;
      const isShown = shown.has(topic);
      if (isShown) topics.push({ topic, labels: { topic: name } });
      totals.topicDepth += topic.depth;
      for (const channel of await this.#channelsOf(topic, isShown, slices)) {
        if (slices.isOver) await slices.pause();
        const oldestAgeSeconds = this.#ageSeconds(channel, wallMs);
        totals.channels++;
        totals.depth += channel.depth;
        totals.inFlight += channel.inFlightCount;
        totals.deferred += channel.deferredCount;
        totals.consumers += channel.consumers.size;
        totals.delivered += channel.deliveredCount;
        totals.requeued += channel.requeueCount;
        totals.timedOut += channel.timeoutCount;
        totals.oldestAgeSeconds = Math.max(totals.oldestAgeSeconds, oldestAgeSeconds ?? 0);
        if (!isShown || channels.length >= channelsMax) continue;
        const labels = { topic: name, channel: channel.state.name };
        channels.push({ channel, labels, oldestAgeSeconds });
      }
    }
    this.totals = this.#grown(totals);
    this.topics = topics;
    this.channels = channels;
    this.topicsOmitted = sorted.length - topics.length;
    this.channelsOmitted = totals.channels - channels.length;
    if (!this.#isReading && this.#cold.length > 0) void this.#readCold();
  }

  /** Counters that never go back, though a channel may go in the middle of a walk and count twice. */
  #grown(totals: TopicTotals): TopicTotals {
    const { delivered, requeued, timedOut } = this.totals;
    return {
      ...totals,
      delivered: Math.max(delivered, totals.delivered),
      requeued: Math.max(requeued, totals.requeued),
      timedOut: Math.max(timedOut, totals.timedOut),
    };
  }

  #shown(sorted: readonly Topic[]): ReadonlySet<Topic> {
    const shown = new Set<Topic>();
    for (const isEphemeral of [false, true]) {
      for (const topic of sorted) {
        if (shown.size >= this.topicsMax) return shown;
        if (topic.state.ephemeral === isEphemeral && !topic.deleted) shown.add(topic);
      }
    }
    return shown;
  }

  async #channelsOf(topic: Topic, isShown: boolean, slices: Slices): Promise<Iterable<Channel>> {
    const { channels } = topic;
    if (!isShown || channels.size < 2) return channels.values();
    return await sortInSlices(
      [...channels.values()],
      (a, b) => a.state.name < b.state.name ? -1 : a.state.name > b.state.name ? 1 : 0,
      slices,
    );
  }

  #ageSeconds(channel: Channel, wallMs: number): number | null {
    const { state, topic } = channel;
    const { floor } = state.finished;
    if (floor >= topic.visibleTail) return 0;
    const found = this.#broker.ages.find(topic, state, floor);
    if (typeof found === "symbol") {
      if (this.#cold.length < COLD_READS_MAX) this.#cold.push(channel);
    } else if (found !== null) {
      this.#lastKnown.set(channel, found);
    }
    const publishedMs = this.#lastKnown.get(channel);
    return publishedMs === undefined ? null : Math.max(0, wallMs - publishedMs) / 1000;
  }

  /** Reads what was not in memory, one by one. Never rejects, as `load` does not. */
  async #readCold(): Promise<void> {
    this.#isReading = true;
    const channels = this.#cold;
    this.#cold = [];
    for (const channel of channels) {
      const { state, topic } = channel;
      const { floor } = state.finished;
      if (channel.deleted || floor >= topic.visibleTail) continue;
      await this.#broker.ages.load(topic, floor);
      const found = this.#broker.ages.find(topic, state, floor);
      if (typeof found === "number") this.#lastKnown.set(channel, found);
    }
    this.#isReading = false;
  }
}
