/**
 * The broker's metrics: read from its counters when they are scraped. Those of the process and the doors
 * are here; those of the log, of limits, and of topics each in a file of their own.
 */
import type { Authorization } from "@sluice/shared/authorization";
import { type HttpMeter, registerHttpMetrics } from "@sluice/shared/http";
import type { ProcessFigures } from "@sluice/shared/runtime";
import {
  type LoopLag,
  type MetricsRegistry,
  registerProcessMetrics,
} from "@sluice/shared/telemetry";
import { type Handshakes, registerDoorMetrics, type TcpServer } from "@sluice/shared/server";
import type { Session } from "./session.ts";
import type { Broker } from "../broker.ts";
import { registerLimitMetrics } from "./metrics_limits.ts";
import { registerLogMetrics } from "./metrics_log.ts";
import { registerTopicMetrics } from "./metrics_topics.ts";
import type { TopicFigures } from "./topic_figures.ts";

/** Where the figures are. */
export interface MetricsSource {
  readonly broker: Broker;
  readonly topics: TopicFigures;
  readonly http?: HttpMeter;
  readonly tcp: Pick<TcpServer<Session>, "sessions" | "refusedCount">;
  /** How often connections could not be accepted, by door. */
  readonly acceptFailures?: { readonly tcp: number; readonly http: number };
  readonly process?: (() => ProcessFigures) | undefined;
  /** Null or absent when nothing is sent to statsd. */
  readonly statsd?: { readonly packetCount: number; readonly failureCount: number } | null;
  readonly handshakes: Pick<Handshakes, "failedCount">;
  /** `null` without TLS. */
  readonly certificateExpiresWallMs: number | null;
  readonly lag: LoopLag;
  readonly authorization?: Authorization;
  /** The discovery services to register with. */
  readonly registrations?: readonly { readonly address: string; readonly isUp: boolean }[];
}

/** Registers everything there is to say. `source` is asked at each scrape, not before. */
export function registerMetrics(registry: MetricsRegistry, source: () => MetricsSource): void {
  registerDoors(registry, source);
  registerHttpMetrics(registry, () => source().http);
  registerDiscovery(registry, source);
  registerHealth(registry, () => source().broker);
  registerLogMetrics(registry, () => source().broker);
  registerLimitMetrics(registry, () => source().broker);
  registerTopicMetrics(registry, () => source().topics);
}

function registerDoors(registry: MetricsRegistry, source: () => MetricsSource): void {
  const counter = (name: string, help: string, value: () => number) =>
    registry.counter({ name, help }, (set) => set({}, value()));
  const gauge = (name: string, help: string, value: () => number) =>
    registry.gauge({ name, help }, (set) => set({}, value()));

  registerProcessMetrics(registry, () => source().process?.());
  counter(
    "sluice_connections_refused_total",
    "Connections closed because there were too many.",
    () => source().tcp.refusedCount,
  );
  registry.counter({
    name: "sluice_accept_failures_total",
    help: "Times that connections could not be accepted, as when there are no descriptors left.",
    labels: ["protocol"],
  }, (set) => {
    const { acceptFailures } = source();
    set({ protocol: "tcp" }, acceptFailures?.tcp ?? 0);
    set({ protocol: "http" }, acceptFailures?.http ?? 0);
  });
  counter(
    "sluice_statsd_packets_total",
    "Packets sent to statsd.",
    () => source().statsd?.packetCount ?? 0,
  );
  counter(
    "sluice_statsd_failures_total",
    "Rounds of figures that could not be sent to statsd whole.",
    () => source().statsd?.failureCount ?? 0,
  );
  gauge("sluice_connections", "Open NSQ connections.", () => source().tcp.sessions.size);
  counter(
    "sluice_tls_handshakes_failed_total",
    "TLS handshakes of NSQ connections that failed.",
    () => source().handshakes.failedCount,
  );
  registry.gauge(
    {
      name: "sluice_tls_certificate_expiry_timestamp_seconds",
      help: "When the TLS certificate stops being good, in seconds since the epoch.",
    },
    (set) => {
      const { certificateExpiresWallMs } = source();
      if (certificateExpiresWallMs !== null) set({}, certificateExpiresWallMs / 1000);
    },
  );
  gauge("sluice_topics", "Topics.", () => source().broker.topics.size);
  registerDoorMetrics(registry, source);
  registry.counter({
    name: "sluice_connections_closed_total",
    help: "NSQ connections that have ended, by why.",
    labels: ["reason"],
  }, (set) => {
    const { closes } = source().broker.counters;
    // Told of before the first one, so that a rate of it is right from the beginning.
    for (const reason of ["heartbeat_timeout", "not_reading"]) set({ reason }, 0);
    for (const [reason, count] of closes) set({ reason }, count);
  });
  registry.counter({
    name: "sluice_protocol_errors_total",
    help: "Errors that clients were told over NSQ, by code.",
    labels: ["code"],
  }, (set) => {
    for (const [code, count] of source().broker.counters.errors) set({ code }, count);
  });
}

function registerDiscovery(registry: MetricsRegistry, source: () => MetricsSource): void {
  registry.gauge({
    name: "sluice_registration_up",
    help: "1 while a discovery service knows this broker, by the address that was configured.",
    labels: ["source"],
  }, (set) => {
    for (const { address, isUp } of source().registrations ?? []) {
      set({ source: address }, isUp ? 1 : 0);
    }
  });
}

function registerHealth(registry: MetricsRegistry, broker: () => Broker): void {
  registry.gauge(
    { name: "sluice_accepting", help: "1 while publishes are taken, as /v1/health says." },
    (set) => set({}, broker().health().accepting ? 1 : 0),
  );
  registry.gauge(
    { name: "sluice_delivering", help: "1 while consumers are served, as /v1/health says." },
    (set) => set({}, broker().health().delivering ? 1 : 0),
  );
  registry.gauge({
    name: "sluice_health_reason",
    help: "1 for each reason of /v1/health that holds; no series for one that does not.",
    labels: ["reason"],
  }, (set) => {
    for (const { code } of broker().health().reasons) set({ reason: code }, 1);
  });
}
