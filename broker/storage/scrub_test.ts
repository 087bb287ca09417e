/** The scrub over a real log on a simulated disk, in simulated time. */
import { deepStrictEqual as equal, ok } from "node:assert/strict";
import type { FileLogStore } from "@sluice/shared/log";
import { DiskError, type DiskFile, readWhole, TIMER_DELAY_MS_MAX } from "@sluice/shared/runtime";
import { Logger } from "@sluice/shared/telemetry";
import { DiskFileWrapper, DiskWrapper, settle, SimClock, SimDisk } from "@sluice/shared/testing";
import { compactFile } from "./compact_file.ts";
import { SCRUB_NOTE_MS, SCRUB_START_DELAY_MS, Scrubber, type ScrubOptions } from "./scrub.ts";
import { SCRUB_FILE } from "./scrub_file.ts";
import { SCRUB_HELD_MS } from "./scrub_pass.ts";
import type { Storage } from "./storage.ts";
import { createTopic, openStorage, publish } from "./storage_test_fixture.ts";
import type { TopicState } from "./state.ts";

const KIB = 1024;
const HOUR_MS = 3_600_000;
/** One read of 64 KiB a second, so that a little log takes a while. */
const SLOW: ScrubOptions = { rateBytes: 64 * KIB, intervalMs: 0 };
const NOTE_PATH = `/data/${SCRUB_FILE}`;

/** Counts what is read of the log, and fails reads of chosen places. */
class WatchedDisk extends DiskWrapper {
  readBytes = 0;
  largestRead = 0;
  /** Bytes of the log that cannot be read. */
  bad: { from: number; to: number } | null = null;
  /** Held back until it resolves. */
  gate: Promise<void> | null = null;

  override wrapFile(file: DiskFile, path: string): DiskFile {
    return path.endsWith(".log") ? new WatchedFile(file, this, startOf(path)) : file;
  }
}

class WatchedFile extends DiskFileWrapper {
  readonly #disk: WatchedDisk;
  readonly #start: number;

  constructor(inner: DiskFile, disk: WatchedDisk, start: number) {
    super(inner);
    this.#disk = disk;
    this.#start = start;
  }

  override async readAt(position: number, into: Uint8Array): Promise<number> {
    await this.#disk.gate;
    const { bad } = this.#disk;
    const from = this.#start + position;
    if (bad !== null && from < bad.to && from + into.length > bad.from) {
      throw new DiskError("io", "bad sector");
    }
    const read = await this.inner.readAt(position, into);
    this.#disk.readBytes += read;
    this.#disk.largestRead = Math.max(this.#disk.largestRead, into.length);
    return read;
  }
}

function startOf(path: string): number {
  return Number(path.slice(path.lastIndexOf("/") + 1, -4));
}

/** A storage with a scrubber, of one process. */
interface Life {
  readonly disk: WatchedDisk;
  readonly sim: SimDisk;
  readonly clock: SimClock;
  readonly storage: Storage;
  readonly scrubber: Scrubber;
  readonly lines: string[];
  readonly topic: TopicState;
  held: boolean;
  crashed: boolean;
}

/** Runs a life on a disk, and ends it as a stop or a crash does. */
async function live(
  sim: SimDisk,
  options: ScrubOptions & { readonly logFileBytes?: number },
  test: (life: Life) => Promise<void>,
  clock = new SimClock(),
): Promise<void> {
  const disk = new WatchedDisk(sim);
  const { storage } = await openStorage(disk, clock, {
    ringBytes: 1 << 20,
    logFileBytes: options.logFileBytes ?? 20_000,
  });
  const topic = storage.state.topics.get("t") ?? createTopic(storage, "t");
  const lines: string[] = [];
  const scrubber = new Scrubber({
    disk,
    path: "/data",
    clock,
    logger: new Logger({ sink: (line) => lines.push(line), clock, level: "warn" }),
    store: storage.blocks,
    log: storage.log,
    isHeld: () => life.held,
  }, options);
  const life: Life = {
    disk,
    sim,
    clock,
    storage,
    scrubber,
    lines,
    topic,
    held: false,
    crashed: false,
  };
  try {
    await test(life);
  } finally {
    disk.gate = null;
    if (life.crashed) await scrubber.abandon();
    else await scrubber.stop();
    await storage.abandon();
  }
  equal(clock.pendingTimers, 0);
}

