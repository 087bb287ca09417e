/** Publishing over HTTP, asked without a socket. */
import { deepStrictEqual as equal, match, ok } from "node:assert/strict";
import { encodeMpubBody, utf8Bytes } from "@sluice/shared/protocol";
import { settle } from "@sluice/shared/testing";
import type { Deed } from "./fake_broker_test.ts";
import {
  BODY_BYTES_MAX,
  BODY_TIMEOUT_MS,
  HttpWorld,
  type HttpWorldOptions,
  MESSAGE_BYTES_MAX,
  refused,
} from "./http_world_test.ts";

function test(
  promise: string,
  run: (world: HttpWorld) => Promise<void>,
  options: HttpWorldOptions = {},
): void {
  Deno.test(promise, () => HttpWorld.use(options, run));
}

/** A binary body of `/mpub`. */
function binary(...texts: string[]): Uint8Array<ArrayBuffer> {
  return new Uint8Array(encodeMpubBody(texts.map((text) => utf8Bytes(text))));
}

/** The deeds of a world's first broker, in order; then it is well. */
function deeds(world: HttpWorld, ...list: Deed[]): void {
  world.brokers[0]!.deed = () => list.shift() ?? "ok";
}

/** A body that gives `first` and then waits; `end` and `fail` go on. */
function slowBody(first: string) {
  let controller!: ReadableStreamDefaultController<Uint8Array>;
  const body = new ReadableStream<Uint8Array>({
    start(given) {
      controller = given;
      if (first !== "") given.enqueue(utf8Bytes(first));
    },
  });
  return {
    body,
    end: () => controller.close(),
    fail: () => controller.error(new Error("the peer is gone")),
  };
}

test("/pub is 200 once a broker has the message", async (world) => {
  const response = await world.fetch("POST", "/pub?topic=t", { body: "hello" });
  equal([response.status, await response.text()], [200, "OK"]);
  equal(response.headers.get("sluice-spooled"), null);
  equal(response.headers.get("content-type"), "text/plain; charset=utf-8");
  equal(world.bodies(), ["hello"]);
});

test(
  "/pub is 200 with Sluice-Spooled when the message is on the disk of the gateway",
  async (world) => {
    world.brokers[0]!.down();
    await settle();
    const asking = world.fetch("POST", "/pub?topic=t", { body: "kept" });
    await world.clock.run(300);
    const response = await asking;
    equal([response.status, await response.text()], [200, "OK"]);
    equal(response.headers.get("sluice-spooled"), "true");
    equal([world.bodies(), world.spool!.figures.count], [[], 1]);
  },
  { hasSpool: true },
);

test("/pub is 429 with Retry-After when nobody can take it, and it is not stored", async (world) => {
  world.brokers[0]!.down();
  await settle();
  const asking = world.fetch("POST", "/pub?topic=t", { body: "lost" });
  await world.clock.run(11_000);
  const response = await asking;
  equal([response.status, response.headers.get("retry-after")], [429, "1"]);
  equal(await response.text(), refused("THROTTLED"));
  equal(world.bodies(), []);
});

test("/pub is 504 when a broker may have it", async (world) => {
  deeds(world, "stored, silent");
  const asking = world.ask("POST", "/pub?topic=t", { body: "maybe" });
  await settle();
  world.brokers[0]!.down();
  await world.clock.run(11_000);
  equal(await asking, [504, refused("AMBIGUOUS")]);
});

test("/pub has the status and code of the broker's error when no broker takes the message", async (world) => {
  deeds(world, "bad message");
  equal(await world.post("/pub?topic=t", "poison"), [413, refused("BAD_MESSAGE")]);
  equal(world.bodies(), []);
});

