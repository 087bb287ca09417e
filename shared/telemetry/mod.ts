/** What a process tells about itself: log lines and metrics. Neither keeps any global state. */
export { BUCKETS_MAX, Histogram, LATENCY_BOUNDS_SECONDS } from "./histogram.ts";
export { LAG_BOUNDS_SECONDS, LAG_INTERVAL_MS, LoopLag } from "./loop_lag.ts";
export {
  LOG_COMPONENTS,
  LOG_LEVELS,
  type LogComponent,
  type LogLevel,
  type LogLevelChoice,
  parseLogLevels,
  showLogLevels,
} from "./log_levels.ts";
export { type RepeatOptions, REPEATS_DEFAULT } from "./log_repeats.ts";
export {
  FIELD_CHARACTERS_MAX,
  FIELDS_MAX,
  type LogFields,
  type LogFormat,
  Logger,
  type LoggerOptions,
  type LogValue,
  MESSAGE_CHARACTERS_MAX,
} from "./logger.ts";
export {
  type CollectSeries,
  LABEL_CHARACTERS_MAX,
  type LabelValues,
  METRIC_LABELS,
  type MetricDescription,
  type MetricKind,
  type MetricLabel,
  type MetricOptions,
  METRICS_CONTENT_TYPE,
  MetricsRegistry,
  type ReportSeries,
  SERIES_MAX_DEFAULT,
} from "./metrics.ts";
export { registerLagMetrics, registerProcessMetrics } from "./process_metrics.ts";
export { Secret, secret } from "./secret.ts";
