import { deepStrictEqual as equal } from "node:assert/strict";
import fc from "fast-check";
import { NOT_SCHEDULED, Schedule, type Timed, WALL_CHECK_MS_MAX, wallDueMs } from "./schedule.ts";

class Probe implements Timed {
  scheduledMs = NOT_SCHEDULED;
  readonly ticks: number[] = [];
  onTick: (nowMs: number) => void = () => {};

  tick(nowMs: number): void {
    this.ticks.push(nowMs);
    this.onTick(nowMs);
  }
}

Deno.test("Schedule ticks what is due and nothing else", () => {
  const schedule = new Schedule();
  const [early, late] = [new Probe(), new Probe()];
  schedule.add(late, 20);
  schedule.add(early, 10);
  equal(schedule.earliestMs, 10);
  schedule.run(9, 0);
  schedule.run(10, 0);
  equal([early.ticks, late.ticks, schedule.earliestMs], [[10], [], 20]);
  schedule.run(100, 0);
  schedule.run(200, 0);
  equal([early.ticks, late.ticks, schedule.earliestMs], [[10], [100], Infinity]);
});

Deno.test("Schedule.add() can only bring a tick forward, and what is left behind is passed over", () => {
  const schedule = new Schedule();
  const probe = new Probe();
  schedule.add(probe, 30);
  schedule.add(probe, 40);
  schedule.add(probe, 20);
  schedule.run(20, 0);
  equal([probe.ticks, probe.scheduledMs], [[20], NOT_SCHEDULED]);
  schedule.run(50, 0);
  equal(probe.ticks, [20]);
});

Deno.test("Schedule takes what a tick asks for, and the entry left behind does not tick twice", () => {
  const schedule = new Schedule();
  const probe = new Probe();
  schedule.add(probe, 30);
  schedule.add(probe, 10);
  probe.onTick = (nowMs) => {
    if (nowMs < 30) schedule.add(probe, 30);
  };
  schedule.run(10, 0);
  schedule.run(30, 0);
  schedule.run(60, 0);
  equal(probe.ticks, [10, 30]);
});

Deno.test("Schedule goes through any set of times in order", () => {
  fc.assert(fc.property(fc.array(fc.nat(1000), { maxLength: 60 }), (times) => {
    const schedule = new Schedule();
    const order: number[] = [];
    for (const time of times) {
      const probe = new Probe();
      probe.onTick = () => order.push(time);
      schedule.add(probe, time);
    }
    schedule.run(1000, 0);
    equal(order, [...times].sort((a, b) => a - b));
  }));
});

Deno.test("wallDueMs() looks again soon at what is far away, since the wall clock may jump", () => {
  equal(wallDueMs(1_000_040, 500, 1_000_000), 540);
  equal(wallDueMs(4_600_000, 500, 1_000_000), 500 + WALL_CHECK_MS_MAX);
  equal(wallDueMs(999_000, 500, 1_000_000), -500);
});
