/** Moving messages of a channel to another topic. */
import { deepStrictEqual as equal, ok } from "node:assert/strict";
import { encodeSub } from "@sluice/shared/protocol";
import { SeededRandom, settle, SimDisk } from "@sluice/shared/testing";
import { nsqHttp } from "@sluice/shared/http";
import { messageRoutes } from "./peek_http.ts";
import { pub, sized, World, type WorldOptions } from "./world_test.ts";

type Document = ReturnType<typeof JSON.parse>;

const BASE = "/v1/topics/t/channels/c";

function start(world: World, body: unknown): Promise<Response> {
  const app = nsqHttp({ logger: world.broker.logger, routes: messageRoutes(world.broker) });
  const request = new Request(`http://h${BASE}/move`, {
    method: "POST",
    body: JSON.stringify(body),
  });
  return Promise.resolve(app.fetch(request));
}

async function move(world: World, body: unknown): Promise<[number, Document]> {
  const response = await world.clock.runUntil(start(world, body), 60_000);
  return [response.status, await response.json()];
}

function test(
  promise: string,
  run: (world: World) => Promise<void>,
  options: WorldOptions = {},
): void {
  Deno.test(promise, () => World.use(options, run));
}

async function publish(world: World, bodies: readonly string[]): Promise<void> {
  const { broker } = world;
  broker.ensureChannel(broker.ensureTopic("t"), "c");
  const client = await world.client();
  for (const body of bodies) await client.send(pub("t", body));
  client.close();
  await settle();
}

async function consume(world: World, topic: string): Promise<string[]> {
  const client = await world.client(encodeSub(topic, "c"), "RDY 1000\n");
  await world.clock.run(10);
  return client.take().filter((frame) => frame !== "OK");
}

test("move publishes what waits in order, finishes it, and says how far it came", async (world) => {
  await publish(world, ["a", "b", "c", "d", "e"]);
  world.broker.ensureChannel(world.broker.ensureTopic("u"), "c");
  const answer = (moved: number, remaining: number) => ({
    moved,
    moved_bytes: moved,
    damaged: 0,
    remaining,
    complete: remaining === 0,
    stopped: null,
  });
  equal(await move(world, { to_topic: "u", count: 2 }), [200, answer(2, 3)]);
  equal(world.counts("t", "c"), [3, 0, 0]);
  equal(await move(world, { to_topic: "u" }), [200, answer(3, 0)]);
  equal(await move(world, { to_topic: "u" }), [200, answer(0, 0)]);
  equal(await consume(world, "u"), ["a #1", "b #1", "c #1", "d #1", "e #1"]);
  equal(world.broker.topics.get("t")?.channels.get("c")?.consumers.size, 0);
});

test("move makes the topic, takes from a paused channel, and leaves what is in flight or deferred", async (world) => {
  const { broker } = world;
  await publish(world, ["flying", "waiting"]);
  const client = await world.client(
    encodeSub("t", "c"),
    "RDY 1\n",
    sized("DPUB t 60000\n", new TextEncoder().encode("later")),
  );
  broker.administration.pauseChannel(broker.topics.get("t")!.channels.get("c")!, true);
  const [, { moved, complete }] = await move(world, { to_topic: "new" });
  equal([moved, complete], [1, true]);
  equal(world.counts("t", "c"), [0, 1, 1]);
  equal(await consume(world, "new"), ["waiting #1"]);
  equal(client.ids.length, 1);
});

test("a consumer that takes messages meanwhile gets none that are on their way", async (world) => {
  await publish(world, ["a", "b", "c"]);
  const release = world.disk.hold();
  const moving = start(world, { to_topic: "u", count: 2 });
  await settle();
  equal(world.counts("t", "c"), [1, 2, 0]);
  const client = await world.client();
  await client.send(encodeSub("t", "c"), "RDY 10\n");
  release();
  const response = await world.clock.runUntil(moving, 1000);
  equal((await response.json()).moved, 2);
  await settle();
  equal(client.take(), ["OK", "c #1"]);
});

