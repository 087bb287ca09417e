/**
 * `kill -9` of a real broker under load from real connections, round after round on one folder: see
 * `kill_run.ts`. `deno task crash:kill` runs more rounds.
 *
 * ROUNDS sets the number of rounds (default 16), SEED repeats the choices of a run.
 */
import { deepEqual, ok } from "node:assert/strict";
import { runKills } from "./kill_run.ts";
import { TemporaryFolder } from "./process.ts";

const ROUNDS = Number(Deno.env.get("ROUNDS") ?? "16");
const SEED = Number(Deno.env.get("SEED") ?? Math.floor(Math.random() * 2 ** 32));
const SECONDS_PER_ROUND = 0.5;

Deno.test("kill -9 under load loses nothing confirmed, repeats no id, undoes no synced finish", async () => {
  console.log(`SEED=${SEED} ROUNDS=${ROUNDS}`);
  await using folder = await TemporaryFolder.create();
  const { kills, acts, ledger, summary } = await runKills({
    path: folder.path,
    rounds: ROUNDS,
    seed: SEED,
    secondsPerRound: SECONDS_PER_ROUND,
  });
  console.log(summary);
  deepEqual(ledger.problems, []);
  // The run must have been one.
  ok(ledger.confirmedCount > ROUNDS * 10, `${ledger.confirmedCount} confirmed`);
  const { finished, finishedDurably } = ledger.channel("orders/worked");
  ok(finishedDurably.size > 0 && finished.size > finishedDurably.size);
  ok(acts > ROUNDS, `${acts} decisions`);
  if (ROUNDS >= 10) {
    ok(kills.checkpoint > 0 && kills.removal > 0 && kills.file > 0, JSON.stringify(kills));
    ok(kills.compaction > 0 && ledger.largeCount > 0, summary);
  }
});

Deno.test("runKills() finds a folder that goes back to what it was", async () => {
  await using folder = await TemporaryFolder.create();
  const path = `${folder.path}/data`;
  const copy = `${folder.path}/copy`;
  await Deno.mkdir(path);
  const { ledger } = await runKills({
    path,
    rounds: 3,
    seed: SEED,
    secondsPerRound: SECONDS_PER_ROUND,
    tamper: async (round) => {
      if (round === 0) await copyFolder(path, copy);
      if (round !== 2) return;
      await Deno.remove(path, { recursive: true });
      await copyFolder(copy, path);
    },
  });
  // Which of the two shows, and how often, is a matter of what was under way.
  const found = (["missing", "resurrected"] as const).map((what) => ledger.counts.get(what) ?? 0);
  ok(found.some((count) => count > 0), "what was confirmed or finished since is not");
});

async function copyFolder(from: string, to: string): Promise<void> {
  await Deno.mkdir(to);
  for await (const { name, isDirectory } of Deno.readDir(from)) {
    if (isDirectory) await copyFolder(`${from}/${name}`, `${to}/${name}`);
    else await Deno.copyFile(`${from}/${name}`, `${to}/${name}`);
  }
}
