/**
 * The answer of `/stats`, as nsqd's to the byte, made in slices: with 10,000 topics it takes longer than
 * anybody is to be kept waiting. Each topic and channel is as of the moment when its turn comes.
 */
import { Slices } from "@sluice/shared/runtime";
import type { Broker } from "../broker.ts";
import type { Channel, Topic, TopicOrder } from "../queue/mod.ts";
import type { Session } from "./session.ts";
import {
  channelStats,
  clientsByChannel,
  clientStats,
  compareNames,
  latencyOf,
  publishingSessions,
  type StatsFilter,
} from "./stats.ts";
import { producersText, type StatsHead, statsHead, topicText } from "./stats_text.ts";

/** Pieces are encoded when they are so many characters together. */
const CHUNK_CHARACTERS = 65_536;
const ENCODER = new TextEncoder();

/** What the answer tells of. */
export interface StatsWorld {
  readonly broker: Broker;
  readonly order: TopicOrder;
  readonly sessions: Iterable<Session>;
  readonly head: StatsHead;
}

/** The answer with `format=json`. */
export function statsJson(
  world: StatsWorld,
  filter: StatsFilter,
): Promise<Uint8Array<ArrayBuffer>> {
  return encoded(world, (slices) => jsonPieces(world, filter, slices));
}

/** The answer without. */
export function statsText(
  world: StatsWorld,
  filter: StatsFilter,
): Promise<Uint8Array<ArrayBuffer>> {
  return encoded(world, (slices) => textPieces(world, filter, slices));
}

async function encoded(
  { broker }: StatsWorld,
  pieces: (slices: Slices) => AsyncIterable<string>,
): Promise<Uint8Array<ArrayBuffer>> {
  const slices = new Slices(broker.clock);
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  let text = "";
  const encode = () => {
    const chunk = ENCODER.encode(text);
    chunks.push(chunk);
    bytes += chunk.length;
    text = "";
  };
  for await (const piece of pieces(slices)) {
    text += piece;
    if (text.length >= CHUNK_CHARACTERS) encode();
    if (slices.isOver) await slices.pause();
  }
  encode();
  const all = new Uint8Array(bytes);
  let at = 0;
  for (const chunk of chunks) {
    all.set(chunk, at);
    at += chunk.length;
  }
  return all;
}

async function* jsonPieces(
  world: StatsWorld,
  filter: StatsFilter,
  slices: Slices,
): AsyncIterable<string> {
  const { version, health, startWallMs, memory } = world.head;
  const startTime = Math.floor(startWallMs / 1000);
  yield `${JSON.stringify({ version, health, start_time: startTime }).slice(0, -1)},"topics":`;
  const topics = await topicsOf(world, filter, slices);
  if (topics === null) yield "null";
  else {
    const clients = filter.includeClients ? clientsByChannel(world.sessions) : null;
    let separator = "[";
    for (const { topic, channels } of topics) {
      yield separator;
      yield* topicJson(world.broker, topic, channels, clients);
      separator = ",";
    }
    yield separator === "[" ? "[]" : "]";
  }
  if (memory !== null) yield `,"memory":${JSON.stringify(memory)}`;
  yield `,"producers":`;
  const producers = filter.includeClients ? publishingSessions(world.sessions) : [];
  if (producers.length === 0) yield "null";
  else yield* listJson(producers, clientStats);
  yield "}";
}

function* topicJson(
  { latencyQuantiles }: Broker,
  topic: Topic,
  channels: readonly Channel[],
  clients: ReadonlyMap<Channel, readonly Session[]> | null,
): Iterable<string> {
  yield `{"topic_name":${JSON.stringify(topic.state.name)},"channels":[`;
  let separator = "";
  for (const channel of channels) {
    const { clients: _none, paused, e2e_processing_latency, ...head } = channelStats(
      channel,
      null,
      latencyQuantiles,
    );
    yield `${separator}${JSON.stringify(head).slice(0, -1)},"clients":`;
    if (clients === null) yield "null";
    else yield* listJson(clients.get(channel) ?? [], clientStats);
    yield `,${JSON.stringify({ paused, e2e_processing_latency }).slice(1)}`;
    separator = ",";
  }
  const tail = {
    depth: topic.depth,
    backend_depth: topic.depth,
    message_count: topic.messageCount,
    message_bytes: topic.messageBytes,
    paused: topic.state.paused,
    e2e_processing_latency: latencyOf(channels, latencyQuantiles),
  };
  yield `],${JSON.stringify(tail).slice(1)}`;
}

function* listJson<T>(items: readonly T[], document: (item: T) => unknown): Iterable<string> {
  let separator = "[";
  for (const item of items) {
    yield `${separator}${JSON.stringify(document(item))}`;
    separator = ",";
  }
  yield separator === "[" ? "[]" : "]";
}

async function* textPieces(
  world: StatsWorld,
  filter: StatsFilter,
  slices: Slices,
): AsyncIterable<string> {
  const { broker: { latencyQuantiles }, head } = world;
  const clients = filter.includeClients ? clientsByChannel(world.sessions) : null;
  yield statsHead(head);
  const topics = await topicsOf(world, filter, slices) ?? [];
  yield topics.length === 0 ? "Topics: None\n" : "Topics:\n";
  for (const { topic, channels } of topics) {
    const stats = {
      topic_name: topic.state.name,
      depth: topic.depth,
      backend_depth: topic.depth,
      message_count: topic.messageCount,
      paused: topic.state.paused,
      e2e_processing_latency: latencyOf(channels, latencyQuantiles),
    };
    const each = channels.values().map((one) => channelStats(one, clients, latencyQuantiles));
    yield* topicText(stats, each, head.nowWallMs);
  }
  if (topics.length === 0) yield "\n";
  const producers = filter.includeClients ? publishingSessions(world.sessions) : [];
  yield* producersText(producers.values().map(clientStats), producers.length, head.nowWallMs);
}

interface ToldTopic {
  readonly topic: Topic;
  readonly channels: readonly Channel[];
}

/** What the filter leaves, by name; `null` when it names a topic that there is not. */
async function topicsOf(
  { broker, order }: StatsWorld,
  filter: StatsFilter,
  slices: Slices,
): Promise<readonly ToldTopic[] | null> {
  let topics: readonly Topic[];
  if (filter.topic === null) topics = await order.list(slices);
  else {
    const named = broker.topics.get(filter.topic);
    if (named === undefined) return null;
    topics = [named];
  }
  const told: ToldTopic[] = [];
  for (const topic of topics) {
    if (slices.isOver) await slices.pause();
    if (topic.deleted) continue;
    const channels = [...topic.channels.values()]
      .filter((channel) => filter.channel === null || channel.state.name === filter.channel)
      .sort((a, b) => compareNames(a.state.name, b.state.name));
    if (filter.channel === null || channels.length > 0) told.push({ topic, channels });
  }
  return told;
}
