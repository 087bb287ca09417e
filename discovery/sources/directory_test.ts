import { deepStrictEqual as equal, ok } from "node:assert/strict";
import { PARALLEL_MAX, PARALLEL_RETRIES_MAX } from "./directory.ts";
import { at, DirectoryStage, FRESH_MS, HandSource, HEAD_INTERVAL_MS } from "./fake_brokers_test.ts";
import { RETRY_MS_MAX } from "./polled_broker.ts";
import { StaticSource } from "./static_source.ts";

Deno.test("a broker of a static list is found with its topics, and only its head is asked from then on", async () => {
  const stage = new DirectoryStage([new StaticSource([at("a")])]);
  const broker = stage.broker("a", { t: ["c"], u: [] });
  await stage.clock.run(1);
  equal([stage.found("t"), stage.found("u"), stage.registry.channels("t")], [["a"], ["a"], ["c"]]);
  equal(broker.asked, ["/v1/registry/head", "/v1/registry"]);
  await stage.clock.run(60_000);
  const heads = broker.asked.filter((path) => path === "/v1/registry/head").length;
  ok(heads >= 120 && heads <= 134, `${heads} heads in a minute`);
  equal(broker.asked.length, heads + 1);
  equal(stage.counters.answered.get("registry"), 1);
  await stage.stop();
});

Deno.test("a new revision is fetched within one interval, and what went is gone", async () => {
  const stage = new DirectoryStage([new StaticSource([at("a")])]);
  const broker = stage.broker("a", { old: [], both: ["x", "y"] });
  await stage.clock.run(1);
  broker.topics = { both: ["y", "z"], new: ["c"] };
  broker.revision = 2;
  await stage.clock.run(HEAD_INTERVAL_MS);
  equal([stage.found("old"), stage.found("both"), stage.found("new")], [[], ["a"], ["a"]]);
  equal(stage.registry.registrationCount, 5);
  await stage.stop();
});

Deno.test("a broker that started anew is read again though its revision is the same", async () => {
  const stage = new DirectoryStage([new StaticSource([at("a")])]);
  const broker = stage.broker("a", { t: [] });
  await stage.clock.run(1);
  broker.instance = "second";
  broker.topics = { u: [] };
  await stage.clock.run(HEAD_INTERVAL_MS);
  equal([stage.found("t"), stage.found("u")], [[], ["a"]]);
  await stage.stop();
});

Deno.test("a broker that does not answer drops out once what it said is too old, and comes back", async () => {
  for (const state of ["down", "hung"] as const) {
    const stage = new DirectoryStage([new StaticSource([at("a")])]);
    const broker = stage.broker("a", { t: [] });
    await stage.clock.run(1);
    broker.state = state;
    await stage.clock.run(FRESH_MS - HEAD_INTERVAL_MS - 2);
    equal(stage.found("t"), ["a"], state);
    await stage.clock.run(HEAD_INTERVAL_MS + 1);
    equal(stage.found("t"), [], state);
    equal(stage.directory.brokers()[0]?.state, "unreachable");
    broker.state = "up";
    await stage.clock.run(RETRY_MS_MAX + 2_000);
    equal(stage.found("t"), ["a"], state);
    equal(stage.directory.brokers()[0], { endpoint: "a:4151", state: "fresh", reason: null });
    await stage.stop();
  }
});

Deno.test("readiness follows the head without reading the registry again; publishing and consuming are apart", async () => {
  const stage = new DirectoryStage([new StaticSource([at("a")])]);
  const broker = stage.broker("a", { t: [] });
  await stage.clock.run(1);
  broker.publishReady = false;
  broker.reasons = ["disk_pressure"];
  await stage.clock.run(HEAD_INTERVAL_MS);
  equal(stage.found("t"), ["a"]);
  const [producer] = stage.registry.lookup("t", stage.clock.monoMs()) ?? [];
  equal(producer?.observation?.readiness, {
    publishReady: false,
    consumeReady: true,
    reasons: ["disk_pressure"],
  });
  broker.consumeReady = false;
  await stage.clock.run(HEAD_INTERVAL_MS);
  equal(stage.found("t"), []);
  equal(stage.counters.answered.get("registry"), 1);
  await stage.stop();
});

Deno.test("nsqd, which has no registry to ask for, is read by its info and statistics, less often", async () => {
  const stage = new DirectoryStage([new StaticSource([at("a")])]);
  const broker = stage.broker("a", { t: ["c"] });
  broker.kind = "nsqd";
  await stage.clock.run(1);
  equal([stage.found("t"), stage.registry.channels("t")], [["a"], ["c"]]);
  broker.asked.length = 0;
  broker.topics = { u: [] };
  broker.publishReady = false;
  await stage.clock.run(20_000);
  equal([stage.found("t"), stage.found("u")], [[], ["a"]]);
  ok(broker.asked.length <= 2 * 12, `${broker.asked.length} requests in 20 s`);
  ok(!broker.asked.includes("/v1/registry/head"));
  const [producer] = stage.registry.lookup("u", stage.clock.monoMs()) ?? [];
  equal(producer?.observation?.readiness.publishReady, false);
  // Another program at the same address is looked at afresh once the old one was forgotten.
  broker.state = "down";
  await stage.clock.run(FRESH_MS);
  broker.state = "up";
  broker.kind = "sluice";
  await stage.clock.run(RETRY_MS_MAX + 1);
  equal(stage.directory.brokers()[0]?.state, "fresh");
  ok(broker.asked.includes("/v1/registry"));
  await stage.stop();
});

