/** Who may use which route, asked without a socket. */
import { deepStrictEqual as equal, match, ok } from "node:assert/strict";
import {
  AuthorizationUnavailable,
  Authorizer,
  type Credentials,
  Grants,
  Pattern,
  type Scope,
  SCOPES,
} from "@sluice/shared/authorization";
import { nsqHttp } from "@sluice/shared/http";
import { MetricsRegistry } from "@sluice/shared/telemetry";
import { CACHE_MAX, HttpAccess } from "@sluice/shared/server";
import { PROBE_PATH } from "./health_http.ts";
import { brokerHttp, brokerRoutes, type HttpOptions } from "./http.ts";
import { ROUTE_RULES } from "./route_rules.ts";
import { World } from "./world_test.ts";

const LOCAL = "127.0.0.1:50000";
const REMOTE = "192.0.2.7:50000";

/** A bearer token is `scope,scope:topic:channel`, in globs; `away` makes the source fail. */
class TokenSource {
  takesCertificates = false;
  readonly asked: Credentials[] = [];
  validMs = 60_000;

  authorize(credentials: Credentials) {
    this.asked.push(credentials);
    const { commonName, isCertificateVerified } = credentials;
    const token = credentials.secret === null && isCertificateVerified
      ? commonName
      : new TextDecoder().decode(credentials.secret?.reveal());
    if (token === "away") return Promise.reject(new AuthorizationUnavailable("it is away"));
    const [scopes = "", topic, channel] = token.split("~");
    if (topic === undefined || channel === undefined) return Promise.resolve(null);
    const grants = new Grants(`id-${scopes}`, "", [{
      scopes: scopes.split("+") as Scope[],
      topics: [Pattern.glob(topic.replaceAll("/", "*"))],
      channels: [Pattern.glob(channel.replaceAll("/", "*"))],
    }]);
    return Promise.resolve({ grants, validMs: this.validMs });
  }
}

interface Asked {
  readonly token?: string;
  readonly certificate?: string;
  readonly from?: string;
  readonly body?: string;
  readonly headers?: Record<string, string>;
}

class Stage {
  readonly source = new TokenSource();
  readonly authorizer: Authorizer;
  readonly #handler: ReturnType<typeof brokerHttp>;

  constructor(
    readonly world: World,
    readonly lines: readonly string[],
    sources: "none" | "tokens",
    guardsApi: boolean,
  ) {
    this.authorizer = new Authorizer(sources === "none" ? [] : [this.source]);
    this.#handler = brokerHttp(
      world.broker,
      world.server.sessions,
      new MetricsRegistry(),
      { ...OPTIONS, authorization: { authorizer: this.authorizer, guardsApi } },
    );
  }

  async fetch(method: string, path: string, asked: Asked = {}): Promise<Response> {
    const { token, certificate, from = REMOTE, body = "", headers = {} } = asked;
    const request = new Request(`http://127.0.0.1:4151${path}`, {
      method,
      ...(method === "GET" ? {} : { body }),
      headers: {
        ...headers,
        ...(token === undefined ? {} : { Authorization: `Bearer ${token}` }),
      },
    });
    return await this.#handler(request, from, certificate);
  }

  /** Status, and the code if there is one. */
  async ask(method: string, path: string, asked?: Asked): Promise<string> {
    const response = await this.fetch(method, path, asked);
    const text = await response.text();
    const code = /^\{"message":"(\w+)"\}$/.exec(text)?.[1];
    return code === undefined ? `${response.status}` : `${response.status} ${code}`;
  }
}

const OPTIONS: HttpOptions = {
  hostname: "host",
  broadcastAddress: "broadcast",
  broadcastTcpPort: () => 4150,
  broadcastHttpPort: () => 4151,
  startWallMs: 0,
  maxHeartbeatIntervalMs: 60_000,
  maxOutputBufferBytes: 65_536,
  maxOutputBufferTimeoutMs: 30_000,
  topologyZone: "",
  topologyRegion: "",
  config: { get: () => ({ body: "1", json: true }), change: () => null },
  memory: () => ({}),
  messageBytesMax: 1000,
  bodyBytesMax: 5000,
  deferMsMax: 3_600_000,
  maxDeflateLevel: 6,
  bodyTimeoutMs: 60_000,
};

