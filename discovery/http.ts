/**
 * The HTTP side of discovery, path for path that of nsqlookupd: consumers, admin tools and scripts
 * use it unchanged; what is ours is in `native_http.ts`. Lists are sorted and never null. Nothing here waits: an answer is a look at the
 * registry. A name the registry has no room for is refused with 403 `TOPIC_LIMIT_REACHED` or
 * `CHANNEL_LIMIT_REACHED`.
 */
import {
  channelArguments,
  emptyReply,
  HttpError,
  type HttpMeter,
  type HttpRoute,
  jsonReply,
  jsonTextReply,
  type NsqHttp,
  nsqHttp,
  pingReply,
  requiredArgument,
  topicArgument,
} from "@sluice/shared/http";
import { type Clock, REPORTED_VERSION } from "@sluice/shared/runtime";
import { type Logger, METRICS_CONTENT_TYPE, type MetricsRegistry } from "@sluice/shared/telemetry";
import { type NativeHttpOptions, nativeRoutes } from "./native_http.ts";
import type { Producer } from "./producer.ts";
import type { LimitReached, RegistrationRow, Registry } from "./registry.ts";

/** What nsqlookupd tells of a tombstone that never was: Go's zero time in nanoseconds. */
const NEVER_NS = -6_795_364_578_871_345_152;

/** What the HTTP door answers from. */
export interface DiscoveryHttpOptions {
  readonly registry: Registry;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly metrics: MetricsRegistry;
  /** Counts requests by route; none are counted when absent. */
  readonly meter?: HttpMeter;
  /** What there is beside nsqlookupd's paths; nothing when absent. */
  readonly native?: NativeHttpOptions;
  /** Origins whose pages may read `/lookup`. */
  readonly corsOrigins?: readonly string[];
}

/** Makes the HTTP door: contract section 4.2. */
export function discoveryHttp(options: DiscoveryHttpOptions): NsqHttp {
  const { registry, clock, logger, metrics, native } = options;
  /** What a producer says of itself never changes, and many lookups name it. */
  const texts = new WeakMap<Producer, string>();
  const lookupText = (producer: Producer) => {
    let text = texts.get(producer);
    if (text === undefined) {
      text = JSON.stringify(producerDocument(producer));
      texts.set(producer, text);
    }
    return text;
  };
  const routes: HttpRoute[] = [
    ...native === undefined ? [] : nativeRoutes(native),
    { method: "GET", path: "/ping", handle: () => pingReply("OK") },
    { method: "GET", path: "/info", handle: () => jsonReply({ version: REPORTED_VERSION }) },
    {
      method: "GET",
      path: "/metrics",
      handle: async () => {
        const headers = { "Content-Type": METRICS_CONTENT_TYPE };
        return new Response(await metrics.text(), { headers });
      },
    },
    {
      method: "GET",
      path: "/lookup",
      handle: ({ query }) => {
        const topic = requiredArgument(query, "topic");
        const producers = registry.lookup(topic, clock.monoMs());
        if (producers === null) throw new HttpError(404, "TOPIC_NOT_FOUND");
        const channels = JSON.stringify(registry.channels(topic));
        const list = producers.map((producer) => lookupText(producer)).join();
        return jsonTextReply(`{"channels":${channels},"producers":[${list}]}`);
      },
    },
    { method: "GET", path: "/topics", handle: () => jsonReply({ topics: registry.topics() }) },
    {
      method: "GET",
      path: "/channels",
      handle: ({ query }) => {
        return jsonReply({ channels: registry.channels(requiredArgument(query, "topic")) });
      },
    },
    {
      method: "GET",
      path: "/nodes",
      handle: () => {
        const producers = registry.nodes(clock.monoMs()).map((node) => ({
          ...producerDocument(node.producer),
          tombstones: node.tombstones,
          topics: node.topics,
        }));
        return jsonReply({ producers });
      },
    },
    { method: "GET", path: "/debug", handle: () => jsonReply(debugDocument(registry, clock)) },
    {
      method: "POST",
      path: "/topic/create",
      handle: ({ query }) => {
        const topic = topicArgument(query);
        refuseAtLimit(registry.createTopic(topic));
        logger.info("a topic is created", { topic });
        return emptyReply();
      },
    },
    {
      method: "POST",
      path: "/topic/delete",
      handle: ({ query }) => {
        const topic = requiredArgument(query, "topic");
        registry.deleteTopic(topic);
        logger.info("a topic is deleted", { topic });
        return emptyReply();
      },
    },
    {
      method: "POST",
      path: "/channel/create",
      handle: ({ query }) => {
        const { topic, channel } = channelArguments(query);
        refuseAtLimit(registry.createChannel(topic, channel));
        logger.info("a channel is created", { topic, channel });
        return emptyReply();
      },
    },
    {
      method: "POST",
      path: "/channel/delete",
      handle: ({ query }) => {
        const { topic, channel } = channelArguments(query);
        if (!registry.deleteChannel(topic, channel)) throw new HttpError(404, "CHANNEL_NOT_FOUND");
        logger.info("a channel is deleted", { topic, channel });
        return emptyReply();
      },
    },
    {
      method: "POST",
      path: "/topic/tombstone",
      handle: ({ query }) => {
        const topic = requiredArgument(query, "topic");
        const node = requiredArgument(query, "node");
        registry.tombstone(topic, node, clock.monoMs());
        logger.info("a node is tombstoned", { topic, node });
        return emptyReply();
      },
    },
  ];
  const cors = { paths: ["/lookup"], origins: options.corsOrigins ?? [] };
  return nsqHttp({ routes, logger, meter: options.meter, cors });
}

