/** What is in `deploy` holds together: metrics that there are, alerts with a paragraph each. */
import { deepEqual, match, ok } from "node:assert/strict";
import { ROOT_PATH } from "../integration/process.ts";
import { alertsOf, recordsOf, RULES_PATH } from "./rules.ts";

const rules = await Deno.readTextFile(RULES_PATH);
const operations = await Deno.readTextFile(`${ROOT_PATH}docs/OPERATIONS.md`);
/** Generated from the registries of all services; that it is not stale is checked elsewhere. */
const metrics = await Deno.readTextFile(`${ROOT_PATH}docs/METRICS.md`);
const DASHBOARDS_PATH = `${ROOT_PATH}deploy/grafana`;

/** All series that there are, with those that rules record. */
function knownSeries(): Set<string> {
  const known = new Set(recordsOf(rules));
  for (const [, name = "", kind] of metrics.matchAll(/^\| `(sluice_\w+)` \| (\w+) \|/gm)) {
    if (kind !== "histogram") known.add(name);
    else for (const part of ["bucket", "sum", "count"]) known.add(`${name}_${part}`);
  }
  return known;
}

/** Names of our series in a text of PromQL. */
function seriesIn(text: string): string[] {
  return [...text.matchAll(/(?:\w+:)?\bsluice_\w+(?::\w+)*/g)].map(([name]) => name);
}

function unknownIn(texts: Iterable<string>): string[] {
  const known = knownSeries();
  return [...texts].flatMap(seriesIn).filter((name) => !known.has(name));
}

Deno.test("every metric that the rules name is one that a service has, or that they record", () => {
  ok(knownSeries().size > 100);
  const expressions = [...rules.matchAll(/^ *expr: (.+)$/gm)].map(([, expression]) => expression!);
  ok(expressions.length > 40);
  deepEqual(unknownIn(expressions), []);
});

Deno.test("every alert has a severity, a summary and a paragraph that says what to do first", () => {
  const sections = new Map(
    operations.split(/^### /m).map((section) => [section.slice(0, section.indexOf("\n")), section]),
  );
  for (const { name, severity, summary, runbook } of alertsOf(rules)) {
    match(severity, /^(critical|warning|info)$/, name);
    match(summary, /\.$|\}\}\.$/, name);
    ok(runbook === `docs/OPERATIONS.md#${name.toLowerCase()}`, `${name} has its runbook`);
    const section = sections.get(name);
    ok(section !== undefined, `${name} has a paragraph in docs/OPERATIONS.md`);
    match(section, /first\s+action:/i, name);
    match(section, /Confirm/, name);
  }
});

Deno.test("every runbook is of an alert that there is", () => {
  const runbooks = operations.slice(operations.indexOf("\n## Runbooks")).split(/^## /m)[1] ?? "";
  const titles = [...runbooks.matchAll(/^### (\S+)$/gm)].map(([, title]) => title);
  deepEqual(titles.sort(), alertsOf(rules).map(({ name }) => name).sort());
});

Deno.test("every panel of the dashboards asks for metrics that there are", async () => {
  let panels = 0;
  for await (const { name } of Deno.readDir(DASHBOARDS_PATH)) {
    const dashboard = JSON.parse(await Deno.readTextFile(`${DASHBOARDS_PATH}/${name}`));
    const expressions: string[] = [];
    for (const panel of dashboard.panels) {
      if (panel.type === "row") continue;
      panels++;
      ok(panel.targets.length > 0, `${name}: ${panel.title} asks for something`);
      for (const target of panel.targets) expressions.push(target.expr);
    }
    for (const variable of dashboard.templating.list) {
      expressions.push(String(variable.query ?? ""));
    }
    deepEqual(unknownIn(expressions), [], name);
  }
  ok(panels > 40, `${panels} panels`);
});
