/** The rules as Prometheus itself evaluates them: each alert fires when it should, and only then. */
import { deepEqual, equal } from "node:assert/strict";
import { runToEnd, TemporaryFolder } from "../integration/process.ts";
import { ALERT_FIXTURES, type Series } from "./alert_fixtures.ts";
import { findPrometheus } from "./prometheus.ts";
import { type AlertRule, alertsOf, RULES_PATH } from "./rules.ts";

const programs = await findPrometheus();
const ignore = "missing" in programs;
const alerts = alertsOf(await Deno.readTextFile(RULES_PATH));

async function promtool(...args: string[]): Promise<void> {
  if ("missing" in programs) throw new Error(programs.missing);
  const { code, stdout, stderr } = await runToEnd(programs.promtool, args);
  equal(code, 0, `promtool ${args.join(" ")}\n${stdout}\n${stderr}`);
}

/** A group of promtool's tests: with these series the alert is there, or is not. */
function testGroup(alert: AlertRule, series: Series, at: string, expected: readonly unknown[]) {
  return {
    interval: "1m",
    input_series: Object.entries(series).map(([name, values]) => ({ series: name, values })),
    alert_rule_test: [{ eval_time: at, alertname: alert.name, exp_alerts: expected }],
  };
}

/** What Prometheus makes of a text with names of labels. */
function filledIn(text: string, labels: Readonly<Record<string, string>>): string {
  return text.replaceAll(/\{\{ \$labels\.(\w+) \}\}/g, (_all, name) => labels[name] ?? "");
}

Deno.test({
  name: "promtool takes the rules and the example of a configuration",
  // Where the programs cannot be had; CI asks for them and fails without.
  ignore,
  fn: async () => {
    await promtool("check", "rules", RULES_PATH);
    await promtool("check", "config", RULES_PATH.replace("rules.yml", "prometheus.yml"));
  },
});

Deno.test("every alert has series on which it fires and on which it does not", () => {
  deepEqual(alerts.map(({ name }) => name).sort(), Object.keys(ALERT_FIXTURES).sort());
});

for (const alert of alerts) {
  Deno.test({
    name: `${alert.name} fires when it should, and not when all is well`,
    // Where the programs cannot be had; CI asks for them and fails without.
    ignore,
    fn: async () => {
      const { fires, quiet, labels, at } = ALERT_FIXTURES[alert.name]!;
      await using folder = await TemporaryFolder.create();
      const path = `${folder.path}/test.yml`;
      const fired = {
        exp_labels: { severity: alert.severity, ...labels },
        exp_annotations: {
          summary: filledIn(alert.summary, labels),
          runbook_url: alert.runbook,
        },
      };
      // JSON is YAML.
      await Deno.writeTextFile(
        path,
        JSON.stringify({
          rule_files: [RULES_PATH],
          evaluation_interval: "1m",
          tests: [
            testGroup(alert, fires, at, [fired]),
            testGroup(alert, quiet, at, []),
          ],
        }),
      );
      await promtool("test", "rules", path);
    },
  });
}
