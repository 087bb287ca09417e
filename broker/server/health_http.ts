/**
 * `/v1/health` over HTTP: 200 while the broker is of use (`ok`, `degraded`), 503 while it is not
 * (`unavailable`), so that the status alone is a readiness probe. And what a broker that still reads
 * its log answers: it is alive, not ready, and takes no request.
 */
import { errorReply, type HttpRoute, jsonReply, nsqHttp, pingReply } from "@sluice/shared/http";
import type { Logger } from "@sluice/shared/telemetry";
import type { Broker } from "../broker.ts";

type Health = ReturnType<Broker["health"]>;

const PATH = "/v1/health";

/** Whether a request waits for the broker; the state of health is told at once. */
export function isPatient(request: Request): boolean {
  return new URL(request.url).pathname !== PATH;
}

/** The route of a broker that has recovered. */
export function healthRoute(broker: Broker): HttpRoute {
  return {
    method: "GET",
    path: PATH,
    handle: () => healthReply(broker.health()),
  };
}

/** Answers until there is a broker, with the `health` of the moment. */
export function recoveringHttp(
  logger: Logger,
  health: () => Health,
): (request: Request) => Response | Promise<Response> {
  const app = nsqHttp({
    logger,
    routes: [
      { method: "GET", path: "/ping", handle: () => pingReply("OK") },
      {
        method: "GET",
        path: PATH,
        handle: () => healthReply(health()),
      },
    ],
  });
  app.notFound(() => errorReply(503, "RECOVERING", [["Retry-After", "1"]]));
  return (request) => app.fetch(request);
}

function healthReply(health: Health): Response {
  return jsonReply(health, health.status === "unavailable" ? 503 : 200);
}
