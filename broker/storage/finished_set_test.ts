import { deepEqual, equal, ok } from "node:assert/strict";
import { SeededRandom } from "@sluice/shared/testing";
import { countUnfinished, FinishedSet } from "./finished_set.ts";

const PAGE_OFFSETS = 32_768;
const PAGE_BYTES = 4096;

/** What a {@linkcode FinishedSet} is to be, in the plainest way. */
class PlainSet {
  readonly offsets = new Set<number>();
  floor: number;

  constructor(floor: number) {
    this.floor = floor;
  }

  add(offset: number): boolean {
    if (offset < this.floor || this.offsets.has(offset)) return false;
    this.offsets.add(offset);
    this.#advance();
    return true;
  }

  raise(floor: number): void {
    for (const offset of this.offsets) if (offset < floor) this.offsets.delete(offset);
    this.floor = Math.max(this.floor, floor);
    this.#advance();
  }

  count(from: number, to: number): number {
    let count = Math.max(0, Math.min(to, this.floor) - from);
    for (const offset of this.offsets) if (offset >= from && offset < to) count++;
    return count;
  }

  firstMissing(from: number, to: number): number {
    for (let offset = Math.max(from, this.floor); offset < to; offset++) {
      if (!this.offsets.has(offset)) return offset;
    }
    return Math.max(from, to);
  }

  ranges(): number[] {
    const pairs: number[] = [];
    for (const offset of [...this.offsets].sort((a, b) => a - b)) {
      if (pairs.at(-1) === offset) pairs[pairs.length - 1] = offset + 1;
      else pairs.push(offset, offset + 1);
    }
    return pairs;
  }

  #advance(): void {
    while (this.offsets.delete(this.floor)) this.floor++;
  }
}

Deno.test("FinishedSet equals a plain set over any order of adds, ranges and raises", () => {
  for (let seed = 0; seed < 40; seed++) {
    const random = new SeededRandom(seed);
    const start = random.pick([0, 1, 32_760, 65_536, 2 ** 32 - 50, 2 ** 47]);
    const spread = random.pick([40, 400, 3 * PAGE_OFFSETS]);
    const set = new FinishedSet(start);
    const plain = new PlainSet(start);
    for (let step = 0; step < 300; step++) {
      const offset = Math.max(0, plain.floor - 5) + random.below(spread);
      const what = random.below(20);
      if (what === 0) {
        set.raise(offset);
        plain.raise(offset);
      } else if (what < 3) {
        const to = offset + random.below(100);
        set.addRange(offset, to);
        if (offset <= plain.floor) plain.raise(to);
        else for (let each = offset; each < to; each++) plain.add(each);
      } else if (what < 6) {
        equal(set.add(plain.floor), plain.add(plain.floor));
      } else {
        equal(set.add(offset), plain.add(offset), `seed ${seed} step ${step}`);
      }
      equal(set.floor, plain.floor, `seed ${seed} step ${step}`);
      equal(set.above, plain.offsets.size, `seed ${seed} step ${step}`);
      const probe = Math.max(0, plain.floor - 2) + random.below(spread);
      equal(set.has(probe), probe < plain.floor || plain.offsets.has(probe));
      const probeTo = probe + random.below(200) - 10;
      equal(set.firstMissing(probe, probeTo), plain.firstMissing(probe, probeTo), `seed ${seed}`);
      if (step % 20 !== 0) continue;
      const from = start + random.below(spread);
      const to = from + random.below(2 * spread);
      equal(set.count(from, to), plain.count(from, to), `seed ${seed} step ${step}`);
      deepEqual(set.ranges(), plain.ranges());
      ok(set.pagesBytes <= PAGE_BYTES * (pagesOf(plain) + 1), `seed ${seed} step ${step}`);
    }
  }
});

function pagesOf(plain: PlainSet): number {
  return new Set([...plain.offsets].map((offset) => Math.floor(offset / PAGE_OFFSETS))).size;
}

