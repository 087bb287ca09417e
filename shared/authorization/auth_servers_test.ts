/** Asking NSQ's authorization services: the requests, failover, and services that are up to no good. */
import { deepStrictEqual as equal, match, ok, rejects } from "node:assert/strict";
import { type AskHttp, HttpAskError, type HttpQuestion } from "../runtime/mod.ts";
import { askHttp } from "../runtime/system.ts";
import { Logger, secret } from "../telemetry/mod.ts";
import { SeededRandom, settle, SimClock } from "../testing/mod.ts";
import { ASKS_MAX, AuthServers, authUrl, WAITING_MAX } from "./auth_servers.ts";
import { AuthorizationUnavailable, type Credentials } from "./authorizer.ts";

const GOOD = JSON.stringify({
  ttl: 60,
  identity: "joe",
  authorizations: [{ topic: "t", channels: [".*"], permissions: ["publish"] }],
});

function credentials(text = "open sesame&é/%~", more: Partial<Credentials> = {}): Credentials {
  return {
    secret: secret(new TextEncoder().encode(text)),
    remoteIp: "192.0.2.7",
    isTls: true,
    commonName: "test.local",
    isCertificateVerified: false,
    ...more,
  };
}

class Stage {
  readonly clock = new SimClock();
  readonly lines: string[] = [];
  readonly questions: HttpQuestion[] = [];

  servers(
    addresses: readonly string[],
    answer: (question: HttpQuestion) => string | number | Error | Promise<string>,
    method: "GET" | "POST" = "GET",
  ): AuthServers {
    const askHttp: AskHttp = async (question) => {
      this.questions.push(question);
      const said = await answer(question);
      if (said instanceof Error) throw said;
      const status = typeof said === "number" ? said : 200;
      return { status, body: new TextEncoder().encode(String(said)) };
    };
    return this.real(addresses, method, askHttp);
  }

  real(addresses: readonly string[], method: "GET" | "POST", ask: AskHttp): AuthServers {
    return new AuthServers({ addresses, method, connectTimeoutMs: 2_000, timeoutMs: 200 }, {
      askHttp: ask,
      clock: this.clock,
      random: new SeededRandom(1),
      logger: new Logger({ sink: (line) => this.lines.push(line), clock: this.clock }),
    });
  }
}

Deno.test("AuthServers asks with GET and the parameters in the query, as nsqd does", async () => {
  const stage = new Stage();
  const granted = await stage.servers(["a:1"], () => GOOD).authorize(credentials());
  equal([granted?.grants.identity, granted?.validMs], ["joe", 60_000]);
  equal(stage.questions, [{
    method: "GET",
    url: "http://a:1/auth?common_name=test.local&remote_ip=192.0.2.7" +
      "&secret=open+sesame%26%C3%A9%2F%25~&tls=true",
    headers: { Accept: "application/vnd.nsq; version=1.0" },
  }]);
  const raw = { secret: secret(new Uint8Array([0, 0xff, 0x61])), isTls: false, commonName: "" };
  await stage.servers(["http://a/x?y=1"], () => GOOD).authorize(credentials("", raw));
  equal(
    stage.questions[1]?.url,
    "http://a/x?y=1&common_name=&remote_ip=192.0.2.7&secret=%00%FFa&tls=false",
  );
});

Deno.test("AuthServers asks with POST and a JSON object of lists, as nsqd does", async () => {
  const stage = new Stage();
  await stage.servers(["a:1"], () => GOOD, "POST").authorize(credentials());
  const [{ body, ...rest } = {}] = stage.questions;
  equal(rest, {
    method: "POST",
    url: "http://a:1/auth",
    headers: { "Accept": "application/vnd.nsq; version=1.0", "Content-Type": "application/json" },
  });
  equal(
    new TextDecoder().decode(body),
    '{"common_name":["test.local"],"remote_ip":["192.0.2.7"],' +
      '"secret":["open sesame&é/%~"],"tls":["true"]}',
  );
});

Deno.test("AuthServers goes on to the next service until one gives a usable answer", async () => {
  const failures = [
    new HttpAskError("no connection within 2000 ms"),
    new TypeError("Invalid URL: http://a/?secret=open+sesame"),
    500,
    403,
    404,
    302,
    "",
    "not JSON",
    '{"ttl":0}',
    '{"ttl":1,"authorizations":[{"topic":"(","channels":[],"permissions":[]}]}',
    "[".repeat(1000),
  ];
  for (const failure of failures) {
    const stage = new Stage();
    const servers = stage.servers(
      ["a:1", "b:1", "c:1"],
      ({ url }) => url.startsWith("http://b:1/") ? GOOD : failure,
    );
    for (let round = 0; round < 10; round++) {
      equal((await servers.authorize(credentials()))?.grants.identity, "joe", String(failure));
    }
    const firsts = new Set(stage.questions.map(({ url }) => new URL(url).host));
    equal(firsts.size, 3, "asking begins anywhere");
    equal(servers.requestCount, stage.questions.length);
    equal(servers.failureCount, servers.requestCount - 10);
    ok(!stage.lines.some((line) => line.includes("sesame")));
  }
});

