/**
 * The promises of the broker over seeded crashes: a fixed set of seeds, the same in every run, and one
 * fresh seed, which is printed. `deno task crash` runs more.
 */
import { ok } from "node:assert/strict";
import { runSeed, SeedFailure } from "./harness.ts";

const SEEDS = 3000;
const SEEDS_PER_TEST = 200;

/** Runs seeds, and on a failure says all there is to know. */
async function runAll(first: number, count: number): Promise<number> {
  let crashes = 0;
  for (let seed = first; seed < first + count; seed++) {
    try {
      crashes += (await runSeed(seed)).crashes;
    } catch (error) {
      if (!(error instanceof SeedFailure)) throw error;
      console.error(error.describe());
      throw error;
    }
  }
  return crashes;
}

for (let first = 1; first <= SEEDS; first += SEEDS_PER_TEST) {
  const last = first + SEEDS_PER_TEST - 1;
  Deno.test(`a broker keeps its promises over crashes: seeds ${first} to ${last}`, async () => {
    ok(await runAll(first, SEEDS_PER_TEST) > SEEDS_PER_TEST, "there were crashes");
  });
}

Deno.test("a broker keeps its promises over crashes: a fresh seed", async () => {
  const [seed = 0] = crypto.getRandomValues(new Uint32Array(1));
  console.log(`fresh seed: ${seed}`);
  await runAll(seed, 1);
});

Deno.test("runSeed() does the same for the same seed", async () => {
  for (const seed of [3, 14, 159]) {
    const report = await runSeed(seed);
    const again = await runSeed(seed);
    ok(JSON.stringify(report) === JSON.stringify(again), `seed ${seed} differs`);
  }
});
