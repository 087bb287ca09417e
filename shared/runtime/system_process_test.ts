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

Deno.test("processFigures() tells open files, and how many there may be where that can be known", async () => {
  const before = processFigures();
  const files = await Promise.all(
    Array.from({ length: 40 }, () => Deno.open(new URL(import.meta.url))),
  );
  const open = processFigures().openFiles ?? 0;
  for (const file of files) file.close();
  ok(open >= (before.openFiles ?? 0) + 20, `${before.openFiles} before, ${open} with 40 more`);
  // Tests may read everything.
  ok((before.openFilesMax ?? 0) > open);
  ok((before.uptimeSeconds ?? 0) > 0);
});
