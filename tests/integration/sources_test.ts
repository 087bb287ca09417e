/**
 * Discovery as a process, and brokers that it finds by registration, by a static list and by a real
 * name server: what a consumer or a gateway is told, and how soon.
 */
import { deepStrictEqual as equal, ok } from "node:assert/strict";
import { NameServerFixture } from "@sluice/shared/testing";
import { LOOPBACK, startPeer, testWithNsq } from "./nsq.ts";
import { Service, TemporaryFolder } from "./process.ts";
import { eventually, within } from "./wait.ts";

interface WatchEvent {
  readonly name: string;
  readonly data: {
    readonly id?: string;
    readonly topics?: readonly { readonly topic: string }[];
    readonly registrations?: readonly {
      readonly topic: string;
      readonly channel: string | null;
      readonly present: boolean;
    }[];
  };
}

/** A reader of `/v1/watch`. */
class Watch implements AsyncDisposable {
  readonly events: WatchEvent[] = [];
  readonly #stop = new AbortController();
  readonly #reading: Promise<void>;

  constructor(discovery: Service) {
    this.#reading = this.#read(`http://${discovery.httpAddress}/v1/watch`).catch((error) => {
      if (!this.#stop.signal.aborted) throw error;
    });
  }

  /** Waits for an event that is wanted and says after how many milliseconds it was there. */
  async event(what: string, wanted: (event: WatchEvent) => boolean): Promise<number> {
    const sinceMs = performance.now();
    await eventually(what, () => this.events.some(wanted));
    return performance.now() - sinceMs;
  }

  /** Resolves when the server ends the stream. */
  ended(): Promise<void> {
    return within("the end of the watch", this.#reading);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#reading;
  }

  async #read(url: string): Promise<void> {
    const response = await fetch(url, { signal: this.#stop.signal });
    let rest = "";
    const decoder = new TextDecoder();
    for await (const chunk of response.body!) {
      const blocks = (rest + decoder.decode(chunk, { stream: true })).split("\n\n");
      rest = blocks.pop() ?? "";
      for (const block of blocks) {
        const found = /^event: (\w+)\nid: \d+\ndata: (.*)$/.exec(block);
        if (found === null) continue;
        this.events.push({ name: found[1] ?? "", data: JSON.parse(found[2] ?? "") });
      }
    }
  }
}

function registered(topic: string, channel: string | null = null) {
  return ({ data }: WatchEvent) =>
    data.registrations?.some((one) =>
      one.topic === topic && one.channel === channel && one.present
    ) ??
      false;
}

async function producers(discovery: Service, topic: string): Promise<number[]> {
  const { status, text } = await discovery.get(`/lookup?topic=${topic}`);
  if (status !== 200) return [];
  const { producers }: { producers: { tcp_port: number }[] } = JSON.parse(text);
  return producers.map(({ tcp_port }) => tcp_port).sort();
}

async function document(discovery: Service, path: string) {
  return JSON.parse((await discovery.get(path)).text);
}

Deno.test("brokers that register and brokers that are listed are found together, and their news is soon there", async () => {
  await using listedFolder = await TemporaryFolder.create();
  await using registeredFolder = await TemporaryFolder.create();
  await using listed = await Service.broker(listedFolder.path);
  await using discovery = await Service.start("discovery", [`--broker=${listed.httpAddress}`]);
  await using registering = await Service.broker(registeredFolder.path, [
    `--lookupd-tcp-address=${discovery.tcpAddress}`,
  ]);
  await eventually("both brokers", async () => {
    return (await document(discovery, "/v1/brokers")).brokers.length === 2;
  });
  const { status } = await document(discovery, "/v1/health");
  equal(status, "ok");

  await using watch = new Watch(discovery);
  await watch.event("all there is", ({ name }) => name === "synced");
  await registering.createChannels("pushed", "c");
  const pushedMs = await watch.event("the channel that was pushed", registered("pushed", "c"));
  await listed.createChannels("polled", "c");
  const polledMs = await watch.event("the channel that was polled", registered("polled", "c"));
  ok(pushedMs < 500, `pushed within ${pushedMs} ms`);
  ok(polledMs < 1_500, `polled within ${polledMs} ms`);
  equal(await producers(discovery, "pushed"), [registering.tcpPort]);
  equal(await producers(discovery, "polled"), [listed.tcpPort]);
  equal(await document(discovery, "/channels?topic=polled"), { channels: ["c"] });

  await listed.kill();
  await watch.event("the end of the broker that was killed", ({ name, data }) => {
    return name === "removed" && data.id === listed.tcpAddress;
  });
  equal(await producers(discovery, "polled"), []);
  const health = await document(discovery, "/v1/health");
  equal([health.status, health.polled.unreachable], ["degraded", 1]);

  discovery.askToStop();
  await watch.ended();
  equal(await discovery.ended(), 0);
});

Deno.test("brokers behind a name in DNS come and go with its records, and outlive the name server", async () => {
  await using folder = await TemporaryFolder.create();
  const broker = await Service.broker(folder.path);
  const server = await NameServerFixture.start();
  try {
    await broker.createChannels("t", "c");
    await using discovery = await Service.start("discovery", [
      `--broker-dns=_nsqd._tcp.brokers.test`,
      `--broker-dns-server=127.0.0.1:${server.port}`,
      "--broker-dns-interval=100ms",
      "--broker-head-interval=100ms",
    ]);
    await eventually("a source that fails", async () => {
      const { sources } = await document(discovery, "/v1/health");
      return sources[1].state === "failed";
    });
    server.records = {
      "_nsqd._tcp.brokers.test": { SRV: [{ host: "127.0.0.1", port: broker.httpPort }] },
    };
    await eventually("the broker", async () => (await producers(discovery, "t")).length === 1);
    server.isSilent = true;
    await eventually("a stale source", async () => {
      return (await document(discovery, "/v1/publishers/head")).stale_sources.length === 1;
    });
    equal(await producers(discovery, "t"), [broker.tcpPort]);
  } finally {
    await broker[Symbol.asyncDispose]();
    await server.close();
  }
});

testWithNsq("an nsqd on the list is found by its statistics", async () => {
  await using folder = await TemporaryFolder.create();
  await using nsqd = await startPeer("nsqd", [...LOOPBACK, `--data-path=${folder.path}`]);
  await using discovery = await Service.start("discovery", [`--broker=${nsqd.httpAddress}`]);
  await nsqd.order("/topic/create?topic=t");
  await nsqd.order("/channel/create?topic=t&channel=c");
  await eventually("the topic of nsqd", async () => (await producers(discovery, "t")).length === 1);
  const channels = async () => (await document(discovery, "/channels?topic=t")).channels;
  await eventually("its channel", async () => (await channels()).length === 1);
  equal(await channels(), ["c"]);
});
