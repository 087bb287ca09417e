import { deepEqual, equal, ok, rejects } from "node:assert/strict";
import { SeededRandom, settle, SimDisk } from "@sluice/shared/testing";
import { SpoolRefusal } from "./mod.ts";
import { OpenedSpool, publishOf, textsOf } from "./spool_fixture_test.ts";

const ALL = 1_000_000;

/** Appends until it is refused; returns how many were taken, and why no more. */
async function fill(opened: OpenedSpool, bytes: number): Promise<{ count: number; code: string }> {
  for (let count = 0;; count++) {
    try {
      await opened.spool.append(publishOf("t", "x".repeat(bytes), count), null);
    } catch (error) {
      ok(error instanceof SpoolRefusal && !error.mayBeStored, String(error));
      return { count, code: error.code };
    }
  }
}

/** Leaves no room on a disk. */
function fillDisk(disk: SimDisk): void {
  disk.setCapacity(disk.files().reduce((sum, path) => sum + disk.bytes(path).length, 0));
}

Deno.test("Spool refuses publishes at its bound, takes decisions, and goes on when it is drained", async () => {
  const bytesMax = 128 * 1024;
  const opened = await OpenedSpool.open(new SimDisk(), { bytesMax, heldMax: 1000 });
  const { spool } = opened;
  const { count, code } = await fill(opened, 1000);
  equal(code, "full");
  ok(count > 90);
  ok(spool.figures.isFull && spool.figures.fileBytes <= bytesMax * 7 / 8);
  equal(spool.figures.refusedTotal.full, 1);
  // Each one by itself, which costs the most.
  for (let index = 0; index < count; index++) {
    const entries = await spool.take(1, ALL);
    await spool.assign(entries, "one:4150");
    spool.settle(entries);
    await opened.flush();
    ok(spool.figures.fileBytes < bytesMax);
  }
  deepEqual([spool.figures.count, spool.figures.isFull], [0, false]);
  ok((await fill(opened, 1000)).count > 80);
  await spool.close();
});

Deno.test("Spool refuses publishes while the oldest entry is too old, to a thousandth", async () => {
  const ageMsMax = 100_000;
  const opened = await OpenedSpool.open(new SimDisk(), { ageMsMax });
  const { spool, clock } = opened;
  await spool.append(publishOf("t", "old"), null);
  clock.advance(99_000);
  await spool.append(publishOf("t", "young"), null);
  clock.advance(1_200);
  await rejects(spool.append(publishOf("t", "late"), null), { code: "stale" });
  equal(spool.figures.refusedTotal.stale, 1);
  const pinned = publishOf("t", "pinned");
  await spool.append(pinned, "broker:4150");
  const [held] = await spool.takeAssigned("broker:4150", 1, ALL);
  spool.settle([held!]);
  const [old] = await spool.take(1, ALL);
  await rejects(spool.append(publishOf("t", "late"), null), { code: "stale" });
  spool.settle([old!]);
  await spool.append(publishOf("t", "in time"), null);
  clock.advance(100_000);
  const again = await opened.again({ ageMsMax });
  await rejects(again.spool.append(publishOf("t", "late"), null), { code: "stale" });
  const [young] = await again.spool.take(1, ALL);
  // What is in quarantine waits for people, and holds up nobody.
  await again.spool.quarantine(young!, "poison");
  ok(again.spool.figures.oldestWallMs! > clock.wallMs() - 100_200);
  await again.spool.close();
});

Deno.test("Spool refuses what is too large, too many topics and too many pinned entries", async () => {
  const options = { topicsMax: 2, pinnedMax: 2, recordBytesMax: 1000 };
  const { spool } = await OpenedSpool.open(new SimDisk(), options);
  await rejects(spool.append(publishOf("t", "x".repeat(1000)), null), { code: "too_large" });
  await spool.append(publishOf("a", "x".repeat(900)), null);
  await spool.append(publishOf("b", ""), null);
  await rejects(spool.append(publishOf("c", ""), null), { code: "full" });
  await spool.append(publishOf("a", ""), null);
  await spool.append(publishOf("c", ""), "one:4150");
  await spool.append(publishOf("d", ""), "one:4150");
  await rejects(spool.append(publishOf("d", ""), "one:4150"), { code: "full" });
  spool.settle(await spool.takeAssigned("one:4150", 1, ALL));
  spool.settle(await spool.take(2, ALL));
  await spool.append(publishOf("c", ""), null);
  await spool.append(publishOf("d", ""), "one:4150");
  await spool.close();
});

Deno.test("no more are handed out than may be in hand, and than may wait for brokers", async () => {
  const { spool } = await OpenedSpool.open(new SimDisk(), { heldMax: 4 });
  for (let count = 0; count < 40; count++) await spool.append(publishOf("t", `${count}`), null);
  const first = await spool.take(10, ALL);
  equal(first.length, 4);
  deepEqual(await spool.take(10, ALL), []);
  spool.settle([first[0]!]);
  equal((await spool.take(10, ALL)).length, 1);
  let held = first.slice(1);
  let given = 0;
  while (true) {
    await spool.assign(held, "one:4150");
    spool.putBack(held);
    given += held.length;
    held = await spool.take(10, ALL);
    if (held.length === 0) break;
  }
  equal(given, 4 * 4 - 1);
  // One of the first four is in hand still.
  equal((await spool.takeAssigned("one:4150", 10, ALL)).length, 3);
  deepEqual(await spool.takeAssigned("one:4150", 10, ALL), []);
  await spool.close();
});

