/** Management, for the description of the HTTP API. */
import type { Operation, Operations } from "./openapi_operation.ts";
import { POLICY_CHANGES } from "./openapi_node.ts";
import {
  array,
  BOOLEAN,
  INTEGER,
  nullable,
  object,
  type Schema,
  TEXT,
  told,
} from "./openapi_schema.ts";

const OPERATION_FIELDS = {
  topic: TEXT,
  operation_id: told("A repeat with the same id gets the first answer.", {
    type: "string",
    pattern: "^[A-Za-z0-9_-]{16,128}$",
  }),
  expected_revision: told("Refused when the registry is at another one.", INTEGER),
  expected_instance: told("Refused in another start of the broker.", TEXT),
  tombstone_ms: told(
    "For `delete` and `tombstone`: the name is not made again for so long; 0 ends that.",
    INTEGER,
  ),
};
const OPTIONAL = ["operation_id", "expected_revision", "expected_instance", "tombstone_ms"];

const ANSWER: Schema = object({
  operation_id: nullable(TEXT),
  instance: TEXT,
  revision: told("Of the registry, after the operation.", INTEGER),
  changed: told("Whether anything is different now.", BOOLEAN),
  repeated: told("Whether it is the answer of an earlier request with the id.", BOOLEAN),
});

const CONFLICT: Schema = object({
  message: told(
    "`REVISION_CONFLICT`, `OPERATION_CONFLICT`: the id is another request's, or `TOMBSTONED`.",
    TEXT,
  ),
  instance: told("Of the registry now, with `REVISION_CONFLICT`.", TEXT),
  revision: told("Of the registry now, with `REVISION_CONFLICT`.", INTEGER),
}, ["instance", "revision"]);

function managed(summary: string, description: string, body: Schema): Operation {
  return {
    summary,
    description,
    body,
    answers: {
      200: { description: "Done, or done before; and on disk.", schema: ANSWER },
      409: { description: "Nothing was done.", schema: CONFLICT },
    },
    refusals: {
      400: ["UNKNOWN_ACTION", "INVALID_OPERATION"],
      404: ["TOPIC_NOT_FOUND", "CHANNEL_NOT_FOUND"],
      408: ["BODY_INCOMPLETE"],
      413: ["BODY_TOO_BIG"],
      429: [
        "TOO_MANY_TOPICS",
        "TOO_MANY_CHANNELS",
        "TOO_MANY_OPERATIONS",
        "TOO_MANY_TOMBSTONES",
      ],
      503: ["STORAGE_FAULT", "EXITING"],
    },
  };
}

/** See the module. */
export const MANAGE_OPERATIONS: Operations = {
  "POST /v1/manage/topics/:action": managed(
    "Makes, configures, pauses, empties or deletes a topic, in a way that can be repeated.",
    "`action` is `create`, `configure`, `pause`, `unpause`, `empty`, `delete` or `tombstone`.",
    object({ ...OPERATION_FIELDS, policy: POLICY_CHANGES }, [...OPTIONAL, "policy"]),
  ),
  "POST /v1/manage/channels/:action": managed(
    "Makes, pauses, empties or deletes a channel, in a way that can be repeated.",
    "`action` is `create`, `pause`, `unpause`, `empty`, `delete` or `tombstone`.",
    object({ ...OPERATION_FIELDS, channel: TEXT }, OPTIONAL),
  ),
  "GET /v1/manage/tombstones": {
    summary: "The names that are not made again for now.",
    answers: {
      200: {
        description: "The names; `channel` is null for a whole topic.",
        schema: object({
          limit: INTEGER,
          tombstones: array(
            object({ topic: TEXT, channel: nullable(TEXT), until_ms: INTEGER }),
          ),
        }),
      },
    },
  },
};
