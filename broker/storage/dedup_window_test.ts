import { deepEqual, equal } from "node:assert/strict";
import { SeededRandom } from "@sluice/shared/testing";
import {
  DEDUP_LIMITS_DEFAULT,
  DedupBudget,
  type DedupLimits,
  DedupWindow,
  FIRST_PRODUCER_BYTES,
} from "./dedup_window.ts";
import type { Origin } from "./records.ts";

function windowOf(limits: Partial<DedupLimits> = {}): { window: DedupWindow; budget: DedupBudget } {
  const budget = new DedupBudget({ ...DEDUP_LIMITS_DEFAULT, ...limits });
  return { window: new DedupWindow(budget), budget };
}

function origin(producer: number, sequence: number): Origin {
  return { producer: new Uint8Array(16).fill(producer), sequence };
}

function add(window: DedupWindow, producer: number, sequence: number, timeMs = 0, end = 0): void {
  window.add(origin(producer, 0).producer, 0, sequence, timeMs, end);
}

function judge(window: DedupWindow, producer: number, sequence: number, nowMs = 0): string {
  return window.judge(origin(producer, sequence), nowMs);
}

Deno.test("judge() tells what was added from what was not, in any order, as a plain set would", () => {
  for (const sequences of [64, 100, 1024, 5000]) {
    const random = new SeededRandom(sequences);
    const { window, budget } = windowOf({ sequences });
    const seen = new Set<number>();
    let highest = 2 ** 40;
    for (let step = 0; step < 20_000; step++) {
      const jump = random.pick([1, 1, 1, 3, sequences - 1, sequences, 3 * sequences]);
      const sequence = random.chance(0.5)
        ? highest + (random.chance(0.95) ? random.between(1, 4) : jump)
        : highest - random.below(sequences + 20);
      const isOld = seen.size > 0 && sequence <= highest - sequences;
      const expected = isOld ? "too_old" : seen.has(sequence) ? "repeat" : "new";
      equal(judge(window, 1, sequence), expected);
      if (random.chance(0.7)) {
        const before = budget.bytes;
        const bytes = window.bytesFor(origin(1, sequence));
        add(window, 1, sequence);
        if (!isOld) equal(budget.bytes, before + bytes);
        if (!isOld) {
          seen.add(sequence);
          highest = seen.size === 1 ? sequence : Math.max(highest, sequence);
        }
      }
    }
  }
});

Deno.test("numbers that were left out are new, from the highest down to the end of the window", () => {
  const { window } = windowOf({ sequences: 100 });
  add(window, 1, 1000);
  add(window, 1, 2);
  equal(judge(window, 1, 2), "too_old");
  equal(judge(window, 1, 900), "too_old");
  equal(judge(window, 1, 901), "new");
  add(window, 1, 901);
  deepEqual([judge(window, 1, 901), judge(window, 1, 902)], ["repeat", "new"]);
});

Deno.test("a producer that is idle for the window's time is forgotten, by the time of messages", () => {
  const { window, budget } = windowOf({ windowMs: 1000 });
  add(window, 1, 7, 5000);
  deepEqual([judge(window, 1, 7, 6000), judge(window, 1, 7, 6001)], ["repeat", "new"]);
  // A clock that was set back forgets nothing.
  equal(judge(window, 1, 7, 10), "repeat");
  add(window, 1, 3, 6001);
  deepEqual([judge(window, 1, 7, 6001), judge(window, 1, 3, 6001)], ["new", "repeat"]);
  add(window, 2, 1, 7000);
  window.forgetIdle(7001);
  equal(budget.producers, 2);
  window.forgetIdle(7002);
  deepEqual([budget.producers, budget.displaced], [1, 0]);
  add(window, 3, 1, 9000);
  deepEqual([window.producerCount, budget.bytes], [1, FIRST_PRODUCER_BYTES]);
  window.close();
  deepEqual([budget.bytes, budget.producers], [0, 0]);
});

Deno.test("with one producer too many the one idle longest goes", () => {
  const { window, budget } = windowOf({ producers: 3 });
  for (const producer of [1, 2, 3]) add(window, producer, 1);
  add(window, 1, 2);
  add(window, 4, 1);
  deepEqual([1, 2, 3, 4].map((producer) => judge(window, producer, 1)), [
    "repeat",
    "new",
    "repeat",
    "repeat",
  ]);
  deepEqual([budget.displaced, budget.bytes], [1, 3 * FIRST_PRODUCER_BYTES]);
});

Deno.test("endOf() is where the newest of a producer ends, whichever came last", () => {
  const { window } = windowOf();
  equal(window.endOf(origin(1, 1)), 0);
  add(window, 1, 5, 0, 300);
  add(window, 1, 4, 0, 400);
  add(window, 2, 4, 0, 900);
  equal(window.endOf(origin(1, 5)), 400);
});

Deno.test("restore() gives what pagesOf() was of, in a smaller window as far as that goes", () => {
  for (const base of [0, 31, 32_768 * 5 - 10, 2 ** 45 + 77]) {
    const random = new SeededRandom(3);
    const { window } = windowOf({ sequences: 70_000 });
    const added: number[] = [];
    for (let at = base; at < base + 70_000; at += random.between(1, 900)) added.push(at);
    for (const sequence of added) add(window, 1, sequence, 50);
    for (const sequences of [70_000, 2000]) {
      const { window: other } = windowOf({ sequences });
      for (const entry of window.entries()) {
        other.restore(entry);
        for (const [number, page] of window.pagesOf(entry)) other.addPage(number, page);
      }
      const highest = added.at(-1)!;
      for (let at = base; at <= highest + 1; at++) {
        const expected = at <= highest - sequences ? "too_old" : judge(window, 1, at);
        equal(judge(other, 1, at), expected, `${at} of ${base}`);
      }
    }
  }
});
