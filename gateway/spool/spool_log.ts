/**
 * The log of a spool: records in, and a promise for when they are on disk.
 *
 * - A full disk is waited for, as in the broker: the group that does not fit is tried again, first with
 *   the reserve given back, then every second. Whoever is in that group waits for it; nothing new is
 *   taken meanwhile, and what had not got into the log yet is refused for good. So a publish that was
 *   refused is in no group and never turns up later.
 * - After a failed write or sync nothing is taken any more. What was on its way then may be on disk.
 */
import { CommitLog, type LogError, LogReader, type LogStore } from "@sluice/shared/log";
import type { Clock, Timer } from "@sluice/shared/runtime";
import type { Logger } from "@sluice/shared/telemetry";
import type { SpoolReserve } from "./reserve.ts";
import { SpoolRefusal } from "./spool_entry.ts";

/** A group that found the disk full is tried again this often, and so is a reserve that is not whole. */
export const SPOOL_RETRY_MS = 1000;
/** Of the ring, so much may be used by decisions that are not on disk, in quarters; publishes have two. */
const DECISION_QUARTERS = 3;

/** What a log needs and is opened with; sizes in bytes. */
export interface SpoolLogOptions {
  readonly ringBytes: number;
  readonly fileBytes: number;
  readonly cacheBytes: number;
  readonly recordBytesMax: number;
  readonly end: number;
  readonly fileStart: number;
  readonly epoch: number;
}

/** What a log asks of and tells to its owner. */
export interface SpoolLogOwner {
  /** The last moment to add records to a group. */
  closing(): void;
  /** The number in the header of a group. */
  firstNumber(): number;
  /** Everything below `end` is on disk. */
  durable(end: number): void;
  failed(error: Error): void;
}

interface Waiter {
  readonly end: number;
  readonly resolve: () => void;
  readonly reject: (error: Error) => void;
}

/** See the module. */
export class SpoolLog {
  readonly log: CommitLog;
  readonly reader: LogReader;
  readonly reserve: SpoolReserve;
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #owner: SpoolLogOwner;
  readonly #ringBytes: number;
  /** By end. */
  #waiters: Waiter[] = [];
  #isClosing = false;
  #isStalled = false;
  #retry: (() => void) | null = null;
  #retryTimer: Timer | null = null;
  #reserveTimer: Timer | null = null;
  #filling: Promise<void> = Promise.resolve();

  constructor(
    store: LogStore,
    reserve: SpoolReserve,
    clock: Clock,
    logger: Logger,
    options: SpoolLogOptions,
    owner: SpoolLogOwner,
  ) {
    this.reserve = reserve;
    this.#clock = clock;
    this.#logger = logger;
    this.#owner = owner;
    this.#ringBytes = options.ringBytes;
    this.log = new CommitLog(
      store,
      {
        closing: () => owner.closing(),
        firstSequence: () => owner.firstNumber(),
        written: () => {},
        durable: (end) => this.#durable(end),
        sealed: () => {},
        stalled: (error) => this.#stalled(error),
        failed: (error) => this.#failed(error),
      },
      options,
      options,
    );
    this.reader = new LogReader(this.log, store, options);
    if (!reserve.isWhole) this.#fillLater();
  }

  /** No publish is taken: a group waits for space, or the reserve is not whole. */
  get isDiskFull(): boolean {
    return this.log.stalled !== null || !this.reserve.isWhole;
  }

  /** Adds a small record. There was {@linkcode decisionRoom} for it, or it is bounded in another way. */
  put(kind: number, payload: Uint8Array): void {
    this.log.ring.set(payload, this.log.begin(kind, payload.length));
    this.log.finish();
  }

  /** Whether a decision of so many bytes may be written now. */
  hasDecisionRoom(bytes: number): boolean {
    const { end, durableEnd } = this.log;
    return end + bytes - durableEnd <= this.#ringBytes / 4 * DECISION_QUARTERS;
  }

  /** Resolves when a decision of so many bytes may be written, at once and by the next who does so. */
  async decisionRoom(bytes: number): Promise<void> {
    while (!this.hasDecisionRoom(bytes)) {
      this.throwFailure();
      await this.log.room();
    }
    this.throwFailure();
  }

  /** Resolves when everything that is in the log now is on disk. */
  durable(): Promise<void> {
    const { end, durableEnd } = this.log;
    if (end === durableEnd) return Promise.resolve();
    this.log.flush();
    return new Promise((resolve, reject) => this.#waiters.push({ end, resolve, reject }));
  }

  /** Throws {@linkcode SpoolRefusal} when nothing can be written any more. */
  throwFailure(): void {
    const { error } = this.log;
    if (error !== null) throw failedRefusal(error, false);
  }

  /** Looks whether the reserve can be made whole. */
  async fillReserve(): Promise<void> {
    if (this.reserve.isWhole || this.#isClosing || this.log.stalled !== null) return;
    this.#filling = this.#filling.then(() => this.reserve.fill()).catch((error) => {
      this.#logger.warn("Cannot make the reserve of the spool", { error });
    });
    await this.#filling;
    if (this.reserve.isWhole) {
      this.#logger.info("The spool has its reserve on disk again");
    } else this.#fillLater();
  }

  /** Writes what there is, or fails, without waiting for space. */
  async close(): Promise<void> {
    this.#isClosing = true;
    this.#retryTimer?.cancel();
    this.#reserveTimer?.cancel();
    this.#retry?.();
    try {
      await this.log.drain();
    } finally {
      await this.#filling;
    }
  }

  #durable(end: number): void {
    if (this.#isStalled && this.log.stalled === null) {
      this.#isStalled = false;
      this.#logger.info("The disk has room again for the spool");
    }
    this.#owner.durable(end);
    const waiters = this.#waiters;
    let count = 0;
    while (count < waiters.length && waiters[count]!.end <= end) count++;
    this.#waiters = waiters.slice(count);
    for (let index = 0; index < count; index++) waiters[index]!.resolve();
  }

  #failed(error: Error): void {
    const waiters = this.#waiters;
    this.#waiters = [];
    for (const { reject } of waiters) reject(failedRefusal(error, true));
    this.#owner.failed(error);
  }

  /** Waits a while for space. A rejection seals the log. */
  async #stalled(error: LogError): Promise<void> {
    if (this.#isClosing) throw error;
    if (!this.#isStalled) {
      this.#isStalled = true;
      this.#logger.error("The spool waits for space on its disk, and takes nothing", { error });
    }
    if (error.code === "no_space") {
      await this.#filling;
      const isReleased = await this.reserve.release();
      this.#fillLater();
      if (isReleased) return;
    }
    if (this.#isClosing) throw error;
    await new Promise<void>((resolve) => {
      this.#retry = resolve;
      this.#retryTimer = this.#clock.setTimer(SPOOL_RETRY_MS, resolve);
    });
    this.#retry = null;
    this.#retryTimer = null;
  }

  #fillLater(): void {
    this.#reserveTimer?.cancel();
    this.#reserveTimer = null;
    if (this.#isClosing) return;
    this.#reserveTimer = this.#clock.setTimer(SPOOL_RETRY_MS, () => {
      this.#reserveTimer = null;
      if (this.log.stalled !== null) this.#fillLater();
      else void this.fillReserve();
    });
  }
}

function failedRefusal(error: Error, mayBeStored: boolean): SpoolRefusal {
  return new SpoolRefusal(
    "failed",
    `The spool has failed: ${error.message}`,
    mayBeStored,
    { cause: error },
  );
}
