/**
 * What an input leaves behind: channels to dispatch and connections to flush, once, after the input
 * and in the same turn of the event loop; and the one timer behind all deadlines.
 */
import type { Clock, Timer } from "@sluice/shared/runtime";
import { type Channel, Schedule, type Timed } from "./queue/mod.ts";

/** A connection that gathers output during an input. */
export interface Flushable {
  flush(): void;
}

/** A timer takes only so long a delay; it is set again. */
const WAKE_MS_MAX = 60_000;

/** See the module. */
export class Turn {
  readonly #clock: Clock;
  readonly #schedule = new Schedule();
  #woken: Channel[] = [];
  #flushables: Flushable[] = [];
  #isSettling = false;
  #timer: Timer | null = null;
  #timerMs = Infinity;
  #isStopped = false;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Dispatches `channel` after the input at hand. */
  wake(channel: Channel): void {
    channel.woken = true;
    this.#woken.push(channel);
    this.#settleLater();
  }

  /** Calls `flush` after the input at hand, and after all dispatching. */
  flushLater(flushable: Flushable): void {
    this.#flushables.push(flushable);
    this.#settleLater();
  }

  /** Calls `timed.tick` at a monotonic time, or earlier. */
  schedule(timed: Timed, dueMs: number): void {
    this.#schedule.add(timed, dueMs);
    if (dueMs < this.#timerMs) this.#arm();
  }

  /** No timer fires any more. */
  stop(): void {
    this.#isStopped = true;
    this.#timer?.cancel();
    this.#timer = null;
  }

  #settleLater(): void {
    if (this.#isSettling) return;
    this.#isSettling = true;
    queueMicrotask(() => this.#settle());
  }

  #settle(): void {
    const nowMs = this.#clock.monoMs();
    while (this.#woken.length > 0) {
      const channels = this.#woken;
      this.#woken = [];
      for (const channel of channels) {
        channel.woken = false;
        channel.dispatch(nowMs);
      }
    }
    this.#isSettling = false;
    const flushables = this.#flushables;
    this.#flushables = [];
    for (const flushable of flushables) flushable.flush();
  }

  #arm(): void {
    this.#timer?.cancel();
    this.#timer = null;
    this.#timerMs = Infinity;
    const { earliestMs } = this.#schedule;
    if (earliestMs === Infinity || this.#isStopped) return;
    const nowMs = this.#clock.monoMs();
    this.#timerMs = Math.min(earliestMs, nowMs + WAKE_MS_MAX);
    this.#timer = this.#clock.setTimer(this.#timerMs - nowMs, () => {
      this.#timer = null;
      this.#timerMs = Infinity;
      this.#schedule.run(this.#clock.monoMs(), this.#clock.wallMs());
      this.#arm();
    });
  }
}
