/** What a broker that stops says to its producers, and that it is true. */
import { deepStrictEqual as equal, ok } from "node:assert/strict";
import { ProducerConnection, type PublishOutcome } from "@sluice/shared/client";
import {
  encodeIdentify,
  encodeMpub,
  encodePub,
  encodeSmpub,
  encodeSpub,
  encodeSub,
  utf8Bytes,
} from "@sluice/shared/protocol";
import { SeededRandom, settle, SimDisk } from "@sluice/shared/testing";
import { RefusedError } from "../broker.ts";
import { type Client, World, type WorldOptions } from "./world_test.ts";

const PRODUCER = "00112233445566778899aabbccddeeff";
const IDENTIFY = encodeIdentify({ feature_negotiation: true, sluice_producer: PRODUCER });
const CLOSING = "E_CLOSING the broker stops";
const BODY = utf8Bytes("body");
const KILOBYTE = new Uint8Array(1000).fill(97);
/** Bodies above 2000 bytes are large; parts are 4 KiB. */
const LARGE: Partial<WorldOptions> = {
  storage: { largeBodyBytes: 2000 },
  session: { messageBytesMax: 50_000, bodyBytesMax: 100_000 },
};
const SEEDS = 60;

function sluice(
  promise: string,
  test: (world: World) => Promise<void>,
  options: WorldOptions = {},
): void {
  Deno.test(
    promise,
    () => World.use({ identify: { producers: true, ...options.identify }, ...options }, test),
  );
}

/** A connection that has named a producer. */
async function producer(world: World): Promise<Client> {
  const client = await world.client(IDENTIFY);
  equal(client.take().length, 1);
  return client;
}

function stored(world: World, topic = "t"): number {
  return world.broker.topics.get(topic)?.messageCount ?? 0;
}

/** Stops the server; whoever is told whether it is through need not wait for it. */
function stop(world: World): { isOver: boolean } {
  const stopping = { isOver: false };
  void world.server.close().then(() => stopping.isOver = true);
  return stopping;
}

sluice("who has named a producer is told E_CLOSING, everybody else nothing", async (world) => {
  const named = await producer(world);
  const plain = await world.client(encodeIdentify({ feature_negotiation: true }));
  const consumer = await world.client(encodeSub("t", "c"));
  const silent = await world.client();
  equal([plain.take().length, consumer.take(), silent.take()], [1, ["OK"], []]);
  stop(world);
  await settle();
  equal([named.take(), plain.take(), consumer.take()], [[CLOSING, "end"], ["end"], ["end"]]);
  equal(silent.take(), ["end"]);
});

sluice(
  "it comes behind the answers that are owed, and what is behind them is dropped",
  async (world) => {
    const client = await producer(world);
    const release = world.disk.hold();
    await client.send(encodeSpub("t", 1, BODY), encodePub("t", BODY), encodeSpub("t", 1, BODY));
    const stopping = stop(world);
    await client.send(encodeSpub("t", 2, BODY), encodePub("t", BODY));
    equal(client.take(), []);
    release();
    await settle();
    await client.send(encodeSpub("t", 3, BODY));
    equal([client.take(), stored(world)], [["OK", "OK", "OK", CLOSING, "end"], 2]);
    equal(stopping.isOver, false);
    client.close();
    await settle();
    equal(stopping.isOver, true);
  },
);

sluice(
  "a stop waits for no idle producer that closes, and a second for one that does not",
  async (world) => {
    const options = {
      host: "127.0.0.1",
      port: 4150,
      connectTimeoutMs: 1000,
      heartbeatIntervalMs: 10_000,
      frameBytesMax: 100_000,
      identify: {},
      producerId: new Uint8Array(16).fill(1),
    };
    const client = await ProducerConnection.connect(world, options);
    const ends: (string | undefined)[] = [];
    client.onEnd = (error) => ends.push(error?.message);
    const stopping = stop(world);
    await settle();
    equal(stopping.isOver, true);
    equal(ends, [`127.0.0.1:4150 ends with: ${CLOSING}`]);
    await World.use({ identify: { producers: true } }, async (other) => {
      const stubborn = await producer(other);
      const late = stop(other);
      await other.clock.run(999);
      equal([stubborn.take(), late.isOver], [[CLOSING, "end"], false]);
      await other.clock.run(1);
      equal(late.isOver, true);
    });
  },
);

sluice("a log that fails knows nothing, so E_CLOSING is not sent", async (world) => {
  const client = await producer(world);
  const idle = await producer(world);
  const release = world.disk.hold();
  await client.send(encodeSpub("t", 1, BODY));
  stop(world);
  await settle();
  // The one that is owed nothing had all its answers before the log failed.
  equal([client.take(), idle.take()], [[], [CLOSING, "end"]]);
  world.disk.failSyncs();
  release();
  await settle();
  equal(client.take(), ["E_PUB_FAILED PUB failed the log cannot be written", "end"]);
});

