/** The broker's metrics: read from its counters when they are scraped. */
import type { Authorization } from "@sluice/shared/authorization";
import type { ProcessFigures } from "@sluice/shared/runtime";
import {
  type LoopLag,
  type MetricsRegistry,
  registerProcessMetrics,
} from "@sluice/shared/telemetry";
import { type Handshakes, registerDoorMetrics, type TcpServer } from "@sluice/shared/server";
import type { Session } from "./session.ts";
import type { Broker } from "../broker.ts";
import type { Channel } from "../queue/mod.ts";

/** Where the figures are. */
export interface MetricsSource {
  readonly broker: Broker;
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
}

/** Registers everything there is to say. `source` is asked at each scrape, not before. */
export function registerMetrics(registry: MetricsRegistry, source: () => MetricsSource): void {
  const counter = (name: string, help: string, value: () => number) =>
    registry.counter({ name, help }, (set) => set({}, value()));
  const gauge = (name: string, help: string, value: () => number) =>
    registry.gauge({ name, help }, (set) => set({}, value()));

  registerProcessMetrics(registry, () => source().process?.());
  counter(
    "sluice_messages_published_total",
    "Messages written to the log.",
    () => source().broker.storage.counters.messages,
  );
  counter(
    "sluice_large_messages_published_total",
    "Messages whose body was written in parts.",
    () => source().broker.storage.large.counters.published,
  );
  counter(
    "sluice_large_messages_delivered_total",
    "Bodies in parts that were sent whole to a consumer.",
    () => source().broker.storage.large.counters.delivered,
  );
  counter(
    "sluice_large_part_bytes_total",
    "Bytes of bodies written to the log in parts.",
    () => source().broker.storage.large.counters.partBytes,
  );
  counter(
    "sluice_large_abandoned_bytes_total",
    "Bytes of bodies in the log that never became a message.",
    () => source().broker.storage.large.counters.abandonedBytes,
  );
  gauge(
    "sluice_large_uploads",
    "Bodies on their way into the log in parts.",
    () => source().broker.uploads.size,
  );
  gauge(
    "sluice_large_delivery_bytes",
    "Memory that holds parts of bodies on their way to consumers.",
    () => source().broker.deliveryMemory.usedBytes,
  );
  counter(
    "sluice_messages_finished_total",
    "Messages finished, over all channels.",
    () => source().broker.storage.counters.finishes,
  );
  counter(
    "sluice_log_groups_total",
    "Syncs of the log; each makes durable what was written before it.",
    () => source().broker.storage.counters.groups,
  );
  counter(
    "sluice_log_checkpoints_total",
    "Checkpoints written.",
    () => source().broker.storage.counters.checkpoints,
  );
  counter(
    "sluice_messages_damaged_total",
    "Messages passed over because their record is damaged.",
    () => source().broker.source.damagedCount,
  );
  counter(
    "sluice_lagging_held_total",
    "Times that a channel whose messages come from disk had to wait for its share of the time.",
    () => source().broker.pace.heldCount,
  );
  counter(
    "sluice_lagging_held_seconds_total",
    "Time during which some channel waited for its share.",
    () => source().broker.pace.heldMs(source().broker.clock.monoMs()) / 1000,
  );
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
  gauge(
    "sluice_log_bytes",
    "Bytes of the log on disk, without what compaction has given back.",
    () => source().broker.storage.storedBytes,
  );
  registry.gauge(
    {
      name: "sluice_log_live_bytes",
      help: "Bytes of the log that somebody is or may be owed, as last estimated.",
    },
    (set) => {
      const { liveBytes } = source().broker.storage.compaction;
      if (liveBytes !== null) set({}, Math.round(liveBytes));
    },
  );
  registry.gauge(
    {
      name: "sluice_log_amplification",
      help: "Bytes of the log on disk for each that is live; absent while none is.",
    },
    (set) => {
      const { compaction: { liveBytes }, storedBytes } = source().broker.storage;
      if (liveBytes !== null && liveBytes > 0) set({}, storedBytes / liveBytes);
    },
  );
  gauge(
    "sluice_log_pinned_files",
    "Log files that could go if nobody were owed anything in them or in an older one.",
    () => source().broker.storage.compaction.pinnedFiles,
  );
  gauge(
    "sluice_log_pinned_bytes",
    "Bytes on disk of those files.",
    () => source().broker.storage.compaction.pinnedBytes,
  );
  gauge(
    "sluice_log_start_bytes",
    "Position at which the log begins: that of its oldest file.",
    () => {
      const { logFiles, log } = source().broker.storage;
      return logFiles[0]?.start ?? log.end;
    },
  );
  counter(
    "sluice_log_files_removed_total",
    "Log files removed because nobody was owed anything in them.",
    () => source().broker.storage.counters.filesRemoved,
  );
  counter(
    "sluice_log_files_compacted_total",
    "Log files written anew without what nobody was owed.",
    () => source().broker.storage.compaction.filesCompacted,
  );
  counter(
    "sluice_log_compaction_freed_bytes_total",
    "Bytes that compaction has given back.",
    () => source().broker.storage.compaction.bytesGivenBack,
  );
  counter(
    "sluice_log_compaction_seconds_total",
    "Time that compaction has taken, its waits for its rate included.",
    () => source().broker.storage.compaction.spentMs / 1000,
  );
  gauge(
    "sluice_log_files",
    "Files of the log.",
    () => source().broker.storage.logFiles.length,
  );
  gauge(
    "sluice_log_undurable_bytes",
    "Bytes put in the log and not on disk yet.",
    () => source().broker.storage.log.end - source().broker.storage.log.durableEnd,
  );
  const window = () => source().broker.storage.lossWindow;
  gauge(
    "sluice_loss_window_messages",
    "Messages that a power cut would take although they were confirmed or delivered.",
    () => window().messages,
  );
  gauge(
    "sluice_loss_window_highest_messages",
    "The most of them at a time since the start.",
    () => window().messagesHighest,
  );
  gauge("sluice_loss_window_bytes", "Bytes of these messages.", () => window().bytes);
  gauge(
    "sluice_loss_window_highest_bytes",
    "The most bytes of them at a time since the start.",
    () => window().bytesHighest,
  );
  gauge(
    "sluice_loss_window_age_seconds",
    "How long the oldest of these messages has been one.",
    () => window().ageMs / 1000,
  );
  gauge(
    "sluice_loss_window_highest_age_seconds",
    "The longest that a message has been one since the start.",
    () => window().ageMsHighest / 1000,
  );
  registry.counter(
    {
      name: "sluice_loss_window_syncs_total",
      help: "Syncs that emptied the loss window, by the limit that asked for them.",
      labels: ["reason"],
    },
    (set) => {
      for (const [reason, count] of Object.entries(window().syncs)) set({ reason }, count);
    },
  );
  gauge(
    "sluice_log_failed",
    "1 once a write to the log has failed.",
    () => source().broker.storage.log.error === null ? 0 : 1,
  );
  registry.gauge(
    { name: "sluice_disk_free_bytes", help: "Free bytes of the disk with the data folder." },
    (set) => {
      const { space } = source().broker.guard;
      if (space !== null) set({}, space.freeBytes);
    },
  );
  gauge(
    "sluice_disk_guard_closed",
    "1 while publishes are refused for want of disk space.",
    () => source().broker.guard.isClosed ? 1 : 0,
  );
  counter(
    "sluice_publishes_throttled_total",
    "Publish commands refused for want of disk space.",
    () => source().broker.guard.throttledCount,
  );
  counter(
    "sluice_publishes_refused_at_topic_limit_total",
    "Publish commands refused because their topic has reached its limit.",
    () => source().broker.quotas.refusedCount,
  );
  counter(
    "sluice_topic_limit_dropped_messages_total",
    "Messages given up at the limit of their topic, once for each channel that was owed them.",
    () => source().broker.quotas.droppedCount,
  );
  counter(
    "sluice_evicted_files_total",
    "Log files given up for want of space.",
    () => source().broker.evictor.fileCount,
  );
  counter(
    "sluice_evicted_messages_total",
    "Messages given up with them, once for each channel that was owed them.",
    () => source().broker.evictor.messageCount,
  );
  const repeats = () => source().broker.repeats;
  const dedup = () => source().broker.storage.state.dedup;
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
    "sluice_log_damage",
    "Damaged places found when the log was opened.",
    () => source().broker.storage.opening.damage.length,
  );
  counter(
    "sluice_scrub_bytes_total",
    "Bytes of the log read through for damage.",
    () => source().broker.scrubber.report.bytesVerified,
  );
  counter(
    "sluice_scrub_passes_total",
    "Times the whole log has been read through for damage.",
    () => source().broker.scrubber.report.passes,
  );
  counter(
    "sluice_scrub_repaired_total",
    "Damaged sidecars and checkpoints that reading through has had made again.",
    () => source().broker.scrubber.report.repaired,
  );
  gauge(
    "sluice_scrub_damage",
    "Damaged places that reading through the log has found and that are not gone.",
    () => source().broker.scrubber.report.damageCount,
  );
  gauge(
    "sluice_scrub_position_bytes",
    "Position in the log up to which it has been read through.",
    () => source().broker.scrubber.report.position,
  );
  gauge(
    "sluice_page_cache_bytes",
    "Memory that holds log pages read back.",
    () => source().broker.storage.reader.cachedBytes,
  );
  gauge(
    "sluice_index_cache_bytes",
    "Memory that holds places of messages read back.",
    () => source().broker.storage.indexCachedBytes,
  );
  gauge(
    "sluice_publish_staged_bytes",
    "Memory that holds publishes not received whole.",
    () => source().broker.stagedBytes,
  );

  registerDoorMetrics(registry, source);

  registry.gauge(
    { name: "sluice_topic_depth", help: "Messages no channel was given.", labels: ["topic"] },
    (set) => {
      for (const topic of source().broker.topics.values()) {
        set({ topic: topic.state.name }, topic.depth);
      }
    },
  );
  registry.counter(
    { name: "sluice_topic_messages_total", help: "Messages published.", labels: ["topic"] },
    (set) => {
      for (const topic of source().broker.topics.values()) {
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
      for (const topic of source().broker.topics.values()) {
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
