/** One service, followed through everything that may become of it. */
import { deepStrictEqual as equal, ok } from "node:assert/strict";
import { settle } from "../testing/mod.ts";
import {
  NODES_INTERVAL_MS,
  NODES_ROUNDS,
  RETRY_FIRST_MS,
  RETRY_MOST_MS,
  SILENCE_MS,
} from "./broker_watch.ts";
import { EVENT_BYTES_MAX } from "./event_stream.ts";
import { A, DiscoveryStage, document, nodes, say, UNREADY } from "./fake_discovery_test.ts";

/** A stage whose service has told of `x` with topic `t`. */
async function followed(): Promise<DiscoveryStage> {
  const stage = new DiscoveryStage();
  stage.watchable(A);
  stage.directory.start();
  await settle();
  await stage.says(A, say.added("x", ["t"]), say.synced());
  equal(stage.sources, ["watch current"]);
  return stage;
}

Deno.test("a watch tells what comes, changes and goes, once for all that came in one piece", async () => {
  const stage = await followed();
  equal([stage.brokers, stage.having("t"), stage.told], ["x", "x", [["x"]]]);
  await stage.says(
    A,
    say.added("y", ["u"]),
    say.changed("x", ["+u", "-t"], UNREADY),
    say.changed("x", ["-u", "+v"]),
  );
  equal([stage.brokers, stage.told.slice(1)], ["x! y", [["x", "y"]]]);
  equal([stage.having("t"), stage.having("u"), stage.having("v")], ["", "y", "x"]);
  const broker = stage.directory.brokers.get("x:4150");
  equal(broker?.reasons, ["disk_pressure"]);
  equal([broker?.host, broker?.tcpPort, broker?.httpPort], ["x", 4150, 4151]);
  await stage.says(A, say.removed("x"), say.removed("never there"), ": still here\n\n");
  equal([stage.brokers, stage.told.slice(2)], ["y", [["x"]]]);
  await stage.stop();
});

Deno.test("what was known stays in force until a new snapshot is whole, and is then replaced", async () => {
  const stage = await followed();
  await stage.says(A, say.added("y", ["t"]));
  stage.stream().end();
  await stage.clock.run(RETRY_FIRST_MS);
  equal([stage.brokers, stage.sources], ["x y", ["watch stale: it ended the stream"]]);
  await stage.says(A, say.added("x", ["u"], UNREADY), say.added("z"));
  equal([stage.brokers, stage.having("t"), stage.having("u")], ["x y", "x y", ""]);
  await stage.says(A, say.changed("x", ["+v"]), say.removed("z"), say.synced());
  equal([stage.brokers, stage.having("t"), stage.having("v")], ["x!", "", "x"]);
  equal(stage.sources, ["watch current"]);
  await stage.stop();
});

Deno.test("a snapshot that is cut off changes nothing, however often", async () => {
  const stage = await followed();
  stage.stream().lose();
  for (let round = 0; round < 5; round++) {
    await stage.clock.run(RETRY_MOST_MS);
    await stage.says(A, say.added("z"), say.removed("x"), say.added("y").slice(0, -1));
    stage.stream().end();
    await settle();
    equal([stage.brokers, stage.having("t")], ["x", "x"]);
  }
  equal(stage.sources, ["watch stale: it ended the stream"]);
  // Half an event at the end is no event.
  await stage.clock.run(RETRY_MOST_MS);
  await stage.says(A, say.added("z"), say.synced(), say.removed("z").slice(0, -1));
  stage.stream().lose();
  await settle();
  equal([stage.brokers, stage.sources], [
    "z",
    ["watch stale: the connection was lost within the answer"],
  ]);
  await stage.stop();
});

Deno.test("a service that is gone is asked again after 100 ms to 2 s, not in step, and what it said is kept", async () => {
  const stage = new DiscoveryStage();
  stage.directory.start();
  await stage.clock.run(0);
  equal(stage.sources, ["watch failed: the connection failed: ECONNREFUSED"]);
  equal([stage.directory.isSettled, stage.directory.sources()[0]?.ageMs], [true, null]);
  const waits: number[] = [];
  for (let round = 0; round < 12; round++) {
    const before = stage.streams.asked.length;
    const sinceMs = stage.clock.monoMs();
    while (stage.streams.asked.length === before) await stage.clock.run(1);
    waits.push(stage.clock.monoMs() - sinceMs);
  }
  for (const [index, waitMs] of waits.entries()) {
    const mostMs = Math.min(RETRY_MOST_MS, RETRY_FIRST_MS * 2 ** index);
    ok(waitMs >= mostMs / 2 - 1 && waitMs <= mostMs + 1, `${waits}`);
  }
  ok(new Set(waits.slice(5)).size > 1, `${waits}`);
  equal(stage.lines.length, 1);
  await stage.stop();
});

