/**
 * `deno task bench:axes`: how the broker's figures change along one axis at a time: topics,
 * connections, channels, size of bodies, RDY, transports, brokers on one machine. Each curve is to be flat, or
 * docs/PERFORMANCE.md says why not. Every point has a fresh process and an empty folder; rounds
 * alternate over the points. Figures go to docs/perf/axes.json, curves to docs/perf/*.svg; there is none
 * over what is no number.
 */
import { parseArgs } from "node:util";
import { tlsPath } from "@sluice/shared/testing";
import { ROOT } from "./broker_process.ts";
import { type Transport, TRANSPORTS } from "./load_link.ts";
import { consumed, created, drained, filled, published } from "./loads.ts";
import { plotSvg } from "./plot.ts";
import { median, showFigure } from "./summary.ts";
import { answers, type RunningTarget, sluiceTarget, startTarget } from "./targets.ts";

const HELP = `Measures the broker along one axis at a time.

  deno task bench:axes [--rounds N] [--seconds S] [--only TEXT] [--write]

  --rounds N   rounds of each point (default 3); medians are shown
  --seconds S  length of a run (default 2)
  --only TEXT  only axes whose name contains TEXT
  --write      writes docs/perf/axes.json and the plots
`;
const FIGURES = `${ROOT}/docs/perf/axes.json`;
const BACKLOG = 300_000;
const TOPICS_WITH_CHANNELS = 1_000;
const CREATED_AT_A_TIME = 32;
const WORKER_PORT_STEP = 101;
const WORKER_PORT_MIN = 20_000;

interface Axis<X extends number | Transport = number | Transport> {
  readonly name: string;
  readonly file: string;
  readonly xLabel: string;
  readonly yLabel: string;
  readonly points: readonly X[];
  /** Starts the broker of a point, if not with its defaults. */
  start?(x: X): Promise<RunningTarget>;
  run(running: RunningTarget, x: X, seconds: number): Promise<number>;
}

/** What is published in an axis. */
interface Load {
  readonly connections: number;
  readonly batch: number;
  readonly seconds: number;
}

const LOADS = [
  { what: "PUB from 64 connections", suffix: "", connections: 64, batch: 1 },
  { what: "MPUB x100 from 16 connections", suffix: "-batched", connections: 16, batch: 100 },
];

/** Two axes over the same points: of single publishes, and of batches. */
function singlyAndBatched<X extends number | Transport>(
  { name, file, run, ...axis }: Omit<Axis<X>, "yLabel" | "run"> & {
    run(running: RunningTarget, x: X, load: Load): Promise<number>;
  },
): Axis<X>[] {
  return LOADS.map(({ what, suffix, connections, batch }) => ({
    ...axis,
    name: `${what}, ${name}`,
    file: `${file}${suffix}`,
    yLabel: "messages/s",
    run: (running, x, seconds) => run(running, x, { connections, batch, seconds }),
  }));
}

