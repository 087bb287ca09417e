/** The HTTP API of contract section 3, asked without a socket. */
import { deepStrictEqual as equal, match, ok } from "node:assert/strict";
import { encodeMpubBody, encodeSub, utf8Bytes } from "@sluice/shared/protocol";
import { REPORTED_VERSION } from "@sluice/shared/runtime";
import { LoopLag, MetricsRegistry } from "@sluice/shared/telemetry";
import { settle } from "@sluice/shared/testing";
import type { ConfigAccess, ConfigRefusal } from "./config_http.ts";
import { brokerHttp } from "./http.ts";
import { registerMetrics } from "./metrics.ts";
import { TopicFigures } from "./topic_figures.ts";
import { pub, sized, World, type WorldOptions } from "./world_test.ts";

/** An answer in short: status and body. */
type Answer = readonly [status: number, body: string];

/** One setting that is text, and one that is JSON and can be changed to anything but "bad". */
class FakeConfig implements ConfigAccess {
  readonly #values = new Map([["name", "host"], ["count", "3"]]);

  get(option: string) {
    const body = this.#values.get(option);
    return body === undefined ? undefined : { body, json: option === "count" };
  }

  change(option: string, body: string): ConfigRefusal | null {
    if (option !== "count") return "INVALID_OPTION";
    if (body === "bad") return "INVALID_VALUE";
    this.#values.set(option, body);
    return null;
  }
}

class HttpWorld {
  readonly config = new FakeConfig();
  readonly #handler: ReturnType<typeof brokerHttp>;

  constructor(readonly world: World) {
    const metrics = new MetricsRegistry();
    const topics = new TopicFigures(world.broker, 1000);
    registerMetrics(metrics, () => ({
      broker: world.broker,
      topics,
      tcp: world.server,
      handshakes: { failedCount: 3 },
      certificateExpiresWallMs: 1_700_000_000_000,
      lag: new LoopLag(world.clock),
    }));
    this.#handler = brokerHttp(world.broker, world.server.sessions, metrics, {
      hostname: "host",
      broadcastAddress: "broadcast",
      broadcastTcpPort: () => 4150,
      broadcastHttpPort: () => 4151,
      startWallMs: 1_700_000_000_999,
      maxHeartbeatIntervalMs: 60_000,
      maxOutputBufferBytes: 65_536,
      maxOutputBufferTimeoutMs: 30_000,
      topologyZone: "z",
      topologyRegion: "r",
      config: this.config,
      memory: () => ({ heap_objects: 0, heap_idle_bytes: 7 }),
      messageBytesMax: 1000,
      bodyBytesMax: 5000,
      deferMsMax: 3_600_000,
      maxDeflateLevel: 6,
      bodyTimeoutMs: 60_000,
    });
  }

  async fetch(method: string, path: string, init: RequestInit = {}): Promise<Response> {
    const request = new Request(`http://127.0.0.1:4151${path}`, { method, ...init });
    return await this.#handler(request, "127.0.0.1:50000");
  }

  async ask(method: string, path: string, body?: string | Uint8Array): Promise<Answer> {
    const response = await this.fetch(method, path, withBody(body));
    return [response.status, await response.text()];
  }

  post(path: string, body?: string | Uint8Array): Promise<Answer> {
    return this.ask("POST", path, body);
  }

  async stats(query = ""): Promise<string> {
    return (await this.ask("GET", `/stats?format=json&include_mem=0${query}`))[1];
  }
}

/** A request body as the server would announce it. */
function withBody(body: string | Uint8Array | undefined): RequestInit {
  if (body === undefined) return {};
  const bytes = new Uint8Array(typeof body === "string" ? utf8Bytes(body) : body);
  return { body: bytes, headers: { "Content-Length": String(bytes.length) } };
}

function http(promise: string, test: (http: HttpWorld) => Promise<void>, options?: WorldOptions) {
  Deno.test(promise, () => World.use(options ?? {}, (world) => test(new HttpWorld(world))));
}

function refused(status: number, code: string): Answer {
  return [status, JSON.stringify({ message: code })];
}

