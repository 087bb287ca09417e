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
import { HttpError, type HttpRoute, jsonReply, readBody } from "@sluice/shared/http";
import { DiskError } from "@sluice/shared/runtime";
import type { Broker } from "../broker.ts";

const PATH = "/v1/drain";
const BODY_BYTES_MAX = 2048;
/** How long a peer may take to send so little. */
const BODY_TIMEOUT_MS = 10_000;
const FIELDS = ["enabled", "freeze_deliveries"];

/** The routes, for the door of a broker. */
export function drainRoutes(broker: Broker): HttpRoute[] {
  return [
    { method: "GET", path: PATH, handle: () => jsonReply(broker.drainReport()) },
    { method: "POST", path: PATH, handle: ({ request }) => change(broker, request) },
  ];
}

async function change(broker: Broker, request: Request): Promise<Response> {
  const wanted = await readWanted(broker, request);
  if (typeof wanted === "string") {
    return jsonReply({ message: "INVALID_DRAIN", detail: wanted }, 400);
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

/** What a body asks for, or what is wrong with it. */
async function readWanted(
  broker: Broker,
  request: Request,
): Promise<{ readonly enabled: boolean; readonly freeze: boolean } | string> {
  const late = new AbortController();
  const timer = broker.clock.setTimer(BODY_TIMEOUT_MS, () => late.abort());
  const body = await readBody(request, BODY_BYTES_MAX, late.signal);
  timer.cancel();
  if (body.kind === "too_large") throw new HttpError(413, "BODY_TOO_BIG");
  if (body.kind === "cut") throw new HttpError(408, "BODY_INCOMPLETE");
  let value: unknown;
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(body.bytes);
    value = text.trim() === "" ? {} : JSON.parse(text);
  } catch {
    return "the body is not JSON";
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    return "the body is not a JSON object";
  }
  for (const [name, given] of Object.entries(value)) {
    if (!FIELDS.includes(name)) {
      return `there is no field ${JSON.stringify(name)}; there are: ${FIELDS.join(", ")}`;
    }
    if (typeof given !== "boolean") return `${name} is true or false`;
  }
  const { enabled = true, freeze_deliveries: freeze = false } = value as {
    enabled?: boolean;
    freeze_deliveries?: boolean;
  };
  if (freeze && !enabled) return "freeze_deliveries is for a broker that drains";
  return { enabled, freeze };
}
