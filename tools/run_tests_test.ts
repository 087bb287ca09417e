import assert from "node:assert/strict";
import { countReport, judgeRun, testArguments } from "./run_tests.ts";

const REPORT = `<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="deno test" tests="6" failures="2" errors="0" time="0.004">
  <testsuite name="./a_test.ts" tests="6" disabled="1" errors="0" failures="2">
    <testcase name="a" classname="./a_test.ts" time="0.000" line="1" col="6">
    </testcase>
    <testcase name="b" classname="./a_test.ts" time="0.000" line="1" col="37">
      <skipped/>
    </testcase>
    <testcase name="c &gt; d" classname="./a_test.ts" time="0.000" line="2" col="1"/>
    <testcase name="c" classname="./a_test.ts" time="0.002" line="1" col="65">
      <failure message="1 test step failed">1 test step failed.</failure>
    </testcase>
    <testcase name="c &gt; s" classname="./a_test.ts" time="0.000" line="1" col="98">
    </testcase>
    <testcase name="c &gt; s &gt; t" classname="./a_test.ts" time="0.001" line="1" col="127">
      <failure message="Uncaught Error: x">Error: x &lt;testcase name="z"&gt;</failure>
    </testcase>
  </testsuite>
  <testsuite name="./b_test.ts" tests="1" disabled="0" errors="0" failures="0">
    <testcase name="c" classname="./b_test.ts" time="0.000" line="1" col="6">
    </testcase>
  </testsuite>
</testsuites>`;

Deno.test("countReport() counts tests, not their steps, and skips the skipped", () => {
  assert.deepEqual(countReport(REPORT), { passed: 3, failed: 1 });
  assert.deepEqual(countReport(""), { passed: 0, failed: 0 });
});

Deno.test("judgeRun() never calls an empty or broken run clean", () => {
  assert.deepEqual(judgeRun({ passed: 3, failed: 0 }, 0), { passed: 3, failed: 0 });
  assert.deepEqual(judgeRun({ passed: 3, failed: 2 }, 1), { passed: 3, failed: 2 });
  assert.deepEqual(judgeRun({ passed: 0, failed: 0 }, 0), { passed: 0, failed: 1 });
  assert.deepEqual(judgeRun({ passed: 3, failed: 0 }, 1), { passed: 3, failed: 1 });
});

Deno.test("testArguments() passes arguments on and freezes the lock file on machines only", () => {
  assert.deepEqual(testArguments(["broker", "--filter=a"], "r.xml", false), [
    "test",
    "--allow-all",
    "--junit-path=r.xml",
    "broker",
    "--filter=a",
  ]);
  assert.equal(testArguments([], "r.xml", true).includes("--frozen"), true);
});
