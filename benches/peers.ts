/**
 * `deno task bench:peers`: ours beside nsqd in three durability classes, and once with all it gets in
 * memory, and beside whatever else is named, in one run. Rounds alternate, so that a machine whose speed drifts does so for all; each run
 * has a fresh process and an empty folder. Ratios are taken within a round.
 */
import { parseArgs } from "node:util";
import { ROOT } from "./broker_process.ts";
import { runNote, writeSection } from "./document.ts";
import {
  type LoadTools,
  NSQD_ALL_IN_MEMORY,
  NSQD_DISK,
  NSQD_DURABLE,
  NSQD_MEMORY,
  SCENARIOS,
} from "./peer_scenarios.ts";
import { benchPrograms } from "./peer_tools.ts";
import { peersTable, Results } from "./peers_table.ts";
import { showFigure } from "./summary.ts";
import { sluiceTarget, startTarget, type Target } from "./targets.ts";

const HELP = `Measures the broker beside nsqd, and beside other brokers that speak NSQ.

  deno task bench:peers [--rounds N] [--seconds S] [--only TEXT] [--without NAME]...
                        [--rival NAME=COMMAND]... [--json FILE] [--write]

  --rounds N            runs of each figure (default 5); medians are shown
  --seconds S           length of a run (default 3)
  --only TEXT           only scenarios whose name contains TEXT
  --without NAME        leaves a target out: "nsqd memory" (nsqd with its defaults), "nsqd disk",
                        "nsqd durable", "nsqd all in memory"
  --rival NAME=COMMAND  one more target; it is given --tcp-address, --http-address, --data-path
  --json FILE           writes every single figure there
  --write               puts the table into docs/PERFORMANCE.md

nsqd and the load tools are taken from NSQ_BIN or PATH, or built with Go from ../shared/peers.
`;

/** So large that nothing of a run goes to its disk: it is for each topic and each channel. */
const NSQD_MEMORY_QUEUE_ALL = 4_000_000;

async function text(
  program: string,
  args: readonly string[],
  cores = navigator.hardwareConcurrency,
): Promise<string> {
  const { success, stdout, stderr } = await new Deno.Command(program, {
    args: [...args],
    env: { GOMAXPROCS: String(cores) },
    stdin: "null",
  }).output();
  const [out, log] = [stdout, stderr].map((bytes) => new TextDecoder().decode(bytes).trim());
  // nsqload tells of lost messages by its exit, and says which load it was.
  if (!success && !out!.startsWith("{")) {
    throw new Error(`Cannot load with ${program} ${args.join(" ")}: ${log}`);
  }
  // Some of the tools write what they found to their log.
  return out === "" ? log! : out!;
}

function rivals(named: readonly string[]): Target[] {
  return named.map((text) => {
    const separator = text.indexOf("=");
    if (separator < 1) throw new TypeError(`--rival wants NAME=COMMAND, not "${text}"`);
    return { name: text.slice(0, separator), command: text.slice(separator + 1).split(" ") };
  });
}

/** The target for so many topics: only the memory queue depends on that. */
function forTopics({ name, command }: Target, topics: number): Target {
  if (name !== NSQD_ALL_IN_MEMORY) return { name, command };
  const queue = Math.ceil(NSQD_MEMORY_QUEUE_ALL / topics);
  return { name, command: [...command, `--mem-queue-size=${queue}`] };
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      rounds: { type: "string", default: "5" },
      seconds: { type: "string", default: "3" },
      only: { type: "string", default: "" },
      without: { type: "string", multiple: true, default: [] },
      rival: { type: "string", multiple: true, default: [] },
      json: { type: "string" },
      write: { type: "boolean", default: false },
      help: { type: "boolean", default: false },
    },
  });
  if (values.help) return console.log(HELP);
  const { nsqd, ...programs } = await benchPrograms(ROOT);
  const tools: LoadTools = { ...programs, text };
  const targets = [
    sluiceTarget(ROOT),
    { name: NSQD_MEMORY, command: [nsqd] },
    { name: NSQD_DISK, command: [nsqd, "--mem-queue-size=0"] },
    { name: NSQD_DURABLE, command: [nsqd, "--mem-queue-size=0", "--sync-every=1"] },
    { name: NSQD_ALL_IN_MEMORY, command: [nsqd] },
    ...rivals(values.rival),
  ].filter(({ name }) => !values.without.includes(name));
  const [rounds, seconds] = [Number(values.rounds), Number(values.seconds)];
  const scenarios = SCENARIOS.filter(({ figures }) =>
    figures.some(({ name }) => name.includes(values.only))
  );
  const results = new Results();
  for (let round = 1; round <= rounds; round++) {
    for (const scenario of scenarios) {
      // Nobody is always the first, or always behind the same other one.
      const order = targets.map((_, index) => targets[(index + round) % targets.length]!);
      for (const target of order) {
        const running = await startTarget(forTopics(target, scenario.topics));
        try {
          const taken = await scenario.run(running, tools, seconds);
          for (const [index, { name }] of scenario.figures.entries()) {
            results.add(target.name, name, taken[index]!);
            console.error(
              `round ${round} of ${rounds}  ${name.padEnd(66)} ${target.name.padEnd(18)} ${
                showFigure(taken[index]!)
              }`,
            );
          }
        } finally {
          await running.stop();
        }
      }
    }
  }
  const figures = scenarios.flatMap(({ figures }) => figures);
  const names = targets.map(({ name }) => name);
  const without = values.without.map((name) => ` --without "${name}"`).join("");
  const command = `deno task bench:peers --rounds ${rounds} --seconds ${seconds}${without} --write`;
  const note =
    `Medians of ${rounds} alternating rounds of ${seconds} s, ${await runNote(command)}. ` +
    "Ratios are medians of those within a round, with the lowest and the highest.";
  const table = peersTable(figures, names, results);
  console.log(`${note}\n\n${table}`);
  if (values.json !== undefined) {
    const all = figures.map(({ name, unit }) => ({
      name,
      unit,
      figures: Object.fromEntries(names.map((target) => [target, results.of(target, name)])),
    }));
    await Deno.writeTextFile(values.json, JSON.stringify({ note, scenarios: all }, null, 1));
  }
  if (values.write) await writeSection("bench-peers", `${note}\n\n${table}`);
}

await main();
