import { deepStrictEqual as equal, match, ok } from "node:assert/strict";
import { Logger, METRICS_CONTENT_TYPE, MetricsRegistry } from "@sluice/shared/telemetry";
import { SimClock } from "@sluice/shared/testing";
import { discoveryHttp } from "./http.ts";
import { Registry, REGISTRY_LIMITS, type RegistryLimits } from "./registry.ts";

const WALL_MS = 1_796_034_325_000;

function newService(limits: Partial<RegistryLimits> = {}) {
  const clock = new SimClock({ wallMs: WALL_MS });
  const registry = new Registry({
    inactiveTimeoutMs: 300_000,
    tombstoneLifetimeMs: 45_000,
    limits: { ...REGISTRY_LIMITS, ...limits },
  });
  const logger = new Logger({ sink: () => {}, clock });
  const app = discoveryHttp({ registry, clock, logger, metrics: new MetricsRegistry() });
  const ask = async (method: string, path: string) => {
    const response = await app.request(path, { method });
    return `${response.status} ${await response.text()}`;
  };
  return {
    clock,
    registry,
    app,
    get: (path: string) => ask("GET", path),
    post: (path: string) => ask("POST", path),
  };
}

function addBroker(registry: Registry, name: string, ...registrations: [string, string | null][]) {
  registry.addProducer(name, {
    remoteAddress: `${name}:56382`,
    info: {
      broadcastAddress: name,
      hostname: `${name}.host`,
      tcpPort: 4150,
      httpPort: 4151,
      version: "1.3.0",
      topologyRegion: "north",
      topologyZone: "z1",
    },
  }, 0);
  for (const [topic, channel] of registrations) registry.register(name, topic, channel);
}

function brokerText(name: string): string {
  return `"remote_address":"${name}:56382","hostname":"${name}.host","broadcast_address":"${name}",` +
    `"tcp_port":4150,"http_port":4151,"version":"1.3.0",` +
    `"topology_zone":"z1","topology_region":"north"`;
}

Deno.test("GET /ping answers OK without the API header, GET /info a semantic version with it", async () => {
  const { app } = newService();
  const ping = await app.request("/ping");
  equal([ping.status, await ping.text(), ping.headers.get("x-nsq-content-type")], [
    200,
    "OK",
    null,
  ]);
  const info = await app.request("/info");
  equal(info.headers.get("x-nsq-content-type"), "nsq; version=1.0");
  const { version } = await info.json();
  match(version, /^\d+\.\d+\.\d+\+[0-9A-Za-z.-]+$/);
  ok(version >= "0.3.0");
});

Deno.test("an empty service answers empty lists, never null", async () => {
  const { get } = newService();
  equal(await get("/topics"), '200 {"topics":[]}');
  equal(await get("/channels?topic=t"), '200 {"channels":[]}');
  equal(await get("/nodes"), '200 {"producers":[]}');
  equal(await get("/debug"), "200 {}");
  equal(await get("/lookup?topic=t"), '404 {"message":"TOPIC_NOT_FOUND"}');
});

Deno.test("GET /lookup, /topics, /channels and /nodes show what brokers registered", async () => {
  const { registry, get } = newService();
  addBroker(registry, "b", ["t", "d"], ["t", "c"], ["u", null]);
  addBroker(registry, "a", ["t", null]);
  equal(
    await get("/lookup?topic=t"),
    `200 {"channels":["c","d"],"producers":[{${brokerText("a")}},{${brokerText("b")}}]}`,
  );
  equal(await get("/lookup?topic=u"), `200 {"channels":[],"producers":[{${brokerText("b")}}]}`);
  equal(await get("/topics"), '200 {"topics":["t","u"]}');
  equal(await get("/channels?topic=t"), '200 {"channels":["c","d"]}');
  equal(
    await get("/nodes"),
    `200 {"producers":[{${brokerText("a")},"tombstones":[false],"topics":["t"]},` +
      `{${brokerText("b")},"tombstones":[false,false],"topics":["t","u"]}]}`,
  );
});

Deno.test("missing and invalid arguments are refused as nsqlookupd refuses them", async () => {
  const { get, post } = newService();
  const cases: [Promise<string>, string][] = [
    [get("/lookup"), "MISSING_ARG_TOPIC"],
    [get("/channels"), "MISSING_ARG_TOPIC"],
    [get("/lookup?topic=%zz"), "INVALID_REQUEST"],
    [post("/topic/create"), "MISSING_ARG_TOPIC"],
    [post("/topic/create?topic=a$"), "INVALID_ARG_TOPIC"],
    [post("/topic/delete"), "MISSING_ARG_TOPIC"],
    [post("/topic/tombstone?node=n:1"), "MISSING_ARG_TOPIC"],
    [post("/topic/tombstone?topic=t"), "MISSING_ARG_NODE"],
    ...["create", "delete"].flatMap((action): [Promise<string>, string][] => [
      [post(`/channel/${action}`), "MISSING_ARG_TOPIC"],
      [post(`/channel/${action}?topic=a$&channel=c`), "INVALID_ARG_TOPIC"],
      [post(`/channel/${action}?topic=t`), "MISSING_ARG_CHANNEL"],
      [post(`/channel/${action}?topic=t&channel=c$`), "INVALID_ARG_CHANNEL"],
    ]),
  ];
  for (const [answer, code] of cases) equal(await answer, `400 {"message":"${code}"}`);
  equal(await get("/topic/create?topic=t"), '405 {"message":"METHOD_NOT_ALLOWED"}');
  equal(await get("/debug/pprof/"), '404 {"message":"NOT_FOUND"}');
});

