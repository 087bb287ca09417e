import { deepEqual, equal, notEqual, ok, rejects } from "node:assert/strict";
import { settle, SimDisk } from "@sluice/shared/testing";
import { LogError } from "@sluice/shared/log";
import { DiskError } from "@sluice/shared/runtime";
import { SpoolRefusal } from "./mod.ts";
import { OpenedSpool, publishOf, SPOOL_PATH, textsOf } from "./spool_fixture_test.ts";

const ALL = 1_000_000;

async function withTexts(...texts: string[]): Promise<OpenedSpool> {
  const opened = await OpenedSpool.open();
  for (const text of texts) await opened.spool.append(publishOf("t", text), null);
  return opened;
}

Deno.test("Spool hands out what was appended, in order, whole, and over a stop", async () => {
  const opened = await OpenedSpool.open();
  const { spool } = opened;
  const publish = {
    ...publishOf("topic", "body", 2 ** 52),
    isBatch: true,
    messageCount: 7,
    dueWallMs: 1_800_000_000_123,
  };
  await spool.append(publish, null);
  await Promise.all(
    ["a", "b", "c"].map((text) => spool.append(publishOf("other", text), null)),
  );
  equal(spool.hasBacklog("topic"), true);
  const entries = await spool.take(2, ALL);
  const [first] = entries;
  deepEqual(
    { ...first, position: 0 },
    {
      position: 0,
      publish,
      spooledWallMs: opened.clock.wallMs(),
      broker: null,
      assignedWallMs: null,
      pinned: false,
    },
  );
  equal(textsOf(entries)[1], "a");
  deepEqual(textsOf(await spool.take(10, ALL)), ["b", "c"]);
  deepEqual(await spool.take(10, ALL), []);
  const again = await opened.again();
  deepEqual(textsOf(await again.spool.take(10, ALL)), ["body", "a", "b", "c"]);
  await again.spool.close();
  deepEqual([opened.disk.openFiles, opened.clock.pendingTimers], [0, 0]);
});

Deno.test("Spool does not hand out again what was settled", async () => {
  const opened = await withTexts("a", "b", "c", "d");
  const entries = await opened.spool.take(4, ALL);
  await opened.spool.assign(entries, "one:4150");
  opened.spool.settle([entries[1]!, entries[3]!]);
  equal(opened.spool.figures.count, 2);
  const { spool } = await opened.again();
  equal(spool.figures.count, 2);
  deepEqual(await spool.take(4, ALL), []);
  deepEqual([...spool.assignedBrokers()], ["one:4150"]);
  const again = await spool.takeAssigned("one:4150", 4, ALL);
  deepEqual(textsOf(again), ["a", "c"]);
  equal(again[0]?.assignedWallMs, opened.clock.wallMs());
  equal(spool.hasBacklog("t"), true);
  spool.settle(again);
  spool.settle(again);
  equal(spool.hasBacklog("t"), false);
  deepEqual([spool.figures.count, spool.figures.bodyBytes, spool.figures.held], [0, 0, 0]);
  equal(spool.figures.settledTotal, 2);
  await spool.close();
});

Deno.test("what is settled is on disk after 10 ms, without anything else to write", async () => {
  const opened = await withTexts("a");
  const syncs = () => opened.disk.trace.count("sync");
  opened.spool.settle(await opened.spool.take(1, ALL));
  const before = syncs();
  await opened.clock.run(9);
  equal(syncs(), before);
  await opened.clock.run(1);
  ok(syncs() > before);
  opened.kill();
  opened.disk.crash();
  const { spool } = await OpenedSpool.open(opened.disk);
  equal(spool.figures.count, 0);
  deepEqual(await spool.take(1, ALL), []);
  await spool.close();
});

Deno.test("take() keeps to count and bytes, but gives one entry at least", async () => {
  const { spool } = await withTexts("12345", "123", "123", "1");
  deepEqual(textsOf(await spool.take(3, 2)), ["12345"]);
  deepEqual(textsOf(await spool.take(3, 6)), ["123", "123"]);
  deepEqual(textsOf(await spool.take(0, 6)), []);
  deepEqual(textsOf(await spool.take(3, 6)), ["1"]);
  await spool.close();
});

Deno.test("what is put back comes again in its place, or for its broker", async () => {
  const { spool } = await withTexts("a", "b", "c", "d");
  const [a, b, c] = await spool.take(3, ALL);
  await spool.assign([b!], "one:4150");
  spool.putBack([c!, b!, a!]);
  equal(spool.figures.held, 0);
  deepEqual(textsOf(await spool.take(10, ALL)), ["a", "c", "d"]);
  deepEqual(await spool.takeAssigned("two:4150", 10, ALL), []);
  const [again] = await spool.takeAssigned("one:4150", 10, ALL);
  deepEqual([again?.position, again?.broker], [b!.position, "one:4150"]);
  deepEqual([...spool.assignedBrokers()], []);
  await spool.close();
});

