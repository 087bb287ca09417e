/** The metrics of the gateway: read from its counters when they are scraped. */
import type { Authorization } from "@sluice/shared/authorization";
import type { SourceStatus } from "@sluice/shared/client";
import { type HttpMeter, registerHttpMetrics } from "@sluice/shared/http";
import type { ProcessFigures } from "@sluice/shared/runtime";
import { type Handshakes, registerDoorMetrics, type TcpServer } from "@sluice/shared/server";
import {
  type LoopLag,
  type MetricsRegistry,
  registerProcessMetrics,
} from "@sluice/shared/telemetry";
import type { Health } from "./health.ts";
import type { BrokerPool } from "./pool.ts";
import type { Publisher } from "./publisher.ts";
import type { Replayer } from "./replayer.ts";
import type { Receiving } from "./receiving.ts";
import type { Session } from "./session.ts";
import type { Spool } from "./spool/mod.ts";
import type { TunnelServer } from "./tunnel.ts";

/** Where the figures are. */
export interface MetricsSource {
  readonly publisher: Publisher;
  readonly pool: BrokerPool;
  readonly receiving: Receiving;
  readonly spool: Spool | null;
  readonly replayer: Replayer | null;
  readonly tunnels: TunnelServer | null;
  readonly http: HttpMeter;
  readonly tcp: Pick<TcpServer<Session>, "sessions" | "refusedCount">;
  readonly acceptFailures: { readonly tcp: number; readonly http: number };
  readonly handshakes: Pick<Handshakes, "failedCount">;
  /** `null` without TLS. */
  readonly certificateExpiresWallMs: number | null;
  readonly sources: readonly SourceStatus[];
  readonly health: Health;
  readonly lag: LoopLag;
  readonly nowWallMs: number;
  readonly process?: (() => ProcessFigures) | undefined;
  readonly authorization: Authorization;
}

const OUTCOMES = [
  "confirmed",
  "spooled",
  "refused",
  "throttled",
  "ambiguous",
  "failed",
] as const;

/** Registers everything there is to say. `source` is asked at each scrape, not before. */
export function registerMetrics(registry: MetricsRegistry, source: () => MetricsSource): void {
  const counter = (name: string, help: string, value: () => number) =>
    registry.counter({ name: `sluice_gateway_${name}`, help }, (set) => set({}, value()));
  const gauge = (name: string, help: string, value: () => number) =>
    registry.gauge({ name: `sluice_gateway_${name}`, help }, (set) => set({}, value()));

  registerProcessMetrics(registry, () => source().process?.());
  registerHttpMetrics(registry, () => source().http);
  registry.counter({
    name: "sluice_gateway_publishes_total",
    help: "Publishes by what became of them.",
    labels: ["outcome"],
  }, (set) => {
    const { counts } = source().publisher;
    for (const outcome of OUTCOMES) set({ outcome }, counts[outcome]);
  });
  registry.histogram({
    name: "sluice_gateway_publish_duration_seconds",
    help: "From the receipt of a publish to its outcome.",
  }, (report) => report({}, source().publisher.durations));
  counter("messages_total", "Messages in publishes that have an outcome.", () => {
    return source().publisher.messageCount;
  });
  counter(
    "elsewhere_total",
    "Times that a publish went to another broker, since the first certainly had not stored it.",
    () => source().publisher.counts.elsewhere,
  );
  counter(
    "spooled_for_broker_total",
    "Publishes without an answer in time, spooled for the broker that may have them.",
    () => source().publisher.counts.spooledForBroker,
  );
  gauge("held_publishes", "Publishes without an outcome.", () => source().publisher.heldCount);
  gauge(
    "held_bytes",
    "Memory for publishes without an outcome.",
    () => source().publisher.heldBytes,
  );
  gauge("held_bytes_max", "The bound of held_bytes.", () => source().publisher.bytesMax);
  gauge("receiving_bytes", "Memory for bodies being received.", () => source().receiving.usedBytes);
  counter(
    "receiving_refused_total",
    "Bodies refused because too many bytes were being received.",
    () => source().receiving.refusedCount,
  );
  gauge("connections", "Open NSQ connections.", () => source().tcp.sessions.size);
  counter(
    "connections_refused_total",
    "Connections closed because there were too many.",
    () => source().tcp.refusedCount,
  );
  registry.counter({
    name: "sluice_gateway_accept_failures_total",
    help: "Times that connections could not be accepted, as when there are no descriptors left.",
    labels: ["protocol"],
  }, (set) => {
    const { acceptFailures } = source();
    set({ protocol: "tcp" }, acceptFailures.tcp);
    set({ protocol: "http" }, acceptFailures.http);
  });
  counter(
    "tls_handshakes_failed_total",
    "TLS handshakes of NSQ connections that failed.",
    () => source().handshakes.failedCount,
  );
  registry.gauge({
    name: "sluice_gateway_tls_certificate_expiry_timestamp_seconds",
    help: "When the TLS certificate stops being good, in seconds since the epoch.",
  }, (set) => {
    const { certificateExpiresWallMs } = source();
    if (certificateExpiresWallMs !== null) set({}, certificateExpiresWallMs / 1000);
  });
  gauge("ready", "1 while publishes are taken.", () => Number(source().health.accepting));
  registerDoorMetrics(registry, source);
  registerBrokerMetrics(registry, source);
  registerSpoolMetrics(registry, source);
  registerTunnelMetrics(registry, source);
}

