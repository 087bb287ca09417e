/** Asking others over HTTP, as a parameter. */

/** One request. `url` is `http:` or `https:`. */
export interface HttpQuestion {
  readonly method: "GET" | "POST" | "DELETE";
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: Uint8Array;
}

/** How long and how much. */
export interface HttpAskBounds {
  readonly connectTimeoutMs: number;
  /** From the call to the last byte of the answer. */
  readonly timeoutMs: number;
  readonly bodyBytesMax: number;
}

/** The answer, whatever its status: redirects are not followed. */
export interface HttpAnswer {
  readonly status: number;
  readonly body: Uint8Array;
}

/** Sends a request. Rejects with {@linkcode HttpAskError} when there is no whole answer in bounds. */
export type AskHttp = (question: HttpQuestion, bounds: HttpAskBounds) => Promise<HttpAnswer>;

/** A GET whose answer is read as it comes. `url` is `http:` or `https:`. */
export interface HttpStreamQuestion {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
}

/** How long until the answer begins. How long it goes on is for the reader to judge. */
export interface HttpStreamBounds {
  readonly connectTimeoutMs: number;
  /** From the call to the end of the answer's headers. */
  readonly headTimeoutMs: number;
}

/** An answer that has begun, whatever its status: redirects are not followed. */
export interface HttpStream {
  readonly status: number;
  /**
   * The next bytes, at least one, or `null` at the end of a whole answer. Rejects with
   * {@linkcode HttpAskError} when the connection is lost or closed. One read at a time; what is not read
   * waits with the server, apart from what buffers hold.
   */
  read(): Promise<Uint8Array | null>;
  /** Ends the connection and rejects a read that waits. Safe to call again, and needed after the end too. */
  close(): void;
}

/**
 * Asks for an answer that may go on for days. Rejects with {@linkcode HttpAskError} when it does not
 * begin in bounds. `signal` gives up while it has not begun; from then on there is `close`.
 */
export type StreamHttp = (
  question: HttpStreamQuestion,
  bounds: HttpStreamBounds,
  signal: AbortSignal,
) => Promise<HttpStream>;

/** There is no usable answer. The message holds nothing of the question: its URL may have a secret. */
export class HttpAskError extends Error {
  override name = "HttpAskError";
}