/** Appends groups of some messages each. */
async function fill({ storage, topic }: Life, groups: number, messages = 4): Promise<void> {
  for (let group = 0; group < groups; group++) {
    for (let at = 0; at < messages; at++) publish(storage, topic, `${group}.${at}`.padEnd(900));
    await storage.drain();
  }
}

/** Has a pass go all the way; returns how long it took. */
async function pass({ clock, scrubber }: Life): Promise<number> {
  const startMs = clock.monoMs();
  await clock.runUntil(scrubber.start(), 10 * HOUR_MS);
  return clock.monoMs() - startMs;
}

/** Flips a bit of the byte at a position of the log. */
function flip({ sim, storage }: Life, position: number): void {
  const file = storage.logFiles.findLast(({ start }) => start <= position);
  ok(file !== undefined);
  const name = String(file.start).padStart(16, "0");
  sim.flipBit(`/data/journal/${name}.log`, position - file.start, 2);
}

/** What is found, as `position+bytes reason`. */
function findings({ scrubber }: Life): string[] {
  return scrubber.report.damage.map(({ position, bytes, reason }) =>
    `${position}+${bytes} ${reason}`
  );
}

async function note(sim: SimDisk): Promise<{ position: number | null; damage: unknown[] }> {
  return JSON.parse(new TextDecoder().decode(await readWhole(sim, NOTE_PATH, 1 << 20)));
}

async function hasNote(sim: SimDisk): Promise<boolean> {
  return (await sim.list("/data")).includes(SCRUB_FILE);
}

/** Puts another content in the place of the note. */
async function overwriteNote(sim: SimDisk, text: string): Promise<void> {
  await sim.remove(NOTE_PATH).catch(() => {});
  const file = await sim.open(NOTE_PATH, "create");
  await file.writeAt(0, new TextEncoder().encode(text));
  await file.syncData();
  file.close();
}

Deno.test("a clean pass reads every byte once, at the rate given, and finds nothing", async () => {
  await live(new SimDisk(), SLOW, async (life) => {
    await fill(life, 100);
    const { storage, scrubber, disk } = life;
    ok(storage.logFiles.length > 10);
    disk.readBytes = 0;
    const tookMs = await pass(life);
    const bytes = storage.log.durableEnd;
    equal(disk.readBytes, bytes);
    ok(disk.largestRead <= 256 * KIB);
    const wholeMs = bytes * 1000 / SLOW.rateBytes;
    ok(tookMs <= wholeMs && tookMs > wholeMs - 1000, `${tookMs} of ${wholeMs} ms`);
    const { report } = scrubber;
    equal(report.running, false);
    equal([report.bytesVerified, report.passes, report.position, report.end], [
      bytes,
      1,
      bytes,
      bytes,
    ]);
    equal([report.damageCount, report.damage], [0, []]);
    equal(report.lastEndedMs! - report.lastStartedMs!, Math.floor(tookMs));
  });
});

Deno.test("bytes at the seams of reads are not read twice either", async () => {
  await live(new SimDisk(), { ...SLOW, logFileBytes: 1 << 20 }, async (life) => {
    const { storage, topic } = life;
    // Blocks of which a header is the larger part, so that seams are in headers.
    for (let group = 0; group < 3000; group++) {
      publish(storage, topic, "");
      await storage.drain();
    }
    equal(storage.logFiles.length, 1);
    ok(storage.log.end > 5 * SLOW.rateBytes);
    life.disk.readBytes = 0;
    await pass(life);
    equal(life.disk.readBytes, life.storage.log.durableEnd);
    equal(findings(life), []);
  });
});

Deno.test("a block larger than what is read at a time is checked to its last record", async () => {
  await live(new SimDisk(), SLOW, async (life) => {
    // Groups of more than four reads each.
    await fill(life, 2, 300);
    ok(life.storage.log.end > 2 * 3 * SLOW.rateBytes);
    await pass(life);
    equal(findings(life), []);
    const last = life.storage.log.end - 900;
    flip(life, last);
    await pass(life);
    equal(life.scrubber.report.damage.map(({ reason }) => reason), [
      "the record's checksum is wrong",
    ]);
    const [found] = life.scrubber.report.damage;
    ok(found!.position < last && found!.position + found!.bytes > last);
    // Within the block, too, a place that is found again is one place.
    flip(life, last);
    flip(life, 400);
    await pass(life);
    const done = life.scrubber.start();
    await life.clock.run(1500);
    equal([life.scrubber.report.position, life.scrubber.report.damageCount], [0, 1]);
    await life.clock.runUntil(done, HOUR_MS);
  });
});