Deno.test("POST /topic/create and /topic/delete change names and answer empty", async () => {
  const { registry, get, post } = newService();
  equal(await post("/topic/create?topic=t"), "200 ");
  equal(await get("/lookup?topic=t"), '200 {"channels":[],"producers":[]}');
  addBroker(registry, "a", ["t", "c"]);
  equal(await post("/topic/delete?topic=t"), "200 ");
  equal(await post("/topic/delete?topic=t"), "200 ");
  equal(await post("/topic/delete?topic=a$"), "200 ");
  equal(await get("/lookup?topic=t"), '404 {"message":"TOPIC_NOT_FOUND"}');
  equal(await get("/channels?topic=t"), '200 {"channels":[]}');
  equal(
    await get("/nodes"),
    `200 {"producers":[{${brokerText("a")},"tombstones":[],"topics":[]}]}`,
  );
});

Deno.test("POST /channel/create makes the topic too; /channel/delete needs the channel", async () => {
  const { get, post } = newService();
  equal(await post("/channel/create?topic=t&channel=c"), "200 ");
  equal(await get("/topics"), '200 {"topics":["t"]}');
  equal(await get("/channels?topic=t"), '200 {"channels":["c"]}');
  const missing = '404 {"message":"CHANNEL_NOT_FOUND"}';
  equal(await post("/channel/delete?topic=t&channel=d"), missing);
  equal(await post("/channel/delete?topic=t&channel=c"), "200 ");
  equal(await post("/channel/delete?topic=t&channel=c"), missing);
  equal(await get("/channels?topic=t"), '200 {"channels":[]}');
});

Deno.test("POST /topic/tombstone hides a node of the topic for the lifetime", async () => {
  const { clock, registry, get, post } = newService();
  addBroker(registry, "a", ["t", null], ["u", null]);
  equal(await post("/topic/tombstone?topic=t&node=nobody:1"), "200 ");
  equal(await post("/topic/tombstone?topic=t&node=a:4151"), "200 ");
  equal(await get("/lookup?topic=t"), '200 {"channels":[],"producers":[]}');
  equal(await get("/lookup?topic=u"), `200 {"channels":[],"producers":[{${brokerText("a")}}]}`);
  const nodes = (hidden: boolean) =>
    `200 {"producers":[{${brokerText("a")},"tombstones":[${hidden},false],"topics":["t","u"]}]}`;
  equal(await get("/nodes"), nodes(true));
  clock.advance(45_000);
  equal(await get("/nodes"), nodes(false));
  equal(await get("/lookup?topic=t"), `200 {"channels":[],"producers":[{${brokerText("a")}}]}`);
});

Deno.test("GET /nodes and /lookup leave out a broker that has not pinged in time", async () => {
  const { clock, registry, get } = newService();
  addBroker(registry, "a", ["t", null]);
  clock.advance(300_001);
  equal(await get("/nodes"), '200 {"producers":[]}');
  equal(await get("/lookup?topic=t"), '200 {"channels":[],"producers":[]}');
});

Deno.test("GET /debug shows every registration with wall clock times", async () => {
  const { clock, registry, app, post } = newService();
  addBroker(registry, "a", ["t", "c"]);
  clock.advance(2_000);
  await post("/topic/tombstone?topic=t&node=a:4151");
  clock.advance(100_000);
  const document = await (await app.request("/debug")).json();
  equal(Object.keys(document), ["channel:t:c", "client::", "topic:t:"]);
  equal(document["client::"], [{
    broadcast_address: "a",
    hostname: "a.host",
    http_port: 4151,
    id: "a:56382",
    last_update: WALL_MS * 1e6,
    tcp_port: 4150,
    tombstoned: false,
    tombstoned_at: -6_795_364_578_871_345_152,
    topology_region: "north",
    topology_zone: "z1",
    version: "1.3.0",
  }]);
  const [topic] = document["topic:t:"];
  equal([topic.tombstoned, topic.tombstoned_at], [true, (WALL_MS + 2_000) * 1e6]);
});

Deno.test("names beyond the limits are refused with 403", async () => {
  const { post } = newService({ topicsMax: 1, channelsPerTopicMax: 1 });
  equal(await post("/channel/create?topic=t&channel=c"), "200 ");
  equal(await post("/topic/create?topic=u"), '403 {"message":"TOPIC_LIMIT_REACHED"}');
  equal(
    await post("/channel/create?topic=t&channel=d"),
    '403 {"message":"CHANNEL_LIMIT_REACHED"}',
  );
  equal(await post("/topic/create?topic=t"), "200 ");
});

Deno.test("GET /metrics answers in the text format of Prometheus", async () => {
  const response = await newService().app.request("/metrics");
  equal([response.status, response.headers.get("content-type")], [200, METRICS_CONTENT_TYPE]);
  await response.text();
});