test("/pub refuses what is no publish, as nsqd does", async (world) => {
  const rows: readonly (readonly [path: string, body: string, status: number, code: string])[] = [
    ["/pub", "a", 400, "MISSING_ARG_TOPIC"],
    ["/pub?topic=", "a", 400, "INVALID_TOPIC"],
    ["/pub?topic=a/b", "a", 400, "INVALID_TOPIC"],
    ["/pub?topic=%zz", "a", 400, "INVALID_REQUEST"],
    ["/pub?topic=t", "", 400, "MSG_EMPTY"],
    ["/pub?topic=t&defer=x", "a", 400, "INVALID_DEFER"],
    ["/pub?topic=t&defer=-1", "a", 400, "INVALID_DEFER"],
    ["/pub?topic=t&defer=3600001", "a", 400, "INVALID_DEFER"],
    ["/mpub?topic=t&defer=3600001", "a", 400, "INVALID_DEFER"],
    ["/mpub?topic=no%20name", "a", 400, "INVALID_TOPIC"],
    ["/pub?topic=t", "x".repeat(MESSAGE_BYTES_MAX + 1), 413, "MSG_TOO_BIG"],
    ["/mpub?topic=t", "x".repeat(BODY_BYTES_MAX + 1), 413, "BODY_TOO_BIG"],
    ["/mpub?topic=t", `a\n${"x".repeat(MESSAGE_BYTES_MAX + 1)}`, 413, "MSG_TOO_BIG"],
    ["/mpub?topic=t&binary=true", "abc", 413, "BAD_BODY"],
  ];
  for (const [path, body, status, code] of rows) {
    equal(await world.post(path, body), [status, refused(code)], path);
  }
  equal(world.bodies(), []);
  // Right at the limits.
  equal(await world.post("/pub?topic=t&defer=3600000", "x".repeat(MESSAGE_BYTES_MAX)), [200, "OK"]);
  const lines = `${"x".repeat(MESSAGE_BYTES_MAX)}\n${"y".repeat(999)}`;
  equal(lines.length, BODY_BYTES_MAX);
  equal(await world.post("/mpub?topic=t", lines), [200, "OK"]);
});

test("other methods on /pub and /mpub are 405", async (world) => {
  for (const path of ["/pub?topic=t", "/mpub?topic=t"]) {
    for (const method of ["GET", "PUT", "DELETE", "HEAD"]) {
      equal((await world.ask(method, path))[0], 405, `${method} ${path}`);
    }
  }
});

test("/mpub publishes the lines of a text, the empty ones left out", async (world) => {
  equal(await world.post("/mpub?topic=t", "a\n\nb\r\nc\n"), [200, "OK"]);
  equal([world.bodies(), world.brokers[0]!.seen], [["a", "b\r", "c"], ["SMPUB t"]]);
  for (const flag of ["&binary=false", "&binary=0"]) {
    equal(await world.post(`/mpub?topic=u${flag}`, "d\ne"), [200, "OK"]);
  }
  equal(world.bodies("u"), ["d", "e", "d", "e"]);
});

test("/mpub of nothing is 200 and publishes nothing", async (world) => {
  for (const body of ["", "\n", "\n\n\n"]) {
    equal(await world.post("/mpub?topic=t", body), [200, "OK"], JSON.stringify(body));
  }
  equal(world.brokers[0]!.seen, []);
});

test("/mpub publishes a binary batch as it is", async (world) => {
  for (const flag of ["binary=true", "binary=1", "binary"]) {
    equal(await world.post(`/mpub?topic=t&${flag}`, binary("a\n", "b")), [200, "OK"], flag);
  }
  equal(world.bodies(), ["a\n", "b", "a\n", "b", "a\n", "b"]);
});

test(
  "deferred, a message is due later; a batch becomes messages that are, each for itself",
  async (world) => {
    world.brokers[0]!.down();
    await settle();
    const nowMs = world.clock.wallMs();
    const asking = [
      world.post("/pub?topic=one&defer=5000", "a"),
      world.post("/pub?topic=now&defer=0", "b"),
      world.post("/mpub?topic=text&defer=60000", "c\n\nd\n"),
      world.post("/mpub?topic=binary&binary=true&defer=1", binary("e", "f")),
    ];
    await world.clock.run(300);
    equal(await Promise.all(asking), Array(4).fill([200, "OK"]));
    const entries = await world.spool!.take(100, 2 ** 20);
    equal(
      entries.map(({ publish }) => [
        publish.topic,
        publish.isBatch,
        publish.dueWallMs === 0 ? 0 : publish.dueWallMs - nowMs,
        new TextDecoder().decode(publish.body),
      ]),
      [
        ["one", false, 5_000, "a"],
        ["now", false, 0, "b"],
        ["text", false, 60_000, "c"],
        ["text", false, 60_000, "d"],
        ["binary", false, 1, "e"],
        ["binary", false, 1, "f"],
      ],
    );
    world.spool!.putBack(entries);
  },
  { hasSpool: true },
);

