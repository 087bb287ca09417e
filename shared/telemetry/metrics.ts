/**
 * The metrics of a process, read when they are scraped: a component keeps plain numbers and registers
 * a function that reports them, so counting costs nothing extra and nobody forgets a gauge.
 *
 * Names begin with `sluice_`, counters end in `_total`, and only known labels are used: none of them
 * may hold an id of a client or message. A metric reports a bounded number of series; what is beyond
 * is dropped and counted in `sluice_metrics_series_dropped_total`.
 */
import {
  Counter as ClientCounter,
  Gauge as ClientGauge,
  Histogram as ClientHistogram,
  Registry as ClientRegistry,
} from "prom-client";
import { invariant } from "../runtime/mod.ts";
import type { Histogram } from "./histogram.ts";

/** Every label a metric may have. */
export const METRIC_LABELS = [
  "channel",
  "code",
  "command",
  "direction",
  "kind",
  "metric",
  "method",
  "mode",
  "outcome",
  "protocol",
  "reason",
  "route",
  "source",
  "state",
  "status",
  "topic",
  "version",
] as const;
/** One of {@linkcode METRIC_LABELS}. */
export type MetricLabel = typeof METRIC_LABELS[number];

/** The most series of one metric, unless it says otherwise. */
export const SERIES_MAX_DEFAULT = 10_000;
/** The most characters of a label's value; the rest is cut. */
export const LABEL_CHARACTERS_MAX = 256;

/** The content type of {@linkcode MetricsRegistry.text}. */
export const METRICS_CONTENT_TYPE: string = ClientRegistry.PROMETHEUS_CONTENT_TYPE;

/** What a component declares about a metric. */
export interface MetricOptions<L extends MetricLabel = never> {
  /** Begins with `sluice_` and names its unit: `_seconds`, `_bytes`; a counter ends in `_total`. */
  readonly name: string;
  /** One sentence. */
  readonly help: string;
  readonly labels?: readonly L[];
  readonly seriesMax?: number;
}

/** A value for each label of a metric. */
export type LabelValues<L extends MetricLabel> = Readonly<Record<L, string>>;

/** Reports one series; the last report of the same labels in a scrape counts. */
export type ReportSeries<L extends MetricLabel, V> = (labels: LabelValues<L>, value: V) => void;

/** Reports the series of a metric, at once: called at each scrape, it must not wait. */
export type CollectSeries<L extends MetricLabel, V> = (report: ReportSeries<L, V>) => void;

/** What kind of metric it is, in the words of Prometheus. */
export type MetricKind = "counter" | "gauge" | "histogram";

/** A metric, for the documentation. */
export interface MetricDescription {
  readonly name: string;
  readonly kind: MetricKind;
  readonly help: string;
  readonly labels: readonly MetricLabel[];
}

/** The metrics of one process; see the module. */
export class MetricsRegistry {
  readonly #client = new ClientRegistry();
  readonly #descriptions = new Map<string, MetricDescription>();
  readonly #collectors: (() => void)[] = [];
  /** Series dropped so far, by metric. */
  readonly #dropped = new Map<string, number>();
  readonly #collectDropped: () => void;

  constructor() {
    this.counter({
      name: "sluice_metrics_series_dropped_total",
      help: "Series left out of a scrape because their metric had too many.",
      labels: ["metric"],
    }, (report) => {
      for (const [metric, count] of this.#dropped) report({ metric }, count);
    });
    // Not among the others: it runs when they have all counted what they dropped.
    const collect = this.#collectors.pop();
    invariant(collect !== undefined, "a metric has a collector");
    this.#collectDropped = collect;
  }

  /** A number that only grows while the process lives. */
  counter<L extends MetricLabel = never>(
    options: MetricOptions<L>,
    collect: CollectSeries<L, number>,
  ): void {
    const counter = new ClientCounter<string>(this.#declare("counter", options));
    this.#collectors.push(() => {
      counter.reset();
      for (const { labels, value } of this.#gather(options, collect)) {
        invariant(Number.isFinite(value) && value >= 0, `${options.name} counts, got ${value}`);
        counter.inc(labels, value);
      }
    });
  }

