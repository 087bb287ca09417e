/**
 * What the output of a suite comes to: which tests passed and failed by name, and whether that is
 * what is expected of Sluice. A difference that is expected but does not show is an error too, and so
 * is a suite that ran fewer tests than it does against nsqd: nothing passes by not being run.
 */

/** How a suite prints the outcome of a test. */
export type Format = "go" | "pytest" | "tap" | "mocha" | "cargo" | "check";

/** A test of a suite that cannot pass unchanged here, and why. */
export interface Difference {
  readonly test: string;
  readonly reason: string;
  /** It may pass too, as luck has it, so that its passing says nothing. */
  readonly either?: true;
}

/** What a run of a suite printed. */
export interface Outcome {
  readonly passed: number;
  readonly failed: number;
  readonly passedNames: ReadonlySet<string>;
  readonly failedNames: ReadonlySet<string>;
}

/** How a run is judged. */
export interface Verdict {
  readonly passed: number;
  /** Failures that nobody expects, tests that are missing, expected differences that do not show. */
  readonly failed: number;
  /** Differences that are expected and showed. */
  readonly different: number;
  readonly problems: readonly string[];
}

/** Matches a test's line: the first group is set when it failed or says so, `name` is its name. */
const LINES: Record<Format, { readonly line: RegExp; readonly failed: (mark: string) => boolean }> =
  {
    go: {
      line: /^--- (?<mark>PASS|FAIL): (?<name>\S+)/,
      failed: (mark) => mark === "FAIL",
    },
    pytest: {
      line: /^(?<mark>PASSED|FAILED|ERROR) tests\/(?<name>.+?)(?: - .*)?$/,
      failed: (mark) => mark !== "PASSED",
    },
    tap: {
      line: /^ {4}(?<mark>(?:not )?ok) \d+ - (?<name>.+?)(?: #.*)?$/,
      failed: (mark) => mark === "not ok",
    },
    mocha: {
      line: /^ {4,}(?<mark>✔|✓|\d+\)) (?<name>.+?)(?: \(\d+ms\))?$/,
      failed: (mark) => mark.endsWith(")"),
    },
    cargo: {
      line: /^test (?<name>\S+) \.\.\. (?<mark>ok|FAILED)$/,
      failed: (mark) => mark === "FAILED",
    },
    check: {
      line: /^(?<mark>ok|FAIL) +(?<name>.+)$/,
      failed: (mark) => mark === "FAIL",
    },
  };

/** Reads the output of a suite; `null` when it ended without its count. */
export function readOutcome(format: Format, output: string): Outcome | null {
  const { line: expression, failed } = LINES[format];
  const passedNames = new Set<string>();
  const failedNames = new Set<string>();
  let count: { passed: number; failed: number } | null = null;
  for (const line of output.split("\n")) {
    const counted = /^(\d+) passed, (\d+) failed$/.exec(line);
    if (counted !== null) count = { passed: Number(counted[1]), failed: Number(counted[2]) };
    const { mark, name } = expression.exec(line)?.groups ?? {};
    if (mark !== undefined && name !== undefined) {
      (failed(mark) ? failedNames : passedNames).add(name);
    }
  }
  return count === null ? null : { ...count, passedNames, failedNames };
}

/** Judges an outcome by what nsqd comes to and by the differences that are expected. */
export function judge(
  outcome: Outcome | null,
  exitCode: number,
  testsOfNsqd: number,
  differences: readonly Difference[],
): Verdict {
  if (outcome === null) {
    return { passed: 0, failed: 1, different: 0, problems: [`it ended with ${exitCode}`] };
  }
  const { passed, failed, passedNames, failedNames } = outcome;
  const problems: string[] = [];
  const shown = differences.filter(({ test }) => failedNames.has(test));
  const expected = differences.filter(({ either }) => either !== true);
  for (const { test } of expected) {
    if (passedNames.has(test)) problems.push(`passes, although it is marked as different: ${test}`);
    else if (!failedNames.has(test)) problems.push(`was not run, although it is marked: ${test}`);
  }
  const marked = new Set(differences.map(({ test }) => test));
  for (const name of failedNames) if (!marked.has(name)) problems.push(`failed: ${name}`);
  // Tests that fail without a name, as in a panic.
  const unnamed = failed - failedNames.size;
  if (unnamed > 0) problems.push(`${unnamed} more failed`);
  const missing = testsOfNsqd - passed - failed;
  if (missing > 0) problems.push(`${missing} were not run`);
  const stale = expected.filter(({ test }) => !failedNames.has(test)).length;
  const unexpected = Math.max(0, failed - shown.length) + Math.max(0, missing) + stale;
  const failures = unexpected === 0 && exitCode !== 0 && failed === 0 ? 1 : unexpected;
  if (failures > unexpected) problems.push(`it ended with ${exitCode}`);
  return { passed, failed: failures, different: shown.length, problems };
}
