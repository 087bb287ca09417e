/**
 * How far a drain has come, over all topics and channels: what consumers are still owed, and what is on
 * its way in or out. Counting takes a step for each topic and channel, and changes nothing.
 */
import type { DrainState } from "./drain.ts";
import type { Topic } from "./queue/mod.ts";

/** What is looked at. */
export interface DrainedBroker {
  readonly drain: { readonly state: DrainState };
  readonly topics: ReadonlyMap<string, Topic>;
  readonly storage: { readonly log: { readonly end: number; readonly durableEnd: number } };
  readonly stagedBytes: number;
  readonly uploads: { readonly size: number };
  readonly deliveryMemory: { readonly usedBytes: number };
}

/** What `/v1/drain` says. */
export interface DrainReport {
  readonly draining: boolean;
  readonly delivery_frozen: boolean;
  /** It drains with deliveries frozen, and nothing is in flight or on its way: it is at rest. */
  readonly quiesced: boolean;
  /** Nobody is owed anything, and nothing is on its way: without messages to lose. */
  readonly empty: boolean;
  /** Since when it drains, ISO 8601 in UTC. */
  readonly since: string | null;
  /** Messages that wait for a consumer, of a channel or of a topic that has none. */
  readonly depth: number;
  /** Messages that a consumer has and has not answered. */
  readonly in_flight: number;
  /** Messages that wait for their time. */
  readonly deferred: number;
  /** Publishes being received, and those that are not on disk yet. */
  readonly publish_bytes: number;
  /** Bodies of large messages in memory, on their way to consumers. */
  readonly delivery_bytes: number;
}

/** The state of a broker at one moment. */
export function drainReport(broker: DrainedBroker): DrainReport {
  const { draining, frozen, sinceMs } = broker.drain.state;
  let depth = 0;
  let inFlight = 0;
  let deferred = 0;
  let unsynced = false;
  for (const topic of broker.topics.values()) {
    // A topic without channels counts all that it keeps for the first one, deferred or not.
    depth += topic.depth;
    unsynced ||= topic.state.tail > topic.state.durableTail;
    for (const channel of topic.channels.values()) {
      depth += channel.depth;
      inFlight += channel.inFlightCount;
      deferred += channel.deferredCount;
    }
  }
  const { log } = broker.storage;
  let publishBytes = broker.stagedBytes;
  // Parts of large messages are in the log before there is a message.
  if (unsynced || broker.uploads.size > 0) publishBytes += Math.max(1, log.end - log.durableEnd);
  const deliveryBytes = broker.deliveryMemory.usedBytes;
  const isStill = inFlight === 0 && publishBytes === 0 && deliveryBytes === 0;
  return {
    draining,
    delivery_frozen: frozen,
    quiesced: draining && frozen && isStill,
    empty: isStill && depth === 0 && deferred === 0,
    since: draining ? new Date(sinceMs).toISOString() : null,
    depth,
    in_flight: inFlight,
    deferred,
    publish_bytes: publishBytes,
    delivery_bytes: deliveryBytes,
  };
}