/** What `/v1/health` says of a broker that delivers. */
function healthText(status: string, accepting: boolean, reasons: readonly unknown[]): string {
  return JSON.stringify({
    status,
    accepting,
    delivering: true,
    reasons,
    version: REPORTED_VERSION,
  });
}

const OK: Answer = [200, "OK"];
const EMPTY: Answer = [200, ""];
const BIG = "x".repeat(1001);

http("every answer but that of /ping carries the NSQ content type", async (http) => {
  const cases: readonly [string, string, number, string | null][] = [
    ["POST", "/topic/create?topic=t", 200, null],
    ["GET", "/info", 200, "application/json; charset=utf-8"],
    ["GET", "/stats", 200, "text/plain; charset=utf-8"],
    ["GET", "/stats?format=json", 200, "application/json; charset=utf-8"],
    ["POST", "/pub?topic=t", 400, "application/json; charset=utf-8"],
    ["GET", "/nothing", 404, "application/json; charset=utf-8"],
    ["POST", "/stats", 405, "application/json; charset=utf-8"],
  ];
  for (const [method, path, status, type] of cases) {
    const response = await http.fetch(method, path);
    equal([response.status, response.headers.get("content-type")], [status, type]);
    equal(response.headers.get("x-nsq-content-type"), "nsq; version=1.0");
    await response.text();
  }
  const ping = await http.fetch("GET", "/ping");
  equal(ping.headers.get("x-nsq-content-type"), null);
  equal(await ping.text(), "OK");
});

http("unknown paths and wrong methods have their answers", async (http) => {
  equal(await http.ask("GET", "/nothing"), refused(404, "NOT_FOUND"));
  equal(await http.post("/create_topic?topic=t"), refused(404, "NOT_FOUND"));
  equal(await http.post("/stats"), refused(405, "METHOD_NOT_ALLOWED"));
  equal(await http.ask("GET", "/pub?topic=t"), refused(405, "METHOD_NOT_ALLOWED"));
  equal((await http.fetch("PUT", "/mpub")).headers.get("allow"), "OPTIONS, POST");
  equal((await http.fetch("HEAD", "/ping")).status, 405);
  const slash = await http.fetch("GET", "/stats/?format=json");
  equal([slash.status, slash.headers.get("location")], [301, "/stats?format=json"]);
});

http("/pub refuses in the documented order", async (http) => {
  const noTopic = "/pub?topc=t";
  equal(await http.post(`${noTopic}&bad=%zz`, BIG), refused(413, "MSG_TOO_BIG"));
  equal(await http.post(`${noTopic}&bad=%zz`, ""), refused(400, "MSG_EMPTY"));
  equal(await http.post(`${noTopic}&bad=%zz`), refused(400, "MSG_EMPTY"));
  equal(await http.post(`${noTopic}&bad=%zz`, "x"), refused(400, "INVALID_REQUEST"));
  equal(await http.post(`${noTopic}&defer=x`, "x"), refused(400, "MISSING_ARG_TOPIC"));
  equal(await http.post("/pub?topic=t$&defer=x", "x"), refused(400, "INVALID_TOPIC"));
  equal(await http.post("/pub?topic=&defer=x", "x"), refused(400, "INVALID_TOPIC"));
  equal(http.world.broker.topics.size, 0);
  for (const defer of ["x", "", "-1", "3600001", "1.5", "1e3", "99999999999999999999"]) {
    equal(await http.post(`/pub?topic=t&defer=${defer}`, "x"), refused(400, "INVALID_DEFER"));
  }
  // The topic is made before the deferral is judged, as in nsqd.
  equal([...http.world.broker.topics.keys()], ["t"]);
  equal(http.world.broker.topics.get("t")?.messageCount, 0);
});

http("/pub takes a body of unknown length up to the limit", async (http) => {
  const stream = (bytes: number) => new Blob([new Uint8Array(bytes).fill(120)]).stream();
  const send = async (bytes: number): Promise<Answer> => {
    const response = await http.fetch("POST", "/pub?topic=t", { body: stream(bytes) });
    return [response.status, await response.text()];
  };
  equal(await send(1001), refused(413, "MSG_TOO_BIG"));
  equal(await send(1000), OK);
});

