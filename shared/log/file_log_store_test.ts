import { deepEqual, equal, ok, rejects } from "node:assert/strict";
import { DiskError, type DiskFile, InvariantError } from "../runtime/mod.ts";
import { DiskFileWrapper, DiskWrapper, SeededRandom, settle, SimDisk } from "../testing/mod.ts";
import { FileLogStore } from "./file_log_store.ts";
import {
  appendTo,
  buildBlock,
  chunksOf,
  Collector,
  gathered,
  textRecord,
} from "./log_test_fixture.ts";
import { LogError, type LogFileInfo } from "./log_store.ts";

const DIRECTORY = "/data/log";

async function openStore(disk: SimDisk | DiskWrapper, epoch = 2): Promise<FileLogStore> {
  const store = await FileLogStore.open(disk, DIRECTORY, epoch);
  await store.recover(store.files[0]?.start ?? 0, new Collector());
  return store;
}

/** A block of one record, long enough to tell positions apart, for the store's end. */
function block(store: FileLogStore, text: string, epoch = 1): Uint8Array {
  const end = store.files.at(-1)?.end ?? 0;
  return buildBlock({ epoch, position: end, synced: end }, [textRecord(text)]);
}

async function appendFiles(store: FileLogStore, texts: readonly string[]): Promise<void> {
  for (const text of texts) await appendTo(store, [block(store, text)], true);
}

/** A store of files of one block each, `a`, `b` and so on. */
async function storeOf(disk: SimDisk | DiskWrapper, count: number): Promise<FileLogStore> {
  const store = await openStore(disk);
  await appendFiles(store, [..."abcdefghij"].slice(0, count));
  return store;
}

function names(disk: SimDisk, extension = ""): string[] {
  return disk.files().filter((path) => path.endsWith(extension))
    .map((path) => path.slice(path.lastIndexOf("/") + 1));
}

function withCode(code: LogError["code"], text: RegExp) {
  return (error: unknown) => {
    ok(error instanceof LogError, String(error));
    equal(error.code, code);
    ok(text.test(error.message), error.message);
    return true;
  };
}

Deno.test("open() refuses a log whose middle file is missing and names the gap", async () => {
  const disk = new SimDisk();
  const store = await storeOf(disk, 3);
  const [, middle, last] = store.files;
  await store.close();
  await disk.remove(`${DIRECTORY}/${names(disk, ".log")[1]}`);
  await rejects(
    FileLogStore.open(disk, DIRECTORY, 3),
    withCode(
      "missing_file",
      new RegExp(
        `"${DIRECTORY}": ${middle!.end - middle!.start} bytes are missing between position ` +
          `${middle!.start} and the file of position ${last!.start}$`,
      ),
    ),
  );
  equal(disk.openFiles, 0);
});

Deno.test("open() refuses a sealed file that is shorter than its successor says", async () => {
  const disk = new SimDisk();
  const store = await storeOf(disk, 2);
  await store.close();
  const path = `${DIRECTORY}/${names(disk, ".log")[0]}`;
  disk.writeDurable(path, disk.bytes(path).slice(0, -1));
  await rejects(
    FileLogStore.open(disk, DIRECTORY, 3),
    withCode("missing_file", /: 1 bytes are missing between/),
  );
});

Deno.test("recover() refuses to start before the oldest file or without any", async () => {
  const disk = new SimDisk();
  const store = await storeOf(disk, 2);
  const second = store.files[1]!;
  await store.remove(store.files[0]!);
  await store.close();
  const again = await FileLogStore.open(disk, DIRECTORY, 3);
  await rejects(
    again.recover(0, new Collector()),
    withCode("missing_file", /the files from position 0 on are missing/),
  );
  await disk.remove(`${DIRECTORY}/${names(disk, ".log")[0]}`);
  const empty = await FileLogStore.open(disk, DIRECTORY, 3);
  await rejects(empty.recover(second.start, new Collector()), withCode("missing_file", /missing/));
  equal(disk.openFiles, 0);
});

Deno.test("recover() refuses a log that ends before what was synced, and leaves it as it is", async () => {
  const disk = new SimDisk();
  const store = await storeOf(disk, 2);
  const { start, end } = store.files[1]!;
  await store.close();
  const path = `${DIRECTORY}/${names(disk, ".log")[1]}`;
  const cut = disk.bytes(path).slice(0, -5);
  disk.writeDurable(path, cut);
  const again = await FileLogStore.open(disk, DIRECTORY, 3);
  await rejects(
    again.recover(start, new Collector(), end),
    withCode("damaged", new RegExp(`ends at position ${end - 5}, but was on disk up to ${end}$`)),
  );
  deepEqual(disk.bytes(path), cut);
  await again.close();
  equal(disk.openFiles, 0);
});

