import { deepStrictEqual as equal } from "node:assert/strict";
import { bytesFrom, offsetKeeping } from "./run_bytes.ts";

const RUNS = [
  { firstOffset: 10, endOffset: 20, bytes: 1000 },
  { firstOffset: 25, endOffset: 26, bytes: 7000 },
  { firstOffset: 26, endOffset: 46, bytes: 400 },
];

Deno.test("bytesFrom() counts whole runs and a part of the one the offset is in", () => {
  equal(bytesFrom([], 5), 0);
  equal(bytesFrom(RUNS, 0), 8400);
  equal(bytesFrom(RUNS, 15), 7900);
  equal(bytesFrom(RUNS, 22), 7400);
  equal(bytesFrom(RUNS, 25), 7400);
  equal(bytesFrom(RUNS, 26), 400);
  equal(bytesFrom(RUNS, 45), 20);
  equal(bytesFrom(RUNS, 46), 0);
});

Deno.test("offsetKeeping() gives up no more than it has to, and never less", () => {
  equal(offsetKeeping([], 100), 0);
  equal(offsetKeeping(RUNS, 8400), 10);
  equal(offsetKeeping(RUNS, 8399), 11);
  equal(offsetKeeping(RUNS, 7400), 20);
  equal(offsetKeeping(RUNS, 7399), 26);
  equal(offsetKeeping(RUNS, 399), 27);
  equal(offsetKeeping(RUNS, 0), 46);
  for (let bytes = 0; bytes <= 8400; bytes += 7) {
    const offset = offsetKeeping(RUNS, bytes);
    equal(bytesFrom(RUNS, offset) <= bytes, true, `${bytes} bytes from ${offset}`);
  }
});
