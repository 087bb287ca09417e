/** The broker's settings of what is measured beyond counters, and of sending figures to statsd. */
import {
  address,
  boolean,
  bytes,
  durationMs,
  fraction,
  integer,
  type Kind,
  list,
  percentile,
  setting,
  text,
} from "@sluice/shared/config";

/** What one packet over UDP can carry. */
export const STATSD_PACKET_BYTES_MAX = 65_507;

/** Percentiles of latency, and statsd, under nsqd's names. */
export function statisticsSettings() {
  const group = "Statistics";
  return {
    endToEndLatencyPercentiles: setting({
      name: "e2e-processing-latency-percentile",
      kind: descending(list(percentile())),
      default: [],
      file: "e2e_processing_latency_percentiles",
      doc: "The percentiles that /stats and statsd tell of the time from publish to finish; " +
        "nothing is measured without one.",
      group,
    }),
    endToEndLatencyWindowMs: setting({
      name: "e2e-processing-latency-window-time",
      kind: durationMs({ min: 2 }),
      default: "10m",
      doc: "The time that percentiles of latency look back, at most.",
      group,
    }),
    traceSample: setting({
      name: "trace-sample",
      reload: true,
      kind: fraction(),
      default: 0,
      doc:
        "The share of messages that OpenTelemetry spans are made of, from 0 (none) to 1 (all). " +
        "Needs OTEL_DENO=true in the environment; see docs/OPERATIONS.md.",
      group,
    }),
    metricsTopicsMax: setting({
      name: "metrics-topics-max",
      kind: integer({ min: 0, max: 100_000 }),
      default: 1000,
      doc:
        "Topics that /metrics tells of one by one, the first by name, and four times as many of " +
        "their channels; totals are always over all.",
      group,
    }),
    statsdAddress: setting({
      name: "statsd-address",
      kind: orNone(address({ use: "connect" })),
      default: "",
      doc: "Where figures are sent for statsd, over UDP; none are sent without it.",
      group,
    }),
    statsdPrefix: setting({
      name: "statsd-prefix",
      kind: text(),
      default: "nsq.%s",
      doc: "The beginning of statsd keys; %s stands for the broadcast address and HTTP port.",
      group,
    }),
    statsdIntervalMs: setting({
      name: "statsd-interval",
      kind: durationMs({ min: 100 }),
      default: "1m",
      doc: "The time from sending to statsd to the next.",
      group,
    }),
    statsdMemStats: setting({
      name: "statsd-mem-stats",
      kind: boolean(),
      default: true,
      doc: "Whether statsd gets figures of the process's memory.",
      group,
    }),
    statsdPacketBytes: setting({
      name: "statsd-udp-packet-size",
      kind: bytes({ min: 64, max: STATSD_PACKET_BYTES_MAX }),
      default: 508,
      doc: "The largest packet sent to statsd. A line longer than it is left out.",
      group,
    }),
    statsdExcludeEphemeral: setting({
      name: "statsd-exclude-ephemeral",
      kind: boolean(),
      default: false,
      doc: "Whether statsd is told nothing of ephemeral topics and channels.",
      group,
    }),
  };
}

/** Numbers from the largest to the smallest, which is how nsqd tells percentiles. */
function descending(kind: Kind<readonly number[]>): Kind<readonly number[]> {
  const sorted = (values: readonly number[] | undefined) => values?.toSorted((a, b) => b - a);
  return {
    ...kind,
    parse: (given) => sorted(kind.parse(given)),
    fromDocument: (value) => sorted(kind.fromDocument(value)),
  };
}

/** Values of a kind, or null for the empty text. */
function orNone<T>(kind: Kind<T>): Kind<T | null> {
  return {
    placeholder: kind.placeholder,
    wanted: kind.wanted,
    repeats: false,
    parse: (given) => given === "" ? null : kind.parse(given),
    fromDocument: (value) => value === "" ? null : kind.fromDocument(value),
    show: (value) => value === null ? "" : kind.show(value),
    toOption: (value) => value === null ? { body: "", json: false } : kind.toOption(value),
  };
}
