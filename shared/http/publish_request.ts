/**
 * What a request to `/pub` or `/mpub` asks for: contract section 3.2.
 *
 * ```
 * query       = "topic=" name [ "&defer=" milliseconds ] [ "&binary=" flag ]
 * text mpub   = message *( LF message )                ; empty lines are skipped, CR is kept
 * binary mpub = int32-count *( int32-size message )    ; the body of MPUB
 * ```
 */
import { isValidName, MpubScanner } from "../protocol/mod.ts";
import { HttpError } from "./http_error.ts";
import { parseQuery } from "./query.ts";

const LINE_FEED = 0x0a;
const DIGITS_REGEXP = /^\d{1,15}$/;

/** Messages within a body that was checked. `each` makes no list: a body may hold millions. */
export interface BatchParts {
  readonly count: number;
  /** Bytes of the largest one. */
  readonly largest: number;
  readonly each: () => Iterable<BodyPart>;
}

/** Where a message is in a body. */
export interface BodyPart {
  readonly start: number;
  readonly end: number;
}

/** Limits of a batch. */
export interface BatchLimits {
  readonly messageBytesMax: number;
  readonly bodyBytesMax: number;
}

/** The query of a publish. Throws `HttpError` 400 `INVALID_REQUEST`. */
export function publishQuery(url: string): ReadonlyMap<string, string> {
  const query = parseQuery(url);
  if (query === null) throw new HttpError(400, "INVALID_REQUEST");
  return query;
}

/** The name of the topic, which may not exist yet. Throws `HttpError` 400. */
export function publishTopic(query: ReadonlyMap<string, string>): string {
  const name = query.get("topic");
  if (name === undefined) throw new HttpError(400, "MISSING_ARG_TOPIC");
  if (!isValidName(name)) throw new HttpError(400, "INVALID_TOPIC");
  return name;
}

/** For how long the messages are deferred, ms; 0 for not. Throws `HttpError` 400 `INVALID_DEFER`. */
export function publishDeferMs(query: ReadonlyMap<string, string>, deferMsMax: number): number {
  const text = query.get("defer");
  if (text === undefined) return 0;
  const deferMs = DIGITS_REGEXP.test(text) ? Number(text) : -1;
  if (deferMs < 0 || deferMs > deferMsMax) throw new HttpError(400, "INVALID_DEFER");
  return deferMs;
}

/** A body that is one message. */
export function onePart(bytes: number): BatchParts {
  return { count: 1, largest: bytes, each: () => [{ start: 0, end: bytes }] };
}

/** The messages of a batch, as lines or as the query says binary. Throws `HttpError` 413. */
export function batchParts(
  query: ReadonlyMap<string, string>,
  body: Uint8Array,
  limits: BatchLimits,
): BatchParts {
  return isBinary(query.get("binary")) ? binaryParts(body, limits) : lineParts(body, limits);
}

function lineParts(body: Uint8Array, { messageBytesMax }: BatchLimits): BatchParts {
  let count = 0;
  let largest = 0;
  for (const { start, end } of lines(body)) {
    if (end - start > messageBytesMax) throw new HttpError(413, "MSG_TOO_BIG");
    count++;
    largest = Math.max(largest, end - start);
  }
  return { count, largest, each: () => lines(body) };
}

function binaryParts(body: Uint8Array, limits: BatchLimits): BatchParts {
  const scanner = new MpubScanner(limits);
  scanner.begin(body.length);
  const error = scanner.check(body, 0, body.length);
  if (error !== undefined) throw new HttpError(413, error.code.slice("E_".length));
  scanner.rewind();
  return {
    count: scanner.messageCount,
    largest: scanner.largestBytes,
    *each() {
      while (scanner.nextMessage(body, 0)) {
        yield { start: scanner.messageStart, end: scanner.messageEnd };
      }
    },
  };
}

/** The lines of a text body that are not empty. */
function* lines(body: Uint8Array): Iterable<BodyPart> {
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
