/**
 * The way of some messages through the broker, as spans of one trace each:
 *
 * ```
 * publish   from the command to what it is confirmed for: on disk, or as the topic's mode says
 * '- deliver    with a consumer: from the frame to the answer, one for each attempt
 *    '- finish      from FIN until that is on disk
 * ```
 *
 * - A share of all messages is traced, drawn at random; a publish over HTTP with a `traceparent` is if,
 *   and only if, that says so.
 * - Which trace a message belongs to is in memory only, of {@linkcode TRACED_MAX} messages at most, the
 *   oldest are forgotten first: what was published before a start, or long ago, has no spans.
 * - A body is never in a span.
 */
import { messageIdText } from "@sluice/shared/protocol";
import type { Random, Span, TraceContext, Tracer } from "@sluice/shared/runtime";
import type { DurableWaiter } from "./durable_waiters.ts";

/** Messages that the trace is remembered of, and the most spans that are open, of each kind. */
export const TRACED_MAX = 8_192;

/** What a {@linkcode MessageTraces} stands on. */
export interface TraceWorld {
  readonly tracer: Tracer;
  readonly random: Random;
  readonly nodeId: number;
  /** Where the log is durable, and where publishes to relaxed topics may be confirmed. */
  readonly ends: { readonly durable: number; readonly confirmable: number };
  /** Has the waiter told of what becomes durable. */
  await(waiter: DurableWaiter): void;
}

/** What of a broker its traces look at. */
export interface TracedBroker {
  readonly storage: {
    readonly nodeId: number;
    readonly confirmableEnd: number;
    readonly log: { readonly durableEnd: number };
  };
  await(waiter: DurableWaiter): void;
}

/** A message that is being published. */
export interface PublishedMessage {
  readonly topic: string;
  readonly sequence: number;
  readonly bytes: number;
  /** Where the log ends behind it. */
  readonly position: number;
  readonly isRelaxed: boolean;
}

/** Whose delivery it is. */
export interface DeliveredTo {
  readonly topic: string;
  readonly channel: string;
}

/** Why a delivery was over. */
export type DeliveryOutcome = "finished" | "requeued" | "redelivered" | "forgotten";

interface Awaited {
  readonly span: Span;
  readonly position: number;
  readonly isRelaxed: boolean;
  readonly outcome: string;
}

/** See the module. */
export class MessageTraces implements DurableWaiter {
  /** The share of messages that are traced, from 0 to 1. */
  share = 0;
  /** What the next publish continues. */
  #parent: TraceContext | null = null;
  readonly #world: TraceWorld;
  /** The traces of messages, by sequence, in the order they were published. */
  readonly #published = new Map<number, TraceContext>();
  readonly #deliveries = new Map<string, Span>();
  #awaited: Awaited[] = [];

  constructor(world: TraceWorld) {
    this.#world = world;
  }

  /** Has the next publish, which a door makes in the same turn, be of a trace. */
  continue(parent: TraceContext | null): void {
    this.#parent = parent;
  }

