/**
 * Clusters in which some nodes are ours and some are NSQ's: one consumer drains both, whichever lookup
 * service it asks, and messages are copied either way. Skipped where there is no NSQ; see peers.ts.
 */
import { deepEqual, equal } from "node:assert/strict";
import { found, LOOPBACK, peer, startPeer, testWithNsq } from "./nsq.ts";
import { TestReader } from "./nsqjs.ts";
import { type HttpProcess, Process, runToEnd, Service, TemporaryFolder } from "./process.ts";
import { eventually } from "./wait.ts";

/** A broker of ours and an nsqd, both registered with both kinds of lookup service. */
class MixedCluster implements AsyncDisposable {
  readonly broker: Service;
  readonly nsqd: HttpProcess;
  readonly discovery: Service;
  readonly nsqlookupd: HttpProcess;
  readonly #stack: AsyncDisposableStack;

  private constructor(
    [broker, nsqd, discovery, nsqlookupd]: [Service, HttpProcess, Service, HttpProcess],
    stack: AsyncDisposableStack,
  ) {
    this.broker = broker;
    this.nsqd = nsqd;
    this.discovery = discovery;
    this.nsqlookupd = nsqlookupd;
    this.#stack = stack;
  }

  static async start(): Promise<MixedCluster> {
    await using stack = new AsyncDisposableStack();
    const ours = stack.use(await TemporaryFolder.create());
    const theirs = stack.use(await TemporaryFolder.create());
    const discovery = stack.use(await Service.start("discovery"));
    const nsqlookupd = stack.use(await startPeer("nsqlookupd", LOOPBACK));
    const lookups = [discovery, nsqlookupd]
      .map(({ tcpAddress }) => `--lookupd-tcp-address=${tcpAddress}`);
    const broker = stack.use(await Service.broker(ours.path, lookups));
    const nsqd = stack.use(
      await startPeer("nsqd", [...LOOPBACK, `--data-path=${theirs.path}`, ...lookups]),
    );
    return new MixedCluster([broker, nsqd, discovery, nsqlookupd], stack.move());
  }

  get nodes(): readonly HttpProcess[] {
    return [this.broker, this.nsqd];
  }

  get lookups(): readonly HttpProcess[] {
    return [this.discovery, this.nsqlookupd];
  }

  /** Makes a topic with a channel on both nodes and waits until all lookups know. */
  async create(topic: string, channel: string): Promise<void> {
    for (const node of this.nodes) {
      await node.order(`/topic/create?topic=${topic}`);
      await node.order(`/channel/create?topic=${topic}&channel=${channel}`);
      for (const lookup of this.lookups) await found(lookup, topic, node.tcpPort);
    }
  }

  /** Publishes so many messages to each node; gives their bodies. */
  async publish(topic: string, count: number): Promise<string[]> {
    const bodies: string[] = [];
    for (const [number, node] of this.nodes.entries()) {
      const lines = Array.from({ length: count }, (_, message) => `node ${number}: ${message}`);
      await node.order(`/mpub?topic=${topic}`, lines.join("\n"));
      bodies.push(...lines);
    }
    return bodies.sort();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#stack.disposeAsync();
  }
}

testWithNsq(
  "nsq_tail drains our broker and nsqd through either kind of lookup service",
  async () => {
    await using cluster = await MixedCluster.start();
    for (const [number, lookup] of cluster.lookups.entries()) {
      const topic = `tailed_${number}`;
      await cluster.create(topic, "tail");
      const bodies = await cluster.publish(topic, 20);
      const tailed = await runToEnd(peer("nsq_tail"), [
        `--topic=${topic}`,
        "--channel=tail",
        `--n=${bodies.length}`,
        `--lookupd-http-address=${lookup.httpAddress}`,
      ]);
      deepEqual(tailed.stdout.trim().split("\n").sort(), bodies);
    }
  },
);

testWithNsq("nsqjs finds both nodes when it asks both kinds of lookup service", async () => {
  await using cluster = await MixedCluster.start();
  await cluster.create("orders", "mail");
  await using reader = new TestReader("orders", "mail", {
    lookupdHTTPAddresses: cluster.lookups.map(({ httpAddress }) => httpAddress),
    maxInFlight: 10,
  });
  // Each node once, although both lookups name it.
  await reader.connected(2);
  const bodies = await cluster.publish("orders", 50);
  await reader.received(bodies.length);
  deepEqual(reader.bodies.toSorted(), bodies);
});

testWithNsq(
  "A topic that is deleted on both nodes is gone from both kinds of lookup service",
  async () => {
    await using cluster = await MixedCluster.start();
    await cluster.create("orders", "mail");
    for (const node of cluster.nodes) await node.order("/topic/delete?topic=orders");
    for (const lookup of cluster.lookups) {
      await eventually("no producer of the topic", async () => {
        const { status, text } = await lookup.get("/lookup?topic=orders");
        return status === 404 || text.includes('"producers":[]');
      });
    }
  },
);

testWithNsq("nsq_to_nsq copies from nsqd to our broker and back", async () => {
  await using cluster = await MixedCluster.start();
  for (const [from, to] of [[cluster.nsqd, cluster.broker], [cluster.broker, cluster.nsqd]]) {
    if (from === undefined || to === undefined) continue;
    const topic = from === cluster.nsqd ? "theirs" : "ours";
    await from.order(`/topic/create?topic=${topic}`);
    await from.order(`/channel/create?topic=${topic}&channel=copy`);
    await to.order(`/topic/create?topic=${topic}_copy`);
    await to.order(`/channel/create?topic=${topic}_copy&channel=all`);
    await using relay = new Process("nsq_to_nsq", peer("nsq_to_nsq"), [
      `--topic=${topic}`,
      "--channel=copy",
      `--destination-topic=${topic}_copy`,
      `--nsqd-tcp-address=${from.tcpAddress}`,
      `--destination-nsqd-tcp-address=${to.tcpAddress}`,
    ]);
    const bodies = Array.from({ length: 100 }, (_, number) => `message ${number}`);
    await from.order(`/mpub?topic=${topic}`, bodies.join("\n"));
    const tailed = await runToEnd(peer("nsq_tail"), [
      `--topic=${topic}_copy`,
      "--channel=all",
      `--n=${bodies.length}`,
      `--nsqd-tcp-address=${to.tcpAddress}`,
    ]);
    deepEqual(tailed.stdout.trim().split("\n").sort(), bodies.sort());
    await eventually("the original to be finished", async () => {
      const { text } = await from.get(`/stats?format=json&topic=${topic}`);
      return /"depth":0,"backend_depth":0,"in_flight_count":0,/.test(text);
    });
    // It may complain about what it is interrupted at, but it ends.
    equal(typeof await relay.terminate(), "number");
  }
});
