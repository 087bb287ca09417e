import { deepEqual, equal, ok, rejects, throws } from "node:assert/strict";
import { type DiskFile, InvariantError } from "../runtime/mod.ts";
import { DiskFileWrapper, DiskWrapper, SeededRandom, settle, SimDisk } from "../testing/mod.ts";
import {
  BLOCK_HEADER_BYTES,
  readBlockHeader,
  recordBytes,
  recordWordBytes,
  recordWordKind,
  SKIP_KIND,
} from "./block.ts";
import { CommitLog } from "./commit_log.ts";
import { FileLogStore } from "./file_log_store.ts";
import { Collector, TestOwner } from "./log_test_fixture.ts";
import { LogError } from "./log_store.ts";

const RING_BYTES = 65_536;
const FILE_BYTES = 1 << 20;

/** A disk whose syncs of log files wait until the test lets them go. */
class GatedDisk extends DiskWrapper {
  open_ = true;
  syncs = 0;
  #waiting: (() => void)[] = [];

  override wrapFile(file: DiskFile, path: string): DiskFile {
    if (!path.endsWith(".log")) return file;
    return new GatedFile(file, this);
  }

  async pass(): Promise<void> {
    this.syncs++;
    if (!this.open_) await new Promise<void>((resolve) => this.#waiting.push(resolve));
  }

  /** Lets the sync that waits go. */
  async release(): Promise<void> {
    await settle();
    this.#waiting.shift()?.();
    await settle();
  }
}

class GatedFile extends DiskFileWrapper {
  readonly #disk: GatedDisk;

  constructor(inner: DiskFile, disk: GatedDisk) {
    super(inner);
    this.#disk = disk;
  }

