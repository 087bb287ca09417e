/** The audit trail on a simulated disk. */
import { deepEqual, equal, match, ok } from "node:assert/strict";
import { DiskError, type DiskFile, readWhole } from "@sluice/shared/runtime";
import { Logger } from "@sluice/shared/telemetry";
import { DiskWrapper, settle, SimClock, SimDisk } from "@sluice/shared/testing";
import {
  Audit,
  AUDIT_WRITE_MS,
  type AuditEvent,
  FILES_MAX,
  LINE_BYTES_MAX,
  LINES_MAX,
  WAITING_LINES_MAX,
} from "./audit.ts";

const DAY_MS = 24 * 3600 * 1000;

/** Refuses to make or write files while told to. */
class RefusingDisk extends DiskWrapper {
  refuses = false;

  override open(path: string, mode: "create" | "read" | "write"): Promise<DiskFile> {
    if (this.refuses) throw new DiskError("no_space", "the disk is full");
    return super.open(path, mode);
  }
}

class World {
  readonly simDisk = new SimDisk();
  readonly disk = new RefusingDisk(this.simDisk);
  readonly clock = new SimClock();
  readonly logged: string[] = [];
  readonly logger = new Logger({ sink: (line) => this.logged.push(line), clock: this.clock });
  audit = new Audit(this, "/data");

  get today(): string {
    return new Date(this.clock.wallMs()).toISOString().slice(0, 10);
  }

  async lines(date = this.today): Promise<string[]> {
    const bytes = await readWhole(this.simDisk, `/data/audit/${date}.jsonl`, 1 << 26);
    return new TextDecoder().decode(bytes).split("\n").slice(0, -1);
  }

  /** What the lines say, without their times. */
  async events(date?: string): Promise<unknown[]> {
    return (await this.lines(date)).map((line) => {
      const { at: _at, ...event } = JSON.parse(line);
      return event;
    });
  }

  async flush(): Promise<void> {
    await this.clock.run(AUDIT_WRITE_MS);
    await settle();
  }

  async restart(): Promise<void> {
    await this.audit.close();
    this.audit = new Audit(this, "/data");
  }

  async end(): Promise<void> {
    await this.audit.close();
    deepEqual([this.clock.pendingTimers, this.simDisk.openFiles], [0, 0]);
  }
}

function emptied(messages: number): AuditEvent {
  return { event: "topic_emptied", topic: "t", messages };
}

Deno.test("nothing is made on the disk before there is something to record", async () => {
  const world = new World();
  await world.end();
  equal(world.simDisk.trace.mutations, 0);
});

Deno.test("lines are written together a second later, with the time they were recorded", async () => {
  const world = new World();
  const at = new Date(world.clock.wallMs()).toISOString();
  world.audit.record(emptied(1));
  await world.clock.run(AUDIT_WRITE_MS - 1);
  world.audit.record(emptied(2));
  deepEqual(world.simDisk.trace.mutations, 0);
  await world.clock.run(1);
  await settle();
  const [first, second] = await world.lines();
  equal(first, `{"at":"${at}","event":"topic_emptied","topic":"t","messages":1}`);
  match(second!, /"messages":2}$/);
  await world.end();
});

Deno.test("close() writes what waits, durably; nothing is recorded after", async () => {
  const world = new World();
  world.audit.record(emptied(1));
  await world.audit.close();
  world.audit.record(emptied(2));
  world.simDisk.crash();
  deepEqual(await world.events(), [emptied(1)]);
  await world.end();
});

Deno.test("abandon() writes nothing more and leaves nothing behind", async () => {
  const world = new World();
  world.audit.record(emptied(1));
  await world.audit.abandon();
  equal(world.simDisk.trace.mutations, 0);
  await world.end();
});

Deno.test("a restart goes on in the file of the day, behind a line that was cut short", async () => {
  const world = new World();
  world.audit.record(emptied(1));
  await world.restart();
  const file = await world.simDisk.open(`/data/audit/${world.today}.jsonl`, "write");
  await file.writeAt(await file.size(), new TextEncoder().encode('{"at":'));
  file.close();
  world.audit.record(emptied(2));
  await world.flush();
  const lines = await world.lines();
  deepEqual([lines.length, lines[1]], [3, '{"at":']);
  match(lines[2]!, /"messages":2}$/);
  await world.end();
});

Deno.test("a day takes so many lines, over restarts, and its last one says that it is full", async () => {
  const world = new World();
  for (let line = 0; line < LINES_MAX - 2; line++) {
    world.audit.record(emptied(line));
    if (line % WAITING_LINES_MAX === WAITING_LINES_MAX - 1) await world.flush();
  }
  await world.restart();
  for (let line = 0; line < 5; line++) world.audit.record(emptied(-line));
  await world.flush();
  world.audit.record(emptied(7));
  await world.flush();
  const events = await world.events();
  equal(events.length, LINES_MAX);
  deepEqual(events.slice(-2), [emptied(-0), { event: "day_full" }]);
  await world.clock.run(DAY_MS);
  world.audit.record(emptied(8));
  await world.flush();
  deepEqual(await world.events(), [emptied(8)]);
  await world.end();
});

Deno.test("more lines than may wait are counted in the next one", async () => {
  const world = new World();
  for (let line = 0; line < WAITING_LINES_MAX + 3; line++) world.audit.record(emptied(line));
  await world.flush();
  const events = await world.events();
  deepEqual(events.slice(-2), [emptied(WAITING_LINES_MAX - 1), { event: "lines_lost", lines: 3 }]);
  await world.end();
});

Deno.test("the oldest file goes when there are too many; files of other names stay", async () => {
  const world = new World();
  await world.simDisk.makeDirectory("/data/audit");
  (await world.simDisk.open("/data/audit/0000-notes.txt", "create")).close();
  const first = world.today;
  for (let day = 0; day < FILES_MAX + 2; day++) {
    world.audit.record(emptied(day));
    await world.flush();
    await world.clock.run(DAY_MS);
  }
  const names = await world.simDisk.list("/data/audit");
  equal(names.length, FILES_MAX + 1);
  equal(names[0], "0000-notes.txt");
  ok(!names.includes(`${first}.jsonl`));
  await world.end();
});

Deno.test("a disk that refuses costs the lines only, is logged once, and is told of later", async () => {
  const world = new World();
  world.disk.refuses = true;
  for (let round = 0; round < 3; round++) {
    world.audit.record(emptied(round));
    await world.flush();
  }
  equal(world.logged.length, 1);
  match(world.logged[0]!, /Cannot write the audit trail/);
  world.disk.refuses = false;
  world.audit.record(emptied(4));
  await world.flush();
  deepEqual(await world.events(), [emptied(4), { event: "lines_lost", lines: 3 }]);
  await world.end();
});

Deno.test("a line stays within its bound, whatever the reason says", async () => {
  const world = new World();
  world.audit.record({
    event: "log_damaged",
    position: 2 ** 53 - 1,
    bytes: 2 ** 53 - 1,
    // Six bytes each in JSON.
    reason: "\u0001".repeat(5000),
  });
  await world.flush();
  const [line] = await world.lines();
  ok(line!.length < LINE_BYTES_MAX);
  await world.end();
});
