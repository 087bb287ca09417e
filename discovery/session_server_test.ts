import { deepStrictEqual as equal } from "node:assert/strict";
import { encodeLookupIdentify, MAGIC_V1, PING_COMMAND } from "@sluice/shared/protocol";
import { type Connection, ConnectionError } from "@sluice/shared/runtime";
import { Logger } from "@sluice/shared/telemetry";
import { settle, SimClock, SimNetwork } from "@sluice/shared/testing";
import { Registry } from "./registry.ts";
import { SessionCounters } from "./session.ts";
import { LINGER_MS_MAX, SessionServer, WRITE_TIMEOUT_MS } from "./session_server.ts";

const IDLE_MS = 300_000;

function newServer(connectionsMax = 10, bufferBytesMax = 65_536) {
  const clock = new SimClock();
  const network = new SimNetwork({ bufferBytesMax });
  const registry = new Registry({ inactiveTimeoutMs: IDLE_MS, tombstoneLifetimeMs: 45_000 });
  const server = {
    broadcastAddress: "l",
    hostname: "l",
    httpPort: 1,
    tcpPort: 2,
    version: "1.3.0",
  };
  const broken: unknown[] = [];
  const sessions = new SessionServer({
    listener: network.listen("127.0.0.1", 4160),
    clock,
    logger: new Logger({ sink: () => {}, clock }),
    context: { registry, server, counters: new SessionCounters() },
    idleTimeoutMs: IDLE_MS,
    connectionsMax,
    onBroken: (error) => broken.push(error),
  });
  const connect = () => network.connect("127.0.0.1", 4160, 1_000);
  const finish = async () => {
    await sessions.close();
    equal([broken, clock.pendingTimers, sessions.connectionCount], [[], 0, 0]);
  };
  return { clock, network, registry, sessions, connect, finish };
}

const HELLO = new Uint8Array([
  ...MAGIC_V1,
  ...encodeLookupIdentify({
    broadcastAddress: "b",
    hostname: "b",
    httpPort: 1,
    tcpPort: 2,
    version: "1.3.0",
    topologyRegion: "",
    topologyZone: "",
  }),
]);

/** Bytes until the end of the stream, at most one buffer full. */
async function readAll(connection: Connection): Promise<number> {
  let total = 0;
  const buffer = new Uint8Array(4_096);
  while (true) {
    const count = await connection.read(buffer);
    if (count === null) return total;
    total += count;
  }
}

Deno.test("SessionServer closes a connection that sends nothing for the idle timeout", async () => {
  const { clock, registry, connect, finish } = newServer();
  const connection = await connect();
  await connection.writeAll(HELLO);
  await clock.run(IDLE_MS - 1);
  await connection.writeAll(PING_COMMAND);
  await clock.run(IDLE_MS - 1);
  equal(registry.producerCount, 1);
  await clock.run(1);
  equal(registry.producerCount, 0);
  equal(await readAll(connection) > 0, true);
  connection.close();
  await finish();
});

Deno.test("SessionServer closes a connection that does not take its replies", async () => {
  const { clock, registry, connect, finish } = newServer(10, 16);
  const connection = await connect();
  const sending = connection.writeAll(HELLO).catch((error) => error);
  await clock.run(WRITE_TIMEOUT_MS - 1);
  equal(registry.producerCount, 1);
  await clock.run(1);
  equal(registry.producerCount, 0);
  await sending;
  connection.close();
  await finish();
});

Deno.test("SessionServer closes a connection above the cap at once and counts it", async () => {
  const { sessions, connect, finish } = newServer(1);
  const first = await connect();
  const second = await connect();
  await settle();
  equal(await readAll(second), 0);
  equal([sessions.connectionCount, sessions.acceptedCount, sessions.refusedCount], [1, 1, 1]);
  first.close();
  await settle();
  const third = await connect();
  await third.writeAll(HELLO);
  await settle();
  equal([sessions.connectionCount, sessions.acceptedCount, sessions.refusedCount], [1, 2, 1]);
  second.close();
  third.close();
  await finish();
});

Deno.test("SessionServer removes what a connection registered when it breaks", async () => {
  const { network, registry, connect, finish } = newServer();
  const connection = await connect();
  await connection.writeAll(HELLO);
  await settle();
  equal(registry.producerCount, 1);
  connection.close();
  await settle();
  equal([registry.producerCount, network.openEnds], [0, 0]);
  await finish();
});

Deno.test("SessionServer writes its last word before it closes", async () => {
  const { connect, finish } = newServer();
  const connection = await connect();
  await connection.writeAll(new TextEncoder().encode("  V9"));
  await settle();
  equal(await readAll(connection), 4 + "E_BAD_PROTOCOL".length);
  connection.close();
  await finish();
});

Deno.test("SessionServer.close() ends open connections and refuses new ones", async () => {
  const { registry, connect, finish } = newServer();
  const connection = await connect();
  await connection.writeAll(HELLO);
  await settle();
  await finish();
  equal(registry.producerCount, 0);
  equal(await readAll(connection) > 0, true);
  connection.close();
  equal(await connect().catch((error) => error instanceof ConnectionError), true);
});

Deno.test("SessionServer passes an error of ours on instead of going quiet", async () => {
  const clock = new SimClock();
  const broken: unknown[] = [];
  const failure = new TypeError("accept is not what it was");
  const sessions = new SessionServer({
    listener: {
      hostname: "h",
      port: 1,
      accept: () => Promise.reject(failure),
      close: () => {},
    },
    clock,
    logger: new Logger({ sink: () => {}, clock }),
    context: {
      registry: new Registry({ inactiveTimeoutMs: 1, tombstoneLifetimeMs: 1 }),
      server: { broadcastAddress: "l", hostname: "l", httpPort: 1, tcpPort: 2, version: "1" },
      counters: new SessionCounters(),
    },
    idleTimeoutMs: 1,
    connectionsMax: 1,
    onBroken: (error) => broken.push(error),
  });
  await sessions.close();
  equal(broken, [failure]);
});

Deno.test("after an error what still comes is dropped for a second, and the broker reads the error", async () => {
  const { clock, registry, connect, finish } = newServer();
  const connection = await connect();
  await connection.writeAll(new Uint8Array([...HELLO, ...new TextEncoder().encode("FOO\n")]));
  await settle();
  for (let sent = 0; sent < 4; sent++) await connection.writeAll(PING_COMMAND);
  // The reply to IDENTIFY and the error, then the end; the broker is forgotten at once.
  equal(await readAll(connection) > 0, true);
  equal(registry.producerCount, 0);
  await clock.run(LINGER_MS_MAX);
  await settle();
  let isClosed = false;
  await connection.writeAll(PING_COMMAND).catch(() => isClosed = true);
  equal(isClosed, true);
  connection.close();
  await finish();
});
