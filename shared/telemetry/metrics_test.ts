import assert from "node:assert/strict";
import { type Clock, InvariantError } from "../runtime/mod.ts";
import { BUCKETS_MAX, Histogram, LATENCY_BOUNDS_SECONDS } from "./histogram.ts";
import { METRICS_CONTENT_TYPE, MetricsRegistry } from "./metrics.ts";

/** The lines of one metric without its comments. */
function linesOf(text: string, name: string): string[] {
  return text.split("\n").filter((line) => line.startsWith(name));
}

Deno.test("MetricsRegistry does not take a name, help or label against the rules", () => {
  const registry = new MetricsRegistry();
  const help = "Some.";
  const refused = (run: () => void) => assert.throws(run, InvariantError);
  refused(() => registry.gauge({ name: "depth", help }, () => {}));
  refused(() => registry.gauge({ name: "sluice_Depth", help }, () => {}));
  refused(() => registry.counter({ name: "sluice_messages", help }, () => {}));
  refused(() => registry.gauge({ name: "sluice_messages_total", help }, () => {}));
  refused(() => registry.histogram({ name: "sluice_wait_seconds_bucket", help }, () => {}));
  refused(() => registry.gauge({ name: "sluice_wait_ms", help }, () => {}));
  refused(() => registry.gauge({ name: "sluice_depth", help: "no sentence" }, () => {}));
  const labels = ["client_id"] as unknown as ["topic"];
  refused(() => registry.gauge({ name: "sluice_depth", help, labels }, () => {}));
  registry.gauge({ name: "sluice_depth", help }, () => {});
  refused(() => registry.counter({ name: "sluice_depth", help }, () => {}));
});

Deno.test("MetricsRegistry.text() refuses a counter that is negative or no number", async () => {
  for (const value of [-1, NaN, Infinity]) {
    const registry = new MetricsRegistry();
    registry.counter({ name: "sluice_x_total", help: "X." }, (report) => report({}, value));
    await assert.rejects(registry.text(), InvariantError);
  }
});

Deno.test("MetricsRegistry.text() drops series beyond the cap and counts them, scrape by scrape", async () => {
  const registry = new MetricsRegistry();
  registry.gauge(
    { name: "sluice_depth", help: "Depth.", labels: ["topic"], seriesMax: 3 },
    (report) => {
      for (const topic of ["a", "b", "c", "d", "e", "a"]) report({ topic }, 1);
    },
  );
  const first = await registry.text();
  assert.deepEqual(linesOf(first, "sluice_depth"), [
    'sluice_depth{topic="a"} 1',
    'sluice_depth{topic="b"} 1',
    'sluice_depth{topic="c"} 1',
  ]);
  const dropped = (text: string) => linesOf(text, "sluice_metrics_series_dropped_total");
  assert.deepEqual(dropped(first), [
    'sluice_metrics_series_dropped_total{metric="sluice_depth"} 2',
  ]);
  assert.deepEqual(dropped(await registry.text()), [
    'sluice_metrics_series_dropped_total{metric="sluice_depth"} 4',
  ]);
});

Deno.test("MetricsRegistry.text() reads values at each scrape and forgets series that are gone", async () => {
  const registry = new MetricsRegistry();
  let published = 3;
  let topics = ["a", "b"];
  registry.counter({ name: "sluice_published_total", help: "Published." }, (report) => {
    report({}, published);
  });
  registry.gauge(
    { name: "sluice_depth", help: "Depth.", labels: ["topic", "channel"] },
    (report) => {
      for (const topic of topics) report({ topic, channel: "c" }, -1.5);
    },
  );
  const first = await registry.text();
  assert.deepEqual(linesOf(first, "sluice_published_total"), ["sluice_published_total 3"]);
  assert.ok(first.includes("# HELP sluice_published_total Published.\n"));
  assert.ok(first.includes("# TYPE sluice_published_total counter\n"));
  published = 5;
  topics = ["b"];
  const second = await registry.text();
  assert.deepEqual(linesOf(second, "sluice_published_total"), ["sluice_published_total 5"]);
  assert.deepEqual(linesOf(second, "sluice_depth"), ['sluice_depth{topic="b",channel="c"} -1.5']);
});