Deno.test("a service that flaps is asked ever less often; one that held is asked again at once", async () => {
  const stage = await followed();
  const connections = () => stage.streams.asked.length;
  for (let round = 0; round < 6; round++) {
    stage.stream().end();
    await stage.clock.run(RETRY_MOST_MS);
    await stage.says(A, say.added("x"), say.synced());
  }
  equal([connections(), stage.brokers], [7, "x"]);
  stage.stream().end();
  await stage.clock.run(RETRY_MOST_MS / 2 - 1);
  equal(connections(), 7);
  await stage.clock.run(RETRY_MOST_MS);
  await stage.says(A, say.synced());
  await stage.clock.run(RETRY_MOST_MS + 1);
  stage.stream().end();
  await stage.clock.run(RETRY_FIRST_MS);
  equal(connections(), 9);
  await stage.stop();
});

Deno.test("a stream is given up after 40 s without a byte, and goes on for as long as there are comments", async () => {
  const stage = await followed();
  for (let round = 0; round < 10; round++) {
    await stage.clock.run(SILENCE_MS - 1);
    await stage.says(A, ": still here\n\n");
  }
  equal(stage.streams.streams.length, 1);
  equal(stage.directory.sources()[0]?.ageMs, 0);
  await stage.clock.run(SILENCE_MS - 1);
  equal([stage.sources, stage.directory.sources()[0]?.ageMs], [["watch current"], SILENCE_MS - 1]);
  await stage.clock.run(1);
  equal([stage.sources, stage.brokers], [["watch stale: it was silent for 40000 ms"], "x"]);
  await stage.clock.run(RETRY_FIRST_MS);
  equal(stage.streams.streams.length, 2);
  // A service that takes the question and says nothing.
  stage.streams.set(`${A}/v1/watch`, "silent");
  stage.stream().lose();
  await stage.clock.run(10_000);
  equal(stage.sources, ["watch stale: no answer within 5000 ms"]);
  await stage.stop();
});

Deno.test("what cannot be read ends the stream and changes nothing; what is unknown is passed over", async () => {
  const bad = [
    "event: added\ndata: {\n\n",
    "event: added\ndata: [1]\n\n",
    say.event("added", { id: "z:4150", topics: [] }),
    say.event("added", { id: "z:4150", broker: document("z"), topics: {} }),
    say.event("added", { id: "y:4150", broker: document("z"), topics: [] }),
    say.event("added", { id: "z:0", broker: document("z", { tcp_port: 0 }), topics: [] }),
    say.event("added", { id: "/:4150", broker: document("/"), topics: [] }),
    say.event("added", { id: "z:4150", broker: document("z", { publish_ready: 1 }), topics: [] }),
    say.event("changed", { id: "x:4150", broker: null, registrations: [] }),
    say.event("changed", { id: "x:4150", registrations: [null] }),
    say.event("changed", { id: "x:4150", registrations: [{ topic: "t", channel: null }] }),
    say.event("changed", { id: "x:4150" }),
    say.event("removed", {}),
    "event: synced\ndata: \n\n",
  ];
  for (const event of bad) {
    const stage = await followed();
    await stage.says(A, event);
    equal([stage.brokers, stage.having("t")], ["x", "x"], event);
    const name = /^event: (\w+)/.exec(event)?.[1];
    equal(stage.sources, [`watch stale: its event "${name}" cannot be read`], event);
    await stage.stop();
  }
  const stage = await followed();
  await stage.says(
    A,
    "data: unnamed\n\nevent: moved\ndata: {\n\n",
    say.added("y", ["no/name", "u"], { http_port: "?", reasons: ["a b", 1, "ok"], future: [] }),
    say.changed("y", ["+no/name"]),
    say.synced(),
  );
  equal([stage.sources, stage.brokers, stage.having("u")], [["watch current"], "x y", "y"]);
  const y = stage.directory.brokers.get("y:4150");
  equal([y?.httpPort, y?.reasons, y?.hasTopic("no/name")], [null, ["ok"], false]);
  await stage.stop();
});

Deno.test("an event of 4 MiB is taken, a larger one ends the stream; 2,000 topics with channels are far below", async () => {
  const stage = await followed();
  const topics = Array.from({ length: 2_000 }, (_, index) => `orders.region-${index}.events`);
  const event = say.added("y", topics);
  ok(event.length < 200 * 1024, `${event.length}`);
  for (let at = 0; at < event.length; at += 65_536) {
    stage.stream().send(event.slice(at, at + 65_536));
  }
  await settle();
  equal([stage.having(topics[1_999] ?? ""), stage.brokers], ["y", "x y"]);
  const frame = (bytes: number) => {
    const [head = "", tail = ""] = say.added("z", [], { version: "|" }).split("|");
    const line = (head + tail).split("\n")[2]?.length ?? 0;
    return head + "v".repeat(bytes - line) + tail;
  };
  await stage.says(A, frame(EVENT_BYTES_MAX));
  equal([stage.brokers, stage.sources], ["x y z", ["watch current"]]);
  await stage.says(A, frame(EVENT_BYTES_MAX + 1));
  equal([stage.brokers, stage.sources], [
    "x y z",
    [`watch stale: a line has more than ${EVENT_BYTES_MAX} bytes`],
  ]);
  await stage.stop();
});

