import { deepEqual, equal, ok, rejects } from "node:assert/strict";
import { crc32 } from "node:zlib";
import { SeededRandom, SimDisk } from "../testing/mod.ts";
import { BLOCK_HEADER_BYTES, type BlockHeader, recordBytes } from "./block.ts";
import { FileLogStore } from "./file_log_store.ts";
import { buildBlock, Collector, concat, type TestRecord, textRecord } from "./log_test_fixture.ts";
import { LogError, type Recovery } from "./log_store.ts";
import { decide, type Decision, type Found, RECOVERY_TABLE } from "./recovery.ts";

const FOUND: readonly Found[] = [
  "end",
  "short",
  "zero",
  "bad_header",
  "foreign_block",
  "future_block",
  "cut_block",
  "bad_records",
  "newer_format",
  "good_block",
];
const BAD: readonly Found[] = [
  "short",
  "zero",
  "bad_header",
  "foreign_block",
  "cut_block",
  "bad_records",
];
/** The epoch of the start that recovers; blocks are of epoch 1 if a test does not say otherwise. */
const EPOCH = 5;
const FIRST = "/log/0000000000000000.log";

interface Built {
  readonly bytes: Uint8Array<ArrayBuffer>;
  /** Where each block starts, and where the last one ends. */
  readonly starts: readonly number[];
}

/** A run of blocks as group commit writes them, from `position` on. */
function blocksAt(
  position: number,
  groups: readonly (readonly TestRecord[])[],
  header: Partial<BlockHeader> = {},
): Built {
  const starts = [position];
  const parts: Uint8Array[] = [];
  for (const records of groups) {
    const at = starts.at(-1)!;
    const block = buildBlock({ position: at, synced: at, ...header }, records);
    parts.push(block);
    starts.push(at + block.length);
  }
  return { bytes: concat(...parts), starts };
}

/** Groups of three records `a0 a1 a2`, `b0 b1 b2` and so on. */
function groups(count: number): TestRecord[][] {
  return Array.from(
    { length: count },
    (_, group) =>
      [0, 1, 2].map((record) =>
        textRecord(`${String.fromCharCode(97 + group)}${record} ${"x".repeat(10 * record)}`)
      ),
  );
}

/** The first words of the records: `a0`, `b2`. */
function names(collector: Collector): string {
  return collector.texts.map((text) => text.slice(0, 2)).join(" ");
}

interface Recovered {
  readonly recovery: Recovery;
  readonly collector: Collector;
  readonly disk: SimDisk;
}

async function recover(
  files: Readonly<Record<string, Uint8Array>> | SimDisk,
  options: { readonly from?: number; readonly syncedTo?: number; readonly epoch?: number } = {},
): Promise<Recovered> {
  const disk = files instanceof SimDisk ? files : new SimDisk();
  if (!(files instanceof SimDisk)) {
    for (const [path, bytes] of Object.entries(files)) disk.writeDurable(path, bytes);
  }
  const collector = new Collector();
  try {
    const store = await FileLogStore.open(disk, "/log", options.epoch ?? EPOCH);
    try {
      const from = options.from ?? 0;
      const recovery = await store.recover(from, collector, options.syncedTo ?? from);
      equal(recovery.end, store.files.at(-1)?.end ?? 0);
      return { recovery, collector, disk };
    } finally {
      await store.close();
    }
  } finally {
    equal(disk.openFiles, 0);
  }
}

/** What is damaged in a copy of `bytes`. */
function changed(bytes: Uint8Array, change: (copy: Uint8Array) => void): Uint8Array<ArrayBuffer> {
  const copy = bytes.slice();
  change(copy);
  return copy;
}

function refusedWith(code: LogError["code"], text: RegExp) {
  return (error: unknown) => {
    ok(error instanceof LogError, String(error));
    equal(error.code, code);
    ok(text.test(error.message), error.message);
    return true;
  };
}

Deno.test("RECOVERY_TABLE has exactly one row for every combination of observations", () => {
  for (const file of ["sealed", "last"] as const) {
    for (const found of FOUND) {
      for (const vouched of [true, false]) {
        const rows = RECOVERY_TABLE.filter((row) =>
          (row.file === "any" || row.file === file) && row.found.includes(found) &&
          (row.vouched === "any" || row.vouched === vouched)
        );
        equal(rows.length, 1, `${file} ${found} ${vouched}`);
        equal(decide(file, found, vouched), rows[0]?.decision);
      }
    }
  }
});