Deno.test("recover() closes its files when the disk fails or a visitor throws", async () => {
  const disk = new SimDisk();
  await (await storeOf(disk, 3)).close();
  for (const skip of [0, 1, 2]) {
    const store = await FileLogStore.open(disk, DIRECTORY, 3);
    disk.failNext({ operation: "read", kind: "io", skip });
    await rejects(store.recover(0, new Collector()), DiskError);
    equal(disk.openFiles, 0);
  }
  const store = await FileLogStore.open(disk, DIRECTORY, 3);
  const throwing = new Collector();
  throwing.block = () => {
    throw new Error("stop");
  };
  await rejects(store.recover(0, throwing), /stop/);
  equal(disk.openFiles, 0);
});

Deno.test("recover() syncs what it read, which the process before may not have", async () => {
  const disk = new SimDisk();
  const store = await openStore(disk);
  await appendTo(store, [block(store, "first")]);
  const path = `${DIRECTORY}/${names(disk, ".log")[0]}`;
  const second = block(store, "second");
  await store.close();
  // As a process leaves it that dies between its write and its sync.
  const file = await disk.open(path, "write");
  await file.writeAt(80, second);
  file.close();
  const again = await openStore(disk, 4);
  await again.close();
  disk.crash();
  const third = await FileLogStore.open(disk, DIRECTORY, 5);
  const collector = new Collector();
  await third.recover(0, collector);
  deepEqual(collector.texts, ["first", "second"]);
  await third.close();

  disk.failNext({ operation: "sync", kind: "io" });
  const failing = await FileLogStore.open(disk, DIRECTORY, 6);
  await rejects(failing.recover(0, new Collector()), DiskError);
  equal(disk.openFiles, 0);
});

Deno.test("recover() puts a block on disk whose sync had failed, without a power cut between", async () => {
  for (let seed = 0; seed < 20; seed++) {
    const disk = new SimDisk({ random: new SeededRandom(seed) });
    const store = await openStore(disk);
    await appendTo(store, [block(store, "first")]);
    disk.failNext({ operation: "sync", kind: "io" });
    await rejects(appendTo(store, [block(store, "second")]), DiskError);
    await store.close();
    // The next process reads the block, says that it is durable, and goes on behind it.
    const again = await openStore(disk, 4);
    await appendTo(again, [block(again, "third", 4)]);
    await again.close();
    disk.crash();
    const last = await FileLogStore.open(disk, DIRECTORY, 5);
    const collector = new Collector();
    deepEqual((await last.recover(0, collector)).damage, []);
    deepEqual(collector.texts, ["first", "second", "third"]);
    await last.close();
  }
});

Deno.test("open() has the names durable that a process left behind in memory", async () => {
  for (let seed = 0; seed < 20; seed++) {
    const disk = new SimDisk({ random: new SeededRandom(seed) });
    await disk.makeDirectory(DIRECTORY);
    // As a process leaves it that dies between making its first file and syncing the folder.
    (await disk.open(`${DIRECTORY}/0000000000000000.log`, "create")).close();
    const store = await openStore(disk);
    await appendTo(store, [block(store, "first")]);
    await store.close();
    disk.crash();
    const again = await FileLogStore.open(disk, DIRECTORY, 5);
    const collector = new Collector();
    await again.recover(0, collector);
    deepEqual(collector.texts, ["first"]);
    await again.close();
  }
});

Deno.test("write() has the file's name durable before it resolves", async () => {
  for (let seed = 0; seed < 20; seed++) {
    const disk = new SimDisk({ random: new SeededRandom(seed) });
    const store = await storeOf(disk, 3);
    disk.crash();
    deepEqual(names(disk, ".log").length, 3);
    const again = await FileLogStore.open(disk, DIRECTORY, 3);
    const collector = new Collector();
    await again.recover(0, collector);
    deepEqual(collector.texts, ["a", "b", "c"]);
    await again.close();
    await store.close();
  }
});

