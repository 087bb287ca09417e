/**
 * A consumer that follows discovery, with real processes: how soon it gets what is published to a broker
 * that had never had the topic, and what becomes of it when discovery dies.
 */
import { deepStrictEqual as equal, ok } from "node:assert/strict";
import { BrokerDirectory, TopicConsumer } from "@sluice/shared/client";
import {
  askHttp,
  streamHttp,
  SystemClock,
  SystemNetwork,
  SystemRandom,
} from "@sluice/shared/runtime/system";
import { Logger } from "@sluice/shared/telemetry";
import { LOOPBACK, startPeer, testWithNsq } from "./nsq.ts";
import { type HttpProcess, Service, TemporaryFolder } from "./process.ts";
import { eventually } from "./wait.ts";

const TOPIC = "orders";
/** From the publish to the delivery, with nobody connected before. */
const FIRST_DELIVERY_MS_MAX = 1_000;
/** When discovery asks the broker, twice a second, rather than the broker telling. */
const POLLED_DELIVERY_MS_MAX = 1_500;

/** A directory and a consumer of {@linkcode TOPIC} on it. */
class Following implements AsyncDisposable {
  readonly directory: BrokerDirectory;
  readonly consumer: TopicConsumer;
  /** When each message came, by its body. */
  readonly cameMs = new Map<string, number>();

  constructor(...discoveries: readonly HttpProcess[]) {
    const clock = new SystemClock();
    const random = new SystemRandom();
    const logger = new Logger({ sink: () => {}, clock });
    this.directory = new BrokerDirectory({
      discoveryUrls: discoveries.map(({ httpAddress }) => `http://${httpAddress}`),
      brokers: [],
      keepsTopics: (topic) => topic === TOPIC,
    }, { clock, random, streamHttp, askHttp, logger });
    this.consumer = new TopicConsumer(
      { topic: TOPIC, channel: "c", inFlightMax: 10 },
      this.directory,
      { network: new SystemNetwork(clock), clock, random, logger },
      ({ id, body }, from) => {
        this.cameMs.set(new TextDecoder().decode(body), performance.now());
        from.finish(id);
      },
    );
    this.consumer.start();
    this.directory.start();
  }

  /** Waits until each source is current and lists so many brokers. */
  async knows(brokers: number): Promise<void> {
    await eventually(`${brokers} brokers in every source`, () => {
      return this.directory.isSettled &&
        this.directory.sources().every((source) =>
          source.state === "current" && source.brokers === brokers
        );
    });
  }

  /** Publishes, and resolves with the time from the publish to the delivery. */
  async deliveryMs(broker: HttpProcess, body: string): Promise<number> {
    const sinceMs = performance.now();
    await broker.order(`/pub?topic=${TOPIC}`, body);
    const cameMs = await eventually(`"${body}"`, () => this.cameMs.get(body));
    return cameMs - sinceMs;
  }

  states(): string[] {
    return this.directory.sources().map(({ state }) => state);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.consumer.stop(5_000);
    await this.directory.stop();
  }
}

Deno.test("a message on a broker that never had the topic is delivered in under a second, also when one of two discovery services is killed", async () => {
  await using stack = new AsyncDisposableStack();
  const [first, second] = await Promise.all(
    [Service.start("discovery"), Service.start("discovery")],
  );
  stack.use(first);
  stack.use(second);
  const start = async () => {
    const folder = stack.use(await TemporaryFolder.create());
    return stack.use(
      await Service.broker(
        folder.path,
        [first, second].map(({ tcpAddress }) => `--lookupd-tcp-address=${tcpAddress}`),
      ),
    );
  };
  const brokers = [await start(), await start()];
  const following = stack.use(new Following(first, second));
  await following.knows(2);
  equal(following.consumer.connectionCount, 0);
  for (const [index, broker] of brokers.entries()) {
    const tookMs = await following.deliveryMs(broker, `first on ${index}`);
    ok(tookMs < FIRST_DELIVERY_MS_MAX, `delivered after ${tookMs} ms`);
  }
  equal(following.consumer.connectionCount, 2);

  await first.kill();
  await eventually("a lost source", () => following.states()[0] === "stale");
  equal([following.states()[1], following.directory.brokers.size], ["current", 2]);
  for (const [index, broker] of brokers.entries()) {
    await following.deliveryMs(broker, `second on ${index}`);
  }
  const third = await start();
  await eventually("the new broker", () => following.directory.brokers.size === 3);
  const tookMs = await following.deliveryMs(third, "first on 2");
  ok(tookMs < FIRST_DELIVERY_MS_MAX, `delivered after ${tookMs} ms`);
  equal(following.cameMs.size, 5);
});

Deno.test("a broker that discovery has to ask is found too, and what it says of its readiness is known", async () => {
  await using folder = await TemporaryFolder.create();
  await using broker = await Service.broker(folder.path);
  await using discovery = await Service.start("discovery", [`--broker=${broker.httpAddress}`]);
  await using following = new Following(discovery);
  await following.knows(1);
  const tookMs = await following.deliveryMs(broker, "first");
  ok(tookMs < POLLED_DELIVERY_MS_MAX, `delivered after ${tookMs} ms`);
  const known = following.directory.brokers.get(broker.tcpAddress);
  equal(
    [known?.host, known?.tcpPort, known?.httpPort, known?.publishReady, known?.consumeReady],
    ["127.0.0.1", broker.tcpPort, broker.httpPort, true, true],
  );
  broker.askToStop();
  await eventually("the end of the broker", () => following.directory.brokers.size === 0);
  await discovery.terminate();
  await eventually("the end of discovery", () => following.states()[0] === "stale");
});

testWithNsq("an nsqlookupd is asked for its nodes, and one more is no matter", async () => {
  await using nsqlookupd = await startPeer("nsqlookupd", LOOPBACK);
  await using discovery = await Service.start("discovery");
  await using folder = await TemporaryFolder.create();
  await using broker = await Service.broker(
    folder.path,
    [nsqlookupd, discovery].map(({ tcpAddress }) => `--lookupd-tcp-address=${tcpAddress}`),
  );
  await using both = new Following(nsqlookupd, discovery);
  await using alone = new Following(nsqlookupd);
  await both.knows(1);
  await alone.knows(1);
  equal(both.directory.sources().map(({ kind }) => kind), ["nodes", "watch"]);
  await both.deliveryMs(broker, "first");
  await eventually("the consumer that polls", () => alone.consumer.connectionCount === 1);
  // A consumer that comes back before it hears of the deletion would make the topic again.
  for (const { consumer } of [both, alone]) await consumer.stop(5_000);
  await broker.order(`/topic/delete?topic=${TOPIC}`);
  await eventually("the end of the topic", () => {
    return alone.directory.brokers.get(broker.tcpAddress)?.hasTopic(TOPIC) === false;
  });
});
