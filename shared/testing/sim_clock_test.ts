import { deepEqual, equal, rejects } from "node:assert/strict";
import { SimClock } from "./mod.ts";

Deno.test("SimClock starts where it is told and stands still", () => {
  const clock = new SimClock({ monoMs: 5, wallMs: 1_000 });
  equal(clock.monoMs(), 5);
  equal(clock.wallMs(), 1_000);
  clock.advance(2.5);
  equal(clock.monoMs(), 7.5);
  equal(clock.wallMs(), 1_002);
});

Deno.test("advance() runs timers in the order of their due times, equal ones as they were made", () => {
  const clock = new SimClock();
  const ran: string[] = [];
  const note = (name: string) => () => ran.push(`${name}@${clock.monoMs()}`);
  clock.setTimer(20, note("b1"));
  clock.setTimer(10, note("a"));
  clock.setTimer(20, note("b2"));
  clock.setTimer(20.5, note("c"));
  clock.setTimer(21, note("late"));
  clock.advance(20.5);
  deepEqual(ran, ["a@10", "b1@20", "b2@20", "c@20.5"]);
  equal(clock.nextTimerMs, 0.5);
});

Deno.test("advance() runs timers that timers make, when they are due too", () => {
  const clock = new SimClock();
  const ran: number[] = [];
  const again = () => {
    ran.push(clock.monoMs());
    clock.setTimer(10, again);
  };
  clock.setTimer(10, again);
  clock.advance(35);
  deepEqual(ran, [10, 20, 30]);
  equal(clock.monoMs(), 35);
  equal(clock.pendingTimers, 1);
});

Deno.test("pendingTimers counts what has neither run nor been cancelled", () => {
  const clock = new SimClock();
  const first = clock.setTimer(1, () => {});
  const second = clock.setTimer(1, () => {});
  equal(clock.pendingTimers, 2);
  first.cancel();
  first.cancel();
  equal(clock.pendingTimers, 1);
  clock.advance(1);
  second.cancel();
  equal(clock.pendingTimers, 0);
  equal(clock.nextTimerMs, null);
});

Deno.test("an aborted sleep() leaves no timer behind", async () => {
  const clock = new SimClock();
  const abort = new AbortController();
  const sleeping = clock.sleep(10, abort.signal);
  abort.abort(new Error("enough"));
  await rejects(sleeping, /enough/);
  equal(clock.pendingTimers, 0);
});

Deno.test("run() lets promise jobs run before, between and after the timers", async () => {
  const clock = new SimClock();
  const seen: string[] = [];
  const work = async () => {
    await Promise.resolve();
    for (let round = 0; round < 3; round++) {
      await clock.sleep(10);
      for (let turn = 0; turn < 100; turn++) await Promise.resolve();
      seen.push(`${round}@${clock.monoMs()}`);
    }
  };
  const working = work();
  await clock.run(30);
  deepEqual(seen, ["0@10", "1@20", "2@30"]);
  await working;
});

Deno.test("run() passes an hour of one-second sleeps", async () => {
  const clock = new SimClock();
  let rounds = 0;
  const work = async () => {
    while (rounds < 3600) {
      await clock.sleep(1_000);
      rounds++;
    }
  };
  const working = work();
  await clock.run(3_600_000);
  equal(rounds, 3600);
  await working;
});

Deno.test("runUntil() goes no further than it needs to, and gives the result", async () => {
  const clock = new SimClock();
  clock.setTimer(50, () => {});
  equal(await clock.runUntil(clock.sleep(10).then(() => "done"), 100), "done");
  equal(clock.monoMs(), 10);
  await rejects(clock.runUntil(Promise.reject(new Error("no")), 100), /no/);
  await rejects(clock.runUntil(clock.sleep(200), 100), /within 100 simulated milliseconds/);
});

Deno.test("jumpWall() moves the wall clock either way and nothing else", () => {
  const clock = new SimClock({ wallMs: 10_000 });
  let ran = false;
  clock.setTimer(100, () => {
    ran = true;
  });
  clock.jumpWall(-9_000);
  equal(clock.wallMs(), 1_000);
  clock.jumpWall(60_000);
  equal(clock.wallMs(), 61_000);
  equal(clock.monoMs(), 0);
  clock.advance(99);
  equal(ran, false);
  equal(clock.wallMs(), 61_099);
});