Deno.test("a pinned publish is offered to its broker only, before and after a stop", async () => {
  let opened = await withTexts("free");
  await opened.spool.append(publishOf("t", "pinned"), "one:4150");
  for (let life = 0; life < 2; life++) {
    const { spool } = opened;
    deepEqual(textsOf(await spool.take(10, ALL)), ["free"]);
    deepEqual(await spool.takeAssigned("two:4150", 10, ALL), []);
    const [entry] = await spool.takeAssigned("one:4150", 10, ALL);
    deepEqual([entry?.pinned, entry?.broker], [true, "one:4150"]);
    equal(entry?.assignedWallMs, entry?.spooledWallMs);
    deepEqual([spool.figures.pinned, spool.figures.count], [1, 2]);
    opened = await opened.again();
  }
  await opened.spool.close();
});

Deno.test("hasBacklog() is true from the call of append() on, and not for what is pinned", async () => {
  const { spool } = await OpenedSpool.open();
  const appending = spool.append(publishOf("free", "a"), null);
  await spool.append(publishOf("pinned", "a"), "one:4150");
  deepEqual([spool.hasBacklog("free"), spool.hasBacklog("pinned")], [true, false]);
  await appending;
  const entries = await spool.take(1, ALL);
  equal(spool.hasBacklog("free"), true);
  await spool.quarantine(entries[0]!, "poison");
  equal(spool.hasBacklog("free"), false);
  await spool.close();
});

Deno.test("an assignment is on disk when it resolves, and the last one counts", async () => {
  const opened = await withTexts("a");
  const entries = await opened.spool.take(1, ALL);
  await opened.spool.assign(entries, "one:4150");
  opened.clock.advance(5000);
  await opened.spool.assign(entries, "two:4150");
  opened.kill();
  opened.disk.crash();
  const { spool } = await OpenedSpool.open(opened.disk);
  deepEqual([...spool.assignedBrokers()], ["two:4150"]);
  const since = opened.clock.wallMs();
  equal(spool.hasAssignedBefore("two:4150", since), false);
  equal(spool.hasAssignedBefore("two:4150", since + 1), true);
  await spool.close();
});

Deno.test("the quarantine keeps an entry with its reason, gives it back, or drops it", async () => {
  let opened = await withTexts("a", "b", "c");
  const entries = await opened.spool.take(3, ALL);
  await opened.spool.assign([entries[1]!], "one:4150");
  for (const [index, entry] of entries.entries()) {
    await opened.spool.quarantine(entry, `reason ${index}`);
  }
  opened = await opened.again();
  let { spool } = opened;
  deepEqual([spool.figures.quarantined, spool.figures.count, spool.hasBacklog("t")], [3, 0, false]);
  deepEqual(await spool.take(10, ALL), []);
  const list = await spool.quarantined(0, 2);
  deepEqual(
    list,
    [0, 1].map((index) => ({
      id: entries[index]!.position,
      topic: "t",
      bodyBytes: 1,
      messageCount: 1,
      reason: `reason ${index}`,
      spooledWallMs: opened.clock.wallMs(),
      broker: index === 1 ? "one:4150" : null,
      isDamaged: false,
    })),
  );
  const [a, b, c] = entries.map(({ position }) => position) as [number, number, number];
  deepEqual((await spool.quarantined(b, 10)).map(({ id }) => id), [b, c]);
  equal(new TextDecoder().decode(await spool.body(c) ?? undefined), "c");
  deepEqual([await spool.retry(a), await spool.retry(b), await spool.drop(c)], [true, true, true]);
  deepEqual([await spool.retry(a), await spool.drop(c), await spool.body(c)], [false, false, null]);
  ok(opened.lines.some((line) => line.includes("dropped") && line.includes('reason="reason 2"')));
  opened.kill();
  opened.disk.crash();
  ({ spool } = await OpenedSpool.open(opened.disk));
  deepEqual([spool.figures.quarantined, spool.figures.count], [0, 2]);
  deepEqual(textsOf(await spool.take(10, ALL)), ["a"]);
  deepEqual(textsOf(await spool.takeAssigned("one:4150", 10, ALL)), ["b"]);
  await spool.close();
});

Deno.test("files go when everything in them is settled, and never before", async () => {
  const opened = await OpenedSpool.open();
  const { spool, disk } = opened;
  const files = () => disk.files().filter((path) => path.endsWith(".log")).length;
  for (let count = 0; count < 20; count++) {
    await spool.append(publishOf("t", "x".repeat(1000)), null);
  }
  const before = files();
  ok(before > 4);
  const entries = await spool.take(20, ALL);
  spool.settle(entries.slice(1));
  await opened.flush();
  ok(files() >= before, "the first one is in hand");
  spool.settle(entries.slice(0, 1));
  await opened.flush();
  equal(files(), 1);
  const again = await opened.again();
  deepEqual(await again.spool.take(1, ALL), []);
  await again.spool.close();
});

