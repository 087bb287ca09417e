/**
 * What brokers answer when they are asked what they have, read with suspicion: whatever is on the
 * other side may be no broker. An answer that is not as it should be gives `null`; names that NSQ does
 * not allow are left out, and what is unknown is passed over.
 *
 * Ours answer `/v1/registry/head` and `/v1/registry`; nsqd answers `/info` and `/stats`.
 */
import { isValidName } from "@sluice/shared/protocol";
import type { ProducerInfo, Readiness, TopicChannels } from "../producer.ts";

/** The small answer. */
export interface RegistryHead {
  readonly instance: string;
  readonly revision: number;
  readonly readiness: Readiness;
}

/** All that a broker says of itself. */
export interface BrokerRegistry extends RegistryHead {
  readonly info: ProducerInfo;
  readonly topics: readonly TopicChannels[];
}

const REASONS_MAX = 16;
const TEXT_CHARACTERS_MAX = 256;
const HOST_REGEXP = /^[\w.:%-]{1,253}$/;
const CODE_REGEXP = /^[a-z][a-z0-9_]{0,63}$/;

/** The answer to `/v1/registry/head`. */
export function readHead(body: Uint8Array): RegistryHead | null {
  return headOf(readDocument(body));
}

/** The answer to `/v1/registry`. */
export function readRegistry(body: Uint8Array): BrokerRegistry | null {
  const document = readDocument(body);
  const head = headOf(document);
  const info = infoOf(document);
  const topics = topicsOf(document?.["topics"], "topic", "channels", (channel) => channel);
  return head === null || info === null || topics === null ? null : { ...head, info, topics };
}

/** nsqd's answers to `/info` and `/stats?format=json`. It has no revision. */
export function readNsqd(
  info: Uint8Array,
  stats: Uint8Array,
): Omit<BrokerRegistry, "instance" | "revision"> | null {
  const who = infoOf(readDocument(info));
  const document = readDocument(stats);
  if (who === null || document === null) return null;
  const topics = topicsOf(
    document["topics"] ?? [],
    "topic_name",
    "channels",
    (channel) => isRecord(channel) ? channel["channel_name"] : undefined,
  );
  if (topics === null) return null;
  const isHealthy = document["health"] === undefined || document["health"] === "OK";
  const reasons = isHealthy ? [] : ["unhealthy"];
  return {
    info: who,
    topics,
    readiness: { publishReady: isHealthy, consumeReady: true, reasons },
  };
}

type Document = Readonly<Record<string, unknown>>;

function readDocument(body: Uint8Array): Document | null {
  try {
    const value: unknown = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(body));
    return isRecord(value) ? value : null;
  } catch {
    return null;
  }
}

function headOf(document: Document | null): RegistryHead | null {
  if (document === null) return null;
  const { instance, revision, publish_ready, consume_ready, reasons } = document;
  if (typeof instance !== "string" || instance === "" || instance.length > 64) return null;
  if (typeof revision !== "number" || !Number.isSafeInteger(revision)) return null;
  if (typeof publish_ready !== "boolean" || typeof consume_ready !== "boolean") return null;
  const codes = Array.isArray(reasons) ? reasons.slice(0, REASONS_MAX) : [];
  return {
    instance,
    revision,
    readiness: {
      publishReady: publish_ready,
      consumeReady: consume_ready,
      reasons: codes.filter((code) => typeof code === "string" && CODE_REGEXP.test(code)),
    },
  };
}

function infoOf(document: Document | null): ProducerInfo | null {
  if (document === null) return null;
  const broadcastAddress = document["broadcast_address"];
  const tcpPort = document["tcp_port"];
  const httpPort = document["http_port"];
  if (typeof broadcastAddress !== "string" || !HOST_REGEXP.test(broadcastAddress)) return null;
  if (!isPort(tcpPort) || !isPort(httpPort)) return null;
  return {
    broadcastAddress,
    tcpPort,
    httpPort,
    hostname: textOf(document["hostname"]),
    version: textOf(document["version"]),
    topologyZone: textOf(document["topology_zone"]),
    topologyRegion: textOf(document["topology_region"]),
  };
}

function topicsOf(
  list: unknown,
  nameKey: string,
  channelsKey: string,
  channelName: (channel: unknown) => unknown,
): TopicChannels[] | null {
  if (!Array.isArray(list)) return null;
  const topics: TopicChannels[] = [];
  for (const one of list) {
    if (!isRecord(one)) return null;
    const topic = one[nameKey];
    if (typeof topic !== "string" || !isValidName(topic)) continue;
    const channels = one[channelsKey];
    topics.push({
      topic,
      channels: (Array.isArray(channels) ? channels : [])
        .map(channelName)
        .filter((name) => typeof name === "string")
        .filter(isValidName),
    });
  }
  return topics;
}

function textOf(value: unknown): string {
  return typeof value === "string" ? value.slice(0, TEXT_CHARACTERS_MAX) : "";
}

function isPort(value: unknown): value is number {
  return typeof value === "number" && Number.isInteger(value) && value >= 1 && value <= 65_535;
}

function isRecord(value: unknown): value is Document {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
