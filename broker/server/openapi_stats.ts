/** Statistics and observations, for the description of the HTTP API. */
import type { Operations, Parameter } from "./openapi_operation.ts";
import { BUDGETS, CAPABILITY_LIMITS, DATA_LEVELS } from "./openapi_node_schemas.ts";
import { POLICY_FIELDS } from "./openapi_node.ts";
import { CLIENT, LATENCY } from "./openapi_nsq.ts";
import {
  ANY,
  array,
  BOOLEAN,
  INTEGER,
  map,
  nullable,
  object,
  reference,
  type Schema,
  TEXT,
  told,
} from "./openapi_schema.ts";

const AGE = told(
  "Since the oldest unfinished message was published; null when there is none, or it is not known.",
  nullable(INTEGER),
);
const DUE = told("When the next deferred message may come due.", nullable(INTEGER));

const CHANNEL_STATS: Schema = object({
  channel: TEXT,
  ephemeral: BOOLEAN,
  paused: BOOLEAN,
  depth: INTEGER,
  in_flight_count: INTEGER,
  deferred_count: INTEGER,
  next_due_ms: DUE,
  message_count: INTEGER,
  delivered_count: INTEGER,
  requeue_count: INTEGER,
  timeout_count: INTEGER,
  finished_floor: told("All below this offset are finished.", INTEGER),
  finished_above_count: told("Finished ones that are not below it.", INTEGER),
  held_bytes: told("Of the log, from the oldest unfinished message on.", INTEGER),
  oldest_unfinished_ms: AGE,
  reading_from_disk: BOOLEAN,
  consumers: object({
    count: INTEGER,
    ready_count: told("The sum of what they are ready for.", INTEGER),
    in_flight_max: told("In flight at the one that has the most.", INTEGER),
    at_limit_count: told("Those that take no more now.", INTEGER),
  }),
  e2e_processing_latency: LATENCY,
  clients: told("With `include_clients` only.", array(CLIENT)),
}, ["clients"]);

const TOPIC_STATS: Schema = object({
  topic: TEXT,
  ephemeral: BOOLEAN,
  paused: BOOLEAN,
  depth: told("Messages that no channel was given.", INTEGER),
  message_count: INTEGER,
  message_bytes: INTEGER,
  next_offset: INTEGER,
  undurable_count: INTEGER,
  stored_bytes: INTEGER,
  held_bytes: INTEGER,
  oldest_unfinished_ms: AGE,
  deferred_count: INTEGER,
  next_due_ms: DUE,
  policy: object(POLICY_FIELDS),
  dedup_producer_count: INTEGER,
  channel_count: INTEGER,
  e2e_processing_latency: LATENCY,
  channels: array(CHANNEL_STATS),
});

const STATS_FIELDS = {
  memory: map(ANY),
  producers: array(CLIENT),
  topics: array(reference("TopicStats")),
  budgets: BUDGETS,
  complete: told("Always there, at the end.", { enum: [true] }),
};

const IDENTITY = {
  format: INTEGER,
  instance: TEXT,
  revision: INTEGER,
  node_id: INTEGER,
  version: TEXT,
  hostname: TEXT,
  broadcast_address: TEXT,
  tcp_port: INTEGER,
  http_port: INTEGER,
  topology_zone: TEXT,
  topology_region: TEXT,
  started_at_ms: INTEGER,
  collected_at_ms: INTEGER,
};

const OBSERVATION = {
  ...IDENTITY,
  health: reference("Health"),
  topic_count: INTEGER,
  counters: map(INTEGER),
  disk: object({
    total_bytes: nullable(INTEGER),
    free_bytes: nullable(INTEGER),
    min_free_bytes: nullable(INTEGER),
    publishes_refused: told("For want of space.", BOOLEAN),
    log_bytes: INTEGER,
    log_files: INTEGER,
    log_live_bytes: told("Owed to somebody, as last estimated.", nullable({ type: "number" })),
    log_undurable_bytes: INTEGER,
  }),
  data: DATA_LEVELS,
  limits: CAPABILITY_LIMITS,
  budgets: BUDGETS,
};

const STATS: Schema = object({ ...IDENTITY, ...STATS_FIELDS }, ["memory", "producers"]);
const WHOLE: Schema = object({
  ...OBSERVATION,
  stats: object(STATS_FIELDS, ["memory", "producers"]),
});

/** By name, for references. */
export const STATS_SCHEMAS: Readonly<Record<string, Schema>> = {
  TopicStats: TOPIC_STATS,
  Stats: STATS,
  ObservationHead: object(OBSERVATION),
  Observation: WHOLE,
};

const QUERY: Readonly<Record<string, Parameter>> = {
  topic: { description: "Only this topic." },
  channel: { description: "Only channels of this name, and topics that have one." },
  include_clients: { description: "`true` adds the connections." },
  include_mem: { description: "`true` adds the memory of the process." },
};

/** See the module. */
export const STATS_OPERATIONS: Operations = {
  "GET /v1/stats": {
    summary: "Everything about topics, channels and budgets.",
    query: QUERY,
    answers: {
      200: { description: "The statistics, in no order.", schema: reference("Stats") },
    },
    refusals: { 400: ["INVALID_REQUEST"] },
  },
  "GET /v1/observe/head": {
    summary: "What a console looks at often: health, counters, disk, limits.",
    answers: { 200: { description: "The head.", schema: reference("ObservationHead") } },
  },
  "GET /v1/observe": {
    summary: "The head, and the statistics.",
    query: QUERY,
    answers: { 200: { description: "Both.", schema: reference("Observation") } },
    refusals: { 400: ["INVALID_REQUEST"] },
  },
};