function stage(
  promise: string,
  test: (stage: Stage) => Promise<void>,
  sources: "none" | "tokens" = "tokens",
  guardsApi = true,
): void {
  const lines: string[] = [];
  Deno.test(promise, () =>
    World.use({ log: (line) => lines.push(line) }, async (world) => {
      await test(new Stage(world, lines, sources, guardsApi));
      await world.broker.scrubber.stop();
    }));
}

/** A request for a route that has what it needs to be carried out. */
function requestFor(name: string): readonly [method: string, path: string, asked: Asked] {
  const [method = "", pattern = ""] = name.split(" ");
  const path = pattern.replace(":topic", "t").replace(":channel", "c").replace(/:\w+/, "x");
  let body = method === "PUT" ? '{"ack_mode":null}' : "a";
  if (path === "/v1/drain") body = '{"enabled":false}';
  if (path === "/v1/log-level") body = '{"level":"info"}';
  if (path.endsWith("/move")) body = '{"to_topic":"other"}';
  if (path.startsWith("/v1/manage/")) {
    const isOfTopic = path.startsWith("/v1/manage/topics/");
    body = isOfTopic ? '{"topic":"m"}' : '{"topic":"t","channel":"m"}';
    return [method, path.replace("/x", "/create"), method === "GET" ? {} : { body }];
  }
  return [method, `${path}${path.includes("?") ? "&" : "?"}topic=t&channel=c`, { body }];
}

stage("a verified certificate that a source names needs no token", async (stage) => {
  const asked = { body: "a", certificate: "publish~orders~/" };
  equal(await stage.ask("POST", "/pub?topic=orders", asked), "401 AUTH_REQUIRED");
  equal(stage.source.asked, [], "no source takes certificates");
  stage.source.takesCertificates = true;
  equal(await stage.ask("POST", "/pub?topic=orders", asked), "200");
  equal(await stage.ask("POST", "/mpub?topic=orders", asked), "200");
  equal(stage.source.asked.length, 1);
  equal(await stage.ask("POST", "/pub?topic=other", asked), "403 FORBIDDEN");
  equal(await stage.ask("POST", "/topic/create?topic=orders", asked), "403 FORBIDDEN");
  const unknown = { body: "a", certificate: "nobody" };
  equal(await stage.ask("POST", "/pub?topic=orders", unknown), "401 AUTH_REQUIRED");
  equal(await stage.ask("POST", "/pub?topic=orders", { body: "a" }), "401 AUTH_REQUIRED");
});

stage("every route has a rule, and every rule a route", async ({ world }) => {
  const routes = brokerRoutes(
    world.broker,
    world.server.sessions,
    new MetricsRegistry(),
    OPTIONS,
  ).map(({ method, path }) => `${method} ${path}`);
  const missing = routes.filter((name) => !Object.hasOwn(ROUTE_RULES, name));
  equal(missing, [], "declare who may use a new route in ROUTE_RULES");
  // A rule of its own for what a route does only when it is asked to.
  const rules = Object.keys(ROUTE_RULES).filter((name) => name !== `GET ${PROBE_PATH}`);
  equal(rules.filter((name) => !routes.includes(name)), []);
  await Promise.resolve();
});

stage(
  "no token 401, unknown token 401, wrong scope 403, right scope 200, for every route",
  async (stage) => {
    const { world } = stage;
    const names = Object.keys(ROUTE_RULES).filter((name) => name !== "PUT /config/:opt");
    for (const name of names) {
      const rule = ROUTE_RULES[name];
      ok(rule !== undefined);
      const [method, path, asked] = requestFor(name);
      if (rule === "open") {
        equal(await stage.ask(method, path), "200", name);
        continue;
      }
      if (!name.endsWith("/create")) world.broker.ensureChannel(world.broker.ensureTopic("t"), "c");
      const others = SCOPES.filter((scope) => scope !== rule.scope).join("+");
      const rows: readonly (readonly [string | undefined, string])[] = [
        [undefined, "401 AUTH_REQUIRED"],
        ["nobody", "401 INVALID_TOKEN"],
        ["away", "503 AUTH_FAILED"],
        [`${others}~/~/`, "403 FORBIDDEN"],
        [`${rule.scope}~other~/`, "403 FORBIDDEN"],
        ...(rule.on === "node" ? [[`${rule.scope}~t~/`, "403 FORBIDDEN"] as const] : []),
        ...(rule.on === "channel" ? [[`${rule.scope}~t~d`, "403 FORBIDDEN"] as const] : []),
        ...(rule.on === "topic" ? [[`${rule.scope}~t~c`, "403 FORBIDDEN"] as const] : []),
      ];
      for (const [token, expected] of rows) {
        const withToken = token === undefined ? asked : { ...asked, token };
        equal(await stage.ask(method, path, withToken), expected, `${name} with ${token}`);
      }
      equal(
        await stage.ask(method, path, { ...asked, token: `${rule.scope}~/~/` }),
        name === "POST /v1/storage/scrub"
          ? "202"
          : name.endsWith("/:id")
          ? "400 INVALID_ID"
          : "200",
        name,
      );
    }
  },
);

