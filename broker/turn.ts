/**
 * What an input leaves behind: channels to dispatch and connections to flush, once, after the input
 * and in the same turn of the event loop; and the one timer behind all deadlines.
 *
 * Channels that lag wait in a line of their own while others are to be spared, and get a slice after
 * everything else: one an input, in turns. See `lagging_pace.ts`.
 */
import type { Clock, Timer } from "@sluice/shared/runtime";
import { type LaggingPace, SLICE_STEPS } from "./lagging_pace.ts";
import { type Channel, Schedule, type Timed } from "./queue/mod.ts";

/** A connection that gathers output during an input. */
export interface Flushable {
  flush(): void;
}

/** A timer takes only so long a delay; it is set again. */
const WAKE_MS_MAX = 60_000;
/** Lagging channels are looked at this often at least; inputs do it more often. */
const LAGGING_MS = 1;

/** See the module. */
export class Turn {
  readonly #clock: Clock;
  readonly #pace: LaggingPace;
  readonly #isFrozen: () => boolean;
  readonly #schedule = new Schedule();
  #woken: Channel[] = [];
  #flushables: Flushable[] = [];
  /** Woken channels that lag, the next one first. */
  #lagging: Channel[] = [];
  #laggingTimer: Timer | null = null;
  #isSettling = false;
  #timer: Timer | null = null;
  #timerMs = Infinity;
  #isStopped = false;

  /** While `isFrozen`, woken channels are not dispatched; they are to be woken again after that. */
  constructor(clock: Clock, pace: LaggingPace, isFrozen: () => boolean = () => false) {
    this.#clock = clock;
    this.#pace = pace;
    this.#isFrozen = isFrozen;
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
    this.#laggingTimer?.cancel();
    this.#laggingTimer = null;
  }

  #settleLater(): void {
    if (this.#isSettling) return;
    this.#isSettling = true;
    queueMicrotask(() => this.#settle());
  }

  #settle(): void {
    const nowMs = this.#clock.monoMs();
    const isFree = this.#pace.isFree(nowMs);
    if (isFree && this.#lagging.length > 0) this.#release(nowMs);
    while (this.#woken.length > 0) {
      const channels = this.#woken;
      this.#woken = [];
      for (const channel of channels) {
        if (!isFree && channel.isLagging) {
          this.#lagging.push(channel);
          continue;
        }
        channel.woken = false;
        const isDone = this.#dispatch(channel, nowMs, isFree ? Infinity : SLICE_STEPS);
        if (!isDone) this.#hold(channel);
      }
    }
    this.#flush();
    if (this.#lagging.length > 0) this.#runLagging();
    this.#isSettling = false;
    // What flushing has left behind.
    if (this.#woken.length > 0 || this.#flushables.length > 0) this.#settleLater();
  }

  #dispatch(channel: Channel, nowMs: number, coldSteps: number): boolean {
    return this.#isFrozen() || channel.dispatch(nowMs, coldSteps);
  }

  #flush(): void {
    const flushables = this.#flushables;
    this.#flushables = [];
    for (const flushable of flushables) flushable.flush();
  }

  /** A slice for the channel whose turn it is, if it is time. */
  #runLagging(): void {
    const nowMs = this.#clock.monoMs();
    if (this.#pace.restMs(nowMs) === 0) {
      const channel = this.#lagging.shift()!;
      channel.woken = false;
      if (!this.#dispatch(channel, nowMs, SLICE_STEPS)) this.#hold(channel);
      this.#flush();
      this.#pace.ran(nowMs, this.#clock.monoMs());
    }
    const isHeld = this.#lagging.length > 0;
    this.#pace.held(isHeld, nowMs);
    if (!isHeld || this.#laggingTimer !== null || this.#isStopped) return;
    const delayMs = Math.max(LAGGING_MS, this.#pace.restMs(nowMs));
    this.#laggingTimer = this.#clock.setTimer(delayMs, () => {
      this.#laggingTimer = null;
      this.#settleLater();
    });
  }

  /** It had more to deliver than a slice. */
  #hold(channel: Channel): void {
    this.#pace.heldCount++;
    // While it waits nobody needs to wake it.
    channel.woken = true;
    this.#lagging.push(channel);
  }

  /** Nobody is to be spared any more. */
  #release(nowMs: number): void {
    this.#woken.push(...this.#lagging);
    this.#lagging = [];
    this.#pace.held(false, nowMs);
    this.#laggingTimer?.cancel();
    this.#laggingTimer = null;
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
