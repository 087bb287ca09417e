/** The native statistics and observations of a broker in a simulated world. */
import { deepStrictEqual as equal, match, ok } from "node:assert/strict";
import type { Clock } from "@sluice/shared/runtime";
import { settle, SimDisk } from "@sluice/shared/testing";
import { worldHttp } from "./http_world_test.ts";
import { statsDocument } from "./stats_v1.ts";
import { pub, World, type WorldOptions } from "./world_test.ts";

type Document = ReturnType<typeof JSON.parse>;

async function get(world: World, path: string): Promise<Document> {
  const handler = worldHttp(world);
  const asked = Promise.resolve(handler(new Request(`http://h${path}`), "127.0.0.1:5000"));
  const response = await world.clock.runUntil(asked, 1000);
  equal(response.status, 200);
  return JSON.parse(await world.clock.runUntil(response.text(), 60_000));
}

function test(
  promise: string,
  run: (world: World) => Promise<void>,
  options: WorldOptions = {},
): void {
  Deno.test(promise, () => World.use(options, run));
}

test("GET /v1/stats tells of topics and channels, with the age of what is not finished", async (world) => {
  const client = await world.client(pub("t", "a"), pub("t", "b"), "SUB t c\n", "RDY 1\n");
  await world.client("DPUB t 60000\n\x00\x00\x00\x01d");
  await world.clock.run(500);
  const { topics, complete, node_id } = await get(world, "/v1/stats");
  equal([topics.length, complete, node_id], [1, true, 1]);
  const [topic] = topics;
  equal(
    [
      topic.topic,
      topic.message_count,
      topic.next_offset,
      topic.undurable_count,
      topic.channel_count,
    ],
    ["t", 3, 3, 0, 1],
  );
  equal([topic.deferred_count, topic.next_due_ms], [1, 1_700_000_060_000]);
  equal(topic.oldest_unfinished_ms, 500);
  ok(topic.held_bytes > 0 && topic.stored_bytes >= topic.held_bytes);
  const [channel] = topic.channels;
  equal(
    [channel.channel, channel.depth, channel.in_flight_count, channel.deferred_count],
    ["c", 1, 1, 1],
  );
  equal([channel.oldest_unfinished_ms, channel.next_due_ms], [500, 1_700_000_060_000]);
  equal(channel.consumers, { count: 1, ready_count: 1, in_flight_max: 1, at_limit_count: 1 });
  equal(channel.clients, undefined);
  await client.send(`FIN ${client.ids[0]}\n`, "RDY 0\n");
  await world.clock.run(100);
  const [after] = (await get(world, "/v1/stats?include_clients=true")).topics;
  equal([after.channels[0].oldest_unfinished_ms, after.channels[0].finished_floor], [600, 1]);
  equal(after.channels[0].clients.length, 1);
});

test("GET /v1/stats has only what is asked for, and an empty list where that is nothing", async (world) => {
  const { broker } = world;
  for (const name of ["a", "b"]) {
    const topic = broker.ensureTopic(name);
    broker.ensureChannel(topic, "x");
    broker.ensureChannel(topic, `only-${name}`);
  }
  const names = async (query: string) =>
    (await get(world, `/v1/stats?${query}`)).topics.map((topic: Document) =>
      [topic.topic, ...topic.channels.map(({ channel }: Document) => channel)].join(" ")
    );
  equal(await names(""), ["a x only-a", "b x only-b"]);
  equal(await names("topic=a"), ["a x only-a"]);
  equal(await names("channel=only-b"), ["b only-b"]);
  equal(await names("topic=a&channel=only-b"), []);
  equal(await names("topic=none"), []);
});

test("GET /v1/stats reads the oldest message from disk where it has to, and remembers what it read", async (world) => {
  const { broker } = world;
  const topic = broker.ensureTopic("t");
  broker.ensureChannel(topic, "c");
  const client = await world.client();
  for (let count = 0; count < 200; count++) await client.send(pub("t", "x".repeat(900)));
  await world.clock.run(700);
  ok(
    topic.state.index.position(0) < broker.storage.log.hotStart,
    "the first message has left memory",
  );
  const [found] = (await get(world, "/v1/stats")).topics;
  equal(found.channels[0].oldest_unfinished_ms, 700);
  const loads = broker.storage.reader.cachedBytes;
  ok(loads > 0);
  const [again] = (await get(world, "/v1/stats")).topics;
  equal(again.channels[0].oldest_unfinished_ms, 700);
  equal(broker.source.damagedCount, 0);
});

