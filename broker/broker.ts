/**
 * The broker: topics and channels over one storage, and the operations that every door (NSQ over
 * TCP, HTTP) is made of. Not tied to any protocol or socket.
 *
 * - What has to be durable before it is answered is answered through {@linkcode Broker.await}; a publish
 *   to a relaxed topic has to be written only.
 * - Work that an input leaves behind (dispatching channels, flushing connections) runs once, after
 *   the input, in the same turn of the event loop.
 * - A failed write ends publishing for good: `failed` is called, and the process is to be restarted.
 * - A disk that is full, or nearly, refuses publishes for as long as it is: see `disk_guard.ts`.
 */
import {
  isEphemeral,
  MESSAGE_ATTEMPTS_OFFSET,
  MESSAGE_BODY_OFFSET,
  MESSAGE_ID_OFFSET,
  writeMessageId,
  writeTimestampMs,
} from "@sluice/shared/protocol";
import {
  type Clock,
  type Disk,
  invariant,
  type Random,
  REPORTED_VERSION,
  type Timer,
} from "@sluice/shared/runtime";
import type { Logger } from "@sluice/shared/telemetry";
import { Audit } from "./audit.ts";
import { LARGE_BODIES_SHARE } from "./config.ts";
import { DiskGuard, type DiskGuardOptions } from "./disk_guard.ts";
import { type EvictionOptions, Evictor } from "./eviction.ts";
import { type Health, judgeHealth } from "./health.ts";
import { BodyReader, DamagedBodyError, DeliveryMemory } from "./large_delivery.ts";
import { LargeUpload } from "./large_upload.ts";
import { MessageReader } from "./message_reader.ts";
import { QUOTA_TEXT, TopicQuotas } from "./quota.ts";
import {
  type Channel,
  type ChannelEffects,
  type ChannelOptions,
  type Consumer,
  LatencyWindow,
  type Timed,
  Topic,
} from "./queue/mod.ts";
import {
  changedPolicy,
  ChannelState,
  type LargeBody,
  type Quota,
  quotaOf,
  SCRUB_RATE_BYTES_DEFAULT,
  Scrubber,
  type ScrubOptions,
  Storage,
  type StorageOptions,
  type TopicPolicy,
  TopicState,
  type WrittenBody,
} from "./storage/mod.ts";
import { type Flushable, Turn } from "./turn.ts";

export { type BodyReader, DamagedBodyError, type Flushable, type LargeUpload };
export {
  ACK_MODES,
  isAckMode,
  isQuotaAction,
  isQuotaBytes,
  QUOTA_ACTIONS,
  type TopicPolicy,
} from "./storage/mod.ts";

/** Settings of a {@linkcode Broker}. */
export interface BrokerOptions {
  readonly storage: StorageOptions;
  readonly channel: Omit<ChannelOptions, "newLatency">;
  /** The percentiles to tell of the time from publish to finish; none are measured when absent. */
  readonly latency?: LatencyOptions;
  /** What is kept free of the disk: 5 % and no bound on the log when absent. */
  readonly guard?: DiskGuardOptions;
  /** The bound of a topic's bytes: none when absent. */
  readonly quota?: Quota;
  /** When the oldest messages are given up for want of space: never when absent. */
  readonly eviction?: EvictionOptions;
  /** How the log is read through for damage: on demand only when absent. */
  readonly scrub?: ScrubOptions;
  readonly topicsMax: number;
  readonly channelsPerTopicMax: number;
  /** Memory for the bodies of publishes that have not arrived whole, over all connections. */
  readonly publishBytesMax: number;
}

/** How the time from publish to finish is measured. */
export interface LatencyOptions {
  /** Above 0 and at most 1. */
  readonly quantiles: readonly number[];
  /** The time that is looked back on. */
  readonly windowMs: number;
}

/** The world a broker lives in. */
export interface BrokerSeams {
  readonly disk: Disk;
  readonly clock: Clock;
  readonly random: Random;
  readonly logger: Logger;
  /** Told while the log is read at a start; `totalBytes` is the most that there is to read. */
  readonly recovering?: (replayedBytes: number, totalBytes: number) => void;
}

