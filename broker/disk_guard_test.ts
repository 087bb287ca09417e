import { deepStrictEqual as equal, match, ok } from "node:assert/strict";
import { Logger } from "@sluice/shared/telemetry";
import { DiskWrapper, settle, SimClock, SimDisk } from "@sluice/shared/testing";
import type { DiskSpace } from "@sluice/shared/runtime";
import {
  DiskGuard,
  type DiskGuardOptions,
  type GuardReason,
  judge,
  type StallReason,
} from "./disk_guard.ts";

const GIB = 2 ** 30;
const MIN_FREE: DiskGuardOptions = { minFreeBytes: 1000, logBytesMax: 0 };
const LOG_MAX: DiskGuardOptions = { minFreeBytes: 0, logBytesMax: 1000 };
const BOTH: DiskGuardOptions = { minFreeBytes: 1000, logBytesMax: 1000 };
const AUTO: DiskGuardOptions = { minFreeBytes: "auto", logBytesMax: 0 };

type Row = readonly [
  options: DiskGuardOptions,
  freeBytes: number | null,
  logBytes: number,
  current: GuardReason | null,
  reason: GuardReason | null,
  roomBytes: number,
];

const ROWS: readonly Row[] = [
  // The minimum that is free, and a tenth more before it opens again.
  [MIN_FREE, 5000, 9e9, null, null, 4000],
  [MIN_FREE, 1000, 0, null, null, 0],
  [MIN_FREE, 999, 0, null, "low_space", 0],
  [MIN_FREE, -5, 0, null, "low_space", 0],
  [MIN_FREE, 1099, 0, "low_space", "low_space", 0],
  [MIN_FREE, 1100, 0, "low_space", null, 100],
  [MIN_FREE, 1099, 0, "disk_full", "low_space", 0],
  [MIN_FREE, 1100, 0, "disk_full", null, 100],
  // The log's own size, and a tenth less.
  [LOG_MAX, 5000, 999, null, null, 1],
  [LOG_MAX, 5000, 1000, null, "log_full", 0],
  [LOG_MAX, 5000, 1500, null, "log_full", 0],
  [LOG_MAX, 5000, 901, "log_full", "log_full", 0],
  [LOG_MAX, 5000, 900, "log_full", null, 100],
  // Both: closed until both are good.
  [BOTH, 1050, 950, null, null, 50],
  [BOTH, 1050, 800, "log_full", "low_space", 0],
  [BOTH, 1100, 950, "low_space", "log_full", 0],
  [BOTH, 1100, 900, "low_space", null, 100],
  [BOTH, 9000, 900, "low_space", null, 100],
  // A disk that cannot be measured.
  [MIN_FREE, null, 0, null, null, Infinity],
  [MIN_FREE, null, 0, "disk_full", null, Infinity],
  [BOTH, null, 1000, null, "log_full", 0],
  // 5 % of 100,000.
  [AUTO, 5000, 0, null, null, 0],
  [AUTO, 4999, 0, null, "low_space", 0],
];

for (const [options, freeBytes, logBytes, current, reason, roomBytes] of ROWS) {
  const name = `${options.minFreeBytes}/${options.logBytesMax}: ${freeBytes} free, log ${logBytes}`;
  Deno.test(`judge(${name}, was ${current}) is ${reason}`, () => {
    const space = freeBytes === null ? null : { totalBytes: 100_000, freeBytes };
    const reading = { space, logBytes, stalled: null };
    equal(judge(reading, options, current), { reason, roomBytes });
    equal(judge({ ...reading, stalled: "disk_full" }, options, current), {
      reason: "disk_full",
      roomBytes: 0,
    });
  });
}

Deno.test("judge() keeps at most 10 GiB free of a large disk by itself", () => {
  const at = (freeBytes: number) =>
    judge(
      { space: { totalBytes: 1000 * GIB, freeBytes }, logBytes: 0, stalled: null },
      AUTO,
      null,
    );
  equal(at(10 * GIB), { reason: null, roomBytes: 0 });
  equal(at(10 * GIB - 1).reason, "low_space");
});

class GuardWorld extends DiskWrapper {
  space_: DiskSpace | null = { totalBytes: 100_000, freeBytes: 5000 };
  measured = 0;
  readonly clock = new SimClock();
  readonly lines: string[] = [];
  readonly log = {
    start: 0,
    holeBytes: 0,
    durableEnd: 0,
    end: 0,
    stalled: null as StallReason | null,
  };
  readonly guard: DiskGuard;

  constructor(options: DiskGuardOptions) {
    super(new SimDisk());
    const logger = new Logger({ sink: (line) => this.lines.push(line), clock: this.clock });
    this.guard = new DiskGuard(
      this.log,
      { disk: this, clock: this.clock, logger },
      "/data",
      options,
    );
  }

  override space(path: string): Promise<DiskSpace> {
    equal(path, "/data");
    this.measured++;
    if (this.space_ === null) return Promise.reject(new Error("not allowed"));
    return Promise.resolve(this.space_);
  }

  /** The lines since the last call, without time and figures. */
  take(): string[] {
    return this.lines.splice(0).map((line) =>
      /Publishes[^="]*?(?= \w+=|"|$)/.exec(line)?.[0] ?? line
    );
  }

