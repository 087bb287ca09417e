/**
 * The metrics of a process, read when they are scraped: a component keeps plain numbers and registers
 * a function that reports them, so counting costs nothing extra and nobody forgets a gauge.
 *
 * - Names begin with `sluice_`, counters end in `_total`, and only known labels are used: none of them
 *   can hold what names one client or message. A metric reports a bounded number of series; what is
 *   beyond is dropped and counted in `sluice_metrics_series_dropped_total`.
 * - A scrape with a clock is made in slices, so that it keeps nobody waiting however many series there
 *   are; a collector of many is a generator for that. Scrapes at the same time are one.
 */
import { Gauge as ClientGauge, Registry as ClientRegistry } from "prom-client";
import { type Clock, invariant, Slices } from "../runtime/mod.ts";
import type { Histogram } from "./histogram.ts";

/** Every label a metric may have. */
export const METRIC_LABELS = [
  "budget",
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

/**
 * Reports the series of a metric, at once: called at each scrape, it must not wait. One of many series
 * is a generator and yields after each of them, or after some: others may run then.
 */
export type CollectSeries<L extends MetricLabel, V> = (
  report: ReportSeries<L, V>,
) => void | Generator<void, void, void>;

/** Makes ready, before all metrics are read, what several of them tell of. */
export type PrepareScrape = (slices: Slices) => void | Promise<void>;

/** What kind of metric it is, in the words of Prometheus. */
export type MetricKind = "counter" | "gauge" | "histogram";

/** A metric, for the documentation. */
export interface MetricDescription {
  readonly name: string;
  readonly kind: MetricKind;
  readonly help: string;
  readonly labels: readonly MetricLabel[];
}

/** Series put into text at once, which takes well less than a slice. */
const SERIES_AT_ONCE = 256;
const ENCODER = new TextEncoder();

/** The metrics of one process; see the module. */
export class MetricsRegistry {
  readonly #client = new ClientRegistry();
  readonly #clock: Clock | null;
  readonly #descriptions = new Map<string, MetricDescription>();
  readonly #families: Family[] = [];
  readonly #prepare: PrepareScrape[] = [];
  /** Series dropped so far, by metric. */
  readonly #dropped = new Map<string, number>();
  readonly #droppedFamily: Family;
  #scraping: Promise<readonly string[]> | null = null;

  /** Without a clock a scrape is made at once, however long it takes. */
  constructor(clock: Clock | null = null) {
    this.#clock = clock;
    this.counter({
      name: "sluice_metrics_series_dropped_total",
      help: "Series left out of a scrape because their metric had too many.",
      labels: ["metric"],
    }, (report) => {
      for (const [metric, count] of this.#dropped) report({ metric }, count);
    });
    // Not among the others: it is read when they have all counted what they dropped.
    const family = this.#families.pop();
    invariant(family !== undefined, "a metric has a family");
    this.#droppedFamily = family;
  }

  /** Has something done at the beginning of each scrape. */
  prepare(run: PrepareScrape): void {
    this.#prepare.push(run);
  }

  /** A number that only grows while the process lives. */
  counter<L extends MetricLabel = never>(
    options: MetricOptions<L>,
    collect: CollectSeries<L, number>,
  ): void {
    this.#add("counter", options, collect, (labels, value) => {
      invariant(Number.isFinite(value) && value >= 0, `${options.name} counts, got ${value}`);
      return [{ labels: {}, sharedLabels: labels, value }];
    });
  }

  /** A number that goes up and down. */
  gauge<L extends MetricLabel = never>(
    options: MetricOptions<L>,
    collect: CollectSeries<L, number>,
  ): void {
    this.#add("gauge", options, collect, (labels, value) => [
      { labels: {}, sharedLabels: labels, value },
    ]);
  }

  /** Observations by size. The component keeps a {@linkcode Histogram} for each series. */
  histogram<L extends MetricLabel = never>(
    options: MetricOptions<L>,
    collect: CollectSeries<L, Histogram>,
  ): void {
    const { name } = options;
    this.#add("histogram", options, collect, (sharedLabels, histogram) => [
      ...histogram.cumulative().map(([bound, value]) => ({
        metricName: `${name}_bucket`,
        labels: { le: bound === Infinity ? "+Inf" : String(bound) },
        sharedLabels,
        value,
      })),
      { metricName: `${name}_sum`, labels: {}, sharedLabels, value: histogram.sum },
      { metricName: `${name}_count`, labels: {}, sharedLabels, value: histogram.count },
    ]);
  }

  /** All metrics in the text format of Prometheus. */
  async text(): Promise<string> {
    return (await this.#scrape()).join("");
  }

  /** {@linkcode text} in UTF-8, made without a long step at the end. */
  async bytes(): Promise<Uint8Array<ArrayBuffer>> {
    const slices = new Slices(this.#clock);
    const parts: Uint8Array[] = [];
    let length = 0;
    for (const part of await this.#scrape()) {
      const bytes = ENCODER.encode(part);
      parts.push(bytes);
      length += bytes.length;
      await slices.rest();
    }
    const all = new Uint8Array(length);
    let at = 0;
    for (const part of parts) {
      all.set(part, at);
      at += part.length;
    }
    return all;
  }

  /** What is registered, sorted by name. */
  describe(): MetricDescription[] {
    return [...this.#descriptions.values()].sort((a, b) => a.name < b.name ? -1 : 1);
  }

  /** The scrape under way, or a new one. */
  #scrape(): Promise<readonly string[]> {
    this.#scraping ??= this.#parts().finally(() => this.#scraping = null);
    return this.#scraping;
  }

  async #parts(): Promise<string[]> {
    const slices = new Slices(this.#clock);
    for (const prepare of this.#prepare) {
      await prepare(slices);
      await slices.rest();
    }
    const parts: string[] = [];
    for (const family of [...this.#families, this.#droppedFamily]) {
      if (parts.length > 0) parts.push("\n\n");
      const values = await family.read(slices);
      // The head comes with each part, and is told once.
      family.values = [];
      const head = await this.#client.getSingleMetricAsString(family.name);
      parts.push(head);
      for (let from = 0; from < values.length; from += SERIES_AT_ONCE) {
        family.values = values.slice(from, from + SERIES_AT_ONCE);
        const text = await this.#client.getSingleMetricAsString(family.name);
        parts.push(text.slice(head.length));
        await slices.rest();
      }
      family.values = [];
    }
    parts.push("\n");
    return parts;
  }

  #add<L extends MetricLabel, V>(
    kind: MetricKind,
    options: MetricOptions<L>,
    collect: CollectSeries<L, V>,
    values: (labels: Labels, value: V) => Value[],
  ): void {
    const { name, help } = this.#declare(kind, options);
    const read = async (slices: Slices) => {
      const all: Value[] = [];
      for (const { labels, value } of await this.#gather(options, collect, slices)) {
        all.push(...values(labels, value));
        if (slices.isOver) await slices.pause();
      }
      return all;
    };
    this.#families.push(new Family(kind, name, help, this.#client, read));
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
    return { name, help };
  }

  /** Runs a collector; keeps the first `seriesMax` series and counts the others as dropped. */
  async #gather<L extends MetricLabel, V>(
    options: MetricOptions<L>,
    collect: CollectSeries<L, V>,
    slices: Slices,
  ): Promise<Iterable<Series<V>>> {
    const { name, labels: labelNames = [], seriesMax = SERIES_MAX_DEFAULT } = options;
    const series = new Map<string, Series<V>>();
    let dropped = 0;
    const steps = collect((values, value) => {
      let key = "";
      let isLong = false;
      for (const label of labelNames) {
        const text = values[label];
        isLong ||= text.length > LABEL_CHARACTERS_MAX;
        key += `${text.slice(0, LABEL_CHARACTERS_MAX)}\0`;
      }
      if (series.size >= seriesMax && !series.has(key)) dropped++;
      else series.set(key, { labels: isLong ? shortened(values) : values, value });
    });
    for (const _ of steps ?? []) if (slices.isOver) await slices.pause();
    if (dropped > 0) this.#dropped.set(name, (this.#dropped.get(name) ?? 0) + dropped);
    return series.values();
  }
}

