import { equal, ok } from "node:assert/strict";
import { LaggingPace } from "./lagging_pace.ts";

/** Takes slices of `sliceMs` whenever it may for a second of publishing; returns the time they took. */
function taken(sharePercent: number, sliceMs: number): number {
  const pace = new LaggingPace(() => 0, sharePercent);
  let nowMs = 0;
  let tookMs = 0;
  while (nowMs < 1000) {
    nowMs += pace.restMs(nowMs);
    pace.ran(nowMs, nowMs + sliceMs);
    nowMs += sliceMs;
    tookMs += sliceMs;
  }
  return tookMs;
}

Deno.test("slices and what they entail take the share of the time, however long they are", () => {
  for (const sharePercent of [5, 20, 50]) {
    for (const sliceMs of [0.01, 0.05, 0.4]) {
      const wantedMs = 1000 * sharePercent / 100 / 2;
      const tookMs = taken(sharePercent, sliceMs);
      ok(Math.abs(tookMs - wantedMs) < wantedMs * 0.05, `${sharePercent} ${sliceMs}: ${tookMs}`);
    }
  }
});

Deno.test("ran() asks for no longer rest than 20 ms, whatever a slice took", () => {
  const pace = new LaggingPace(() => 0, 1);
  pace.ran(100, 5000);
  equal(pace.restMs(5000), 20);
  pace.ran(5020, 5021);
  equal(pace.restMs(5021), 20);
});

Deno.test("time that was not used is not saved up for more than a millisecond", () => {
  const pace = new LaggingPace(() => 0, 20);
  pace.ran(0, 0.1);
  // A second later a millisecond's worth of slices is free, and no more.
  pace.ran(1000, 1000.1);
  equal(pace.restMs(1000.1), 0);
  pace.ran(1000.1, 1000.2);
  ok(pace.restMs(1000.2) > 0.5);
});

Deno.test("isFree() is so until somebody publishes, and again 10 ms after the last publish was seen", () => {
  let published = 7;
  const pace = new LaggingPace(() => published, 20);
  equal(pace.isFree(0), true);
  published++;
  equal(pace.isFree(5), false);
  equal(pace.isFree(14), false);
  equal(pace.isFree(15), true);
  published++;
  equal(new LaggingPace(() => published++, 100).isFree(15), true);
  equal(pace.isFree(16), false);
});

Deno.test("heldMs() is the time during which some channel waited, the present one included", () => {
  const pace = new LaggingPace(() => 0, 20);
  pace.held(true, 10);
  pace.held(true, 15);
  equal(pace.heldMs(18), 8);
  pace.held(false, 20);
  pace.held(false, 30);
  equal(pace.heldMs(40), 10);
});
