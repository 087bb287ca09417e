/**
 * `/v1/health` over HTTP: 200 while the broker is of use (`ok`, `degraded`), 503 while it is not
 * (`unavailable`), so that the status alone is a readiness probe. And what a broker that still reads
 * its log answers: it is alive, not ready, and takes no request.
 *
 * With `?probe=write` one record goes through the log first, see `write_probe.ts`: the answer has its
 * duration, and is 503 when it did not go well. 429 `TOO_MANY_PROBES` when it is asked for too often. That
 * costs something, so it may need a token where a look does not.
 */
import {
  errorReply,
  type HttpCall,
  type HttpRoute,
  jsonReply,
  nsqHttp,
  pingReply,
} from "@sluice/shared/http";
import type { Logger } from "@sluice/shared/telemetry";
import type { Broker } from "../broker.ts";

type Health = ReturnType<Broker["health"]>;

const PATH = "/v1/health";
/** Only for the table of who may do what. */
export const PROBE_PATH = `${PATH}?probe=write`;

/** Whether a request waits for the broker; the state of health is told at once. */
export function isPatient(request: Request): boolean {
  return new URL(request.url).pathname !== PATH;
}

/** The route of a broker that has recovered; `guarded` has the rule of the probe kept to. */
export function healthRoute(
  broker: Broker,
  guarded: (route: HttpRoute) => HttpRoute = (route) => route,
): HttpRoute {
  const { handle: probe } = guarded({
    method: "GET",
    path: PROBE_PATH,
    handle: () => probeReply(broker),
  });
  return {
    method: "GET",
    path: PATH,
    handle: (call: HttpCall) => {
      const asked = call.query.get("probe");
      if (asked === undefined) return healthReply(broker.health());
      return asked === "write" ? probe(call) : errorReply(400, "INVALID_PROBE");
    },
  };
}

async function probeReply(broker: Broker): Promise<Response> {
  const health = await broker.probeHealth();
  if (health === null) return errorReply(429, "TOO_MANY_PROBES", [["Retry-After", "1"]]);
  return healthReply(health);
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
