/**
 * `/pub` and `/mpub` of the gateway: nsqd's (contract section 3.2), answered when the messages are on
 * disk, at a broker or in the spool.
 *
 * | Outcome | Answer |
 * |---|---|
 * | a broker has it | 200 `OK` |
 * | it is in the spool | 200 `OK` with `Sluice-Spooled: true` |
 * | nobody can take it now | 429 `THROTTLED` with `Retry-After`; it is not stored |
 * | a broker may have it | 504 `AMBIGUOUS` |
 * | no broker takes such a message | the status and code of the broker's error |
 *
 * `Sluice-Key` names what a publish belongs to, for `affinity=hash`. The headers of a producer that
 * numbers its publishes are refused: the gateway numbers them itself, and two gateways would not know
 * each other's.
 */
import {
  type BatchParts,
  batchParts,
  errorReply,
  HttpError,
  publishDeferMs,
  publishQuery,
  publishTopic,
  readBody,
  textReply,
} from "@sluice/shared/http";
import { ERROR_CODES, errorCodeOf } from "@sluice/shared/protocol";
import { type Clock, InvariantError, unreachable } from "@sluice/shared/runtime";
import type { Logger } from "@sluice/shared/telemetry";
import { isOnePiece, type Piece, pieces } from "./batch_split.ts";
import { PUBLISH_OVERHEAD_BYTES } from "./publish.ts";
import type { Publisher } from "./publisher.ts";
import type { Receiving } from "./receiving.ts";
import type { Outcome, PublishRequest } from "./transit.ts";
import { worstOf } from "./worst_outcome.ts";

/** Limits of publishing over HTTP. */
export interface HttpPublisherOptions {
  readonly messageBytesMax: number;
  readonly bodyBytesMax: number;
  readonly deferMsMax: number;
  /** How long a peer may take to send a body. */
  readonly bodyTimeoutMs: number;
}

/** What it stands on. */
export interface HttpPublisherSeams {
  readonly publisher: Publisher;
  readonly receiving: Receiving;
  readonly clock: Clock;
  readonly logger: Logger;
  /** The service stops: no more publishes are taken. */
  readonly isStopping: () => boolean;
}

/** Says that the messages are in the spool. */
export const SPOOLED_HEADER = "Sluice-Spooled";
const KEY_HEADER = "Sluice-Key";
const PRODUCER_HEADERS = ["Sluice-Producer", "Sluice-Sequence"];
const KEY_CHARACTERS_MAX = 256;
type HeaderFields = readonly [string, string][];
const RETRY_AFTER: HeaderFields = [["Retry-After", "1"]];
/** Asks the client for another connection next time. */
const CONNECTION_CLOSE: HeaderFields = [["Connection", "close"]];

/** See the module. */
export class HttpPublisher {
  readonly #options: HttpPublisherOptions;
  readonly #seams: HttpPublisherSeams;

  constructor(options: HttpPublisherOptions, seams: HttpPublisherSeams) {
    this.#options = options;
    this.#seams = seams;
  }

