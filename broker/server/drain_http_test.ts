/** Draining by request: what is refused, what goes on, and what survives. */
import { deepStrictEqual as equal, match, ok } from "node:assert/strict";
import { encodeIdentify, encodeSpub, encodeSub, utf8Bytes } from "@sluice/shared/protocol";
import { replaceFile } from "@sluice/shared/runtime";
import { settle, type SimDisk } from "@sluice/shared/testing";
import { worldHttp } from "./http_world_test.ts";
import { int32, pub, sized, World, type WorldOptions } from "./world_test.ts";

const PRODUCER = "00112233445566778899aabbccddeeff";
const NAMED: WorldOptions = { identify: { producers: true } };
const IDENTIFY = encodeIdentify({ feature_negotiation: true, sluice_producer: PRODUCER });
const BODY = utf8Bytes("body");
const EMPTY = {
  draining: false,
  delivery_frozen: false,
  quiesced: false,
  empty: true,
  since: null,
  depth: 0,
  in_flight: 0,
  deferred: 0,
  publish_bytes: 0,
  delivery_bytes: 0,
};
type Answer = readonly [status: number, body: Record<string, unknown>, retryAfter: string | null];

async function ask(world: World, method: string, path: string, body?: string): Promise<Answer> {
  const request = new Request(`http://127.0.0.1:4151${path}`, {
    method,
    ...(body === undefined ? {} : { body }),
  });
  const response = await world.clock.runUntil(
    Promise.resolve(worldHttp(world)(request, "127.0.0.1:50000")),
    5_000,
  );
  const text = await response.text();
  const document = text.startsWith("{") ? JSON.parse(text) : { text };
  return [response.status, document, response.headers.get("retry-after")];
}

async function drain(world: World, wanted: object): Promise<Record<string, unknown>> {
  const [status, report] = await ask(world, "POST", "/v1/drain", JSON.stringify(wanted));
  equal(status, 200);
  return report;
}

Deno.test("while a broker drains every door refuses publishes, and consuming goes on", () =>
  World.use(NAMED, async (world) => {
    const before = await world.client(pub("t", "one"), pub("t", "two"), encodeSub("t", "c"));
    equal(before.take(), ["OK", "OK", "OK"]);
    equal((await drain(world, {}))["draining"], true);
    const refused = async (...sent: Uint8Array[]) => (await world.client(...sent)).take();
    equal(await refused(pub("t", "x")), ["E_PUB_FAILED PUB failed draining", "end"]);
    equal(
      await refused(sized("MPUB t\n", new Uint8Array([...int32(1), ...int32(1), 97]))),
      ["E_MPUB_FAILED MPUB failed draining", "end"],
    );
    equal(
      await refused(sized("DPUB t 100\n", BODY)),
      ["E_DPUB_FAILED DPUB failed draining", "end"],
    );
    const named = await world.client(IDENTIFY, encodeSpub("t", 1, BODY));
    equal(named.take().slice(1), ["E_CLOSING the broker drains", "end"]);
    for (const path of ["/pub?topic=t", "/mpub?topic=t"]) {
      equal(await ask(world, "POST", path, "x"), [503, { message: "DRAINING" }, "1"]);
    }
    equal((await ask(world, "POST", "/topic/create?topic=new"))[0], 200);
    await before.send("RDY 10\n");
    equal(before.take(), ["one #1", "two #1"]);
    await before.send(`FIN ${before.ids[0]}\n`, `REQ ${before.ids[1]} 0\n`);
    await world.clock.run(20);
    equal(before.take(), ["two #2"]);
    const late = await world.client(encodeSub("t", "d"), "RDY 1\n");
    equal(late.take(), ["OK"]);
    equal((await drain(world, { enabled: false }))["draining"], false);
    equal(await refused(pub("t", "three")), ["OK"]);
    equal(late.take(), ["three #1"]);
  }));

