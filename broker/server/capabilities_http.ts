/**
 * `GET /v1/capabilities`: what a broker can do, for whoever has to know before asking for it: the
 * release, the levels of the data folder (`storage/compatibility.ts`), limits, features. A limit that is
 * null is none, or not known to the door.
 */
import { type HttpRoute, jsonReply } from "@sluice/shared/http";
import { REPORTED_VERSION } from "@sluice/shared/runtime";
import { ACK_MODES, type Broker, DATA_FORMAT, OWN_LEVELS, QUOTA_ACTIONS } from "../broker.ts";

/** What only the doors of a broker know. */
export interface DoorFacts {
  readonly rdyCountMax: number | null;
  readonly connectionsMax: number | null;
  readonly requeueMsMax: number | null;
  readonly tls: boolean;
  readonly snappy: boolean;
  readonly deflate: boolean;
}

/** Of a broker without a TCP door. */
export const NO_DOORS: DoorFacts = {
  rdyCountMax: null,
  connectionsMax: null,
  requeueMsMax: null,
  tls: false,
  snappy: false,
  deflate: false,
};

/** Limits of the HTTP door. */
export interface HttpLimits {
  readonly messageBytesMax: number;
  readonly bodyBytesMax: number;
  readonly deferMsMax: number;
  readonly maxHeartbeatIntervalMs: number;
  readonly maxOutputBufferBytes: number;
  readonly maxOutputBufferTimeoutMs: number;
}

/** The route. `isAuthorized` tells whether clients have to say who they are. */
export function capabilitiesRoute(
  broker: Broker,
  limits: HttpLimits,
  doors: DoorFacts,
  isAuthorized: boolean,
): HttpRoute {
  return {
    method: "GET",
    path: "/v1/capabilities",
    handle: () =>
      jsonReply({
        version: REPORTED_VERSION,
        node_id: broker.storage.nodeId,
        data: dataDocument(broker),
        limits: limitsDocument(broker, limits, doors),
        features: {
          ack_modes: ACK_MODES,
          default_ack_mode: broker.options.storage.ackMode ?? "durable",
          quota_actions: QUOTA_ACTIONS,
          producer_sequences: true,
          large_messages: true,
          deferred_publish: true,
          topic_policies: true,
          management: true,
          tombstones: true,
          peek: true,
          move: true,
          drain: true,
          write_probe: true,
          rate_limits: true,
          tls: doors.tls,
          snappy: doors.snappy,
          deflate: doors.deflate,
          authorization: isAuthorized,
        },
      }),
  };
}

/** The levels of the data folder. */
export function dataDocument({ storage: { levels } }: Broker) {
  return {
    format: DATA_FORMAT,
    reader_level: levels.reader,
    writer_level: levels.writer,
    reader_level_max: OWN_LEVELS.reader,
    writer_level_max: OWN_LEVELS.writer,
  };
}

/** What there may be at most. */
export function limitsDocument(broker: Broker, limits: HttpLimits, doors: DoorFacts) {
  const { options, storage } = broker;
  const dedup = storage.state.dedup.limits;
  return {
    message_bytes: limits.messageBytesMax,
    body_bytes: limits.bodyBytesMax,
    large_body_bytes: storage.large.bodyBytesMin,
    publish_bytes: options.publishBytesMax,
    defer_ms: limits.deferMsMax,
    topics: options.topicsMax,
    channels_per_topic: options.channelsPerTopicMax,
    rdy: doors.rdyCountMax,
    connections: doors.connectionsMax,
    consumers_per_channel: options.channel.consumersMax,
    message_timeout_ms: options.channel.msgTimeoutMsMax,
    requeue_ms: doors.requeueMsMax,
    heartbeat_interval_ms: limits.maxHeartbeatIntervalMs,
    output_buffer_bytes: limits.maxOutputBufferBytes,
    output_buffer_timeout_ms: limits.maxOutputBufferTimeoutMs,
    dedup_window_ms: dedup.windowMs,
    dedup_sequences: dedup.sequences,
    dedup_producers_per_topic: dedup.producers,
  };
}
