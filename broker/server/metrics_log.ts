/** Metrics of the log: what is written and synced, files, checkpoints, caches, damage. */
import { MESSAGE_BODY_OFFSET } from "@sluice/shared/protocol";
import type { MetricsRegistry } from "@sluice/shared/telemetry";
import type { Broker } from "../broker.ts";

type Register = (name: string, help: string, value: () => number) => void;

/** Registers them. `broker` is asked at each scrape, not before. */
export function registerLogMetrics(registry: MetricsRegistry, broker: () => Broker): void {
  const counter = (name: string, help: string, value: () => number) =>
    registry.counter({ name, help }, (set) => set({}, value()));
  const gauge = (name: string, help: string, value: () => number) =>
    registry.gauge({ name, help }, (set) => set({}, value()));
  registerWrites(registry, broker, counter, gauge);
  registerFiles(registry, broker, counter, gauge);
  registerLossWindow(registry, broker, gauge);
  registerReads(registry, broker, counter, gauge);
}

function registerWrites(
  registry: MetricsRegistry,
  broker: () => Broker,
  counter: Register,
  gauge: Register,
): void {
  counter(
    "sluice_messages_published_total",
    "Messages written to the log.",
    () => broker().storage.counters.messages,
  );
  counter(
    "sluice_large_messages_published_total",
    "Messages whose body was written in parts.",
    () => broker().storage.large.counters.published,
  );
  counter(
    "sluice_large_messages_delivered_total",
    "Bodies in parts that were sent whole to a consumer.",
    () => broker().storage.large.counters.delivered,
  );
  counter(
    "sluice_large_part_bytes_total",
    "Bytes of bodies written to the log in parts.",
    () => broker().storage.large.counters.partBytes,
  );
  counter(
    "sluice_large_abandoned_bytes_total",
    "Bytes of bodies in the log that never became a message.",
    () => broker().storage.large.counters.abandonedBytes,
  );
  gauge(
    "sluice_large_uploads",
    "Bodies on their way into the log in parts.",
    () => broker().uploads.size,
  );
  gauge(
    "sluice_large_delivery_bytes",
    "Memory that holds parts of bodies on their way to consumers.",
    () => broker().deliveryMemory.usedBytes,
  );
  counter(
    "sluice_messages_finished_total",
    "Messages finished, over all channels.",
    () => broker().storage.counters.finishes,
  );
  counter(
    "sluice_log_groups_total",
    "Syncs of the log; each makes durable what was written before it.",
    () => broker().storage.counters.groups,
  );
  gauge(
    "sluice_log_undurable_bytes",
    "Bytes put in the log and not on disk yet.",
    () => broker().storage.log.end - broker().storage.log.durableEnd,
  );
  gauge(
    "sluice_log_failed",
    "1 once a write to the log has failed.",
    () => broker().storage.log.error === null ? 0 : 1,
  );
  counter(
    "sluice_message_bytes_published_total",
    "Bytes of the bodies of messages written to the log.",
    () => {
      const { messages, messageBytes } = broker().storage.counters;
      return messageBytes - messages * MESSAGE_BODY_OFFSET;
    },
  );
  registry.histogram({
    name: "sluice_log_sync_duration_seconds",
    help: "How long the disk took to sync the log.",
  }, (report) => report({}, broker().storage.log.syncSeconds));
  registry.histogram({
    name: "sluice_log_group_wait_seconds",
    help: "From the first record that a sync made durable to its end: the longest that a publish " +
      "of it waited for the disk.",
  }, (report) => report({}, broker().storage.log.waitSeconds));
  registry.histogram({
    name: "sluice_log_group_messages",
    help: "Messages that one sync made durable.",
  }, (report) => report({}, broker().storage.groupMessages));
  registry.histogram({
    name: "sluice_end_to_end_latency_seconds",
    help: "From publish to finish, of one message in 16, over all channels.",
  }, (report) => report({}, broker().counters.endToEnd));
}

