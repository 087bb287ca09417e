import { deepEqual, equal, ok } from "node:assert/strict";
import { type NsqjsMessage, TestReader, TestWriter } from "./nsqjs.ts";
import { Service, TemporaryFolder } from "./process.ts";
import { eventually, staysTrue } from "./wait.ts";

/** A broker registered with a discovery service, as nsqjs finds it. */
class Cluster implements AsyncDisposable {
  private constructor(
    readonly discovery: Service,
    readonly folder: TemporaryFolder,
    public broker: Service,
  ) {}

  static async start(): Promise<Cluster> {
    const folder = await TemporaryFolder.create();
    const discovery = await Service.start("discovery");
    return new Cluster(discovery, folder, await Cluster.#broker(discovery, folder));
  }

  static #broker(discovery: Service, folder: TemporaryFolder): Promise<Service> {
    return Service.broker(folder.path, [`--lookupd-tcp-address=${discovery.tcpAddress}`]);
  }

  get lookup(): { readonly lookupdHTTPAddresses: readonly string[] } {
    return { lookupdHTTPAddresses: [this.discovery.httpAddress] };
  }

  /** Makes a topic with channels, and waits until discovery knows it. */
  async topic(name: string, ...channels: string[]): Promise<void> {
    await this.broker.createChannels(name, ...channels);
    await found(this.discovery, name, this.broker);
  }

  /** Another process on the same folder, on other ports. */
  async restartBroker(): Promise<void> {
    this.broker = await Cluster.#broker(this.discovery, this.folder);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.broker[Symbol.asyncDispose]();
    await this.discovery[Symbol.asyncDispose]();
    await this.folder[Symbol.asyncDispose]();
  }
}

async function found(discovery: Service, topic: string, broker: Service): Promise<void> {
  await eventually(
    `${topic} in discovery`,
    async () =>
      (await discovery.get(`/lookup?topic=${topic}`)).text.includes(`"tcp_port":${broker.tcpPort}`),
  );
}

Deno.test("nsqjs publishes by PUB, MPUB and DPUB and consumes through discovery", async () => {
  await using cluster = await Cluster.start();
  await cluster.topic("orders", "mail");
  await using writer = await TestWriter.connect(cluster.broker.tcpPort);
  await using reader = new TestReader("orders", "mail", { ...cluster.lookup, maxInFlight: 10 });

  await writer.publish("orders", "one");
  await writer.publish("orders", ["two", "three"]);
  const publishedMs = performance.now();
  await writer.publishLater("orders", "later", 300);
  await reader.received(3);
  deepEqual(reader.bodies.slice(0, 3), ["one", "two", "three"]);
  await reader.received(4);
  const waitedMs = performance.now() - publishedMs;
  ok(waitedMs >= 300 && waitedMs < 1_500, `deferred by 300 ms, came after ${waitedMs} ms`);
  deepEqual(reader.messages.map(({ attempts }) => attempts), [1, 1, 1, 1]);
  equal(new Set(reader.messages.map(({ id }) => id)).size, 4);
  for (const { timestamp } of reader.messages) {
    const ageMs = Date.now() - Number(timestamp.toString()) / 1e6;
    ok(ageMs > -1_000 && ageMs < 60_000, `published ${ageMs} ms ago`);
  }
  await drained(cluster.broker, "orders", "mail");
  deepEqual(reader.errors, []);
});

Deno.test("nsqjs gives each of two channels every message, bytes as they were", async () => {
  await using cluster = await Cluster.start();
  await cluster.topic("orders", "mail", "stock");
  await using writer = await TestWriter.connect(cluster.broker.tcpPort);
  await using mail = new TestReader("orders", "mail", { ...cluster.lookup, maxInFlight: 50 });
  await using stock = new TestReader("orders", "stock", { ...cluster.lookup, maxInFlight: 7 });
  const bodies = [
    "ü€😀",
    "line\nbreak",
    " ",
    "\0",
    "x".repeat(200_000),
    ...Array.from({ length: 300 }, (_, number) => `m${number}`),
  ];
  await Promise.all(bodies.map((body) => writer.publish("orders", body)));
  await mail.received(bodies.length);
  await stock.received(bodies.length);
  deepEqual(mail.bodies.toSorted(), bodies.toSorted());
  deepEqual(stock.bodies.toSorted(), bodies.toSorted());
});

