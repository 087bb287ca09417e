/** One outcome for what was published in pieces: that of the piece that fared worst. */
import type { Outcome } from "./transit.ts";

const WORST_FIRST = ["ambiguous", "throttled", "refused", "failed", "spooled", "confirmed"];

/** To be called for each of `count` pieces; `done` is called after the last one. */
export function worstOf(
  count: number,
  done: (outcome: Outcome) => void,
): (outcome: Outcome) => void {
  let left = count;
  let worst: Outcome = { kind: "confirmed" };
  return (outcome) => {
    if (rank(outcome) < rank(worst)) worst = outcome;
    if (--left === 0) done(worst);
  };
}

function rank({ kind }: Outcome): number {
  return WORST_FIRST.indexOf(kind);
}
