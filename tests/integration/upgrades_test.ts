/**
 * TLS and compression beside nsqd: the same connections to both, and the same answers from both. What
 * nsqd does is taken from the program itself, so the expectations here are its own.
 */
import { deepStrictEqual as equal, ok } from "node:assert/strict";
import {
  DeflateDecoder,
  DeflateEncoder,
  encodeIdentify,
  encodePub,
  MAGIC_V2,
  readInt32,
  SnappyDecoder,
  SnappyEncoder,
  type StreamDecoder,
  type StreamEncoder,
  utf8Bytes,
} from "@sluice/shared/protocol";
import type { Connection } from "@sluice/shared/runtime";
import { TlsClient, type TlsIdentity, tlsPath } from "@sluice/shared/testing";
import { LOOPBACK, startPeer, testWithNsq } from "./nsq.ts";
import { Service, TemporaryFolder } from "./process.ts";

/** What a client asks for and does. */
interface Play {
  readonly identify: Readonly<Record<string, unknown>>;
  /** The certificate that it shows. */
  readonly identity?: TlsIdentity;
  /** Sent instead of IDENTIFY. */
  readonly first?: Uint8Array;
}

const PUBLISH = encodePub("orders", utf8Bytes("0123456789abcdef".repeat(8000)));
const FIELDS = ["tls_v1", "snappy", "deflate", "deflate_level", "max_deflate_level"];
const TLS_FLAGS = [
  `--tls-cert=${tlsPath("server.pem")}`,
  `--tls-key=${tlsPath("server.key")}`,
  `--tls-root-ca-file=${tlsPath("ca.pem")}`,
  "--https-address=127.0.0.1:0",
];

/** Frames out of a stream that may be compressed, and bytes into it. */
class Wire {
  readonly #connection: Pick<Connection, "read" | "writeAll">;
  #layer: { readonly encoder: StreamEncoder; readonly decoder: StreamDecoder } | null = null;

  constructor(connection: Pick<Connection, "read" | "writeAll">) {
    this.#connection = connection;
  }

  compress(encoder: StreamEncoder, decoder: StreamDecoder): void {
    this.#layer = { encoder, decoder };
  }

  async send(bytes: Uint8Array): Promise<void> {
    await this.#connection.writeAll(await this.#layer?.encoder.encode(bytes) ?? bytes);
  }

  /** The text of the next frame, or `end`. */
  async next(): Promise<string> {
    const header = await this.#exactly(8);
    if (header === null) return "end";
    const data = await this.#exactly(readInt32(header, 0) - 4);
    return data === null ? "end" : new TextDecoder().decode(data);
  }

  close(): void {
    this.#layer?.encoder.close();
    this.#layer?.decoder.close();
  }

  async #exactly(bytes: number): Promise<Uint8Array | null> {
    const into = new Uint8Array(bytes);
    for (let filled = 0; filled < bytes;) {
      const count = await this.#read(into.subarray(filled));
      if (count === null) return null;
      filled += count;
    }
    return into;
  }

  async #read(into: Uint8Array): Promise<number | null> {
    if (this.#layer === null) return await this.#connection.read(into);
    const { decoder } = this.#layer;
    for (;;) {
      const count = await decoder.read(into);
      if (count > 0) return count;
      const received = new Uint8Array(16_384);
      const bytes = await this.#connection.read(received);
      if (bytes === null) return null;
      decoder.feed(received.subarray(0, bytes));
    }
  }
}

/** A connection in clear over a client that can change to TLS. */
function inClear(client: TlsClient): Pick<Connection, "read" | "writeAll"> {
  let rest = new Uint8Array();
  return {
    async read(into) {
      if (rest.length === 0) rest = new Uint8Array(await client.receive());
      if (rest.length === 0) return null;
      const count = Math.min(into.length, rest.length);
      into.set(rest.subarray(0, count));
      rest = rest.slice(count);
      return count;
    },
    writeAll: (bytes) => {
      client.send(bytes);
      return Promise.resolve();
    },
  };
}

