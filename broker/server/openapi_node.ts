/** The native routes about the broker as a whole, for the description of the HTTP API. */
import type { Operations } from "./openapi_operation.ts";
import {
  array,
  BOOLEAN,
  choice,
  INTEGER,
  map,
  nullable,
  object,
  reference,
  type Schema,
  TEXT,
} from "./openapi_schema.ts";

/** A policy as it is put: what is named is changed, null is the broker's setting. */
export const POLICY_CHANGES: Schema = object({
  ack_mode: nullable(TEXT),
  quota_bytes: nullable(INTEGER),
  quota_action: nullable(TEXT),
  publish_rate: nullable(INTEGER),
  publish_bytes_rate: nullable(INTEGER),
}, ["ack_mode", "quota_bytes", "quota_action", "publish_rate", "publish_bytes_rate"]);

/** What differs from the settings of the broker, and what holds. */
export const POLICY_FIELDS = {
  ack_mode: nullable(TEXT),
  quota_bytes: nullable(INTEGER),
  quota_action: nullable(TEXT),
  publish_rate: nullable(INTEGER),
  publish_bytes_rate: nullable(INTEGER),
  effective: object({
    ack_mode: TEXT,
    quota_bytes: INTEGER,
    quota_action: TEXT,
    publish_rate: INTEGER,
    publish_bytes_rate: INTEGER,
  }),
};

const POLICY: Schema = object({ ...POLICY_FIELDS, held_bytes: INTEGER });

/** See the module. */
export const NODE_OPERATIONS: Operations = {
  "GET /v1/health": {
    summary: "Readiness, and why not.",
    query: {
      probe: {
        schema: choice(["write"]),
        description: "Write a record that means nothing first, and tell how long that took.",
      },
    },
    answers: {
      200: { description: "The broker is of use.", schema: reference("Health") },
      503: { description: "It is of none now.", schema: reference("Health") },
    },
    refusals: { 400: ["INVALID_PROBE"], 429: ["TOO_MANY_PROBES"] },
  },
  "GET /v1/drain": {
    summary: "Whether the broker drains, and how far it has come.",
    answers: { 200: { description: "What is left.", schema: reference("Drain") } },
  },
  "POST /v1/drain": {
    summary: "Has the broker drain, or not any more.",
    body: object(
      { enabled: BOOLEAN, freeze_deliveries: BOOLEAN },
      ["enabled", "freeze_deliveries"],
    ),
    answers: { 200: { description: "It holds, and is on disk.", schema: reference("Drain") } },
    refusals: {
      400: ["INVALID_DRAIN"],
      408: ["BODY_INCOMPLETE"],
      413: ["BODY_TOO_BIG"],
      503: ["STORAGE_FAULT", "EXITING"],
    },
  },
  "POST /v1/reload": {
    summary: "Reads the settings and the files they name again.",
    answers: {
      200: {
        description: "What can change is in use.",
        schema: object({
          changed: array(object({ name: TEXT, before: TEXT, after: TEXT, origin: TEXT })),
          needs_restart: array(object({ name: TEXT, in_use: TEXT, configured: TEXT })),
          files: array(
            object(
              {
                setting: TEXT,
                path: TEXT,
                outcome: choice(["changed", "unchanged", "refused"]),
                reason: TEXT,
              },
              ["reason"],
            ),
          ),
        }),
      },
      422: {
        description: "They are wrong; nothing has changed.",
        schema: object({ message: choice(["INVALID_SETTINGS"]), problems: array(TEXT) }),
      },
    },
  },
  "GET /v1/openapi.json": {
    summary: "This description.",
    answers: {
      200: {
        description: "An OpenAPI 3.1 document.",
        schema: object({
          openapi: choice(["3.1.0"]),
          info: map({}),
          paths: map({}),
          components: map({}),
        }),
      },
    },
  },
  "GET /v1/capabilities": {
    summary: "What the broker can do, its limits, and the levels of its data folder.",
    answers: { 200: { description: "What it can do.", schema: reference("Capabilities") } },
  },
  "GET /v1/registry/head": {
    summary: "Readiness, and a number that is new when topics or channels come or go.",
    answers: { 200: { description: "The head.", schema: reference("RegistryHead") } },
  },
  "GET /v1/registry": {
    summary: "The topics and channels there are.",
    answers: { 200: { description: "Sorted by name.", schema: reference("Registry") } },
  },
  "GET /v1/storage/scrub": {
    summary: "What reading the log through for damage has found.",
    answers: { 200: { description: "What was found.", schema: reference("Scrub") } },
  },
  "POST /v1/storage/scrub": {
    summary: "Has the log read through for damage.",
    answers: {
      200: { description: "That is under way.", schema: reference("Scrub") },
      202: { description: "It begins.", schema: reference("Scrub") },
    },
    refusals: { 503: ["EXITING"] },
  },
  "GET /v1/topics/:topic/policy": {
    summary: "What is decided for a topic alone.",
    answers: { 200: { description: "The policy, and what holds.", schema: POLICY } },
    refusals: { 400: ["INVALID_TOPIC"], 404: ["TOPIC_NOT_FOUND"] },
  },
  "PUT /v1/topics/:topic/policy": {
    summary: "Decides for a topic alone.",
    body: POLICY_CHANGES,
    answers: { 200: { description: "The policy, and what holds.", schema: POLICY } },
    refusals: {
      400: ["INVALID_TOPIC", "INVALID_POLICY"],
      404: ["TOPIC_NOT_FOUND"],
      408: ["BODY_INCOMPLETE"],
      413: ["BODY_TOO_BIG"],
      503: ["STORAGE_FAULT", "EXITING"],
    },
  },
};
