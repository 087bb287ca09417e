/**
 * The real HTTP client: HTTP/1.1, no proxy, no redirects. {@linkcode askHttp} makes a connection for
 * each request, {@linkcode KeptHttp} keeps one per server for those that are asked again and again.
 * {@linkcode streamHttp} reads an answer as it comes, over a connection of its own.
 */
import { Agent, type ClientRequest, type IncomingMessage, request as requestHttp } from "node:http";
import { request as requestHttps } from "node:https";
import {
  type AskHttp,
  type HttpAnswer,
  type HttpAskBounds,
  HttpAskError,
  type HttpQuestion,
  type HttpStream,
  type HttpStreamBounds,
  type HttpStreamQuestion,
} from "./http_client.ts";

/** An idle connection is closed after so long. */
const IDLE_MS = 15_000;

/** {@linkcode AskHttp} over connections that are kept. Over TLS each request has its own. */
export class KeptHttp {
  readonly #agent = new Agent({ keepAlive: true, timeout: IDLE_MS, maxFreeSockets: 1 });

  readonly ask: AskHttp = (question, bounds) => ask(question, bounds, this.#agent);

  /** Closes what is idle; what is asked later is answered, too. */
  close(): void {
    this.#agent.destroy();
  }
}

/** {@linkcode AskHttp} over the machine's network. */
export function askHttp(question: HttpQuestion, bounds: HttpAskBounds): Promise<HttpAnswer> {
  return ask(question, bounds, null);
}

/** {@linkcode StreamHttp} over the machine's network. */
export async function streamHttp(
  { url, headers }: HttpStreamQuestion,
  { connectTimeoutMs, headTimeoutMs }: HttpStreamBounds,
  signal: AbortSignal,
): Promise<HttpStream> {
  const send = url.startsWith("https:") ? requestHttps : requestHttp;
  const request = send(url, { method: "GET", headers: { ...headers }, agent: false });
  let close = () => {};
  const timers: ReturnType<typeof setTimeout>[] = [];
  try {
    const response = await new Promise<IncomingMessage>((resolve, reject) => {
      const fail = (reason: string) => reject(new HttpAskError(reason));
      // Stays for as long as there is a connection: an error nobody listens to ends the process.
      request.on("error", (error) => fail(reasonOf(error)));
      request.on("response", resolve);
      close = () => fail("the connection was closed");
      signal.addEventListener("abort", close);
      if (signal.aborted) close();
      const connecting = setTimeout(
        () => fail(`no connection within ${connectTimeoutMs} ms`),
        connectTimeoutMs,
      );
      timers.push(connecting);
      timers.push(setTimeout(() => fail(`no answer within ${headTimeoutMs} ms`), headTimeoutMs));
      request.on("socket", (socket) => {
        if (socket.connecting) socket.once("connect", () => clearTimeout(connecting));
        else clearTimeout(connecting);
      });
      request.end();
    });
    // Aborted as the answer began: too late for the promise above.
    if (signal.aborted) throw new HttpAskError("the connection was closed");
    return new SystemHttpStream(request, response);
  } catch (error) {
    request.destroy();
    throw error;
  } finally {
    signal.removeEventListener("abort", close);
    for (const timer of timers) clearTimeout(timer);
  }
}

class SystemHttpStream implements HttpStream {
  readonly status: number;
  readonly #request: ClientRequest;
  readonly #chunks: AsyncIterator<Uint8Array>;
  #lost = false;

  constructor(request: ClientRequest, response: IncomingMessage) {
    this.#request = request;
    this.#chunks = response[Symbol.asyncIterator]();
    this.status = response.statusCode ?? 0;
    response.on("error", () => {}); // Told by the reads.
  }

  async read(): Promise<Uint8Array | null> {
    try {
      const next = await this.#chunks.next();
      if (!this.#lost) return next.done === true ? null : next.value;
    } catch {
      // An iterator that has thrown would say next that it is done.
      this.#lost = true;
    }
    throw new HttpAskError("the connection was lost within the answer");
  }

  close(): void {
    this.#lost = true;
    this.#request.destroy();
  }
}

function ask(
  question: HttpQuestion,
  bounds: HttpAskBounds,
  agent: Agent | null,
): Promise<HttpAnswer> {
  const { method, url, headers, body } = question;
  const { connectTimeoutMs, timeoutMs, bodyBytesMax } = bounds;
  const timers: ReturnType<typeof setTimeout>[] = [];
  let request: ClientRequest | null = null;
  let isWhole = false;
  const answer = new Promise<HttpAnswer>((resolve, reject) => {
    const fail = (reason: string) => reject(new HttpAskError(reason));
    const isTls = url.startsWith("https:");
    const send = isTls ? requestHttps : requestHttp;
    request = send(url, {
      method,
      headers: { ...headers, ...(body === undefined ? {} : { "Content-Length": body.length }) },
      agent: isTls ? false : agent ?? false,
    }, (response) => {
      const chunks: Uint8Array[] = [];
      let bytes = 0;
      response.on("data", (chunk: Uint8Array) => {
        bytes += chunk.length;
        if (bytes > bodyBytesMax) fail(`the answer has more than ${bodyBytesMax} bytes`);
        else chunks.push(chunk);
      });
      response.on("error", () => fail("the connection was lost within the answer"));
      response.on("aborted", () => fail("the connection was lost within the answer"));
      response.on("end", () => {
        isWhole = true;
        resolve({ status: response.statusCode ?? 0, body: joined(chunks, bytes) });
      });
    });
    request.on("error", (error) => fail(reasonOf(error)));
    const late = (delayMs: number, reason: string) => {
      const timer = setTimeout(() => fail(reason), delayMs);
      timers.push(timer);
      return timer;
    };
    late(timeoutMs, `no whole answer within ${timeoutMs} ms`);
    const connecting = late(connectTimeoutMs, `no connection within ${connectTimeoutMs} ms`);
    request.on("socket", (socket) => {
      if (socket.connecting) socket.once("connect", () => clearTimeout(connecting));
      else clearTimeout(connecting);
    });
    request.end(body);
  });
  return answer.finally(() => {
    for (const timer of timers) clearTimeout(timer);
    if (agent === null || !isWhole) request?.destroy();
  });
}

/** A code such as ECONNREFUSED. Messages are left out: some repeat the URL. */
function reasonOf(error: Error): string {
  const code: unknown = "code" in error ? error.code : undefined;
  return typeof code === "string" && /^[A-Z_0-9]{1,64}$/.test(code)
    ? `the connection failed: ${code}`
    : "the connection failed";
}

function joined(chunks: readonly Uint8Array[], bytes: number): Uint8Array {
  const whole = new Uint8Array(bytes);
  let at = 0;
  for (const chunk of chunks) {
    whole.set(chunk, at);
    at += chunk.length;
  }
  return whole;
}
