import { deepEqual, equal } from "node:assert/strict";
import { OpenedSpool, publishOf, textsOf } from "./spool_fixture_test.ts";

const ALL = 1_000_000;

Deno.test("Spool hands out what was appended, in order, whole, and over a stop", async () => {
  let { spool, ...rest } = await OpenedSpool.open();
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
  deepEqual(entries.map(({ publish, broker, pinned }) => ({ publish, broker, pinned })), [
    { publish, broker: null, pinned: false },
    { publish: publishOf("other", "a"), broker: null, pinned: false },
  ]);
  deepEqual(textsOf(await spool.take(10, ALL)), ["b", "c"]);
  deepEqual(await spool.take(10, ALL), []);
  await spool.close();
  ({ spool, ...rest } = await OpenedSpool.open(rest.disk));
  deepEqual(textsOf(await spool.take(10, ALL)), ["body", "a", "b", "c"]);
  await spool.close();
  equal(rest.disk.openFiles, 0);
});

Deno.test("Spool does not hand out again what was settled", async () => {
  const opened = await OpenedSpool.open();
  for (const text of ["a", "b", "c", "d"]) await opened.spool.append(publishOf("t", text), null);
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
  equal(spool.hasBacklog("t"), true);
  spool.settle(again);
  equal(spool.hasBacklog("t"), false);
  deepEqual([spool.figures.count, spool.figures.bodyBytes, spool.figures.held], [0, 0, 0]);
  await spool.close();
});
