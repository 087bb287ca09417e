/** Publishes with a sequence, over TCP and HTTP: stored once, answered every time. */
import { deepStrictEqual as equal, ok } from "node:assert/strict";
import {
  encodeIdentify,
  encodeMpubBody,
  encodePub,
  encodeSmpub,
  encodeSpub,
  encodeSub,
  utf8Bytes,
} from "@sluice/shared/protocol";
import { settle, SimDisk } from "@sluice/shared/testing";
import { DEDUP_LIMITS_DEFAULT, FIRST_PRODUCER_BYTES } from "../broker.ts";
import { HttpPublisher } from "./http_publish.ts";
import { type Client, sized, World, type WorldOptions } from "./world_test.ts";

const PRODUCER = "00112233445566778899aabbccddeeff";
const IDENTIFY = encodeIdentify({ feature_negotiation: true, sluice_producer: PRODUCER });
const OPTIONS: WorldOptions = { identify: { producers: true } };
const BODY = utf8Bytes("body");
const TOO_OLD = "failed the sequence is older than what is remembered of its producer";

function sluice(
  promise: string,
  test: (world: World) => Promise<void>,
  options: WorldOptions = {},
): void {
  Deno.test(promise, () => World.use({ ...OPTIONS, ...options }, test));
}

/** A connection that has named a producer. */
async function producer(world: World): Promise<Client> {
  const client = await world.client(IDENTIFY);
  equal(client.take().length, 1);
  return client;
}

function tail(world: World, topic = "t"): number {
  return world.broker.topics.get(topic)?.state.tail ?? 0;
}

sluice("IDENTIFY gets the key only when it asks for it, behind all others", async (world) => {
  const client = await world.client(IDENTIFY, encodeIdentify({ feature_negotiation: true }));
  const [named, plain] = client.take();
  ok(named?.endsWith(`,"topology_zone":"","sluice_producer":"${PRODUCER}"}`), named);
  ok(plain?.endsWith(`,"topology_zone":""}`), plain);
  // The later one stands alone: it has named nobody.
  await client.send(encodeSpub("t", 1, BODY));
  equal(client.take(), ["E_INVALID invalid command SPUB", "end"]);
});

sluice("SPUB and SMPUB are unknown commands to who has not named a producer", async (world) => {
  const quiet = encodeIdentify({ sluice_producer: PRODUCER });
  for (const first of [[], [quiet], [encodeIdentify({ feature_negotiation: true })]]) {
    for (const command of [encodeSpub("t", 1, BODY), encodeSmpub("t", 1, [BODY])]) {
      const client = await world.client(...first, command);
      const verb = command[1] === 0x50 ? "SPUB" : "SMPUB";
      equal(client.take().slice(-2), [`E_INVALID invalid command ${verb}`, "end"]);
    }
  }
  const bad = await world.client(
    encodeIdentify({ feature_negotiation: true, sluice_producer: "00" }),
  );
  equal(bad.take(), ["E_BAD_BODY IDENTIFY sluice_producer (00) is invalid", "end"]);
});

sluice(
  "IDENTIFY is refused while the folder cannot be prepared, and taken once it can",
  async (world) => {
    const level = () => new TextDecoder().decode(world.simDisk.bytes("/data/COMPATIBILITY"));
    world.simDisk.failNext({ operation: "write", kind: "io" });
    const refused = await world.client(IDENTIFY, encodeSpub("t", 1, BODY));
    const text =
      "E_IDENTIFY_FAILED IDENTIFY failed the data folder cannot be prepared for producers";
    equal(refused.take(), [text, "end"]);
    equal([world.broker.failure, level()], [null, `{"reader":1,"writer":1}\n`]);
    const taken = await world.client(IDENTIFY, encodeSpub("t", 1, BODY));
    equal(taken.take().slice(1), ["OK"]);
    equal(level(), `{"reader":4,"writer":4}\n`);
  },
);

sluice("a broker that does not offer producers says nothing of them", async (world) => {
  const client = await world.client(IDENTIFY);
  ok(!client.take()[0]!.includes("sluice_producer"));
}, { identify: { producers: false } });

