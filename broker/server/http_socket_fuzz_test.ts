/**
 * Any bytes on the broker's HTTP and HTTPS ports: what reaches the handler is answered, and nothing
 * that a peer sends is an error of the server, which would end the process.
 */
import { deepStrictEqual as equal, ok } from "node:assert/strict";
import { connect } from "node:tls";
import { serveHttp, serveHttps, SystemClock } from "@sluice/shared/runtime/system";
import {
  freshRequest,
  fuzz,
  HTTP_WORDS,
  tlsAuthority,
  tlsSettings,
  wireOf,
} from "@sluice/shared/testing";
import { worldHttp } from "./http_world_test.ts";
import { World } from "./world_test.ts";

const PATHS = ["/ping", "/stats", "/pub", "/mpub", "/config/name", "/v1/health", "*", "http://x/"];
/** Statuses of the handler, and of the servers for what is no HTTP to them. */
const STATUSES = [100, 200, 202, 301, 307, 400, 404, 405, 408, 413, 417, 429, 431];
const REPLY_MS_MAX = 5_000;

fuzz({
  name: "http-sockets",
  corpus: new URL("testdata/fuzz/http_sockets/", import.meta.url),
  words: [...HTTP_WORDS, ...PATHS, "Host: [::1\n", "Host: a/b?c#d\n", "Host: \n", "Upgrade: h2c\n"],
  fresh: (random) => freshRequest(random, PATHS, 2000),
  cases: 40,
  check: (input) =>
    World.use({}, async (world) => {
      const broken: unknown[] = [];
      const handler = worldHttp(world);
      const common = {
        hostname: "127.0.0.1",
        port: 0,
        handler,
        onError: (error: unknown) => {
          broken.push(error);
          return new Response(null, { status: 500 });
        },
      };
      const cutOff = new AbortController();
      const clear = serveHttp({ ...common, signal: cutOff.signal });
      const secure = await serveHttps({ ...common, signal: cutOff.signal }, tlsSettings());
      try {
        const wire = wireOf(input);
        for (const ask of [() => askClear(clear.port, wire), () => askSecure(secure.port, wire)]) {
          const reply = await ask();
          const status = /^HTTP\/1\.[01] (\d{3}) /.exec(reply)?.[1];
          // Nothing at all is an answer to what is no HTTP.
          ok(reply === "" || STATUSES.includes(Number(status)), reply);
        }
        equal(broken, []);
      } finally {
        cutOff.abort();
        await Promise.all([clear.shutdown(), secure.shutdown()]);
      }
    }),
});

/** All that comes back; the stream to the server ends with `wire`. */
async function askClear(port: number, wire: Uint8Array): Promise<string> {
  const connection = await Deno.connect({ hostname: "127.0.0.1", port });
  let isOpen = true;
  const close = () => {
    if (isOpen) connection.close();
    isOpen = false;
  };
  const late = new SystemClock().setTimer(REPLY_MS_MAX, close);
  try {
    const reply = await exchanged(connection, wire);
    ok(isOpen, `no end within ${REPLY_MS_MAX} ms, after ${reply}`);
    return reply;
  } finally {
    late.cancel();
    close();
  }
}

async function exchanged(connection: Deno.TcpConn, wire: Uint8Array): Promise<string> {
  let reply = "";
  const buffer = new Uint8Array(65_536);
  try {
    for (let at = 0; at < wire.length;) at += await connection.write(wire.subarray(at));
    await connection.closeWrite();
    for (let count; (count = await connection.read(buffer)) !== null;) {
      reply += new TextDecoder().decode(buffer.subarray(0, count));
    }
  } catch {
    // A reset is an end too.
  }
  return reply;
}

function askSecure(port: number, wire: Uint8Array): Promise<string> {
  return new Promise((resolve, reject) => {
    let reply = "";
    const socket = connect({
      port,
      host: "127.0.0.1",
      servername: "localhost",
      ca: tlsAuthority(),
    });
    const late = new SystemClock().setTimer(REPLY_MS_MAX, () => {
      socket.destroy();
      reject(new Error(`No end within ${REPLY_MS_MAX} ms, after ${reply}`));
    });
    socket.on("secureConnect", () => socket.end(wire));
    socket.on("data", (chunk) => reply += chunk.toString());
    socket.on("error", () => {});
    socket.on("close", () => {
      late.cancel();
      resolve(reply);
    });
  });
}
