/**
 * `/pub` and `/mpub`: contract section 3.2. A 200 is sent once the messages are on disk, or
 * as the topic's mode says.
 *
 * ```
 * text mpub   = message *( LF message )                ; empty lines are skipped, CR is kept
 * binary mpub = int32-count *( int32-size message )    ; the body of MPUB
 * ```
 */
import { errorReply, HttpError, parseQuery, readBody, textReply } from "@sluice/shared/http";
import { isValidName, MpubScanner } from "@sluice/shared/protocol";
import { InvariantError } from "@sluice/shared/runtime";
import type { Broker } from "../broker.ts";
import type { Topic } from "../queue/mod.ts";
import { refusal, THROTTLED } from "./http_refusal.ts";

/** Limits of publishing over HTTP. */
export interface HttpPublisherOptions {
  readonly messageBytesMax: number;
  readonly bodyBytesMax: number;
  /** Bounds `defer`. */
  readonly deferMsMax: number;
  readonly maxDeflateLevel: number;
  /** How long a peer may take to send a body. */
  readonly bodyTimeoutMs: number;
}

/** When a publish that was refused for want of disk space may be tried again. */
const RETRY_AFTER: readonly [string, string][] = [["Retry-After", "1"]];
const LINE_FEED = 0x0a;
const DIGITS_REGEXP = /^\d{1,15}$/;

/** Messages within a body that was checked. `each` makes no list: a body may hold millions. */
interface Parts {
  readonly count: number;
  readonly each: () => Iterable<Part>;
}

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
    const { messageBytesMax } = this.#options;
    return this.#answer(request, messageBytesMax, "MSG_TOO_BIG", async (body) => {
      if (body.length === 0) throw new HttpError(400, "MSG_EMPTY");
      const query = this.#query(request);
      const topic = this.#topic(query);
      const dueMs = this.#dueMs(query);
      await this.#write(topic, body, {
        count: 1,
        each: () => [{ start: 0, end: body.length }],
      }, dueMs);
    });
  }

  publishMany(request: Request): Promise<Response> {
    const { bodyBytesMax } = this.#options;
    return this.#answer(request, bodyBytesMax, "BODY_TOO_BIG", async (body) => {
      const query = this.#query(request);
      const topic = this.#topic(query);
      const dueMs = this.#dueMs(query);
      const parts = isBinary(query.get("binary")) ? this.#binaryParts(body) : this.#lines(body);
      await this.#write(topic, body, parts, dueMs);
    });
  }

  /** Reads a body, within the memory that all publishes share until they are on disk. */
  async #answer(
    request: Request,
    bytesMax: number,
    tooLarge: string,
    publish: (body: Uint8Array) => Promise<void>,
  ): Promise<Response> {
    const broker = this.#broker;
    const declared = Number(request.headers.get("content-length") ?? bytesMax);
    if (!(declared <= bytesMax)) {
      await request.body?.cancel();
      return errorReply(413, tooLarge);
    }
    try {
      this.#admit();
    } catch (error) {
      await request.body?.cancel();
      if (error instanceof HttpError) return httpErrorReply(error);
      throw error;
    }
    if (!broker.stage(declared)) {
      await request.body?.cancel();
      return errorReply(429, "TOO_MANY_BYTES");
    }
    try {
      await publish(await this.#receive(request, bytesMax, tooLarge));
      return textReply("OK");
    } catch (error) {
      if (error instanceof HttpError) return httpErrorReply(error);
      if (error instanceof InvariantError) throw error;
      broker.logger.error("Cannot publish over HTTP", { error: String(error) });
      return errorReply(500, "INTERNAL_ERROR");
    } finally {
      broker.unstage(declared);
    }
  }

  async #receive(request: Request, bytesMax: number, tooLarge: string): Promise<Uint8Array> {
    const late = new AbortController();
    const timer = this.#broker.clock.setTimer(this.#options.bodyTimeoutMs, () => late.abort());
    try {
      const body = await readBody(request, bytesMax, late.signal);
      if (body.kind === "too_large") throw new HttpError(413, tooLarge);
      if (body.kind === "cut") throw new HttpError(408, "BODY_INCOMPLETE");
      return body.bytes;
    } finally {
      timer.cancel();
    }
  }

  /** Throws `HttpError` while publishes are refused, to a topic if one is given. */
  #admit(topic?: Topic): void {
    try {
      this.#broker.admit();
      if (topic !== undefined) this.#broker.admitTo(topic);
    } catch (error) {
      throw refusal(error);
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
    if (deferMs < 0 || deferMs > this.#options.deferMsMax) {
      throw new HttpError(400, "INVALID_DEFER");
    }
    return deferMs === 0 ? 0 : this.#broker.clock.wallMs() + deferMs;
  }

  #lines(body: Uint8Array): Parts {
    let count = 0;
    for (const { start, end } of lines(body)) {
      if (end - start > this.#options.messageBytesMax) throw new HttpError(413, "MSG_TOO_BIG");
      count++;
    }
    return { count, each: () => lines(body) };
  }

  #binaryParts(body: Uint8Array): Parts {
    const scanner = new MpubScanner(this.#options);
    scanner.begin(body.length);
    const error = scanner.check(body, 0, body.length);
    if (error !== undefined) throw new HttpError(413, error.code.slice("E_".length));
    scanner.rewind();
    return {
      count: scanner.messageCount,
      *each() {
        while (scanner.nextMessage(body, 0)) {
          yield { start: scanner.messageStart, end: scanner.messageEnd };
        }
      },
    };
  }

  /** Writes the messages, in one group when they fit one, and waits for the disk. */
  async #write(
    topic: Topic,
    body: Uint8Array,
    parts: Parts,
    dueMs: number,
  ): Promise<void> {
    const broker = this.#broker;
    const isWhole = broker.storage.fitsGroup(body.length, parts.count);
    this.#admit(topic);
    while (isWhole && !broker.hasRoom(body.length, parts.count)) {
      await broker.room();
      this.#admit(topic);
    }
    let into = topic;
    try {
      for (const { start, end } of parts.each()) {
        while (!isWhole && !broker.hasRoom(end - start, 1)) await broker.room();
        if (into.deleted) into = broker.ensureTopic(into.state.name);
        broker.publish(into, body, start, end, dueMs);
      }
      await broker.confirmable(into, broker.position);
    } catch (error) {
      throw refusal(error);
    }
  }
}

function httpErrorReply({ status, code }: HttpError): Response {
  return errorReply(status, code, code === THROTTLED ? RETRY_AFTER : []);
}

/** The lines of a text body that are not empty. */
function* lines(body: Uint8Array): Iterable<Part> {
  for (let start = 0; start < body.length;) {
    const found = body.indexOf(LINE_FEED, start);
    const end = found < 0 ? body.length : found;
    if (end > start) yield { start, end };
    start = end + 1;
  }
}

/** nsqd's reading of `binary`: absent, `false` and `0` mean text, anything else binary. */
function isBinary(value: string | undefined): boolean {
  return value !== undefined && value !== "false" && value !== "0";
}
