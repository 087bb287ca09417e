import { deepEqual, equal } from "node:assert/strict";
import { SimClock } from "../testing/mod.ts";
import { LAG_INTERVAL_MS, LoopLag } from "./loop_lag.ts";

/** A clock whose time a test moves without the timers hearing of it: work that does not let go. */
class BusyClock extends SimClock {
  busyMs = 0;

  override monoMs(): number {
    return super.monoMs() + this.busyMs;
  }
}

/** Observations at or below each bound, where there are some more. */
function counts(lag: LoopLag): [number, number][] {
  let before = 0;
  const found: [number, number][] = [];
  for (const [bound, count] of lag.histogram.cumulative()) {
    if (count > before) found.push([bound, count - before]);
    before = count;
  }
  return found;
}

Deno.test("LoopLag counts timers that are in time as such", async () => {
  const clock = new BusyClock();
  const lag = new LoopLag(clock);
  lag.start();
  await clock.run(10 * LAG_INTERVAL_MS);
  lag.stop();
  deepEqual([counts(lag), lag.maxMs, clock.pendingTimers], [[[0.001, 10]], 0, 0]);
});

Deno.test("LoopLag counts a stall by how long it was, and the timers that it hid", async () => {
  const clock = new BusyClock();
  const lag = new LoopLag(clock);
  lag.start();
  clock.busyMs = 24;
  await clock.run(LAG_INTERVAL_MS);
  // 24 ms late, and two that would have been 14 and 4 ms late.
  deepEqual([counts(lag), lag.maxMs], [[[0.005, 1], [0.015, 1], [0.03, 1]], 24]);
  await clock.run(LAG_INTERVAL_MS);
  equal(lag.histogram.count, 4);
  lag.stop();
});

Deno.test("LoopLag bounds what it counts of a stop of hours, and takes a clock that stands still", async () => {
  const clock = new BusyClock();
  const lag = new LoopLag(clock);
  lag.start();
  clock.busyMs = 3_600_000;
  await clock.run(LAG_INTERVAL_MS);
  equal(lag.histogram.count, 1001);
  clock.busyMs -= 1000;
  await clock.run(LAG_INTERVAL_MS);
  deepEqual([lag.histogram.count, lag.maxMs], [1002, 3_600_000]);
  lag.stop();
});
