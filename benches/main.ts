/**
 * `deno task bench`: throughput of the broker, beside nsqd where there is one. Each figure is the
 * median of several rounds; in a round every target does every scenario, so that a machine whose
 * speed drifts does so for all of them. Each run has a fresh process and an empty folder.
 */
import { parseArgs } from "node:util";
import { ROOT, runLoad } from "./broker_process.ts";
import {
  nsqdTargets,
  type RunningTarget,
  sluiceTarget,
  startTarget,
  type Target,
} from "./targets.ts";

const HELP = `Measures the broker, and nsqd beside it where it is found.

  deno task bench [--rounds N] [--seconds S] [--nsqd PATH] [--only TEXT] [--write]

  --rounds N    runs of each figure; the median is shown (default 3)
  --seconds S   length of a publishing run (default 3)
  --nsqd PATH   the nsqd program (default: the one on PATH; without one, only ours is measured)
  --only TEXT   only scenarios whose name contains TEXT
  --write       puts the table into docs/PERFORMANCE.md
`;

const DOCUMENT = `${ROOT}/docs/PERFORMANCE.md`;
const BEGIN = "<!-- generated:bench -->";
const END = "<!-- /generated -->";
/** nsqd syncs each message by itself, so its backlog has to be small to end at all. */
const BACKLOG = { fast: 400_000, slow: 2_000 };
const CONSUME_SECONDS_MAX = 20;

interface Scenario {
  readonly name: string;
  run(target: Target, running: RunningTarget, seconds: number): Promise<number>;
}

const scenarios: readonly Scenario[] = [
  publishScenario("PUB, 1 connection", 1, 1),
  publishScenario("PUB, 16 connections", 16, 1),
  publishScenario("PUB, 64 connections", 64, 1),
  publishScenario("MPUB x100, 16 connections", 16, 100),
  flowScenario("publish and consume, 16 producers, 4 consumers, RDY 1", 1),
  flowScenario("publish and consume, 16 producers, 4 consumers, RDY 200", 200),
  consumeScenario("consume a backlog, 1 consumer, RDY 1", 1, 0.1),
  consumeScenario("consume a backlog, 1 consumer, RDY 200", 200, 1),
  consumeScenario("consume a backlog, 1 consumer, RDY 2500", 2500, 1),
];

/** Messages received a second while they are published one by one. */
function flowScenario(name: string, rdy: number): Scenario {
  return {
    name,
    run: async (_target, { tcpAddress, httpAddress }, seconds) => {
      await createChannel(httpAddress);
      const consuming = runLoad([
        "consume",
        `--address=${tcpAddress}`,
        "--connections=4",
        `--rdy=${rdy}`,
        `--seconds=${seconds + 1}`,
      ]);
      const published = await runLoad([
        "publish",
        `--address=${tcpAddress}`,
        "--connections=16",
        `--seconds=${seconds}`,
      ]);
      return (await consuming).messages / published.seconds;
    },
  };
}

async function createChannel(httpAddress: string): Promise<void> {
  for (const path of ["topic/create?topic=bench", "channel/create?topic=bench&channel=bench"]) {
    const response = await fetch(`http://${httpAddress}/${path}`, { method: "POST" });
    await response.body?.cancel();
  }
}

function publishScenario(name: string, connections: number, batch: number): Scenario {
  return {
    name,
    run: async (_target, { tcpAddress }, seconds) =>
      (await runLoad([
        "publish",
        `--address=${tcpAddress}`,
        `--connections=${connections}`,
        `--batch=${batch}`,
        `--seconds=${seconds}`,
      ])).messagesPerSecond,
  };
}

