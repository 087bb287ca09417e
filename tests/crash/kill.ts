/**
 * Kills a real broker under load, many times: `deno task crash:kill --rounds 200`.
 *
 * Exit codes: 0 every promise was kept, 1 one was broken (the folder is kept), 2 wrong arguments.
 */
import { parseArgs } from "node:util";
import { runKills } from "../integration/kill_run.ts";

const HELP =
  `Usage: deno task crash:kill [--rounds N] [--seed S] [--seconds-per-round X] [--folder DIR]

  --rounds N              how many brokers are killed; 50 by default
  --seed S                repeats the choices of a run; chosen and printed by default
  --seconds-per-round X   how long a round lasts at most, unless it waits for something; 1 by default
  --folder DIR            where the data folder is made; the system's temporary folder by default
  --help                  print this`;

async function main(): Promise<number> {
  const { values } = parseArgs({
    args: Deno.args,
    options: {
      rounds: { type: "string", default: "50" },
      seed: { type: "string", default: String(Math.floor(Math.random() * 2 ** 32)) },
      "seconds-per-round": { type: "string", default: "1" },
      folder: { type: "string" },
      help: { type: "boolean", default: false },
    },
  });
  if (values.help) {
    console.log(HELP);
    return 0;
  }
  const rounds = Number(values.rounds);
  const seed = Number(values.seed);
  const secondsPerRound = Number(values["seconds-per-round"]);
  if (
    !Number.isInteger(rounds) || rounds < 1 || !Number.isInteger(seed) || !(secondsPerRound > 0)
  ) {
    console.error(`Cannot run: --rounds, --seed and --seconds-per-round are numbers\n\n${HELP}`);
    return 2;
  }
  const { folder } = values;
  const path = await Deno.makeTempDir({
    prefix: "sluice_kill_",
    ...(folder === undefined ? {} : { dir: folder }),
  });
  console.log(`seed: ${seed}`);
  const isClean = await runOn(path, { rounds, seed, secondsPerRound });
  if (isClean) await Deno.remove(path, { recursive: true });
  else {
    console.error(`seed ${seed} failed. The data folder is kept in ${path}; look at it with`);
    console.error(`  deno task ctl data inspect ${path}`);
    console.error(`  deno task ctl data verify ${path}`);
  }
  return isClean ? 0 : 1;
}

async function runOn(
  path: string,
  run: { readonly rounds: number; readonly seed: number; readonly secondsPerRound: number },
): Promise<boolean> {
  try {
    const { ledger, summary } = await runKills({ ...run, path, progress: console.log });
    for (const problem of ledger.problems) console.error(problem);
    console.log(summary);
    return ledger.counts.size === 0;
  } catch (error) {
    console.error(error);
    return false;
  }
}

if (import.meta.main) Deno.exit(await main());
