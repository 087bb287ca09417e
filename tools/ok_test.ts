import assert from "node:assert/strict";
import { summarize } from "./ok.ts";

Deno.test("summarize() lists each step with its time and ends with the count", () => {
  const lines = summarize([
    { name: "fmt", outcome: { passed: 1, failed: 0, note: "", output: "" }, durationMs: 412 },
    {
      name: "docs",
      outcome: { passed: 0, failed: 1, note: "3 pages", output: "x" },
      durationMs: 8,
    },
    { name: "test", outcome: { passed: 40, failed: 2, note: "a", output: "" }, durationMs: 61_500 },
  ]);
  assert.deepEqual(lines, [
    "  fmt   ok        0.4 s",
    "  docs  FAILED    0.0 s  3 pages",
    "  test  FAILED   61.5 s  a",
    "        total    61.9 s",
    "",
    "41 passed, 3 failed",
  ]);
});

Deno.test("summarize() of nothing counts nothing", () => {
  assert.equal(summarize([]).at(-1), "0 passed, 0 failed");
});
