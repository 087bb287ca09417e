/**
 * How long messages took from their publish to their finish, as counts by size: what the percentiles
 * in `/stats` and of statsd are made of. Whoever wants none of them has none of this.
 *
 * - Whole milliseconds, as in a message's timestamp; below 64 ms exact, above it a percentile is off
 *   by 1.6 % of its value at most. What took more than 24 days counts as 24 days.
 * - Recording allocates nothing, but for a few times that a window grows; one takes 7 KiB at most.
 * - Counts of several channels add up to those of their topic, without further error.
 * - A window consists of two halves: what is told covers from half of its time to all of it.
 */
import type { Clock } from "@sluice/shared/runtime";

/** Below it each millisecond is counted by itself. */
const EXACT_MS = 64;
const EXACT_BITS = 6;
/** Buckets for each power of two above. */
const SPLIT_BITS = 5;
const SPLIT = 2 ** SPLIT_BITS;
const LATENCY_MS_MAX = 2 ** 31 - 1;

/** What `/stats` tells of a latency; the values are nanoseconds. */
export interface LatencySummary {
  readonly count: number;
  readonly percentiles: readonly { readonly quantile: number; readonly value: number }[] | null;
}

/** Percentiles where none are measured; the object has to be there all the same. */
export const NO_LATENCY: LatencySummary = { count: 0, percentiles: null };

/** Counts of milliseconds. */
export class LatencyCounts {
  count = 0;
  #counts = new Uint32Array(EXACT_MS);

  add(latencyMs: number): void {
    const bucket = bucketOf(Math.min(Math.max(0, Math.floor(latencyMs)), LATENCY_MS_MAX));
    if (bucket >= this.#counts.length) this.#grow(bucket + 1);
    this.#counts[bucket]!++;
    this.count++;
  }

  /** Adds all that `other` has counted. */
  merge(other: LatencyCounts): void {
    this.#grow(other.#counts.length);
    for (let bucket = 0; bucket < other.#counts.length; bucket++) {
      this.#counts[bucket]! += other.#counts[bucket]!;
    }
    this.count += other.count;
  }

  clear(): void {
    this.#counts.fill(0);
    this.count = 0;
  }

  /** The milliseconds that a share of `quantile` did not exceed; 0 when there are none. */
  quantileMs(quantile: number): number {
    const rank = Math.max(1, Math.ceil(quantile * this.count));
    let below = 0;
    for (let bucket = 0; bucket < this.#counts.length; bucket++) {
      below += this.#counts[bucket]!;
      if (below >= rank) return middleOf(bucket);
    }
    return 0;
  }

  summary(quantiles: readonly number[]): LatencySummary {
    return {
      count: this.count,
      percentiles: quantiles.map((quantile) => ({
        quantile,
        value: Math.round(this.quantileMs(quantile) * 1e6),
      })),
    };
  }

  #grow(buckets: number): void {
    if (buckets <= this.#counts.length) return;
    const counts = new Uint32Array(Math.ceil(buckets / SPLIT) * SPLIT);
    counts.set(this.#counts);
    this.#counts = counts;
  }
}

/** The latencies of a channel in the time just past. */
export class LatencyWindow {
  readonly #clock: Pick<Clock, "wallMs" | "monoMs">;
  readonly #halfMs: number;
  #current = new LatencyCounts();
  #last = new LatencyCounts();
  #turnMs: number;

  constructor(clock: Pick<Clock, "wallMs" | "monoMs">, windowMs: number) {
    this.#clock = clock;
    this.#halfMs = windowMs / 2;
    this.#turnMs = clock.monoMs() + this.#halfMs;
  }

  /** A message of that Unix time has been finished. */
  finished(timestampMs: number): void {
    this.#turn();
    this.#current.add(this.#clock.wallMs() - timestampMs);
  }

  addTo(counts: LatencyCounts): void {
    this.#turn();
    counts.merge(this.#last);
    counts.merge(this.#current);
  }

  #turn(): void {
    const nowMs = this.#clock.monoMs();
    if (nowMs < this.#turnMs) return;
    const isLong = nowMs >= this.#turnMs + this.#halfMs;
    [this.#current, this.#last] = [this.#last, this.#current];
    this.#current.clear();
    // Nobody asked for a whole window: what was current is too old too.
    if (isLong) this.#last.clear();
    this.#turnMs = nowMs + this.#halfMs;
  }
}

function bucketOf(ms: number): number {
  if (ms < EXACT_MS) return ms;
  const exponent = 31 - Math.clz32(ms);
  const part = (ms >>> (exponent - SPLIT_BITS)) - SPLIT;
  return EXACT_MS + (exponent - EXACT_BITS) * SPLIT + part;
}

function middleOf(bucket: number): number {
  if (bucket < EXACT_MS) return bucket;
  const exponent = EXACT_BITS + Math.floor((bucket - EXACT_MS) / SPLIT);
  const width = 2 ** (exponent - SPLIT_BITS);
  return (SPLIT + (bucket - EXACT_MS) % SPLIT) * width + (width - 1) / 2;
}
