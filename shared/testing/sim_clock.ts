/**
 * A clock that stands still until a test moves it. Timers run in the order of their due times, equal
 * ones in the order they were made, each at exactly its due time; so an hour passes in milliseconds
 * and every run is the same.
 */
import { setImmediate as nextTurn } from "node:timers/promises";
import { invariant } from "../runtime/invariant.ts";
import { type Clock, sleepByTimer, type Timer } from "../runtime/mod.ts";

/** Where a {@linkcode SimClock} starts. */
export interface SimClockOptions {
  readonly monoMs?: number;
  readonly wallMs?: number;
}

interface PendingTimer {
  readonly dueMs: number;
  readonly callback: () => void;
}

/** {@linkcode Clock} moved by hand. */
export class SimClock implements Clock {
  #monoMs: number;
  /** What to add to the monotonic time to get the wall clock's. */
  #wallOffsetMs: number;
  /** Sorted by due time, equal ones by creation. */
  readonly #timers: PendingTimer[] = [];

  constructor(options: SimClockOptions = {}) {
    this.#monoMs = options.monoMs ?? 0;
    this.#wallOffsetMs = (options.wallMs ?? 1_700_000_000_000) - this.#monoMs;
  }

  wallMs(): number {
    return Math.floor(this.#monoMs + this.#wallOffsetMs);
  }

  monoMs(): number {
    return this.#monoMs;
  }

  sleep(ms: number, signal?: AbortSignal): Promise<void> {
    return sleepByTimer((delayMs, callback) => this.setTimer(delayMs, callback), ms, signal);
  }

  setTimer(delayMs: number, callback: () => void): Timer {
    invariant(!Number.isNaN(delayMs), "a timer's delay is a number");
    const timer = { dueMs: this.#monoMs + Math.max(0, delayMs), callback };
    this.#timers.splice(this.#indexAfter(timer.dueMs), 0, timer);
    return {
      cancel: () => {
        const index = this.#timers.indexOf(timer);
        if (index >= 0) this.#timers.splice(index, 1);
      },
    };
  }

  /** Timers that have neither run nor been cancelled; 0 when nothing leaked. */
  get pendingTimers(): number {
    return this.#timers.length;
  }

  /** How long until the next timer is due, or `null` when there is none. */
  get nextTimerMs(): number | null {
    const next = this.#timers[0];
    return next === undefined ? null : next.dueMs - this.#monoMs;
  }

  /** Sets the wall clock forward, or back with a negative `ms`; timers and monotonic time stay. */
  jumpWall(ms: number): void {
    this.#wallOffsetMs += ms;
  }

  /** Lets `ms` pass at once: runs what is due, also timers made meanwhile, but no promise job. */
  advance(ms: number): void {
    const untilMs = this.#monoMs + ms;
    while (this.#runNext(untilMs));
    this.#monoMs = untilMs;
  }

  /** Lets `ms` pass, with all promise jobs run before the first timer, after each and at the end. */
  async run(ms: number): Promise<void> {
    const untilMs = this.#monoMs + ms;
    await settle();
    while (this.#runNext(untilMs)) await settle();
    this.#monoMs = untilMs;
  }

  /**
   * Lets time pass until `promise` settles and resolves or rejects with it; fails when that takes
   * more than `msMax`, or when no timer is left that could bring it about.
   */
  async runUntil<T>(promise: Promise<T>, msMax: number): Promise<T> {
    const untilMs = this.#monoMs + msMax;
    let settled = false;
    const note = () => {
      settled = true;
    };
    promise.then(note, note);
    await settle();
    while (!settled && this.#runNext(untilMs)) await settle();
    invariant(settled, `the promise settles within ${msMax} simulated milliseconds`);
    return await promise;
  }

  /** Runs the earliest timer when it is due by `untilMs`, at its own time. */
  #runNext(untilMs: number): boolean {
    const next = this.#timers[0];
    if (next === undefined || next.dueMs > untilMs) return false;
    this.#timers.shift();
    this.#monoMs = next.dueMs;
    next.callback();
    return true;
  }

  /** The first index whose timer is due later than `dueMs`. */
  #indexAfter(dueMs: number): number {
    let low = 0;
    let high = this.#timers.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((this.#timers[middle] as PendingTimer).dueMs <= dueMs) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

/** Resolves once no promise job is left to run. */
export async function settle(): Promise<void> {
  await nextTurn();
}
