/** Consumers of one topic on brokers that come, go and fail. */
import { deepStrictEqual as equal, ok } from "node:assert/strict";
import { utf8Bytes, utf8Text } from "../protocol/mod.ts";
import { Logger } from "../telemetry/mod.ts";
import { SeededRandom, settle, SimClock, SimNetwork } from "../testing/mod.ts";
import type { BrokerSet, DirectoryListener, KnownBroker } from "./broker_directory.ts";
import type { Delivery } from "./consumer_connection.ts";
import { LINGER_MS, type MessageOrigin } from "./counted_connection.ts";
import { FakeBroker } from "./fake_broker_test.ts";
import { READY_MAX, readyShares } from "./ready_shares.ts";
import {
  RETRY_FIRST_MS,
  RETRY_MOST_MS,
  TopicConsumer,
  type TopicConsumerOptions,
  TURN_MS,
} from "./topic_consumer.ts";

/** A directory that a test writes. */
class HandDirectory implements BrokerSet {
  readonly brokers = new Map<string, KnownBroker>();
  #listener: DirectoryListener = () => {};

  onChange(listener: DirectoryListener): () => void {
    this.#listener = listener;
    return () => void (this.#listener = () => {});
  }

  async set(host: string, hasTopic: boolean | null, consumeReady = true): Promise<void> {
    const id = `${host}:4150`;
    this.brokers.set(id, {
      id,
      host,
      tcpPort: 4150,
      httpPort: null,
      publishReady: true,
      consumeReady,
      reasons: [],
      hasTopic: () => hasTopic,
    });
    await this.#tell(id);
  }

  async remove(host: string): Promise<void> {
    this.brokers.delete(`${host}:4150`);
    await this.#tell(`${host}:4150`);
  }

  async #tell(id: string): Promise<void> {
    this.#listener(new Set([id]));
    await settle();
  }
}

class ConsumerStage {
  readonly network = new SimNetwork();
  readonly clock = new SimClock();
  readonly directory = new HandDirectory();
  readonly brokers = new Map<string, FakeBroker>();
  /** What was delivered and not answered by {@linkcode finish}. */
  readonly held: {
    readonly id: string;
    readonly delivery: Delivery;
    readonly from: MessageOrigin;
  }[] = [];
  readonly consumer: TopicConsumer;

  constructor(options: Partial<TopicConsumerOptions> = {}) {
    this.consumer = new TopicConsumer(
      // The brokers here send no heartbeats.
      {
        topic: "t",
        channel: "c",
        inFlightMax: 10,
        client: { heartbeatIntervalMs: 1e9 },
        ...options,
      },
      this.directory,
      {
        network: this.network,
        clock: this.clock,
        random: new SeededRandom(1),
        logger: new Logger({ sink: () => {}, clock: this.clock }),
      },
      (delivery, from) =>
        this.held.push({ id: utf8Text(delivery.id).replace(/\.+$/, ""), delivery, from }),
    );
    this.consumer.start();
  }

  broker(host: string): FakeBroker {
    const broker = new FakeBroker(this.network, host);
    this.brokers.set(host, broker);
    return broker;
  }

  /** Brokers that have the topic. */
  async owners(...hosts: readonly string[]): Promise<FakeBroker[]> {
    const brokers = hosts.map((host) => this.broker(host));
    for (const host of hosts) await this.directory.set(host, true);
    await settle();
    return brokers;
  }

  /** RDY of each broker. */
  get ready(): number[] {
    return [...this.brokers.values()].map(({ readyCount }) => readyCount);
  }

  async finish(id: string): Promise<void> {
    const index = this.held.findIndex((one) => one.id === id);
    const [one] = this.held.splice(index, 1);
    ok(one !== undefined);
    one.from.finish(one.delivery.id);
    await settle();
  }

  async stop(timeoutMs = 1_000): Promise<void> {
    await this.clock.runUntil(this.consumer.stop(timeoutMs), timeoutMs);
    for (const broker of this.brokers.values()) await broker.down();
    equal([this.clock.pendingTimers, this.network.openEnds], [0, 0]);
  }
}

Deno.test("readyShares() come to the whole, differ by one at most, and go round when there are too few", () => {
  equal(readyShares(10, 0, 0), []);
  equal(readyShares(10, 1, 0), [10]);
  equal(readyShares(10, 3, 0), [4, 3, 3]);
  equal(readyShares(10, 3, 7), [4, 3, 3]);
  equal(readyShares(10_000, 2, 0), [READY_MAX, READY_MAX]);
  for (let inFlightMax = 1; inFlightMax <= 12; inFlightMax++) {
    for (let count = 1; count <= 12; count++) {
      const given = new Array<number>(count).fill(0);
      for (let turn = 0; turn < count; turn++) {
        const shares = readyShares(inFlightMax, count, turn);
        equal(shares.reduce((sum, share) => sum + share), inFlightMax);
        ok(Math.max(...shares) - Math.min(...shares) <= 1);
        for (const [index, share] of shares.entries()) given[index]! += share;
      }
      if (inFlightMax <= count) ok(given.every((share) => share === inFlightMax), `${given}`);
    }
  }
});

