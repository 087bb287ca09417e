/**
 * `deno task bench`: throughput of the broker in a few minutes. Each figure is the median of several
 * rounds over all scenarios; each run has a fresh process and an empty folder. Beside other brokers:
 * `bench:peers`; along one axis: `bench:axes`.
 */
import { parseArgs } from "node:util";
import { ROOT } from "./broker_process.ts";
import { runNote, writeSection } from "./document.ts";
import { drained, published, through } from "./loads.ts";
import { median, showFigure } from "./summary.ts";
import { type RunningTarget, sluiceTarget, startTarget } from "./targets.ts";

const HELP = `Measures the broker.

  deno task bench [--rounds N] [--seconds S] [--only TEXT] [--json FILE] [--write]

  --rounds N    runs of each figure; the median is shown (default 3)
  --seconds S   length of a publishing run (default 3)
  --only TEXT   only scenarios whose name contains TEXT
  --json FILE   writes every single figure there
  --write       puts the table into docs/PERFORMANCE.md
`;
const BACKLOG = 300_000;
/** More than ring and page cache hold. */
const BACKLOG_COLD = 1_500_000;

interface Scenario {
  readonly name: string;
  readonly unit: "messages/s" | "us";
  run(running: RunningTarget, seconds: number): Promise<number>;
}

const SCENARIOS: readonly Scenario[] = [
  ...([[1, 1], [16, 1], [64, 1], [16, 100]] as const).map(([connections, batch]): Scenario => ({
    name: `${batch === 1 ? "PUB" : `MPUB x${batch}`}, ${counted(connections, "connection")}`,
    unit: "messages/s",
    run: (running, seconds) => published(running, { connections, batch, seconds }),
  })),
  ...([[1, 1], [16, 1], [1, 200], [1, 2500]] as const).map(([connections, rdy]): Scenario => ({
    name: `consume a backlog, ${counted(connections, "consumer")}, RDY ${rdy}`,
    unit: "messages/s",
    run: (running) =>
      drained(running, rdy, rdy === 1 ? BACKLOG / 10 : BACKLOG, [`--connections=${connections}`]),
  })),
  {
    name: "consume a cold backlog, 1 consumer, RDY 2500",
    unit: "messages/s",
    run: (running) => drained(running, 2500, BACKLOG_COLD),
  },
  {
    name: "through, 64 producers, 4 consumers",
    unit: "messages/s",
    run: async (running, seconds) =>
      (await through(running, { producers: 64, consumers: 4, seconds })).receivedPerSecond,
  },
  {
    name: "through, 16 producers, MPUB x100, 4 consumers",
    unit: "messages/s",
    run: async (running, seconds) => (await batchesThrough(running, seconds)).receivedPerSecond,
  },
  {
    name: "CPU of the broker for a message of these: publish, delivery, FIN",
    unit: "us",
    run: async (running, seconds) => (await batchesThrough(running, seconds)).cpuUs,
  },
];

function counted(count: number, what: string): string {
  return `${count} ${what}${count === 1 ? "" : "s"}`;
}

function batchesThrough(running: RunningTarget, seconds: number) {
  return through(running, { producers: 16, consumers: 4, batch: 100, seconds });
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      rounds: { type: "string", default: "3" },
      seconds: { type: "string", default: "3" },
      only: { type: "string", default: "" },
      json: { type: "string" },
      write: { type: "boolean", default: false },
      help: { type: "boolean", default: false },
    },
  });
  if (values.help) return console.log(HELP);
  const scenarios = SCENARIOS.filter(({ name }) => name.includes(values.only));
  const figures = scenarios.map(({ name, unit }) => ({ name, unit, figures: [] as number[] }));
  for (let round = 1; round <= Number(values.rounds); round++) {
    for (const [index, { name, run }] of scenarios.entries()) {
      const running = await startTarget(sluiceTarget(ROOT));
      try {
        const figure = await run(running, Number(values.seconds));
        figures[index]!.figures.push(figure);
        console.error(
          `round ${round} of ${values.rounds}  ${name.padEnd(66)} ${showFigure(figure)}`,
        );
      } finally {
        await running.stop();
      }
    }
  }
  const command = `deno task bench --rounds ${values.rounds} --seconds ${values.seconds} --write`;
  const note = `Medians of ${values.rounds} rounds, ${await runNote(command)}`;
  const table = [
    "| 200-byte bodies, every OK on disk | |",
    "|---|---:|",
    ...figures.map(({ name, unit, figures }) =>
      `| ${name}, ${unit} | ${showFigure(median(figures))} |`
    ),
  ].join("\n");
  console.log(`${note}\n\n${table}`);
  if (values.json !== undefined) {
    await Deno.writeTextFile(values.json, JSON.stringify({ note, scenarios: figures }, null, 1));
  }
  if (values.write) await writeSection("bench", `${note}\n\n${table}`);
}

await main();
