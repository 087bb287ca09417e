/**
 * The real clock. A timer never runs before its delay is over (the runtime cuts fractions of a
 * millisecond off, so they are rounded up here), and any delay is taken: one beyond
 * {@linkcode TIMER_DELAY_MS_MAX} is armed again in steps.
 */
import { type Clock, type Timer, TIMER_DELAY_MS_MAX } from "./clock.ts";
import { invariant } from "./invariant.ts";
import { sleepByTimer } from "./sleep.ts";

/** {@linkcode Clock} over the machine's clocks and the runtime's timers. */
export class SystemClock implements Clock {
  readonly #timerDelayMsMax: number;

  /** `timerDelayMsMax` is the longest step of one runtime timer; a test makes it small. */
  constructor(timerDelayMsMax: number = TIMER_DELAY_MS_MAX) {
    invariant(timerDelayMsMax >= 1 && timerDelayMsMax <= TIMER_DELAY_MS_MAX, "timer step in range");
    this.#timerDelayMsMax = timerDelayMsMax;
  }

  wallMs(): number {
    return Date.now();
  }

  monoMs(): number {
    return performance.now();
  }

  sleep(ms: number, signal?: AbortSignal): Promise<void> {
    return sleepByTimer((delayMs, callback) => this.setTimer(delayMs, callback), ms, signal);
  }

  setTimer(delayMs: number, callback: () => void): Timer {
    invariant(!Number.isNaN(delayMs), "a timer's delay is a number");
    if (delayMs > this.#timerDelayMsMax) return this.#setLongTimer(delayMs, callback);
    const handle = setTimeout(callback, Math.max(0, Math.ceil(delayMs)));
    return { cancel: () => clearTimeout(handle) };
  }

  #setLongTimer(delayMs: number, callback: () => void): Timer {
    const dueMs = this.monoMs() + delayMs;
    let handle: ReturnType<typeof setTimeout> | undefined;
    const arm = (): void => {
      const leftMs = Math.ceil(dueMs - this.monoMs());
      if (leftMs <= 0) return callback();
      handle = setTimeout(arm, Math.min(leftMs, this.#timerDelayMsMax));
    };
    arm();
    return { cancel: () => clearTimeout(handle) };
  }
}