Deno.test("a consumer subscribes to each broker with the topic as soon as it is listed, and to no other", async () => {
  const stage = new ConsumerStage();
  const [a] = await stage.owners("a");
  for (const host of ["b", "d", "e"]) stage.broker(host);
  await stage.directory.set("b", false);
  await stage.directory.set("d", true, false);
  await stage.directory.set("e", null);
  equal([a?.subscriptions, a?.readyCount], [["t c"], 5]);
  equal(stage.ready, [5, 0, 0, 5]);
  await stage.directory.set("b", true);
  await stage.directory.set("d", true);
  equal([stage.ready, stage.consumer.connectionCount], [[3, 2, 2, 3], 4]);
  await stage.stop();
});

Deno.test("a broker that ends the connection is subscribed to again, ever later while it fails", async () => {
  const stage = new ConsumerStage();
  const [a, b] = await stage.owners("a", "b");
  equal(stage.ready, [5, 5]);
  await a?.down();
  equal([stage.ready, stage.consumer.connectionCount], [[0, 10], 1]);
  a?.up();
  await stage.clock.run(RETRY_FIRST_MS / 2 - 1);
  equal(stage.ready, [0, 10]);
  await stage.clock.run(RETRY_FIRST_MS);
  equal([stage.ready.toSorted(), a?.subscriptions.length], [[5, 5], 2]);
  await a?.down();
  let tries = 0;
  const connect = stage.network.connect.bind(stage.network);
  stage.network.connect = (...where) => {
    tries += 1;
    return connect(...where);
  };
  await stage.clock.run(60_000);
  ok(tries >= 60_000 / RETRY_MOST_MS && tries < 40, `${tries}`);
  a?.up();
  await stage.clock.run(RETRY_MOST_MS);
  equal(a?.connectionCount, 1);
  // One that held is tried again at once.
  await stage.clock.run(RETRY_MOST_MS);
  await a?.down();
  a?.up();
  await stage.clock.run(RETRY_FIRST_MS);
  equal([a?.connectionCount, b?.subscriptions.length], [1, 1]);
  await stage.stop();
});

Deno.test("a broker that ends the connection as soon as it is subscribed to is tried again", async () => {
  const stage = new ConsumerStage();
  const a = stage.broker("a");
  a.leavesAfterSub = true;
  await stage.directory.set("a", true);
  await stage.clock.run(RETRY_MOST_MS);
  ok(a.subscriptions.length > 3, `${a.subscriptions.length}`);
  equal(stage.consumer.connectionCount, 0);
  a.leavesAfterSub = false;
  await stage.clock.run(RETRY_MOST_MS);
  equal(stage.consumer.connectionCount, 1);
  await stage.stop();
});

Deno.test("who is listed anew is tried at once, who is listed no more is not tried again", async () => {
  const stage = new ConsumerStage();
  await stage.directory.set("a", true);
  await stage.clock.run(30_000);
  await stage.directory.remove("a");
  equal(stage.clock.pendingTimers, 0);
  const a = stage.broker("a");
  await stage.clock.run(60_000);
  equal(a.subscriptions, []);
  await stage.directory.set("a", true);
  equal(a.subscriptions.length, 1);
  await stage.stop();
});

Deno.test("an open connection is kept though the directory has lost its broker, and ends for good by itself", async () => {
  const stage = new ConsumerStage();
  const [a, b] = await stage.owners("a", "b");
  await stage.directory.remove("a");
  await stage.directory.set("b", false);
  await stage.clock.run(1_000);
  equal(stage.ready, [5, 5]);
  await a?.send("m");
  await stage.finish("m");
  equal(a?.commands, ["FIN m"]);
  await a?.down();
  a?.up();
  await stage.clock.run(60_000);
  equal([stage.ready, a?.subscriptions.length, b?.subscriptions.length], [[0, 10], 1, 1]);
  await stage.stop();
});

Deno.test("with more brokers than messages in flight all have their turns", async () => {
  const stage = new ConsumerStage({ inFlightMax: 2 });
  await stage.owners("a", "b", "c", "d", "e");
  const given = [0, 0, 0, 0, 0];
  for (let turn = 0; turn < 5; turn++) {
    equal(stage.ready.reduce((sum, ready) => sum + ready), 2);
    for (const [index, ready] of stage.ready.entries()) given[index]! += ready;
    await stage.clock.run(TURN_MS);
  }
  equal(given, [2, 2, 2, 2, 2]);
  const stopping = new ConsumerStage({ inFlightMax: 1 });
  await stopping.owners("a", "b");
  await stopping.stop();
  for (const host of ["a", "b", "c"]) await stage.brokers.get(host)?.down();
  for (const host of ["a", "b", "c"]) await stage.directory.remove(host);
  equal(stage.ready, [0, 0, 0, 1, 1]);
  // And there are turns no more.
  equal(stage.clock.pendingTimers, 2);
  await stage.stop();
});

