/**
 * A probe that writes: one record that means nothing goes the way of every publish, through the group,
 * the write and the sync, and its time is told. It finds what no look at the state does: a disk
 * that takes writes and never answers.
 *
 * - Probes that come while one is under way share it, and so does what they are told. Up to
 *   {@linkcode WAITING_MAX} wait.
 * - At most {@linkcode WRITES_BURST} writes at once and {@linkcode WRITES_PER_SECOND} a second after that are
 *   begun; what is beyond is refused and costs nothing.
 * - When something else waits for the disk already, its sync is the probe: nothing is added. So however
 *   long the disk hangs, and however often it is asked for, one record waits at most. Else a probe
 *   costs a block of 72 bytes and a sync; at one a second 6 MB a day, which go with the files that
 *   they are in.
 * - Every probe is answered once the write has been under way for `timeoutMs`, whatever the disk does.
 */
import type { Clock } from "@sluice/shared/runtime";
import type { ProbeFailure } from "./health.ts";

/** Probes that wait at a time. */
export const WAITING_MAX = 64;
/** Writes that may be begun at once. */
export const WRITES_BURST = 5;
/** Writes that may be begun in the long run. */
export const WRITES_PER_SECOND = 1;

/** What became of a probe: null for one that is refused. */
export type ProbeOutcome = {
  /** Since the write was begun, by whichever probe. */
  readonly durationMs: number;
  readonly failure: { readonly code: ProbeFailure; readonly message: string } | null;
} | null;

/** The log that is probed. */
export interface ProbedLog {
  readonly end: number;
  readonly durableEnd: number;
  readonly stalled: Error | null;
  readonly error: Error | null;
  pad(): void;
}

/** What a {@linkcode WriteProbe} works on. */
export interface ProbeWorld {
  readonly clock: Clock;
  readonly log: ProbedLog;
  /** Resolves when all that is in the log is on disk; rejects when it never will be. */
  durable(): Promise<void>;
}

/** A write under way. */
interface Writing {
  readonly startMs: number;
  /** Resolves with how it ended. Never rejects. */
  readonly done: Promise<{ readonly endMs: number; readonly error: Error | null }>;
}

/** See the module. */
export class WriteProbe {
  /** Probes that were refused. */
  refusedCount = 0;
  readonly #world: ProbeWorld;
  readonly #timeoutMs: number;
  #writing: Writing | null = null;
  #waiting = 0;
  #tokens = WRITES_BURST;
  #filledMs: number;

  constructor(world: ProbeWorld, timeoutMs: number) {
    this.#world = world;
    this.#timeoutMs = timeoutMs;
    this.#filledMs = world.clock.monoMs();
  }

  /** Never rejects, and resolves within the timeout. */
  async probe(): Promise<ProbeOutcome> {
    const { clock, log } = this.#world;
    const failed = log.error ?? log.stalled;
    if (failed !== null) return { durationMs: 0, failure: writeFailed(failed) };
    if (this.#waiting >= WAITING_MAX || (this.#writing === null && !this.#mayBegin())) {
      this.refusedCount++;
      return null;
    }
    const writing = this.#writing ??= this.#begin();
    const leftMs = Math.max(0, writing.startMs + this.#timeoutMs - clock.monoMs());
    this.#waiting++;
    const late = Promise.withResolvers<null>();
    const timer = clock.setTimer(leftMs, () => late.resolve(null));
    const ended = await Promise.race([writing.done, late.promise]);
    timer.cancel();
    this.#waiting--;
    const durationMs = (ended?.endMs ?? clock.monoMs()) - writing.startMs;
    if (ended === null) {
      // One that found no space waits for it, and is not slow.
      const failure = log.stalled === null ? SLOW : writeFailed(log.stalled);
      return { durationMs, failure };
    }
    return { durationMs, failure: ended.error === null ? null : writeFailed(ended.error) };
  }

  #begin(): Writing {
    const { clock, log } = this.#world;
    const startMs = clock.monoMs();
    if (log.end === log.durableEnd) log.pad();
    const over = (error: Error | null) => {
      this.#writing = null;
      return { endMs: clock.monoMs(), error };
    };
    return {
      startMs,
      done: this.#world.durable().then(
        () => over(null),
        (error) => over(error instanceof Error ? error : new Error(String(error))),
      ),
    };
  }

  #mayBegin(): boolean {
    const nowMs = this.#world.clock.monoMs();
    const gained = (nowMs - this.#filledMs) / 1000 * WRITES_PER_SECOND;
    this.#tokens = Math.min(WRITES_BURST, this.#tokens + gained);
    this.#filledMs = nowMs;
    if (this.#tokens < 1) return false;
    this.#tokens--;
    return true;
  }
}

const SLOW = {
  code: "write_probe_slow",
  message: "the disk has not answered in time",
} as const;

function writeFailed(error: Error): { code: ProbeFailure; message: string } {
  return { code: "write_probe_failed", message: error.message };
}