Deno.test("an answer that is nonsense is a failure with its reason, and never a broker", async () => {
  const stage = new DirectoryStage([new StaticSource([at("a")])]);
  const broker = stage.broker("a");
  for (const nonsense of ["", "{", "[]", "null", '{"instance":1}', '{"instance":"x"}', "\xff"]) {
    broker.nonsense = nonsense;
    await stage.clock.run(RETRY_MS_MAX);
    equal(stage.directory.brokers(), [{
      endpoint: "a:4151",
      state: "unreachable",
      reason: "the head of its registry cannot be read",
    }]);
  }
  equal(stage.registry.producerCount, 0);
  await stage.stop();
});

Deno.test("an endpoint that two sources list is asked once, until neither lists it", async () => {
  const first = new HandSource("first");
  const second = new HandSource("second");
  const stage = new DirectoryStage([first, second]);
  const broker = stage.broker("a", { t: [] });
  first.lists(at("a"));
  second.lists(at("a"));
  await stage.clock.run(1);
  equal(broker.asked.length, 2);
  first.lists();
  await stage.clock.run(1);
  equal(stage.found("t"), ["a"]);
  second.lists();
  equal(stage.found("t"), []);
  await stage.stop();
});

Deno.test("the same broker at two endpoints, or registered too, is one producer of a topic", async () => {
  const stage = new DirectoryStage([new StaticSource([at("a"), at("10.0.0.1")])]);
  stage.broker("a", { t: [] });
  const twin = stage.broker("10.0.0.1", { t: [] });
  Object.assign(twin, { name: "a" });
  await stage.clock.run(1);
  equal([stage.registry.producerCount, stage.found("t")], [2, ["a"]]);
  const info = {
    broadcastAddress: "a",
    hostname: "",
    tcpPort: 4150,
    httpPort: 4151,
    version: "",
    topologyRegion: "",
    topologyZone: "",
  };
  const nowMs = stage.clock.monoMs();
  stage.registry.addProducer("1", { remoteAddress: "10.0.0.1:5", info }, nowMs);
  stage.registry.register("1", "t", null);
  equal(
    stage.registry.lookup("t", nowMs)?.map(({ remoteAddress }) => remoteAddress),
    ["10.0.0.1:5"],
  );
  equal(stage.registry.nodes(nowMs).length, 1);
  twin.consumeReady = false;
  stage.brokers.get("a:4151")!.consumeReady = false;
  await stage.clock.run(HEAD_INTERVAL_MS);
  equal(stage.found("t"), []);
  stage.registry.removeProducer("1");
  await stage.stop();
});

Deno.test("no more are asked at a time than allowed, and many that hang do not keep the others from being fresh", async () => {
  const goodNames = Array.from({ length: 200 }, (_, index) => `good${index}`);
  const hungNames = Array.from({ length: 500 }, (_, index) => `hung${index}`);
  const stage = new DirectoryStage([
    new StaticSource([...hungNames, ...goodNames].map((name) => at(name))),
  ]);
  for (const name of goodNames) stage.broker(name, { t: [] });
  for (const name of hungNames) stage.broker(name, { t: [] });
  await stage.clock.run(5_000);
  equal(stage.found("t")?.length, goodNames.length + hungNames.length);
  for (const name of hungNames) stage.brokers.get(`${name}:4151`)!.state = "hung";
  for (let second = 0; second < 8; second++) {
    await stage.clock.run(1_000);
    const found = new Set(stage.found("t"));
    ok(goodNames.every((name) => found.has(name)), `after ${second} s`);
  }
  equal(stage.found("t")?.length, goodNames.length);
  ok(stage.askingMax <= hungNames.length + PARALLEL_MAX + PARALLEL_RETRIES_MAX);
  equal(stage.directory.isSettled, true);
  await stage.stop();
});

Deno.test("brokers that are found at once are asked spread over the interval, not in step", async () => {
  const names = Array.from({ length: 200 }, (_, index) => `b${index}`);
  const stage = new DirectoryStage([new StaticSource(names.map((name) => at(name)))]);
  for (const name of names) stage.broker(name);
  await stage.clock.run(1);
  const asked = () =>
    names.reduce((sum, name) => sum + stage.brokers.get(`${name}:4151`)!.asked.length, 0);
  let before = asked();
  let most = 0;
  for (let step = 0; step < 2 * HEAD_INTERVAL_MS / 10; step++) {
    await stage.clock.run(10);
    most = Math.max(most, asked() - before);
    before = asked();
  }
  ok(most <= 20, `${most} of 200 are asked within 10 ms`);
  await stage.stop();
});

Deno.test("the token goes with every request", async () => {
  const stage = new DirectoryStage([new StaticSource([at("a")])], "secret");
  const broker = stage.broker("a");
  await stage.clock.run(1);
  equal([...broker.tokens], ["Bearer secret"]);
  ok(!stage.lines.join().includes("secret"));
  await stage.stop();
});

Deno.test("what has no room in the registry is said, and the rest is listed", async () => {
  const stage = new DirectoryStage([new StaticSource([at("a")])]);
  const topics = Array.from({ length: 50_001 }, (_, index) => [`t${index}`, []]);
  stage.broker("a", Object.fromEntries(topics));
  await stage.clock.run(1);
  equal(stage.registry.topicCount, 50_000);
  equal(stage.directory.brokers(), [{
    endpoint: "a:4151",
    state: "fresh",
    reason: "not all of it is listed: topicsMax 50000 is reached",
  }]);
  await stage.stop();
});