  /** A number that goes up and down. */
  gauge<L extends MetricLabel = never>(
    options: MetricOptions<L>,
    collect: CollectSeries<L, number>,
  ): void {
    const gauge = new ClientGauge<string>(this.#declare("gauge", options));
    this.#collectors.push(() => {
      gauge.reset();
      for (const { labels, value } of this.#gather(options, collect)) gauge.set(labels, value);
    });
  }

  /** Observations by size. The component keeps a {@linkcode Histogram} for each series. */
  histogram<L extends MetricLabel = never>(
    options: MetricOptions<L>,
    collect: CollectSeries<L, Histogram>,
  ): void {
    const histogram = new ScrapedHistogram(this.#declare("histogram", options));
    this.#collectors.push(() => {
      histogram.series = this.#gather(options, collect);
    });
  }

  /** All metrics in the text format of Prometheus. */
  async text(): Promise<string> {
    for (const collect of this.#collectors) collect();
    this.#collectDropped();
    return await this.#client.metrics();
  }

  /** What is registered, sorted by name. */
  describe(): MetricDescription[] {
    return [...this.#descriptions.values()].sort((a, b) => a.name < b.name ? -1 : 1);
  }

  #declare<L extends MetricLabel>(kind: MetricKind, options: MetricOptions<L>) {
    const { name, help, labels = [] } = options;
    invariant(/^sluice(_[a-z0-9]+)+$/.test(name), `the metric ${name} begins with sluice_`);
    invariant(
      /_(total|bucket|sum|count)$/.test(name)
        ? kind === "counter" && name.endsWith("_total")
        : kind !== "counter",
      `the metric ${name} ends in _total if and only if it is a counter`,
    );
    invariant(
      !/_(ns|us|ms|milliseconds|kb|mb|kib|mib)(_|$)/.test(name),
      `the metric ${name} counts in seconds or bytes`,
    );
    invariant(help.endsWith("."), `the help of ${name} is a sentence`);
    invariant(!this.#descriptions.has(name), `the metric ${name} is registered once`);
    const known: readonly string[] = METRIC_LABELS;
    for (const label of labels) invariant(known.includes(label), `${label} is a known label`);
    this.#descriptions.set(name, { name, kind, help, labels });
    return { name, help, labelNames: [...labels], registers: [this.#client] };
  }

  /** Runs a collector; keeps the first `seriesMax` series and counts the others as dropped. */
  #gather<L extends MetricLabel, V>(
    options: MetricOptions<L>,
    collect: CollectSeries<L, V>,
  ): Iterable<Series<V>> {
    const { name, labels: labelNames = [], seriesMax = SERIES_MAX_DEFAULT } = options;
    const series = new Map<string, Series<V>>();
    let dropped = 0;
    collect((values, value) => {
      const labels: Record<string, string> = {};
      let key = "";
      for (const label of labelNames) {
        const text = values[label].slice(0, LABEL_CHARACTERS_MAX);
        labels[label] = text;
        key += `${text}\0`;
      }
      if (series.size >= seriesMax && !series.has(key)) dropped++;
      else series.set(key, { labels, value });
    });
    if (dropped > 0) this.#dropped.set(name, (this.#dropped.get(name) ?? 0) + dropped);
    return series.values();
  }
}

interface Series<V> {
  readonly labels: Record<string, string>;
  readonly value: V;
}

/**
 * The client library's histogram with its storage replaced: it asks `getForPromString` for what it
 * writes, which here comes from our own buckets.
 */
class ScrapedHistogram extends ClientHistogram<string> {
  series: Iterable<Series<Histogram>> = [];
  readonly #name: string;
  readonly #help: string;

  constructor(config: ConstructorParameters<typeof ClientHistogram>[0]) {
    super(config);
    this.#name = config.name;
    this.#help = config.help;
  }

  getForPromString() {
    const values: { metricName: string; labels: object; sharedLabels: object; value: number }[] =
      [];
    for (const { labels: sharedLabels, value: histogram } of this.series) {
      for (const [bound, value] of histogram.cumulative()) {
        const labels = { le: bound === Infinity ? "+Inf" : String(bound) };
        values.push({ metricName: `${this.#name}_bucket`, labels, sharedLabels, value });
      }
      const rest = { labels: {}, sharedLabels };
      values.push({ metricName: `${this.#name}_sum`, ...rest, value: histogram.sum });
      values.push({ metricName: `${this.#name}_count`, ...rest, value: histogram.count });
    }
    return { name: this.#name, help: this.#help, type: "histogram", values };
  }
}
