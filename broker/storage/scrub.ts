/**
 * Reads the log from time to time, so that damage is found while there is something to do about it
 * and not when a consumer needs the message.
 *
 * ```
 * idle --an interval after the last pass, or start()--> running --the end of the log--> idle
 * ```
 *
 * - A pass goes from the oldest file up to what was durable when it began, at a bounded rate, and
 *   waits while the log needs the disk for itself (see `scrub_pass.ts`).
 * - How far it has come is noted in the data folder at most once a minute and at the stop, and the
 *   next process goes on there. A crash, or a note that is lost, only means that more is read again.
 * - After the log it goes through what lies beside it, and has that made again where it is damaged
 *   (see `scrub_beside.ts`).
 * - Damage is logged, counted and listed, and nothing else: reads verify what they serve. A place
 *   stays listed until a pass finds it good, or gone. The first 100 places of a pass are listed and
 *   logged, more are only counted.
 */
import type { Damage, LogStore } from "@sluice/shared/log";
import { type Clock, type Disk, type Timer, TIMER_DELAY_MS_MAX } from "@sluice/shared/runtime";
import type { Logger } from "@sluice/shared/telemetry";
import { type ScrubBeside, ScrubBesidePass } from "./scrub_beside.ts";
import { readScrubNote, SCRUB_DAMAGE_MAX, writeScrubNote } from "./scrub_file.ts";
import { type ScrubListener, ScrubPass } from "./scrub_pass.ts";

/** Settings of a {@linkcode Scrubber}. */
export interface ScrubOptions {
  /** Bytes read a second, at most; from 64 KiB. */
  readonly rateBytes: number;
  /** From the end of a pass to the next one; 0 for passes on demand only. */
  readonly intervalMs: number;
}

/** What a {@linkcode Scrubber} works on. */
export interface ScrubWorld {
  readonly disk: Disk;
  /** The data folder. */
  readonly path: string;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly store: Pick<LogStore, "files" | "read">;
  readonly log: { readonly durableEnd: number };
  /** Whether the disk is to be left alone for now. */
  isHeld(): boolean;
  /** A damaged place, of those that are listed and logged. */
  found?(damage: Damage): void;
  /** What lies beside the log, to be checked after it. */
  readonly beside?: ScrubBeside;
}

/** What is known of the log's health; times are Unix milliseconds. */
export interface ScrubReport {
  readonly running: boolean;
  /** Where the pass under way is, or the last one ended. */
  readonly position: number;
  /** Where the pass under way will end, or the last one did. */
  readonly end: number;
  /** Since the start of the process. */
  readonly bytesVerified: number;
  /** Completed since the start of the process. */
  readonly passes: number;
  readonly lastStartedMs: number | null;
  readonly lastEndedMs: number | null;
  /** Sidecars and checkpoints that were damaged and are made again, since the start of the process. */
  readonly repaired: number;
  /** Damaged places; `damage` lists the first of them. */
  readonly damageCount: number;
  readonly damage: readonly Damage[];
}

export const SCRUB_RATE_BYTES_DEFAULT = 64 * 2 ** 20;
export const SCRUB_NOTE_MS = 60_000;
/** A pass in the background begins no sooner after a start, which is busy enough. */
export const SCRUB_START_DELAY_MS = 60_000;

/** See the module. */
export class Scrubber {
  readonly #world: ScrubWorld;
  readonly #options: ScrubOptions;
  readonly #ending = new AbortController();
  #loading: Promise<void> | null = null;
  #isLoaded = false;
  #running: Promise<void> | null = null;
  #isUnderWay = false;
  #position = 0;
  #end = 0;
  #bytes = 0;
  #passes = 0;
  #repaired = 0;
  #startedMs: number | null = null;
  #endedMs: number | null = null;
  /** Damage below the position of the pass under way; all of it when there is none. */
  #found: Damage[] = [];
  #foundCount = 0;
  /** Damage that the pass before has found and this one has not reached. */
  #ahead: Damage[] = [];
  #aheadCount = 0;
  #dueMs = 0;
  #passTimer: Timer | null = null;
  #noteTimer: Timer | null = null;
  #noting: Promise<void> = Promise.resolve();
  #isNoteStale = false;
  #noteFailed = false;

