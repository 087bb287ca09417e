/**
 * `deno task test:clients [--only NAME,...] [--original] [--list]`: the test suites that others wrote,
 * against our broker and discovery service; with `--original` against NSQ's own, which proves what is
 * expected. They need the kit in `../shared/peers` (`SHARED` names another `../shared`), the registries,
 * and each its toolchain; one that is missing has its suites reported as skipped, never as passed.
 *
 * A suite's output goes by as it comes. At the end stand a table and the line `N passed, N failed`,
 * where a failure is one that nobody expects, a test that was not run, or an expected difference that
 * does not show. Suites run one after the other, since several have ports 4150 and 4151 written into
 * them; logs are kept in `.cache/clients`.
 */
import { SystemClock } from "@sluice/shared/runtime/system";
import { findPeers, KIT_PATH } from "../integration/peers.ts";
import { ROOT_PATH } from "../integration/process.ts";
import { type Commands, commands, startFor } from "./server.ts";
import { type Suite, SUITES, type Tool } from "./suites.ts";
import { judge, readOutcome, type Verdict } from "./verdict.ts";

const CACHE_PATH = `${ROOT_PATH}.cache/clients`;
const SUITE_SECONDS_MAX = 900;
/** A download or a build may be silent for long; this often a sign of life is printed. */
const SIGN_OF_LIFE_MS = 15_000;
const PORT_PATIENCE_MS = 30_000;

const clock = new SystemClock();

interface Row {
  readonly suite: Suite;
  readonly seconds: number;
  /** Why it was not run. */
  readonly skipped: string;
  readonly verdict: Verdict | null;
}

async function main(args: readonly string[]): Promise<number> {
  const only = args.find((argument) => argument.startsWith("--only="))?.slice("--only=".length) ??
    (args.includes("--only") ? args[args.indexOf("--only") + 1] : undefined);
  const names = only?.split(",") ?? SUITES.map(({ name }) => name);
  const unknown = names.find((name) => !SUITES.some((suite) => suite.name === name));
  if (unknown !== undefined) {
    console.error(`No suite "${unknown}". There are: ${SUITES.map(({ name }) => name).join(", ")}`);
    return 2;
  }
  if (args.includes("--list")) {
    for (const { name, what } of SUITES) console.log(`${name.padEnd(13)} ${what}`);
    return 0;
  }
  const original = args.includes("--original");
  const programs = await commands(original);
  await Deno.mkdir(CACHE_PATH, { recursive: true });
  const rows: Row[] = [];
  for (const suite of SUITES.filter(({ name }) => names.includes(name))) {
    // NSQ differs nowhere from itself.
    rows.push(await run(original ? { ...suite, differences: [] } : suite, programs));
  }
  return report(rows);
}

async function run(suite: Suite, programs: Commands): Promise<Row> {
  const startMs = performance.now();
  console.log(`\n=== ${suite.name}: ${suite.what}`);
  const skipped = await whyNot(suite);
  if (skipped !== "") return { suite, seconds: 0, skipped, verdict: null };
  let verdict: Verdict;
  try {
    await portsFree(suite.ports);
    await using running = await startFor(suite.start, programs, async (folder) => {
      await shell(suite, [`${KIT_PATH}/${suite.script}`, "--certs", folder], {});
    });
    const path = suite.ours ? `${ROOT_PATH}tests/clients/${suite.script}` : kit(suite.script);
    const { code, output } = await shell(suite, [path], running.env);
    verdict = judge(
      readOutcome(suite.format, output),
      code,
      suite.passedByNsqd,
      suite.differences,
    );
  } catch (error) {
    const problem = error instanceof Error ? error.message : String(error);
    verdict = { passed: 0, failed: 1, different: 0, problems: [problem] };
  }
  for (const problem of verdict.problems) console.log(`  ${suite.name}: ${problem}`);
  return { suite, seconds: (performance.now() - startMs) / 1_000, skipped: "", verdict };
}