Deno.test("MetricsRegistry.text() answers concurrent scrapes each with all series", async () => {
  const registry = new MetricsRegistry();
  const waits = new Histogram([1]);
  registry.counter({ name: "sluice_x_total", help: "X." }, (report) => report({}, 2));
  registry.histogram({ name: "sluice_wait_seconds", help: "W." }, (report) => report({}, waits));
  const [first, second] = await Promise.all([registry.text(), registry.text()]);
  assert.equal(first, second);
  assert.deepEqual(linesOf(first, "sluice_x_total"), ["sluice_x_total 2"]);
});

Deno.test("MetricsRegistry.text() escapes label values and cuts long ones", async () => {
  const registry = new MetricsRegistry();
  registry.gauge({ name: "sluice_depth", help: "Depth.", labels: ["topic"] }, (report) => {
    report({ topic: 'a"b\\c\nd' }, 1);
    report({ topic: "x".repeat(1000) }, 2);
  });
  assert.deepEqual(linesOf(await registry.text(), "sluice_depth"), [
    'sluice_depth{topic="a\\"b\\\\c\\nd"} 1',
    `sluice_depth{topic="${"x".repeat(256)}"} 2`,
  ]);
});

Deno.test("MetricsRegistry.text() writes a histogram with cumulative buckets, sum and count", async () => {
  const registry = new MetricsRegistry();
  const waits = new Histogram([0.1, 1]);
  for (const seconds of [0.0625, 0.5, 1, 3]) waits.observe(seconds);
  registry.histogram(
    { name: "sluice_wait_seconds", help: "Wait.", labels: ["topic"] },
    (report) => report({ topic: "t" }, waits),
  );
  const text = await registry.text();
  assert.ok(text.includes("# TYPE sluice_wait_seconds histogram\n"));
  assert.deepEqual(linesOf(text, "sluice_wait_seconds"), [
    'sluice_wait_seconds_bucket{le="0.1",topic="t"} 1',
    'sluice_wait_seconds_bucket{le="1",topic="t"} 3',
    'sluice_wait_seconds_bucket{le="+Inf",topic="t"} 4',
    'sluice_wait_seconds_sum{topic="t"} 4.5625',
    'sluice_wait_seconds_count{topic="t"} 4',
  ]);
  assert.match(METRICS_CONTENT_TYPE, /^text\/plain; version=0\.0\.4/);
});

Deno.test("MetricsRegistry instances share nothing", async () => {
  const one = new MetricsRegistry();
  const other = new MetricsRegistry();
  one.gauge({ name: "sluice_depth", help: "Depth." }, (report) => report({}, 1));
  other.gauge({ name: "sluice_depth", help: "Depth." }, (report) => report({}, 2));
  assert.ok((await one.text()).includes("sluice_depth 1\n"));
  assert.ok((await other.text()).includes("sluice_depth 2\n"));
});

Deno.test("MetricsRegistry.describe() lists what is registered, by name", () => {
  const registry = new MetricsRegistry();
  registry.gauge({ name: "sluice_depth", help: "Depth.", labels: ["topic"] }, () => {});
  registry.histogram({ name: "sluice_a_seconds", help: "A." }, () => {});
  assert.deepEqual(
    registry.describe().map(({ name, kind, labels }) => [name, kind, labels]),
    [
      ["sluice_a_seconds", "histogram", []],
      ["sluice_depth", "gauge", ["topic"]],
      ["sluice_metrics_series_dropped_total", "counter", ["metric"]],
    ],
  );
});

