/**
 * A restart under load: what consumers had in flight is delivered again within a second of the broker
 * being ready, however it went down. Nobody waits for a message timeout. And peers that die instead.
 */
import { deepEqual, equal, ok } from "node:assert/strict";
import { Process, Service, TemporaryFolder } from "./process.ts";
import { type Delivery, RawClient } from "./raw_client.ts";
import { eventually, within } from "./wait.ts";

const TOPIC = "orders";
const CHANNELS = ["mail", "audit"];
const CONSUMERS = 3;
const RDY = 200;
const MESSAGES = 2_000;
/** From the moment at which the broker has said it is ready and shown that it delivers. */
const REDELIVERY_MS_MAX = 1_000;
/** Far more than any test waits. */
const FLAGS = ["--msg-timeout=10m", "--ring-bytes=4MiB"];

/** A consumer of a channel that finishes what it is told to and keeps the rest in flight. */
class Holder implements AsyncDisposable {
  readonly held: Delivery[] = [];
  readonly finished = new Set<string>();
  readonly client: RawClient;

  private constructor(client: RawClient, isFinishing: (delivery: Delivery) => boolean) {
    this.client = client;
    client.onMessage = (delivery) => {
      if (!isFinishing(delivery)) return void this.held.push(delivery);
      this.finished.add(delivery.body);
      client.fin(delivery.id);
    };
  }

  static async start(
    port: number,
    channel: string,
    ready: number,
    isFinishing: (delivery: Delivery) => boolean,
    topic = TOPIC,
  ): Promise<Holder> {
    const client = await RawClient.connect(port);
    const holder = new Holder(client, isFinishing);
    await client.sub(topic, channel);
    client.rdy(ready);
    return holder;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.client[Symbol.asyncDispose]();
  }
}

for (const how of ["SIGTERM", "kill -9"] as const) {
  Deno.test(`After ${how} under load all that was in flight comes again within a second`, async () => {
    await using folder = await TemporaryFolder.create();
    /** By channel: in flight when the broker went, and finished long enough before. */
    const inFlight = new Map<string, Set<string>>();
    const finished = new Map<string, Set<string>>();
    {
      await using broker = await Service.broker(folder.path, FLAGS);
      await broker.createChannels(TOPIC, ...CHANNELS);
      await using stack = new AsyncDisposableStack();
      const producer = stack.use(await RawClient.connect(broker.tcpPort));
      const holders = new Map<string, Holder[]>();
      for (const channel of CHANNELS) {
        const started = await Promise.all(Array.from({ length: CONSUMERS }, () =>
          // A third is finished, until all of RDY is in flight.
          Holder.start(broker.tcpPort, channel, RDY, ({ body }) => Number(body) % 3 === 0)));
        for (const holder of started) stack.use(holder);
        holders.set(channel, started);
      }
      await Promise.all(
        Array.from({ length: MESSAGES }, (_, number) => producer.pub(TOPIC, String(number))),
      );
      await eventually("all of RDY in flight", async () => {
        const figures = (await broker.topic(TOPIC))?.channels ?? [];
        return figures.every((one) => one.in_flight_count === CONSUMERS * RDY) &&
          [...holders.values()].flat().every(({ held }) => held.length === RDY);
      });
      // What was finished is on disk once something later is.
      await broker.order(`/pub?topic=${TOPIC}`, "after");
      for (const [channel, started] of holders) {
        inFlight.set(channel, new Set(started.flatMap(({ held }) => held.map(({ body }) => body))));
        finished.set(channel, new Set(started.flatMap((holder) => [...holder.finished])));
      }
      const load = publishOn(producer);
      if (how === "SIGTERM") equal(await within("the stop", broker.terminate(), 5_000), 0);
      else await broker.kill();
      await load;
      await Promise.all([...holders.values()].flat().map(({ client }) => client.closed()));
    }
    await using broker = Service.spawn("broker", [`--data-path=${folder.path}`, ...FLAGS]);
    await broker.ready();
    await eventually("ready", async () => (await broker.get("/v1/health")).status === 200);
    await using stack = new AsyncDisposableStack();
    const control = stack.use(
      await Holder.start(broker.tcpPort, "c", 1, () => true, "control"),
    );
    const startMs = performance.now();
    const cameMs = new Map<string, number>();
    const redeliveries: number[] = [];
    for (const channel of CHANNELS) {
      stack.use(
        await Holder.start(broker.tcpPort, channel, 2_500, ({ body, attempts }) => {
          cameMs.set(`${channel} ${body}`, performance.now());
          if (inFlight.get(channel)!.has(body)) redeliveries.push(attempts);
          return false;
        }),
      );
    }
    await broker.order("/pub?topic=control", "now");
    await eventually("the control message", () => control.finished.size === 1);
    const fromMs = performance.now();
    const missing = () =>
      CHANNELS.flatMap((channel) => [...inFlight.get(channel)!].map((body) => `${channel} ${body}`))
        .filter((name) => !cameMs.has(name));
    await eventually("all that was in flight", () => missing().length === 0);
    let latestMs = 0;
    for (const channel of CHANNELS) {
      equal(inFlight.get(channel)!.size, CONSUMERS * RDY);
      for (const body of inFlight.get(channel)!) {
        latestMs = Math.max(latestMs, cameMs.get(`${channel} ${body}`)!);
      }
      const again = [...finished.get(channel)!].filter((body) => cameMs.has(`${channel} ${body}`));
      deepEqual(again, [], "what was finished and on disk stays so");
    }
    ok(
      latestMs - fromMs <= REDELIVERY_MS_MAX,
      `${Math.round(latestMs - fromMs)} ms after the control message, ` +
        `${Math.round(latestMs - startMs)} ms after it was ready`,
    );
    equal(redeliveries.length, CHANNELS.length * CONSUMERS * RDY);
    // Who stops in order remembers how often; who crashes does not.
    const attempts = how === "SIGTERM" ? 2 : 1;
    deepEqual(new Set(redeliveries), new Set([attempts]));
    equal(await broker.terminate(), 0);
  });
}