Deno.test("a repeat of what was stored before the drain is still answered OK", () =>
  World.use(NAMED, async (world) => {
    const first = await world.client(IDENTIFY, encodeSpub("t", 1, BODY));
    equal(first.take().length, 2);
    await drain(world, { enabled: true });
    const again = await world.client(IDENTIFY, encodeSpub("t", 1, BODY), encodeSpub("t", 2, BODY));
    equal(again.take().slice(1), ["OK", "E_CLOSING the broker drains", "end"]);
    equal(world.broker.topics.get("t")?.messageCount, 1);
  }));

Deno.test("health and the head of the registry tell of a drain and of frozen deliveries", () =>
  World.use({}, async (world) => {
    const told = async () => {
      const [status, health] = await ask(world, "GET", "/v1/health");
      const [, head] = await ask(world, "GET", "/v1/registry/head");
      return [
        status,
        health["status"],
        head["publish_ready"],
        head["consume_ready"],
        head["reasons"],
      ];
    };
    equal(await told(), [200, "ok", true, true, []]);
    await drain(world, { enabled: true });
    equal(await told(), [200, "degraded", false, true, ["draining"]]);
    await drain(world, { enabled: true, freeze_deliveries: true });
    const both = ["delivery_frozen", "draining"];
    equal(await told(), [503, "unavailable", false, false, both]);
    equal((await ask(world, "GET", "/ping"))[0], 200, "the process is well");
    await drain(world, { enabled: false });
    equal(await told(), [200, "ok", true, true, []]);
  }));

Deno.test("frozen deliveries leave what is in flight to be answered, and flow again later", () =>
  World.use({}, async (world) => {
    const client = await world.client(
      ...["a", "b", "c"].map((body) => pub("t", body)),
      encodeSub("t", "c"),
      "RDY 2\n",
    );
    equal(client.take(), ["OK", "OK", "OK", "OK", "a #1", "b #1"]);
    const report = await drain(world, { enabled: true, freeze_deliveries: true });
    equal([report["quiesced"], report["depth"], report["in_flight"]], [false, 1, 2]);
    await client.send(`FIN ${client.ids[0]}\n`, `REQ ${client.ids[1]} 0\n`, "RDY 5\n");
    await world.clock.run(1_000);
    equal(client.take(), []);
    const [, rest] = await ask(world, "GET", "/v1/drain");
    equal([rest["quiesced"], rest["empty"], rest["depth"]], [true, false, 2]);
    await drain(world, { enabled: true });
    equal(client.take().sort(), ["b #2", "c #1"]);
    for (const id of client.ids.slice(2)) await client.send(`FIN ${id}\n`);
    await world.clock.run(20);
    equal((await ask(world, "GET", "/v1/drain"))[1]["empty"], true);
  }));

Deno.test("what times out while deliveries are frozen waits, and nothing is delivered twice for it", () =>
  World.use({}, async (world) => {
    const client = await world.client(
      encodeIdentify({ feature_negotiation: true, msg_timeout: 1_000, heartbeat_interval: 60_000 }),
      pub("t", "a"),
      encodeSub("t", "c"),
      "RDY 2\n",
    );
    equal(client.take().slice(1), ["OK", "OK", "a #1"]);
    await drain(world, { enabled: true, freeze_deliveries: true });
    await world.clock.run(3_000);
    equal([client.take(), world.counts("t", "c")], [[], [1, 0, 0]]);
    await drain(world, { enabled: false });
    equal(client.take(), ["a #2"]);
  }));

Deno.test("a report counts what every channel and topic is owed, deferred messages too", () =>
  World.use({}, async (world) => {
    equal((await ask(world, "GET", "/v1/drain"))[1], EMPTY);
    const client = await world.client(encodeSub("t", "c"), "RDY 1\n");
    await client.send(
      pub("t", "a"),
      pub("t", "b"),
      sized("DPUB t 5000\n", BODY),
      pub("alone", "x"),
    );
    const [, report] = await ask(world, "GET", "/v1/drain");
    equal(report, { ...EMPTY, empty: false, depth: 2, in_flight: 1, deferred: 1 });
    equal((await ask(world, "POST", "/topic/delete?topic=t"))[0], 200);
    equal((await ask(world, "POST", "/topic/empty?topic=alone"))[0], 200);
    equal((await ask(world, "GET", "/v1/drain"))[1], EMPTY);
  }));

