/** Blocks that are written and not synced: what the log reports, and what a kill or a power cut leaves of them. */
import { deepEqual, equal, ok, rejects } from "node:assert/strict";
import { SeededRandom, settle, SimDisk } from "../testing/mod.ts";
import { CommitLog } from "./commit_log.ts";
import { FileLogStore } from "./file_log_store.ts";
import { Collector, TestOwner } from "./log_test_fixture.ts";
import { LogError } from "./log_store.ts";

interface Opened {
  readonly sim: SimDisk;
  readonly store: FileLogStore;
  readonly owner: TestOwner;
  readonly log: CommitLog;
}

async function openLog(sim: SimDisk, fileBytes = 1 << 20, epoch = 1): Promise<Opened> {
  const store = await FileLogStore.open(sim, "/log", epoch);
  const found = await store.recover(0, new Collector());
  const owner = new TestOwner();
  const log = new CommitLog(
    store,
    owner,
    { ringBytes: 65_536, fileBytes },
    { end: found.end, fileStart: store.files.at(-1)?.start ?? found.end, epoch },
  );
  return { sim, store, owner, log };
}

/** Has one record written as a group of its own. */
async function write(log: CommitLog, text: string): Promise<void> {
  append(log, text);
  log.write();
  await settle();
}

function append(log: CommitLog, text: string): void {
  const payload = new TextEncoder().encode(text);
  log.ring.set(payload, log.begin(1, payload.length));
  log.finish();
}

/** What a start reads. */
async function readBack(sim: SimDisk, epoch: number): Promise<Collector> {
  const store = await FileLogStore.open(sim, "/log", epoch);
  const collector = new Collector();
  deepEqual((await store.recover(0, collector)).damage, []);
  await store.close();
  return collector;
}

Deno.test("CommitLog.write() reports groups as written without a sync, and one flush() syncs them all", async () => {
  const { sim, store, owner, log } = await openLog(new SimDisk());
  const syncs = sim.trace.count("sync");
  await write(log, "a");
  await write(log, "b");
  deepEqual([owner.writtenEnds, owner.durableEnds], [[80, 160], []]);
  deepEqual([log.writtenEnd, log.durableEnd, sim.trace.count("sync") - syncs], [160, 0, 0]);
  log.flush();
  await settle();
  deepEqual([owner.durableEnds, log.durableEnd], [[160], 160]);
  equal(sim.trace.count("sync") - syncs, 1);
  await store.close();
});

Deno.test("CommitLog writes the groups that are asked for during a sync before it syncs again", async () => {
  const { store, owner, log } = await openLog(new SimDisk({ extraTurnsMax: 8 }));
  append(log, "durable");
  log.flush();
  owner.onWritten = () => {
    owner.onWritten = () => {};
    append(log, "relaxed");
    log.write();
    append(log, "durable too");
    log.flush();
  };
  await log.drain();
  deepEqual([owner.writtenEnds.length, owner.durableEnds], [2, owner.writtenEnds]);
  await store.close();
});

Deno.test("CommitLog syncs a file before the next one takes blocks", async () => {
  for (let seed = 0; seed < 20; seed++) {
    const { sim, store, owner, log } = await openLog(
      new SimDisk({ random: new SeededRandom(seed) }),
      200,
    );
    for (const text of ["a", "b", "c"]) await write(log, text);
    deepEqual([owner.durableEnds, owner.sealedFiles], [[], []]);
    await write(log, "d");
    deepEqual([owner.durableEnds, owner.sealedFiles], [[240], [{ start: 0, end: 240 }]]);
    await store.close();
    sim.crash();
    const { texts } = await readBack(sim, 9);
    deepEqual(texts, ["a", "b", "c", "d"].slice(0, texts.length));
    ok(texts.length >= 3, "the first file is whole");
  }
});

