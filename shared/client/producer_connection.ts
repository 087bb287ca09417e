/**
 * Publishing over one connection. Commands are pipelined; the server answers in their order.
 *
 * Every publish ends in one of three ways, and whoever retries must know which:
 *
 * | Outcome   | What is known                                                                  |
 * |-----------|--------------------------------------------------------------------------------|
 * | confirmed | the server has taken it (from a durable broker: it is on disk)                 |
 * | refused   | it was not taken and never will be                                             |
 * | unknown   | it was sent and the answer is missing, or the server does not know either      |
 *
 * | What happens                              | The publish it is about | Those behind it        |
 * |-------------------------------------------|-------------------------|------------------------|
 * | `E_INVALID`, `E_BAD_*`, `E_UNAUTHORIZED`, | refused                 | refused                |
 * | `E_AUTH_*`, `E_THROTTLED`                 |                         |                        |
 * | `E_CLOSING`: the server stops             |                         | refused, all of them   |
 * | `E_SEQUENCE_TOO_OLD`                      | unknown                 | refused                |
 * | any other error, as `E_PUB_FAILED`        | unknown                 | unknown                |
 * | the connection ends in any other way:     |                         | unknown                |
 * | closed, reset, silent, a frame too large, |                         |                        |
 * | an answer that is none                    |                         |                        |
 *
 * From a server that answers each publish it took ({@linkcode ProducerConnection.answersEach}; a gateway
 * does, which has sent on what is behind an error), those behind an error of one publish wait for their own
 * answers, and `E_CLOSING` refuses those that have none.
 *
 * One of which not a byte was given to the system when the connection ended is refused in every case.
 * What is refused is this sending of a publish: with a sequence that was sent before on another
 * connection, and is unknown there, it may be stored all the same. An MPUB too large for one group of the
 * server's log can be stored in part when it gets `E_THROTTLED`, if no producer was named.
 *
 * With `producerId` in the options, and a server that takes it ({@linkcode
 * ProducerConnection.deduplicates}), a publish may have a sequence. One whose outcome is unknown is
 * then sent again with the same sequence, on any connection of the same producer to the same server:
 * it is stored once, and confirmed if it was stored before.
 */
import { encodeSpub, type ErrorCode, errorCodeOf, OK_TEXT } from "../protocol/mod.ts";
import { ConnectionError } from "../runtime/mod.ts";
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
    /** What the server said, if it spoke of this publish; `E_CLOSING` speaks of all. */
    readonly serverText: string | null,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

/** What became of a publish. */
export type PublishOutcome = "confirmed" | PublishError;

/** Told once what became of a publish. It must not throw. */
export type Settle = (outcome: PublishOutcome) => void;

interface Waiting {
  readonly bytes: number;
  /** Where it begins among the bytes that were ever sent. */
  readonly start: number;
  readonly settle: Settle;
}

/** Entries that have been answered are kept until there are as many, and more than others. */
const USED_ENTRIES_MAX = 1024;
/** Takes the place of an entry that was answered, so that nothing of it is held. */
const ANSWERED: Waiting = { bytes: 0, start: 0, settle: () => {} };

/** Errors that prove that their publish was not taken, nor any behind it. Of any other code nothing is known. */
const CERTAIN_CODES: ReadonlySet<ErrorCode> = new Set<ErrorCode>([
  "E_INVALID",
  "E_BAD_PROTOCOL",
  "E_BAD_BODY",
  "E_BAD_TOPIC",
  "E_BAD_MESSAGE",
  "E_AUTH_DISABLED",
  "E_AUTH_FAILED",
  "E_AUTH_FIRST",
  "E_AUTH_ERROR",
  "E_UNAUTHORIZED",
  "E_THROTTLED",
]);

/** See the module. */
export class ProducerConnection implements LinkOwner {
  /**
   * Called once when the connection has ended, after everything that waited was told; null when this side
   * has closed it.
   */
  onEnd: (error: Error | null) => void = () => {};
  /** Bytes of publishes that wait for their answer. */
  outstandingBytes = 0;
  readonly #link: ClientLink;
  #waiting: Waiting[] = [];
  #head = 0;
  /** Why the server ends the connection, or this side because of it. */
  #endError: Error | null = null;

  private constructor(link: ClientLink) {
    this.#link = link;
  }

