/**
 * Counts requests over HTTP by route, and how long their answers take. A route is known by its pattern,
 * never by the path that was asked for, so that nobody makes series by asking; what is no route counts
 * as {@linkcode OTHER_ROUTE}.
 */
import type { Clock } from "../runtime/mod.ts";
import { Histogram, LATENCY_BOUNDS_SECONDS, type MetricsRegistry } from "../telemetry/mod.ts";

/** Stands for the method and the path of what is no route. */
export const OTHER_ROUTE = "other";

const STATUS_CLASSES = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/** The requests of one route. */
export class RouteMeter {
  /** By class of status. */
  readonly counts = new Float64Array(STATUS_CLASSES.length);
  readonly seconds = new Histogram(LATENCY_BOUNDS_SECONDS);
  readonly #clock: Clock;

  constructor(clock: Clock, readonly method: string, readonly path: string) {
    this.#clock = clock;
  }

  /** Counts what `answer` comes to. A rejection is no answer, and stops the service. */
  async measure(answer: () => Response | Promise<Response>): Promise<Response> {
    const sinceMs = this.#clock.monoMs();
    const response = await answer();
    this.count(response.status, this.#clock.monoMs() - sinceMs);
    return response;
  }

  /** Counts an answer that took so long to begin. */
  count(status: number, tookMs: number): void {
    const index = Math.min(Math.max(Math.floor(status / 100), 1), STATUS_CLASSES.length) - 1;
    this.counts[index]!++;
    this.seconds.observe(tookMs / 1000);
  }
}

/** See the module. */
export class HttpMeter {
  readonly #clock: Clock;
  readonly #routes = new Map<string, RouteMeter>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** The counts of a route, by the pattern of its path. */
  route(method: string, path: string): RouteMeter {
    const key = `${method} ${path}`;
    let route = this.#routes.get(key);
    if (route === undefined) {
      route = new RouteMeter(this.#clock, method, path);
      this.#routes.set(key, route);
    }
    return route;
  }

  /** For what is no route. */
  get other(): RouteMeter {
    return this.route(OTHER_ROUTE, OTHER_ROUTE);
  }

  /** All routes that there are. */
  routes(): Iterable<RouteMeter> {
    return this.#routes.values();
  }
}

/** Registers the metrics of a service's HTTP door; absent when there is no meter. */
export function registerHttpMetrics(
  registry: MetricsRegistry,
  meter: () => HttpMeter | undefined,
): void {
  registry.counter({
    name: "sluice_http_requests_total",
    help: "Requests over HTTP, by route and class of status.",
    labels: ["method", "route", "status"],
  }, (report) => {
    for (const { method, path: route, counts } of meter()?.routes() ?? []) {
      for (const [index, status] of STATUS_CLASSES.entries()) {
        // What a route never says is no series; a success is told of from the beginning.
        if (counts[index]! > 0 || status === "2xx") {
          report({ method, route, status }, counts[index]!);
        }
      }
    }
  });
  registry.histogram({
    name: "sluice_http_request_duration_seconds",
    help: "Time until the answer to a request over HTTP begins, by route.",
    labels: ["method", "route"],
  }, (report) => {
    for (const { method, path: route, seconds } of meter()?.routes() ?? []) {
      if (seconds.count > 0) report({ method, route }, seconds);
    }
  });
}