Deno.test("write() puts the parts behind each other, for one sync", async () => {
  const disk = new SimDisk();
  const store = await openStore(disk);
  const whole = block(store, "in three parts");
  const syncs = disk.trace.count("sync");
  await appendTo(store, [whole.subarray(0, 10), whole.subarray(10, 64), whole.subarray(64)]);
  equal(disk.trace.count("sync") - syncs, 1);
  deepEqual(disk.bytes(`${DIRECTORY}/0000000000000000.log`), whole);
  deepEqual(store.files, [{ start: 0, end: whole.length }]);
  await store.close();
});

Deno.test("write() before recover() is a mistake of the caller", async () => {
  const disk = new SimDisk();
  await (await storeOf(disk, 1)).close();
  const store = await FileLogStore.open(disk, DIRECTORY, 3);
  await rejects(appendTo(store, [new Uint8Array(64)]), InvariantError);
});

Deno.test("files are named by the position of their first byte, in 16 digits", async () => {
  const disk = new SimDisk();
  const store = await storeOf(disk, 2);
  const bytes = store.files[0]!.end;
  equal(bytes, 80);
  await store.putSidecar(store.files[0]!, Uint8Array.of(1));
  await store.putCheckpoint(160, chunksOf(Uint8Array.of(2)), 0);
  deepEqual(names(disk), [
    "0000000000000000.idx",
    "0000000000000000.log",
    "0000000000000080.log",
    "0000000000000160.ckp",
  ]);
  await store.close();
});

Deno.test("open() removes half replacements and sidecars without a file, and nothing else", async () => {
  const disk = new SimDisk();
  const store = await storeOf(disk, 2);
  await store.putSidecar(store.files[0]!, Uint8Array.of(1));
  await store.putCheckpoint(8, chunksOf(Uint8Array.of(1)), 0);
  await store.close();
  const kept = names(disk);
  for (const name of ["0000000000000000.idx.tmp", "0000000000000099.idx", "x.tmp"]) {
    disk.writeDurable(`${DIRECTORY}/${name}`, Uint8Array.of(1));
  }
  disk.writeDurable(`${DIRECTORY}/notes.txt`, Uint8Array.of(1));
  await (await openStore(disk)).close();
  deepEqual(names(disk), [...kept, "notes.txt"]);
});

Deno.test("read() reads within one file up to what is durable", async () => {
  const disk = new SimDisk();
  const store = await storeOf(disk, 3);
  const into = new Uint8Array(1000);
  const { start, end } = store.files[1]!;
  equal(await store.read(start, into), end - start);
  deepEqual(into.slice(0, end - start), disk.bytes(`${DIRECTORY}/0000000000000080.log`));
  equal(await store.read(end - 3, into), 3);
  equal(await store.read(start + 1, into.subarray(0, 5)), 5);
  equal(await store.read(store.files[2]!.end, into), 0);
  await store.remove(store.files[0]!);
  equal(await store.read(0, into), 0);
  await store.close();
  equal(disk.openFiles, 0);
});

Deno.test("read() fails as the disk does, and works again afterwards", async () => {
  const disk = new SimDisk();
  const store = await storeOf(disk, 2);
  const into = new Uint8Array(80);
  disk.failNext({ operation: "open", kind: "io" });
  await rejects(store.read(0, into), DiskError);
  disk.failNext({ operation: "read", kind: "io" });
  await rejects(store.read(0, into), DiskError);
  equal(await store.read(0, into), 80);
  await store.close();
  equal(disk.openFiles, 0);
});

Deno.test("read() keeps a bounded number of files open", async () => {
  const disk = new SimDisk();
  const store = await openStore(disk);
  for (let count = 0; count < 300; count++) await appendTo(store, [block(store, "x")], true);
  const into = new Uint8Array(80);
  for (let round = 0; round < 2; round++) {
    await Promise.all(store.files.map(async (file) => {
      equal(await store.read(file.start, into.slice()), 80);
    }));
  }
  await settle();
  ok(disk.openFiles <= 129, `${disk.openFiles} files are open`);
  await store.close();
  equal(disk.openFiles, 0);
});

/** Reads of log files wait until the test lets them go. */
class GatedReads extends DiskWrapper {
  #waiting: (() => void)[] = [];
  held = 0;

