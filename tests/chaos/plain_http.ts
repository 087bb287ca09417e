/**
 * An HTTP/1.1 client that sends each request once: POST over a connection that is kept while the server
 * keeps it. The fetch and node:http of this runtime send a POST again by themselves when a kept connection
 * ends before the answer, so that nobody could tell who has stored a message twice.
 *
 * A kept connection that the server has closed meanwhile is seen before the next request goes out.
 */
import { closeQuietly, connectQuietly, join } from "../integration/raw_client.ts";

/** An answer; names of headers are in lower case. */
export interface PlainAnswer {
  readonly status: number;
  readonly headers: ReadonlyMap<string, string>;
  readonly text: string;
}

/** What went wrong, and whether anything of the request was sent. */
export class PlainHttpError extends Error {
  override name = "PlainHttpError";
  constructor(message: string, readonly isSent: boolean) {
    super(message);
  }
}

const READ_BYTES = 16 * 1024;
const HEAD_END = "\r\n\r\n";

/** See the module. */
export class PlainHttp implements Disposable {
  readonly #port: number;
  #kept: Kept | null = null;

  constructor(port: number) {
    this.#port = port;
  }

  /** Rejects with {@linkcode PlainHttpError}; one request at a time. */
  async post(path: string, body: string, timeoutMs: number): Promise<PlainAnswer> {
    const connection = await this.#connection();
    let isLate = false;
    const timer = AbortSignal.timeout(timeoutMs);
    const abort = () => {
      isLate = true;
      connection.close();
    };
    timer.addEventListener("abort", abort);
    try {
      const answer = await connection.ask(requestOf(path, body));
      if (answer.headers.get("connection") === "close") this[Symbol.dispose]();
      return answer;
    } catch (error) {
      this[Symbol.dispose]();
      const text = isLate ? `no answer in ${timeoutMs} ms` : String(error);
      throw new PlainHttpError(text, true);
    } finally {
      timer.removeEventListener("abort", abort);
    }
  }

  [Symbol.dispose](): void {
    this.#kept?.close();
    this.#kept = null;
  }

  async #connection(): Promise<Kept> {
    if (this.#kept?.isOpen === true) return this.#kept;
    this[Symbol.dispose]();
    try {
      return this.#kept = new Kept(await connectQuietly(this.#port));
    } catch (error) {
      throw new PlainHttpError(`cannot connect: ${error}`, false);
    }
  }
}

/** A connection on which there is always a read, so that its end is seen. */
class Kept {
  #isOpen = true;
  readonly #connection: Deno.TcpConn;
  readonly #buffer = new Uint8Array(READ_BYTES);
  #next: Promise<Uint8Array | null>;

  constructor(connection: Deno.TcpConn) {
    this.#connection = connection;
    this.#next = this.#read();
  }

  get isOpen(): boolean {
    return this.#isOpen;
  }

  async ask(request: Uint8Array): Promise<PlainAnswer> {
    for (let written = 0; written < request.length;) {
      written += await this.#connection.write(request.subarray(written));
    }
    let bytes = new Uint8Array();
    for (;;) {
      const answer = answerIn(bytes);
      if (answer !== null) return answer;
      const more = await this.#next;
      if (more === null) throw new Error("the connection ended before the answer");
      bytes = join(bytes, more);
      this.#next = this.#read();
    }
  }

  close(): void {
    this.#isOpen = false;
    closeQuietly(this.#connection);
  }

  async #read(): Promise<Uint8Array | null> {
    try {
      const count = await this.#connection.read(this.#buffer);
      if (count !== null) return this.#buffer.slice(0, count);
    } catch {
      // An end like any other.
    }
    this.close();
    return null;
  }
}

function requestOf(path: string, body: string): Uint8Array {
  const bytes = new TextEncoder().encode(body);
  const head = `POST ${path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: ${bytes.length}` +
    HEAD_END;
  return join(new TextEncoder().encode(head), bytes);
}

/** The answer, once all of it is there. */
function answerIn(bytes: Uint8Array): PlainAnswer | null {
  const text = new TextDecoder().decode(bytes);
  const headEnd = text.indexOf(HEAD_END);
  if (headEnd < 0) return null;
  const [statusLine = "", ...lines] = text.slice(0, headEnd).split("\r\n");
  const headers = new Map(lines.map((line) => {
    const colon = line.indexOf(":");
    return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()];
  }));
  const length = headers.get("content-length");
  if (length === undefined) throw new Error(`an answer without a length: ${text.slice(0, 200)}`);
  const body = text.slice(headEnd + HEAD_END.length);
  if (body.length < Number(length)) return null;
  return { status: Number(statusLine.split(" ")[1]), headers, text: body };
}