const NUMBERS: readonly Axis<number>[] = [
  ...singlyAndBatched<number>({
    name: "over topics",
    file: "topics",
    xLabel: "topics",
    points: [1, 100, 1_000, 10_000],
    run: (running, topics, load) => published(running, { ...load, topics }),
  }),
  {
    name: "MPUB x100 from 16 connections over 1,000 topics, by channels of each topic",
    file: "topics-channels",
    xLabel: "channels of each topic, nobody consumes",
    yLabel: "messages/s",
    points: [1, 10],
    run: async (running, channels, seconds) => {
      await createdTopics(running, TOPICS_WITH_CHANNELS, channels);
      const topics = TOPICS_WITH_CHANNELS;
      return await published(running, { connections: 16, batch: 100, topics, seconds });
    },
  },
  {
    name: "PUB, over connections",
    file: "connections",
    xLabel: "connections, each waits for its OK",
    yLabel: "messages/s",
    points: [1, 4, 16, 64, 256, 1_000],
    run: (running, connections, seconds) => published(running, { connections, seconds }),
  },
  {
    name: "deliveries to all channels of a topic, RDY 200",
    file: "channels",
    xLabel: "channels, a consumer each",
    yLabel: "deliveries/s",
    points: [1, 10, 100],
    run: (running, channels) => fannedOut(running, channels),
  },
  {
    name: "PUB from 16 connections, over the size of bodies",
    file: "bodies",
    xLabel: "bytes of a body",
    yLabel: "MB/s",
    points: [20, 200, 2_000, 20_000, 200_000, 2 ** 20],
    run: async (running, bytes, seconds) =>
      await published(running, { connections: 16, bytes, seconds }) * bytes / 1e6,
  },
  {
    name: "consume a backlog, 1 consumer, over RDY",
    file: "rdy",
    xLabel: "RDY",
    yLabel: "messages/s",
    points: [1, 10, 200, 2_500],
    run: (running, rdy) => drained(running, rdy, rdy === 1 ? BACKLOG / 10 : BACKLOG),
  },
  ...singlyAndBatched<number>({
    name: "over brokers on this machine",
    file: "workers",
    xLabel: "brokers as one unit",
    points: [1, 2],
    start: startWorkers,
    run: publishedToAll,
  }),
];

const CATEGORIES: readonly Axis<Transport>[] = [
  ...singlyAndBatched<Transport>({
    name: "by transport",
    file: "transports",
    xLabel: "transport",
    points: TRANSPORTS,
    start: startWithTls,
    run: (running, transport, load) => published(running, { ...load, transport }),
  }),
  {
    name: "consume a backlog, 1 consumer, RDY 200, by transport",
    file: "transports-consume",
    xLabel: "transport",
    yLabel: "messages/s",
    points: TRANSPORTS.filter((transport) => transport !== "http"),
    start: startWithTls,
    run: (running, transport) => drained(running, 200, BACKLOG, [], transport),
  },
];

const AXES: readonly Axis[] = [...NUMBERS, ...CATEGORIES];

/** A broker with a certificate accepts connections in another way, so others have none. */
function startWithTls(transport: Transport): Promise<RunningTarget> {
  const { name, command } = sluiceTarget(ROOT);
  const flags = transport === "tls"
    ? [`--tls-cert=${tlsPath("server.pem")}`, `--tls-key=${tlsPath("server.key")}`]
    : [];
  return startTarget({ name, command: [...command, ...flags] });
}

/** Several brokers as one unit. */
function startWorkers(workers: number): Promise<RunningTarget> {
  const program = [Deno.execPath(), "run", "-P=brokers", `${ROOT}/broker/main.ts`];
  const flags = [`--workers=${workers}`, `--worker-port-step=${WORKER_PORT_STEP}`];
  const port = freePorts(WORKER_PORT_STEP, 2 * workers);
  return startTarget({ name: "workers", command: [...program, ...flags] }, [
    `127.0.0.1:${port}`,
    `127.0.0.1:${port + workers * WORKER_PORT_STEP}`,
  ]);
}

/** The first of so many ports, `step` apart, that nobody listens on, below those of outgoing connections. */
function freePorts(step: number, count: number): number {
  for (let first = WORKER_PORT_MIN; first < WORKER_PORT_MIN + step; first++) {
    try {
      for (let index = 0; index < count; index++) {
        Deno.listen({ hostname: "127.0.0.1", port: first + index * step }).close();
      }
      return first;
    } catch {
      // Somebody has one of them.
    }
  }
  throw new Error("Cannot start workers: no ports are free");
}

/** What all workers confirm a second, each loaded by a process of its own with its part of the connections. */
async function publishedToAll(
  running: RunningTarget,
  workers: number,
  load: Load,
): Promise<number> {
  const targets = Array.from({ length: workers }, (_, index) => ({
    ...running,
    tcpAddress: shifted(running.tcpAddress, index),
    httpAddress: shifted(running.httpAddress, index),
  }));
  for (const target of targets) await answers(target);
  const connections = load.connections / workers;
  const figures = await Promise.all(
    targets.map((target) => published(target, { ...load, connections })),
  );
  return figures.reduce((sum, figure) => sum + figure, 0);
}