Deno.test("a flipped bit in a sealed file and one in the last file are found, named and logged", async () => {
  await live(new SimDisk(), SLOW, async (life) => {
    await fill(life, 20);
    const { storage, scrubber, lines } = life;
    const sealed = storage.logFiles[1]!;
    const last = storage.logFiles.at(-1)!;
    flip(life, sealed.start + 200);
    flip(life, last.start + 300);
    await pass(life);
    equal(scrubber.report.damageCount, 2);
    equal(scrubber.report.damage.map(({ position }) => position), [
      sealed.start + 64,
      last.start + 64,
    ]);
    equal(lines.length, 2);
    ok(lines[0]!.includes(`position=${sealed.start + 64}`), lines[0]);
    // The next pass finds the same places, not more.
    await pass(life);
    equal(scrubber.report.damageCount, 2);
  });
});

Deno.test("a block whose header is damaged is passed over up to the next block", async () => {
  await live(new SimDisk(), SLOW, async (life) => {
    await fill(life, 1);
    const second = life.storage.log.end;
    await fill(life, 1);
    const third = life.storage.log.end;
    await fill(life, 1);
    flip(life, second + 20);
    flip(life, third + 100);
    await pass(life);
    const [bad, record] = findings(life);
    equal(bad, `${second}+${third - second} no block can be read here (bad_header)`);
    ok(record!.startsWith(`${third + 64}+`) && record!.endsWith("the record's checksum is wrong"));
    equal(life.scrubber.report.damageCount, 2);
  });
});

Deno.test("a length that is damaged is the whole block's damage", async () => {
  await live(new SimDisk(), SLOW, async (life) => {
    await fill(life, 1);
    const start = life.storage.log.end;
    await fill(life, 1);
    const end = life.storage.log.end;
    await fill(life, 1);
    flip(life, start + 67);
    await pass(life);
    equal(findings(life), [`${start}+${end - start} a record is longer than its block`]);
  });
});

Deno.test("what is behind the durable end, zeros or half a group, is not damage", async () => {
  await live(new SimDisk(), SLOW, async (life) => {
    await fill(life, 3);
    const { storage, sim } = life;
    const last = storage.logFiles.at(-1)!;
    const path = `/data/journal/${String(last.start).padStart(16, "0")}.log`;
    const file = await sim.open(path, "write");
    ok(await file.size() > last.end - last.start, "there are zeros ahead of the log");
    await file.writeAt(last.end - last.start, new Uint8Array(500).fill(7));
    file.close();
    await pass(life);
    equal(life.scrubber.report.damageCount, 0);
    equal(life.scrubber.report.bytesVerified, storage.log.durableEnd);
  });
});

Deno.test("a pass ends where the log did when it began, whatever is written meanwhile", async () => {
  await live(new SimDisk(), SLOW, async (life) => {
    await fill(life, 40);
    const { storage, scrubber, clock } = life;
    const end = storage.log.durableEnd;
    const done = scrubber.start();
    await clock.run(1500);
    await fill(life, 40);
    await clock.runUntil(done, HOUR_MS);
    equal([scrubber.report.end, scrubber.report.bytesVerified], [end, end]);
  });
});

Deno.test("files that are removed under a pass are passed over, and so is what was found in them", async () => {
  await live(new SimDisk(), SLOW, async (life) => {
    await fill(life, 60);
    await fillOther(life);
    const { storage, scrubber, clock, topic } = life;
    const doomed = storage.logFiles[6]!;
    flip(life, doomed.start + 200);
    await pass(life);
    equal(scrubber.report.damageCount, 1);
    const done = scrubber.start();
    await clock.run(500);
    ok(scrubber.report.position < doomed.start);
    storage.decide({ type: "topic_deleted", topic: topic.number });
    await storage.drain();
    await storage.maintain(true);
    await fillOther(life);
    await storage.maintain(true);
    const [first] = storage.logFiles;
    ok(first!.start > doomed.start, "reclaim has removed the file");
    ok(first!.start < scrubber.report.end, "something of the pass is left");
    flip(life, first!.start + 70);
    await clock.runUntil(done, HOUR_MS);
    equal(scrubber.report.passes, 2);
    equal(scrubber.report.damage.map(({ position }) => position), [first!.start + 64]);
    equal(scrubber.report.damageCount, 1);
    equal(life.lines.length, 2);
  });
});

