/**
 * What is measured side by side: each scenario is a load, figures of it, and what they have to reach
 * beside which target. The load comes from programs of others, NSQ's own `bench_writer` and
 * `bench_reader` and `nsqload` and `nsqlat` of the peers, which use go-nsq as many teams do; and from
 * `load.ts` where those would take more of the machine than the broker, or cannot do it.
 */
import { created, drained, through } from "./loads.ts";
import type { RunningTarget } from "./targets.ts";

/** The programs that make load. */
export interface LoadTools {
  readonly nsqload: string;
  readonly nsqlat: string;
  readonly bench_writer: string;
  readonly bench_reader: string;
  /** Runs a program and gives what it prints. `cores`: what it takes for the number of cores. */
  text(program: string, args: readonly string[], cores?: number): Promise<string>;
}

/** What a figure is to reach. Where less is better, a ratio is theirs to ours. */
export type Goal =
  /** Beside another target. */
  | { readonly target: string; readonly ratioMin: number }
  /** Beside another figure of ours. */
  | { readonly figure: string; readonly ratioMin: number }
  | { readonly max: number };

/** One line of the table. */
export interface Figure {
  readonly name: string;
  readonly unit: "messages/s" | "ms" | "us";
  readonly goals: readonly Goal[];
}

/** One load. */
export interface Scenario {
  readonly figures: readonly Figure[];
  readonly topics: number;
  /** Loads a target that was just started and is empty; gives its figures in order. */
  run(running: RunningTarget, tools: LoadTools, seconds: number): Promise<readonly number[]>;
}

/** Ours, by name. */
export const OURS = "sluice";
/** nsqd with its defaults: 10,000 messages of a queue in memory, what is more on its disk. */
export const NSQD_MEMORY = "nsqd memory";
/** nsqd with everything through its disk queue. */
export const NSQD_DISK = "nsqd disk";
/** The same, synced after each message. */
export const NSQD_DURABLE = "nsqd durable";
/** nsqd with so much memory that it never writes. */
export const NSQD_ALL_IN_MEMORY = "nsqd all in memory";

const BACKLOG_MESSAGES = 300_000;
/** More than the ring and the page cache of ours hold. */
const COLD_BACKLOG_MESSAGES = 1_500_000;
/** What syncs each message alone is not waited for longer than needed. */
const BACKLOG_MESSAGES_DURABLE = 2_000;
const HOT = "consume a backlog, RDY 2500";
const ONE_TOPIC = "PUB, 16 connections";

/** All of them, in the order of the table. */
export const SCENARIOS: readonly Scenario[] = [
  publish("PUB, each waits for its OK, 1 connection", 1, 1, [beside(NSQD_DURABLE, 3)]),
  publish(ONE_TOPIC, 16, 1, [beside(NSQD_DURABLE, 25)]),
  publish("PUB, 64 connections", 64, 1, [beside(NSQD_DURABLE, 50), beside(NSQD_MEMORY, 0.9)]),
  publish(
    "PUB, 16 connections, 1000 topics",
    16,
    1,
    [{ figure: ONE_TOPIC, ratioMin: 0.9 }],
    1_000,
  ),
  publish("MPUB x100, 16 connections", 16, 100, [beside(NSQD_MEMORY, 2)]),
  publish("MPUB x100, 64 connections", 64, 100, []),
  benchTools(),
  backlog(HOT, 2500, BACKLOG_MESSAGES, [beside(NSQD_MEMORY, 3)]),
  backlog("consume a backlog, RDY 200", 200, BACKLOG_MESSAGES, []),
  backlog("consume a cold backlog, RDY 2500", 2500, COLD_BACKLOG_MESSAGES, [
    beside(NSQD_DISK, 2),
    { figure: HOT, ratioMin: 0.5 },
  ]),
  flow("consume, RDY 1, 1 consumer of go-nsq", {
    producers: 4,
    batch: 100,
    consumers: 1,
    rdy: 1,
    seconds: 0.05,
    goals: [beside(NSQD_MEMORY, 1)],
  }),
  flow("consume, RDY 1, 16 consumers of go-nsq", {
    producers: 4,
    batch: 100,
    consumers: 16,
    rdy: 1,
    seconds: 0.2,
    goals: [beside(NSQD_MEMORY, 1)],
  }),
  flow("through, 16 producers, 4 consumers (received)", {
    producers: 16,
    consumers: 4,
    goals: [beside(NSQD_DURABLE, 10)],
  }),
  flow("through, 64 producers, 4 consumers (received)", {
    producers: 64,
    consumers: 4,
    goals: [beside(NSQD_MEMORY, 0.7)],
  }),
  flow("through, 16 producers, MPUB x100, 4 consumers of go-nsq (received)", {
    producers: 16,
    consumers: 4,
    batch: 100,
    goals: [beside(NSQD_MEMORY, 2)],
  }),
  lightThrough(),
  flow("through, 16 producers, 100 topics, a consumer each (received)", {
    producers: 16,
    consumers: 1,
    topics: 100,
    goals: [],
  }),
  flow("through, 16 producers, 1000 topics, a consumer each (received)", {
    producers: 16,
    consumers: 1,
    topics: 1000,
    goals: [],
  }),
  latency(),
];

