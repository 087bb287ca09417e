/**
 * Kills, stops and troubles gateways, brokers and discoveries under load, and judges what became of every
 * publish: `deno task chaos --minutes 10 --seed 7`.
 *
 * Exit codes: 0 every promise was kept, 1 one was broken (the folder with the logs is kept), 2 wrong
 * arguments.
 */
import { parseArgs } from "node:util";
import { runChaos, type Scenario } from "./run.ts";

const HELP = `Usage: deno task chaos [--minutes M | --seconds S] [--seed N] [--scenario NAME]

  --minutes M       how long there is trouble; 1 by default
  --seconds S       the same in seconds
  --seed N          repeats the choices of a run; chosen and printed by default
  --scenario NAME   random (by default): faults at random, of all services
                    all-down: all brokers are killed, and away for so long
                    all-stopped: the same, and they are stopped in order
                    spool-full: all brokers are away and a gateway's spool is full for so long
                    disk-full: the same, and what is full is its disk; takes root
  --folder DIR      where folders and logs are made; the system's temporary folder by default
  --keep            keep them also when all is well
  --help            print this`;

const SCENARIOS: readonly string[] = [
  "random",
  "all-down",
  "all-stopped",
  "spool-full",
  "disk-full",
] satisfies Scenario[];

async function main(): Promise<number> {
  const { values } = parseArgs({
    args: Deno.args,
    options: {
      minutes: { type: "string", default: "1" },
      seconds: { type: "string" },
      seed: { type: "string", default: String(Math.floor(Math.random() * 2 ** 32)) },
      scenario: { type: "string", default: "random" },
      folder: { type: "string" },
      keep: { type: "boolean", default: false },
      help: { type: "boolean", default: false },
    },
  });
  if (values.help) {
    console.log(HELP);
    return 0;
  }
  const seconds = values.seconds === undefined ? Number(values.minutes) * 60 : +values.seconds;
  const seed = Number(values.seed);
  if (!Number.isInteger(seed) || !(seconds > 0) || !SCENARIOS.includes(values.scenario)) {
    console.error(`Cannot run: the seed, the time or the scenario is none\n\n${HELP}`);
    return 2;
  }
  const { folder } = values;
  const path = await Deno.makeTempDir({
    prefix: "sluice_chaos_",
    ...(folder === undefined ? {} : { dir: folder }),
  });
  console.log(`seed: ${seed}`);
  const scenario = values.scenario as Scenario;
  const isClean = await runOn(path, seed, scenario, seconds);
  if (isClean && !values.keep) await Deno.remove(path, { recursive: true });
  else console.log(`folders and logs are kept in ${path}`);
  console.log(`seed ${seed} ${isClean ? "kept every promise" : "FAILED"}`);
  return isClean ? 0 : 1;
}

async function runOn(
  path: string,
  seed: number,
  scenario: Scenario,
  seconds: number,
): Promise<boolean> {
  try {
    const report = await runChaos({ path, seed, scenario, seconds, log: console.log });
    for (const line of report.summary) console.log(line);
    for (const problem of report.problems) console.error(problem);
    return report.problems.length === 0;
  } catch (error) {
    console.error(error);
    return false;
  }
}

if (import.meta.main) Deno.exit(await main());
