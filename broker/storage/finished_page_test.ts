import { deepEqual, equal } from "node:assert/strict";
import { SeededRandom } from "@sluice/shared/testing";
import {
  clearRun,
  countRun,
  fillRun,
  findRuns,
  firstClear,
  PAGE_OFFSETS,
  PAGE_WORDS,
} from "./finished_page.ts";

/** The runs of set bits, one bit after the other. */
function plainRuns(bits: readonly boolean[]): number[] {
  const pairs: number[] = [];
  for (const [bit, isSet] of bits.entries()) {
    if (!isSet) continue;
    if (pairs.at(-1) === bit - 1) pairs[pairs.length - 1] = bit;
    else pairs.push(bit, bit);
  }
  return pairs;
}

Deno.test("a page equals a list of bits over any fills and clears of ranges", () => {
  for (let seed = 0; seed < 30; seed++) {
    const random = new SeededRandom(seed);
    const page = new Uint32Array(PAGE_WORDS);
    const bits = new Array<boolean>(PAGE_OFFSETS).fill(false);
    const runs = new Uint16Array(PAGE_OFFSETS);
    for (let step = 0; step < 40; step++) {
      const from = random.pick([0, 31, 32, 32_700, random.below(PAGE_OFFSETS)]);
      const to = Math.min(PAGE_OFFSETS, from + random.pick([0, 1, 31, 32, 33, 64, 40_000]));
      const before = bits.slice(from, to).filter(Boolean).length;
      equal(countRun(page, from, to), before, `seed ${seed} step ${step}`);
      const fills = random.chance(0.7);
      if (fills) equal(fillRun(page, from, to), to - from - before);
      else clearRun(page, from, to);
      bits.fill(fills, from, to);
      const expected = plainRuns(bits);
      const count = findRuns(page, runs);
      deepEqual([...runs.subarray(0, 2 * count)], expected, `seed ${seed} step ${step}`);
      const clear = bits.indexOf(false, from);
      equal(firstClear(page, from), clear < 0 ? PAGE_OFFSETS : clear, `seed ${seed} step ${step}`);
    }
  }
});

Deno.test("findRuns() says when the runs do not fit, and takes as many as do", () => {
  const page = new Uint32Array(PAGE_WORDS);
  for (const bit of [0, 5, 31, 40]) fillRun(page, bit, bit + 1);
  equal(findRuns(page, new Uint16Array(6)), -1);
  const exact = new Uint16Array(8);
  equal(findRuns(page, exact), 4);
  deepEqual([...exact], [0, 0, 5, 5, 31, 31, 40, 40]);
  equal(findRuns(new Uint32Array(PAGE_WORDS), exact), 0);
});