  /** A message has been put in the log. */
  published({ topic, sequence, bytes, position, isRelaxed }: PublishedMessage): void {
    const parent = this.#parent;
    this.#parent = null;
    if (parent === null ? !this.#isDrawn() : !parent.isSampled || this.share === 0) return;
    if (this.#awaited.length >= TRACED_MAX) return;
    const { tracer, nodeId } = this.#world;
    const span = tracer.begin("publish", "producer", parent, {
      "messaging.system": "sluice",
      "messaging.destination.name": topic,
      "messaging.message.id": messageIdText(nodeId, sequence),
      "messaging.message.body.size": bytes,
    });
    this.#published.set(sequence, span.context);
    if (this.#published.size > TRACED_MAX) forgetFirst(this.#published);
    this.#endOnDisk({ span, position, isRelaxed, outcome: "confirmed" });
  }

  /** A message goes out to a consumer. */
  delivered(to: DeliveredTo, sequence: number, attempts: number, bytes: number): void {
    const parent = this.#published.get(sequence);
    if (parent === undefined) return;
    const key = keyOf(to, sequence);
    // It ran out of time, or its consumer has left.
    this.#endDelivery(key, "redelivered");
    const span = this.#world.tracer.begin("deliver", "consumer", parent, {
      ...this.#attributesOf(to, sequence),
      "messaging.message.body.size": bytes,
      "sluice.attempts": attempts,
    });
    this.#deliveries.set(key, span);
    if (this.#deliveries.size > TRACED_MAX) {
      forgetFirst(this.#deliveries)?.end({ "sluice.outcome": "forgotten" });
    }
  }

  /** A consumer is done with a message; the decision is in the log up to `position`. */
  answered(
    to: DeliveredTo,
    sequence: number,
    outcome: "finished" | "requeued",
    position: number,
  ): void {
    if (!this.#published.has(sequence)) return;
    const delivery = this.#endDelivery(keyOf(to, sequence), outcome);
    if (outcome === "requeued" || delivery === null || this.#awaited.length >= TRACED_MAX) return;
    const attributes = this.#attributesOf(to, sequence);
    const span = this.#world.tracer.begin("finish", "internal", delivery.context, attributes);
    this.#endOnDisk({ span, position, isRelaxed: false, outcome: "durable" });
  }

  // DurableWaiter

  durable(end: number): boolean {
    return this.#settle(end, this.#world.ends.confirmable);
  }

  written(end: number): boolean {
    return this.#settle(this.#world.ends.durable, end);
  }

  failed(_error: Error): void {
    for (const { span } of this.#awaited.splice(0)) span.end({ "sluice.outcome": "failed" });
  }

  #isDrawn(): boolean {
    return this.share > 0 && this.#world.random.u32() < this.share * 2 ** 32;
  }

  #attributesOf({ topic, channel }: DeliveredTo, sequence: number) {
    return {
      "messaging.system": "sluice",
      "messaging.destination.name": topic,
      "messaging.consumer.group.name": channel,
      "messaging.message.id": messageIdText(this.#world.nodeId, sequence),
    };
  }

  #endDelivery(key: string, outcome: DeliveryOutcome): Span | null {
    const span = this.#deliveries.get(key);
    if (span === undefined) return null;
    this.#deliveries.delete(key);
    span.end({ "sluice.outcome": outcome });
    return span;
  }

  #endOnDisk(awaited: Awaited): void {
    if (awaited.position <= this.#world.ends.durable) {
      return awaited.span.end({ "sluice.outcome": awaited.outcome });
    }
    if (this.#awaited.length === 0) this.#world.await(this);
    this.#awaited.push(awaited);
  }

  /** Ends what waited for no more than this; whether more is waited for. */
  #settle(durableEnd: number, confirmableEnd: number): boolean {
    this.#awaited = this.#awaited.filter(({ span, position, isRelaxed, outcome }) => {
      const isThere = position <= durableEnd || (isRelaxed && position <= confirmableEnd);
      if (isThere) span.end({ "sluice.outcome": outcome });
      return !isThere;
    });
    return this.#awaited.length > 0;
  }
}

/** The traces of a broker. */
export function messageTraces(broker: TracedBroker, tracer: Tracer, random: Random): MessageTraces {
  const { storage } = broker;
  return new MessageTraces({
    tracer,
    random,
    nodeId: storage.nodeId,
    ends: {
      get durable() {
        return storage.log.durableEnd;
      },
      get confirmable() {
        return storage.confirmableEnd;
      },
    },
    await: (waiter) => broker.await(waiter),
  });
}

function keyOf({ topic, channel }: DeliveredTo, sequence: number): string {
  return `${topic}/${channel}/${sequence}`;
}

/** Takes the entry out that was put in first. */
function forgetFirst<K, V>(map: Map<K, V>): V | undefined {
  const first = map.entries().next();
  if (first.done === true) return undefined;
  const [key, value] = first.value;
  map.delete(key);
  return value;
}
