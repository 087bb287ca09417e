import { deepEqual, equal, ok } from "node:assert/strict";
import { DiskError } from "../runtime/mod.ts";
import { SeededRandom, settle, SimDisk } from "../testing/mod.ts";
import { recordBytes } from "./block.ts";
import { CommitLog } from "./commit_log.ts";
import { FileLogStore } from "./file_log_store.ts";
import { LogReader, PAGE_BYTES } from "./log_reader.ts";
import { Collector, TestOwner } from "./log_test_fixture.ts";

const RING_BYTES = 65_536;
const RECORD_BYTES_MAX = 200_000;

interface Written {
  readonly position: number;
  readonly payload: Uint8Array;
}

class World {
  readonly written: Written[] = [];

  private constructor(
    readonly disk: SimDisk,
    readonly store: FileLogStore,
    readonly log: CommitLog,
  ) {}

  static async open(fileBytes = 1 << 30, ringBytes = RING_BYTES): Promise<World> {
    const disk = new SimDisk();
    const store = await FileLogStore.open(disk, "/log", 1);
    await store.recover(0, new Collector());
    const log = new CommitLog(store, new TestOwner(), { ringBytes, fileBytes }, {
      end: 0,
      fileStart: 0,
      epoch: 1,
    });
    return new World(disk, store, log);
  }

  async append(payload: Uint8Array): Promise<Written> {
    this.log.ring.set(payload, this.log.begin(1, payload.length));
    this.log.finish();
    const written = { position: this.log.recordPosition, payload };
    this.written.push(written);
    await this.log.drain();
    return written;
  }

  /** Appends until the first page is no longer hot and the log has `bytes`. */
  async fill(bytes: number, recordMax = 5000): Promise<void> {
    const random = new SeededRandom(bytes);
    while (this.log.end < bytes) await this.append(random.bytes(random.below(recordMax)));
  }

  reader(cacheBytes = 0, recordBytesMax = RECORD_BYTES_MAX): LogReader {
    return new LogReader(this.log, this.store, { cacheBytes, recordBytesMax });
  }

  get reads(): number {
    return this.disk.trace.count("read");
  }

  async close(): Promise<void> {
    await this.store.close();
    equal(this.disk.openFiles, 0);
  }
}

/** Reads as a caller does: what `view` does not find is loaded once, then it is there. */
async function read(reader: LogReader, { position, payload }: Written): Promise<void> {
  const length = recordBytes(payload.length);
  if (!reader.view(position, length)) {
    await reader.load(position, length);
    ok(reader.view(position, length), `record at ${position} is there after a load`);
  }
  const start = reader.start + 8;
  deepEqual(reader.bytes.slice(start, start + payload.length), payload);
}

Deno.test("load() rejects as the disk does, and the next one tries again", async () => {
  const world = await World.open();
  await world.fill(300_000);
  const reader = world.reader();
  world.disk.failNext({ operation: "read", kind: "io" });
  const loads = [reader.load(0, 100), reader.load(0, 50)];
  for (const load of await Promise.allSettled(loads)) {
    equal(load.status, "rejected");
    ok((load as PromiseRejectedResult).reason instanceof DiskError);
  }
  equal(reader.view(0, 100), false);
  await read(reader, world.written[0]!);
  await world.close();
});

Deno.test("view() finds hot records in the ring without a read", async () => {
  const world = await World.open();
  const reader = world.reader();
  await world.fill(10 * RING_BYTES);
  const before = world.reads;
  let hot = 0;
  for (const written of world.written) {
    if (written.position < world.log.hotStart) continue;
    ok(reader.view(written.position, recordBytes(written.payload.length)));
    equal(reader.bytes, world.log.ring);
    await read(reader, written);
    hot++;
  }
  ok(hot > 5);
  deepEqual([world.reads, reader.cachedBytes], [before, 0]);
  await world.close();
});

Deno.test("view() finds a record in the ring before it is durable", async () => {
  const world = await World.open();
  const reader = world.reader();
  const appended = world.append(Uint8Array.of(1, 2, 3));
  const { position } = world.written[0]!;
  ok(reader.view(position, 16));
  deepEqual(reader.bytes.slice(reader.start + 8, reader.start + 11), Uint8Array.of(1, 2, 3));
  await appended;
  await world.close();
});

