/** Connections that are passed through to brokers, in a simulated world. */
import { deepStrictEqual as equal, ok } from "node:assert/strict";
import { type Connection, ConnectionError, type Listener } from "@sluice/shared/runtime";
import { SeededRandom, settle, SimClock, SimNetwork } from "@sluice/shared/testing";
import { type TunnelOptions, TunnelServer } from "./tunnel.ts";

/** A broker that keeps what it is given and answers only when a test does. */
class Broker {
  readonly id: string;
  readonly connections: Connection[] = [];
  readonly #listener: Listener;

  constructor(readonly network: SimNetwork, readonly port: number) {
    this.id = `broker:${port}`;
    this.#listener = network.listen("broker", port);
    void this.#accept();
  }

  close(): void {
    this.#listener.close();
    for (const connection of this.connections) connection.close();
  }

  async #accept(): Promise<void> {
    while (true) {
      const connection = await this.#listener.accept();
      if (connection === null) return;
      this.connections.push(connection);
    }
  }
}

class Stage {
  readonly clock = new SimClock();
  readonly network = new SimNetwork({ bufferBytesMax: 1024 });
  readonly brokers: Broker[];
  /** Ports of brokers that are listed but not there. */
  readonly dead: number[] = [];
  readonly tunnels: TunnelServer;
  readonly clients: Connection[] = [];
  /** Connections to brokers wait for it. */
  gate: Promise<void> = Promise.resolve();

  constructor(brokers: number, options: Partial<TunnelOptions> = {}, seed = 1) {
    this.brokers = Array.from({ length: brokers }, (_, at) => new Broker(this.network, 4150 + at));
    const { network } = this;
    this.tunnels = new TunnelServer(network.listen("gateway", 4152), {
      tunnelsMax: 10,
      ageMsMax: 100_000,
      connectTimeoutMs: 1_000,
      ...options,
    }, {
      network: {
        listen: (...address) => network.listen(...address),
        listenUpgradable: (...address) => network.listenUpgradable(...address),
        connect: async (...address) => {
          await this.gate;
          return await network.connect(...address);
        },
      },
      clock: this.clock,
      random: new SeededRandom(seed),
      targets: () =>
        [...this.brokers.map(({ port }) => port), ...this.dead].map((port) => ({
          id: `broker:${port}`,
          host: "broker",
          port,
        })),
    });
  }

  async client(): Promise<Connection> {
    const client = await this.network.connect("gateway", 4152, 1_000);
    this.clients.push(client);
    await settle();
    return client;
  }

  /** Tunnels of each broker so far. */
  get taken(): number[] {
    return this.brokers.map(({ connections }) => connections.length);
  }

  async close(): Promise<void> {
    await this.clock.runUntil(this.tunnels.close(), 10_000);
    for (const client of this.clients) client.close();
    for (const broker of this.brokers) broker.close();
    await settle();
    equal([this.network.openEnds, this.clock.pendingTimers], [0, 0]);
    equal(this.tunnels.tunnelCount, 0);
  }
}

/** What comes next, as text; null at the end; "cut" when the connection is cut. */
async function next(connection: Connection): Promise<string | null> {
  const buffer = new Uint8Array(4096);
  try {
    const bytes = await connection.read(buffer);
    return bytes === null ? null : new TextDecoder().decode(buffer.subarray(0, bytes));
  } catch (error) {
    ok(error instanceof ConnectionError);
    return "cut";
  }
}

function write(connection: Connection, text: string): Promise<void> {
  return connection.writeAll(new TextEncoder().encode(text));
}

Deno.test("a tunnel carries bytes both ways, as they are", async () => {
  const stage = new Stage(1);
  const client = await stage.client();
  const [broker] = stage.brokers[0]!.connections;
  await write(client, "  V2SUB t c\n");
  equal(await next(broker!), "  V2SUB t c\n");
  await write(broker!, "OK");
  equal(await next(client), "OK");
  equal([stage.tunnels.tunnelCount, stage.tunnels.openedCount], [1, 1]);
  await stage.close();
});

Deno.test("a tunnel carries any number of bytes, and holds up who is ahead of a slow reader", async () => {
  const stage = new Stage(1);
  const client = await stage.client();
  const [broker] = stage.brokers[0]!.connections;
  const sent = new SeededRandom(1).bytes(200_000);
  let isWritten = false;
  const writing = broker!.writeAll(sent).then(() => isWritten = true);
  await settle();
  equal(isWritten, false, "nobody reads");
  const received: number[] = [];
  const buffer = new Uint8Array(700);
  while (received.length < sent.length) {
    const bytes = await client.read(buffer) ?? 0;
    received.push(...buffer.subarray(0, bytes));
  }
  await writing;
  ok(sent.every((byte, at) => received[at] === byte));
  await stage.close();
});

Deno.test("a side that says no more can still be answered", async () => {
  const stage = new Stage(1);
  const client = await stage.client();
  const [broker] = stage.brokers[0]!.connections;
  await write(client, "bye");
  client.closeWrite();
  equal([await next(broker!), await next(broker!)], ["bye", null]);
  await write(broker!, "still here");
  equal(await next(client), "still here");
  equal(stage.tunnels.tunnelCount, 1);
  broker!.closeWrite();
  equal(await next(client), null);
  await settle();
  equal(stage.tunnels.tunnelCount, 0);
  await stage.close();
});

