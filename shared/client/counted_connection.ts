/**
 * A subscription that knows what of it is in flight, so that it can end when all is answered.
 *
 * - A message is answered once, and only while its connection is open: other answers do nothing.
 * - After `stop` it ends {@linkcode LINGER_MS} after the last answer: until then that is written, and what was
 *   on its way when the server was told to stop has come. What is not answered goes back at the end.
 */
import type { Timer } from "../runtime/mod.ts";
import type { ClientOptions, ClientSeams } from "./client_link.ts";
import { ConsumerConnection, type Delivery, type DeliveryHandler } from "./consumer_connection.ts";

export const LINGER_MS = 100;

/** Where a message came by, and is answered. */
export interface MessageOrigin {
  readonly brokerId: string;
  finish(id: Uint8Array): void;
  /** Has the message delivered again after `delayMs`. */
  requeue(id: Uint8Array, delayMs: number): void;
  /** Asks for more time for the message. */
  touch(id: Uint8Array): void;
}

/** Called for each message; it must not throw. */
export type MessageHandler = (delivery: Delivery, origin: MessageOrigin) => void;

/** What is subscribed to, and where. */
export interface Subscription {
  readonly brokerId: string;
  readonly client: ClientOptions;
  readonly topic: string;
  readonly channel: string;
  /** The most that `ready` is ever told. */
  readonly inFlightMax: number;
  readonly handler: MessageHandler;
}

/** Who is told what becomes of it. */
export interface SubscriptionOwner {
  /** May come before whoever waits for `subscribe` goes on: `isOpen` says so then. */
  ended(error: Error | null): void;
  failed(text: string): void;
}

/** See the module. */
export class CountedConnection implements DeliveryHandler, MessageOrigin {
  readonly brokerId: string;
  /** What `ready` was told last. */
  readyCount = 0;
  readonly #seams: ClientSeams;
  readonly #options: Subscription & SubscriptionOwner;
  readonly #inFlight = new Set<string>();
  #connection: ConsumerConnection | null = null;
  #isStopping = false;
  #linger: Timer | null = null;

  private constructor(seams: ClientSeams, options: Subscription & SubscriptionOwner) {
    this.brokerId = options.brokerId;
    this.#seams = seams;
    this.#options = options;
  }

  /** Rejects with `ConnectionError`. */
  static async subscribe(
    seams: ClientSeams,
    options: Subscription & SubscriptionOwner,
  ): Promise<CountedConnection> {
    const { client, topic, channel } = options;
    const counted = new CountedConnection(seams, options);
    counted.#connection = await ConsumerConnection.subscribe(
      seams,
      client,
      topic,
      channel,
      counted,
    );
    return counted;
  }

  get isOpen(): boolean {
    return this.#connection?.isOpen === true;
  }

  /** Messages that are not answered. */
  get inFlightCount(): number {
    return this.#inFlight.size;
  }

  /** The most messages that may be in flight from now on. */
  ready(count: number): void {
    if (count === this.readyCount) return;
    this.readyCount = count;
    this.#connection?.ready(count);
  }

  /** Asks for no more, and ends when all is answered. */
  stop(): void {
    this.#isStopping = true;
    this.#connection?.stop();
    this.#lingerIfQuiet();
  }

  close(): void {
    this.#connection?.close();
  }

  // MessageOrigin

  finish(id: Uint8Array): void {
    if (this.#answer(id)) this.#connection?.finish(id);
  }

  requeue(id: Uint8Array, delayMs: number): void {
    if (this.#answer(id)) this.#connection?.requeue(id, delayMs);
  }

  touch(id: Uint8Array): void {
    if (this.#inFlight.has(keyOf(id))) this.#connection?.touch(id);
  }

  // DeliveryHandler

  message(delivery: Delivery): void {
    this.#linger?.cancel();
    const key = keyOf(delivery.id);
    // One that timed out and is back counts as new.
    this.#inFlight.delete(key);
    this.#inFlight.add(key);
    if (this.#inFlight.size > this.#options.inFlightMax) {
      // The server never has so many out: the oldest has timed out and is not ours any more.
      const [oldest] = this.#inFlight;
      this.#inFlight.delete(oldest!);
    }
    this.#options.handler(delivery, this);
  }

  failed(text: string): void {
    this.#options.failed(text);
  }

  ended(error: Error | null): void {
    this.#linger?.cancel();
    this.#inFlight.clear();
    this.#options.ended(error);
  }

  #answer(id: Uint8Array): boolean {
    const isOurs = this.#inFlight.delete(keyOf(id));
    if (isOurs) this.#lingerIfQuiet();
    return isOurs;
  }

  #lingerIfQuiet(): void {
    if (!this.#isStopping || this.#inFlight.size > 0) return;
    this.#linger?.cancel();
    this.#linger = this.#seams.clock.setTimer(LINGER_MS, () => this.close());
  }
}

function keyOf(id: Uint8Array): string {
  return String.fromCharCode(...id);
}
