/**
 * `deno task bench:latency`: what a publish waits for its OK at 10, 50 and 80 % of the maximum rate, and
 * how long the broker keeps everybody waiting meanwhile. Open loop: a latency is from when a message was
 * due, so whatever is held up counts. Up to some 1 ms of it is the client's own tick.
 *
 * Nothing rests: small log files, so that checkpoints and removal go on; a reading of the log that begins
 * again each second; a scrape of `/metrics` and of `/stats` each second; one consumer that takes it all.
 *
 * The maximum is the highest rate that the same client, beside the same work, has kept up for some seconds
 * with nothing waiting, neither publishes for their OK nor messages for the consumer, but for what a
 * tenth of a second brings. It is doubled until that fails, twice in a row, then the gap is halved three
 * times: known to 9 %. It is several times what 64 clients get that each wait for their OK, as commands
 * gather in the connections here; and with load and broker on two cores it is that of both together.
 *
 * Stalls are the broker's own measure: how late a timer of 10 ms goes off, set again when it has. A stall
 * of S ms is so seen as one of S - 10 to S. What a long one hides is counted as if it had been there (25
 * ms: 25, 15 and 5), so it is timers that are counted. A processor that others have taken looks the same.
 * A sync of the disk is no stall, but publishes wait for it: the longest is told, by its bucket's bound.
 */
import { parseArgs } from "node:util";
import { BrokerProcess, inFolder, load, ROOT, runLoad, sleep } from "./broker_process.ts";
import { runNote, writeSection } from "./document.ts";
import { Latencies } from "./latencies.ts";
import { created } from "./loads.ts";
import type { OpenLoopWindow } from "./open_loop.ts";
import { plotSvg } from "./plot.ts";
import { median, showFigure } from "./summary.ts";

const HELP = `Measures latency under load, open loop, at shares of the maximum rate.

  deno task bench:latency [--rounds N] [--seconds S] [--maximum R] [--json FILE] [--write]

  --rounds N   runs at each rate, alternating; medians are shown (default 3)
  --seconds S  length of a run, after its warm-up (default 20)
  --maximum R  messages a second (default: found first)
  --json FILE  writes every single figure there
  --write      puts the table into docs/PERFORMANCE.md and the curves into docs/perf/latency.svg
`;

const SHARES = [0.1, 0.5, 0.8];
const FLAGS = ["--log-file-bytes=4MiB", "--scrub-interval=0", "--scrub-rate=64MiB"];
const WATCH_MS = 1_000;
/** The consumer is there so long before the publishers, and after them. */
const CONSUMER_SECONDS = 1;
/** Code is compiled, connections are made: not counted. */
const WARM_UP_SECONDS = 2;
const WINDOW_MS = 1_000;
const [SEARCH_FROM, SEARCH_SECONDS, SEARCH_HALVINGS] = [20_000, 3, 3];
/** More than comes in this time is not to wait, at any window's end. */
const WAITING_SECONDS_MAX = 0.1;
const LAG = "sluice_event_loop_lag";
const LATE_BOUND = "0.01";
/** Quantiles by 1/(1 - share): p50, p90, p99, p99.9. */
const ONE_IN = [2, 10, 100, 1_000];
/** What is counted of the work beside. */
const COUNTERS = ["log_checkpoints", "scrub_passes", "log_files_removed"];

type Metrics = ReadonlyMap<string, number>;

/** What one run has measured. */
interface Figures {
  readonly quantilesMs: readonly number[];
  readonly maxMs: number;
  readonly hasKeptUp: boolean;
  readonly stallMaxMs: number;
  readonly lateTimers: number;
  readonly syncMaxMs: number;
  /** By {@linkcode COUNTERS}. */
  readonly counted: readonly number[];
}