Deno.test("nsqjs requeues at once and with a delay, and attempts count", async () => {
  await using cluster = await Cluster.start();
  await cluster.topic("orders", "mail");
  await using writer = await TestWriter.connect(cluster.broker.tcpPort);
  await using reader = new TestReader("orders", "mail", { ...cluster.lookup, maxInFlight: 5 });
  const times: number[] = [];
  reader.handle = (message) => {
    times.push(performance.now());
    if (message.attempts === 1) message.requeue(0, false);
    else if (message.attempts === 2) message.requeue(400, false);
    else message.finish();
  };
  await writer.publish("orders", "again");
  await reader.received(3);
  deepEqual(reader.messages.map(({ attempts }) => attempts), [1, 2, 3]);
  equal(new Set(reader.messages.map(({ id }) => id)).size, 1);
  const waitedMs = times[2]! - times[1]!;
  ok(waitedMs >= 390 && waitedMs < 1_500, `requeued by 400 ms, came after ${waitedMs} ms`);
  await drained(cluster.broker, "orders", "mail");
  equal((await cluster.broker.channel("orders", "mail"))?.requeue_count, 2);
});

Deno.test("nsqjs keeps a message by touching it, and one untouched comes again", async () => {
  await using cluster = await Cluster.start();
  await cluster.topic("orders", "mail");
  await using writer = await TestWriter.connect(cluster.broker.tcpPort);
  await using reader = new TestReader("orders", "mail", {
    ...cluster.lookup,
    maxInFlight: 2,
    messageTimeout: 1_000,
  });
  const held = new Map<string, NsqjsMessage>();
  reader.handle = (message) => {
    if (message.attempts === 1) held.set(message.body.toString(), message);
    else message.finish();
  };
  await writer.publish("orders", ["touched", "forgotten"]);
  await reader.received(2);
  const touch = () => {
    held.get("touched")?.touch();
    return true;
  };
  await staysTrue("touching goes on", touch, 2_500);
  await reader.received(3);
  deepEqual(reader.bodies.slice(2), ["forgotten"]);
  held.get("touched")?.finish();
  await drained(cluster.broker, "orders", "mail");
  equal((await cluster.broker.channel("orders", "mail"))?.timeout_count, 1);
  deepEqual(reader.errors, []);
});

for (const maxInFlight of [1, 200]) {
  Deno.test(`nsqjs has at most ${maxInFlight} in flight with maxInFlight ${maxInFlight}`, async () => {
    await using cluster = await Cluster.start();
    await cluster.topic("orders", "mail");
    await using writer = await TestWriter.connect(cluster.broker.tcpPort);
    const count = 1_000;
    await writer.publish("orders", Array.from({ length: count }, (_, number) => `m${number}`));
    await using reader = new TestReader("orders", "mail", { ...cluster.lookup, maxInFlight });
    let open: NsqjsMessage[] = [];
    let openMost = 0;
    let finishing = false;
    // Messages are held until no more come, and then finished all together.
    reader.handle = (message) => {
      open.push(message);
      openMost = Math.max(openMost, open.length);
      if (finishing) finishOpen();
    };
    const finishOpen = () => {
      for (const message of open) message.finish();
      open = [];
    };
    await reader.received(maxInFlight);
    await staysTrue("no more arrive", () => open.length === maxInFlight, 100);
    equal((await cluster.broker.channel("orders", "mail"))?.in_flight_count, maxInFlight);
    finishing = true;
    finishOpen();
    await reader.received(count);
    equal(openMost, maxInFlight);
    equal(new Set(reader.bodies).size, count);
    await drained(cluster.broker, "orders", "mail");
  });
}

Deno.test("nsqjs gets nothing while its reader or the channel is paused, and all after", async () => {
  await using cluster = await Cluster.start();
  await cluster.topic("orders", "mail");
  await using writer = await TestWriter.connect(cluster.broker.tcpPort);
  await using reader = new TestReader("orders", "mail", { ...cluster.lookup, maxInFlight: 5 });
  await writer.publish("orders", "first");
  await reader.received(1);

  reader.pause();
  const readyCount = async () =>
    (await cluster.broker.channel("orders", "mail"))?.clients[0]?.ready_count;
  await eventually("RDY 0", async () => (await readyCount()) === 0);
  await writer.publish("orders", "while the reader is paused");
  await staysTrue("nothing arrives", () => reader.bodies.length === 1, 200);
  reader.unpause();
  await reader.received(2);

  await cluster.broker.order("/channel/pause?topic=orders&channel=mail");
  await writer.publish("orders", "while the channel is paused");
  await staysTrue("nothing arrives", () => reader.bodies.length === 2, 200);
  await cluster.broker.order("/channel/unpause?topic=orders&channel=mail");
  await reader.received(3);

  await cluster.broker.order("/topic/pause?topic=orders");
  await writer.publish("orders", "while the topic is paused");
  await staysTrue("nothing arrives", () => reader.bodies.length === 3, 200);
  await cluster.broker.order("/topic/unpause?topic=orders");
  await reader.received(4);
  deepEqual(reader.bodies, [
    "first",
    "while the reader is paused",
    "while the channel is paused",
    "while the topic is paused",
  ]);
});

