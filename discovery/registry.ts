/**
 * Who produces which topic. Pure: no clock, no sockets; a caller passes the monotonic time in.
 *
 * A producer is one registration connection, known to clients by its remote address. A caller names
 * it by a key of its own, because a new connection may have the address of one whose end has not been
 * noticed yet. It holds registrations of topics and of channels (a channel registration implies the one of its topic). Topic and channel
 * names outlive their producers, so that consumers and new producers find them; a name that ends in
 * `#ephemeral` goes with its last producer.
 *
 * A producer is active while it was seen within `inactiveTimeoutMs`. A tombstone hides one producer
 * of one topic for `tombstoneLifetimeMs`; registering again does not clear it, unregistering the
 * topic does.
 *
 * A producer may also be *observed*: it did not register but was asked, and has a readiness and a
 * shorter time to be seen again. Producers of one broadcast address and TCP port are one broker:
 * {@linkcode Registry.lookup} and {@linkcode Registry.nodes} leave an observed one out when the broker
 * is in the list already, or says that it does not serve consumers.
 *
 * All answers are sorted. Everything is counted against {@linkcode RegistryLimits}; what would pass
 * a limit changes nothing and returns the name of the limit.
 */
import { isEphemeral } from "@sluice/shared/protocol";
import { invariant } from "@sluice/shared/runtime/invariant";
import {
  brokerId,
  compareProducers,
  compareText,
  isSameReadiness,
  type Observation,
  type Producer,
  type RegistryObserver,
  type TopicChannels,
} from "./producer.ts";

/** How much a registry holds at most. */
export interface RegistryLimits {
  readonly producersMax: number;
  readonly topicsMax: number;
  /** Channel names of all topics together. */
  readonly channelsMax: number;
  readonly channelsPerTopicMax: number;
  /** Registrations (topics and channels) of all producers together. */
  readonly registrationsMax: number;
  readonly registrationsPerProducerMax: number;
}

/** Some 300 MB at the very worst, when every limit is reached with the longest names. */
export const REGISTRY_LIMITS: RegistryLimits = {
  producersMax: 4_096,
  topicsMax: 50_000,
  channelsMax: 200_000,
  channelsPerTopicMax: 10_000,
  registrationsMax: 1_000_000,
  registrationsPerProducerMax: 100_000,
};

export interface RegistryOptions {
  readonly inactiveTimeoutMs: number;
  readonly tombstoneLifetimeMs: number;
  readonly limits?: RegistryLimits;
}

/** The limit that a refused change would have passed. */
export interface LimitReached {
  readonly limit: keyof RegistryLimits;
  readonly max: number;
}

/** A producer with its topics; `tombstones[i]` tells whether `topics[i]` is hidden for it. */
export interface Node {
  readonly producer: Producer;
  readonly topics: readonly string[];
  readonly tombstones: readonly boolean[];
}

/** One row of {@linkcode Registry.registrations}. */
export interface RegistrationRow {
  readonly category: "client" | "topic" | "channel";
  readonly key: string;
  readonly subkey: string;
  readonly producer: Producer;
  /** When it was last tombstoned, whether or not that still counts. */
  readonly tombstonedAtMs: number | null;
}

interface ProducerEntry extends Producer {
  lastSeenMs: number;
  observation: Observation | null;
  readonly topics: Set<string>;
  /** Topics plus channels it is registered for. */
  registrations: number;
}

interface TopicEntry {
  /** The one copy of the name that all who are registered for it hold. */
  readonly name: string;
  /** The producers in order; `null` once one came or went. */
  sorted: readonly ProducerEntry[] | null;
  /** Producer to the time of its tombstone. */
  readonly producers: Map<ProducerEntry, number | null>;
  /** Each set holds only producers of the topic. */
  readonly channels: Map<string, Set<ProducerEntry>>;
}

export class Registry {
  readonly #inactiveTimeoutMs: number;
  readonly #tombstoneLifetimeMs: number;
  readonly #limits: RegistryLimits;
  readonly #producers = new Map<string, ProducerEntry>();
  readonly #topics = new Map<string, TopicEntry>();
  readonly #observers: RegistryObserver[] = [];
  #channelCount = 0;
  #registrationCount = 0;
  #observedCount = 0;

  constructor(options: RegistryOptions) {
    this.#inactiveTimeoutMs = options.inactiveTimeoutMs;
    this.#tombstoneLifetimeMs = options.tombstoneLifetimeMs;
    this.#limits = options.limits ?? REGISTRY_LIMITS;
  }

  get producerCount(): number {
    return this.#producers.size;
  }

  get topicCount(): number {
    return this.#topics.size;
  }

  get channelCount(): number {
    return this.#channelCount;
  }

  get registrationCount(): number {
    return this.#registrationCount;
  }