Deno.test("view() does not find what the ring has overtaken until it is loaded", async () => {
  const world = await World.open();
  const reader = world.reader();
  await world.fill(2 * RING_BYTES);
  const first = world.written[0]!;
  ok(first.position < world.log.hotStart);
  equal(reader.view(first.position, 8), false);
  await read(reader, first);
  await world.close();
});

Deno.test("LogReader reads every record of a log, hot and cold, over pages and files", async () => {
  for (const fileBytes of [1 << 30, 50_000]) {
    // Larger than a page, or no record would cross the end of one.
    const world = await World.open(fileBytes, 1 << 20);
    await world.fill(3_500_000, 20_000);
    const reader = world.reader();
    const crossing = world.written.filter(({ position, payload }) =>
      Math.floor(position / PAGE_BYTES) !==
        Math.floor((position + recordBytes(payload.length) - 1) / PAGE_BYTES)
    );
    ok(crossing.length >= 10);
    for (const written of world.written) await read(reader, written);
    for (const written of new SeededRandom(1).shuffle(world.written)) await read(reader, written);
    await world.close();
  }
});

Deno.test("LogReader reads records of several pages with the smallest cache", async () => {
  const world = await World.open(1 << 30, 1 << 20);
  const random = new SeededRandom(3);
  for (let count = 0; count < 12; count++) {
    await world.append(random.bytes(random.between(PAGE_BYTES, 3 * PAGE_BYTES)));
  }
  const reader = world.reader(0, 3 * PAGE_BYTES + 8);
  for (let round = 0; round < 3; round++) {
    for (const written of random.shuffle(world.written)) await read(reader, written);
    ok(reader.cachedBytes <= 10 * PAGE_BYTES, `${reader.cachedBytes} bytes are cached`);
  }
  await world.close();
});

Deno.test("load() reads a page once for all who want it, and more for who comes from the page before", async () => {
  const world = await World.open();
  await world.fill(8 * PAGE_BYTES);
  const reader = world.reader(16 * PAGE_BYTES);
  const before = world.reads;
  await Promise.all(Array.from({ length: 20 }, (_, index) => reader.load(index * 100, 50)));
  equal(world.reads - before, 1);
  equal(reader.cachedBytes, PAGE_BYTES);
  await reader.load(PAGE_BYTES, 50);
  equal(world.reads - before, 2);
  equal(reader.cachedBytes, 5 * PAGE_BYTES);
  for (let page = 0; page < 5; page++) ok(reader.view(page * PAGE_BYTES, PAGE_BYTES));
  await reader.load(3 * PAGE_BYTES, 1000);
  equal(world.reads - before, 2);
  await world.close();
});

/** A store that counts what is read of it, and the time in which it is read. */
async function countedReader(pages: number, cachePages: number) {
  const world = await World.open(1 << 30, 1 << 16);
  await world.fill(pages * PAGE_BYTES + 3 * RING_BYTES, 30_000);
  const counted = { reads: 0, bytes: 0 };
  const store = new Proxy(world.store, {
    get(target, name) {
      if (name !== "read") return Reflect.get(target, name, target);
      return async (position: number, into: Uint8Array) => {
        const read = await target.read(position, into);
        counted.reads++;
        counted.bytes += read;
        return read;
      };
    },
  });
  const reader = new LogReader(world.log, store, {
    cacheBytes: cachePages * PAGE_BYTES,
    recordBytesMax: 1000,
  });
  const look = async (page: number) => {
    if (reader.view(page * PAGE_BYTES, 8)) return;
    await reader.load(page * PAGE_BYTES, 8);
    ok(reader.view(page * PAGE_BYTES, 8));
  };
  return { world, counted, look };
}

Deno.test("one reader that lags reads large runs, each page once", async () => {
  const { world, counted, look } = await countedReader(80, 20);
  for (let page = 0; page < 80; page++) await look(page);
  ok(counted.reads <= 22, `${counted.reads} reads`);
  ok(counted.bytes <= 84 * PAGE_BYTES, `${counted.bytes / PAGE_BYTES} pages`);
  await world.close();
});

