/**
 * `GET /v1/stats`: everything there is to say about topics, channels and budgets, in JSON.
 *
 * - Made in slices while the peer reads it. Each topic and channel is as of the moment when its turn
 *   comes, the whole is of no one moment; `collected_at_ms` is when it began.
 * - `complete` is its last field: an answer without it was cut off.
 * - Topics come in the order in which they were made.
 * - `oldest_unfinished_ms` is how long ago the oldest message was published that is not finished, those
 *   deferred and in flight included; null when there is none, or when it has to be read from disk
 *   and this answer has read enough: see `message_ages.ts`.
 */
import type { HttpRoute, Query } from "@sluice/shared/http";
import { type Clock, Slices } from "@sluice/shared/runtime";
import { type Broker, bytesFrom } from "../broker.ts";
import {
  type Channel,
  LatencyCounts,
  type LatencySummary,
  NO_LATENCY,
  type Topic,
} from "../queue/mod.ts";
import { type JsonPieces, jsonStreamReply } from "./json_stream.ts";
import type { Session } from "./session.ts";
import { clientStats } from "./stats.ts";

export const STATS_PATH = "/v1/stats";
/** Channels are told together up to so much text: each piece costs something of its own. */
const PIECE_CHARACTERS = 8_192;

/** What a document of statistics is made from. */
export interface StatsWorld {
  readonly broker: Broker;
  /** Tells when others are to have a turn. */
  readonly clock: Clock;
  readonly sessions: ReadonlySet<Session>;
  readonly memory: () => Readonly<Record<string, number>>;
  /** Who the broker is, and when. */
  readonly identity: () => Readonly<Record<string, unknown>>;
}

/** What is asked for. */
export interface StatsQuery {
  readonly topic: string | null;
  readonly channel: string | null;
  readonly includeClients: boolean;
  readonly includeMemory: boolean;
}

/** The route. */
export function statsRoute(world: StatsWorld): HttpRoute {
  return {
    method: "GET",
    path: STATS_PATH,
    handle: ({ query }) => jsonStreamReply(statsDocument(world, statsQuery(query))),
  };
}

/** Reads what is asked for; what is not named is left out or stands for all. */
export function statsQuery(query: Query): StatsQuery {
  return {
    topic: query.get("topic") || null,
    channel: query.get("channel") || null,
    includeClients: query.get("include_clients") === "true",
    includeMemory: query.get("include_mem") === "true",
  };
}

/** The whole document. */
export async function* statsDocument(world: StatsWorld, query: StatsQuery): JsonPieces {
  const head = JSON.stringify(world.identity());
  yield `${head.slice(0, -1)},`;
  yield* statsFields(world, query);
  yield "}";
}

/** The fields behind those of the identity. */
export async function* statsFields(world: StatsWorld, query: StatsQuery): JsonPieces {
  const { broker, memory } = world;
  const walk = new StatsWalk(world, query);
  if (query.includeMemory) yield `"memory":${JSON.stringify(memory())},`;
  if (query.includeClients) yield* walk.producers();
  yield `"topics":[`;
  yield* walk.topics();
  yield `],"budgets":${JSON.stringify(budgetDocuments(broker))},"complete":true`;
}

/** The budgets; `except` names those that are too much to look at. */
export function budgetDocuments({ budgets }: Broker, except: readonly string[] = []) {
  return budgets.all().filter(({ name }) => !except.includes(name)).map((budget) => ({
    name: budget.name,
    unit: budget.unit,
    at_limit: budget.atLimit,
    used: budget.used(),
    limit: budget.limit(),
    refused_total: budget.refused(),
  }));
}

class StatsWalk {
  readonly #world: StatsWorld;
  readonly #query: StatsQuery;
  readonly #slices: Slices;
  readonly #ages: ReturnType<Broker["ages"]["walk"]>;
  readonly #wallMs: number;
  #clients: Map<Channel, Session[]> | null = null;

  constructor(world: StatsWorld, query: StatsQuery) {
    this.#world = world;
    this.#query = query;
    this.#slices = new Slices(world.clock);
    this.#ages = world.broker.ages.walk();
    this.#wallMs = world.broker.clock.wallMs();
  }

