/**
 * Any bytes in place of a TLS handshake, or in clear behind one, over real sockets: the connection
 * fails as a connection does, in time, and the next client is served.
 *
 * An input whose first byte is odd is sent in clear behind a good handshake, any other instead of one.
 */
import { equal, ok } from "node:assert/strict";
import { fuzz, TlsClient, tlsSettings } from "../testing/mod.ts";
import { type Connection, ConnectionError, type Listener } from "./mod.ts";
import { SystemClock, SystemNetwork } from "./system.ts";

const HANDSHAKE_MS_MAX = 5_000;
/** What is no handshake may take this long: a client that has gone is noticed only then. */
const HOSTILE_MS_MAX = 100;
const CLIENT_HELLO = "\x16\x03\x01\x00\x2a\x01\x00\x00\x26\x03\x03" + "r".repeat(32) +
  "\x00\x00\x02\x13\x01\x01\x00";

fuzz({
  name: "tls",
  corpus: new URL("testdata/fuzz/tls/", import.meta.url),
  words: [
    CLIENT_HELLO,
    "\x16\x03\x01",
    "\x15\x03\x03\x00\x02\x02\x28",
    "\x17\x03\x03\xff\xff",
    "PUB t\n",
  ],
  fresh: (random) => random.bytes(random.below(600)),
  cases: 30,
  check: async (input) => {
    const network = new SystemNetwork(new SystemClock());
    const listener = await network.listenUpgradable("127.0.0.1", 0);
    try {
      await hostile(listener, input);
      await honest(listener);
    } finally {
      listener.close();
    }
  },
});

async function hostile(listener: Listener, input: Uint8Array): Promise<void> {
  const isBehind = (input[0] ?? 0) % 2 === 1;
  const client = await TlsClient.connect(listener.port);
  const server = await listener.accept();
  ok(server?.startTls !== undefined);
  try {
    if (isBehind) {
      const [secure, near] = await Promise.all([
        server.startTls(tlsSettings(), HANDSHAKE_MS_MAX),
        client.startTls(),
      ]);
      client.send(input.slice(1));
      client.end();
      await drained(secure);
      secure.close();
      near.close();
    } else {
      const upgrading = server.startTls(tlsSettings(), HOSTILE_MS_MAX);
      upgrading.catch(() => {});
      client.send(input.slice(1));
      client.end();
      await client.close();
      (await upgrading).close();
    }
  } catch (error) {
    ok(error instanceof ConnectionError, String(error));
  } finally {
    server.close();
    await client.close();
  }
}

async function honest(listener: Listener): Promise<void> {
  const client = await TlsClient.connect(listener.port);
  const server = await listener.accept();
  ok(server?.startTls !== undefined);
  const [secure, near] = await Promise.all([
    server.startTls(tlsSettings(), HANDSHAKE_MS_MAX),
    client.startTls(),
  ]);
  await near.writeAll(Uint8Array.of(7));
  equal(await secure.read(new Uint8Array(1)), 1);
  secure.close();
  near.close();
  await client.close();
}

/** Reads to the end, whichever it is. */
async function drained(connection: Connection): Promise<void> {
  const buffer = new Uint8Array(4096);
  while (await connection.read(buffer) !== null);
}