Deno.test("readers at more places than the cache has pages read what they ask for and little else", async () => {
  const { world, counted, look } = await countedReader(240, 30);
  const readers = Array.from({ length: 20 }, (_, index) => index * 12);
  let asked = 0;
  for (let step = 0; step < 12; step++) {
    for (const start of readers) {
      await look(start + step);
      asked++;
    }
  }
  ok(counted.bytes <= 1.3 * asked * PAGE_BYTES, `${counted.bytes / PAGE_BYTES} pages for ${asked}`);
  await world.close();
});

Deno.test("reading ahead is taken up again when one reader is left", async () => {
  const { world, counted, look } = await countedReader(300, 30);
  for (let step = 0; step < 8; step++) {
    for (let reader = 0; reader < 20; reader++) await look(reader * 8 + step);
  }
  for (let page = 160; page < 260; page++) await look(page);
  const before = counted.reads;
  for (let page = 260; page < 300; page++) await look(page);
  ok(counted.reads - before <= 12, `${counted.reads - before} reads`);
  await world.close();
});

Deno.test("replaced() drops what is being read, and the pages at the edges of the file", async () => {
  const world = await World.open(3 * PAGE_BYTES);
  await world.fill(9 * PAGE_BYTES);
  const reader = world.reader(20 * PAGE_BYTES);
  for (let page = 0; page < 8; page++) await reader.load(page * PAGE_BYTES, 1);
  const file = world.store.files[1]!;
  const [first, last] = [file.start, file.end - 1].map((at) => Math.floor(at / PAGE_BYTES));
  reader.replaced(file.start, file.end);
  for (let page = 0; page < 8; page++) {
    equal(reader.view(page * PAGE_BYTES, 1), page < first! || page > last!, `page ${page}`);
  }
  const loading = reader.load(file.start, 8);
  reader.replaced(file.start, file.end);
  await loading;
  equal(reader.view(file.start, 8), false);
  for (const written of world.written) await read(reader, written);
  await world.close();
});

Deno.test("the cache is bounded and drops the oldest pages first", async () => {
  const world = await World.open();
  await world.fill(20 * PAGE_BYTES);
  const reader = world.reader(6 * PAGE_BYTES, 1000);
  for (let page = 0; page < 18; page++) {
    await reader.load(page * PAGE_BYTES, 10);
    ok(reader.view(page * PAGE_BYTES, 10));
    ok(reader.cachedBytes <= 6 * PAGE_BYTES);
  }
  equal(reader.view(0, 10), false);
  await world.close();
});

Deno.test("a page that was short when it was loaded is loaded again when the log has grown", async () => {
  const world = await World.open();
  await world.fill(RING_BYTES + 20_000);
  const reader = world.reader();
  await read(reader, world.written[0]!);
  const short = world.log.end;
  ok(short < PAGE_BYTES);
  await world.fill(short + 3 * RING_BYTES);
  for (const written of world.written) await read(reader, written);
  await world.close();
});

Deno.test("load() beyond the end of the log resolves, and view() goes on to say no", async () => {
  const world = await World.open();
  await world.fill(3 * RING_BYTES);
  const reader = world.reader();
  const first = world.store.files[0]!;
  await reader.load(first.end + 10 * PAGE_BYTES, 100);
  await settle();
  equal(reader.cachedBytes, 0);
  await world.close();
});

Deno.test("forget() drops the pages of a file that is gone and no page of the next", async () => {
  const world = await World.open(3 * PAGE_BYTES);
  await world.fill(9 * PAGE_BYTES);
  const reader = world.reader(20 * PAGE_BYTES);
  for (let page = 0; page < 8; page++) await reader.load(page * PAGE_BYTES, 1);
  const file = world.store.files[0]!;
  const before = reader.cachedBytes;
  reader.forget(file.start, file.end);
  await world.store.remove(file);
  const dropped = Math.floor(file.end / PAGE_BYTES);
  equal(before - reader.cachedBytes, dropped * PAGE_BYTES);
  equal(reader.view(0, 8), false);
  for (const written of world.written) {
    if (written.position >= file.end) await read(reader, written);
  }
  await world.close();
});
