import { deepStrictEqual as equal, match } from "node:assert/strict";
import { Logger, MetricsRegistry } from "@sluice/shared/telemetry";
import { discoveryHttp } from "./http.ts";
import { SETTLE_MS } from "./native_http.ts";
import { Roster } from "./roster.ts";
import { at, DirectoryStage, HandSource, HEAD_INTERVAL_MS } from "./sources/fake_brokers_test.ts";
import { WatchHub } from "./watch.ts";

/** A door over brokers that are asked and brokers that registered, in simulated time. */
class DoorStage extends DirectoryStage {
  readonly #app: ReturnType<typeof discoveryHttp>;
  readonly hub: WatchHub;
  isStopping = false;

  constructor(source: HandSource) {
    super([source]);
    const { clock, registry, directory } = this;
    const roster = new Roster(registry, clock);
    this.hub = new WatchHub({ roster, clock, instance: "me", watchersMax: 1 });
    this.#app = discoveryHttp({
      registry,
      clock,
      logger: new Logger({ sink: () => {}, clock }),
      metrics: new MetricsRegistry(),
      corsOrigins: ["https://console.example"],
      native: {
        instance: "me",
        clock,
        startMs: 0,
        roster,
        directory,
        watch: this.hub,
        isStopping: () => this.isStopping,
      },
    });
  }

  async fetch(path: string, init: RequestInit = {}): Promise<Response> {
    return await this.#app.request(path, init);
  }

  async get(path: string) {
    return await (await this.fetch(path)).json();
  }

  register(name: string): void {
    this.registry.addProducer(name, {
      remoteAddress: `${name}:1`,
      info: {
        broadcastAddress: name,
        hostname: name,
        tcpPort: 4150,
        httpPort: 4151,
        version: "1.3.0",
        topologyRegion: "north",
        topologyZone: "z1",
      },
    }, this.clock.monoMs());
  }
}

Deno.test("a service that was told to end says so in health, and answers everything else", async () => {
  const source = new HandSource();
  const stage = new DoorStage(source);
  source.lists();
  stage.register("a");
  await stage.clock.run(1);
  equal((await stage.fetch("/v1/health")).status, 200);
  stage.isStopping = true;
  const response = await stage.fetch("/v1/health");
  equal([response.status, (await response.json()).status], [503, "stopping"]);
  equal((await stage.fetch("/ping")).status, 200);
  equal((await stage.get("/v1/brokers")).brokers.length, 1);
  stage.registry.removeProducer("a");
  await stage.stop();
});

Deno.test("GET /v1/brokers has every broker once, /v1/publishers those that take publishes", async () => {
  const source = new HandSource();
  const stage = new DoorStage(source);
  stage.register("b");
  stage.broker("a").publishReady = false;
  stage.broker("b");
  source.lists(at("a"), at("b"));
  await stage.clock.run(1);
  const { brokers, ...head } = await stage.get("/v1/brokers");
  equal([head.instance, head.broker_count, head.stale_sources], ["me", 2, []]);
  equal(
    brokers.map((one: Record<string, unknown>) => [
      one["id"],
      one["registered"],
      one["observed"],
      one["publish_ready"],
      one["consume_ready"],
      one["topology_zone"],
    ]),
    [["a:4150", false, true, false, true, ""], ["b:4150", true, true, true, true, "z1"]],
  );
  const { producers, ...publishersHead } = await stage.get("/v1/publishers");
  equal(producers.map(({ id }: { id: string }) => id), ["b:4150"]);
  equal(await stage.get("/v1/publishers/head"), publishersHead);
  stage.registry.removeProducer("b");
  await stage.stop();
});