  /** The connections that have published. */
  async *producers(): JsonPieces {
    let separator = `"producers":[`;
    for (const session of this.#world.sessions) {
      if (this.#slices.isOver) await this.#slices.pause();
      if (session.targets.isEmpty) continue;
      yield separator + JSON.stringify(clientStats(session));
      separator = ",";
    }
    yield separator === "," ? "]," : `${separator}],`;
  }

  async *topics(): JsonPieces {
    const { broker, sessions } = this.#world;
    if (this.#query.includeClients) this.#clients = await clientsOf(sessions, this.#slices);
    const asked = this.#query.channel;
    let text = "";
    let separator = "";
    for (const topic of this.#asked(broker)) {
      if (this.#slices.isOver) await this.#slices.pause();
      if (topic.deleted || (asked !== null && !topic.channels.has(asked))) continue;
      const head = this.#topic(topic);
      text += separator + (typeof head === "string" ? head : await head);
      separator = ",";
      let between = "";
      for (const channel of topic.channels.values()) {
        if (this.#slices.isOver) await this.#slices.pause();
        if (channel.deleted || (asked !== null && asked !== channel.state.name)) continue;
        const own = this.#channel(channel);
        text += between + (typeof own === "string" ? own : await own);
        between = ",";
        if (this.#clients === null && text.length < PIECE_CHARACTERS) continue;
        yield text;
        text = "";
        if (this.#clients !== null) yield* this.#clientsOf(channel, this.#clients);
      }
      text += "]}";
      if (text.length < PIECE_CHARACTERS) continue;
      yield text;
      text = "";
    }
    yield text;
  }

  #asked({ topics }: Broker): Iterable<Topic> {
    const { topic } = this.#query;
    if (topic === null) return topics.values();
    const found = topics.get(topic);
    return found === undefined ? [] : [found];
  }

  /** A topic up to its channels; at once, unless something has to be read or takes long. */
  #topic(topic: Topic): string | Promise<string> {
    const { state } = topic;
    const oldest = state.liveFrom < state.durableTail
      ? this.#ages.timestampMs(state, state, state.liveFrom)
      : null;
    const latency = this.#latency(topic.channels.values());
    if (!(oldest instanceof Promise) && !(latency instanceof Promise)) {
      return this.#topicText(topic, oldest, latency);
    }
    return Promise.all([oldest, latency]).then((known) => this.#topicText(topic, ...known));
  }

  #topicText(topic: Topic, oldest: number | null, latency: LatencySummary): string {
    const { broker } = this.#world;
    const { state } = topic;
    const quota = broker.quotaOf(state);
    const rates = broker.limits.ratesOf(state);
    const head = JSON.stringify({
      topic: state.name,
      ephemeral: state.ephemeral,
      paused: state.paused,
      depth: topic.depth,
      message_count: topic.messageCount,
      message_bytes: topic.messageBytes,
      next_offset: state.tail,
      undurable_count: state.tail - state.durableTail,
      stored_bytes: state.storedBytes,
      held_bytes: Math.round(broker.quotas.heldBytes(state)),
      oldest_unfinished_ms: this.#age(oldest),
      deferred_count: state.due.size,
      next_due_ms: finite(state.due.earliestMs),
      policy: {
        ack_mode: state.ackMode,
        quota_bytes: state.policy["quota_bytes"] ?? null,
        quota_action: state.policy["quota_action"] ?? null,
        publish_rate: state.policy["publish_rate"] ?? null,
        publish_bytes_rate: state.policy["publish_bytes_rate"] ?? null,
        effective: {
          ack_mode: broker.storage.ackModeOf(state),
          quota_bytes: quota.bytesMax,
          quota_action: quota.action,
          publish_rate: rates.messages,
          publish_bytes_rate: rates.bytes,
        },
      },
      dedup_producer_count: state.dedup?.producerCount ?? 0,
      channel_count: topic.channels.size,
      e2e_processing_latency: latency,
    });
    return `${head.slice(0, -1)},"channels":[`;
  }

  /** A channel, up to its connections if they are asked for; as `#topic`. */
  #channel(channel: Channel): string | Promise<string> {
    const { state, topic } = channel;
    const { floor } = state.finished;
    const oldest = floor < topic.visibleTail ? this.#ages.timestampMs(topic, state, floor) : null;
    const latency = this.#latency([channel]);
    if (!(oldest instanceof Promise) && !(latency instanceof Promise)) {
      return this.#channelText(channel, oldest, latency);
    }
    return Promise.all([oldest, latency]).then((known) => this.#channelText(channel, ...known));
  }

  #channelText(channel: Channel, oldest: number | null, latency: LatencySummary): string {
    const { state, topic } = channel;
    const { finished } = state;
    const text = JSON.stringify({
      channel: state.name,
      ephemeral: state.ephemeral,
      paused: state.paused,
      depth: channel.depth,
      in_flight_count: channel.inFlightCount,
      deferred_count: channel.deferredCount,
      next_due_ms: finite(channel.nextDueMs),
      message_count: channel.messageCount,
      delivered_count: channel.deliveredCount,
      requeue_count: channel.requeueCount,
      timeout_count: channel.timeoutCount,
      finished_floor: finished.floor,
      finished_above_count: finished.above,
      held_bytes: Math.round(bytesFrom(topic.index.runs, finished.floor)),
      oldest_unfinished_ms: this.#age(oldest),
      reading_from_disk: channel.isLagging,
      consumers: consumerFigures(channel),
      e2e_processing_latency: latency,
    });
    return this.#clients === null ? text : `${text.slice(0, -1)},"clients":`;
  }

  /** The connections of a channel, and the end of it. */
  async *#clientsOf(channel: Channel, clients: Map<Channel, Session[]>): JsonPieces {
    yield "[";
    let separator = "";
    for (const session of clients.get(channel) ?? []) {
      if (this.#slices.isOver) await this.#slices.pause();
      yield separator + JSON.stringify(clientStats(session));
      separator = ",";
    }
    yield "]}";
  }

  #latency(channels: Iterable<Channel>): LatencySummary | Promise<LatencySummary> {
    const isMeasured = this.#world.broker.latencyQuantiles.length > 0;
    return isMeasured ? this.#measured(channels) : NO_LATENCY;
  }

  async #measured(channels: Iterable<Channel>): Promise<LatencySummary> {
    const { latencyQuantiles } = this.#world.broker;
    const counts = new LatencyCounts();
    for (const { latency } of channels) {
      latency?.addTo(counts);
      if (this.#slices.isOver) await this.#slices.pause();
    }
    return counts.summary(latencyQuantiles);
  }

  #age(timestampMs: number | null): number | null {
    return timestampMs === null ? null : Math.max(0, this.#wallMs - timestampMs);
  }
}

/** The consumers of a channel in a few numbers. */
function consumerFigures(channel: Channel) {
  let [ready, inFlightMax, atLimit] = [0, 0, 0];
  for (const consumer of channel.consumers.values()) {
    ready += consumer.ready;
    inFlightMax = Math.max(inFlightMax, consumer.deliveries.count);
    if (consumer.deliveries.count >= consumer.ready) atLimit++;
  }
  return {
    count: channel.consumers.size,
    ready_count: ready,
    in_flight_max: inFlightMax,
    at_limit_count: atLimit,
  };
}

/** The connections by what they consume. */
async function clientsOf(
  sessions: ReadonlySet<Session>,
  slices: Slices,
): Promise<Map<Channel, Session[]>> {
  const clients = new Map<Channel, Session[]>();
  for (const session of sessions) {
    if (slices.isOver) await slices.pause();
    const channel = session.subscription?.channel;
    if (channel === undefined) continue;
    const list = clients.get(channel);
    if (list === undefined) clients.set(channel, [session]);
    else list.push(session);
  }
  return clients;
}

function finite(ms: number): number | null {
  return ms === Infinity ? null : ms;
}