  /** Tells `observer` of every change from now on. */
  observe(observer: RegistryObserver): void {
    this.#observers.push(observer);
  }

  /** Adds a producer without registrations. The key must be new: one connection, one producer. */
  addProducer(
    key: string,
    producer: Pick<Producer, "remoteAddress" | "info">,
    nowMs: number,
    observation: Observation | null = null,
  ): LimitReached | null {
    invariant(!this.#producers.has(key), `producer ${key} is new`);
    const limited = this.#check("producersMax", this.#producers.size, 1);
    if (limited !== null) return limited;
    const { broadcastAddress, tcpPort } = producer.info;
    const entry = {
      remoteAddress: producer.remoteAddress,
      info: producer.info,
      lastSeenMs: nowMs,
      id: brokerId(broadcastAddress, tcpPort),
      observation,
      topics: new Set<string>(),
      registrations: 0,
    };
    this.#producers.set(key, entry);
    if (observation !== null) this.#observedCount += 1;
    for (const observer of this.#observers) observer.producerAdded(entry);
    return null;
  }

  /** Notes what an observed producer says of itself now. */
  setObservation(key: string, observation: Observation): void {
    const producer = this.#producer(key);
    invariant(producer.observation !== null, `${key} is observed`);
    const before = producer.observation.readiness;
    producer.observation = observation;
    if (isSameReadiness(before, observation.readiness)) return;
    for (const observer of this.#observers) observer.readinessChanged(producer);
  }

  /** Has a producer registered for these and nothing else. Stops at the first limit it reaches. */
  replaceRegistrations(key: string, wanted: readonly TopicChannels[]): LimitReached | null {
    const producer = this.#producer(key);
    const topics = new Map(wanted.map(({ topic, channels }) => [topic, new Set(channels)]));
    for (const topic of [...producer.topics]) {
      const kept = topics.get(topic);
      if (kept === undefined) {
        this.#unregisterTopic(producer, topic);
        continue;
      }
      for (const channel of this.#channelsOf(producer, topic)) {
        if (!kept.has(channel)) this.unregister(key, topic, channel);
      }
    }
    for (const [topic, channels] of topics) {
      let limited = this.register(key, topic, null);
      for (const channel of channels) limited ??= this.register(key, topic, channel);
      if (limited !== null) return limited;
    }
    return null;
  }

  /** Notes that a producer is alive; does nothing when there is no such producer. */
  touch(key: string, nowMs: number): void {
    const producer = this.#producers.get(key);
    if (producer !== undefined) producer.lastSeenMs = nowMs;
  }

  /** Removes a producer with all its registrations; does nothing when there is no such producer. */
  removeProducer(key: string): void {
    const producer = this.#producers.get(key);
    if (producer === undefined) return;
    for (const topic of [...producer.topics]) this.#unregisterTopic(producer, topic);
    invariant(producer.registrations === 0, `${key} has no registrations left`);
    this.#producers.delete(key);
    if (producer.observation !== null) this.#observedCount -= 1;
    for (const observer of this.#observers) observer.producerRemoved(producer);
  }

  /** Registers a known producer for a topic and, when given, one of its channels. Idempotent. */
  register(key: string, topic: string, channel: string | null): LimitReached | null {
    const producer = this.#producer(key);
    const entry = this.#topics.get(topic);
    const newTopic = entry?.producers.has(producer) ? 0 : 1;
    const newChannel = channel === null || entry?.channels.get(channel)?.has(producer) ? 0 : 1;
    const added = newTopic + newChannel;
    const limited = this.#check("registrationsPerProducerMax", producer.registrations, added) ??
      this.#check("registrationsMax", this.#registrationCount, added) ??
      this.#checkNames(topic, channel);
    if (limited !== null) return limited;

    const topicEntry = this.#ensureTopic(topic);
    if (newTopic === 1) {
      topicEntry.producers.set(producer, null);
      topicEntry.sorted = null;
      producer.topics.add(topicEntry.name);
    }
    if (channel !== null) this.#ensureChannel(topicEntry, channel).add(producer);
    if (newTopic === 1) this.#count(producer, 1, topic, null);
    if (newChannel === 1) this.#count(producer, 1, topic, channel);
    return null;
  }

  /**
   * With a channel: removes the producer from it. Without: from the topic and all its channels.
   * Unknown names change nothing.
   */
  unregister(key: string, topic: string, channel: string | null): void {
    const producer = this.#producer(key);
    const entry = this.#topics.get(topic);
    if (entry === undefined) return;
    if (channel === null) this.#unregisterTopic(producer, topic);
    else this.#unregisterChannel(producer, topic, entry, channel);
  }

  /** Makes a topic name known without a producer. */
  createTopic(topic: string): LimitReached | null {
    const limited = this.#checkNames(topic, null);
    if (limited === null) this.#ensureTopic(topic);
    return limited;
  }

  /** Makes a channel name, and that of its topic, known without a producer. */
  createChannel(topic: string, channel: string): LimitReached | null {
    const limited = this.#checkNames(topic, channel);
    if (limited === null) this.#ensureChannel(this.#ensureTopic(topic), channel);
    return limited;
  }

  /** Forgets a topic, its channels and their registrations until someone registers them again. */
  deleteTopic(topic: string): void {
    const entry = this.#topics.get(topic);
    if (entry === undefined) return;
    for (const channel of [...entry.channels.keys()]) this.#dropChannel(topic, entry, channel);
    this.#topics.delete(topic);
    for (const producer of entry.producers.keys()) {
      producer.topics.delete(topic);
      this.#count(producer, -1, topic, null);
    }
  }

  /** Forgets a channel; `false` when there is no such channel. */
  deleteChannel(topic: string, channel: string): boolean {
    const entry = this.#topics.get(topic);
    if (entry === undefined || !entry.channels.has(channel)) return false;
    this.#dropChannel(topic, entry, channel);
    return true;
  }

  /** Hides the producers of `topic` whose `<broadcast address>:<http port>` is `node`. */
  tombstone(topic: string, node: string, nowMs: number): void {
    const entry = this.#topics.get(topic);
    if (entry === undefined) return;
    for (const producer of entry.producers.keys()) {
      const { broadcastAddress, httpPort } = producer.info;
      if (`${broadcastAddress}:${httpPort}` === node) entry.producers.set(producer, nowMs);
    }
  }

  topics(): string[] {
    return [...this.#topics.keys()].sort();
  }

  /** Empty for an unknown topic. */
  channels(topic: string): string[] {
    const entry = this.#topics.get(topic);
    return entry === undefined ? [] : [...entry.channels.keys()].sort();
  }

  /** The active producers of a topic that are not tombstoned for it; `null` for an unknown topic. */
  lookup(topic: string, nowMs: number): Producer[] | null {
    const entry = this.#topics.get(topic);
    if (entry === undefined) return null;
    entry.sorted ??= [...entry.producers.keys()].sort(compareProducers);
    const found = entry.sorted.filter((producer) => {
      const tombstonedAtMs = entry.producers.get(producer) ?? null;
      return this.isActive(producer, nowMs) && !this.#isTombstoned(tombstonedAtMs, nowMs);
    });
    return this.#oncePerBroker<Producer>(found, (producer) => producer);
  }

  /** The topics and channels a producer is registered for, sorted. */
  registrationsOf(producers: Iterable<Producer>): TopicChannels[] {
    const topics = new Map<string, Set<string>>();
    for (const producer of producers) {
      for (const topic of (producer as ProducerEntry).topics) {
        let channels = topics.get(topic);
        if (channels === undefined) topics.set(topic, channels = new Set());
        for (const channel of this.#channelsOf(producer as ProducerEntry, topic)) {
          channels.add(channel);
        }
      }
    }
    return [...topics].sort(([a], [b]) => compareText(a, b))
      .map(([topic, channels]) => ({ topic, channels: [...channels].sort() }));
  }

  /** Whether a producer is registered for a topic or, when given, a channel of it. */
  isRegistered(producer: Producer, topic: string, channel: string | null): boolean {
    const entry = this.#topics.get(topic);
    if (entry === undefined) return false;
    return channel === null
      ? entry.producers.has(producer as ProducerEntry)
      : entry.channels.get(channel)?.has(producer as ProducerEntry) ?? false;
  }

  /** Whether a producer was seen lately enough to count. */
  isActive(producer: Producer, nowMs: number): boolean {
    const limitMs = producer.observation?.freshMs ?? this.#inactiveTimeoutMs;
    return nowMs - producer.lastSeenMs <= limitMs;
  }

  /** All active producers, tombstoned or not. */
  nodes(nowMs: number): Node[] {
    const nodes: Node[] = [];
    for (const producer of this.#producers.values()) {
      if (!this.isActive(producer, nowMs)) continue;
      const topics = [...producer.topics].sort();
      const tombstones = topics.map((topic) => {
        const tombstonedAtMs = this.#topics.get(topic)?.producers.get(producer);
        return this.#isTombstoned(tombstonedAtMs ?? null, nowMs);
      });
      nodes.push({ producer, topics, tombstones });
    }
    nodes.sort((a, b) => compareProducers(a.producer, b.producer));
    return this.#oncePerBroker(nodes, ({ producer }) => producer);
  }

  /** Every registration, of inactive and tombstoned producers too, by category and name. */
  registrations(): RegistrationRow[] {
    const rows: RegistrationRow[] = [];
    for (const producer of [...this.#producers.values()].sort(compareProducers)) {
      rows.push({ category: "client", key: "", subkey: "", producer, tombstonedAtMs: null });
    }
    for (const topic of this.topics()) {
      const entry = this.#topics.get(topic);
      invariant(entry !== undefined, "a listed topic exists");
      for (const producer of [...entry.producers.keys()].sort(compareProducers)) {
        const tombstonedAtMs = entry.producers.get(producer) ?? null;
        rows.push({ category: "topic", key: topic, subkey: "", producer, tombstonedAtMs });
      }
      for (const channel of this.channels(topic)) {
        for (const producer of [...entry.channels.get(channel) ?? []].sort(compareProducers)) {
          rows.push({
            category: "channel",
            key: topic,
            subkey: channel,
            producer,
            tombstonedAtMs: null,
          });
        }
      }
    }
    return rows;
  }

  #channelsOf(producer: ProducerEntry, topic: string): string[] {
    const channels: string[] = [];
    for (const [channel, producers] of this.#topics.get(topic)?.channels ?? []) {
      if (producers.has(producer)) channels.push(channel);
    }
    return channels;
  }

  /** See the module. Registered ones are all kept, as nsqlookupd does. */
  #oncePerBroker<T>(found: T[], producerOf: (one: T) => Producer): T[] {
    if (this.#observedCount === 0) return found;
    const listed = new Set<string>();
    const idle = new Set<string>();
    for (const one of found) {
      const { id, observation } = producerOf(one);
      if (observation === null) listed.add(id);
      else if (!observation.readiness.consumeReady) idle.add(id);
    }
    return found.filter((one) => {
      const { id, observation } = producerOf(one);
      if (idle.has(id)) return false;
      if (observation === null) return true;
      if (listed.has(id)) return false;
      listed.add(id);
      return true;
    });
  }

  #isTombstoned(tombstonedAtMs: number | null, nowMs: number): boolean {
    return tombstonedAtMs !== null && nowMs - tombstonedAtMs < this.#tombstoneLifetimeMs;
  }

  #producer(key: string): ProducerEntry {
    const producer = this.#producers.get(key);
    invariant(producer !== undefined, `producer ${key} was added`);
    return producer;
  }

  #check(limit: keyof RegistryLimits, current: number, added: number): LimitReached | null {
    const max = this.#limits[limit];
    return added > 0 && current + added > max ? { limit, max } : null;
  }

  #checkNames(topic: string, channel: string | null): LimitReached | null {
    const entry = this.#topics.get(topic);
    const newTopic = entry === undefined ? 1 : 0;
    const newChannel = channel === null || entry?.channels.has(channel) ? 0 : 1;
    return this.#check("topicsMax", this.#topics.size, newTopic) ??
      this.#check("channelsPerTopicMax", entry?.channels.size ?? 0, newChannel) ??
      this.#check("channelsMax", this.#channelCount, newChannel);
  }

  #ensureTopic(topic: string): TopicEntry {
    let entry = this.#topics.get(topic);
    if (entry === undefined) {
      entry = { name: topic, sorted: null, producers: new Map(), channels: new Map() };
      this.#topics.set(topic, entry);
    }
    return entry;
  }

