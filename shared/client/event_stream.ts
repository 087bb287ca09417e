/**
 * Reads `text/event-stream`, fed in pieces that may end anywhere. Pure: bytes in, events out.
 *
 *     stream = [ BOM ] *event
 *     event  = *( ":" comment EOL / name [ ":" [ SPACE ] value ] EOL ) EOL      ; EOL = CRLF / LF / CR
 *
 * - Of the fields `event` and `data` count; several of `data` are joined by a line feed. `id`, `retry` and
 *   what is unknown is passed over: nobody here goes on from an id.
 * - An event without `data` is none, and so is one that the end of the stream cuts off.
 * - A line, and the data of an event, have at most `bytesMax` bytes each. Beyond that feeding throws
 *   {@linkcode EventStreamError}, and so does all later feeding: what comes next is in the middle of
 *   something. Events before that place have been given out.
 */

/** 4 MiB: twenty times a broker with 2,000 topics and a few channels each. */
export const EVENT_BYTES_MAX = 4 * 2 ** 20;

const LINE_BYTES_FIRST = 64 * 1024;
const LF = 0x0a;
const CR = 0x0d;
const BYTE_ORDER_MARK = "\ufeff";

/** An event; its name is `message` when the stream gives it none. */
export interface StreamEvent {
  readonly name: string;
  readonly data: string;
}

/** The stream holds more in one piece than is taken. */
export class EventStreamError extends Error {
  override name = "EventStreamError";
  readonly code = "event_too_large";
}

/** See the module. */
export class EventStreamParser {
  readonly #bytesMax: number;
  readonly #decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  /** The line that has not ended, at the beginning of it. */
  #line = new Uint8Array(LINE_BYTES_FIRST);
  #lineBytes = 0;
  /** The last byte was a CR: an LF that follows belongs to it. */
  #afterCr = false;
  #isFirstLine = true;
  #name = "";
  #data: string[] = [];
  #dataBytes = 0;
  #broken: EventStreamError | null = null;

  constructor(bytesMax = EVENT_BYTES_MAX) {
    this.#bytesMax = bytesMax;
  }

  /** Calls `take` for every event that `chunk` completes. `chunk` may change afterwards. */
  feed(chunk: Uint8Array, take: (event: StreamEvent) => void): void {
    if (this.#broken !== null) throw this.#broken;
    let at = 0;
    // Each is looked for once and not again until it is passed: a stream has one kind of line end.
    let nextLf = indexOrEnd(chunk, LF, 0);
    let nextCr = indexOrEnd(chunk, CR, 0);
    while (at < chunk.length) {
      const isRestOfCr = this.#afterCr && chunk[at] === LF;
      this.#afterCr = false;
      if (isRestOfCr) {
        at += 1;
        continue;
      }
      if (nextLf < at) nextLf = indexOrEnd(chunk, LF, at);
      if (nextCr < at) nextCr = indexOrEnd(chunk, CR, at);
      const end = Math.min(nextLf, nextCr);
      const piece = chunk.subarray(at, end);
      if (end === chunk.length) return this.#keep(piece);
      this.#afterCr = end === nextCr;
      at = end + 1;
      this.#endLine(piece, take);
    }
  }

  #keep(piece: Uint8Array): void {
    const bytes = this.#lineBytes + piece.length;
    this.#bound("a line", bytes);
    if (bytes > this.#line.length) {
      const larger = new Uint8Array(Math.max(bytes, 2 * this.#line.length));
      larger.set(this.#line.subarray(0, this.#lineBytes));
      this.#line = larger;
    }
    this.#line.set(piece, this.#lineBytes);
    this.#lineBytes = bytes;
  }

  #endLine(piece: Uint8Array, take: (event: StreamEvent) => void): void {
    let line = piece;
    if (this.#lineBytes > 0) {
      this.#keep(piece);
      line = this.#line.subarray(0, this.#lineBytes);
      this.#lineBytes = 0;
    }
    if (line.length === 0) return this.#dispatch(take);
    this.#bound("a line", line.length);
    let text = this.#decoder.decode(line);
    if (this.#isFirstLine && text.startsWith(BYTE_ORDER_MARK)) text = text.slice(1);
    this.#isFirstLine = false;
    this.#field(text, line.length, take);
  }

  #field(text: string, bytes: number, take: (event: StreamEvent) => void): void {
    // Nothing but the mark.
    if (text === "") return this.#dispatch(take);
    const colon = text.indexOf(":");
    const field = colon < 0 ? text : text.slice(0, colon);
    const from = text[colon + 1] === " " ? colon + 2 : colon + 1;
    const value = colon < 0 ? "" : text.slice(from);
    if (field === "event") this.#name = value;
    if (field !== "data") return;
    // The length of the line stands for that of the value.
    this.#bound("an event", this.#dataBytes += bytes);
    this.#data.push(value);
  }

  #dispatch(take: (event: StreamEvent) => void): void {
    const name = this.#name === "" ? "message" : this.#name;
    const lines = this.#data;
    this.#isFirstLine = false;
    this.#name = "";
    this.#data = [];
    this.#dataBytes = 0;
    if (lines.length > 0) take({ name, data: lines.join("\n") });
  }

  #bound(what: string, bytes: number): void {
    if (bytes <= this.#bytesMax) return;
    this.#line = new Uint8Array(0);
    this.#data = [];
    this.#broken = new EventStreamError(`${what} has more than ${this.#bytesMax} bytes`);
    throw this.#broken;
  }
}

function indexOrEnd(chunk: Uint8Array, byte: number, from: number): number {
  const index = chunk.indexOf(byte, from);
  return index < 0 ? chunk.length : index;
}
