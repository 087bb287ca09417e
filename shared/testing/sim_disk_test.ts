import { deepEqual, equal, match, ok, rejects, throws } from "node:assert/strict";
import { type DiskFile, readWhole } from "../runtime/mod.ts";
import {
  DiskFileWrapper,
  DiskWrapper,
  type PowerCutMoment,
  SeededRandom,
  SimDisk,
  type SimDiskOperation,
} from "./mod.ts";

const PATH = "data/file";

async function diskWithFile(bytes: Uint8Array, seed = 1) {
  const disk = new SimDisk({ random: new SeededRandom(seed) });
  disk.writeDurable(PATH, bytes);
  return { disk, file: await disk.open(PATH, "write") };
}

interface Mutation {
  readonly operation: SimDiskOperation;
  change(disk: SimDisk, file: DiskFile): Promise<unknown>;
  /** Whether the change is on the disk, seen after a crash. */
  isDurable(disk: SimDisk): Promise<boolean>;
  /** What {@linkcode isDurable} may say when the power went before the effect. */
  readonly before: readonly boolean[];
}

/** The operations that make something durable, so that there is a difference to see. */
const MUTATIONS: readonly Mutation[] = [
  {
    operation: "sync",
    change: (_disk, file) => file.syncData(),
    isDurable: (disk) => Promise.resolve(disk.bytes(PATH)[0] === 1),
    before: [false, true],
  },
  {
    operation: "syncDirectory",
    change: (disk) => disk.syncDirectory("data"),
    isDurable: (disk) => Promise.resolve(disk.files().includes("data/new")),
    before: [false, true],
  },
  {
    operation: "makeDirectory",
    change: (disk) => disk.makeDirectory("deep/er"),
    isDurable: (disk) => disk.list("deep/er").then(() => true, () => false),
    before: [false],
  },
];

for (const { operation, change, isDurable, before } of MUTATIONS) {
  for (const moment of ["before_effect", "after_effect"] satisfies PowerCutMoment[]) {
    Deno.test(`powerCutAfter() hits ${operation} ${moment}`, async () => {
      const kept = new Set<boolean>();
      for (let seed = 0; seed < 40; seed++) {
        const { disk, file } = await diskWithFile(new Uint8Array(10), seed);
        await disk.open("data/new", "create");
        await file.writeAt(0, Uint8Array.of(1));
        disk.powerCutAfter(1, moment);
        await rejects(change(disk, file), { name: "DiskError", kind: "io" });
        ok(disk.poweredOff);
        disk.crash();
        ok(!disk.poweredOff);
        kept.add(await isDurable(disk));
      }
      deepEqual([...kept].sort(), moment === "after_effect" ? [true] : before);
    });
  }
}

Deno.test("powerCutAfter() counts every kind of operation that changes the disk, and no other", async () => {
  const operations: ((disk: SimDisk, file: DiskFile) => Promise<unknown>)[] = [
    (disk) => disk.open("data/new", "create"),
    (_disk, file) => file.writeAt(0, Uint8Array.of(1)),
    (_disk, file) => file.syncData(),
    (_disk, file) => file.truncate(1),
    (disk) => disk.rename("data/new", "data/newer"),
    (disk) => disk.remove("data/newer"),
    (disk) => disk.makeDirectory("folder"),
    (disk) => disk.syncDirectory("data"),
  ];
  for (let cut = 1; cut <= operations.length; cut++) {
    const { disk, file } = await diskWithFile(Uint8Array.of(0));
    disk.powerCutAfter(cut);
    for (const [index, operation] of operations.entries()) {
      equal(disk.poweredOff, index >= cut);
      const running = operation(disk, file);
      if (index < cut - 1) await running;
      else await rejects(running, { name: "DiskError", kind: "io" });
      const reading = Promise.all([
        file.readAt(0, new Uint8Array(1)),
        file.size(),
        disk.list("data"),
        disk.space("data"),
      ]);
      if (index < cut - 1) await reading;
      else await rejects(reading, { name: "DiskError", kind: "io" });
    }
    equal(disk.trace.mutations, cut);
    disk.crash();
    equal((await readWhole(disk, PATH, 10)).length, 1);
  }
});

Deno.test("powerCutAfter() fails what is under way, with or without its effect", async () => {
  const outcomes = new Set<string>();
  for (let seed = 0; seed < 30; seed++) {
    const disk = new SimDisk({ random: new SeededRandom(seed), extraTurnsMax: 6 });
    disk.writeDurable(PATH, Uint8Array.of(0));
    const files = [await disk.open(PATH, "write"), await disk.open(PATH, "write")];
    disk.powerCutAfter(2);
    const writes = files.map((file, index) => file.writeAt(index, Uint8Array.of(1)));
    const results = await Promise.allSettled(writes);
    ok(disk.poweredOff);
    const bytes = disk.bytes(PATH);
    results.forEach(({ status }, index) => outcomes.add(`${status}, ${bytes[index] ?? 0}`));
  }
  // One write has its effect, and may or may not be heard of before the other cuts the power.
  deepEqual([...outcomes].sort(), ["fulfilled, 1", "rejected, 0", "rejected, 1"]);
});

