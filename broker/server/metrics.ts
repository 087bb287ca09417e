/** The broker's metrics: read from its counters when they are scraped. */
import type { MetricsRegistry } from "@sluice/shared/telemetry";
import type { Broker } from "../broker.ts";
import type { Channel } from "../queue/mod.ts";
import type { TcpServer } from "./tcp_server.ts";

/** Registers everything there is to say about a broker. */
export function registerMetrics(
  registry: MetricsRegistry,
  broker: Broker,
  tcp: Pick<TcpServer, "sessions" | "refusedCount">,
): void {
  const { storage } = broker;
  const { counters, log } = storage;
  const counter = (name: string, help: string, value: () => number) =>
    registry.counter({ name, help }, (set) => set({}, value()));
  const gauge = (name: string, help: string, value: () => number) =>
    registry.gauge({ name, help }, (set) => set({}, value()));

  counter(
    "sluice_messages_published_total",
    "Messages written to the log.",
    () => counters.messages,
  );
  counter(
    "sluice_messages_finished_total",
    "Messages finished, over all channels.",
    () => counters.finishes,
  );
  counter("sluice_log_groups_total", "Groups made durable, one sync each.", () => counters.groups);
  counter("sluice_log_checkpoints_total", "Checkpoints written.", () => counters.checkpoints);
  counter(
    "sluice_messages_damaged_total",
    "Messages passed over because their record is damaged.",
    () => broker.source.damagedCount,
  );
  counter(
    "sluice_connections_refused_total",
    "Connections closed because there were too many.",
    () => tcp.refusedCount,
  );
  gauge("sluice_connections", "Open NSQ connections.", () => tcp.sessions.size);
  gauge("sluice_topics", "Topics.", () => broker.topics.size);
  gauge("sluice_log_bytes", "Bytes of the log on disk.", () => {
    return storage.logFiles.reduce((sum, file) => sum + file.end - file.start, 0);
  });
  gauge("sluice_log_files", "Files of the log.", () => storage.logFiles.length);
  gauge(
    "sluice_log_undurable_bytes",
    "Bytes written to the log and not on disk yet.",
    () => log.end - log.durableEnd,
  );
  gauge(
    "sluice_log_failed",
    "1 once a write to the log has failed.",
    () => log.error === null ? 0 : 1,
  );
  gauge(
    "sluice_log_damage",
    "Damaged places found when the log was opened.",
    () => storage.opening.damage.length,
  );
  gauge(
    "sluice_page_cache_bytes",
    "Memory that holds log pages read back.",
    () => storage.reader.cachedBytes,
  );
  gauge(
    "sluice_publish_staged_bytes",
    "Memory that holds publishes not received whole.",
    () => broker.stagedBytes,
  );

  registry.gauge(
    { name: "sluice_topic_depth", help: "Messages no channel was given.", labels: ["topic"] },
    (set) => {
      for (const topic of broker.topics.values()) set({ topic: topic.state.name }, topic.depth);
    },
  );
  registry.counter(
    { name: "sluice_topic_messages_total", help: "Messages published.", labels: ["topic"] },
    (set) => {
      for (const topic of broker.topics.values()) {
        set({ topic: topic.state.name }, topic.messageCount);
      }
    },
  );
  const perChannel = (
    kind: "counter" | "gauge",
    name: string,
    help: string,
    value: (channel: Channel) => number,
  ) =>
    registry[kind]({ name, help, labels: ["topic", "channel"] }, (set) => {
      for (const topic of broker.topics.values()) {
        for (const channel of topic.channels.values()) {
          set({ topic: topic.state.name, channel: channel.state.name }, value(channel));
        }
      }
    });
  perChannel("gauge", "sluice_channel_depth", "Messages waiting.", (channel) => channel.depth);
  perChannel(
    "gauge",
    "sluice_channel_in_flight",
    "Messages in flight.",
    (channel) => channel.inFlightCount,
  );
  perChannel(
    "gauge",
    "sluice_channel_deferred",
    "Messages not due yet.",
    (channel) => channel.deferredCount,
  );
  perChannel(
    "gauge",
    "sluice_channel_consumers",
    "Consumers.",
    (channel) => channel.consumers.size,
  );
  perChannel(
    "counter",
    "sluice_channel_delivered_total",
    "Deliveries.",
    (channel) => channel.deliveredCount,
  );
  perChannel(
    "counter",
    "sluice_channel_requeued_total",
    "Messages requeued.",
    (channel) => channel.requeueCount,
  );
  perChannel(
    "counter",
    "sluice_channel_timed_out_total",
    "Deliveries timed out.",
    (channel) => channel.timeoutCount,
  );
}