Deno.test("a status that is neither 200 nor 404 is a failure, and one of a full service is asked again", async () => {
  const stage = new DiscoveryStage();
  stage.streams.set(`${A}/v1/watch`, 503);
  stage.directory.start();
  await settle();
  equal(stage.sources, ["watch failed: it answers /v1/watch with status 503"]);
  equal(stage.streams.openCount, 0);
  stage.watchable(A);
  await stage.clock.run(RETRY_FIRST_MS);
  await stage.says(A, say.added("x"), say.synced());
  equal([stage.sources, stage.brokers], [["watch current"], "x"]);
  await stage.stop();
});

Deno.test("a service without /v1/watch is an nsqlookupd: /nodes every 2 s, tombstones respected", async () => {
  const stage = new DiscoveryStage();
  stage.streams.set(`${A}/v1/watch`, 404);
  stage.answers.set(`${A}/nodes`, nodes({ x: ["t", "u"], y: ["t"] }, ["u"]));
  stage.directory.start();
  await settle();
  equal([stage.sources, stage.brokers, stage.told], [["nodes current"], "x y", [["x", "y"]]]);
  equal([stage.having("t"), stage.having("u")], ["x y", ""]);
  await stage.clock.run(NODES_INTERVAL_MS);
  equal([stage.asked.length, stage.told.length], [2, 1]);
  stage.answers.set(`${A}/nodes`, nodes({ x: ["u"] }));
  await stage.clock.run(NODES_INTERVAL_MS);
  equal([stage.brokers, stage.having("t"), stage.having("u")], ["x", "", "x"]);
  equal(stage.told.slice(1), [["x", "y"]]);
  await stage.clock.run(NODES_INTERVAL_MS * 10);
  ok(stage.asked.length >= 13 && stage.asked.length <= 15, `${stage.asked.length}`);
  await stage.stop();
});

Deno.test("an nsqlookupd that fails keeps what it said; its answers are read with suspicion", async () => {
  for (
    const [answer, reason] of [
      [500, "it answers /nodes with status 500"],
      ["no JSON", "its answer to /nodes cannot be read"],
      ["{}", "its answer to /nodes cannot be read"],
      ['{"producers":[{"broadcast_address":"z"}]}', "its answer to /nodes cannot be read"],
    ] as const
  ) {
    const stage = new DiscoveryStage();
    stage.streams.set(`${A}/v1/watch`, 404);
    stage.answers.set(`${A}/nodes`, answer);
    stage.directory.start();
    await settle();
    equal(stage.sources, [`watch failed: ${reason}`]);
    stage.answers.set(`${A}/nodes`, nodes({ x: ["t"] }));
    await stage.clock.run(RETRY_FIRST_MS);
    equal([stage.sources, stage.brokers], [["nodes current"], "x"]);
    stage.answers.set(`${A}/nodes`, answer);
    await stage.clock.run(NODES_INTERVAL_MS);
    equal([stage.sources, stage.having("t")], [[`nodes stale: ${reason}`], "x"]);
    await stage.stop();
  }
});

Deno.test("an nsqlookupd that was replaced by a service of ours is watched within a minute or so", async () => {
  const stage = new DiscoveryStage();
  stage.streams.set(`${A}/v1/watch`, 404);
  stage.answers.set(`${A}/nodes`, nodes({ x: [] }));
  stage.directory.start();
  await settle();
  await stage.clock.run(NODES_INTERVAL_MS * (NODES_ROUNDS + 1));
  equal([stage.sources, stage.streams.asked.length], [["nodes current"], 2]);
  stage.watchable(A);
  await stage.clock.run(NODES_INTERVAL_MS * (NODES_ROUNDS + 1));
  equal([stage.sources, stage.brokers], [["nodes current"], "x"]);
  await stage.says(A, say.added("y"), say.synced());
  equal([stage.sources, stage.brokers], [["watch current"], "y"]);
  await stage.stop();
});

Deno.test("a watch can be stopped at any moment, and asks nothing afterwards", async () => {
  for (const does of ["refused", "silent", 200, 404, 503] as const) {
    for (const afterMs of [null, 0, 50, 2_500]) {
      const stage = new DiscoveryStage();
      stage.streams.set(`${A}/v1/watch`, does);
      stage.answers.set(`${A}/nodes`, nodes({}));
      stage.directory.start();
      if (afterMs !== null) await stage.clock.run(afterMs);
      await stage.stop();
      equal(stage.clock.monoMs(), afterMs ?? 0);
      const asked = stage.streams.asked.length + stage.asked.length;
      await stage.clock.run(60_000);
      equal(stage.streams.asked.length + stage.asked.length, asked);
    }
  }
});

Deno.test("a watch that is stopped while its answer begins closes the stream, at whatever step that is", async () => {
  for (let steps = 0; steps < 12; steps++) {
    const stage = new DiscoveryStage();
    stage.watchable(A);
    stage.directory.start();
    for (let step = 0; step < steps; step++) await Promise.resolve();
    await stage.stop();
  }
});