function registerBrokerMetrics(registry: MetricsRegistry, source: () => MetricsSource): void {
  registry.gauge({
    name: "sluice_gateway_brokers",
    help: "Brokers by whether publishes go to them.",
    labels: ["state"],
  }, (set) => {
    const counts = { usable: 0, slow: 0, open: 0, unconnected: 0, unready: 0 };
    for (const link of source().pool.links.values()) {
      if (!link.isConnected) counts.unconnected++;
      else if (link.circuit.state !== "closed") counts.open++;
      else if (!link.isUsable) counts.unready++;
      else if (link.isSlow) counts.slow++;
      else counts.usable++;
    }
    for (const [state, count] of Object.entries(counts)) set({ state }, count);
  });
  registry.gauge({
    name: "sluice_gateway_sources",
    help: "Discovery services by how well they are known.",
    labels: ["state"],
  }, (set) => {
    const counts = { starting: 0, current: 0, stale: 0, failed: 0 };
    for (const { state } of source().sources) counts[state]++;
    for (const [state, count] of Object.entries(counts)) set({ state }, count);
  });
}

function registerSpoolMetrics(registry: MetricsRegistry, source: () => MetricsSource): void {
  const spool = (
    kind: "gauge" | "counter",
    name: string,
    help: string,
    read: (figures: Spool["figures"]) => number | null,
  ) => {
    registry[kind]({ name: `sluice_gateway_spool_${name}`, help }, (set) => {
      const figures = source().spool?.figures;
      const value = figures === undefined ? null : read(figures);
      if (value !== null) set({}, value);
    });
  };
  spool("gauge", "depth", "Publishes in the spool.", ({ count }) => count);
  spool("gauge", "body_bytes", "Bytes of their bodies.", ({ bodyBytes }) => bodyBytes);
  spool("gauge", "file_bytes", "Bytes of the spool on disk.", ({ fileBytes }) => fileBytes);
  spool("gauge", "oldest_age_seconds", "Age of the oldest publish in it.", ({ oldestWallMs }) => {
    return oldestWallMs === null ? 0 : Math.max(0, source().nowWallMs - oldestWallMs) / 1000;
  });
  spool("gauge", "quarantined", "Publishes in quarantine.", ({ quarantined }) => quarantined);
  spool("counter", "appended_total", "Publishes spooled.", ({ appendedTotal }) => appendedTotal);
  spool("counter", "settled_total", "Publishes of the spool that are done.", (figures) => {
    return figures.settledTotal;
  });
  spool(
    "counter",
    "damaged_total",
    "Publishes that could not be read back.",
    ({ damaged }) => damaged,
  );
  registry.counter({
    name: "sluice_gateway_spool_refused_total",
    help: "Publishes that the spool did not take.",
    labels: ["reason"],
  }, (set) => {
    const refused = source().spool?.figures.refusedTotal;
    if (refused === undefined) return;
    for (const [reason, count] of Object.entries(refused)) set({ reason }, count);
  });
}

function registerTunnelMetrics(registry: MetricsRegistry, source: () => MetricsSource): void {
  registry.gauge({
    name: "sluice_gateway_tunnels",
    help: "Connections that are passed through to a broker.",
  }, (set) => {
    const { tunnels } = source();
    if (tunnels !== null) set({}, tunnels.tunnelCount);
  });
  registry.counter({
    name: "sluice_gateway_tunnels_total",
    help: "Such connections, by what became of them.",
    labels: ["outcome"],
  }, (set) => {
    const { tunnels } = source();
    if (tunnels === null) return;
    set({ outcome: "opened" }, tunnels.openedCount);
    set({ outcome: "refused" }, tunnels.refusedCount);
    set({ outcome: "expired" }, tunnels.expiredCount);
  });
}