  override async syncData(): Promise<void> {
    await this.#disk.pass();
    await super.syncData();
  }
}

interface Opened {
  readonly sim: SimDisk;
  readonly disk: GatedDisk;
  readonly store: FileLogStore;
  readonly owner: TestOwner;
  readonly log: CommitLog;
}

async function openLog(options: {
  readonly sim?: SimDisk;
  readonly epoch?: number;
  readonly ringBytes?: number;
  readonly fileBytes?: number;
} = {}): Promise<Opened> {
  const sim = options.sim ?? new SimDisk();
  const disk = new GatedDisk(sim);
  const epoch = options.epoch ?? 1;
  const store = await FileLogStore.open(disk, "/log", epoch);
  const found = await store.recover(0, new Collector());
  const owner = new TestOwner();
  const log = new CommitLog(
    store,
    owner,
    {
      ringBytes: options.ringBytes ?? RING_BYTES,
      fileBytes: options.fileBytes ?? FILE_BYTES,
    },
    { end: found.end, fileStart: store.files.at(-1)?.start ?? found.end, epoch },
  );
  disk.syncs = 0;
  return { sim, disk, store, owner, log };
}

function append(log: CommitLog, payload: Uint8Array, kind = 1): number {
  log.ring.set(payload, log.begin(kind, payload.length));
  log.finish();
  return log.recordPosition;
}

function appendText(log: CommitLog, text: string): number {
  return append(log, new TextEncoder().encode(text));
}

/** What a start after a crash would read. */
async function readBack(sim: SimDisk, epoch = 100): Promise<Collector> {
  const store = await FileLogStore.open(sim, "/log", epoch);
  const collector = new Collector();
  const found = await store.recover(0, collector);
  deepEqual(found.damage, []);
  await store.close();
  return collector;
}

Deno.test("CommitLog reports nothing as durable after a failed sync, and stays sealed", async () => {
  const { sim, log, owner, store } = await openLog();
  appendText(log, "first");
  await log.drain();
  const durable = log.durableEnd;
  sim.failNext({ operation: "sync", kind: "io" });
  appendText(log, "second");
  await rejects(log.drain(), (error) => error instanceof LogError && error.code === "sealed");
  equal(owner.errors.length, 1);
  equal(log.error, owner.errors[0]);
  equal(log.durableEnd, durable);
  deepEqual(owner.durableEnds, [durable]);
  throws(
    () => log.begin(1, 1),
    (error) =>
      error instanceof LogError && error.code === "sealed" && error.cause === owner.errors[0],
  );
  log.flush();
  await log.room();
  await rejects(log.drain(), LogError);
  equal(owner.errors.length, 1);
  deepEqual(owner.durableEnds, [durable]);
  await store.close();
  equal(sim.openFiles, 0);
});

for (
  const [name, plan] of [
    ["write", { operation: "write", kind: "io" }],
    ["creation of a file", { operation: "create", kind: "io" }],
    ["sync of the folder", { operation: "syncDirectory", kind: "io" }],
    // What a sync could not put on a full disk is unknown: see full_disk_test.ts for the rest.
    ["sync on a full disk", { operation: "sync", kind: "no_space" }],
    ["sync of the folder on a full disk", { operation: "syncDirectory", kind: "no_space" }],
  ] as const
) {
  Deno.test(`CommitLog is sealed for good by a failed ${name}`, async () => {
    const { sim, log, owner, store } = await openLog();
    sim.failNext(plan);
    appendText(log, "lost");
    await rejects(log.drain(), LogError);
    throws(() => log.begin(1, 1), LogError);
    deepEqual([owner.durableEnds.length, owner.errors.length], [0, 1]);
    await store.close();
    equal(sim.openFiles, 0);
  });
}

Deno.test("CommitLog does not write what arrived while a sync was failing", async () => {
  const { sim, disk, log, owner, store } = await openLog();
  disk.open_ = false;
  appendText(log, "in the failing group");
  log.flush();
  await settle();
  appendText(log, "meanwhile");
  log.flush();
  const room = log.room();
  sim.failNext({ operation: "sync", kind: "io" });
  const writes = sim.trace.count("write");
  await disk.release();
  await room;
  equal(sim.trace.count("write"), writes);
  deepEqual([owner.durableEnds, owner.errors.length, disk.syncs], [[], 1, 1]);
  await store.close();
});

Deno.test("CommitLog is sealed when its owner throws in closing() or durable()", async () => {
  for (const hook of ["onClosing", "onDurable"] as const) {
    const { log, owner, store } = await openLog();
    owner[hook] = () => {
      throw new Error("the owner's own");
    };
    appendText(log, "record");
    await rejects(log.drain(), LogError);
    equal(log.error?.message, "the owner's own");
    await store.close();
  }
});

Deno.test("CommitLog.begin() refuses more than the ring holds before it overwrites anything", async () => {
  const { sim, disk, log, store } = await openLog();
  const payload = new Uint8Array(20_000).fill(7);
  append(log, payload);
  await log.drain();
  disk.open_ = false;
  // These go round the end of the ring.
  for (let count = 0; count < 3; count++) append(log, payload);
  log.flush();
  throws(() => log.begin(1, 60_000), InvariantError);
  await settle();
  await disk.release();
  sim.crash();
  deepEqual((await readBack(sim)).records.map(({ payload }) => payload), [
    payload,
    payload,
    payload,
    payload,
  ]);
  await store.close();
});

Deno.test("CommitLog pays one write and one sync for a lone record", async () => {
  const { sim, disk, log, store } = await openLog();
  appendText(log, "makes the file");
  await log.drain();
  const [writes, syncs] = [sim.trace.count("write"), disk.syncs];
  appendText(log, "alone");
  await log.drain();
  deepEqual([sim.trace.count("write") - writes, disk.syncs - syncs], [1, 1]);
  await log.drain();
  equal(disk.syncs - syncs, 1);
  await store.close();
});

Deno.test("CommitLog.pad() moves the end of the log by a group that holds nothing", async () => {
  const { sim, log, owner, store } = await openLog();
  appendText(log, "first");
  await log.drain();
  const { end } = log;
  log.pad();
  await log.drain();
  ok(log.end > end);
  deepEqual(owner.durableEnds, [end, log.end]);
  appendText(log, "second");
  log.pad();
  await log.drain();
  await store.close();
  deepEqual((await readBack(sim)).texts, ["first", "second"]);
  const failed = await openLog({ sim, epoch: 200 });
  sim.failNext({ operation: "sync", kind: "io" });
  appendText(failed.log, "lost");
  await rejects(failed.log.drain(), LogError);
  throws(() => failed.log.pad(), LogError);
  await failed.store.close();
});

Deno.test("CommitLog makes one group of all that arrives while a sync runs", async () => {
  const { sim, disk, log, owner, store } = await openLog();
  disk.open_ = false;
  appendText(log, "first");
  log.flush();
  await settle();
  const firstEnd = log.end;
  equal(log.groupStart, firstEnd);
  for (let number = 0; number < 50; number++) {
    appendText(log, `meanwhile ${number}`);
    log.flush();
    if (number % 10 === 0) await settle();
  }
  equal(log.groupStart, firstEnd);
  deepEqual([disk.syncs, owner.durableEnds], [1, []]);
  await disk.release();
  deepEqual([disk.syncs, owner.durableEnds], [2, [firstEnd]]);
  await disk.release();
  deepEqual(owner.durableEnds, [firstEnd, log.end]);
  equal(disk.syncs, 2);
  await store.close();
  const { headers } = await readBack(sim);
  deepEqual(headers.map((header) => header.recordCount), [1, 50]);
  deepEqual(headers.map((header) => header.synced), [0, firstEnd]);
});

Deno.test("CommitLog has the next small group on its way to the disk before it tells that one is durable", async () => {
  const { disk, log, owner, store } = await openLog();
  disk.open_ = false;
  appendText(log, "first");
  log.flush();
  await settle();
  appendText(log, "second");
  log.flush();
  const told: [string, number, number][] = [];
  owner.onDurable = (end) => told.push(["durable", end, disk.syncs]);
  owner.onWritten = (end) => told.push(["written", end, disk.syncs]);
  const [first, second] = [log.groupStart, log.end];
  await disk.release();
  deepEqual(told, [["durable", first, 2], ["written", second, 2]]);
  await disk.release();
  deepEqual(told.slice(2), [["durable", second, 2]]);
  await store.close();
});

Deno.test("CommitLog tells that a group is durable before a large one that is next is written", async () => {
  const { sim, disk, log, owner, store } = await openLog({ ringBytes: 1 << 20 });
  disk.open_ = false;
  appendText(log, "first");
  log.flush();
  await settle();
  append(log, new Uint8Array(100_000));
  log.flush();
  const writes = sim.trace.count("write");
  let writesBefore = -1;
  owner.onDurable = () => writesBefore = sim.trace.count("write") - writes;
  await disk.release();
  deepEqual([writesBefore, sim.trace.count("write") - writes], [0, 1]);
  await disk.release();
  await store.close();
});

for (const kind of ["io", "no_space"] as const) {
  Deno.test(`CommitLog tells that a group is durable when the next one cannot be written (${kind})`, async () => {
    const { sim, disk, log, owner, store } = await openLog();
    disk.open_ = false;
    appendText(log, "first");
    log.flush();
    await settle();
    const { end } = log;
    appendText(log, "second");
    log.flush();
    sim.failNext({ operation: "write", kind });
    await disk.release();
    deepEqual([owner.durableEnds, owner.writtenEnds], [[end], [end]]);
    equal(owner.errors.length, 1);
    await store.close();
  });
}

Deno.test("CommitLog tells of a durable end only once a power cut could not undo it", async () => {
  const { sim, log, owner } = await openLog();
  let survivors = 0;
  owner.onDurable = () => {
    sim.crash();
    survivors++;
  };
  appendText(log, "kept");
  await log.drain();
  equal(survivors, 1);
  deepEqual((await readBack(sim)).texts, ["kept"]);
});

Deno.test("CommitLog puts the epoch, the synced mark and the owner's sequence in each header", async () => {
  const { sim, log, owner, store } = await openLog({ epoch: 9 });
  for (const sequence of [5, 2 ** 48 - 1]) {
    owner.sequence = sequence;
    appendText(log, "record");
    owner.sequence = 1;
    await log.drain();
  }
  await store.close();
  const { headers } = await readBack(sim);
  deepEqual(
    headers.map(({ epoch, position, synced, firstSequence }) => ({
      epoch,
      position,
      synced,
      firstSequence,
    })),
    [
      { epoch: 9, position: 0, synced: 0, firstSequence: 5 },
      { epoch: 9, position: 80, synced: 80, firstSequence: 2 ** 48 - 1 },
    ],
  );
});

Deno.test("CommitLog lets its owner add records in closing(), also to a group that had none", async () => {
  const { sim, disk, log, owner, store } = await openLog();
  let left = ["to the first", "alone"];
  owner.onClosing = () => {
    const next = left.shift();
    if (next !== undefined) appendText(log, next);
  };
  appendText(log, "first");
  await log.drain();
  log.flush();
  await log.drain();
  left = [];
  await log.drain();
  equal(disk.syncs, 2);
  equal(owner.durableEnds.length, 2);
  await store.close();
  deepEqual((await readBack(sim)).texts, ["first", "to the first", "alone"]);
});

Deno.test("CommitLog.drain() resolves when all is durable, and at once when nothing is left", async () => {
  const { disk, log, store } = await openLog();
  await log.drain();
  equal(disk.syncs, 0);
  disk.open_ = false;
  appendText(log, "first");
  const drained = log.drain().then(() => log.durableEnd);
  await settle();
  appendText(log, "second");
  log.flush();
  const { end } = log;
  await disk.release();
  await disk.release();
  equal(await drained, end);
  await store.close();
});

Deno.test("CommitLog.hasRoom() keeps what is not durable below half the ring", async () => {
  const { disk, log, store } = await openLog();
  disk.open_ = false;
  equal(log.hasRoom(RING_BYTES / 2), true);
  equal(log.hasRoom(RING_BYTES / 2 + 1), false);
  const bytes = 1000;
  let count = 0;
  for (; log.hasRoom(recordBytes(bytes) + BLOCK_HEADER_BYTES); count++) {
    append(log, new Uint8Array(bytes));
  }
  equal(count, Math.floor((RING_BYTES / 2 - BLOCK_HEADER_BYTES) / recordBytes(bytes)));
  let woken = false;
  const room = log.room().then(() => woken = true);
  await settle();
  equal(woken, false);
  await disk.release();
  await room;
  equal(log.hasRoom(RING_BYTES / 2), true);
  await log.room();
  await store.close();
});

Deno.test("CommitLog.room() resolves after durable() has been called", async () => {
  const { log, owner, store } = await openLog();
  appendText(log, "record");
  await log.room();
  deepEqual(owner.durableEnds, [log.end]);
  await store.close();
});

Deno.test("CommitLog begins a file with the group after a file has reached its size", async () => {
  const { sim, log, owner, store } = await openLog({ fileBytes: 1000 });
  const ends: number[] = [];
  for (let number = 0; number < 7; number++) {
    append(log, new Uint8Array(400).fill(number));
    await log.drain();
    ends.push(log.end);
    equal(log.fileStart, store.files.at(-1)?.start);
  }
  const block = BLOCK_HEADER_BYTES + recordBytes(400);
  deepEqual(store.files, [
    { start: 0, end: 3 * block },
    { start: 3 * block, end: 6 * block },
    { start: 6 * block, end: 7 * block },
  ]);
  deepEqual(owner.sealedFiles, store.files.slice(0, 2));
  await store.close();
  equal((await readBack(sim)).records.length, 7);
});

Deno.test("CommitLog puts a group larger than a file in one file", async () => {
  const { log, store } = await openLog({ fileBytes: 1000 });
  append(log, new Uint8Array(10_000));
  await log.drain();
  append(log, new Uint8Array(10));
  await log.drain();
  deepEqual(store.files.map((file) => file.start), [0, BLOCK_HEADER_BYTES + recordBytes(10_000)]);
  await store.close();
});

Deno.test("CommitLog keeps each record and header in one piece where the ring wraps", async () => {
  const { sim, log, store } = await openLog();
  const random = new SeededRandom(1);
  const headers: number[] = [];
  for (let group = 0; group < 300; group++) {
    headers.push(log.end);
    for (let count = random.between(1, 3); count > 0; count--) {
      const payload = random.bytes(random.between(0, 2000));
      const index = log.begin(1, payload.length);
      ok(index + payload.length <= RING_BYTES);
      equal(index, (log.recordPosition + 8) % RING_BYTES);
      log.ring.set(payload, index);
      log.finish();
      // Hot until the ring comes round again.
      deepEqual(log.ring.slice(index, index + payload.length), payload);
      ok(log.recordPosition >= log.hotStart);
    }
    await log.drain();
  }
  ok(log.end > 5 * RING_BYTES);
  equal(log.hotStart, log.end - RING_BYTES);
  for (const position of headers) {
    ok(position % RING_BYTES <= RING_BYTES - BLOCK_HEADER_BYTES, `header at ${position}`);
  }
  await store.close();
  equal((await readBack(sim)).headers.length, 300);
  let skips = 0;
  const bytes = sim.bytes("/log/0000000000000000.log");
  const view = new DataView(bytes.buffer);
  for (const position of headers) {
    const reading = readBlockHeader(view, position);
    ok(reading.kind === "block");
    const end = position + BLOCK_HEADER_BYTES + reading.header.recordsBytes;
    for (let at = position + BLOCK_HEADER_BYTES; at < end;) {
      const length = recordWordBytes(view.getUint32(at, true));
      const isSkip = recordWordKind(view.getUint32(at, true)) === SKIP_KIND;
      // Nothing of what the ring held before may reach the disk under a checksum.
      if (isSkip) ok(bytes.subarray(at + 4, at + 8 + length).every((byte) => byte === 0));
      if (isSkip) skips++;
      at += recordBytes(length);
    }
  }
  ok(skips >= 5);
});

Deno.test("CommitLog fills the end of the ring when the next header would not fit it", async () => {
  for (let left = 0; left <= 80; left += 8) {
    const { sim, disk, log, store } = await openLog();
    append(log, new Uint8Array(RING_BYTES / 2 - BLOCK_HEADER_BYTES - 8));
    await log.drain();
    append(log, new Uint8Array(RING_BYTES / 2 - left - BLOCK_HEADER_BYTES - 8));
    await log.drain();
    equal(log.end, left < BLOCK_HEADER_BYTES ? RING_BYTES : RING_BYTES - left);
    const writes = sim.trace.count("write");
    appendText(log, "next");
    await log.drain();
    // Where the header fits and the record does not, one group takes two writes.
    const split = left >= BLOCK_HEADER_BYTES && left < BLOCK_HEADER_BYTES + 16;
    equal(sim.trace.count("write") - writes, split ? 2 : 1);
    equal(disk.syncs, 3);
    await store.close();
    deepEqual((await readBack(sim)).texts[2], "next");
  }
});

Deno.test("CommitLog.begin() counts what is passed over at the end of the ring", async () => {
  const { sim, disk, log, store } = await openLog();
  append(log, new Uint8Array(20_000));
  await log.drain();
  disk.open_ = false;
  append(log, new Uint8Array(20_000));
  // It would fit from here on, but not from the start of the ring.
  throws(() => log.begin(1, 40_000), InvariantError);
  log.flush();
  await disk.release();
  await store.close();
  equal((await readBack(sim)).records.length, 2);
});

Deno.test("CommitLog goes on from any end that recovery found, also at the very end of the ring", async () => {
  for (let left = 8; left <= 80; left += 8) {
    const sim = new SimDisk();
    const first = await openLog({ sim, ringBytes: 2 * RING_BYTES });
    append(first.log, new Uint8Array(RING_BYTES - left - BLOCK_HEADER_BYTES - 8));
    await first.log.drain();
    equal(first.log.end, RING_BYTES - left);
    await first.store.close();
    const second = await openLog({ sim, epoch: 2 });
    equal(second.log.end, RING_BYTES - left);
    const position = appendText(second.log, "behind the end");
    equal(second.log.hotStart, RING_BYTES - left);
    await second.log.drain();
    appendText(second.log, "next");
    await second.log.drain();
    await second.store.close();
    const back = await readBack(sim);
    deepEqual(back.texts.slice(1), ["behind the end", "next"]);
    equal(back.records[1]?.position, position);
  }
});

Deno.test("CommitLog reads back as it was written, whatever the sizes, over wraps, rolls and starts", async () => {
  for (let seed = 0; seed < 12; seed++) {
    const random = new SeededRandom(seed);
    const sim = new SimDisk({ random: random.fork(), extraTurnsMax: seed % 3 });
    const written: { kind: number; payload: Uint8Array; position: number }[] = [];
    for (let epoch = 1; epoch <= 4; epoch++) {
      const { log, owner, store } = await openLog({
        sim,
        epoch,
        fileBytes: random.between(1, 120_000),
      });
      const largest = random.pick([10, 300, 16_000]);
      const write = (kind: number, bytes: number) => {
        const payload = random.bytes(bytes);
        const position = append(log, payload, kind);
        written.push({ kind, payload, position });
      };
      owner.onClosing = () => {
        if (random.chance(0.3)) write(3, random.below(100));
      };
      for (let count = 0; count < 150; count++) {
        const bytes = random.below(largest);
        while (!log.hasRoom(bytes + 200)) await log.room();
        write(random.between(1, 15), bytes);
        if (random.chance(0.3)) log.flush();
        if (random.chance(0.1)) await settle();
      }
      await log.drain();
      await store.close();
    }
    const { records } = await readBack(sim);
    deepEqual(records.map(({ position }) => position), written.map(({ position }) => position));
    for (const [index, record] of records.entries()) {
      if (record.kind !== written[index]!.kind) throw new Error(`seed ${seed}, record ${index}`);
      deepEqual(record.payload, written[index]!.payload, `seed ${seed}, record ${index}`);
    }
    equal(sim.openFiles, 0);
  }
});
