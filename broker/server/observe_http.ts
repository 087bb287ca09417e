/**
 * What a console looks at, in JSON:
 *
 * - `GET /v1/observe/head`: who the broker is, how it is, counters, disk, limits and budgets. No work
 *   that grows with topics or messages, so that it can be asked every second.
 * - `GET /v1/observe`: the head, and `stats`: what `/v1/stats` says, for its parameters.
 */
import { type HttpRoute, jsonReply } from "@sluice/shared/http";
import { REPORTED_VERSION } from "@sluice/shared/runtime";
import type { Broker } from "../broker.ts";
import {
  dataDocument,
  type DoorFacts,
  type HttpLimits,
  limitsDocument,
} from "./capabilities_http.ts";
import { type JsonPieces, jsonStreamReply } from "./json_stream.ts";
import type { RegistryIdentity, RegistryRevision } from "./registry_http.ts";
import {
  budgetDocuments,
  statsFields,
  type StatsQuery,
  statsQuery,
  type StatsWorld,
} from "./stats_v1.ts";

const FORMAT = 1;
/** Budgets that every topic has to be looked at for. */
const COSTLY_BUDGETS = ["channels_per_topic"];

/** What an observation is made from. */
export interface ObserveWorld extends StatsWorld {
  readonly revision: RegistryRevision;
  readonly limits: HttpLimits;
  readonly doors: DoorFacts;
}

/** Both routes. */
export function observeRoutes(world: ObserveWorld): HttpRoute[] {
  return [
    { method: "GET", path: "/v1/observe/head", handle: () => jsonReply(headDocument(world)) },
    {
      method: "GET",
      path: "/v1/observe",
      handle: ({ query }) => jsonStreamReply(observation(world, statsQuery(query))),
    },
  ];
}

/** Who the broker is, and the moment. */
export function identityDocument(
  broker: Broker,
  identity: RegistryIdentity & { readonly startWallMs: number },
  revision: RegistryRevision,
) {
  return {
    format: FORMAT,
    instance: revision.instance,
    revision: revision.revision,
    node_id: broker.storage.nodeId,
    version: REPORTED_VERSION,
    hostname: identity.hostname,
    broadcast_address: identity.broadcastAddress,
    tcp_port: identity.broadcastTcpPort(),
    http_port: identity.broadcastHttpPort(),
    topology_zone: identity.topologyZone,
    topology_region: identity.topologyRegion,
    started_at_ms: identity.startWallMs,
    collected_at_ms: broker.clock.wallMs(),
  };
}

async function* observation(world: ObserveWorld, query: StatsQuery): JsonPieces {
  yield `${JSON.stringify(headDocument(world)).slice(0, -1)},"stats":{`;
  yield* statsFields(world, query);
  yield "}}";
}

function headDocument({ broker, identity, limits, doors }: ObserveWorld) {
  return {
    ...identity(),
    health: broker.health(),
    topic_count: broker.topics.size,
    counters: counters(broker),
    disk: diskDocument(broker),
    data: dataDocument(broker),
    limits: limitsDocument(broker, limits, doors),
    budgets: budgetDocuments(broker, COSTLY_BUDGETS),
  };
}

/** Counted since the start. */
function counters({ storage, repeats, source, guard, quotas, evictor }: Broker) {
  const { counters, large, state: { dedup } } = storage;
  return {
    messages_published: counters.messages,
    message_bytes_published: counters.messageBytes,
    messages_finished: counters.finishes,
    log_groups: counters.groups,
    checkpoints: counters.checkpoints,
    log_files_removed: counters.filesRemoved,
    large_messages_published: large.counters.published,
    large_messages_delivered: large.counters.delivered,
    repeats_answered: repeats.answered,
    sequences_too_old: repeats.tooOld,
    dedup_producers_displaced: dedup.displaced,
    messages_damaged: source.damagedCount,
    publishes_throttled: guard.throttledCount,
    publishes_refused_at_topic_limit: quotas.refusedCount,
    messages_dropped_at_topic_limit: quotas.droppedCount,
    messages_evicted: evictor.messageCount,
  };
}

function diskDocument({ guard, storage }: Broker) {
  const { space } = guard;
  return {
    total_bytes: space?.totalBytes ?? null,
    free_bytes: space?.freeBytes ?? null,
    min_free_bytes: Number.isFinite(guard.minFreeBytes) ? guard.minFreeBytes : null,
    publishes_refused: guard.isClosed,
    log_bytes: storage.storedBytes,
    log_files: storage.logFiles.length,
    log_live_bytes: storage.compaction.liveBytes,
    log_undurable_bytes: storage.log.end - storage.log.durableEnd,
  };
}