function shifted(address: string, index: number): string {
  const separator = address.lastIndexOf(":") + 1;
  const port = Number(address.slice(separator)) + index * WORKER_PORT_STEP;
  return `${address.slice(0, separator)}${port}`;
}

/** Makes `bench-0` and so on with so many channels each. */
async function createdTopics(
  running: RunningTarget,
  topics: number,
  channels: number,
): Promise<void> {
  const names = Array.from({ length: channels }, (_, index) => `bench-${index}`);
  let next = 0;
  await Promise.all(Array.from({ length: CREATED_AT_A_TIME }, async () => {
    while (next < topics) await created(running, names, `bench-${next++}`);
  }));
}

/** All channels drain the same backlog at once, from one load process. */
async function fannedOut(running: RunningTarget, channels: number): Promise<number> {
  const messages = Math.floor(BACKLOG / channels);
  await created(running, Array.from({ length: channels }, (_, index) => `bench-${index}`));
  await filled(running, messages);
  return await consumed(running, 200, messages * channels, [
    `--connections=${channels}`,
    "--channel=bench-",
    "--channel-each",
  ]);
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      rounds: { type: "string", default: "3" },
      seconds: { type: "string", default: "2" },
      only: { type: "string", default: "" },
      write: { type: "boolean", default: false },
      help: { type: "boolean", default: false },
    },
  });
  if (values.help) return console.log(HELP);
  const axes = AXES.filter(({ name, file }) =>
    name.includes(values.only) || file.includes(values.only)
  );
  const figures = new Map<string, number[]>();
  for (let round = 1; round <= Number(values.rounds); round++) {
    for (const axis of axes) {
      for (const x of axis.points) {
        const running = await (axis.start?.(x) ?? startTarget(sluiceTarget(ROOT)));
        try {
          const figure = await axis.run(running, x, Number(values.seconds));
          const key = `${axis.file} ${x}`;
          figures.set(key, [...figures.get(key) ?? [], figure]);
          console.error(
            `round ${round}  ${axis.file.padEnd(18)} ${String(x).padStart(8)} ${
              showFigure(figure)
            }`,
          );
        } finally {
          await running.stop();
        }
      }
    }
  }
  // What was not measured now stays as it is.
  const document: Record<string, Record<string, number>> = JSON.parse(
    await Deno.readTextFile(FIGURES),
  );
  for (const axis of axes) {
    const points = axis.points.map((x) =>
      [x, median(figures.get(`${axis.file} ${x}`) ?? [])] as const
    );
    document[axis.file] = Object.fromEntries(points.map(([x, y]) => [x, Math.round(y)]));
    console.log(`\n| ${axis.xLabel} | ${points.map(([x]) => x).join(" | ")} |`);
    console.log(`|---|${points.map(() => "---:").join("|")}|`);
    console.log(
      `| ${axis.name}, ${axis.yLabel} | ${points.map(([, y]) => showFigure(y)).join(" | ")} |`,
    );
    const numbers = points.flatMap(([x, y]) => typeof x === "number" ? [[x, y] as const] : []);
    if (!values.write || numbers.length === 0) continue;
    await Deno.mkdir(`${ROOT}/docs/perf`, { recursive: true });
    const { xLabel, yLabel, name } = axis;
    await Deno.writeTextFile(
      `${ROOT}/docs/perf/${axis.file}.svg`,
      plotSvg({ title: name, xLabel, yLabel, series: [{ name: "sluice", points: numbers }] }),
    );
  }
  if (values.write) {
    await Deno.writeTextFile(FIGURES, JSON.stringify(document, null, 2) + "\n");
  }
}

await main();
