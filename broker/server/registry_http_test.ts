import { deepStrictEqual as equal, match, notEqual } from "node:assert/strict";
import { nsqHttp } from "@sluice/shared/http";
import { REPORTED_VERSION } from "@sluice/shared/runtime";
import { Logger } from "@sluice/shared/telemetry";
import { SeededRandom } from "@sluice/shared/testing";
import { RegistryRevision, registryRoutes } from "./registry_http.ts";
import { World } from "./world_test.ts";

const IDENTITY = {
  hostname: "machine",
  broadcastAddress: "broker-0",
  broadcastTcpPort: () => 4150,
  broadcastHttpPort: () => 4151,
  topologyZone: "z1",
  topologyRegion: "north",
};

function door(world: World) {
  const revision = new RegistryRevision(new SeededRandom(1));
  world.broker.administration.registry = revision;
  const app = nsqHttp({
    logger: new Logger({ sink: () => {}, clock: world.clock }),
    routes: registryRoutes(world.broker, IDENTITY, revision),
  });
  const get = async (path: string) => {
    const response = await app.request(path);
    equal(response.status, 200);
    return await response.json();
  };
  return { revision, get };
}

Deno.test("GET /v1/registry/head has a new revision with every topic and channel that comes or goes", () =>
  World.use({}, async (world) => {
    const { get, revision } = door(world);
    const told: string[] = [];
    revision.next = {
      topicAdded: (topic) => told.push(`+${topic}`),
      topicRemoved: (topic) => told.push(`-${topic}`),
      channelAdded: (topic, channel) => told.push(`+${topic}/${channel}`),
      channelRemoved: (topic, channel) => told.push(`-${topic}/${channel}`),
    };
    const head = async () => (await get("/v1/registry/head")).revision;
    equal(await head(), 0);
    const topic = world.broker.ensureTopic("t");
    equal(await head(), 1);
    const channel = world.broker.ensureChannel(topic, "c");
    world.broker.ensureChannel(topic, "c");
    equal(await head(), 2);
    world.broker.administration.deleteChannel(topic, channel);
    equal(await head(), 3);
    world.broker.administration.deleteTopic(topic);
    equal(await head(), 4);
    equal(told, ["+t", "+t/c", "-t/c", "-t"]);
  }));

Deno.test("GET /v1/registry says who the broker is and what exists, sorted and free of what was deleted", () =>
  World.use({}, async (world) => {
    const { get, revision } = door(world);
    const { broker } = world;
    broker.ensureTopic("b");
    const topic = broker.ensureTopic("a");
    broker.ensureChannel(topic, "d");
    broker.ensureChannel(topic, "c");
    broker.administration.deleteTopic(broker.ensureTopic("gone"));
    equal(await get("/v1/registry"), {
      format: 1,
      instance: revision.instance,
      revision: 6,
      publish_ready: true,
      consume_ready: true,
      reasons: [],
      broadcast_address: "broker-0",
      hostname: "machine",
      tcp_port: 4150,
      http_port: 4151,
      version: REPORTED_VERSION,
      topology_zone: "z1",
      topology_region: "north",
      topics: [{ topic: "a", channels: ["c", "d"] }, { topic: "b", channels: [] }],
    });
  }));

Deno.test("GET /v1/registry/head says at once that a broker which stops is not ready, and why", () =>
  World.use({}, async (world) => {
    const { get } = door(world);
    world.broker.exiting = true;
    const { publish_ready, consume_ready, reasons } = await get("/v1/registry/head");
    equal([publish_ready, consume_ready, reasons], [false, false, ["stopping"]]);
    world.broker.exiting = false;
  }));

Deno.test("RegistryRevision names each start of a broker differently", () => {
  const random = new SeededRandom(7);
  const [first, second] = [new RegistryRevision(random), new RegistryRevision(random)];
  match(first.instance, /^[0-9a-f]{16}$/);
  notEqual(first.instance, second.instance);
});