sluice("after a failure of the log an idle producer is closed without a word", async (world) => {
  const client = await producer(world);
  const other = await world.client();
  const release = world.disk.hold();
  await other.send(encodePub("t", BODY));
  world.disk.failSyncs();
  release();
  await settle();
  ok(world.broker.failure !== null);
  stop(world);
  await settle();
  equal(client.take(), ["end"]);
});

sluice(
  "a publish that waits for room is not stored after it, and the word arrives",
  async (world) => {
    const client = await producer(world);
    const release = world.disk.hold();
    // More than there is room for, and than the connection holds: some of it is never read.
    for (let index = 0; index < 200; index++) client.write(encodeSpub("t", index, KILOBYTE));
    await settle();
    const before = stored(world);
    ok(before < 40 && [...world.server.sessions][0]!.blocked !== null);
    const stopping = stop(world);
    await settle();
    equal(client.take(), []);
    release();
    await settle();
    const oks = Array.from({ length: before }, () => "OK");
    equal([client.take(), stored(world)], [[...oks, CLOSING, "end"], before]);
    client.close();
    await settle();
    equal([stopping.isOver, stored(world)], [true, before]);
  },
);

sluice("it does not wait for room: what still comes is read and dropped at once", async (world) => {
  const client = await producer(world);
  const other = await world.client();
  const release = world.disk.hold();
  for (let index = 0; index < 40; index++) other.write(encodePub("t", KILOBYTE));
  await settle();
  for (let index = 0; index < 200; index++) client.write(encodeSpub("u", index, KILOBYTE));
  await settle();
  equal([...world.server.sessions].filter(({ blocked }) => blocked !== null).length, 2);
  stop(world);
  await settle();
  equal([client.take(), stored(world, "u")], [[CLOSING, "end"], 0]);
  await client.end();
  equal([...world.server.sessions].length, 1);
  release();
  await settle();
});

sluice("a large message half way is not stored, whatever it waits for", async (world) => {
  const uploading = await producer(world);
  const body = new Uint8Array(20_000).fill(7);
  const command = encodeSpub("t", 1, body);
  await uploading.send(command.subarray(0, 9000));
  equal(world.broker.uploads.size, 1);
  const waiting = await producer(world);
  const release = world.disk.hold();
  const others = await world.client();
  for (let index = 0; index < 40; index++) others.write(encodePub("u", KILOBYTE));
  await settle();
  await waiting.send(encodeSpub("t", 2, body));
  equal(world.broker.uploads.size, 2);
  stop(world);
  await settle();
  equal(world.broker.uploads.size, 0);
  await uploading.send(command.subarray(9000));
  release();
  await settle();
  equal([uploading.take(), waiting.take()], [[CLOSING, "end"], [CLOSING, "end"]]);
  equal(stored(world), 0);
}, LARGE);

sluice("of a batch that is stored in part nothing is promised", async (world) => {
  const bodies = Array.from({ length: 60 }, () => KILOBYTE);
  for (const how of ["stop", "exiting", "throttled"]) {
    const topic = `t_${how}`;
    const client = await producer(world);
    const release = world.disk.hold();
    await client.send(encodeMpub(topic, bodies), encodeSpub(topic, 1, BODY));
    const before = stored(world, topic);
    ok(before > 0 && before < 60, `${before} are stored`);
    const { broker } = world;
    const { publish } = broker;
    if (how === "stop") {
      // The first way is the last one: the server takes no more connections.
      [...world.server.sessions].at(-1)!.end();
    } else if (how === "exiting") {
      broker.exiting = true;
    } else {
      broker.publish = () => {
        throw new RefusedError("throttled", "no");
      };
    }
    release();
    await settle();
    broker.exiting = false;
    broker.publish = publish;
    const reason = how === "throttled" ? "no" : "exiting";
    equal(client.take(), [`E_MPUB_FAILED MPUB failed ${reason}`, "end"]);
    equal(stored(world, topic), before);
  }
}, { session: { bodyBytesMax: 100_000 } });

sluice("a publish to a broker that has begun to stop gets it too, and keeps it", async (world) => {
  const client = await producer(world);
  const plain = await world.client();
  const release = world.disk.hold();
  await client.send(encodeSpub("t", 1, BODY));
  world.broker.exiting = true;
  const batch = encodeSmpub("t", 3, [BODY, BODY]);
  // A repeat is told what became of the first one as long as anybody asks.
  await client.send(encodeSpub("t", 1, BODY), batch, encodeSpub("t", 4, BODY));
  await plain.send(encodePub("t", BODY));
  release();
  await settle();
  // What is read here is read late: the end of the server does not cut it off.
  const stopping = stop(world);
  await settle();
  equal([client.take(), stored(world)], [["OK", "OK", CLOSING, "end"], 1]);
  equal(plain.take(), ["E_PUB_FAILED PUB failed exiting", "end"]);
  equal(stopping.isOver, false);
  client.close();
  await settle();
  equal(stopping.isOver, true);
});

