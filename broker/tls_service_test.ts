/** A broker over real sockets: TLS and compression in every combination, HTTPS, client policies. */
import { deepStrictEqual as equal, ok } from "node:assert/strict";
import { request } from "node:https";
import { loadSettings } from "@sluice/shared/config";
import {
  DeflateDecoder,
  DeflateEncoder,
  encodeIdentify,
  encodePub,
  encodeSub,
  MAGIC_V2,
  MESSAGE_BODY_OFFSET,
  readInt32,
  SnappyDecoder,
  SnappyEncoder,
  utf8Bytes,
} from "@sluice/shared/protocol";
import { type Connection, ConnectionError } from "@sluice/shared/runtime";
import { serveHttp, serveHttps, SystemClock, SystemNetwork } from "@sluice/shared/runtime/system";
import { Logger } from "@sluice/shared/telemetry";
import {
  SeededRandom,
  SimDisk,
  tlsAuthority,
  TlsClient,
  type TlsIdentity,
  tlsPair,
  tlsPath,
} from "@sluice/shared/testing";
import { LayeredConnection } from "@sluice/shared/server";
import { brokerSettings } from "./config.ts";
import { Service } from "./service.ts";

const LARGE = "0123456789abcdef".repeat(8_000);
type Compression = "plain" | "snappy" | "deflate";

/** Uses a broker with the certificate of the fixture, and stops it. */
async function withBroker(
  flags: readonly string[],
  use: (service: Service) => Promise<void>,
  disk = new SimDisk(),
): Promise<void> {
  const declaration = brokerSettings("host");
  const { values } = loadSettings(declaration, {
    args: [
      "--ring-bytes=32MiB",
      "--data-path=/data",
      "--tcp-address=127.0.0.1:0",
      "--http-address=127.0.0.1:0",
      "--https-address=127.0.0.1:0",
      `--tls-cert=${tlsPath("server.pem")}`,
      `--tls-key=${tlsPath("server.key")}`,
      `--tls-root-ca-file=${tlsPath("ca.pem")}`,
      ...flags,
    ],
    env: {},
    readFile: () => "",
  });
  const clock = new SystemClock();
  const service = await Service.start(
    { declaration, values, hostname: "host", nodeIdGiven: false },
    {
      disk,
      clock,
      random: new SeededRandom(1),
      network: new SystemNetwork(clock),
      serveHttp,
      serveHttps,
      readTextFile: (path) => Deno.readTextFile(path),
      httpGet: () => Promise.reject(new Error("nobody is asked")),
      askHttp: () => Promise.reject(new Error("nobody is asked")),
      logger: new Logger({ sink: () => {}, clock }),
      memory: () => ({}),
      onBroken: (error) => {
        throw error;
      },
    },
  );
  try {
    await use(service);
  } finally {
    await service.stop();
  }
}

/** A client of the broker, upgraded as it asked. */
class NsqClient {
  readonly connection: LayeredConnection;
  readonly #client: TlsClient;

  private constructor(client: TlsClient, connection: Connection) {
    this.#client = client;
    this.connection = new LayeredConnection(connection);
  }

  /** Upgrades to TLS and then to `compression`, and takes an OK after each. */
  static async connect(
    port: number,
    compression: Compression,
    identity?: TlsIdentity,
    options = {},
  ): Promise<NsqClient> {
    const client = await TlsClient.connect(port);
    const identify = encodeIdentify({
      feature_negotiation: true,
      tls_v1: true,
      snappy: compression === "snappy",
      deflate: compression === "deflate",
    });
    client.send(new Uint8Array([...MAGIC_V2, ...identify]));
    const reply = new TextDecoder().decode((await client.receive()).subarray(8));
    ok(reply.includes('"tls_v1":true'), reply);
    try {
      const self = new NsqClient(client, await client.startTls(identity, options));
      equal(await self.next(), "OK");
      if (compression === "snappy") {
        self.connection.compress("snappy", new SnappyEncoder(), new SnappyDecoder());
      } else if (compression === "deflate") {
        self.connection.compress("deflate", new DeflateEncoder(6), new DeflateDecoder());
      }
      if (compression !== "plain") equal(await self.next(), "OK");
      return self;
    } catch (error) {
      await client.close();
      throw error;
    }
  }

