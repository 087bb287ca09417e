/**
 * Any stream at the gateway's TCP door, in clear or compressed, cut anywhere, while brokers do anything:
 * sessions end or go on, but never break; what is in memory is bounded; the next client is served;
 * nothing is left behind.
 *
 * The first two bytes of an input choose the layer, and the cuts and the deeds of brokers; with a layer,
 * what follows is sent through it, or with an odd choice put behind it as it is.
 */
import { deepStrictEqual as equal, ok } from "node:assert/strict";
import {
  concatBytes,
  DeflateEncoder,
  encodeDpub,
  encodeIdentify,
  encodeMpub,
  encodePub,
  encodeSpub,
  encodeSub,
  FrameDecoder,
  FrameEvent,
  IDENTIFY_OPTIONS_DEFAULT,
  MAGIC_V2,
  SnappyEncoder,
  utf8Bytes,
} from "@sluice/shared/protocol";
import { type Connection, ConnectionError } from "@sluice/shared/runtime";
import { TcpServer } from "@sluice/shared/server";
import { Logger } from "@sluice/shared/telemetry";
import { fuzz, SeededRandom, settle } from "@sluice/shared/testing";
import { BrokerWorld, type Deed, SPOOL_PRODUCER } from "./fake_broker_test.ts";
import { Publisher } from "./publisher.ts";
import { Receiving } from "./receiving.ts";
import { Session } from "./session.ts";

const MESSAGE_BYTES_MAX = 2_000;
const BODY_BYTES_MAX = 8_000;
const CONNECTION_BYTES_MAX = 6_000;
const BYTES_MAX = 20_000;
const LAYERS = ["clear", "snappy", "deflate", "snappy", "deflate", "clear"] as const;
const DEEDS: readonly Deed[] = [
  ...Array<Deed>(12).fill("ok"),
  "stored, no answer",
  "lost",
  "throttled",
  "closing",
  "bad message",
  "stored, silent",
];

class Stage {
  readonly world = new BrokerWorld(2);
  readonly receiving = new Receiving(BYTES_MAX);
  readonly publisher: Publisher;
  readonly server: TcpServer<Session>;

  constructor() {
    const { clock, network, pool } = this.world;
    this.publisher = new Publisher({
      spoolProducer: SPOOL_PRODUCER,
      timeoutMs: 10_000,
      spoolAfterMs: 200,
      bytesMax: BYTES_MAX,
    }, { pool, spool: null, clock });
    pool.onUsable = () => this.publisher.brokersChanged();
    const { publisher, receiving } = this;
    const seams = { publisher, receiving, clock, logger: new Logger({ sink: () => {}, clock }) };
    this.server = new TcpServer(network.listen("gateway", 4150), {
      clock,
      connectionsMax: 10,
      open: (connection, onClose) =>
        new Session(
          connection,
          {
            identify: {
              ...IDENTIFY_OPTIONS_DEFAULT,
              version: "1.3.0",
              producers: false,
              snappy: true,
              deflate: true,
            },
            messageBytesMax: MESSAGE_BYTES_MAX,
            bodyBytesMax: BODY_BYTES_MAX,
            deferMsMax: 60_000,
            connectionBytesMax: CONNECTION_BYTES_MAX,
            closeMsMax: 15_000,
            tls: null,
            authorization: null,
          },
          seams,
          onClose,
        ),
    });
  }

  async connect(): Promise<Connection> {
    const connection = await this.world.network.connect("gateway", 4150, 1000);
    await connection.writeAll(MAGIC_V2);
    return connection;
  }

  /** Whether a client that comes now is served. */
  async serves(): Promise<boolean> {
    const connection = await this.connect();
    await connection.writeAll(encodePub("after", utf8Bytes("x")));
    await this.world.clock.run(100);
    const buffer = new Uint8Array(1000);
    const decoder = new FrameDecoder(1000);
    decoder.feed(buffer, 0, await connection.read(buffer) ?? 0);
    const isServed = decoder.next() === FrameEvent.FRAME && decoder.text() === "OK";
    connection.close();
    return isServed;
  }

  async close(): Promise<void> {
    const { world, server, publisher, receiving } = this;
    const closing = server.close();
    await world.clock.run(12_000);
    await closing;
    publisher.close();
    world.close();
    await world.clock.run(5_000);
    equal([server.sessions.size, world.network.openEnds, world.clock.pendingTimers], [0, 0, 0]);
    equal([publisher.heldCount, publisher.heldBytes, receiving.usedBytes], [0, 0, 0]);
  }
}