function consumeScenario(name: string, rdy: number, share: number): Scenario {
  return {
    name,
    run: async (target, { tcpAddress, httpAddress }) => {
      const backlog = target.name.includes("durable") ? BACKLOG.slow : BACKLOG.fast * share;
      await createChannel(httpAddress);
      let published = 0;
      while (published < backlog) {
        const { messages } = await runLoad([
          "publish",
          `--address=${tcpAddress}`,
          "--connections=4",
          "--batch=100",
          "--seconds=0.3",
        ]);
        published += messages;
      }
      return (await runLoad([
        "consume",
        `--address=${tcpAddress}`,
        `--rdy=${rdy}`,
        `--messages=${backlog}`,
        `--seconds=${CONSUME_SECONDS_MAX}`,
      ])).messagesPerSecond;
    },
  };
}

function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)] ?? 0;
}

function findNsqd(): string | null {
  for (const folder of (Deno.env.get("PATH") ?? "").split(":")) {
    try {
      if (Deno.statSync(`${folder}/nsqd`).isFile) return `${folder}/nsqd`;
    } catch {
      // Not in this folder.
    }
  }
  return null;
}

function show(perSecond: number | undefined): string {
  if (perSecond === undefined) return "-";
  return perSecond >= 10_000
    ? `${(perSecond / 1000).toFixed(perSecond >= 100_000 ? 0 : 1)}k`
    : perSecond.toFixed(0);
}

function table(targets: readonly Target[], results: Map<string, number[]>): string {
  const lines = [
    `| messages/s, 200-byte bodies | ${targets.map(({ name }) => name).join(" | ")} |`,
    `|---|${targets.map(() => "---:").join("|")}|`,
  ];
  for (const { name } of scenarios) {
    const cells = targets.map((target) => {
      const values = results.get(`${target.name}/${name}`);
      return show(values === undefined ? undefined : median(values));
    });
    if (cells.some((cell) => cell !== "-")) lines.push(`| ${name} | ${cells.join(" | ")} |`);
  }
  return lines.join("\n");
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      rounds: { type: "string", default: "3" },
      seconds: { type: "string", default: "3" },
      nsqd: { type: "string" },
      only: { type: "string", default: "" },
      write: { type: "boolean", default: false },
      help: { type: "boolean", default: false },
    },
  });
  if (values.help) return console.log(HELP);
  const nsqd = values.nsqd ?? findNsqd();
  const targets = [sluiceTarget(ROOT), ...(nsqd === null ? [] : nsqdTargets(nsqd))];
  if (nsqd === null) console.error("No nsqd on PATH and no --nsqd: measuring only ours.");
  const chosen = scenarios.filter(({ name }) => name.includes(values.only));
  const results = new Map<string, number[]>();
  for (let round = 1; round <= Number(values.rounds); round++) {
    for (const scenario of chosen) {
      for (const target of targets) {
        const running = await startTarget(target);
        try {
          const perSecond = await scenario.run(target, running, Number(values.seconds));
          const key = `${target.name}/${scenario.name}`;
          results.set(key, [...results.get(key) ?? [], perSecond]);
          console.error(
            `round ${round}  ${scenario.name.padEnd(30)} ${target.name.padEnd(14)} ${
              show(perSecond)
            }`,
          );
        } finally {
          await running.stop();
        }
      }
    }
  }
  const text = table(targets, results);
  console.log(text);
  if (values.write) await writeDocument(text, Number(values.rounds), Number(values.seconds));
}

async function writeDocument(text: string, rounds: number, seconds: number): Promise<void> {
  const document = await Deno.readTextFile(DOCUMENT);
  const begin = document.indexOf(BEGIN);
  const end = document.indexOf(END, begin);
  if (begin < 0 || end < 0) throw new Error(`Cannot write ${DOCUMENT}: it has no place for it`);
  const date = new Date().toISOString().slice(0, 10);
  const note =
    `Median of ${rounds} rounds, ${navigator.hardwareConcurrency} cores, load and broker ` +
    `on one machine, ${date}: \`deno task bench --rounds ${rounds} --seconds ${seconds} --write\``;
  await Deno.writeTextFile(
    DOCUMENT,
    `${document.slice(0, begin)}${BEGIN}\n${note}\n\n${text}\n${document.slice(end)}`,
  );
}

await main();
