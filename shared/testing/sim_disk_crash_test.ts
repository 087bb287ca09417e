/**
 * What a power cut may leave. Each property keeps, beside the disk, all the values that a byte, a
 * size or a name has had since it was last made durable: what is found afterwards must be one of
 * them, and over many seeds each kind of outcome must turn up.
 */
import { deepEqual, equal, fail, ok, rejects } from "node:assert/strict";
import { type DiskFile, readWhole } from "../runtime/mod.ts";
import { DiskWrapper, SECTOR_BYTES, SeededRandom, SimDisk, type SimDiskOptions } from "./mod.ts";

const SEEDS = 400;
const PATH = "data/file";
const FILE_BYTES_MAX = 3_000;
/** The value of a position beyond the end of the file. */
const ABSENT = -1;

function forEachSeed(
  use: (random: SeededRandom) => Promise<void>,
  seeds = SEEDS,
): () => Promise<void> {
  return async () => {
    for (let seed = 0; seed < seeds; seed++) {
      try {
        await use(new SeededRandom(seed));
      } catch (error) {
        throw new Error(`seed ${seed}`, { cause: error });
      }
    }
  };
}

async function diskWithFile(random: SeededRandom, bytes: Uint8Array, options: SimDiskOptions = {}) {
  const disk = new SimDisk({ ...options, random });
  disk.writeDurable(PATH, bytes);
  return { disk, file: await disk.open(PATH, "write") };
}

/** Writes over a file of zeros, crashes, and returns what is left. */
async function leftOf(
  random: SeededRandom,
  change: (file: DiskFile, disk: SimDisk) => Promise<void>,
  options: SimDiskOptions & { readonly bytes?: Uint8Array } = {},
): Promise<Uint8Array> {
  const { disk, file } = await diskWithFile(random, options.bytes ?? new Uint8Array(2048), options);
  await change(file, disk);
  disk.crash();
  return disk.bytes(PATH);
}

/** All values each position of the file has had since it was last synced. */
class ByteModel {
  /** Per position beyond or within the file; one entry when it is settled. */
  #histories: number[][];
  #sizes: number[];
  readonly found = { lost: 0, kept: 0 };

  constructor(bytes: Uint8Array) {
    this.#histories = [];
    this.#sizes = [];
    this.#restart(bytes);
  }

  get size(): number {
    return this.#sizes.at(-1) ?? 0;
  }

  write(position: number, bytes: Uint8Array): void {
    const size = this.size;
    for (let hole = size; hole < position; hole++) this.#histories[hole]?.push(0);
    bytes.forEach((byte, index) => this.#histories[position + index]?.push(byte));
    this.#sizes.push(Math.max(size, position + bytes.length));
  }

  truncate(size: number): void {
    for (let cut = size; cut < this.size; cut++) this.#histories[cut]?.push(ABSENT);
    for (let hole = this.size; hole < size; hole++) this.#histories[hole]?.push(0);
    this.#sizes.push(size);
  }

  sync(): void {
    this.#histories = this.#histories.map((history) => history.slice(-1));
    this.#sizes = [this.size];
  }

  /** Compares with what a crash has left, and goes on from there. */
  check(bytes: Uint8Array): void {
    if (!this.#sizes.includes(bytes.length)) fail(`size ${bytes.length} of ${this.#sizes}`);
    for (const [position, history] of this.#histories.entries()) {
      const value = bytes[position] ?? ABSENT;
      // Where only the size came through there are zeros.
      if (!history.includes(value) && !(value === 0 && history.includes(ABSENT))) {
        fail(`position ${position} is ${value}, not one of ${history}`);
      }
      if (history.length < 2) continue;
      if (value === history.at(-1)) this.found.kept++;
      else this.found.lost++;
    }
    this.#restart(bytes);
  }

  #restart(bytes: Uint8Array): void {
    this.#histories = Array.from(
      { length: 2 * FILE_BYTES_MAX },
      (_, position) => [bytes[position] ?? ABSENT],
    );
    this.#sizes = [bytes.length];
  }
}

