/**
 * Long work in slices: it looks at the clock now and then, and once it has kept the event loop for a
 * slice it lets all others run before it goes on. Work that is over within a slice never waits.
 *
 * ```ts
 * for (const topic of topics) {
 *   ...
 *   if (slices.isOver) await slices.pause();
 * }
 * ```
 */
import type { Clock } from "./clock.ts";

/** The longest that a part of long work keeps others waiting, about. */
export const SLICE_MS = 3;
/** The clock is looked at once in so many questions: a look costs more than a step of most work. */
const STEPS_A_LOOK = 16;
/** So few are sorted at once that it takes well less than a slice. */
const SORTED_AT_ONCE = 512;

/** See the module. One for each piece of work. */
export class Slices {
  readonly #clock: Clock | null;
  readonly #sliceMs: number;
  #endMs: number;
  #steps = 0;

  /** Without a clock the first slice never ends. */
  constructor(clock: Clock | null, sliceMs = SLICE_MS) {
    this.#clock = clock;
    this.#sliceMs = sliceMs;
    this.#endMs = this.#sliceEndMs;
  }

  /** Whether it is time for others. Asked once for each step of the work. */
  get isOver(): boolean {
    if (++this.#steps < STEPS_A_LOOK) return false;
    this.#steps = 0;
    return this.#isLate;
  }

  /** Lets others run; resolves at the beginning of the next slice. */
  async pause(): Promise<void> {
    await this.#clock?.sleep(0);
    this.#endMs = this.#sliceEndMs;
  }

  /** Between steps that are known to be long: lets others run when the slice is over. */
  async rest(): Promise<void> {
    if (this.#isLate) await this.pause();
  }

  get #isLate(): boolean {
    return this.#clock !== null && this.#clock.monoMs() >= this.#endMs;
  }

  get #sliceEndMs(): number {
    return this.#clock === null ? Infinity : this.#clock.monoMs() + this.#sliceMs;
  }
}

/** Sorts in slices; `items` is left as it is. As `Array.sort`, equal ones keep their order. */
export async function sortInSlices<T>(
  items: readonly T[],
  compare: (a: T, b: T) => number,
  slices: Slices,
): Promise<T[]> {
  let runs: T[][] = [];
  for (let from = 0; from < items.length; from += SORTED_AT_ONCE) {
    runs.push(items.slice(from, from + SORTED_AT_ONCE).sort(compare));
    await slices.rest();
  }
  while (runs.length > 1) {
    const longer: T[][] = [];
    for (let index = 0; index < runs.length; index += 2) {
      longer.push(await mergeInSlices(runs[index]!, runs[index + 1] ?? [], compare, slices));
    }
    runs = longer;
  }
  return runs[0] ?? [];
}

/** Makes one sorted list of two; of equal ones those of `a` come first. */
export async function mergeInSlices<T>(
  a: readonly T[],
  b: readonly T[],
  compare: (a: T, b: T) => number,
  slices: Slices,
): Promise<T[]> {
  const merged: T[] = [];
  let [left, right] = [0, 0];
  while (left < a.length && right < b.length) {
    merged.push(compare(a[left]!, b[right]!) <= 0 ? a[left++]! : b[right++]!);
    if (slices.isOver) await slices.pause();
  }
  for (; left < a.length; left++) merged.push(a[left]!);
  for (; right < b.length; right++) merged.push(b[right]!);
  return merged;
}
