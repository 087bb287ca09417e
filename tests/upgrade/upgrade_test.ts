/** Every release opens the folders that earlier ones left, with all that was in them. */
import assert from "node:assert/strict";
import type { Broker } from "@sluice/broker/broker";
import type { Channel, Topic } from "@sluice/broker/queue";
import {
  decodeCheckpoint,
  isRewritten,
  LARGE_MESSAGE_KIND,
  LOG_FOLDER,
  PART_KIND,
  ReadOnlyLog,
} from "@sluice/broker/storage/format";
import { SLUICE_VERSION } from "@sluice/shared/runtime";
import { SimClock, type SimDisk } from "@sluice/shared/testing";
import { ctl } from "../offline/folder.ts";
import {
  describeTopics,
  type Expectation,
  type ExpectedChannel,
  type ExpectedTopic,
} from "./expectation.ts";
import { type Delivery, GoldenConsumer, openBroker, PATH } from "./golden_broker.ts";
import { buildLevelsGolden, LEVELS_NAME } from "./levels_recipe.ts";
import { copyGolden, goldenReleases, readExpectation } from "./golden_folders.ts";
import { buildGolden } from "./recipe.ts";

/** More than any channel is owed. */
const ALL = 10_000;
/** A broker looks at the clock of the wall at least this often. */
const WALL_CHECK_MS = 5000;
/** Everything in a golden folder is due by then. */
const ALL_DUE_MS = 5_000_000_000_000;

async function withBroker(
  disk: SimDisk,
  wallMs: number,
  test: (broker: Broker, clock: SimClock) => Promise<void> | void,
): Promise<void> {
  const clock = new SimClock({ wallMs });
  const broker = await clock.runUntil(openBroker(disk, clock), 10_000);
  await clock.run(0);
  await test(broker, clock);
  await clock.runUntil(broker.close(), 10_000);
  assert.deepEqual([disk.openFiles, clock.pendingTimers], [0, 0]);
}

/** Everything but the messages, which are read by consumers. */
function assertKnows(broker: Broker, expected: Expectation): void {
  const { damage, orphanRecords } = broker.storage.opening;
  assert.deepEqual([damage, orphanRecords], [[], 0]);
  const messages = new Map(expected.topics.map(({ name, messages }) => [name, messages]));
  assert.deepEqual(
    describeTopics(broker, ({ state }) => messages.get(state.name) ?? []),
    expected.topics,
  );
  const { state } = broker.storage;
  assert.ok(state.nextTopicNumber >= expected.next_topic_number);
  assert.ok(state.nextChannelNumber >= expected.next_channel_number);
}

/** What a channel owes to somebody who comes at `wallMs`, by offset. */
function owedAt(topic: ExpectedTopic, channel: ExpectedChannel, wallMs: number): string[] {
  const requeues = new Map(channel.requeues.map((requeue) => [requeue.offset, requeue]));
  const unfinished = new Set(channel.unfinished);
  return topic.messages.flatMap(({ offset, id, timestamp, due_ms, body }) => {
    const requeue = requeues.get(offset);
    const dueMs = requeue?.due_ms ?? due_ms;
    const attempts = (requeue?.attempts ?? 0) + 1;
    return unfinished.has(offset) && dueMs <= wallMs
      ? [`${id} of ${timestamp} #${attempts}: ${body}`]
      : [];
  });
}

function deliveryTexts(deliveries: readonly Delivery[]): string[] {
  return deliveries.map(({ id, timestamp, attempts, body }) =>
    `${id} of ${timestamp} #${attempts}: ${body.toBase64()}`
  ).sort();
}

/** What a new consumer gets at once, and gives back by leaving. */
async function delivered(
  broker: Broker,
  clock: SimClock,
  topic: Topic,
  channel: Channel,
): Promise<string[]> {
  const consumer = new GoldenConsumer(broker, clock, topic, channel);
  const texts = deliveryTexts(await consumer.take(ALL));
  consumer.leave();
  return texts;
}

/** Each channel delivers all that is due, and nothing else. */
async function assertDelivers(broker: Broker, clock: SimClock, expected: Expectation) {
  const wallMs = clock.wallMs();
  for (const topic of expected.topics) {
    for (const channel of topic.channels) {
      const where = `${topic.name}/${channel.name}`;
      const owed = channel.paused ? [] : owedAt(topic, channel, wallMs);
      const found = await delivered(broker, clock, ...existing(broker, topic.name, channel.name));
      assert.deepEqual(found, owed.sort(), where);
    }
  }
}