Deno.test("AuthServers takes an answer that allows nothing for an answer", async () => {
  const stage = new Stage();
  const granted = await stage.servers(["a:1", "b:1"], () => '{"ttl":1}').authorize(credentials());
  equal([granted?.grants.count, stage.questions.length], [0, 1]);
});

Deno.test("AuthServers is unavailable once all services have failed, and logs each once a minute", async () => {
  const stage = new Stage();
  const servers = stage.servers(["a:1", "b:1"], () => 500);
  for (let round = 0; round < 3; round++) {
    await rejects(servers.authorize(credentials()), AuthorizationUnavailable);
  }
  equal([stage.questions.length, stage.lines.length], [6, 2]);
  match(stage.lines.join(), /address=a:1 reason="the status is 500"/);
  stage.clock.advance(60_000);
  await rejects(servers.authorize(credentials()), AuthorizationUnavailable);
  equal(stage.lines.length, 4);
  ok(!stage.lines.some((line) => line.includes("sesame")));
});

Deno.test("AuthServers asks over https where a 403 names the port", async () => {
  const stage = new Stage();
  const asked: AskHttp = (question) => {
    stage.questions.push(question);
    const isPlain = question.url.startsWith("http:");
    const text = isPlain ? '{"message":"TLS_REQUIRED","https_port":4443}' : GOOD;
    const body = new TextEncoder().encode(text);
    return Promise.resolve({ status: isPlain ? 403 : 200, body });
  };
  await stage.real(["a:1"], "GET", asked).authorize(credentials("x"));
  equal(stage.questions.map(({ url }) => url.slice(0, 26)), [
    "http://a:1/auth?common_nam",
    "https://a:4443/auth?common",
  ]);
});

Deno.test("AuthServers has a bound on requests under way and on those that wait", async () => {
  const stage = new Stage();
  let release = () => {};
  const held = new Promise<string>((resolve) => release = () => resolve(GOOD));
  const servers = stage.servers(["a:1"], () => held);
  const all = Array.from(
    { length: ASKS_MAX + WAITING_MAX },
    () => servers.authorize(credentials("x")),
  );
  await settle();
  equal(stage.questions.length, ASKS_MAX);
  await rejects(servers.authorize(credentials()), /too many clients wait/);
  release();
  equal((await Promise.all(all)).every((granted) => granted?.grants.identity === "joe"), true);
  equal((await servers.authorize(credentials()))?.grants.identity, "joe");
});

Deno.test("authUrl() takes HOST:PORT and URLs without a password, and nothing else", () => {
  const rows: readonly (readonly [string, string | null])[] = [
    ["a:1", "http://a:1/auth"],
    ["127.0.0.1:8080", "http://127.0.0.1:8080/auth"],
    ["[::1]:8080", "http://[::1]:8080/auth"],
    ["auth.internal", "http://auth.internal/auth"],
    ["https://a/b", "https://a/b"],
    ["http://a", "http://a/"],
    ["ftp://a/", null],
    ["http://user:pass@a/", null],
    ["http://user@a/", null],
    ["http://", null],
    ["http://a/#b", null],
    ["", null],
    ["a b:1", null],
    ["a:1/x", null],
    ["a:1?x", null],
    ["user:pass@a:1", null],
  ];
  for (const [address, expected] of rows) equal(authUrl(address)?.href ?? null, expected, address);
});

Deno.test("AuthServers fails over between real services: one gone, one huge, one slow, one good", async () => {
  const stage = new Stage();
  const asked: string[] = [];
  const stalled = Promise.withResolvers<Response>();
  const serve = (handler: (request: Request) => Response | Promise<Response>) =>
    Deno.serve({ hostname: "127.0.0.1", port: 0, onListen: () => {} }, (request) => {
      asked.push(new URL(request.url).searchParams.get("secret") ?? "");
      return handler(request);
    });
  const huge = serve(() => new Response("x".repeat(2_000_000)));
  const slow = serve(() => stalled.promise);
  const good = serve(() => new Response(GOOD));
  const gone = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  gone.close();
  const addresses = [gone, huge, slow, good].map(({ addr }) => `127.0.0.1:${addr.port}`);
  const servers = stage.real(addresses, "GET", askHttp);
  for (let round = 0; round < 4; round++) {
    equal((await servers.authorize(credentials()))?.grants.allows("publish", "t", ""), true);
  }
  ok(asked.includes("open sesame&é/%~"));
  ok(stage.lines.length > 0 && !stage.lines.some((line) => line.includes("sesame")));
  stalled.resolve(new Response());
  await Promise.all([huge, slow, good].map((server) => server.shutdown()));
});
