import { deepEqual, equal, ok } from "node:assert/strict";
import { type DiskFile } from "@sluice/shared/runtime";
import {
  DiskFileWrapper,
  DiskWrapper,
  SeededRandom,
  SimClock,
  SimDisk,
} from "@sluice/shared/testing";
import { Logger } from "@sluice/shared/telemetry";
import { Spool } from "./mod.ts";
import {
  OpenedSpool,
  publishOf,
  SPOOL_OPTIONS,
  SPOOL_PATH,
  textsOf,
} from "./spool_fixture_test.ts";

const ALL = 1_000_000;
const LOG = `${SPOOL_PATH}/journal/0000000000000000.log`;
/** What the ring does not hold is read from disk. */
const OPTIONS = { fileBytes: 2 ** 20, heldMax: 100_000, quarantineMax: 1000 };

/** Where a text stands in the first file. */
function placeOf(disk: SimDisk, text: string): number {
  return new TextDecoder("latin1").decode(disk.bytes(LOG)).indexOf(text);
}

async function stored(texts: readonly string[], group = 1): Promise<SimDisk> {
  const opened = await OpenedSpool.open(new SimDisk(), OPTIONS);
  for (let at = 0; at < texts.length; at += group) {
    await Promise.all(
      texts.slice(at, at + group).map((text) => opened.spool.append(publishOf("t", text), null)),
    );
  }
  await opened.spool.close();
  return opened.disk;
}

function range(count: number): string[] {
  return Array.from({ length: count }, (_, index) => `text ${String(index).padStart(6, "0")}`);
}

for (const group of [1, 10]) {
  Deno.test(`a damaged publish is put in quarantine, and the others come (${group} a group)`, async () => {
    const texts = range(30);
    const disk = await stored(texts, group);
    disk.flipBit(LOG, placeOf(disk, texts[14]!), 1);
    let opened = await OpenedSpool.open(disk, OPTIONS);
    for (let life = 0; life < 2; life++) {
      const { spool } = opened;
      const found = textsOf(await spool.take(1000, ALL));
      deepEqual(found, texts.filter((_, index) => index !== 14));
      equal(spool.figures.damaged, life === 0 ? 1 : 0);
      const [lost, ...more] = await spool.quarantined(0, 10);
      deepEqual(more, []);
      ok(lost !== undefined && lost.isDamaged && lost.reason.startsWith("damaged: "));
      equal(await spool.body(lost.id), null);
      equal(await spool.retry(lost.id), false);
      deepEqual([spool.figures.count, spool.hasBacklog("t")], [29, true]);
      opened = await opened.again(OPTIONS);
    }
    const { spool } = opened;
    const [lost] = await spool.quarantined(0, 10);
    equal(await spool.drop(lost!.id), true);
    spool.settle(await spool.take(1000, ALL));
    deepEqual([spool.figures.count, spool.figures.quarantined], [0, 0]);
    equal(spool.hasBacklog("t"), false);
    await spool.close();
  });
}

Deno.test("damage at any place costs what is there, and never the rest", async () => {
  for (let seed = 0; seed < 150; seed++) {
    const random = new SeededRandom(seed);
    const texts = range(random.between(5, 60));
    const group = random.pick([1, 3, 20]);
    const disk = await stored(texts, group);
    const bytes = disk.bytes(LOG);
    const end = placeOf(disk, texts.at(-1)!);
    // A flipped bit, or a sector of nonsense; not in the last group, which might be torn.
    const from = random.below(Math.max(1, end - (group + 1) * 150));
    const isBit = random.chance(0.6);
    if (isBit) disk.flipBit(LOG, from, random.below(8));
    else {
      bytes.set(
        random.bytes(random.between(1, Math.min(300, Math.max(1, end - from - (group + 1) * 150)))),
        from,
      );
      disk.writeDurable(LOG, bytes);
    }
    const opened = await OpenedSpool.open(disk, OPTIONS).catch(() => null);
    // A kind that is none is taken for one of a later release, as in the broker's log.
    if (opened === null) continue;
    const { spool } = opened;
    const found = textsOf(await spool.take(1000, ALL));
    const label = `seed ${seed}`;
    const missing = texts.filter((text) => !found.includes(text));
    deepEqual(found, texts.filter((text) => !missing.includes(text)), label);
    ok(
      missing.length <= (isBit ? group : 2 * group + 3),
      `${label}: ${missing.length} are missing`,
    );
    // What stood before the first number that is known is lost without a name.
    const named = await spool.quarantined(0, 1000);
    ok(named.length <= missing.length, label);
    if (!missing.includes(texts[0]!)) equal(named.length, missing.length, label);
    deepEqual([spool.figures.damaged, spool.figures.count], [named.length, found.length], label);
    await spool.close();
  }
});

