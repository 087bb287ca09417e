/** Routes of the gateway and who may use them, asked without a socket. */
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
import { settle } from "@sluice/shared/testing";
import { judgeHealth } from "./health.ts";
import { GATEWAY_ROUTE_RULES, gatewayRoutes, isPatient, startingHttp } from "./http.ts";
import { HttpPublisher } from "./http_publish.ts";
import { type Asked, HttpWorld, type HttpWorldOptions, LOCAL, refused } from "./http_world_test.ts";
import { AMBIGUOUS } from "./replayer.ts";
import { SpoolRefusal } from "./spool/mod.ts";

const REMOTE = "192.0.2.7:50000";

/** A bearer token is `scope+scope~topic`, in globs; `away` makes the source fail. */
class TokenSource {
  readonly takesCertificates = false;

  authorize({ secret }: Credentials) {
    const token = new TextDecoder().decode(secret?.reveal());
    if (token === "away") return Promise.reject(new AuthorizationUnavailable("it is away"));
    const [scopes = "", topic] = token.split("~");
    if (topic === undefined) return Promise.resolve(null);
    const grants = new Grants(`id-${scopes}`, "", [{
      scopes: scopes.split("+") as Scope[],
      topics: [Pattern.glob(topic.replaceAll("/", "*"))],
      channels: [Pattern.glob("*")],
    }]);
    return Promise.resolve({ grants, validMs: 60_000 });
  }
}

function tokens(guardsApi = true): HttpWorldOptions {
  return { authorization: { authorizer: new Authorizer([new TokenSource()]), guardsApi } };
}

function test(
  promise: string,
  run: (world: HttpWorld) => Promise<void>,
  options: HttpWorldOptions = {},
): void {
  Deno.test(promise, () => HttpWorld.use(options, run));
}

/** Puts messages in quarantine; resolves with their ids. */
async function quarantine(world: HttpWorld, ...texts: string[]): Promise<number[]> {
  return await quarantineFor(world, "E_BAD_MESSAGE too big", ...texts);
}

async function quarantineFor(
  world: HttpWorld,
  reason: string,
  ...texts: string[]
): Promise<number[]> {
  const spool = world.spool!;
  for (const [sequence, text] of texts.entries()) {
    await spool.append({
      topic: "t",
      isBatch: false,
      messageCount: 1,
      body: new TextEncoder().encode(text),
      dueWallMs: 0,
      producer: new Uint8Array(16),
      sequence,
    }, null);
  }
  const entries = await spool.take(100, 2 ** 20);
  await spool.assign(entries, "broker:4150");
  for (const entry of entries) await spool.quarantine(entry, reason);
  return entries.map(({ position }) => position);
}

test("every route has a rule, and every rule a route", (world) => {
  const publisher = new HttpPublisher(world.httpOptions, world.seams);
  const routes = gatewayRoutes(world.httpOptions, world.seams, publisher)
    .map(({ method, path }) => `${method} ${path}`);
  const missing = routes.filter((name) => !Object.hasOwn(GATEWAY_ROUTE_RULES, name));
  equal(missing, [], "declare who may use a new route in GATEWAY_ROUTE_RULES");
  equal(Object.keys(GATEWAY_ROUTE_RULES).filter((name) => !routes.includes(name)), []);
  return Promise.resolve();
});

test("what is administrative at a broker is not forwarded: it is 404, as is what nobody knows", async (world) => {
  for (
    const [method, path] of [
      ["POST", "/topic/create?topic=t"],
      ["POST", "/topic/delete?topic=t"],
      ["POST", "/topic/empty?topic=t"],
      ["POST", "/topic/pause?topic=t"],
      ["POST", "/channel/create?topic=t&channel=c"],
      ["POST", "/channel/delete?topic=t&channel=c"],
      ["GET", "/config/nsqlookupd_tcp_addresses"],
      ["PUT", "/config/log_level"],
      ["GET", "/v1/registry"],
      ["GET", "/v1/registry/head"],
      ["POST", "/v1/storage/scrub"],
      ["GET", "/debug/pprof/"],
      ["GET", "/nothing"],
      ["POST", "/pub/more?topic=t"],
      ["POST", "//pub?topic=t"],
      ["GET", "/"],
      ["GET", "/v1/quarantine/1/nothing"],
    ] as const
  ) {
    equal(await world.ask(method, path), [404, refused("NOT_FOUND")], `${method} ${path}`);
  }
  equal(world.brokers[0]!.seen, []);
});