stage("a route that nobody declared is refused once there are grants", async (stage) => {
  const { world } = stage;
  const access = new HttpAccess(
    { authorizer: stage.authorizer, guardsApi: true },
    world.broker,
    ROUTE_RULES,
  );
  const route = access.guarded({
    method: "POST",
    path: "/v1/new",
    handle: () => new Response("done"),
  });
  const answer = await route.handle({
    request: new Request("http://host/v1/new", {
      headers: { Authorization: `Bearer ${SCOPES.join("+")}~/~/` },
    }),
    certificateName: "",
    remoteAddress: REMOTE,
    query: new Map(),
    pathParameter: () => "",
  });
  equal(answer.status, 403);
});

stage("the names in a path count before those in the query", async (stage) => {
  const access = new HttpAccess(
    { authorizer: stage.authorizer, guardsApi: true },
    stage.world.broker,
    { "POST /v1/topics/:topic/publish": { scope: "publish", on: "topic" } },
  );
  const app = nsqHttp({
    logger: stage.world.broker.logger,
    routes: [access.guarded({
      method: "POST",
      path: "/v1/topics/:topic/publish",
      handle: () => new Response("done"),
    })],
  });
  const statusOf = async (topic: string) => {
    const request = new Request(`http://host/v1/topics/${topic}/publish?topic=mine`, {
      method: "POST",
      headers: { Authorization: "Bearer publish~mine~/" },
    });
    return (await app.fetch(request, { remoteAddress: REMOTE })).status;
  };
  equal([await statusOf("mine"), await statusOf("m%69ne")], [200, 200]);
  equal([await statusOf("other"), await statusOf("mine%20")], [403, 403]);
});

stage("a refusal says how to ask, and takes no part of the body", async (stage) => {
  const response = await stage.fetch("POST", "/pub?topic=t", { body: "a" });
  equal([response.status, response.headers.get("www-authenticate")], [401, "Bearer"]);
  equal(response.headers.get("x-nsq-content-type"), "nsq; version=1.0");
  await response.body?.cancel();
  for (
    const value of ["Basic eDp5", "Bearer", "Bearer ", "bearer\ta", "Bearer a b", "publish~/~/"]
  ) {
    const asked = { headers: { Authorization: value } };
    equal(await stage.ask("POST", "/pub?topic=t", asked), "401 AUTH_REQUIRED", value);
  }
  equal(
    await stage.ask("POST", "/pub?topic=t", {
      body: "a",
      headers: { Authorization: "BEARER  publish~/~/ " },
    }),
    "200",
  );
  equal([stage.world.broker.topics.size, stage.world.broker.stagedBytes], [1, 0]);
});

stage("a query cannot hide what it is about", async (stage) => {
  const { broker } = stage.world;
  broker.ensureChannel(broker.ensureTopic("secret"), "c");
  const token = "admin~mine~/";
  for (
    const query of [
      "",
      "?",
      "?topic=secret",
      "?topic=secret&topic=mine",
      "?topic=%73ecret",
      "?topic=mine%zz",
      "?topic=mine;",
      "?Topic=mine",
      "?topic=sec$ret",
    ]
  ) {
    const answer = await stage.ask("POST", `/topic/delete${query}`, { token });
    match(answer, /^(?:403 FORBIDDEN|400 \w+)$/, query);
  }
  equal(
    await stage.ask("POST", "/topic/delete?topic=mine&topic=secret", { token }),
    "404 TOPIC_NOT_FOUND",
  );
  equal([...broker.topics.keys()], ["secret"]);
});

