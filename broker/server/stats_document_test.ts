/** That `/stats` is told in slices changes no byte of it. */
import assert from "node:assert/strict";
import { encodeSub } from "@sluice/shared/protocol";
import { TopicOrder } from "../queue/mod.ts";
import { statsJson, statsText } from "./stats_document.ts";
import { producerStats, type StatsFilter, topicStats } from "./stats.ts";
import { pub, World } from "./world_test.ts";

const HEAD = {
  version: "1.3.0",
  startWallMs: 5_000,
  nowWallMs: 65_000,
  health: "OK",
  memory: { heap_objects: 1, heap_idle_bytes: 2 },
};

/** The document made at once. */
function atOnce(world: World, filter: StatsFilter): string {
  const producers = filter.includeClients ? producerStats(world.server.sessions) : [];
  return JSON.stringify({
    version: HEAD.version,
    health: HEAD.health,
    start_time: 5,
    topics: topicStats(world.broker, world.server.sessions, filter),
    memory: HEAD.memory,
    producers: producers.length === 0 ? null : producers,
  });
}

Deno.test("statsJson() is the document that is made at once, for every filter", async () => {
  const quantiles = { quantiles: [0.99, 0.5], windowMs: 60_000 };
  await World.use({ broker: { latency: quantiles } }, async (world) => {
    const { broker } = world;
    const order = new TopicOrder(broker.topics);
    const check = async () => {
      for (const topic of [null, "b", "none"]) {
        for (const channel of [null, "c", "none"]) {
          for (const includeClients of [true, false]) {
            const filter = { topic, channel, includeClients };
            const stats = { broker, order, sessions: world.server.sessions, head: HEAD };
            const text = new TextDecoder().decode(await statsJson(stats, filter));
            assert.equal(text, atOnce(world, filter), JSON.stringify(filter));
          }
        }
      }
    };
    await check();
    for (const name of ["b", "a", "empty"]) broker.ensureTopic(name);
    for (const name of ["d", "c"]) broker.ensureChannel(broker.ensureTopic("b"), name);
    const client = await world.client(encodeSub("b", "c"), "RDY 2\n", pub("b", "1"), pub("a", "2"));
    await world.client(encodeSub("b", "c"), "RDY 0\n");
    await client.send(client.ids.map((id) => `FIN ${id}\n`).join(""));
    await check();
  });
});

Deno.test("statsText() has a line for each topic, channel, client and producer", async () => {
  await World.use({}, async (world) => {
    const { broker } = world;
    await world.client(encodeSub("t", "c"), "RDY 2\n");
    await world.client(pub("t", "1"));
    broker.administration.pauseTopic(broker.ensureTopic("t"), true);
    const stats = {
      broker,
      order: new TopicOrder(broker.topics),
      sessions: world.server.sessions,
      head: HEAD,
    };
    const filter = { topic: null, channel: null, includeClients: true };
    const lines = new TextDecoder().decode(await statsText(stats, filter)).split("\n");
    assert.ok(lines.some((line) => line.startsWith("*P [t ")));
    assert.ok(lines.some((line) => line.startsWith("      [c ")));
    assert.equal(lines.filter((line) => line.includes("[V2 ")).length, 2);
    assert.ok(lines.includes("Producers:"));
    const none = { ...filter, topic: "none", includeClients: false };
    const empty = new TextDecoder().decode(await statsText(stats, none)).split("\n");
    assert.ok(empty.includes("Topics: None"));
    assert.ok(empty.includes("Producers: None"));
  });
});
