/**
 * One subscription on one server: messages in, FIN, REQ and TOUCH out. Whoever handles the messages
 * answers each of them once; how many may be in flight is what `ready` was last told.
 */
import {
  CLS_COMMAND,
  encodeFin,
  encodeRdy,
  encodeReq,
  encodeSub,
  encodeTouch,
  isFatalErrorText,
  MESSAGE_BODY_OFFSET,
  MESSAGE_ID_OFFSET,
  OK_TEXT,
  readAttempts,
  readTimestampMs,
} from "../protocol/mod.ts";
import { ConnectionError } from "../runtime/mod.ts";
import { ClientLink, type ClientOptions, type ClientSeams, type LinkOwner } from "./client_link.ts";

/** A message as it was delivered; all of it is the receiver's. */
export interface Delivery {
  /** 16 bytes. */
  readonly id: Uint8Array;
  readonly timestampMs: number;
  /** Deliveries so far, this one included. */
  readonly attempts: number;
  readonly body: Uint8Array;
}

/** Who handles what is delivered. */
export interface DeliveryHandler {
  message(delivery: Delivery, connection: ConsumerConnection): void;
  /** An error about one message that leaves the connection open: a FIN that came too late, say. */
  failed?(text: string): void;
  /** Nothing comes any more; null when this side has closed it. */
  ended(error: Error | null): void;
}

/** See the module. */
export class ConsumerConnection implements LinkOwner {
  readonly #link: ClientLink;
  readonly #handler: DeliveryHandler;
  #subscribed: { resolve: () => void; reject: (error: Error) => void } | null = null;
  #over = false;

  private constructor(link: ClientLink, handler: DeliveryHandler) {
    this.#link = link;
    this.#handler = handler;
  }

  /** Rejects with `ConnectionError` when the server is not there or refuses. Nothing comes before `ready`. */
  static async subscribe(
    seams: ClientSeams,
    options: ClientOptions,
    topic: string,
    channel: string,
    handler: DeliveryHandler,
  ): Promise<ConsumerConnection> {
    const link = await ClientLink.connect(seams, options);
    const connection = new ConsumerConnection(link, handler);
    await new Promise<void>((resolve, reject) => {
      connection.#subscribed = { resolve, reject };
      link.start(connection);
      link.send(encodeSub(topic, channel));
    });
    return connection;
  }

  get address(): string {
    return this.#link.address;
  }

  get isOpen(): boolean {
    return this.#link.isOpen;
  }

  /** The most messages that may be in flight from now on. */
  ready(count: number): void {
    this.#link.send(encodeRdy(count));
  }

  finish(id: Uint8Array): void {
    this.#link.send(encodeFin(id));
  }

  /** Has the message delivered again after `delayMs`. */
  requeue(id: Uint8Array, delayMs: number): void {
    this.#link.send(encodeReq(id, delayMs));
  }

  /** Asks for more time for the message. */
  touch(id: Uint8Array): void {
    this.#link.send(encodeTouch(id));
  }

  /** Asks for no more messages; what is in flight can still be answered. */
  stop(): void {
    this.#link.send(CLS_COMMAND);
  }

  /** Ends the connection: what is in flight goes back. */
  close(): void {
    this.#link.close();
  }

  // LinkOwner

  response(text: string): void {
    if (text !== OK_TEXT) return;
    this.#subscribed?.resolve();
    this.#subscribed = null;
  }

  error(text: string): void {
    if (isFatalErrorText(text)) {
      this.ended(new ConnectionError(`${this.address} ends the subscription: ${text}`));
    } else {
      this.#handler.failed?.(text);
    }
  }

  message(buffer: Uint8Array, start: number, end: number): void {
    this.#handler.message({
      id: buffer.slice(start + MESSAGE_ID_OFFSET, start + MESSAGE_BODY_OFFSET),
      timestampMs: readTimestampMs(buffer, start),
      attempts: readAttempts(buffer, start),
      body: buffer.slice(start + MESSAGE_BODY_OFFSET, end),
    }, this);
  }

  ended(error: Error | null): void {
    if (this.#over) return;
    this.#over = true;
    this.#link.close();
    if (this.#subscribed === null) return this.#handler.ended(error);
    this.#subscribed.reject(error ?? new ConnectionError("The subscription was closed"));
    this.#subscribed = null;
  }
}
