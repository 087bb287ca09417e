/** The real HTTP client against real servers on this machine. */
import { deepStrictEqual as equal, match, ok, rejects } from "node:assert/strict";
import { HttpAskError, type HttpQuestion } from "./http_client.ts";
import { serveHttp } from "./system_http.ts";
import { askHttp, KeptHttp, streamHttp } from "./system_http_client.ts";

const BOUNDS = { connectTimeoutMs: 5_000, timeoutMs: 5_000, bodyBytesMax: 100 };

function question(port: number, more: Partial<HttpQuestion> = {}): HttpQuestion {
  return {
    method: "GET",
    url: `http://127.0.0.1:${port}/a?secret=opensesame`,
    headers: {},
    ...more,
  };
}

async function serving(
  handler: (request: Request) => Response | Promise<Response>,
  test: (port: number) => Promise<void>,
): Promise<void> {
  const server = Deno.serve({ hostname: "127.0.0.1", port: 0, onListen: () => {} }, handler);
  try {
    await test(server.addr.port);
  } finally {
    await server.shutdown();
  }
}

/** A server that says `bytes` to whoever connects, and then nothing until the client leaves. */
async function saying(bytes: string, test: (port: number) => Promise<void>): Promise<void> {
  const listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const served = (async () => {
    for await (const connection of listener) {
      await connection.write(new TextEncoder().encode(bytes)).catch(() => {});
      // Until the client gives up.
      while (await connection.read(new Uint8Array(1000)).catch(() => null) !== null);
      connection.close();
    }
  })();
  try {
    await test(listener.addr.port);
  } finally {
    listener.close();
    await served;
  }
}

Deno.test("askHttp() sends method, headers and body, and gives back status and body", async () => {
  const handler = async (request: Request) => {
    const { method, headers, url } = request;
    const { search } = new URL(url);
    const text = `${method} ${search} ${headers.get("x-a")} ${await request.text()}`;
    return new Response(text, { status: method === "GET" ? 200 : 403 });
  };
  await serving(handler, async (port) => {
    const decoder = new TextDecoder();
    const got = await askHttp(question(port, { headers: { "X-A": "b" } }), BOUNDS);
    equal([got.status, decoder.decode(got.body)], [200, "GET ?secret=opensesame b "]);
    const body = new TextEncoder().encode("{}");
    const posted = await askHttp(question(port, { method: "POST", body }), BOUNDS);
    equal([posted.status, decoder.decode(posted.body)], [403, "POST ?secret=opensesame null {}"]);
  });
});

Deno.test("askHttp() does not follow a redirect", async () => {
  const headers = { Location: "http://127.0.0.1:1/" };
  await serving(() => new Response(null, { status: 302, headers }), async (port) => {
    equal((await askHttp(question(port), BOUNDS)).status, 302);
  });
});

Deno.test("askHttp() takes an answer of exactly the bytes allowed, and gives up beyond", async () => {
  for (const [bytes, isTaken] of [[100, true], [101, false], [10_000_000, false]] as const) {
    await serving(() => new Response("x".repeat(bytes)), async (port) => {
      const asked = askHttp(question(port), BOUNDS);
      if (isTaken) equal((await asked).body.length, bytes);
      else await rejects(asked, /^HttpAskError: the answer has more than 100 bytes$/);
    });
  }
});

Deno.test("askHttp() rejects with what went wrong, and never with the question", async () => {
  const refused = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const { port } = refused.addr;
  refused.close();
  const rows: readonly (readonly [string | null, RegExp])[] = [
    [null, /ECONNREFUSED/],
    ["", /no whole answer within 50 ms/],
    ["HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhalf", /no whole answer within 50 ms/],
    ["HTTP/1.1 200 OK\r\n", /no whole answer within 50 ms/],
    ["opensesame is not HTTP\r\n\r\n", /the connection failed/],
  ];
  for (const [bytes, reason] of rows) {
    const test = async (port: number) => {
      const failed = askHttp(question(port), { ...BOUNDS, timeoutMs: 50 });
      const error: unknown = await failed.catch((error) => error);
      equal(error instanceof HttpAskError, true, String(error));
      match(String(error), reason);
      equal(/opensesame|127\.0\.0\.1/.test(Deno.inspect(error)), false);
    };
    if (bytes === null) await test(port);
    else await saying(bytes, test);
  }
});

