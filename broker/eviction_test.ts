/** Giving up the oldest messages for want of space, by file for the broker and by quota for a topic. */
import { deepStrictEqual as equal, ok, throws } from "node:assert/strict";
import { encodeSub, utf8Bytes } from "@sluice/shared/protocol";
import { readWhole } from "@sluice/shared/runtime";
import { settle, SimClock, SimDisk } from "@sluice/shared/testing";
import type { Broker } from "./broker.ts";
import type { Topic } from "./queue/mod.ts";
import { QUOTA_REPORT_MS, QUOTA_TEXT } from "./quota.ts";
import {
  type Client,
  HeldDisk,
  openBroker,
  pub,
  sized,
  World,
  type WorldOptions,
} from "./server/world_test.ts";
import type { QuotaAction } from "./storage/mod.ts";

const FILE_BYTES = 32_768;
const LOG_BYTES_MAX = 4 * FILE_BYTES;
const BODY_BYTES = 1000;

/** Publishes messages of a kilobyte, each durable, until one is refused; returns how many were taken. */
async function fill(broker: Broker, topic: Topic, countMax = 2000): Promise<number> {
  for (let count = 0; count < countMax; count++) {
    try {
      broker.admit();
      broker.admitTo(topic);
    } catch {
      return count;
    }
    const body = utf8Bytes(`${topic.state.tail}`.padEnd(BODY_BYTES, "."));
    broker.publish(topic, body, 0, body.length, 0);
    await broker.durableTo(broker.position);
  }
  return countMax;
}

function evicting(afterMs: number): WorldOptions {
  return {
    storage: { logFileBytes: FILE_BYTES },
    broker: { guard: { minFreeBytes: 0, logBytesMax: LOG_BYTES_MAX }, eviction: { afterMs } },
  };
}

function limited(bytesMax: number, action: QuotaAction): WorldOptions {
  return { storage: { logFileBytes: FILE_BYTES }, broker: { quota: { bytesMax, action } } };
}

/** The offsets of what a consumer has been given. */
function offsets(client: Client): number[] {
  return client.take().filter((frame) => frame !== "OK")
    .map((frame) => Number(frame.split(".")[0]));
}

async function audited(disk: SimDisk): Promise<Record<string, unknown>[]> {
  const path = disk.files().find((name) => /audit\/[\d-]+\.jsonl$/.test(name));
  if (path === undefined) return [];
  const text = new TextDecoder().decode(await readWhole(disk, path, 1 << 20));
  return text.trim().split("\n").map((line) => JSON.parse(line));
}

Deno.test("nothing is given up unless it is asked for, however long the log is full", async () => {
  await World.use(evicting(0), async ({ broker, clock }) => {
    const topic = broker.ensureTopic("t");
    await fill(broker, topic);
    await clock.run(600_000);
    equal([broker.guard.isClosed, topic.state.liveFrom], [true, 0]);
    equal(broker.evictor.fileCount, 0);
  });
});

Deno.test("after the grace period the oldest file goes, then the next, until publishes are taken", async () => {
  const disk = new SimDisk();
  let lostTo = 0;
  let tail = 0;
  await World.use({ ...evicting(30_000), disk }, async ({ broker, clock }) => {
    const topic = broker.ensureTopic("t");
    broker.ensureChannel(topic, "c");
    tail = await fill(broker, topic);
    await clock.run(29_000);
    equal([broker.guard.isClosed, broker.evictor.fileCount], [true, 0]);
    await clock.run(6_000);
    equal(broker.guard.isClosed, false);
    // Hysteresis: a tenth of the limit has to be free again, which is one file of the four.
    equal(broker.evictor.fileCount, 1);
    lostTo = topic.state.liveFrom;
    ok(lostTo > 20 && lostTo < 40, `${lostTo} messages of a file`);
    equal(broker.evictor.messageCount, lostTo);
    ok(broker.storage.logFiles[0]!.start > 0, "the file is gone");
    await clock.run(60_000);
    equal(broker.evictor.fileCount, 1);
  });
  const { event, position, topics, messages, report } = (await audited(disk))[0]!;
  equal([event, position, topics, messages], ["evicted", 0, 1, lostTo]);
  const bytes = await readWhole(disk, `/data/audit/${report}`, 1 << 20);
  equal(JSON.parse(new TextDecoder().decode(bytes)), {
    topic: "t",
    channel: "c",
    from: 0,
    to: lostTo,
    messages: lostTo,
  });
  await World.use({ ...evicting(0), disk }, async (world) => {
    const client = await world.client(encodeSub("t", "c"), "RDY 2000\n");
    const expected = Array.from({ length: tail - lostTo }, (_, index) => lostTo + index);
    equal(offsets(client), expected);
  });
});

Deno.test("the report and the decision are on disk before the file goes, wherever the power is cut", async () => {
  let evicted = 0;
  for (let cutAt = 1; cutAt < 60; cutAt++) {
    const disk = new SimDisk();
    const clock = new SimClock();
    const broker = await openBroker(new HeldDisk(disk), clock, evicting(1000));
    const topic = broker.ensureTopic("t");
    broker.ensureChannel(topic, "c");
    const tail = await fill(broker, topic);
    disk.powerCutAfter(cutAt);
    await clock.run(8000);
    const abandoned = broker.abandon();
    disk.crash();
    await abandoned.catch(() => {});
    const reports = disk.files().filter((path) => path.includes("evicted-"));
    const again = await World.open({ ...evicting(0), disk });
    const { logFiles } = again.broker.storage;
    const { liveFrom } = again.broker.topics.get("t")!.state;
    if (liveFrom > 0 || logFiles[0]!.start > 0) {
      equal(reports.length, 1, `cut at ${cutAt}: a report`);
      evicted++;
    }
    const client = await again.client(encodeSub("t", "c"), "RDY 2000\n");
    equal(offsets(client), Array.from({ length: tail - liveFrom }, (_, index) => liveFrom + index));
    await again.close();
  }
  ok(evicted > 5 && evicted < 55, `${evicted} cuts behind the decision`);
});