  publish(request: Request): Promise<Response> {
    const { messageBytesMax } = this.#options;
    return this.#answer(request, messageBytesMax, "MSG_TOO_BIG", (body, query) => {
      if (body.length === 0) throw new HttpError(400, "MSG_EMPTY");
      return { topic: publishTopic(query), list: [{ isBatch: false, messageCount: 1, body }] };
    });
  }

  publishMany(request: Request): Promise<Response> {
    const { bodyBytesMax } = this.#options;
    return this.#answer(request, bodyBytesMax, "BODY_TOO_BIG", (body, query, isDeferred) => {
      const topic = publishTopic(query);
      const parts = batchParts(query, body, this.#options);
      if (isDeferred) {
        this.#checkSingles(body.length, parts.count);
        return { topic, list: singles(body, parts) };
      }
      const binary = query.get("binary");
      const isBinary = binary !== undefined && binary !== "false" && binary !== "0";
      if (isBinary && isOnePiece(body.length, parts.largest)) {
        return { topic, list: [{ isBatch: true, messageCount: parts.count, body }] };
      }
      return { topic, list: [...pieces(body, parts)] };
    });
  }

  async #answer(
    request: Request,
    bytesMax: number,
    tooLarge: string,
    read: (
      body: Uint8Array,
      query: ReadonlyMap<string, string>,
      isDeferred: boolean,
    ) => { topic: string; list: readonly Piece[] },
  ): Promise<Response> {
    const { receiving, clock, logger, isStopping } = this.#seams;
    const close = isStopping() ? CONNECTION_CLOSE : [];
    const declared = Number(request.headers.get("content-length") ?? bytesMax);
    const refused = this.#refusal(request, declared, bytesMax, tooLarge, close);
    if (refused !== null) {
      // Who is gone meanwhile cannot be told anything.
      await request.body?.cancel().catch(() => {});
      return refused;
    }
    let stagedBytes = declared;
    const unstage = () => {
      receiving.giveBack(stagedBytes);
      stagedBytes = 0;
    };
    try {
      const body = await this.#receive(request, bytesMax, tooLarge);
      const query = publishQuery(request.url);
      const deferMs = publishDeferMs(query, this.#options.deferMsMax);
      const { topic, list } = read(body, query, deferMs > 0);
      const dueWallMs = deferMs === 0 ? 0 : clock.wallMs() + deferMs;
      const key = (request.headers.get(KEY_HEADER) ?? "").slice(0, KEY_CHARACTERS_MAX);
      const outcome = this.#publish(list.map((piece) => ({ ...piece, topic, dueWallMs, key })));
      // From here on the publisher counts it.
      unstage();
      return reply(await outcome, close);
    } catch (error) {
      if (error instanceof HttpError) {
        const later = error.status === 429 ? RETRY_AFTER : [];
        return errorReply(error.status, error.code, [...close, ...later]);
      }
      if (error instanceof InvariantError) throw error;
      logger.error("Cannot publish over HTTP", { error: String(error) });
      return errorReply(500, "INTERNAL_ERROR", close);
    } finally {
      unstage();
    }
  }

  /** Why the body is not even read; null when memory for it is taken. */
  #refusal(
    request: Request,
    declared: number,
    bytesMax: number,
    tooLarge: string,
    close: HeaderFields,
  ): Response | null {
    const { receiving, publisher } = this.#seams;
    if (!(declared >= 0 && declared <= bytesMax)) return errorReply(413, tooLarge, close);
    if (PRODUCER_HEADERS.some((name) => request.headers.has(name))) {
      return errorReply(501, "SEQUENCES_NOT_FORWARDED", close);
    }
    const later = [...close, ...RETRY_AFTER];
    if (!publisher.hasRoom(declared)) return errorReply(429, "THROTTLED", later);
    return receiving.take(declared) ? null : errorReply(429, "TOO_MANY_BYTES", later);
  }

  async #receive(request: Request, bytesMax: number, tooLarge: string): Promise<Uint8Array> {
    const late = new AbortController();
    const timer = this.#seams.clock.setTimer(this.#options.bodyTimeoutMs, () => late.abort());
    try {
      const body = await readBody(request, bytesMax, late.signal);
      if (body.kind === "too_large") throw new HttpError(413, tooLarge);
      if (body.kind === "cut") throw new HttpError(408, "BODY_INCOMPLETE");
      return body.bytes;
    } finally {
      timer.cancel();
    }
  }

  /** Messages on their own take more memory than a batch of them: refuses those that are too many. */
  #checkSingles(bodyBytes: number, count: number): void {
    const { publisher } = this.#seams;
    const bytes = bodyBytes + count * PUBLISH_OVERHEAD_BYTES;
    if (bytes > publisher.bytesMax) throw new HttpError(413, "BODY_TOO_BIG");
    if (!publisher.hasRoom(bytes)) throw new HttpError(429, "THROTTLED");
  }

  #publish(list: readonly PublishRequest[]): Promise<Outcome> {
    if (list.length === 0) return Promise.resolve({ kind: "confirmed" });
    return new Promise((resolve) => {
      const each = list.length === 1 ? resolve : worstOf(list.length, resolve);
      for (const request of list) this.#seams.publisher.publish(request, each);
    });
  }
}

/** Each message for itself: batches are not deferred at brokers. */
function singles(body: Uint8Array, parts: BatchParts): Piece[] {
  return Array.from(parts.each(), ({ start, end }) => ({
    isBatch: false,
    messageCount: 1,
    body: body.slice(start, end),
  }));
}

function reply(outcome: Outcome, headers: HeaderFields): Response {
  switch (outcome.kind) {
    case "confirmed":
      return textReply("OK", 200, headers);
    case "spooled":
      return textReply("OK", 200, [...headers, [SPOOLED_HEADER, "true"]]);
    case "throttled":
      return errorReply(429, "THROTTLED", [...headers, ...RETRY_AFTER]);
    case "ambiguous":
      return errorReply(504, "AMBIGUOUS", headers);
    case "failed":
      return errorReply(503, "PUB_FAILED", [...headers, ...RETRY_AFTER]);
    case "refused": {
      const code = errorCodeOf(outcome.text);
      if (code === undefined) return errorReply(502, "BROKER_ERROR", headers);
      return errorReply(ERROR_CODES[code].httpStatus ?? 502, code.slice("E_".length), headers);
    }
    default:
      return unreachable(outcome);
  }
}
