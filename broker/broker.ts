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
  MESSAGE_ATTEMPTS_OFFSET,
  MESSAGE_BODY_OFFSET,
  MESSAGE_ID_OFFSET,
  writeMessageId,
  writeTimestampMs,
} from "@sluice/shared/protocol";
import { type Clock, type Disk, type Random, REPORTED_VERSION } from "@sluice/shared/runtime";
import type { Logger } from "@sluice/shared/telemetry";
import { Administration, owedCount, type RegistryListener } from "./administration.ts";
import { Audit } from "./audit.ts";
import { brokerBudgets, Budgets } from "./budgets.ts";
import { BrokerCounters } from "./counters.ts";
import { LARGE_BODIES_SHARE } from "./config.ts";
import type { DiskGuard } from "./disk_guard.ts";
import { Drain } from "./drain.ts";
import { type DrainReport, drainReport } from "./drain_report.ts";
import { Exit } from "./exit.ts";
import { type DurableWaiter, DurableWaiters } from "./durable_waiters.ts";
import type { Evictor } from "./eviction.ts";
import { type Health, judgeHealth, probedHealth } from "./health.ts";
import { BodyReader, DamagedBodyError, DeliveryMemory } from "./large_delivery.ts";
import { LaggingPace } from "./lagging_pace.ts";
import { LargeUpload } from "./large_upload.ts";
import { lookingReader } from "./looking_reader.ts";
import { Management } from "./manage.ts";
import { manageBudgets } from "./manage_budgets.ts";
import { MessageAges } from "./message_ages.ts";
import { MessageLook } from "./message_look.ts";
import { MessageReader } from "./message_reader.ts";
import type { MessageTraces } from "./message_traces.ts";
import {
  clientOf,
  NO_PUBLISH_LIMITS,
  type PublishLimitOptions,
  PublishLimits,
} from "./publish_limits.ts";
import { Mover } from "./move.ts";
import { QUOTA_TEXT, type TopicQuotas } from "./quota.ts";
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
  ChannelState,
  FIRST_PRODUCER_BYTES,
  type LargeBody,
  type Origin,
  type Quota,
  type Scrubber,
  Storage,
  TopicState,
  type WrittenBody,
} from "./storage/mod.ts";
import { type RefusalCode, RefusedError } from "./refused.ts";
import { type CareOptions, StorageCare } from "./storage_care.ts";
import { type Flushable, Turn } from "./turn.ts";
import { WriteProbe } from "./write_probe.ts";

export { type BodyReader, DamagedBodyError, type Flushable, type LargeUpload };
export {
  CHANNEL_ACTIONS,
  ManageError,
  type ManageRequest,
  OPERATIONS_MAX,
  TOPIC_ACTIONS,
} from "./manage.ts";
export { TOMBSTONE_MS_MAX, TOMBSTONES_MAX } from "./tombstones.ts";
export type { LookedMessage } from "./message_look.ts";
export { MOVE_COUNT_MAX, type MoveReport } from "./move.ts";
export { clientOf, type DurableWaiter, type RefusalCode, RefusedError, type RegistryListener };
export {
  ACK_MODES,
  bytesFrom,
  DATA_FORMAT,
  DEDUP_LIMITS_DEFAULT,
  FIRST_PRODUCER_BYTES,
  isAckMode,
  isQuotaAction,
  isQuotaBytes,
  isRate,
  type Origin,
  OWN_LEVELS,
  PRODUCER_ATTRIBUTE_BYTES,
  QUOTA_ACTIONS,
  type TopicPolicy,
} from "./storage/mod.ts";

