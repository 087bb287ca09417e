/**
 * A set of whole numbers kept as runs: sorted, disjoint, never adjacent. What is settled of a backlog
 * that is worked off in order is a few runs, however many entries it was.
 */

/** See the module. */
export class NumberRuns {
  /** Starts and ends in turn: `[start, end)` of each run. */
  #bounds: number[] = [];
  #count = 0;

  /** How many numbers there are. */
  get count(): number {
    return this.#count;
  }

  /** How many runs they form; what takes memory. */
  get runCount(): number {
    return this.#bounds.length / 2;
  }

  /** Whether a number is in the set. */
  has(number: number): boolean {
    return this.#boundsUpTo(number) % 2 === 1;
  }

  /** The first number from `number` on that is not in the set. */
  nextMissing(number: number): number {
    const index = this.#boundsUpTo(number);
    return index % 2 === 1 ? this.#bounds[index]! : number;
  }

  /** Whether any number of `[start, end)` is in the set. */
  hasAny(start: number, end: number): boolean {
    const index = this.#boundsUpTo(start);
    if (index % 2 === 1) return end > start;
    const next = this.#bounds[index];
    return next !== undefined && next < end;
  }

  /** Adds `[start, end)`, of which some may be there already. */
  add(start: number, end: number): void {
    if (end <= start) return;
    const bounds = this.#bounds;
    // The common case: it goes on where the last run ends.
    if (bounds.length > 0 && bounds[bounds.length - 1] === start) {
      bounds[bounds.length - 1] = end;
      this.#count += end - start;
      return;
    }
    // Runs that touch the new one are swallowed by it.
    let from = this.#boundsUpTo(start - 1);
    let newStart = start;
    if (from % 2 === 1) newStart = bounds[--from]!;
    let to = this.#boundsUpTo(end);
    let newEnd = end;
    if (to % 2 === 1) newEnd = bounds[to++]!;
    let swallowed = 0;
    for (let index = from; index < to; index += 2) swallowed += bounds[index + 1]! - bounds[index]!;
    bounds.splice(from, to - from, newStart, newEnd);
    this.#count += newEnd - newStart - swallowed;
  }

  /** Forgets all numbers below `number`. */
  trim(number: number): void {
    const index = this.#boundsUpTo(number);
    const cut = index - (index % 2);
    if (cut === 0 && index === 0) return;
    for (let at = 0; at < cut; at += 2) this.#count -= this.#bounds[at + 1]! - this.#bounds[at]!;
    this.#bounds.splice(0, cut);
    if (index % 2 === 0) return;
    this.#count -= number - this.#bounds[0]!;
    this.#bounds[0] = number;
  }

  /** Empties the set. */
  clear(): void {
    this.#bounds = [];
    this.#count = 0;
  }

  /** The runs, ascending, as `[start, end)`. */
  *[Symbol.iterator](): Generator<readonly [start: number, end: number]> {
    for (let at = 0; at < this.#bounds.length; at += 2) {
      yield [this.#bounds[at]!, this.#bounds[at + 1]!];
    }
  }

  /** How many bounds are at `number` or below: odd inside of a run. */
  #boundsUpTo(number: number): number {
    let low = 0;
    let high = this.#bounds.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (this.#bounds[middle]! <= number) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