function existing(broker: Broker, topicName: string, channelName: string): [Topic, Channel] {
  const topic = broker.topics.get(topicName);
  const channel = topic?.channels.get(channelName);
  assert.ok(topic !== undefined && channel !== undefined, `${topicName}/${channelName}`);
  return [topic, channel];
}

/** When the folder was left, and for each time at which something is due that and just before. */
function moments({ topics, wall_ms }: Expectation): number[] {
  const dues = topics.flatMap(({ messages, channels }) =>
    [...messages, ...channels.flatMap(({ requeues }) => requeues)].map(({ due_ms }) => due_ms)
  ).filter((dueMs) => dueMs > wall_ms);
  return [wall_ms, ...[...new Set(dues)].flatMap((dueMs) => [dueMs - 1, dueMs])];
}

/** Lets everything through: no pauses any more, and a channel for what was kept for the first one. */
function resumeAll(broker: Broker, expected: Expectation): Expectation {
  const topics = expected.topics.map((topic): ExpectedTopic => {
    const known = broker.topics.get(topic.name);
    assert.ok(known !== undefined);
    if (known.channels.size === 0) broker.ensureChannel(known, "first");
    for (const channel of known.channels.values()) {
      broker.administration.pauseChannel(channel, false);
    }
    broker.administration.pauseTopic(known, false);
    const kept = {
      name: "first",
      unfinished: topic.messages.map(({ offset }) => offset),
      requeues: [],
    };
    const channels = topic.channels.length === 0 ? [{ ...NO_CHANNEL, ...kept }] : topic.channels;
    return { ...topic, channels: channels.map((channel) => ({ ...channel, paused: false })) };
  });
  return { ...expected, topics };
}

const NO_CHANNEL = { paused: false, start: 0, depth: 0, deferred: 0 };

for (const release of goldenReleases()) {
  const expected = readExpectation(release);

  Deno.test(`the golden folder ${release} opens with all its topics, channels and messages`, async () => {
    await withBroker(await copyGolden(release), expected.wall_ms, (broker) => {
      assert.equal(broker.storage.nodeId, expected.node_id);
      assertKnows(broker, expected);
    });
  });

  Deno.test(`the golden folder ${release} delivers what was due then, and the rest when it is due`, async () => {
    await withBroker(await copyGolden(release), expected.wall_ms, async (broker, clock) => {
      const held = expected.topics.filter(({ paused }) => paused);
      const visible = expected.topics.filter(({ paused }) => !paused);
      await assertDelivers(broker, clock, { ...expected, topics: visible });
      for (const { name, tail, depth, channels, messages } of held) {
        // A pause hides the end of a topic.
        const shown = messages.filter(({ offset }) => offset < tail - depth);
        const topics = [{ name, tail, depth, channels, messages: shown, paused: true }];
        await assertDelivers(broker, clock, { ...expected, topics });
      }
    });
    for (const wallMs of moments(expected)) {
      await withBroker(await copyGolden(release), wallMs, async (broker, clock) => {
        const resumed = resumeAll(broker, expected);
        await assertDelivers(broker, clock, resumed);
      });
    }
    await withBroker(await copyGolden(release), expected.wall_ms, async (broker, clock) => {
      const resumed = resumeAll(broker, expected);
      clock.jumpWall(ALL_DUE_MS - clock.wallMs());
      await clock.run(WALL_CHECK_MS);
      await assertDelivers(broker, clock, resumed);
    });
  });

  Deno.test(`the golden folder ${release} takes new messages under new ids, and keeps the old`, async () => {
    const disk = await copyGolden(release);
    const body = new TextEncoder().encode("after the upgrade");
    await withBroker(disk, expected.wall_ms, async (broker) => {
      assert.ok(broker.storage.nextSequence >= expected.sequence_reserved);
      for (const topic of broker.topics.values()) broker.publish(topic, body, 0, body.length, 0);
      await broker.durableTo(broker.position);
    });
    await withBroker(disk, expected.wall_ms, async (broker, clock) => {
      const resumed = resumeAll(broker, expected);
      for (const topic of resumed.topics) {
        assert.equal(broker.topics.get(topic.name)?.state.tail, topic.tail + 1);
        for (const channel of topic.channels) {
          const pair = existing(broker, topic.name, channel.name);
          const found = await delivered(broker, clock, ...pair);
          const isNew = (text: string) => text.endsWith(`: ${body.toBase64()}`);
          assert.deepEqual(
            found.filter((text) => !isNew(text)),
            owedAt(topic, channel, clock.wallMs()).sort(),
          );
          assert.equal(found.filter(isNew).length, 1);
          const sequences = found.filter(isNew).map((text) => parseInt(text.slice(4, 16), 16));
          assert.ok(sequences.every((sequence) => sequence >= expected.sequence_reserved));
        }
      }
    });
    assert.match((await ctl(disk, "data", "verify", PATH)).out, /\nclean\n$/);
  });

  Deno.test(`the golden folder ${release} is clean to sluicectl`, async () => {
    const { code, out } = await ctl(await copyGolden(release), "data", "verify", PATH, "--json");
    assert.equal(code, 0, out);
    const { findings } = JSON.parse(out) as { findings: { severity: string }[] };
    assert.deepEqual(findings.filter(({ severity }) => severity === "damage"), []);
  });
}