function refuseAtLimit(reached: LimitReached | null): void {
  if (reached === null) return;
  const code = reached.limit === "topicsMax" ? "TOPIC_LIMIT_REACHED" : "CHANNEL_LIMIT_REACHED";
  throw new HttpError(403, code);
}

function producerDocument({ remoteAddress, info }: Producer) {
  return {
    remote_address: remoteAddress,
    hostname: info.hostname,
    broadcast_address: info.broadcastAddress,
    tcp_port: info.tcpPort,
    http_port: info.httpPort,
    version: info.version,
    topology_zone: info.topologyZone,
    topology_region: info.topologyRegion,
  };
}

/** Every registration by `category:key:subkey`. Times are wall clock nanoseconds, to the microsecond. */
function debugDocument(registry: Registry, clock: Clock): Record<string, unknown[]> {
  const document: Record<string, unknown[]> = Object.create(null);
  const offsetMs = clock.wallMs() - clock.monoMs();
  const wallNs = (monoMs: number) => Math.round((offsetMs + monoMs) * 1e6);
  for (const row of registry.registrations()) {
    const key = `${row.category}:${row.key}:${row.subkey}`;
    (document[key] ??= []).push(registrationDocument(row, wallNs));
  }
  return sortedByKey(document);
}

function sortedByKey<V>(document: Record<string, V>): Record<string, V> {
  return Object.fromEntries(Object.entries(document).sort(([a], [b]) => a < b ? -1 : 1));
}

function registrationDocument(
  { producer, tombstonedAtMs }: RegistrationRow,
  wallNs: (monoMs: number) => number,
) {
  const { remoteAddress, info, lastSeenMs } = producer;
  return {
    broadcast_address: info.broadcastAddress,
    hostname: info.hostname,
    http_port: info.httpPort,
    id: remoteAddress,
    last_update: wallNs(lastSeenMs),
    tcp_port: info.tcpPort,
    tombstoned: tombstonedAtMs !== null,
    tombstoned_at: tombstonedAtMs === null ? NEVER_NS : wallNs(tombstonedAtMs),
    topology_region: info.topologyRegion,
    topology_zone: info.topologyZone,
    version: info.version,
  };
}