Deno.test("a publish that is on its way to the disk is not taken for none", () =>
  World.use({}, async (world) => {
    const release = world.disk.hold();
    const client = await world.client(pub("t", "a"));
    const half = await world.client("PUB t\n", int32(100), "half of it");
    const [, report] = await ask(world, "GET", "/v1/drain");
    equal([report["empty"], report["depth"]], [false, 0]);
    ok(Number(report["publish_bytes"]) > 100);
    release();
    await settle();
    equal(client.take(), ["OK"]);
    equal((await ask(world, "GET", "/v1/drain"))[1]["publish_bytes"], 100);
    half.close();
    await settle();
    equal((await ask(world, "GET", "/v1/drain"))[1]["publish_bytes"], 0);
  }));

/** Uses a world on a disk that stays. */
async function life(disk: SimDisk | undefined, test: (world: World) => Promise<void>) {
  const world = await World.open(disk === undefined ? {} : { disk });
  await test(world);
  await world.close();
  return world.simDisk;
}

Deno.test("a drain survives a restart, with its time and frozen deliveries, until it is taken back", async () => {
  let since: unknown;
  const disk = await life(undefined, async (world) => {
    await world.client(pub("t", "a"));
    since = (await drain(world, { enabled: true, freeze_deliveries: true }))["since"];
    match(String(since), /^\d{4}-\d\d-\d\dT/);
    await world.clock.run(5_000);
    equal((await drain(world, { freeze_deliveries: true }))["since"], since);
  });
  await life(disk, async (world) => {
    const client = await world.client(encodeSub("t", "c"), "RDY 1\n");
    equal(client.take(), ["OK"]);
    const [, report] = await ask(world, "GET", "/v1/drain");
    equal(report, {
      ...EMPTY,
      draining: true,
      delivery_frozen: true,
      quiesced: true,
      empty: false,
      since,
      depth: 1,
    });
    equal((await world.client(pub("t", "b"))).take()[1], "end");
    await drain(world, { enabled: false });
    equal(client.take(), ["a #1"]);
  });
  await life(disk, async (world) => {
    equal((await world.client(pub("t", "b"))).take(), ["OK"]);
  });
});

for (const content of ["", "{", "null", '{"draining":1}', "x".repeat(5_000)]) {
  Deno.test(`a file that says ${JSON.stringify(content.slice(0, 20))} is taken for a drain`, async () => {
    const disk = await life(undefined, async (world) => {
      await replaceFile(world.simDisk, "/data/drain.json", utf8Bytes(content));
    });
    await life(disk, async (world) => {
      const [, report] = await ask(world, "GET", "/v1/drain");
      equal([report["draining"], report["delivery_frozen"]], [true, false]);
      await drain(world, { enabled: false });
    });
    await life(disk, async (world) => equal((await ask(world, "GET", "/v1/drain"))[1], EMPTY));
  });
}

Deno.test("a decision that cannot be kept is 503 and changes nothing", () =>
  World.use({}, async (world) => {
    world.simDisk.setCapacity(1);
    const answer = await ask(world, "POST", "/v1/drain", "{}");
    equal(answer.slice(0, 2), [503, { message: "STORAGE_FAULT" }]);
    equal((await ask(world, "GET", "/v1/drain"))[1]["draining"], false);
    world.simDisk.setCapacity(Infinity);
    await drain(world, {});
  }));

for (
  const [body, detail] of [
    ["x", "the body is not JSON"],
    ["[]", "the body is not a JSON object"],
    ['{"enabled":"yes"}', "enabled is true or false"],
    ['{"enable":true}', 'there is no field "enable"; there are: enabled, freeze_deliveries'],
    [
      '{"enabled":false,"freeze_deliveries":true}',
      "freeze_deliveries is for a broker that drains",
    ],
  ] as const
) {
  Deno.test(`a drain of ${body} is refused with the reason and changes nothing`, () =>
    World.use({}, async (world) => {
      const answer = await ask(world, "POST", "/v1/drain", body);
      equal(answer.slice(0, 2), [400, { message: "INVALID_DRAIN", detail }]);
      equal((await ask(world, "GET", "/v1/drain"))[1], EMPTY);
    }));
}