test("a batch in pieces has the outcome of the piece that fared worst", async (world) => {
  deeds(world, "ok", "bad message");
  const asking = world.post("/mpub?topic=t&defer=1000", "a\nb\nc");
  await world.clock.run(1_000);
  equal(await asking, [413, refused("BAD_MESSAGE")]);
  equal(world.bodies(), ["a", "c"]);
});

test("a batch that is deferred has no more messages than there is memory for", async (world) => {
  const lines = "x\n".repeat(BODY_BYTES_MAX / 2);
  equal(await world.post("/mpub?topic=t&defer=1000", lines), [413, refused("BODY_TOO_BIG")]);
  equal(world.publisher.heldCount, 0);
  world.brokers[0]!.deed = () => "stored, silent";
  const held = world.post("/mpub?topic=t&defer=1000", "x\n".repeat(300));
  await settle();
  const over = await world.fetch("POST", "/mpub?topic=t&defer=1000", { body: "x\n".repeat(300) });
  equal([over.status, over.headers.get("retry-after")], [429, "1"]);
  await over.body?.cancel();
  world.brokers[0]!.deed = () => "ok";
  world.brokers[0]!.speak();
  await world.clock.run(5_000);
  equal(await held, [200, "OK"]);
  equal(await world.post("/mpub?topic=t", lines), [200, "OK"], "as one batch it is small");
}, { bytesMax: 100_000 });

test(
  "one more is 429 while too much has no outcome, or too much is being received",
  async (world) => {
    world.brokers[0]!.deed = () => "stored, silent";
    const held: Promise<[number, string]>[] = [];
    for (let count = 0; count < 4; count++) {
      held.push(world.post("/pub?topic=t", "x".repeat(3_000), { "Content-Length": "3000" }));
      await settle();
    }
    equal(world.receiving.usedBytes, 0, "what the publisher holds is counted there");
    const over = await world.fetch("POST", "/pub?topic=t", { body: "x".repeat(3_000) });
    equal([over.status, over.headers.get("retry-after")], [429, "1"]);
    equal(await over.text(), refused("THROTTLED"));
    world.brokers[0]!.deed = () => "ok";
    world.brokers[0]!.speak();
    await world.clock.run(5_000);
    equal(await Promise.all(held), Array(4).fill([200, "OK"]));
    // Nothing is held now; of those being received each counts with all it may become.
    const bodies = Array.from({ length: 4 }, () => slowBody("x"));
    const asking = bodies.map(({ body }) => world.ask("POST", "/pub?topic=t", { body }));
    await settle();
    equal(world.receiving.usedBytes, 3 * MESSAGE_BYTES_MAX);
    equal(await asking[3], [429, refused("TOO_MANY_BYTES")]);
    for (const { end } of bodies.slice(0, 3)) end();
    equal(await Promise.all(asking.slice(0, 3)), Array(3).fill([200, "OK"]));
  },
  { bytesMax: 14_000 },
);

test("a body without a length is taken up to the limit", async (world) => {
  for (const [bytes, status] of [[MESSAGE_BYTES_MAX, 200], [MESSAGE_BYTES_MAX + 1, 413]] as const) {
    const { body, end } = slowBody("x".repeat(bytes));
    end();
    equal((await world.ask("POST", "/pub?topic=t", { body }))[0], status);
  }
});

