/**
 * The statistics document of contract section 3.4. Keys, their order and their types are part of the
 * contract: nsqadmin stops at a missing `e2e_processing_latency` or a number that is not an integer.
 */
import type { Broker } from "../broker.ts";
import {
  type Channel,
  LatencyCounts,
  type LatencySummary,
  NO_LATENCY,
  type Topic,
} from "../queue/mod.ts";
import type { Session } from "./session.ts";

/** What to put in. A name that is null stands for all. */
export interface StatsFilter {
  readonly topic: string | null;
  readonly channel: string | null;
  readonly includeClients: boolean;
}

/** One connection, as in contract section 3.4. */
export interface ClientStats {
  readonly client_id: string;
  readonly hostname: string;
  readonly version: "V2";
  readonly remote_address: string;
  readonly state: number;
  readonly ready_count: number;
  readonly in_flight_count: number;
  readonly message_count: number;
  readonly finish_count: number;
  readonly requeue_count: number;
  readonly connect_ts: number;
  readonly sample_rate: number;
  readonly deflate: boolean;
  readonly snappy: boolean;
  readonly user_agent: string;
  readonly authed?: true;
  readonly auth_identity?: string;
  readonly auth_identity_url?: string;
  readonly topology_zone: string;
  readonly topology_region: string;
  readonly pub_counts?: readonly { readonly topic: string; readonly count: number }[];
  readonly tls: boolean;
  readonly tls_cipher_suite: string;
  readonly tls_version: string;
  readonly tls_negotiated_protocol: string;
  readonly tls_negotiated_protocol_is_mutual: boolean;
}

/** One channel; `clients` is null when they were not asked for. */
export interface ChannelStats {
  readonly channel_name: string;
  readonly depth: number;
  readonly backend_depth: number;
  readonly in_flight_count: number;
  readonly deferred_count: number;
  readonly message_count: number;
  readonly requeue_count: number;
  readonly timeout_count: number;
  readonly client_count: number;
  readonly clients: readonly ClientStats[] | null;
  readonly paused: boolean;
  readonly e2e_processing_latency: LatencySummary;
}

/** One topic with its channels. */
export interface TopicStats {
  readonly topic_name: string;
  readonly channels: readonly ChannelStats[];
  readonly depth: number;
  readonly backend_depth: number;
  readonly message_count: number;
  readonly message_bytes: number;
  readonly paused: boolean;
  readonly e2e_processing_latency: LatencySummary;
}

/** Topics by name; `null` when the filter names one that there is not. */
export function topicStats(
  broker: Broker,
  sessions: Iterable<Session>,
  filter: StatsFilter,
): readonly TopicStats[] | null {
  const clients = filter.includeClients ? clientsByChannel(sessions) : null;
  const topics: Topic[] = [];
  if (filter.topic === null) {
    topics.push(...broker.topics.values());
    topics.sort((a, b) => compareNames(a.state.name, b.state.name));
  } else {
    const topic = broker.topics.get(filter.topic);
    if (topic === undefined) return null;
    topics.push(topic);
  }
  const quantiles = broker.latencyQuantiles;
  const stats: TopicStats[] = [];
  for (const topic of topics) {
    const channels = [...topic.channels.values()]
      .filter((channel) => filter.channel === null || channel.state.name === filter.channel)
      .sort((a, b) => compareNames(a.state.name, b.state.name));
    if (filter.channel !== null && channels.length === 0) continue;
    stats.push({
      topic_name: topic.state.name,
      channels: channels.map((channel) => channelStats(channel, clients, quantiles)),
      depth: topic.depth,
      backend_depth: topic.depth,
      message_count: topic.messageCount,
      message_bytes: topic.messageBytes,
      paused: topic.state.paused,
      e2e_processing_latency: latencyOf(channels, quantiles),
    });
  }
  return stats;
}

/** Connections that have published, by address. */
export function producerStats(sessions: Iterable<Session>): readonly ClientStats[] {
  return publishingSessions(sessions).map(clientStats);
}

/** {@linkcode producerStats} before it is told of any. */
export function publishingSessions(sessions: Iterable<Session>): Session[] {
  return [...sessions]
    .filter((session) => !session.targets.isEmpty)
    .sort((a, b) => compareNames(a.remoteAddress, b.remoteAddress));
}

/** One connection. */
export function clientStats(session: Session): ClientStats {
  const { settings } = session;
  const { compression, tlsState: tls } = session.connection;
  const consumer = session.subscription?.consumer;
  const published = [...session.targets.counts()].sort((a, b) => compareNames(a.topic, b.topic));
  return {
    client_id: settings.clientId,
    hostname: settings.hostname,
    version: "V2",
    remote_address: session.remoteAddress,
    state: session.stateNumber,
    ready_count: consumer?.ready ?? 0,
    in_flight_count: consumer?.deliveries.count ?? 0,
    message_count: consumer?.messageCount ?? 0,
    finish_count: consumer?.finishCount ?? 0,
    requeue_count: consumer?.requeueCount ?? 0,
    connect_ts: Math.floor(session.connectedWallMs / 1000),
    sample_rate: settings.sampleRate,
    deflate: compression === "deflate",
    snappy: compression === "snappy",
    user_agent: settings.userAgent,
    ...session.access?.stats,
    topology_zone: settings.topologyZone,
    topology_region: settings.topologyRegion,
    ...(published.length > 0 ? { pub_counts: published } : {}),
    tls: tls !== null,
    tls_cipher_suite: tls?.cipherSuite ?? "",
    tls_version: tls?.version ?? "",
    tls_negotiated_protocol: "",
    // As nsqd, whose library says so of every connection.
    tls_negotiated_protocol_is_mutual: tls !== null,
  };
}

/** One channel; without `clients` it tells of none. */
export function channelStats(
  channel: Channel,
  clients: ReadonlyMap<Channel, readonly Session[]> | null,
  quantiles: readonly number[],
): ChannelStats {
  return {
    channel_name: channel.state.name,
    depth: channel.depth,
    backend_depth: channel.depth,
    in_flight_count: channel.inFlightCount,
    deferred_count: channel.deferredCount,
    message_count: channel.messageCount,
    requeue_count: channel.requeueCount,
    timeout_count: channel.timeoutCount,
    client_count: channel.consumers.size,
    clients: clients === null ? null : (clients.get(channel) ?? []).map(clientStats),
    paused: channel.state.paused,
    e2e_processing_latency: latencyOf([channel], quantiles),
  };
}

/** The percentiles over some channels; of those without a channel there are none, as in nsqd. */
export function latencyOf(
  channels: readonly Channel[],
  quantiles: readonly number[],
): LatencySummary {
  if (quantiles.length === 0 || channels.length === 0) return NO_LATENCY;
  const counts = new LatencyCounts();
  for (const { latency } of channels) latency?.addTo(counts);
  return counts.summary(quantiles);
}

/** The consumers of each channel, by address. */
export function clientsByChannel(sessions: Iterable<Session>): Map<Channel, Session[]> {
  const clients = new Map<Channel, Session[]>();
  for (const session of sessions) {
    const channel = session.subscription?.channel;
    if (channel === undefined) continue;
    const list = clients.get(channel);
    if (list === undefined) clients.set(channel, [session]);
    else list.push(session);
  }
  for (const list of clients.values()) {
    list.sort((a, b) => compareNames(a.remoteAddress, b.remoteAddress));
  }
  return clients;
}

/** By code units, as Go does with bytes of ASCII. */
export function compareNames(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