Deno.test("CommitLog syncs what is written before it waits for space", async () => {
  const { sim, store, owner, log } = await openLog(new SimDisk());
  await write(log, "acknowledged");
  sim.failNext({ operation: "write", kind: "no_space" });
  let wake = () => {};
  owner.onStalled = () => new Promise((resolve) => wake = resolve);
  await write(log, "waits");
  ok(log.stalled !== null);
  deepEqual([log.durableEnd, owner.writtenEnds, owner.durableEnds], [88, [88], [88]]);
  wake();
  await settle();
  deepEqual([log.stalled, owner.writtenEnds.length], [null, 2]);
  await store.close();
  // The half of a block that was synced on the way is written again, whole.
  const store2 = await FileLogStore.open(sim, "/log", 9);
  const collector = new Collector();
  await store2.recover(0, collector);
  deepEqual(collector.texts, ["acknowledged", "waits"]);
  await store2.close();
});

Deno.test("a failed sync of written groups seals the log and reports none of them as durable", async () => {
  const { sim, store, owner, log } = await openLog(new SimDisk());
  await write(log, "a");
  sim.failNext({ operation: "sync", kind: "io" });
  log.flush();
  await settle();
  deepEqual([owner.durableEnds, owner.errors.length, log.durableEnd], [[], 1, 0]);
  await rejects(log.drain(), LogError);
  log.write();
  await settle();
  equal(owner.writtenEnds.length, 1);
  await store.close();
});

Deno.test("recover() puts every block on disk whose sync may have failed, without a power cut between", async () => {
  for (let seed = 0; seed < 60; seed++) {
    const random = new SeededRandom(seed);
    const sim = new SimDisk({ random: random.fork() });
    const { store, log } = await openLog(sim);
    append(log, "durable");
    await log.drain();
    const texts = ["durable"];
    for (let count = random.between(1, 12); count > 0; count--) {
      texts.push(`record ${count} ${"x".repeat(random.below(900))}`);
      await write(log, texts.at(-1)!);
    }
    if (random.chance(0.8)) {
      sim.failNext({ operation: "sync", kind: "io" });
      log.flush();
      await settle();
    }
    await store.close();
    // The process is gone, what the system holds is not: the next one goes on behind it.
    const again = await openLog(sim, 1 << 20, 2);
    append(again.log, "behind");
    await again.log.drain();
    await again.store.close();
    sim.crash();
    deepEqual((await readBack(sim, 3)).texts, [...texts, "behind"], `seed ${seed}`);
  }
});

Deno.test("recover() leaves what was synced where it is", async () => {
  const { sim, store, log } = await openLog(new SimDisk());
  append(log, "a");
  await log.drain();
  for (const text of ["b", "c"]) await write(log, text);
  await store.close();
  const again = await FileLogStore.open(sim, "/log", 2);
  await again.recover(0, new Collector());
  deepEqual(again.files, [{ start: 0, end: 80 }, { start: 80, end: 240 }]);
  await again.close();
});

Deno.test("a power cut leaves a beginning of what was written, and never less than was synced", async () => {
  let lost = 0;
  for (let seed = 0; seed < 150; seed++) {
    const random = new SeededRandom(seed);
    const sim = new SimDisk({ random: random.fork(), tornSectorChance: 0.3 });
    const all: string[] = [];
    let durable = 0;
    for (let epoch = 1; epoch < 8; epoch += 2) {
      const { store, log } = await openLog(sim, random.pick([1500, 1 << 20]), epoch);
      const ends: number[] = [];
      for (let count = random.between(1, 15); count > 0; count--) {
        const text = `${epoch} ${count} ${"x".repeat(random.below(900))}`;
        all.push(text);
        await write(log, text);
        ends.push(log.end);
        if (random.chance(0.2)) log.flush();
        if (random.chance(0.5)) await settle();
      }
      durable += ends.filter((end) => end <= log.durableEnd).length;
      sim.crash();
      const { texts } = await readBack(sim, epoch + 1);
      deepEqual(texts, all.slice(0, texts.length), `seed ${seed}`);
      ok(texts.length >= durable, `seed ${seed}: ${durable} are durable, found ${texts.length}`);
      lost += all.length - texts.length;
      all.length = texts.length;
      durable = texts.length;
      await store.close();
    }
  }
  ok(lost > 100, `${lost} records are lost`);
});