http("/pub answers once the message is on disk, and delivers it", async (http) => {
  const consumer = await http.world.client(encodeSub("t", "c"), "RDY 9\n");
  const release = http.world.disk.hold();
  let answered = false;
  const answer = http.post("/pub?topic=t", "body").finally(() => answered = true);
  await settle();
  equal([answered, consumer.take()], [false, ["OK"]]);
  release();
  equal(await answer, OK);
  await settle();
  equal(consumer.take(), ["body #1"]);
});

http("/pub?defer= defers, with both bounds allowed", async (http) => {
  const consumer = await http.world.client(encodeSub("t", "c"), "RDY 9\n");
  equal(await http.post("/pub?topic=t&defer=1000", "late"), OK);
  equal(await http.post("/pub?topic=t&defer=3600000", "never"), OK);
  equal(await http.post("/pub?topic=t&defer=0", "now"), OK);
  await settle();
  equal([consumer.take(), http.world.counts("t", "c")], [["OK", "now #1"], [0, 1, 2]]);
  await http.world.clock.run(1000);
  equal(consumer.take(), ["late #1"]);
});

http("/mpub takes lines, skips empty ones and keeps carriage returns", async (http) => {
  const consumer = await http.world.client(encodeSub("t", "c"), "RDY 9\n");
  equal(await http.post("/mpub?topic=t", "a\n\nb\r\nc\n"), OK);
  equal(await http.post("/mpub?topic=t&binary=false", "d"), OK);
  equal(await http.post("/mpub?topic=t&binary=0&defer=500", "e\nf"), OK);
  await settle();
  equal(consumer.take(), ["OK", "a #1", "b\r #1", "c #1", "d #1"]);
  await http.world.clock.run(500);
  equal(consumer.take().sort(), ["e #1", "f #1"]);
});

http("/mpub of nothing is OK and makes the topic", async (http) => {
  equal(await http.post("/mpub?topic=t", ""), OK);
  equal(await http.post("/mpub?topic=u", "\n\n"), OK);
  equal([...http.world.broker.topics.keys()], ["t", "u"]);
});

http("/mpub?binary takes the body of MPUB, whatever odd value the flag has", async (http) => {
  const body = encodeMpubBody(["a", "b\n"].map(utf8Bytes));
  for (const flag of ["binary=true", "binary=1", "binary", "binary=", "binary=non_normalized"]) {
    equal(await http.post(`/mpub?topic=t&${flag}`, body), OK);
  }
  equal(http.world.broker.topics.get("t")?.messageCount, 10);
});

http("/mpub refuses with the documented codes, and then publishes nothing", async (http) => {
  const binary = (...bodies: string[]) => encodeMpubBody(bodies.map(utf8Bytes));
  equal(await http.post("/mpub", "x".repeat(5001)), refused(413, "BODY_TOO_BIG"));
  equal(await http.post("/mpub?x=%zz", "x"), refused(400, "INVALID_REQUEST"));
  equal(await http.post("/mpub", "x"), refused(400, "MISSING_ARG_TOPIC"));
  equal(await http.post("/mpub?topic=$", "x"), refused(400, "INVALID_TOPIC"));
  equal(await http.post("/mpub?topic=t", `a\n${BIG}`), refused(413, "MSG_TOO_BIG"));
  equal(await http.post("/mpub?topic=t&binary=1", ""), refused(413, "BAD_BODY"));
  equal(await http.post("/mpub?topic=t&binary=1", new Uint8Array(4)), refused(413, "BAD_BODY"));
  equal(await http.post("/mpub?topic=t&binary=1", binary("a", "")), refused(413, "BAD_MESSAGE"));
  equal(await http.post("/mpub?topic=t&binary=1", binary("a", BIG)), refused(413, "BAD_MESSAGE"));
  equal(
    await http.post("/mpub?topic=t&binary=1", binary("a", "bb").subarray(0, 11)),
    refused(413, "BAD_MESSAGE"),
  );
  equal(http.world.broker.topics.get("t")?.messageCount, 0);
});

