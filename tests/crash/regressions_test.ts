/** Faults that seeds have found, each as the shortest story that shows it. */
import { equal, ok, rejects } from "node:assert/strict";
import { Broker } from "@sluice/broker/broker";
import type { Topic } from "@sluice/broker/queue";
import { LogError } from "@sluice/shared/log";
import { DiskError } from "@sluice/shared/runtime";
import { Logger } from "@sluice/shared/telemetry";
import {
  type PowerCutMoment,
  SeededRandom,
  settle,
  SimClock,
  SimDisk,
} from "@sluice/shared/testing";

const LOG_FILE_BYTES = 4096;

async function open(disk: SimDisk): Promise<{ broker: Broker; clock: SimClock }> {
  const clock = new SimClock();
  const logger = new Logger({ sink: () => {}, clock });
  const broker = await Broker.open({ disk, clock, random: new SeededRandom(1), logger }, {
    storage: {
      dataPath: "/data",
      nodeId: { value: 1, required: false },
      ringBytes: 65_536,
      logFileBytes: LOG_FILE_BYTES,
      pageCacheBytes: 0,
      indexCacheBytes: 0,
      bodyBytesMax: 8192,
      finishSyncIntervalMs: 10,
    },
    channel: { msgTimeoutMsMax: 900_000, consumersMax: 0, requeueOnDisconnect: true },
    topicsMax: 10,
    channelsPerTopicMax: 10,
    publishBytesMax: 1 << 20,
  });
  return { broker, clock };
}

/** Publishes messages of 1000 bytes, each a group of its own. */
async function publish(broker: Broker, topic: Topic, count: number): Promise<void> {
  for (; count > 0; count--) {
    broker.publish(topic, new Uint8Array(1000), 0, 1000, 0);
    await broker.durableTo(broker.position);
  }
}

/** Sequences that a consumer with room for `ready` gets; it answers with FIN and stays. */
async function consume(broker: Broker, topicName: string, ready: number): Promise<number[]> {
  const topic = broker.topics.get(topicName);
  const channel = topic?.channels.get("c");
  ok(channel !== undefined, "the channel is there");
  const got: number[] = [];
  const consumer = channel.join(
    { writable: true, deliver: (message) => got.push(message.sequence), channelDeleted() {} },
    60_000,
    0,
  );
  ok(consumer !== null, "the consumer has joined");
  channel.credit(consumer, ready);
  await settle();
  channel.close(consumer);
  for (const sequence of got) equal(channel.finish(consumer, sequence), "done");
  return got;
}

Deno.test("messages behind a removed file are read from the page that they share with it", async () => {
  const disk = new SimDisk();
  const first = await open(disk);
  const topic = first.broker.ensureTopic("t");
  first.broker.ensureChannel(topic, "c");
  await publish(first.broker, topic, 20);
  await first.broker.close();

  const second = await open(disk);
  equal((await consume(second.broker, "t", 10)).length, 10);
  await second.broker.close();

  const third = await open(disk);
  const oldest = third.broker.storage.logFiles[0]?.start ?? 0;
  ok(oldest % (128 * 1024) !== 0, "the oldest file starts inside a page");
  equal((await consume(third.broker, "t", 20)).length, 10);
  await third.broker.close();
  equal(disk.openFiles, 0);
});

for (const moment of ["before_effect", "after_effect"] satisfies PowerCutMoment[]) {
  Deno.test(`a file stays while a crash could bring its messages back: power cut ${moment}`, async () => {
    for (let mutation = 1; mutation <= 30; mutation++) {
      const disk = new SimDisk({ random: new SeededRandom(mutation), extraTurnsMax: 3 });
      const before = await open(disk);
      const topic = before.broker.ensureTopic("t");
      const channel = before.broker.ensureChannel(topic, "c");
      await publish(before.broker, topic, 20);
      // Twice, so that no checkpoint needs the oldest files.
      await before.broker.storage.maintain();
      await publish(before.broker, topic, 5);
      await before.broker.storage.maintain();
      disk.powerCutAfter(mutation, moment);
      before.broker.administration.deleteChannel(topic, channel);
      await before.broker.storage.maintain().catch((error) => ok(error instanceof DiskError));
      await settle();
      disk.crash();

      const after = await open(disk);
      const left = after.broker.topics.get("t")?.channels.get("c");
      if (left !== undefined) equal((await consume(after.broker, "t", 100)).length, 25);
      await after.broker.close();
    }
  });
}

for (const pausedAfterMs of [0, 2000]) {
  Deno.test(`a deferred message kept for a first channel waits behind a pause made after ${pausedAfterMs} ms`, async () => {
    const disk = new SimDisk();
    const { broker, clock } = await open(disk);
    const topic = broker.ensureTopic("t");
    broker.publish(topic, new Uint8Array(1), 0, 1, clock.wallMs() + 1000);
    await broker.durableTo(broker.position);
    await clock.run(pausedAfterMs);
    broker.administration.pauseTopic(topic, true);
    broker.ensureChannel(topic, "c");
    await clock.run(2000);
    equal((await consume(broker, "t", 10)).length, 0);
    broker.administration.pauseTopic(topic, false);
    await clock.run(1);
    equal((await consume(broker, "t", 10)).length, 1);
    await broker.close();
    equal(disk.openFiles, 0);
  });
}

Deno.test("durableTo() rejects what it is asked after a failed write", async () => {
  const disk = new SimDisk();
  const { broker } = await open(disk);
  const topic = broker.ensureTopic("t");
  await broker.durableTo(broker.position);
  disk.failNext({ operation: "write", kind: "io" });
  broker.publish(topic, new Uint8Array(1), 0, 1, 0);
  await rejects(broker.durableTo(broker.position), DiskError);
  await rejects(broker.durableTo(broker.position), DiskError);
  await broker.abandon();
  equal(disk.openFiles, 0);
});

Deno.test("close() rejects when the log fails under it, or failed before", async () => {
  for (const failsBefore of [false, true]) {
    const disk = new SimDisk();
    const { broker } = await open(disk);
    const topic = broker.ensureTopic("t");
    await broker.durableTo(broker.position);
    disk.failNext({ operation: "sync", kind: "io" });
    broker.publish(topic, new Uint8Array(1), 0, 1, 0);
    if (failsBefore) await rejects(broker.durableTo(broker.position), DiskError);
    await rejects(broker.close(), LogError);
    equal(disk.openFiles, 0);
  }
});
