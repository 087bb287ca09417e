import { deepStrictEqual as equal, match, ok } from "node:assert/strict";
import { Logger } from "@sluice/shared/telemetry";
import { settle, SimClock, SimDatagrams } from "@sluice/shared/testing";
import type { ChannelStats, TopicStats } from "./server/stats.ts";
import {
  packets,
  StatsdCounters,
  statsdLines,
  type StatsdOptions,
  statsdPrefix,
  StatsdReporter,
} from "./statsd.ts";

const LATENCY = {
  count: 2,
  percentiles: [{ quantile: 0.99, value: 7 }, { quantile: 0.5, value: 3 }],
};

function channel(name: string, messages: number): ChannelStats {
  return {
    channel_name: name,
    depth: 1,
    backend_depth: 1,
    in_flight_count: 2,
    deferred_count: 3,
    message_count: messages,
    requeue_count: 5,
    timeout_count: 6,
    client_count: 4,
    clients: null,
    paused: false,
    e2e_processing_latency: LATENCY,
  };
}

function topic(name: string, messages: number, ...channels: ChannelStats[]): TopicStats {
  return {
    topic_name: name,
    channels,
    depth: 8,
    backend_depth: 8,
    message_count: messages,
    message_bytes: messages * 10,
    paused: false,
    e2e_processing_latency: channels.length === 0 ? { count: 0, percentiles: null } : LATENCY,
  };
}

const KEYS = { prefix: "p.", excludeEphemeral: false };

Deno.test("statsdPrefix() is nsqd's: the broadcast address for %s and a dot at the end", () => {
  equal(statsdPrefix("nsq.%s", "127.0.0.1", 4151), "nsq.127_0_0_1_4151.");
  equal(statsdPrefix("a.%s.b.%s.", "h-1.x", 1), "a.h-1_x_1.b.h-1_x_1.");
  equal(statsdPrefix("%s", "::1", 2), "[__1]_2.");
  equal(statsdPrefix("plain", "h", 1), "plain.");
  equal(statsdPrefix("", "h", 1), "");
});

Deno.test("statsdLines() has nsqd's keys, types and order", () => {
  const counters = new StatsdCounters();
  const memory = { heap_objects: 9, gc_total_runs: 4 };
  equal([...statsdLines([topic("t", 2, channel("c", 1))], memory, counters, KEYS)], [
    "p.topic.t.message_count:2|c",
    "p.topic.t.message_bytes:20|c",
    "p.topic.t.depth:8|g",
    "p.topic.t.backend_depth:8|g",
    "p.topic.t.e2e_processing_latency_99:7|g",
    "p.topic.t.e2e_processing_latency_50:3|g",
    "p.topic.t.channel.c.message_count:1|c",
    "p.topic.t.channel.c.depth:1|g",
    "p.topic.t.channel.c.backend_depth:1|g",
    "p.topic.t.channel.c.in_flight_count:2|g",
    "p.topic.t.channel.c.deferred_count:3|g",
    "p.topic.t.channel.c.requeue_count:5|c",
    "p.topic.t.channel.c.timeout_count:6|c",
    "p.topic.t.channel.c.clients:4|g",
    "p.topic.t.channel.c.e2e_processing_latency_99:7|g",
    "p.topic.t.channel.c.e2e_processing_latency_50:3|g",
    "p.mem.heap_objects:9|g",
    "p.mem.gc_runs:4|c",
  ]);
});

Deno.test("statsdLines() counts what was added since, from zero for what was made anew", () => {
  const counters = new StatsdCounters();
  const counted = (...topics: TopicStats[]) =>
    [...statsdLines(topics, null, counters, KEYS)]
      .filter((line) => line.includes("message_count"))
      .map((line) => line.replace("p.topic.", ""));
  equal(counted(topic("a", 5), topic("b", 7)), ["a.message_count:5|c", "b.message_count:7|c"]);
  equal(counted(topic("a", 9), topic("b", 7)), ["a.message_count:4|c", "b.message_count:0|c"]);
  equal(counted(topic("a", 2)), ["a.message_count:2|c"]);
  equal(counted(topic("b", 8)), ["b.message_count:8|c"]);
});

Deno.test("statsdLines() leaves out ephemeral topics and channels when asked to", () => {
  const topics = [topic("t", 1, channel("c#ephemeral", 1)), topic("u#ephemeral", 1)];
  const lines = (
    excludeEphemeral: boolean,
  ) => [...statsdLines(topics, null, new StatsdCounters(), { prefix: "", excludeEphemeral })];
  equal(lines(true).length, 6);
  equal(lines(false).length, 20);
});

