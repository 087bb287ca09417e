/**
 * `deno task ok`: everything that must hold before a commit, one step after the other: format, lint
 * with our rules, types, import graph, documents, generated documents, tests. A failed step shows
 * its output and does not stop the next; the end is a summary and the line `N passed, N failed`,
 * where each check counts as one and each test as one. `--no-test` leaves the tests out.
 */
import { checkWorkspaceDocs } from "./check_docs.ts";
import { checkWorkspaceGraph } from "./check_graph.ts";
import { runTests, type Tally } from "./run_tests.ts";
import { exists, ROOT_PATH } from "./workspace.ts";

/** What a step came to. */
export interface Outcome extends Tally {
  /** A few words on success, like `85 files`. */
  readonly note: string;
  /** What the step had to say; shown when it failed. */
  readonly output: string;
}

interface Step {
  readonly name: string;
  /** The step prints as it goes. */
  readonly streams?: boolean;
  run(): Promise<Outcome>;
}

/** One step that has run. */
export interface Finished {
  readonly name: string;
  readonly outcome: Outcome;
  readonly durationMs: number;
}

/** The lines at the end: each step with its time, then the count. */
export function summarize(steps: readonly Finished[]): string[] {
  const width = Math.max(0, ...steps.map(({ name }) => name.length));
  const lines = steps.map(({ name, outcome, durationMs }) => {
    const verdict = outcome.failed > 0 ? "FAILED" : "ok";
    return `  ${name.padEnd(width)}  ${verdict.padEnd(6)}  ${
      seconds(durationMs).padStart(7)
    }  ${outcome.note}`.trimEnd();
  });
  const total = steps.reduce((sum, { durationMs }) => sum + durationMs, 0);
  const passed = steps.reduce((sum, { outcome }) => sum + outcome.passed, 0);
  const failed = steps.reduce((sum, { outcome }) => sum + outcome.failed, 0);
  return [
    ...lines,
    `  ${"".padEnd(width)}  total   ${seconds(total).padStart(7)}`,
    "",
    `${passed} passed, ${failed} failed`,
  ];
}

/** `12.3 s`. */
export function seconds(durationMs: number): string {
  return `${(durationMs / 1_000).toFixed(1)} s`;
}

/** Runs Deno and keeps what it prints. */
async function deno(...args: string[]): Promise<Outcome> {
  const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args,
    cwd: ROOT_PATH,
    stdin: "null",
    ...(Deno.stdout.isTerminal() ? { env: { FORCE_COLOR: "1" } } : {}),
  }).output();
  const decoder = new TextDecoder();
  return verdict(code === 0, "", decoder.decode(stdout) + decoder.decode(stderr));
}

function verdict(ok: boolean, note: string, output: string): Outcome {
  return { passed: ok ? 1 : 0, failed: ok ? 0 : 1, note, output };
}

function found({ problems, summary }: { problems: string[]; summary: string }): Outcome {
  return verdict(problems.length === 0, summary, problems.join("\n"));
}

function planSteps(withTests: boolean): Step[] {
  const steps: Step[] = [
    { name: "fmt", run: () => deno("fmt", "--check") },
    { name: "lint", run: () => deno("lint") },
    { name: "check", run: () => deno("check", ".") },
    { name: "graph", run: async () => found(await checkWorkspaceGraph()) },
    { name: "docs", run: () => Promise.resolve(found(checkWorkspaceDocs())) },
  ];
  if (exists("tools/generate_docs.ts")) {
    steps.push({
      name: "generated",
      run: () => deno("run", "--allow-all", "tools/generate_docs.ts", "--check"),
    });
  }
  if (withTests) {
    steps.push({
      name: "test",
      streams: true,
      run: async () => {
        const { passed, failed } = await runTests([]);
        return { passed, failed, note: `${passed} passed, ${failed} failed`, output: "" };
      },
    });
  }
  return steps;
}

async function runStep({ name, streams = false, run }: Step): Promise<Finished> {
  const start = performance.now();
  Deno.stdout.writeSync(new TextEncoder().encode(`${name.padEnd(10)} ${streams ? "\n" : ""}`));
  let outcome: Outcome;
  try {
    outcome = await run();
  } catch (error) {
    outcome = verdict(false, "", error instanceof Error ? error.message : String(error));
  }
  const durationMs = performance.now() - start;
  if (!streams) console.log(`${outcome.failed > 0 ? "FAILED" : "ok"}  ${seconds(durationMs)}`);
  if (outcome.failed > 0 && outcome.output !== "") {
    console.log(`${outcome.output.trimEnd().replaceAll(/^(?=.)/gm, "    ")}\n`);
  }
  return { name, outcome, durationMs };
}

if (import.meta.main) {
  const unknown = Deno.args.find((argument) => argument !== "--no-test");
  if (unknown !== undefined) {
    console.error(`Unknown argument "${unknown}". Usage: deno task ok [--no-test]`);
    Deno.exit(2);
  }
  const finished: Finished[] = [];
  for (const step of planSteps(!Deno.args.includes("--no-test"))) {
    finished.push(await runStep(step));
  }
  console.log(`\n${summarize(finished).join("\n")}`);
  Deno.exit(finished.some(({ outcome }) => outcome.failed > 0) ? 1 : 0);
}
