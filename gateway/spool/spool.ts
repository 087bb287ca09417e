/**
 * Publishes that no broker can take now, in a log of their own on the gateway's disk.
 *
 * - What {@linkcode Spool.append} has resolved for is on disk and is owed until it is settled: no crash
 *   takes it away.
 * - Before an entry goes to a broker {@linkcode Spool.assign} has made durable whose it is, and after a
 *   crash nobody else gets it: only that broker knows a repeat. What no broker was given is anybody's.
 * - Entries come in the order of the log. What is settled durably never comes back; a crash before that
 *   only repeats it.
 * - The backlog takes no memory by the entry. What is in hand, a broker's or in quarantine does, and is
 *   bounded; so are topics. At a bound nothing is handed out, or taken, until there is less.
 * - Files go oldest first, once nothing in them is owed. What alone keeps a file for long (an entry in
 *   quarantine, or of a broker that is away) is written once more at the log's end.
 */
import {
  BLOCK_HEADER_BYTES,
  FileLogStore,
  LogError,
  type LogStore,
  recordBytes,
} from "@sluice/shared/log";
import {
  type Clock,
  type Disk,
  DiskError,
  type DiskLock,
  invariant,
  Serial,
} from "@sluice/shared/runtime";
import type { Logger } from "@sluice/shared/telemetry";
import type { Publish } from "../publish.ts";
import { BacklogScanner } from "./backlog_scanner.ts";
import { EntryReader } from "./entry_reader.ts";
import { HandingOut } from "./handing_out.ts";
import { Reclaimer } from "./reclaimer.ts";
import {
  ASSIGN_KIND,
  ASSIGNED_BYTES_MAX,
  encodeAssign,
  encodeQuarantine,
  encodeRetry,
  FREE_LANE,
  PINNED_LANE,
  PUBLISH_HEADER_BYTES,
  PUBLISH_KIND,
  QUARANTINE_KIND,
  RETRY_KIND,
  TEXT_BYTES_MAX,
  textBytes,
  writePublish,
} from "./records.ts";
import { fileStartOf, type ReplayedSpool, replaySpool } from "./replay.ts";
import { SpoolReserve } from "./reserve.ts";
import { Settlements } from "./settlements.ts";
import {
  type QuarantinedEntry,
  type SpoolEntry,
  SpoolRefusal,
  type SpoolRefusalCode,
} from "./spool_entry.ts";
import { openSpoolFolder, SPOOL_LOG_FOLDER } from "./spool_folder.ts";
import { SpoolLog } from "./spool_log.ts";
import type { SpoolState, TrackedEntry } from "./spool_state.ts";

/** Sizes in bytes, unless their names say another unit. */
export interface SpoolOptions {
  readonly path: string;
  /** What the log may take on disk. Publishes are refused some way below, decisions never. */
  readonly bytesMax: number;
  /** When the oldest entry has waited for longer, publishes are refused. */
  readonly ageMsMax: number;
  readonly fileBytes: number;
  /** The largest publish, with its names: decides the size of the ring. */
  readonly recordBytesMax: number;
  /** Entries in hand. Four times as many may be handed out and wait for a broker of theirs. */
  readonly heldMax: number;
  readonly quarantineMax: number;
  /** Pinned entries; 65,536 when absent. */
  readonly pinnedMax?: number;
  /** Topics with a backlog; 65,536 when absent. */
  readonly topicsMax?: number;
  /** What is given back to a disk that is full; 4 MiB when absent. */
  readonly reserveBytes?: number;
}

/** The world of a spool. */
export interface SpoolSeams {
  readonly disk: Disk;
  readonly clock: Clock;
  readonly logger: Logger;
  /** A write or sync failed: nothing is taken any more, and what is on disk shows at the next start. */
  readonly onFailed: (error: Error) => void;
}

/** What there is to see of a spool. Counts but for names that say another unit. */
export interface SpoolFigures {
  /** Entries that are not settled, without those in quarantine; and their bodies. */
  readonly count: number;
  readonly bodyBytes: number;
  /** What the log takes on disk, without zeros ahead of its end. */
  readonly fileBytes: number;
  /** Of those in `count`, to a thousandth of `ageMsMax`; null when there is none. */
  readonly oldestWallMs: number | null;
  readonly pinned: number;
  readonly held: number;
  readonly quarantined: number;
  /** Since the start. */
  readonly settledTotal: number;
  readonly appendedTotal: number;
  readonly refusedTotal: Readonly<Record<SpoolRefusalCode, number>>;
  /** Entries found damaged, since the start. */
  readonly damaged: number;
  /** A publish would be refused for want of space. */
  readonly isFull: boolean;
  readonly failure: Error | null;
}

