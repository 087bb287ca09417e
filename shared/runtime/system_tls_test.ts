/** Connections that change to TLS, and HTTPS, over real sockets. */
import { deepStrictEqual as equal, match, ok, rejects } from "node:assert/strict";
import { request } from "node:https";
import { tlsAuthority, TlsClient, type TlsIdentity, tlsPair, tlsSettings } from "../testing/mod.ts";
import { type Connection, ConnectionError, type TlsSettings } from "./mod.ts";
import { serveHttps, SystemClock, SystemNetwork } from "./system.ts";

const REPLY = new TextEncoder().encode("in clear");
const TIMEOUT_MS = 10_000;

/** A client and the server's side of it, which has read a first byte and answered it. */
async function met(
  use: (client: TlsClient, server: Connection, close: () => void) => Promise<void>,
  first = new Uint8Array(1),
): Promise<void> {
  const network = new SystemNetwork(new SystemClock());
  const listener = await network.listenUpgradable("127.0.0.1", 0);
  const client = await TlsClient.connect(listener.port);
  const server = await listener.accept();
  listener.close();
  ok(server !== null);
  try {
    client.send(first);
    equal(await server.read(new Uint8Array(1)), 1);
    await server.writeAll(REPLY);
    equal(new TextDecoder().decode(await client.receive()), "in clear");
    await use(client, server, () => server.close());
  } finally {
    server.close();
    await client.close();
  }
}

async function readText(connection: Connection, bytes: number): Promise<string> {
  const buffer = new Uint8Array(bytes);
  for (let filled = 0; filled < bytes;) {
    const read = await connection.read(buffer.subarray(filled));
    ok(read !== null, "the stream goes on");
    filled += read;
  }
  return new TextDecoder().decode(buffer);
}

/** Both sides of a handshake; what the client says of a refusal differs by version, so only that. */
async function handshake(
  settings: TlsSettings,
  identity?: TlsIdentity,
  options = {},
): Promise<Connection["tls"] | string> {
  let outcome: Connection["tls"] | string;
  await met(async (client, server) => {
    const asked = client.startTls(identity, options);
    asked.catch(() => {});
    try {
      const secure = await server.startTls!(settings, TIMEOUT_MS);
      const near = await asked;
      await near.writeAll(new TextEncoder().encode("ping"));
      equal(await readText(secure, 4), "ping");
      await secure.writeAll(new TextEncoder().encode("pong"));
      equal(await readText(near, 4), "pong");
      outcome = secure.tls;
      secure.close();
      equal(await near.read(new Uint8Array(1)), null);
      near.close();
    } catch (error) {
      ok(error instanceof ConnectionError, String(error));
      outcome = "refused";
      // The client finds the connection closed, whatever it believed before.
      await client.close();
    }
  });
  return outcome;
}

Deno.test("a connection changes to TLS 1.3 and to TLS 1.2, and says so", async () => {
  const newest = await handshake(tlsSettings());
  equal(newest, { version: "TLS1.3", cipherSuite: "TLS_AES_256_GCM_SHA384", commonName: "" });
  const older = await handshake(tlsSettings(), undefined, { maxVersion: "TLSv1.2" });
  ok(typeof older === "object");
  equal(older.version, "TLS1.2");
  match(older.cipherSuite, /^TLS_ECDHE_ECDSA_/);
});

Deno.test("a server that takes TLS 1.3 only refuses TLS 1.2", async () => {
  const settings = tlsSettings({ versionMin: "TLSv1.3" });
  equal(await handshake(settings, undefined, { maxVersion: "TLSv1.2" }), "refused");
  ok(typeof await handshake(settings) === "object");
});

const POLICIES: [TlsSettings["clientPolicy"], Record<string, string>][] = [
  ["none", { nobody: "", client: "", unsigned: "" }],
  ["require", { nobody: "refused", client: "test.local", unsigned: "unsigned.local" }],
  [
    "require-verify",
    { nobody: "refused", client: "test.local", unsigned: "refused", expired: "refused" },
  ],
];

for (const [clientPolicy, outcomes] of POLICIES) {
  for (const [who, outcome] of Object.entries(outcomes)) {
    for (const version of ["TLSv1.2", "TLSv1.3"]) {
      Deno.test(`with policy ${clientPolicy}, ${who} comes out as "${outcome}" (${version})`, async () => {
        const identity = who === "nobody" ? undefined : who as TlsIdentity;
        const tls = await handshake(tlsSettings({ clientPolicy }), identity, {
          maxVersion: version,
        });
        equal(typeof tls === "object" ? tls.commonName : tls, outcome);
      });
    }
  }
}

