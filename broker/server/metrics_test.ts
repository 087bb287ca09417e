/** What metrics tell of a broker that has done something. */
import assert from "node:assert/strict";
import { encodeIdentify, encodeSub } from "@sluice/shared/protocol";
import { LoopLag, MetricsRegistry } from "@sluice/shared/telemetry";
import { registerMetrics } from "./metrics.ts";
import { TopicFigures } from "./topic_figures.ts";
import { pub, World } from "./world_test.ts";

/** Reads all series of a world, by name and labels. */
function reader(world: World): () => Promise<Map<string, number>> {
  const registry = new MetricsRegistry();
  const topics = new TopicFigures(world.broker, 10);
  registerMetrics(registry, () => ({
    broker: world.broker,
    topics,
    tcp: world.server,
    handshakes: { failedCount: 0 },
    certificateExpiresWallMs: null,
    lag: new LoopLag(world.clock),
    registrations: [{ address: "d:4160", isUp: false }],
  }));
  return async () => {
    const lines = (await registry.text()).split("\n").filter((line) => line.startsWith("sluice_"));
    return new Map(lines.map((line) => {
      const at = line.lastIndexOf(" ");
      return [line.slice(0, at), Number(line.slice(at + 1))];
    }));
  };
}

Deno.test("metrics tell of publishes, syncs, groups and one message in 16 from publish to finish", async () => {
  await World.use({}, async (world) => {
    const read = reader(world);
    world.broker.ensureChannel(world.broker.ensureTopic("t"), "c");
    await world.client(...Array.from({ length: 32 }, () => pub("t", "body")));
    const client = await world.client(encodeSub("t", "c"), "RDY 100\n");
    await world.clock.advance(2000);
    await client.send(client.ids.map((id) => `FIN ${id}\n`).join(""));
    const series = await read();
    const get = (name: string) => series.get(name);
    assert.equal(get("sluice_messages_published_total"), 32);
    assert.equal(get("sluice_message_bytes_published_total"), 32 * 4);
    assert.equal(get("sluice_log_group_messages_sum"), 32);
    assert.ok(get("sluice_log_sync_duration_seconds_count")! > 0);
    assert.ok(get("sluice_log_group_wait_seconds_count")! > 0);
    assert.equal(get("sluice_end_to_end_latency_seconds_count"), 2);
    assert.equal(get("sluice_end_to_end_latency_seconds_sum"), 4);
    assert.equal(get("sluice_messages_delivered_total"), 32);
    assert.equal(get('sluice_topic_message_bytes_total{topic="t"}'), 32 * 4);
    assert.equal(get("sluice_accepting"), 1);
    assert.equal(get('sluice_registration_up{source="d:4160"}'), 0);
  });
});

Deno.test("metrics tell why connections ended, what clients were told, and of every budget", async () => {
  await World.use({}, async (world) => {
    const read = reader(world);
    await world.client("NONE\n");
    const silent = await world.client(encodeIdentify({ heartbeat_interval: 1000 }));
    await world.clock.advance(3000);
    assert.ok(silent !== undefined);
    const series = await read();
    assert.equal(series.get('sluice_protocol_errors_total{code="E_INVALID"}'), 1);
    assert.equal(series.get('sluice_connections_closed_total{reason="protocol_error"}'), 1);
    assert.equal(series.get('sluice_connections_closed_total{reason="heartbeat_timeout"}'), 1);
    for (const { name, unit, limit } of world.broker.budgets.report()) {
      const suffix = unit === "bytes" ? "_bytes" : "";
      assert.ok(series.has(`sluice_budget_used${suffix}{budget="${name}"}`), name);
      assert.equal(
        series.get(`sluice_budget_limit${suffix}{budget="${name}"}`),
        limit ?? undefined,
      );
    }
  });
});

Deno.test("a budget that is used up counts who was refused", async () => {
  await World.use({ broker: { topicsMax: 1 } }, async (world) => {
    const read = reader(world);
    world.broker.ensureTopic("a");
    assert.throws(() => world.broker.ensureTopic("b"));
    const series = await read();
    assert.equal(series.get('sluice_budget_used{budget="topics"}'), 1);
    assert.equal(series.get('sluice_budget_limit{budget="topics"}'), 1);
    assert.equal(series.get('sluice_budget_refused_total{budget="topics"}'), 1);
  });
});
