/**
 * `deno task bench:scrape`: what being watched costs. A broker with many topics, each with a channel
 * and some messages, is asked for `/metrics` and `/stats` again and again. Meanwhile another process
 * asks for `/ping` every millisecond: an answer that is late was held up by a slice of the event loop.
 *
 * Prints one line for each kind of request: the time it takes, its size, the latest `/ping`, and the
 * latest timer of the broker itself, from its histogram of the event loop's lag.
 */
import { parseArgs } from "node:util";
import { BrokerProcess, inFolder, median, ROOT, sleep } from "./broker_process.ts";

const HELP = `Measures what scrapes cost the broker's event loop.

  deno task bench:scrape [--topics N] [--rounds N] [--flag FLAG]... [--dir PATH]

  --topics N   topics, each with one channel (default 10000)
  --rounds N   requests of each kind (default 20)
  --flag FLAG  passed to the broker, such as --metrics-topics-max=10000
  --dir PATH   where the data folder is made
`;

const KINDS = [
  ["/metrics", 1],
  ["/stats?format=json", 1],
  ["/stats", 1],
  ["/metrics, 4 at once", 4],
] as const;
const CREATING = 64;
const LAG_BUCKET_REGEXP = /^sluice_event_loop_lag_seconds_bucket\{le="([^"]+)"\}$/;

const { values } = parseArgs({
  options: {
    topics: { type: "string", default: "10000" },
    rounds: { type: "string", default: "20" },
    flag: { type: "string", multiple: true, default: [] },
    dir: { type: "string" },
    probe: { type: "string" },
    help: { type: "boolean", default: false },
  },
});

/** Asks for `/ping` until standard input ends; prints the latest answer in milliseconds. */
async function probe(address: string): Promise<void> {
  let isOver = false;
  void Deno.stdin.readable.pipeTo(new WritableStream()).finally(() => isOver = true);
  let latestMs = 0;
  while (!isOver) {
    const startMs = performance.now();
    await (await fetch(`http://${address}/ping`)).text();
    latestMs = Math.max(latestMs, performance.now() - startMs);
    await sleep(1);
  }
  console.log(latestMs);
}

/** Runs `work` beside a probe; resolves with the probe's latest answer. */
async function probed(address: string, work: () => Promise<void>): Promise<number> {
  const child = new Deno.Command(Deno.execPath(), {
    args: ["run", "--allow-net", `${ROOT}/benches/scrape.ts`, `--probe=${address}`],
    stdin: "piped",
    stdout: "piped",
    stderr: "inherit",
  }).spawn();
  await sleep(300);
  await work();
  await child.stdin.close();
  const { stdout } = await child.output();
  return Number(new TextDecoder().decode(stdout));
}

async function createTopics(broker: BrokerProcess, count: number): Promise<void> {
  let next = 0;
  const create = async () => {
    while (next < count) {
      const topic = `topic_${String(next++).padStart(6, "0")}`;
      await broker.createChannels(topic, "channel");
      const response = await fetch(`http://${broker.httpAddress}/pub?topic=${topic}`, {
        method: "POST",
        body: "message",
      });
      await response.body?.cancel();
    }
  };
  await Promise.all(Array.from({ length: CREATING }, create));
}

/** The bound of the highest bucket that has grown, in milliseconds. */
function latestLagMs(
  before: ReadonlyMap<string, number>,
  after: ReadonlyMap<string, number>,
): number {
  let latest = 0;
  let below = 0;
  for (const [name, value] of after) {
    const bound = LAG_BUCKET_REGEXP.exec(name)?.[1];
    if (bound === undefined) continue;
    const grown = value - (before.get(name) ?? 0);
    if (grown > below) latest = bound === "+Inf" ? Infinity : Number(bound) * 1000;
    below = grown;
  }
  return latest;
}

async function measure(
  broker: BrokerProcess,
  [kind, atOnce]: typeof KINDS[number],
  rounds: number,
): Promise<string> {
  const [path = ""] = kind.split(",");
  const before = await broker.metrics();
  const timesMs: number[] = [];
  let bytes = 0;
  const pingMs = await probed(broker.httpAddress, async () => {
    for (let round = 0; round < rounds; round++) {
      const startMs = performance.now();
      const texts = await Promise.all(Array.from({ length: atOnce }, () => broker.get(path)));
      timesMs.push(performance.now() - startMs);
      bytes = texts[0]?.length ?? 0;
      await sleep(50);
    }
  });
  const lagMs = latestLagMs(before, await broker.metrics());
  return `| ${kind} | ${median(timesMs).toFixed(0)} | ${(bytes / 1024).toFixed(0)} | ` +
    `${pingMs.toFixed(1)} | ≤ ${lagMs} |`;
}

async function main(): Promise<void> {
  const topics = Number(values.topics);
  await inFolder(values.dir, async (folder) => {
    {
      await using broker = await BrokerProcess.start(folder, values.flag);
      await createTopics(broker, topics);
    }
    // A new process: its figures hold nothing of the making.
    await using broker = await BrokerProcess.start(folder, values.flag);
    console.log(
      `${topics} topics, ${values.rounds} requests of each kind ${values.flag.join(" ")}`,
    );
    console.log("| Request | ms, median | KiB | latest /ping, ms | latest timer, ms |");
    console.log("|---|---:|---:|---:|---:|");
    const idleMs = await probed(broker.httpAddress, () => sleep(2000));
    console.log(`| none | | | ${idleMs.toFixed(1)} | |`);
    for (const kind of KINDS) console.log(await measure(broker, kind, Number(values.rounds)));
  });
}

if (values.help) console.log(HELP);
else if (values.probe !== undefined) await probe(values.probe);
else await main();
