/** `/stats` as text for people; no program parses it. */
import type { LatencySummary } from "../queue/mod.ts";
import type { ChannelStats, ClientStats, TopicStats } from "./stats.ts";

/** What the text begins with. */
export interface StatsHead {
  readonly version: string;
  readonly startWallMs: number;
  readonly nowWallMs: number;
  readonly health: string;
  /** Name and value, in order. */
  readonly memory: Readonly<Record<string, number>> | null;
}

/** Everything before the topics. */
export function statsHead(stats: StatsHead): string {
  const uptimeMs = Math.max(0, stats.nowWallMs - stats.startWallMs);
  const lines = [
    `sluice-broker v${stats.version}`,
    `start_time ${new Date(stats.startWallMs).toISOString().replace(/\.\d+/, "")}`,
    `uptime ${secondsText(uptimeMs)}`,
    "",
    `Health: ${stats.health}`,
    "",
  ];
  if (stats.memory !== null) {
    lines.push("Memory:");
    for (const [name, value] of Object.entries(stats.memory)) {
      lines.push(`   ${name.padEnd(25)}\t${value}`);
    }
    lines.push("");
  }
  return lines.join("\n") + "\n";
}

/** The lines of a topic, its channels and their clients. */
export function* topicText(
  topic: Omit<TopicStats, "channels" | "message_bytes">,
  channels: Iterable<ChannelStats>,
  nowWallMs: number,
): Iterable<string> {
  yield `${margin(topic.paused)}[${topic.topic_name.padEnd(15)}] depth: ${column(topic.depth)} ` +
    `be-depth: ${column(topic.backend_depth)} msgs: ${wide(topic.message_count)} ` +
    `e2e%: ${latencyText(topic.e2e_processing_latency)}\n`;
  for (const channel of channels) {
    yield `   ${margin(channel.paused)}[${channel.channel_name.padEnd(25)}] ` +
      `depth: ${column(channel.depth)} be-depth: ${column(channel.backend_depth)} ` +
      `inflt: ${narrow(channel.in_flight_count)} def: ${narrow(channel.deferred_count)} ` +
      `re-q: ${column(channel.requeue_count)} timeout: ${column(channel.timeout_count)} ` +
      `msgs: ${wide(channel.message_count)} ` +
      `e2e%: ${latencyText(channel.e2e_processing_latency)}\n`;
    for (const client of channel.clients ?? []) {
      yield `        ${clientText(client, nowWallMs)}\n`;
    }
  }
  yield "\n";
}

/** The lines of those that have published. */
export function* producersText(
  producers: Iterable<ClientStats>,
  count: number,
  nowWallMs: number,
): Iterable<string> {
  yield count === 0 ? "Producers: None\n" : "Producers:\n";
  for (const producer of producers) yield `   ${clientText(producer, nowWallMs)}\n`;
}

/** A producer by what it published, a consumer by what it has, as nsqd tells them apart. */
function clientText(client: ClientStats, nowWallMs: number): string {
  const connectedMs = Math.max(0, Math.floor(nowWallMs / 1000) - client.connect_ts) * 1000;
  const port = client.remote_address.slice(client.remote_address.lastIndexOf(":") + 1);
  const head = `[V2 ${`${client.hostname}:${port} ${client.user_agent}`.padEnd(21)}]`;
  const connected = `connected: ${secondsText(connectedMs)}`;
  const published = client.pub_counts ?? [];
  if (published.length > 0) {
    const total = published.reduce((sum, { count }) => sum + count, 0);
    const topics = published.map(({ topic, count }) => `${topic}=${count}`).join(",");
    return `${head} msgs: ${wide(total)} topics: ${topics} ${connected}`;
  }
  return `${head} state: ${client.state} inflt: ${narrow(client.in_flight_count)} ` +
    `rdy: ${narrow(client.ready_count)} fin: ${wide(client.finish_count)} ` +
    `re-q: ${wide(client.requeue_count)} msgs: ${wide(client.message_count)} ${connected}`;
}

function latencyText({ percentiles }: LatencySummary): string {
  return (percentiles ?? []).map(({ value }) => nanosecondsText(value)).join(", ");
}

/** As nsqd writes them: one decimal, and the largest unit that is reached. */
function nanosecondsText(value: number): string {
  if (value < 1e3) return `${value.toFixed(1)}ns`;
  if (value < 1e6) return `${(value / 1e3).toFixed(1)}us`;
  return value < 1e9 ? `${(value / 1e6).toFixed(1)}ms` : `${(value / 1e9).toFixed(1)}s`;
}

function secondsText(ms: number): string {
  return `${Math.floor(ms / 1000)}s`;
}

function margin(paused: boolean): string {
  return paused ? "*P " : "   ";
}

function narrow(value: number): string {
  return String(value).padEnd(4);
}

function wide(value: number): string {
  return String(value).padEnd(8);
}

function column(value: number): string {
  return String(value).padEnd(5);
}