Deno.test("GET /v1/publishers/head has a new revision when readiness changes, not when topics do", async () => {
  const source = new HandSource();
  const stage = new DoorStage(source);
  const broker = stage.broker("a");
  source.lists(at("a"));
  await stage.clock.run(1);
  const revision = async () => (await stage.get("/v1/publishers/head")).revision;
  const before = await revision();
  broker.topics = { t: [] };
  broker.revision += 1;
  await stage.clock.run(HEAD_INTERVAL_MS);
  equal([stage.found("t"), await revision()], [["a"], before]);
  broker.publishReady = false;
  await stage.clock.run(HEAD_INTERVAL_MS);
  equal(await revision(), before + 1);
  await stage.stop();
});

Deno.test("GET /v1/health is 503 until all was heard of, then 200, and says what is not as it should be", async () => {
  const source = new HandSource();
  const stage = new DoorStage(source);
  const health = async () => {
    const response = await stage.fetch("/v1/health");
    const { status, sources, polled } = await response.json();
    return [response.status, status, sources[1].state, sources[1].reason, polled];
  };
  const none = { endpoints: 0, fresh: 0, unreachable: 0, problems: [] };
  equal(await health(), [503, "starting", "starting", "nothing was heard yet", none]);
  const broker = stage.broker("a");
  source.lists(at("a"));
  await stage.clock.run(1);
  equal(await health(), [200, "ok", "current", null, { ...none, endpoints: 1, fresh: 1 }]);
  source.sink?.failed("the API refuses");
  equal((await health()).slice(0, 4), [200, "degraded", "stale", "the API refuses"]);
  equal((await stage.get("/v1/brokers")).stale_sources, ["hand"]);
  source.lists(at("a"));
  broker.state = "down";
  await stage.clock.run(6_000);
  equal(await health(), [200, "degraded", "current", null, {
    endpoints: 1,
    fresh: 0,
    unreachable: 1,
    problems: [{
      endpoint: "a:4151",
      state: "unreachable",
      reason: "the connection failed: ECONNREFUSED",
    }],
  }]);
  await stage.stop();
});

Deno.test("GET /v1/health waits for a source that says nothing only so long", async () => {
  const stage = new DoorStage(new HandSource());
  await stage.clock.run(SETTLE_MS - 1);
  equal((await stage.fetch("/v1/health")).status, 503);
  await stage.clock.run(1);
  const response = await stage.fetch("/v1/health");
  equal([response.status, (await response.json()).status], [200, "degraded"]);
  await stage.stop();
});

Deno.test("GET /v1/watch is a stream of events once all is known, and refused beyond the limit", async () => {
  const stage = new DoorStage(new HandSource());
  const early = await stage.fetch("/v1/watch");
  equal([early.status, await early.json()], [503, { message: "STARTING" }]);
  await stage.clock.run(SETTLE_MS);
  const response = await stage.fetch("/v1/watch");
  match(response.headers.get("content-type") ?? "", /^text\/event-stream/);
  const reader = response.body!.getReader();
  match(new TextDecoder().decode((await reader.read()).value), /^event: synced\n/);
  const refused = await stage.fetch("/v1/watch");
  equal([refused.status, await refused.json()], [503, { message: "WATCH_LIMIT_REACHED" }]);
  await reader.cancel();
  await stage.stop();
});

Deno.test("/lookup may be read by pages of an allowed origin, and by no others; nothing else may", async () => {
  const stage = new DoorStage(new HandSource());
  const allowed = async (path: string, origin: string, method = "GET") => {
    const response = await stage.fetch(path, { method, headers: { Origin: origin } });
    await response.body?.cancel();
    return response.headers.get("access-control-allow-origin");
  };
  const site = "https://console.example";
  equal(await allowed("/lookup?topic=t", site), site);
  equal(await allowed("/lookup?topic=t", site, "OPTIONS"), site);
  equal(await allowed("/lookup?topic=t", "https://other.example"), null);
  equal(await allowed("/lookup?topic=t", "https://console.example.evil"), null);
  equal(await allowed("/topics", site), null);
  equal(await allowed("/topic/create?topic=t", site, "POST"), null);
  equal((await stage.fetch("/lookup?topic=t")).headers.get("vary"), "Origin");
  await stage.stop();
});
