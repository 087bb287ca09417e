/** What a channel knows of a consumer, and what it asks of the connection behind it. */
import { DeliveryList } from "./in_flight.ts";
import type { MessageView } from "./message_source.ts";

/** The connection of a consumer. A channel never waits for it. */
export interface ConsumerPort {
  /** Whether a message can be taken now. When it becomes true again, `Channel.writable` is called. */
  readonly writable: boolean;
  /** Copies the message out; the view is borrowed for the call. */
  deliver(message: MessageView, attempts: number): void;
  /** The channel is gone: the connection is closed. */
  channelDeleted(): void;
}

/** One subscription. Only its channel changes it. */
export class Consumer {
  readonly deliveries = new DeliveryList();
  /** The most messages it wants in flight. */
  ready = 0;
  /** True once it has asked for no more (CLS). */
  closing = false;
  messageCount = 0;
  finishCount = 0;
  requeueCount = 0;
  /** Neighbours in the ring of consumers that can take a message; null when it is not in it. */
  next: Consumer | null = null;
  previous: Consumer | null = null;

  constructor(
    /** Never used again on this channel. */
    readonly number: number,
    readonly port: ConsumerPort,
    readonly msgTimeoutMs: number,
    /** Percent of messages it wants, 0 for all. */
    readonly sampleRate: number,
  ) {}

  get able(): boolean {
    return this.ready > this.deliveries.count && !this.closing && this.port.writable;
  }
}

/** The consumers of a channel that can take a message, in turn. */
export class ConsumerRing {
  #current: Consumer | null = null;

  /** The one whose turn it is, or null. */
  get current(): Consumer | null {
    return this.#current;
  }

  /** Puts a consumer in, last in turn, or takes it out, as it is able. */
  update(consumer: Consumer): void {
    const isIn = consumer.next !== null;
    if (consumer.able === isIn) return;
    if (isIn) this.remove(consumer);
    else this.#add(consumer);
  }

  /** Passes the turn on. */
  rotate(): void {
    this.#current = this.#current?.next ?? null;
  }

  remove(consumer: Consumer): void {
    const { next, previous } = consumer;
    if (next === null || previous === null) return;
    if (next === consumer) {
      this.#current = null;
    } else {
      previous.next = next;
      next.previous = previous;
      if (this.#current === consumer) this.#current = next;
    }
    consumer.next = null;
    consumer.previous = null;
  }

  #add(consumer: Consumer): void {
    const current = this.#current;
    const last = current?.previous ?? null;
    if (current === null || last === null) {
      consumer.next = consumer;
      consumer.previous = consumer;
      this.#current = consumer;
      return;
    }
    consumer.next = current;
    consumer.previous = last;
    last.next = consumer;
    current.previous = consumer;
  }
}
