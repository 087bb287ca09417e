/** nsqd's routes, for the description of the HTTP API. */
import type { Operation, Operations, Parameter } from "./openapi_operation.ts";
import {
  ANY,
  array,
  BOOLEAN,
  INTEGER,
  map,
  nullable,
  NUMBER,
  object,
  type Schema,
  TEXT,
} from "./openapi_schema.ts";

const TOPIC: Parameter = { description: "The name of the topic.", required: true };
const CHANNEL: Parameter = { description: "The name of the channel.", required: true };
const TEXT_TYPE = "text/plain";
const BYTES_TYPE = "application/octet-stream";

/** Percentiles of the time from publish to finish. */
export const LATENCY: Schema = object({
  count: INTEGER,
  percentiles: nullable(array(map(NUMBER))),
});

/** One connection, in `/stats` and `/v1/stats`. */
export const CLIENT: Schema = object({
  client_id: TEXT,
  hostname: TEXT,
  version: TEXT,
  remote_address: TEXT,
  state: INTEGER,
  ready_count: INTEGER,
  in_flight_count: INTEGER,
  message_count: INTEGER,
  finish_count: INTEGER,
  requeue_count: INTEGER,
  connect_ts: INTEGER,
  sample_rate: INTEGER,
  deflate: BOOLEAN,
  snappy: BOOLEAN,
  user_agent: TEXT,
  authed: BOOLEAN,
  auth_identity: TEXT,
  auth_identity_url: TEXT,
  topology_zone: TEXT,
  topology_region: TEXT,
  pub_counts: array(object({ topic: TEXT, count: INTEGER })),
  tls: BOOLEAN,
  tls_cipher_suite: TEXT,
  tls_version: TEXT,
  tls_negotiated_protocol: TEXT,
  tls_negotiated_protocol_is_mutual: BOOLEAN,
}, ["authed", "auth_identity", "auth_identity_url", "pub_counts"]);

const CHANNEL_STATS: Schema = object({
  channel_name: TEXT,
  depth: INTEGER,
  backend_depth: INTEGER,
  in_flight_count: INTEGER,
  deferred_count: INTEGER,
  message_count: INTEGER,
  requeue_count: INTEGER,
  timeout_count: INTEGER,
  client_count: INTEGER,
  clients: nullable(array(CLIENT)),
  paused: BOOLEAN,
  e2e_processing_latency: LATENCY,
});

const TOPIC_STATS: Schema = object({
  topic_name: TEXT,
  channels: array(CHANNEL_STATS),
  depth: INTEGER,
  backend_depth: INTEGER,
  message_count: INTEGER,
  message_bytes: INTEGER,
  paused: BOOLEAN,
  e2e_processing_latency: LATENCY,
});

const STATS: Schema = object({
  version: TEXT,
  health: TEXT,
  start_time: INTEGER,
  topics: nullable(array(TOPIC_STATS)),
  memory: map(ANY),
  producers: nullable(array(CLIENT)),
}, ["memory"]);

const INFO: Schema = object({
  version: TEXT,
  broadcast_address: TEXT,
  hostname: TEXT,
  http_port: INTEGER,
  tcp_port: INTEGER,
  start_time: INTEGER,
  max_heartbeat_interval: INTEGER,
  max_output_buffer_size: INTEGER,
  max_output_buffer_timeout: INTEGER,
  max_deflate_level: INTEGER,
  topology_zone: TEXT,
  topology_region: TEXT,
});

const NAMES = ["MISSING_ARG_TOPIC", "INVALID_TOPIC"];
const CHANNEL_NAMES = [
  "MISSING_ARG_TOPIC",
  "INVALID_ARG_TOPIC",
  "MISSING_ARG_CHANNEL",
  "INVALID_ARG_CHANNEL",
];
const UNABLE = ["STORAGE_FAULT", "EXITING"];