/** Settings of a {@linkcode Broker}. */
export interface BrokerOptions extends CareOptions {
  readonly channel: Omit<ChannelOptions, "newLatency">;
  /** The percentiles to tell of the time from publish to finish; none are measured when absent. */
  readonly latency?: LatencyOptions;
  readonly topicsMax: number;
  readonly channelsPerTopicMax: number;
  /** Memory for the bodies of publishes that have not arrived whole, over all connections. */
  readonly publishBytesMax: number;
  /** How long the disk may take to answer a write before health tells; 2 s when absent. */
  readonly healthWriteTimeoutMs?: number;
  /** How fast may be published; as fast as anybody can when absent. */
  readonly limits?: PublishLimitOptions;
  /** The share of time that lagging channels have while anybody publishes; 100 when absent. */
  readonly laggingSharePercent?: number;
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

/** Why a publish with a sequence is refused. */
const TOO_OLD_TEXT = "the sequence is older than what is remembered of its producer";
const PRODUCERS_TEXT = "too much is remembered of producers";
const HEALTH_WRITE_TIMEOUT_MS = 2_000;
/** What a requeue takes in the log, at most. */
const REQUEUE_ROOM_BYTES = 64;
/** Bodies up to this size may use all memory for publishes, larger ones only a share. */
const SMALL_BODY_BYTES = 64 * 1024;
/** Bodies on their way to consumers take this share of the memory for publishes, besides. */
const DELIVERY_SHARE = 1 / 4;
/** See the module. */
export class Broker implements ChannelEffects {
  readonly administration: Administration;
  readonly topics: ReadonlyMap<string, Topic>;
  readonly storage: Storage;
  readonly source: MessageReader;
  /** Topics and channels, changed by requests that can be repeated. */
  readonly management: Management;
  /** Messages shown to whoever does not consume them. */
  readonly look: MessageLook;
  /** How old messages are. */
  readonly ages: MessageAges;
  readonly mover: Mover;
  readonly guard: DiskGuard;
  readonly quotas: TopicQuotas;
  readonly evictor: Evictor;
  readonly scrubber: Scrubber;
  readonly audit: Audit;
  readonly clock: Clock;
  readonly random: Random;
  readonly logger: Logger;
  /** Called once when the storage fails. */
  onFailure: (error: Error) => void = () => {};
  /** Nothing new is accepted once it has begun. */
  readonly exit = new Exit();
  /** Whether publishes are refused, and nothing is delivered, by request. */
  readonly drain: Drain;
  readonly writeProbe: WriteProbe;
  /** Bytes of publishes that have not arrived whole. */
  stagedBytes = 0;
  /** Times that there was no memory for a body that arrives. */
  stageRefusedCount = 0;
  /** Times that somebody had to wait for room in the log. */
  roomWaitCount = 0;
  /** All that is bounded; the doors add theirs. */
  readonly budgets: Budgets;
  readonly counters = new BrokerCounters();
  /** How long the start took to read the data folder. */
  openingMs = 0;
  /** How fast may be published. */
  readonly limits: PublishLimits;
  /** The spans of messages; null while none are made. */
  traces: MessageTraces | null = null;
  /** Publishes with a sequence that were not stored, by why; since the start. */
  readonly repeats = { answered: 0, tooOld: 0, throttled: 0 };
  /** Bodies on their way into the log. */
  readonly uploads = new Set<LargeUpload>();
  /** For the bodies of large messages on their way to consumers. */
  readonly deliveryMemory: DeliveryMemory;
  /** Of the channels that lag. */
  readonly pace: LaggingPace;

  readonly #options: BrokerOptions;
  readonly #care: StorageCare;
  readonly #turn: Turn;
  readonly #waiters = new DurableWaiters();
  readonly #openedMs: number;
  readonly #slowMs: number;
  #failedMs = 0;
  #closed = false;

