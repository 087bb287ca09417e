/**
 * `deno task bench:peers`: ours beside nsqd in three durability classes, and beside whatever else is
 * named, in one run. Rounds alternate, so that a machine whose speed drifts does so for all; each run
 * has a fresh process and an empty folder. Ratios are taken within a round.
 */
import { parseArgs } from "node:util";
import { benchPrograms } from "./peer_tools.ts";
import {
  type Goal,
  type LoadTools,
  NSQD_DISK,
  NSQD_DURABLE,
  NSQD_MEMORY,
  OURS,
  type Scenario,
  SCENARIOS,
} from "./peer_scenarios.ts";
import { median, type Ratio, ratioOf, showFigure, showRatio } from "./summary.ts";
import { sluiceTarget, startTarget, type Target } from "./targets.ts";

const HELP = `Measures the broker beside nsqd, and beside other brokers that speak NSQ.

  deno task bench:peers [--rounds N] [--seconds S] [--only TEXT] [--without NAME]...
                        [--rival NAME=COMMAND]... [--json FILE] [--write]

  --rounds N            runs of each figure (default 5); medians are shown
  --seconds S           length of a run (default 3)
  --only TEXT           only scenarios whose name contains TEXT
  --without NAME        leaves a target out: "nsqd memory", "nsqd disk", "nsqd durable"
  --rival NAME=COMMAND  one more target; it is given --tcp-address, --http-address, --data-path
  --json FILE           writes every single figure there
  --write               puts the table into docs/PERFORMANCE.md

nsqd, nsqload and nsqlat are taken from NSQ_BIN or PATH, or built with Go from ../shared/peers.
`;

const ROOT = new URL("..", import.meta.url).pathname.replace(/\/$/, "");
const DOCUMENT = `${ROOT}/docs/PERFORMANCE.md`;
const BEGIN = "<!-- generated:bench-peers -->";
const END = "<!-- /generated -->";
/** So large that nothing of a run goes to its disk: it is for each topic and each channel. */
const NSQD_MEMORY_QUEUE_ALL = 4_000_000;

/** Figures by target and scenario, one a round. */
class Results {
  readonly #figures = new Map<string, number[]>();

  add(target: string, scenario: string, figure: number): void {
    this.of(target, scenario).push(figure);
  }

  of(target: string, scenario: string): number[] {
    const key = `${target}\n${scenario}`;
    let figures = this.#figures.get(key);
    if (figures === undefined) this.#figures.set(key, figures = []);
    return figures;
  }
}

/** How ours compares with a goal's target, so that more is better. */
function ratioTo({ unit, name }: Scenario, { target }: Goal, results: Results): Ratio {
  const ours = results.of(OURS, name);
  const theirs = results.of(target, name);
  return unit === "ms" ? ratioOf(theirs, ours) : ratioOf(ours, theirs);
}

function table(scenarios: readonly Scenario[], targets: readonly Target[], results: Results) {
  const names = targets.map(({ name }) => name);
  const lines = [
    `| 200-byte bodies | ${names.join(" | ")} | goal | ours beside it |`,
    `|---|${names.map(() => "---:").join("|")}|---|---|`,
  ];
  for (const scenario of scenarios) {
    const { name, unit, goals } = scenario;
    const figures = names.map((target) => showFigure(median(results.of(target, name))));
    const met = goals.filter(({ target }) => names.includes(target)).map((goal) => {
      const ratio = ratioTo(scenario, goal, results);
      const isMet = ratio.median >= goal.ratioMin;
      return {
        text: `${goal.ratioMin}x ${goal.target}`,
        ratio: `${showRatio(ratio)} ${isMet ? "met" : "**not met**"}`,
      };
    });
    lines.push(
      `| ${name}, ${unit} | ${figures.join(" | ")} | ${met.map(({ text }) => text).join("; ")} | ${
        met.map(({ ratio }) => ratio).join("; ")
      } |`,
    );
  }
  return lines.join("\n");
}