Deno.test("decide() truncates only bad bytes of the last file that nothing vouches for", () => {
  const expected = (file: "sealed" | "last", found: Found, vouched: boolean): Decision => {
    if (BAD.includes(found)) return file === "last" && !vouched ? "truncate" : "quarantine";
    if (found === "good_block") return "keep";
    return found === "end" ? "stop" : "refuse";
  };
  for (const file of ["sealed", "last"] as const) {
    for (const found of FOUND) {
      for (const vouched of [true, false]) {
        equal(decide(file, found, vouched), expected(file, found, vouched));
      }
    }
  }
});

Deno.test("recover() refuses a block of a newer format, in the last file and in a sealed one", async () => {
  const built = blocksAt(0, groups(3));
  const newer = changed(built.bytes, (copy) => {
    const view = new DataView(copy.buffer, built.starts[1]);
    view.setUint16(8, 2, true);
    // The checksum of the header with format 2, so that only the format is wrong.
    view.setUint32(4, crc32(new Uint8Array(copy.buffer, built.starts[1]! + 8, 56)), true);
  });
  const text = /^Cannot open the log: the block at \d+ was written by a newer release$/;
  await rejects(recover({ [FIRST]: newer }), refusedWith("newer_format", text));
  const second = blocksAt(built.starts[3]!, groups(1));
  await rejects(
    recover({ [FIRST]: newer, [pathOf(built.starts[3]!)]: second.bytes }),
    refusedWith("newer_format", text),
  );
});

Deno.test("recover() refuses a block of an epoch to come instead of cutting it off", async () => {
  const built = blocksAt(0, groups(2), { epoch: EPOCH });
  const disk = new SimDisk();
  disk.writeDurable(FIRST, built.bytes);
  await rejects(recover(disk), refusedWith("foreign", /block at 0 is of a later epoch/));
  deepEqual(disk.bytes(FIRST), built.bytes);
  equal(names((await recover(disk, { epoch: EPOCH + 1 })).collector), "a0 a1 a2 b0 b1 b2");
});

Deno.test("recover() keeps whole blocks and stops at the end of the file", async () => {
  const built = blocksAt(0, groups(3));
  const { recovery, collector } = await recover({ [FIRST]: built.bytes });
  deepEqual(recovery, { end: built.bytes.length, tornBytes: 0, damage: [] });
  equal(names(collector), "a0 a1 a2 b0 b1 b2 c0 c1 c2");
  deepEqual(collector.headers.map(({ position }) => position), built.starts.slice(0, 3));
  equal(collector.records[3]?.position, built.starts[1]! + BLOCK_HEADER_BYTES);
  equal((await recover({})).recovery.end, 0);
  equal((await recover({ [FIRST]: new Uint8Array() })).recovery.end, 0);
});

Deno.test("recover() cuts a torn last block off, wherever it is torn", async () => {
  const built = blocksAt(0, groups(3));
  const start = built.starts[2]!;
  for (let length = start; length < built.bytes.length; length++) {
    const { recovery, collector, disk } = await recover({
      [FIRST]: built.bytes.slice(0, length),
    });
    deepEqual(recovery, { end: start, tornBytes: length - start, damage: [] });
    equal(collector.records.length, 6);
    // The block before it goes on in a file of its own, without the torn bytes.
    equal(disk.bytes(pathOf(built.starts[1]!)).length, start - built.starts[1]!);
    const again = await recover(disk);
    deepEqual(again.recovery, { end: start, tornBytes: 0, damage: [] });
    equal(again.collector.records.length, 6);
  }
});

for (
  const [what, tail] of [
    ["a header's length of zeros", new Uint8Array(BLOCK_HEADER_BYTES)],
    ["many zeros", new Uint8Array(100_000)],
    ["a few zeros", new Uint8Array(9)],
    ["garbage", new SeededRandom(1).bytes(5000)],
    ["more than a window of garbage", new SeededRandom(2).bytes((1 << 20) + 1000)],
    ["zeros and then garbage", concat(new Uint8Array(4096), new SeededRandom(3).bytes(4096))],
  ] as const
) {
  Deno.test(`recover() ends the log before ${what} behind the last block`, async () => {
    const built = blocksAt(0, groups(2));
    const end = built.bytes.length;
    const { recovery, collector, disk } = await recover({ [FIRST]: concat(built.bytes, tail) });
    // Zeros are written ahead of the log on purpose; anything else was torn.
    const tornBytes = tail.some((byte) => byte !== 0) ? tail.length : 0;
    deepEqual(recovery, { end, tornBytes, damage: [] });
    equal(collector.records.length, 6);
    deepEqual((await recover(disk)).recovery, { end, tornBytes: 0, damage: [] });
  });
}

