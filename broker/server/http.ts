/**
 * The HTTP door: nsqd's API (contract section 3) and `/metrics`. Publishing answers once the messages
 * are on disk. The two publish paths go around the router, since they are the ones that have to be
 * fast.
 */
import {
  channelArguments,
  emptyReply,
  HttpError,
  type HttpMeter,
  type HttpRoute,
  jsonReply,
  jsonTextReply,
  nsqHttp,
  pingReply,
  type Query,
  requiredArgument,
  type RouteMeter,
  textReply,
} from "@sluice/shared/http";
import { isValidName } from "@sluice/shared/protocol";
import { REPORTED_VERSION } from "@sluice/shared/runtime";
import { METRICS_CONTENT_TYPE, type MetricsRegistry } from "@sluice/shared/telemetry";
import {
  HttpAccess,
  type HttpAuthorization,
  type HttpHandler,
  type HttpPeer,
  openHttp,
} from "@sluice/shared/server";
import { type Broker, RefusedError } from "../broker.ts";
import { type Channel, type Topic, TopicOrder } from "../queue/mod.ts";
import { CONFIG_VALUE_BYTES_MAX, type ConfigAccess, configRoutes } from "./config_http.ts";
import { drainRoutes } from "./drain_http.ts";
import { healthRoute } from "./health_http.ts";
import { refusal } from "./http_refusal.ts";
import { HttpPublisher, type HttpPublisherOptions, type PublishSource } from "./http_publish.ts";
import { type NativeOptions, nativeRoutes } from "./native_http.ts";
import { RegistryRevision, registryRoutes } from "./registry_http.ts";
import { type ReloadAnswer, reloadRoute } from "./reload_http.ts";
import { ROUTE_RULES } from "./route_rules.ts";
import type { Session } from "./session.ts";
import { statsJson, statsText } from "./stats_document.ts";
import { storageRoutes } from "./storage_http.ts";
import { topicPolicyRoutes } from "./topic_policy_http.ts";

/** What `/info` says, and limits of publishing. */
export interface HttpOptions extends HttpPublisherOptions, NativeOptions {
  readonly hostname: string;
  readonly broadcastAddress: string;
  readonly broadcastTcpPort: () => number;
  readonly broadcastHttpPort: () => number;
  readonly startWallMs: number;
  readonly maxHeartbeatIntervalMs: number;
  readonly maxOutputBufferBytes: number;
  readonly maxOutputBufferTimeoutMs: number;
  readonly topologyZone: string;
  readonly topologyRegion: string;
  /** The settings for `/config/:opt`. */
  readonly config: ConfigAccess;
  /** Reads the settings again, where that is possible. */
  readonly reload?: () => Promise<ReloadAnswer>;
  readonly memory: () => Readonly<Record<string, number>>;
  /** Who may use which route; as open as nsqd when absent. */
  readonly authorization?: HttpAuthorization;
  /** Told of the changes of the registry; one that is told of none when absent. */
  readonly registryRevision?: RegistryRevision;
  /** Counts requests by route; none are counted when absent. */
  readonly meter?: HttpMeter;
  /** Topics by name; one of its own when absent. */
  readonly topicOrder?: TopicOrder;
}

const NANOSECONDS_PER_MS = 1_000_000;

/** Makes the handler of the HTTP listener. */
export function brokerHttp(
  broker: Broker,
  sessions: ReadonlySet<Session>,
  metrics: MetricsRegistry,
  options: HttpOptions,
): HttpHandler {
  const publisher = new HttpPublisher(broker, options);
  const access = new HttpAccess(options.authorization ?? openHttp(), broker, ROUTE_RULES);
  const app = nsqHttp({
    logger: broker.logger,
    meter: options.meter,
    routes: brokerRoutes(broker, sessions, metrics, options, publisher, access.guarded.bind(access))
      .map((route) => access.guarded(route)),
  });
  const pub = options.meter?.route("POST", "/pub");
  const mpub = options.meter?.route("POST", "/mpub");
  const permitted = async (
    request: Request,
    peer: HttpPeer,
    publish: (from: PublishSource) => Promise<Response>,
  ) => {
    const permitted = await access.permitPublish(request, peer);
    if (permitted instanceof Response) return permitted;
    return await publish({ ...peer, identity: permitted });
  };
  return (request, remoteAddress, certificateName = "") => {
    const peer = { remoteAddress, certificateName };
    if (request.method === "POST") {
      const path = pathOf(request.url);
      if (path === "/pub") {
        return measured(pub, () => {
          if (access.isOpen) return publisher.publish(request, peer);
          return permitted(request, peer, (from) => publisher.publish(request, from));
        });
      }
      if (path === "/mpub") {
        return measured(mpub, () => {
          if (access.isOpen) return publisher.publishMany(request, peer);
          return permitted(request, peer, (from) => publisher.publishMany(request, from));
        });
      }
    }
    return app.fetch(request, peer);
  };
}

