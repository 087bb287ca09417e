/**
 * The durable side of a broker: typed operations over one commit log. Each changes the state at once
 * and puts its record in the group being filled; `durable` reports what a sync has made safe.
 *
 * - A message is visible to channels (`durableTail`) only when its bytes are on disk, or in a topic of
 *   mode `nsq_relaxed` when they are written.
 * - Messages of relaxed topics are written at once and synced in the background: see `loss_window.ts`.
 * - Finishes are gathered per channel and written with the next group, or after
 *   `finishSyncIntervalMs` when nothing else is written. A crash before that only redelivers.
 * - What an ephemeral channel does is not written; an ephemeral topic is written and forgotten at the
 *   next start.
 * - After the first failed write every operation throws `LogError` `sealed`. A full disk is no such
 *   failure: the group that does not fit is tried again every second, and all later ones behind it.
 */
import {
  CommitLog,
  type Damage,
  FileLogStore,
  type LogError,
  type LogFileInfo,
  LogReader,
  type LogStore,
  recordBytes,
} from "@sluice/shared/log";
import { type Clock, type Disk, DiskError, invariant, type Timer } from "@sluice/shared/runtime";
import { Histogram } from "@sluice/shared/telemetry";
import {
  COMPACTED_START_LEVELS,
  type CompatibilityLevels,
  LARGE_MESSAGE_LEVELS,
  POLICY_LEVELS,
  PRODUCER_LEVELS,
  raiseCompatibility,
} from "./compatibility.ts";
import type { SliceLimits } from "./checkpoint_chunk.ts";
import { DataFolder, LOG_FOLDER, SEQUENCE_BLOCK } from "./data_folder.ts";
import {
  attributesBytes,
  encodeEvent,
  encodeFinish,
  type Event,
  EVENT_KIND,
  FINISH_KIND,
  finishBytesMax,
  LARGE_MESSAGE_KIND,
  MESSAGE_HEADER_BYTES,
  MESSAGE_KIND,
  type Origin,
  REQUEUE_BYTES,
  REQUEUE_KIND,
  WIRE_HEADER_BYTES,
  writeMessageHeader,
  writeRequeue,
} from "./records.ts";
import type { CompactedFile } from "./compact_file.ts";
import {
  COMPACTION_OPTIONS_DEFAULT,
  type CompactionOptions,
  type CompactionReport,
  Compactor,
} from "./compaction.ts";
import type { DedupLimits } from "./dedup_window.ts";
import { tableBytes, writeTable } from "./large_body.ts";
import {
  LARGE_BODY_BYTES,
  LargeMessages,
  PART_OVERHEAD_BYTES,
  type WrittenBody,
} from "./large_messages.ts";
import { IndexPages } from "./index_pages.ts";
import { LOSS_WINDOW_LIMITS, LossWindow, type LossWindowLimits } from "./loss_window.ts";
import { restoreIndex, runsOf } from "./rebuild_index.ts";
import type { ScrubBeside } from "./scrub_beside.ts";
import { recoverState } from "./recover_state.ts";
import {
  applyEmptied,
  applyFinish,
  applyRequeue,
  type BrokerState,
  type ChannelState,
  type TopicState,
} from "./state.ts";
import type { AckMode } from "./topic_policy.ts";
import { Upkeep } from "./upkeep.ts";

/** Settings of a {@linkcode Storage}; sizes in bytes. */
export interface StorageOptions {
  readonly dataPath: string;
  /** Used when the folder is new; `required` refuses a folder of another node. */
  readonly nodeId: { readonly value: number; readonly required: boolean };
  readonly ringBytes: number;
  readonly logFileBytes: number;
  readonly pageCacheBytes: number;
  /** Memory for the places of messages in sealed files. */
  readonly indexCacheBytes: number;
  /** The largest message body that will ever be read. */
  readonly bodyBytesMax: number;
  readonly finishSyncIntervalMs: number;
  /** Of topics without one of their own; `durable` when absent. */
  readonly ackMode?: AckMode;
  /** What a power cut may take of relaxed topics; {@linkcode LOSS_WINDOW_LIMITS} when absent. */
  readonly lossWindow?: LossWindowLimits;
  /** How files that are pinned by few messages are written anew; the default when absent. */
  readonly compaction?: CompactionOptions;
  /** Bodies above are written as parts; a quarter of the ring at most. */
  readonly largeBodyBytes?: number;
  /** What is remembered of producers; the default when absent. */
  readonly dedup?: DedupLimits;
  /** How much of a checkpoint is written before others run; a test makes it small. */
  readonly checkpointSlice?: SliceLimits;
}

