/**
 * The words of the registry: what a producer is, how it is known, and who is told when that changes. A
 * producer that registered has no observation; one that was asked has the readiness it told of.
 */
import type { LookupPeer } from "@sluice/shared/protocol";
import { hostAndPort } from "@sluice/shared/runtime";

/** What a producer says of itself when it connects. */
export type ProducerInfo = LookupPeer;

/** What an observed producer says it can do. */
export interface Readiness {
  readonly publishReady: boolean;
  readonly consumeReady: boolean;
  /** Codes of `/v1/health`. */
  readonly reasons: readonly string[];
}

/** How a producer that did not register is known. */
export interface Observation {
  readonly readiness: Readiness;
  /** How long after it was last seen it still counts. */
  readonly freshMs: number;
}

/** A connected or observed producer as seen from outside. */
export interface Producer {
  readonly remoteAddress: string;
  readonly info: ProducerInfo;
  readonly lastSeenMs: number;
  /** `<broadcast address>:<TCP port>`, the same for all producers that are one broker. */
  readonly id: string;
  /** `null` for one that registered. */
  readonly observation: Observation | null;
}

/** Told of every change, after it is made. */
export interface RegistryObserver {
  producerAdded(producer: Producer): void;
  producerRemoved(producer: Producer): void;
  readinessChanged(producer: Producer): void;
  /** A registration came or went; `channel` is `null` for that of the topic itself. */
  registrationChanged(producer: Producer, topic: string, channel: string | null): void;
}

/** A topic and channels of it. */
export interface TopicChannels {
  readonly topic: string;
  readonly channels: readonly string[];
}

/** By broker, and then by connection. */
export function compareProducers(a: Producer, b: Producer): number {
  return compareText(a.info.broadcastAddress, b.info.broadcastAddress) ||
    a.info.tcpPort - b.info.tcpPort ||
    compareText(a.remoteAddress, b.remoteAddress);
}

/** The name of a broker: where its clients find it. */
export function brokerId(broadcastAddress: string, tcpPort: number): string {
  return hostAndPort(broadcastAddress, tcpPort);
}

/** Whether both say the same. */
export function isSameReadiness(a: Readiness, b: Readiness): boolean {
  return a.publishReady === b.publishReady && a.consumeReady === b.consumeReady &&
    a.reasons.join() === b.reasons.join();
}

/** By code unit, as `<` does. */
export function compareText(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
