import assert from "node:assert/strict";
import { errorTable, findStale, metricsTable, type Section, SECTIONS } from "./generate_docs.ts";
import { ROOT_PATH } from "./workspace.ts";

const PAGE = [
  "# Title",
  "<!-- generated:one -->",
  "old",
  "<!-- /generated -->",
  "between",
  "<!-- generated:two -->",
  "<!-- /generated -->",
  "end",
  "",
].join("\n");

function section(name: string, table: string): Section {
  return { page: "page.md", name, render: () => table };
}

Deno.test("findStale() refuses a page without markers, with open ones or with unknown ones", () => {
  const find = (content: string, names: string[]) =>
    findStale(names.map((name) => section(name, "x")), () => content);
  assert.throws(() => find(PAGE, ["one", "two", "three"]), /page\.md: .*generated:three/);
  assert.throws(() => find(PAGE + PAGE, ["one", "two"]), /exactly once/);
  assert.throws(() => find("<!-- generated:one -->\n", ["one"]), /not closed/);
  assert.throws(() => find(PAGE.replace("old\n<!-- /generated -->\n", ""), ["one", "two"]), {
    message: 'page.md: "<!-- generated:one -->" is not closed by "<!-- /generated -->"',
  });
  assert.throws(() => find(PAGE, ["one"]), /nothing generates "two"/);
});

Deno.test("findStale() replaces what is between markers and keeps the rest, then finds nothing", () => {
  const sections = [section("one", "| a $& |"), section("two", "| b |")];
  const [stale, ...others] = findStale(sections, () => PAGE);
  assert.equal(others.length, 0);
  assert.equal(stale?.page, "page.md");
  assert.equal(
    stale?.content,
    "# Title\n<!-- generated:one -->\n\n| a $& |\n\n<!-- /generated -->\nbetween\n" +
      "<!-- generated:two -->\n\n| b |\n\n<!-- /generated -->\nend\n",
  );
  assert.deepEqual(findStale(sections, () => stale?.content ?? ""), []);
});

Deno.test("The tables in the documentation say what the code says", () => {
  const stale = findStale(SECTIONS, (page) => Deno.readTextFileSync(ROOT_PATH + page));
  assert.deepEqual(stale.map(({ page }) => page), [], "run tools/generate_docs.ts");
});

Deno.test("errorTable() says what happens to the connection and over HTTP", () => {
  const facts = { fatal: true, retryable: true, httpStatus: 429, meaning: "A | B." };
  const soft = { fatal: false, retryable: false, httpStatus: null, meaning: "C." };
  assert.deepEqual(errorTable({ E_ONE: facts, E_TWO: soft }).split("\n").slice(2), [
    "| `E_ONE` | closed | yes | 429 | A \\| B. |",
    "| `E_TWO` | stays open | no | - | C. |",
  ]);
});

Deno.test("metricsTable() has a row for each metric", () => {
  const rows = metricsTable([
    { name: "sluice_a", kind: "gauge", labels: ["topic", "channel"], help: "A." },
    { name: "sluice_b_total", kind: "counter", labels: [], help: "B." },
  ]).split("\n").slice(2);
  assert.deepEqual(rows, [
    "| `sluice_a` | gauge | `topic`, `channel` | A. |",
    "| `sluice_b_total` | counter | - | B. |",
  ]);
});
