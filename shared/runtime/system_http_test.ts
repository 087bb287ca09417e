import { equal, match, ok, rejects, throws } from "node:assert/strict";
import { AddressInUseError } from "./connection.ts";
import type { HttpServer, ServeHttpOptions } from "./http_server.ts";
import { SystemClock } from "./system_clock.ts";
import { serveHttp } from "./system_http.ts";
import { SystemNetwork } from "./system_network.ts";

async function withServer(
  options: Partial<ServeHttpOptions>,
  use: (server: HttpServer, url: string) => Promise<void>,
): Promise<void> {
  const server = serveHttp({
    hostname: "127.0.0.1",
    port: 0,
    handler: () => new Response("hello"),
    onError: () => new Response("failed", { status: 500 }),
    ...options,
  });
  try {
    await use(server, `http://127.0.0.1:${server.port}`);
  } finally {
    await server.shutdown();
  }
}

/** Sends bytes to the server and returns all it answers before it closes. */
async function exchange(server: HttpServer, text: string): Promise<string> {
  const network = new SystemNetwork(new SystemClock());
  const connection = await network.connect(server.hostname, server.port, 5_000);
  try {
    await connection.writeAll(new TextEncoder().encode(text));
    const into = new Uint8Array(4096);
    let answer = "";
    for (;;) {
      const count = await connection.read(into);
      if (count === null) return answer;
      answer += new TextDecoder().decode(into.subarray(0, count));
    }
  } finally {
    connection.close();
  }
}

Deno.test("serveHttp() answers through its handler, which knows the peer", async () => {
  const handler = async (request: Request, remoteAddress: string) =>
    new Response(`${request.method} ${await request.text()} ${remoteAddress}`);
  await withServer({ handler }, async (server, url) => {
    equal(server.hostname, "127.0.0.1");
    const response = await fetch(url, { method: "POST", body: "body" });
    match(await response.text(), /^POST body 127\.0\.0\.1:\d+$/);
  });
});

Deno.test("serveHttp() answers through onError when the handler throws", async () => {
  const handler = () => {
    throw new Error("secret");
  };
  const seen: unknown[] = [];
  const onError = (error: unknown) => {
    seen.push(error);
    return new Response("sorry", { status: 500 });
  };
  await withServer({ handler, onError }, async (_server, url) => {
    const response = await fetch(url);
    equal(response.status, 500);
    equal(await response.text(), "sorry");
    match(String(seen[0]), /secret/);
  });
});

for (
  const garbage of ["  V2", "  V2IDENTIFY\n\x00\x00\x00\x02{}", "hello\r\n\r\n", "\x16\x03\x01"]
) {
  Deno.test(`serveHttp() answers 400 to what is not HTTP: ${JSON.stringify(garbage)}`, async () => {
    await withServer({}, async (server) => {
      match(await exchange(server, garbage), /^HTTP\/1\.1 400 /);
    });
  });
}

Deno.test("serveHttp() throws AddressInUseError on a taken port", async () => {
  await withServer({}, (server) => {
    throws(
      () => withServerSync(server.port),
      (error) => error instanceof AddressInUseError && error.port === server.port,
    );
    return Promise.resolve();
  });
});

Deno.test("shutdown() waits for a request under way and refuses new ones", async () => {
  const started = Promise.withResolvers<void>();
  const release = Promise.withResolvers<void>();
  const handler = async () => {
    started.resolve();
    await release.promise;
    return new Response("late");
  };
  await withServer({ handler }, async (server, url) => {
    const answering = fetch(url).then((response) => response.text());
    await started.promise;
    let done = false;
    const stopping = server.shutdown().then(() => {
      done = true;
    });
    await rejects(fetch(url));
    equal(done, false);
    release.resolve();
    equal(await answering, "late");
    await stopping;
  });
});