test("statistics let others run, however many topics there are", async (world) => {
  const { broker, clock } = world;
  const count = 90;
  for (let number = 0; number < count; number++) {
    broker.ensureChannel(broker.ensureTopic(`t${number}`), "c");
    while (!broker.hasRoom(4096, 2)) await broker.room();
  }
  // Every look at the clock takes a millisecond, and there is one in 16 steps.
  const ticking: Clock = {
    wallMs: () => clock.wallMs(),
    monoMs: () => {
      clock.advance(1);
      return clock.monoMs();
    },
    sleep: (ms) => clock.sleep(ms),
    setTimer: (delayMs, callback) => clock.setTimer(delayMs, callback),
  };
  const pieces = statsDocument({
    broker,
    clock: ticking,
    sessions: new Set(),
    memory: () => ({}),
    identity: () => ({ format: 1 }),
  }, { topic: null, channel: null, includeClients: false, includeMemory: false });
  let [text, turns, longest] = ["", 0, 0];
  while (true) {
    const beforeMs = clock.monoMs();
    let isPaused = true;
    const next = pieces.next().then((result) => {
      isPaused = false;
      return result;
    });
    await settle();
    longest = Math.max(longest, clock.monoMs() - beforeMs);
    if (isPaused) {
      turns++;
      await clock.run(0);
    }
    const { done, value } = await next;
    if (done) break;
    text += value;
  }
  equal(JSON.parse(text).topics.length, count);
  ok(turns >= 3, `others had ${turns} turns`);
  ok(longest <= 4, `a slice took ${longest} ms`);
});

test("no piece of the text is much larger than others, with and without channels", async (world) => {
  const { broker, clock } = world;
  for (let number = 0; number < 95; number++) {
    const topic = broker.ensureTopic(`t${number}`);
    if (number >= 90) {
      for (let count = 0; count < 50; count++) broker.ensureChannel(topic, `c${count}`);
    }
    while (!broker.hasRoom(8192, 60)) await broker.room();
  }
  const sizes: number[] = [];
  const query = { topic: null, channel: null, includeClients: false, includeMemory: false };
  const stats = statsDocument({
    broker,
    clock,
    sessions: new Set(),
    memory: () => ({}),
    identity: () => ({ format: 1 }),
  }, query);
  for await (const text of stats) sizes.push(text.length);
  ok(Math.max(...sizes) < 12_000, sizes.join());
});

test("an answer that nobody reads on is ended by its peer and leaves nothing behind", async (world) => {
  const { broker } = world;
  for (let number = 0; number < 90; number++) {
    broker.ensureChannel(broker.ensureTopic(`t${number}`), "c");
    while (!broker.hasRoom(4096, 2)) await broker.room();
  }
  const response = await worldHttp(world)(new Request("http://h/v1/stats"), "127.0.0.1:5000");
  const reader = response.body!.getReader();
  const first = await reader.read();
  ok(first.value !== undefined && first.value.length < 40_000, "only one chunk is made ahead");
  await reader.cancel();
});

test("GET /v1/observe/head says how the broker is without looking at topics", async (world) => {
  world.broker.ensureTopic("t");
  const head = await get(world, "/v1/observe/head");
  equal(head.health.status, "ok");
  equal([head.topic_count, head.revision, head.counters.messages_published], [1, 0, 0]);
  equal([head.limits.topics, head.data.reader_level], [100, 1]);
  match(head.instance, /^[0-9a-f]{16}$/);
  equal(head.stats, undefined);
  const names = head.budgets.map(({ name }: Document) => name);
  ok(names.includes("publish") && !names.includes("channels_per_topic"), names.join());
});

test("GET /v1/observe is the head with the statistics", async (world) => {
  world.broker.ensureTopic("t");
  const { stats, ...head } = await get(world, "/v1/observe?topic=t");
  const { instance } = head;
  equal(head, { ...await get(world, "/v1/observe/head"), instance });
  equal([stats.topics.length, stats.complete], [1, true]);
  ok(stats.budgets.some(({ name }: Document) => name === "channels_per_topic"));
});

Deno.test("ages are told of messages from before a restart", async () => {
  const disk = new SimDisk();
  await World.use({ disk }, async (world) => {
    world.broker.ensureChannel(world.broker.ensureTopic("t"), "c");
    await world.client(pub("t", "a"));
    await world.clock.run(20);
  });
  await World.use({ disk }, async (world) => {
    await world.clock.run(3_000);
    const [topic] = (await get(world, "/v1/stats")).topics;
    equal(topic.channels[0].oldest_unfinished_ms, 3_000);
  });
});