for (const way of ["stopped", "killed"] as const) {
  Deno.test({
    name: `nsqjs finds a broker that was ${way} and started elsewhere, and misses nothing`,
    // nsqjs keeps a timer for each message whose connection ended before it was answered.
    sanitizeOps: false,
    // Timers count as resources too.
    sanitizeResources: false,
  }, async () => {
    await using cluster = await Cluster.start();
    await cluster.topic("orders", "mail");
    await using reader = new TestReader("orders", "mail", { ...cluster.lookup, maxInFlight: 20 });
    const held: NsqjsMessage[] = [];
    // Half of what comes is in flight when the broker goes.
    reader.handle = (message) => {
      if (held.length < 10) held.push(message);
      else message.finish();
    };
    const bodies = Array.from({ length: 500 }, (_, number) => `before ${number}`);
    await reader.connected(1);
    {
      await using writer = await TestWriter.connect(cluster.broker.tcpPort);
      await Promise.all(bodies.map((body) => writer.publish("orders", body)));
    }
    await reader.received(20);
    if (way === "stopped") equal(await cluster.broker.terminate(), 0);
    else await cluster.broker.kill();
    await reader.connected(0);
    // The broker's own entry is gone from discovery, or the reader would not need to look again.
    await cluster.restartBroker();
    await reader.connected(1);
    await using writer = await TestWriter.connect(cluster.broker.tcpPort);
    await writer.publish("orders", "after");
    await eventually("all messages", () => new Set(reader.bodies).size === bodies.length + 1);
    deepEqual([...new Set(reader.bodies)].sort(), [...bodies, "after"].sort());
    await drained(cluster.broker, "orders", "mail");
    const heldBodies = held.map(({ body }) => body.toString());
    for (const body of heldBodies) {
      equal(reader.bodies.filter((other) => other === body).length, 2, `${body} came again`);
    }
  });
}

Deno.test("nsqjs consumes from two brokers behind one discovery service", async () => {
  await using cluster = await Cluster.start();
  await using folder = await TemporaryFolder.create();
  await using other = await Service.broker(folder.path, [
    `--lookupd-tcp-address=${cluster.discovery.tcpAddress}`,
    "--node-id=7",
  ]);
  await cluster.topic("orders", "mail");
  await other.createChannels("orders", "mail");
  await found(cluster.discovery, "orders", other);
  await using reader = new TestReader("orders", "mail", { ...cluster.lookup, maxInFlight: 10 });
  await reader.connected(2);
  await using here = await TestWriter.connect(cluster.broker.tcpPort);
  await using there = await TestWriter.connect(other.tcpPort);
  const bodies = Array.from({ length: 200 }, (_, number) => `m${number}`);
  await Promise.all(
    bodies.map((body, number) => (number % 2 === 0 ? here : there).publish("orders", body)),
  );
  await reader.received(bodies.length);
  deepEqual(reader.bodies.toSorted(), bodies.toSorted());
  equal(new Set(reader.messages.map(({ id }) => id)).size, bodies.length);
  await drained(cluster.broker, "orders", "mail");
  await drained(other, "orders", "mail");
});

Deno.test("nsqjs gets messages of a topic that is made by a publish on another broker", async () => {
  await using cluster = await Cluster.start();
  await cluster.topic("orders", "mail");
  await using folder = await TemporaryFolder.create();
  await using other = await Service.broker(folder.path, [
    `--lookupd-tcp-address=${cluster.discovery.tcpAddress}`,
    "--node-id=7",
  ]);
  await using writer = await TestWriter.connect(other.tcpPort);
  await writer.publish("orders", "first of the topic here");
  // The new topic takes its channels from discovery, so the message waits for their consumers.
  await eventually(
    "the message in the channel",
    async () => (await other.channel("orders", "mail"))?.depth === 1,
  );
  await using reader = new TestReader("orders", "mail", { ...cluster.lookup, maxInFlight: 10 });
  await reader.received(1);
  deepEqual(reader.bodies, ["first of the topic here"]);
});

/** Waits until a channel holds nothing more. */
async function drained(broker: Service, topic: string, channel: string): Promise<void> {
  await eventually(`an empty channel ${channel}`, async () => {
    const figures = await broker.channel(topic, channel);
    return figures?.depth === 0 && figures.in_flight_count === 0 && figures.deferred_count === 0;
  });
}