  constructor(world: ScrubWorld, options: ScrubOptions) {
    this.#world = world;
    this.#options = options;
  }

  /** Reads the note of the process before and has passes begin by themselves. */
  async open(): Promise<void> {
    const { clock } = this.#world;
    await this.#load();
    const { intervalMs } = this.#options;
    // A pass that was cut short goes on soon, as one begins that never was.
    const restMs = this.#isUnderWay || this.#endedMs === null
      ? 0
      : Math.min(this.#endedMs + intervalMs - clock.wallMs(), intervalMs);
    this.#dueMs = clock.monoMs() + Math.max(restMs, SCRUB_START_DELAY_MS);
    this.#arm();
  }

  get isRunning(): boolean {
    return this.#running !== null;
  }

  get report(): ScrubReport {
    return {
      running: this.isRunning,
      position: this.#position,
      end: this.#end,
      bytesVerified: this.#bytes,
      passes: this.#passes,
      repaired: this.#repaired,
      lastStartedMs: this.#startedMs,
      lastEndedMs: this.#endedMs,
      damageCount: this.#foundCount + this.#aheadCount,
      damage: [...this.#found, ...this.#ahead].slice(0, SCRUB_DAMAGE_MAX),
    };
  }

  /**
   * Begins a pass, or takes up the one that was cut short; the running one when there is one. Resolves
   * at its end, and when it is stopped. Never rejects.
   */
  start(): Promise<void> {
    if (this.#ending.signal.aborted) return Promise.resolve();
    this.#running ??= this.#run().finally(() => {
      this.#running = null;
      this.#dueMs = this.#world.clock.monoMs() + this.#options.intervalMs;
      this.#arm();
    });
    return this.#running;
  }

  /** Stops at once, after a read that is under way; nothing is read or written after it. */
  async stop(): Promise<void> {
    await this.abandon();
    if (this.#isNoteStale) await this.#note();
  }

  /** Stops as a crash would: nothing is noted. */
  async abandon(): Promise<void> {
    this.#ending.abort();
    this.#passTimer?.cancel();
    this.#noteTimer?.cancel();
    this.#passTimer = null;
    this.#noteTimer = null;
    await this.#running;
    await this.#loading;
    await this.#noting;
  }

  #arm(): void {
    if (this.#ending.signal.aborted || this.#options.intervalMs === 0) return;
    const { clock } = this.#world;
    const restMs = Math.max(0, this.#dueMs - clock.monoMs());
    this.#passTimer?.cancel();
    this.#passTimer = clock.setTimer(Math.min(restMs, TIMER_DELAY_MS_MAX), () => {
      this.#passTimer = null;
      if (clock.monoMs() < this.#dueMs) this.#arm();
      else void this.start();
    });
  }

  async #load(): Promise<void> {
    this.#loading ??= this.#readNote();
    await this.#loading;
  }

  async #readNote(): Promise<void> {
    const note = await readScrubNote(this.#world.disk, this.#world.path);
    this.#isLoaded = true;
    if (note === null) return;
    this.#isUnderWay = note.position !== null;
    this.#position = note.position ?? 0;
    this.#startedMs = note.started_ms;
    this.#endedMs = note.ended_ms;
    this.#found = [...note.damage];
    this.#foundCount = note.damage_count;
    if (this.#isUnderWay) this.#goBack();
  }

  async #run(): Promise<void> {
    const { clock, log, store, logger } = this.#world;
    this.#passTimer?.cancel();
    this.#passTimer = null;
    if (!this.#isLoaded) await this.#load();
    this.#end = log.durableEnd;
    const isResumed = this.#isUnderWay && this.#position <= this.#end;
    if (!isResumed) this.#begin(store.files[0]?.start ?? this.#end);
    const range = {
      from: this.#position,
      to: this.#end,
      isResumed,
      rateBytes: this.#options.rateBytes,
    };
    try {
      await new ScrubPass(this.#world, range, this.#listener(), this.#ending.signal).run();
      await this.#checkBeside();
    } catch (error) {
      if (this.#ending.signal.aborted) return;
      // The next pass goes on behind what was reached.
      logger.error("Cannot go on with the scrub of the log", { error: String(error) });
      return;
    }
    this.#complete(clock.wallMs());
  }

  async #checkBeside(): Promise<void> {
    const { beside } = this.#world;
    if (beside === undefined) return;
    const { signal } = this.#ending;
    const pass = new ScrubBesidePass(beside, this.#world, this.#options.rateBytes, signal);
    try {
      await pass.run(this.#end);
    } finally {
      this.#repaired += pass.repaired;
    }
  }

  #begin(position: number): void {
    this.#isUnderWay = true;
    this.#position = position;
    this.#startedMs = this.#world.clock.wallMs();
    this.#goBack();
    // What is left was found in files that are gone.
    this.#found = [];
    this.#foundCount = 0;
    this.#changed();
  }

  #complete(wallMs: number): void {
    this.#isUnderWay = false;
    this.#position = this.#end;
    this.#passes++;
    this.#endedMs = wallMs;
    this.#ahead = [];
    this.#aheadCount = 0;
    this.#changed();
    this.#world.logger.info("Scrubbed the log", {
      position: this.#end,
      damaged_places: this.#foundCount,
    });
  }

  #listener(): ScrubListener {
    return {
      read: (bytes) => {
        this.#bytes += bytes;
      },
      reached: (position) => {
        const isBack = position < this.#position;
        this.#position = position;
        if (isBack) this.#goBack();
        else this.#pass(position);
        this.#changed();
      },
      found: (damage) => this.#add(damage),
    };
  }