sluice("after a fatal error, or the end of the stream, it is not sent", async (world) => {
  const failed = await producer(world);
  await failed.send(encodeSpub("t", 1, BODY), "SPUB t$ 2\n");
  const ended = await producer(world);
  const release = world.disk.hold();
  await ended.send(encodeSpub("t", 3, BODY));
  await ended.end();
  const stopping = stop(world);
  release();
  await settle();
  equal(failed.take(), ["OK", 'E_BAD_TOPIC SPUB topic name "t$" is not valid', "end"]);
  equal(ended.take(), ["OK", "end"]);
  failed.close();
  await settle();
  equal(stopping.isOver, true);
});

sluice("it does not get into an upgrade", async (world) => {
  const client = await world.client();
  const release = world.disk.hold();
  const fields = { feature_negotiation: true, sluice_producer: PRODUCER, snappy: true };
  await client.send(encodePub("t", BODY), encodeIdentify(fields));
  stop(world);
  release();
  await settle();
  equal(client.take(), ["OK", "end"]);
});

Deno.test(`whenever the broker stops, what is confirmed is stored and all else is refused (${SEEDS} seeds)`, async () => {
  for (let seed = 1; seed <= SEEDS; seed++) {
    try {
      await stopUnderLoad(seed);
    } catch (error) {
      throw new Error(`seed ${seed}`, { cause: error });
    }
  }
});

/** Producers that publish all they can, and a stop at some moment; what there is after a restart. */
async function stopUnderLoad(seed: number): Promise<void> {
  const random = new SeededRandom(seed);
  const upTo = (limit: number) => random.below(limit);
  const disk = new SimDisk();
  const options: WorldOptions = { identify: { producers: true }, ...LARGE, disk };
  const world = await World.open(options);
  const outcomes = new Map<string, PublishOutcome>();
  const sent: string[] = [];
  const producers = await Promise.all(
    [1, 2, 3].map((number) =>
      ProducerConnection.connect(world, {
        host: "127.0.0.1",
        port: 4150,
        connectTimeoutMs: 1000,
        heartbeatIntervalMs: 10_000,
        frameBytesMax: 100_000,
        identify: {},
        producerId: new Uint8Array(16).fill(number),
      })
    ),
  );
  const publish = (connection: ProducerConnection) => {
    const name = `m${sent.length}.`;
    sent.push(name);
    const body = utf8Bytes(name.padEnd(upTo(20) === 0 ? 10_000 : 20 + upTo(900), "x"));
    const command = [
      () => encodePub("t", body),
      () => encodeSpub("t", sent.length, body),
      () => encodeSmpub("t", sent.length, body.length > 2000 ? [utf8Bytes(name)] : [body]),
    ][upTo(3)]!();
    connection.send((outcome) => outcomes.set(name, outcome), command);
  };
  const moments = 1 + upTo(20);
  let release: (() => void) | null = null;
  for (let moment = 0; moment < moments; moment++) {
    for (let count = upTo(60); count > 0; count--) publish(producers[upTo(3)]!);
    if (upTo(3) === 0) {
      release?.();
      release = release === null ? world.disk.hold() : null;
    }
    await settle();
  }
  for (let count = upTo(60); count > 0; count--) publish(producers[upTo(3)]!);
  for (let turn = upTo(4); turn > 0; turn--) await Promise.resolve();
  world.broker.exiting = upTo(2) === 0;
  if (upTo(2) === 0) await settle();
  const stopping = world.server.close();
  await settle();
  for (const connection of producers) publish(connection);
  release?.();
  await world.clock.runUntil(stopping, 5000);
  await world.close();
  const confirmed = sent.filter((name) => outcomes.get(name) === "confirmed");
  const others = sent.filter((name) => outcomes.get(name) !== "confirmed");
  for (const name of others) {
    const outcome = outcomes.get(name);
    ok(outcome !== undefined && outcome !== "confirmed", `${name} has no outcome`);
    equal(outcome.outcome, "refused", outcome.message);
  }
  equal(await bodiesOf(options), confirmed.sort());
}

/** The names of the messages that a restart finds. */
async function bodiesOf(options: WorldOptions): Promise<string[]> {
  const names: string[] = [];
  await World.use(options, async (world) => {
    if (!world.broker.topics.has("t")) return;
    const client = await world.client(encodeSub("t", "c"), "RDY 2500\n");
    await world.clock.run(100);
    names.push(
      ...client.take().filter((frame) => frame !== "OK").map((frame) => frame.split(".")[0]! + "."),
    );
  });
  return names.sort();
}