  private constructor(storage: Storage, drain: Drain, seams: BrokerSeams, options: BrokerOptions) {
    this.storage = storage;
    this.drain = drain;
    this.clock = seams.clock;
    this.random = seams.random;
    this.logger = seams.logger;
    this.#options = options;
    const { latency } = options;
    const channelOptions: ChannelOptions = {
      ...options.channel,
      ...latency && { newLatency: () => new LatencyWindow(seams.clock, latency.windowMs) },
      onSample: (publishedMs) =>
        this.counters.endToEnd.observe(Math.max(0, seams.clock.wallMs() - publishedMs) / 1000),
    };
    this.deliveryMemory = new DeliveryMemory(options.publishBytesMax * DELIVERY_SHARE);
    this.pace = new LaggingPace(
      () => storage.counters.messages + storage.large.counters.partBytes,
      options.laggingSharePercent ?? 100,
    );
    this.#turn = new Turn(seams.clock, this.pace, () => drain.isFrozen);
    drain.onChange = () => this.#drainChanged();
    this.#slowMs = options.healthWriteTimeoutMs ?? HEALTH_WRITE_TIMEOUT_MS;
    this.writeProbe = new WriteProbe({
      clock: seams.clock,
      log: storage.log,
      durable: () => this.durableTo(this.position),
    }, this.#slowMs);
    this.#openedMs = seams.clock.wallMs();
    this.audit = new Audit(seams, options.storage.dataPath);
    this.source = new MessageReader(
      storage,
      seams.clock,
      seams.logger,
      (topic, offset, position) =>
        this.audit.record({ event: "message_damaged", topic, offset, position }),
    );
    const looking = lookingReader(storage, seams.clock);
    this.look = new MessageLook(storage, looking, seams.clock);
    this.ages = new MessageAges(looking, seams.clock);
    this.mover = new Mover(this);
    for (const { position, bytes, reason } of storage.opening.damage) {
      this.audit.record({ event: "log_damaged", position, bytes, reason });
    }
    this.limits = new PublishLimits(seams.clock, options.limits ?? NO_PUBLISH_LIMITS);
    this.administration = new Administration({
      storage,
      clock: seams.clock,
      logger: seams.logger,
      audit: this.audit,
      counters: this.counters,
      options,
      runningTopic: (state) => {
        const topic = new Topic(state, this, channelOptions);
        this.limits.attach(topic);
        return topic;
      },
      configured: (topic) => this.limits.attach(topic),
      checkAccepting: () => this.#checkAccepting(),
      isOver: () => this.#closed || this.failure !== null,
    });
    this.topics = this.administration.topics;
    this.management = new Management(this, seams.clock);
    this.#care = new StorageCare({
      ...seams,
      storage,
      audit: this.audit,
      options,
      topics: this.topics,
      uploads: this.uploads,
      isExiting: () => this.exiting,
      durable: () => this.durableTo(this.position),
    });
    const { guard, quotas, evictor, scrubber } = this.#care;
    this.guard = guard;
    this.quotas = quotas;
    this.evictor = evictor;
    this.scrubber = scrubber;
    this.budgets = new Budgets([...brokerBudgets(this, options), ...manageBudgets(this)]);
  }

