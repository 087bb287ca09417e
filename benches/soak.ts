/**
 * `deno task bench:soak --minutes 30`: a broker at half of what it can do, for long, with everything
 * that goes on beside the work: log files sealed and removed, checkpoints, reading the log through.
 *
 * 1. How many messages a second can be published and consumed at once, as fast as it goes.
 * 2. Quiet: half of that, on a broker whose log is one file and that reads nothing through.
 * 3. The soak: the same with small files and a reading of the log that begins again and again.
 *
 * Publishing is open-loop: a latency is from when a message was due to its OK.
 */
import { parseArgs } from "node:util";
import { BrokerProcess, inFolder, ROOT, runLoad, sleep } from "./broker_process.ts";
import { created } from "./loads.ts";
import { median } from "./summary.ts";
import { Latencies } from "./latencies.ts";
import type { OpenLoopWindow } from "./open_loop.ts";

const HELP =
  `A broker at half of its maximum rate for long, with checkpoints, removal and scrubbing.

  deno task bench:soak [--minutes M] [--rate R] [--bytes B] [--folder PATH] [--json FILE]

  --minutes M    length of the soak (default 30); the quiet part is a fifth of it, at most 2 minutes
  --rate R       messages a second (default: half of the maximum, which is measured first)
  --bytes B      length of a body (default 200)
  --folder PATH  where the data folders go (default: the system's temporary folder)
  --json FILE    write all figures and samples there
`;

const CALIBRATION_SECONDS = 5;
const QUIET_SECONDS_MAX = 120;
const SAMPLE_MS = 5_000;
const CONNECTIONS = 16;
const QUIET_FLAGS = ["--log-file-bytes=4GiB", "--scrub-interval=0"];
const SOAK_FLAGS = ["--log-file-bytes=8MiB", "--scrub-interval=0", "--scrub-rate=64MiB"];
const MIB = 2 ** 20;

/** The goals. */
const STALL_MS_MAX = 10;
const RATIO_MAX = 2;
/** Of the last quarter's memory over the second's; before that ring and caches fill: 10 minutes do. */
const GROWTH_MAX = 0.05;

/** What a broker looked like at one time. */
interface Sample {
  readonly seconds: number;
  readonly residentMib: number;
  readonly confirmed: number;
  readonly waiting: number;
  readonly p99Ms: number;
  readonly maxMs: number;
}

/** How a part went. */
interface Phase {
  readonly samples: readonly Sample[];
  readonly latencies: Latencies;
  readonly consumed: number;
  /** How much each metric has grown. */
  readonly grown: ReadonlyMap<string, number>;
  readonly metrics: ReadonlyMap<string, number>;
}

/** One goal, and whether it is met. */
interface Verdict {
  readonly goal: string;
  readonly seen: string;
  readonly met: boolean;
}

async function calibrate(folder: string, bytes: string): Promise<number> {
  await using broker = await BrokerProcess.start(folder, QUIET_FLAGS);
  await created(broker);
  const consuming = runLoad([
    "consume",
    `--address=${broker.tcpAddress}`,
    "--connections=2",
    `--seconds=${CALIBRATION_SECONDS + 1}`,
  ]);
  const published = await runLoad([
    "publish",
    `--address=${broker.tcpAddress}`,
    `--connections=${CONNECTIONS}`,
    `--bytes=${bytes}`,
    `--seconds=${CALIBRATION_SECONDS}`,
  ]);
  const consumed = (await consuming).messages / (CALIBRATION_SECONDS + 1);
  return Math.min(published.messagesPerSecond, consumed);
}

