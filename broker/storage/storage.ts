/**
 * The durable side of a broker: typed operations over one commit log. Each changes the state at once
 * and puts its record in the group being filled; `durable` reports what a sync has made safe.
 *
 * - A message is visible to channels (`durableTail`) only when its bytes are on disk.
 * - Finishes are gathered per channel and written with the next group, or after
 *   `finishSyncIntervalMs` when nothing else is written. A crash before that only redelivers.
 * - What an ephemeral channel does is not written; an ephemeral topic is written and forgotten at the
 *   next start.
 * - After the first failed write every operation throws `LogError` `sealed`.
 */
import {
  CommitLog,
  type Damage,
  FileLogStore,
  type LogFileInfo,
  LogReader,
  type LogStore,
  recordBytes,
} from "@sluice/shared/log";
import { type Clock, type Disk, invariant, type Timer } from "@sluice/shared/runtime";
import { encodeCheckpoint } from "./checkpoint.ts";
import { DataFolder, LOG_FOLDER, SEQUENCE_BLOCK } from "./data_folder.ts";
import {
  DUE_ATTRIBUTE_BYTES,
  encodeEvent,
  encodeFinish,
  type Event,
  EVENT_KIND,
  FINISH_KIND,
  finishBytesMax,
  MESSAGE_HEADER_BYTES,
  MESSAGE_KIND,
  REQUEUE_BYTES,
  REQUEUE_KIND,
  writeMessageHeader,
  writeRequeue,
} from "./records.ts";
import { recoverState, runsOf } from "./recover_state.ts";
import { encodeSidecar } from "./sidecar.ts";
import {
  applyEmptied,
  applyFinish,
  applyRequeue,
  type BrokerState,
  type ChannelState,
  type TopicState,
} from "./state.ts";

/** Settings of a {@linkcode Storage}; sizes in bytes. */
export interface StorageOptions {
  readonly dataPath: string;
  /** Used when the folder is new; `required` refuses a folder of another node. */
  readonly nodeId: { readonly value: number; readonly required: boolean };
  readonly ringBytes: number;
  readonly logFileBytes: number;
  readonly pageCacheBytes: number;
  /** The largest message body that will ever be read. */
  readonly bodyBytesMax: number;
  readonly finishSyncIntervalMs: number;
}

/** What a storage tells its owner. */
export interface StorageOwner {
  /** New messages of these topics are on disk, and so is everything below `end`. */
  durable(topics: readonly TopicState[], end: number): void;
  /** A write or sync failed: nothing is written any more. */
  failed(error: Error): void;
  /** Something went wrong that costs no message. */
  warn(message: string, error: unknown): void;
}

/** How a storage came up. */
export interface StorageOpening {
  readonly tornBytes: number;
  readonly damage: readonly Damage[];
  readonly replayedRecords: number;
  readonly orphanRecords: number;
}

const FINISH_OFFSETS_PER_RECORD_MAX = 65_536;
/** Finishes that wait for a group are bounded to this share of the ring, at one a 64 bytes. */
const UNWRITTEN_SHARE = 64;
/** The most that a message takes in the log besides its body. */
const RECORD_OVERHEAD_BYTES = 64;
/** After ids could not be reserved. */
const RESERVE_RETRY_MS = 100;
/** More ids are reserved when fewer than this are left: more messages than any publish has. */
const SEQUENCE_MARGIN = SEQUENCE_BLOCK / 2;

/** See the module. */
export class Storage {
  readonly state: BrokerState;
  readonly log: CommitLog;
  readonly reader: LogReader;
  readonly nodeId: number;
  readonly opening: StorageOpening;
  /** Counted since the start. */
  readonly counters = { groups: 0, messages: 0, messageBytes: 0, finishes: 0, checkpoints: 0 };