/** Who is told which topics and channels there are. */
export interface RegistryListener {
  topicAdded(topic: string): void;
  topicRemoved(topic: string): void;
  channelAdded(topic: string, channel: string): void;
  channelRemoved(topic: string, channel: string): void;
}

/** Someone who must not speak before the disk has. */
export interface DurableWaiter {
  /** Everything below `end` is on disk. Returns whether it waits for more. */
  durable(end: number): boolean;
  /** Publishes to relaxed topics that end below `end` may be confirmed. Returns the same. */
  written?(end: number): boolean;
  /** Nothing more will become durable. */
  failed(error: Error): void;
}

/** Why an operation was refused. */
export type RefusalCode =
  | "exiting"
  | "storage"
  | "throttled"
  | "too_many_topics"
  | "too_many_channels";

/** An operation that the broker refuses; `message` is for the peer. */
export class RefusedError extends Error {
  override name = "RefusedError";
  constructor(readonly code: RefusalCode, message: string) {
    super(message);
  }
}

const MAINTAIN_MS = 1000;
/** Bodies up to this size may use all memory for publishes, larger ones only a share. */
const SMALL_BODY_BYTES = 64 * 1024;
/** Bodies on their way to consumers take this share of the memory for publishes, besides. */
const DELIVERY_SHARE = 1 / 4;
const GUARD_OPTIONS_DEFAULT: DiskGuardOptions = { minFreeBytes: "auto", logBytesMax: 0 };
const QUOTA_DEFAULT: Quota = { bytesMax: 0, action: "refuse" };
const SCRUB_OPTIONS_DEFAULT: ScrubOptions = { rateBytes: SCRUB_RATE_BYTES_DEFAULT, intervalMs: 0 };
/** With less room than so many files of the log, space that is given back may not be enough. */
const LOG_FILES_ROOM = 3;
/** What creating a channel takes in the log, at most. */
const CHANNEL_EVENT_BYTES = 256;

/** See the module. */
export class Broker implements ChannelEffects {
  readonly topics = new Map<string, Topic>();
  readonly storage: Storage;
  readonly source: MessageReader;
  readonly guard: DiskGuard;
  readonly quotas: TopicQuotas;
  readonly evictor: Evictor;
  readonly scrubber: Scrubber;
  readonly audit: Audit;
  readonly clock: Clock;
  readonly random: Random;
  readonly logger: Logger;
  /** Told of every change from now on. */
  registry: RegistryListener | null = null;
  /** Asked for the channels that others know when a topic is made; null when there is nobody to ask. */
  knownChannels: ((topic: string) => Promise<readonly string[]>) | null = null;
  /** Called once when the storage fails. */
  onFailure: (error: Error) => void = () => {};
  /** Set while shutting down: nothing new is accepted. */
  exiting = false;
  /** Bytes of publishes that have not arrived whole. */
  stagedBytes = 0;
  /** Bodies on their way into the log. */
  readonly uploads = new Set<LargeUpload>();
  /** For the bodies of large messages on their way to consumers. */
  readonly deliveryMemory: DeliveryMemory;

  readonly #options: BrokerOptions;
  readonly #channelOptions: ChannelOptions;
  readonly #turn: Turn;
  #waiters: DurableWaiter[] = [];
  #maintainTimer: Timer | null = null;
  #maintainFailed = false;
  readonly #openedMs: number;
  #failedMs = 0;
  #closed = false;