Deno.test("what is in flight, requeued or deferred in a file that is given up is gone everywhere", async () => {
  await World.use(evicting(1000), async (world) => {
    const { broker, clock } = world;
    const consumer = await world.client(encodeSub("t", "c"), "RDY 3\n");
    const topic = broker.topics.get("t")!;
    await world.client(sized("DPUB t 3600000\n", utf8Bytes("late")));
    const tail = await fill(broker, topic);
    equal(offsets(consumer), [1, 2, 3]);
    await consumer.send(`REQ ${consumer.ids[0]} 3600000\n`, "RDY 0\n");
    await clock.run(100);
    equal(world.counts("t", "c"), [tail - 3, 2, 2]);
    await clock.run(6000);
    const { liveFrom } = topic.state;
    ok(liveFrom > 4);
    equal(world.counts("t", "c"), [tail + 1 - liveFrom, 0, 0]);
    // Neither FIN nor the timeout of what is gone disturbs anything.
    await consumer.send(`FIN ${consumer.ids[1]}\n`);
    equal(consumer.take(), [`E_FIN_FAILED FIN ${consumer.ids[1]} failed ID not in flight`]);
    await consumer.send("RDY 1\n");
    equal(offsets(consumer), [liveFrom]);
  });
});

Deno.test("a report keeps the lines of an attempt that a crash has ended, whose decisions the log may have in part", async () => {
  const disk = new SimDisk();
  const path = "/data/audit/evicted-0000000000000000.jsonl";
  const line = (gap: object) => JSON.stringify(gap) + "\n";
  const lost = { topic: "t", channel: "given up before", from: 0, to: 9, messages: 9 };
  const again = { topic: "t", channel: "c", from: 0, to: 3, messages: 3 };
  await disk.makeDirectory("/data");
  await disk.makeDirectory("/data/audit");
  disk.writeDurable(path, utf8Bytes(line(lost) + line(again) + "cut off\n"));
  await World.use({ ...evicting(30_000), disk }, async ({ broker, clock }) => {
    const topic = broker.ensureTopic("t");
    broker.ensureChannel(topic, "c");
    await fill(broker, topic);
    await clock.run(36_000);
    equal(broker.evictor.fileCount, 1);
    const to = topic.state.liveFrom;
    const text = new TextDecoder().decode(await readWhole(disk, path, 1 << 20));
    equal(text, line(lost) + line({ ...again, to, messages: to }));
  });
});

Deno.test("a topic at its limit refuses publishes until its consumers have made room, others go on", async () => {
  await World.use(limited(50_000, "refuse"), async (world) => {
    const { broker } = world;
    const consumer = await world.client(encodeSub("t", "c"));
    const topic = broker.topics.get("t")!;
    const taken = await fill(broker, topic);
    ok(taken >= 46 && taken <= 49, `${taken} messages of a kilobyte`);
    throws(() => broker.admitTo(topic), { code: "throttled", message: QUOTA_TEXT });
    const batch = Uint8Array.of(0, 0, 0, 1, 0, 0, 0, 1, 65);
    for (
      const [command, verb] of [
        [pub("t", "x"), "PUB"],
        [sized("DPUB t 100\n", utf8Bytes("x")), "DPUB"],
        [sized("MPUB t\n", batch), "MPUB"],
      ] as const
    ) {
      const client = await world.client(command);
      equal(client.take(), [`E_THROTTLED ${verb} ${QUOTA_TEXT}`, "end"]);
    }
    const other = await world.client(pub("u", "x"));
    equal(other.take(), ["OK"]);
    equal(broker.quotas.refusedCount, 5);
    consumer.take();
    await consumer.send("RDY 5\n");
    await consumer.send(...consumer.ids.map((id) => `FIN ${id}\n`));
    const late = await world.client(pub("t", "x"));
    equal(late.take(), ["OK"]);
  });
});

Deno.test("a topic that drops its oldest messages takes every publish and stays below its limit", async () => {
  const disk = new SimDisk();
  let liveFrom = 0;
  await World.use({ ...limited(50_000, "drop_oldest"), disk }, async ({ broker, clock }) => {
    const topic = broker.ensureTopic("t");
    broker.ensureChannel(topic, "c");
    equal(await fill(broker, topic, 500), 500);
    ({ liveFrom } = topic.state);
    const { tail } = topic.state;
    ok(tail - liveFrom >= 44 && tail - liveFrom <= 49, `${tail - liveFrom} messages are kept`);
    ok(broker.quotas.heldBytes(topic.state) <= 50_000);
    equal(broker.quotas.droppedCount, liveFrom);
    await clock.run(QUOTA_REPORT_MS);
    equal(await fill(broker, topic, 100), 100);
    ({ liveFrom } = topic.state);
  });
  const lines = await audited(disk);
  equal(lines.map(({ event, topic }) => [event, topic]), [
    ["topic_trimmed", "t"],
    ["topic_trimmed", "t"],
  ]);
  equal(lines.reduce((sum, { messages }) => sum + Number(messages), 0), liveFrom);
  await World.use({ ...limited(0, "refuse"), disk }, async (world) => {
    await settle();
    const client = await world.client(encodeSub("t", "c"), "RDY 2000\n");
    equal(offsets(client)[0], liveFrom);
  });
});
