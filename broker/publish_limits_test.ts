import { deepStrictEqual as equal, ok, throws } from "node:assert/strict";
import { encodeMpub, utf8Bytes } from "@sluice/shared/protocol";
import { MetricsRegistry } from "@sluice/shared/telemetry";
import { settle, SimClock } from "@sluice/shared/testing";
import {
  clientOf,
  CLIENTS_MAX,
  type PublishLimitOptions,
  PublishLimits,
} from "./publish_limits.ts";
import { ConnectionStage } from "./server/connection_stage.ts";
import { brokerHttp } from "./server/http.ts";
import { worldHttp, worldHttpOptions } from "./server/http_world_test.ts";
import { pub, World } from "./server/world_test.ts";

const THROTTLED = ["E_THROTTLED PUB the topic is published to too fast", "end"];

function limits(topic: number, bytes: number, client: number): PublishLimitOptions {
  return { topic: { messages: topic, bytes }, clientMessages: client };
}

/** Publishes over HTTP: the status, with what `Retry-After` says if anything. */
async function post(
  world: World,
  path: string,
  body: string,
  from = "192.0.2.1:1",
): Promise<string> {
  const request = new Request(`http://h${path}`, { method: "POST", body });
  const response = await worldHttp(world)(request, from);
  const after = response.headers.get("retry-after");
  await response.body?.cancel();
  return `${response.status}${after === null ? "" : ` after ${after}`}`;
}

Deno.test("a topic takes its rate of messages, refuses more, and takes them again in time", async () => {
  await World.use({ broker: { limits: limits(10, 0, 0) } }, async (world) => {
    const client = await world.client();
    for (let at = 0; at < 10; at++) await client.send(pub("t", "a"));
    equal(client.take(), Array(10).fill("OK"));
    await client.send(pub("t", "a"));
    equal(client.take(), THROTTLED);
    const other = await world.client(pub("u", "a"));
    equal(other.take(), ["OK"], "another topic has a rate of its own");
    equal(await post(world, "/pub?topic=t", "a"), "429 after 1");
    await world.clock.advance(1_000);
    const again = await world.client(pub("t", "a"));
    equal(again.take(), ["OK"]);
    equal(world.broker.limits.refused, { topic: 2, client: 0 });
    equal(world.broker.topics.get("t")!.messageCount, 11, "what was refused is not stored");
  });
});

Deno.test("a batch above the rate is taken once, and Retry-After says when it is made up for", async () => {
  await World.use({ broker: { limits: limits(10, 0, 0) } }, async (world) => {
    const batch = encodeMpub("t", Array(60).fill(utf8Bytes("a")));
    const client = await world.client(batch);
    equal(client.take(), ["OK"]);
    equal(await post(world, "/pub?topic=t", "a"), "429 after 6");
    await world.clock.advance(4_500);
    equal(await post(world, "/mpub?topic=t", "a\nb"), "429 after 1");
    await world.clock.advance(600);
    equal(await post(world, "/mpub?topic=t", "a\nb"), "200");
  });
});

Deno.test("a topic takes its rate of bytes, and its policy goes above the settings", async () => {
  await World.use({ broker: { limits: limits(0, 100, 0) } }, async (world) => {
    const { administration, limits: bounds, topics } = world.broker;
    const client = await world.client(pub("t", "x".repeat(101)));
    equal(client.take(), ["OK"]);
    await client.send(pub("t", "x"));
    equal(client.take(), THROTTLED);
    const topic = topics.get("t")!;
    await world.broker.storage.allowPolicies();
    administration.configureTopic(topic, { publish_bytes_rate: 0 });
    equal([topic.limiter, bounds.ratesOf(topic.state)], [null, { messages: 0, bytes: 0 }]);
    administration.configureTopic(topic, { publish_rate: 2, publish_bytes_rate: null });
    equal(bounds.ratesOf(topic.state), { messages: 2, bytes: 100 });
    equal(await post(world, "/pub?topic=t", "a"), "200");
    equal(await post(world, "/pub?topic=t", "a"), "200");
    equal(await post(world, "/pub?topic=t", "a"), "429 after 1");
  });
});

Deno.test("a client has one rate over all its connections and doors, and others have theirs", async () => {
  await World.use({ broker: { limits: limits(0, 0, 3) } }, async (world) => {
    const first = await world.client(pub("t", "a"));
    const second = await world.client(pub("u", "a"));
    equal([first.take(), second.take()], [["OK"], ["OK"]]);
    equal(await post(world, "/pub?topic=t", "a", "127.0.0.1:9"), "200");
    await first.send(pub("t", "a"));
    equal(first.take(), ["E_THROTTLED PUB the client publishes too fast", "end"]);
    equal(await post(world, "/pub?topic=t", "a", "127.0.0.1:9"), "429 after 1");
    equal(await post(world, "/pub?topic=t", "a", "192.0.2.1:9"), "200");
    equal(world.broker.limits.refused, { topic: 0, client: 2 });
  });
});

