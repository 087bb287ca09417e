/**
 * How much of the event loop goes to channels that lag: those whose messages come from disk and no
 * longer from memory. They have always something to do, and a turn full of it stands before each hop of
 * a publish on its way to the disk and back. So while anybody publishes they get a share of the time,
 * in small slices; and all of it when nobody does.
 *
 * - What a slice took is paid for by a rest, so that slice and rest are to each other as the share
 *   says. Finishing a message costs about what delivering it does and is counted with it.
 * - A rest is bounded, and so is what can be saved up for later: lagging channels always go on, and
 *   never for long at a time.
 * - Where time stands still during a turn, as in a simulation, nothing costs anything.
 */

/** Steps of a slice: about 50 us of deliveries. */
export const SLICE_STEPS = 32;
/** Somebody publishes, when somebody did so within this time. */
const LIVE_MS = 10;
/** The longest rest, as after a slice that something else has interrupted. */
const REST_MS_MAX = 20;
/** Time that was not used may be used so much later. */
const SAVED_MS_MAX = 1;
/** Deliveries and what they entail: the finishes of them. */
const ENTAILED = 2;

/** See the module. Times are monotonic. */
export class LaggingPace {
  /** Slices after which a channel had more to deliver and had to wait. */
  heldCount = 0;

  readonly #published: () => number;
  readonly #sharePercent: number;
  #seen: number;
  #liveUntilMs = -Infinity;
  #restUntilMs = -Infinity;
  #heldMs = 0;
  #heldSinceMs: number | null = null;

  /** `published` grows with each publish; a share of 100 is no limit. */
  constructor(published: () => number, sharePercent: number) {
    this.#published = published;
    this.#sharePercent = sharePercent;
    this.#seen = published();
  }

  /** Whether nobody is to be spared. Looked at often while something is to be paced. */
  isFree(nowMs: number): boolean {
    if (this.#sharePercent >= 100) return true;
    const published = this.#published();
    if (published !== this.#seen) {
      this.#seen = published;
      this.#liveUntilMs = nowMs + LIVE_MS;
    }
    return nowMs >= this.#liveUntilMs;
  }

  /** How long until the next slice; 0 when it may be now. */
  restMs(nowMs: number): number {
    return Math.max(0, this.#restUntilMs - nowMs);
  }

  /** A slice has ended. */
  ran(startMs: number, endMs: number): void {
    const costMs = (endMs - startMs) * ENTAILED * 100 / this.#sharePercent;
    const fromMs = Math.max(this.#restUntilMs, startMs - SAVED_MS_MAX);
    this.#restUntilMs = Math.min(fromMs + costMs, endMs + REST_MS_MAX);
  }

  /** Some channel waits for its slice from now on, or none does any more. */
  held(isHeld: boolean, nowMs: number): void {
    if (isHeld) {
      this.#heldSinceMs ??= nowMs;
    } else if (this.#heldSinceMs !== null) {
      this.#heldMs += nowMs - this.#heldSinceMs;
      this.#heldSinceMs = null;
    }
  }

  /** Time during which some channel waited. */
  heldMs(nowMs: number): number {
    return this.#heldMs + (this.#heldSinceMs === null ? 0 : nowMs - this.#heldSinceMs);
  }
}