stage(
  "without grants NSQ's routes are open, and changes by /v1 are for this machine",
  async (stage) => {
    equal(await stage.ask("POST", "/pub?topic=t", { body: "a" }), "200");
    equal(await stage.ask("POST", "/topic/delete?topic=t"), "200");
    equal(await stage.ask("GET", "/v1/storage/scrub"), "200");
    const path = "/v1/storage/scrub";
    equal(await stage.ask("POST", path), "403 FORBIDDEN");
    for (const from of ["10.0.0.1:1", "[::2]:1", "127.0.0.1.evil:1", ":1", "", "128.0.0.1:1"]) {
      equal(await stage.ask("POST", path, { from }), "403 FORBIDDEN", from);
    }
    // A page of any site can have a browser on this machine send this.
    const headers = { Origin: "http://evil.example" };
    equal(await stage.ask("POST", path, { from: LOCAL, headers }), "403 FORBIDDEN");
    for (const from of [LOCAL, "127.8.9.1:1", "[::1]:1", "[::ffff:127.0.0.1]:1"]) {
      match(await stage.ask("POST", path, { from }), /^20[02]$/, from);
    }
  },
  "none",
);

stage(
  "with the API left open only changes by /v1 need a token",
  async (stage) => {
    equal(await stage.ask("POST", "/pub?topic=t", { body: "a" }), "200");
    equal(await stage.ask("POST", "/topic/delete?topic=t"), "200");
    const path = "/v1/storage/scrub";
    equal(await stage.ask("POST", path, { from: LOCAL }), "401 AUTH_REQUIRED");
    equal(await stage.ask("POST", path, { token: "read~/~/" }), "403 FORBIDDEN");
    equal(await stage.ask("POST", path, { token: "admin~/~/" }), "202");
    equal(await stage.ask("GET", path), "200");
  },
  "tokens",
  false,
);

stage("a source is asked once while what it said is valid", async (stage) => {
  const { source, world } = stage;
  const publish = (from = REMOTE) =>
    stage.ask("POST", "/pub?topic=t", { body: "a", token: "publish~/~/", from });
  equal(await Promise.all([publish(), publish(), publish()]), ["200", "200", "200"]);
  equal(source.asked.length, 1);
  equal(source.asked[0]?.remoteIp, "192.0.2.7");
  await publish("192.0.2.8:1");
  equal(source.asked.length, 2, "the service may judge by address");
  world.clock.advance(60_000);
  equal([await publish(), source.asked.length], ["200", 3]);
  for (let round = 0; round < 3; round++) await stage.ask("GET", "/stats", { token: "nobody" });
  equal(source.asked.length, 6, "unknown tokens are not kept");
});

stage("tokens that are kept have a bound, and give their memory back", async (stage) => {
  for (let at = 0; at < CACHE_MAX + 10; at++) {
    await stage.ask("GET", "/info", { token: `read~/~${at}/` });
  }
  const { bytes } = new Grants("", "", [{
    scopes: ["read"],
    topics: [Pattern.glob("*")],
    channels: [Pattern.glob("1000*")],
  }]);
  ok(stage.authorizer.heldBytes > CACHE_MAX * 1000);
  ok(stage.authorizer.heldBytes <= CACHE_MAX * bytes, `${stage.authorizer.heldBytes}`);
});

stage("an admin action leaves a line with who did it, and no token", async (stage) => {
  const token = "admin~/~/";
  await stage.ask("POST", "/topic/create?topic=t", { token });
  await stage.ask("POST", "/channel/empty?topic=t&channel=c", { token });
  await stage.ask("POST", "/topic/delete?topic=t", { token: "read~/~/" });
  await stage.ask("GET", "/stats", { token: "read~/~/" });
  const said = (message: string) =>
    stage.lines.map((line) => JSON.parse(line)).filter((line) => line.message === message)
      .map(({ time: _time, level: _level, message: _message, ...fields }) => fields);
  const who = { component: "http", identity: "id-admin", client: REMOTE };
  equal(said("Admin action"), [
    { action: "POST /topic/create", topic: "t", channel: "", ...who, status: 200 },
    { action: "POST /channel/empty", topic: "t", channel: "c", ...who, status: 404 },
  ]);
  equal(said("Refused a request over HTTP"), [{
    component: "http",
    client: REMOTE,
    method: "POST",
    path: "/topic/delete",
    identity: "id-read",
    status: 403,
    code: "FORBIDDEN",
  }]);
  ok(!stage.lines.some((line) => line.includes("~/~/")));
});
