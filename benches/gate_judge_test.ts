import { deepStrictEqual as equal } from "node:assert/strict";
import { judge } from "./gate_judge.ts";

Deno.test("judge() lets throughput fall and latency rise a little, and no further", () => {
  const baseline = { pub: 1000, p99: 10 };
  const verdict = (pub: number, p99: number) =>
    judge([
      { name: "pub", unit: "messages/s", value: pub },
      { name: "p99", unit: "ms", value: p99 },
      { name: "new", unit: "ms", value: 1 },
    ], baseline).map(({ isGood }) => isGood);
  equal(verdict(850, 12), [true, true, true]);
  equal(verdict(849, 10), [false, true, true]);
  equal(verdict(5000, 12.1), [true, false, true]);
});