Deno.test("the signal cuts off a request that never ends", async () => {
  const abort = new AbortController();
  const started = Promise.withResolvers<void>();
  const never = Promise.withResolvers<Response>();
  const handler = () => {
    started.resolve();
    return never.promise;
  };
  await withServer({ handler, signal: abort.signal }, async (server, url) => {
    const answering = rejects(fetch(url));
    await started.promise;
    abort.abort();
    await answering;
    never.resolve(new Response("nobody hears it"));
    await server.shutdown();
    ok(server.port > 0);
  });
});

Deno.test("the signal ends a shutdown that waits for a body that never comes", async () => {
  const abort = new AbortController();
  const started = Promise.withResolvers<void>();
  const handler = async (request: Request) => {
    started.resolve();
    await request.text();
    return new Response("not reached");
  };
  await withServer({ handler, signal: abort.signal }, async (server) => {
    const network = new SystemNetwork(new SystemClock());
    const connection = await network.connect(server.hostname, server.port, 5_000);
    const head = "POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 9\r\n\r\n";
    await connection.writeAll(new TextEncoder().encode(`${head}half`));
    await started.promise;
    let done = false;
    const stopping = server.shutdown().then(() => {
      done = true;
    });
    // A new connection is refused: the shutdown has begun.
    await rejects(network.connect(server.hostname, server.port, 5_000));
    equal(done, false);
    abort.abort();
    await stopping;
    connection.close();
  });
});

function withServerSync(port: number): HttpServer {
  return serveHttp({
    hostname: "127.0.0.1",
    port,
    handler: () => new Response(),
    onError: () => new Response(),
  });
}

/** A server in a process of its own that may have few files open; it tells its port, then failures. */
const SMALL_SERVER = `
  import { serveHttp } from ${JSON.stringify(new URL("./system_http.ts", import.meta.url).href)};
  const server = serveHttp({
    hostname: "127.0.0.1",
    port: 0,
    handler: () => new Response(String(server.acceptFailureCount)),
    onError: () => new Response(),
  });
  console.log(server.port);
`;

Deno.test("serveHttp() drops what is open when it has no descriptors left, and goes on", async () => {
  const child = new Deno.Command("bash", {
    args: ["-c", 'ulimit -n 64 && exec "$0" eval --no-lock "$1"', Deno.execPath(), SMALL_SERVER],
    stdout: "piped",
  }).spawn();
  const flood: Deno.Conn[] = [];
  try {
    const reader = child.stdout.getReader();
    const port = Number(new TextDecoder().decode((await reader.read()).value));
    await reader.cancel();
    const url = `http://127.0.0.1:${port}`;
    equal(await (await fetch(url)).text(), "0");
    // The system takes connections for the server until that has failed: then they are refused.
    while (true) {
      const opened = await Deno.connect({ port }).catch(() => null);
      if (opened === null) break;
      flood.push(opened);
    }
    // None of them is closed from this side.
    let failures: string | undefined;
    while (failures === undefined) {
      failures = await fetch(url).then((answer) => answer.text(), () => undefined);
    }
    ok(Number(failures) > 0, failures);
  } finally {
    for (const connection of flood) connection.close();
    child.kill("SIGKILL");
    await child.status;
  }
});

Deno.test("peers that never end what they send keep neither others nor a shutdown waiting", async () => {
  const abort = new AbortController();
  const server = serveHttp({
    hostname: "127.0.0.1",
    port: 0,
    handler: (request) => new Response(new URL(request.url).pathname),
    onError: () => new Response("", { status: 500 }),
    signal: abort.signal,
  });
  const slow = await Promise.all(
    ["", "GET / HTTP/1.1\r\nHost: x\r\n", "POST /slow HTTP/1.1\r\nContent-Length: 9\r\n\r\nabc"]
      .map(async (text) => {
        const connection = await Deno.connect({ port: server.port });
        await connection.write(new TextEncoder().encode(text));
        return connection;
      }),
  );
  equal(await (await fetch(`http://127.0.0.1:${server.port}/quick`)).text(), "/quick");
  const stopped = server.shutdown();
  abort.abort();
  await stopped;
  for (const connection of slow) connection.close();
});