/** What a storage tells its owner. */
export interface StorageOwner {
  /** Relaxed messages up to `end` are written: these topics show more, and publishes may be confirmed. */
  written?(topics: readonly TopicState[], end: number): void;
  /** New messages of these topics are on disk, and so is everything below `end`. */
  durable(topics: readonly TopicState[], end: number): void;
  /** The disk was full, once more, for what has to be written; it is tried again. */
  stalled(error: Error): void;
  /** A write or sync failed: nothing is written any more. */
  failed(error: Error): void;
  /** Something went wrong that costs no message. */
  warn(message: string, error: unknown): void;
  /** How far a start has read the log; `totalBytes` is the most that there is to read. */
  recovering?(replayedBytes: number, totalBytes: number): void;
}

/** How a storage came up. */
export interface StorageOpening {
  readonly tornBytes: number;
  readonly damage: readonly Damage[];
  readonly replayedRecords: number;
  readonly orphanRecords: number;
}

const FINISH_OFFSETS_PER_RECORD_MAX = 65_536;
/** Bytes of relaxed messages that are not synced: half of what may be not durable at all. */
const LOSS_WINDOW_SHARE = 4;
/** Finishes that wait for a group are bounded to this share of the ring, at one a 64 bytes. */
const UNWRITTEN_SHARE = 64;
/** Events that came after the first release, and the level of a folder that has them. */
const EVENT_LEVELS: Readonly<Partial<Record<Event["type"], number>>> = {
  topic_configured: POLICY_LEVELS.reader,
  topic_trimmed: POLICY_LEVELS.reader,
};
/** The most that a message takes in the log besides its body. */
const RECORD_OVERHEAD_BYTES = 64;
/** A group that found the disk full is tried again this often. */
export const STALL_RETRY_MS = 1000;
/** After ids could not be reserved. */
const RESERVE_RETRY_MS = 100;
/** Bounds of the messages of a group. */
const GROUP_BOUNDS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 50_000];
/** More ids are reserved when fewer than this are left: more messages than any publish has. */
const SEQUENCE_MARGIN = SEQUENCE_BLOCK / 2;

/** See the module. */
export class Storage {
  readonly state: BrokerState;
  readonly log: CommitLog;
  readonly reader: LogReader;
  readonly nodeId: number;
  readonly opening: StorageOpening;
  /** What a power cut may take of relaxed topics. */
  readonly lossWindow: LossWindow;
  readonly large: LargeMessages;
  /** Counted since the start. */
  readonly counters = {
    groups: 0,
    messages: 0,
    messageBytes: 0,
    finishes: 0,
    checkpoints: 0,
    checkpointMs: 0,
    checkpointBytes: 0,
    filesRemoved: 0,
    bytesRemoved: 0,
  };
  /** Messages that one sync made durable; syncs of none do not count. */
  readonly groupMessages = new Histogram(GROUP_BOUNDS);

  readonly #folder: DataFolder;
  readonly #store: LogStore;
  readonly #clock: Clock;
  readonly #options: StorageOptions;
  readonly #owner: StorageOwner;
  readonly #unwrittenMax: number;
  #sequence: number;
  #reserving: Promise<boolean> | null = null;
  /** Topics with messages in the group being filled, in the one being written, and in those not synced. */
  #filling: TopicState[] = [];
  #writing: TopicState[] = [];
  #unsynced: TopicState[] = [];
  #confirmableEnd: number;
  /** Has raised the levels of the folder for policies, or does. */
  #allowing: Promise<void> | null = null;
  /** What a release must know to read and to write what may be written now. */
  #levels: CompatibilityLevels;
  #allowingProducers: Promise<void> | null = null;
  /** Resolves when no level is being raised. */
  #raising: Promise<void> = Promise.resolve();
  /** Of `counters.messages`, those in closed, written and durable groups. */
  #closedMessages = 0;
  #writtenMessages = 0;
  #durableMessages = 0;
  #finishing: ChannelState[] = [];
  #unwritten = 0;
  #finishTimer: Timer | null = null;
  #scratch = new Uint8Array(1024);
  readonly #upkeep: Upkeep;
  readonly #compactor: Compactor;
  /** Resolves when the file that is being replaced is in its place, with its sidecar. */
  #swapping: Promise<void> | null = null;
  #life: "open" | "closing" | "abandoned" = "open";
  /** Tries a group again that has found the disk full; set while one waits. */
  #retry: (() => void) | null = null;
  #retryTimer: Timer | null = null;
  readonly #pages: IndexPages;
  /** Files whose index was made again. */
  readonly #restored = new Set<number>();
  /** The sidecars being written. */
  #indexing: Promise<void> = Promise.resolve();