type Labels = Readonly<Record<string, string>>;

interface Series<V> {
  readonly labels: Labels;
  readonly value: V;
}

/** One line, as the client library takes it. It keeps the text of `sharedLabels`, by the object. */
interface Value {
  readonly metricName?: string;
  readonly labels: object;
  readonly sharedLabels: object;
  readonly value: number;
}

function shortened(labels: Labels): Labels {
  return Object.fromEntries(
    Object.entries(labels).map(([name, text]) => [name, text.slice(0, LABEL_CHARACTERS_MAX)]),
  );
}

/**
 * A metric of the client library with its storage replaced: it asks `getForPromString` for what it
 * writes, which here is what was read last, part by part.
 */
class Family extends ClientGauge<string> {
  readonly name: string;
  values: readonly Value[] = [];
  readonly read: (slices: Slices) => Promise<readonly Value[]>;
  readonly #kind: MetricKind;
  readonly #help: string;

  constructor(
    kind: MetricKind,
    name: string,
    help: string,
    client: ClientRegistry,
    read: (slices: Slices) => Promise<readonly Value[]>,
  ) {
    super({ name, help, registers: [client] });
    this.#kind = kind;
    this.name = name;
    this.#help = help;
    this.read = read;
  }

  getForPromString() {
    return { name: this.name, help: this.#help, type: this.#kind, values: this.values };
  }
}