  /** Rejects with `ConnectionError`. */
  static async connect(seams: ClientSeams, options: ClientOptions): Promise<ProducerConnection> {
    const identify = { ...options.identify, sluice_outcomes: true };
    const link = await ClientLink.connect(seams, { ...options, identify });
    const connection = new ProducerConnection(link);
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

  /** Whether the server answers each publish that it took, also behind an error. */
  get answersEach(): boolean {
    return this.#link.features["sluice_outcomes"] === true;
  }

  get isOpen(): boolean {
    return this.#link.isOpen && this.#endError === null;
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
   * Sends a whole PUB, MPUB, DPUB, SPUB or SMPUB, in one part or in several, which must not change
   * afterwards. Resolves when it is confirmed; rejects with {@linkcode PublishError}.
   */
  publish(...parts: Uint8Array[]): Promise<void> {
    return new Promise((resolve, reject) => {
      this.send((outcome) => {
        if (outcome === "confirmed") resolve();
        else reject(outcome);
      }, ...parts);
    });
  }

  /**
   * As `publish`, without a promise: `settle` is told the outcome, within this call when the connection
   * has ended. Publishes that end for one reason share their error.
   */
  send(settle: Settle, ...parts: Uint8Array[]): void {
    if (!this.isOpen) {
      return settle(
        new PublishError(`The connection to ${this.address} has ended`, "refused", null),
      );
    }
    const link = this.#link;
    const start = link.sentBytes;
    link.send(...parts);
    const bytes = link.sentBytes - start;
    this.outstandingBytes += bytes;
    this.#waiting.push({ bytes, start, settle });
  }

  /** Ends the connection: what was sent and waits for an answer ends as unknown. */
  close(): void {
    this.#link.close();
  }

  // LinkOwner

  response(text: string): void {
    const isAnswer = text === OK_TEXT && this.#isSent(this.#waiting[this.#head]);
    if (isAnswer) return this.#take()?.settle("confirmed");
    this.#endError = new ConnectionError(`${this.address} answers what was not asked: ${text}`);
    this.#link.close();
  }

  error(text: string): void {
    const message = `${this.address} ends with: ${text}`;
    // From here on nothing is taken, also from those who are told now.
    this.#endError = new ConnectionError(message);
    const code = errorCodeOf(text);
    if (code === "E_CLOSING") {
      this.#settleAll(new PublishError(message, "refused", text));
    } else {
      const isCertain = code !== undefined && CERTAIN_CODES.has(code);
      const isTooOld = code === "E_SEQUENCE_TOO_OLD";
      this.#take()?.settle(
        new PublishError(
          `${this.address} refuses a publish: ${text}`,
          isCertain ? "refused" : "unknown",
          text,
        ),
      );
      // The others have answers of their own; the server ends the connection behind the last one.
      if (this.answersEach) return;
      // The server reads no further than an error that ends the connection.
      this.#settleAll(
        new PublishError(message, isCertain || isTooOld ? "refused" : "unknown", null),
      );
    }
    this.#link.close();
  }

  message(): void {
    // Nobody has subscribed.
  }

  ended(error: Error | null): void {
    const cause = this.#endError ?? error;
    this.#settleAll(new PublishError(`${this.address} gave no answer`, "unknown", null, { cause }));
    this.onEnd(cause);
  }

  #take(): Waiting | undefined {
    const waiting = this.#waiting[this.#head];
    if (waiting === undefined) return undefined;
    this.outstandingBytes -= waiting.bytes;
    this.#waiting[this.#head++] = ANSWERED;
    if (this.#head === this.#waiting.length) {
      this.#waiting.length = 0;
      this.#head = 0;
    } else if (this.#head > USED_ENTRIES_MAX && this.#head * 2 > this.#waiting.length) {
      this.#waiting = this.#waiting.slice(this.#head);
      this.#head = 0;
    }
    return waiting;
  }

  /** All end as `error` says, but for those that never left: they are refused. */
  #settleAll(error: PublishError): void {
    let unsent: PublishError | null = error.outcome === "refused" ? error : null;
    for (let waiting = this.#take(); waiting !== undefined; waiting = this.#take()) {
      if (this.#isSent(waiting)) {
        waiting.settle(error);
      } else {
        const { message, cause } = error;
        unsent ??= new PublishError(`${message}, and it was not sent`, "refused", null, { cause });
        waiting.settle(unsent);
      }
    }
  }

  /** Whether any byte of a publish was given to the system. */
  #isSent(waiting: Waiting | undefined): boolean {
    return waiting !== undefined && waiting.start < this.#link.handedBytes;
  }
}