http("/mpub of more messages than a group holds is written piece by piece", async (http) => {
  equal(await http.post("/mpub?topic=t", "x\n".repeat(2500)), OK);
  equal(http.world.broker.topics.get("t")?.depth, 2500);
});

http(
  "publishing over HTTP shares the memory for publishes until they are on disk",
  async (http) => {
    const { world } = http;
    const release = world.disk.hold();
    const first = http.post("/pub?topic=t", "x".repeat(900));
    const second = http.post("/pub?topic=t", "x".repeat(900));
    await settle();
    equal(world.broker.stagedBytes, 1800);
    equal(await http.post("/pub?topic=t", "x".repeat(900)), refused(429, "TOO_MANY_BYTES"));
    release();
    equal([await first, await second, world.broker.stagedBytes], [OK, OK, 0]);
  },
  { broker: { publishBytesMax: 2500 } },
);

http("on a disk that is nearly full publishing answers 429, and all else goes on", async (http) => {
  const { world } = http;
  equal(await http.post("/topic/create?topic=t"), EMPTY);
  equal(await http.ask("GET", "/v1/health"), [200, healthText("ok", true, [])]);
  world.simDisk.setCapacity(1_000_000);
  await world.clock.run(1000);
  const since = new Date(world.clock.wallMs()).toISOString();
  const reason = { code: "disk_pressure", message: "the disk is nearly full", since };
  equal(await http.ask("GET", "/v1/health"), [200, healthText("degraded", false, [reason])]);
  for (const path of ["/pub?topic=t", "/mpub?topic=t", "/pub?topic=unknown"]) {
    const response = await http.fetch("POST", path, withBody("x"));
    equal([response.status, await response.text()], refused(429, "THROTTLED"));
    equal(response.headers.get("retry-after"), "1");
  }
  equal(await http.post("/pub?topic=t", BIG), refused(413, "MSG_TOO_BIG"));
  equal([world.broker.topics.has("unknown"), world.broker.stagedBytes], [false, 0]);
  for (
    const path of [
      "/topic/create?topic=u",
      "/channel/create?topic=u&channel=c",
      "/channel/empty?topic=u&channel=c",
      "/topic/pause?topic=u",
      "/topic/delete?topic=u",
    ]
  ) equal(await http.post(path), EMPTY);
  equal(await http.ask("GET", "/ping"), OK);
  const [, metrics] = await http.ask("GET", "/metrics");
  match(metrics, /\nsluice_disk_free_bytes \d+\n/);
  match(metrics, /\nsluice_disk_guard_closed 1\n/);
  match(metrics, /\nsluice_publishes_throttled_total 3\n/);
  world.simDisk.setCapacity(2 ** 30);
  await world.clock.run(1000);
  equal(await http.post("/pub?topic=t", "x"), OK);
  match((await http.ask("GET", "/metrics"))[1], /\nsluice_disk_guard_closed 0\n/);
}, { broker: { guard: { minFreeBytes: 2_000_000, logBytesMax: 0 } } });

http(
  "a publish that waits while the disk is found full answers 429, one that was taken waits",
  async (http) => {
    const { world } = http;
    equal(await http.post("/topic/create?topic=t"), EMPTY);
    world.simDisk.setCapacity(0);
    const body = "x".repeat(1000);
    const answers = Array.from({ length: 40 }, () => http.post("/pub?topic=t", body));
    let answered = 0;
    for (const answer of answers) void answer.then(() => answered++);
    await settle();
    ok(answered > 0 && answered < 40);
    equal(await http.post("/mpub?topic=t", "x"), refused(429, "THROTTLED"));
    const throttled = answered;
    await world.clock.run(3000);
    equal(answered, throttled);
    equal(await http.ask("GET", "/ping"), OK);
    world.simDisk.setCapacity(2 ** 30);
    await world.clock.run(1000);
    const results = await Promise.all(answers);
    const taken = results.filter(([status]) => status === 200).length;
    equal(taken, 40 - throttled);
    equal(results.slice(taken), results.slice(taken).map(() => refused(429, "THROTTLED")));
    equal(world.broker.topics.get("t")?.depth, taken);
  },
  {
    // Zeros ahead of the log would take the whole group.
    storage: { logFileBytes: 4096 },
    broker: { guard: { minFreeBytes: 0, logBytesMax: 0 } },
  },
);

