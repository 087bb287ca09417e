/**
 * `/pub` and `/mpub`: contract section 3.2. A 200 is sent once the messages are on disk.
 *
 * ```
 * text mpub   = message *( LF message )                ; empty lines are skipped, CR is kept
 * binary mpub = int32-count *( int32-size message )    ; the body of MPUB
 * ```
 */
import { errorReply, HttpError, parseQuery, readBody, textReply } from "@sluice/shared/http";
import { isValidName, MpubScanner } from "@sluice/shared/protocol";
import type { Broker } from "../broker.ts";
import type { Topic } from "../queue/mod.ts";
import { refusal } from "./http_refusal.ts";

/** Limits of publishing over HTTP. */
export interface HttpPublisherOptions {
  readonly messageBytesMax: number;
  readonly bodyBytesMax: number;
  /** Bounds `defer`. */
  readonly requeueMsMax: number;
  readonly maxDeflateLevel: number;
  /** How long a peer may take to send a body. */
  readonly bodyTimeoutMs: number;
}

const LINE_FEED = 0x0a;
const DIGITS_REGEXP = /^\d{1,15}$/;

/** A message within a body. */
interface Part {
  readonly start: number;
  readonly end: number;
}

/** Carries out publishes over HTTP. */
export class HttpPublisher {
  readonly #broker: Broker;
  readonly #options: HttpPublisherOptions;

  constructor(broker: Broker, options: HttpPublisherOptions) {
    this.#broker = broker;
    this.#options = options;
  }

  publish(request: Request): Promise<Response> {
    return this.#answer(async () => {
      const { messageBytesMax } = this.#options;
      const body = await this.#receive(request, messageBytesMax, "MSG_TOO_BIG");
      if (body.length === 0) throw new HttpError(400, "MSG_EMPTY");
      const query = this.#query(request);
      const topic = this.#topic(query);
      const dueMs = this.#dueMs(query);
      await this.#write(topic, body, [{ start: 0, end: body.length }], dueMs);
    });
  }

  publishMany(request: Request): Promise<Response> {
    return this.#answer(async () => {
      const body = await this.#receive(request, this.#options.bodyBytesMax, "BODY_TOO_BIG");
      const query = this.#query(request);
      const topic = this.#topic(query);
      const dueMs = this.#dueMs(query);
      const parts = isBinary(query.get("binary")) ? this.#binaryParts(body) : this.#lines(body);
      await this.#write(topic, body, parts, dueMs);
    });
  }

  async #answer(publish: () => Promise<void>): Promise<Response> {
    try {
      await publish();
      return textReply("OK");
    } catch (error) {
      if (error instanceof HttpError) return errorReply(error.status, error.code);
      this.#broker.logger.error("Cannot publish over HTTP", { error: String(error) });
      return errorReply(500, "INTERNAL_ERROR");
    }
  }

  /** Reads a body, within the memory that all publishes share. */
  async #receive(request: Request, bytesMax: number, tooLarge: string): Promise<Uint8Array> {
    const declared = Number(request.headers.get("content-length") ?? bytesMax);
    if (!(declared <= bytesMax)) {
      await request.body?.cancel();
      throw new HttpError(413, tooLarge);
    }
    const broker = this.#broker;
    if (!broker.stage(declared)) {
      await request.body?.cancel();
      throw new HttpError(429, "TOO_MANY_BYTES");
    }
    const late = new AbortController();
    const timer = broker.clock.setTimer(this.#options.bodyTimeoutMs, () => late.abort());
    try {
      const body = await readBody(request, bytesMax, late.signal);
      if (body.kind === "too_large") throw new HttpError(413, tooLarge);
      if (body.kind === "cut") throw new HttpError(408, "BODY_INCOMPLETE");
      return body.bytes;
    } finally {
      timer.cancel();
      broker.unstage(declared);
    }
  }

  #query(request: Request): ReadonlyMap<string, string> {
    const query = parseQuery(request.url);
    if (query === null) throw new HttpError(400, "INVALID_REQUEST");
    return query;
  }

  #topic(query: ReadonlyMap<string, string>): Topic {
    const name = query.get("topic");
    if (name === undefined) throw new HttpError(400, "MISSING_ARG_TOPIC");
    if (!isValidName(name)) throw new HttpError(400, "INVALID_TOPIC");
    try {
      return this.#broker.ensureTopic(name);
    } catch (error) {
      throw refusal(error);
    }
  }

  /** When the messages are due, Unix ms; 0 for at once. */
  #dueMs(query: ReadonlyMap<string, string>): number {
    const text = query.get("defer");
    if (text === undefined) return 0;
    const deferMs = DIGITS_REGEXP.test(text) ? Number(text) : -1;
    if (deferMs < 0 || deferMs > this.#options.requeueMsMax) {
      throw new HttpError(400, "INVALID_DEFER");
    }
    return deferMs === 0 ? 0 : this.#broker.clock.wallMs() + deferMs;
  }

  #lines(body: Uint8Array): Part[] {
    const parts: Part[] = [];
    for (let start = 0; start < body.length;) {
      const found = body.indexOf(LINE_FEED, start);
      const end = found < 0 ? body.length : found;
      if (end - start > this.#options.messageBytesMax) throw new HttpError(413, "MSG_TOO_BIG");
      if (end > start) parts.push({ start, end });
      start = end + 1;
    }
    return parts;
  }

  #binaryParts(body: Uint8Array): Part[] {
    const scanner = new MpubScanner(this.#options);
    scanner.begin(body.length);
    const error = scanner.check(body, 0, body.length) ??
      (body.length === 0 ? scanner.endOfStream() : undefined);
    if (error !== undefined) throw new HttpError(413, error.code.slice("E_".length));
    const parts: Part[] = [];
    scanner.rewind();
    while (scanner.nextMessage(body, 0)) {
      parts.push({ start: scanner.messageStart, end: scanner.messageEnd });
    }
    return parts;
  }

  /** Writes the messages, in one group when they fit one, and waits for the disk. */
  async #write(
    topic: Topic,
    body: Uint8Array,
    parts: readonly Part[],
    dueMs: number,
  ): Promise<void> {
    const broker = this.#broker;
    const isWhole = broker.storage.fitsGroup(body.length, parts.length);
    while (isWhole && !broker.hasRoom(body.length, parts.length)) await broker.room();
    try {
      for (const { start, end } of parts) {
        while (!isWhole && !broker.hasRoom(end - start, 1)) await broker.room();
        broker.publish(
          topic.deleted ? broker.ensureTopic(topic.state.name) : topic,
          body,
          start,
          end,
          dueMs,
        );
      }
      await broker.durableTo(broker.position);
    } catch (error) {
      throw refusal(error);
    }
  }
}

/** nsqd's reading of `binary`: absent, `false` and `0` mean text, anything else binary. */
function isBinary(value: string | undefined): boolean {
  return value !== undefined && value !== "false" && value !== "0";
}
