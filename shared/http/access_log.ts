/**
 * A line at debug for each request over HTTP: the route, the status, how long it took, who asked.
 *
 * The line has the route's pattern rather than the URL, since a query may hold what is nobody's
 * business; a path that matches none is told as `none`. While debug is off it costs one look at the
 * level.
 */
import type { Clock, ServeHttpOptions } from "../runtime/mod.ts";
import type { Logger } from "../telemetry/mod.ts";

type HttpHandler = ServeHttpOptions["handler"];

/** What the log of requests stands on. */
export interface AccessLogSeams {
  readonly clock: Pick<Clock, "monoMs">;
  readonly logger: Logger;
}

/** Has `handler` answer, and the log tell. `routes` are written `GET /topic/:name`. */
export function withAccessLog(
  handler: HttpHandler,
  routes: readonly string[],
  { clock, logger: parent }: AccessLogSeams,
): HttpHandler {
  const logger = parent.component("http");
  const patterns = [...new Set(routes.map((route) => route.slice(route.indexOf(" ") + 1)))]
    .map((pattern) => ({ pattern, segments: pattern.split("/") }));
  const routeOf = (path: string) => {
    const given = path.split("/");
    const found = patterns.find(({ segments }) =>
      segments.length === given.length &&
      segments.every((segment, index) => segment.startsWith(":") || segment === given[index])
    );
    return found?.pattern ?? "none";
  };
  return async (request, remoteAddress, ...rest) => {
    if (!logger.isWritten("debug")) return await handler(request, remoteAddress, ...rest);
    const startedMs = clock.monoMs();
    const response = await handler(request, remoteAddress, ...rest);
    logger.debug("HTTP request", {
      method: request.method,
      route: routeOf(pathOf(request.url)),
      status: response.status,
      duration_ms: Math.round((clock.monoMs() - startedMs) * 1000) / 1000,
      client: remoteAddress,
    });
    return response;
  };
}

/** The path of a URL, without parsing it: what a peer has sent need not be one. */
function pathOf(url: string): string {
  const start = url.indexOf("/", url.indexOf("://") + "://".length);
  return url.slice(start).split(/[?#]/, 1)[0] ?? "";
}