Deno.test("Histogram does not take bounds that do not ascend or are too many", () => {
  const many = Array.from({ length: BUCKETS_MAX + 1 }, (_, index) => index);
  for (const bounds of [[], [1, 1], [2, 1], [NaN], [Infinity], many]) {
    assert.throws(() => new Histogram(bounds), InvariantError);
  }
});

Deno.test("Histogram.observe() counts each value in the first bucket that holds it", () => {
  const bounds = LATENCY_BOUNDS_SECONDS;
  for (const [index, bound] of bounds.entries()) {
    const histogram = new Histogram(bounds);
    histogram.observe(bound);
    histogram.observe(bound * 1.0001);
    const counts = histogram.cumulative().map(([, count]) => count);
    assert.equal(counts[index], 1, `at ${bound}`);
    assert.equal(counts[index - 1] ?? 0, 0, `below ${bound}`);
    assert.equal(counts[index + 1], 2, `above ${bound}`);
  }
});

Deno.test("Histogram.observe() does not count what is no number", () => {
  const histogram = new Histogram([1]);
  for (const value of [NaN, Infinity, -Infinity]) histogram.observe(value);
  histogram.observe(-2);
  assert.equal(histogram.count, 1);
  assert.equal(histogram.sum, -2);
  assert.deepEqual(histogram.cumulative(), [[1, 1], [Infinity, 1]]);
});

/** Each look at it takes a millisecond, as if all work did. */
class SlowClock implements Clock {
  readonly pauses: number[] = [];
  #nowMs = 0;
  #pausedMs = 0;

  wallMs(): number {
    return 0;
  }

  monoMs(): number {
    return this.#nowMs++;
  }

  sleep(): Promise<void> {
    this.pauses.push(this.#nowMs - this.#pausedMs);
    this.#pausedMs = this.#nowMs;
    return Promise.resolve();
  }

  setTimer(): never {
    throw new Error("Nobody asks for a timer");
  }
}

Deno.test("MetricsRegistry with a clock lets others run while it reads and writes many series", async () => {
  const clock = new SlowClock();
  const registry = new MetricsRegistry(clock);
  registry.gauge({ name: "sluice_depth", help: "Depth.", labels: ["topic"] }, function* (report) {
    for (let index = 0; index < 2000; index++) {
      report({ topic: `t${index}` }, index);
      yield;
    }
  });
  const bytes = await registry.bytes();
  assert.equal(linesOf(new TextDecoder().decode(bytes), "sluice_depth").length, 2000);
  assert.ok(clock.pauses.length > 10, `${clock.pauses.length} pauses`);
  assert.ok(Math.max(...clock.pauses) <= 8, `${Math.max(...clock.pauses)} looks in one slice`);
});

Deno.test("MetricsRegistry reads everything once for scrapes at the same time, and anew for the next", async () => {
  const registry = new MetricsRegistry();
  const calls: string[] = [];
  registry.prepare(async () => {
    await Promise.resolve();
    calls.push("prepare");
  });
  registry.gauge({ name: "sluice_depth", help: "Depth." }, (report) => {
    calls.push("collect");
    report({}, calls.length);
  });
  const [one, other, bytes] = await Promise.all([
    registry.text(),
    registry.text(),
    registry.bytes(),
  ]);
  assert.equal(one, other);
  assert.equal(new TextDecoder().decode(bytes), one);
  assert.deepEqual(calls, ["prepare", "collect"]);
  await registry.text();
  assert.deepEqual(calls, ["prepare", "collect", "prepare", "collect"]);
});

Deno.test("MetricsRegistry tells of a failed scrape and makes a new one the next time", async () => {
  const registry = new MetricsRegistry();
  let isBroken = true;
  registry.gauge({ name: "sluice_depth", help: "Depth." }, (report) => {
    if (isBroken) throw new Error("broken");
    report({}, 1);
  });
  await assert.rejects(registry.text(), /broken/);
  isBroken = false;
  assert.deepEqual(linesOf(await registry.text(), "sluice_depth"), ["sluice_depth 1"]);
});