test("/ping is OK whatever the state; /v1/health is 503 when nothing is taken", async (world) => {
  const state = (facts: Partial<Parameters<typeof judgeHealth>[0]>) =>
    world.health = judgeHealth({
      version: "1",
      draining: false,
      listed: 1,
      usable: 1,
      spool: null,
      spoolRefuses: null,
      lost: [],
      ...facts,
    });
  for (
    const [facts, status, word] of [
      [{}, 200, "ok"],
      [{ lost: ["a"] }, 200, "degraded"],
      [{ usable: 0 }, 503, "unavailable"],
      [{ draining: true }, 503, "unavailable"],
    ] as const
  ) {
    const health = state(facts);
    const [answered, text] = await world.ask("GET", "/v1/health");
    equal([answered, JSON.parse(text).status], [status, word]);
    equal(JSON.parse(text), JSON.parse(JSON.stringify(health)));
    equal(await world.ask("GET", "/ping"), [200, "OK"]);
  }
});

test("/info tells what nsqd's does, with the gateway's addresses", async (world) => {
  const [status, text] = await world.ask("GET", "/info");
  const { version, ...rest } = JSON.parse(text);
  equal([status, rest], [200, {
    broadcast_address: "broadcast",
    hostname: "host",
    http_port: 4151,
    tcp_port: 4150,
    start_time: 1_700_000_000,
  }]);
  match(version, /^1\.3\.0\+sluice/);
});

test("/stats as JSON has nsqd's keys, and what there is to say of brokers and publishes", async (world) => {
  await world.post("/pub?topic=t", "a");
  const [status, text] = await world.ask("GET", "/stats?format=json");
  const { health, start_time, topics, producers, gateway } = JSON.parse(text);
  equal([status, health, start_time, topics, producers], [200, "OK", 1_700_000_000, [], null]);
  equal(gateway.publishes.confirmed, 1);
  equal([gateway.brokers.length, gateway.brokers[0].id], [1, "broker:4150"]);
  world.brokers[0]!.down();
  await settle();
  const [, later] = await world.ask("GET", "/stats?format=json");
  match(JSON.parse(later).health, /^NOK - none of 1 brokers takes publishes/);
});

test("/stats as text names brokers and why one is not used", async (world) => {
  for (const path of ["/stats", "/stats?format=text"]) {
    const [status, text] = await world.ask("GET", path);
    equal(status, 200);
    match(text, /^sluice-gateway v1\.3\.0.*\nHealth: ok\n/);
    match(text, /\n {2}broker:4150 +usable outstanding: 0 confirmed: 0\n/);
  }
  world.brokers[0]!.down();
  await settle();
  const [, text] = await world.ask("GET", "/stats");
  match(text, /\nHealth: unavailable|^.*Health: unavailable/m);
  match(text, /\n {2}broker:4150 +not used .*closed the connection\)\n/);
  equal(await world.ask("GET", "/stats?format=xml"), [400, refused("INVALID_REQUEST")]);
});

test("/metrics is what the registry says", async (world) => {
  const response = await world.fetch("GET", "/metrics");
  match(response.headers.get("content-type") ?? "", /^text\/plain; version=0\.0\.4/);
  match(await response.text(), /^sluice_gateway_test 1$/m);
});

test("the quarantine is listed in pages, shown, given up and tried again", async (world) => {
  const ids = await quarantine(world, "a", "b", "c");
  const [status, text] = await world.ask("GET", "/v1/quarantine?limit=2");
  const page = JSON.parse(text);
  equal([status, page.next, page.entries.length], [200, ids[2], 2]);
  const { spooled, ...first } = page.entries[0];
  equal(first, {
    id: ids[0],
    topic: "t",
    messages: 1,
    bytes: 1,
    reason: "E_BAD_MESSAGE too big",
    broker: "broker:4150",
  });
  equal(Date.parse(spooled), world.clock.wallMs());
  const [, rest] = await world.ask("GET", `/v1/quarantine?from=${page.next}`);
  equal(
    [JSON.parse(rest).entries.map(({ id }: { id: number }) => id), JSON.parse(rest).next],
    [[ids[2]], null],
  );
  const body = await world.fetch("GET", `/v1/quarantine/${ids[1]}/body`);
  equal(body.headers.get("content-type"), "application/octet-stream");
  equal(await body.text(), "b");
  equal((await world.ask("DELETE", `/v1/quarantine/${ids[0]}`))[0], 200);
  equal((await world.ask("POST", `/v1/quarantine/${ids[1]}/retry`))[0], 200);
  const [, left] = await world.ask("GET", "/v1/quarantine");
  equal(JSON.parse(left).entries.map(({ id }: { id: number }) => id), [ids[2]]);
  equal([world.spool!.figures.count, world.spool!.figures.quarantined], [1, 1]);
}, { hasSpool: true });