Deno.test("an entry that alone keeps files is written once more, with all that is known of it", async () => {
  let opened = await OpenedSpool.open();
  const { spool } = opened;
  await spool.append(publishOf("t", "pinned"), "one:4150");
  await spool.append(publishOf("t", "poison"), null);
  await spool.append(publishOf("t", "given"), null);
  const [poison, given] = await spool.take(2, ALL);
  await spool.assign([given!], "two:4150");
  await spool.quarantine(poison!, "bad");
  spool.putBack([given!]);
  for (let count = 0; count < 40; count++) {
    await spool.append(publishOf("t", "x".repeat(1000)), null);
    spool.settle(await spool.take(1, ALL));
    await opened.flush();
  }
  ok(spool.figures.fileBytes < 5 * 4096, `${spool.figures.fileBytes} bytes`);
  for (let life = 0; life < 2; life++) {
    const { spool } = opened;
    deepEqual([spool.figures.count, spool.figures.bodyBytes, spool.figures.quarantined], [
      2,
      11,
      1,
    ]);
    deepEqual(textsOf(await spool.takeAssigned("one:4150", 9, ALL)), ["pinned"]);
    deepEqual(textsOf(await spool.takeAssigned("two:4150", 9, ALL)), ["given"]);
    const [entry] = await spool.quarantined(0, 9);
    deepEqual([entry?.id, entry?.reason, entry?.topic], [poison!.position, "bad", "t"]);
    equal(new TextDecoder().decode(await spool.body(entry!.id) ?? undefined), "poison");
    opened = await opened.again();
  }
  equal(await opened.spool.retry(poison!.position), true);
  deepEqual(textsOf(await opened.spool.take(9, ALL)), ["poison"]);
  await opened.spool.close();
});

Deno.test("Spool.open() refuses a folder that is in use, of another format, or without its epoch", async () => {
  const opened = await withTexts("a");
  await rejects(
    OpenedSpool.open(opened.disk),
    (error) => error instanceof DiskError && error.kind === "locked",
  );
  await opened.spool.close();
  const path = `${SPOOL_PATH}/FORMAT`;
  equal(new TextDecoder().decode(opened.disk.bytes(path)), "sluice-spool 1\n");
  const meta = `${SPOOL_PATH}/spool.meta`;
  equal(new TextDecoder().decode(opened.disk.bytes(meta)), '{"epoch":1}\n');
  opened.disk.writeDurable(path, new TextEncoder().encode("sluice-spool 2\n"));
  await rejects(
    OpenedSpool.open(opened.disk),
    (error) => error instanceof LogError && error.code === "newer_format",
  );
  opened.disk.writeDurable(path, new TextEncoder().encode("sluice-spool 1\n"));
  for (const text of ["", "{}", '{"epoch":-1}', '{"epoch":"1"}', "null"]) {
    opened.disk.writeDurable(meta, new TextEncoder().encode(text));
    await rejects(
      OpenedSpool.open(opened.disk),
      (error) => error instanceof LogError && error.code === "damaged",
    );
  }
  await opened.disk.remove(meta);
  await rejects(
    OpenedSpool.open(opened.disk),
    (error) => error instanceof LogError && error.code === "damaged",
  );
  equal(opened.disk.openFiles, 0);
});

Deno.test("a log that cannot be written refuses everything, and says so once", async () => {
  const opened = await withTexts("a");
  const { spool, disk } = opened;
  const entries = await spool.take(1, ALL);
  disk.failNext({ operation: "sync", kind: "io" });
  const isUnknown = (error: unknown) =>
    error instanceof SpoolRefusal && error.code === "failed" && error.mayBeStored;
  const isCertain = (error: unknown) =>
    error instanceof SpoolRefusal && error.code === "failed" && !error.mayBeStored;
  await Promise.all([
    rejects(spool.append(publishOf("t", "b"), null), isUnknown),
    rejects(spool.assign(entries, "one:4150"), isUnknown),
  ]);
  await rejects(spool.append(publishOf("t", "c"), null), isCertain);
  await rejects(spool.assign(entries, "one:4150"), isCertain);
  await rejects(spool.quarantine(entries[0]!, "poison"), isCertain);
  spool.settle(entries);
  deepEqual(await spool.take(9, ALL), []);
  notEqual(spool.figures.failure, null);
  deepEqual([opened.failures.length, spool.figures.refusedTotal.failed], [1, 1]);
  await rejects(spool.close());
  equal(disk.openFiles, 0);
});

Deno.test("a closed spool takes and hands out nothing", async () => {
  const { spool } = await withTexts("a");
  await spool.close();
  await rejects(spool.append(publishOf("t", "b"), null), { code: "failed", mayBeStored: false });
  deepEqual(await spool.take(1, ALL), []);
  await spool.close();
});

Deno.test("many appenders share groups, and keep the order of their calls", async () => {
  const disk = new SimDisk();
  const { spool } = await OpenedSpool.open(disk, { fileBytes: 2 ** 20, heldMax: 1000 });
  const before = disk.trace.count("sync");
  const texts = Array.from({ length: 300 }, (_, index) => `${index}`);
  await Promise.all(texts.map((text) => spool.append(publishOf("t", text), null)));
  ok(disk.trace.count("sync") - before <= 4);
  await settle();
  deepEqual(textsOf(await spool.take(300, ALL)), texts);
  await spool.close();
});
