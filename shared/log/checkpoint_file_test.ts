import { deepEqual, equal, ok, rejects } from "node:assert/strict";
import { DiskError, type DiskFile } from "../runtime/mod.ts";
import { DiskFileWrapper, DiskWrapper, SeededRandom, settle, SimDisk } from "../testing/mod.ts";
import {
  CHECKPOINT_CHUNK_BYTES_MAX,
  readCheckpointFile,
  writeCheckpointFile,
} from "./checkpoint_file.ts";
import { LogError } from "./log_store.ts";
import { chunksOf, gathered } from "./log_test_fixture.ts";

const PATH = "/log/80.ckp";
const POSITION = 80;
const HEADER_BYTES = 12;
const FRAME_BYTES = 8;

async function emptyDisk(): Promise<SimDisk> {
  const disk = new SimDisk();
  await disk.makeDirectory("/log");
  return disk;
}

function isDamaged(error: unknown): boolean {
  return error instanceof LogError && error.code === "damaged" &&
    error.message === "The checkpoint of position 80 is damaged";
}

function read(disk: SimDisk): Promise<Uint8Array[]> {
  return gathered(readCheckpointFile(disk, PATH, POSITION));
}

/** A file of three chunks, and where each chunk's frame begins. */
async function threeChunks(): Promise<{ disk: SimDisk; chunks: Uint8Array[]; starts: number[] }> {
  const disk = await emptyDisk();
  const chunks = [Uint8Array.of(1, 2, 3), Uint8Array.of(4), new SeededRandom(1).bytes(40)];
  await writeCheckpointFile(disk, PATH, POSITION, chunksOf(...chunks));
  const starts = [HEADER_BYTES];
  for (const chunk of chunks) starts.push(starts.at(-1)! + FRAME_BYTES + chunk.length);
  return { disk, chunks, starts };
}

Deno.test("readCheckpointFile() refuses a file that is damaged or cut off anywhere", async () => {
  const { disk, chunks } = await threeChunks();
  const whole = disk.bytes(PATH);
  for (let bit = 0; bit < whole.length * 8; bit++) {
    disk.flipBit(PATH, bit >>> 3, bit & 7);
    await rejects(read(disk), isDamaged, `bit ${bit}`);
    disk.flipBit(PATH, bit >>> 3, bit & 7);
  }
  for (let length = 0; length < whole.length; length++) {
    disk.writeDurable(PATH, whole.slice(0, length));
    await rejects(read(disk), isDamaged, `length ${length}`);
    const zeros = new Uint8Array(whole.length);
    zeros.set(whole.subarray(0, length));
    disk.writeDurable(PATH, zeros);
    if (zeros.some((byte, at) => byte !== whole[at])) {
      await rejects(read(disk), isDamaged, `zeros from ${length}`);
    }
  }
  disk.writeDurable(PATH, Uint8Array.of(...whole, 0));
  await rejects(read(disk), isDamaged);
  disk.writeDurable(PATH, whole);
  deepEqual(await read(disk), chunks);
  equal(disk.openFiles, 0);
});

Deno.test("readCheckpointFile() refuses chunks that are missing, twice or in another order", async () => {
  const { disk, starts } = await threeChunks();
  const whole = disk.bytes(PATH);
  const header = whole.slice(0, HEADER_BYTES);
  const frames = starts.map((start, index) => whole.slice(start, starts[index + 1]));
  for (const order of [[0, 1, 2], [3], [0, 1, 3], [0, 2, 3], [1, 0, 2, 3], [0, 1, 1, 2, 3]]) {
    const parts = [header, ...order.map((index) => frames[index]!)];
    disk.writeDurable(PATH, Uint8Array.from(parts.flatMap((part) => [...part])));
    await rejects(read(disk), isDamaged, `order ${order}`);
  }
  equal(disk.openFiles, 0);
});

Deno.test("readCheckpointFile() refuses a file under another position's name", async () => {
  const { disk } = await threeChunks();
  await rejects(gathered(readCheckpointFile(disk, PATH, 81)), LogError);
  await rejects(gathered(readCheckpointFile(disk, "/log/81.ckp", 81)), DiskError);
  equal(disk.openFiles, 0);
});