test("a large message is moved part by part", async (world) => {
  const body = "0123456789".repeat(95);
  await publish(world, [body, "small"]);
  const [, { moved, moved_bytes }] = await move(world, { to_topic: "u" });
  equal([moved, moved_bytes], [2, 955]);
  equal(await consume(world, "u"), [`${body} #1`, "small #1"]);
  equal([world.broker.stagedBytes, world.broker.uploads.size], [0, 0]);
}, { storage: { largeBodyBytes: 400 } });

test("a move into what takes no publishes is refused, and everything stays where it was", async (world) => {
  await publish(world, ["a", "b"]);
  const untilMs = world.clock.wallMs() + 60_000;
  world.broker.administration.tombstones.set({ topic: "u", channel: null, untilMs });
  equal(await move(world, { to_topic: "u" }), [409, { message: "TOMBSTONED" }]);
  equal(world.counts("t", "c"), [2, 0, 0]);
  equal(await consume(world, "t"), ["a #2", "b #2"]);
});

test("a body that is not right names the reason", async (world) => {
  await publish(world, ["a"]);
  for (
    const [body, detail] of [
      [{}, "to_topic is the name of a topic"],
      [{ to_topic: "a b" }, "to_topic is the name of a topic"],
      [{ to_topic: "t" }, "to_topic is another topic"],
      [{ to_topic: "u", count: 0 }, "count is a whole number from 1 to 10000"],
      [{ to_topic: "u", n: 1 }, 'there is no field "n"; there are: to_topic, count'],
    ] as const
  ) {
    equal(await move(world, body), [400, { message: "INVALID_MOVE", detail }]);
  }
  equal(world.counts("t", "c"), [1, 0, 0]);
});

test("only so many moves are under way at a time", async (world) => {
  await publish(world, ["a"]);
  const release = world.disk.hold();
  const moving = Array.from({ length: 4 }, () => start(world, { to_topic: "u" }));
  await settle();
  equal(await move(world, { to_topic: "u" }), [429, { message: "TOO_MANY_MOVES" }]);
  release();
  const answers = await world.clock.runUntil(Promise.all(moving), 10_000);
  const moved = await Promise.all(answers.map(async (answer) => (await answer.json()).moved));
  equal(moved.reduce((sum, count) => sum + count, 0), 1);
});

test("what was moved is in the audit trail", async (world) => {
  await publish(world, ["a"]);
  await move(world, { to_topic: "u" });
  await world.clock.run(2000);
  const trail = world.simDisk.files().find((path) => path.startsWith("/data/audit/"))!;
  const text = new TextDecoder().decode(world.simDisk.bytes(trail));
  ok(text.includes('"event":"messages_moved","topic":"t","channel":"c","to":"u","messages":1'));
});

Deno.test("a power cut during a move loses no message", async () => {
  const count = 150;
  let both = 0;
  for (let seed = 0; seed < 60; seed++) {
    const random = new SeededRandom(seed);
    const disk = new SimDisk({ random: random.fork() });
    const world = await World.open({ disk });
    await publish(world, Array.from({ length: count }, (_, number) => `m${number}`));
    world.broker.ensureChannel(world.broker.ensureTopic("u"), "c");
    await world.clock.runUntil(world.broker.durableTo(world.broker.position), 1000);
    disk.powerCutAfter(1 + random.below(30));
    await move(world, { to_topic: "u" }).catch(() => {});
    for (const client of world.clients) client.close();
    await world.clock.runUntil(world.server.close(), 20_000);
    await world.broker.abandon();
    disk.crash();
    await World.use({ disk }, async (again) => {
      const [here, there] = [await consume(again, "t"), await consume(again, "u")];
      const bodies = new Set([...here, ...there].map((frame) => frame.split(" ")[0]));
      equal(bodies.size, count, `seed ${seed}`);
      if (here.length + there.length > count) both++;
    });
  }
  ok(both > 0, "some were in both");
});