Deno.test("a quarantine that is full leaves an entry in hand", async () => {
  const { spool } = await OpenedSpool.open(new SimDisk(), { quarantineMax: 1 });
  for (const text of ["a", "b"]) await spool.append(publishOf("t", text), null);
  const [a, b] = await spool.take(2, ALL);
  await spool.quarantine(a!, "poison");
  await rejects(spool.quarantine(b!, "poison"), { code: "full" });
  equal(spool.figures.held, 1);
  spool.putBack([b!]);
  deepEqual(textsOf(await spool.take(2, ALL)), ["b"]);
  await spool.close();
});

Deno.test("on a full disk publishes are refused, those in the group wait, and decisions go on", async () => {
  const disk = new SimDisk();
  const opened = await OpenedSpool.open(disk, { fileBytes: 20_000 });
  const { spool, clock } = opened;
  await spool.append(publishOf("t", "a"), null);
  fillDisk(disk);
  // The file that takes appends has zeros ahead: it takes some more.
  let resolved = 0;
  let refused = 0;
  const texts: string[] = [];
  for (let count = 0; count < 100; count++) {
    texts.push(`${count}`.padEnd(500, "."));
    void spool.append(publishOf("t", texts.at(-1)!), null)
      .then(() => resolved++, (error) => {
        equal(error.code, "full");
        refused++;
        texts.splice(texts.findIndex((text) => text.startsWith(`${count}.`)), 1);
      });
    await settle();
  }
  ok(refused > 50);
  equal(resolved + refused, 100, "the reserve has taken the group that was full");
  equal(spool.figures.isFull, true);
  const entries = await spool.take(3, ALL);
  await spool.assign(entries, "one:4150");
  spool.settle(entries);
  await opened.flush();
  await clock.run(5000);
  await rejects(spool.append(publishOf("t", "b"), null), { code: "full" });
  disk.setCapacity(2 ** 30);
  await clock.run(1000);
  equal(spool.figures.isFull, false);
  await spool.append(publishOf("t", "z"), null);
  const again = await opened.again({ fileBytes: 20_000 });
  const found = textsOf(await again.spool.take(1000, ALL));
  deepEqual(found, ["a", ...texts, "z"].slice(3), "what was refused is not there");
  await again.spool.close();
});

Deno.test("a disk that stays full for longer keeps the group waiting, and then takes it", async () => {
  const disk = new SimDisk();
  const opened = await OpenedSpool.open(disk, { reserveBytes: 1 });
  const { spool, clock } = opened;
  await spool.append(publishOf("t", "x".repeat(5000)), null);
  fillDisk(disk);
  let isStored = false;
  const appending = spool.append(publishOf("t", "waits"), null).then(() => isStored = true);
  await clock.run(3500);
  equal(isStored, false);
  await rejects(spool.append(publishOf("t", "b"), null), { code: "full" });
  disk.setCapacity(2 ** 30);
  await clock.run(2000);
  await appending;
  deepEqual(opened.failures, []);
  equal((await spool.take(9, ALL)).length, 2);
  await spool.close();
});

Deno.test("a stop on a full disk does not wait for space, and says that not all is stored", async () => {
  const disk = new SimDisk();
  const opened = await OpenedSpool.open(disk, { reserveBytes: 1 });
  await opened.spool.append(publishOf("t", "x".repeat(5000)), null);
  fillDisk(disk);
  const appending = opened.spool.append(publishOf("t", "waits"), null);
  const lost = rejects(appending, { code: "failed", mayBeStored: true });
  await settle();
  await rejects(opened.spool.close());
  await lost;
  equal(disk.openFiles, 0);
  equal(opened.clock.pendingTimers, 0);
});

Deno.test("a start on a full disk takes the reserve, and drains", async () => {
  const disk = new SimDisk();
  let opened = await OpenedSpool.open(disk);
  for (let count = 0; count < 10; count++) {
    await opened.spool.append(publishOf("t", "x".repeat(1000)), null);
  }
  await opened.spool.close();
  fillDisk(disk);
  opened = await OpenedSpool.open(disk);
  const { spool } = opened;
  equal(spool.figures.isFull, true);
  const entries = await spool.take(10, ALL);
  await spool.assign(entries, "one:4150");
  spool.settle(entries);
  await opened.flush();
  equal(spool.figures.count, 0);
  await spool.close();
});

Deno.test("publishes that wait for the ring keep their order, and are refused on a full disk", async () => {
  for (let seed = 0; seed < 20; seed++) {
    const random = new SeededRandom(seed);
    const disk = new SimDisk({ random: random.fork() });
    const bytesMax = 64 * 2 ** 20;
    const opened = await OpenedSpool.open(disk, { recordBytesMax: 2 ** 20, bytesMax });
    const { spool } = opened;
    const isFull = seed % 2 === 1;
    if (isFull) disk.setCapacity(random.between(1, 3) * 2 ** 20);
    const stored = new Set<number>();
    const all = Array.from({ length: 11 }, (_, index) => index);
    let refused = 0;
    const appending = all.map((index) => {
      // More than half the ring together.
      const text = `${index} `.padEnd(random.between(500_000, 900_000), "x");
      return spool.append(publishOf("t", text, index), null)
        .then(() => stored.add(index), (error) => {
          deepEqual([error.code, error.mayBeStored], ["full", false]);
          refused++;
        });
    });
    await settle();
    await opened.clock.run(3000);
    disk.setCapacity(2 ** 30);
    await opened.clock.run(3000);
    await Promise.all(appending);
    equal(refused > 0, isFull, `seed ${seed}`);
    const again = await opened.again({ recordBytesMax: 2 ** 20, bytesMax });
    const found = (await again.spool.take(100, 100 * ALL)).map(({ publish }) => publish.sequence);
    deepEqual(found, all.filter((index) => stored.has(index)), `seed ${seed}`);
    await again.spool.close();
  }
});
