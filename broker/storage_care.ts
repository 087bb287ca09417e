/**
 * What a storage needs while the broker runs: space is watched and given back, limits are kept,
 * checkpoints are written, damage is looked for. Every second, and once more at the end.
 */
import type { Clock, Disk, Timer } from "@sluice/shared/runtime";
import type { Logger } from "@sluice/shared/telemetry";
import type { Audit } from "./audit.ts";
import { DiskGuard, type DiskGuardOptions, type GuardedLog } from "./disk_guard.ts";
import { type EvictionOptions, Evictor } from "./eviction.ts";
import type { Topic } from "./queue/mod.ts";
import { TopicQuotas } from "./quota.ts";
import {
  type Quota,
  quotaOf,
  SCRUB_RATE_BYTES_DEFAULT,
  Scrubber,
  type ScrubOptions,
  type Storage,
  type StorageOptions,
  type TopicState,
} from "./storage/mod.ts";

/** Settings of a {@linkcode StorageCare}. */
export interface CareOptions {
  readonly storage: StorageOptions;
  /** What is kept free of the disk: 5 % and no bound on the log when absent. */
  readonly guard?: DiskGuardOptions;
  /** The bound of a topic's bytes: none when absent. */
  readonly quota?: Quota;
  /** When the oldest messages are given up for want of space: never when absent. */
  readonly eviction?: EvictionOptions;
  /** How the log is read through for damage: on demand only when absent. */
  readonly scrub?: ScrubOptions;
}

/** What a {@linkcode StorageCare} works on. */
export interface CareWorld {
  readonly disk: Disk;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly audit: Audit;
  readonly storage: Storage;
  readonly options: CareOptions;
  readonly topics: ReadonlyMap<string, Topic>;
  /** Bodies on their way into the log. */
  readonly uploads: ReadonlySet<{ check(nowMs: number): void }>;
  isExiting(): boolean;
  /** Resolves when all that was decided is on disk; rejects when it never will be. */
  durable(): Promise<void>;
}

const MAINTAIN_MS = 1000;
const GUARD_OPTIONS_DEFAULT: DiskGuardOptions = { minFreeBytes: "auto", logBytesMax: 0 };
const QUOTA_DEFAULT: Quota = { bytesMax: 0, action: "refuse" };
const SCRUB_OPTIONS_DEFAULT: ScrubOptions = { rateBytes: SCRUB_RATE_BYTES_DEFAULT, intervalMs: 0 };
/** With less room than so many files of the log, space that is given back may not be enough. */
const LOG_FILES_ROOM = 3;

/** See the module. */
export class StorageCare {
  readonly guard: DiskGuard;
  readonly quotas: TopicQuotas;
  readonly evictor: Evictor;
  readonly scrubber: Scrubber;
  readonly #world: CareWorld;
  #timer: Timer | null = null;
  #isFailing = false;
  #isStopped = false;

  constructor(given: CareWorld) {
    const world = { ...given, logger: given.logger.component("storage") };
    this.#world = world;
    const { audit, clock, logger, options, storage } = world;
    const { log } = storage;
    const { dataPath } = options.storage;
    this.guard = new DiskGuard(
      guardedLog(storage),
      world,
      dataPath,
      options.guard ?? GUARD_OPTIONS_DEFAULT,
    );
    this.quotas = new TopicQuotas({
      audit,
      quotaOf: (topic) => this.quotaOf(topic),
      trim: (topic, to) => this.#trim(topic, to),
    });
    this.evictor = new Evictor({
      disk: world.disk,
      clock,
      logger,
      audit,
      dataPath,
      topics: () => storage.state.topics.values(),
      files: () => storage.logFiles,
      pressedSinceMs: () => this.guard.closedSinceMs,
      isWritable: () => log.stalled === null && log.error === null && !world.isExiting(),
      trim: ({ name }, to) => this.#trim(world.topics.get(name)!, to),
      durable: () => world.durable(),
    }, options.eviction ?? { afterMs: 0 });
    this.scrubber = new Scrubber({
      disk: world.disk,
      path: dataPath,
      clock,
      logger,
      store: storage.blocks,
      beside: storage.beside,
      log,
      // Neither a log that waits for space nor a stop is to wait for the disk because of a scrub.
      isHeld: () => log.stalled !== null || log.error !== null || world.isExiting(),
      found: ({ position, bytes, reason }) =>
        audit.record({ event: "scrub_damaged", position, bytes, reason }),
    }, options.scrub ?? SCRUB_OPTIONS_DEFAULT);
  }

  /** The bound of a topic's bytes. */
  quotaOf({ policy }: TopicState): Quota {
    return quotaOf(policy, this.#world.options.quota ?? QUOTA_DEFAULT);
  }

  async start(): Promise<void> {
    const { options, storage } = this.#world;
    // Their event is one that releases before do not know.
    if ((options.quota?.bytesMax ?? 0) > 0 || (options.eviction?.afterMs ?? 0) > 0) {
      await storage.allowPolicies();
    }
    this.#arm();
    await this.guard.start();
    this.#warnOfSmallDisk();
    if (options.scrub !== undefined) await this.scrubber.open();
  }

  /** Ends in order; what was given up is in the audit trail. */
  async stop(): Promise<void> {
    this.#end();
    await this.scrubber.stop();
    this.quotas.report(this.#world.clock.monoMs(), true);
  }

  /** Ends as a crash would. */
  async abandon(): Promise<void> {
    this.#end();
    await this.scrubber.abandon();
  }

  #arm(): void {
    if (this.#isStopped) return;
    const { clock, logger, storage, uploads } = this.#world;
    this.#timer = clock.setTimer(MAINTAIN_MS, () => {
      const nowMs = clock.monoMs();
      for (const upload of [...uploads]) upload.check(nowMs);
      const wallMs = clock.wallMs();
      for (const { dedup } of storage.state.topics.values()) dedup?.forgetIdle(wallMs);
      this.quotas.report(nowMs);
      this.evictor.run()
        .then(() => storage.maintain(this.guard.isClosed))
        .then(() => this.#isFailing = false, (error) => {
          // Once for all the attempts that fail in a row.
          if (!this.#isFailing) {
            logger.error("Cannot write a checkpoint or remove old files", {
              error: String(error),
            });
          }
          this.#isFailing = true;
        })
        .finally(() => this.#arm());
    });
  }

  #warnOfSmallDisk(): void {
    const { space, minFreeBytes } = this.guard;
    const { logger, options: { storage: { logFileBytes } } } = this.#world;
    if (space === null || space.totalBytes - minFreeBytes >= LOG_FILES_ROOM * logFileBytes) return;
    logger.warn("The disk is small for log-file-bytes: space comes back by whole files", {
      disk_bytes: space.totalBytes,
      log_file_bytes: logFileBytes,
    });
  }

  /** Gives up what a topic has below `to`. */
  #trim(topic: Topic, to: number): void {
    this.#world.storage.decide({ type: "topic_trimmed", topic: topic.state.number, to });
    topic.trimmed(to);
  }

  #end(): void {
    this.#isStopped = true;
    this.guard.stop();
    this.#timer?.cancel();
    this.#timer = null;
  }
}

/** The storage's log as the guard looks at it. */
function guardedLog(storage: Storage): GuardedLog {
  const { log } = storage;
  return {
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
  };
}
