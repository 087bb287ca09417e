/**
 * The HTTP door of the gateway: publishing, probes, statistics, metrics, and the quarantine of the
 * spool. Nothing administrative is forwarded to brokers: what is not here is 404.
 */
import {
  errorReply,
  HttpError,
  type HttpMeter,
  type HttpRoute,
  jsonReply,
  nsqHttp,
  pingReply,
  type Query,
  textReply,
} from "@sluice/shared/http";
import { type Clock, REPORTED_VERSION } from "@sluice/shared/runtime";
import {
  HttpAccess,
  type HttpAuthorization,
  type HttpHandler,
  type HttpPeer,
  type RouteNeed,
  type RouteRules,
} from "@sluice/shared/server";
import { type Logger, METRICS_CONTENT_TYPE, type MetricsRegistry } from "@sluice/shared/telemetry";
import { type Health, startingHealth } from "./health.ts";
import {
  HttpPublisher,
  type HttpPublisherOptions,
  type HttpPublisherSeams,
} from "./http_publish.ts";
import { quarantineRoutes } from "./quarantine_http.ts";
import type { Spool } from "./spool/mod.ts";
import type { GatewayStats } from "./stats.ts";

/** What `/info` says, and limits of publishing. */
export interface GatewayHttpOptions extends HttpPublisherOptions {
  readonly hostname: string;
  readonly broadcastAddress: string;
  readonly tcpPort: () => number;
  readonly httpPort: () => number;
  readonly startWallMs: number;
  readonly authorization: HttpAuthorization;
}

/** What it stands on. */
export interface GatewayHttpSeams extends HttpPublisherSeams {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly metrics: MetricsRegistry;
  /** Counts requests by route. */
  readonly meter: HttpMeter;
  readonly spool: Spool | null;
  readonly health: () => Health;
  readonly stats: () => GatewayStats;
}

const READ: RouteNeed = { scope: "read", on: "node" };
const ADMIN: RouteNeed = { scope: "admin", on: "node" };
const PUBLISH: RouteNeed = { scope: "publish", on: "topic" };

/** Who may use which route. */
export const GATEWAY_ROUTE_RULES: RouteRules = {
  "GET /ping": "open",
  "GET /v1/health": "open",
  "GET /info": READ,
  "GET /stats": READ,
  "GET /metrics": READ,
  "POST /pub": PUBLISH,
  "POST /mpub": PUBLISH,
  "GET /v1/quarantine": READ,
  "GET /v1/quarantine/:id/body": ADMIN,
  "POST /v1/quarantine/:id/retry": ADMIN,
  "DELETE /v1/quarantine/:id": ADMIN,
};

/** Makes the handler of the HTTP listeners. */
export function gatewayHttp(options: GatewayHttpOptions, seams: GatewayHttpSeams): HttpHandler {
  const publisher = new HttpPublisher(options, seams);
  const access = new HttpAccess(options.authorization, seams, GATEWAY_ROUTE_RULES);
  const app = nsqHttp({
    logger: seams.logger,
    meter: seams.meter,
    routes: gatewayRoutes(options, seams, publisher).map((route) => access.guarded(route)),
  });
  const permitted = async (
    request: Request,
    peer: HttpPeer,
    publish: () => Promise<Response>,
  ) => await access.refusePublish(request, peer) ?? await publish();
  const pub = seams.meter.route("POST", "/pub");
  const mpub = seams.meter.route("POST", "/mpub");
  return (request, remoteAddress, certificateName = "") => {
    const peer = { remoteAddress, certificateName };
    if (request.method === "POST") {
      // The two paths that have to be fast go around the router.
      const path = pathOf(request.url);
      if (path === "/pub") {
        return pub.measure(() => {
          if (access.isOpen) return publisher.publish(request);
          return permitted(request, peer, () => publisher.publish(request));
        });
      }
      if (path === "/mpub") {
        return mpub.measure(() => {
          if (access.isOpen) return publisher.publishMany(request);
          return permitted(request, peer, () => publisher.publishMany(request));
        });
      }
    }
    return app.fetch(request, peer);
  };
}