Deno.test("crash() keeps every synced byte and any of the values an unsynced one has had", async () => {
  const found = { lost: 0, kept: 0 };
  await forEachSeed(async (random) => {
    const start = random.bytes(random.below(FILE_BYTES_MAX));
    const extraTurnsMax = random.pick([0, 3]);
    const { disk, file } = await diskWithFile(random, start, { extraTurnsMax });
    const model = new ByteModel(start);
    let open = file;
    for (let step = random.between(1, 25); step > 0; step--) {
      const choice = random.below(10);
      if (choice < 6) {
        const position = random.below(FILE_BYTES_MAX);
        const bytes = random.bytes(random.below(random.pick([10, 1500])) + 1);
        await open.writeAt(position, bytes);
        model.write(position, bytes);
      } else if (choice < 7) {
        const size = random.below(FILE_BYTES_MAX);
        await open.truncate(size);
        model.truncate(size);
      } else if (choice < 9) {
        await open.syncData();
        model.sync();
      } else {
        disk.crash();
        model.check(disk.bytes(PATH));
        open = await disk.open(PATH, "write");
        equal(await open.size(), model.size);
      }
    }
    disk.crash();
    model.check(await readWhole(disk, PATH, FILE_BYTES_MAX * 2));
    found.lost += model.found.lost;
    found.kept += model.found.kept;
  })();
  ok(found.lost > 1000 && found.kept > 1000, JSON.stringify(found));
});

Deno.test("crash() keeps or loses the sectors of a write independently", async () => {
  const outcomes = new Set<string>();
  await forEachSeed(async (random) => {
    const left = await leftOf(random, (file) => file.writeAt(0, new Uint8Array(3 * 512).fill(1)));
    equal(left.length, 2048);
    for (let sector = 0; sector < 4; sector++) {
      const bytes = left.subarray(sector * SECTOR_BYTES, (sector + 1) * SECTOR_BYTES);
      ok(bytes.every((byte) => byte === bytes[0]), "a sector is whole");
    }
    equal(left[1536], 0);
    outcomes.add([left[0], left[512], left[1024]].join());
  })();
  equal(outcomes.size, 8);
});

Deno.test("crash() may keep a later write and lose an earlier one", async () => {
  const outcomes = new Set<string>();
  await forEachSeed(async (random) => {
    const left = await leftOf(random, async (file) => {
      await file.writeAt(0, new Uint8Array(100).fill(1));
      await file.writeAt(1000, new Uint8Array(10).fill(2));
    });
    outcomes.add(`${left[0]},${left[1000]}`);
  })();
  deepEqual([...outcomes].sort(), ["0,0", "0,2", "1,0", "1,2"]);
});

Deno.test("crash() leaves a sector in a state it has had, never a mix of them", async () => {
  const outcomes = new Set<string>();
  await forEachSeed(async (random) => {
    const left = await leftOf(random, async (file) => {
      await file.writeAt(0, Uint8Array.of(1, 1, 0));
      await file.writeAt(1, Uint8Array.of(2, 2));
    });
    outcomes.add(left.subarray(0, 3).join());
  })();
  deepEqual([...outcomes].sort(), ["0,0,0", "1,1,0", "1,2,2"]);
});

Deno.test("crash() may keep a grown size without the data, as zeros, or the old size", async () => {
  const outcomes = new Set<string>();
  await forEachSeed(async (random) => {
    const left = await leftOf(random, (file) => file.writeAt(4, new Uint8Array(600).fill(1)), {
      bytes: Uint8Array.of(9, 9, 9, 9),
    });
    deepEqual(left.subarray(0, 4), Uint8Array.of(9, 9, 9, 9));
    outcomes.add(`${left.length}:${left[4]}:${left[600]}`);
  })();
  deepEqual([...outcomes].sort(), [
    "4:undefined:undefined",
    "604:0:0",
    "604:0:1",
    "604:1:0",
    "604:1:1",
  ]);
});

Deno.test("crash() never brings back what a synced truncate cut, nor revives a lost tail as data", async () => {
  await forEachSeed(async (random) => {
    const left = await leftOf(random, async (file) => {
      await file.writeAt(0, new Uint8Array(2048).fill(7));
      await file.truncate(100);
      await file.syncData();
      await file.truncate(2000);
    });
    ok(left.length === 100 || left.length === 2000);
    ok(left.subarray(0, 100).every((byte) => byte === 7));
    ok(left.subarray(100).every((byte) => byte === 0));
  })();
});

