/** Clients that misuse the layers under NSQ: TLS handshakes that never come, bombs of compression. */
import { ok } from "node:assert/strict";
import { deflateRawSync } from "node:zlib";
import { concatBytes, encodeIdentify, MAGIC_V2 } from "@sluice/shared/protocol";
import { TlsClient, tlsPath } from "@sluice/shared/testing";
import { Service, TemporaryFolder } from "./process.ts";
import { closeQuietly, connectQuietly, RawClient } from "./raw_client.ts";
import { within } from "./wait.ts";

const MIB = 2 ** 20;
const FLAGS = ["--ring-bytes=16MiB", "--page-cache-bytes=8MiB", "--max-body-size=4MiB"];
const TLS_FLAGS = [
  `--tls-cert=${tlsPath("server.pem")}`,
  `--tls-key=${tlsPath("server.key")}`,
  "--https-address=127.0.0.1:0",
];
/** The limit of handshakes at a time. */
const HANDSHAKES = 256;
/** Well below the 5 s that a handshake has when nobody waits. */
const WAIT_MS_MAX = 3_500;
const RESIDENT_BYTES_MAX = 300 * MIB;

Deno.test("Silent TLS handshakes, as many as there may be, keep nobody out for long", async () => {
  await using folder = await TemporaryFolder.create();
  await using broker = await Service.broker(folder.path, [...FLAGS, ...TLS_FLAGS]);
  await using stack = new AsyncDisposableStack();
  const hello = concatBytes(MAGIC_V2, encodeIdentify({ feature_negotiation: true, tls_v1: true }));
  const silent = await Promise.all(
    Array.from({ length: HANDSHAKES }, async () => {
      const client = stack.adopt(await TlsClient.connect(broker.tcpPort), (one) => one.close());
      client.send(hello);
      return client.receive();
    }),
  );
  ok(silent.every((reply) => reply.length > 0), "each is told to go on with TLS");
  const startMs = performance.now();
  const client = stack.adopt(await TlsClient.connect(broker.tcpPort), (one) => one.close());
  client.send(hello);
  await client.receive();
  const secure = await within("a handshake beside them", client.startTls());
  const reply = new Uint8Array(64);
  const count = await secure.read(reply);
  const tookMs = performance.now() - startMs;
  ok(new TextDecoder().decode(reply.subarray(0, count ?? 0)).endsWith("OK"));
  ok(tookMs < WAIT_MS_MAX, `it took ${tookMs} ms`);
  secure.close();
});

Deno.test("A bomb of compression is cut off and costs no memory", async () => {
  await using folder = await TemporaryFolder.create();
  await using broker = await Service.broker(folder.path, FLAGS);
  // A line without end, a thousand times as long as what is sent.
  const bomb = deflateRawSync(new Uint8Array(256 * MIB).fill(0x78));
  for (let number = 0; number < 4; number++) {
    const connection = await connectQuietly(broker.tcpPort);
    try {
      await connection.write(
        concatBytes(MAGIC_V2, encodeIdentify({ feature_negotiation: true, deflate: true })),
      );
      const buffer = new Uint8Array(65_536);
      // The reply in clear, then the OK through the layer; they may come as one.
      await connection.read(buffer);
      const ending = ended(connection, buffer);
      try {
        for (let at = 0; at < bomb.length;) at += await connection.write(bomb.subarray(at));
      } catch {
        // It was cut off.
      }
      await within("its end", ending);
    } finally {
      closeQuietly(connection);
    }
  }
  ok(broker.residentBytesPeak < RESIDENT_BYTES_MAX, `${broker.residentBytesPeak} bytes`);
  await using client = await RawClient.connect(broker.tcpPort);
  await client.pub("orders", "after them");
});

async function ended(connection: Deno.TcpConn, buffer: Uint8Array): Promise<void> {
  try {
    while (await connection.read(buffer) !== null);
  } catch {
    // A reset is an end.
  }
}