/** Whether a request that comes before the gateway is there waits for it a moment; probes do not. */
export function isPatient(request: Request): boolean {
  const path = pathOf(request.url);
  return path !== "/v1/health" && path !== "/ping";
}

/** Answers until the spool is open: the process is alive, and takes no publishes yet. */
export function startingHttp(logger: Logger): HttpHandler {
  const app = nsqHttp({
    logger,
    routes: [
      { method: "GET", path: "/ping", handle: () => pingReply("OK") },
      { method: "GET", path: "/v1/health", handle: () => jsonReply(startingHealth(), 503) },
    ],
  });
  app.notFound(() => errorReply(503, "STARTING", [["Retry-After", "1"]]));
  return (request) => app.fetch(request);
}

/** Every route there is. */
export function gatewayRoutes(
  options: GatewayHttpOptions,
  seams: GatewayHttpSeams,
  publisher: HttpPublisher,
): HttpRoute[] {
  return [
    { method: "GET", path: "/ping", handle: () => pingReply("OK") },
    { method: "GET", path: "/info", handle: () => info(options) },
    { method: "GET", path: "/stats", handle: ({ query }) => stats(query, options, seams) },
    {
      method: "GET",
      path: "/v1/health",
      handle: () => {
        const health = seams.health();
        return jsonReply(health, health.status === "unavailable" ? 503 : 200);
      },
    },
    {
      method: "GET",
      path: "/metrics",
      handle: async () =>
        new Response(await seams.metrics.text(), {
          headers: { "Content-Type": METRICS_CONTENT_TYPE },
        }),
    },
    { method: "POST", path: "/pub", handle: ({ request }) => publisher.publish(request) },
    { method: "POST", path: "/mpub", handle: ({ request }) => publisher.publishMany(request) },
    ...quarantineRoutes(seams.spool, (publish) => seams.publisher.spoolAnew(publish)),
  ];
}

/** The path of an absolute URL, without parsing all of it. */
function pathOf(url: string): string {
  const start = url.indexOf("/", url.indexOf("://") + 3);
  const end = url.indexOf("?", start);
  return end < 0 ? url.slice(start) : url.slice(start, end);
}

function info(options: GatewayHttpOptions): Response {
  return jsonReply({
    version: REPORTED_VERSION,
    broadcast_address: options.broadcastAddress,
    hostname: options.hostname,
    http_port: options.httpPort(),
    tcp_port: options.tcpPort(),
    start_time: Math.floor(options.startWallMs / 1000),
  });
}

function stats(query: Query, options: GatewayHttpOptions, seams: GatewayHttpSeams): Response {
  const health = seams.health();
  const gateway = seams.stats();
  const format = query.get("format") ?? "text";
  if (format !== "json" && format !== "text") throw new HttpError(400, "INVALID_REQUEST");
  if (format === "json") {
    return jsonReply({
      version: REPORTED_VERSION,
      health: health.status === "ok" ? "OK" : `NOK - ${health.reasons[0]?.message ?? ""}`,
      start_time: Math.floor(options.startWallMs / 1000),
      // No gateway has topics; NSQ's tools find the keys they expect.
      topics: [],
      producers: null,
      gateway,
    });
  }
  const lines = [
    `sluice-gateway v${REPORTED_VERSION}`,
    `Health: ${health.status}${health.reasons.map(({ message }) => `\n  ${message}`).join("")}`,
    "",
    "Brokers:",
    ...gateway.brokers.map((broker) =>
      `  ${broker.id.padEnd(30)} ${broker.usable ? "usable" : "not used"} ` +
      `outstanding: ${broker.outstanding} confirmed: ${broker.confirmed}` +
      (broker.reason === "" ? "" : ` (${broker.reason})`)
    ),
    "",
    `Publishes: ${JSON.stringify(gateway.publishes)}`,
    `Spool: ${JSON.stringify(gateway.spool)}`,
    "",
  ];
  return textReply(lines.join("\n"));
}