const RING_BYTES_MIN = 8 * 1024 * 1024;
const RING_RECORDS = 4;
const CACHE_BYTES = 4 * 1024 * 1024;
const COUNT_MAX_DEFAULT = 65_536;
const RESERVE_BYTES_DEFAULT = 4 * 1024 * 1024;
/** Of `bytesMax`, what publishes leave to decisions: this share, and so much at most. */
const HEAD_SHARE = 8;
const HEAD_BYTES_MAX = 64 * 1024 * 1024;
/** Ages are told apart to this share of the oldest allowed. */
const AGE_SLICES = 1000;
const LOOSE_PER_HELD = 4;
const ENTRIES_PER_ASSIGN_MAX = 4096;
/** What a decision about one entry takes at most, with its texts. */
const DECISION_BYTES_MAX = 4 * TEXT_BYTES_MAX;
/** What a keep record adds to a publish, at most. */
const KEEP_BYTES_MAX = 3 * TEXT_BYTES_MAX;
const DAMAGE_LINES_MAX = 100;

/** See the module. */
export class Spool {
  readonly #options: SpoolOptions;
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #onFailed: (error: Error) => void;
  readonly #lock: DiskLock;
  readonly #store: LogStore;
  readonly #state: SpoolState;
  readonly #log: SpoolLog;
  readonly #reader: EntryReader;
  readonly #settlements: Settlements;
  readonly #handingOut: HandingOut;
  readonly #reclaimer: Reclaimer;
  /** Publishes that wait for room in the ring, in the order of the calls. */
  readonly #appends = new Serial();
  #waitingBytes = 0;
  /** Of the last publish that found no space. */
  #refusedBytes = 0;
  readonly #headBytes: number;
  readonly #ringBytes: number;
  #appendedTotal = 0;
  #settledTotal = 0;
  readonly #refusedTotal = { full: 0, stale: 0, failed: 0, too_large: 0 };
  #failure: Error | null = null;
  #isClosing = false;