/** A run on a fresh broker: 16 connections publish, one consumer with RDY 200. */
function measure(rate: number, countedSeconds: number): Promise<Figures> {
  return inFolder(undefined, async (folder) => {
    await using broker = await BrokerProcess.start(folder, FLAGS);
    await created(broker);
    const address = `--address=${broker.tcpAddress}`;
    const seconds = WARM_UP_SECONDS + countedSeconds;
    const consumerSeconds = seconds + 2 * CONSUMER_SECONDS;
    const consuming = runLoad(["consume", address, `--seconds=${consumerSeconds}`]);
    await sleep(CONSUMER_SECONDS * 1000);
    const publishing = load("open_loop.ts", [
      address,
      `--rate=${rate}`,
      `--seconds=${seconds}`,
      `--window-ms=${WINDOW_MS}`,
    ]);
    // It may fail before it is waited for.
    publishing.catch(() => {});
    await sleep(WARM_UP_SECONDS * 1000);
    const before = await broker.metrics();
    const lines = await watched(broker, publishing);
    const after = await broker.metrics();
    await consuming;
    const windows = lines.trim().split("\n").map((line) => JSON.parse(line) as OpenLoopWindow);
    return figuresOf(windows.slice(WARM_UP_SECONDS * 1000 / WINDOW_MS), rate, before, after);
  });
}

/** Asks for what an operator's tools ask for, and for readings of the log, until `work` is done. */
async function watched<T>(broker: BrokerProcess, work: Promise<T>): Promise<T> {
  let isOver = false;
  const done = work.finally(() => isOver = true);
  done.catch(() => {});
  while (!isOver) {
    await Promise.all([broker.get("/metrics"), broker.get("/stats?format=json")]);
    // Refused while one is under way.
    await broker.post("/v1/storage/scrub").catch(() => {});
    await sleep(WATCH_MS);
  }
  return await done;
}

function figuresOf(
  windows: readonly OpenLoopWindow[],
  rate: number,
  before: Metrics,
  after: Metrics,
): Figures {
  const latencies = new Latencies();
  for (const window of windows) latencies.add(window.latencies);
  const grown = (name: string) => (after.get(name) ?? 0) - (before.get(name) ?? 0);
  const lag = seen(`${LAG}_seconds`, before, after);
  const depth = after.get("sluice_channels_depth") ?? Infinity;
  const waiting = Math.max(depth, ...windows.map((window) => window.waiting));
  return {
    quantilesMs: ONE_IN.map((oneIn) => latencies.quantileMs(1 - 1 / oneIn)),
    maxMs: latencies.maxMs,
    hasKeptUp: waiting <= rate * WAITING_SECONDS_MAX,
    // The bound, if there was a longer one before.
    stallMaxMs: 1000 * Math.min(lag.maxSeconds, after.get(`${LAG}_max_seconds`) ?? NaN),
    lateTimers: lag.late,
    syncMaxMs: 1000 * seen("sluice_log_sync_duration_seconds", before, after).maxSeconds,
    counted: COUNTERS.map((name) => grown(`sluice_${name}_total`)),
  };
}

/** What a histogram has seen between: its longest, by its bucket's bound, and how many above 10 ms. */
function seen(histogram: string, before: Metrics, after: Metrics) {
  const prefix = `${histogram}_bucket{le="`;
  const buckets = [...after].filter(([name]) => name.startsWith(prefix)).map(([name, value]) => ({
    bound: name.slice(prefix.length, -2),
    grown: value - (before.get(name) ?? 0),
  }));
  const all = buckets.at(-1)?.grown ?? NaN;
  const longest = buckets.find(({ grown }) => grown === all)?.bound.replace("+Inf", "Infinity");
  const below = buckets.find(({ bound }) => bound === LATE_BOUND)?.grown ?? NaN;
  return { maxSeconds: Number(longest), late: all - below };
}

/** See the module. */
async function findMaximum(): Promise<number> {
  const keepsUp = async (rate: number) => {
    for (let attempt = 0; attempt < 2; attempt++) {
      // The client gives up if far too much waits.
      const figures = await measure(rate, SEARCH_SECONDS).catch(() => null);
      console.error(`maximum: ${rate}/s ${figures?.hasKeptUp ? "kept up" : "did not keep up"}`);
      if (figures?.hasKeptUp) return true;
    }
    return false;
  };
  let [low, high] = [0, SEARCH_FROM];
  while (await keepsUp(high)) [low, high] = [high, 2 * high];
  if (low === 0) throw new Error(`Cannot measure: ${high} messages a second are too many`);
  for (let halving = 0; halving < SEARCH_HALVINGS; halving++) {
    const rate = Math.round(Math.sqrt(low * high));
    [low, high] = await keepsUp(rate) ? [rate, high] : [low, rate];
  }
  return low;
}