Deno.test("what is damaged after the start is met when its turn comes", async () => {
  const texts = range(1000).map((text) => text.padEnd(1000, "."));
  const disk = await stored(texts, 100);
  const opened = await OpenedSpool.open(disk, OPTIONS);
  const { spool } = opened;
  const first = await spool.take(10, ALL);
  await spool.append(publishOf("t", "the last"), null);
  for (const index of [500, 501, 777]) disk.flipBit(LOG, placeOf(disk, texts[index]!), 2);
  const found = textsOf(await spool.take(10_000, 10 * ALL));
  equal(found.length, 988);
  deepEqual(found.slice(489, 492), [texts[499], texts[502], texts[503]]);
  deepEqual([spool.figures.damaged, spool.figures.quarantined], [3, 3]);
  // Nobody knows of what topics they were: it is counted anew at the end of the log.
  deepEqual([spool.figures.count, spool.hasBacklog("t")], [989 + 10 - 1, true].slice(0, 2));
  spool.settle(first);
  await opened.flush();
  await spool.close();
});

Deno.test("a damaged entry of a broker is put in quarantine when it is asked for", async () => {
  const texts = range(3);
  const disk = await stored(texts);
  let opened = await OpenedSpool.open(disk, OPTIONS);
  await opened.spool.assign(await opened.spool.take(2, ALL), "one:4150");
  await opened.spool.close();
  disk.flipBit(LOG, placeOf(disk, texts[0]!), 0);
  opened = await OpenedSpool.open(disk, OPTIONS);
  const { spool } = opened;
  deepEqual(textsOf(await spool.takeAssigned("one:4150", 10, ALL)), [texts[1]]);
  deepEqual(textsOf(await spool.take(10, ALL)), [texts[2]]);
  deepEqual([spool.figures.damaged, spool.figures.quarantined], [1, 1]);
  equal(spool.figures.count, 2);
  opened = await opened.again(OPTIONS);
  const [entry] = await opened.spool.quarantined(0, 10);
  deepEqual([entry?.isDamaged, entry?.broker], [true, "one:4150"]);
  equal(await opened.spool.drop(entry!.id), true);
  await opened.spool.close();
});

Deno.test("damaged entries beyond the quarantine's bound are given up, and settled", async () => {
  const texts = range(30);
  const disk = await stored(texts);
  for (let index = 5; index < 15; index++) disk.flipBit(LOG, placeOf(disk, texts[index]!), 3);
  let opened = await OpenedSpool.open(disk, { ...OPTIONS, quarantineMax: 4 });
  const { spool } = opened;
  equal((await spool.take(100, ALL)).length, 20);
  deepEqual([spool.figures.damaged, spool.figures.quarantined], [10, 4]);
  ok(opened.lines.some((line) => line.includes("ERROR") && line.includes("damaged")));
  opened = await opened.again({ ...OPTIONS, quarantineMax: 4 });
  equal((await opened.spool.take(100, ALL)).length, 20);
  deepEqual([opened.spool.figures.damaged, opened.spool.figures.quarantined], [0, 4]);
  await opened.spool.close();
});

/** A disk with a place that cannot be read. */
class BadDisk extends DiskWrapper {
  bad: { readonly path: string; readonly from: number; readonly to: number } | null = null;

  override wrapFile(file: DiskFile, path: string): DiskFile {
    return new BadFile(file, path, this);
  }
}

class BadFile extends DiskFileWrapper {
  readonly #path: string;
  readonly #disk: BadDisk;

  constructor(inner: DiskFile, path: string, disk: BadDisk) {
    super(inner);
    this.#path = path;
    this.#disk = disk;
  }

  override async readAt(position: number, into: Uint8Array): Promise<number> {
    const { bad } = this.#disk;
    if (bad?.path === this.#path && position < bad.to && position + into.length > bad.from) {
      // Closed, so that the failure is one of the disk's own.
      const file = await this.#disk.inner.open(this.#path, "read");
      (this.#disk.inner as SimDisk).failNext({ operation: "read", kind: "io" });
      try {
        return await file.readAt(position, into);
      } finally {
        file.close();
      }
    }
    return await super.readAt(position, into);
  }
}

Deno.test("what the disk cannot read is passed over, to the next block behind it", async () => {
  const texts = range(3000).map((text) => text.padEnd(200, "."));
  const inner = await stored(texts, 10);
  const disk = new BadDisk(inner);
  const clock = new SimClock();
  const lines: string[] = [];
  const spool = await Spool.open({
    disk,
    clock,
    logger: new Logger({ sink: (line) => lines.push(line), clock }),
    onFailed: () => {},
  }, { ...SPOOL_OPTIONS, ...OPTIONS, quarantineMax: 10_000 });
  disk.bad = { path: LOG, from: 300_000, to: 300_512 };
  const found = textsOf(await spool.take(10_000, 10 * ALL));
  const missing = texts.filter((text) => !found.includes(text));
  ok(missing.length > 0 && missing.length < 2100, `${missing.length} are missing`);
  deepEqual(found, texts.filter((text) => !missing.includes(text)));
  equal(spool.figures.damaged, missing.length);
  await spool.close();
});
