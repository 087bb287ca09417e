/**
 * `deno task test`: runs `deno test` over the workspace, passes further arguments on, and ends with
 * the line `N passed, N failed`. A test counts once, with all its steps; a file that does not even
 * load counts as one failed; a run that ran nothing has failed, whatever Deno says.
 */

/** The outcome of a run. */
export interface Tally {
  readonly passed: number;
  readonly failed: number;
}

/** Counts the tests of a JUnit report written by `deno test`. Skipped tests count as neither. */
export function countReport(xml: string): Tally {
  let passed = 0;
  let failed = 0;
  for (const [, suite = ""] of xml.matchAll(/<testsuite\s[^>]*>([\s\S]*?)<\/testsuite>/g)) {
    const names = new Set<string>();
    const cases = suite.matchAll(
      /<testcase\s+name="([^"]*)"[^>]*?(?:\/>|>([\s\S]*?)<\/testcase>)/g,
    );
    for (const [, name = "", body = ""] of cases) {
      // Steps follow their test and are named "test > step".
      if (isStep(name, names)) continue;
      names.add(name);
      if (/<(?:failure|error)\b/.test(body)) failed++;
      else if (!/<skipped\b/.test(body)) passed++;
    }
  }
  return { passed, failed };
}

function isStep(name: string, tests: ReadonlySet<string>): boolean {
  const mark = " &gt; ";
  for (let at = name.indexOf(mark); at >= 0; at = name.indexOf(mark, at + 1)) {
    if (tests.has(name.slice(0, at))) return true;
  }
  return false;
}

/** The tally of a run, given Deno's exit code: never clean when nothing ran or Deno failed. */
export function judgeRun(counted: Tally, exitCode: number): Tally {
  const nothing = counted.passed + counted.failed === 0;
  if ((exitCode !== 0 || nothing) && counted.failed === 0) return { ...counted, failed: 1 };
  return counted;
}

/** The arguments for Deno. A frozen lock file is for machines: people change dependencies. */
export function testArguments(
  passedOn: readonly string[],
  reportPath: string,
  ci: boolean,
): string[] {
  return [
    "test",
    "--allow-all",
    ...(ci ? ["--frozen"] : []),
    `--junit-path=${reportPath}`,
    ...passedOn,
  ];
}

/** Runs the tests with their output on ours. */
export async function runTests(
  passedOn: readonly string[],
): Promise<Tally & { readonly exitCode: number }> {
  const reportPath = await Deno.makeTempFile({ prefix: "sluice_test_", suffix: ".xml" });
  try {
    const ci = (Deno.env.get("CI") ?? "") !== "";
    const { code } = await new Deno.Command(Deno.execPath(), {
      args: testArguments(passedOn, reportPath, ci),
      stdin: "null",
      stdout: "inherit",
      stderr: "inherit",
    }).spawn().status;
    const tally = judgeRun(countReport(await Deno.readTextFile(reportPath)), code);
    return { ...tally, exitCode: code !== 0 ? code : tally.failed > 0 ? 1 : 0 };
  } finally {
    await Deno.remove(reportPath);
  }
}

if (import.meta.main) {
  const { passed, failed, exitCode } = await runTests(Deno.args);
  console.log(`${passed} passed, ${failed} failed`);
  Deno.exit(exitCode);
}