sluice(
  "a repeat is answered OK and stored once, on any connection, also when it is finished",
  async (world) => {
    const client = await producer(world);
    await client.send(encodeSpub("t", 1, BODY), encodeSpub("t", 1, BODY), encodeSpub("t", 2, BODY));
    equal([client.take(), tail(world)], [["OK", "OK", "OK"], 2]);
    const consumer = await world.client(encodeSub("t", "c"), "RDY 10\n");
    equal(consumer.take(), ["OK", "body #1", "body #1"]);
    for (const id of consumer.ids) await consumer.send(`FIN ${id}\n`);
    equal(world.counts("t", "c"), [0, 0, 0]);
    const other = await producer(world);
    await other.send(encodeSpub("t", 2, BODY), encodeSpub("t", 1, BODY), encodeSpub("u", 1, BODY));
    equal([other.take(), tail(world), tail(world, "u")], [["OK", "OK", "OK"], 2, 1]);
    equal(world.broker.repeats, { answered: 3, tooOld: 0, throttled: 0 });
    equal(consumer.take(), []);
  },
);

sluice("a repeat waits until the first one is durable", async (world) => {
  const client = await producer(world);
  const other = await producer(world);
  const release = world.disk.hold();
  await client.send(encodeSpub("t", 1, BODY));
  await other.send(encodeSpub("t", 1, BODY));
  equal([client.take(), other.take(), tail(world)], [[], [], 1]);
  release();
  await settle();
  equal([client.take(), other.take()], [["OK"], ["OK"]]);
  const holding = world.disk.hold();
  // What others write meanwhile is none of its business.
  await client.send(encodePub("t", BODY));
  await other.send(encodeSpub("t", 1, BODY));
  equal([client.take(), other.take()], [[], ["OK"]]);
  holding();
  await settle();
});

sluice("a repeat in a relaxed topic is answered once the first one is written", async (world) => {
  const client = await producer(world);
  const release = world.disk.hold();
  await client.send(encodeSpub("t", 1, BODY), encodeSpub("t", 1, BODY));
  equal(client.take(), ["OK", "OK"]);
  release();
  await settle();
}, { storage: { ackMode: "write_ack" } });

sluice("a deferred publish is deferred once, a batch is stored once and whole", async (world) => {
  const client = await producer(world);
  await client.send(encodeSub("t", "c"));
  await client.send(encodeSpub("t", 5, BODY, 1000), encodeSpub("t", 5, BODY, 1000));
  const batch = [utf8Bytes("a"), utf8Bytes("b"), utf8Bytes("c")];
  await client.send(encodeSmpub("t", 6, batch), encodeSmpub("t", 6, batch));
  await client.send(encodeSpub("t", 6, BODY));
  equal([client.take(), tail(world)], [["OK", "OK", "OK", "OK", "OK", "OK"], 4]);
  equal(world.counts("t", "c"), [3, 0, 1]);
});

sluice("a sequence below the window is refused by name and not stored", async (world) => {
  const client = await producer(world);
  await client.send(encodeSpub("t", 1000, BODY), encodeSpub("t", 901, BODY));
  equal([client.take(), tail(world)], [["OK", "OK"], 2]);
  await client.send(encodeSpub("t", 900, BODY));
  equal([client.take(), tail(world)], [[`E_SEQUENCE_TOO_OLD SPUB ${TOO_OLD}`, "end"], 2]);
  const other = await producer(world);
  await other.send(encodeSmpub("t", 1, [BODY]));
  equal(other.take(), [`E_SEQUENCE_TOO_OLD SMPUB ${TOO_OLD}`, "end"]);
  equal(world.broker.repeats.tooOld, 2);
}, { storage: { dedup: { ...DEDUP_LIMITS_DEFAULT, sequences: 100 } } });

sluice(
  "without memory for one more producer it is refused, until an idle one is forgotten",
  async (world) => {
    const first = await producer(world);
    await first.send(encodeSpub("t", 1, BODY));
    equal(first.take(), ["OK"]);
    const name = (id: string) =>
      encodeIdentify({ feature_negotiation: true, sluice_producer: id.repeat(32) });
    const text = "E_THROTTLED SPUB too much is remembered of producers";
    for (const topic of ["t", "u"]) {
      const second = await world.client(name("2"), encodeSpub(topic, 1, BODY));
      equal(second.take().slice(1), [text, "end"]);
    }
    // The one that is known goes on, and so do those without a sequence.
    await first.send(encodeSpub("t", 2, BODY), encodeSpub("t", 2, BODY), encodePub("t", BODY));
    equal([first.take(), tail(world)], [["OK", "OK", "OK"], 3]);
    await world.clock.run(62_000);
    const third = await world.client(name("3"), encodeSpub("t", 1, BODY));
    equal(third.take().slice(1), ["OK"]);
    equal(world.broker.repeats.throttled, 2);
  },
  {
    storage: {
      dedup: { ...DEDUP_LIMITS_DEFAULT, windowMs: 60_000, bytes: FIRST_PRODUCER_BYTES + 10 },
    },
  },
);