Deno.test("crash() keeps what a lost truncate would have cut, and then nothing written there later", async () => {
  const outcomes = new Set<string>();
  await forEachSeed(async (random) => {
    const left = await leftOf(random, async (file) => {
      await file.truncate(512);
      await file.writeAt(512, new Uint8Array(512).fill(1));
    }, { bytes: new Uint8Array(2048).fill(7) });
    ok(left.subarray(0, 512).every((byte) => byte === 7));
    outcomes.add(`${left.length}:${left[512]}`);
  })();
  deepEqual([...outcomes].sort(), ["1024:0", "1024:1", "2048:7", "512:undefined"]);
});

Deno.test("crash() tears sectors only when asked, and only within the range of the write", async () => {
  let torn = 0;
  await forEachSeed(async (random) => {
    const change = async (file: DiskFile) => {
      await file.writeAt(0, new Uint8Array(2048).fill(1));
      await file.syncData();
      await file.writeAt(700, new Uint8Array(600).fill(2));
    };
    const left = await leftOf(random, change, { tornSectorChance: 1 });
    ok(left.subarray(0, 700).every((byte) => byte === 1));
    ok(left.subarray(1300).every((byte) => byte === 1));
    if (left.some((byte) => byte !== 1 && byte !== 2)) torn++;
    const whole = await leftOf(random, change);
    ok(whole.every((byte) => byte === 1 || byte === 2));
  }, 100)();
  ok(torn > 10, `${torn} torn`);
});

Deno.test("syncData() covers what was heard of before its call, and the rest only by luck", async () => {
  let lost = 0;
  await forEachSeed(async (random) => {
    const left = await leftOf(random, async (file) => {
      await file.writeAt(0, Uint8Array.of(1));
      // Without delays this has its effect before the sync, but nobody has been told.
      const second = file.writeAt(1024, Uint8Array.of(2));
      await Promise.all([second, file.syncData()]);
    });
    equal(left[0], 1);
    if (left[1024] === 0) lost++;
  }, 100)();
  ok(lost > 10, `${lost} lost`);
});

Deno.test("syncData() keeps its promise when operations are delayed and overlap", async () => {
  await forEachSeed(async (random) => {
    const left = await leftOf(random, async (file) => {
      await file.writeAt(0, Uint8Array.of(1));
      const second = file.writeAt(1024, Uint8Array.of(2));
      const sync = file.syncData();
      await file.writeAt(1536, Uint8Array.of(3));
      await Promise.all([second, sync]);
    }, { extraTurnsMax: 8 });
    equal(left[0], 1);
  }, 100)();
});

Deno.test("syncData() of one handle covers the writes of another, and of no other file", async () => {
  const others = new Set<number>();
  await forEachSeed(async (random) => {
    const { disk, file } = await diskWithFile(random, new Uint8Array(10));
    disk.writeDurable("data/other", new Uint8Array(10));
    const [second, other] = [await disk.open(PATH, "read"), await disk.open("data/other", "write")];
    await file.writeAt(0, Uint8Array.of(1));
    await other.writeAt(0, Uint8Array.of(1));
    await second.syncData();
    disk.crash();
    equal(disk.bytes(PATH)[0], 1);
    others.add(disk.bytes("data/other")[0] ?? ABSENT);
  }, 100)();
  deepEqual([...others].sort(), [0, 1]);
});

Deno.test("a new file may lose its name, or keep the name and lose the content, until both are synced", async () => {
  const outcomes = new Set<string>();
  await forEachSeed(async (random) => {
    const disk = new SimDisk({ random });
    await disk.makeDirectory("data");
    const file = await disk.open(PATH, "create");
    await file.writeAt(0, Uint8Array.of(1));
    const synced = random.pick(["neither", "bytes", "name", "both"]);
    if (synced === "bytes" || synced === "both") await file.syncData();
    if (synced === "name" || synced === "both") await disk.syncDirectory("data");
    disk.crash();
    const left = disk.files().length === 0 ? "gone" : disk.bytes(PATH).join() || "empty";
    outcomes.add(`${synced}: ${left}`);
  })();
  deepEqual([...outcomes].sort(), [
    "both: 1",
    "bytes: 1",
    "bytes: gone",
    "name: 0",
    "name: 1",
    "name: empty",
    "neither: 0",
    "neither: 1",
    "neither: empty",
    "neither: gone",
  ]);
});

