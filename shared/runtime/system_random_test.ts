import { equal, ok } from "node:assert/strict";
import { randomBelow } from "./random.ts";
import { SystemRandom } from "./system_random.ts";

Deno.test("SystemRandom.u32() gives fresh 32-bit integers beyond its first block", () => {
  const random = new SystemRandom();
  const values = new Set<number>();
  for (let draw = 0; draw < 1000; draw++) {
    const value = random.u32();
    ok(Number.isInteger(value) && value >= 0 && value < 2 ** 32);
    values.add(value);
  }
  // A repeated or emptied block would leave a few hundred at most.
  ok(values.size > 990, `${values.size} different values`);
});

Deno.test("SystemRandom differs between instances", () => {
  const [one, two] = [new SystemRandom(), new SystemRandom()];
  const draw = (random: SystemRandom) => Array.from({ length: 4 }, () => random.u32()).join();
  equal(draw(one) === draw(two), false);
  ok(randomBelow(one, 3) < 3);
});