Deno.test("readCheckpointFile() gives the file back when its reader stops early", async () => {
  const { disk, chunks } = await threeChunks();
  for await (const chunk of readCheckpointFile(disk, PATH, POSITION)) {
    deepEqual(chunk, chunks[0]);
    break;
  }
  equal(disk.openFiles, 0);
});

Deno.test("a failure while a checkpoint is written leaves the one before it and nothing else", async () => {
  const { disk, chunks } = await threeChunks();
  const failed = new Error("no more");
  async function* failing(): AsyncGenerator<Uint8Array> {
    yield* chunksOf(Uint8Array.of(9));
    throw failed;
  }
  await rejects(writeCheckpointFile(disk, PATH, POSITION, failing()), failed);
  for (const operation of ["write", "sync", "rename"] as const) {
    disk.failNext({ operation, kind: "io" });
    const writing = writeCheckpointFile(disk, PATH, POSITION, chunksOf(Uint8Array.of(9)));
    await rejects(writing, DiskError, operation);
  }
  deepEqual(disk.files(), [PATH]);
  deepEqual(await read(disk), chunks);
  disk.writeDurable(`${PATH}.tmp`, Uint8Array.of(1));
  await writeCheckpointFile(disk, PATH, POSITION, chunksOf(Uint8Array.of(9)));
  deepEqual(await read(disk), [Uint8Array.of(9)]);
  equal(disk.openFiles, 0);
});

Deno.test("writeCheckpointFile() asks for a chunk when the one before is on its way no more", async () => {
  const sim = await emptyDisk();
  let writes = 0;
  let release = () => {};
  class SlowWrites extends DiskWrapper {
    override wrapFile(file: DiskFile): DiskFile {
      return new class extends DiskFileWrapper {
        override async writeAt(position: number, bytes: Uint8Array): Promise<void> {
          writes++;
          await new Promise<void>((resolve) => release = resolve);
          await super.writeAt(position, bytes);
        }
      }(file);
    }
  }
  let asked = 0;
  async function* counted(): AsyncGenerator<Uint8Array> {
    const buffer = new Uint8Array(4);
    for (; asked < 5; asked++) {
      await Promise.resolve();
      yield buffer.fill(asked);
    }
  }
  const writing = writeCheckpointFile(new SlowWrites(sim), PATH, POSITION, counted());
  // The header, five chunks and the end.
  for (let step = 1; step <= 7; step++) {
    await settle();
    deepEqual([writes, asked], [step, Math.max(0, Math.min(step - 2, 5))]);
    release();
  }
  equal(await writing, sim.bytes(PATH).length);
  deepEqual((await read(sim)).map((chunk) => chunk[0]), [0, 1, 2, 3, 4]);
});

Deno.test("a large checkpoint is synced piece by piece, and empty chunks leave no trace", async () => {
  const disk = await emptyDisk();
  const large = new SeededRandom(2).bytes(CHECKPOINT_CHUNK_BYTES_MAX);
  const empty = new Uint8Array();
  const chunks = Array.from({ length: 100 }, () => large);
  const syncs = disk.trace.count("sync");
  await writeCheckpointFile(disk, PATH, POSITION, chunksOf(empty, ...chunks, empty));
  ok(disk.trace.count("sync") - syncs >= 4);
  deepEqual((await read(disk)).length, 100);
  await writeCheckpointFile(disk, PATH, POSITION, chunksOf());
  deepEqual(await read(disk), []);
});

Deno.test("a checkpoint's file has the bytes that docs/format/log.md shows", async () => {
  const disk = await emptyDisk();
  const chunks = chunksOf(Uint8Array.of(1, 2, 3), Uint8Array.of(4));
  await writeCheckpointFile(disk, PATH, POSITION, chunks);
  const bytes = [...disk.bytes(PATH)].map((byte) => byte.toString(16).padStart(2, "0"));
  const lines = [[0, 12], [12, 23], [23, 32], [32, 40]]
    .map(([from, to]) => bytes.slice(from, to).join(" "));
  equal(bytes.length, 40);
  const page = new URL("../../docs/format/log.md", import.meta.url);
  const text = Deno.readTextFileSync(page);
  ok(text.includes(lines.join("\n")), lines.join("\n"));
});
