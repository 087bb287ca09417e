/** The figures of a run, as lines to print. */
import type { Verdict } from "./checker.ts";
import type { Door, History, PublishRecord } from "./history.ts";

const DOORS: readonly Door[] = ["client", "nsqjs", "http"];
const ERRORS_TOLD_MAX = 30;

/** What there is to say of a history and its verdict. */
export function summaryOf(history: History, verdict: Verdict): string[] {
  const { publishes, seen } = history;
  const messages = (list: readonly PublishRecord[]) =>
    list.reduce((sum, { count }) => sum + count, 0);
  const ok = publishes.filter(({ result }) => result === "ok");
  const sent = publishes.filter(({ count }) => count > 0);
  const copies = [...seen.values()].flat();
  const again = copies.reduce((sum, { deliveries }) => sum + deliveries - 1, 0);
  const twice = [...seen.values()].filter((list) => list.length > 1).length;
  return [
    `${sent.length} publishes of ${messages(sent)} messages, ${ok.length} of ${messages(ok)} ` +
    `confirmed (${ok.filter(({ spooled }) => spooled === true).length} known to be spooled)`,
    `${history.deliveryCount} deliveries of ${seen.size} messages, ${again} of them redeliveries; ` +
    `${twice} stored twice, ${history.quarantined.size} quarantined`,
    ...brokerLines(copies.map(({ broker }) => broker)),
    ...DOORS.map((door) => doorLine(door, publishes.filter((one) => one.door === door))),
    ...errorLines(publishes),
    ...[...verdict.excused].map(([excuse, count]) => `allowed to fail, ${excuse}: ${count}`),
    ...(verdict.ordered > 0 ? [`order was looked at of ${verdict.ordered} messages`] : []),
    ...[...verdict.counts].map(([kind, count]) => `PROBLEM ${kind}: ${count}`),
  ];
}

/** The value that this share of the sorted values does not exceed. */
export function quantile(sorted: readonly number[], share: number): number {
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0;
}

function brokerLines(brokers: readonly string[]): string[] {
  const counts = new Map<string, number>();
  for (const broker of brokers) counts.set(broker, (counts.get(broker) ?? 0) + 1);
  const parts = [...counts].sort().map(([broker, count]) => `${broker} ${count}`);
  return [`stored at: ${parts.join(", ")}`];
}

function doorLine(door: Door, publishes: readonly PublishRecord[]): string {
  const ok = publishes.filter(({ result }) => result === "ok");
  const failed = publishes.filter(({ result, count }) => result !== "ok" && count > 0);
  const unconnected = publishes.filter(({ count }) => count === 0);
  const latencies = ok.map(({ startMs, endMs }) => endMs - startMs).sort((a, b) => a - b);
  const [p50, p99, max] = [0.5, 0.99, 1].map((share) => quantile(latencies, share));
  return `${door}: ${ok.length} ok, ${failed.length} failed, ${unconnected.length} times not ` +
    `connected; latency p50 ${p50} ms, p99 ${p99} ms, max ${max} ms`;
}

/** Errors by what they say, without what is different in each. */
function errorLines(publishes: readonly PublishRecord[]): string[] {
  const counts = new Map<string, number>();
  for (const { door, result, text } of publishes) {
    if (result === "ok") continue;
    const kind = text.replaceAll(/127\.0\.0\.1:\d+/g, "ADDRESS").replaceAll(/\d{4,}/g, "N");
    const key = `${door}, ${result ?? "no answer"}: ${kind}`;
    counts.set(key, (counts.get(key) ?? 0) + 1);
  }
  return [...counts].sort((a, b) => b[1] - a[1]).slice(0, ERRORS_TOLD_MAX)
    .map(([kind, count]) => `error ${count} times, ${kind}`);
}