Deno.test("recover() cuts the last block off for any flipped bit in it", async () => {
  const built = blocksAt(0, groups(2));
  const start = built.starts[1]!;
  for (let at = start; at < built.bytes.length; at++) {
    const bytes = changed(built.bytes, (copy) => copy[at]! ^= 1 << (at % 8));
    const { recovery, collector } = await recover({ [FIRST]: bytes });
    deepEqual(recovery, { end: start, tornBytes: bytes.length - start, damage: [] });
    equal(names(collector), "a0 a1 a2");
  }
});

Deno.test("recover() cuts off what a write out of order left: records without their header", async () => {
  const built = blocksAt(0, groups(2));
  const bytes = changed(
    built.bytes,
    (copy) => copy.fill(0, built.starts[1], built.starts[1]! + BLOCK_HEADER_BYTES),
  );
  const { recovery, collector } = await recover({ [FIRST]: bytes });
  deepEqual([recovery.end, recovery.damage.length], [built.starts[1], 0]);
  equal(collector.records.length, 3);
});

Deno.test("recover() loses one record to a flipped bit below a later block's mark", async () => {
  const built = blocksAt(0, groups(3));
  const records = built.starts[1]! + BLOCK_HEADER_BYTES;
  const second = records + recordBytes(3);
  for (let at = second + 4; at < second + 8 + 13; at++) {
    const bytes = changed(built.bytes, (copy) => copy[at]! ^= 4);
    const { recovery, collector } = await recover({ [FIRST]: bytes });
    deepEqual(recovery, {
      end: bytes.length,
      tornBytes: 0,
      damage: [{
        position: second,
        bytes: recordBytes(13),
        reason: "the record's checksum is wrong",
      }],
    });
    equal(names(collector), "a0 a1 a2 b0 b2 c0 c1 c2");
    equal(collector.records[3]?.position, records);
  }
});

Deno.test("recover() reports a record whose first word is damaged, and keeps all other blocks", async () => {
  const built = blocksAt(0, groups(3));
  const word = built.starts[1]! + BLOCK_HEADER_BYTES + recordBytes(3);
  for (let bit = 0; bit < 32; bit++) {
    const bytes = changed(built.bytes, (copy) => copy[word + (bit >>> 3)]! ^= 1 << (bit & 7));
    const { recovery, collector } = await recover({ [FIRST]: bytes });
    equal(recovery.end, bytes.length);
    ok(recovery.damage.length > 0, `bit ${bit} goes unnoticed`);
    const kept = names(collector);
    ok(kept.startsWith("a0 a1 a2 b0") && kept.endsWith("c0 c1 c2"), kept);
    ok(!kept.includes("b1"), kept);
  }
});

Deno.test("recover() passes over a block whose header is damaged to the next one", async () => {
  const built = blocksAt(0, groups(4));
  const start = built.starts[1]!;
  for (let at = start; at < start + BLOCK_HEADER_BYTES; at++) {
    const bytes = changed(built.bytes, (copy) => copy[at]! ^= 0x80);
    const { recovery, collector } = await recover({ [FIRST]: bytes });
    deepEqual(recovery, {
      end: bytes.length,
      tornBytes: 0,
      damage: [{
        position: start,
        bytes: built.starts[2]! - start,
        reason: "no block can be read here (bad_header)",
      }],
    });
    equal(names(collector), "a0 a1 a2 c0 c1 c2 d0 d1 d2");
  }
});

Deno.test("recover() passes over zeros in the middle of the last file", async () => {
  const built = blocksAt(0, groups(4));
  const bytes = changed(built.bytes, (copy) => copy.fill(0, built.starts[1], built.starts[3]));
  const { recovery, collector } = await recover({ [FIRST]: bytes });
  deepEqual(recovery.damage.map(({ position, bytes }) => [position, bytes]), [
    [built.starts[1], built.starts[3]! - built.starts[1]!],
  ]);
  equal(names(collector), "a0 a1 a2 d0 d1 d2");
});