/** Publishes until the connection ends. */
async function publishOn(client: RawClient): Promise<void> {
  const publish = async (): Promise<void> => {
    while (!client.ended) await client.pub(TOPIC, "load").catch(() => {});
  };
  await Promise.all(Array.from({ length: 20 }, publish));
}

/** Code of a peer that says `there` when it has done what it is for, and then nothing more. */
const PEERS = {
  /** Half of a publish, behind a whole one that is answered. */
  publisher: `
    await send("PUB orders\\n", size(5), "whole");
    while ((await read()) < 10);
    await send("PUB orders\\n", size(1000), "half");`,
  /** Takes messages and answers none. */
  consumer: `
    await send("SUB orders mail\\nRDY 50\\n");
    while ((await read()) < 2000);`,
} as const;

function spawnPeer(name: keyof typeof PEERS, port: number): Process {
  const code = `
    const connection = await Deno.connect({ hostname: "127.0.0.1", port: ${port} });
    const size = (bytes) => String.fromCharCode(0, 0, bytes >> 8, bytes & 255);
    const send = async (...parts) => {
      const bytes = Uint8Array.from(parts.join(""), (letter) => letter.charCodeAt(0));
      for (let at = 0; at < bytes.length;) at += await connection.write(bytes.subarray(at));
    };
    let count = 0;
    const read = async () => count += await connection.read(new Uint8Array(65536)) ?? Infinity;
    await send("  V2");
    ${PEERS[name]}
    console.log("there");
    await new Promise((resolve) => setTimeout(resolve, 600_000));`;
  return new Process(name, Deno.execPath(), ["eval", code]);
}

Deno.test("A publisher killed in the middle of a publish leaves whole messages and nothing else", async () => {
  await using folder = await TemporaryFolder.create();
  await using broker = await Service.broker(folder.path, FLAGS);
  await broker.createChannels(TOPIC, "mail");
  await using peer = spawnPeer("publisher", broker.tcpPort);
  await peer.logged(/^there$/);
  const drain = async () => JSON.parse((await broker.get("/v1/drain")).text);
  await eventually("half a body", async () => (await drain()).publish_bytes === 1_000);
  await peer.kill();
  await eventually("its memory", async () => (await drain()).publish_bytes === 0);
  equal((await broker.channel(TOPIC, "mail"))?.depth, 1);
  equal(JSON.parse((await broker.get("/v1/health")).text).status, "ok");
  await using client = await RawClient.connect(broker.tcpPort);
  await client.pub(TOPIC, "another");
  equal((await broker.channel(TOPIC, "mail"))?.depth, 2);
});

Deno.test("What a killed consumer had in flight goes to another one at once", async () => {
  await using folder = await TemporaryFolder.create();
  await using broker = await Service.broker(folder.path, FLAGS);
  await broker.createChannels(TOPIC, "mail");
  const bodies = Array.from({ length: 50 }, (_, number) => String(number).padStart(60, "0"));
  await broker.order(`/mpub?topic=${TOPIC}`, bodies.join("\n"));
  await using peer = spawnPeer("consumer", broker.tcpPort);
  await peer.logged(/^there$/);
  equal((await broker.channel(TOPIC, "mail"))?.in_flight_count, 50);
  await using other = await Holder.start(broker.tcpPort, "mail", 100, () => true);
  equal(other.finished.size, 0);
  await peer.kill();
  const killedMs = performance.now();
  await eventually("all of them", () => other.finished.size === 50);
  ok(performance.now() - killedMs <= REDELIVERY_MS_MAX);
  const channel = await broker.channel(TOPIC, "mail");
  deepEqual([channel?.depth, channel?.timeout_count], [0, 0]);
});