  private constructor(
    folder: DataFolder,
    store: LogStore,
    clock: Clock,
    options: StorageOptions,
    owner: StorageOwner,
    pages: IndexPages,
    recovered: Awaited<ReturnType<typeof recoverState>>,
  ) {
    this.#folder = folder;
    this.#levels = folder.levels;
    this.#store = store;
    this.#clock = clock;
    this.#options = options;
    this.#owner = owner;
    this.#pages = pages;
    pages.repair = (file) => this.#index(this.#restore(file));
    this.#unwrittenMax = Math.floor(options.ringBytes / UNWRITTEN_SHARE);
    this.#sequence = folder.firstSequence;
    this.state = recovered.state;
    this.nodeId = folder.nodeId;
    this.opening = {
      tornBytes: recovered.tornBytes,
      damage: recovered.damage,
      replayedRecords: recovered.replayedRecords,
      orphanRecords: recovered.state.orphanRecords,
    };
    this.log = new CommitLog(
      store,
      {
        closing: () => this.#closing(),
        written: (end) => this.#written(end),
        firstSequence: () => this.#sequence,
        durable: (end) => this.#durable(end),
        sealed: (file) => this.#sealed(file),
        stalled: (error) => this.#stalled(error),
        failed: (error) => this.#owner.failed(error),
      },
      { ringBytes: options.ringBytes, fileBytes: options.logFileBytes, clock },
      { end: recovered.end, fileStart: recovered.fileStart, epoch: folder.epoch },
    );
    this.reader = new LogReader(this.log, store, {
      cacheBytes: options.pageCacheBytes,
      clock,
      recordBytesMax: recordBytes(
        Math.min(options.bodyBytesMax, options.largeBodyBytes ?? LARGE_BODY_BYTES) + 4096,
      ),
    });
    const limits = options.lossWindow ?? LOSS_WINDOW_LIMITS;
    const bytes = Math.min(limits.bytes, options.ringBytes / LOSS_WINDOW_SHARE);
    this.lossWindow = new LossWindow(clock, { ...limits, bytes }, () => this.log.flush());
    this.#confirmableEnd = recovered.end;
    this.large = new LargeMessages(
      this.log,
      {
        ringBytes: options.ringBytes,
        ...(options.largeBodyBytes === undefined ? {} : { bodyBytesMin: options.largeBodyBytes }),
      },
      () => this.#raise(LARGE_MESSAGE_LEVELS),
      folder.levels.reader >= LARGE_MESSAGE_LEVELS.reader,
    );
    const { state, log } = this;
    this.#upkeep = new Upkeep({
      state,
      log,
      store,
      clock,
      writeFinishes: () => this.#writeFinishes(),
      pinnedFrom: () => this.large.pinnedFrom,
      remove: (file) => this.#remove(file),
      checkpointed: (bytes, ms) => {
        this.counters.checkpoints++;
        this.counters.checkpointBytes += bytes;
        this.counters.checkpointMs += ms;
      },
      slice: options.checkpointSlice,
    }, { position: recovered.checkpoint, bytes: recovered.checkpointBytes });
    this.#compactor = new Compactor({
      state,
      log,
      store,
      usage: pages.usage,
      clock,
      // The ring has what was written, where it was written.
      compactTo: () => Math.min(this.#upkeep.reclaimTo, log.hotStart),
      makeDurable: () => this.#upkeep.makeDurable(),
      swap: (file, compacted, topics) => this.#swap(file, compacted, topics),
      warn: (message, error) => owner.warn(message, error),
    }, options.compaction ?? COMPACTION_OPTIONS_DEFAULT);
  }

  /**
   * Opens a data folder, made when missing. Rejects with `DiskError` `locked` when another broker
   * has it, and with `LogError` when serving it could lose or bring back a message.
   */
  static async open(
    disk: Disk,
    clock: Clock,
    options: StorageOptions,
    owner: StorageOwner,
  ): Promise<Storage> {
    const folder = await DataFolder.open(disk, options.dataPath, options.nodeId);
    try {
      const store = await FileLogStore.open(
        disk,
        `${options.dataPath}/${LOG_FOLDER}`,
        folder.epoch,
        options.logFileBytes,
      );
      try {
        const pages = new IndexPages(store, options.indexCacheBytes);
        const recovered = await recoverState(
          store,
          pages,
          (replayedBytes, totalBytes) => owner.recovering?.(replayedBytes, totalBytes),
          options.dedup,
        );
        return new Storage(folder, store, clock, options, owner, pages, recovered);
      } catch (error) {
        await store.close();
        throw error;
      }
    } catch (error) {
      folder.lock.release();
      throw error;
    }
  }

  /** What a release must know at least to read the folder, and to write to it. */
  get levels(): CompatibilityLevels {
    return this.#levels;
  }

  /** The sequence the next message gets. */
  get nextSequence(): number {
    return this.#sequence;
  }

  /** Publishes to relaxed topics that end below may be confirmed; at least what is durable. */
  get confirmableEnd(): number {
    return this.#confirmableEnd;
  }

  /** When a publish to a topic is confirmed. */
  ackModeOf(topic: TopicState): AckMode {
    return topic.ackMode ?? this.#options.ackMode ?? "durable";
  }

  /** Whether publishes to a topic are confirmed before they are durable. */
  isRelaxed(topic: TopicState): boolean {
    return this.ackModeOf(topic) !== "durable";
  }

  /** What lies beside the log, for whoever checks it. */
  get beside(): ScrubBeside {
    return {
      store: this.#store,
      indexed: () => this.#indexed(),
      remakeIndex: (file) => this.#pages.remake(file),
      renewCheckpoint: (damaged, good) => this.#upkeep.renew(damaged, good),
    };
  }

  /** The files of the log, for whoever reads them block by block. */
  get blocks(): Pick<LogStore, "files" | "read"> {
    return this.#store;
  }

  /** Log files there are, and the bytes in them. */
  get logFiles(): readonly LogFileInfo[] {
    return this.#store.files;
  }

  /** What the log takes on disk: all of it, but for what compaction has given back. */
  get storedBytes(): number {
    return this.log.end - (this.#store.files[0]?.start ?? this.log.end) - this.holeBytes;
  }

  /** Bytes between the log's start and its end that take no space. */
  get holeBytes(): number {
    return this.#pages.usage.holeBytes;
  }

  /** What compaction has found and done. */
  get compaction(): CompactionReport {
    return this.#compactor.report;
  }

  /** Messages that may be loaded at a time without pushing out what each other needs. */
  get loadsMax(): number {
    return Math.min(this.#pages.loadsMax, this.reader.loadsMax);
  }

  /** Looks into the cache of index pages, by whether the page was there. */
  get indexLookups(): { readonly hits: number; readonly misses: number } {
    return this.#pages;
  }

  /** Memory that holds pages of the index. */
  get indexCachedBytes(): number {
    return this.#pages.cachedBytes;
  }

  /** Whether a publish of `bytes`, in so many messages, may be written now; else wait for `room`. */
  hasRoom(bytes: number, messages = 1): boolean {
    // Sealed: let the caller go on and meet the error.
    if (this.log.error !== null) return true;
    const recordsBytes = bytes + messages * RECORD_OVERHEAD_BYTES;
    return this.log.hasRoom(recordsBytes) && this.#unwritten < this.#unwrittenMax &&
      this.#sequence + messages < this.#folder.reserved;
  }

  /** Whether a part of `bytes` may be written now, `parts` being in its body's table; else wait for `room`. */
  hasPartRoom(bytes: number, parts: number): boolean {
    if (this.log.error !== null) return true;
    return this.large.hasRoom() && this.hasRoom(bytes + parts * PART_OVERHEAD_BYTES);
  }

  /** Whether a publish can be one group at all; a larger one is written piece by piece. */
  fitsGroup(bytes: number, messages: number): boolean {
    return bytes + messages * RECORD_OVERHEAD_BYTES <= this.#options.ringBytes / 4;
  }

  /** Resolves when it is worth asking `hasRoom` again. */
  async room(): Promise<void> {
    if (this.#sequence + SEQUENCE_MARGIN >= this.#folder.reserved && !await this.#reserveMore()) {
      // Whoever waits asks again: not in a tight loop while the disk refuses.
      await this.#clock.sleep(RESERVE_RETRY_MS);
    }
    if (this.large.isLocked) await this.#unlockLarge();
    await this.log.room();
  }

  async #unlockLarge(): Promise<void> {
    try {
      await this.large.unlock();
    } catch (error) {
      this.#owner.warn("Cannot raise the folder's compatibility level for large messages", error);
      await this.#clock.sleep(RESERVE_RETRY_MS);
    }
  }

  /**
   * Starts a message: returns the index in `log.ring` at which its wire part of `wireBytes` goes.
   * The caller fills all of it, with the id made of `nodeId` and the `nextSequence` from before the
   * call, and calls `endMessage`. `dueMs` is Unix ms, 0 for at once. With an `origin` it completes that
   * publish: `allowProducers` has resolved, and `endMessage` is followed by `completed`.
   */
  beginMessage(
    topic: TopicState,
    wireBytes: number,
    dueMs: number,
    origin: Origin | null = null,
  ): number {
    const wire = this.#begin(MESSAGE_KIND, topic, wireBytes, dueMs, 0, origin);
    this.counters.messageBytes += wireBytes;
    return wire;
  }

  /**
   * Starts a message whose body is in the log: as `beginMessage`, the caller fills the wire part before
   * the body. The body is the message's from here on.
   */
  beginLargeMessage(
    topic: TopicState,
    body: WrittenBody,
    dueMs: number,
    origin: Origin | null = null,
  ): number {
    const wireBytes = WIRE_HEADER_BYTES + tableBytes(body.parts.length);
    const wire = this.#begin(LARGE_MESSAGE_KIND, topic, wireBytes, dueMs, body.bytes, origin);
    writeTable(this.log.ringView, wire + WIRE_HEADER_BYTES, body);
    const first = body.parts[0]!.position;
    if (first < this.log.fileStart) topic.pinLarge(topic.tail - 1, first);
    this.large.unpin(body.pin);
    body.pin = null;
    this.large.counters.published++;
    this.counters.messageBytes += WIRE_HEADER_BYTES + body.bytes;
    return wire;
  }

  /** `partBytes` are in other records. */
  #begin(
    kind: number,
    topic: TopicState,
    wireBytes: number,
    dueMs: number,
    partBytes: number,
    origin: Origin | null,
  ): number {
    invariant(this.#sequence < this.#folder.reserved, "a message's sequence is reserved");
    invariant(origin === null || this.allowsProducers, "a producer is named in a folder that may");
    const payloadBytes = MESSAGE_HEADER_BYTES + attributesBytes(dueMs, origin) + wireBytes;
    const payload = this.log.begin(kind, payloadBytes);
    const { ringView } = this.log;
    const wire = writeMessageHeader(ringView, payload, topic.number, topic.tail, dueMs, origin);
    topic.index.append(
      topic.tail,
      this.log.fileStart,
      this.log.recordPosition,
      dueMs,
      recordBytes(payloadBytes) + partBytes,
    );
    if (dueMs !== 0) topic.hiddenDue.push(dueMs, topic.tail);
    topic.tail++;
    if (this.isRelaxed(topic)) this.lossWindow.add(wireBytes + partBytes);
    if (!topic.touched) {
      topic.touched = true;
      this.#filling.push(topic);
    }
    this.#sequence++;
    this.counters.messages++;
    return wire;
  }

  /** Completes the message that `beginMessage` started. It is durable once the log is up to `log.end`. */
  endMessage(): void {
    this.log.finish();
    if (this.#sequence + SEQUENCE_MARGIN >= this.#folder.reserved) void this.#reserveMore();
  }

  /** The message that was ended last completes a publish; `timeMs` is its timestamp, Unix ms. */
  completed(topic: TopicState, { producer, sequence }: Origin, timeMs: number): void {
    this.state.applySequence(topic, producer, 0, sequence, timeMs, this.log.end);
  }

  /** Has the group made durable as soon as the disk is free. */
  commit(): void {
    this.log.flush();
  }

  /** Has what was published to a topic on its way, as far as the topic's mode asks for. */
  commitTo(topic: TopicState): void {
    if (this.isRelaxed(topic)) this.log.write();
    else this.log.flush();
  }

  /**
   * Has releases that do not know policies keep away from the folder, for good. Comes before the first
   * `topic_configured` or `topic_trimmed` event.
   */
  allowPolicies(): Promise<void> {
    this.#allowing ??= this.#raise(POLICY_LEVELS).catch((error) => {
      this.#allowing = null;
      throw error;
    });
    return this.#allowing;
  }

  /** Whether messages may have an `origin`. */
  get allowsProducers(): boolean {
    return this.#levels.reader >= PRODUCER_LEVELS.reader;
  }

  /** As `allowPolicies`, for producers. Comes before the first message with an `origin`. */
  allowProducers(): Promise<void> {
    if (this.allowsProducers) return Promise.resolve();
    this.#allowingProducers ??= this.#raise(PRODUCER_LEVELS)
      .finally(() => this.#allowingProducers = null);
    return this.#allowingProducers;
  }

  /** Raises the levels of the folder, after what is being raised already. */
  #raise(levels: CompatibilityLevels): Promise<void> {
    const { disk, path } = this.#folder;
    const raised = this.#raising.then(() => raiseCompatibility(disk, path, levels));
    this.#raising = raised.then(() => {}, () => {});
    return raised.then((after) => {
      this.#levels = after;
    });
  }

  /**
   * Records a decision and applies it; returns what it created. One of a type that releases before do
   * not know comes after `allowPolicies`.
   */
  decide(event: Event): TopicState | ChannelState | null {
    invariant(
      this.#levels.reader >= (EVENT_LEVELS[event.type] ?? 1),
      "a folder is of the level that an event needs before it is written",
    );
    const bytes = encodeEvent(event);
    this.log.ring.set(bytes, this.log.begin(EVENT_KIND, bytes.length));
    this.log.finish();
    this.log.flush();
    return this.state.applyEvent(event);
  }

  /** Finishes a message of a channel; false when it was finished already. */
  finish(channel: ChannelState, offset: number): boolean {
    if (!applyFinish(channel, offset)) return false;
    this.counters.finishes++;
    if (channel.number === 0) return true;
    if (channel.unwritten.length === 0) this.#finishing.push(channel);
    channel.unwritten.push(offset);
    this.#unwritten++;
    // At the bound publishes wait for this, so it must not wait for a publish or a timer.
    if (this.#unwritten >= this.#unwrittenMax) this.log.flush();
    if (this.#finishTimer === null) {
      this.#finishTimer = this.#clock.setTimer(this.#options.finishSyncIntervalMs, () => {
        this.#finishTimer = null;
        this.log.flush();
      });
    }
    return true;
  }

  /** Owes a message again, from `dueMs` on (0: at once), as delivered `attempts` times. */
  requeue(channel: ChannelState, offset: number, attempts: number, dueMs: number): void {
    if (channel.number !== 0) {
      const start = this.log.begin(REQUEUE_KIND, REQUEUE_BYTES);
      writeRequeue(this.log.ringView, start, { channel: channel.number, offset, attempts, dueMs });
      this.log.finish();
      this.log.flush();
    }
    applyRequeue(channel, offset, attempts, dueMs);
  }

  /** Finishes all messages of a channel below `to`. */
  emptyChannel(channel: ChannelState, to: number): void {
    if (channel.number === 0) applyEmptied(channel, to);
    else this.decide({ type: "channel_emptied", channel: channel.number, to });
  }

  /** Has everything decided so far on disk when it resolves. */
  drain(): Promise<void> {
    return this.log.drain();
  }

  /**
   * Removes the oldest files that nobody is owed anything of, and writes a checkpoint when a file was
   * sealed since the last one; `pressed` for space, also when that lets a file go. One run at a time;
   * a call during one waits for it.
   */
  async maintain(pressed = false): Promise<void> {
    await this.#upkeep.run(pressed);
    void this.#compactor.round();
  }

  /** Compacts all files that are worth it; resolves when that is done, or given up. */
  compact(): Promise<void> {
    return this.#compactor.all();
  }

  /**
   * Makes everything durable, leaves a checkpoint that spares the next start work, and gives the folder
   * back. It does not wait for space on a full disk: it tries once more and rejects. It rejects too
   * when the log has failed, at whatever time: resolving says that all is on disk.
   */
  async close(): Promise<void> {
    this.#life = "closing";
    const stopped = Promise.all([this.#upkeep.stop(), this.#compactor.stop()]);
    this.#finishTimer?.cancel();
    this.#finishTimer = null;
    this.lossWindow.stop();
    this.#retryTimer?.cancel();
    this.#retry?.();
    try {
      await this.log.drain();
      await stopped;
      await this.#maintainLast();
    } finally {
      await this.#release();
    }
  }

  /** Gives the folder back as it is, as a crash would: what is not durable may be lost. */
  async abandon(): Promise<void> {
    this.#life = "abandoned";
    this.#finishTimer?.cancel();
    this.#finishTimer = null;
    this.lossWindow.stop();
    this.#retryTimer?.cancel();
    await this.#release();
  }

  async #release(): Promise<void> {
    // Nothing of this process is written to the folder once the next one may have it.
    await Promise.all([this.#upkeep.stop(), this.#compactor.stop()]);
    await this.#reserving;
    await this.#raising;
    await this.#indexed();
    await this.#store.close();
    this.#folder.lock.release();
  }

  /** Leaves a checkpoint if there is space for one. */
  async #maintainLast(): Promise<void> {
    try {
      await this.#upkeep.finish();
    } catch (error) {
      if (!(error instanceof DiskError) || error.kind !== "no_space") throw error;
      this.#owner.warn("Cannot write a checkpoint; the next start reads more of the log", error);
    }
  }

  #closing(): void {
    this.#writeFinishes();
    this.#closedMessages = this.counters.messages;
    this.large.closing(this.#clock.monoMs());
    const topics = this.#filling;
    this.#filling = this.#writing;
    this.#filling.length = 0;
    this.#writing = topics;
    for (const topic of topics) {
      topic.touched = false;
      topic.writingTail = topic.tail;
    }
    this.lossWindow.closing();
  }

  #written(end: number): void {
    this.#writtenMessages = this.#closedMessages;
    this.large.written();
    for (const topic of this.#writing) {
      topic.syncingTail = topic.writingTail;
      if (topic.unsynced) continue;
      topic.unsynced = true;
      this.#unsynced.push(topic);
    }
    if (!this.lossWindow.written()) return;
    this.#confirmableEnd = end;
    const shown = this.#unsynced.filter((topic) => this.ackModeOf(topic) === "nsq_relaxed");
    for (const topic of shown) topic.durableTail = topic.syncingTail;
    this.#owner.written?.(shown, end);
  }

  #durable(end: number): void {
    this.counters.groups++;
    const messages = this.#writtenMessages - this.#durableMessages;
    this.#durableMessages = this.#writtenMessages;
    if (messages > 0) this.groupMessages.observe(messages);
    this.large.durable(this.#clock.monoMs());
    this.#confirmableEnd = end;
    this.lossWindow.synced();
    const topics = this.#unsynced;
    this.#unsynced = [];
    for (const topic of topics) {
      topic.unsynced = false;
      topic.durableTail = topic.syncingTail;
    }
    this.#owner.durable(topics, end);
  }

  /** Waits a while for space. A rejection seals the log. */
  async #stalled(error: LogError): Promise<void> {
    if (this.#life === "closing") throw error;
    const isAbandoned = this.#life === "abandoned";
    if (!isAbandoned) this.#owner.stalled(error);
    await new Promise<void>((resolve) => {
      // Whoever was abandoned never writes again.
      if (isAbandoned) return;
      this.#retry = resolve;
      this.#retryTimer = this.#clock.setTimer(STALL_RETRY_MS, resolve);
    });
    this.#retry = null;
    this.#retryTimer = null;
  }

  #sealed(file: LogFileInfo): void {
    this.#upkeep.sealed();
    void this.#index(this.#storeIndex(file));
  }

  /** A sidecar that is on its way still would stay behind: it is waited for. */
  #remove(file: LogFileInfo): Promise<void> {
    return this.#whenIndexed(() => {
      this.#removing(file);
      return this.#store.remove(file);
    });
  }

  #removing(file: LogFileInfo): void {
    this.counters.bytesRemoved += file.end - file.start - this.#pages.usage.holeOf(file.start);
    for (const topic of this.state.topics.values()) topic.index.dropFile(file.start);
    this.reader.forget(file.start, file.end);
    this.#pages.usage.setHole(file.start, 0);
    this.#compactor.removed(file.start);
    this.counters.filesRemoved++;
  }

  /** Has a file that was written anew take the place of the old one, and writes its sidecar. */
  async #swap(
    file: LogFileInfo,
    compacted: CompactedFile,
    topics: readonly TopicState[],
  ): Promise<void> {
    // Nothing is written beside the file meanwhile: it would be about the old one.
    await this.#whenIndexed(() => {
      const swap = this.#swapNow(file, compacted, topics);
      this.#swapping = swap.catch(() => {}).then(() => {
        this.#swapping = null;
      });
      return swap;
    });
  }

  async #swapNow(
    file: LogFileInfo,
    { replacement, runs, holeBytes }: CompactedFile,
    topics: readonly TopicState[],
  ): Promise<void> {
    if (this.#store.files[0]?.start === 0 && this.#levels.reader < COMPACTED_START_LEVELS.reader) {
      await this.#raise(COMPACTED_START_LEVELS);
    }
    await replacement.swap(() => {
      for (const { index, number } of topics) {
        index.replaceRun(file.start, runs.get(number) ?? null);
      }
      this.reader.replaced(file.start, file.end);
      this.#pages.usage.setHole(file.start, holeBytes);
    });
    await this.#storeIndex(file);
  }

  /** Has the folder be given back, and files go, only after `work` on sidecars. */
  #index(work: Promise<void>): Promise<void> {
    this.#indexing = Promise.all([this.#indexing, work.catch(() => {})]).then(() => {});
    return work;
  }

  /** Resolves when no work on sidecars is under way. */
  #indexed(): Promise<void> {
    return this.#whenIndexed(() => Promise.resolve());
  }

  /** Does `work` when there is none under way on sidecars, as the only one that there is then. */
  async #whenIndexed(work: () => Promise<void>): Promise<void> {
    let seen;
    do {
      seen = this.#indexing;
      await seen;
    } while (seen !== this.#indexing);
    await this.#index(work());
  }

  /** Leaves a sealed file's index to its sidecar; while that cannot be written it stays in memory. */
  async #storeIndex(file: LogFileInfo): Promise<void> {
    try {
      await this.#pages.store(file, runsOf(this.state, file));
    } catch (error) {
      this.#owner.warn(
        "Cannot write a log file's index; it will be rebuilt at the next start",
        error,
      );
    }
  }

  /** Makes the damaged index of a file again. Of a file to which that happens twice it stays in memory. */
  async #restore(file: LogFileInfo): Promise<void> {
    await this.#swapping;
    if (this.#life !== "open") throw new Error("the broker is stopping");
    this.#owner.warn(
      "A log file's index is damaged and is rebuilt",
      `file of position ${file.start}`,
    );
    const damage = await restoreIndex(this.#store, file, this.state);
    for (const { reason, position } of damage) {
      this.#owner.warn("Messages are damaged on disk", `${reason} at position ${position}`);
    }
    if (this.#restored.has(file.start) || this.#life !== "open") return;
    this.#restored.add(file.start);
    await this.#storeIndex(file);
  }

  #writeFinishes(): void {
    this.#finishTimer?.cancel();
    this.#finishTimer = null;
    const channels = this.#finishing;
    this.#finishing = [];
    for (const channel of channels) {
      const offsets = Float64Array.from(channel.unwritten).sort();
      channel.unwritten = [];
      this.#unwritten -= offsets.length;
      for (let at = 0; at < offsets.length; at += FINISH_OFFSETS_PER_RECORD_MAX) {
        this.#writeFinish(channel, offsets.subarray(at, at + FINISH_OFFSETS_PER_RECORD_MAX));
      }
    }
  }

  #writeFinish(channel: ChannelState, offsets: Float64Array): void {
    // A channel that was deleted meanwhile has no use for them.
    if (this.state.channelsByNumber.get(channel.number) !== channel) return;
    const bytesMax = finishBytesMax(offsets.length);
    if (this.#scratch.length < bytesMax) this.#scratch = new Uint8Array(bytesMax);
    const bytes = encodeFinish(this.#scratch, channel.number, offsets);
    this.log.ring.set(this.#scratch.subarray(0, bytes), this.log.begin(FINISH_KIND, bytes));
    this.log.finish();
  }

  /** Whether another block of ids is reserved. */
  #reserveMore(): Promise<boolean> {
    this.#reserving ??= this.#folder.reserveMore()
      .then(() => true, (error) => {
        this.#owner.warn("Cannot reserve message ids", error);
        return false;
      })
      .finally(() => this.#reserving = null);
    return this.#reserving;
  }
}