test("a body that stops half way is 408 after its time, and nothing is published", async (world) => {
  const { body } = slowBody("half");
  const asking = world.ask("POST", "/pub?topic=t", { body });
  await world.clock.run(BODY_TIMEOUT_MS - 1);
  ok(world.receiving.usedBytes > 0);
  await world.clock.run(1);
  equal(await asking, [408, refused("BODY_INCOMPLETE")]);
  equal([world.bodies(), world.receiving.usedBytes], [[], 0]);
});

test("a body that breaks off is 408, and nothing is published", async (world) => {
  const { body, fail } = slowBody("half");
  const asking = world.ask("POST", "/mpub?topic=t", { body });
  await settle();
  fail();
  equal(await asking, [408, refused("BODY_INCOMPLETE")]);
  equal(world.bodies(), []);
});

test("a peer that is gone when it is refused costs nobody anything", async (world) => {
  for (const headers of [{ "Content-Length": "9999999" }, { "Sluice-Producer": "x" }]) {
    const { body, fail } = slowBody("half");
    fail();
    const [status] = await world.ask("POST", "/pub?topic=t", { body, headers });
    ok(status === 413 || status === 501);
  }
});

test("a length that is none is 413, and nothing is taken for it", async (world) => {
  for (const length of ["x", "1e9", "-5", "9007199254740993"]) {
    const { body } = slowBody("a");
    const headers = { "Content-Length": length };
    const [status] = await world.ask("POST", "/pub?topic=t", { body, headers });
    equal([status, world.receiving.usedBytes], [413, 0], length);
  }
});

test("a producer that numbers its publishes is refused before its body is read", async (world) => {
  for (const name of ["Sluice-Producer", "Sluice-Sequence"]) {
    const { body } = slowBody("x");
    equal(
      await world.ask("POST", "/pub?topic=t", { body, headers: { [name]: "1" } }),
      [501, refused("SEQUENCES_NOT_FORWARDED")],
    );
  }
  equal([world.bodies(), world.receiving.usedBytes], [[], 0]);
});

test(
  "with affinity=hash a Sluice-Key always leads to the same broker, and keys to all of them",
  async (world) => {
    for (let key = 0; key < 30; key++) {
      const headers = { "Sluice-Key": `customer-${key}` };
      for (let round = 0; round < 3; round++) {
        equal(await world.post(`/pub?topic=t`, `${key}`, headers), [200, "OK"]);
      }
    }
    const holders = world.brokers.map((broker) => broker.bodies("t"));
    ok(holders.every((bodies) => bodies.length > 0), "all brokers have some");
    for (let key = 0; key < 30; key++) {
      const copies = holders.map((bodies) => bodies.filter((body) => body === `${key}`).length);
      equal(copies.toSorted(), [0, 0, 3], `key ${key}`);
    }
    // Without a key the topic decides.
    for (let round = 0; round < 5; round++) await world.post("/mpub?topic=u", "a\nb");
    equal(world.brokers.map((broker) => broker.bodies("u").length).toSorted(), [0, 0, 10]);
  },
  { brokers: 3, pool: { affinity: "hash" } },
);

test("while the gateway stops, every answer asks for another connection", async (world) => {
  const connectionOf = async (body: BodyInit, headers = {}) => {
    const response = await world.fetch("POST", "/pub?topic=t", { body, headers });
    await response.body?.cancel();
    return [response.status, response.headers.get("connection")];
  };
  equal(await connectionOf("a"), [200, null]);
  world.isStopping = true;
  equal(await connectionOf("b"), [200, "close"]);
  equal(await connectionOf(""), [400, "close"]);
  equal(await connectionOf("x".repeat(MESSAGE_BYTES_MAX + 1)), [413, "close"]);
  equal(await connectionOf("c", { "Sluice-Producer": "x" }), [501, "close"]);
  equal(world.bodies(), ["a", "b"]);
});

test("a publish that fails for a reason of ours is 500, told in the log and not to the client", async (world) => {
  const publish = world.publisher.publish;
  world.publisher.publish = () => {
    throw new Error("a secret detail");
  };
  equal(await world.post("/pub?topic=t", "a"), [500, refused("INTERNAL_ERROR")]);
  match(world.lines.join("\n"), /Cannot publish over HTTP.*a secret detail/);
  world.publisher.publish = publish;
});