  #ensureChannel(entry: TopicEntry, channel: string): Set<ProducerEntry> {
    let producers = entry.channels.get(channel);
    if (producers === undefined) {
      producers = new Set();
      entry.channels.set(channel, producers);
      this.#channelCount += 1;
    }
    return producers;
  }

  #dropChannel(topic: string, entry: TopicEntry, channel: string): void {
    const producers = entry.channels.get(channel) ?? [];
    if (entry.channels.delete(channel)) this.#channelCount -= 1;
    for (const producer of producers) this.#count(producer, -1, topic, channel);
  }

  #unregisterTopic(producer: ProducerEntry, topic: string): void {
    const entry = this.#topics.get(topic);
    if (entry === undefined || !entry.producers.has(producer)) return;
    for (const [channel, producers] of [...entry.channels]) {
      if (producers.has(producer)) this.#unregisterChannel(producer, topic, entry, channel);
    }
    entry.producers.delete(producer);
    entry.sorted = null;
    producer.topics.delete(topic);
    this.#count(producer, -1, topic, null);
    if (isEphemeral(topic) && entry.producers.size === 0) this.deleteTopic(topic);
  }

  #unregisterChannel(
    producer: ProducerEntry,
    topic: string,
    entry: TopicEntry,
    channel: string,
  ): void {
    const producers = entry.channels.get(channel);
    if (producers === undefined) return;
    if (producers.delete(producer)) this.#count(producer, -1, topic, channel);
    if (isEphemeral(channel) && producers.size === 0) this.#dropChannel(topic, entry, channel);
  }

  #count(producer: ProducerEntry, added: 1 | -1, topic: string, channel: string | null): void {
    producer.registrations += added;
    this.#registrationCount += added;
    for (const observer of this.#observers) {
      observer.registrationChanged(producer, topic, channel);
    }
  }
}
