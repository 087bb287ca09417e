/**
 * How the messages that a consumer may have in flight are spread over its connections.
 *
 * - The shares come to `inFlightMax` exactly, unless they are cut to what servers take.
 * - No two differ by more than one. With fewer messages than connections some get one and the others
 *   none; `turn` says with which it begins, so that with every turn the next ones have theirs.
 */

/** What servers take of RDY unless they are set otherwise. */
export const READY_MAX = 2_500;

/** The share of each of `count` connections. */
export function readyShares(inFlightMax: number, count: number, turn: number): number[] {
  const least = Math.floor(inFlightMax / count);
  const more = inFlightMax % count;
  return Array.from({ length: count }, (_, index) => {
    // Only where somebody gets nothing it matters who comes first.
    const place = least > 0 ? index : (index + count - turn * inFlightMax % count) % count;
    return Math.min(READY_MAX, place < more ? least + 1 : least);
  });
}
