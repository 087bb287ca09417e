/**
 * A table of routes as a `fetch`-like handler that keeps the common rules of NSQ's HTTP interface:
 *
 * - an unknown path is 404, a known one with another method (HEAD too) 405 with `Allow`; OPTIONS is
 *   200 with `Allow`; a trailing slash redirects to the path without it;
 * - parameters come from the query string only. A broken query is 400 `INVALID_REQUEST`, but only
 *   for a handler that looks at it, as in nsqd;
 * - a thrown {@linkcode HttpError} is its answer; anything else a handler throws is logged and
 *   answered with 500 `INTERNAL_ERROR`. A broken invariant is passed on to the server instead,
 *   because the service must stop.
 */
import { type Context, Hono } from "hono";
import { InvariantError } from "../runtime/mod.ts";
import type { Logger } from "../telemetry/mod.ts";
import { HttpError } from "./http_error.ts";
import type { HttpMeter } from "./http_meter.ts";
import { parseQuery, type Query } from "./query.ts";
import {
  errorReply,
  methodNotAllowedReply,
  notFoundReply,
  optionsReply,
  redirectReply,
} from "./reply.ts";

/** One request as its handler sees it. */
export interface HttpCall {
  readonly request: Request;
  /** The peer as `host:port`; empty when the caller of the app did not pass it. */
  readonly remoteAddress: string;
  /** The common name of the client's verified certificate; empty without one. */
  readonly certificateName: string;
  /** Parsed at the first look; throws {@linkcode HttpError} when it is broken. */
  readonly query: Query;
  /** The decoded value of `:name` in the route's path. */
  pathParameter(name: string): string;
}

/** A route. `path` is a Hono pattern without a trailing slash. */
export interface HttpRoute {
  readonly method: "GET" | "POST" | "PUT" | "DELETE" | "PATCH";
  readonly path: string;
  readonly handle: (call: HttpCall) => Response | Promise<Response>;
}

/** What a server passes beside the request: `app.fetch(request, bindings)`. */
export interface HttpBindings {
  readonly remoteAddress?: string;
  readonly certificateName?: string;
}

export type NsqHttp = Hono<{ Bindings: HttpBindings }>;
type HttpContext = Context<{ Bindings: HttpBindings }>;

export interface NsqHttpOptions {
  readonly routes: readonly HttpRoute[];
  readonly logger: Logger;
  /** Counts requests by route; nothing is counted without. */
  readonly meter?: HttpMeter | undefined;
  /** What pages of other sites may read; nothing by default. */
  readonly cors?: CorsOptions;
}

/** Cross-origin reading, for GET routes. */
export interface CorsOptions {
  readonly paths: readonly string[];
  /** As browsers send them, `https://console.example`; `*` is everybody. */
  readonly origins: readonly string[];
}

/** Use its `fetch` to serve, its `request` to test. */
export function nsqHttp(options: NsqHttpOptions): NsqHttp {
  const app: NsqHttp = new Hono();
  const logger = options.logger.component("http");
  const other = (response: Response) => {
    options.meter?.other.count(response.status, 0);
    return response;
  };
  const methods = new Map<string, string[]>();
  for (const { method, path } of options.routes) {
    methods.set(path, [...methods.get(path) ?? ["OPTIONS"], method]);
  }
  const allowed = new Map([...methods].map(([path, list]) => [path, list.sort().join(", ")]));

  for (const path of options.cors?.paths ?? []) {
    app.use(path, async (context, next) => {
      await next();
      addCorsHeaders(context.req.raw, context.res.headers, options.cors?.origins ?? []);
    });
  }
  for (const route of options.routes) {
    const allow = allowed.get(route.path) ?? "";
    const counts = options.meter?.route(route.method, route.path);
    app.on(route.method, route.path, (context) => {
      // Hono hands HEAD to the handlers of GET.
      if (context.req.raw.method === "HEAD") return other(methodNotAllowedReply(allow));
      if (counts === undefined) return answer(route, context, logger);
      return counts.measure(() => answer(route, context, logger));
    });
  }
  for (const [path, allow] of allowed) {
    app.all(path, ({ req }) => {
      return other(
        req.raw.method === "OPTIONS" ? optionsReply(allow) : methodNotAllowedReply(allow),
      );
    });
    if (path !== "/") {
      app.all(`${path}/`, ({ req }) => other(redirectReply(req.raw.method, withoutSlash(req.url))));
    }
  }
  app.notFound(() => other(notFoundReply()));
  app.onError((error) => {
    throw error;
  });
  return app;
}

/** Tells the browser that a page of the request's origin may read the answer, if so. */
function addCorsHeaders(request: Request, headers: Headers, origins: readonly string[]): void {
  if (origins.length === 0) return;
  const isForAll = origins.includes("*");
  // A cache must not give one origin the answer to another.
  if (!isForAll) headers.append("Vary", "Origin");
  const origin = request.headers.get("origin");
  if (origin === null || !(isForAll || origins.includes(origin))) return;
  headers.set("Access-Control-Allow-Origin", isForAll ? "*" : origin);
  if (request.method !== "OPTIONS") return;
  headers.set("Access-Control-Allow-Methods", "GET");
  const asked = request.headers.get("access-control-request-headers");
  if (asked !== null) headers.set("Access-Control-Allow-Headers", "Accept, Content-Type");
  headers.set("Access-Control-Max-Age", "600");
}

class RouteCall implements HttpCall {
  readonly #context: HttpContext;
  #query: Query | undefined;

  constructor(context: HttpContext) {
    this.#context = context;
  }

  /** Undefined when the app is called with a request alone. */
  get #bindings(): HttpBindings | undefined {
    return this.#context.env;
  }

  get request(): Request {
    return this.#context.req.raw;
  }

  get remoteAddress(): string {
    return this.#bindings?.remoteAddress ?? "";
  }

  get certificateName(): string {
    return this.#bindings?.certificateName ?? "";
  }

  get query(): Query {
    this.#query ??= parseQuery(this.#context.req.url) ?? invalidRequest();
    return this.#query;
  }

  pathParameter(name: string): string {
    return this.#context.req.param(name) ?? "";
  }
}

async function answer(
  route: HttpRoute,
  context: HttpContext,
  logger: Logger,
): Promise<Response> {
  try {
    return await route.handle(new RouteCall(context));
  } catch (error) {
    if (error instanceof HttpError) return errorReply(error.status, error.code);
    if (error instanceof InvariantError) throw error;
    const cause = error instanceof Error ? error : String(error);
    logger.error("an HTTP handler failed", { method: route.method, path: route.path, cause });
    return errorReply(500, "INTERNAL_ERROR");
  }
}

function invalidRequest(): never {
  throw new HttpError(400, "INVALID_REQUEST");
}

/**
 * The path and query of an absolute URL, with the slash at the end of its path dropped. The URL is not
 * parsed: with what a peer may put into its `Host` header it need not be one.
 */
function withoutSlash(url: string): string {
  const start = url.indexOf("/", url.indexOf("://") + "://".length);
  const [target = ""] = url.slice(start).split("#");
  return target.replace(/\/(?=\?|$)/, "");
}
