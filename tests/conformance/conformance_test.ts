/**
 * The scripts in `testdata`, each against a service of ours in memory with simulated time, against one
 * behind real TCP with a folder on disk, and against NSQ's own program where there is one, so that
 * what a script expects is proven by the original. See ../integration/peers.ts for where that is.
 */
import { ok } from "node:assert/strict";
import { findPeers } from "../integration/peers.ts";
import { ROWS } from "./rows.ts";
import type { Stage } from "./stage.ts";
import { inMemory, original, overTcp, type Scene } from "./stages.ts";
import { parseScript, playScript, type WireScript } from "./wire_script.ts";

const FOLDER = new URL("./testdata/", import.meta.url);

interface NamedScript extends WireScript {
  readonly name: string;
}

const SCRIPTS: readonly NamedScript[] = [...Deno.readDirSync(FOLDER)]
  .map(({ name }) => ({ name, ...parseScript(Deno.readTextFileSync(new URL(name, FOLDER))) }))
  .sort((a, b) => (a.name < b.name ? -1 : 1));

const peers = await findPeers();
if ("missing" in peers) console.log(`Scripts are not proven by NSQ: ${peers.missing}`);

for (const script of SCRIPTS) {
  Deno.test(`over memory: ${script.title} (${script.name})`, () => {
    return inMemory(script, (stage) => playScript(script, stage));
  });
}

Deno.test("over TCP: every script gets the same bytes", async (t) => {
  await playAll(t, SCRIPTS, overTcp, "ours");
});

Deno.test({
  name: "NSQ itself answers every script the same",
  // The programs of NSQ are not everywhere; the reason is printed above.
  ignore: "missing" in peers,
  fn: async (t) => {
    if ("missing" in peers) return;
    const scripts = SCRIPTS.filter(({ onlyOurs }) => onlyOurs === "");
    await playAll(t, scripts, (scene, test) => {
      const program = peers.paths.get(scene.server === "broker" ? "nsqd" : "nsqlookupd") ?? "";
      return original(scene, program, test);
    }, "nsq");
  },
});

/** Plays all at once, since some wait for real time to pass; those with the same flags share a server. */
async function playAll(
  t: Deno.TestContext,
  scripts: readonly NamedScript[],
  use: (scene: Scene, test: (stage: Stage) => Promise<void>) => Promise<void>,
  side: "ours" | "nsq",
): Promise<void> {
  const groups = Map.groupBy(scripts, ({ server, flags }) => `${server} ${flags.join(" ")}`);
  await Promise.all(
    [...groups.values()].map(([first, ...rest]) =>
      first === undefined ? undefined : use(first, async (stage) => {
        await Promise.all([first, ...rest].map((script, index) =>
          t.step({
            name: script.name,
            fn: () => playScript(script, { ...stage, prefix: `topic_${index}_` }, side),
            // Steps that run side by side cannot be checked one by one; the whole test is.
            sanitizeOps: false,
            // As above.
            sanitizeResources: false,
            // As above.
            sanitizeExit: false,
          })
        ));
      })
    ),
  );
}

Deno.test("Every row of NSQ's own tests has a script, or a reason why it has none", () => {
  const names = new Set(SCRIPTS.map(({ name }) => name));
  for (const [row, by] of Object.entries(ROWS)) {
    const script = /^([\w-]+\.txt)$/.exec(by)?.[1];
    if (script !== undefined) ok(names.has(script), `${row}: there is no ${script}`);
    else {
      const [, path] = /^(?:elsewhere|waits|not here): (?:(\S+\.ts)\b)?.{10,}/.exec(by) ?? [];
      ok(/^(?:elsewhere|waits|not here): .{10,}/.test(by), `${row}: no script and no reason`);
      if (path !== undefined) Deno.statSync(new URL(`../../${path}`, import.meta.url));
    }
  }
});

Deno.test("Every script stands for a row or says what else it is for", () => {
  const used = new Set(Object.values(ROWS));
  for (const { name, title } of SCRIPTS) ok(used.has(name) || title.length > 20, name);
});
