/**
 * How long the process keeps everybody waiting: a timer that goes off late was held up by work that
 * did not let go of the event loop, as any connection was at that time.
 *
 * A timer of {@linkcode LAG_INTERVAL_MS} is observed again and again. One long stall hides the timers
 * that were due in it; they are counted as if they had been there, so that a share of the observations
 * is a share of time.
 */
import type { Clock, Timer } from "../runtime/mod.ts";
import { Histogram } from "./histogram.ts";

/** From one observation to the next. */
export const LAG_INTERVAL_MS = 10;
/** Most timers are late by less than a millisecond: the runtime rounds. */
export const LAG_BOUNDS_SECONDS: readonly number[] = [
  0.001,
  0.002,
  0.003,
  0.005,
  0.0075,
  0.01,
  0.015,
  0.02,
  0.03,
  0.05,
  0.075,
  0.1,
  0.25,
  0.5,
  1,
  2.5,
  5,
  10,
];
/** A process that was stopped for hours is not counted timer by timer. */
const HIDDEN_MAX = 1000;

/** See the module. */
export class LoopLag {
  readonly histogram = new Histogram(LAG_BOUNDS_SECONDS);
  /** The longest since the start. */
  maxMs = 0;
  readonly #clock: Clock;
  #dueMs = 0;
  #timer: Timer | null = null;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Observes until {@linkcode stop}. */
  start(): void {
    this.#dueMs = this.#clock.monoMs() + LAG_INTERVAL_MS;
    this.#timer = this.#clock.setTimer(LAG_INTERVAL_MS, this.#observe);
  }

  /** No timer is left behind. */
  stop(): void {
    this.#timer?.cancel();
    this.#timer = null;
  }

  readonly #observe = (): void => {
    const lagMs = Math.max(0, this.#clock.monoMs() - this.#dueMs);
    this.maxMs = Math.max(this.maxMs, lagMs);
    this.histogram.observe(lagMs / 1000);
    let hidden = 0;
    for (let ms = lagMs - LAG_INTERVAL_MS; ms > 0 && hidden < HIDDEN_MAX; hidden++) {
      this.histogram.observe(ms / 1000);
      ms -= LAG_INTERVAL_MS;
    }
    this.start();
  };
}
