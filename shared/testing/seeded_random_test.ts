import { deepEqual, equal, notDeepEqual, ok, throws } from "node:assert/strict";
import { SeededRandom } from "./mod.ts";

function draws(random: SeededRandom, count = 8): number[] {
  return Array.from({ length: count }, () => random.u32());
}

Deno.test("SeededRandom gives the same values for the same seed, number or text", () => {
  for (const seed of [0, 1, 2 ** 32 - 1, "", "a long name"]) {
    deepEqual(draws(new SeededRandom(seed)), draws(new SeededRandom(seed)));
    equal(new SeededRandom(seed).seed, seed);
  }
});

Deno.test("SeededRandom keeps its values from release to release", () => {
  deepEqual(draws(new SeededRandom(1), 3), [2420951833, 2513034076, 3847892949]);
});

Deno.test("SeededRandom gives unrelated values for near seeds", () => {
  const firsts = new Set<number>();
  let ones = 0;
  for (let seed = 0; seed < 2000; seed++) {
    const value = new SeededRandom(seed).u32();
    firsts.add(value);
    ones += value & 1;
  }
  equal(firsts.size, 2000);
  ok(ones > 850 && ones < 1150, `${ones} odd`);
  notDeepEqual(draws(new SeededRandom("a")), draws(new SeededRandom("b")));
});

Deno.test("SeededRandom.u32() spreads over the whole range", () => {
  const random = new SeededRandom(3);
  const buckets = new Array<number>(16).fill(0);
  for (let draw = 0; draw < 16_000; draw++) {
    const value = random.u32();
    ok(Number.isInteger(value) && value >= 0 && value < 2 ** 32);
    buckets[value >>> 28] = (buckets[value >>> 28] ?? 0) + 1;
  }
  for (const count of buckets) ok(count > 850 && count < 1150, buckets.join());
});

Deno.test("below() and between() reach both ends and nothing beyond", () => {
  const random = new SeededRandom(4);
  const values = Array.from({ length: 300 }, () => random.below(3));
  deepEqual([...new Set(values)].sort(), [0, 1, 2]);
  const between = Array.from({ length: 300 }, () => random.between(-1, 1));
  deepEqual([...new Set(between)].sort((a, b) => a - b), [-1, 0, 1]);
});

Deno.test("chance() is never at 0, always at 1, and about half at 0.5", () => {
  const random = new SeededRandom(5);
  let half = 0;
  for (let draw = 0; draw < 1000; draw++) {
    ok(!random.chance(0));
    ok(random.chance(1));
    if (random.chance(0.5)) half++;
  }
  ok(half > 400 && half < 600, String(half));
});

Deno.test("pick() reaches every item and refuses an empty list", () => {
  const random = new SeededRandom(6);
  const picked = new Set(Array.from({ length: 100 }, () => random.pick(["a", "b", "c"])));
  equal(picked.size, 3);
  throws(() => random.pick([]));
});

Deno.test("shuffle() gives every order and leaves its argument alone", () => {
  const random = new SeededRandom(7);
  const items = [1, 2, 3];
  const orders = new Set(Array.from({ length: 200 }, () => random.shuffle(items).join("")));
  equal(orders.size, 6);
  deepEqual(items, [1, 2, 3]);
});

Deno.test("fork() gives a stream that later draws do not change", () => {
  const [one, two] = [new SeededRandom(8), new SeededRandom(8)];
  const [oneFork, twoFork] = [one.fork(), two.fork()];
  draws(one, 5);
  deepEqual(draws(oneFork), draws(twoFork));
  equal(new SeededRandom(9).bytes(5).length, 5);
});