Deno.test("a client whose own authority signed it is refused by another authority", async () => {
  const authorities = tlsPair("unsigned").cert;
  const settings = tlsSettings({ clientPolicy: "require-verify", authorities });
  equal(await handshake(settings, "client"), "refused");
});

Deno.test("what is not a handshake is refused", async () => {
  await met(async (client, server) => {
    client.send(new TextEncoder().encode("PUB topic\n\0\0\0\x01x"));
    await rejects(server.startTls!(tlsSettings(), TIMEOUT_MS), ConnectionError);
    await rejects(server.read(new Uint8Array(1)), ConnectionError);
  });
});

Deno.test("bytes that came in clear before the handshake are not taken for part of it", async () => {
  await met(async (client, server) => {
    const asked = client.startTls();
    asked.catch(() => {});
    await rejects(
      server.startTls!(tlsSettings(), TIMEOUT_MS),
      /there are bytes in clear before the handshake/,
    );
  }, new Uint8Array(2));
});

Deno.test("a handshake that does not come ends in time", async () => {
  await met(async (_client, server) => {
    await rejects(server.startTls!(tlsSettings(), 20), /no handshake within 20 ms/);
  });
});

Deno.test("a handshake whose client has gone ends in time", async () => {
  await met(async (client, server) => {
    const upgrading = server.startTls!(tlsSettings(), 20);
    await client.close();
    await rejects(upgrading, ConnectionError);
  });
});

Deno.test("a handshake ends at once when the server closes the connection", async () => {
  await met(async (_client, server, close) => {
    const upgrading = server.startTls!(tlsSettings(), TIMEOUT_MS);
    close();
    await rejects(upgrading, /the connection is closed/);
  });
});

Deno.test("a certificate that is none fails the handshake, not the service", async () => {
  await met(async (client, server) => {
    client.startTls().catch(() => {});
    const upgrading = server.startTls!(tlsSettings({ certificate: "nonsense" }), TIMEOUT_MS);
    await rejects(upgrading, ConnectionError);
  });
});

Deno.test("megabytes go through TLS in both directions at once, and the end arrives", async () => {
  await met(async (client, server) => {
    const [near, far] = await Promise.all([
      client.startTls(),
      server.startTls!(tlsSettings(), TIMEOUT_MS),
    ]);
    const bytes = new Uint8Array(3_000_000).map((_, index) => index * 7 >>> 3);
    const received = async (connection: Connection) => {
      const buffer = new Uint8Array(bytes.length + 1);
      let filled = 0;
      for (let read; (read = await connection.read(buffer.subarray(filled))) !== null;) {
        filled += read;
        if (filled === bytes.length && connection === near) break;
      }
      return buffer.subarray(0, filled);
    };
    const sending = (async () => {
      await near.writeAll(bytes);
      near.closeWrite();
    })();
    const [atFar, atNear] = await Promise.all([
      received(far),
      received(near),
      far.writeAll(bytes),
      sending,
    ]);
    ok(areEqual(atFar, bytes) && areEqual(atNear, bytes));
    far.close();
    near.close();
  });
});

function areEqual(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && a.every((byte, index) => byte === b[index]);
}

interface Asked {
  readonly identity?: TlsIdentity;
  readonly method?: string;
  readonly path?: string;
  readonly body?: string;
}

/** An HTTPS request on a connection of its own: status, type and body, or "refused". */
function ask(port: number, { identity, method = "GET", path = "/", body }: Asked): Promise<string> {
  return new Promise((resolve) => {
    const asking = request({
      port,
      host: "127.0.0.1",
      path,
      method,
      agent: false,
      ca: tlsAuthority(),
      servername: "localhost",
      ...(identity === undefined ? {} : tlsPair(identity)),
    }, (response) => {
      let text = `${response.statusCode} ${response.headers["content-type"]} `;
      response.on("data", (part) => text += part);
      response.on("end", () => resolve(text));
    });
    asking.on("error", () => resolve("refused"));
    asking.end(body);
  });
}

