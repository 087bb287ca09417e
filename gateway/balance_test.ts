/** Which broker a publish goes to. */
import { deepStrictEqual as equal, ok } from "node:assert/strict";
import { SeededRandom } from "@sluice/shared/testing";
import { type Candidate, chooseBroker } from "./balance.ts";

function candidate(id: string, outstandingBytes = 0, topics: readonly string[] = []): Candidate {
  return { id, outstandingBytes, hasTopic: (topic) => topics.includes(topic) };
}

function seeded(): SeededRandom {
  return new SeededRandom(7);
}

Deno.test("spread takes every broker, and of two the one with less on its way", () => {
  const random = seeded();
  const idle = ["a", "b", "c"].map((id) => candidate(id));
  const counts = new Map<string, number>();
  for (let at = 0; at < 3000; at++) {
    const { id } = chooseBroker(idle, "spread", "t", "", random)!;
    counts.set(id, (counts.get(id) ?? 0) + 1);
  }
  for (const count of counts.values()) ok(count > 800, `${[...counts]}`);
  const loaded = [candidate("a", 1000), candidate("b", 10), candidate("c", 500)];
  for (let at = 0; at < 300; at++) {
    ok(chooseBroker(loaded, "spread", "t", "", random)!.id !== "a", "a is never the lesser of two");
  }
  equal(chooseBroker([], "spread", "t", "", random), null);
});

Deno.test("owner-first takes owners, and anybody when there is none", () => {
  const random = seeded();
  const all = [candidate("a"), candidate("b", 900, ["t"]), candidate("c")];
  equal(chooseBroker(all, "owner-first", "t", "", random)!.id, "b");
  const ids = new Set<string>();
  for (let at = 0; at < 100; at++) ids.add(chooseBroker(all, "owner-first", "u", "", random)!.id);
  ok(ids.has("a") && ids.has("c"));
});

Deno.test("hash takes the same broker for a topic and key, and moves only what was of one that goes", () => {
  const random = seeded();
  const all = ["a:1", "b:1", "c:1", "d:1"].map((id) => candidate(id));
  const without = all.slice(1);
  const counts = new Map<string, number>();
  for (let at = 0; at < 1000; at++) {
    const key = `k${at}`;
    const { id } = chooseBroker(all, "hash", "t", key, random)!;
    equal(chooseBroker(all.toReversed(), "hash", "t", key, random)!.id, id);
    counts.set(id, (counts.get(id) ?? 0) + 1);
    if (id !== "a:1") equal(chooseBroker(without, "hash", "t", key, random)!.id, id);
  }
  equal(counts.size, 4);
  for (const count of counts.values()) ok(count > 150, `${[...counts]}`);
});