async function run(
  broker: BrokerProcess,
  options: { readonly rate: number; readonly bytes: string; readonly seconds: number },
  sampled: (sample: Sample) => void,
): Promise<Phase> {
  const { rate, bytes, seconds } = options;
  await created(broker);
  const consuming = runLoad([
    "consume",
    `--address=${broker.tcpAddress}`,
    "--connections=2",
    `--seconds=${seconds + 2}`,
  ]);
  await sleep(1_000);
  const before = await broker.metrics();
  const publishing = new Deno.Command(Deno.execPath(), {
    args: [
      "run",
      "--allow-net",
      `${ROOT}/benches/open_loop.ts`,
      `--address=${broker.tcpAddress}`,
      `--rate=${rate}`,
      `--connections=${CONNECTIONS}`,
      `--bytes=${bytes}`,
      `--seconds=${seconds}`,
      `--window-ms=${SAMPLE_MS}`,
    ],
    stdin: "null",
    stdout: "piped",
    stderr: "inherit",
  }).spawn();
  const samples: Sample[] = [];
  const latencies = new Latencies();
  const startMs = performance.now();
  for await (const line of lines(publishing.stdout)) {
    const window = JSON.parse(line) as OpenLoopWindow;
    const part = new Latencies();
    part.add(window.latencies);
    latencies.add(window.latencies);
    const sample: Sample = {
      seconds: (performance.now() - startMs) / 1000,
      residentMib: await broker.residentBytes() / MIB,
      confirmed: window.confirmed,
      waiting: window.waiting,
      p99Ms: part.quantileMs(0.99),
      maxMs: part.maxMs,
    };
    samples.push(sample);
    sampled(sample);
  }
  const { success } = await publishing.status;
  if (!success) throw new Error("The publishers have failed");
  const metrics = await broker.metrics();
  const grown = new Map(
    [...metrics].map(([name, value]) => [name, value - (before.get(name) ?? 0)]),
  );
  return { samples, latencies, consumed: (await consuming).messages, grown, metrics };
}

async function* lines(stream: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const chunk of stream) {
    const parts = (rest + decoder.decode(chunk, { stream: true })).split("\n");
    rest = parts.pop() ?? "";
    yield* parts;
  }
}

/** The lag that a share of the time did not exceed, by the bound of its bucket, ms. */
function lagMs({ grown, metrics }: Phase, share: number): number {
  const count = grown.get("sluice_event_loop_lag_seconds_count") ?? 0;
  const buckets: [number, number][] = [];
  for (const [name, value] of grown) {
    const bound = /^sluice_event_loop_lag_seconds_bucket\{le="(.+)"\}$/.exec(name)?.[1];
    if (bound !== undefined) buckets.push([bound === "+Inf" ? Infinity : Number(bound), value]);
  }
  buckets.sort(([a], [b]) => a - b);
  const bound = buckets.find(([, below]) => below >= count * share)?.[0] ?? Infinity;
  return 1000 * Math.min(bound, metrics.get("sluice_event_loop_lag_max_seconds") ?? Infinity);
}

/** Memory of the second quarter and of the last one, and how fast it grew from there to the end. */
function memory(samples: readonly Sample[]) {
  const quarter = Math.max(1, Math.floor(samples.length / 4));
  const mib = (from: number, to: number) =>
    median(samples.slice(from, to).map(({ residentMib }) => residentMib));
  const later = samples.slice(quarter);
  const meanSeconds = later.reduce((sum, { seconds }) => sum + seconds, 0) / later.length;
  const meanMib = later.reduce((sum, { residentMib }) => sum + residentMib, 0) / later.length;
  let [above, below] = [0, 0];
  for (const { seconds, residentMib } of later) {
    above += (seconds - meanSeconds) * (residentMib - meanMib);
    below += (seconds - meanSeconds) ** 2;
  }
  return {
    secondQuarterMib: mib(quarter, 2 * quarter),
    lastQuarterMib: mib(samples.length - quarter, samples.length),
    mibPerMinute: below === 0 ? 0 : above / below * 60,
  };
}

function judge(quiet: Phase, soak: Phase, bodyBytes: number): Verdict[] {
  const { secondQuarterMib, lastQuarterMib, mibPerMinute } = memory(soak.samples);
  const growth = lastQuarterMib / secondQuarterMib - 1;
  const stallMs = lagMs(soak, 0.999);
  const [soakMs, quietMs] = [soak, quiet].map(({ latencies }) => latencies.quantileMs(0.99));
  const ratio = soakMs! / quietMs!;
  const count = (name: string) => soak.grown.get(name) ?? 0;
  const [checkpoints, passes] = [
    count("sluice_log_checkpoints_total"),
    count("sluice_scrub_passes_total"),
  ];
  const writtenMib = soak.latencies.count * bodyBytes / MIB;
  const logMib = (soak.metrics.get("sluice_log_bytes") ?? 0) / MIB;
  return [
    {
      goal: `memory is flat: the last quarter within ${GROWTH_MAX * 100} % of the second`,
      seen: `${secondQuarterMib.toFixed(0)} to ${lastQuarterMib.toFixed(0)} MiB, ` +
        `${mibPerMinute.toFixed(2)} MiB a minute`,
      met: growth <= GROWTH_MAX,
    },
    {
      goal: `stalls of the broker: p99.9 below ${STALL_MS_MAX} ms`,
      seen:
        `p99.9 at most ${stallMs.toFixed(1)} ms, quiet ${
          lagMs(quiet, 0.999).toFixed(1)
        } ms; longest since the start ` +
        `${((soak.metrics.get("sluice_event_loop_lag_max_seconds") ?? 0) * 1000).toFixed(1)} ms`,
      met: stallMs <= STALL_MS_MAX,
    },
    {
      goal: `publish p99 below ${RATIO_MAX} times the quiet one`,
      seen: `${soakMs!.toFixed(2)} ms, quiet ${quietMs!.toFixed(2)} ms, ratio ${ratio.toFixed(2)}`,
      met: ratio < RATIO_MAX,
    },
    {
      goal: "there were checkpoints, removed files and whole readings of the log",
      seen:
        `${checkpoints} checkpoints, ${passes} readings, ${logMib.toFixed(0)} MiB of log left ` +
        `of ${writtenMib.toFixed(0)}`,
      met: checkpoints > 0 && passes > 0 && logMib < writtenMib,
    },
    {
      goal: "consumers kept up",
      seen: `${soak.consumed} of ${soak.latencies.count}`,
      met: soak.consumed >= soak.latencies.count,
    },
  ];
}