test("tried again, what a broker may have is anybody's and has another number", async (world) => {
  const spool = world.spool!;
  const [id] = await quarantineFor(world, `${AMBIGUOUS}broker:4150 was away`, "a");
  equal((await world.ask("POST", `/v1/quarantine/${id}/retry`))[0], 200);
  equal([spool.figures.count, spool.figures.quarantined], [1, 0]);
  const [entry] = await spool.take(10, 2 ** 20);
  equal([entry?.broker, entry?.publish.body], [null, new TextEncoder().encode("a")]);
  ok(entry!.publish.producer.some((byte) => byte !== 0), "it has another producer id");
  spool.putBack([entry!]);
}, { hasSpool: true });

test("what is not in quarantine is 404, and what is no number is refused", async (world) => {
  const [id] = await quarantine(world, "a");
  await world.ask("DELETE", `/v1/quarantine/${id}`);
  for (const name of [id, 12345, "x", "-1", "1e3", "99999999999999999", "9".repeat(16)]) {
    for (
      const [method, path] of [
        ["GET", `/v1/quarantine/${name}/body`],
        ["POST", `/v1/quarantine/${name}/retry`],
        ["DELETE", `/v1/quarantine/${name}`],
      ] as const
    ) {
      equal(await world.ask(method, path), [404, refused("NOT_IN_QUARANTINE")], path);
    }
  }
  for (const query of ["limit=1001", "limit=x", "limit=-1", "from=x", "from=1.5", "from=%zz"]) {
    equal(await world.ask("GET", `/v1/quarantine?${query}`), [400, refused("INVALID_REQUEST")]);
  }
}, { hasSpool: true });

test("without a spool the quarantine is empty", async (world) => {
  equal(await world.ask("GET", "/v1/quarantine"), [200, '{"entries":[],"next":null}']);
  equal((await world.ask("GET", "/v1/quarantine/1/body"))[0], 404);
  equal((await world.ask("POST", "/v1/quarantine/1/retry"))[0], 404);
  equal((await world.ask("DELETE", "/v1/quarantine/1"))[0], 404);
});

test("what is damaged on the disk is listed without a topic and a time", async (world) => {
  const spool = world.spool!;
  const quarantined = spool.quarantined;
  const damaged = {
    id: 8,
    topic: "",
    bodyBytes: 0,
    messageCount: 1,
    reason: "damaged: the checksum is wrong",
    spooledWallMs: 0,
    broker: null,
    isDamaged: true,
  };
  spool.quarantined = () => Promise.resolve([damaged]);
  const [status, text] = await world.ask("GET", "/v1/quarantine");
  const [entry] = JSON.parse(text).entries;
  equal([status, entry.id, entry.topic, entry.spooled], [200, 8, "", null]);
  spool.quarantined = quarantined;
}, { hasSpool: true });

test("an ambiguous one stays in quarantine while the spool takes nothing anew", async (world) => {
  const [id] = await quarantineFor(world, `${AMBIGUOUS}broker:4150 was away`, "a");
  const { append } = world.spool!;
  for (const code of ["full", "stale", "failed"] as const) {
    world.spool!.append = () => Promise.reject(new SpoolRefusal(code, "not now"));
    equal(await world.ask("POST", `/v1/quarantine/${id}/retry`), [
      503,
      refused(`SPOOL_${code.toUpperCase()}`),
    ]);
  }
  world.spool!.append = append;
  equal(world.spool!.figures.quarantined, 1);
}, { hasSpool: true });

test("what cannot be done because the spool has failed is 503", async (world) => {
  const [id] = await quarantine(world, "a");
  world.disk.failNext({ operation: "sync", kind: "io" });
  const [status, text] = await world.ask("POST", `/v1/quarantine/${id}/retry`);
  equal([status, text], [503, refused("SPOOL_FAILED")]);
  equal(await world.ask("DELETE", `/v1/quarantine/${id}`), [503, refused("SPOOL_FAILED")]);
}, { hasSpool: true });

test(
  "without grants everybody may publish and read; the quarantine is for this machine, and no browser",
  async (world) => {
    const [id] = await quarantine(world, "a");
    for (const from of [REMOTE, LOCAL]) {
      equal((await world.ask("POST", "/pub?topic=t", { body: "a", from }))[0], 200);
      for (const path of ["/stats", "/info", "/metrics", "/v1/quarantine"]) {
        equal((await world.ask("GET", path, { from }))[0], 200, path);
      }
    }
    const origin = { headers: { Origin: "http://evil.example" } };
    for (const asked of [{ from: REMOTE }, { from: "[::2]:1" }, origin] as readonly Asked[]) {
      for (
        const [method, path] of [
          ["GET", `/v1/quarantine/${id}/body`],
          ["POST", `/v1/quarantine/${id}/retry`],
          ["DELETE", `/v1/quarantine/${id}`],
        ] as const
      ) {
        equal(await world.ask(method, path, asked), [403, refused("FORBIDDEN")], path);
      }
    }
    for (const from of [LOCAL, "[::1]:1", "127.9.9.9:1"]) {
      equal((await world.ask("GET", `/v1/quarantine/${id}/body`, { from }))[0], 200, from);
    }
  },
  { hasSpool: true },
);