/** Every route there is. */
export function brokerRoutes(
  broker: Broker,
  sessions: ReadonlySet<Session>,
  metrics: MetricsRegistry,
  options: HttpOptions,
  publisher = new HttpPublisher(broker, options),
  guarded?: (route: HttpRoute) => HttpRoute,
): HttpRoute[] {
  const revision = options.registryRevision ?? new RegistryRevision(broker.random);
  return [
    ...new Door(broker, sessions, metrics, options).routes(),
    ...storageRoutes(broker),
    ...topicPolicyRoutes(broker),
    reloadRoute(options.reload),
    ...registryRoutes(broker, options, revision),
    ...drainRoutes(broker),
    healthRoute(broker, guarded),
    ...nativeRoutes(broker, sessions, revision, options),
    { method: "POST", path: "/pub", handle: ({ request }) => publisher.publish(request) },
    { method: "POST", path: "/mpub", handle: ({ request }) => publisher.publishMany(request) },
  ];
}

function measured(meter: RouteMeter | undefined, answer: () => Promise<Response>) {
  return meter === undefined ? answer() : meter.measure(answer);
}

/** The path of an absolute URL, without parsing all of it. */
function pathOf(url: string): string {
  const start = url.indexOf("/", url.indexOf("://") + 3);
  const end = url.indexOf("?", start);
  return end < 0 ? url.slice(start) : url.slice(start, end);
}

class Door {
  readonly #broker: Broker;
  readonly #sessions: ReadonlySet<Session>;
  readonly #metrics: MetricsRegistry;
  readonly #options: HttpOptions;
  readonly #order: TopicOrder;

  constructor(
    broker: Broker,
    sessions: ReadonlySet<Session>,
    metrics: MetricsRegistry,
    options: HttpOptions,
  ) {
    this.#broker = broker;
    this.#sessions = sessions;
    this.#metrics = metrics;
    this.#options = options;
    this.#order = options.topicOrder ?? new TopicOrder(broker.topics);
  }

  routes(): HttpRoute[] {
    const broker = this.#broker;
    return [
      { method: "GET", path: "/ping", handle: () => this.#ping() },
      { method: "GET", path: "/info", handle: () => this.#info() },
      { method: "GET", path: "/stats", handle: ({ query }) => this.#stats(query) },
      { method: "GET", path: "/metrics", handle: () => this.#metricsText() },
      ...this.#configRoutes(),
      { method: "POST", path: "/topic/create", handle: ({ query }) => this.#createTopic(query) },
      this.#topicRoute("delete", (topic) => broker.administration.deleteTopic(topic)),
      this.#topicRoute("empty", (topic) => broker.administration.emptyTopic(topic)),
      this.#topicRoute("pause", (topic) => broker.administration.pauseTopic(topic, true)),
      this.#topicRoute("unpause", (topic) => broker.administration.pauseTopic(topic, false)),
      {
        method: "POST",
        path: "/channel/create",
        handle: ({ query }) => this.#createChannel(query),
      },
      this.#channelRoute(
        "delete",
        (topic, channel) => broker.administration.deleteChannel(topic, channel),
      ),
      this.#channelRoute("empty", (_topic, channel) => channel.empty()),
      this.#channelRoute(
        "pause",
        (_topic, channel) => broker.administration.pauseChannel(channel, true),
      ),
      this.#channelRoute(
        "unpause",
        (_topic, channel) => broker.administration.pauseChannel(channel, false),
      ),
    ];
  }

  get #health(): string {
    const { failure } = this.#broker;
    return failure === null ? "OK" : `NOK - ${failure.message}`;
  }

  #ping(): Response {
    const health = this.#health;
    return pingReply(health, health === "OK" ? 200 : 500);
  }