function beside(target: string, ratioMin: number): Goal {
  return { target, ratioMin };
}

/** A flow that nobody consumes: what is confirmed counts. */
function publish(
  name: string,
  producers: number,
  batch: number,
  goals: readonly Goal[],
  topics = 1,
): Scenario {
  return flow(name, { producers, consumers: 0, batch, topics, goals });
}

interface Flow {
  readonly producers: number;
  /** Of each topic; what they receive counts, if there are any. */
  readonly consumers: number;
  readonly batch?: number;
  readonly rdy?: number;
  readonly topics?: number;
  /** Of publishing, instead of what was asked for. */
  readonly seconds?: number;
  readonly goals: readonly Goal[];
}

function flow(name: string, flow: Flow): Scenario {
  const { producers, consumers, batch = 1, rdy = 200, topics = 1, goals } = flow;
  return {
    figures: [{ name, unit: "messages/s", goals }],
    topics,
    run: async ({ tcpAddress }, tools, seconds) => {
      const result = JSON.parse(
        await tools.text(tools.nsqload, [
          `-addr=${tcpAddress}`,
          `-producers=${producers}`,
          `-batch=${batch}`,
          `-consumers=${consumers}`,
          `-rdy=${rdy}`,
          `-topics=${topics}`,
          `-seconds=${flow.seconds ?? seconds}`,
        ]),
      );
      if (result.lost !== 0) throw new Error(`${name}: ${result.lost} messages are lost`);
      return [figureOf(result, consumers === 0 ? "publish_per_s" : "receive_per_s")];
    },
  };
}

/** NSQ's own pair: batches of 200 from 2 connections, then 2 consumers that work off what is there. */
function benchTools(): Scenario {
  const cores = 2;
  return {
    figures: [
      { name: "bench_writer: MPUB x200, 2 connections", unit: "messages/s", goals: [] },
      { name: "bench_reader: RDY 2500, 2 connections", unit: "messages/s", goals: [] },
    ],
    topics: 1,
    run: async (running, tools, seconds) => {
      await created(running, ["ch"], "sub_bench");
      const common = [`--nsqd-tcp-address=${running.tcpAddress}`, "--size=200"];
      const written = await tools.text(
        tools.bench_writer,
        [...common, "--batch-size=200", `--runfor=${seconds}s`],
        cores,
      );
      const read = await tools.text(
        tools.bench_reader,
        [...common, "--channel=ch", `--runfor=${seconds / 4}s`],
        cores,
      );
      return [written, read].map((text) => Number(/([\d.]+)ops\/s/.exec(text)?.[1]));
    },
  };
}

function backlog(
  name: string,
  rdy: number,
  messagesMax: number,
  goals: readonly Goal[],
): Scenario {
  return {
    figures: [{ name, unit: "messages/s", goals }],
    topics: 1,
    run: async (running) => {
      const messages = running.name === NSQD_DURABLE ? BACKLOG_MESSAGES_DURABLE : messagesMax;
      return [await drained(running, rdy, messages)];
    },
  };
}

/** The same flow of batches from a load that takes little of the machine, and what the broker takes of it. */
function lightThrough(): Scenario {
  return {
    figures: [
      {
        name: "through, 16 producers, MPUB x100, 4 light consumers (received)",
        unit: "messages/s",
        goals: [beside(NSQD_MEMORY, 2)],
      },
      {
        name: "CPU of the broker for a message of these: publish, delivery, FIN",
        unit: "us",
        goals: [{ max: 2.5 }],
      },
    ],
    topics: 1,
    run: async (running, _tools, seconds) => {
      const result = await through(running, { producers: 16, consumers: 4, batch: 100, seconds });
      return [result.receivedPerSecond, result.cpuUs];
    },
  };
}

/** What every message waits at a modest rate. The first second is left out by the tool. */
function latency(): Scenario {
  const name = "latency at 1000/s, consumer of go-nsq, RDY 200";
  return {
    figures: [
      { name: `${name}, p50`, unit: "ms", goals: [{ max: 1 }] },
      { name: `${name}, p99`, unit: "ms", goals: [{ max: 5 }] },
    ],
    topics: 1,
    run: async ({ tcpAddress }, tools, seconds) => {
      const result = JSON.parse(
        await tools.text(tools.nsqlat, [
          `-addr=${tcpAddress}`,
          "-rate=1000",
          "-rdy=200",
          `-seconds=${seconds + 1}`,
        ]),
      );
      return ["p50_ms", "p99_ms"].map((quantile) => figureOf(result.from_schedule, quantile));
    },
  };
}

function figureOf(result: Record<string, unknown>, name: string): number {
  const value = result[name];
  if (typeof value !== "number") throw new TypeError(`The load tool says nothing of ${name}`);
  return value;
}