Deno.test("a file that is replaced under a pass is read again, and its new blocks are no damage", async () => {
  for (const share of [0.05, 0.4]) {
    await live(new SimDisk(), { rateBytes: 4 * KIB, intervalMs: 0 }, async (life) => {
      await fill(life, 60);
      const { storage, scrubber, clock } = life;
      const file = storage.logFiles[6]!;
      const done = scrubber.start();
      while (scrubber.report.position < file.start + share * (file.end - file.start)) {
        await clock.run(10);
      }
      ok(scrubber.report.position < file.end);
      // Blocks of nothing that begin elsewhere.
      const world = { store: storage.blocks as FileLogStore, turn: () => Promise.resolve() };
      const made = await compactFile({ ...world, isOwed: () => false }, file, Infinity);
      ok(typeof made !== "string");
      await made.replacement.swap(() => {});
      await clock.runUntil(done, HOUR_MS);
      equal([scrubber.report.passes, scrubber.report.damageCount], [1, 0]);
      equal(life.lines, []);
    });
  }
});

Deno.test("what was found in a file that has gone since is not reported by the next pass", async () => {
  await live(new SimDisk(), SLOW, async (life) => {
    await fill(life, 60);
    const { storage, scrubber, topic } = life;
    flip(life, storage.logFiles[0]!.start + 2000);
    await pass(life);
    equal(scrubber.report.damageCount, 1);
    storage.decide({ type: "topic_deleted", topic: topic.number });
    await storage.drain();
    await storage.maintain(true);
    await fillOther(life);
    await storage.maintain(true);
    ok(storage.logFiles[0]!.start > 0);
    await pass(life);
    equal([scrubber.report.damageCount, scrubber.report.damage], [0, []]);
  });
});

/** Has the log roll on with messages of another topic. */
async function fillOther({ storage }: Life): Promise<void> {
  const topic = storage.state.topics.get("other") ?? createTopic(storage, "other");
  for (let group = 0; group < 12; group++) {
    for (let at = 0; at < 4; at++) publish(storage, topic, "o".repeat(900));
    await storage.drain();
  }
}

Deno.test("a file that is removed while it is read is no damage", async () => {
  await live(new SimDisk(), SLOW, async (life) => {
    await fill(life, 60);
    const { storage, scrubber, clock, disk, topic } = life;
    storage.decide({ type: "topic_deleted", topic: topic.number });
    await storage.drain();
    await storage.maintain(true);
    await fillOther(life);
    let open = () => {};
    disk.gate = new Promise((resolve) => open = resolve);
    const done = scrubber.start();
    await settle();
    const first = storage.logFiles[0]!;
    const maintained = storage.maintain(true);
    await settle();
    disk.gate = null;
    disk.bad = { from: first.start, to: first.end };
    open();
    await maintained;
    ok(storage.logFiles[0]!.start > first.start);
    await clock.runUntil(done, HOUR_MS);
    equal([scrubber.report.passes, scrubber.report.damageCount], [1, 0]);
  });
});

Deno.test("a stop ends a pass at once; the next process goes on from there, with what was found", async () => {
  const sim = new SimDisk();
  const clock = new SimClock();
  let stoppedAt = 0;
  await live(sim, SLOW, async (life) => {
    await fill(life, 100);
    const { scrubber, storage } = life;
    flip(life, storage.logFiles[0]!.start + 200);
    flip(life, storage.logFiles.at(-1)!.start + 200);
    await pass(life);
    equal(scrubber.report.damageCount, 2);
    const done = scrubber.start();
    await clock.run(2500);
    stoppedAt = scrubber.report.position;
    ok(stoppedAt > 0 && stoppedAt < storage.log.durableEnd);
    const beforeMs = clock.monoMs();
    await scrubber.stop();
    await done;
    equal(clock.monoMs(), beforeMs);
    equal([scrubber.report.passes, scrubber.report.damageCount], [1, 2]);
    equal((await note(sim)).position, stoppedAt);
    await scrubber.start();
    equal(scrubber.isRunning, false);
  }, clock);
  await live(sim, SLOW, async (life) => {
    const { scrubber, storage } = life;
    await scrubber.open();
    equal(scrubber.report.damageCount, 2);
    await pass(life);
    equal(scrubber.report.bytesVerified, storage.log.durableEnd - stoppedAt);
    equal(scrubber.report.damageCount, 2);
    equal(life.lines.length, 1, "only what this process has found is news");
    equal(scrubber.report.passes, 1);
  }, clock);
  equal((await note(sim)).position, null);
});