Deno.test("FinishedSet.add() is false for what is finished, below the floor and above it", () => {
  const set = new FinishedSet(10);
  deepEqual([set.add(9), set.add(10), set.add(10)], [false, true, false]);
  deepEqual([set.add(15), set.add(15)], [true, false]);
  deepEqual([set.floor, set.above], [11, 1]);
});

Deno.test("FinishedSet moves its floor over a whole page at once", () => {
  const set = new FinishedSet(0);
  for (let offset = 3 * PAGE_OFFSETS; offset > 0; offset--) set.add(offset);
  deepEqual([set.floor, set.above], [0, 3 * PAGE_OFFSETS]);
  set.add(0);
  deepEqual([set.floor, set.above], [3 * PAGE_OFFSETS + 1, 0]);
  deepEqual(set.ranges(), []);
});

Deno.test("FinishedSet.ranges() joins ranges across pages and splits at what is missing", () => {
  const set = new FinishedSet(5);
  set.addRange(PAGE_OFFSETS - 2, PAGE_OFFSETS + 3);
  set.add(31);
  set.add(PAGE_OFFSETS + 4);
  deepEqual(set.ranges(), [
    31,
    32,
    PAGE_OFFSETS - 2,
    PAGE_OFFSETS + 3,
    PAGE_OFFSETS + 4,
    PAGE_OFFSETS + 5,
  ]);
});

Deno.test("FinishedSet.count() counts what is finished in part of a page, below and above the floor", () => {
  const set = new FinishedSet(100);
  set.addRange(200, 300);
  deepEqual([set.count(0, 50), set.count(50, 150), set.count(100, 200)], [50, 50, 0]);
  deepEqual([set.count(250, 1000), set.count(0, 1000), set.count(400, 300)], [50, 200, 0]);
});

Deno.test("FinishedSet.raise() keeps what is finished above the new floor and goes on over it", () => {
  const set = new FinishedSet(0);
  set.addRange(40, 50);
  set.add(60);
  set.raise(45);
  deepEqual([set.floor, set.above, set.ranges()], [50, 1, [60, 61]]);
  set.raise(20);
  equal(set.floor, 50);
  set.raise(2 ** 40);
  deepEqual([set.floor, set.above, set.pagesBytes], [2 ** 40, 0, 0]);
});

Deno.test("FinishedSet frees the pages its floor has passed while one message far above is finished", () => {
  const set = new FinishedSet(0);
  set.add(60 * PAGE_OFFSETS);
  for (let offset = 0; offset < 50 * PAGE_OFFSETS; offset += 4) {
    // Two in order, two out of order; the last of each page in order.
    set.add(offset + 1);
    set.add(offset);
    set.add(offset + 2);
    set.add(offset + 3);
  }
  deepEqual([set.floor, set.above], [50 * PAGE_OFFSETS, 1]);
  ok(set.pagesBytes <= 2 * PAGE_BYTES, `${set.pagesBytes} bytes are held`);
});

Deno.test("countUnfinished() counts what one of the sets does not have, over pages and floors", () => {
  for (let seed = 0; seed < 60; seed++) {
    const random = new SeededRandom(seed);
    const span = random.pick([100, PAGE_OFFSETS - 3, 2 * PAGE_OFFSETS + 50]);
    const sets = Array.from({ length: random.below(4) }, () => {
      const set = new FinishedSet(random.below(span));
      for (let count = random.below(300); count > 0; count--) set.add(random.below(span));
      if (random.chance(0.5)) {
        const from = random.below(span);
        set.addRange(from, from + random.below(span));
      }
      return set;
    });
    for (let round = 0; round < 5; round++) {
      const from = random.below(span);
      const to = from + random.below(span);
      let expected = 0;
      for (let offset = from; offset < to; offset++) {
        if (sets.some((set) => !set.has(offset))) expected++;
      }
      equal(countUnfinished(sets, from, to), expected, `seed ${seed}: [${from}, ${to})`);
    }
  }
});