Deno.test("a connection that breaks takes the other one with it", async () => {
  for (const side of ["client", "broker"] as const) {
    const stage = new Stage(1);
    const client = await stage.client();
    const [broker] = stage.brokers[0]!.connections;
    const [broken, other] = side === "client" ? [client, broker!] : [broker!, client];
    broken.close();
    equal(await next(other), null);
    // What is written to it shows that nobody is there any more.
    await write(other, "hello").catch(() => {});
    await settle();
    equal(stage.tunnels.tunnelCount, 0, side);
    await stage.close();
  }
});

Deno.test("one tunnel more than may be is closed at once, and there is room when one ends", async () => {
  const stage = new Stage(1, { tunnelsMax: 2 });
  const first = await stage.client();
  await stage.client();
  const third = await stage.client();
  equal([await next(third), stage.tunnels.refusedCount, stage.tunnels.tunnelCount], [null, 1, 2]);
  first.close();
  stage.brokers[0]!.connections[0]!.close();
  await settle();
  equal(stage.tunnels.tunnelCount, 1);
  const fourth = await stage.client();
  await write(fourth, "x");
  equal(await next(stage.brokers[0]!.connections[2]!), "x");
  await stage.close();
});

Deno.test("a tunnel is cut at its age, give or take a tenth, whatever is under way", async () => {
  const agesMs: number[] = [];
  for (let seed = 1; seed <= 30; seed++) {
    const stage = new Stage(1, { ageMsMax: 100_000 }, seed);
    const client = await stage.client();
    const ageMs = stage.clock.nextTimerMs ?? Infinity;
    ok(ageMs >= 90_000 && ageMs <= 110_000, `seed ${seed}: ${ageMs} ms`);
    agesMs.push(ageMs);
    await stage.clock.run(ageMs - 1);
    equal(stage.tunnels.tunnelCount, 1);
    await stage.clock.run(1);
    equal([stage.tunnels.tunnelCount, stage.tunnels.expiredCount], [0, 1]);
    equal([await next(client), await next(stage.brokers[0]!.connections[0]!)], [null, null]);
    await stage.close();
  }
  ok(Math.max(...agesMs) - Math.min(...agesMs) > 10_000, "not all at the same time");
});

Deno.test("tunnels go to the broker with the fewest, those that have ended not counted", async () => {
  const stage = new Stage(3);
  for (let at = 0; at < 6; at++) await stage.client();
  equal(stage.taken, [2, 2, 2]);
  for (const connection of stage.brokers[1]!.connections) connection.close();
  for (const client of stage.clients) client.closeWrite();
  await settle();
  for (let at = 0; at < 2; at++) await stage.client();
  equal(stage.taken[1], 4);
  await stage.close();
});

Deno.test("which of several with the same number gets the next one is left to chance", async () => {
  const firsts = new Set<number>();
  for (let seed = 1; seed <= 20; seed++) {
    const stage = new Stage(3, {}, seed);
    await stage.client();
    firsts.add(stage.taken.indexOf(1));
    await stage.close();
  }
  equal(firsts.size, 3);
});

Deno.test("where a broker cannot be reached the next one is taken; where none can, the client is closed", async () => {
  const stage = new Stage(1);
  stage.dead.push(5000, 5001, 5002);
  for (let at = 0; at < 5; at++) {
    const client = await stage.client();
    await write(client, "x");
    equal(await next(stage.brokers[0]!.connections[at]!), "x");
  }
  equal([stage.taken, stage.tunnels.openedCount], [[5], 5]);
  stage.brokers[0]!.close();
  const client = await stage.client();
  equal([await next(client), stage.tunnels.refusedCount], [null, 1]);
  await stage.close();
});

Deno.test("close() ends all tunnels and takes no more", async () => {
  const stage = new Stage(2);
  const clients = [await stage.client(), await stage.client()];
  await stage.clock.runUntil(stage.tunnels.close(), 1_000);
  equal([await next(clients[0]!), await next(clients[1]!)], [null, null]);
  for (const { connections } of stage.brokers) equal(await next(connections[0]!), null);
  equal(stage.tunnels.tunnelCount, 0);
  await stage.network.connect("gateway", 4152, 1_000).then(
    () => ok(false, "it takes one more"),
    (error) => ok(error instanceof ConnectionError),
  );
  await stage.close();
});

Deno.test("close() ends a tunnel that is being made, once it is known who it leads to", async () => {
  const stage = new Stage(1);
  let open: () => void = () => {};
  stage.gate = new Promise((resolve) => open = resolve);
  const client = await stage.client();
  equal(stage.tunnels.tunnelCount, 1);
  const closing = stage.tunnels.close();
  await settle();
  open();
  await stage.clock.runUntil(closing, 1_000);
  equal([await next(client), stage.tunnels.openedCount], [null, 0]);
  await stage.close();
});