Deno.test("a note that is missing, damaged or of another log only means that all is read", async () => {
  const sim = new SimDisk();
  await live(sim, SLOW, (life) => fill(life, 30));
  const notes = [
    null,
    "",
    "{",
    "[]",
    '{"position":-1,"started_ms":null,"ended_ms":null,"damage_count":0,"damage":[]}',
    '{"position":9000000000,"started_ms":1,"ended_ms":1,"damage_count":0,"damage":[]}',
    '{"position":0,"started_ms":1,"ended_ms":1,"damage_count":0,"damage":[{"position":1}]}',
  ];
  for (const text of notes) {
    if (text === null) await sim.remove(NOTE_PATH).catch(() => {});
    else await overwriteNote(sim, text);
    await live(sim, SLOW, async (life) => {
      await life.scrubber.open();
      await pass(life);
      const { bytesVerified, damageCount } = life.scrubber.report;
      equal([bytesVerified, damageCount], [life.storage.log.durableEnd, 0], `${text}`);
    });
  }
});

Deno.test("a noted position at which no block starts has its file read from the start, not called damaged", async () => {
  const sim = new SimDisk();
  await live(sim, SLOW, (life) => fill(life, 30));
  await live(sim, SLOW, async (life) => {
    const file = life.storage.logFiles.findLast(({ start }) => start <= 30_008)!;
    const place = file.start + 64;
    flip(life, place + 100);
    await overwriteNote(
      sim,
      `{"position":30008,"started_ms":1,"ended_ms":null,"damage_count":1,` +
        `"damage":[{"position":${place},"bytes":960,"reason":"known"}]}`,
    );
    const { scrubber, storage } = life;
    await scrubber.open();
    await pass(life);
    equal(scrubber.report.damage.map(({ position }) => position), [place]);
    equal(scrubber.report.damageCount, 1);
    ok(scrubber.report.bytesVerified >= storage.log.durableEnd - file.start);
  });
});

Deno.test("how far a pass has come is noted at most once a minute; a crash repeats what came after", async () => {
  const sim = new SimDisk();
  const clock = new SimClock();
  let noted = 0;
  await live(sim, SLOW, async (life) => {
    await fill(life, 1400);
    const { scrubber, storage } = life;
    ok(storage.log.durableEnd > 70 * SLOW.rateBytes, "a pass takes more than a minute");
    void scrubber.start();
    await clock.run(SCRUB_NOTE_MS - 1);
    equal(await hasNote(sim), false);
    await clock.run(1);
    await settle();
    noted = (await note(sim)).position!;
    ok(noted > 50 * SLOW.rateBytes);
    await clock.run(10_000);
    equal((await note(sim)).position, noted);
    life.crashed = true;
  }, clock);
  equal((await note(sim)).position, noted);
  await live(sim, SLOW, async (life) => {
    await life.scrubber.open();
    await pass(life);
    const { bytesVerified } = life.scrubber.report;
    equal(bytesVerified, life.storage.log.durableEnd - noted);
  }, clock);
});

Deno.test("a pass waits while the disk is to be left alone, and reads nothing", async () => {
  await live(new SimDisk(), SLOW, async (life) => {
    await fill(life, 200);
    const { clock, scrubber } = life;
    const done = scrubber.start();
    await clock.run(500);
    life.held = true;
    await clock.run(2000);
    const { bytesVerified } = scrubber.report;
    await clock.run(HOUR_MS);
    equal(scrubber.report.bytesVerified, bytesVerified);
    equal(await hasNote(life.sim), false, "nothing is written either");
    life.held = false;
    await clock.run(SCRUB_HELD_MS);
    // No more than one read was saved up.
    ok(scrubber.report.bytesVerified <= bytesVerified + 3 * SLOW.rateBytes);
    await clock.runUntil(done, HOUR_MS);
    equal(scrubber.report.bytesVerified, life.storage.log.durableEnd);
  });
});

Deno.test("start() while a pass is running gives that pass, and one while idle begins a new one", async () => {
  await live(new SimDisk(), SLOW, async (life) => {
    await fill(life, 40);
    const { clock, scrubber } = life;
    const first = scrubber.start();
    equal(scrubber.isRunning, true);
    equal(scrubber.start(), first);
    await clock.runUntil(first, HOUR_MS);
    equal(scrubber.report.passes, 1);
    await pass(life);
    equal(scrubber.report.passes, 2);
    equal(scrubber.report.bytesVerified, 2 * life.storage.log.durableEnd);
  });
});

