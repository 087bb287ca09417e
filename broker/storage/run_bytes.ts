/**
 * How many bytes of the log a topic's messages take from an offset on, estimated from what each run
 * of its index holds: within a run every message counts as the mean of them.
 */

/** The part of an index run that this needs. Runs come oldest first and do not overlap. */
export interface RunBytes {
  readonly firstOffset: number;
  readonly endOffset: number;
  /** What the records of the run take in the log. */
  readonly bytes: number;
}

/** Bytes of the messages from `offset` on. */
export function bytesFrom(runs: readonly RunBytes[], offset: number): number {
  let total = 0;
  for (let index = runs.length - 1; index >= 0; index--) {
    const run = runs[index]!;
    if (run.endOffset <= offset) break;
    total += shareFrom(run, offset);
  }
  return total;
}

/** The lowest offset from which on there are at most `bytes`; the end of the last run at the latest. */
export function offsetKeeping(runs: readonly RunBytes[], bytes: number): number {
  let left = bytes;
  let offset = runs.at(-1)?.endOffset ?? 0;
  for (let index = runs.length - 1; index >= 0; index--) {
    const run = runs[index]!;
    if (run.bytes > left) {
      const meanBytes = run.bytes / (run.endOffset - run.firstOffset);
      return run.endOffset - Math.floor(left / meanBytes);
    }
    left -= run.bytes;
    offset = run.firstOffset;
  }
  return offset;
}

function shareFrom(run: RunBytes, offset: number): number {
  if (offset <= run.firstOffset) return run.bytes;
  return run.bytes * (run.endOffset - offset) / (run.endOffset - run.firstOffset);
}