Deno.test("one connection that floods a topic of its own starves no other", async () => {
  await World.use({ broker: { limits: limits(100, 0, 1_000) } }, async (world) => {
    const flood = encodeMpub("flooded", Array(50).fill(utf8Bytes("x")));
    const calm = await world.client();
    let refused = 0;
    for (let second = 0; second < 20; second++) {
      for (let at = 0; at < 20; at++) {
        const client = await world.client(flood);
        if (client.take().some((frame) => frame.startsWith("E_THROTTLED"))) refused++;
        client.close();
      }
      await calm.send(pub("calm", "a"));
      equal(calm.take(), ["OK"]);
      await world.clock.advance(1_000);
    }
    const { messageCount } = world.broker.topics.get("flooded")!;
    ok(messageCount >= 2_000 && messageCount <= 2_200, `${messageCount} in 20 s at 100/s`);
    ok(refused > 300, `${refused} of 400`);
  });
});

Deno.test("limits change while the broker runs, and what a bound that stays has counted stays", async () => {
  await World.use({ broker: { limits: limits(1, 0, 1) } }, async (world) => {
    const { limits: bounds, topics } = world.broker;
    const client = await world.client(pub("t", "a"));
    equal(client.take(), ["OK"]);
    bounds.configure(limits(1, 0, 0), topics.values());
    await client.send(pub("t", "a"));
    equal(client.take(), THROTTLED);
    bounds.configure(limits(0, 0, 0), topics.values());
    const again = await world.client(pub("t", "a"), pub("t", "a"), pub("t", "a"));
    equal(again.take(), ["OK", "OK", "OK"]);
    bounds.configure(limits(0, 0, 1), topics.values());
    await again.send(pub("t", "a"), pub("t", "a"));
    equal(again.take(), ["OK", "E_THROTTLED PUB the client publishes too fast", "end"]);
    await settle();
  });
});

Deno.test("clients are told apart by identity, or else by address without its port", () => {
  equal(clientOf("shop", "192.0.2.1:5"), "identity shop");
  equal(clientOf("", "192.0.2.1:5"), clientOf("", "192.0.2.1:6"));
  equal(clientOf("", "[2001:db8::1]:5"), "address 2001:db8::1");
});

Deno.test("clients without end take bounded memory: full buckets are forgotten, then all share one", async () => {
  const clock = new SimClock();
  const bounds = new PublishLimits(clock, limits(0, 0, 10));
  for (let at = 0; at < CLIENTS_MAX - 1; at++) bounds.publishedBy(`c${at}`, 20);
  equal(bounds.clientCount, CLIENTS_MAX - 1);
  // None can be forgotten: new ones have one bucket together.
  for (let at = 0; at < 10; at++) bounds.publishedBy(`new${at}`, 1);
  throws(() => bounds.admitClient("new10"), /the client publishes too fast/);
  equal(bounds.clientCount, CLIENTS_MAX);
  await clock.advance(10_000);
  // All are full again: each new one takes the place of an old one.
  for (let at = 0; at < 1_000; at++) bounds.publishedBy(`newer${at}`, 20);
  throws(() => bounds.admitClient("newer0"));
  bounds.admitClient("newest");
  ok(bounds.clientCount <= CLIENTS_MAX);
});

Deno.test("one connection over HTTP cannot have all memory for publishes", async () => {
  await World.use({}, async (world) => {
    const stage = new ConnectionStage(9_000);
    const options = { ...worldHttpOptions(), stage };
    const door = brokerHttp(world.broker, world.server.sessions, new MetricsRegistry(), options);
    const begin = (from: string) => {
      const { readable, writable } = new TransformStream<Uint8Array, Uint8Array>();
      const answer = Promise.resolve(door(
        new Request("http://h/mpub?topic=t", {
          method: "POST",
          headers: { "content-length": "4000" },
          body: readable,
        }),
        from,
      ));
      const writer = writable.getWriter();
      return { status: answer.then(({ status }) => status), end: () => writer.close() };
    };
    const two = [begin("192.0.2.1:1"), begin("192.0.2.1:1")];
    await settle();
    equal(await begin("192.0.2.1:1").status, 429);
    const other = begin("192.0.2.1:2");
    await settle();
    equal([stage.size, stage.refusedCount, world.broker.stagedBytes], [2, 1, 12_000]);
    for (const { end } of [...two, other]) void end().catch(() => {});
    await Promise.all([...two, other].map(({ status }) => status));
    equal([stage.size, world.broker.stagedBytes], [0, 0]);
    const third = begin("192.0.2.1:1");
    await settle();
    equal(stage.size, 1);
    void third.end().catch(() => {});
    await third.status;
  });
});