Deno.test("failNext() fails one matching operation with its kind", async () => {
  const { disk, file } = await diskWithFile(Uint8Array.of(1, 2));
  disk.failNext({ operation: "rename", kind: "io" });
  await rejects(disk.rename(PATH, "data/to"), { name: "DiskError", kind: "io" });
  deepEqual(disk.files(), [PATH]);
  await disk.rename(PATH, "data/to");

  disk.failNext({ operation: "create", kind: "no_space", path: "data//x" });
  await disk.open("data/y", "create");
  await rejects(disk.open("data/x", "create"), { kind: "no_space" });
  await disk.open("data/x", "create");

  disk.failNext({ operation: "read", kind: "io", skip: 2 });
  const into = new Uint8Array(1);
  await file.readAt(0, into);
  await file.readAt(0, into);
  await rejects(file.readAt(0, into), { kind: "io" });
  await file.readAt(0, into);
});

Deno.test("failNext() of a write leaves some first bytes of it", async () => {
  const lengths = new Set<number>();
  for (let seed = 0; seed < 60; seed++) {
    const { disk, file } = await diskWithFile(new Uint8Array(4), seed);
    disk.failNext({ operation: "write", kind: "io" });
    await rejects(file.writeAt(0, Uint8Array.of(1, 1, 1)), { kind: "io" });
    const bytes = disk.bytes(PATH);
    const length = bytes.indexOf(0);
    deepEqual(bytes, Uint8Array.from({ length: 4 }, (_, index) => index < length ? 1 : 0));
    lengths.add(length);
  }
  deepEqual([...lengths].sort(), [0, 1, 2, 3]);
});

Deno.test("failNext() of a sync settles what was pending: a later sync brings nothing back", async () => {
  const kept = new Set<number>();
  for (let seed = 0; seed < 40; seed++) {
    const { disk, file } = await diskWithFile(new Uint8Array(4), seed);
    await file.writeAt(0, Uint8Array.of(1));
    disk.failNext({ operation: "sync", kind: "io" });
    await rejects(file.syncData(), { kind: "io" });
    equal(disk.bytes(PATH)[0], 1, "readers see the page cache");
    await file.syncData();
    disk.crash();
    kept.add(disk.bytes(PATH)[0] ?? -1);
  }
  deepEqual([...kept].sort(), [0, 1]);
});

Deno.test("failNext() of a folder's sync settles its names: a later sync brings nothing back", async () => {
  const kept = new Set<number>();
  for (let seed = 0; seed < 40; seed++) {
    const { disk } = await diskWithFile(Uint8Array.of(1), seed);
    await disk.open("data/new", "create");
    disk.failNext({ operation: "syncDirectory", kind: "io" });
    await rejects(disk.syncDirectory("data"), { kind: "io" });
    await disk.syncDirectory("data");
    disk.crash();
    kept.add(disk.files().length);
  }
  deepEqual([...kept].sort(), [1, 2]);
});

Deno.test("a full disk takes what fits of a write and fails with no_space", async () => {
  const { disk, file } = await diskWithFile(Uint8Array.of(1, 1));
  disk.setCapacity(5);
  deepEqual(await disk.space("data"), { totalBytes: 5, freeBytes: 3 });
  await rejects(file.writeAt(1, new Uint8Array(10).fill(2)), { kind: "no_space" });
  deepEqual(disk.bytes(PATH), Uint8Array.of(1, 2, 2, 2, 2));
  await file.writeAt(0, new Uint8Array(5).fill(3));
  await rejects(file.truncate(6), { kind: "no_space" });
  await rejects(file.writeAt(9, Uint8Array.of(1)), { kind: "no_space" });
  equal(await file.size(), 5);
  equal((await disk.space("data")).freeBytes, 0);
});

Deno.test("space is free again after a truncate, and after the last handle of a removed file", async () => {
  const { disk, file } = await diskWithFile(new Uint8Array(10));
  disk.setCapacity(10);
  await file.truncate(4);
  equal((await disk.space("data")).freeBytes, 6);
  await disk.remove(PATH);
  equal((await disk.space("data")).freeBytes, 6);
  file.close();
  equal((await disk.space("data")).freeBytes, 10);
});

Deno.test("setCapacity() below what is used means a full disk", async () => {
  const { disk, file } = await diskWithFile(new Uint8Array(10));
  disk.setCapacity(5);
  equal((await disk.space("data")).freeBytes, 0);
  await file.writeAt(0, new Uint8Array(10));
  await rejects(file.writeAt(10, Uint8Array.of(1)), { kind: "no_space" });
});

Deno.test("flipBit() damages the file for readers and across a crash", async () => {
  const { disk } = await diskWithFile(Uint8Array.of(0, 0));
  disk.flipBit(PATH, 1, 3);
  deepEqual(disk.bytes(PATH), Uint8Array.of(0, 8));
  disk.crash();
  deepEqual(disk.bytes(PATH), Uint8Array.of(0, 8));
  throws(() => disk.flipBit(PATH, 2, 0));
});

