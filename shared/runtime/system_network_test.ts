import { deepEqual, equal, ok, rejects } from "node:assert/strict";
import { settle, SimClock } from "../testing/mod.ts";
import { ConnectionError } from "./connection.ts";
import { SystemClock } from "./system_clock.ts";
import { ACCEPT_RETRY_MS, type Accepts, SystemListener, SystemNetwork } from "./system_network.ts";
import { addressText } from "./system_address.ts";
import { LISTEN_BACKLOG } from "./system_backlog.ts";
import { serveHttp } from "./system_http.ts";

const ADDRESS: Deno.NetAddr = { transport: "tcp", hostname: "127.0.0.1", port: 4150 };

/** A listener whose accepts fail, one call for each error, and then wait until it is closed. */
class FailingListener implements Accepts {
  readonly addr = ADDRESS;
  calls = 0;
  readonly #errors: Error[];
  readonly #closed = Promise.withResolvers<never>();

  constructor(errors: Error[]) {
    this.#errors = errors;
    // Nobody may be waiting when it is closed.
    this.#closed.promise.catch(() => {});
  }

  accept(): Promise<Deno.TcpConn> {
    this.calls++;
    const error = this.#errors.shift();
    return error === undefined ? this.#closed.promise : Promise.reject(error);
  }

  close(): void {
    this.#closed.reject(new Deno.errors.BadResource("closed"));
  }
}

Deno.test("SystemListener.accept() outlives failed accepts, with a wait after each", async () => {
  const clock = new SimClock();
  const inner = new FailingListener([
    new Deno.errors.ConnectionAborted("the peer gave up"),
    Object.assign(new Error("Too many open files"), { code: "EMFILE" }),
  ]);
  const listener = new SystemListener(inner, clock);
  const accepting = listener.accept();
  await clock.run(0);
  equal(inner.calls, 1);
  await clock.run(ACCEPT_RETRY_MS - 1);
  equal(inner.calls, 1);
  await clock.run(1);
  equal(inner.calls, 2);
  await clock.run(ACCEPT_RETRY_MS);
  deepEqual([inner.calls, listener.acceptFailureCount], [3, 2]);
  listener.close();
  equal(await clock.runUntil(accepting, 1_000), null);
  deepEqual([clock.pendingTimers, listener.acceptFailureCount], [0, 2]);
});

Deno.test("SystemListener.close() cuts the wait after a failed accept short", async () => {
  const clock = new SimClock();
  const listener = new SystemListener(new FailingListener([new Error("no")]), clock);
  const accepting = listener.accept();
  await clock.run(1);
  listener.close();
  equal(await accepting, null);
  equal(clock.pendingTimers, 0);
});

/** Does not resolve when the clients do not all find room. */
async function connectMany(port: number): Promise<void> {
  const clients = await Promise.all(
    Array.from({ length: 1_000 }, () => Deno.connect({ hostname: "127.0.0.1", port })),
  );
  for (const client of clients) client.close();
}

Deno.test({
  name: "every door has room for a thousand clients that connect at once",
  // The system bounds it to less here.
  ignore: Number(Deno.readTextFileSync("/proc/sys/net/core/somaxconn")) < LISTEN_BACKLOG,
  fn: async () => {
    const network = new SystemNetwork(new SystemClock());
    for (
      const listener of [
        // Nobody accepts.
        network.listen("127.0.0.1", 0),
        await network.listenUpgradable("127.0.0.1", 0),
      ]
    ) {
      await connectMany(listener.port);
      listener.close();
    }
    const server = serveHttp({
      hostname: "127.0.0.1",
      port: 0,
      handler: () => new Response("OK"),
      onError: () => new Response("error"),
    });
    await connectMany(server.port);
    await server.shutdown();
  },
});

Deno.test("SystemNetwork.connect() gives up after its time limit", async () => {
  const clock = new SimClock();
  // With the backlog full, the kernel leaves further connections without an answer.
  const full = Deno.listen({ hostname: "127.0.0.1", port: 0, tcpBacklog: 1 });
  const network = new SystemNetwork(clock);
  const results = Array.from(
    { length: 8 },
    () => network.connect("127.0.0.1", full.addr.port, 500),
  );
  const settled = Promise.allSettled(results);
  // The kernel answers the first ones at once; a few turns later all answers have come.
  const first = await Promise.any(results);
  for (let turn = 0; turn < 10; turn++) await settle();
  clock.advance(500);
  const failed = (await settled).filter((result) => result.status === "rejected");
  ok(failed.length > 0);
  for (const { reason } of failed) {
    ok(reason instanceof ConnectionError);
    equal(
      reason.message,
      `Cannot connect to ${first.remoteAddress}: no answer within 500 ms`,
    );
  }
  for (const result of await settled) if (result.status === "fulfilled") result.value.close();
  full.close();
  equal(clock.pendingTimers, 0);
});

Deno.test("SystemNetwork.connect() says why it failed, with the cause", async () => {
  const network = new SystemNetwork(new SystemClock());
  const listener = network.listen("127.0.0.1", 0);
  listener.close();
  await rejects(network.connect("127.0.0.1", listener.port, 5_000), (error) => {
    ok(error instanceof ConnectionError);
    ok(
      error.message.startsWith(`Cannot connect to 127.0.0.1:${listener.port}: Connection refused`),
    );
    ok(error.cause instanceof Deno.errors.ConnectionRefused);
    return true;
  });
});

Deno.test("addressText() puts an IPv6 host in brackets", () => {
  deepEqual(
    [ADDRESS, { ...ADDRESS, hostname: "::1" }].map(addressText),
    ["127.0.0.1:4150", "[::1]:4150"],
  );
});
