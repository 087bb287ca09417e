/**
 * Runs the scripts in `testdata`: a topic with its channels as pure machines, in a world of recorded
 * effects. A script is blocks of commands, a line `----`, and what the commands led to: effects in
 * order, then the state of each channel. Lines with `#` are comments. With `SLUICE_REWRITE=1` in the
 * environment the results are written into the scripts, to be reviewed as a diff.
 */
import { deepStrictEqual as equal } from "node:assert/strict";
import { World } from "./machine_world_test.ts";

const FOLDER = new URL("./testdata/", import.meta.url);
const REWRITE = Deno.env.get("SLUICE_REWRITE") === "1";

/** Runs a script and returns it with what happened in place of what was expected. */
async function played(script: string): Promise<string> {
  const world = new World();
  const blocks: string[] = [];
  for (const block of script.trimEnd().split("\n\n")) {
    const lines = block.split("\n");
    const mark = lines.indexOf("----");
    const input = mark < 0 ? lines : lines.slice(0, mark);
    const commands = input.filter((line) => !line.startsWith("#") && line !== "");
    const output = commands.length === 0 ? [] : ["----", ...await world.run(commands)];
    blocks.push([...input, ...output].join("\n"));
  }
  return blocks.join("\n\n") + "\n";
}

for (const { name } of [...Deno.readDirSync(FOLDER)].sort((a, b) => a.name < b.name ? -1 : 1)) {
  const script = Deno.readTextFileSync(new URL(name, FOLDER));
  Deno.test(`Channel: ${script.slice(2, script.indexOf("\n"))} (${name})`, async () => {
    const result = await played(script);
    if (REWRITE) Deno.writeTextFileSync(new URL(name, FOLDER), result);
    else equal(result.split("\n"), script.split("\n"));
  });
}
