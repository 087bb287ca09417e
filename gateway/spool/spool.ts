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
import { FileLogStore, LogError, type LogStore, recordBytes } from "@sluice/shared/log";
import { type Clock, DiskError, type DiskLock, invariant } from "@sluice/shared/runtime";
import type { Logger } from "@sluice/shared/telemetry";
import type { Publish } from "../publish.ts";
import { BacklogScanner } from "./backlog_scanner.ts";
import { EntryReader } from "./entry_reader.ts";
import { HandingOut } from "./handing_out.ts";
import { Intake } from "./intake.ts";
import { Quarantine } from "./quarantine.ts";
import { Reclaimer } from "./reclaimer.ts";
import {
  ASSIGN_KIND,
  ASSIGNED_BYTES_MAX,
  encodeAssign,
  FREE_LANE,
  TEXT_BYTES_MAX,
  textBytes,
} from "./records.ts";
import { fileStartOf, type ReplayedSpool, replaySpool } from "./replay.ts";
import { SpoolReserve } from "./reserve.ts";
import { Settlements } from "./settlements.ts";
import type { QuarantinedEntry, SpoolEntry } from "./spool_entry.ts";
import { openSpoolFolder, SPOOL_LOG_FOLDER } from "./spool_folder.ts";
import { SpoolLog } from "./spool_log.ts";
import {
  checkOptions,
  ringBytesFor,
  type SpoolFigures,
  type SpoolOptions,
  type SpoolSeams,
} from "./spool_options.ts";
import type { SpoolState } from "./spool_state.ts";
import type { TrackedEntry } from "./tracked_entry.ts";

const CACHE_BYTES = 4 * 1024 * 1024;
const RESERVE_BYTES_DEFAULT = 4 * 1024 * 1024;
/** Ages are told apart to this share of the oldest allowed. */
const AGE_SLICES = 1000;
const LOOSE_PER_HELD = 4;
const ENTRIES_PER_ASSIGN_MAX = 4096;
/** What a keep record adds to a publish, at most. */
const KEEP_BYTES_MAX = 3 * TEXT_BYTES_MAX;
const DAMAGE_LINES_MAX = 100;

/** See the module. */
export class Spool {
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #onFailed: (error: Error) => void;
  readonly #lock: DiskLock;
  readonly #store: LogStore;
  readonly #state: SpoolState;
  readonly #log: SpoolLog;
  readonly #settlements: Settlements;
  readonly #handingOut: HandingOut;
  readonly #reclaimer: Reclaimer;
  readonly #quarantine: Quarantine;
  readonly #intake: Intake;
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
    this.#clock = clock;
    this.#logger = logger;
    this.#onFailed = seams.onFailed;
    this.#lock = folder.lock;
    this.#store = store;
    this.#state = state;
    const ringBytes = ringBytesFor(options.recordBytesMax);
    const recordBytesMax = recordBytes(options.recordBytesMax + KEEP_BYTES_MAX);
    this.#settlements = new Settlements(state, clock);
    this.#log = new SpoolLog(store, reserve, clock, logger, {
      ringBytes,
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
      reader: new EntryReader(log, reader, ringBytes / 2),
      settlements: this.#settlements,
      clock,
      logger,
      fileOf: (position: number) => fileStartOf(store, position),
    };
    this.#handingOut = new HandingOut(parts, {
      heldMax: options.heldMax,
      looseMax: options.heldMax * LOOSE_PER_HELD,
      quarantineMax: options.quarantineMax,
    });
    const { quarantineMax, fileBytes } = options;
    this.#quarantine = new Quarantine(
      { ...parts, handingOut: this.#handingOut },
      quarantineMax,
    );
    this.#intake = new Intake(options, {
      state,
      log: this.#log,
      clock,
      fileBytes: () => this.#fileBytes,
    });
    this.#reclaimer = new Reclaimer({ ...parts, handingOut: this.#handingOut }, fileBytes);
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
    return this.#intake.append(publish, broker);
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
      await this.#log.decisionRoom(part.length * ASSIGNED_BYTES_MAX + 2 * TEXT_BYTES_MAX);
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
   * before that repeats them, and so does a call after `close`.
   */
  settle(entries: readonly SpoolEntry[]): void {
    if (this.#isClosing) return;
    for (const entry of entries) {
      const tracked = this.#handingOut.held(entry);
      if (tracked !== null) this.#handingOut.settle(tracked);
    }
  }

  /**
   * Puts an entry in hand aside, on disk when it resolves. Rejects with {@linkcode SpoolRefusal} `full`
   * when there are too many: then it stays in hand.
   */
  quarantine(entry: SpoolEntry, reason: string): Promise<void> {
    return this.#quarantine.add(entry, reason);
  }

  /** Those in quarantine with an id of `from` or above, the lowest first. */
  quarantined(from: number, countMax: number): Promise<QuarantinedEntry[]> {
    return Promise.resolve(this.#quarantine.list(from, countMax));
  }

  /**
   * Takes an entry out of quarantine, on disk when it resolves: it is its broker's again, or anybody's.
   * False when there is none of that id that can be read.
   */
  retry(id: number): Promise<boolean> {
    return this.#quarantine.retry(id);
  }

  /** Gives an entry in quarantine up, on disk when it resolves. False when there is none of that id. */
  drop(id: number): Promise<boolean> {
    return this.#quarantine.drop(id);
  }

  /** The body of an entry in quarantine; null when there is none of that id, or it cannot be read. */
  async body(id: number): Promise<Uint8Array | null> {
    return (await this.#quarantine.publish(id))?.body ?? null;
  }

  /** All of such an entry. */
  quarantinedPublish(id: number): Promise<Publish | null> {
    return this.#quarantine.publish(id);
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
      settledTotal: this.#handingOut.settledCount,
      appendedTotal: this.#intake.appendedCount,
      refusedTotal: { ...this.#intake.refusedCounts },
      damaged: this.#handingOut.damagedCount,
      isFull: this.#intake.isFull,
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
    this.#intake.stop();
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

function isNoSpace(error: unknown): boolean {
  if (error instanceof DiskError) return error.kind === "no_space";
  return error instanceof LogError && error.code === "no_space";
}
