/** The metrics of discovery: read from its counters when they are scraped. */
import { type HttpMeter, registerHttpMetrics } from "@sluice/shared/http";
import type { ProcessFigures } from "@sluice/shared/runtime";
import {
  type LoopLag,
  type MetricsRegistry,
  registerLagMetrics,
  registerProcessMetrics,
} from "@sluice/shared/telemetry";
import type { Registry } from "./registry.ts";
import type { SessionCounters } from "./session.ts";
import type { SessionServer } from "./session_server.ts";
import type { PollCounters, PollStatus } from "./sources/polled_broker.ts";
import type { SourceStatus } from "./sources/source.ts";
import type { WatchFigures } from "./watch.ts";

/** Where the figures are. */
export interface MetricsSource {
  readonly registry: Registry;
  readonly sessions: Pick<SessionServer, "acceptedCount" | "connectionCount" | "refusedCount">;
  readonly counters: SessionCounters;
  /** How often connections could not be accepted, by door. */
  readonly acceptFailures?: { readonly tcp: number; readonly http: number };
  readonly process?: (() => ProcessFigures) | undefined;
  readonly lag: LoopLag;
  readonly sources: readonly SourceStatus[];
  readonly polled: readonly PollStatus[];
  readonly polls: PollCounters;
  readonly watch: WatchFigures;
  readonly http?: HttpMeter;
}

/** Registers everything there is to say. `source` is asked at each scrape, not before. */
export function registerMetrics(metrics: MetricsRegistry, source: () => MetricsSource): void {
  const gauge = (name: string, help: string, read: () => number) => {
    metrics.gauge({ name: `sluice_discovery_${name}`, help }, (report) => report({}, read()));
  };
  registerProcessMetrics(metrics, () => source().process?.());
  registerLagMetrics(metrics, () => source().lag);
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
  registerHttpMetrics(metrics, () => source().http);
  registerSourceMetrics(metrics, source);
  registerWatchMetrics(metrics, source);
}

function registerSourceMetrics(metrics: MetricsRegistry, source: () => MetricsSource): void {
  const perSource = (
    kind: "gauge" | "counter",
    name: string,
    help: string,
    read: (status: SourceStatus) => number | null,
  ) => {
    metrics[kind](
      { name: `sluice_discovery_source_${name}`, help, labels: ["source"] },
      (report) => {
        for (const status of source().sources) {
          const value = read(status);
          if (value !== null) report({ source: status.name }, value);
        }
      },
    );
  };
  perSource(
    "gauge",
    "current",
    "1 while a source of brokers says how things are, 0 while what it said is old or nothing.",
    ({ state }) => state === "current" ? 1 : 0,
  );
  perSource(
    "gauge",
    "age_seconds",
    "The time since a source last said how things are.",
    ({ ageMs }) => ageMs === null ? null : ageMs / 1_000,
  );
  perSource("gauge", "endpoints", "Brokers that a source lists.", ({ endpoints }) => endpoints);
  perSource(
    "counter",
    "failures_total",
    "Times that a source could not say how things are.",
    ({ failures }) => failures,
  );
  metrics.gauge({
    name: "sluice_discovery_polled_brokers",
    help: "Brokers that are asked what they have, by what became of it.",
    labels: ["state"],
  }, (report) => {
    for (const state of ["new", "fresh", "unreachable"] as const) {
      report({ state }, source().polled.filter((one) => one.state === state).length);
    }
  });
  metrics.counter({
    name: "sluice_discovery_polls_total",
    help: "Requests to brokers, by what was asked for and whether there was an answer.",
    labels: ["kind", "outcome"],
  }, (report) => {
    const { polls } = source();
    for (const [kind, count] of polls.answered) report({ kind, outcome: "answered" }, count);
    for (const [kind, count] of polls.failed) report({ kind, outcome: "failed" }, count);
  });
}

function registerWatchMetrics(metrics: MetricsRegistry, source: () => MetricsSource): void {
  metrics.gauge(
    { name: "sluice_discovery_watchers", help: "Readers of /v1/watch." },
    (report) => report({}, source().watch.watchers),
  );
  metrics.counter({
    name: "sluice_discovery_watches_total",
    help: "Watches that began, were refused, or were ended because the reader was slow.",
    labels: ["outcome"],
  }, (report) => {
    const { opened, refused, slow } = source().watch;
    report({ outcome: "opened" }, opened);
    report({ outcome: "refused" }, refused);
    report({ outcome: "slow" }, slow);
  });
}
