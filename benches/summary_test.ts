import { deepStrictEqual as equal } from "node:assert/strict";
import { median, ratioOf, showFigure, showRatio } from "./summary.ts";

Deno.test("median() is a value that was measured", () => {
  equal(median([3, 1, 2]), 2);
  equal(median([4, 1, 2, 3]), 2);
  equal(median([]), NaN);
});

Deno.test("ratioOf() compares within a round, so that a slow round of both is none of either", () => {
  equal(ratioOf([10, 100, 30], [5, 50, 10]), { median: 2, lowest: 2, highest: 3 });
  equal(showRatio(ratioOf([30], [2])), "15x (15-15)");
  equal(showRatio(ratioOf([], [])), "-");
});

Deno.test("showFigure() keeps what can be told from noise", () => {
  equal([0.0123, 3.21, 99.9, 100, 9999, 10_000, 99_999, 100_000, 1_234_567].map(showFigure), [
    "0.012",
    "3.2",
    "100",
    "100",
    "9999",

    "10.0k",
    "100.0k",
    "100k",
    "1.23M",
  ]);
});
