/** Metrics of the process, the same for every service. */
import { type ProcessFigures, REPORTED_VERSION } from "../runtime/mod.ts";
import type { LoopLag } from "./loop_lag.ts";
import type { MetricsRegistry } from "./metrics.ts";

/** Registers them. `figures` is asked once a scrape; what it does not know is left out. */
export function registerProcessMetrics(
  registry: MetricsRegistry,
  figures: () => ProcessFigures | undefined,
): void {
  registry.gauge({
    name: "sluice_build_info",
    help: "Always 1; the version is its label.",
    labels: ["version"],
  }, (report) => report({ version: REPORTED_VERSION }, 1));
  let known: ProcessFigures | undefined;
  registry.prepare(() => {
    known = figures();
  });
  registry.counter({
    name: "sluice_process_cpu_seconds_total",
    help: "Time on a processor, in all threads.",
  }, (report) => {
    if (known !== undefined) report({}, known.cpuSeconds);
  });
  const gauge = (name: string, help: string, key: keyof ProcessFigures) =>
    registry.gauge({ name, help }, (report) => {
      const value = known?.[key];
      if (value !== undefined) report({}, value);
    });
  gauge(
    "sluice_process_resident_bytes",
    "Memory of the process as the system sees it.",
    "residentBytes",
  );
  gauge("sluice_process_heap_bytes", "Size of the JavaScript heap.", "heapBytes");
  gauge("sluice_process_heap_used_bytes", "Part of the heap that is in use.", "heapUsedBytes");
  gauge("sluice_process_external_bytes", "Buffers outside the heap.", "externalBytes");
  gauge("sluice_process_start_seconds", "Unix time of the start of the process.", "startSeconds");
  gauge("sluice_process_uptime_seconds", "Time since the start of the process.", "uptimeSeconds");
  gauge(
    "sluice_process_open_files",
    "Files and connections that are open; at least so many, where the process may not count them.",
    "openFiles",
  );
  gauge(
    "sluice_process_open_files_max",
    "The most that may be open; absent where the process may not know.",
    "openFilesMax",
  );
}

/** Registers how long a service keeps everybody waiting. */
export function registerLagMetrics(registry: MetricsRegistry, lag: () => LoopLag): void {
  registry.histogram({
    name: "sluice_event_loop_lag_seconds",
    help: "How late timers of 10 ms go off: work kept everybody waiting.",
  }, (report) => report({}, lag().histogram));
  registry.gauge({
    name: "sluice_event_loop_lag_max_seconds",
    help: "The latest that one of them went off since the start.",
  }, (report) => report({}, lag().maxMs / 1000));
}
