/** What the tests read of `deploy/prometheus/rules.yml`: its own layout, one line a field, not all of YAML. */
import { ROOT_PATH } from "../integration/process.ts";

export const RULES_PATH = `${ROOT_PATH}deploy/prometheus/rules.yml`;

/** One alert. */
export interface AlertRule {
  readonly name: string;
  readonly expression: string;
  readonly severity: string;
  readonly summary: string;
  readonly runbook: string;
}

/** The alerts of a file of rules. */
export function alertsOf(text: string): AlertRule[] {
  return text.split(/^ {6}- (?=alert: |record: )/m).slice(1)
    .filter((rule) => rule.startsWith("alert: "))
    .map((rule) => ({
      name: field(rule, "alert"),
      expression: field(rule, "expr"),
      severity: field(rule, "severity"),
      summary: field(rule, "summary").replace(/^"(.*)"$/, "$1"),
      runbook: field(rule, "runbook_url"),
    }));
}

/** The names of the series that the file records. */
export function recordsOf(text: string): string[] {
  return [...text.matchAll(/^ {6}- record: (\S+)$/gm)].map(([, name]) => name!);
}

function field(rule: string, name: string): string {
  const value = new RegExp(`^ *${name}: (.+)$`, "m").exec(rule)?.[1];
  if (value === undefined) throw new Error(`A rule has no ${name}: ${rule}`);
  return value;
}