/** All files each name has stood for since its folder was last synced; 0 is none. */
class NameModel {
  readonly histories = new Map<string, number[]>();
  /** Renames since the last sync: the file, and both names. */
  renames: { file: number; from: string; to: string }[] = [];

  current(name: string): number {
    return this.histories.get(name)?.at(-1) ?? 0;
  }

  set(name: string, file: number): void {
    this.histories.set(name, [...(this.histories.get(name) ?? [0]), file]);
  }

  sync(folder: string): void {
    for (const [name, history] of this.histories) {
      if (name.startsWith(folder)) this.histories.set(name, history.slice(-1));
    }
    this.renames = this.renames.filter(({ from, to }) =>
      !from.startsWith(folder) && !to.startsWith(folder)
    );
  }
}

Deno.test("crash() keeps synced names, a prefix of each name's other changes, and renames whole", async () => {
  const found = { old: 0, latest: 0, renameKept: 0, renameLost: 0 };
  await forEachSeed(async (random) => {
    const disk = new SimDisk({ random, extraTurnsMax: random.pick([0, 4]) });
    const folders = ["one", "two"];
    for (const folder of folders) await disk.makeDirectory(folder);
    const names = folders.flatMap((folder) => ["a", "b", "c"].map((name) => `${folder}/${name}`));
    const model = new NameModel();
    let lastFile = 0;
    for (let step = random.between(1, 30); step > 0; step--) {
      const name = random.pick(names);
      const present = model.current(name) !== 0;
      if (random.chance(0.15)) {
        const folder = random.pick(folders);
        await disk.syncDirectory(folder);
        model.sync(folder);
      } else if (!present) {
        const file = await disk.open(name, "create");
        await file.writeAt(0, Uint8Array.of(++lastFile));
        await file.syncData();
        file.close();
        model.set(name, lastFile);
      } else if (random.chance(0.3)) {
        await disk.remove(name);
        model.set(name, 0);
      } else {
        // Within a folder: across folders one sync settles names of the other folder as well.
        const to = random.pick(names.filter((other) => other !== name && other[0] === name[0]));
        const file = model.current(name);
        await disk.rename(name, to);
        model.set(name, 0);
        model.set(to, file);
        model.renames.push({ file, from: name, to });
      }
    }
    disk.crash();
    const left = new Map(disk.files().map((name) => [name, disk.bytes(name)[0] ?? 0]));
    for (const [name, history] of model.histories) {
      const file = left.get(name) ?? 0;
      ok(history.includes(file), `${name} is ${file}, not one of ${history}`);
      if (history.length < 2) continue;
      if (file === history.at(-1)) found.latest++;
      else found.old++;
    }
    equal(new Set(left.values()).size, left.size, "no file has two names");
    for (const { file, from, to } of model.renames) {
      // A file that was moved once and touched by nothing else has exactly one of the names.
      const once = model.renames.filter((rename) => rename.file === file).length === 1;
      const history = model.histories.get(from) ?? [];
      const durable = history[0] === file && model.histories.get(to)?.at(-1) === file;
      if (!once || !durable) continue;
      const places = [left.get(from) === file, left.get(to) === file].filter((is) => is).length;
      equal(places, 1, `file ${file} is at ${from} or at ${to}`);
      if (left.get(to) === file) found.renameKept++;
      else found.renameLost++;
    }
  }, 2 * SEEDS)();
  for (const [outcome, count] of Object.entries(found)) ok(count > 20, `${outcome}: ${count}`);
});

Deno.test("crash() keeps a rename between folders whole, and a sync of either folder keeps it", async () => {
  const outcomes = new Set<string>();
  await forEachSeed(async (random) => {
    const disk = new SimDisk({ random });
    await disk.makeDirectory("there");
    disk.writeDurable("here/file", Uint8Array.of(1));
    await disk.rename("here/file", "there/file");
    const synced = random.pick(["none", "here", "there"]);
    if (synced !== "none") await disk.syncDirectory(synced);
    disk.crash();
    outcomes.add(`${synced}: ${disk.files()}`);
  }, 100)();
  deepEqual([...outcomes].sort(), [
    "here: there/file",
    "none: here/file",
    "none: there/file",
    "there: there/file",
  ]);
});