async function serving(
  settings: TlsSettings,
  use: (
    port: number,
    server: Awaited<ReturnType<typeof serveHttps>>,
  ) => Promise<void>,
): Promise<void> {
  const abort = new AbortController();
  const server = await serveHttps({
    hostname: "127.0.0.1",
    port: 0,
    handler: async (request, remoteAddress) => {
      const { pathname, search } = new URL(request.url);
      if (pathname === "/throw") throw new Error("a mistake");
      if (pathname === "/large") return new Response("x".repeat(3_000_000));
      ok(remoteAddress.startsWith("127.0.0.1:"));
      return new Response(`${request.method} ${pathname}${search} ${await request.text()}`);
    },
    onError: () => new Response("sorry", { status: 500 }),
    signal: abort.signal,
  }, settings);
  try {
    await use(server.port, server);
  } finally {
    const stopped = server.shutdown();
    abort.abort();
    await stopped;
  }
}

Deno.test("HTTPS hands requests to the handler and answers with what it gives", async () => {
  await serving(tlsSettings(), async (port) => {
    equal(
      await ask(port, { method: "POST", path: "/a?b=%20c", body: "body" }),
      "200 text/plain;charset=UTF-8 POST /a?b=%20c body",
    );
    equal(await ask(port, { path: "/throw" }), "500 text/plain;charset=UTF-8 sorry");
    ok((await ask(port, { path: "/large" })).length > 3_000_000);
    const large = "y".repeat(3_000_000);
    ok((await ask(port, { method: "POST", body: large })).endsWith(large));
  });
});

for (const [clientPolicy, outcomes] of POLICIES) {
  Deno.test(`HTTPS with policy ${clientPolicy} lets in whom it should`, async () => {
    await serving(tlsSettings({ clientPolicy }), async (port) => {
      for (const [who, outcome] of Object.entries(outcomes)) {
        const answer = await ask(port, who === "nobody" ? {} : { identity: who as TlsIdentity });
        equal(answer === "refused", outcome === "refused", who);
      }
    });
  });
}

Deno.test("HTTPS goes on after what is no handshake, and uses a renewed certificate", async () => {
  await serving(tlsSettings(), async (port, server) => {
    const client = await TlsClient.connect(port);
    client.send(new TextEncoder().encode("GET / HTTP/1.1\r\n\r\n"));
    await client.receive();
    await client.close();
    const serial = async () => {
      const plain = await TlsClient.connect(port);
      let found = "";
      const secure = await plain.startTls(undefined, {
        checkServerIdentity: (_host, certificate) => {
          found = certificate.serialNumber;
          return undefined;
        },
      });
      secure.close();
      await plain.close();
      return found;
    };
    const before = await serial();
    const { cert, key } = tlsPair("renewed");
    server.renew(tlsSettings({ certificate: cert, key }));
    const after = await serial();
    ok(before !== "" && after !== "" && before !== after, `${before} then ${after}`);
  });
});

Deno.test("HTTPS uses renewed authorities", async () => {
  const other = tlsPair("unsigned").cert;
  const settings = tlsSettings({ clientPolicy: "require-verify", authorities: other });
  await serving(settings, async (port, server) => {
    equal(await ask(port, { identity: "client" }), "refused");
    server.renew(tlsSettings({ clientPolicy: "require-verify" }));
    equal(await ask(port, { identity: "client" }), "200 text/plain;charset=UTF-8 GET / ");
    equal(await ask(port, { identity: "expired" }), "refused");
  });
});

Deno.test("HTTPS closes a connection beyond the limit as it comes, and takes one again later", async () => {
  const abort = new AbortController();
  const server = await serveHttps({
    hostname: "127.0.0.1",
    port: 0,
    handler: () => new Response("served"),
    onError: () => new Response(null, { status: 500 }),
    connectionsMax: 2,
    signal: abort.signal,
  }, tlsSettings());
  const silent = await Promise.all([1, 2].map(() => TlsClient.connect(server.port)));
  try {
    const third = await TlsClient.connect(server.port);
    equal((await third.receive()).length, 0, "it is closed");
    await silent[0]!.close();
    let answer = "";
    while (!answer.includes("served")) answer = await ask(server.port, {});
  } finally {
    await Promise.all(silent.map((client) => client.close()));
    const stopped = server.shutdown();
    abort.abort();
    await stopped;
  }
});
