/**
 * What discovery services that nobody registered with ask a broker, in JSON:
 *
 * - `GET /v1/registry/head`: small, asked often. `instance` is new with each start of the broker,
 *   `revision` with each topic or channel that comes or goes; readiness and its reasons are of the
 *   moment.
 * - `GET /v1/registry`: the head, who the broker is, and its topics with their channels, sorted.
 *
 * Only what exists is listed: what was deleted leaves no trace. Publish-ready and consume-ready are
 * what `/v1/health` calls accepting and delivering.
 */
import { type HttpRoute, jsonReply } from "@sluice/shared/http";
import { type Random, REPORTED_VERSION } from "@sluice/shared/runtime";
import type { Broker, RegistryListener } from "../broker.ts";

export const REGISTRY_HEAD_PATH = "/v1/registry/head";
export const REGISTRY_PATH = "/v1/registry";
const FORMAT = 1;

/** Who the broker says it is. */
export interface RegistryIdentity {
  readonly hostname: string;
  readonly broadcastAddress: string;
  readonly broadcastTcpPort: () => number;
  readonly broadcastHttpPort: () => number;
  readonly topologyZone: string;
  readonly topologyRegion: string;
}

/** Counts the changes of a broker's registry and passes them on. */
export class RegistryRevision implements RegistryListener {
  /** Of this start of the broker. */
  readonly instance: string;
  /** Told of every change, after it is counted. */
  next: RegistryListener | null = null;
  #revision = 0;

  constructor(random: Random) {
    this.instance = hex(random.u32()) + hex(random.u32());
  }

  get revision(): number {
    return this.#revision;
  }

  topicAdded(topic: string): void {
    this.#revision++;
    this.next?.topicAdded(topic);
  }

  topicRemoved(topic: string): void {
    this.#revision++;
    this.next?.topicRemoved(topic);
  }

  channelAdded(topic: string, channel: string): void {
    this.#revision++;
    this.next?.channelAdded(topic, channel);
  }

  channelRemoved(topic: string, channel: string): void {
    this.#revision++;
    this.next?.channelRemoved(topic, channel);
  }
}

/** The routes, for the door of a broker whose changes `revision` is told of. */
export function registryRoutes(
  broker: Broker,
  identity: RegistryIdentity,
  revision: RegistryRevision,
): HttpRoute[] {
  return [
    {
      method: "GET",
      path: REGISTRY_HEAD_PATH,
      handle: () => jsonReply(headDocument(broker, revision)),
    },
    {
      method: "GET",
      path: REGISTRY_PATH,
      handle: () =>
        jsonReply({
          ...headDocument(broker, revision),
          broadcast_address: identity.broadcastAddress,
          hostname: identity.hostname,
          tcp_port: identity.broadcastTcpPort(),
          http_port: identity.broadcastHttpPort(),
          version: REPORTED_VERSION,
          topology_zone: identity.topologyZone,
          topology_region: identity.topologyRegion,
          topics: topicDocuments(broker),
        }),
    },
  ];
}

function headDocument(broker: Broker, { instance, revision }: RegistryRevision) {
  const { accepting, delivering, reasons } = broker.health();
  return {
    format: FORMAT,
    instance,
    revision,
    publish_ready: accepting,
    consume_ready: delivering,
    reasons: reasons.map(({ code }) => code),
  };
}

function topicDocuments(broker: Broker) {
  return [...broker.topics.keys()].sort().map((name) => ({
    topic: name,
    channels: [...broker.topics.get(name)?.channels.keys() ?? []].sort(),
  }));
}

function hex(value: number): string {
  return value.toString(16).padStart(8, "0");
}
