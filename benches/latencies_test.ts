import { deepEqual, equal, ok } from "node:assert/strict";
import { Latencies } from "./latencies.ts";

Deno.test("Latencies tells quantiles to 5 %, also of several added up", () => {
  const [one, other, sum] = [new Latencies(), new Latencies(), new Latencies()];
  for (let ms = 1; ms <= 1000; ms++) (ms % 2 === 0 ? one : other).observe(ms);
  for (const part of [one, other]) sum.add(JSON.parse(JSON.stringify(part)));
  equal(sum.count, 1000);
  for (const share of [0.5, 0.99, 0.999]) {
    const [seen, real] = [sum.quantileMs(share), 1000 * share];
    ok(seen >= real && seen <= real * 1.05, `${share}: ${seen}`);
  }
  deepEqual([sum.maxMs, sum.quantileMs(1)], [1000, 1000]);
});

Deno.test("Latencies of nothing are 0, and the smallest are counted", () => {
  const latencies = new Latencies();
  equal(latencies.quantileMs(0.99), 0);
  latencies.observe(0);
  latencies.observe(0.001);
  deepEqual([latencies.count, latencies.quantileMs(0.5)], [2, 0.001]);
});