Deno.test("packets() keeps lines whole and every packet within its bound", () => {
  const text = (lines: string[], bytesMax: number) =>
    packets(lines, bytesMax).map((packet) => new TextDecoder().decode(packet));
  equal(text([], 10), []);
  equal(text(["abcd", "efgh", "i"], 10), ["abcd\nefgh\n", "i\n"]);
  equal(text(["abcd", "0123456789", "é"], 10), ["abcd\né\n"], "what fits no packet is left out");
  equal(text(["123456789"], 10), ["123456789\n"]);
});

class Statsd {
  readonly clock = new SimClock();
  readonly datagrams = new SimDatagrams();
  readonly lines: string[] = [];
  readonly broken: unknown[] = [];
  topics = [topic("t", 1)];
  mistake: Error | null = null;
  readonly reporter: StatsdReporter;

  constructor(options: Partial<StatsdOptions> = {}) {
    this.reporter = new StatsdReporter({
      host: "s",
      port: 8125,
      prefix: "",
      intervalMs: 10_000,
      packetBytesMax: 64,
      includeMemory: false,
      excludeEphemeral: false,
      ...options,
    }, {
      clock: this.clock,
      datagrams: this.datagrams,
      logger: new Logger({ sink: (line) => this.lines.push(line), clock: this.clock }),
      topics: () => {
        if (this.mistake !== null) throw this.mistake;
        return this.topics;
      },
      memory: () => ({ heap_objects: 1 }),
      onBroken: (error) => this.broken.push(error),
    });
    this.reporter.start();
  }

  async stop(): Promise<void> {
    await this.reporter.stop();
    equal([this.datagrams.open, this.clock.pendingTimers], [0, 0]);
  }
}

Deno.test("StatsdReporter spreads a round over its interval but for the last second", async () => {
  const statsd = new Statsd();
  await statsd.clock.run(9_999);
  equal(statsd.datagrams.packets, []);
  await statsd.clock.run(1);
  await settle();
  equal(statsd.datagrams.packets, [
    { to: "s:8125", text: "topic.t.message_count:1|c\ntopic.t.message_bytes:10|c\n" },
  ]);
  await statsd.clock.run(4_499);
  equal(statsd.datagrams.packets.length, 1);
  await statsd.clock.run(1);
  equal(statsd.datagrams.packets.length, 2);
  await statsd.clock.run(5_500);
  await settle();
  equal(statsd.datagrams.packets.length, 3, "the next round");
  equal(statsd.reporter.packetCount, 3);
  await statsd.stop();
});

Deno.test("StatsdReporter sends a round of a short interval at once", async () => {
  const statsd = new Statsd({ intervalMs: 500, includeMemory: true });
  await statsd.clock.run(500);
  await settle();
  const text = statsd.datagrams.packets.map((packet) => packet.text).join("");
  match(text, /^topic[^]*mem\.heap_objects:1\|g\n$/);
  await statsd.stop();
});

Deno.test("StatsdReporter logs the first failure of a row and the end of it, and goes on", async () => {
  for (const failing of ["connect", "send"] as const) {
    const statsd = new Statsd({ intervalMs: 1_000 });
    statsd.datagrams.failing = failing;
    for (let round = 0; round < 3; round++) await statsd.clock.run(1_000);
    await settle();
    equal(statsd.lines.length, 1);
    match(statsd.lines[0] ?? "", /WARN .*Cannot send figures to statsd/);
    ok(statsd.reporter.failureCount >= 2);
    statsd.datagrams.failing = null;
    await statsd.clock.run(1_000);
    await settle();
    match(statsd.lines[1] ?? "", /INFO .*can be sent to statsd again/);
    ok(statsd.datagrams.packets.length > 0);
    await statsd.stop();
  }
});

Deno.test("StatsdReporter.stop() ends a round that is being spread", async () => {
  const statsd = new Statsd();
  await statsd.clock.run(10_000);
  await settle();
  await statsd.stop();
  equal(statsd.datagrams.packets.length, 1);
});

Deno.test("StatsdReporter passes a mistake of ours on, and does not take it for the network's", async () => {
  const statsd = new Statsd();
  statsd.mistake = new Error("a topic without a name");
  await statsd.clock.run(10_000);
  await settle();
  equal([statsd.broken, statsd.lines, statsd.reporter.failureCount], [[statsd.mistake], [], 0]);
  await statsd.stop();
});