  async send(...parts: (string | Uint8Array)[]): Promise<void> {
    for (const part of parts) {
      await this.connection.writeAll(typeof part === "string" ? utf8Bytes(part) : part);
    }
  }

  /** The text of the next frame, or the body of a message, whose id is put into `ids`. */
  async next(ids: string[] = []): Promise<string> {
    const header = await this.#read(8);
    const data = await this.#read(readInt32(header, 0) - 4);
    const decoder = new TextDecoder();
    if (readInt32(header, 4) !== 2) return decoder.decode(data);
    ids.push(decoder.decode(data.subarray(10, MESSAGE_BODY_OFFSET)));
    return decoder.decode(data.subarray(MESSAGE_BODY_OFFSET));
  }

  async close(): Promise<void> {
    this.connection.close();
    await this.#client.close();
  }

  async #read(bytes: number): Promise<Uint8Array> {
    const buffer = new Uint8Array(bytes);
    for (let filled = 0; filled < bytes;) {
      const count = await this.connection.read(buffer.subarray(filled));
      if (count === null) throw new ConnectionError("the end");
      filled += count;
    }
    return buffer;
  }
}

/** An HTTPS request: status and body, or `refused`. */
function ask(port: number, path: string, identity?: TlsIdentity, body?: string): Promise<string> {
  return new Promise((resolve) => {
    const asking = request({
      port,
      host: "127.0.0.1",
      path,
      method: body === undefined ? "GET" : "POST",
      agent: false,
      ca: tlsAuthority(),
      servername: "localhost",
      ...(identity === undefined ? {} : tlsPair(identity)),
    }, (response) => {
      let text = `${response.statusCode} `;
      response.on("data", (part) => text += part);
      response.on("end", () => resolve(text));
    });
    asking.on("error", () => resolve("refused"));
    asking.end(body);
  });
}

for (const version of ["TLSv1.2", "TLSv1.3"]) {
  for (const compression of ["plain", "snappy", "deflate"] as const) {
    Deno.test(`${version} with ${compression} carries publishes and messages, large ones too`, async () => {
      await withBroker(["--tls-required"], async (service) => {
        const options = { maxVersion: version };
        const writer = await NsqClient.connect(service.tcp.port, compression, undefined, options);
        const reader = await NsqClient.connect(service.tcp.port, compression, undefined, options);
        await reader.send(encodeSub("t", "c"));
        equal(await reader.next(), "OK");
        await reader.send("RDY 10\n");
        const bodies = ["small", LARGE, ...Array.from({ length: 100 }, (_, index) => `m${index}`)];
        for (const body of bodies) await writer.send(encodePub("t", utf8Bytes(body)));
        for (const _ of bodies) equal(await writer.next(), "OK");
        const received: string[] = [];
        for (const _ of bodies) {
          const ids: string[] = [];
          received.push(await reader.next(ids));
          await reader.send(`FIN ${ids[0]}\n`);
        }
        equal(received, bodies);
        const stats = JSON.parse((await ask(service.httpsPort!, "/stats?format=json")).slice(4));
        const [producer] = stats.producers;
        equal(
          [producer.tls, producer.tls_version, producer.snappy, producer.deflate],
          [true, version.replace("v", ""), compression === "snappy", compression === "deflate"],
        );
        await writer.close();
        await reader.close();
      });
    });
  }
}

type Identities = readonly (TlsIdentity | undefined)[];