Deno.test("syncDirectory() covers what was heard of before its call, and the rest only by luck", async () => {
  let lost = 0;
  await forEachSeed(async (random) => {
    const disk = new SimDisk({ random });
    await disk.makeDirectory("data");
    await disk.open("data/first", "create");
    // Without delays this has its effect before the sync, but nobody has been told.
    const second = disk.open("data/second", "create");
    await Promise.all([second, disk.syncDirectory("data")]);
    disk.crash();
    equal(disk.files()[0], "data/first");
    if (disk.files().length === 1) lost++;
  }, 100)();
  ok(lost > 10, `${lost} lost`);
});

Deno.test("syncDirectory() of a rename's folder settles what came before it in the other folder", async () => {
  await forEachSeed(async (random) => {
    const disk = new SimDisk({ random });
    await disk.makeDirectory("here");
    await disk.makeDirectory("there");
    await disk.open("here/file", "create");
    await disk.rename("here/file", "there/file");
    await disk.syncDirectory("there");
    disk.crash();
    deepEqual(disk.files(), ["there/file"]);
  }, 50)();
});

Deno.test("makeDirectory() is durable once it resolves", async () => {
  const disk = new SimDisk();
  await disk.makeDirectory("a/b");
  disk.crash();
  deepEqual(await disk.list("a"), ["b"]);
});

Deno.test("crash() closes all handles and drops all locks", async () => {
  const { disk, file } = await diskWithFile(new SeededRandom(1), Uint8Array.of(1));
  const lock = await disk.lock("data/lock");
  disk.crash();
  await rejects(file.writeAt(0, Uint8Array.of(1)), { kind: "closed" });
  await rejects(file.readAt(0, new Uint8Array(1)), { kind: "closed" });
  await rejects(file.syncData(), { kind: "closed" });
  await rejects(file.size(), { kind: "closed" });
  file.close();
  equal(disk.openFiles, 0);
  const again = await disk.lock("data/lock");
  // The lock of the life before must not release that of this one.
  lock.release();
  await rejects(disk.lock("data/lock"), { kind: "locked" });
  again.release();
});

Deno.test("crash() fails what is under way, without an effect on the new life", async () => {
  await forEachSeed(async (random) => {
    const { disk, file } = await diskWithFile(random, Uint8Array.of(1), { extraTurnsMax: 20 });
    const results = Promise.allSettled([
      file.writeAt(0, Uint8Array.of(2)),
      disk.rename(PATH, "data/other"),
      disk.open("data/new", "create"),
    ]);
    disk.crash();
    const before = disk.files().join();
    for (const result of await results) {
      ok(result.status === "rejected");
      ok(["io", "closed"].includes(result.reason.kind), result.reason);
    }
    equal(disk.files().join(), before);
  }, 50)();
});

Deno.test("the same seed and the same calls leave the same disk", async () => {
  const run = async (seed: number) => {
    const { disk, file } = await diskWithFile(new SeededRandom(seed), new Uint8Array(100), {
      extraTurnsMax: 3,
      tornSectorChance: 0.5,
    });
    for (let index = 0; index < 20; index++) {
      await file.writeAt(index * 400, new Uint8Array(600).fill(index + 1));
      await (await disk.open(`data/${index}`, "create")).writeAt(0, Uint8Array.of(index));
    }
    disk.crash();
    return disk.files().map((path) => `${path} ${disk.bytes(path)}`).join("\n");
  };
  equal(await run(5), await run(5));
  ok(await run(5) !== await run(6));
});

Deno.test("a DiskWrapper whose syncDirectory() does nothing is caught by a crash", async () => {
  class ForgetsNames extends DiskWrapper {
    override syncDirectory(): Promise<void> {
      return Promise.resolve();
    }
  }
  let lost = 0;
  await forEachSeed(async (random) => {
    const inner = new SimDisk({ random });
    const disk = new ForgetsNames(inner);
    await disk.makeDirectory("data");
    const file = await disk.open(PATH, "create");
    await disk.syncDirectory();
    file.close();
    inner.crash();
    if (inner.files().length === 0) lost++;
  }, 50)();
  ok(lost > 5, `${lost} lost`);
});
