/**
 * What discovery answers, read with suspicion: whatever is on the other side may be no discovery
 * service. What is not as it should be gives `null`; names that NSQ does not allow are left out, and
 * what is unknown is passed over.
 *
 * Ours streams the events of `/v1/watch`; nsqlookupd answers `/nodes`. The latter knows no more than that a
 * broker is registered, so its brokers count as ready.
 */
import { isValidName } from "../protocol/mod.ts";
import { hostAndPort } from "../runtime/mod.ts";
import type { StreamEvent } from "./event_stream.ts";

/** What is said of a broker, its topics aside. */
export interface BrokerWord {
  /** `<broadcast address>:<TCP port>`, the same whoever says it. */
  readonly id: string;
  readonly host: string;
  readonly tcpPort: number;
  /** `null` when it is not told. */
  readonly httpPort: number | null;
  readonly publishReady: boolean;
  readonly consumeReady: boolean;
  /** Why it is not ready, in codes of the broker's `/v1/health`. */
  readonly reasons: readonly string[];
  /** The broker said so itself when it was asked; else it is only taken to be so. */
  readonly isObserved: boolean;
  /** How old that was when it was told. */
  readonly ageMs: number;
}

/** A broker and its topics. */
export interface ListedBroker {
  readonly broker: BrokerWord;
  readonly topics: readonly string[];
}

/** What an event of `/v1/watch` says. */
export type WatchWord =
  | { readonly kind: "added"; readonly broker: BrokerWord; readonly topics: readonly string[] }
  | {
    readonly kind: "changed";
    readonly id: string;
    /** `null` when only registrations have changed. */
    readonly broker: BrokerWord | null;
    readonly topics: readonly { readonly topic: string; readonly present: boolean }[];
  }
  | { readonly kind: "removed"; readonly id: string }
  | { readonly kind: "synced" }
  /** An event of a later version. */
  | { readonly kind: "unknown" };

const REASONS_MAX = 16;
const ID_CHARACTERS_MAX = 300;
const HOST_REGEXP = /^[\w.:%-]{1,253}$/;
const CODE_REGEXP = /^[a-z][a-z0-9_]{0,63}$/;

/** An event of `/v1/watch`. */
export function readWatchEvent({ name, data }: StreamEvent): WatchWord | null {
  if (!["added", "changed", "removed", "synced"].includes(name)) return { kind: "unknown" };
  const document = parseRecord(data);
  if (document === null) return null;
  if (name === "synced") return { kind: "synced" };
  const { id } = document;
  if (typeof id !== "string" || id === "" || id.length > ID_CHARACTERS_MAX) return null;
  if (name === "removed") return { kind: "removed", id };
  const broker = document["broker"] === undefined ? null : brokerOf(document["broker"]);
  if (name === "added") {
    const topics = topicsOf(document["topics"]);
    return broker?.id === id && topics !== null ? { kind: "added", broker, topics } : null;
  }
  const topics = changesOf(document["registrations"]);
  const isRead = topics !== null && (document["broker"] === undefined || broker?.id === id);
  return isRead ? { kind: "changed", id, broker, topics } : null;
}

/** nsqlookupd's answer to `/nodes`. A broker that has several connections is there once. */
export function readNodes(body: Uint8Array): ListedBroker[] | null {
  let text: string;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(body);
  } catch {
    return null;
  }
  const producers = parseRecord(text)?.["producers"];
  if (!Array.isArray(producers)) return null;
  const found = new Map<string, { broker: BrokerWord; topics: Set<string> }>();
  for (const producer of producers) {
    const broker = nodeOf(producer);
    if (broker === null) return null;
    const topics = nodeTopicsOf(producer);
    const known = found.get(broker.id);
    if (known === undefined) found.set(broker.id, { broker, topics: new Set(topics) });
    else for (const topic of topics) known.topics.add(topic);
  }
  return [...found.values()].map(({ broker, topics }) => ({ broker, topics: [...topics] }));
}

type Fields = Readonly<Record<string, unknown>>;

function parseRecord(text: string): Fields | null {
  try {
    const value: unknown = JSON.parse(text);
    return isRecord(value) ? value : null;
  } catch {
    return null;
  }
}

function brokerOf(value: unknown): BrokerWord | null {
  const node = nodeOf(value);
  if (node === null || !isRecord(value)) return null;
  const { publish_ready, consume_ready, reasons, observed, age_ms } = value;
  if (typeof publish_ready !== "boolean" || typeof consume_ready !== "boolean") return null;
  const codes = Array.isArray(reasons) ? reasons.slice(0, REASONS_MAX) : [];
  return {
    ...node,
    publishReady: publish_ready,
    consumeReady: consume_ready,
    reasons: codes.filter((code) => typeof code === "string" && CODE_REGEXP.test(code)),
    isObserved: observed === true,
    ageMs: typeof age_ms === "number" && age_ms > 0 ? age_ms : 0,
  };
}

/** What every producer of NSQ tells; one that is registered counts as ready. */
function nodeOf(value: unknown): BrokerWord | null {
  if (!isRecord(value)) return null;
  const host = value["broadcast_address"];
  const tcpPort = value["tcp_port"];
  const httpPort = value["http_port"];
  if (typeof host !== "string" || !HOST_REGEXP.test(host) || !isPort(tcpPort)) return null;
  return {
    id: hostAndPort(host, tcpPort),
    host,
    tcpPort,
    httpPort: isPort(httpPort) ? httpPort : null,
    publishReady: true,
    consumeReady: true,
    reasons: [],
    isObserved: false,
    ageMs: 0,
  };
}

/** The topics of a producer that have no tombstone. */
function nodeTopicsOf(producer: unknown): string[] {
  const { topics, tombstones } = producer as Fields;
  const isBuried = (index: number) => Array.isArray(tombstones) && tombstones[index] === true;
  const listed: unknown[] = Array.isArray(topics) ? topics : [];
  return listed.filter((topic, index): topic is string => isName(topic) && !isBuried(index));
}

function topicsOf(list: unknown): string[] | null {
  if (!Array.isArray(list)) return null;
  const names: unknown[] = list.map((one) => isRecord(one) ? one["topic"] : null);
  return names.filter(isName);
}

/** The registrations of topics themselves; those of channels change no topic. */
function changesOf(list: unknown): { topic: string; present: boolean }[] | null {
  if (!Array.isArray(list)) return null;
  const changes: { topic: string; present: boolean }[] = [];
  for (const one of list) {
    if (!isRecord(one) || typeof one["present"] !== "boolean") return null;
    const { topic, channel, present } = one;
    if (channel === null && isName(topic)) changes.push({ topic, present });
  }
  return changes;
}

function isName(value: unknown): value is string {
  return typeof value === "string" && isValidName(value);
}

function isPort(value: unknown): value is number {
  return typeof value === "number" && Number.isInteger(value) && value >= 1 && value <= 65_535;
}

function isRecord(value: unknown): value is Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
