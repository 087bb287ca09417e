/**
 * `deno task fuzz:differential [--seeds N] [--seed S]`: random scenarios against our broker and nsqd at
 * once, comparing what comes back. N scenarios (1000) from seed S (1) on. A difference that shows each
 * time is shrunk and printed with its seed; the exit code is 1 then. Needs nsqd, see
 * ../integration/peers.ts. Known differences are in differential/compare.ts.
 */
import { SystemClock } from "@sluice/shared/runtime/system";
import { SeededRandom } from "@sluice/shared/testing";
import { findPeers } from "../integration/peers.ts";
import { HttpProcess, Service, TemporaryFolder } from "../integration/process.ts";
import { differs, type Pair, shrink } from "./differential/play.ts";
import { makeScenario, type Scenario, show } from "./differential/scenario.ts";

/** Scenarios played at a time. */
const SIDE_BY_SIDE = 12;

/** A difference that was found. */
export interface Finding {
  readonly seed: number;
  readonly difference: string;
  readonly scenario: Scenario;
}

/** Plays the scenarios of some seeds; what differs, shrunk, `findingsMax` of them at most. */
export async function fuzz(
  nsqd: string,
  firstSeed: number,
  count: number,
  findingsMax: number,
  onProgress: (done: number) => void = () => {},
): Promise<readonly Finding[]> {
  await using ours = await TemporaryFolder.create();
  await using theirs = await TemporaryFolder.create();
  await using broker = await Service.broker(ours.path);
  await using daemon = new HttpProcess("nsqd", nsqd, [
    "--tcp-address=127.0.0.1:0",
    "--http-address=127.0.0.1:0",
    "--broadcast-address=127.0.0.1",
    `--data-path=${theirs.path}`,
  ]);
  await daemon.ready();
  const pair: Pair = { ours: broker, theirs: daemon, clock: new SystemClock(), playCount: 0 };
  const found: Finding[] = [];
  let next = firstSeed;
  const work = async () => {
    while (next < firstSeed + count && found.length < findingsMax) {
      const seed = next++;
      const scenario = makeScenario(new SeededRandom(seed));
      const difference = await differs(pair, scenario);
      if (difference !== "") found.push({ seed, scenario, difference });
      onProgress(next - firstSeed);
    }
  };
  await Promise.all(Array.from({ length: SIDE_BY_SIDE }, work));
  return await Promise.all(found.map(async ({ seed, scenario, difference }) => {
    return { seed, ...await shrink(pair, scenario, difference) };
  }));
}

/** A finding for people. */
export function showFinding({ seed, difference, scenario }: Finding): string {
  return `seed ${seed}: ${difference}\n${show(scenario)}`;
}

async function main(args: readonly string[]): Promise<number> {
  const option = (name: string, fallback: number) => {
    const at = args.findIndex((argument) => argument.split("=")[0] === `--${name}`);
    if (at < 0) return fallback;
    return Number(args[at]?.split("=")[1] ?? args[at + 1]);
  };
  const peers = await findPeers();
  if ("missing" in peers) {
    console.error(`There is no nsqd to compare with: ${peers.missing}`);
    return 1;
  }
  const [seed, seeds] = [option("seed", 1), option("seeds", 1000)];
  console.log(`${seeds} scenarios from seed ${seed} on`);
  const findings = await fuzz(peers.paths.get("nsqd") ?? "", seed, seeds, 10, (done) => {
    if (done % 500 === 0) console.log(`${done} of ${seeds}`);
  });
  for (const finding of findings) console.log(`\n${showFinding(finding)}`);
  console.log(`\n${seeds - findings.length} passed, ${findings.length} failed`);
  return findings.length > 0 ? 1 : 0;
}

if (import.meta.main) Deno.exit(await main(Deno.args));
