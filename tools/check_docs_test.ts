import assert from "node:assert/strict";
import { checkChangelog, checkPage, parsePage, slugOf, type World } from "./check_docs.ts";

const PROOF = 'Deno.test("a stop loses nothing", () => {});';

/** The problems of README.md with `text`, in a small project. */
function problemsOf(text: string, path = "README.md"): string[] {
  const page = parsePage(path, text);
  const guide = parsePage("docs/GUIDE.md", "# Guide\n\n## First steps\n\n## First steps\n");
  const files = [
    "README.md",
    "docs",
    "docs/GUIDE.md",
    "broker",
    "broker/main.ts",
    "broker/main_test.ts",
    "deploy/a b.yaml",
  ];
  const world: World = {
    pages: new Map([[page.path, page], [guide.path, guide]]),
    tasks: new Set(["test", "up"]),
    folders: new Set(["broker", "docs", "deploy", ".ci"]),
    exists: (path) => files.includes(path),
    testsAt: (path) => path.startsWith("broker") && !path.endsWith("main.ts") ? PROOF : "",
  };
  return checkPage(page, world);
}

Deno.test("checkPage() follows relative links to files and folders", () => {
  assert.deepEqual(
    problemsOf(
      '[a](docs/GUIDE.md) [b](./docs) [c](docs/ "title") ![d](<broker/main.ts>) [e](deploy/a%20b.yaml)',
    ),
    [],
  );
  assert.deepEqual(problemsOf("[a](../README.md) [b](GUIDE.md)", "docs/PAGE.md"), []);
  assert.deepEqual(problemsOf("one\n[a](docs/NONE.md)"), [
    'README.md:2: the link "docs/NONE.md" leads nowhere',
  ]);
  assert.deepEqual(problemsOf("[a]: docs/NONE.md"), [
    'README.md:1: the link "docs/NONE.md" leads nowhere',
  ]);
  assert.deepEqual(problemsOf("[a](../out.md) [b](/docs)"), [
    'README.md:1: the link "../out.md" leaves the project',
    'README.md:1: the link "/docs" is not relative',
  ]);
});

Deno.test("checkPage() leaves web addresses and code alone", () => {
  assert.deepEqual(problemsOf("[a](https://example.org/x#y) [b](mailto:a@example.org)"), []);
  assert.deepEqual(problemsOf("`[a](none.md)` ``[a](none.md)``\n```\n[a](none.md)\n```"), []);
});

Deno.test("checkPage() finds the anchors of headings, numbered when they repeat", () => {
  const own = "# What it is\n[a](#what-it-is)";
  assert.deepEqual(problemsOf(own), []);
  assert.deepEqual(
    problemsOf("[a](docs/GUIDE.md#first-steps) [b](docs/GUIDE.md#first-steps-1)"),
    [],
  );
  assert.deepEqual(problemsOf('<a id="here"></a> [a](#here)'), []);
  assert.deepEqual(problemsOf("[a](#none) [b](docs/GUIDE.md#first-steps-2)"), [
    'README.md:1: the link "#none" names an anchor that is not there',
    'README.md:1: the link "docs/GUIDE.md#first-steps-2" names an anchor that is not there',
  ]);
  assert.deepEqual(problemsOf("```\n# Not a heading\n```\n[a](#not-a-heading)").length, 1);
});

Deno.test("slugOf() keeps letters, digits, dashes and underscores", () => {
  assert.equal(slugOf("`--data-path`: where, and why?"), "--data-path-where-and-why");
  assert.equal(slugOf("[Größe](x.md) of it_all 2"), "größe-of-it_all-2");
});

Deno.test("checkPage() knows the tasks, in prose and in code", () => {
  assert.deepEqual(
    problemsOf("`deno task test`\n```sh\nnpx -y deno@2.9.6 task up --once\n```"),
    [],
  );
  assert.deepEqual(problemsOf("```sh\ndeno task start\n```\nnpx -y deno@2.9.6 task go"), [
    'README.md:2: there is no task "start"',
    'README.md:4: there is no task "go"',
  ]);
});

Deno.test("checkPage() wants a path in backticks to exist when its first folder is ours", () => {
  assert.deepEqual(problemsOf("`broker/main.ts` `broker/main.ts:12` `./docs/GUIDE.md`"), []);
  assert.deepEqual(
    problemsOf("`a/b.ts` `broker` `broker/*.ts` `broker/<name>.ts` `GET /broker/x`"),
    [],
  );
  assert.deepEqual(problemsOf("`broker/none.ts` and `.ci/run`"), [
    "README.md:1: `broker/none.ts` does not exist",
    "README.md:1: `.ci/run` does not exist",
  ]);
});

Deno.test("checkPage() wants code fences closed by a fence as long and alike", () => {
  assert.deepEqual(
    problemsOf("```\na\n```\n~~~\n```\n~~~\n````md\n```\n````\n> ```\n> a\n> ```"),
    [],
  );
  assert.deepEqual(problemsOf("a\n```ts\nb\n~~~"), [
    "README.md:2: the code fence is never closed",
  ]);
  assert.deepEqual(problemsOf("````\n```"), ["README.md:1: the code fence is never closed"]);
});

Deno.test("checkPage() refuses paths and registries of one machine", () => {
  for (const text of ["see /work/x", "`/tmp/a`", "```\ncd /root\n```", "--data-path=/home/me"]) {
    assert.match(problemsOf(text)[0] ?? "", /is a path of one machine$/, text);
  }
  for (const text of ["/var/lib/sluice", "https://example.org/work/a", "a/work/b", "$HOME/tmp"]) {
    assert.deepEqual(problemsOf(text), [], text);
  }
  assert.deepEqual(problemsOf("from https://registry.npmjs.org/deno"), [
    'README.md:1: "registry.npmjs.org" is the name of a registry',
  ]);
});

Deno.test("checkChangelog() wants Unreleased first, dated releases and known groups", () => {
  const check = (text: string) => checkChangelog(parsePage("CHANGELOG.md", text));
  assert.deepEqual(
    check(
      "# Changelog\n## Unreleased\n### Upgrading\n### Safety and performance\n### Features\n### Fixes\n## [1.0.0] - 2026-01-31\n### Fixes",
    ),
    [],
  );
  assert.deepEqual(check("# Changelog"), ['CHANGELOG.md:1: there is no head "Unreleased"']);
  assert.deepEqual(check("## 1.0.0 - 2026-01-31\n### Added"), [
    'CHANGELOG.md:1: the first head must be "Unreleased"',
    'CHANGELOG.md:2: "Added" is none of Upgrading, Safety and performance, Features, Fixes',
  ]);
  assert.deepEqual(check("## [Unreleased]\n## 1.0.0"), [
    'CHANGELOG.md:2: a release is written "1.2.3 - 2026-01-31", not "1.0.0"',
  ]);
});

Deno.test("checkPage() wants a test for each row of a table that has a column for it", () => {
  const table = (cell: string, head = "Shown by") =>
    problemsOf(
      `| Event | ${head} |\n|---|---|\n| SIGTERM | ${cell} |\n\n| a | b |\n|---|---|\n| c | d |`,
    );
  assert.deepEqual(table('`broker/main_test.ts` "stop loses nothing"'), []);
  assert.deepEqual(table("anything", "Lost"), []);
  assert.deepEqual(table("faith"), ["README.md:3: the row names no test"]);
  assert.deepEqual(table("`broker/main.ts`"), ["README.md:3: `broker/main.ts` has no tests"]);
  assert.deepEqual(table('`broker/main_test.ts` "it was renamed"'), [
    'README.md:3: no test is "it was renamed"',
  ]);
});