const POLICIES: readonly (readonly [
  flags: readonly string[],
  allowed: Identities,
  refused: Identities,
])[] = [
  [[], [undefined, "client", "unsigned"], []],
  [["--tls-client-auth-policy=require"], ["client", "unsigned"], [undefined]],
  [
    ["--tls-client-auth-policy=require-verify"],
    ["client"],
    [undefined, "unsigned", "expired"],
  ],
];

for (const [flags, allowed, refused] of POLICIES) {
  Deno.test(`with ${flags[0] ?? "no policy"} clients come in by their certificates, by NSQ and HTTPS`, async () => {
    await withBroker(flags, async (service) => {
      for (const identity of allowed) {
        const client = await NsqClient.connect(service.tcp.port, "plain", identity);
        const [session] = service.tcp.sessions;
        const isAsked = flags.length > 0;
        equal(
          session?.connection.tlsState?.commonName,
          isAsked ? { client: "test.local", unsigned: "unsigned.local" }[identity as "client"] : "",
        );
        await client.close();
        equal(await ask(service.httpsPort!, "/pub?topic=t", identity, "body"), "200 OK");
        // The broker notices the end a moment later.
        while (service.tcp.sessions.size > 0) await new Promise((resolve) => setImmediate(resolve));
      }
      for (const identity of refused) {
        await NsqClient.connect(service.tcp.port, "plain", identity).then(
          () => ok(false, `${identity} is refused`),
          () => {},
        );
        equal(await ask(service.httpsPort!, "/ping", identity), "refused");
      }
    });
  });
}

Deno.test("a verified certificate is an identity over HTTPS, without a token", async () => {
  const disk = new SimDisk();
  const grants = `[[identity]]
name = "test"
certificate = "test.local"
allow = [{ scopes = ["publish"], topics = ["t"] }]
`;
  disk.writeDurable("/grants.toml", utf8Bytes(grants));
  const flags = ["--tls-client-auth-policy=require-verify", "--grants-file=/grants.toml"];
  await withBroker(flags, async (service) => {
    const port = service.httpsPort!;
    equal(await ask(port, "/pub?topic=t", "client", "body"), "200 OK");
    equal(await ask(port, "/pub?topic=u", "client", "body"), '403 {"message":"FORBIDDEN"}');
    equal(await ask(port, "/stats", "client"), '403 {"message":"FORBIDDEN"}');
    equal(await ask(port, "/pub?topic=t", undefined, "body"), "refused");
  }, disk);
});

Deno.test("handshakes that fail or do not come leave the broker as it was", async () => {
  await withBroker([], async (service) => {
    const identify = encodeIdentify({ feature_negotiation: true, tls_v1: true });
    const idle: TlsClient[] = [];
    for (let number = 0; number < 20; number++) {
      const client = await TlsClient.connect(service.tcp.port);
      client.send(new Uint8Array([...MAGIC_V2, ...identify]));
      await client.receive();
      if (number % 2 === 0) idle.push(client);
      else {
        client.send(utf8Bytes("PUB t\n\0\0\0\x01x"));
        equal((await client.receive()).length >= 0, true);
        await client.close();
      }
    }
    const writer = await NsqClient.connect(service.tcp.port, "snappy");
    await writer.send(encodePub("other", utf8Bytes("body")));
    equal(await writer.next(), "OK");
    equal(service.broker.topics.has("t"), false);
    await writer.close();
    for (const client of idle) await client.close();
  });
});

for (const compression of ["plain", "snappy", "deflate"] as const) {
  Deno.test(`a fatal error over TLS with ${compression} reaches a client that still sends`, async () => {
    await withBroker([], async (service) => {
      const client = await NsqClient.connect(service.tcp.port, compression);
      const sending = client.send("ASDF\n", new Uint8Array(500_000)).catch(() => {});
      equal(await client.next(), "E_INVALID invalid command ASDF");
      equal(await client.next().catch((error) => error.message), "the end");
      await sending;
      await client.close();
    });
  });
}
