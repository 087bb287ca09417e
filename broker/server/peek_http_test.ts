/** Looking at messages of a channel over HTTP, and cancelling deferred ones. */
import { deepStrictEqual as equal, ok } from "node:assert/strict";
import { encodeSub } from "@sluice/shared/protocol";
import { SimDisk } from "@sluice/shared/testing";
import { nsqHttp } from "@sluice/shared/http";
import { messageRoutes } from "./peek_http.ts";
import { pub, sized, World, type WorldOptions } from "./world_test.ts";

type Document = ReturnType<typeof JSON.parse>;

const BASE = "/v1/topics/t/channels/c";

async function ask(
  world: World,
  method: string,
  path: string,
  body?: unknown,
): Promise<[number, Document]> {
  const app = nsqHttp({ logger: world.broker.logger, routes: messageRoutes(world.broker) });
  const request = new Request(`http://h${path}`, {
    method,
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  const response = await world.clock.runUntil(Promise.resolve(app.fetch(request)), 60_000);
  return [response.status, await response.json()];
}

function test(
  promise: string,
  run: (world: World) => Promise<void>,
  options: WorldOptions = {},
): void {
  Deno.test(promise, () => World.use(options, run));
}

async function peek(world: World, query = ""): Promise<Document> {
  const [status, answer] = await ask(world, "GET", `${BASE}/peek${query}`);
  equal(status, 200);
  return answer;
}

function defer(topic: string, ms: number, body: string): Uint8Array {
  return sized(`DPUB ${topic} ${ms}\n`, new TextEncoder().encode(body));
}

test("peek shows what waits, is in flight and is deferred, and changes nothing", async (world) => {
  const client = await world.client(encodeSub("t", "c"), "RDY 1\n");
  await world.client(
    pub("t", "flying"),
    pub("t", "ready"),
    defer("t", 60_000, "later"),
    pub("t", "done"),
  );
  const before = [world.counts("t", "c"), world.broker.position];
  const { messages, next } = await peek(world);
  equal(
    messages.map(({ offset, state, attempts, due_ms, body, encoding, truncated }: Document) => [
      offset,
      state,
      attempts,
      due_ms,
      body,
      encoding,
      truncated,
    ]),
    [
      [0, "in_flight", 1, null, "flying", "text", false],
      [1, "ready", 0, null, "ready", "text", false],
      [2, "deferred", 0, 1_700_000_060_000, "later", "text", false],
      [3, "ready", 0, null, "done", "text", false],
    ],
  );
  equal([messages[0].id, messages[0].timestamp_ms], [client.ids[0], 1_700_000_000_000]);
  equal(next, null);
  equal([world.counts("t", "c"), world.broker.position], before);
  await client.send(`REQ ${client.ids[0]} 5000\n`, "RDY 0\n");
  const [requeued] = (await peek(world, "?count=1")).messages;
  equal([requeued.state, requeued.attempts, requeued.due_ms], ["deferred", 1, 1_700_000_005_000]);
});

test("peek goes on from where it ended, and passes over what is finished", async (world) => {
  const client = await world.client(encodeSub("t", "c"), "RDY 2\n");
  for (const body of ["a", "b", "c", "d", "e"]) await client.send(pub("t", body));
  await client.send(`FIN ${client.ids[1]}\n`, "RDY 0\n");
  const first = await peek(world, "?count=2");
  equal([first.messages.map(({ body }: Document) => body), first.next], [["a", "c"], 3]);
  const second = await peek(world, `?count=2&from=${first.next}`);
  equal([second.messages.map(({ body }: Document) => body), second.next], [["d", "e"], null]);
  equal((await peek(world, "?from=99")).messages, []);
  equal((await peek(world, "?count=0")).next, 0);
});

test("peek tells bytes that are no text in base64, and has a bound in bytes", async (world) => {
  world.broker.ensureChannel(world.broker.ensureTopic("t"), "c");
  const client = await world.client(
    sized("PUB t\n", new Uint8Array([0xff, 0, 1])),
    sized("PUB t\n", new TextEncoder().encode("é")),
  );
  for (let count = 0; count < 400; count++) await client.send(pub("t", "x".repeat(900)));
  const { messages } = await peek(world, "?count=2");
  equal(
    messages.map(({ body, encoding }: Document) => [body, encoding]),
    [["/wAB", "base64"], ["é", "text"]],
  );
  // Most of these are read from disk.
  const { messages: many, next } = await peek(world, "?count=1000");
  equal([many.length, next], [402, null]);
  equal(many.at(-1).body.length, 900);
  equal(await world.client().then((other) => other.take()), []);
});

test("a large message is shown without its body", async (world) => {
  world.broker.ensureChannel(world.broker.ensureTopic("t"), "c");
  await world.client(pub("t", "x".repeat(900)));
  const [message] = (await peek(world)).messages;
  equal([message.body, message.body_bytes, message.truncated], ["", 900, true]);
}, { storage: { largeBodyBytes: 500 } });

test("what is behind a pause, or not durable yet, is not shown", async (world) => {
  const { broker } = world;
  const topic = broker.ensureTopic("t");
  broker.ensureChannel(topic, "c");
  const client = await world.client(pub("t", "a"));
  const release = world.disk.hold();
  await client.send(pub("t", "b"));
  equal((await peek(world)).messages.length, 1);
  release();
  await world.clock.run(20);
  equal((await peek(world)).messages.length, 2);
  broker.administration.pauseTopic(topic, true);
  await client.send(pub("t", "c"));
  await world.clock.run(20);
  equal((await peek(world)).messages.length, 2);
});

test("wrong names, numbers and ids are refused with their code", async (world) => {
  world.broker.ensureChannel(world.broker.ensureTopic("t"), "c");
  const rows: readonly (readonly [string, string, number, string])[] = [
    ["GET", "/v1/topics/a%20b/channels/c/peek", 400, "INVALID_TOPIC"],
    ["GET", "/v1/topics/t/channels/a%20b/peek", 400, "INVALID_CHANNEL"],
    ["GET", "/v1/topics/none/channels/c/peek", 404, "TOPIC_NOT_FOUND"],
    ["GET", "/v1/topics/t/channels/none/deferred", 404, "CHANNEL_NOT_FOUND"],
    ["GET", `${BASE}/peek?count=1001`, 400, "INVALID_COUNT"],
    ["GET", `${BASE}/peek?from=-1`, 400, "INVALID_FROM"],
    ["GET", `${BASE}/deferred?count=x`, 400, "INVALID_COUNT"],
    ["DELETE", `${BASE}/deferred/1`, 400, "INVALID_ID"],
    ["DELETE", `${BASE}/deferred/0001000000000001`, 404, "MESSAGE_NOT_FOUND"],
    ["DELETE", `${BASE}/deferred/0002000000000001`, 404, "MESSAGE_NOT_FOUND"],
  ];
  for (const [method, path, status, message] of rows) {
    equal(await ask(world, method, path), [status, { message }], path);
  }
});

test("deferred lists the first due first, those of publishers and of REQ alike", async (world) => {
  const client = await world.client(encodeSub("t", "c"), "RDY 1\n", pub("t", "requeued"));
  await world.client(
    defer("t", 30_000, "b"),
    defer("t", 10_000, "a"),
    defer("t", 50_000, "c"),
  );
  await client.send(`REQ ${client.ids[0]} 20000\n`);
  const [, answer] = await ask(world, "GET", `${BASE}/deferred`);
  equal(answer.deferred_count, 4);
  equal(
    answer.messages.map(({ offset, due_ms, attempts }: Document) => [
      offset,
      due_ms - 1_700_000_000_000,
      attempts,
    ]),
    [[2, 10_000, 0], [0, 20_000, 1], [1, 30_000, 0], [3, 50_000, 0]],
  );
  const [, few] = await ask(world, "GET", `${BASE}/deferred?count=2`);
  equal(few.messages.length, 2);
});

Deno.test("a cancelled message is finished for its channel alone, for good, with a line in the audit trail", async () => {
  const disk = new SimDisk();
  let id = "";
  await World.use({ disk }, async (world) => {
    const { broker } = world;
    const topic = broker.ensureTopic("t");
    for (const name of ["c", "d"]) broker.ensureChannel(topic, name);
    const client = await world.client(encodeSub("t", "c"), "RDY 1\n");
    await world.client(pub("t", "x"), defer("t", 10_000, "published"));
    await client.send(`REQ ${client.ids[0]} 5000\n`, "RDY 0\n");
    const [, { messages }] = await ask(world, "GET", `${BASE}/deferred`);
    equal(messages.length, 2);
    equal(world.counts("t", "c"), [0, 0, 2]);
    for (const { id } of messages) {
      equal(await ask(world, "DELETE", `${BASE}/deferred/${id}`), [200, { id, cancelled: true }]);
      equal(
        await ask(world, "DELETE", `${BASE}/deferred/${id}`),
        [404, { message: "MESSAGE_NOT_FOUND" }],
      );
    }
    equal([world.counts("t", "c"), world.counts("t", "d")], [[0, 0, 0], [1, 0, 1]]);
    equal(topic.channels.get("c")?.nextDueMs, Infinity);
    id = messages[1].id;
    await world.clock.run(20_000);
    equal([world.counts("t", "c"), world.counts("t", "d")], [[0, 0, 0], [2, 0, 0]]);
  });
  await World.use({ disk }, async (world) => {
    await Promise.resolve();
    equal([world.counts("t", "c"), world.counts("t", "d")], [[0, 0, 0], [1, 0, 1]]);
  });
  const trail = disk.files().find((path) => path.startsWith("/data/audit/"))!;
  const text = new TextDecoder().decode(disk.bytes(trail));
  ok(text.includes(`"event":"deferred_cancelled","topic":"t","channel":"c","id":"${id}"`), text);
});

test("what is in flight or waits is not cancelled", async (world) => {
  const client = await world.client(encodeSub("t", "c"), "RDY 1\n", pub("t", "a"), pub("t", "b"));
  for (const { id } of (await peek(world)).messages) {
    equal(
      await ask(world, "DELETE", `${BASE}/deferred/${id}`),
      [409, { message: "NOT_DEFERRED" }],
    );
  }
  equal(client.take().length, 4);
});

test("two who cancel the same message at once are told of one cancellation", async (world) => {
  world.broker.ensureChannel(world.broker.ensureTopic("t"), "c");
  await world.client(defer("t", 10_000, "a"), defer("t", 20_000, "b"));
  const [, { messages }] = await ask(world, "GET", `${BASE}/deferred`);
  const path = `${BASE}/deferred/${messages[0].id}`;
  const both = await Promise.all([ask(world, "DELETE", path), ask(world, "DELETE", path)]);
  equal(both.map(([status]) => status).sort(), [200, 404]);
  equal(world.counts("t", "c"), [0, 0, 1]);
});

test("a message is found by its id among many, also when neighbours are of other topics", async (world) => {
  const { broker } = world;
  broker.ensureChannel(broker.ensureTopic("t"), "c");
  const client = await world.client();
  for (let count = 0; count < 150; count++) {
    await client.send(defer("t", 60_000 + count, "m".repeat(600)), pub("other", "x"));
  }
  const [, { messages }] = await ask(world, "GET", `${BASE}/deferred?count=1000`);
  equal(messages.length, 150);
  for (const { id } of [messages[0], messages[77], messages[149]]) {
    equal((await ask(world, "DELETE", `${BASE}/deferred/${id}`))[0], 200);
  }
  equal(world.counts("t", "c"), [0, 0, 147]);
});