Deno.test("an answer counts once and on the connection the message came by", async () => {
  const stage = new ConsumerStage();
  const [a] = await stage.owners("a");
  await a?.send("1");
  await a?.send("2");
  await a?.send("3");
  equal([stage.consumer.inFlightCount, stage.held.map(({ id }) => id)], [3, ["1", "2", "3"]]);
  const [first, second, third] = stage.held;
  equal(first?.from.brokerId, "a:4150");
  first?.from.finish(first.delivery.id);
  first?.from.finish(first.delivery.id);
  first?.from.requeue(first.delivery.id, 5);
  first?.from.touch(first.delivery.id);
  second?.from.touch(second.delivery.id);
  second?.from.requeue(second.delivery.id, 5);
  second?.from.finish(utf8Bytes("another"));
  await settle();
  equal(a?.commands, ["FIN 1", "TOUCH 2", "REQ 2 5"]);
  await a?.down();
  a?.up();
  await stage.clock.run(RETRY_FIRST_MS);
  await a?.send("3");
  third?.from.finish(third.delivery.id);
  await settle();
  equal([a?.commands.length, stage.consumer.inFlightCount], [3, 1]);
  stage.held[3]?.from.finish(utf8Bytes("3".padEnd(16, ".")));
  await settle();
  equal([a?.commands.slice(3), stage.consumer.inFlightCount], [["FIN 3"], 0]);
  await stage.stop();
});

Deno.test("messages that are never answered are forgotten when the broker must have taken them back", async () => {
  const stage = new ConsumerStage({ inFlightMax: 3 });
  const [a] = await stage.owners("a");
  for (let number = 0; number < 10; number++) await a?.send(`${number}`);
  equal(stage.consumer.inFlightCount, 3);
  await stage.finish("0");
  await stage.finish("9");
  equal(a?.commands, ["FIN 9"]);
  await stage.stop();
});

Deno.test("stop() lets what is in flight be answered, also what comes meanwhile, and then ends", async () => {
  const stage = new ConsumerStage();
  const [a, b] = await stage.owners("a", "b");
  await a?.send("1");
  let hasStopped = false;
  const stopped = stage.consumer.stop(20_000).then(() => hasStopped = true);
  await settle();
  equal([a?.commands, b?.commands], [["CLS"], ["CLS"]]);
  await a?.send("2");
  await stage.clock.run(LINGER_MS);
  equal([a?.connectionCount, b?.connectionCount], [1, 0]);
  await stage.finish("1");
  await stage.clock.run(5_000);
  await stage.finish("2");
  await stage.clock.run(LINGER_MS - 1);
  await a?.send("3");
  await stage.clock.run(5_000 - LINGER_MS);
  equal(hasStopped, false);
  await stage.finish("3");
  await stage.clock.run(LINGER_MS);
  equal([hasStopped, a?.commands], [true, ["CLS", "FIN 1", "FIN 2", "FIN 3"]]);
  await stopped;
  // Nothing is connected to any more.
  await stage.directory.set("c", true);
  await stage.clock.run(60_000);
  await stage.stop();
});

Deno.test("stop() ends at its time limit whatever is in flight, and connections under way end too", async () => {
  const stage = new ConsumerStage({ client: { heartbeatIntervalMs: 10_000 } });
  const [a] = await stage.owners("a");
  const b = stage.broker("b");
  b.takesSubscriptions = false;
  await stage.directory.set("b", true);
  await stage.directory.set("nobody", true);
  await a?.send("1");
  const sinceMs = stage.clock.monoMs();
  const stopped = stage.consumer.stop(3_000);
  ok(stage.consumer.stop(60_000) === stopped);
  await stage.clock.runUntil(stopped, 3_000);
  equal(stage.clock.monoMs() - sinceMs, 3_000);
  equal([a?.connectionCount, stage.consumer.connectionCount], [0, 0]);
  const timers = stage.clock.pendingTimers;
  stage.held[0]?.from.finish(stage.held[0].delivery.id);
  equal(stage.clock.pendingTimers, timers);
  // The one that SUB was not answered to: its silence ends it.
  await stage.clock.run(30_000);
  await stage.stop();
});

Deno.test("stop() waits for nothing when nothing is connected, and closes what is just connected", async () => {
  const idle = new ConsumerStage();
  await idle.directory.set("nobody", true);
  await idle.stop(0);
  const stage = new ConsumerStage();
  const a = stage.broker("a");
  a.takesSubscriptions = true;
  void stage.directory.set("a", true);
  await stage.stop();
  equal([a.readyCount, a.connectionCount, stage.held], [0, 0, []]);
});
