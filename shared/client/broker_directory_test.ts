/** Several sources, and what their words come to. */
import { deepStrictEqual as equal, ok } from "node:assert/strict";
import { settle } from "../testing/mod.ts";
import type { BrokerDirectoryOptions } from "./broker_directory.ts";
import { RETRY_FIRST_MS, RETRY_MOST_MS } from "./broker_watch.ts";
import { A, B, DiscoveryStage, nodes, say, UNREADY } from "./fake_discovery_test.ts";

const REGISTERED = { observed: false, registered: true };

async function staged(options: Partial<BrokerDirectoryOptions> = {}): Promise<DiscoveryStage> {
  const stage = new DiscoveryStage({ discoveryUrls: [A, B], ...options });
  stage.watchable(A, B);
  stage.directory.start();
  await settle();
  return stage;
}

Deno.test("a broker is there while any source lists it, and a lost source takes nobody away", async () => {
  const stage = await staged();
  await stage.says(A, say.added("x", ["t"]), say.added("y", ["t"]), say.synced());
  await stage.says(B, say.added("y", ["u"]), say.added("z"), say.synced());
  equal([stage.brokers, stage.having("t"), stage.having("u")], ["x y z", "x y", "y"]);
  await stage.says(A, say.removed("y"));
  equal([stage.brokers, stage.having("t"), stage.having("u")], ["x y z", "x", "y"]);
  stage.streams.set(`${A}/v1/watch`, "refused");
  stage.stream(A).lose();
  await stage.clock.run(60 * 60_000);
  equal(stage.brokers, "x y z");
  const [a, b] = stage.directory.sources();
  equal([a?.url, a?.state, a?.brokers, a?.ageMs], [A, "stale", 1, 60 * 60_000]);
  // It was silent too, so it was asked again, and has not told all yet.
  equal([b?.url, b?.brokers], [B, 2]);
  await stage.stop();
});

Deno.test("a directory is settled when each source has answered or failed, and not before", async () => {
  const stage = await staged({ brokers: [{ host: "s", tcpPort: 4150 }] });
  equal([stage.directory.isSettled, stage.brokers], [false, "s"]);
  await stage.says(A, say.added("x"));
  equal([stage.directory.isSettled, stage.sources], [
    false,
    ["static current", "watch starting", "watch starting"],
  ]);
  await stage.says(A, say.synced());
  equal([stage.directory.isSettled, stage.brokers], [false, "s x"]);
  stage.stream(B).lose();
  await settle();
  equal(stage.directory.isSettled, true);
  await stage.stop();
  const alone = new DiscoveryStage({ discoveryUrls: [], brokers: [{ host: "::1", tcpPort: 1 }] });
  alone.directory.start();
  equal([alone.directory.isSettled, [...alone.directory.brokers.keys()]], [true, ["[::1]:1"]]);
  equal(alone.directory.sources(), [
    { url: null, kind: "static", state: "current", reason: null, ageMs: 0, brokers: 1 },
  ]);
  await alone.stop();
});

Deno.test("of two current sources that asked a broker, the one whose word was true last decides", async () => {
  const stage = await staged();
  await stage.says(A, say.added("x", [], { ...UNREADY, age_ms: 300 }), say.synced());
  // Comes later, and is older.
  await stage.says(B, say.added("x", [], { age_ms: 400 }), say.synced());
  equal(stage.brokers, "x!");
  await stage.says(B, say.changed("x", [], { age_ms: 350 }));
  equal(stage.brokers, "x!");
  await stage.says(B, say.changed("x", [], { age_ms: 250 }));
  equal(stage.brokers, "x");
  await stage.clock.run(1_000);
  await stage.says(B, say.changed("x", [], { ...UNREADY, age_ms: 10 }));
  equal([stage.brokers, stage.directory.brokers.get("x:4150")?.reasons], [
    "x!",
    ["disk_pressure"],
  ]);
  await stage.clock.run(500);
  await stage.says(A, say.changed("x", [], { ...UNREADY, age_ms: 10 }));
  equal(stage.brokers, "x!");
  await stage.clock.run(1_000);
  await stage.says(A, say.changed("x", [], { age_ms: 0 }));
  equal(stage.brokers, "x");
  // Of words of the same moment the one that is ready.
  await stage.says(B, say.changed("x", [], { ...UNREADY, age_ms: 0 }));
  equal(stage.brokers, "x");
  await stage.stop();
});

Deno.test("what a broker said when it was asked counts before what is only registered or in the settings", async () => {
  const stage = await staged({ brokers: [{ host: "x", tcpPort: 4150 }] });
  equal([stage.brokers, stage.directory.brokers.get("x:4150")?.httpPort], ["x", null]);
  await stage.says(A, say.added("x", [], { ...UNREADY, age_ms: 2_000 }), say.synced());
  equal(stage.brokers, "x!");
  await stage.clock.run(10_000);
  await stage.says(B, say.added("x", [], REGISTERED), say.synced());
  equal([stage.brokers, stage.directory.brokers.get("x:4150")?.httpPort], ["x!", 4151]);
  // Nobody asks it any more: nothing is known against it.
  await stage.says(A, say.changed("x", [], REGISTERED));
  equal(stage.brokers, "x");
  await stage.stop();
});

