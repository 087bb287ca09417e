/**
 * The brokers there are, each once, however many connections and sources tell of it: producers of the
 * registry by broadcast address and TCP port. What a broker said when it was asked decides whether it is
 * ready; one that only registered is taken to be.
 *
 * `revision` changes with everything that `/v1/brokers` and `/v1/watch` tell, `brokersRevision` only
 * with brokers that come, go, or are ready or not. They count from the start of this service and say
 * nothing to another instance.
 */
import type { Clock } from "@sluice/shared/runtime";
import type { Producer, Readiness, RegistryObserver, TopicChannels } from "./producer.ts";
import type { Registry } from "./registry.ts";

/** A broker as it is told of over HTTP. */
export interface BrokerDocument {
  readonly id: string;
  readonly broadcast_address: string;
  readonly hostname: string;
  readonly tcp_port: number;
  readonly http_port: number;
  readonly version: string;
  readonly topology_zone: string;
  readonly topology_region: string;
  /** It has a registration connection. */
  readonly registered: boolean;
  /** It was asked, and its answer is fresh. */
  readonly observed: boolean;
  /** Since it was last heard of. */
  readonly age_ms: number;
  readonly publish_ready: boolean;
  readonly consume_ready: boolean;
  readonly reasons: readonly string[];
}

/** Told which brokers are not as they were; what they are is asked for later. */
export interface RosterObserver {
  /** It came or went. */
  presenceChanged(id: string): void;
  /** What it says of itself is another, its registrations aside. */
  brokerChanged(id: string): void;
  registrationChanged(id: string, topic: string, channel: string | null): void;
}

const READY: Readiness = { publishReady: true, consumeReady: true, reasons: [] };

/** See the module. */
export class Roster implements RegistryObserver {
  observer: RosterObserver | null = null;
  readonly #registry: Registry;
  readonly #clock: Clock;
  readonly #brokers = new Map<string, Set<Producer>>();
  #revision = 0;
  #brokersRevision = 0;

  constructor(registry: Registry, clock: Clock) {
    this.#registry = registry;
    this.#clock = clock;
    registry.observe(this);
  }

  get revision(): number {
    return this.#revision;
  }

  get brokersRevision(): number {
    return this.#brokersRevision;
  }

  get brokerCount(): number {
    return this.#brokers.size;
  }

  ids(): string[] {
    return [...this.#brokers.keys()].sort();
  }

  producerAdded(producer: Producer): void {
    const producers = this.#brokers.get(producer.id);
    producers?.add(producer);
    this.#changed(2);
    if (producers !== undefined) return this.observer?.brokerChanged(producer.id);
    this.#brokers.set(producer.id, new Set([producer]));
    this.observer?.presenceChanged(producer.id);
  }

  producerRemoved(producer: Producer): void {
    const producers = this.#brokers.get(producer.id);
    producers?.delete(producer);
    this.#changed(2);
    if (producers !== undefined && producers.size > 0) {
      return this.observer?.brokerChanged(producer.id);
    }
    this.#brokers.delete(producer.id);
    this.observer?.presenceChanged(producer.id);
  }

  readinessChanged(producer: Producer): void {
    this.#changed(2);
    this.observer?.brokerChanged(producer.id);
  }

  registrationChanged(producer: Producer, topic: string, channel: string | null): void {
    this.#changed(1);
    this.observer?.registrationChanged(producer.id, topic, channel);
  }

  /** Every broker that was heard of lately, by id. */
  brokers(): BrokerDocument[] {
    const nowMs = this.#clock.monoMs();
    const documents: BrokerDocument[] = [];
    for (const id of this.ids()) {
      const producers = [...this.#brokers.get(id) ?? []]
        .filter((producer) => this.#registry.isActive(producer, nowMs));
      const document = brokerDocument(producers, nowMs);
      if (document !== null) documents.push(document);
    }
    return documents;
  }

  /** Those of {@linkcode brokers} that take publishes. */
  publishers(): BrokerDocument[] {
    return this.brokers().filter((broker) => broker.publish_ready);
  }

  /** One that is there, however long it was silent; `null` when it is not. */
  broker(id: string): BrokerDocument | null {
    return brokerDocument([...this.#brokers.get(id) ?? []], this.#clock.monoMs());
  }

  /** The topics and channels of a broker, sorted; empty when there is no such broker. */
  topics(id: string): TopicChannels[] {
    return this.#registry.registrationsOf(this.#brokers.get(id) ?? []);
  }

  /** Whether any producer of a broker is registered for a topic or a channel. */
  isRegistered(id: string, topic: string, channel: string | null): boolean {
    for (const producer of this.#brokers.get(id) ?? []) {
      if (this.#registry.isRegistered(producer, topic, channel)) return true;
    }
    return false;
  }

  #changed(level: 1 | 2): void {
    this.#revision += 1;
    if (level === 2) this.#brokersRevision += 1;
  }
}

/** What producers that are one broker say together; the latest word counts. */
function brokerDocument(producers: Producer[], nowMs: number): BrokerDocument | null {
  const [latest] = producers.sort((a, b) => b.lastSeenMs - a.lastSeenMs);
  if (latest === undefined) return null;
  const registered = producers.find(({ observation }) => observation === null);
  const observed = producers.find(({ observation }) => observation !== null);
  const { info } = registered ?? latest;
  const readiness = observed?.observation?.readiness ?? READY;
  return {
    id: latest.id,
    broadcast_address: info.broadcastAddress,
    hostname: info.hostname,
    tcp_port: info.tcpPort,
    http_port: info.httpPort,
    version: info.version,
    topology_zone: info.topologyZone,
    topology_region: info.topologyRegion,
    registered: registered !== undefined,
    observed: observed !== undefined,
    age_ms: Math.floor(nowMs - latest.lastSeenMs),
    publish_ready: readiness.publishReady,
    consume_ready: readiness.consumeReady,
    reasons: readiness.reasons,
  };
}