http("a body that does not arrive in time is given up", async (http) => {
  const body = new ReadableStream<Uint8Array>({
    start: (controller) => controller.enqueue(utf8Bytes("half")),
  });
  const answer = http.fetch("POST", "/pub?topic=t", { body });
  await http.world.clock.run(60_000);
  const response = await answer;
  equal([response.status, await response.text()], refused(408, "BODY_INCOMPLETE"));
});

http("a broker that stops answers 503 EXITING", async (http) => {
  http.world.broker.exiting = true;
  equal(await http.post("/pub?topic=t", "x"), refused(503, "EXITING"));
  equal(await http.post("/mpub?topic=t", "x"), refused(503, "EXITING"));
  equal(await http.post("/topic/create?topic=t"), refused(503, "EXITING"));
});

http("a failed log answers 503 and makes /ping say why", async (http) => {
  equal(await http.ask("GET", "/ping"), OK);
  http.world.disk.failSyncs();
  equal(await http.post("/pub?topic=t", "x"), refused(503, "STORAGE_FAULT"));
  equal(await http.ask("GET", "/ping"), [500, "NOK - the disk is broken"]);
  equal(await http.post("/pub?topic=t", "x"), refused(503, "STORAGE_FAULT"));
  equal(await http.post("/topic/create?topic=u"), refused(503, "STORAGE_FAULT"));
  match(await http.stats(), /^{"version":"1\.3\.0[^"]*","health":"NOK - the disk is broken",/);
});

http("too many topics or channels answer 429", async (http) => {
  equal(await http.post("/topic/create?topic=t"), EMPTY);
  equal(await http.post("/topic/create?topic=u"), refused(429, "TOO_MANY_TOPICS"));
  equal(await http.post("/pub?topic=u", "x"), refused(429, "TOO_MANY_TOPICS"));
  equal(await http.post("/channel/create?topic=t&channel=c"), EMPTY);
  equal(await http.post("/channel/create?topic=t&channel=d"), refused(429, "TOO_MANY_CHANNELS"));
}, { broker: { topicsMax: 1, channelsPerTopicMax: 1 } });

http("topics are created, paused, emptied and deleted", async (http) => {
  equal(await http.post("/topic/create"), refused(400, "MISSING_ARG_TOPIC"));
  equal(await http.post("/topic/create?topic=$"), refused(400, "INVALID_TOPIC"));
  equal(await http.post("/topic/create?topic=%zz"), refused(400, "INVALID_REQUEST"));
  equal(await http.post("/topic/create?topic=t"), EMPTY);
  equal(await http.post("/topic/create?topic=t"), EMPTY);
  for (const action of ["delete", "empty", "pause", "unpause"]) {
    equal(await http.post(`/topic/${action}`), refused(400, "MISSING_ARG_TOPIC"));
    equal(
      await http.post(`/topic/${action}?topic=$`),
      action === "empty" ? refused(400, "INVALID_TOPIC") : refused(404, "TOPIC_NOT_FOUND"),
    );
    equal(await http.post(`/topic/${action}?topic=u`), refused(404, "TOPIC_NOT_FOUND"));
  }
  equal(await http.post("/topic/pause?topic=t"), EMPTY);
  equal(http.world.broker.topics.get("t")?.state.paused, true);
  equal(await http.post("/topic/unpause?topic=t"), EMPTY);
  equal(http.world.broker.topics.get("t")?.state.paused, false);
  await http.post("/pub?topic=t", "x");
  equal(await http.post("/topic/empty?topic=t"), EMPTY);
  equal(http.world.broker.topics.get("t")?.depth, 0);
  equal(await http.post("/topic/delete?topic=t"), EMPTY);
  equal(http.world.broker.topics.size, 0);
});

http("channels are created, paused, emptied and deleted", async (http) => {
  for (const action of ["create", "delete", "empty", "pause", "unpause"]) {
    const path = `/channel/${action}`;
    equal(await http.post(path), refused(400, "MISSING_ARG_TOPIC"));
    equal(await http.post(`${path}?topic=$`), refused(400, "INVALID_ARG_TOPIC"));
    equal(await http.post(`${path}?topic=t`), refused(400, "MISSING_ARG_CHANNEL"));
    equal(await http.post(`${path}?topic=t&channel=$`), refused(400, "INVALID_ARG_CHANNEL"));
    equal(await http.post(`${path}?topic=t&channel=c`), refused(404, "TOPIC_NOT_FOUND"));
  }
  await http.post("/topic/create?topic=t");
  for (const action of ["delete", "empty", "pause", "unpause"]) {
    equal(
      await http.post(`/channel/${action}?topic=t&channel=c`),
      refused(404, "CHANNEL_NOT_FOUND"),
    );
  }
  equal(await http.post("/channel/create?topic=t&channel=c"), EMPTY);
  await http.post("/pub?topic=t", "x");
  equal(await http.post("/channel/pause?topic=t&channel=c"), EMPTY);
  match(await http.stats(), /"client_count":0,"clients":\[\],"paused":true,/);
  equal(await http.post("/channel/unpause?topic=t&channel=c"), EMPTY);
  equal(http.world.counts("t", "c"), [1, 0, 0]);
  equal(await http.post("/channel/empty?topic=t&channel=c"), EMPTY);
  equal(http.world.counts("t", "c"), [0, 0, 0]);
  equal(await http.post("/channel/delete?topic=t&channel=c"), EMPTY);
  equal(http.world.broker.topics.get("t")?.channels.size, 0);
});

http("/stats of an idle broker starts with the text that nsqd's tests compare", async (http) => {
  const [, text] = await http.ask("GET", "/stats?format=json");
  match(
    text,
    /^{"version":"1\.3\.0[^"]*","health":"OK","start_time":1700000000,"topics":\[\],"memory":{"heap_objects":0,"heap_idle_bytes":7},"producers":null}$/,
  );
});

http("/stats has all keys of topics, channels and clients in order", async (http) => {
  const { world } = http;
  const identify = utf8Bytes('{"client_id":"me","hostname":"h","user_agent":"ua/1"}');
  const consumer = await world.client(
    sized("IDENTIFY\n", identify),
    encodeSub("t", "c"),
    "RDY 5\n",
    pub("t", "ab"),
    pub("t", "cd"),
    pub("u", "e"),
  );
  const [first] = consumer.ids;
  await consumer.send(`FIN ${first}\n`);
  const client = '{"client_id":"me","hostname":"h","version":"V2","remote_address":' +
    `"${consumer.connection.localAddress}","state":3,"ready_count":5,"in_flight_count":1,` +
    '"message_count":2,"finish_count":1,"requeue_count":0,"connect_ts":1700000000,' +
    '"sample_rate":0,"deflate":false,"snappy":false,"user_agent":"ua/1","topology_zone":"",' +
    '"topology_region":"","pub_counts":[{"topic":"t","count":2},{"topic":"u","count":1}],' +
    '"tls":false,"tls_cipher_suite":"","tls_version":"","tls_negotiated_protocol":"",' +
    '"tls_negotiated_protocol_is_mutual":false}';
  const latency = '"e2e_processing_latency":{"count":0,"percentiles":null}';
  const channel = (clients: string) =>
    '{"channel_name":"c","depth":0,"backend_depth":0,"in_flight_count":1,"deferred_count":0,' +
    '"message_count":2,"requeue_count":0,"timeout_count":0,"client_count":1,' +
    `"clients":${clients},"paused":false,${latency}}`;
  const topics = (clients: string) =>
    `[{"topic_name":"t","channels":[${channel(clients)}],"depth":0,"backend_depth":0,` +
    `"message_count":2,"message_bytes":4,"paused":false,${latency}},` +
    '{"topic_name":"u","channels":[],"depth":1,"backend_depth":1,"message_count":1,' +
    `"message_bytes":1,"paused":false,${latency}}]`;
  const rest = (text: string) => text.slice(text.indexOf('"topics":'));
  equal(
    rest(await http.stats()),
    `"topics":${topics(`[${client}]`)},"producers":[${client}]}`,
  );
  equal(
    rest(await http.stats("&include_clients=false")),
    `"topics":${topics("null")},"producers":null}`,
  );
});

http("/stats filters by topic and channel", async (http) => {
  for (const [topic, channel] of [["t", "c"], ["t", "d"], ["u", "c"]]) {
    await http.post(`/topic/create?topic=${topic}`);
    await http.post(`/channel/create?topic=${topic}&channel=${channel}`);
  }
  const names = async (query: string) => {
    const text = await http.stats(query);
    const [, found = ""] = /"topics":(.*),"producers"/.exec(text) ?? [];
    return found.replaceAll(/"(?:topic|channel)_name":"(\w)"|./g, "$1");
  };
  equal(await names(""), "tcduc");
  equal(await names("&topic=t"), "tcd");
  equal(await names("&channel=c"), "tcuc");
  equal(await names("&topic=t&channel=d"), "td");
  match(await http.stats("&topic=nope"), /"topics":null,/);
  match(await http.stats("&channel=nope"), /"topics":\[\],/);
  equal(await http.ask("GET", "/stats?format=%zz"), refused(400, "INVALID_REQUEST"));
});

http("/stats without a format is text for people", async (http) => {
  const client = await http.world.client(encodeSub("t", "c"), pub("t", "x"));
  await http.post("/topic/pause?topic=t");
  const [status, text] = await http.ask("GET", "/stats");
  equal(status, 200);
  match(text, /^sluice-broker v1\.3\.0.*\nstart_time 2023-11-14T22:13:20Z\nuptime /);
  match(text, /\nHealth: OK\n\nMemory:\n {3}heap_objects {13}\t0\n/);
  match(text, /\nTopics:\n\*P \[t {14}\] depth: 0 +be-depth: 0 +msgs: 1 /);
  match(text, /\n {6}\[c {24}\] depth: 1 +be-depth: 1 +inflt: 0 +def: 0 +re-q: 0 +timeout: 0 /);
  match(text, /\nProducers:\n {3}\[V2 127\.0\.0\.1:\d+ +\] msgs: 1 /);
  client.close();
  await settle();
  match((await http.ask("GET", "/stats?include_mem=0"))[1], /\nProducers: None\n$/);
});

http("/info has the documented keys, with durations in nanoseconds", async (http) => {
  const [status, text] = await http.ask("GET", "/info");
  equal(status, 200);
  const { version, ...rest } = JSON.parse(text);
  match(version, /^1\.3\.0/);
  equal(
    JSON.stringify(rest),
    '{"broadcast_address":"broadcast","hostname":"host","http_port":4151,"tcp_port":4150,' +
      '"start_time":1700000000,"max_heartbeat_interval":60000000000,' +
      '"max_output_buffer_size":65536,"max_output_buffer_timeout":30000000000,' +
      '"max_deflate_level":6,"topology_zone":"z","topology_region":"r"}',
  );
});

http("/config tells the value of a setting and takes a new one", async (http) => {
  equal(await http.ask("GET", "/config/count"), [200, "3"]);
  equal(await http.ask("GET", "/config/name"), [200, "host"]);
  equal(await http.ask("GET", "/config/nope"), refused(400, "INVALID_OPTION"));
  equal(await http.ask("PUT", "/config/count", "4"), [200, "4"]);
  equal(await http.ask("GET", "/config/count"), [200, "4"]);
  const types = ["count", "name"].map(async (name) =>
    (await http.fetch("GET", `/config/${name}`)).headers.get("content-type")
  );
  equal(await Promise.all(types), ["application/json; charset=utf-8", "text/plain; charset=utf-8"]);
});

http("PUT /config refuses what is no option, no value, empty or too long", async (http) => {
  equal(await http.ask("PUT", "/config/name", "1"), refused(400, "INVALID_OPTION"));
  equal(await http.ask("PUT", "/config/count", "bad"), refused(400, "INVALID_VALUE"));
  for (const body of ["", BIG]) {
    for (const name of ["count", "nope"]) {
      equal(await http.ask("PUT", `/config/${name}`, body), refused(413, "INVALID_VALUE"));
    }
  }
  equal(await http.ask("POST", "/config/count"), refused(405, "METHOD_NOT_ALLOWED"));
  equal(await http.ask("GET", "/config/count"), [200, "3"]);
});

http("PUT /config gives a value that does not arrive whole up after a minute", async (http) => {
  const body = new ReadableStream<Uint8Array>({
    start: (stream) => stream.enqueue(utf8Bytes("4")),
  });
  const answer = http.fetch("PUT", "/config/count", { body });
  await http.world.clock.run(60_000);
  const response = await answer;
  equal([response.status, await response.text()], refused(408, "BODY_INCOMPLETE"));
  equal(await http.ask("GET", "/config/count"), [200, "3"]);
});

http("/stats has no percentiles unless some are asked for", async (http) => {
  const consumer = await http.world.client(encodeSub("t", "c"), "RDY 1\n", pub("t", "ab"));
  await http.world.clock.run(80);
  await consumer.send(`FIN ${consumer.ids[0] ?? ""}\n`);
  equal((await http.stats()).match(/"e2e_processing_latency":\{[^}]*\}/g), [
    '"e2e_processing_latency":{"count":0,"percentiles":null}',
    '"e2e_processing_latency":{"count":0,"percentiles":null}',
  ]);
});