  free(freeBytes: number): Promise<void> {
    this.space_ = { totalBytes: 100_000, freeBytes };
    return this.clock.run(1000);
  }
}

async function guarded(
  options: DiskGuardOptions,
  test: (world: GuardWorld) => Promise<void>,
): Promise<void> {
  const world = new GuardWorld(options);
  await world.guard.start();
  await test(world);
  world.guard.stop();
  equal(world.clock.pendingTimers, 0);
}

Deno.test("DiskGuard does not count what compaction has given back", async () => {
  await guarded({ minFreeBytes: 0, logBytesMax: 1000 }, async (world) => {
    const { guard, log } = world;
    log.end = log.durableEnd = 1000;
    equal(guard.refusal(), "the log has reached its limit");
    log.holeBytes = 101;
    await world.free(5000);
    equal(guard.refusal(), null);
    log.end = log.durableEnd = 1101;
    equal(guard.refusal(), "the log has reached its limit");
  });
});

Deno.test("DiskGuard measures every second, and logs each change once with its figures", async () => {
  await guarded(MIN_FREE, async (world) => {
    const { guard, clock } = world;
    equal([guard.refusal(), guard.isClosed, guard.minFreeBytes], [null, false, 1000]);
    await clock.run(999);
    equal([world.measured, world.lines], [1, []]);
    await clock.run(1);
    equal(world.measured, 2);
    await world.free(900);
    equal([guard.refusal(), guard.isClosed], ["the disk is nearly full", true]);
    match(world.lines[0]!, /Publishes are refused: the disk is nearly full.*free_bytes=900/);
    equal(world.take().length, 1);
    await world.free(1050);
    equal([guard.refusal(), world.take()], ["the disk is nearly full", []]);
    await world.free(1100);
    equal(guard.refusal(), null);
    match(world.lines[0]!, /Publishes are taken again.*free_bytes=1100/);
    equal([world.take().length, world.measured, guard.space?.freeBytes], [1, 5, 1100]);
  });
});

Deno.test("DiskGuard counts what the log grows by between two measurements", async () => {
  await guarded(MIN_FREE, async (world) => {
    const { guard, log, clock } = world;
    log.end = 4000;
    equal(guard.refusal(), null);
    log.end = 4001;
    equal(guard.refusal(), "the disk is nearly full");
    equal(guard.isClosed, true);
    // What was not on disk when it was measured is still to come off what is free.
    log.durableEnd = 1000;
    await world.free(4100);
    equal(guard.refusal(), "the disk is nearly full");
    log.durableEnd = 4001;
    await world.free(4100);
    equal(guard.refusal(), null);
    log.end += 3200;
    ok(guard.refusal() !== null);
    await clock.run(1);
  });
});

Deno.test("DiskGuard bounds the log at its very size, and lets it go on a tenth below", async () => {
  await guarded({ minFreeBytes: 0, logBytesMax: 1000 }, async (world) => {
    const { guard, log, clock } = world;
    log.end = 999;
    equal(guard.refusal(), null);
    log.end = 1000;
    equal(guard.refusal(), "the log has reached its limit");
    log.durableEnd = 1000;
    log.start = 99;
    await clock.run(1000);
    equal(guard.isClosed, true);
    log.start = 100;
    await clock.run(1000);
    equal(guard.isClosed, false);
  });
});

Deno.test("DiskGuard closes at once when a write finds the disk full, and measures", async () => {
  await guarded(MIN_FREE, async (world) => {
    const { guard, log } = world;
    log.stalled = "disk_full";
    guard.stalled(new Error("no room"));
    equal(guard.refusal(), "the disk is full");
    match(world.lines.shift()!, /The log waits to be written.*no room/);
    await settle();
    equal(world.measured, 2);
    await world.free(5000);
    guard.stalled(new Error("still none"));
    await settle();
    equal(guard.refusal(), "the disk is full");
    log.stalled = null;
    await world.free(5000);
    equal(guard.refusal(), null);
    equal(world.take(), ["Publishes are refused: the disk is full", "Publishes are taken again"]);
  });
});

Deno.test("DiskGuard says once that the disk cannot be measured, and guards the log alone", async () => {
  await guarded({ minFreeBytes: "auto", logBytesMax: 1000 }, async (world) => {
    const { guard, log, clock } = world;
    world.space_ = null;
    await clock.run(3000);
    equal(world.lines.length, 1);
    match(world.lines[0]!, /Cannot measure the free space.*not allowed/);
    equal([guard.refusal(), guard.space, guard.minFreeBytes], [null, null, 0]);
    log.end = 1000;
    equal(guard.refusal(), "the log has reached its limit");
  });
});

Deno.test("DiskGuard that is stopped while it measures does nothing more", async () => {
  const world = new GuardWorld(MIN_FREE);
  world.space_ = { totalBytes: 100_000, freeBytes: 0 };
  const started = world.guard.start();
  world.guard.stop();
  await started;
  equal([world.guard.isClosed, world.clock.pendingTimers, world.lines], [false, 0, []]);
});