Deno.test("writeDurable() survives a crash, with its folders, over pending changes too", async () => {
  for (let seed = 0; seed < 20; seed++) {
    const { disk, file } = await diskWithFile(new Uint8Array(10), seed);
    await file.writeAt(0, Uint8Array.of(9));
    await disk.remove(PATH);
    disk.writeDurable(PATH, Uint8Array.of(1));
    disk.writeDurable("far/away/file", Uint8Array.of(2));
    disk.crash();
    deepEqual(disk.bytes(PATH), Uint8Array.of(1));
    deepEqual(disk.bytes("far/away/file"), Uint8Array.of(2));
  }
});

Deno.test("bytes() is a copy", async () => {
  const { disk } = await diskWithFile(Uint8Array.of(1));
  disk.bytes(PATH)[0] = 2;
  deepEqual(disk.bytes(PATH), Uint8Array.of(1));
});

Deno.test("writeAt() takes its bytes when it is called or later, and needs them no more once heard", async () => {
  const { disk, file } = await diskWithFile(Uint8Array.of(1));
  const bytes = Uint8Array.of(2);
  await file.writeAt(0, bytes);
  bytes[0] = 3;
  await file.syncData();
  disk.crash();
  deepEqual(disk.bytes(PATH), Uint8Array.of(2));
});

Deno.test("openFiles counts handles, so that a test can find a leak", async () => {
  const { disk, file } = await diskWithFile(Uint8Array.of(1));
  const second = await disk.open(PATH, "read");
  equal(disk.openFiles, 2);
  second.close();
  second.close();
  equal(disk.openFiles, 1);
  file.close();
  equal(disk.openFiles, 0);
});

Deno.test("extraTurnsMax lets operations overtake each other, differently for each seed", async () => {
  const orders = new Set<string>();
  for (let seed = 0; seed < 40; seed++) {
    const disk = new SimDisk({ random: new SeededRandom(seed), extraTurnsMax: 5 });
    const order: string[] = [];
    await Promise.all(["a", "b", "c"].map(async (path) => {
      await disk.open(path, "create");
      order.push(path);
    }));
    orders.add(order.join(""));
  }
  equal(orders.size, 6);
});

Deno.test("the trace counts operations and keeps the latest, oldest first", async () => {
  const disk = new SimDisk({ traceEntriesMax: 3 });
  const file = await disk.open("file", "create");
  await file.writeAt(0, Uint8Array.of(1, 2));
  await file.syncData();
  disk.failNext({ operation: "rename", kind: "io" });
  await rejects(disk.rename("file", "to"));
  deepEqual(disk.trace.lines(), ["2: sync file", "3: rename file to", "4: failure io"]);
  disk.crash();
  match(disk.trace.lines().join("\n"), /5: crash$/);
  equal(disk.trace.count("write"), 1);
  equal(disk.trace.count("truncate"), 0);
  equal(disk.trace.mutations, 4);
});

Deno.test("the trace names the power cut and may be switched off", async () => {
  const disk = new SimDisk();
  disk.powerCutAfter(1, "after_effect");
  await rejects(disk.open("file", "create"));
  deepEqual(disk.trace.lines(), ["0: create file", "1: power cut after_effect"]);
  const silent = new SimDisk({ traceEntriesMax: 0 });
  await silent.open("file", "create");
  deepEqual(silent.trace.lines(), []);
  equal(silent.trace.count("create"), 1);
});

Deno.test("a path has one spelling", async () => {
  const disk = new SimDisk();
  await disk.makeDirectory("./a//b/");
  await disk.open("a/b//c", "create");
  deepEqual(disk.files(), ["a/b/c"]);
  deepEqual(await disk.list("a/"), ["b"]);
  deepEqual(await disk.list("."), ["a"]);
  deepEqual(await disk.list("/"), []);
});

Deno.test("DiskWrapper passes everything on, and lets one operation of a file be replaced", async () => {
  class DropsWrites extends DiskFileWrapper {
    override writeAt(): Promise<void> {
      return Promise.resolve();
    }
  }
  class LosesFile extends DiskWrapper {
    override wrapFile(file: DiskFile, path: string): DiskFile {
      return path === "lost" ? new DropsWrites(file) : file;
    }
  }
  const disk = new LosesFile(new SimDisk());
  for (const path of ["lost", "kept"]) {
    const file = await disk.open(path, "create");
    await file.writeAt(0, Uint8Array.of(1));
    await file.syncData();
    await file.truncate(await file.size());
    equal(await file.readAt(0, new Uint8Array(1)), path === "kept" ? 1 : 0);
    file.close();
  }
  await disk.rename("kept", "moved");
  await disk.remove("lost");
  await disk.makeDirectory("folder");
  await disk.syncDirectory(".");
  (await disk.lock("lock")).release();
  deepEqual(await disk.list("."), ["folder", "lock", "moved"]);
  ok((await disk.space(".")).freeBytes > 0);
});
