/** Where generated tables go in docs/PERFORMANCE.md, and what is said of the run that they are from. */
import { ROOT } from "./broker_process.ts";

const DOCUMENT = `${ROOT}/docs/PERFORMANCE.md`;
const END = "<!-- /generated -->";

/** Puts `text` in the place of `name`: between its generated marks. */
export async function writeSection(name: string, text: string): Promise<void> {
  const begin = `<!-- generated:${name} -->`;
  const document = await Deno.readTextFile(DOCUMENT);
  const from = document.indexOf(begin);
  const to = document.indexOf(END, from);
  if (from < 0 || to < 0) throw new Error(`Cannot write ${DOCUMENT}: it has no place for ${name}`);
  await Deno.writeTextFile(
    DOCUMENT,
    `${document.slice(0, from)}${begin}\n${text}\n${document.slice(to)}`,
  );
}

/** The machine, the commit, the day and the command of this run. */
export async function runNote(command: string): Promise<string> {
  const { stdout } = await new Deno.Command("git", {
    args: ["-C", ROOT, "describe", "--always", "--dirty"],
    stderr: "null",
  }).output();
  const commit = new TextDecoder().decode(stdout).trim();
  const today = new Date().toISOString().slice(0, 10);
  return `${navigator.hardwareConcurrency} cores, load and broker on one machine, commit ${commit}, ` +
    `${today}: \`${command}\``;
}
