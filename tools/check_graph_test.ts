import assert from "node:assert/strict";
import {
  checkGraph,
  findCycles,
  findNamed,
  findStarted,
  type Graph,
  keepsLinterOut,
  reach,
} from "./check_graph.ts";

const NO_ENTRIES = { exported: [], named: [] };

function graphOf(edges: Record<string, string[]>): Graph {
  return new Map(Object.entries(edges));
}

Deno.test("findCycles() shows one way around each knot and nothing else", () => {
  assert.deepEqual(findCycles(graphOf({ a: ["b", "c"], b: ["d"], c: ["d"], d: [] })), []);
  assert.deepEqual(findCycles(graphOf({ a: ["a"] })), [["a", "a"]]);
  assert.deepEqual(
    findCycles(graphOf({ z: ["a"], a: ["b"], b: ["c"], c: ["a", "b"], d: ["e"], e: ["d"] })),
    [["a", "b", "c", "a"], ["d", "e", "d"]],
  );
});

Deno.test("reach() follows imports from all entries and ends in cycles", () => {
  const graph = graphOf({ a: ["b"], b: ["a"], c: ["d"], d: [], e: ["a"] });
  assert.deepEqual([...reach(graph, ["a", "c"])].sort(), ["a", "b", "c", "d"]);
});

Deno.test("checkGraph() finds a file that nothing leads to", () => {
  const graph = graphOf({
    "broker/main.ts": ["broker/a.ts"],
    "broker/a.ts": [],
    "broker/b.ts": [],
  });
  assert.deepEqual(checkGraph(graph, NO_ENTRIES), ["dead file: nothing leads to broker/b.ts"]);
});

Deno.test("checkGraph() counts exports, named files, tests and benches as entries", () => {
  const graph = graphOf({
    "shared/log/mod.ts": ["shared/log/block.ts"],
    "shared/log/block.ts": [],
    "tools/ok.ts": [],
    "tests/crash/model.ts": [],
    "tests/crash/model_test.ts": ["tests/crash/model.ts"],
    "benches/publish_bench.ts": ["benches/load.ts"],
    "benches/load.ts": [],
  });
  const entries = { exported: ["shared/log/mod.ts"], named: ["tools/ok.ts"] };
  assert.deepEqual(checkGraph(graph, entries), []);
});

Deno.test("checkGraph() finds production code that only its tests use", () => {
  const graph = graphOf({
    "broker/a.ts": [],
    "broker/a_test.ts": ["broker/a.ts", "broker/a_test_world.ts"],
    "broker/a_test_world.ts": [],
  });
  assert.deepEqual(checkGraph(graph, NO_ENTRIES), ["dead file: only tests lead to broker/a.ts"]);
});

Deno.test("findStarted() finds files started by path", () => {
  const text = `a(new URL("./child.ts", import.meta.url)); new URL("../x.md", import.meta.url);`;
  assert.deepEqual(findStarted(text), ["./child.ts"]);
});

Deno.test("findNamed() finds the files of commands and scripts", () => {
  assert.deepEqual(findNamed("deno run -A ./tools/ok.ts --no-test broker/main.ts"), [
    "tools/ok.ts",
    "broker/main.ts",
  ]);
  assert.deepEqual(findNamed("deno fmt --check && echo x.tsx"), []);
});

Deno.test("keepsLinterOut() sees the comment and not a text that speaks of it", () => {
  const comment = ["deno", "lint", "ignore", "file"].join("-");
  assert.equal(keepsLinterOut(`// ${comment}\nlet a;`), true);
  assert.equal(keepsLinterOut(`/* ${comment} no-explicit-any */`), true);
  assert.equal(keepsLinterOut(`const a = "${comment}";`), false);
});