async function json(program: string, args: readonly string[]): Promise<Record<string, unknown>> {
  const { success, stdout, stderr } = await new Deno.Command(program, {
    args: [...args],
    stdin: "null",
  }).output();
  const text = new TextDecoder().decode(stdout).trim();
  if (text === "" || !success && !text.startsWith("{")) {
    const reason = new TextDecoder().decode(stderr).trim();
    throw new Error(`Cannot load with ${program} ${args.join(" ")}: ${reason}`);
  }
  return JSON.parse(text);
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
  if (name !== NSQD_MEMORY) return { name, command };
  const queue = Math.ceil(NSQD_MEMORY_QUEUE_ALL / topics);
  return { name, command: [...command, `--mem-queue-size=${queue}`] };
}

async function commit(): Promise<string> {
  const { stdout } = await new Deno.Command("git", {
    args: ["-C", ROOT, "rev-parse", "--short", "HEAD"],
    stderr: "null",
  }).output();
  return new TextDecoder().decode(stdout).trim();
}

async function writeDocument(text: string): Promise<void> {
  const document = await Deno.readTextFile(DOCUMENT);
  const begin = document.indexOf(BEGIN);
  const end = document.indexOf(END, begin);
  if (begin < 0 || end < 0) throw new Error(`Cannot write ${DOCUMENT}: it has no place for it`);
  await Deno.writeTextFile(
    DOCUMENT,
    `${document.slice(0, begin)}${BEGIN}\n${text}\n${document.slice(end)}`,
  );
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
  const { nsqd, nsqload, nsqlat } = await benchPrograms(ROOT);
  const tools: LoadTools = {
    nsqload,
    nsqlat,
    json,
    load: async (args) =>
      await json(Deno.execPath(), [
        "run",
        "--allow-net",
        `${ROOT}/benches/load.ts`,
        ...args,
      ]) as unknown as { messagesPerSecond: number },
  };
  const targets = [
    sluiceTarget(ROOT),
    { name: NSQD_MEMORY, command: [nsqd] },
    { name: NSQD_DISK, command: [nsqd, "--mem-queue-size=0"] },
    { name: NSQD_DURABLE, command: [nsqd, "--mem-queue-size=0", "--sync-every=1"] },
    ...rivals(values.rival),
  ].filter(({ name }) => !values.without.includes(name));
  const [rounds, seconds] = [Number(values.rounds), Number(values.seconds)];
  const scenarios = SCENARIOS.filter(({ name }) => name.includes(values.only));
  const results = new Results();
  for (let round = 1; round <= rounds; round++) {
    for (const scenario of scenarios) {
      // Nobody is always the first, or always behind the same other one.
      const order = targets.map((_, index) => targets[(index + round) % targets.length]!);
      for (const target of order) {
        const running = await startTarget(forTopics(target, scenario.topics));
        try {
          const figure = await scenario.run(running, tools, seconds);
          results.add(target.name, scenario.name, figure);
          console.error(
            `round ${round} of ${rounds}  ${scenario.name.padEnd(62)} ${target.name.padEnd(14)} ${
              showFigure(figure)
            }`,
          );
        } finally {
          await running.stop();
        }
      }
    }
  }
  const text = table(scenarios, targets, results);
  const without = values.without.map((name) => ` --without "${name}"`).join("");
  const note = `Medians of ${rounds} alternating rounds of ${seconds} s, ` +
    `${navigator.hardwareConcurrency} cores, load and broker on one machine, commit ` +
    `${await commit()}, ${new Date().toISOString().slice(0, 10)}: ` +
    `\`deno task bench:peers --rounds ${rounds} --seconds ${seconds}${without} --write\`. Ratios are medians ` +
    "of those within a round, with the lowest and the highest.";
  console.log(`${note}\n\n${text}`);
  if (values.json !== undefined) {
    const figures = scenarios.map(({ name, unit }) => ({
      name,
      unit,
      figures: Object.fromEntries(targets.map((target) => [
        target.name,
        results.of(target.name, name),
      ])),
    }));
    await Deno.writeTextFile(values.json, JSON.stringify({ note, scenarios: figures }, null, 1));
  }
  if (values.write) await writeDocument(`${note}\n\n${text}`);
}

await main();
