/**
 * Whether figures are as good as a baseline's, loosely: throughput may be a little lower and a latency a
 * little higher, since machines are never the same twice.
 */

/** What throughput may fall to, and latency rise to, as a share of the baseline. */
export const THROUGHPUT_MIN = 0.85;
export const LATENCY_MAX = 1.2;

/** A figure by its name. */
export interface Figure {
  readonly name: string;
  readonly unit: "messages/s" | "ms";
  readonly value: number;
}

/** What became of one figure. */
export interface Verdict {
  readonly name: string;
  /** The figure as a share of the baseline; null when the baseline has none. */
  readonly ratio: number | null;
  readonly isGood: boolean;
}

/** Judges each figure; one that the baseline does not have is good. */
export function judge(
  figures: readonly Figure[],
  baseline: Readonly<Record<string, number>>,
): Verdict[] {
  return figures.map(({ name, unit, value }) => {
    const before = baseline[name];
    if (before === undefined) return { name, ratio: null, isGood: true };
    const ratio = value / before;
    const isGood = unit === "ms" ? ratio <= LATENCY_MAX : ratio >= THROUGHPUT_MIN;
    return { name, ratio, isGood };
  });
}