Deno.test("recover() cuts off a torn tail behind damage that it passed over", async () => {
  const built = blocksAt(0, groups(4));
  const bytes = changed(built.bytes, (copy) => copy[built.starts[1]!]! ^= 1).slice(0, -1);
  const { recovery, collector } = await recover({ [FIRST]: bytes });
  deepEqual([recovery.end, recovery.damage.length], [built.starts[3], 1]);
  equal(names(collector), "a0 a1 a2 c0 c1 c2");
});

Deno.test("recover() takes a later block without a mark above it for part of the torn group", async () => {
  const first = blocksAt(0, groups(1));
  const torn = first.bytes.length;
  const second = changed(blocksAt(torn, groups(1)).bytes, (copy) => copy[0]! ^= 1);
  const third = blocksAt(torn + second.length, groups(1), { synced: torn });
  const { recovery, collector } = await recover({
    [FIRST]: concat(first.bytes, second, third.bytes),
  });
  deepEqual([recovery.end, recovery.damage.length], [torn, 0]);
  equal(collector.records.length, 3);
});

Deno.test("recover() never shows a stale block: other position or earlier epoch", async () => {
  const first = blocksAt(0, groups(1), { epoch: 3 });
  const end = first.bytes.length;
  for (
    const [what, stale] of [
      ["the first block again", first.bytes],
      ["a block of 8 bytes before", blocksAt(end - 8, groups(2), { epoch: 3 }).bytes],
      ["an earlier epoch", blocksAt(end, groups(2), { epoch: 2 }).bytes],
      ["position 0", blocksAt(0, groups(2), { epoch: 4 }).bytes],
    ] as const
  ) {
    const { recovery, collector } = await recover({ [FIRST]: concat(first.bytes, stale) });
    deepEqual(recovery, { end, tornBytes: stale.length, damage: [] }, what);
    equal(collector.records.length, 3, what);
  }
});

Deno.test("recover() quarantines a stale block in a sealed file", async () => {
  const first = blocksAt(0, groups(1), { epoch: 3 });
  const stale = blocksAt(first.bytes.length, groups(1), { epoch: 2 });
  const end = stale.starts[1]!;
  const { recovery, collector } = await recover({
    [FIRST]: concat(first.bytes, stale.bytes),
    [pathOf(end)]: blocksAt(end, groups(2), { epoch: 3 }).bytes,
  });
  deepEqual(recovery.damage, [{
    position: first.bytes.length,
    bytes: stale.bytes.length,
    reason: "no block can be read here (foreign_block)",
  }]);
  equal(collector.records.length, 9);
});

Deno.test("recover() quarantines every kind of damage in a sealed file and reads the next", async () => {
  const sealed = blocksAt(0, groups(3));
  const end = sealed.bytes.length;
  const [, second, third] = sealed.starts as [number, number, number];
  const cases: readonly [Found, (copy: Uint8Array) => void, number][] = [
    ["bad_header", (copy) => copy[third]! ^= 1, 6],
    ["zero", (copy) => copy.fill(0, third), 6],
    ["bad_records", (copy) => copy[third + BLOCK_HEADER_BYTES + 9]! ^= 1, 8],
    ["bad_header", (copy) => copy[second + 20]! ^= 1, 6],
    ["zero", (copy) => copy.fill(0, second, second + BLOCK_HEADER_BYTES), 6],
    ["bad_header", (copy) => copy.fill(255), 0],
  ];
  for (const [found, change, survivors] of cases) {
    const { recovery, collector } = await recover({
      [FIRST]: changed(sealed.bytes, change),
      [pathOf(end)]: blocksAt(end, groups(1)).bytes,
    });
    equal(recovery.damage.length, 1, found);
    equal(recovery.tornBytes, 0);
    if (found !== "bad_records") ok(recovery.damage[0]!.reason.includes(found), found);
    equal(collector.records.length, survivors + 3, found);
  }
});

Deno.test("recover() quarantines a block that a sealed file has only in part", async () => {
  const sealed = blocksAt(0, groups(2));
  for (const [found, cut] of [["cut_block", 8], ["short", 0]] as const) {
    const at = found === "short"
      ? sealed.starts[1]! + BLOCK_HEADER_BYTES - 8
      : sealed.bytes.length - cut;
    const { recovery, collector } = await recover({
      [FIRST]: sealed.bytes.slice(0, at),
      [pathOf(at)]: blocksAt(at, groups(1)).bytes,
    });
    deepEqual(recovery.damage.map(({ position, reason }) => [position, reason]), [
      [sealed.starts[1], `no block can be read here (${found})`],
    ]);
    equal(collector.records.length, 6);
  }
});

