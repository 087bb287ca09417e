/** What the native routes about the broker as a whole answer, for the description of the HTTP API. */
import {
  array,
  BOOLEAN,
  choice,
  INTEGER,
  nullable,
  NUMBER,
  object,
  type Schema,
  TEXT,
  told,
} from "./openapi_schema.ts";

const HEALTH: Schema = object({
  status: choice(["ok", "degraded", "unavailable"]),
  accepting: told("Publishes are taken.", BOOLEAN),
  delivering: told("Consumers that connect get messages.", BOOLEAN),
  reasons: array(object({ code: TEXT, message: TEXT, since: TEXT }, ["since"])),
  version: TEXT,
  recovery: object({ replayed_bytes: INTEGER, total_bytes: INTEGER }),
  write_probe: object({ duration_ms: NUMBER }),
}, ["recovery", "write_probe"]);

const DRAIN: Schema = object({
  draining: told("Publishes are refused.", BOOLEAN),
  delivery_frozen: told("Nothing new is delivered.", BOOLEAN),
  quiesced: told("Frozen, and nothing is in flight or on its way.", BOOLEAN),
  empty: told("Nobody is owed anything, and nothing is on its way.", BOOLEAN),
  since: nullable(TEXT),
  depth: told("Messages that wait.", INTEGER),
  in_flight: INTEGER,
  deferred: INTEGER,
  publish_bytes: told("Being received, or not on disk yet.", INTEGER),
  delivery_bytes: told("Of large messages, on their way to consumers.", INTEGER),
});

const REGISTRY_HEAD = {
  format: INTEGER,
  instance: told("New with each start.", TEXT),
  revision: told("New with each topic or channel that comes or goes.", INTEGER),
  publish_ready: BOOLEAN,
  consume_ready: BOOLEAN,
  reasons: array(TEXT),
};

const REGISTRY: Schema = object({
  ...REGISTRY_HEAD,
  broadcast_address: TEXT,
  hostname: TEXT,
  tcp_port: INTEGER,
  http_port: INTEGER,
  version: TEXT,
  topology_zone: TEXT,
  topology_region: TEXT,
  topics: array(object({ topic: TEXT, channels: array(TEXT) })),
});

const SCRUB: Schema = object({
  running: BOOLEAN,
  position: INTEGER,
  end: INTEGER,
  bytes_verified: INTEGER,
  passes: INTEGER,
  repaired: INTEGER,
  last_started_ms: nullable(INTEGER),
  last_ended_ms: nullable(INTEGER),
  damage_count: INTEGER,
  damage: array(object({ position: INTEGER, bytes: INTEGER, reason: TEXT })),
});

/** The levels of the data folder. */
export const DATA_LEVELS: Schema = object({
  format: told("What FORMAT of the data folder says.", TEXT),
  reader_level: told("A release must know it to read the folder.", INTEGER),
  writer_level: told("A release must know it to write to the folder.", INTEGER),
  reader_level_max: told("This release reads up to it.", INTEGER),
  writer_level_max: told("This release writes up to it.", INTEGER),
});

/** What there may be at most. */
export const CAPABILITY_LIMITS: Schema = object({
  message_bytes: INTEGER,
  body_bytes: INTEGER,
  large_body_bytes: told("A body above is written in parts.", INTEGER),
  publish_bytes: INTEGER,
  defer_ms: INTEGER,
  topics: INTEGER,
  channels_per_topic: INTEGER,
  rdy: nullable(INTEGER),
  connections: nullable(INTEGER),
  consumers_per_channel: told("0 for any number.", INTEGER),
  message_timeout_ms: INTEGER,
  requeue_ms: nullable(INTEGER),
  heartbeat_interval_ms: INTEGER,
  output_buffer_bytes: INTEGER,
  output_buffer_timeout_ms: INTEGER,
  dedup_window_ms: INTEGER,
  dedup_sequences: INTEGER,
  dedup_producers_per_topic: INTEGER,
});

const CAPABILITIES: Schema = object({
  version: TEXT,
  node_id: INTEGER,
  data: DATA_LEVELS,
  limits: CAPABILITY_LIMITS,
  features: object({
    ack_modes: array(TEXT),
    default_ack_mode: TEXT,
    quota_actions: array(TEXT),
    producer_sequences: BOOLEAN,
    large_messages: BOOLEAN,
    deferred_publish: BOOLEAN,
    topic_policies: BOOLEAN,
    management: BOOLEAN,
    tombstones: BOOLEAN,
    peek: BOOLEAN,
    move: BOOLEAN,
    drain: BOOLEAN,
    write_probe: BOOLEAN,
    rate_limits: BOOLEAN,
    tls: BOOLEAN,
    snappy: BOOLEAN,
    deflate: BOOLEAN,
    authorization: told("Clients have to say who they are.", BOOLEAN),
  }),
});

/** The budgets of a process, in statistics. */
export const BUDGETS: Schema = array(object({
  name: TEXT,
  unit: choice(["bytes", "count"]),
  at_limit: choice(["refuse", "wait", "evict"]),
  used: NUMBER,
  limit: nullable(NUMBER),
  refused_total: nullable(INTEGER),
}));

/** By name, for references. */
export const NODE_SCHEMAS: Readonly<Record<string, Schema>> = {
  Health: HEALTH,
  Drain: DRAIN,
  RegistryHead: object(REGISTRY_HEAD),
  Registry: REGISTRY,
  Scrub: SCRUB,
  Capabilities: CAPABILITIES,
};