  readonly #folder: DataFolder;
  readonly #store: LogStore;
  readonly #clock: Clock;
  readonly #options: StorageOptions;
  readonly #owner: StorageOwner;
  readonly #unwrittenMax: number;
  #sequence: number;
  #reserving: Promise<boolean> | null = null;
  #filling: TopicState[] = [];
  #syncing: TopicState[] = [];
  #finishing: ChannelState[] = [];
  #unwritten = 0;
  #finishTimer: Timer | null = null;
  #scratch = new Uint8Array(1024);
  #checkpointPosition: number;
  #sealedSince = false;
  #maintaining: Promise<void> | null = null;
  /** Files below may go: the older of the two checkpoints that are kept does not need them either. */
  #reclaimTo = 0;
  /** The sidecars being written. */
  #indexing: Promise<void> = Promise.resolve();

  private constructor(
    folder: DataFolder,
    store: LogStore,
    clock: Clock,
    options: StorageOptions,
    owner: StorageOwner,
    recovered: Awaited<ReturnType<typeof recoverState>>,
  ) {
    this.#folder = folder;
    this.#store = store;
    this.#clock = clock;
    this.#options = options;
    this.#owner = owner;
    this.#unwrittenMax = Math.floor(options.ringBytes / UNWRITTEN_SHARE);
    this.#sequence = folder.firstSequence;
    this.#checkpointPosition = recovered.checkpoint;
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
        firstSequence: () => this.#sequence,
        durable: (end) => this.#durable(end),
        sealed: (file) => this.#sealed(file),
        failed: (error) => this.#owner.failed(error),
      },
      { ringBytes: options.ringBytes, fileBytes: options.logFileBytes },
      { end: recovered.end, fileStart: recovered.fileStart, epoch: folder.epoch },
    );
    this.reader = new LogReader(this.log, store, {
      cacheBytes: options.pageCacheBytes,
      recordBytesMax: recordBytes(options.bodyBytesMax + 4096),
    });
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
        return new Storage(folder, store, clock, options, owner, await recoverState(store));
      } catch (error) {
        await store.close();
        throw error;
      }
    } catch (error) {
      folder.lock.release();
      throw error;
    }
  }

  /** The sequence the next message gets. */
  get nextSequence(): number {
    return this.#sequence;
  }

  /** Log files there are, and the bytes in them. */
  get logFiles(): readonly LogFileInfo[] {
    return this.#store.files;
  }

  /** Whether a publish of `bytes`, in so many messages, may be written now; else wait for `room`. */
  hasRoom(bytes: number, messages = 1): boolean {
    // Sealed: let the caller go on and meet the error.
    if (this.log.error !== null) return true;
    const recordsBytes = bytes + messages * RECORD_OVERHEAD_BYTES;
    return this.log.hasRoom(recordsBytes) && this.#unwritten < this.#unwrittenMax &&
      this.#sequence + messages < this.#folder.reserved;
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
    await this.log.room();
  }

  /**
   * Starts a message: returns the index in `log.ring` at which its wire part of `wireBytes` goes.
   * The caller fills all of it, with the id made of `nodeId` and the `nextSequence` from before the
   * call, and calls `endMessage`. `dueMs` is Unix ms, 0 for at once.
   */
  beginMessage(topic: TopicState, wireBytes: number, dueMs: number): number {
    invariant(this.#sequence < this.#folder.reserved, "a message's sequence is reserved");
    const attributesBytes = dueMs === 0 ? 0 : DUE_ATTRIBUTE_BYTES;
    const payload = this.log.begin(
      MESSAGE_KIND,
      MESSAGE_HEADER_BYTES + attributesBytes + wireBytes,
    );
    const wire = writeMessageHeader(this.log.ringView, payload, topic.number, topic.tail, dueMs);
    topic.index.append(topic.tail, this.log.fileStart, this.log.recordPosition, dueMs);
    if (dueMs !== 0) topic.hiddenDue.push(dueMs, topic.tail);
    topic.tail++;
    if (!topic.touched) {
      topic.touched = true;
      this.#filling.push(topic);
    }
    this.#sequence++;
    this.counters.messages++;
    this.counters.messageBytes += wireBytes;
    return wire;
  }

  /** Completes the message that `beginMessage` started. It is durable once the log is up to `log.end`. */
  endMessage(): void {
    this.log.finish();
    if (this.#sequence + SEQUENCE_MARGIN >= this.#folder.reserved) void this.#reserveMore();
  }

  /** Has the group made durable as soon as the disk is free. */
  commit(): void {
    this.log.flush();
  }

  /** Records a decision and applies it; returns what it created. */
  decide(event: Event): TopicState | ChannelState | null {
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
   * Writes a checkpoint when a file was sealed since the last one, and removes the oldest files that
   * nobody is owed anything of. One run at a time; a call during one waits for it.
   */
  maintain(): Promise<void> {
    this.#maintaining ??= this.#maintain(false).finally(() => this.#maintaining = null);
    return this.#maintaining;
  }

  /** Makes everything durable, leaves a checkpoint and gives the folder back. */
  async close(): Promise<void> {
    this.#finishTimer?.cancel();
    this.#finishTimer = null;
    try {
      if (this.log.error === null) {
        await this.log.drain();
        await this.#maintaining;
        await this.#maintain(true);
      }
    } finally {
      await this.#release();
    }
  }

  /** Gives the folder back as it is, as a crash would: what is not durable may be lost. */
  async abandon(): Promise<void> {
    this.#finishTimer?.cancel();
    this.#finishTimer = null;
    await this.#release();
  }

  async #release(): Promise<void> {
    // Nothing of this process is written to the folder once the next one may have it.
    await this.#reserving;
    await this.#indexing;
    await this.#store.close();
    this.#folder.lock.release();
  }

  async #maintain(final: boolean): Promise<void> {
    if (this.log.error !== null) return;
    const changed = this.log.end > this.#checkpointPosition;
    if (changed && (final || this.#sealedSince)) await this.#checkpoint();
    // A sidecar that is on its way still would stay behind.
    await this.#indexing;
    for (const file of this.#store.files.slice(0, -1)) {
      if (file.end > this.#reclaimTo || !this.#isDead(file)) break;
      // What freed the file must not be undone by a crash: its messages would be owed again.
      if (!await this.#makeDurable()) return;
      for (const topic of this.state.topics.values()) topic.index.dropFile(file.start);
      this.reader.forget(file.start, file.end);
      await this.#store.remove(file);
    }
  }

  async #checkpoint(): Promise<void> {
    this.#sealedSince = false;
    this.#writeFinishes();
    const position = this.log.end;
    const bytes = encodeCheckpoint(this.state, position);
    if (!await this.#makeDurable()) return;
    await this.#store.putCheckpoint(position, bytes);
    this.#reclaimTo = this.#checkpointPosition;
    this.#checkpointPosition = position;
    this.counters.checkpoints++;
  }

  /** Has all that was done before the call on disk; false when the log has failed. */
  async #makeDurable(): Promise<boolean> {
    this.#writeFinishes();
    const position = this.log.end;
    while (this.log.durableEnd < position && this.log.error === null) await this.log.room();
    return this.log.error === null;
  }

  /** Whether no topic is owed a message of the file. */
  #isDead(file: LogFileInfo): boolean {
    for (const topic of this.state.topics.values()) {
      const run = topic.index.runs[0];
      if (run !== undefined && run.fileStart <= file.start && run.endOffset > topic.liveFrom) {
        return false;
      }
    }
    return true;
  }

  #closing(): void {
    this.#writeFinishes();
    const topics = this.#filling;
    this.#filling = this.#syncing;
    this.#filling.length = 0;
    this.#syncing = topics;
    for (const topic of topics) {
      topic.touched = false;
      topic.syncingTail = topic.tail;
    }
  }

  #durable(end: number): void {
    this.counters.groups++;
    for (const topic of this.#syncing) topic.durableTail = topic.syncingTail;
    this.#owner.durable(this.#syncing, end);
  }

  #sealed(file: LogFileInfo): void {
    this.#sealedSince = true;
    const sidecar = encodeSidecar(runsOf(this.state, file));
    const written = this.#store.putSidecar(file, sidecar).catch((error) => {
      this.#owner.warn(
        "Cannot write a log file's index; it will be rebuilt at the next start",
        error,
      );
    });
    this.#indexing = Promise.all([this.#indexing, written]).then(() => {});
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
