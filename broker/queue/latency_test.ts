import { deepStrictEqual as equal, ok } from "node:assert/strict";
import fc from "fast-check";
import { SimClock } from "@sluice/shared/testing";
import { LatencyCounts, LatencyWindow } from "./latency.ts";

const NS = 1e6;

function counted(...latencies: readonly number[]): LatencyCounts {
  const counts = new LatencyCounts();
  for (const latencyMs of latencies) counts.add(latencyMs);
  return counts;
}

function read(window: LatencyWindow): number {
  const counts = new LatencyCounts();
  window.addTo(counts);
  return counts.count;
}

Deno.test("LatencyCounts.quantileMs() is exact below 64 ms and off by 1.6 % at most above", () => {
  const latency = fc.oneof(fc.nat(200), fc.nat(100_000), fc.nat(2 ** 31 - 1));
  const quantile = fc.double({ min: 0.001, max: 1, noNaN: true });
  fc.assert(
    fc.property(fc.array(latency, { minLength: 1, maxLength: 50 }), quantile, (all, share) => {
      const sorted = all.toSorted((a, b) => a - b);
      const exact = sorted[Math.max(1, Math.ceil(share * all.length)) - 1] ?? NaN;
      const found = counted(...all).quantileMs(share);
      ok(Math.abs(found - exact) <= (exact < 64 ? 0 : exact / 64), `${found} for ${exact}`);
    }),
  );
});

Deno.test("LatencyCounts.quantileMs() is 0 of nothing, and bounds what is out of all bounds", () => {
  equal(counted().quantileMs(0.99), 0);
  equal(counted(-5).quantileMs(1), 0);
  ok(Math.abs(counted(2 ** 40).quantileMs(1) / 2 ** 31 - 1) < 1 / 64);
});

Deno.test("LatencyCounts.merge() counts as if all had been counted in one place", () => {
  const latencies = fc.array(fc.nat(1_000_000), { maxLength: 30 });
  fc.assert(
    fc.property(latencies, latencies, (some, others) => {
      const merged = counted(...some);
      merged.merge(counted(...others));
      equal(
        merged.summary([0.5, 0.9, 1]),
        counted(...some, ...others).summary([0.5, 0.9, 1]),
      );
    }),
  );
});

Deno.test("LatencyCounts.summary() tells whole nanoseconds in the order it was asked", () => {
  equal(counted(40, 41, 90).summary([0.99, 0.5]), {
    count: 3,
    percentiles: [{ quantile: 0.99, value: 90.5 * NS }, { quantile: 0.5, value: 41 * NS }],
  });
  equal(counted().summary([0.5]), { count: 0, percentiles: [{ quantile: 0.5, value: 0 }] });
});

Deno.test("LatencyWindow forgets what is older than its time, half of it at a time", async () => {
  const clock = new SimClock();
  const window = new LatencyWindow(clock, 1000);
  const finished = () => window.finished(clock.wallMs() - 7);
  finished();
  await clock.run(499);
  finished();
  equal(read(window), 2);
  await clock.run(1);
  finished();
  equal(read(window), 3, "half of the time: the first half is still told");
  await clock.run(500);
  equal(read(window), 1);
  await clock.run(500);
  equal(read(window), 0);
  finished();
  await clock.run(1000);
  equal(read(window), 0, "nobody looked for all of its time");
});

Deno.test("LatencyWindow takes a message from the future as one of no latency", () => {
  const clock = new SimClock();
  const window = new LatencyWindow(clock, 1000);
  window.finished(clock.wallMs() + 5000);
  const counts = new LatencyCounts();
  window.addTo(counts);
  equal(counts.summary([1]), { count: 1, percentiles: [{ quantile: 1, value: 0 }] });
});