function registerFiles(
  registry: MetricsRegistry,
  broker: () => Broker,
  counter: Register,
  gauge: Register,
): void {
  counter(
    "sluice_log_checkpoints_total",
    "Checkpoints written.",
    () => broker().storage.counters.checkpoints,
  );
  gauge(
    "sluice_log_bytes",
    "Bytes of the log on disk, without what compaction has given back.",
    () => broker().storage.storedBytes,
  );
  registry.gauge(
    {
      name: "sluice_log_live_bytes",
      help: "Bytes of the log that somebody is or may be owed, as last estimated.",
    },
    (set) => {
      const { liveBytes } = broker().storage.compaction;
      if (liveBytes !== null) set({}, Math.round(liveBytes));
    },
  );
  registry.gauge(
    {
      name: "sluice_log_amplification",
      help: "Bytes of the log on disk for each that is live; absent while none is.",
    },
    (set) => {
      const { compaction: { liveBytes }, storedBytes } = broker().storage;
      if (liveBytes !== null && liveBytes > 0) set({}, storedBytes / liveBytes);
    },
  );
  gauge(
    "sluice_log_pinned_files",
    "Log files that could go if nobody were owed anything in them or in an older one.",
    () => broker().storage.compaction.pinnedFiles,
  );
  gauge(
    "sluice_log_pinned_bytes",
    "Bytes on disk of those files.",
    () => broker().storage.compaction.pinnedBytes,
  );
  gauge(
    "sluice_log_start_bytes",
    "Position at which the log begins: that of its oldest file.",
    () => {
      const { logFiles, log } = broker().storage;
      return logFiles[0]?.start ?? log.end;
    },
  );
  counter(
    "sluice_log_files_removed_total",
    "Log files removed because nobody was owed anything in them.",
    () => broker().storage.counters.filesRemoved,
  );
  counter(
    "sluice_log_files_compacted_total",
    "Log files written anew without what nobody was owed.",
    () => broker().storage.compaction.filesCompacted,
  );
  counter(
    "sluice_log_compaction_freed_bytes_total",
    "Bytes that compaction has given back.",
    () => broker().storage.compaction.bytesGivenBack,
  );
  counter(
    "sluice_log_compaction_seconds_total",
    "Time that compaction has taken, its waits for its rate included.",
    () => broker().storage.compaction.spentMs / 1000,
  );
  gauge(
    "sluice_log_files",
    "Files of the log.",
    () => broker().storage.logFiles.length,
  );
  counter(
    "sluice_log_removed_bytes_total",
    "Bytes of these files.",
    () => broker().storage.counters.bytesRemoved,
  );
  counter(
    "sluice_log_checkpoint_seconds_total",
    "Time that writing checkpoints took, others running meanwhile.",
    () => broker().storage.counters.checkpointMs / 1000,
  );
  counter(
    "sluice_log_checkpoint_bytes_total",
    "Bytes of checkpoints written.",
    () => broker().storage.counters.checkpointBytes,
  );
}

function registerLossWindow(
  registry: MetricsRegistry,
  broker: () => Broker,
  gauge: Register,
): void {
  const window = () => broker().storage.lossWindow;
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
}

function registerReads(
  registry: MetricsRegistry,
  broker: () => Broker,
  counter: Register,
  gauge: Register,
): void {
  counter(
    "sluice_messages_damaged_total",
    "Messages passed over because their record is damaged.",
    () => broker().source.damagedCount,
  );
  gauge(
    "sluice_log_damage",
    "Damaged places found when the log was opened.",
    () => broker().storage.opening.damage.length,
  );
  counter(
    "sluice_scrub_bytes_total",
    "Bytes of the log read through for damage.",
    () => broker().scrubber.report.bytesVerified,
  );
  counter(
    "sluice_scrub_passes_total",
    "Times the whole log has been read through for damage.",
    () => broker().scrubber.report.passes,
  );
  counter(
    "sluice_scrub_repaired_total",
    "Damaged sidecars and checkpoints that reading through has had made again.",
    () => broker().scrubber.report.repaired,
  );
  gauge(
    "sluice_scrub_damage",
    "Damaged places that reading through the log has found and that are not gone.",
    () => broker().scrubber.report.damageCount,
  );
  gauge(
    "sluice_scrub_position_bytes",
    "Position in the log up to which it has been read through.",
    () => broker().scrubber.report.position,
  );
  gauge(
    "sluice_recovery_seconds",
    "How long the start took to read the data folder.",
    () => broker().openingMs / 1000,
  );
  gauge(
    "sluice_recovery_records",
    "Records that the start read behind the newest checkpoint.",
    () => broker().storage.opening.replayedRecords,
  );
  gauge(
    "sluice_recovery_torn_bytes",
    "Bytes at the end of the log that were never synced and that the start has cut off.",
    () => broker().storage.opening.tornBytes,
  );
  registry.histogram({
    name: "sluice_log_read_duration_seconds",
    help: "How long reads of the log's backlog from disk took.",
  }, (report) => report({}, broker().storage.reader.readSeconds));
  registry.counter({
    name: "sluice_cache_hits_total",
    help: "Looks into a cache that found what they wanted: pages of the log, or of its index.",
    labels: ["kind"],
  }, (report) => {
    const { reader, indexLookups } = broker().storage;
    report({ kind: "page" }, reader.hits);
    report({ kind: "index" }, indexLookups.hits);
  });
  registry.counter({
    name: "sluice_cache_misses_total",
    help: "Looks into a cache that did not.",
    labels: ["kind"],
  }, (report) => {
    const { reader, indexLookups } = broker().storage;
    report({ kind: "page" }, reader.misses);
    report({ kind: "index" }, indexLookups.misses);
  });
}
