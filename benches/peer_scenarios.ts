/**
 * What is measured side by side: each scenario is a load, a figure of it, and what it has to reach
 * beside which target. The load comes from programs of others (`nsqload` and `nsqlat` of the peers,
 * which use go-nsq), and where those cannot do it, from `load.ts`.
 */
import type { RunningTarget } from "./targets.ts";

/** The programs that make load. */
export interface LoadTools {
  readonly nsqload: string;
  readonly nsqlat: string;
  /** Runs a program and gives what it prints, as JSON. */
  json(program: string, args: readonly string[]): Promise<Record<string, unknown>>;
  /** Runs `load.ts`. */
  load(args: readonly string[]): Promise<{ readonly messagesPerSecond: number }>;
}

/** A figure that ours is to reach, as a ratio to another target's. */
export interface Goal {
  readonly target: string;
  /** For a figure where less is better: the ratio of theirs to ours. */
  readonly ratioMin: number;
}

/** One line of the table. */
export interface Scenario {
  readonly name: string;
  readonly unit: "messages/s" | "ms";
  readonly topics: number;
  readonly goals: readonly Goal[];
  /** Loads a target that was just started and is empty. */
  run(running: RunningTarget, tools: LoadTools, seconds: number): Promise<number>;
}

/** Ours, by name. */
export const OURS = "sluice";
/** nsqd by durability: in memory as far as that reaches, through its disk queue, synced each message. */
export const NSQD_MEMORY = "nsqd memory";
export const NSQD_DISK = "nsqd disk";
export const NSQD_DURABLE = "nsqd durable";

const BACKLOG_MESSAGES = 300_000;
const BACKLOG_MESSAGES_DURABLE = 2_000;

function goal(target: string, ratioMin: number): Goal {
  return { target, ratioMin };
}

/** All of them, in the order of the table. */
export const SCENARIOS: readonly Scenario[] = [
  publish("PUB, each waits for its OK, 1 connection", 1, 1, [goal(NSQD_DURABLE, 3)]),
  publish("PUB, 16 connections", 16, 1, [goal(NSQD_DURABLE, 25)]),
  publish("PUB, 64 connections", 64, 1, [goal(NSQD_DURABLE, 50), goal(NSQD_MEMORY, 0.9)]),
  publish("MPUB x100, 16 connections", 16, 100, [goal(NSQD_MEMORY, 2)]),
  publish("MPUB x100, 64 connections", 64, 100, []),
  backlog("consume a backlog, RDY 2500", 2500, [goal(NSQD_MEMORY, 3)]),
  backlog("consume a backlog, RDY 200", 200, []),
  flow("through, 16 producers, 4 consumers, RDY 1 (received)", {
    producers: 16,
    consumers: 4,
    rdy: 1,
    goals: [goal(NSQD_MEMORY, 1)],
  }),
  flow("through, 16 producers, 4 consumers (received)", {
    producers: 16,
    consumers: 4,
    goals: [goal(NSQD_DURABLE, 10)],
  }),
  flow("through, 64 producers, 4 consumers (received)", {
    producers: 64,
    consumers: 4,
    goals: [goal(NSQD_MEMORY, 0.7)],
  }),
  flow("through, 16 producers, MPUB x100, 4 consumers (received)", {
    producers: 16,
    consumers: 4,
    batch: 100,
    goals: [goal(NSQD_MEMORY, 2)],
  }),
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
  latency("latency at 1000/s, RDY 200, p50", "p50_ms", [goal(NSQD_MEMORY, 6)]),
  latency("latency at 1000/s, RDY 200, p99", "p99_ms", [goal(NSQD_MEMORY, 10)]),
];

function publish(
  name: string,
  connections: number,
  batch: number,
  goals: readonly Goal[],
): Scenario {
  return {
    name,
    unit: "messages/s",
    topics: 1,
    goals,
    run: async ({ tcpAddress }, tools, seconds) =>
      figure(
        await tools.json(tools.nsqload, [
          `-addr=${tcpAddress}`,
          `-producers=${connections}`,
          `-batch=${batch}`,
          "-consumers=0",
          `-seconds=${seconds}`,
        ]),
        "publish_per_s",
      ),
  };
}

interface Flow {
  readonly producers: number;
  readonly consumers: number;
  readonly batch?: number;
  readonly rdy?: number;
  readonly topics?: number;
  readonly goals: readonly Goal[];
}

function flow(name: string, flow: Flow): Scenario {
  const { producers, consumers, batch = 1, rdy = 200, topics = 1, goals } = flow;
  return {
    name,
    unit: "messages/s",
    topics,
    goals,
    run: async ({ tcpAddress }, tools, seconds) => {
      const result = await tools.json(tools.nsqload, [
        `-addr=${tcpAddress}`,
        `-producers=${producers}`,
        `-batch=${batch}`,
        `-consumers=${consumers}`,
        `-rdy=${rdy}`,
        `-topics=${topics}`,
        `-seconds=${seconds}`,
      ]);
      if (result.lost !== 0) throw new Error(`${name}: ${result.lost} messages are lost`);
      return figure(result, "receive_per_s");
    },
  };
}

function backlog(name: string, rdy: number, goals: readonly Goal[]): Scenario {
  return {
    name,
    unit: "messages/s",
    topics: 1,
    goals,
    run: async ({ name: target, tcpAddress, httpAddress }, { load }, seconds) => {
      for (
        const path of ["topic/create?topic=bench", "channel/create?topic=bench&channel=bench"]
      ) {
        const response = await fetch(`http://${httpAddress}/${path}`, { method: "POST" });
        await response.body?.cancel();
      }
      // What syncs each message alone is not waited for longer than needed.
      const messages = target === NSQD_DURABLE ? BACKLOG_MESSAGES_DURABLE : BACKLOG_MESSAGES;
      await load([
        "publish",
        `--address=${tcpAddress}`,
        "--connections=4",
        "--batch=100",
        `--messages=${messages}`,
        "--seconds=60",
      ]);
      const { messagesPerSecond } = await load([
        "consume",
        `--address=${tcpAddress}`,
        `--rdy=${rdy}`,
        `--messages=${messages}`,
        `--seconds=${10 * seconds}`,
      ]);
      return messagesPerSecond;
    },
  };
}

function latency(
  name: string,
  quantile: "p50_ms" | "p99_ms",
  goals: readonly Goal[],
): Scenario {
  return {
    name,
    unit: "ms",
    topics: 1,
    goals,
    run: async ({ tcpAddress }, tools, seconds) => {
      const result = await tools.json(tools.nsqlat, [
        `-addr=${tcpAddress}`,
        "-rate=1000",
        "-rdy=200",
        `-seconds=${seconds + 1}`,
      ]);
      return figure(result.from_schedule as Record<string, unknown>, quantile);
    },
  };
}

function figure(result: Record<string, unknown>, name: string): number {
  const value = result[name];
  if (typeof value !== "number") throw new TypeError(`The load tool says nothing of ${name}`);
  return value;
}
