/**
 * Publishing over one connection. Commands are pipelined; the server answers in their order.
 *
 * Every publish ends in one of three ways, and whoever retries must know which:
 *
 * | Outcome   | What is known                                                                  |
 * |-----------|--------------------------------------------------------------------------------|
 * | confirmed | the server has taken it (from a durable broker: it is on disk)                 |
 * | refused   | it was not taken and never will be: an error names it, it was behind a fatal   |
 * |           | error, or it was never sent                                                    |
 * | unknown   | it was sent and the answer is missing, or the server does not know either      |
 *
 * With `producerId` in the options, and a server that takes it ({@linkcode
 * ProducerConnection.deduplicates}), a publish may have a sequence. One whose outcome is unknown is
 * then sent again with the same sequence, on any connection of the same producer to the same server:
 * it is stored once, and confirmed if it was stored before.
 */
import { encodeSpub, errorCodeOf } from "../protocol/mod.ts";
import {
  ClientLink,
  type ClientOptions,
  type ClientSeams,
  type LinkOwner,
  type ServerFeatures,
} from "./client_link.ts";

/** A publish that was not confirmed. */
export class PublishError extends Error {
  override name = "PublishError";
  constructor(
    message: string,
    /** See the module. */
    readonly outcome: "refused" | "unknown",
    /** What the server said, if it said so of this publish. */
    readonly serverText: string | null,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

interface Waiting {
  readonly bytes: number;
  readonly resolve: () => void;
  readonly reject: (error: PublishError) => void;
}

/** Errors after which the server itself may not know what has become of what it was sent. */
const UNSURE_CODES: readonly (string | undefined)[] = [
  "E_PUB_FAILED",
  "E_MPUB_FAILED",
  "E_DPUB_FAILED",
];

/** See the module. */
export class ProducerConnection implements LinkOwner {
  /** Called once when the connection has ended, after everything that waited was told. */
  onEnd: (error: Error | null) => void = () => {};
  /** Bytes of publishes that wait for their answer. */
  outstandingBytes = 0;
  readonly #link: ClientLink;
  #waiting: Waiting[] = [];
  #head = 0;
  /** The error that the server closes the connection with. */
  #fatalText: string | null = null;

  private constructor(link: ClientLink) {
    this.#link = link;
  }

  /** Rejects with `ConnectionError`. */
  static async connect(seams: ClientSeams, options: ClientOptions): Promise<ProducerConnection> {
    const connection = new ProducerConnection(await ClientLink.connect(seams, options));
    connection.#link.start(connection);
    return connection;
  }

  get address(): string {
    return this.#link.address;
  }

  get features(): ServerFeatures {
    return this.#link.features;
  }

  /** Whether the server knows a repeat of a publish by its sequence. */
  get deduplicates(): boolean {
    return this.#link.features["sluice_producer"] !== undefined;
  }

  get isOpen(): boolean {
    return this.#link.isOpen && this.#fatalText === null;
  }

  /** Publishes that wait for their answer. */
  get outstandingCount(): number {
    return this.#waiting.length - this.#head;
  }

  /**
   * Publishes with a sequence, as `publish`; refused when the server does not know sequences. A batch is
   * `publish(encodeSmpub(...))`.
   */
  publishOnce(topic: string, sequence: number, body: Uint8Array, deferMs = 0): Promise<void> {
    if (this.deduplicates) return this.publish(encodeSpub(topic, sequence, body, deferMs));
    const { address } = this;
    return Promise.reject(
      new PublishError(`${address} does not know sequences of publishes`, "refused", null),
    );
  }

  /**
   * Sends a whole PUB, MPUB, DPUB, SPUB or SMPUB, which must not change afterwards. Resolves when it is confirmed;
   * rejects with {@linkcode PublishError}.
   */
  publish(command: Uint8Array): Promise<void> {
    if (!this.isOpen) {
      const { address } = this;
      return Promise.reject(
        new PublishError(`The connection to ${address} has ended`, "refused", null),
      );
    }
    return new Promise((resolve, reject) => {
      this.outstandingBytes += command.length;
      this.#waiting.push({ bytes: command.length, resolve, reject });
      this.#link.send(command);
    });
  }

  /** Ends the connection: what waits for an answer ends as unknown. */
  close(): void {
    this.#link.close();
  }

  // LinkOwner

  response(_text: string): void {
    this.#take()?.resolve();
  }

  error(text: string): void {
    this.#fatalText = text;
    const code = errorCodeOf(text);
    const isUnsure = UNSURE_CODES.includes(code);
    const refused = this.#take();
    refused?.reject(
      new PublishError(
        `${this.address} refuses a publish: ${text}`,
        isUnsure || code === "E_SEQUENCE_TOO_OLD" ? "unknown" : "refused",
        text,
      ),
    );
    // The server reads no further than a fatal error, and all errors of a producer are.
    this.#rejectAll(isUnsure ? "unknown" : "refused", `${this.address} ends with: ${text}`);
    this.#link.close();
  }

  message(): void {
    // Nobody has subscribed.
  }

  ended(error: Error | null): void {
    this.#rejectAll("unknown", `${this.address} gave no answer`, error);
    this.onEnd(error);
  }

  #take(): Waiting | undefined {
    const waiting = this.#waiting[this.#head];
    if (waiting === undefined) return undefined;
    this.outstandingBytes -= waiting.bytes;
    this.#head++;
    if (this.#head > 1024 && this.#head * 2 > this.#waiting.length) {
      this.#waiting = this.#waiting.slice(this.#head);
      this.#head = 0;
    }
    return waiting;
  }

  #rejectAll(outcome: "refused" | "unknown", message: string, cause?: unknown): void {
    for (let waiting = this.#take(); waiting !== undefined; waiting = this.#take()) {
      waiting.reject(new PublishError(message, outcome, null, { cause }));
    }
  }
}