  #add(damage: Damage): void {
    this.#pass(damage.position + damage.bytes);
    this.#foundCount++;
    if (this.#found.length < SCRUB_DAMAGE_MAX) {
      this.#found.push(damage);
      const { position, bytes, reason } = damage;
      this.#world.logger.error("The log is damaged on disk", { position, bytes, reason });
      this.#world.found?.(damage);
    } else if (this.#foundCount === SCRUB_DAMAGE_MAX + 1) {
      this.#world.logger.error("The log is damaged in more places; they are counted only", {
        position: damage.position,
      });
    }
    this.#changed();
  }

  /** What was found below `position` before is not news from there any more. */
  #pass(position: number): void {
    while (this.#ahead[0] !== undefined && this.#ahead[0].position < position) {
      this.#ahead.shift();
      this.#aheadCount--;
    }
  }

  /** What was found from the position on is ahead again. */
  #goBack(): void {
    const all = [...this.#found, ...this.#ahead];
    const count = this.#foundCount + this.#aheadCount;
    const isBelow = (damage: Damage) => damage.position < this.#position;
    this.#found = all.filter(isBelow);
    this.#foundCount = this.#found.length;
    this.#ahead = all.filter((damage) => !isBelow(damage)).slice(0, SCRUB_DAMAGE_MAX);
    this.#aheadCount = count - this.#foundCount;
  }

  #changed(): void {
    this.#isNoteStale = true;
    if (this.#ending.signal.aborted || this.#noteTimer !== null) return;
    this.#noteTimer = this.#world.clock.setTimer(SCRUB_NOTE_MS, () => {
      this.#noteTimer = null;
      if (this.#world.isHeld()) return this.#changed();
      this.#noting = this.#noting.then(() => this.#note());
    });
  }

  async #note(): Promise<void> {
    this.#isNoteStale = false;
    const { damageCount, damage } = this.report;
    try {
      await writeScrubNote(this.#world.disk, this.#world.path, {
        position: this.#isUnderWay ? this.#position : null,
        started_ms: this.#startedMs,
        ended_ms: this.#endedMs,
        damage_count: damageCount,
        damage,
      });
      this.#noteFailed = false;
    } catch (error) {
      // Once for all the attempts that fail in a row: nothing depends on it.
      if (!this.#noteFailed) {
        this.#world.logger.warn("Cannot note how far the scrub has come", {
          error: String(error),
        });
      }
      this.#noteFailed = true;
      this.#isNoteStale = true;
    }
  }
}
