import { ok } from "node:assert/strict";
import { processFigures } from "./system_process.ts";

Deno.test("processFigures() tells memory in use, a start in the past and time that is spent", () => {
  const before = processFigures();
  ok(before.heapUsedBytes > 0 && before.heapUsedBytes <= before.heapBytes);
  ok(before.residentBytes > before.heapUsedBytes);
  ok(before.externalBytes >= 0);
  const age = Date.now() / 1000 - before.startSeconds;
  ok(age >= 0 && age < 3600, `${age} s`);
  const end = performance.now() + 30;
  while (performance.now() < end) Math.sqrt(end);
  ok(processFigures().cpuSeconds > before.cpuSeconds);
});
