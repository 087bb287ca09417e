/**
 * The real HTTP client: HTTP/1.1, no proxy, no redirects. {@linkcode askHttp} makes a connection for
 * each request, {@linkcode KeptHttp} keeps one per server for those that are asked again and again.
 */
import { Agent, type ClientRequest, request as requestHttp } from "node:http";
import { request as requestHttps } from "node:https";
import {
  type AskHttp,
  type HttpAnswer,
  type HttpAskBounds,
  HttpAskError,
  type HttpQuestion,
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