Deno.test("there is a golden folder of this release", () => {
  assert.ok(goldenReleases().includes(SLUICE_VERSION), "run tests/upgrade/main.ts");
});

Deno.test("there is a golden folder of the feature levels, with all that they brought", async () => {
  const disk = await copyGolden(LEVELS_NAME);
  const compatibility = new TextDecoder().decode(disk.bytes(`${PATH}/COMPATIBILITY`));
  assert.equal(compatibility.trim(), '{"reader":3,"writer":3}');
  const log = await ReadOnlyLog.open(disk, `${PATH}/${LOG_FOLDER}`);
  const positions = await log.listCheckpoints();
  assert.equal(positions.length, 2);
  const { state } = await decodeCheckpoint(log.getCheckpoint(positions[0]!));
  const topics = [...state.topics.values()];
  assert.ok(topics.some(({ policy }) => "of_a_later_release" in policy), "policies (9)");
  assert.ok(topics.some(({ largePins }) => largePins.length > 0), "parts in earlier files (10)");
  assert.ok(topics.some(({ name, keepFrom }) => name === "trimmed and kept" && keepFrom > 0));
  let compacted = 0;
  const kinds = new Set<number>();
  await log.recover(0, {
    block: (header) => compacted += Number(isRewritten(header)),
    record: (kind) => kinds.add(kind),
  }, 0);
  await log.close();
  assert.ok(compacted > 2, "compacted blocks");
  assert.ok(kinds.has(PART_KIND) && kinds.has(LARGE_MESSAGE_KIND), "large messages");
  assert.ok(disk.files().filter((path) => path.endsWith(".idx")).length > 5, "sidecars");
  const { out } = await ctl(disk, "data", "verify", PATH, "--json");
  assert.deepEqual((JSON.parse(out) as { findings: unknown[] }).findings, []);
});

Deno.test("buildLevelsGolden() leaves the same folder at every run, and a small one", async () => {
  const [first, second] = [await buildLevelsGolden(), await buildLevelsGolden()];
  assert.deepEqual(first.expectation, second.expectation);
  const files = first.disk.files();
  assert.deepEqual(second.disk.files(), files);
  for (const path of files) assert.deepEqual(first.disk.bytes(path), second.disk.bytes(path), path);
  const bytes = files.reduce((sum, path) => sum + first.disk.bytes(path).length, 0);
  assert.ok(bytes < 400_000, `${bytes} bytes`);
  await withBroker(first.disk, first.expectation.wall_ms, (broker) => {
    assertKnows(broker, first.expectation);
    assert.ok(broker.storage.opening.replayedRecords > 15, "a tail behind the checkpoint");
  });
});

Deno.test("buildGolden() leaves the same bytes at every run, of every kind there is", async () => {
  const [first, second] = [await buildGolden(), await buildGolden()];
  assert.deepEqual(first.expectation, second.expectation);
  const files = first.disk.files();
  assert.deepEqual(second.disk.files(), files);
  for (const path of files) assert.deepEqual(first.disk.bytes(path), second.disk.bytes(path), path);

  const starts = files.filter((path) => path.endsWith(".log"))
    .map((path) => Number(/(\d+)\.log$/.exec(path)?.[1]));
  assert.ok(starts[0]! > 0, "the first files are gone");
  assert.ok(files.filter((path) => path.endsWith(".idx")).length >= 3, "sealed files");
  assert.equal(files.filter((path) => path.endsWith(".ckp")).length, 2);
  const bytes = files.reduce((sum, path) => sum + first.disk.bytes(path).length, 0);
  assert.ok(bytes < 200_000, `${bytes} bytes`);
  await withBroker(first.disk, first.expectation.wall_ms, (broker) => {
    assertKnows(broker, first.expectation);
    assert.ok(broker.storage.opening.replayedRecords > 30, "a tail behind the checkpoint");
  });
});
