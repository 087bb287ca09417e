/** What `/stats` says of a gateway, as JSON. */
import type { BrokerPool } from "./pool.ts";
import type { Publisher } from "./publisher.ts";
import type { SpoolHealth } from "./health.ts";

/** See the module. */
export interface GatewayStats {
  readonly connections: number;
  readonly publishes: Readonly<Record<string, number>>;
  readonly held_publishes: number;
  readonly held_bytes: number;
  readonly brokers: readonly BrokerStats[];
  readonly sources: readonly unknown[];
  readonly spool: SpoolHealth | null;
}

/** A broker in it. */
export interface BrokerStats {
  readonly id: string;
  readonly usable: boolean;
  readonly connected: boolean;
  readonly circuit: string;
  /** Why it is not used; empty when it is. */
  readonly reason: string;
  readonly outstanding: number;
  readonly outstanding_bytes: number;
  readonly confirmed: number;
}

/** The brokers of a pool. */
export function brokerStats(pool: BrokerPool): BrokerStats[] {
  return [...pool.links.values()].map((link) => ({
    id: link.id,
    usable: link.isUsable,
    connected: link.isConnected,
    circuit: link.circuit.state,
    reason: link.reason,
    outstanding: link.outstandingCount,
    outstanding_bytes: link.outstandingBytes,
    confirmed: link.confirmedCount,
  }));
}

/** Outcomes of publishes so far, and messages in them. */
export function publishStats(publisher: Publisher): Record<string, number> {
  return { ...publisher.counts, messages: publisher.messageCount };
}
