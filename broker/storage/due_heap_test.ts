import { deepEqual, equal, ok, throws } from "node:assert/strict";
import { SeededRandom } from "@sluice/shared/testing";
import { InvariantError } from "@sluice/shared/runtime";
import { DueHeap } from "./due_heap.ts";

type Entry = readonly [dueMs: number, offset: number];

function popAll(heap: DueHeap): Entry[] {
  const popped: Entry[] = [];
  while (heap.size > 0) {
    const dueMs = heap.earliestMs;
    heap.pop();
    popped.push([dueMs, heap.poppedOffset]);
  }
  return popped;
}

/** By due time; entries of the same time by offset, since a heap may give them in any order. */
function sorted(entries: readonly Entry[]): Entry[] {
  return [...entries].sort((a, b) => a[0] - b[0] || a[1] - b[1]);
}

Deno.test("DueHeap.pop() of an empty heap is a mistake of the caller", () => {
  const heap = new DueHeap();
  equal(heap.earliestMs, Infinity);
  throws(() => heap.pop(), InvariantError);
});

Deno.test("DueHeap.first() tells what would be popped first, of what passes, and changes nothing", () => {
  for (let seed = 0; seed < 40; seed++) {
    const random = new SeededRandom(seed);
    const heap = new DueHeap();
    const plain: Entry[] = [];
    for (let count = random.below(300); count > 0; count--) {
      const entry: Entry = [random.below(2 ** 32), plain.length];
      heap.push(...entry);
      plain.push(entry);
    }
    const isOdd = (offset: number) => offset % 2 === 1;
    const wanted = sorted(plain).filter(([, offset]) => isOdd(offset));
    const told = heap.first(20, isOdd, Infinity).map(({ dueMs, offset }) => [dueMs, offset]);
    deepEqual(told, wanted.slice(0, 20), `seed ${seed}`);
    equal(heap.first(Infinity, isOdd, 10).length <= 10, true);
    deepEqual(sorted(popAll(heap)), sorted(plain));
  }
});

Deno.test("DueHeap gives entries as a sorted array does, between pushes, clears and retains", () => {
  for (let seed = 0; seed < 60; seed++) {
    const random = new SeededRandom(seed);
    const heap = new DueHeap();
    let plain: Entry[] = [];
    const times = random.pick([3, 1000, 2 ** 32]);
    for (let step = 0; step < 400; step++) {
      const what = random.below(100);
      if (what < 60) {
        const entry: Entry = [
          1_700_000_000_000 + random.below(times),
          random.below(2 ** 16) * 2 ** 32 + random.u32(),
        ];
        heap.push(...entry);
        plain.push(entry);
      } else if (what < 97 && plain.length > 0) {
        const dueMs = heap.earliestMs;
        equal(dueMs, Math.min(...plain.map(([due]) => due)));
        heap.pop();
        const at = plain.findIndex(([due, offset]) =>
          due === dueMs && offset === heap.poppedOffset
        );
        equal(at >= 0, true, `seed ${seed} step ${step}`);
        plain.splice(at, 1);
      } else if (what === 98) {
        heap.retain((offset) => offset % 3 !== 0);
        plain = plain.filter(([, offset]) => offset % 3 !== 0);
      } else if (what === 99 && random.chance(0.2)) {
        heap.clear();
        plain = [];
      }
      equal(heap.size, plain.length);
    }
    equal(
      heap.countWhere((offset) => offset % 2 === 0),
      plain.filter(([, offset]) => offset % 2 === 0).length,
    );
    const popped = popAll(heap);
    deepEqual(sorted(popped), sorted(plain));
    deepEqual(popped.map(([due]) => due), sorted(plain).map(([due]) => due));
  }
});

Deno.test("DueHeap holds 16 bytes an entry however it grew, and gives the memory back", () => {
  const count = 200_000;
  const random = new SeededRandom(7);
  const heap = new DueHeap();
  for (let offset = 0; offset < count; offset++) heap.push(random.u32(), offset);
  ok(heap.heldBytes < count * 16 + 300_000, `${heap.heldBytes}`);
  heap.retain((offset) => offset % 2 === 0);
  equal(heap.size, count / 2);
  ok(heap.heldBytes < count * 8 + 300_000, `${heap.heldBytes}`);
  let before = 0;
  const seen = new Set<number>();
  while (heap.size > 0) {
    ok(heap.earliestMs >= before);
    before = heap.earliestMs;
    heap.pop();
    seen.add(heap.poppedOffset);
    if (heap.size === 10) ok(heap.heldBytes < 600_000, `${heap.heldBytes}`);
  }
  equal(seen.size, count / 2);
  for (let offset = 0; offset < 50_000; offset++) heap.push(offset, offset);
  heap.clear();
  ok(heap.heldBytes < 300_000, `${heap.heldBytes}`);
});