/** What a server answers, step by step. */
async function transcript(port: number, { identify, identity, first }: Play): Promise<string[]> {
  const client = await TlsClient.connect(port);
  const lines: string[] = [];
  const clear = new Wire(inClear(client));
  await clear.send(MAGIC_V2);
  await clear.send(first ?? encodeIdentify({ feature_negotiation: true, ...identify }));
  const reply = await clear.next();
  lines.push(reply.startsWith("{") ? settled(reply) : reply);
  if (reply.startsWith("{")) {
    try {
      const negotiated = JSON.parse(reply);
      let wire = clear;
      let connection: Connection | null = null;
      if (negotiated.tls_v1 === true) {
        connection = await client.startTls(identity);
        wire = new Wire(connection);
        lines.push(await wire.next());
      }
      // A client of TLS 1.3 may learn of its refusal only when it reads.
      if (!lines.includes("end")) {
        if (negotiated.snappy === true) wire.compress(new SnappyEncoder(), new SnappyDecoder());
        if (negotiated.deflate === true) wire.compress(new DeflateEncoder(6), new DeflateDecoder());
        if (negotiated.snappy === true || negotiated.deflate === true) {
          lines.push(await wire.next());
        }
        await wire.send(PUBLISH);
        lines.push(await wire.next());
      }
      wire.close();
      connection?.close();
    } catch {
      lines.push("no handshake");
    }
  }
  await client.close();
  return lines.map((line) => line === "end" && identify.tls_v1 === true ? "no handshake" : line);
}

function settled(reply: string): string {
  const values = JSON.parse(reply);
  return FIELDS.map((field) => `${field}=${values[field]}`).join(" ");
}

/** Plays to nsqd and to our broker, started with the same flags; both give the same. */
async function compare(flags: readonly string[], plays: readonly Play[]): Promise<void> {
  await using ours = await TemporaryFolder.create();
  await using theirs = await TemporaryFolder.create();
  await using broker = await Service.broker(ours.path, flags);
  await using nsqd = await startPeer("nsqd", [...LOOPBACK, `--data-path=${theirs.path}`, ...flags]);
  for (const play of plays) {
    const expected = await transcript(nsqd.tcpPort, play);
    equal(await transcript(broker.tcpPort, play), expected, JSON.stringify(play));
    ok(expected.length > 0);
  }
}

const LAYERS = [{}, { snappy: true }, { deflate: true, deflate_level: 3 }, {
  snappy: true,
  deflate: true,
}];

testWithNsq(
  "TLS, Snappy and Deflate in every combination are agreed on and used as by nsqd",
  async () => {
    await compare(TLS_FLAGS, [
      ...LAYERS.map((layers) => ({ identify: layers })),
      ...LAYERS.map((layers) => ({ identify: { ...layers, tls_v1: true } })),
      { identify: { deflate: true, deflate_level: 0 } },
      { identify: { deflate: true, deflate_level: 99 } },
      { identify: { tls_v1: true, snappy: true, feature_negotiation: false } },
    ]);
  },
);

testWithNsq("what a server does not offer is not agreed on, as by nsqd", async () => {
  await compare(["--snappy=false", "--deflate=false"], [
    ...LAYERS.map((layers) => ({ identify: { ...layers, tls_v1: true } })),
  ]);
});

testWithNsq("where TLS is required nothing but IDENTIFY goes before it, as by nsqd", async () => {
  await compare([...TLS_FLAGS, "--tls-required=tcp-https"], [
    { identify: {} },
    { identify: { tls_v1: true } },
    { identify: {}, first: PUBLISH },
    { identify: {}, first: utf8Bytes("SUB orders mail\n") },
    { identify: {}, first: utf8Bytes("NOP\n") },
    { identify: {}, first: utf8Bytes("ASDF\n") },
  ]);
});

for (const policy of ["require", "require-verify"]) {
  testWithNsq(`clients come in by their certificates, policy ${policy}, as by nsqd`, async () => {
    const identify = { tls_v1: true, snappy: true };
    await compare(
      [...TLS_FLAGS, "--tls-required=tcp-https", `--tls-client-auth-policy=${policy}`],
      [
        { identify },
        { identify, identity: "client" },
        { identify, identity: "unsigned" },
      ],
    );
  });
}
