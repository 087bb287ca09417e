/**
 * `deno task bench:gate`: a few figures beside `benches/baseline.json`, before a release. Meant for the
 * machine that the baseline was taken on, with nothing else running; exits with 1 when one is worse than
 * the bounds in `gate_judge.ts` allow. `--update` takes a new baseline.
 */
import { parseArgs } from "node:util";
import { ROOT, runOpenLoop } from "./broker_process.ts";
import { type Figure, judge } from "./gate_judge.ts";
import { drained, published } from "./loads.ts";
import { median, showFigure } from "./summary.ts";
import { type RunningTarget, sluiceTarget, startTarget } from "./targets.ts";

const HELP = `Compares a few figures with benches/baseline.json.

  deno task bench:gate [--rounds N] [--seconds S] [--update]

  --rounds N   rounds of each figure (default 5); medians are compared
  --seconds S  length of a run (default 3)
  --update     writes a new baseline instead
`;
const BASELINE = `${ROOT}/benches/baseline.json`;
const BACKLOG = 300_000;
const LATENCY_RATE = 1_000;

interface Scenario extends Omit<Figure, "value"> {
  run(running: RunningTarget, seconds: number): Promise<number>;
}

const SCENARIOS: readonly Scenario[] = [
  publish("PUB, 1 connection", 1, 1),
  publish("PUB, 64 connections", 64, 1),
  publish("MPUB x100, 16 connections", 16, 100),
  {
    name: "consume a backlog, RDY 200",
    unit: "messages/s",
    run: (running) => drained(running, 200, BACKLOG),
  },
  {
    name: "publish at 1000/s, p99",
    unit: "ms",
    run: async ({ tcpAddress }, seconds) => {
      return (await runOpenLoop(tcpAddress, LATENCY_RATE, seconds)).quantileMs(0.99);
    },
  },
];

function publish(name: string, connections: number, batch: number): Scenario {
  return {
    name,
    unit: "messages/s",
    run: (running, seconds) => published(running, { connections, batch, seconds }),
  };
}

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      rounds: { type: "string", default: "5" },
      seconds: { type: "string", default: "3" },
      update: { type: "boolean", default: false },
      help: { type: "boolean", default: false },
    },
  });
  if (values.help) {
    console.log(HELP);
    return 0;
  }
  const taken = new Map<string, number[]>(SCENARIOS.map(({ name }) => [name, []]));
  for (let round = 1; round <= Number(values.rounds); round++) {
    for (const scenario of SCENARIOS) {
      const running = await startTarget(sluiceTarget(ROOT));
      try {
        const value = await scenario.run(running, Number(values.seconds));
        taken.get(scenario.name)!.push(value);
        console.error(`round ${round}  ${scenario.name.padEnd(30)} ${showFigure(value)}`);
      } finally {
        await running.stop();
      }
    }
  }
  const figures: Figure[] = SCENARIOS.map(({ name, unit }) => {
    return { name, unit, value: median(taken.get(name)!) };
  });
  if (values.update) {
    const document = Object.fromEntries(figures.map(({ name, value }) => [name, value]));
    await Deno.writeTextFile(BASELINE, JSON.stringify(document, null, 2) + "\n");
    return 0;
  }
  const baseline = JSON.parse(await Deno.readTextFile(BASELINE)) as Record<string, number>;
  const verdicts = judge(figures, baseline);
  for (const { name, ratio, isGood } of verdicts) {
    const share = ratio === null ? "no baseline" : `${ratio.toFixed(2)} of the baseline`;
    console.log(`${isGood ? "good" : "WORSE"}  ${name}: ${share}`);
  }
  return verdicts.every(({ isGood }) => isGood) ? 0 : 1;
}

Deno.exit(await main());
