/**
 * Runs the crash test over a range of seeds: `deno task crash --seeds 2000 --seed 1`.
 *
 * Exit codes: 0 every promise was kept, 1 a seed failed (its trace is printed), 2 wrong arguments.
 */
import { parseArgs } from "node:util";
import { runSeed, SeedFailure } from "./harness.ts";

const HELP = `Usage: deno task crash [--seed S] [--seeds N] [--keep-going] [--verbose]

  --seed S       the first seed; 1 by default
  --seeds N      how many seeds, counted up from the first; 1000 by default
  --keep-going   go on after a failing seed, and only name it
  --verbose      print what each seed did
  --help         print this`;

const PROGRESS_MS = 5000;

async function main(): Promise<number> {
  const { values } = parseArgs({
    args: Deno.args,
    options: {
      seed: { type: "string", default: "1" },
      seeds: { type: "string", default: "1000" },
      "keep-going": { type: "boolean", default: false },
      verbose: { type: "boolean", default: false },
      help: { type: "boolean", default: false },
    },
  });
  if (values.help) {
    console.log(HELP);
    return 0;
  }
  const first = Number(values.seed);
  const count = Number(values.seeds);
  if (!Number.isInteger(first) || first < 0 || !Number.isInteger(count) || count < 1) {
    console.error(`Cannot run: --seed and --seeds are natural numbers\n\n${HELP}`);
    return 2;
  }
  return await runSeeds(first, count, values["keep-going"], values.verbose);
}

async function runSeeds(
  first: number,
  count: number,
  keepGoing: boolean,
  verbose: boolean,
): Promise<number> {
  const startMs = performance.now();
  let reportedMs = startMs;
  let failures = 0;
  let crashes = 0;
  let deliveries = 0;
  let compactions = 0;
  let trims = 0;
  let evictions = 0;
  for (let seed = first; seed < first + count; seed++) {
    try {
      const report = await runSeed(seed);
      crashes += report.crashes;
      deliveries += report.deliveries;
      compactions += report.compactions;
      trims += report.trims;
      evictions += report.evictions;
      if (verbose) console.log(`seed ${seed}: ${JSON.stringify(report)}`);
    } catch (error) {
      if (!(error instanceof SeedFailure)) throw error;
      failures++;
      console.error(keepGoing ? error.message : error.describe());
      if (!keepGoing) return 1;
    }
    const nowMs = performance.now();
    if (nowMs - reportedMs < PROGRESS_MS) continue;
    reportedMs = nowMs;
    const done = seed - first + 1;
    console.log(
      `${done} of ${count} seeds, ${(done / (nowMs - startMs) * 1000).toFixed(1)} a second`,
    );
  }
  const seconds = (performance.now() - startMs) / 1000;
  console.log(
    `${count} seeds from ${first} in ${seconds.toFixed(1)} s: ${crashes} ends of a life, ` +
      `${deliveries} deliveries, ${compactions} files compacted, ${trims} times messages given up, ` +
      `${evictions} files given up, ${failures} failed seeds`,
  );
  return failures === 0 ? 0 : 1;
}

if (import.meta.main) Deno.exit(await main());
