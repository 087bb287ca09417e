/** What every {@linkcode Clock} does, on the real one and on the simulated one. */
import { deepEqual, equal, ok, rejects } from "node:assert/strict";
import type { Clock } from "../runtime/mod.ts";
import { SystemClock } from "../runtime/system.ts";
import { SimClock } from "./mod.ts";

interface Subject {
  readonly name: string;
  readonly clock: Clock;
  /** Lets time pass until the promise settles. */
  until(promise: Promise<unknown>): Promise<unknown>;
}

function subjects(): Subject[] {
  const simulated = new SimClock();
  return [
    { name: "SystemClock", clock: new SystemClock(), until: (promise) => promise },
    {
      name: "SystemClock with timers armed in steps",
      clock: new SystemClock(1),
      until: (promise) => promise,
    },
    {
      name: "SimClock",
      clock: simulated,
      until: (promise) => simulated.runUntil(promise, 1_000),
    },
  ];
}

function contract(promise: string, use: (subject: Subject) => Promise<void>): void {
  for (const subject of subjects()) {
    Deno.test(`${subject.name} ${promise}`, () => use(subject));
  }
}

contract("setTimer() calls back once, never before its delay", async ({ clock, until }) => {
  for (const delayMs of [-1, 0, 0.3, 1, 2.6, 4]) {
    const startMs = clock.monoMs();
    let calls = 0;
    await until(
      new Promise<void>((resolve) => {
        clock.setTimer(delayMs, () => {
          calls++;
          resolve();
        });
      }),
    );
    ok(clock.monoMs() - startMs >= Math.max(0, delayMs));
    equal(calls, 1);
  }
});

contract("cancel() stops a timer and does nothing afterwards", async ({ clock, until }) => {
  const ran: string[] = [];
  const cancelled = clock.setTimer(1, () => ran.push("cancelled"));
  cancelled.cancel();
  cancelled.cancel();
  const timer = clock.setTimer(2, () => ran.push("ran"));
  await until(clock.sleep(5));
  timer.cancel();
  deepEqual(ran, ["ran"]);
});

contract("setTimer() runs nothing within the call", async ({ clock, until }) => {
  let ran = false;
  clock.setTimer(0, () => {
    ran = true;
  });
  equal(ran, false);
  await until(clock.sleep(2));
  equal(ran, true);
});

contract("sleep() rejects with the reason of an aborted signal", async ({ clock, until }) => {
  const reason = new Error("enough");
  await rejects(clock.sleep(60_000, AbortSignal.abort(reason)), reason);
  const abort = new AbortController();
  const sleeping = clock.sleep(60_000, abort.signal);
  clock.setTimer(1, () => abort.abort(reason));
  await rejects(until(sleeping), reason);
});

contract("sleep() ends in time when its signal is not aborted", async ({ clock, until }) => {
  await until(clock.sleep(1, new AbortController().signal));
});

contract("wallMs() is an integer", ({ clock }) => {
  ok(Number.isSafeInteger(clock.wallMs()));
  return Promise.resolve();
});
