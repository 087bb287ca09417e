/**
 * Counts observations in buckets. Observing allocates nothing and costs a search in the bounds, so it
 * may stand on a hot path. The bounds are fixed: memory does not grow with what is observed.
 */
import { invariant } from "../runtime/mod.ts";

/** The most buckets of a histogram, the one above all bounds not counted. */
export const BUCKETS_MAX = 64;

/** From 100 microseconds to a minute, in seconds. */
export const LATENCY_BOUNDS_SECONDS: readonly number[] = [
  0.0001,
  0.00025,
  0.0005,
  0.001,
  0.0025,
  0.005,
  0.01,
  0.025,
  0.05,
  0.1,
  0.25,
  0.5,
  1,
  2.5,
  5,
  10,
  30,
  60,
];

/** Observations by size; see the module. */
export class Histogram {
  readonly #bounds: Float64Array;
  /** One more than bounds: the last counts what is above all of them. */
  readonly #counts: Float64Array;
  #sum = 0;
  #count = 0;

  /** `bounds` ascend; an observation falls into the first bucket whose bound it does not exceed. */
  constructor(bounds: readonly number[]) {
    invariant(bounds.length > 0 && bounds.length <= BUCKETS_MAX, "a histogram has bounded buckets");
    invariant(
      bounds.every((bound, index) =>
        Number.isFinite(bound) && (index === 0 || bound > (bounds[index - 1] ?? Infinity))
      ),
      "the bounds of a histogram ascend",
    );
    this.#bounds = Float64Array.from(bounds);
    this.#counts = new Float64Array(bounds.length + 1);
  }

  /** Counts one observation. A value that is no number would spoil the sum and is not counted. */
  observe(value: number): void {
    if (!Number.isFinite(value)) return;
    const bounds = this.#bounds;
    let low = 0;
    let high = bounds.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (value <= (bounds[middle] ?? Infinity)) high = middle;
      else low = middle + 1;
    }
    this.#counts[low] = (this.#counts[low] ?? 0) + 1;
    this.#sum += value;
    this.#count++;
  }

  get count(): number {
    return this.#count;
  }

  get sum(): number {
    return this.#sum;
  }

  /** Each bound with the number of observations at or below it; the last bound is `Infinity`. */
  cumulative(): (readonly [bound: number, count: number])[] {
    let total = 0;
    return Array.from(this.#counts, (count, index) => {
      total += count;
      return [this.#bounds[index] ?? Infinity, total] as const;
    });
  }
}
