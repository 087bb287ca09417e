/**
 * `deno task bench:scrape`: what being watched costs. A broker with many topics, each with a channel
 * and some messages, is asked for `/metrics` and `/stats` again and again. Meanwhile another process
 * asks for `/ping` every millisecond: an answer that is late was held up by a slice of the event loop.
 *
 * Prints one line for each kind of request: the time it takes, its size, and the latest `/ping` of each
 * request: the median over all requests, and the worst. The first line is without any request. On a
 * machine that does other work the worst says more of that, the median of the broker.
 */
import { parseArgs } from "node:util";
import { BrokerProcess, inFolder, ROOT, sleep } from "./broker_process.ts";
import { created } from "./loads.ts";
import { median } from "./summary.ts";

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

/** When a `/ping` was sent, Unix ms, and how long its answer took. */
type Ping = readonly [sentMs: number, tookMs: number];

/** Asks for `/ping` until standard input ends; prints all answers. */
async function probe(address: string): Promise<void> {
  let isOver = false;
  void Deno.stdin.readable.pipeTo(new WritableStream()).finally(() => isOver = true);
  const pings: Ping[] = [];
  while (!isOver) {
    const startMs = performance.now();
    await (await fetch(`http://${address}/ping`)).text();
    pings.push([performance.timeOrigin + startMs, performance.now() - startMs]);
    await sleep(1);
  }
  console.log(JSON.stringify(pings));
}

/** Runs `work` beside a probe, round by round; resolves with the latest answer of each round. */
async function probed(
  address: string,
  rounds: number,
  work: () => Promise<unknown>,
): Promise<readonly number[]> {
  const child = new Deno.Command(Deno.execPath(), {
    args: ["run", "--allow-net", `${ROOT}/benches/scrape.ts`, `--probe=${address}`],
    stdin: "piped",
    stdout: "piped",
    stderr: "inherit",
  }).spawn();
  // What it asks for first is slow in itself.
  await sleep(1000);
  const spans: (readonly [startMs: number, endMs: number])[] = [];
  for (let round = 0; round < rounds; round++) {
    const startMs = performance.timeOrigin + performance.now();
    await work();
    spans.push([startMs, performance.timeOrigin + performance.now()]);
    await sleep(50);
  }
  await child.stdin.close();
  const { stdout } = await child.output();
  const pings: readonly Ping[] = JSON.parse(new TextDecoder().decode(stdout));
  return spans.map(([startMs, endMs]) =>
    Math.max(
      0,
      ...pings
        .filter(([sentMs, tookMs]) => sentMs <= endMs && sentMs + tookMs >= startMs)
        .map(([, tookMs]) => tookMs),
    )
  );
}

async function createTopics(broker: BrokerProcess, count: number): Promise<void> {
  let next = 0;
  const create = async () => {
    while (next < count) {
      const topic = `topic_${String(next++).padStart(6, "0")}`;
      await created(broker, ["channel"], topic);
      const response = await fetch(`http://${broker.httpAddress}/pub?topic=${topic}`, {
        method: "POST",
        body: "message",
      });
      await response.body?.cancel();
    }
  };
  await Promise.all(Array.from({ length: CREATING }, create));
}

async function measure(
  broker: BrokerProcess,
  [kind, atOnce]: typeof KINDS[number],
  rounds: number,
): Promise<string> {
  const [path = ""] = kind.split(",");
  const timesMs: number[] = [];
  let bytes = 0;
  const pingsMs = await probed(broker.httpAddress, rounds, async () => {
    const startMs = performance.now();
    const texts = await Promise.all(Array.from({ length: atOnce }, () => broker.get(path)));
    timesMs.push(performance.now() - startMs);
    bytes = texts[0]?.length ?? 0;
  });
  return `| ${kind} | ${median(timesMs).toFixed(0)} | ${(bytes / 1024).toFixed(0)} | ` +
    `${latest(pingsMs)} |`;
}

function latest(pingsMs: readonly number[]): string {
  return `${median(pingsMs).toFixed(1)} | ${Math.max(...pingsMs).toFixed(1)}`;
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
    console.log("| Request | ms, median | KiB | latest /ping, ms: median | worst |");
    console.log("|---|---:|---:|---:|---:|");
    const rounds = Number(values.rounds);
    const idleMs = await probed(broker.httpAddress, rounds, () => sleep(60));
    console.log(`| none | | | ${latest(idleMs)} |`);
    for (const kind of KINDS) console.log(await measure(broker, kind, rounds));
  });
}

if (values.help) console.log(HELP);
else if (values.probe !== undefined) await probe(values.probe);
else await main();
