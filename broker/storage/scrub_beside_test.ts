/** Damage beside the log, over a real log on a simulated disk. */
import { deepStrictEqual as equal, ok } from "node:assert/strict";
import { Logger } from "@sluice/shared/telemetry";
import { settle, SimClock, SimDisk } from "@sluice/shared/testing";
import { textOf } from "./checkpoint_test_fixture.ts";
import { Scrubber } from "./scrub.ts";
import type { TopicState } from "./state.ts";
import type { Storage } from "./storage.ts";
import {
  createChannel,
  createTopic,
  openStorage,
  positionsOf,
  publish,
  type TestStorageOwner,
} from "./storage_test_fixture.ts";

const RATE_BYTES = 1 << 20;
const WHILE_MS = 60_000;

class World {
  readonly disk = new SimDisk();
  readonly clock = new SimClock();
  readonly lines: string[] = [];

  private constructor(
    readonly storage: Storage,
    readonly owner: TestStorageOwner,
    readonly topic: TopicState,
    readonly scrubber: Scrubber,
    disk: SimDisk,
    clock: SimClock,
    lines: string[],
  ) {
    this.disk = disk;
    this.clock = clock;
    this.lines = lines;
  }

  /** A log of several files with sidecars, and two checkpoints. */
  static async use(
    test: (world: World) => Promise<void>,
    rateBytes = RATE_BYTES,
  ): Promise<void> {
    const disk = new SimDisk();
    const clock = new SimClock();
    const lines: string[] = [];
    const { storage, owner } = await openStorage(disk, clock);
    const topic = createTopic(storage, "t");
    createChannel(storage, topic, "c");
    const scrubber = new Scrubber({
      disk,
      path: "/data",
      clock,
      logger: new Logger({ sink: (line) => lines.push(line), clock, level: "warn" }),
      store: storage.blocks,
      beside: storage.beside,
      log: storage.log,
      isHeld: () => false,
    }, { rateBytes, intervalMs: 0 });
    const world = new World(storage, owner, topic, scrubber, disk, clock, lines);
    for (let round = 0; round < 2; round++) {
      await world.grow(8);
      await world.maintain();
    }
    equal([world.files(".ckp").length, world.files(".idx").length > 2], [2, true]);
    await test(world);
    const expected = textOf(storage.state);
    await storage.drain();
    await scrubber.stop();
    await storage.abandon();
    equal(clock.pendingTimers, 0);
    disk.crash();
    const again = await openStorage(disk, clock);
    equal(textOf(again.storage.state), expected);
    equal(again.storage.opening.damage, []);
    await again.storage.abandon();
    equal(disk.openFiles, 0);
  }

  async grow(groups: number): Promise<void> {
    for (; groups > 0; groups--) {
      publish(this.storage, this.topic, "x".repeat(5000), groups % 3 === 0 ? 2e12 + groups : 0);
      await this.storage.drain();
    }
    await settle();
  }

  async maintain(): Promise<void> {
    await this.clock.runUntil(this.storage.maintain(), WHILE_MS);
  }

  /** Has a pass go all the way. */
  async scrub(): Promise<void> {
    await this.clock.runUntil(this.scrubber.start(), WHILE_MS);
  }

  files(extension: string): string[] {
    return this.disk.files().filter((path) => path.endsWith(extension));
  }

  flip(path: string, position: number): void {
    this.disk.flipBit(path, position, 3);
  }
}

Deno.test("a pass over a log whose sidecars and checkpoints are good changes nothing", async () => {
  await World.use(async (world) => {
    await world.scrub();
    const { repaired, passes, damageCount } = world.scrubber.report;
    equal([repaired, passes, damageCount], [0, 1, 0]);
    equal([world.lines, world.owner.warnings], [[], []]);
  });
});

Deno.test("a sidecar that is damaged anywhere or cut is made again as it was", async () => {
  await World.use(async (world) => {
    const [path] = world.files(".idx");
    const good = world.disk.bytes(path!);
    const positions = await positionsOf(world.topic);
    const damages = [
      ...[8, 20, 30, good.length - 1].map((position) => () => world.flip(path!, position)),
      () => world.disk.writeDurable(path!, good.slice(0, good.length - 3)),
      () => world.disk.writeDurable(path!, new Uint8Array()),
    ];
    // Of a file to which it happens twice in a process, the index stays in memory.
    const [damage] = damages;
    damage!();
    await world.scrub();
    equal(world.scrubber.report.repaired, 1);
    equal(world.disk.bytes(path!), good);
    equal(await positionsOf(world.topic), positions);
    await world.scrub();
    equal(world.scrubber.report.repaired, 1);
    for (const [number, damage] of damages.slice(1).entries()) {
      damage();
      await world.scrub();
      equal(world.scrubber.report.repaired, 2 + number);
      equal(await positionsOf(world.topic), positions);
      world.disk.writeDurable(path!, good);
    }
    equal([world.scrubber.report.damageCount, world.owner.errors], [0, []]);
  });
});

Deno.test("a sidecar that is missing is made again", async () => {
  await World.use(async (world) => {
    const [path] = world.files(".idx");
    const good = world.disk.bytes(path!);
    await world.disk.remove(path!);
    await world.scrub();
    equal([world.scrubber.report.repaired, world.disk.bytes(path!)], [1, good]);
  });
});

for (
  const [what, damaged] of [["an older damaged one", [0]], ["the newest", [1]], ["both", [
    0,
    1,
  ]]] satisfies [
    string,
    number[],
  ][]
) {
  Deno.test(`a new checkpoint takes the place of ${what}`, async () => {
    await World.use(async (world) => {
      const before = world.files(".ckp");
      for (const at of damaged) world.flip(before[at]!, world.disk.bytes(before[at]!).length - 1);
      await world.scrub();
      equal(world.scrubber.report.repaired, damaged.length);
      equal(world.lines.length, damaged.length);
      ok(world.lines[0]!.includes("A checkpoint is damaged on disk"), world.lines[0]);
      // They stay until another is there.
      equal(world.files(".ckp"), before);
      await world.maintain();
      const good = before.filter((_, at) => !damaged.includes(at));
      const after = world.files(".ckp");
      equal(after.slice(0, -1), good);
      ok(after.at(-1)! >= before[1]!);
      await world.scrub();
      equal(world.scrubber.report.repaired, damaged.length);
    });
  });
}

Deno.test("a checkpoint that is damaged is made up for although the log has not grown since", async () => {
  await World.use(async (world) => {
    await world.grow(6);
    await world.maintain();
    const { end } = world.storage.log;
    const [older, newest] = world.files(".ckp");
    ok(newest!.includes(String(end)), `${newest} ${end}`);
    world.flip(older!, 20);
    await world.scrub();
    await world.maintain();
    equal(world.files(".ckp")[0], newest);
    equal(world.files(".ckp").length, 2);
  });
});

Deno.test("a stop ends a pass between what lies beside the log", async () => {
  await World.use(async (world) => {
    const [path] = world.files(".idx");
    world.flip(path!, 20);
    const { scrubber, storage, clock } = world;
    const scrubbing = scrubber.start();
    // The log is read then, and the first sidecar is not paid for.
    while (scrubber.report.position < storage.log.durableEnd) await clock.run(1);
    await scrubber.stop();
    await scrubbing;
    equal([scrubber.report.repaired, scrubber.report.passes, clock.pendingTimers], [0, 0, 0]);
  }, 4096);
});