Deno.test("KeptHttp asks one server over one connection, also after an answer that was too long", async () => {
  const peers = new Set<string>();
  let body = "short";
  const server = serveHttp({
    hostname: "127.0.0.1",
    port: 0,
    handler: (_request, remoteAddress) => {
      peers.add(remoteAddress);
      return new Response(body);
    },
    onError: () => new Response(null, { status: 500 }),
  });
  const http = new KeptHttp();
  const question = { method: "GET", url: `http://127.0.0.1:${server.port}/`, headers: {} } as const;
  const bounds = { connectTimeoutMs: 5_000, timeoutMs: 5_000, bodyBytesMax: 10 };
  for (let index = 0; index < 5; index++) {
    equal(new TextDecoder().decode((await http.ask(question, bounds)).body), "short");
  }
  equal(peers.size, 1);
  body = "longer than allowed";
  await rejects(http.ask(question, bounds), HttpAskError);
  body = "short";
  equal((await http.ask(question, bounds)).status, 200);
  ok(peers.size <= 2);
  http.close();
  await server.shutdown();
});

const STREAM_BOUNDS = { connectTimeoutMs: 5_000, headTimeoutMs: 5_000 };

function streamed(port: number, bounds = STREAM_BOUNDS, signal = new AbortController().signal) {
  return streamHttp({ url: question(port).url, headers: { Accept: "a/b" } }, bounds, signal);
}

Deno.test("streamHttp() gives bytes as they come, and null at the end of a whole answer", async () => {
  let send: ReadableStreamDefaultController<Uint8Array> | undefined;
  const handler = ({ headers }: Request) => {
    const body = new ReadableStream<Uint8Array>({
      start: (controller) => void (send = controller),
    });
    return new Response(body, { status: headers.get("accept") === "a/b" ? 203 : 400 });
  };
  await serving(handler, async (port) => {
    const stream = await streamed(port);
    equal(stream.status, 203);
    for (const text of ["a", "bcd"]) {
      send?.enqueue(new TextEncoder().encode(text));
      const bytes = await stream.read();
      equal(new TextDecoder().decode(bytes ?? undefined), text);
    }
    send?.close();
    equal([await stream.read(), await stream.read()], [null, null]);
    stream.close();
  });
});

Deno.test("streamHttp() can be closed at any time: before the answer, within a read, and between reads", async () => {
  await saying("", async (port) => {
    const early = new AbortController();
    early.abort();
    await rejects(streamed(port, STREAM_BOUNDS, early.signal), /^HttpAskError: .* was closed$/);
    const stop = new AbortController();
    const opening = streamed(port, STREAM_BOUNDS, stop.signal);
    queueMicrotask(() => stop.abort());
    await rejects(opening, /^HttpAskError: the connection was closed$/);
  });
  const head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
  await saying(`${head}1\r\na\r\n`, async (port) => {
    const stream = await streamed(port);
    equal((await stream.read())?.length, 1);
    const lost = rejects(
      stream.read(),
      /^HttpAskError: the connection was lost within the answer$/,
    );
    stream.close();
    await lost;
    await rejects(stream.read(), HttpAskError);
    stream.close();
    (await streamed(port)).close();
  });
});

Deno.test("streamHttp() leaves with the server what is not read", async () => {
  let sentBytes = 0;
  let cancelled = () => {};
  const ended = new Promise<void>((resolve) => cancelled = resolve);
  const pull = (controller: ReadableStreamDefaultController<Uint8Array>) => {
    sentBytes += 65_536;
    controller.enqueue(new Uint8Array(65_536));
  };
  const handler = () => new Response(new ReadableStream({ pull, cancel: () => cancelled() }));
  await serving(handler, async (port) => {
    const stream = await streamed(port);
    equal(stream.status, 200);
    for (let before = -1; before !== sentBytes;) {
      before = sentBytes;
      await askHttp(question(1), BOUNDS).catch(() => {}); // Turns of the event loop.
    }
    ok(sentBytes < 64 * 2 ** 20, `${sentBytes}`);
    stream.close();
    await ended;
  });
});

Deno.test("streamHttp() rejects with what went wrong, and never with the question", async () => {
  const refused = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const { port } = refused.addr;
  refused.close();
  const bounds = { ...STREAM_BOUNDS, headTimeoutMs: 50 };
  const rows: readonly (readonly [string | null, RegExp])[] = [
    [null, /ECONNREFUSED/],
    ["", /no answer within 50 ms/],
    ["HTTP/1.1 200 OK\r\n", /no answer within 50 ms/],
    ["opensesame is not HTTP\r\n\r\n", /the connection failed/],
  ];
  for (const [bytes, reason] of rows) {
    const test = async (port: number) => {
      const error: unknown = await streamed(port, bounds).catch((error) => error);
      equal(error instanceof HttpAskError, true, String(error));
      match(String(error), reason);
      equal(/opensesame|127\.0\.0\.1/.test(Deno.inspect(error)), false);
    };
    if (bytes === null) await test(port);
    else await saying(bytes, test);
  }
});
