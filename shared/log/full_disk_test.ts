/** A disk that is full in the middle of a group, from the store and from the log above it. */
import { deepEqual, equal, ok, rejects, throws } from "node:assert/strict";
import { SeededRandom, settle, SimDisk } from "../testing/mod.ts";
import { CommitLog } from "./commit_log.ts";
import { FileLogStore } from "./file_log_store.ts";
import { Collector, TestOwner } from "./log_test_fixture.ts";
import { LogError } from "./log_store.ts";

const FILE_BYTES = 4096;

interface Opened {
  readonly sim: SimDisk;
  readonly store: FileLogStore;
  readonly owner: TestOwner;
  readonly log: CommitLog;
  /** Tries the group that waits again; false when none does. */
  readonly retry: () => Promise<boolean>;
}

async function openLog(sim: SimDisk, epoch = 1): Promise<Opened> {
  const store = await FileLogStore.open(sim, "/log", epoch);
  const found = await store.recover(0, new Collector());
  const owner = new TestOwner();
  let wake: (() => void) | null = null;
  owner.onStalled = () => new Promise((resolve) => wake = resolve);
  const log = new CommitLog(
    store,
    owner,
    { ringBytes: 65_536, fileBytes: FILE_BYTES },
    { end: found.end, fileStart: store.files.at(-1)?.start ?? found.end, epoch },
  );
  const retry = async () => {
    const again = wake;
    wake = null;
    again?.();
    await settle();
    return again !== null;
  };
  return { sim, store, owner, log, retry };
}

function append(log: CommitLog, text: string, bytes = text.length): void {
  const payload = new TextEncoder().encode(text.padEnd(bytes, "."));
  log.ring.set(payload, log.begin(1, payload.length));
  log.finish();
}

/** The first words of what a start after a crash would read. */
async function readBack(sim: SimDisk, epoch = 100): Promise<string[]> {
  const store = await FileLogStore.open(sim, "/log", epoch);
  const collector = new Collector();
  const found = await store.recover(0, collector);
  deepEqual(found.damage, []);
  await store.close();
  return collector.texts.map((text) => text.replace(/\.*$/, ""));
}

for (
  const [name, operation] of [
    ["write", "write"],
    ["write, for the third time,", "write"],
    ["creation of a file", "create"],
    ["first write to a new file", "write"],
  ] as const
) {
  Deno.test(`CommitLog tries a group again whose ${name} found the disk full`, async () => {
    const { sim, store, owner, log, retry } = await openLog(new SimDisk());
    const rolls = name.includes("file");
    append(log, "before", rolls ? FILE_BYTES : 10);
    await log.drain();
    const { durableEnd } = log;
    const failures = name.includes("third") ? 3 : 1;
    for (let count = 0; count < failures; count++) {
      sim.failNext({ operation, kind: "no_space" });
    }
    append(log, "in the group");
    log.flush();
    append(log, "as well");
    await settle();
    append(log, "behind it");
    log.flush();
    for (let count = 0; count < failures; count++) {
      equal(log.stalled?.code, "no_space");
      deepEqual([log.durableEnd, log.error, owner.durableEnds], [durableEnd, null, [durableEnd]]);
      ok(await retry());
    }
    equal(log.stalled, null);
    await log.drain();
    equal(log.durableEnd, log.end);
    equal(owner.errors.length, 0);
    deepEqual(store.files.map(({ start }) => start), rolls ? [0, durableEnd] : [0]);
    deepEqual(owner.sealedFiles, rolls ? [{ start: 0, end: durableEnd }] : []);
    await store.close();
    equal(sim.openFiles, 0);
    sim.crash();
    deepEqual(await readBack(sim), ["before", "in the group", "as well", "behind it"]);
  });
}

for (const operation of ["create", "syncDirectory"] as const) {
  Deno.test(`CommitLog waits when there is no descriptor for a new file (${operation})`, async () => {
    const { sim, store, owner, log, retry } = await openLog(new SimDisk());
    append(log, "before", FILE_BYTES);
    await log.drain();
    for (let count = 0; count < 3; count++) {
      sim.failNext({ operation, kind: "no_descriptors" });
    }
    append(log, "in the new file");
    log.flush();
    await settle();
    for (let count = 0; count < 3; count++) {
      deepEqual([log.stalled?.code, log.error], ["no_descriptors", null]);
      ok(await retry());
    }
    await log.drain();
    deepEqual([log.stalled, log.durableEnd, owner.errors.length], [null, log.end, 0]);
    equal(store.files.length, 2);
    await store.close();
    equal(sim.openFiles, 0);
    sim.crash();
    deepEqual(await readBack(sim), ["before", "in the new file"]);
  });
}

