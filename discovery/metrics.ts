/** The metrics of discovery: read from its counters when they are scraped. */
import type { ProcessFigures } from "@sluice/shared/runtime";
import { type MetricsRegistry, registerProcessMetrics } from "@sluice/shared/telemetry";
import type { Registry } from "./registry.ts";
import type { SessionCounters } from "./session.ts";
import type { SessionServer } from "./session_server.ts";

/** Where the figures are. */
export interface MetricsSource {
  readonly registry: Registry;
  readonly sessions: Pick<SessionServer, "acceptedCount" | "connectionCount" | "refusedCount">;
  readonly counters: SessionCounters;
  /** How often connections could not be accepted, by door. */
  readonly acceptFailures?: { readonly tcp: number; readonly http: number };
  readonly process?: (() => ProcessFigures) | undefined;
}

/** Registers everything there is to say. `source` is asked at each scrape, not before. */
export function registerMetrics(metrics: MetricsRegistry, source: () => MetricsSource): void {
  const gauge = (name: string, help: string, read: () => number) => {
    metrics.gauge({ name: `sluice_discovery_${name}`, help }, (report) => report({}, read()));
  };
  registerProcessMetrics(metrics, () => source().process?.());
  gauge("producers", "Brokers that are registered.", () => source().registry.producerCount);
  gauge("topics", "Topics in the registry.", () => source().registry.topicCount);
  gauge("channels", "Channels in the registry.", () => source().registry.channelCount);
  gauge(
    "registrations",
    "Topics and channels that brokers hold, each broker counted.",
    () => source().registry.registrationCount,
  );
  gauge("connections", "Open connections of brokers.", () => source().sessions.connectionCount);
  metrics.counter({
    name: "sluice_discovery_connections_total",
    help: "Connections of brokers, by what became of them.",
    labels: ["outcome"],
  }, (report) => {
    report({ outcome: "accepted" }, source().sessions.acceptedCount);
    report({ outcome: "refused" }, source().sessions.refusedCount);
  });
  metrics.counter({
    name: "sluice_discovery_accept_failures_total",
    help: "Times that connections could not be accepted, as when there are no descriptors left.",
    labels: ["protocol"],
  }, (report) => {
    const { acceptFailures } = source();
    report({ protocol: "tcp" }, acceptFailures?.tcp ?? 0);
    report({ protocol: "http" }, acceptFailures?.http ?? 0);
  });
  metrics.counter({
    name: "sluice_discovery_commands_total",
    help: "Commands of brokers.",
    labels: ["command"],
  }, (report) => {
    for (const [command, count] of source().counters.commands) report({ command }, count);
  });
  metrics.counter({
    name: "sluice_discovery_errors_total",
    help: "Connections of brokers that were ended with an error.",
    labels: ["code"],
  }, (report) => {
    for (const [code, count] of source().counters.errors) report({ code }, count);
  });
}