  private constructor(
    seams: SpoolSeams,
    options: SpoolOptions,
    folder: { readonly epoch: number; readonly lock: DiskLock },
    store: LogStore,
    reserve: SpoolReserve,
    replayed: ReplayedSpool,
  ) {
    const { clock, logger } = seams;
    const { state } = replayed;
    this.#options = options;
    this.#clock = clock;
    this.#logger = logger;
    this.#onFailed = seams.onFailed;
    this.#lock = folder.lock;
    this.#store = store;
    this.#state = state;
    this.#headBytes = Math.min(HEAD_BYTES_MAX, Math.floor(options.bytesMax / HEAD_SHARE));
    this.#ringBytes = ringBytesFor(options.recordBytesMax);
    const recordBytesMax = recordBytes(options.recordBytesMax + KEEP_BYTES_MAX);
    this.#settlements = new Settlements(state, clock);
    this.#log = new SpoolLog(store, reserve, clock, logger, {
      ringBytes: this.#ringBytes,
      fileBytes: options.fileBytes,
      cacheBytes: CACHE_BYTES,
      recordBytesMax,
      end: replayed.end,
      fileStart: replayed.fileStart,
      epoch: folder.epoch,
    }, {
      closing: () => this.#settlements.write(),
      firstNumber: () => state.nextNumber[FREE_LANE],
      durable: (end) => this.#durable(end),
      failed: (error) => this.#failed(error),
    });
    this.#settlements.attach(this.#log);
    const { log, reader } = this.#log;
    this.#reader = new EntryReader(log, reader, this.#ringBytes / 2);
    const scanner = new BacklogScanner(
      log,
      reader,
      clock,
      { position: replayed.scanFrom, expected: state.scannedTo },
      (...lost) => this.#handingOut.lost(...lost),
    );
    const parts = {
      state,
      store,
      log: this.#log,
      scanner,
      reader: this.#reader,
      settlements: this.#settlements,
      logger,
      fileOf: (position: number) => fileStartOf(store, position),
    };
    this.#handingOut = new HandingOut(parts, {
      heldMax: options.heldMax,
      looseMax: options.heldMax * LOOSE_PER_HELD,
      quarantineMax: options.quarantineMax,
    });
    this.#reclaimer = new Reclaimer({ ...parts, handingOut: this.#handingOut }, options.fileBytes);
    this.#reportOpening(replayed);
  }

  /**
   * Opens a folder, made when missing, and reads its log. Rejects with `DiskError` `locked` when another
   * gateway has it, and with `LogError` when going on could lose a publish.
   */
  static async open(seams: SpoolSeams, options: SpoolOptions): Promise<Spool> {
    checkOptions(options);
    const { disk } = seams;
    const reserve = new SpoolReserve(
      disk,
      options.path,
      options.reserveBytes ?? RESERVE_BYTES_DEFAULT,
    );
    try {
      return await Spool.#open(seams, options, reserve);
    } catch (error) {
      // A start takes some space: on a full disk it is the reserve's.
      if (!isNoSpace(error) || !await reserve.release()) throw error;
      seams.logger.warn("The disk is full: the spool is opened with its reserve");
      return await Spool.#open(seams, options, reserve);
    }
  }

  static async #open(
    seams: SpoolSeams,
    options: SpoolOptions,
    reserve: SpoolReserve,
  ): Promise<Spool> {
    const { disk } = seams;
    const folder = await openSpoolFolder(disk, options.path);
    try {
      const store = await FileLogStore.open(
        disk,
        `${options.path}/${SPOOL_LOG_FOLDER}`,
        folder.epoch,
        options.fileBytes,
      );
      try {
        const sliceMs = Math.max(1, Math.floor(options.ageMsMax / AGE_SLICES));
        const replayed = await replaySpool(store, sliceMs);
        await reserve.fill();
        return new Spool(seams, options, folder, store, reserve, replayed);
      } catch (error) {
        await store.close();
        throw error;
      }
    } catch (error) {
      folder.lock.release();
      throw error;
    }
  }

  /**
   * Has a publish on disk when it resolves. With a `broker` it may be there already: only that broker
   * gets it. Rejects with {@linkcode SpoolRefusal}; unless that says `mayBeStored` it never turns up.
   */
  append(publish: Publish, broker: string | null): Promise<void> {
    const topic = textBytes(publish.topic);
    const brokerName = broker === null ? NO_BYTES : textBytes(broker);
    const payloadBytes = PUBLISH_HEADER_BYTES + topic.length + brokerName.length +
      publish.body.length;
    const bytes = recordBytes(payloadBytes);
    const refusal = this.#refusal(publish.topic, broker, bytes);
    if (refusal !== null) return this.#refused(refusal);
    if (broker === null) this.#state.announce(publish.topic);
    const put = () => this.#put(publish, broker, topic, brokerName, payloadBytes);
    if (this.#appends.idle && this.#log.log.hasRoom(bytes)) return put();
    return this.#putLater(publish.topic, broker, bytes, put);
  }

  /**
   * Whether publishes of a topic are there, or on their way here, that are not pinned, settled or in
   * quarantine: later ones must not overtake them.
   */
  hasBacklog(topic: string): boolean {
    return this.#state.hasBacklog(topic);
  }

  /**
   * The next entries that are nobody's, in the order of the log; each is handed out once until it is put
   * back. At least one when there is any, else no more than so many and so many bytes of bodies. None
   * when `heldMax` are in hand, or the log cannot be written.
   */
  take(countMax: number, bytesMax: number): Promise<SpoolEntry[]> {
    return this.#handingOut.take(countMax, bytesMax);
  }

  /** As {@linkcode take}, of those that are a broker's and not in hand. */
  takeAssigned(broker: string, countMax: number, bytesMax: number): Promise<SpoolEntry[]> {
    return this.#handingOut.takeAssigned(broker, countMax, bytesMax);
  }

  /** Brokers that have entries which are not in hand. */
  assignedBrokers(): Iterable<string> {
    return this.#state.assignedBrokers();
  }

  /** Whether a broker has such entries that were given to it before a time. */
  hasAssignedBefore(broker: string, wallMs: number): boolean {
    return this.#state.hasAssignedBefore(broker, wallMs);
  }

  /**
   * Has on disk when it resolves that entries in hand are a broker's. Again with another broker only
   * after the first has certainly refused.
   */
  async assign(entries: readonly SpoolEntry[], broker: string): Promise<void> {
    const name = textBytes(broker);
    const sorted = [...entries].sort((a, b) => a.position - b.position);
    for (let at = 0; at < sorted.length; at += ENTRIES_PER_ASSIGN_MAX) {
      const part = sorted.slice(at, at + ENTRIES_PER_ASSIGN_MAX);
      await this.#log.decisionRoom(part.length * ASSIGNED_BYTES_MAX + DECISION_BYTES_MAX);
      const wallMs = this.#clock.wallMs();
      const held: TrackedEntry[] = [];
      for (const entry of part) {
        const tracked = this.#handingOut.held(entry);
        invariant(tracked !== null, "what is assigned is in hand");
        this.#state.assign(tracked, broker, wallMs);
        held.push(tracked);
      }
      this.#log.put(ASSIGN_KIND, encodeAssign(name, wallMs, held));
    }
    await this.#log.durable();
  }

  /** Entries in hand are not wanted now. They keep the broker that they have. */
  putBack(entries: readonly SpoolEntry[]): void {
    for (const entry of entries) {
      const tracked = this.#handingOut.held(entry);
      if (tracked === null) continue;
      this.#handingOut.release(tracked);
      this.#state.putBack(tracked);
    }
  }

  /**
   * A broker has these entries in hand. Written with the next group, or after 10 ms at most; a crash
   * before that repeats them.
   */
  settle(entries: readonly SpoolEntry[]): void {
    for (const entry of entries) {
      const tracked = this.#handingOut.held(entry);
      if (tracked !== null) this.#settle(tracked);
    }
  }

  /**
   * Puts an entry in hand aside, on disk when it resolves. Rejects with {@linkcode SpoolRefusal} `full`
   * when there are too many: then it stays in hand.
   */
  async quarantine(entry: SpoolEntry, reason: string): Promise<void> {
    await this.#log.decisionRoom(DECISION_BYTES_MAX);
    const tracked = this.#handingOut.held(entry);
    if (tracked === null) return;
    const { quarantineMax } = this.#options;
    if (this.#state.quarantinedCount >= quarantineMax) {
      throw new SpoolRefusal(
        "full",
        `The quarantine of the spool is full: ${quarantineMax} entries`,
      );
    }
    this.#handingOut.release(tracked);
    this.#state.quarantine(tracked, reason);
    this.#log.put(QUARANTINE_KIND, encodeQuarantine({ ...tracked, reason }));
    await this.#log.durable();
  }

  /** Those in quarantine with an id of `from` or above, the lowest first. */
  quarantined(from: number, countMax: number): Promise<QuarantinedEntry[]> {
    return Promise.resolve(
      this.#state.quarantined(from, countMax).map((entry) => ({
        id: entry.id,
        topic: entry.topic,
        bodyBytes: entry.bodyBytes,
        messageCount: entry.messageCount,
        reason: entry.reason ?? "",
        spooledWallMs: entry.spooledWallMs,
        broker: entry.broker,
        isDamaged: entry.isDamaged,
      })),
    );
  }

  /**
   * Takes an entry out of quarantine, on disk when it resolves: it is its broker's again, or anybody's.
   * False when there is none of that id that can be read.
   */
  async retry(id: number): Promise<boolean> {
    await this.#log.decisionRoom(DECISION_BYTES_MAX);
    const entry = this.#state.quarantinedById(id);
    if (entry === null || entry.isDamaged) return false;
    this.#state.retry(entry);
    this.#log.put(RETRY_KIND, encodeRetry(entry));
    this.#logger.info("A publish leaves the quarantine of the spool", {
      id,
      topic: entry.topic,
      broker: entry.broker,
    });
    await this.#log.durable();
    return true;
  }

  /** Gives an entry in quarantine up, on disk when it resolves. False when there is none of that id. */
  async drop(id: number): Promise<boolean> {
    await this.#log.decisionRoom(DECISION_BYTES_MAX);
    const entry = this.#state.quarantinedById(id);
    if (entry === null) return false;
    const { topic, messageCount, bodyBytes, broker, reason } = entry;
    this.#settle(entry);
    this.#settlements.write();
    await this.#log.durable();
    this.#logger.warn("A publish in the quarantine of the spool has been dropped", {
      id,
      topic,
      messageCount,
      bodyBytes,
      broker,
      reason,
    });
    return true;
  }

  /** The body of an entry in quarantine; null when there is none of that id, or it cannot be read. */
  async body(id: number): Promise<Uint8Array | null> {
    while (true) {
      const entry = this.#state.quarantinedById(id);
      if (entry === null || entry.isDamaged || this.#isClosing) return null;
      let problem = this.#reader.read(entry);
      if (problem !== null && typeof problem !== "string") return this.#reader.copy(problem).body;
      problem ??= await this.#reader.load(entry);
      if (problem === null) continue;
      if (!entry.isDamaged && !entry.isSettled) this.#handingOut.damaged(entry, problem);
      return null;
    }
  }

  get figures(): SpoolFigures {
    const { count, bodyBytes, oldestWallMs, pinnedCount, heldCount, quarantinedCount } =
      this.#state;
    return {
      count: Math.max(0, count),
      bodyBytes: Math.max(0, bodyBytes),
      fileBytes: this.#fileBytes,
      oldestWallMs,
      pinned: pinnedCount,
      held: heldCount,
      quarantined: quarantinedCount,
      settledTotal: this.#settledTotal,
      appendedTotal: this.#appendedTotal,
      refusedTotal: { ...this.#refusedTotal },
      damaged: this.#handingOut.damagedCount,
      isFull: this.#log.isDiskFull || !this.#hasSpace(this.#refusedBytes),
      failure: this.#failure,
    };
  }

  /**
   * Writes what is settled and gives the folder back. Does not wait for space on a full disk: rejects,
   * as it does when the log has failed at any time.
   */
  async close(): Promise<void> {
    if (this.#isClosing) return;
    this.#isClosing = true;
    try {
      await Promise.all([this.#handingOut.stop(), this.#reclaimer.stop(), this.#log.close()]);
    } finally {
      this.#settlements.stop();
      await Promise.all([this.#handingOut.stop(), this.#reclaimer.stop()]);
      await this.#store.close();
      this.#lock.release();
    }
  }

  get #fileBytes(): number {
    return this.#log.log.end - (this.#store.files[0]?.start ?? this.#log.log.end);
  }

  #hasSpace(bytes: number): boolean {
    const used = this.#fileBytes + this.#waitingBytes + BLOCK_HEADER_BYTES + bytes;
    return used <= this.#options.bytesMax - this.#headBytes;
  }

  /** Why a publish is not taken now, if it is not. */
  #refusal(topic: string, broker: string | null, bytes: number): SpoolRefusal | null {
    const { recordBytesMax, ageMsMax, pinnedMax, topicsMax } = this.#options;
    const state = this.#state;
    if (this.#isClosing) return new SpoolRefusal("failed", "The spool is closed");
    if (this.#failure !== null) {
      return new SpoolRefusal("failed", `The spool has failed: ${this.#failure.message}`);
    }
    if (bytes > recordBytes(recordBytesMax)) {
      return new SpoolRefusal(
        "too_large",
        `A publish of ${bytes} bytes is too large for the spool`,
      );
    }
    if (this.#log.isDiskFull) return new SpoolRefusal("full", "The disk of the spool is full");
    if (!this.#hasSpace(bytes)) {
      this.#refusedBytes = bytes;
      return new SpoolRefusal("full", "The spool is full");
    }
    if (this.#waitingBytes + bytes > this.#ringBytes) {
      return new SpoolRefusal("full", "The disk of the spool is too slow");
    }
    if (broker !== null && state.pinnedCount >= (pinnedMax ?? COUNT_MAX_DEFAULT)) {
      return new SpoolRefusal(
        "full",
        "The spool has too many publishes that wait for their broker",
      );
    }
    if (
      broker === null && state.topicCount >= (topicsMax ?? COUNT_MAX_DEFAULT) &&
      !state.hasBacklog(topic)
    ) {
      return new SpoolRefusal("full", "The spool has too many topics");
    }
    const { oldestWallMs } = state;
    if (oldestWallMs !== null && this.#clock.wallMs() - oldestWallMs > ageMsMax) {
      return new SpoolRefusal("stale", "Publishes have been in the spool for too long");
    }
    return null;
  }

  #refused(refusal: SpoolRefusal): Promise<never> {
    this.#refusedTotal[refusal.code]++;
    return Promise.reject(refusal);
  }

  async #putLater(
    topic: string,
    broker: string | null,
    bytes: number,
    put: () => Promise<void>,
  ): Promise<void> {
    this.#waitingBytes += bytes;
    // In an object, so that the next one does not wait for the disk as well.
    const { durable } = await this.#appends.run(async () => {
      try {
        while (!this.#log.log.hasRoom(bytes)) {
          const refusal = this.#waitingRefusal();
          if (refusal !== null) {
            if (broker === null) this.#state.withdraw(topic);
            return { durable: this.#refused(refusal) };
          }
          await this.#log.log.room();
        }
        return { durable: put() };
      } finally {
        this.#waitingBytes -= bytes;
      }
    });
    await durable;
  }

  /** A publish that is not in the log yet is not kept waiting for a disk that is full. */
  #waitingRefusal(): SpoolRefusal | null {
    if (this.#failure !== null || this.#isClosing) {
      return new SpoolRefusal("failed", "The spool has failed, or is closed");
    }
    if (this.#log.isDiskFull) return new SpoolRefusal("full", "The disk of the spool is full");
    return null;
  }

  #put(
    publish: Publish,
    broker: string | null,
    topic: Uint8Array,
    brokerName: Uint8Array,
    payloadBytes: number,
  ): Promise<void> {
    const { log } = this.#log;
    if (log.error !== null) {
      if (broker === null) this.#state.withdraw(publish.topic);
      return this.#refused(new SpoolRefusal("failed", "The spool has failed"));
    }
    const lane = broker === null ? FREE_LANE : PINNED_LANE;
    const number = this.#state.nextNumber[lane];
    const spooledWallMs = this.#clock.wallMs();
    const start = log.begin(PUBLISH_KIND, payloadBytes);
    const place = { lane, number, spooledWallMs };
    writePublish(log.ring, log.ringView, start, publish, place, topic, brokerName);
    log.finish();
    this.#state.published(
      {
        ...place,
        id: log.recordPosition,
        topic: publish.topic,
        bodyBytes: publish.body.length,
        messageCount: publish.messageCount,
      },
      broker,
      log.fileStart,
    );
    this.#appendedTotal++;
    return this.#log.durable();
  }

  #settle(entry: TrackedEntry): void {
    this.#handingOut.release(entry);
    this.#state.settle(entry);
    this.#settlements.add(entry.lane, entry.number);
    this.#settlements.free(entry.fileStart, entry.bodyBytes);
    this.#settledTotal++;
  }

  #durable(end: number): void {
    if (this.#settlements.durable(end)) this.#reclaimer.wake();
  }

  #failed(error: Error): void {
    this.#failure = error;
    this.#settlements.stop();
    if (this.#isClosing) return;
    this.#logger.error("The spool has failed, and takes nothing any more", { error });
    this.#onFailed(error);
  }

  #reportOpening({ damage, tornBytes, droppedCount }: ReplayedSpool): void {
    for (const { position, bytes, reason } of damage.slice(0, DAMAGE_LINES_MAX)) {
      this.#logger.error("The log of the spool is damaged", { position, bytes, reason });
    }
    if (tornBytes > 0) {
      this.#logger.info("A group of the spool that was being written has been cut off", {
        tornBytes,
      });
    }
    if (droppedCount > 0) {
      this.#logger.warn("Decisions of the spool are about publishes that are gone", {
        count: droppedCount,
      });
    }
    this.#reclaimer.wake();
  }
}

const NO_BYTES: Readonly<Uint8Array> = new Uint8Array(0);

/** A power of two that takes four of the largest records. */
function ringBytesFor(recordBytesMax: number): number {
  let bytes = RING_BYTES_MIN;
  while (bytes < RING_RECORDS * recordBytes(recordBytesMax)) bytes *= 2;
  return bytes;
}

function checkOptions(options: SpoolOptions): void {
  const { bytesMax, ageMsMax, fileBytes, recordBytesMax, heldMax } = options;
  invariant(heldMax >= 1 && ageMsMax >= 1, "a spool may hand out something, of some age");
  invariant(fileBytes >= 4096 && bytesMax >= 2 * fileBytes, "a spool has space for two files");
  invariant(
    recordBytesMax >= PUBLISH_HEADER_BYTES && recordBytesMax <= 2 ** 27,
    "the largest publish fits a ring of 512 MiB",
  );
}

function isNoSpace(error: unknown): boolean {
  if (error instanceof DiskError) return error.kind === "no_space";
  return error instanceof LogError && error.code === "no_space";
}
