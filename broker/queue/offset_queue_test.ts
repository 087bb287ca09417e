import { deepStrictEqual as equal, throws } from "node:assert/strict";
import fc from "fast-check";
import { InvariantError } from "@sluice/shared/runtime/invariant";
import { OffsetQueue } from "./offset_queue.ts";

Deno.test("OffsetQueue gives back what was pushed, first in first out", () => {
  fc.assert(fc.property(fc.array(fc.option(fc.nat()), { maxLength: 300 }), (steps) => {
    const queue = new OffsetQueue();
    const model: number[] = [];
    for (const step of steps) {
      if (step !== null) {
        queue.push(step * 2 ** 20, step % 1000);
        model.push(step);
      } else if (model.length > 0) {
        const expected = model.shift()!;
        equal([queue.offset, queue.attempts], [expected * 2 ** 20, expected % 1000]);
        queue.shift();
      }
      equal(queue.size, model.length);
    }
  }));
});

Deno.test("OffsetQueue grows with its head anywhere, and is empty after clear()", () => {
  const queue = new OffsetQueue();
  for (let offset = 0; offset < 10; offset++) queue.push(offset, 1);
  for (let offset = 0; offset < 10; offset++) queue.shift();
  for (let offset = 0; offset < 100; offset++) queue.push(offset, offset);
  for (let offset = 0; offset < 50; offset++) {
    equal(queue.offset, offset);
    queue.shift();
  }
  queue.clear();
  equal(queue.size, 0);
  queue.push(7, 8);
  equal([queue.offset, queue.attempts, queue.size], [7, 8, 1]);
});

Deno.test("OffsetQueue.offset of an empty queue is a mistake of ours", () => {
  throws(() => new OffsetQueue().offset, InvariantError);
});