  override wrapFile(file: DiskFile, _path: string): DiskFile {
    const hold = () => {
      this.held++;
      return new Promise<void>((resolve) => this.#waiting.push(resolve));
    };
    return new class extends DiskFileWrapper {
      override async readAt(position: number, into: Uint8Array): Promise<number> {
        await hold();
        return await super.readAt(position, into);
      }
    }(file);
  }

  release(): void {
    for (const wake of this.#waiting) wake();
    this.#waiting = [];
  }
}

Deno.test("remove() lets a read under way finish and closes the file after it", async () => {
  const disk = new SimDisk();
  await (await storeOf(disk, 3)).close();
  const gated = new GatedReads(disk);
  const store = await FileLogStore.open(gated, DIRECTORY, 3);
  const intos = [new Uint8Array(80), new Uint8Array(80)];
  const reads = intos.map((into) => store.read(0, into));
  await settle();
  equal(gated.held, 2);
  await store.remove(store.files[0]!);
  deepEqual(names(disk, ".log").length, 2);
  equal(disk.openFiles, 1);
  gated.release();
  deepEqual(await Promise.all(reads), [80, 80]);
  equal(new TextDecoder().decode(intos[1]!.subarray(72, 73)), "a");
  equal(disk.openFiles, 0);
  await store.close();
});

Deno.test("close() lets a read under way finish and leaves no file open", async () => {
  const disk = new SimDisk();
  await (await storeOf(disk, 2)).close();
  const gated = new GatedReads(disk);
  const store = await FileLogStore.open(gated, DIRECTORY, 3);
  const read = store.read(0, new Uint8Array(80));
  await settle();
  await store.close();
  gated.release();
  equal(await read, 80);
  equal(disk.openFiles, 0);
});

Deno.test("readSidecar() reads parts, 0 bytes where there is none or the file is gone", async () => {
  const disk = new SimDisk();
  const store = await storeOf(disk, 3);
  const [first, second] = store.files as [LogFileInfo, LogFileInfo];
  equal(await store.readSidecar(first, 0, new Uint8Array(4)), 0);
  await store.putSidecar(first, Uint8Array.of(1, 2, 3, 4, 5));
  const into = new Uint8Array(3);
  deepEqual([await store.readSidecar(first, 1, into), [...into]], [3, [2, 3, 4]]);
  equal(await store.readSidecar(first, 4, into), 1);
  equal(await store.readSidecar(first, 5, into), 0);
  await store.putSidecar(first, Uint8Array.of(9));
  deepEqual([await store.readSidecar(first, 0, into), into[0]], [1, 9]);
  equal(await store.readSidecar(second, 0, into), 0);
  await store.remove(first);
  equal(await store.readSidecar(first, 0, into), 0);
  await store.close();
  equal(disk.openFiles, 0);
});

Deno.test("readSidecar() under way survives the sidecar's replacement and the file's removal", async () => {
  const disk = new SimDisk();
  const plain = await storeOf(disk, 3);
  await plain.putSidecar(plain.files[0]!, Uint8Array.of(1, 2));
  await plain.close();
  const gated = new GatedReads(disk);
  const store = await FileLogStore.open(gated, DIRECTORY, 3);
  const [first] = store.files as [LogFileInfo];
  const [old, replaced] = [new Uint8Array(2), new Uint8Array(2)];
  const oldRead = store.readSidecar(first, 0, old);
  await settle();
  await store.putSidecar(first, Uint8Array.of(7, 8));
  const newRead = store.readSidecar(first, 0, replaced);
  await settle();
  equal(gated.held, 2);
  await store.remove(first);
  gated.release();
  deepEqual([await oldRead, [...old]], [2, [1, 2]]);
  deepEqual([await newRead, [...replaced]], [2, [7, 8]]);
  equal(disk.openFiles, 0);
  await store.close();
});

Deno.test("remove() takes the oldest file with its sidecar and refuses any other", async () => {
  const disk = new SimDisk();
  const store = await storeOf(disk, 3);
  const [first, second, third] = store.files as [LogFileInfo, LogFileInfo, LogFileInfo];
  await store.putSidecar(first, Uint8Array.of(1));
  await rejects(store.remove(second), InvariantError);
  await store.remove(first);
  await store.remove(second);
  await rejects(store.remove(third), InvariantError);
  deepEqual(names(disk), ["0000000000000160.log"]);
  await store.close();
});

Deno.test("remove() never leaves an older file without its successor, whatever a crash undoes", async () => {
  for (let seed = 0; seed < 60; seed++) {
    const random = new SeededRandom(seed);
    const disk = new SimDisk({ random: random.fork() });
    const store = await storeOf(disk, 5);
    disk.powerCutAfter(random.between(1, 6), random.pick(["before_effect", "after_effect"]));
    try {
      for (let count = 0; count < 4; count++) await store.remove(store.files[0]!);
    } catch (error) {
      ok(error instanceof DiskError, String(error));
    }
    disk.crash();
    const again = await FileLogStore.open(disk, DIRECTORY, 3);
    const collector = new Collector();
    await again.recover(again.files[0]!.start, collector);
    ok("abcde".endsWith(collector.texts.join("")), `seed ${seed}: ${collector.texts}`);
    await again.close();
    await store.close();
  }
});

Deno.test("getSidecar() is null for a sidecar that is missing or damaged anywhere", async () => {
  const disk = new SimDisk();
  const store = await storeOf(disk, 2);
  const file = store.files[0]!;
  equal(await store.getSidecar(file), null);
  const content = Uint8Array.of(1, 2, 3);
  await store.putSidecar(file, content);
  const path = `${DIRECTORY}/0000000000000000.idx`;
  const whole = disk.bytes(path);
  for (let bit = 0; bit < whole.length * 8; bit++) {
    disk.flipBit(path, bit >>> 3, bit & 7);
    equal(await store.getSidecar(file), null, `bit ${bit}`);
    disk.flipBit(path, bit >>> 3, bit & 7);
  }
  for (let length = 0; length < whole.length; length++) {
    disk.writeDurable(path, whole.slice(0, length));
    equal(await store.getSidecar(file), null, `length ${length}`);
  }
  disk.writeDurable(path, whole);
  deepEqual(await store.getSidecar(file), content);
  disk.failNext({ operation: "read", kind: "io" });
  await rejects(store.getSidecar(file), DiskError);
  await store.close();
  equal(disk.openFiles, 0);
});

Deno.test("putCheckpoint() keeps the one before it that is known to be good, and no other", async () => {
  const disk = new SimDisk();
  const store = await storeOf(disk, 1);
  let older = 0;
  for (const position of [8, 16, 400, 8000]) {
    await store.putCheckpoint(position, chunksOf(Uint8Array.of(position & 255)), older);
    deepEqual(await store.listCheckpoints(), older === 0 ? [position] : [position, older]);
    older = position;
  }
  // The newest turned out to be damaged, and the broker started from the one before.
  await store.putCheckpoint(9000, chunksOf(Uint8Array.of(9)), 400);
  deepEqual(await store.listCheckpoints(), [9000, 400]);
  deepEqual(await gathered(store.getCheckpoint(400)), [Uint8Array.of(400 & 255)]);
  await rejects(gathered(store.getCheckpoint(8000)), DiskError);
  await store.close();
  equal(disk.openFiles, 0);
});

Deno.test("putCheckpoint() is whole or not there after a power cut at any moment", async () => {
  for (let cut = 1; cut <= 10; cut++) {
    for (const moment of ["before_effect", "after_effect"] as const) {
      const disk = new SimDisk({ random: new SeededRandom(cut), tornSectorChance: 0.5 });
      const store = await storeOf(disk, 1);
      const older = new SeededRandom(1).bytes(3000);
      const newer = [new SeededRandom(2).bytes(3000), new SeededRandom(3).bytes(3000)];
      await store.putCheckpoint(8, chunksOf(older), 0);
      disk.powerCutAfter(cut, moment);
      const stored = await store.putCheckpoint(16, chunksOf(...newer), 8)
        .then(() => true, () => false);
      disk.crash();
      const again = await FileLogStore.open(disk, DIRECTORY, 3);
      const positions = await again.listCheckpoints();
      ok(positions.includes(8));
      ok(!stored || positions.includes(16));
      deepEqual(await gathered(again.getCheckpoint(8)), [older]);
      if (positions.includes(16)) deepEqual(await gathered(again.getCheckpoint(16)), newer);
      equal(names(disk, ".tmp").length, 0);
      await store.close();
    }
  }
});

Deno.test("scan() reads one sealed file and reports its damage", async () => {
  const disk = new SimDisk();
  const store = await storeOf(disk, 3);
  const collector = new Collector();
  deepEqual(await store.scan(store.files[1]!, collector), []);
  deepEqual(collector.texts, ["b"]);
  equal(collector.records[0]?.position, 80 + 64);
  disk.flipBit(`${DIRECTORY}/0000000000000080.log`, 72, 0);
  const damaged = new Collector();
  deepEqual((await store.scan(store.files[1]!, damaged)).length, 1);
  deepEqual(damaged.texts, []);
  await store.close();
  equal(disk.openFiles, 0);
});

Deno.test("read() closes the handle that was used least lately, not the oldest", async () => {
  const disk = new SimDisk();
  const store = await openStore(disk);
  for (let count = 0; count < 140; count++) await appendTo(store, [block(store, `${count}`)], true);
  const first = store.files[0]!;
  const into = new Uint8Array(8);
  await store.read(first.start, into);
  const before = disk.trace.count("open");
  for (const { start } of store.files.slice(1)) {
    await store.read(start, into);
    await store.read(first.start, into);
  }
  equal(disk.trace.count("open") - before, store.files.length - 1);
  await store.close();
  equal(disk.openFiles, 0);
});

/** Writes the same block with another text of that length, and `rest` bytes of nothing behind it. */
async function replacementOf(store: FileLogStore, info: LogFileInfo, text: string) {
  const replacement = await store.replace(info);
  const bytes = buildBlock(
    { epoch: 1, position: info.start, synced: info.end },
    [textRecord(text)],
  );
  equal(bytes.length, info.end - info.start);
  await replacement.write(info.start, bytes);
  return replacement;
}

async function textAt(store: FileLogStore, info: LogFileInfo): Promise<string> {
  const bytes = new Uint8Array(info.end - info.start);
  equal(await store.read(info.start, bytes), bytes.length);
  return new TextDecoder().decode(bytes.subarray(72)).replaceAll("\0", "");
}

Deno.test("replace() leaves the old file or the new one after a crash at any moment, never an old sidecar with the new", async () => {
  const seen = { old: 0, new: 0 };
  for (let cut = 1;; cut++) {
    for (const moment of ["before_effect", "after_effect"] as const) {
      const disk = new SimDisk({ random: new SeededRandom(cut), tornSectorChance: 0.5 });
      const store = await storeOf(disk, 3);
      const info = store.files[1]!;
      await store.putSidecar(info, Uint8Array.of(1));
      disk.powerCutAfter(cut, moment);
      let isDone = true;
      try {
        await (await replacementOf(store, info, "B")).swap(() => {});
      } catch {
        isDone = false;
      }
      disk.crash();
      const after = await FileLogStore.open(disk, DIRECTORY, 3);
      const text = await textAt(after, info);
      ok(text === "b" || text === "B", text);
      seen[text === "b" ? "old" : "new"]++;
      if (isDone) equal(text, "B");
      if (text === "B") equal(await after.getSidecar(info), null);
      deepEqual(names(disk, ".tmp"), []);
      deepEqual(after.files.map(({ start, end }) => [start, end]).at(1), [info.start, info.end]);
      await after.close();
      if (isDone && moment === "after_effect") {
        ok(seen.old > 8 && seen.new > 2, JSON.stringify(seen));
        return;
      }
    }
  }
});

Deno.test("replace() waits for who reads the file, holds back who comes, and gives each one version whole", async () => {
  for (let seed = 0; seed < 40; seed++) {
    const disk = new SimDisk({ random: new SeededRandom(seed), extraTurnsMax: 8 });
    const store = await storeOf(disk, 3);
    const info = store.files[1]!;
    await store.putSidecar(info, Uint8Array.of(1));
    const replacement = await replacementOf(store, info, "B");
    let isSwapped = false;
    const swap = replacement.swap(() => isSwapped = true);
    const reads: Promise<void>[] = [];
    for (let count = 0; count < 20; count++) {
      const begun = isSwapped;
      reads.push(
        textAt(store, info).then((text) => {
          if (begun) equal(text, "B");
          else ok(text === "b" || text === "B");
        }),
      );
      const into = new Uint8Array(1);
      reads.push(store.readSidecar(info, 0, into).then((read) => ok(!begun || read === 0)));
      for (let turns = seed % 7; turns > 0; turns--) await undefined;
    }
    await Promise.all([swap, ...reads]);
    equal(await textAt(store, store.files[1]!), "B");
    equal(store.files[1]!.version, 1);
    await replacement.abandon();
    deepEqual(names(disk, ".log").length, 3);
    await store.close();
    equal(disk.openFiles, 0);
  }
});

Deno.test("replace() of a file that goes meanwhile puts nothing in its place", async () => {
  const disk = new SimDisk();
  const store = await storeOf(disk, 3);
  const info = store.files[0]!;
  const replacement = await replacementOf(store, info, "A");
  await store.remove(info);
  let isSwapped = false;
  await rejects(replacement.swap(() => isSwapped = true), withCode("missing_file", /gone/));
  equal(isSwapped, false);
  await replacement.abandon();
  equal(names(disk).length, 2);
  await store.close();
  equal(disk.openFiles, 0);
});