/** Runs a script of a suite; its lines are shown as they come. */
async function shell(
  suite: Suite,
  command: readonly string[],
  env: Readonly<Record<string, string>>,
): Promise<{ readonly code: number; readonly output: string }> {
  const peers = await findPeers();
  const nsqd = "missing" in peers ? "" : peers.paths.get("nsqd") ?? "";
  const programs = nsqd.slice(0, nsqd.lastIndexOf("/"));
  const child = new Deno.Command("timeout", {
    // It stops the whole group, so that a suite leaves no process behind.
    args: ["--kill-after=10", `${SUITE_SECONDS_MAX}`, "bash", ...command],
    env: {
      PATH: [programs, Deno.env.get("PATH")].filter(Boolean).join(":"),
      CARGO_TARGET_DIR: `${CACHE_PATH}/cargo`,
      DENO: Deno.execPath(),
      ...suite.env,
      ...env,
    },
    stdin: "null",
    stdout: "piped",
    stderr: "piped",
  }).spawn();
  let output = "";
  let silentMs = 0;
  let timer = clock.setTimer(SIGN_OF_LIFE_MS, signOfLife);
  function signOfLife(): void {
    silentMs += SIGN_OF_LIFE_MS;
    console.log(`  ${suite.name}: still at it, nothing said for ${silentMs / 1_000} s`);
    timer = clock.setTimer(SIGN_OF_LIFE_MS, signOfLife);
  }
  const gather = async (stream: ReadableStream<Uint8Array>) => {
    for await (const text of stream.pipeThrough(new TextDecoderStream())) {
      silentMs = 0;
      output += text;
      Deno.stdout.writeSync(new TextEncoder().encode(text));
    }
  };
  try {
    const [{ code }] = await Promise.all([
      child.status,
      gather(child.stdout),
      gather(child.stderr),
    ]);
    return { code, output };
  } finally {
    timer.cancel();
    await Deno.writeTextFile(`${CACHE_PATH}/${suite.name}.log`, output);
  }
}

/** Why a suite cannot be run here; empty when it can. */
async function whyNot(suite: Suite): Promise<string> {
  if (suite.ours !== true && !isFile(kit(suite.script))) return `there is no ${kit(suite.script)}`;
  for (const tool of suite.tools) {
    if (!await isThere(tool)) return `${tool} is missing`;
  }
  if (suite.pythonMinorMax !== undefined) {
    const judged = `import sys; sys.exit(not (3, 8) <= sys.version_info < (3, ${
      suite.pythonMinorMax + 1
    }))`;
    if (!await succeeds("python3", ["-c", judged])) {
      return `it needs a Python from 3.8 to 3.${suite.pythonMinorMax}`;
    }
  }
  return "";
}

async function isThere(tool: Tool): Promise<boolean> {
  if (tool === "nsq") return !("missing" in await findPeers());
  return await succeeds(tool, [tool === "go" || tool === "openssl" ? "version" : "--version"]);
}

async function succeeds(program: string, args: string[]): Promise<boolean> {
  try {
    const { code } = await new Deno.Command(program, { args, stdout: "null", stderr: "null" })
      .output();
    return code === 0;
  } catch {
    return false;
  }
}

/** Waits until nobody listens on the ports that a suite has written into it. */
async function portsFree(ports: readonly number[]): Promise<void> {
  const endMs = performance.now() + PORT_PATIENCE_MS;
  for (const port of ports) {
    for (;;) {
      try {
        Deno.listen({ hostname: "127.0.0.1", port }).close();
        break;
      } catch (error) {
        if (!(error instanceof Deno.errors.AddrInUse)) throw error;
        if (performance.now() > endMs) throw new Error(`port ${port}, which it needs, is in use`);
        await clock.sleep(200);
      }
    }
  }
}

function report(rows: readonly Row[]): number {
  const line = (...cells: readonly string[]) =>
    console.log(
      `${cells[0]?.padEnd(14)}${cells.slice(1, 6).map((cell) => cell.padStart(8)).join("")}  ${
        cells[6] ?? ""
      }`.trimEnd(),
    );
  console.log("");
  line("suite", "passed", "failed", "marked", "nsqd", "seconds", "");
  let passed = 0;
  let failed = 0;
  for (const { suite, seconds, skipped, verdict } of rows) {
    passed += verdict?.passed ?? 0;
    failed += verdict?.failed ?? 0;
    line(
      suite.name,
      verdict === null ? "-" : String(verdict.passed),
      verdict === null ? "-" : String(verdict.failed),
      verdict === null ? "-" : String(verdict.different),
      String(suite.passedByNsqd),
      seconds.toFixed(1),
      skipped === "" ? verdict?.problems[0]?.split("\n")[0] ?? "" : `skipped: ${skipped}`,
    );
  }
  for (const { suite, verdict } of rows) {
    if (verdict === null) continue;
    for (const { test, reason } of suite.differences) {
      console.log(`marked: ${suite.name}, ${test}: ${reason}`);
    }
  }
  console.log(`\n${passed} passed, ${failed} failed`);
  return failed > 0 ? 1 : 0;
}

function kit(script: string): string {
  return `${KIT_PATH}/${script}`;
}

function isFile(path: string): boolean {
  try {
    return Deno.statSync(path).isFile;
  } catch {
    return false;
  }
}

Deno.exit(await main(Deno.args));
