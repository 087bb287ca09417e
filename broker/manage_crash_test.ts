/** Operations of management and tombstones through power cuts at any write. */
import { deepStrictEqual as equal, ok } from "node:assert/strict";
import { SeededRandom, settle, SimClock, SimDisk } from "@sluice/shared/testing";
import type { Broker } from "./broker.ts";
import { type ManageRequest, OPERATIONS_MAX } from "./manage.ts";
import { LINES_MAX, MANAGEMENT_FILE, ManagementJournal } from "./manage_journal.ts";
import { HeldDisk, openBroker } from "./server/world_test.ts";

const SEEDS = 150;
const LIVES = 4;
const PLACE = { instance: "0123456789abcdef", revision: 0 };

function request(changes: Partial<ManageRequest>): ManageRequest {
  return {
    action: "create",
    topic: "t",
    channel: null,
    operationId: null,
    expectedRevision: null,
    expectedInstance: null,
    policy: null,
    tombstoneMs: null,
    ...changes,
  };
}

/** What must hold after a crash, of what was answered. */
class Promised {
  readonly answers = new Map<
    string,
    { readonly asked: ManageRequest; readonly changed: boolean }
  >();
  /** The topics that are to be there, or not to be; absent where an unanswered operation may have run. */
  readonly topics = new Map<string, boolean>();
  readonly tombstones = new Map<string, number>();
}

async function live(
  broker: Broker,
  disk: SimDisk,
  random: SeededRandom,
  promised: Promised,
  names: () => string,
): Promise<void> {
  for (let count = random.below(12); count > 0; count--) {
    const action = random.pick(["create", "delete", "tombstone", "pause"] as const);
    const topic = `t${random.below(4)}`;
    const asked = request({
      action,
      topic,
      operationId: names(),
      tombstoneMs: action === "tombstone" ? 1000 + random.below(1_000_000) : null,
    });
    promised.topics.delete(topic);
    if (action === "tombstone") promised.tombstones.delete(topic);
    try {
      const { changed, repeated } = await broker.management.run(asked, () => PLACE);
      if (disk.poweredOff) return;
      equal(repeated, false);
      promised.answers.set(asked.operationId!, { asked, changed });
      promised.topics.set(topic, action === "create" || action === "pause");
      if (asked.tombstoneMs !== null) {
        promised.tombstones.set(topic, broker.clock.wallMs() + asked.tombstoneMs);
      }
    } catch (error) {
      // Refused, or the power is gone: nothing is promised.
      ok(error instanceof Error);
      if (disk.poweredOff) return;
      promised.topics.delete(topic);
    }
  }
}

async function check(broker: Broker, promised: Promised): Promise<void> {
  for (const [topic, isThere] of promised.topics) equal(broker.topics.has(topic), isThere, topic);
  for (const [topic, untilMs] of promised.tombstones) {
    const isHeld = untilMs > broker.clock.wallMs();
    equal(broker.administration.tombstones.holds(topic), isHeld, `tombstone of ${topic}`);
  }
  for (const { asked, changed } of promised.answers.values()) {
    const { position } = broker;
    equal(await broker.management.run(asked, () => ({ ...PLACE, revision: 9 })), {
      ...PLACE,
      changed,
      repeated: true,
    });
    equal(broker.position, position, "a repeat does nothing");
  }
}

Deno.test("what management has answered holds after a power cut at any write", async () => {
  let cuts = 0;
  for (let seed = 0; seed < SEEDS; seed++) {
    try {
      const random = new SeededRandom(seed);
      const disk = new SimDisk({ random: random.fork(), tornSectorChance: 0.5 });
      const clock = new SimClock();
      const promised = new Promised();
      let number = 0;
      const names = () => `operation-${seed}-`.padEnd(20, "x") + number++;
      for (let life = 0; life < LIVES; life++) {
        const broker = await openBroker(new HeldDisk(disk), clock);
        await check(broker, promised);
        disk.powerCutAfter(1 + random.below(40), random.pick(["before_effect", "after_effect"]));
        await live(broker, disk, random, promised, names);
        if (disk.poweredOff) cuts++;
        await broker.abandon();
        disk.crash();
        clock.advance(random.below(400_000));
      }
      const broker = await openBroker(new HeldDisk(disk), clock);
      await check(broker, promised);
      await broker.close();
    } catch (error) {
      throw new Error(`seed ${seed}`, { cause: error });
    }
  }
  ok(cuts > SEEDS, `${cuts} power cuts`);
});

