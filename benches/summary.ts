/** Figures of alternating rounds, summed up. */

/** The middle one; the lower of two. NaN of none. */
export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor((sorted.length - 1) / 2)] ?? NaN;
}

/** How one target compares with another over the same rounds. */
export interface Ratio {
  readonly median: number;
  readonly lowest: number;
  readonly highest: number;
}

/** The ratios of figures that were taken in the same round, in pairs. */
export function ratioOf(ours: readonly number[], theirs: readonly number[]): Ratio {
  const ratios = ours.slice(0, theirs.length).map((value, round) => value / theirs[round]!);
  return { median: median(ratios), lowest: Math.min(...ratios), highest: Math.max(...ratios) };
}

/** A figure for people: three digits that count. */
export function showFigure(value: number): string {
  if (!Number.isFinite(value)) return "-";
  if (value >= 1_000_000) return `${(value / 1_000_000).toFixed(2)}M`;
  if (value >= 100_000) return `${(value / 1000).toFixed(0)}k`;
  if (value >= 10_000) return `${(value / 1000).toFixed(1)}k`;
  if (value >= 99.5) return value.toFixed(0);
  return value >= 10 ? value.toFixed(1) : value.toPrecision(2);
}

/** `1.4x (1.2-1.5)`. */
export function showRatio({ median, lowest, highest }: Ratio): string {
  if (!Number.isFinite(median)) return "-";
  const show = (value: number) => value >= 10 ? value.toFixed(0) : value.toFixed(2);
  return `${show(median)}x (${show(lowest)}-${show(highest)})`;
}
