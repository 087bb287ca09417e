/**
 * Any stream at the broker's TCP door, in clear or compressed, cut anywhere: sessions end or go on, but
 * never break; what is in memory is bounded; the next client is served; nothing is left behind. Bodies
 * above 100 bytes go the way of large messages.
 *
 * The first two bytes of an input choose the layer and the cuts; with a layer, what follows is sent
 * through it, or with an odd choice put behind it as it is.
 */
import { deepStrictEqual as equal, ok } from "node:assert/strict";
import {
  concatBytes,
  DeflateEncoder,
  encodeFin,
  encodeIdentify,
  encodeMpub,
  encodePub,
  encodeRdy,
  encodeSub,
  MAGIC_V2,
  SnappyEncoder,
  utf8Bytes,
} from "@sluice/shared/protocol";
import { type Connection, ConnectionError } from "@sluice/shared/runtime";
import { fuzz, SeededRandom, settle } from "@sluice/shared/testing";
import { type Client, pub, World, type WorldOptions } from "./world_test.ts";

const PUBLISH_BYTES_MAX = 1_048_576;
const OPTIONS: WorldOptions = {
  storage: { largeBodyBytes: 100 },
  broker: { publishBytesMax: PUBLISH_BYTES_MAX },
  session: { messageBytesMax: 2000 },
};
const ID = utf8Bytes("0001000000000005");
const LAYERS = ["clear", "snappy", "deflate", "snappy", "deflate", "clear"] as const;

fuzz({
  name: "session",
  corpus: new URL("testdata/fuzz/session/", import.meta.url),
  words: [
    ..."PUB MPUB DPUB SUB RDY FIN REQ TOUCH CLS NOP AUTH IDENTIFY".split(" ").map((verb) =>
      `${verb} `
    ),
    "\n",
    "t\n",
    "t c\n",
    "t c#ephemeral\n",
    "0001000000000005",
    "\0\0\0\x01x",
    "\x7f\xff\xff\xff",
    '{"snappy":true}',
    '{"deflate":true}',
    "sNaPpY",
    "x".repeat(200),
  ],
  fresh: (random) => concatBytes(random.bytes(2), ...commands(random)),
  cases: 120,
  check: (input) =>
    World.use(OPTIONS, async (world) => {
      const layer = LAYERS[(input[0] ?? 0) % LAYERS.length]!;
      const isRaw = (input[0] ?? 0) >= 0xc0;
      const random = new SeededRandom(input[1] ?? 0);
      // What comes back may be compressed: it is read and dropped.
      const client = await world.rawClient(false);
      void dropAll(client.connection);
      await client.send(MAGIC_V2);
      if (layer !== "clear") {
        await client.send(encodeIdentify({ feature_negotiation: true, [layer]: true }));
      }
      const wire = isRaw ? input.subarray(2) : await encoded(layer, input.subarray(2));
      await sendCut(client, wire, random);
      ok(world.broker.stagedBytes <= PUBLISH_BYTES_MAX);
      await world.clock.run(random.pick([0, 1_000, 70_000]));
      const other = await world.client(pub("after", "x"));
      equal(other.take(), ["OK"]);
      equal(world.failures, []);
      if (random.chance(0.5)) await client.end();
    }),
});

async function dropAll(connection: Connection): Promise<void> {
  const buffer = new Uint8Array(65_536);
  try {
    while (await connection.read(buffer) !== null);
  } catch (error) {
    ok(error instanceof ConnectionError);
  }
}

/** Commands of a client, most of them sensible. */
function commands(random: SeededRandom): Uint8Array[] {
  return Array.from({ length: random.between(1, 8) }, () => {
    const body = random.bytes(random.pick([0, 1, 20, 99, 101, 1500, 2001]));
    switch (random.below(9)) {
      case 0:
        return encodePub("t", body);
      case 1:
        return encodeMpub("t", [body, random.bytes(3), random.bytes(120)]);
      case 2:
        return concatBytes(utf8Bytes(`DPUB t ${random.below(2000)}\n`), sizedBody(body));
      case 3:
        return encodeSub("t", random.pick(["c", "d#ephemeral"]));
      case 4:
        return encodeRdy(random.below(5));
      case 5:
        return encodeFin(ID);
      case 6:
        return utf8Bytes(random.pick(["NOP\n", "CLS\n", "TOUCH x\n", "REQ 0001000000000005 0\n"]));
      case 7:
        return encodeIdentify({
          feature_negotiation: true,
          heartbeat_interval: 1000,
          snappy: random.chance(0.5),
        });
      default:
        return random.bytes(random.below(40));
    }
  });
}

function sizedBody(body: Uint8Array): Uint8Array {
  const size = new Uint8Array(4);
  new DataView(size.buffer).setInt32(0, body.length);
  return concatBytes(size, body);
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

async function sendCut(client: Client, wire: Uint8Array, random: SeededRandom): Promise<void> {
  for (let at = 0; at < wire.length;) {
    const end = Math.min(wire.length, at + random.pick([1, 7, 100, 5000]));
    try {
      await Promise.race([client.connection.writeAll(wire.slice(at, end)), settle()]);
    } catch (error) {
      ok(error instanceof ConnectionError);
      return;
    }
    at = end;
    if (random.chance(0.1)) await settle();
  }
  await settle();
}