sluice("a batch with a sequence that no group can hold is refused", async (world) => {
  const client = await producer(world);
  const bodies = Array.from({ length: 20 }, () => new Uint8Array(900));
  await client.send(encodeSmpub("t", 1, bodies));
  const bytes = encodeMpubBody(bodies).length;
  equal([client.take(), tail(world)], [
    [`E_BAD_BODY SMPUB body of ${bytes} bytes cannot be stored in one piece`, "end"],
    0,
  ]);
}, { session: { bodyBytesMax: 100_000 } });

sluice("bodies of SPUB and SMPUB are judged as those of PUB and MPUB", async (world) => {
  const cases: [Uint8Array, string][] = [
    [sized("SPUB t 1\n", BODY, 0), "E_BAD_MESSAGE SPUB invalid message body size 0"],
    [sized("SPUB t 1\n", BODY, 1001), "E_BAD_MESSAGE SPUB message too big 1001 > 1000"],
    [sized("SPUB t 1 7200000\n", BODY), "E_INVALID SPUB timeout 7200000 out of range 0-3600000"],
    [sized("SMPUB t 1\n", BODY, 0), "E_BAD_BODY SMPUB invalid body size 0"],
    [sized("SMPUB t 1\n", BODY, 5001), "E_BAD_BODY SMPUB body too big 5001 > 5000"],
  ];
  for (const [command, text] of cases) {
    const client = await producer(world);
    await client.send(command);
    equal(client.take(), [text, "end"]);
  }
  for (const [line, text] of [["SPUB t 1\n", "E_BAD_MESSAGE SPUB failed to read message body"]]) {
    const client = await producer(world);
    await client.send(sized(line!, BODY, 100));
    await client.end();
    equal(client.take(), [text, "end"]);
  }
});

sluice("large messages too are stored once", async (world) => {
  const client = await producer(world);
  const body = new Uint8Array(20_000).fill(7);
  for (let time = 0; time < 2; time++) await client.send(encodeSpub("t", 3, body));
  await client.send(encodeSpub("t", 4, body, 500));
  equal([client.take(), tail(world)], [["OK", "OK", "OK"], 2]);
  equal(world.broker.storage.large.counters.published, 2);
  equal(world.broker.uploads.size, 0);
}, { storage: { largeBodyBytes: 2000 }, session: { messageBytesMax: 50_000 } });

sluice(
  "a producer is told that nothing is stored where there are too many topics",
  async (world) => {
    const client = await producer(world);
    await client.send(encodeSpub("t", 1, BODY), encodeSpub("other", 1, BODY));
    equal(client.take(), ["OK", "E_THROTTLED SPUB there are 1 topics already", "end"]);
  },
  { broker: { topicsMax: 1 } },
);

Deno.test("after a crash a repeat of what was durable is one, and what was lost is stored", async () => {
  const disk = new SimDisk();
  const before = await World.open({ ...OPTIONS, disk });
  const client = await producer(before);
  const batch = [utf8Bytes("a"), utf8Bytes("b")];
  await client.send(encodeSpub("t", 1, BODY), encodeSmpub("t", 2, batch));
  equal(client.take(), ["OK", "OK"]);
  before.disk.hold();
  await client.send(encodeSpub("t", 3, BODY), encodeSmpub("t", 4, batch));
  equal([client.take(), tail(before)], [[], 6]);
  disk.crash();
  await before.broker.abandon().catch(() => {});
  client.close();
  await World.use({ ...OPTIONS, disk }, async (world) => {
    equal(tail(world), 3);
    const again = await producer(world);
    await again.send(encodeSpub("t", 1, BODY), encodeSmpub("t", 2, batch));
    equal([again.take(), tail(world)], [["OK", "OK"], 3]);
    await again.send(encodeSpub("t", 3, BODY), encodeSmpub("t", 4, batch));
    await again.send(encodeSpub("t", 3, BODY), encodeSmpub("t", 4, batch));
    equal([again.take(), tail(world)], [["OK", "OK", "OK", "OK"], 6]);
  });
});