Deno.test("a store that is closed while it waits for a descriptor leaves no file open", async () => {
  const { sim, store, log } = await openLog(new SimDisk());
  append(log, "before", FILE_BYTES);
  await log.drain();
  sim.failNext({ operation: "syncDirectory", kind: "no_descriptors" });
  append(log, "in the new file");
  log.flush();
  await settle();
  equal(log.stalled?.code, "no_descriptors");
  await store.close();
  equal(sim.openFiles, 0);
});

Deno.test("CommitLog waits for space for a group in two parts, and writes the same bytes", async () => {
  const { sim, store, log, retry } = await openLog(new SimDisk());
  for (let number = 0; number < 4; number++) {
    append(log, `round ${number}`, 15_000);
    await log.drain();
  }
  // This one goes round the end of the ring.
  append(log, "half", 4000);
  append(log, "other half", 4000);
  sim.failNext({ operation: "write", kind: "no_space", skip: 1 });
  log.flush();
  await settle();
  ok(log.stalled !== null);
  ok(await retry());
  await log.drain();
  await store.close();
  sim.crash();
  const rounds = [0, 1, 2, 3].map((number) => `round ${number}`);
  deepEqual((await readBack(sim)).filter((text) => text !== ""), [...rounds, "half", "other half"]);
});

Deno.test("CommitLog wakes who waits for room each time it finds the disk full", async () => {
  const { sim, store, log, retry } = await openLog(new SimDisk());
  sim.failNext({ operation: "write", kind: "no_space" });
  sim.failNext({ operation: "write", kind: "no_space" });
  append(log, "group");
  let woken = 0;
  const wait = () => void log.room().then(() => woken++);
  wait();
  await settle();
  equal(woken, 1);
  wait();
  await settle();
  equal(woken, 1);
  await retry();
  equal([woken, log.hasRoom(65_536 / 2)].join(), "2,false");
  wait();
  await retry();
  equal(woken, 3);
  await store.close();
});

Deno.test("CommitLog is sealed when its owner waits for space no longer", async () => {
  const { sim, store, owner, log } = await openLog(new SimDisk());
  owner.onStalled = (error) => Promise.reject(error);
  sim.failNext({ operation: "write", kind: "no_space" });
  append(log, "lost");
  await rejects(log.drain(), (error) => error instanceof LogError && error.code === "sealed");
  throws(() => log.begin(1, 1), LogError);
  deepEqual([owner.durableEnds.length, owner.errors.length], [0, 1]);
  await store.close();
  equal(sim.openFiles, 0);
});

Deno.test("what was durable before a full disk survives a crash during the wait and after it", async () => {
  for (let seed = 0; seed < 60; seed++) {
    const random = new SeededRandom(seed);
    const sim = new SimDisk({
      random: random.fork(),
      capacityBytes: random.between(3000, 20_000),
      tornSectorChance: 0.3,
    });
    const { log, owner, retry } = await openLog(sim);
    const ends: number[] = [];
    let count = 0;
    for (; log.stalled === null && count < 200; count++) {
      append(log, `record ${count}`, random.between(10, 900));
      ends.push(log.end);
      if (random.chance(0.7)) log.flush();
      if (random.chance(0.7)) await settle();
    }
    ok(log.stalled !== null, "the disk is full");
    // Still full: more of the same.
    await retry();
    const goesOn = random.chance(0.5);
    if (goesOn) {
      sim.setCapacity(2 ** 30);
      await retry();
      equal(log.stalled, null);
      equal(owner.errors.length, 0);
      if (random.chance(0.5)) await log.drain();
    }
    const durable = ends.filter((end) => end <= log.durableEnd).length;
    sim.crash();
    sim.setCapacity(2 ** 30);
    const found = await readBack(sim);
    const written = Array.from({ length: count }, (_, number) => `record ${number}`);
    ok(found.length >= durable, `seed ${seed}: ${durable} are durable, ${found.length} are there`);
    deepEqual(found, written.slice(0, found.length));
  }
});
