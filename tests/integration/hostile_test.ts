/**
 * Clients that hold a connection without being of any use: they send a byte now and then, half a
 * magic, lines that never end, or nothing at all. They cost little and delay nobody.
 */
import { equal, ok } from "node:assert/strict";
import { idleConnections } from "./idle_connections.ts";
import { Service, TemporaryFolder } from "./process.ts";
import { closeQuietly, connectQuietly, join, RawClient, sized, text } from "./raw_client.ts";
import { eventually, staysTrue, within } from "./wait.ts";

const MIB = 2 ** 20;
const FLAGS = ["--ring-bytes=16MiB", "--page-cache-bytes=8MiB", "--max-body-size=4MiB"];
const RESIDENT_BYTES_MAX = 300 * MIB;
const DRIP_MS = 300;
const IDLE_CONNECTIONS = 1_000;
/** About twice what a connection takes, so that a buffer kept for each would show. */
const IDLE_BYTES_MAX = 64 * 1024;

/** Resolves when a connection has ended; what comes over it is read. */
async function ended(connection: Deno.TcpConn): Promise<void> {
  const buffer = new Uint8Array(65_536);
  try {
    while (await connection.read(buffer) !== null);
  } catch {
    // A reset is an end.
  }
}

Deno.test("A client that sends one byte per interval is cut off in the middle of a command", async () => {
  await using folder = await TemporaryFolder.create();
  await using broker = await Service.broker(folder.path, FLAGS);
  await using stack = new AsyncDisposableStack();
  const startMs = performance.now();
  const slow: Promise<void>[] = [];
  for (let number = 0; number < 50; number++) {
    const connection = await connectQuietly(broker.tcpPort);
    stack.defer(() => closeQuietly(connection));
    // The shortest heartbeat there is: a command may take two of them.
    const identify = sized(text('{"heartbeat_interval":1000}'));
    await connection.write(join(text("  V2IDENTIFY\n"), identify, text("PUB ord")));
    slow.push(ended(connection));
    const drip = async () => {
      try {
        for (;;) {
          await connection.write(text("x"));
          await staysTrue("time goes by", () => true, DRIP_MS);
        }
      } catch {
        // The connection is gone, as it should be.
      }
    };
    stack.use({ [Symbol.asyncDispose]: () => dripping });
    const dripping = drip();
  }
  await using client = await RawClient.connect(broker.tcpPort);
  await within(
    "publishes beside them",
    Promise.all(
      Array.from({ length: 200 }, (_, number) => client.pub("other", `m${number}`)),
    ),
  );
  await within("the end of all of them", Promise.all(slow));
  const tookMs = performance.now() - startMs;
  // Not before, or it was something else that ended them.
  ok(tookMs > 1_900, `cut off after ${tookMs} ms`);
  equal((await broker.get("/ping")).text, "OK");
});

Deno.test("Half a magic, and connections that say nothing, delay nobody", async () => {
  await using folder = await TemporaryFolder.create();
  await using broker = await Service.broker(folder.path, FLAGS);
  await using stack = new AsyncDisposableStack();
  for (let number = 0; number < 200; number++) {
    const connection = await connectQuietly(broker.tcpPort);
    stack.defer(() => closeQuietly(connection));
    await connection.write(text("  V2".slice(0, number % 4)));
  }
  await using client = await RawClient.connect(broker.tcpPort);
  await within(
    "publishes beside them",
    Promise.all(
      Array.from({ length: 200 }, (_, number) => client.pub("orders", `m${number}`)),
    ),
  );
});

Deno.test("A line that never ends is cut off and costs no memory", async () => {
  await using folder = await TemporaryFolder.create();
  await using broker = await Service.broker(folder.path, FLAGS);
  const chunk = new Uint8Array(MIB).fill(0x78);
  await using stack = new AsyncDisposableStack();
  const ends: Promise<void>[] = [];
  for (let number = 0; number < 32; number++) {
    const connection = await connectQuietly(broker.tcpPort);
    stack.defer(() => closeQuietly(connection));
    ends.push(ended(connection));
    const push = async () => {
      try {
        await connection.write(text("  V2"));
        for (let part = 0; part < 16; part++) {
          for (let at = 0; at < chunk.length;) at += await connection.write(chunk.subarray(at));
        }
      } catch {
        // It was cut off.
      }
    };
    const pushing = push();
    stack.use({ [Symbol.asyncDispose]: () => pushing });
  }
  await within("the end of all of them", Promise.all(ends));
  ok(broker.residentBytesPeak < RESIDENT_BYTES_MAX, `${broker.residentBytesPeak} bytes`);
  await using client = await RawClient.connect(broker.tcpPort);
  await client.pub("orders", "after them");
});

Deno.test("A thousand idle subscribers take little memory each, and messages still come", async () => {
  await using folder = await TemporaryFolder.create();
  await using broker = await Service.broker(folder.path, FLAGS);
  const { bytesEach, deliveredMs, [Symbol.asyncDispose]: dispose } = await idleConnections(
    broker,
    IDLE_CONNECTIONS,
  );
  try {
    ok(bytesEach < IDLE_BYTES_MAX, `${bytesEach} bytes each`);
    ok(deliveredMs < 5_000, `${deliveredMs} ms`);
  } finally {
    await dispose();
  }
  await eventually("all of them to be gone", async () => {
    return (await broker.channel("idle", "all"))?.client_count === 0;
  });
});