sluice("a repeat is not confirmed when the first one's group fails", async (world) => {
  const client = await producer(world);
  await client.send(encodeSpub("t", 1, BODY));
  const other = await producer(world);
  const release = world.disk.hold();
  await client.send(encodeSpub("t", 2, BODY));
  await other.send(encodeSpub("t", 2, BODY));
  world.disk.failSyncs();
  release();
  await settle();
  equal(client.take(), ["OK", "E_PUB_FAILED PUB failed the log cannot be written", "end"]);
  equal(other.take(), ["E_PUB_FAILED PUB failed the log cannot be written", "end"]);
});

// HTTP -------------------------------------------------------------------------------------------

function publisherOf(world: World): HttpPublisher {
  return new HttpPublisher(world.broker, {
    messageBytesMax: 50_000,
    bodyBytesMax: 100_000,
    deferMsMax: 3_600_000,
    maxDeflateLevel: 6,
    bodyTimeoutMs: 60_000,
  });
}

type Answer = [status: number, text: string, duplicate: string | null];

async function post(
  world: World,
  path: "pub" | "mpub",
  body: Uint8Array | string,
  sequence: string | null,
  id: string | null = PRODUCER,
): Promise<Answer> {
  const bytes = new Uint8Array(typeof body === "string" ? utf8Bytes(body) : body);
  const request = new Request(`http://127.0.0.1:4151/${path}?topic=t`, {
    method: "POST",
    body: bytes,
    headers: {
      "Content-Length": String(bytes.length),
      ...(id === null ? {} : { "Sluice-Producer": id }),
      ...(sequence === null ? {} : { "Sluice-Sequence": sequence }),
    },
  });
  const publisher = publisherOf(world);
  const response =
    await (path === "pub" ? publisher.publish(request) : publisher.publishMany(request));
  return [response.status, await response.text(), response.headers.get("Sluice-Duplicate")];
}

sluice(
  "over HTTP a repeat gets 200 and says so, whatever door the first one came by",
  async (world) => {
    equal(await post(world, "pub", "a", "1"), [200, "OK", null]);
    equal(await post(world, "pub", "a", "1"), [200, "OK", "true"]);
    equal(await post(world, "mpub", "a\nb\nc", "2"), [200, "OK", null]);
    equal(await post(world, "mpub", "a\nb\nc", "2", PRODUCER.toUpperCase()), [200, "OK", "true"]);
    const large = new Uint8Array(9000);
    equal(await post(world, "pub", large, "3"), [200, "OK", null]);
    equal(await post(world, "pub", large, "3"), [200, "OK", "true"]);
    equal(await post(world, "pub", "a", null, null), [200, "OK", null]);
    equal(tail(world), 6);
    const client = await producer(world);
    await client.send(encodeSpub("t", 3, BODY), encodeSpub("t", 4, BODY));
    equal([client.take(), tail(world)], [["OK", "OK"], 7]);
    equal(await post(world, "pub", "a", "4"), [200, "OK", "true"]);
  },
  { storage: { largeBodyBytes: 2000 } },
);

sluice(
  "over HTTP headers that say nothing are refused, and so is what is too old or too large",
  async (world) => {
    const refused = (status: number, code: string): Answer => [
      status,
      JSON.stringify({ message: code }),
      null,
    ];
    for (const id of [null, "", "00", PRODUCER + "0", "g".repeat(32)]) {
      equal(await post(world, "pub", "a", "1", id), refused(400, "INVALID_PRODUCER"));
    }
    for (const sequence of [null, "", "-1", "1.5", "x", "9007199254740991", "12345678901234567"]) {
      equal(await post(world, "pub", "a", sequence), refused(400, "INVALID_SEQUENCE"));
    }
    const whole = "x".repeat(900) + "\n";
    equal(await post(world, "mpub", whole.repeat(20), "1"), refused(413, "BODY_TOO_BIG"));
    equal(tail(world), 0);
    equal(await post(world, "pub", "a", "9007199254740990"), [200, "OK", null]);
    equal(await post(world, "pub", "a", "5"), refused(409, "SEQUENCE_TOO_OLD"));
    equal(tail(world), 1);
  },
);
