/** Asking others over HTTP, as a parameter. */

/** One request. `url` is `http:` or `https:`. */
export interface HttpQuestion {
  readonly method: "GET" | "POST";
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

/** There is no usable answer. The message holds nothing of the question: its URL may have a secret. */
export class HttpAskError extends Error {
  override name = "HttpAskError";
}
