/**
 * `GET` and `POST /v1/drain`: whether the broker drains, and how far it has come; see `drain.ts`.
 *
 * ```
 * post    {"enabled":true,"freeze_deliveries":false}      what is left out is as here
 * answer  {"draining":true,"delivery_frozen":false,"quiesced":false,"empty":false,"since":"...",
 *          "depth":1,"in_flight":0,"deferred":0,"publish_bytes":0,"delivery_bytes":0}
 * ```
 *
 * A `POST` answers once the decision would survive a crash and holds. A body that is not right is 400
 * `INVALID_DRAIN` with the reason in `detail`, and changes nothing; nor does one that cannot be kept: 503
 * `STORAGE_FAULT`. Doing what is done already is fine.
 */
import { HttpError, type HttpRoute, jsonReply } from "@sluice/shared/http";
import { DiskError } from "@sluice/shared/runtime";
import type { Broker } from "../broker.ts";
import { FieldError, readJsonObject } from "./json_body.ts";

const PATH = "/v1/drain";
const FIELDS = ["enabled", "freeze_deliveries"];

interface Wanted {
  readonly enabled: boolean;
  readonly freeze: boolean;
}

/** The routes, for the door of a broker. */
export function drainRoutes(broker: Broker): HttpRoute[] {
  return [
    { method: "GET", path: PATH, handle: () => jsonReply(broker.drainReport()) },
    { method: "POST", path: PATH, handle: ({ request }) => change(broker, request) },
  ];
}

async function change(broker: Broker, request: Request): Promise<Response> {
  let wanted: Wanted;
  try {
    wanted = await readWanted(broker, request);
  } catch (error) {
    if (!(error instanceof FieldError)) throw error;
    return jsonReply({ message: "INVALID_DRAIN", detail: error.message }, 400);
  }
  if (broker.exiting) throw new HttpError(503, "EXITING");
  try {
    await broker.drain.set(wanted.enabled, wanted.freeze);
  } catch (error) {
    if (!(error instanceof DiskError)) throw error;
    broker.logger.error("Cannot keep the decision to drain; nothing has changed", {
      error: String(error),
    });
    throw new HttpError(503, "STORAGE_FAULT");
  }
  return jsonReply(broker.drainReport());
}

/** What a body asks for; throws {@linkcode FieldError} for what is wrong with it. */
async function readWanted(broker: Broker, request: Request): Promise<Wanted> {
  const object = await readJsonObject(broker.clock, request, FIELDS);
  for (const [name, given] of Object.entries(object)) {
    if (typeof given !== "boolean") throw new FieldError(`${name} is true or false`);
  }
  const { enabled = true, freeze_deliveries: freeze = false } = object as {
    enabled?: boolean;
    freeze_deliveries?: boolean;
  };
  if (freeze && !enabled) throw new FieldError("freeze_deliveries is for a broker that drains");
  return { enabled, freeze };
}
