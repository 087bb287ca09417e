import { deepStrictEqual as equal, rejects } from "node:assert/strict";
import { settle, SimClock } from "@sluice/shared/testing";
import { Turns } from "./turns.ts";

Deno.test("Turns.run() lets so many work at a time, the others in their order, also after a failure", async () => {
  const turns = new Turns(2, Infinity, new SimClock());
  const begun: number[] = [];
  const ends: PromiseWithResolvers<void>[] = [];
  const runs = [0, 1, 2, 3].map((index) =>
    turns.run(() => {
      begun.push(index);
      ends[index] = Promise.withResolvers<void>();
      return ends[index].promise;
    })
  );
  await settle();
  equal(begun, [0, 1]);
  ends[1]?.reject(new Error("failed"));
  await rejects(runs[1]!, /failed/);
  await settle();
  equal(begun, [0, 1, 2]);
  ends[0]?.resolve();
  await settle();
  equal(begun, [0, 1, 2, 3]);
  ends[2]?.resolve();
  ends[3]?.resolve();
  await Promise.all([runs[0], runs[2], runs[3]]);
});

Deno.test("Turns.run() gives the turn of slow work to the next, once", async () => {
  const clock = new SimClock();
  const turns = new Turns(1, 200, clock);
  const slow = Promise.withResolvers<void>();
  const begun: string[] = [];
  const work = (name: string, promise: Promise<void>) =>
    turns.run(() => {
      begun.push(name);
      return promise;
    });
  const second = Promise.withResolvers<void>();
  const runs = [work("a", slow.promise), work("b", second.promise), work("c", Promise.resolve())];
  await clock.run(199);
  equal(begun, ["a"]);
  await clock.run(1);
  equal(begun, ["a", "b"]);
  slow.resolve();
  await settle();
  equal(begun, ["a", "b"]);
  second.resolve();
  await Promise.all(runs);
  equal([begun, clock.pendingTimers], [["a", "b", "c"], 0]);
});
