/**
 * Writes the tables of the documentation that derive from code, each between two markers in a page
 * that people otherwise write by hand:
 *
 * ```md
 * <!-- generated:NAME -->
 * <!-- /generated -->
 * ```
 *
 * `deno run -A tools/generate_docs.ts` writes them; with `--check` it changes nothing and fails when
 * a page is stale, naming it.
 */
import { brokerSettings } from "@sluice/broker/config";
import { registerMetrics as registerBrokerMetrics } from "@sluice/broker/metrics";
import { routeRows } from "@sluice/broker/openapi";
import { discoverySettings } from "@sluice/discovery/config";
import { registerMetrics as registerDiscoveryMetrics } from "@sluice/discovery/metrics";
import { gatewaySettings } from "@sluice/gateway/config";
import { registerMetrics as registerGatewayMetrics } from "@sluice/gateway/metrics";
import { settingsMarkdown } from "@sluice/shared/config";
import { ERROR_CODES, type ErrorFacts } from "@sluice/shared/protocol";
import { type MetricDescription, MetricsRegistry } from "@sluice/shared/telemetry";
import { ROOT_PATH } from "./workspace.ts";

/** A generated part of a page. */
export interface Section {
  readonly page: string;
  readonly name: string;
  readonly render: () => string;
}

/** Stands for the machine in defaults that derive from it; the tables describe those in words. */
const ANY_HOST = "localhost";

/** Everything that is generated. */
export const SECTIONS: readonly Section[] = [
  {
    page: "docs/CONFIG.md",
    name: "broker-settings",
    render: () => settingsMarkdown(brokerSettings(ANY_HOST)),
  },
  {
    page: "docs/CONFIG.md",
    name: "discovery-settings",
    render: () => settingsMarkdown(discoverySettings(ANY_HOST)),
  },
  {
    page: "docs/CONFIG.md",
    name: "gateway-settings",
    render: () => settingsMarkdown(gatewaySettings(ANY_HOST)),
  },
  {
    page: "docs/METRICS.md",
    name: "broker-metrics",
    render: () => metricsTable(described(registerBrokerMetrics)),
  },
  {
    page: "docs/METRICS.md",
    name: "discovery-metrics",
    render: () => metricsTable(described(registerDiscoveryMetrics)),
  },
  {
    page: "docs/METRICS.md",
    name: "gateway-metrics",
    render: () => metricsTable(described(registerGatewayMetrics)),
  },
  {
    page: "docs/API.md",
    name: "broker-routes",
    render: () => markdownTable(["Method", "Path", "Scope", "What it does"], routeRows()),
  },
  { page: "docs/ERRORS.md", name: "error-codes", render: () => errorTable(ERROR_CODES) },
];

/** A page whose content differs from what the code says, with what it should be. */
export interface StalePage {
  readonly page: string;
  readonly content: string;
}

/** The pages that are stale. Throws when a page lacks markers or has markers nobody fills. */
export function findStale(
  sections: readonly Section[],
  readPage: (page: string) => string,
): StalePage[] {
  const pages = new Set(sections.map(({ page }) => page));
  const stale: StalePage[] = [];
  for (const page of pages) {
    const before = readPage(page);
    let content = before;
    const own = sections.filter((section) => section.page === page);
    for (const { name, render } of own) content = replaceSection(page, content, name, render());
    for (const [, name = ""] of before.matchAll(/^<!-- generated:(.*) -->$/gm)) {
      if (own.some((section) => section.name === name)) continue;
      throw new Error(`${page}: nothing generates "${name}"`);
    }
    if (content !== before) stale.push({ page, content });
  }
  return stale;
}

function replaceSection(page: string, content: string, name: string, table: string): string {
  const start = `<!-- generated:${name} -->\n`;
  const end = "<!-- /generated -->";
  const [before, ...rest] = content.split(start);
  const after = rest[0];
  if (before === undefined || after === undefined || rest.length > 1) {
    throw new Error(`${page}: needs the line "${start.trim()}" exactly once`);
  }
  const close = after.indexOf(end);
  const next = after.indexOf("<!-- generated:");
  if (close < 0 || (next >= 0 && next < close)) {
    throw new Error(`${page}: "${start.trim()}" is not closed by "${end}"`);
  }
  return `${before}${start}\n${table}\n\n${after.slice(close)}`;
}

/** The error codes of the protocol as Markdown. */
export function errorTable(codes: Readonly<Record<string, ErrorFacts>>): string {
  const rows = Object.entries(codes).map(([code, facts]) => [
    `\`${code}\``,
    facts.fatal ? "closed" : "stays open",
    facts.retryable ? "yes" : "no",
    facts.httpStatus === null ? "-" : String(facts.httpStatus),
    facts.meaning,
  ]);
  return markdownTable(["Code", "Connection", "Retry as it is", "HTTP status", "Meaning"], rows);
}

/** Metrics as Markdown; `registry.describe()` is the source of a section. */
export function metricsTable(metrics: readonly MetricDescription[]): string {
  const rows = metrics.map(({ name, kind, labels, help }) => [
    `\`${name}\``,
    kind,
    labels.length === 0 ? "-" : labels.map((label) => `\`${label}\``).join(", "),
    help,
  ]);
  return markdownTable(["Metric", "Kind", "Labels", "Meaning"], rows);
}

/** What a service registers; describing it reads no figure. */
function described(register: (registry: MetricsRegistry, source: () => never) => void) {
  const registry = new MetricsRegistry();
  register(registry, () => {
    throw new Error("Cannot read a metric without a service");
  });
  return registry.describe();
}

function markdownTable(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]) =>
    `| ${cells.map((cell) => cell.replaceAll("|", "\\|")).join(" | ")} |`;
  return [line(head), `|${"---|".repeat(head.length)}`, ...rows.map(line)].join("\n");
}

if (import.meta.main) {
  const stale = findStale(SECTIONS, (page) => Deno.readTextFileSync(ROOT_PATH + page));
  const check = Deno.args.includes("--check");
  for (const { page, content } of stale) {
    if (check) console.error(`${page} is stale: run tools/generate_docs.ts`);
    else Deno.writeTextFileSync(ROOT_PATH + page, content);
  }
  console.log(check ? `${stale.length} stale pages` : `${stale.length} pages written`);
  if (check && stale.length > 0) Deno.exit(1);
}
