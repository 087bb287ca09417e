import assert from "node:assert/strict";
import type { Clock } from "./clock.ts";
import { Slices, sortInSlices } from "./slices.ts";

/** A clock that goes on only when told to. */
class HandClock implements Clock {
  nowMs = 0;
  sleeps = 0;

  wallMs(): number {
    return 0;
  }

  monoMs(): number {
    return this.nowMs;
  }

  sleep(): Promise<void> {
    this.sleeps++;
    return Promise.resolve();
  }

  setTimer(): never {
    throw new Error("Nobody asks for a timer");
  }
}

/** How many questions it takes until the slice is over; 1000 when it is not. */
function stepsUntilOver(slices: Slices): number {
  let steps = 1;
  while (!slices.isOver && steps < 1000) steps++;
  return steps;
}

Deno.test("Slices is over within some steps of the end of its time, and begins anew after a pause", async () => {
  const clock = new HandClock();
  const slices = new Slices(clock, 3);
  assert.equal(stepsUntilOver(slices), 1000);
  clock.nowMs = 3;
  assert.ok(stepsUntilOver(slices) <= 16);
  await slices.pause();
  assert.equal(clock.sleeps, 1);
  assert.equal(stepsUntilOver(slices), 1000);
  await slices.rest();
  assert.equal(clock.sleeps, 1);
  clock.nowMs = 6;
  await slices.rest();
  assert.equal(clock.sleeps, 2);
});

Deno.test("Slices without a clock never waits", async () => {
  const slices = new Slices(null);
  assert.equal(stepsUntilOver(slices), 1000);
  await slices.rest();
});

Deno.test("sortInSlices() sorts as Array.sort does, whatever the number, and leaves its input", async () => {
  for (const count of [0, 1, 511, 512, 513, 1024, 1537, 5000]) {
    const items = Array.from({ length: count }, (_, index) => ({ key: index * 7919 % 101, index }));
    const before = [...items];
    const compare = (a: { key: number }, b: { key: number }) => a.key - b.key;
    const sorted = await sortInSlices(items, compare, new Slices(new HandClock()));
    assert.deepEqual(sorted, [...items].sort(compare), `${count} items`);
    assert.deepEqual(items, before);
  }
});