test(
  "no token 401, unknown token 401, wrong scope 403, right scope 200, for every route",
  async (world) => {
    for (const [name, rule] of Object.entries(GATEWAY_ROUTE_RULES)) {
      const [method = "", pattern = ""] = name.split(" ");
      const ids = pattern.includes(":id") ? await quarantine(world, "a") : [0];
      const path = `${pattern.replace(":id", `${ids[0]}`)}?topic=t`;
      const asked = { from: REMOTE, ...(method === "POST" ? { body: "a" } : {}) };
      if (rule === "open") {
        equal((await world.ask(method, path, asked))[0], 200, name);
        continue;
      }
      const others = SCOPES.filter((scope) => scope !== rule.scope).join("+");
      const rows: readonly (readonly [token: string | null, status: number, code: string])[] = [
        [null, 401, "AUTH_REQUIRED"],
        ["nobody", 401, "INVALID_TOKEN"],
        ["away", 503, "AUTH_FAILED"],
        [`${others}~/`, 403, "FORBIDDEN"],
        [`${rule.scope}~${rule.on === "node" ? "t" : "other"}`, 403, "FORBIDDEN"],
      ];
      for (const [token, status, code] of rows) {
        const withToken = token === null ? asked : { ...asked, token };
        equal(
          await world.ask(method, path, withToken),
          [status, refused(code)],
          `${name} with ${token}`,
        );
      }
      equal((await world.ask(method, path, { ...asked, token: `${rule.scope}~/` }))[0], 200, name);
    }
  },
  { ...tokens(), hasSpool: true },
);

test("a token publishes to its topics, whatever is in the query", async (world) => {
  const ask = (query: string) =>
    world.ask("POST", `/mpub${query}`, { token: "publish~mine", body: "a\nb" });
  equal(await ask("?topic=mine"), [200, "OK"]);
  for (
    const query of [
      "",
      "?topic=other",
      "?topic=other&topic=mine",
      "?topic=%6fther",
      "?topic=mine;",
      "?Topic=mine",
      "?topic=mine%zz",
    ]
  ) {
    const [status] = await ask(query);
    ok(status === 403 || status === 400, `${query}: ${status}`);
  }
  equal([world.bodies("mine"), world.bodies("other")], [["a", "b"], []]);
}, tokens());

test(
  "with the API left open publishing and reading need no token, the quarantine does",
  async (world) => {
    const [id] = await quarantine(world, "a");
    equal(await world.post("/pub?topic=t", "a"), [200, "OK"]);
    equal((await world.ask("GET", "/v1/quarantine"))[0], 200);
    const path = `/v1/quarantine/${id}`;
    equal(await world.ask("DELETE", path), [401, refused("AUTH_REQUIRED")]);
    equal(await world.ask("DELETE", path, { token: "read~/" }), [403, refused("FORBIDDEN")]);
    equal((await world.ask("DELETE", path, { token: "admin~/" }))[0], 200);
  },
  { ...tokens(false), hasSpool: true },
);

test(
  "what is done to the quarantine leaves a line with who did it, and no token",
  async (world) => {
    const [id] = await quarantine(world, "a");
    await world.ask("DELETE", `/v1/quarantine/${id}`, { token: "admin~/", from: REMOTE });
    const line = world.lines.find((text) => text.includes("Admin action")) ?? "";
    match(line, /action="DELETE \/v1\/quarantine\/:id"/);
    match(line, / identity=id-admin client=192\.0\.2\.7:50000 status=200$/);
    ok(!world.lines.some((text) => text.includes("~/")));
  },
  { ...tokens(), hasSpool: true },
);

test("while the spool is read the process is alive, not ready, and asks for patience", async (world) => {
  const handler = startingHttp(world.seams.logger);
  const ask = async (method: string, path: string) => {
    const request = new Request(`http://host${path}`, { method });
    const response = await handler(request, LOCAL, "");
    return [response.status, response.headers.get("retry-after"), await response.text()] as const;
  };
  equal(await ask("GET", "/ping"), [200, null, "OK"]);
  const [status, , text] = await ask("GET", "/v1/health");
  equal([status, JSON.parse(text).reasons[0].code], [503, "starting"]);
  for (const [method, path] of [["POST", "/pub?topic=t"], ["GET", "/stats"]] as const) {
    equal(await ask(method, path), [503, "1", refused("STARTING")]);
  }
  equal(
    ["/pub?topic=t", "/stats", "/ping", "/v1/health", "/v1/health?x=1"].map((path) =>
      isPatient(new Request(`http://host${path}`))
    ),
    [true, true, false, false, false],
  );
});
