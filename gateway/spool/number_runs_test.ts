import { deepEqual, equal } from "node:assert/strict";
import { SeededRandom } from "@sluice/shared/testing";
import { NumberRuns } from "./number_runs.ts";

Deno.test("NumberRuns is a set, kept in as few runs as possible", () => {
  for (let seed = 0; seed < 200; seed++) {
    const random = new SeededRandom(seed);
    const runs = new NumberRuns();
    const model = new Set<number>();
    const range = random.between(10, 60);
    for (let step = 0; step < 60; step++) {
      if (random.chance(0.1)) {
        const below = random.below(range);
        runs.trim(below);
        for (const number of model) if (number < below) model.delete(number);
      } else {
        const start = random.below(range);
        const end = start + random.below(6);
        runs.add(start, end);
        for (let number = start; number < end; number++) model.add(number);
      }
      const label = `seed ${seed}, step ${step}`;
      const numbers = [...model].sort((a, b) => a - b);
      deepEqual([...runs].flatMap(([start, end]) => numbersOf(start, end)), numbers, label);
      equal(runs.count, numbers.length, label);
      const starts = numbers.filter((number) => !model.has(number - 1));
      equal(runs.runCount, starts.length, label);
      const probe = random.below(range);
      equal(runs.has(probe), model.has(probe), label);
      let missing = probe;
      while (model.has(missing)) missing++;
      equal(runs.nextMissing(probe), missing, label);
      const length = random.below(5);
      const any = numbersOf(probe, probe + length).some((number) => model.has(number));
      equal(runs.hasAny(probe, probe + length), any, label);
    }
    runs.clear();
    deepEqual([runs.count, runs.runCount], [0, 0]);
  }
});

function numbersOf(start: number, end: number): number[] {
  return Array.from({ length: end - start }, (_, index) => start + index);
}