/** The median of the rounds. */
function quantile(rounds: readonly Figures[], at: number): number {
  return median(rounds.map(({ quantilesMs }) => quantilesMs[at]!));
}

/** Medians, but of syncs and stalls the worst. */
function row(share: number, rate: number, rounds: readonly Figures[]): string {
  const [p50, , p99, p999] = ONE_IN.map((_, at) => showFigure(quantile(rounds, at)));
  const isKept = rounds.every(({ hasKeptUp }) => hasKeptUp);
  const worst = (of: (figures: Figures) => number) => showFigure(Math.max(...rounds.map(of)));
  const cells = [
    `${share * 100} %: ${rate}/s${isKept ? "" : ", NOT KEPT UP"}`,
    ...[p50, p99, p999],
    showFigure(median(rounds.map(({ maxMs }) => maxMs))),
    worst(({ syncMaxMs }) => syncMaxMs),
    worst(({ stallMaxMs }) => stallMaxMs),
    rounds.reduce((sum, { lateTimers }) => sum + lateTimers, 0),
    ...COUNTERS.map((_, index) => median(rounds.map(({ counted }) => counted[index]!))),
  ];
  return `| ${cells.join(" | ")} |`;
}

/** A line for each rate. */
function curves(maximum: number, figures: readonly (readonly Figures[])[]): string {
  return plotSvg({
    title: "Publish latency under load, open loop",
    xLabel: "one in so many waits longer (2: p50, 10: p90, 100: p99, 1k: p99.9)",
    yLabel: "ms",
    series: SHARES.map((share, index) => ({
      name: `${share * 100} %: ${showFigure(share * maximum)}/s`,
      points: ONE_IN.map((oneIn, at) => [oneIn, quantile(figures[index]!, at)] as const),
    })),
  });
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      rounds: { type: "string", default: "3" },
      seconds: { type: "string", default: "20" },
      maximum: { type: "string" },
      json: { type: "string" },
      write: { type: "boolean", default: false },
      help: { type: "boolean", default: false },
    },
  });
  if (values.help) return console.log(HELP);
  const [rounds, seconds] = [Number(values.rounds), Number(values.seconds)];
  const maximum = Number(values.maximum ?? await findMaximum());
  const rates = SHARES.map((share) => Math.round(share * maximum));
  const figures = rates.map((): Figures[] => []);
  for (let round = 1; round <= rounds; round++) {
    for (const [index, rate] of rates.entries()) {
      const one = await measure(rate, seconds);
      figures[index]!.push(one);
      console.error(`round ${round} of ${rounds}  ${row(SHARES[index]!, rate, [one])}`);
    }
  }
  const command = `deno task bench:latency --rounds ${rounds} --seconds ${seconds} --write`;
  const note = `Maximum ${maximum} messages/s of 200 bytes, published and consumed. Medians of ` +
    `${rounds} rounds, of syncs and stalls the worst and all, ${await runNote(command)}`;
  const table = [
    "| of the maximum | p50, ms | p99, ms | p99.9, ms | largest, ms | longest sync, ms up to " +
    "| longest stall, ms | timers over 10 ms late | checkpoints | scrubs | files removed |",
    "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ...rates.map((rate, index) => row(SHARES[index]!, rate, figures[index]!)),
  ].join("\n");
  console.log(`${note}\n\n${table}`);
  if (values.json !== undefined) {
    const runs = rates.map((rate, index) => ({ rate, rounds: figures[index] }));
    await Deno.writeTextFile(values.json, JSON.stringify({ note, maximum, runs }, null, 1));
  }
  if (values.write) {
    await writeSection("bench-latency", `${note}\n\n${table}`);
    await Deno.writeTextFile(`${ROOT}/docs/perf/latency.svg`, curves(maximum, figures));
  }
}

await main();