  #info(): Response {
    const options = this.#options;
    return jsonReply({
      version: REPORTED_VERSION,
      broadcast_address: options.broadcastAddress,
      hostname: options.hostname,
      http_port: options.broadcastHttpPort(),
      tcp_port: options.broadcastTcpPort(),
      start_time: Math.floor(options.startWallMs / 1000),
      max_heartbeat_interval: options.maxHeartbeatIntervalMs * NANOSECONDS_PER_MS,
      max_output_buffer_size: options.maxOutputBufferBytes,
      max_output_buffer_timeout: options.maxOutputBufferTimeoutMs * NANOSECONDS_PER_MS,
      max_deflate_level: options.maxDeflateLevel,
      topology_zone: options.topologyZone,
      topology_region: options.topologyRegion,
    });
  }

  async #stats(query: Query): Promise<Response> {
    const broker = this.#broker;
    const world = {
      broker,
      order: this.#order,
      sessions: this.#sessions,
      head: {
        version: REPORTED_VERSION,
        startWallMs: this.#options.startWallMs,
        nowWallMs: broker.clock.wallMs(),
        health: this.#health,
        memory: isOn(query.get("include_mem")) ? this.#options.memory() : null,
      },
    };
    const filter = {
      topic: query.get("topic") || null,
      channel: query.get("channel") || null,
      includeClients: isOn(query.get("include_clients")),
    };
    if (query.get("format") !== "json") return textReply(await statsText(world, filter));
    return jsonTextReply(await statsJson(world, filter));
  }

  async #metricsText(): Promise<Response> {
    const text = await this.#metrics.bytes();
    return new Response(text, { headers: { "Content-Type": METRICS_CONTENT_TYPE } });
  }

  #configRoutes(): HttpRoute[] {
    const { config, messageBytesMax, bodyTimeoutMs } = this.#options;
    const { logger, clock } = this.#broker;
    return configRoutes({
      config,
      logger,
      valueBytesMax: Math.min(messageBytesMax, CONFIG_VALUE_BYTES_MAX),
      deadline: () => {
        const late = new AbortController();
        const timer = clock.setTimer(bodyTimeoutMs, () => late.abort());
        return { signal: late.signal, cancel: () => timer.cancel() };
      },
    });
  }

  #createTopic(query: Query): Promise<Response> {
    const name = requiredArgument(query, "topic");
    if (!isValidName(name)) throw new HttpError(400, "INVALID_TOPIC");
    return this.#decide(() => {
      this.#broker.ensureTopic(name);
    });
  }

  #createChannel(query: Query): Promise<Response> {
    const { topic, channel } = this.#channelNames(query);
    return this.#decide(() => {
      this.#broker.ensureChannel(topic, channel);
    });
  }

  #topicRoute(action: string, act: (topic: Topic) => void): HttpRoute {
    return {
      method: "POST",
      path: `/topic/${action}`,
      handle: ({ query }) => {
        const name = requiredArgument(query, "topic");
        // Only this one of nsqd's judges the name.
        if (action === "empty" && !isValidName(name)) throw new HttpError(400, "INVALID_TOPIC");
        const topic = this.#topic(name);
        return this.#decide(() => act(topic));
      },
    };
  }

  #channelRoute(action: string, act: (topic: Topic, channel: Channel) => void): HttpRoute {
    return {
      method: "POST",
      path: `/channel/${action}`,
      handle: ({ query }) => {
        const names = this.#channelNames(query);
        const channel = names.topic.channels.get(names.channel);
        if (channel === undefined) throw new HttpError(404, "CHANNEL_NOT_FOUND");
        return this.#decide(() => act(names.topic, channel));
      },
    };
  }

  #channelNames(query: Query): { topic: Topic; channel: string } {
    const { topic, channel } = channelArguments(query);
    return { topic: this.#topic(topic), channel };
  }

  #topic(name: string): Topic {
    const topic = this.#broker.topics.get(name);
    if (topic === undefined) throw new HttpError(404, "TOPIC_NOT_FOUND");
    return topic;
  }

  /** Carries out a decision and answers once it would survive a crash. */
  async #decide(act: () => void): Promise<Response> {
    const broker = this.#broker;
    if (broker.failure !== null) throw new HttpError(503, "STORAGE_FAULT");
    while (!broker.hasRoom(4096, 4)) await broker.room();
    try {
      act();
      await broker.durableTo(broker.position);
    } catch (error) {
      if (!(error instanceof RefusedError) && broker.failure === null) throw error;
      throw refusal(error);
    }
    return emptyReply();
  }
}

/** nsqd's reading of a flag in a query: everything but these two turns it on. */
function isOn(value: string | undefined): boolean {
  return value !== "false" && value !== "0";
}
