import { deepEqual, equal } from "node:assert/strict";
import { type Format, judge, readOutcome, type Verdict } from "./verdict.ts";

const SAMPLES: Record<Format, string> = {
  go: "--- PASS: TestA (0.00s)\n--- FAIL: TestB (1.00s)\n1 passed, 1 failed\n",
  pytest: "PASSED tests/a.py::TestA\nFAILED tests/a.py::TestB - assert 1\n1 passed, 1 failed\n",
  tap: "    ok 1 - TestA # time=3ms\n    not ok 2 - TestB # time=3ms\n1 passed, 1 failed",
  mocha: "    ✓ TestA (12ms)\n    1) TestB\n\n  1) Suite\n       TestB:\n1 passed, 1 failed",
  cargo: "test TestA ... ok\ntest TestB ... FAILED\n1 passed, 1 failed",
  check: "ok    TestA\nFAIL  TestB\n      why\n1 passed, 1 failed",
};

for (const [format, output] of Object.entries(SAMPLES)) {
  Deno.test(`readOutcome() knows tests by name in the output of ${format}`, () => {
    const outcome = readOutcome(format as Format, output);
    const names = (set?: ReadonlySet<string>) => [...set ?? []].map((name) => name.slice(-5));
    deepEqual(names(outcome?.passedNames), ["TestA"]);
    deepEqual(names(outcome?.failedNames), ["TestB"]);
    deepEqual([outcome?.passed, outcome?.failed], [1, 1]);
  });
}

function check(
  output: string,
  exitCode: number,
  tests: number,
  marked: readonly string[] = [],
): Verdict {
  return judge(
    readOutcome("check", output),
    exitCode,
    tests,
    marked.map((test) => ({ test, reason: "it differs" })),
  );
}

Deno.test("judge() passes a suite that ran whole", () => {
  deepEqual(check("ok    a\n1 passed, 0 failed", 0, 1), {
    passed: 1,
    failed: 0,
    different: 0,
    problems: [],
  });
});

Deno.test("judge() fails a suite that ended without its count", () => {
  equal(check("ok    a", 1, 1).failed, 1);
  equal(check("", 0, 0).failed, 1);
});

Deno.test("judge() counts tests that were not run as failed", () => {
  equal(check("1 passed, 0 failed", 0, 3).failed, 2);
});

Deno.test("judge() fails a suite that ends badly without a failure", () => {
  equal(check("1 passed, 0 failed", 1, 1).failed, 1);
});

Deno.test("judge() takes a marked difference as such, and no other failure", () => {
  const output = "ok    a\nFAIL  b\nFAIL  c\n1 passed, 2 failed";
  const verdict = check(output, 1, 3, ["b"]);
  deepEqual([verdict.passed, verdict.failed, verdict.different], [1, 1, 1]);
  deepEqual(verdict.problems, ["failed: c"]);
});

Deno.test("judge() fails a marked difference that passes or is not run", () => {
  const verdict = check("ok    a\n1 passed, 0 failed", 0, 1, ["a", "z"]);
  deepEqual([verdict.failed, verdict.different], [2, 0]);
});

Deno.test("judge() counts a failure without a name", () => {
  equal(check("0 passed, 1 failed", 1, 1).failed, 1);
});

Deno.test("judge() lets a test that may go either way pass or fail", () => {
  const either = [{ test: "a", reason: "luck", either: true as const }];
  for (const output of ["ok    a\n1 passed, 0 failed", "FAIL  a\n0 passed, 1 failed"]) {
    equal(judge(readOutcome("check", output), 0, 1, either).failed, 0);
  }
});
