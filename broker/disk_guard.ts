/**
 * Stops publishing before the disk is full, so that what frees space again has the room it needs:
 * consuming, finishing, deleting, checkpoints.
 *
 * ```
 * open --free < minimum, or log >= maximum, or a write found the disk full--> closed
 * closed --free >= minimum * 1.1, and log <= maximum * 0.9, and nothing waits for space--> open
 * ```
 *
 * - {@linkcode judge} decides, and is pure. {@linkcode DiskGuard} measures every second and at once
 *   after a failed write; in between it counts what the log has grown by, so that a burst of
 *   publishes cannot use up the reserve between two measurements.
 * - When the disk cannot be measured, only the log's own bound and failed writes count.
 */
import {
  type Clock,
  type Disk,
  type DiskSpace,
  invariant,
  type Timer,
} from "@sluice/shared/runtime";
import type { Logger } from "@sluice/shared/telemetry";

/** Bounds of a {@linkcode DiskGuard}. */
export interface DiskGuardOptions {
  /** What is kept free of the disk; `auto` is 5 % of it, at most 10 GiB. */
  readonly minFreeBytes: number | "auto";
  /** The most the log may take; 0 for any size. */
  readonly logBytesMax: number;
}

/** What a decision is made from. */
export interface DiskReading {
  /** Null while the disk cannot be measured. What is on its way to the disk is not free any more. */
  readonly space: DiskSpace | null;
  readonly logBytes: number;
  /** Why a write waits, if one does. */
  readonly stalled: StallReason | null;
}

/** Why publishing is refused. */
export type GuardReason = StallReason | "low_space" | "log_full";

/** What a write of the log may wait for: space, or a descriptor for a new file. */
export type StallReason = "disk_full" | "no_descriptors";

/** A decision. */
export interface Verdict {
  /** Null when publishes are taken. */
  readonly reason: GuardReason | null;
  /** Bytes that may be published before it has to be decided again. */
  readonly roomBytes: number;
}

/** The log that is guarded. */
export interface GuardedLog {
  /** Where its oldest file starts. */
  readonly start: number;
  /** Bytes between start and end that take no space: compaction has given them back. */
  readonly holeBytes: number;
  readonly durableEnd: number;
  readonly end: number;
  readonly stalled: StallReason | null;
}

/** What a publisher is told; the figures are in our log. */
export const GUARD_TEXTS: Readonly<Record<GuardReason, string>> = {
  disk_full: "the disk is full",
  no_descriptors: "too many files and connections are open",
  low_space: "the disk is nearly full",
  log_full: "the log has reached its limit",
};

export const GUARD_INTERVAL_MS = 1000;
const AUTO_SHARE = 0.05;
const AUTO_BYTES_MAX = 10 * 2 ** 30;
/** How far behind a bound it has to be before publishes are taken again. */
const HYSTERESIS = 0.1;

/** The bytes kept free of a disk of `totalBytes`. */
export function minFreeBytes(options: DiskGuardOptions, totalBytes: number): number {
  if (options.minFreeBytes !== "auto") return options.minFreeBytes;
  return Math.min(Math.floor(totalBytes * AUTO_SHARE), AUTO_BYTES_MAX);
}

/** Whether publishes are taken, when they were refused for `current` so far (null: taken). */
export function judge(
  reading: DiskReading,
  options: DiskGuardOptions,
  current: GuardReason | null,
): Verdict {
  if (reading.stalled !== null) return { reason: reading.stalled, roomBytes: 0 };
  const margin = current === null ? 0 : HYSTERESIS;
  let roomBytes = Infinity;
  const { space } = reading;
  if (space !== null) {
    const minimum = minFreeBytes(options, space.totalBytes);
    if (space.freeBytes < minimum * (1 + margin)) return { reason: "low_space", roomBytes: 0 };
    roomBytes = space.freeBytes - minimum;
  }
  if (options.logBytesMax > 0) {
    const logRoomBytes = options.logBytesMax - reading.logBytes;
    const isFull = current === null
      ? logRoomBytes <= 0
      : logRoomBytes < options.logBytesMax * margin;
    if (isFull) return { reason: "log_full", roomBytes: 0 };
    roomBytes = Math.min(roomBytes, logRoomBytes);
  }
  return { reason: null, roomBytes };
}