Deno.test("passes come by themselves an interval after the last one's end, also across a restart", async () => {
  const sim = new SimDisk();
  const clock = new SimClock();
  const options = { rateBytes: 1 << 20, intervalMs: 24 * HOUR_MS };
  await live(sim, options, async (life) => {
    await fill(life, 10);
    const { scrubber } = life;
    await scrubber.open();
    await clock.run(SCRUB_START_DELAY_MS - 1);
    equal(scrubber.report.passes, 0);
    await clock.run(1000);
    equal(scrubber.report.passes, 1);
    await clock.run(10 * HOUR_MS);
    await pass(life);
    equal(scrubber.report.passes, 2);
    await clock.run(24 * HOUR_MS - 1000);
    equal(scrubber.report.passes, 2);
    await clock.run(2000);
    equal(scrubber.report.passes, 3);
    await clock.run(20 * HOUR_MS);
  }, clock);
  await live(sim, options, async (life) => {
    const { scrubber } = life;
    await scrubber.open();
    await clock.run(3 * HOUR_MS);
    equal(scrubber.report.passes, 0);
    await clock.run(HOUR_MS);
    equal(scrubber.report.passes, 1);
  }, clock);
});

Deno.test("an interval of 0 leaves it to start(); one that no timer takes is waited for all the same", async () => {
  await live(new SimDisk(), SLOW, async (life) => {
    await life.scrubber.open();
    equal(life.clock.pendingTimers, 0);
  });
  const intervalMs = 2 * TIMER_DELAY_MS_MAX + 5000;
  await live(new SimDisk(), { ...SLOW, intervalMs }, async (life) => {
    await pass(life);
    await life.clock.run(intervalMs - 1);
    equal(life.scrubber.report.passes, 1);
    await life.clock.run(1);
    await settle();
    equal(life.scrubber.report.passes, 2);
  });
});

Deno.test("the damage listed and logged is bounded, all of it is counted", async () => {
  await live(new SimDisk(), { ...SLOW, rateBytes: 1 << 24 }, async (life) => {
    const starts: number[] = [];
    for (let group = 0; group < 130; group++) {
      starts.push(life.storage.log.end);
      await fill(life, 1, 1);
    }
    for (const start of starts) flip(life, start + 100);
    for (let round = 0; round < 2; round++) {
      life.lines.length = 0;
      await pass(life);
      equal(life.scrubber.report.damageCount, 130);
      equal(life.scrubber.report.damage.length, 100);
      equal(life.lines.length, 101);
    }
    await life.scrubber.stop();
    equal((await note(life.sim)).damage.length, 100);
  });
});

Deno.test("a place that the disk cannot read costs little more than itself, and no loop", async () => {
  await live(new SimDisk(), { ...SLOW, rateBytes: 1 << 24 }, async (life) => {
    await fill(life, 30);
    const { disk, storage, clock } = life;
    const at = storage.logFiles[2]!.start + 6000;
    disk.bad = { from: at, to: at + 512 };
    const startMs = clock.monoMs();
    await pass(life);
    const { damage, passes } = life.scrubber.report;
    equal(passes, 1);
    ok(damage.length >= 1 && damage.length <= 2, JSON.stringify(damage));
    ok(damage[0]!.reason.startsWith("cannot be read: bad sector"), damage[0]!.reason);
    const end = damage.at(-1)!.position + damage.at(-1)!.bytes;
    ok(damage[0]!.position <= at && end > at && end - damage[0]!.position <= 8192);
    const tookMs = clock.monoMs() - startMs;
    ok(tookMs >= SCRUB_HELD_MS && tookMs < 2 * SCRUB_HELD_MS, "it was tried again once");
    disk.bad = null;
    await pass(life);
    equal(life.scrubber.report.damageCount, 0);
  });
});

Deno.test("a note that cannot be written is said once and stops nothing", async () => {
  const sim = new SimDisk();
  await live(sim, SLOW, async (life) => {
    await fill(life, 3);
    life.disk.rename = () => Promise.reject(new DiskError("io", "no"));
    await pass(life);
    await life.clock.run(SCRUB_NOTE_MS);
    await pass(life);
    await life.clock.run(SCRUB_NOTE_MS);
    equal(life.scrubber.report.passes, 2);
    equal(life.lines.length, 1);
  });
});