Deno.test("a current source decides against a lost one, however late that spoke; among lost ones the latest", async () => {
  const stage = await staged();
  await stage.says(A, say.added("x", ["t"]), say.added("y"), say.synced());
  await stage.clock.run(1_000);
  await stage.says(B, say.added("x", ["u"], UNREADY), say.added("y", [], UNREADY), say.synced());
  equal([stage.brokers, stage.having("t"), stage.having("u")], ["x! y!", "x", "x"]);
  stage.streams.set(`${B}/v1/watch`, "refused");
  stage.stream(B).lose();
  await settle();
  equal([stage.brokers, stage.having("t"), stage.having("u")], ["x y", "x", ""]);
  equal(stage.told.at(-1), ["x", "y"]);
  // Only a registration is known of it, and current.
  await stage.says(A, say.changed("x", [], REGISTERED));
  equal(stage.brokers, "x y");
  stage.streams.set(`${A}/v1/watch`, "refused");
  stage.stream(A).lose();
  await settle();
  equal([stage.brokers, stage.having("t"), stage.having("u")], ["x! y!", "x", "x"]);
  // One that is back says what it said, and now it counts.
  stage.watchable(B);
  stage.told.length = 0;
  await stage.clock.run(RETRY_MOST_MS);
  await stage.says(B, say.added("x", ["u"], UNREADY), say.added("y", [], UNREADY), say.synced());
  equal([stage.brokers, stage.having("t"), stage.having("u")], ["x! y!", "", "x"]);
  equal(stage.told, [["x", "y"]]);
  await stage.stop();
});

Deno.test("a service of ours and an nsqlookupd are one list", async () => {
  const stage = await staged();
  stage.streams.set(`${B}/v1/watch`, 404);
  stage.answers.set(`${B}/nodes`, nodes({ x: ["t"], y: ["t"] }));
  stage.stream(B).lose();
  await stage.says(A, say.added("x", ["u"], UNREADY), say.synced());
  await stage.clock.run(RETRY_FIRST_MS);
  equal([stage.brokers, stage.sources], ["x! y", ["watch current", "nodes current"]]);
  equal([stage.having("t"), stage.having("u")], ["x y", "x"]);
  await stage.stop();
});

Deno.test("topics are kept only where they are asked for; of a broker in the settings nobody knows them", async () => {
  const rows: readonly (readonly [BrokerDirectoryOptions["keepsTopics"], string, string])[] = [
    [true, "x s?", "x s?"],
    [false, "x? y? s?", "x? y? s?"],
    [(topic) => topic === "t", "x s?", "s?"],
  ];
  for (const [keepsTopics, havingT, havingU] of rows) {
    const brokers = [{ host: "s", tcpPort: 4150 }];
    const stage = await staged({ keepsTopics, brokers, discoveryUrls: [A] });
    await stage.says(A, say.added("x", ["t", "u"]), say.added("y"), say.synced());
    const sorted = (text: string) => text.split(" ").sort().join(" ");
    equal(stage.having("t"), sorted(havingT));
    equal(stage.having("u"), sorted(havingU));
    const tellings = stage.told.length;
    await stage.says(A, say.changed("x", ["+v", "-u"]));
    equal(stage.told.length - tellings, keepsTopics === true ? 1 : 0);
    await stage.says(A, say.changed("y", ["+t"]));
    equal(stage.told.length - tellings, { true: 2, false: 0 }[String(keepsTopics)] ?? 1);
    await stage.stop();
  }
});

Deno.test("listeners are told once a turn of what changed, and of nothing after they ended it", async () => {
  const stage = await staged();
  const seen: string[] = [];
  const end = stage.directory.onChange(() => seen.push(stage.brokers));
  stage.stream(A).send(say.added("x") + say.added("y"));
  stage.stream(A).send(say.synced() + say.removed("x") + say.added("z") + say.removed("z"));
  await settle();
  equal([seen, stage.told], [["y"], [["y"]]]);
  // The same again is no change.
  await stage.says(A, say.added("y"), say.changed("y", ["-never there"]), say.removed("x"));
  equal(stage.told.length, 1);
  // Whoever looks before it is told sees the same as then.
  const reading = new Promise<string>((resolve) =>
    stage.directory.onChange(() => resolve(stage.brokers))
  );
  end();
  await stage.says(A, say.added("w"));
  equal([await reading, seen.length], ["w y", 1]);
  await stage.directory.stop();
  equal(stage.brokers, "w y");
  equal(stage.told.length, 2);
  await stage.stop();
});

Deno.test("above the most brokers the others are left out, and come in as some go", async () => {
  const stage = await staged({ brokersMax: 3 });
  await stage.says(A, say.added("a"), say.added("b"), say.synced());
  await stage.says(B, say.added("c"), say.added("d"), say.added("e"), say.synced());
  equal([stage.brokers, stage.lines.filter((line) => /too many/.test(line)).length], ["a b c", 1]);
  await stage.says(B, say.removed("e"));
  equal(stage.brokers, "a b c");
  await stage.says(A, say.removed("a"));
  equal([stage.brokers, stage.told.at(-1)], ["b c d", ["a", "d"]]);
  await stage.says(A, say.added("f"), say.removed("b"));
  equal(stage.brokers, "c d f");
  await stage.stop();
});

Deno.test("twenty brokers with thousands of topics are followed, from two services, again and again", async () => {
  const stage = await staged();
  const topics = Array.from({ length: 2_000 }, (_, index) => `orders.region-${index}`);
  const hosts = Array.from({ length: 20 }, (_, index) => `broker-${index}`);
  for (let round = 0; round < 2; round++) {
    for (const url of [A, B]) {
      for (const host of hosts) stage.stream(url).send(say.added(host, topics));
      await stage.says(url, say.changed("broker-0", [`+round-${round}`]), say.synced());
    }
    ok(stage.directory.brokers.get("broker-19:4150")?.hasTopic("orders.region-1999"));
    equal([stage.having(`round-${round}`), stage.having("round-2")], ["broker-0", ""]);
    for (const url of [A, B]) stage.stream(url).end();
    await stage.clock.run(RETRY_MOST_MS);
  }
  equal(stage.directory.brokers.size, 20);
  await stage.stop();
});