function figures(name: string, { latencies, samples }: Phase): string {
  const [p50, p99, p999] = [0.5, 0.99, 0.999].map((share) =>
    latencies.quantileMs(share).toFixed(2)
  );
  const mib = samples.at(-1)?.residentMib.toFixed(0) ?? "-";
  return `| ${name} | ${latencies.count} | ${p50} | ${p99} | ${p999} | ` +
    `${latencies.maxMs.toFixed(1)} | ${mib} |`;
}

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      minutes: { type: "string", default: "30" },
      rate: { type: "string" },
      bytes: { type: "string", default: "200" },
      folder: { type: "string" },
      json: { type: "string" },
      help: { type: "boolean", default: false },
    },
  });
  if (values.help) {
    console.log(HELP);
    return 0;
  }
  const { bytes } = values;
  const seconds = Number(values.minutes) * 60;
  const maximum = values.rate === undefined
    ? await inFolder(values.folder, (folder) => calibrate(folder, bytes))
    : null;
  const rate = Math.round(maximum === null ? Number(values.rate) : maximum / 2);
  if (!(seconds > 0) || !(rate > 0)) {
    console.error(`Cannot run: --minutes and --rate are numbers above 0\n\n${HELP}`);
    return 2;
  }
  console.log(`rate: ${rate} messages/s${maximum === null ? "" : `, of ${Math.round(maximum)}`}`);
  const quietSeconds = Math.min(QUIET_SECONDS_MAX, Math.max(10, seconds / 5));
  const quiet = await inFolder(values.folder, async (folder) => {
    await using broker = await BrokerProcess.start(folder, QUIET_FLAGS);
    return await run(broker, { rate, bytes, seconds: quietSeconds }, () => {});
  });
  const soak = await inFolder(values.folder, async (folder) => {
    await using broker = await BrokerProcess.start(folder, SOAK_FLAGS);
    return await run(broker, { rate, bytes, seconds }, (sample) => {
      console.log(
        `${sample.seconds.toFixed(0)} s: ${sample.residentMib.toFixed(0)} MiB, ` +
          `p99 ${sample.p99Ms.toFixed(2)} ms, max ${sample.maxMs.toFixed(1)} ms, ` +
          `${sample.waiting} waiting`,
      );
      // Refused while one is under way.
      void broker.post("/v1/storage/scrub").catch(() => {});
    });
  });
  const verdicts = judge(quiet, soak, Number(bytes));
  console.log("\n| part | messages | p50 ms | p99 ms | p99.9 ms | max ms | MiB |");
  console.log("|---|---:|---:|---:|---:|---:|---:|");
  console.log(`${figures("quiet", quiet)}\n${figures("soak", soak)}\n`);
  console.log("| goal | seen | |\n|---|---|---|");
  for (const { goal, seen, met } of verdicts) {
    console.log(`| ${goal} | ${seen} | ${met ? "met" : "MISSED"} |`);
  }
  if (values.json !== undefined) {
    const document = { rate, maximum, seconds, verdicts, quiet, soak };
    await Deno.writeTextFile(
      values.json,
      JSON.stringify(
        document,
        (_, value) => value instanceof Map ? Object.fromEntries(value) : value,
        2,
      ),
    );
  }
  return verdicts.every(({ met }) => met) ? 0 : 1;
}

Deno.exit(await main());
