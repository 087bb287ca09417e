/** Single messages of a channel, and the log level, for the description of the HTTP API. */
import type { Operations } from "./openapi_operation.ts";
import {
  array,
  BOOLEAN,
  choice,
  INTEGER,
  nullable,
  object,
  type Schema,
  TEXT,
  told,
} from "./openapi_schema.ts";

const MESSAGE = {
  id: TEXT,
  offset: INTEGER,
  state: choice(["ready", "in_flight", "deferred"]),
  attempts: INTEGER,
  due_ms: nullable(INTEGER),
  timestamp_ms: told("When it was published.", INTEGER),
  body_bytes: told("Of all of the body.", INTEGER),
};

const PEEKED: Schema = object({
  messages: array(object({
    ...MESSAGE,
    body: TEXT,
    encoding: choice(["text", "base64"]),
    truncated: told("The body is longer.", BOOLEAN),
  })),
  next: told("The offset to go on from; null at the end.", nullable(INTEGER)),
});

const LOG_LEVEL: Schema = object({
  level: TEXT,
  until_ms: told("When it goes back by itself; null when it does not.", nullable(INTEGER)),
  then: told("What it goes back to.", nullable(TEXT)),
});

const NAMES = ["INVALID_TOPIC", "INVALID_CHANNEL"];
const MISSING = ["TOPIC_NOT_FOUND", "CHANNEL_NOT_FOUND"];
const COUNT = { description: "The most messages.", schema: INTEGER };
const CHANNEL = "/v1/topics/:topic/channels/:channel";

/** See the module. */
export const MESSAGE_OPERATIONS: Operations = {
  [`GET ${CHANNEL}/peek`]: {
    summary: "Shows messages of a channel, which nobody loses by that.",
    query: {
      count: COUNT,
      from: { description: "The first offset to look at.", schema: INTEGER },
    },
    answers: { 200: { description: "Unfinished messages, by offset.", schema: PEEKED } },
    refusals: { 400: [...NAMES, "INVALID_COUNT", "INVALID_FROM"], 404: MISSING },
  },
  [`GET ${CHANNEL}/deferred`]: {
    summary: "Lists the deferred messages of a channel, the first due first.",
    query: { count: COUNT },
    answers: {
      200: {
        description: "The first of them.",
        schema: object({ deferred_count: INTEGER, messages: array(object(MESSAGE)) }),
      },
    },
    refusals: { 400: [...NAMES, "INVALID_COUNT"], 404: MISSING },
  },
  [`DELETE ${CHANNEL}/deferred/:id`]: {
    summary: "Finishes a deferred message before it is due.",
    answers: {
      200: {
        description: "It is finished, and that is on disk.",
        schema: object({ id: TEXT, cancelled: BOOLEAN }),
      },
    },
    refusals: {
      400: [...NAMES, "INVALID_ID"],
      404: [...MISSING, "MESSAGE_NOT_FOUND"],
      409: ["NOT_DEFERRED"],
      503: ["STORAGE_FAULT", "EXITING"],
    },
  },
  [`POST ${CHANNEL}/move`]: {
    summary: "Moves messages that wait in a channel to another topic.",
    description:
      "At least once: published and on disk there before it is finished here. Repeated " +
      "until `complete`.",
    body: object({ to_topic: TEXT, count: INTEGER }, ["count"]),
    answers: {
      200: {
        description: "How far it came.",
        schema: object({
          moved: INTEGER,
          moved_bytes: INTEGER,
          damaged: told("Passed over because they cannot be read.", INTEGER),
          remaining: told("Messages that wait.", INTEGER),
          complete: told("Nothing waits any more.", BOOLEAN),
          stopped: told("The code of what ended it early.", nullable(TEXT)),
        }),
      },
    },
    refusals: {
      400: [...NAMES, "INVALID_MOVE"],
      404: MISSING,
      408: ["BODY_INCOMPLETE"],
      409: ["TOMBSTONED"],
      413: ["BODY_TOO_BIG"],
      429: ["THROTTLED", "TOO_MANY_TOPICS", "TOO_MANY_MOVES"],
      503: ["STORAGE_FAULT", "EXITING", "DRAINING"],
    },
  },
  "GET /v1/log-level": {
    summary: "How much is logged.",
    answers: { 200: { description: "The level.", schema: LOG_LEVEL } },
  },
  "PUT /v1/log-level": {
    summary: "Changes how much is logged, for a while or until the process ends.",
    body: object({ level: TEXT, for_ms: INTEGER }, ["for_ms"]),
    answers: { 200: { description: "The new level.", schema: LOG_LEVEL } },
    refusals: { 400: ["INVALID_LEVEL"], 408: ["BODY_INCOMPLETE"], 413: ["BODY_TOO_BIG"] },
  },
};
