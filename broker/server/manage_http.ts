/**
 * Management over HTTP: `POST /v1/manage/topics/{action}`, `POST /v1/manage/channels/{action}`, and `GET
 * /v1/manage/tombstones`.
 *
 * ```
 * post    {"operation_id":"...","topic":"t","expected_revision":7,"expected_instance":"..."}
 * answer  {"operation_id":"...","instance":"...","revision":8,"changed":true,"repeated":false}
 * ```
 *
 * Everything but `topic` (and `channel`) may be left out. See `manage.ts` for what a repeat gets. A body that
 * is not right is 400 `INVALID_OPERATION` with the reason in `detail`; a registry that has changed is 409
 * `REVISION_CONFLICT` with where it is now.
 */
import { HttpError, type HttpRoute, jsonReply } from "@sluice/shared/http";
import { isValidName } from "@sluice/shared/protocol";
import {
  type Broker,
  CHANNEL_ACTIONS,
  ManageError,
  type ManageRequest,
  TOMBSTONE_MS_MAX,
  TOMBSTONES_MAX,
  TOPIC_ACTIONS,
  type TopicPolicy,
} from "../broker.ts";
import { refusal } from "./http_refusal.ts";
import {
  FieldError,
  integerField,
  type JsonObject,
  readJsonObject,
  textField,
} from "./json_body.ts";
import type { RegistryRevision } from "./registry_http.ts";
import { policyRefusal } from "./topic_policy_http.ts";

const FIELDS = ["operation_id", "topic", "expected_revision", "expected_instance"];
const TOPIC_FIELDS = [...FIELDS, "policy", "tombstone_ms"];
const CHANNEL_FIELDS = [...FIELDS, "channel", "tombstone_ms"];
const ID_REGEXP = /^[A-Za-z0-9_-]{16,128}$/;
const INSTANCE_REGEXP = /^[0-9a-f]{16}$/;

/** The routes, for the door of a broker whose registry `revision` counts. */
export function manageRoutes(broker: Broker, revision: RegistryRevision): HttpRoute[] {
  return [
    {
      method: "POST",
      path: "/v1/manage/topics/:action",
      handle: (call) => manage(broker, revision, call.pathParameter("action"), false, call.request),
    },
    {
      method: "POST",
      path: "/v1/manage/channels/:action",
      handle: (call) => manage(broker, revision, call.pathParameter("action"), true, call.request),
    },
    { method: "GET", path: "/v1/manage/tombstones", handle: () => tombstones(broker) },
  ];
}

function tombstones({ administration }: Broker): Response {
  return jsonReply({
    limit: TOMBSTONES_MAX,
    tombstones: administration.tombstones.all().map(({ topic, channel, untilMs }) => ({
      topic,
      channel,
      until_ms: untilMs,
    })),
  });
}

async function manage(
  broker: Broker,
  revision: RegistryRevision,
  action: string,
  isOfChannel: boolean,
  request: Request,
): Promise<Response> {
  const actions: readonly string[] = isOfChannel ? CHANNEL_ACTIONS : TOPIC_ACTIONS;
  if (!actions.includes(action)) {
    await request.body?.cancel();
    throw new HttpError(400, "UNKNOWN_ACTION");
  }
  const place = () => ({ instance: revision.instance, revision: revision.revision });
  try {
    const fields = isOfChannel ? CHANNEL_FIELDS : TOPIC_FIELDS;
    const body = await readJsonObject(broker.clock, request, fields);
    const asked = requestOf(action as ManageRequest["action"], body, isOfChannel);
    const { changed, repeated, ...at } = await broker.management.run(asked, place);
    return jsonReply({ operation_id: asked.operationId, ...at, changed, repeated });
  } catch (error) {
    if (error instanceof HttpError) throw error;
    if (error instanceof FieldError) {
      return jsonReply({ message: "INVALID_OPERATION", detail: error.message }, 400);
    }
    if (error instanceof ManageError) return refused(error, place());
    throw refusal(error);
  }
}

/** Judges a body. Throws {@linkcode FieldError}. */
function requestOf(
  action: ManageRequest["action"],
  body: JsonObject,
  isOfChannel: boolean,
): ManageRequest {
  const tombstoneMs = integerField(body, "tombstone_ms", 0, TOMBSTONE_MS_MAX);
  if (action === "tombstone" && tombstoneMs === null) {
    throw new FieldError("tombstone_ms is needed: how long the name is kept away, 0 for no longer");
  }
  if (action !== "tombstone" && action !== "delete" && tombstoneMs !== null) {
    throw new FieldError("tombstone_ms is for delete and tombstone");
  }
  return {
    action,
    topic: nameField(body, "topic"),
    channel: isOfChannel ? nameField(body, "channel") : null,
    operationId: textField(
      body,
      "operation_id",
      ID_REGEXP,
      "16 to 128 characters of A-Z, a-z, 0-9, _ and -",
    ),
    expectedRevision: integerField(body, "expected_revision", 0, Number.MAX_SAFE_INTEGER),
    expectedInstance: textField(
      body,
      "expected_instance",
      INSTANCE_REGEXP,
      "the instance of a registry: 16 hexadecimal digits",
    ),
    policy: policyOf(action, body),
    tombstoneMs,
  };
}

function nameField(body: JsonObject, field: string): string {
  const value = body[field];
  if (typeof value === "string" && isValidName(value)) return value;
  throw new FieldError(`${field} is the name of a ${field}`);
}

function policyOf(action: string, body: JsonObject): TopicPolicy | null {
  const value = body["policy"] ?? null;
  if (value === null) {
    if (action === "configure") throw new FieldError("policy is needed");
    return null;
  }
  if (action !== "configure" && action !== "create") {
    throw new FieldError("policy is for create and configure");
  }
  const reason = policyRefusal(value);
  if (reason !== null) throw new FieldError(`policy: ${reason}`);
  return value as TopicPolicy;
}

function refused(
  error: ManageError,
  { instance, revision }: { readonly instance: string; readonly revision: number },
): Response {
  switch (error.code) {
    case "operation_conflict":
      return jsonReply({ message: "OPERATION_CONFLICT" }, 409);
    case "revision_conflict":
      return jsonReply({ message: "REVISION_CONFLICT", instance, revision }, 409);
    case "topic_not_found":
      return jsonReply({ message: "TOPIC_NOT_FOUND" }, 404);
    case "channel_not_found":
      return jsonReply({ message: "CHANNEL_NOT_FOUND" }, 404);
    case "too_many_operations":
      return jsonReply({ message: "TOO_MANY_OPERATIONS" }, 429);
    case "too_many_tombstones":
      return jsonReply({ message: "TOO_MANY_TOMBSTONES" }, 429);
    case "storage_fault":
      return jsonReply({ message: "STORAGE_FAULT", detail: error.message }, 503);
  }
}
