import { deepEqual, equal, ok } from "node:assert/strict";
import { SeededRandom, SimDisk } from "../testing/mod.ts";
import { FileLogStore } from "./file_log_store.ts";
import { appendTo, buildBlock, Collector, textRecord } from "./log_test_fixture.ts";

const DIRECTORY = "/log";
const FIRST = `${DIRECTORY}/${"0".repeat(16)}.log`;
const FILE_BYTES = 4096;

async function openStore(disk: SimDisk, epoch: number, syncedTo = 0): Promise<{
  store: FileLogStore;
  texts: string[];
  tornBytes: number;
}> {
  const store = await FileLogStore.open(disk, DIRECTORY, epoch, FILE_BYTES);
  const collector = new Collector();
  const { tornBytes } = await store.recover(
    store.files[0]?.start ?? 0,
    collector,
    syncedTo,
  );
  return { store, texts: collector.texts, tornBytes };
}

async function append(store: FileLogStore, epoch: number, text: string, roll = false) {
  const end = store.files.at(-1)?.end ?? 0;
  const block = buildBlock({ epoch, position: end, synced: end }, [textRecord(text)]);
  await appendTo(store, [block], roll);
}

Deno.test("sync() fills the last file with zeros ahead of the log and not beyond its size", async () => {
  const disk = new SimDisk();
  const { store } = await openStore(disk, 1);
  await append(store, 1, "a");
  await store.close();
  const bytes = disk.bytes(FIRST);
  equal(bytes.length, FILE_BYTES);
  ok(bytes.subarray(store.files[0]!.end).every((byte) => byte === 0));
});

Deno.test("sync() writes no zeros behind a large group, nor when it is not asked to", async () => {
  const disk = new SimDisk();
  const store = await FileLogStore.open(disk, DIRECTORY, 1, 1 << 20);
  await store.recover(0, new Collector());
  await append(store, 1, "x".repeat(64 * 1024));
  await store.close();
  equal(disk.bytes(FIRST).length, store.files[0]!.end);

  const other = new SimDisk();
  const plain = await FileLogStore.open(other, DIRECTORY, 1);
  await plain.recover(0, new Collector());
  await append(plain, 1, "a");
  await plain.close();
  equal(other.bytes(FIRST).length, plain.files[0]!.end);
});

Deno.test("recover() takes zeros for the end of the log, keeps them and counts nothing as torn", async () => {
  const disk = new SimDisk();
  const first = await openStore(disk, 1);
  for (const text of ["a", "b"]) await append(first.store, 1, text);
  await first.store.close();

  const second = await openStore(disk, 2, first.store.files[0]!.end);
  deepEqual(second.texts, ["a", "b"]);
  equal(second.tornBytes, 0);
  equal(disk.bytes(FIRST).length, FILE_BYTES);
  await append(second.store, 2, "c");
  await second.store.close();

  const third = await openStore(disk, 3);
  deepEqual(third.texts, ["a", "b", "c"]);
  equal(third.tornBytes, 0);
});

Deno.test("recover() cuts a tail off whose header is zero but which is not zero throughout", async () => {
  const disk = new SimDisk();
  const { store } = await openStore(disk, 1);
  await append(store, 1, "a");
  await store.close();
  const bytes = disk.bytes(FIRST).slice();
  bytes[bytes.length - 1] = 1;
  disk.writeDurable(FIRST, bytes);

  const second = await openStore(disk, 2, store.files[0]!.end);
  deepEqual(second.texts, ["a"]);
  equal(second.tornBytes, FILE_BYTES - store.files[0]!.end);
  equal(disk.bytes(FIRST).length, store.files[0]!.end);
});

Deno.test("a full disk for zeros costs no group", async () => {
  const disk = new SimDisk({ capacityBytes: 1024 });
  const { store } = await openStore(disk, 1);
  for (const text of ["a", "b", "c"]) await append(store, 1, text);
  await store.close();
  disk.setCapacity(1 << 20);
  deepEqual((await openStore(disk, 2)).texts, ["a", "b", "c"]);
});

Deno.test("every group that was synced survives a crash among zeros, over rolls", async () => {
  for (let seed = 1; seed <= 200; seed++) {
    const random = new SeededRandom(seed);
    const disk = new SimDisk({ random, tornSectorChance: 0.2 });
    const synced: string[] = [];
    for (let epoch = 1; epoch <= 4; epoch++) {
      const { store, texts } = await openStore(disk, epoch);
      deepEqual(texts.slice(0, synced.length), synced, `seed ${seed}`);
      synced.splice(0, synced.length, ...texts);
      disk.powerCutAfter(1 + random.below(40), "after_effect");
      try {
        for (let index = 0; index < 20; index++) {
          const text = `${epoch}.${index}`.padEnd(1 + random.below(600), "x");
          await append(store, epoch, text, random.chance(0.1));
          synced.push(text);
        }
      } catch {
        // The power cut.
      }
      disk.crash();
    }
  }
});
