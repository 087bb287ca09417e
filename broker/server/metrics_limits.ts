/** Metrics of limits: budgets, disk space, refused publishes, what is given up, memory. */
import type { MetricsRegistry } from "@sluice/shared/telemetry";
import type { Broker } from "../broker.ts";

/** Registers them. `broker` is asked at each scrape, not before. */
export function registerLimitMetrics(registry: MetricsRegistry, broker: () => Broker): void {
  const counter = (name: string, help: string, value: () => number) =>
    registry.counter({ name, help }, (set) => set({}, value()));
  const gauge = (name: string, help: string, value: () => number) =>
    registry.gauge({ name, help }, (set) => set({}, value()));

  counter(
    "sluice_lagging_held_total",
    "Times that a channel whose messages come from disk had to wait for its share of the time.",
    () => broker().pace.heldCount,
  );
  counter(
    "sluice_lagging_held_seconds_total",
    "Time during which some channel waited for its share.",
    () => broker().pace.heldMs(broker().clock.monoMs()) / 1000,
  );
  registry.gauge(
    { name: "sluice_disk_free_bytes", help: "Free bytes of the disk with the data folder." },
    (set) => {
      const { space } = broker().guard;
      if (space !== null) set({}, space.freeBytes);
    },
  );
  gauge(
    "sluice_disk_guard_closed",
    "1 while publishes are refused for want of disk space.",
    () => broker().guard.isClosed ? 1 : 0,
  );
  counter(
    "sluice_publishes_throttled_total",
    "Publish commands refused for want of disk space.",
    () => broker().guard.throttledCount,
  );
  counter(
    "sluice_publishes_refused_at_topic_limit_total",
    "Publish commands refused because their topic has reached its limit.",
    () => broker().quotas.refusedCount,
  );
  registry.counter(
    {
      name: "sluice_publishes_refused_at_rate_total",
      help: "Publish commands refused because their topic, or their client, publishes too fast.",
      labels: ["kind"],
    },
    (set) => {
      const { topic, client } = broker().limits.refused;
      set({ kind: "topic" }, topic);
      set({ kind: "client" }, client);
    },
  );
  counter(
    "sluice_topic_limit_dropped_messages_total",
    "Messages given up at the limit of their topic, once for each channel that was owed them.",
    () => broker().quotas.droppedCount,
  );
  counter(
    "sluice_evicted_files_total",
    "Log files given up for want of space.",
    () => broker().evictor.fileCount,
  );
  counter(
    "sluice_evicted_messages_total",
    "Messages given up with them, once for each channel that was owed them.",
    () => broker().evictor.messageCount,
  );
  const repeats = () => broker().repeats;
  const dedup = () => broker().storage.state.dedup;
  counter(
    "sluice_dedup_repeats_total",
    "Publishes with a sequence that were stored before: answered, not stored again.",
    () => repeats().answered,
  );
  counter(
    "sluice_dedup_too_old_total",
    "Publishes refused because their sequence is below their producer's window.",
    () => repeats().tooOld,
  );
  counter(
    "sluice_dedup_throttled_total",
    "Publishes with a sequence refused because dedup-bytes-max is in use.",
    () => repeats().throttled,
  );
  counter(
    "sluice_dedup_displaced_producers_total",
    "Producers forgotten before dedup-window because their topic had too many.",
    () => dedup().displaced,
  );
  gauge(
    "sluice_dedup_producers",
    "Producers remembered, once for each topic.",
    () => dedup().producers,
  );
  gauge(
    "sluice_dedup_bytes",
    "Memory that holds what is remembered of producers, about.",
    () => dedup().bytes,
  );
  gauge(
    "sluice_page_cache_bytes",
    "Memory that holds log pages read back.",
    () => broker().storage.reader.cachedBytes,
  );
  gauge(
    "sluice_index_cache_bytes",
    "Memory that holds places of messages read back.",
    () => broker().storage.indexCachedBytes,
  );
  gauge(
    "sluice_publish_staged_bytes",
    "Memory that holds publishes not received whole.",
    () => broker().stagedBytes,
  );
  registry.gauge(
    { name: "sluice_disk_total_bytes", help: "Size of the disk with the data folder." },
    (set) => {
      const { space } = broker().guard;
      if (space !== null) set({}, space.totalBytes);
    },
  );
  gauge(
    "sluice_disk_min_free_bytes",
    "Publishes are refused while less of the disk is free.",
    () => broker().guard.minFreeBytes,
  );
  registerBudgets(registry, broker);
}

function registerBudgets(registry: MetricsRegistry, broker: () => Broker): void {
  const perUnit = (unit: "bytes" | "count", suffix: string, noun: string) => {
    registry.gauge({
      name: `sluice_budget_used${suffix}`,
      help: `What is in use of each budget of ${noun}.`,
      labels: ["budget"],
    }, (set) => {
      for (const { name, used, unit: own } of broker().budgets.all()) {
        if (own === unit) set({ budget: name }, used());
      }
    });
    registry.gauge({
      name: `sluice_budget_limit${suffix}`,
      help: `The limit of each budget of ${noun}; absent where there is none.`,
      labels: ["budget"],
    }, (set) => {
      for (const { name, limit, unit: own } of broker().budgets.all()) {
        const most = own === unit ? limit() : null;
        if (most !== null) set({ budget: name }, most);
      }
    });
  };
  perUnit("bytes", "_bytes", "bytes");
  perUnit("count", "", "things");
  registry.counter({
    name: "sluice_budget_refused_total",
    help: "Times that a budget was used up and somebody was refused, or had to wait.",
    labels: ["budget"],
  }, (set) => {
    for (const { name, refused } of broker().budgets.all()) {
      const count = refused();
      if (count !== null) set({ budget: name }, count);
    }
  });
}