function publish(summary: string, query: Readonly<Record<string, Parameter>>): Operation {
  return {
    summary,
    query: {
      topic: TOPIC,
      defer: { description: "Milliseconds before anybody gets it.", schema: INTEGER },
      ...query,
    },
    body: BYTES_TYPE,
    answers: { 200: { description: "`OK`, once it is on disk.", type: TEXT_TYPE } },
    refusals: {
      400: ["MISSING_ARG_TOPIC", "INVALID_TOPIC", "MSG_EMPTY", "INVALID_DEFER"],
      408: ["BODY_INCOMPLETE"],
      409: ["SEQUENCE_TOO_OLD", "TOMBSTONED"],
      413: ["MSG_TOO_BIG", "BODY_TOO_BIG"],
      429: ["THROTTLED", "TOO_MANY_BYTES", "TOO_MANY_TOPICS"],
      503: UNABLE,
    },
  };
}

function topicAction(summary: string): Operation {
  return {
    summary,
    query: { topic: TOPIC },
    answers: { 200: { description: "Done, and on disk." } },
    refusals: { 400: NAMES, 404: ["TOPIC_NOT_FOUND"], 503: UNABLE },
  };
}

function channelAction(summary: string): Operation {
  return {
    summary,
    query: { topic: TOPIC, channel: CHANNEL },
    answers: { 200: { description: "Done, and on disk." } },
    refusals: {
      400: CHANNEL_NAMES,
      404: ["TOPIC_NOT_FOUND", "CHANNEL_NOT_FOUND"],
      503: UNABLE,
    },
  };
}

/** See the module. */
export const NSQ_OPERATIONS: Operations = {
  "GET /ping": {
    summary: "Says whether the process is well.",
    answers: {
      200: { description: "`OK`.", type: TEXT_TYPE },
      500: { description: "`NOK - REASON`: the log has failed.", type: TEXT_TYPE },
    },
  },
  "GET /info": {
    summary: "Says who the broker is.",
    answers: { 200: { description: "Who it is.", schema: INFO } },
  },
  "GET /stats": {
    summary: "Statistics as nsqd has them.",
    query: {
      format: { description: "`json`, or text." },
      topic: { description: "Only this topic." },
      channel: { description: "Only channels of this name." },
      include_clients: { description: "`false` leaves the connections out." },
      include_mem: { description: "`false` leaves the memory out." },
    },
    answers: { 200: { description: "The statistics.", schema: STATS } },
    refusals: { 400: ["INVALID_REQUEST"] },
  },
  "GET /metrics": {
    summary: "Metrics for Prometheus.",
    answers: { 200: { description: "The metrics.", type: TEXT_TYPE } },
  },
  "GET /config/:opt": {
    summary: "The value of a setting.",
    answers: { 200: { description: "The value: JSON, or text as it is.", schema: ANY } },
    refusals: { 400: ["INVALID_OPTION"] },
  },
  "PUT /config/:opt": {
    summary: "Changes a setting until the process ends.",
    body: TEXT_TYPE,
    answers: { 200: { description: "The new value.", schema: ANY } },
    refusals: {
      400: ["INVALID_OPTION", "INVALID_VALUE"],
      408: ["BODY_INCOMPLETE"],
      413: ["INVALID_VALUE"],
    },
  },
  "POST /pub": publish("Publishes one message.", {}),
  "POST /mpub": publish("Publishes messages: one a line, or with their lengths.", {
    binary: { description: "`true` for messages with their lengths in front." },
  }),
  "POST /topic/create": {
    ...topicAction("Makes a topic."),
    refusals: { 400: NAMES, 409: ["TOMBSTONED"], 429: ["TOO_MANY_TOPICS"], 503: UNABLE },
  },
  "POST /topic/delete": topicAction("Deletes a topic with its channels and messages."),
  "POST /topic/empty": topicAction("Drops what a topic holds that no channel was given."),
  "POST /topic/pause": topicAction("Stops the flow from a topic to its channels."),
  "POST /topic/unpause": topicAction("Starts the flow from a topic to its channels."),
  "POST /channel/create": {
    ...channelAction("Makes a channel."),
    refusals: {
      400: CHANNEL_NAMES,
      404: ["TOPIC_NOT_FOUND"],
      409: ["TOMBSTONED"],
      429: ["TOO_MANY_CHANNELS"],
      503: UNABLE,
    },
  },
  "POST /channel/delete": channelAction("Deletes a channel."),
  "POST /channel/empty": channelAction("Drops all messages of a channel."),
  "POST /channel/pause": channelAction("Stops delivery of a channel."),
  "POST /channel/unpause": channelAction("Starts delivery of a channel."),
};