  /** Opens the data folder and takes up where it was left. Rejects as `Storage.open` does. */
  static async open(seams: BrokerSeams, options: BrokerOptions): Promise<Broker> {
    const holder: { broker: Broker | null } = { broker: null };
    const startMs = seams.clock.monoMs();
    const storage = await Storage.open(seams.disk, seams.clock, options.storage, {
      written: (topics, end) => holder.broker?.written(topics, end),
      durable: (topics, end) => holder.broker?.durable(topics, end),
      stalled: (error) => holder.broker?.stalled(error),
      failed: (error) => holder.broker?.fail(error),
      warn: (message, error) =>
        seams.logger.component("storage").warn(message, { error: String(error) }),
      recovering: (replayedBytes, totalBytes) => seams.recovering?.(replayedBytes, totalBytes),
    });
    let drain: Drain;
    try {
      drain = await Drain.open(seams, options.storage.dataPath);
    } catch (error) {
      await storage.abandon();
      throw error;
    }
    const broker = new Broker(storage, drain, seams, options);
    holder.broker = broker;
    const nowMs = seams.clock.monoMs();
    const wallMs = seams.clock.wallMs();
    for (const state of storage.state.topics.values()) {
      broker.administration.recover(state, nowMs, wallMs);
    }
    broker.openingMs = seams.clock.monoMs() - startMs;
    try {
      await broker.management.open(seams.disk, options.storage.dataPath);
      await broker.#care.start();
    } catch (error) {
      await broker.abandon();
      throw error;
    }
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

  /** What it was opened with. */
  get options(): BrokerOptions {
    return this.#options;
  }

  /** The percentiles that are told of the time from publish to finish. */
  get latencyQuantiles(): readonly number[] {
    return this.#options.latency?.quantiles ?? [];
  }

  /** Set once it was told to end: nothing new is accepted. */
  get exiting(): boolean {
    return this.exit.hasBegun;
  }

  set exiting(exiting: boolean) {
    if (exiting) this.exit.begin();
    else this.exit.takeBack();
  }

  /** Whether it accepts and delivers now, and why not. */
  health(): Health {
    const { failure, storage, guard, drain } = this;
    const { damage, orphanRecords } = storage.opening;
    const pressure = guard.refusal();
    return judgeHealth({
      version: REPORTED_VERSION,
      stopping: this.exit.isAnnounced,
      drainingSinceMs: drain.isOn ? drain.state.sinceMs : null,
      deliveryFrozen: drain.isFrozen,
      slowSinceMs: this.#slowSinceMs(),
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

  /** As `health`, after a write of a record that means nothing; null when that is asked for too often. */
  async probeHealth(): Promise<Health | null> {
    // What stops has nothing to write any more.
    if (this.exiting) return this.health();
    const outcome = await this.writeProbe.probe();
    return outcome && probedHealth(this.health(), outcome.durationMs, outcome.failure);
  }

  /** How far a drain has come. */
  drainReport(): DrainReport {
    return drainReport(this);
  }

  /** Since when the disk has not answered, Unix ms, if that is too long. */
  #slowSinceMs(): number | null {
    const { askedMs } = this.storage.log;
    if (askedMs === null) return null;
    const owedMs = this.clock.monoMs() - askedMs;
    return owedMs < this.#slowMs ? null : this.clock.wallMs() - owedMs;
  }

  /** The topic of a name, made when missing. Throws {@linkcode RefusedError}. */
  ensureTopic(name: string): Topic {
    return this.administration.ensureTopic(name);
  }

  /** The channel of a name, made when missing. Throws {@linkcode RefusedError}. */
  ensureChannel(topic: Topic, name: string): Channel {
    return this.administration.ensureChannel(topic, name);
  }

  /** Ends a subscription; an ephemeral channel goes with its last one. */
  leave(topic: Topic, channel: Channel, consumer: Consumer): void {
    // As nsqd, which writes down at its end what it has in flight. Who crashes begins to count anew.
    if (this.exiting && this.failure === null && !channel.deleted) {
      channel.keepAttempts(consumer, () => this.hasRoom(REQUEUE_ROOM_BYTES, 1));
    }
    channel.leave(consumer);
    // After a failure nothing can be decided any more, and nothing ephemeral survives the restart.
    if (this.failure !== null) return;
    if (channel.state.ephemeral && channel.consumers.size === 0 && !channel.deleted) {
      this.administration.deleteChannel(topic, channel);
    }
  }

  /** Whether a publish of so many bytes and messages can be written now; else wait for `room`. */
  hasRoom(bytes: number, messages: number): boolean {
    return this.storage.hasRoom(bytes, messages);
  }

  /** Resolves when it is worth asking `hasRoom` again. */
  room(): Promise<void> {
    this.roomWaitCount++;
    return this.storage.room();
  }

  /** Takes memory for a body that arrives in parts; false when all of it is in use. */
  stage(bytes: number): boolean {
    const { publishBytesMax } = this.#options;
    // Large bodies cannot take all of it, so that many which never end leave the small ones room.
    const bytesMax = bytes <= SMALL_BODY_BYTES
      ? publishBytesMax
      : publishBytesMax * LARGE_BODIES_SHARE;
    if (this.stagedBytes + bytes > bytesMax) {
      this.stageRefusedCount++;
      return false;
    }
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
    if (this.drain.isOn) throw new RefusedError("draining", "draining");
    const reason = this.guard.refusal();
    if (reason === null) return;
    this.guard.throttledCount++;
    throw new RefusedError("throttled", reason);
  }

  /** The bound of a topic's bytes. */
  quotaOf(topic: TopicState): Quota {
    return this.#care.quotaOf(topic);
  }

  /**
   * Lets one publish command pass to a topic, or throws {@linkcode RefusedError}: it may be full, or
   * published to too fast.
   */
  admitTo(topic: Topic): void {
    if (topic.limiter !== null) this.limits.admitTo(topic.limiter);
    if (topic.quotaRoomBytes > 0 || this.quotas.admits(topic)) return;
    throw new RefusedError("throttled", QUOTA_TEXT);
  }

  /**
   * Where the log has to be durable (or written, as the topic's mode says) for a repeat to be
   * confirmed; null for what is not stored yet. Asked in the turn in which it is published. Throws
   * {@linkcode RefusedError} when that is not known any more, or the first one cannot become durable.
   */
  repeatEnd(topic: Topic | undefined, origin: Origin): number | null {
    const dedup = topic?.state.dedup ?? null;
    if (dedup === null) return null;
    const verdict = dedup.judge(origin, this.clock.wallMs());
    if (verdict === "new") return null;
    if (verdict === "too_old") {
      this.repeats.tooOld++;
      throw new RefusedError("sequence_too_old", TOO_OLD_TEXT);
    }
    const end = dedup.endOf(origin);
    if (end > this.storage.log.durableEnd && this.failure !== null) this.#checkAccepting();
    this.repeats.answered++;
    return end;
  }

  /** As `admitTo`, for a new publish with a sequence: there may be no memory to remember it in. */
  admitOrigin(topic: Topic, origin: Origin): void {
    const { dedup } = this.storage.state;
    const bytes = topic.state.dedup?.bytesFor(origin) ?? FIRST_PRODUCER_BYTES;
    if (bytes === 0 || dedup.bytes + bytes <= dedup.limits.bytes) return;
    this.repeats.throttled++;
    throw new RefusedError("throttled", PRODUCERS_TEXT);
  }

  /**
   * Publishes `body[start, end)`; it is copied. `dueMs` is Unix ms, 0 for at once. Whoever confirms it
   * waits for `position`, as the topic's mode says. Throws {@linkcode RefusedError}. `admit` and
   * `hasRoom` have been asked, and with an `origin`, which it completes, `repeatEnd` and `admitOrigin`.
   */
  publish(
    topic: Topic,
    body: Uint8Array,
    start: number,
    end: number,
    dueMs: number,
    origin: Origin | null = null,
  ): void {
    this.#checkAccepting();
    const { storage } = this;
    const sequence = storage.nextSequence;
    const wireBytes = MESSAGE_BODY_OFFSET + end - start;
    const wire = storage.beginMessage(topic.state, wireBytes, dueMs, origin);
    const wallMs = this.#writeHead(wire, sequence);
    storage.log.ring.set(body.subarray(start, end), wire + MESSAGE_BODY_OFFSET);
    storage.endMessage();
    if (origin !== null) storage.completed(topic.state, origin, wallMs);
    storage.commitTo(topic.state);
    topic.messageCount++;
    topic.messageBytes += end - start;
    topic.quotaRoomBytes -= wireBytes;
    if (topic.limiter !== null) topic.limiter.published(end - start, this.clock.monoMs());
    if (this.traces !== null) this.#trace(topic, sequence, end - start);
  }

  /** As `publish`, of a body that is in the log already; `LargeUpload` asks for room. */
  publishLarge(
    topic: Topic,
    body: WrittenBody,
    dueMs: number,
    origin: Origin | null = null,
  ): void {
    this.#checkAccepting();
    const { storage } = this;
    const sequence = storage.nextSequence;
    const wire = storage.beginLargeMessage(topic.state, body, dueMs, origin);
    const wallMs = this.#writeHead(wire, sequence);
    storage.endMessage();
    if (origin !== null) storage.completed(topic.state, origin, wallMs);
    storage.commitTo(topic.state);
    topic.messageCount++;
    topic.messageBytes += body.bytes;
    topic.quotaRoomBytes -= MESSAGE_BODY_OFFSET + body.bytes;
    if (topic.limiter !== null) topic.limiter.published(body.bytes, this.clock.monoMs());
    if (this.traces !== null) this.#trace(topic, sequence, body.bytes);
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
    this.#waiters.add(waiter);
  }

  /** Resolves when the log is durable up to `position`; rejects when it never will be. */
  durableTo(position: number): Promise<void> {
    const { log } = this.storage;
    if (log.durableEnd < position) log.flush();
    return this.#waiters.durableTo(log, position);
  }

  /** Resolves when a publish to `topic` that ends at `position` may be confirmed, or rejects. */
  confirmable(topic: Topic, position: number): Promise<void> {
    const { storage } = this;
    if (!storage.isRelaxed(topic.state)) return this.durableTo(position);
    if (storage.confirmableEnd >= position) return Promise.resolve();
    if (this.failure !== null) return Promise.reject(this.failure);
    storage.commitTo(topic.state);
    return this.#waiters.confirmableTo(position);
  }

  /** Calls `flush` after the input at hand. */
  flushLater(flushable: Flushable): void {
    this.#turn.flushLater(flushable);
  }

  /** Stops accepting and gives the data folder back, everything durable. */
  async close(): Promise<void> {
    this.#stop();
    await this.drain.settled();
    await this.management.close();
    await this.#care.stop();
    await this.audit.close();
    await this.storage.close();
  }

  /** Gives the data folder back as a crash would. For tests. */
  async abandon(): Promise<void> {
    this.#stop();
    await this.drain.settled();
    await this.management.close();
    await this.#care.abandon();
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
    this.administration.emptied(channel, messages);
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
    this.#waiters.written(end);
  }

  /** What the storage reports: a group is on disk. */
  durable(states: readonly TopicState[], end: number): void {
    this.#appended(states);
    this.#waiters.durable(end);
  }

  /** What the storage reports: the disk is full, and what is to be written waits. */
  stalled(error: Error): void {
    this.guard.stalled(error);
  }

  /** What the storage reports: nothing is written any more. */
  fail(error: Error): void {
    this.#failedMs = this.clock.wallMs();
    this.logger.component("storage").error("The log cannot be written; nothing more is accepted", {
      error: String(error),
    });
    this.#waiters.failed(error);
    this.onFailure(error);
  }

  #appended(states: readonly TopicState[]): void {
    const nowMs = this.clock.monoMs();
    const wallMs = this.clock.wallMs();
    for (const state of states) this.topics.get(state.name)?.appended(nowMs, wallMs);
  }

  #trace({ state }: Topic, sequence: number, bytes: number): void {
    const isRelaxed = this.storage.isRelaxed(state);
    const { position } = this;
    this.traces?.published({ topic: state.name, sequence, bytes, position, isRelaxed });
  }

  /** Writes what a message has before its body; returns its timestamp, Unix ms. */
  #writeHead(wire: number, sequence: number): number {
    const { ring } = this.storage.log;
    const wallMs = this.clock.wallMs();
    writeTimestampMs(ring, wire, wallMs);
    ring[wire + MESSAGE_ATTEMPTS_OFFSET] = 0;
    ring[wire + MESSAGE_ATTEMPTS_OFFSET + 1] = 0;
    writeMessageId(ring, wire + MESSAGE_ID_OFFSET, this.storage.nodeId, sequence);
    return wallMs;
  }

  /** What was frozen flows again. */
  #drainChanged(): void {
    if (this.drain.isFrozen) return;
    for (const topic of this.topics.values()) {
      for (const channel of topic.channels.values()) channel.appended();
    }
  }

  /** Throws {@linkcode RefusedError} when nothing can be decided any more. */
  checkDeciding(): void {
    this.#checkAccepting();
  }

  #checkAccepting(): void {
    if (this.exiting) throw new RefusedError("exiting", "exiting");
    if (this.failure !== null) throw new RefusedError("storage", "the log cannot be written");
  }

  #stop(): void {
    this.#closed = true;
    this.exiting = true;
    this.#turn.stop();
  }
}