Deno.test("the journal is written anew before it grows beyond its bound, and keeps what counts", async () => {
  const disk = new SimDisk();
  await disk.makeDirectory("/data");
  const operation = { id: "i", request: "r", answer: { ...PLACE, changed: true } };
  const kept = [{ operation }];
  const { journal } = await ManagementJournal.open(disk, "/data", () => kept);
  const many = Array.from({ length: LINES_MAX / 4 }, () => ({ operation }));
  let largest = 0;
  for (let count = 0; count < 9; count++) {
    await journal.append(many);
    largest = Math.max(largest, disk.bytes(`/data/${MANAGEMENT_FILE}`).length);
  }
  const lineBytes = disk.bytes(`/data/${MANAGEMENT_FILE}`).indexOf(10) + 1;
  equal(largest, LINES_MAX * lineBytes);
  const { entries } = await ManagementJournal.open(disk, "/data", () => []);
  equal(entries, kept);
});

Deno.test("a line that is not whole is passed over, and the file is mended with the next entry", async () => {
  const disk = new SimDisk();
  await disk.makeDirectory("/data");
  const operation = (id: string) => ({
    operation: { id, request: "r", answer: { ...PLACE, changed: true } },
  });
  const first = await ManagementJournal.open(disk, "/data", () => []);
  for (const id of ["a", "b", "c"]) await first.journal.append([operation(id)]);
  const path = `/data/${MANAGEMENT_FILE}`;
  const bytes = disk.bytes(path);
  bytes[bytes.indexOf(10) + 20]! ^= 1;
  disk.writeDurable(path, new Uint8Array([...bytes, 1, 2]));
  const second = await ManagementJournal.open(disk, "/data", () => [
    ...second.entries,
    operation("d"),
  ]);
  equal(second.entries, [operation("a"), operation("c")]);
  await second.journal.append([operation("d")]);
  const third = await ManagementJournal.open(disk, "/data", () => []);
  equal(third.entries, ["a", "c", "d"].map(operation));
});

Deno.test("only so many answers are remembered, the newest, over a restart too", async () => {
  const disk = new SimDisk();
  const clock = new SimClock();
  const id = (number: number) => `operation-${number}`.padEnd(20, "x");
  const asked = (number: number) => request({ action: "delete", operationId: id(number) });
  let broker = await openBroker(new HeldDisk(disk), clock);
  for (let number = 0; number < OPERATIONS_MAX + 10; number++) {
    await broker.management.run(asked(number), () => PLACE);
  }
  for (let life = 0; life < 2; life++) {
    equal(broker.management.rememberedCount, OPERATIONS_MAX);
    const newest = OPERATIONS_MAX + 9;
    equal((await broker.management.run(asked(newest), () => PLACE)).repeated, true);
    equal((await broker.management.run(asked(10 + life), () => PLACE)).repeated, true);
    await broker.close();
    broker = await openBroker(new HeldDisk(disk), clock);
  }
  equal((await broker.management.run(asked(9), () => PLACE)).repeated, false);
  await broker.close();
});

Deno.test("an operation that ends after the broker has stopped writes nothing to the folder", async () => {
  const simDisk = new SimDisk();
  const disk = new HeldDisk(simDisk);
  const clock = new SimClock();
  const broker = await openBroker(disk, clock);
  const release = disk.hold();
  const asked = request({ operationId: "first-first-first" });
  const answer = broker.management.run(asked, () => PLACE);
  await settle();
  const closing = broker.close();
  await settle();
  release();
  await clock.runUntil(closing, 10_000);
  equal((await answer).changed, true);
  equal(simDisk.files().filter((path) => path.includes(MANAGEMENT_FILE)), []);
  const again = await openBroker(disk, clock);
  equal(await again.management.run(asked, () => PLACE), {
    ...PLACE,
    changed: false,
    repeated: false,
  });
  await again.close();
});

Deno.test("an answer that cannot be recorded is given, a tombstone that cannot be is not", async () => {
  const disk = new SimDisk();
  const clock = new SimClock();
  const broker = await openBroker(new HeldDisk(disk), clock);
  const fail = () =>
    disk.failNext({ operation: "write", kind: "no_space", path: `/data/${MANAGEMENT_FILE}` });
  await broker.management.run(request({ operationId: "first-first-first" }), () => PLACE);
  fail();
  const asked = request({ action: "pause", operationId: "second-second-second" });
  equal((await broker.management.run(asked, () => PLACE)).changed, true);
  equal((await broker.management.run(asked, () => PLACE)).repeated, true);
  disk.failNext({ operation: "rename", kind: "io", path: `/data/${MANAGEMENT_FILE}.tmp` });
  const buried = request({
    action: "tombstone",
    operationId: "third-third-third",
    tombstoneMs: 1000,
  });
  const refusal = await broker.management.run(buried, () => PLACE).catch((error) => error.code);
  equal(refusal, "storage_fault");
  // Tried again it is kept, and so is what had not been recorded.
  equal((await broker.management.run(buried, () => PLACE)).repeated, false);
  await broker.abandon();
  disk.crash();
  const again = await openBroker(new HeldDisk(disk), clock);
  ok(again.administration.tombstones.holds("t"));
  equal((await again.management.run(asked, () => PLACE)).repeated, true);
  await again.close();
});