Deno.test("recover() takes bad bytes below what was synced for damage, though they come last", async () => {
  const built = blocksAt(0, groups(2));
  const start = built.starts[1]!;
  const end = built.bytes.length;
  const flipped = changed(built.bytes, (copy) => copy[end - 12]! ^= 1);
  const one = await recover({ [FIRST]: flipped }, { syncedTo: end });
  deepEqual([one.recovery.end, one.recovery.damage.length], [end, 1]);
  equal(names(one.collector), "a0 a1 a2 b0 b1");
  const headless = concat(changed(built.bytes, (copy) => copy[start]! ^= 1), Uint8Array.of(1, 2));
  const other = await recover({ [FIRST]: headless }, { syncedTo: end });
  deepEqual([other.recovery.end, other.recovery.damage.length], [end, 1]);
  equal(names(other.collector), "a0 a1 a2");
  // The log goes on behind it, and the next block vouches.
  const disk = other.disk;
  disk.writeDurable(FIRST, concat(disk.bytes(FIRST), blocksAt(end, groups(1)).bytes));
  const again = await recover(disk);
  equal(names(again.collector), "a0 a1 a2 a0 a1 a2");
  equal(again.recovery.damage.length, 1);
});

Deno.test("recover() starts at any block and leaves what is before it alone", async () => {
  const built = blocksAt(0, groups(3));
  const bytes = changed(built.bytes, (copy) => copy.fill(255, 0, built.starts[1]));
  const { recovery, collector } = await recover({ [FIRST]: bytes }, { from: built.starts[1]! });
  deepEqual(recovery, { end: bytes.length, tornBytes: 0, damage: [] });
  equal(names(collector), "b0 b1 b2 c0 c1 c2");
});

Deno.test("recover() reads blocks larger than its window, whole, damaged and torn", async () => {
  const random = new SeededRandom(4);
  const big = (bytes: number) => ({ kind: 2, payload: random.bytes(bytes) });
  const built = blocksAt(0, [
    [textRecord("a0"), big(700_000)],
    [textRecord("b0"), big(1_500_000), textRecord("b2"), big(1_300_000), textRecord("b4")],
    [textRecord("c0"), big(900_000)],
  ]);
  const whole = await recover({ [FIRST]: built.bytes });
  deepEqual(whole.recovery, { end: built.bytes.length, tornBytes: 0, damage: [] });
  equal(whole.collector.records.length, 9);

  const at = built.starts[1]! + BLOCK_HEADER_BYTES + recordBytes(2) + 1_000_000;
  const flipped = changed(built.bytes, (copy) => copy[at]! ^= 1);
  const damaged = await recover({ [FIRST]: flipped });
  equal(damaged.recovery.damage.length, 1);
  equal(damaged.recovery.damage[0]?.bytes, recordBytes(1_500_000));
  deepEqual(
    damaged.collector.records.map(({ payload }) => payload.length),
    [2, 700_000, 2, 2, 1_300_000, 2, 2, 900_000],
  );
  deepEqual(
    damaged.collector.texts.filter((text) => text.length === 2),
    ["a0", "b0", "b2", "b4", "c0"],
  );

  const headless = changed(built.bytes, (copy) => copy[built.starts[1]!]! ^= 1);
  equal((await recover({ [FIRST]: headless })).collector.records.length, 4);

  const torn = await recover({ [FIRST]: built.bytes.slice(0, -8) });
  equal(torn.recovery.end, built.starts[2]);
  equal(torn.collector.records.length, 7);
});

Deno.test("recover() finds the next block wherever it lies to the edges of its window", async () => {
  const random = new SeededRandom(5);
  for (let shift = -72; shift <= 72; shift += 8) {
    const gap = (1 << 20) + shift;
    const garbage = random.bytes(gap);
    const next = blocksAt(gap, groups(1));
    const { recovery, collector } = await recover({ [FIRST]: concat(garbage, next.bytes) });
    deepEqual(recovery.damage.map(({ position, bytes }) => [position, bytes]), [[0, gap]]);
    equal(collector.records.length, 3);
  }
});

function pathOf(position: number): string {
  return `/log/${String(position).padStart(16, "0")}.log`;
}
