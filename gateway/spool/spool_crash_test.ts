import { ok } from "node:assert/strict";
import { runCrashes } from "./crash_workload_test.ts";

/** Kept small: thousands are for a run by hand. */
const SEEDS = 200;

Deno.test("Spool keeps its promises through crashes at any instant", async () => {
  let cuts = 0;
  let found = 0;
  for (let seed = 0; seed < SEEDS; seed++) {
    try {
      const result = await runCrashes(seed);
      cuts += result.cuts;
      found += result.found;
    } catch (error) {
      throw new Error(`seed ${seed}`, { cause: error });
    }
  }
  ok(cuts > SEEDS && found > 10 * SEEDS, "the lives end early, and something is found");
});