http(
  "/stats has the percentiles from publish to finish, by channel and added up by topic",
  async (http) => {
    const { clock } = http.world;
    equal(await http.post("/topic/create?topic=bare"), EMPTY);
    const one = await http.world.client(encodeSub("t", "a"), "RDY 1\n");
    const two = await http.world.client(encodeSub("t", "b"), "RDY 2\n", pub("t", "x"));
    await clock.run(40);
    await one.send(`FIN ${one.ids[0] ?? ""}\n`);
    await two.send(pub("t", "y"));
    await clock.run(20);
    // The first attempt does not count: from the publish to the finish.
    await one.send(`REQ ${one.ids[1] ?? ""} 0\n`);
    await clock.run(10);
    await one.send(`FIN ${one.ids[2] ?? ""}\n`);
    await two.send(`FIN ${two.ids[0] ?? ""}\n`);
    const told = (count: number, ...values: readonly number[]) => ({
      count,
      percentiles: [{ quantile: 0.99, value: values[0] }, { quantile: 0.5, value: values[1] }],
    });
    const [bare, topic] = JSON.parse(await http.stats()).topics;
    const ms = 1_000_000;
    equal(bare.e2e_processing_latency, { count: 0, percentiles: null });
    equal(topic.channels[0].e2e_processing_latency, told(2, 40 * ms, 30 * ms));
    equal(topic.channels[1].e2e_processing_latency, told(1, 70.5 * ms, 70.5 * ms));
    equal(topic.e2e_processing_latency, told(3, 70.5 * ms, 40 * ms));
    const text = (await http.ask("GET", "/stats"))[1];
    match(text, /\[t {14}\] .* e2e%: 70\.5ms, 40\.0ms\n/);
    await clock.run(600_000);
    match(await http.stats(), /"count":0,"percentiles":\[\{"quantile":0\.99,"value":0\}/);
  },
  { broker: { latency: { quantiles: [0.99, 0.5], windowMs: 600_000 } } },
);

http("/metrics tells what the broker counts", async (http) => {
  const consumer = await http.world.client(encodeSub("t", "c"), "RDY 1\n", pub("t", "ab"));
  equal(await http.post("/pub?topic=t", "x"), OK);
  const response = await http.fetch("GET", "/metrics");
  const text = await response.text();
  equal(response.status, 200);
  const value = (name: string) =>
    text.split("\n").find((line) => line.startsWith(`${name} `))?.split(" ")[1];
  equal(value("sluice_messages_published_total"), "2");
  equal(value("sluice_connections"), "1");
  equal(value("sluice_log_failed"), "0");
  equal(value('sluice_channel_depth{topic="t",channel="c"}'), "1");
  equal(value('sluice_channel_in_flight{topic="t",channel="c"}'), "1");
  equal(value('sluice_channel_consumers{topic="t",channel="c"}'), "1");
  ok(Number(value("sluice_log_groups_total")) >= 2);
  equal(consumer.state, "open");
});
