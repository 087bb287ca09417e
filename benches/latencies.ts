/** Latencies in buckets, each 5 % wider than the one before: small, exact enough, and added up. */

const SMALLEST_MS = 0.01;
const GROWTH = 1.05;
const LOG_GROWTH = Math.log(GROWTH);

/** See the module. */
export class Latencies {
  readonly #counts = new Map<number, number>();
  count = 0;
  maxMs = 0;

  observe(ms: number): void {
    this.#add(ms <= SMALLEST_MS ? 0 : Math.ceil(Math.log(ms / SMALLEST_MS) / LOG_GROWTH), 1);
    this.maxMs = Math.max(this.maxMs, ms);
  }

  /** The latency that a share (0 to 1) of all does not exceed, by its bucket's upper bound. */
  quantileMs(share: number): number {
    let left = Math.ceil(this.count * share);
    for (const [bucket, count] of [...this.#counts].sort(([a], [b]) => a - b)) {
      left -= count;
      if (left <= 0) return Math.min(this.maxMs, SMALLEST_MS * GROWTH ** bucket);
    }
    return 0;
  }

  /** For another process. */
  toJSON(): LatenciesDocument {
    return { counts: [...this.#counts], maxMs: this.maxMs };
  }

  /** Adds what another has seen. */
  add({ counts, maxMs }: LatenciesDocument): void {
    for (const [bucket, count] of counts) this.#add(bucket, count);
    this.maxMs = Math.max(this.maxMs, maxMs);
  }

  #add(bucket: number, count: number): void {
    this.#counts.set(bucket, (this.#counts.get(bucket) ?? 0) + count);
    this.count += count;
  }
}

/** What {@linkcode Latencies.toJSON} gives. */
export interface LatenciesDocument {
  readonly counts: readonly (readonly [bucket: number, count: number])[];
  readonly maxMs: number;
}