fuzz({
  name: "gateway-session",
  corpus: new URL("testdata/fuzz/session/", import.meta.url),
  words: [
    ..."PUB MPUB DPUB SUB RDY FIN NOP AUTH IDENTIFY SPUB SMPUB".split(" ").map((verb) =>
      `${verb} `
    ),
    "\n",
    "t\n",
    "t 1000\n",
    "t c\n",
    "\0\0\0\x01x",
    "\0\0\0\x02\0\0\0\x01x\0\0\0\x01y",
    "\x7f\xff\xff\xff",
    '{"snappy":true}',
    '{"deflate":true}',
    '{"sluice_producer":"00112233445566778899aabbccddeeff"}',
    "sNaPpY",
    "x".repeat(200),
  ],
  fresh: (random) => concatBytes(random.bytes(2), ...commands(random)),
  cases: 120,
  check: async (input) => {
    const stage = new Stage();
    const { world, publisher, receiving } = stage;
    await settle();
    const layer = LAYERS[(input[0] ?? 0) % LAYERS.length]!;
    const isRaw = (input[0] ?? 0) >= 0xc0;
    const random = new SeededRandom(input[1] ?? 0);
    for (const broker of world.brokers) broker.deed = () => random.pick(DEEDS);
    const client = await stage.connect();
    // What comes back may be compressed: it is read and dropped, or not read at all.
    if (random.chance(0.8)) void dropAll(client);
    if (layer !== "clear") {
      await client.writeAll(encodeIdentify({ feature_negotiation: true, [layer]: true }));
      await settle();
    }
    const wire = isRaw ? input.subarray(2) : await encoded(layer, input.subarray(2));
    await sendCut(client, wire, random);
    ok(publisher.heldBytes <= BYTES_MAX + BODY_BYTES_MAX, `${publisher.heldBytes} bytes are held`);
    ok(receiving.usedBytes <= BYTES_MAX);
    await world.clock.run(random.pick([0, 1_000, 70_000]));
    for (const broker of world.brokers) {
      broker.deed = () => "ok";
      broker.speak();
    }
    await world.clock.run(15_000);
    equal([publisher.heldCount, publisher.heldBytes], [0, 0]);
    if (random.chance(0.5)) client.closeWrite();
    else client.close();
    await settle();
    ok(await stage.serves(), "the next client is served");
    client.close();
    await stage.close();
  },
});

async function dropAll(connection: Connection): Promise<void> {
  const buffer = new Uint8Array(65_536);
  try {
    while (await connection.read(buffer) !== null);
  } catch (error) {
    ok(error instanceof ConnectionError);
  }
}

/** Commands of a producer, most of them sensible. */
function commands(random: SeededRandom): Uint8Array[] {
  return Array.from({ length: random.between(1, 12) }, () => {
    const body = random.bytes(random.pick([0, 1, 20, 99, 101, 1500, MESSAGE_BYTES_MAX + 1]));
    switch (random.below(9)) {
      case 0:
      case 1:
        return encodePub("t", body);
      case 2:
        return encodeMpub("t", [body, random.bytes(3), random.bytes(120)]);
      case 3:
        return encodeMpub("u", Array.from({ length: 5 }, () => random.bytes(1500)));
      case 4:
        return encodeDpub("t", random.below(70_000), body);
      case 5:
        return encodeIdentify({
          feature_negotiation: true,
          heartbeat_interval: 1000,
          snappy: random.chance(0.3),
        });
      case 6:
        return random.pick([encodeSub("t", "c"), encodeSpub("t", 1, body), utf8Bytes("NOP\n")]);
      case 7:
        return utf8Bytes(random.pick(["NOP\n", "CLS\n", "RDY 1\n", "AUTH\n\0\0\0\x01a"]));
      default:
        return random.bytes(random.below(40));
    }
  });
}

async function encoded(layer: (typeof LAYERS)[number], bytes: Uint8Array): Promise<Uint8Array> {
  if (layer === "clear") return bytes;
  const encoder = layer === "snappy" ? new SnappyEncoder() : new DeflateEncoder(6);
  try {
    return (await encoder.encode(bytes)).slice();
  } finally {
    encoder.close();
  }
}

async function sendCut(
  connection: Connection,
  wire: Uint8Array,
  random: SeededRandom,
): Promise<void> {
  for (let at = 0; at < wire.length;) {
    const end = Math.min(wire.length, at + random.pick([1, 7, 100, 5000]));
    try {
      await Promise.race([connection.writeAll(wire.slice(at, end)), settle()]);
    } catch (error) {
      ok(error instanceof ConnectionError);
      return;
    }
    at = end;
    if (random.chance(0.1)) await settle();
  }
  await settle();
}