  private constructor(storage: Storage, seams: BrokerSeams, options: BrokerOptions) {
    this.storage = storage;
    this.clock = seams.clock;
    this.random = seams.random;
    this.logger = seams.logger;
    this.#options = options;
    const { latency } = options;
    this.#channelOptions = latency === undefined ? options.channel : {
      ...options.channel,
      newLatency: () => new LatencyWindow(seams.clock, latency.windowMs),
    };
    this.deliveryMemory = new DeliveryMemory(options.publishBytesMax * DELIVERY_SHARE);
    this.#turn = new Turn(seams.clock);
    this.#openedMs = seams.clock.wallMs();
    this.audit = new Audit(seams, options.storage.dataPath);
    this.source = new MessageReader(
      storage,
      seams.clock,
      seams.logger,
      (topic, offset, position) =>
        this.audit.record({ event: "message_damaged", topic, offset, position }),
    );
    for (const { position, bytes, reason } of storage.opening.damage) {
      this.audit.record({ event: "log_damaged", position, bytes, reason });
    }
    const { log } = storage;
    this.guard = new DiskGuard(
      {
        get start() {
          return storage.logFiles[0]?.start ?? log.end;
        },
        get holeBytes() {
          return storage.holeBytes;
        },
        get durableEnd() {
          return log.durableEnd;
        },
        get end() {
          return log.end;
        },
        get stalled() {
          if (log.stalled === null) return null;
          return log.stalled.code === "no_descriptors" ? "no_descriptors" : "disk_full";
        },
      },
      seams,
      options.storage.dataPath,
      options.guard ?? GUARD_OPTIONS_DEFAULT,
    );
    this.quotas = new TopicQuotas({
      audit: this.audit,
      quotaOf: (topic) => this.quotaOf(topic),
      trim: (topic, to) => this.#trim(topic, to),
    });
    this.evictor = new Evictor({
      ...seams,
      dataPath: options.storage.dataPath,
      audit: this.audit,
      topics: () => storage.state.topics.values(),
      files: () => storage.logFiles,
      pressedSinceMs: () => this.guard.closedSinceMs,
      isWritable: () => log.stalled === null && log.error === null && !this.exiting,
      trim: ({ name }, to) => this.#trim(this.topics.get(name)!, to),
      durable: () => this.durableTo(this.position),
    }, options.eviction ?? { afterMs: 0 });
    this.scrubber = new Scrubber({
      disk: seams.disk,
      path: options.storage.dataPath,
      clock: seams.clock,
      logger: seams.logger,
      store: storage.blocks,
      beside: storage.beside,
      log,
      // Neither a log that waits for space nor a stop is to wait for the disk because of a scrub.
      isHeld: () => log.stalled !== null || log.error !== null || this.exiting,
      found: ({ position, bytes, reason }) =>
        this.audit.record({ event: "scrub_damaged", position, bytes, reason }),
    }, options.scrub ?? SCRUB_OPTIONS_DEFAULT);
  }

  /** Opens the data folder and takes up where it was left. Rejects as `Storage.open` does. */
  static async open(seams: BrokerSeams, options: BrokerOptions): Promise<Broker> {
    const holder: { broker: Broker | null } = { broker: null };
    const storage = await Storage.open(seams.disk, seams.clock, options.storage, {
      written: (topics, end) => holder.broker?.written(topics, end),
      durable: (topics, end) => holder.broker?.durable(topics, end),
      stalled: (error) => holder.broker?.stalled(error),
      failed: (error) => holder.broker?.fail(error),
      warn: (message, error) => seams.logger.warn(message, { error: String(error) }),
      recovering: (replayedBytes, totalBytes) => seams.recovering?.(replayedBytes, totalBytes),
    });
    const broker = new Broker(storage, seams, options);
    holder.broker = broker;
    const nowMs = seams.clock.monoMs();
    const wallMs = seams.clock.wallMs();
    for (const state of storage.state.topics.values()) {
      broker.#addTopic(state).recover(nowMs, wallMs);
    }
    // Their event is one that releases before do not know.
    if ((options.quota?.bytesMax ?? 0) > 0 || (options.eviction?.afterMs ?? 0) > 0) {
      await storage.allowPolicies();
    }
    broker.#armMaintenance();
    await broker.#startGuard();
    if (options.scrub !== undefined) await broker.scrubber.open();
    return broker;
  }

  /** The position up to which the log must be durable for all that was done so far to be. */
  get position(): number {
    return this.storage.log.end;
  }

  /** Why nothing can be written any more, if so. */
  get failure(): Error | null {
    return this.storage.log.error;
  }

  /** The percentiles that are told of the time from publish to finish. */
  get latencyQuantiles(): readonly number[] {
    return this.#options.latency?.quantiles ?? [];
  }

  /** Whether it accepts and delivers now, and why not. */
  health(): Health {
    const { failure, storage, guard } = this;
    const { damage, orphanRecords } = storage.opening;
    const pressure = guard.refusal();
    return judgeHealth({
      version: REPORTED_VERSION,
      exiting: this.exiting,
      failure: failure && { message: failure.message, sinceMs: this.#failedMs },
      pressure: pressure === null ? null : { message: pressure, sinceMs: guard.closedSinceMs },
      stalled: storage.log.stalled?.message ?? null,
      openedMs: this.#openedMs,
      damagedPlaces: damage.length,
      scrubbedPlaces: this.scrubber.report.damageCount,
      orphanRecords,
      damagedMessages: this.source.damagedCount,
    });
  }

  /** The topic of a name, made when missing. Throws {@linkcode RefusedError}. */
  ensureTopic(name: string): Topic {
    const known = this.topics.get(name);
    if (known !== undefined) return known;
    this.#checkAccepting();
    if (this.topics.size >= this.#options.topicsMax) {
      throw new RefusedError(
        "too_many_topics",
        `there are ${this.#options.topicsMax} topics already`,
      );
    }
    const { storage } = this;
    const state = storage.decide({
      type: "topic_created",
      topic: storage.state.nextTopicNumber,
      name,
      ephemeral: isEphemeral(name),
    });
    invariant(state instanceof TopicState, "creating a topic gives its state");
    const topic = this.#addTopic(state);
    this.logger.info("Created a topic", { topic: name });
    this.registry?.topicAdded(name);
    if (this.knownChannels !== null) void this.#adoptChannels(topic, this.knownChannels);
    return topic;
  }

  /** The channel of a name, made when missing. Throws {@linkcode RefusedError}. */
  ensureChannel(topic: Topic, name: string): Channel {
    const known = topic.channels.get(name);
    if (known !== undefined) return known;
    this.#checkAccepting();
    const { channelsPerTopicMax } = this.#options;
    if (topic.channels.size >= channelsPerTopicMax) {
      throw new RefusedError(
        "too_many_channels",
        `topic ${topic.state.name} has ${channelsPerTopicMax} channels already`,
      );
    }
    const channel = topic.addChannel(this.#createChannelState(topic, name));
    this.logger.info("Created a channel", { topic: topic.state.name, channel: name });
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
    this.storage.decide({ type: "topic_deleted", topic: state.number });
    for (const channel of topic.channels.values()) channel.delete();
    this.logger.info("Deleted a topic", { topic: state.name });
    // What is ephemeral is meant to go.
    if (!state.ephemeral) {
      this.audit.record({ event: "topic_deleted", topic: state.name, messages, channels, owed });
    }
    this.registry?.topicRemoved(state.name);
  }

  /** Deletes a channel; what it had not finished is gone for it. */
  deleteChannel(topic: Topic, channel: Channel): void {
    const { state } = channel;
    const messages = owedCount(state);
    topic.channels.delete(state.name);
    if (state.number === 0) {
      topic.state.channels.delete(state.name);
    } else {
      const isLast = topic.state.durableChannelCount === 1;
      const keepFrom = isLast ? this.#visibleEnd(topic.state) : topic.state.keepFrom;
      this.storage.decide({ type: "channel_deleted", channel: state.number, keepFrom });
      if (isLast) topic.state.keptDue = [];
    }
    channel.delete();
    this.logger.info("Deleted a channel", { topic: topic.state.name, channel: state.name });
    this.#auditChannel("channel_deleted", state, messages);
    this.registry?.channelRemoved(topic.state.name, state.name);
    if (topic.state.ephemeral && topic.channels.size === 0 && !topic.deleted) {
      this.deleteTopic(topic);
    }
  }

  /** Ends a subscription; an ephemeral channel goes with its last one. */
  leave(topic: Topic, channel: Channel, consumer: Consumer): void {
    channel.leave(consumer);
    // After a failure nothing can be decided any more, and nothing ephemeral survives the restart.
    if (this.failure !== null) return;
    if (channel.state.ephemeral && channel.consumers.size === 0 && !channel.deleted) {
      this.deleteChannel(topic, channel);
    }
  }

  /** Stops or starts the flow from a topic to its channels; publishing goes on. */
  pauseTopic(topic: Topic, paused: boolean): void {
    const { state } = topic;
    if (state.paused === paused) return;
    // Without a channel nothing has left the topic: the first one gets nothing before the end.
    const at = topic.channels.size === 0 ? state.keepFrom : state.tail;
    this.storage.decide({ type: "topic_paused", topic: state.number, paused, at });
    if (paused && topic.channels.size === 0) topic.hide();
    if (!paused) topic.appended(this.clock.monoMs(), this.clock.wallMs());
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
    this.storage.decide({ type: "topic_configured", topic: state.number, policy });
    // The bound may be another one now.
    topic.quotaRoomBytes = 0;
    this.logger.info("Configured a topic", { topic: state.name, policy: text });
    if (!state.ephemeral) {
      this.audit.record({ event: "topic_configured", topic: state.name, policy: text });
    }
    return true;
  }

  /** Stops or starts delivery of a channel. */
  pauseChannel(channel: Channel, paused: boolean): void {
    const { state } = channel;
    if (state.paused === paused) return;
    if (state.number !== 0) {
      this.storage.decide({ type: "channel_paused", channel: state.number, paused });
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
    this.storage.decide({ type: "topic_emptied", topic: state.number, from, to });
    if (!state.ephemeral) {
      this.audit.record({ event: "topic_emptied", topic: state.name, messages: to - from });
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

  /** Whether a publish of so many bytes and messages can be written now; else wait for `room`. */
  hasRoom(bytes: number, messages: number): boolean {
    return this.storage.hasRoom(bytes, messages);
  }

  /** Resolves when it is worth asking `hasRoom` again. */
  room(): Promise<void> {
    return this.storage.room();
  }

  /** Takes memory for a body that arrives in parts; false when all of it is in use. */
  stage(bytes: number): boolean {
    const { publishBytesMax } = this.#options;
    // Large bodies cannot take all of it, so that many which never end leave the small ones room.
    const bytesMax = bytes <= SMALL_BODY_BYTES
      ? publishBytesMax
      : publishBytesMax * LARGE_BODIES_SHARE;
    if (this.stagedBytes + bytes > bytesMax) return false;
    this.stagedBytes += bytes;
    return true;
  }

  /** Gives back what `stage` took. */
  unstage(bytes: number): void {
    this.stagedBytes -= bytes;
  }

  /**
   * Lets one publish command pass, or throws {@linkcode RefusedError}. Asked once for what is to be
   * stored whole, before `hasRoom`, and again after each wait for `room`.
   */
  admit(): void {
    this.#checkAccepting();
    const reason = this.guard.refusal();
    if (reason === null) return;
    this.guard.throttledCount++;
    throw new RefusedError("throttled", reason);
  }

  /** The bound of a topic's bytes. */
  quotaOf({ policy }: TopicState): Quota {
    return quotaOf(policy, this.#options.quota ?? QUOTA_DEFAULT);
  }

  /** Lets one publish command pass to a topic, or throws {@linkcode RefusedError}: it may be full. */
  admitTo(topic: Topic): void {
    if (topic.quotaRoomBytes > 0 || this.quotas.admits(topic)) return;
    throw new RefusedError("throttled", QUOTA_TEXT);
  }

  /**
   * Publishes `body[start, end)`; it is copied. `dueMs` is Unix ms, 0 for at once. Whoever confirms it
   * waits for `position`, as the topic's mode says. Throws {@linkcode RefusedError}. `admit` and
   * `hasRoom` have been asked.
   */
  publish(topic: Topic, body: Uint8Array, start: number, end: number, dueMs: number): void {
    this.#checkAccepting();
    const { storage } = this;
    const sequence = storage.nextSequence;
    const wireBytes = MESSAGE_BODY_OFFSET + end - start;
    const wire = storage.beginMessage(topic.state, wireBytes, dueMs);
    this.#writeHead(wire, sequence);
    storage.log.ring.set(body.subarray(start, end), wire + MESSAGE_BODY_OFFSET);
    storage.endMessage();
    storage.commitTo(topic.state);
    topic.messageCount++;
    topic.messageBytes += end - start;
    topic.quotaRoomBytes -= wireBytes;
  }

  /** As `publish`, of a body that is in the log already; `LargeUpload` asks for room. */
  publishLarge(topic: Topic, body: WrittenBody, dueMs: number): void {
    this.#checkAccepting();
    const { storage } = this;
    const sequence = storage.nextSequence;
    this.#writeHead(storage.beginLargeMessage(topic.state, body, dueMs), sequence);
    storage.endMessage();
    storage.commitTo(topic.state);
    topic.messageCount++;
    topic.messageBytes += body.bytes;
    topic.quotaRoomBytes -= MESSAGE_BODY_OFFSET + body.bytes;
  }

  /** Begins a large message that is yet to arrive; null when all memory for publishes is in use. */
  beginUpload(stalled: () => void): LargeUpload | null {
    return LargeUpload.begin(this, stalled);
  }

  /** Begins a large message whose body is in memory. */
  uploadOfMemory(): LargeUpload {
    return LargeUpload.ofMemory(this);
  }

  /** Reads the body of a large message for one consumer. */
  readBody(body: LargeBody): BodyReader {
    return new BodyReader(this.storage, this.deliveryMemory, body);
  }

  /** Whether a body of so many bytes is to be written as a large message. */
  isLarge(bytes: number): boolean {
    return bytes > this.storage.large.bodyBytesMin;
  }

  /** Has `waiter` told of every group that becomes durable or is written, until it waits for no more. */
  await(waiter: DurableWaiter): void {
    this.#waiters.push(waiter);
  }

  /** Resolves when the log is durable up to `position`; rejects when it never will be. */
  durableTo(position: number): Promise<void> {
    if (this.storage.log.durableEnd >= position) return Promise.resolve();
    if (this.failure !== null) return Promise.reject(this.failure);
    this.storage.commit();
    return new Promise((resolve, reject) =>
      this.await({
        durable(end) {
          if (end < position) return true;
          resolve();
          return false;
        },
        failed: reject,
      })
    );
  }

  /** Resolves when a publish to `topic` that ends at `position` may be confirmed, or rejects. */
  confirmable(topic: Topic, position: number): Promise<void> {
    const { storage } = this;
    if (!storage.isRelaxed(topic.state)) return this.durableTo(position);
    if (storage.confirmableEnd >= position) return Promise.resolve();
    if (this.failure !== null) return Promise.reject(this.failure);
    storage.commitTo(topic.state);
    return new Promise((resolve, reject) => {
      const told = (end: number) => {
        if (end < position) return true;
        resolve();
        return false;
      };
      this.await({ written: told, durable: told, failed: reject });
    });
  }

  /** Calls `flush` after the input at hand. */
  flushLater(flushable: Flushable): void {
    this.#turn.flushLater(flushable);
  }

  /** Stops accepting and gives the data folder back, everything durable. */
  async close(): Promise<void> {
    this.#stop();
    await this.scrubber.stop();
    this.quotas.report(this.clock.monoMs(), true);
    await this.audit.close();
    await this.storage.close();
  }

  /** Gives the data folder back as a crash would. For tests. */
  async abandon(): Promise<void> {
    this.#stop();
    await this.scrubber.abandon();
    await this.audit.abandon();
    await this.storage.abandon();
  }

  // What channels ask for (ChannelEffects).

  finish(channel: ChannelState, offset: number): void {
    this.storage.finish(channel, offset);
  }

  requeue(channel: ChannelState, offset: number, attempts: number, dueMs: number): void {
    this.storage.requeue(channel, offset, attempts, dueMs);
  }

  empty(channel: ChannelState, to: number): void {
    const messages = owedCount(channel);
    this.storage.emptyChannel(channel, to);
    this.#auditChannel("channel_emptied", channel, messages);
  }

  schedule(timed: Timed, dueMs: number): void {
    this.#turn.schedule(timed, dueMs);
  }

  wake(channel: Channel): void {
    this.#turn.wake(channel);
  }

  /** What the storage reports: relaxed messages are written. */
  written(states: readonly TopicState[], end: number): void {
    this.#appended(states);
    const waiters = this.#waiters;
    this.#waiters = [];
    for (const waiter of waiters) {
      if (waiter.written?.(end) ?? true) this.#waiters.push(waiter);
    }
  }

  /** What the storage reports: a group is on disk. */
  durable(states: readonly TopicState[], end: number): void {
    this.#appended(states);
    const waiters = this.#waiters;
    this.#waiters = [];
    for (const waiter of waiters) if (waiter.durable(end)) this.#waiters.push(waiter);
  }

  /** What the storage reports: the disk is full, and what is to be written waits. */
  stalled(error: Error): void {
    this.guard.stalled(error);
  }

  /** What the storage reports: nothing is written any more. */
  fail(error: Error): void {
    this.#failedMs = this.clock.wallMs();
    this.logger.error("The log cannot be written; nothing more is accepted", {
      error: String(error),
    });
    const waiters = this.#waiters;
    this.#waiters = [];
    for (const waiter of waiters) waiter.failed(error);
    this.onFailure(error);
  }

  #appended(states: readonly TopicState[]): void {
    const nowMs = this.clock.monoMs();
    const wallMs = this.clock.wallMs();
    for (const state of states) this.topics.get(state.name)?.appended(nowMs, wallMs);
  }

  /** What is ephemeral is meant to go: it is not recorded. */
  #auditChannel(
    event: "channel_deleted" | "channel_emptied",
    state: ChannelState,
    messages: number,
  ): void {
    if (state.ephemeral || state.topic.ephemeral) return;
    this.audit.record({ event, topic: state.topic.name, channel: state.name, messages });
  }

  /** Gives up what a topic has below `to`. */
  #trim(topic: Topic, to: number): void {
    this.storage.decide({ type: "topic_trimmed", topic: topic.state.number, to });
    topic.trimmed(to);
  }

  /** Writes what a message has before its body. */
  #writeHead(wire: number, sequence: number): void {
    const { ring } = this.storage.log;
    writeTimestampMs(ring, wire, this.clock.wallMs());
    ring[wire + MESSAGE_ATTEMPTS_OFFSET] = 0;
    ring[wire + MESSAGE_ATTEMPTS_OFFSET + 1] = 0;
    writeMessageId(ring, wire + MESSAGE_ID_OFFSET, this.storage.nodeId, sequence);
  }

  #checkAccepting(): void {
    if (this.exiting) throw new RefusedError("exiting", "exiting");
    if (this.failure !== null) throw new RefusedError("storage", "the log cannot be written");
  }

  #addTopic(state: TopicState): Topic {
    const topic = new Topic(state, this, this.#channelOptions);
    this.topics.set(state.name, topic);
    return topic;
  }

  #createChannelState(topic: Topic, name: string): ChannelState {
    const { storage } = this;
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
    topic.state.settled = false;
    const names = await knownChannels(topic.state.name);
    if (topic.deleted || this.#closed || this.failure !== null) return;
    try {
      for (const name of names) {
        if (isEphemeral(name)) continue;
        while (!this.hasRoom(CHANNEL_EVENT_BYTES, 1)) await this.room();
        if (topic.deleted || this.#closed) return;
        this.ensureChannel(topic, name);
      }
    } catch (error) {
      if (!(error instanceof RefusedError)) throw error;
      this.logger.warn("Cannot make the channels that others know", {
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

  #armMaintenance(): void {
    if (this.#closed) return;
    this.#maintainTimer = this.clock.setTimer(MAINTAIN_MS, () => {
      const nowMs = this.clock.monoMs();
      for (const upload of [...this.uploads]) upload.check(nowMs);
      this.quotas.report(nowMs);
      this.evictor.run()
        .then(() => this.storage.maintain(this.guard.isClosed))
        .then(() => this.#maintainFailed = false, (error) => {
          // Once for all the attempts that fail in a row.
          if (!this.#maintainFailed) {
            this.logger.error("Cannot write a checkpoint or remove old files", {
              error: String(error),
            });
          }
          this.#maintainFailed = true;
        })
        .finally(() => this.#armMaintenance());
    });
  }

  async #startGuard(): Promise<void> {
    await this.guard.start();
    const { space, minFreeBytes } = this.guard;
    const { logFileBytes } = this.#options.storage;
    if (space === null || space.totalBytes - minFreeBytes >= LOG_FILES_ROOM * logFileBytes) return;
    this.logger.warn("The disk is small for log-file-bytes: space comes back by whole files", {
      disk_bytes: space.totalBytes,
      log_file_bytes: logFileBytes,
    });
  }

  #stop(): void {
    this.#closed = true;
    this.exiting = true;
    this.guard.stop();
    this.#turn.stop();
    this.#maintainTimer?.cancel();
    this.#maintainTimer = null;
  }
}

/** The messages that a channel has been given and has not finished: waiting, in flight, deferred. */
function owedCount({ finished, topic }: ChannelState): number {
  return Math.max(0, topic.visibleTail - finished.floor - finished.above);
}