/** See the module. */
export class DiskGuard {
  /** Publish commands that were refused. */
  throttledCount = 0;
  /** Since when publishes are refused, Unix ms; 0 while they are taken. */
  closedSinceMs = 0;
  readonly #log: GuardedLog;
  readonly #disk: Disk;
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #path: string;
  #options: DiskGuardOptions;
  #reason: GuardReason | null = null;
  #space: DiskSpace | null = null;
  /** What the log had on disk, at least, when the space was measured. */
  #measuredEnd = 0;
  /** Publishes are taken without another thought while the log ends below. */
  #judgedEnd = 0;
  #isBlind = false;
  #timer: Timer | null = null;
  #stopped = false;

  constructor(
    log: GuardedLog,
    seams: { readonly disk: Disk; readonly clock: Clock; readonly logger: Logger },
    path: string,
    options: DiskGuardOptions,
  ) {
    this.#log = log;
    this.#disk = seams.disk;
    this.#clock = seams.clock;
    this.#logger = seams.logger;
    this.#path = path;
    this.#options = options;
  }

  /** Whether publishes are refused. */
  get isClosed(): boolean {
    return this.#reason !== null;
  }

  /** The space as last measured; null when it cannot be. */
  get space(): DiskSpace | null {
    return this.#space;
  }

  /** Bytes that are kept free; 0 while the disk cannot be measured. */
  get minFreeBytes(): number {
    return this.#space === null ? 0 : minFreeBytes(this.#options, this.#space.totalBytes);
  }

  /** Why a publish is refused now, for the peer; null when it is taken. */
  refusal(): string | null {
    if (this.#reason === null) {
      if (this.#log.end < this.#judgedEnd) return null;
      this.#judge();
    }
    return this.#reason === null ? null : GUARD_TEXTS[this.#reason];
  }

  /** Changes the bounds while running. */
  setOptions(options: DiskGuardOptions): void {
    this.#options = options;
    this.#judge();
  }

  /** Measures now and every second from now on. Resolves after the first time. */
  async start(): Promise<void> {
    invariant(this.#timer === null, "a guard is started once");
    await this.#measure();
    this.#arm();
  }

  stop(): void {
    this.#stopped = true;
    this.#timer?.cancel();
    this.#timer = null;
  }

  /** A write found the disk full, perhaps not for the first time. */
  stalled(error: Error): void {
    if (this.#reason !== this.#log.stalled) {
      this.#logger.warn("The log waits to be written", { error: String(error) });
    }
    this.#judge();
    void this.#measure();
  }

  #arm(): void {
    if (this.#stopped) return;
    this.#timer = this.#clock.setTimer(GUARD_INTERVAL_MS, () => {
      void this.#measure().then(() => this.#arm());
    });
  }

  /** Never rejects. */
  async #measure(): Promise<void> {
    // Taken before: what becomes durable meanwhile is counted twice rather than not at all.
    const { durableEnd } = this.#log;
    let space: DiskSpace | null = null;
    let failure: unknown = null;
    try {
      space = await this.#disk.space(this.#path);
    } catch (error) {
      failure = error;
    }
    if (this.#stopped) return;
    if (failure !== null && !this.#isBlind) {
      this.#logger.warn("Cannot measure the free space; nothing is kept free of the disk", {
        error: String(failure),
      });
    }
    this.#isBlind = failure !== null;
    this.#space = space;
    this.#measuredEnd = durableEnd;
    this.#judge();
  }

  #judge(): void {
    const { start, holeBytes, end, stalled } = this.#log;
    const logBytes = end - start - holeBytes;
    const space = this.#space && {
      totalBytes: this.#space.totalBytes,
      freeBytes: this.#space.freeBytes - (end - this.#measuredEnd),
    };
    const { reason, roomBytes } = judge(
      { space, logBytes, stalled },
      this.#options,
      this.#reason,
    );
    this.#judgedEnd = end + roomBytes;
    if (reason === this.#reason) return;
    if (reason === null) this.closedSinceMs = 0;
    else if (this.#reason === null) this.closedSinceMs = this.#clock.wallMs();
    this.#reason = reason;
    const figures = {
      log_bytes: logBytes,
      ...(space === null ? {} : {
        free_bytes: Math.max(0, space.freeBytes),
        min_free_bytes: this.minFreeBytes,
      }),
    };
    if (reason === null) this.#logger.info("Publishes are taken again", figures);
    else this.#logger.warn(`Publishes are refused: ${GUARD_TEXTS[reason]}`, figures);
  }
}
