/** Metrics that every service with doors has: the event loop, and authorization. */
import type { Authorization } from "../authorization/mod.ts";
import { type LoopLag, type MetricsRegistry, registerLagMetrics } from "../telemetry/mod.ts";

/** Where the figures are. */
export interface DoorMetricsSource {
  readonly lag: LoopLag;
  readonly authorization?: Authorization | undefined;
}

/** Registers them. `source` is asked at each scrape, not before. */
export function registerDoorMetrics(
  registry: MetricsRegistry,
  source: () => DoorMetricsSource,
): void {
  const counter = (name: string, help: string, value: () => number) =>
    registry.counter({ name, help }, (set) => set({}, value()));
  const gauge = (name: string, help: string, value: () => number) =>
    registry.gauge({ name, help }, (set) => set({}, value()));

  registerLagMetrics(registry, () => source().lag);
  counter(
    "sluice_auth_unknown_total",
    "Times a secret, token or certificate was known to no source of grants.",
    () => source().authorization?.authorizer.unknownCount ?? 0,
  );
  counter(
    "sluice_auth_unavailable_total",
    "Times it could not be said what a client may do.",
    () => source().authorization?.authorizer.unavailableCount ?? 0,
  );
  counter(
    "sluice_auth_service_requests_total",
    "Requests sent to authorization services.",
    () => source().authorization?.servers?.requestCount ?? 0,
  );
  counter(
    "sluice_auth_service_failures_total",
    "Answers of authorization services that were missing or unusable.",
    () => source().authorization?.servers?.failureCount ?? 0,
  );
  gauge(
    "sluice_auth_stale_files",
    "Files of authorization that cannot be read or understood, so that older content is in use.",
    () => source().authorization?.staleFiles ?? 0,
  );
  gauge(
    "sluice_auth_grants_bytes",
    "Memory that holds grants in use.",
    () => source().authorization?.authorizer.heldBytes ?? 0,
  );
}
