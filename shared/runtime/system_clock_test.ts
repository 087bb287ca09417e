import { ok, throws } from "node:assert/strict";
import { TIMER_DELAY_MS_MAX } from "./clock.ts";
import { SystemClock } from "./system_clock.ts";

Deno.test("SystemClock.setTimer() takes delays that a runtime timer would run at once", async () => {
  const clock = new SystemClock();
  const ran: string[] = [];
  const timers = [
    clock.setTimer(TIMER_DELAY_MS_MAX + 1, () => ran.push("a month")),
    clock.setTimer(1e15, () => ran.push("ages")),
    clock.setTimer(Infinity, () => ran.push("never")),
  ];
  await clock.sleep(5);
  for (const timer of timers) timer.cancel();
  ok(ran.length === 0, ran.join());
});

Deno.test("SystemClock.setTimer() arms a long delay in steps up to its due time", async () => {
  const clock = new SystemClock(2);
  const startMs = clock.monoMs();
  await clock.sleep(9);
  ok(clock.monoMs() - startMs >= 9);
});

Deno.test("SystemClock.setTimer() refuses what is not a number", () => {
  throws(() => new SystemClock().setTimer(NaN, () => {}));
});

Deno.test("SystemClock tells the machine's time", () => {
  const clock = new SystemClock();
  const earlier = Date.now();
  const wallMs = clock.wallMs();
  ok(earlier <= wallMs && wallMs <= Date.now());
  ok(clock.monoMs() <= clock.monoMs());
});
