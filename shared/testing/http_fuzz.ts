/**
 * HTTP requests as the inputs of a fuzz test: what stands in the file is what goes over the wire, a
 * request line, headers, an empty line and the body. Two headers are about the test alone:
 * `X-Cut: N` breaks the body off behind N bytes, `X-Stall: N` has it go on never.
 */
import { SeededRandom } from "./seeded_random.ts";

/** What answers may look like. */
export interface HttpAnswers {
  readonly statuses: readonly number[];
  /** Bytes of a body at most. */
  readonly bytesMax: number;
  /** The method asked with, since an answer to HEAD has no body. */
  readonly method?: string;
}

/** Pieces of requests that mean something to any of the doors. */
export const HTTP_WORDS: readonly string[] = [
  ..."GET POST PUT DELETE HEAD OPTIONS PATCH TRACE CONNECT".split(" ").map((method) =>
    method + " "
  ),
  " HTTP/1.1\n",
  "Content-Length: ",
  "Content-Length: 9007199254740993\n",
  "Content-Length: -1\n",
  "Transfer-Encoding: chunked\n",
  "Content-Encoding: gzip\n",
  "Authorization: Bearer x\n",
  "Expect: 100-continue\n",
  "Host: a b\n",
  "X-Cut: 1\n",
  "X-Stall: 3\n",
  "?",
  "&",
  ";",
  "#",
  "/",
  "//",
  "/../",
  "%",
  "%00",
  "%0a",
  "%2f",
  "%ff",
  "%zz",
  "+",
  "é",
  "__proto__",
  "constructor",
  "toString",
  "topic=t",
  "channel=c",
  "channel=c%23ephemeral",
  "defer=1000",
  "defer=1e9",
  "defer=-1",
  "binary=true",
  "binary=0",
  "format=json",
  "include_clients=0",
  "node=a:1",
  "\0\0\0\x01\0\0\0\x01x",
  "\xff\xff\xff\xff",
];

/** A request for one of `paths`, most of them sensible. */
export function freshRequest(
  random: SeededRandom,
  paths: readonly string[],
  bodyBytesMax: number,
): Uint8Array {
  const method = random.pick(["GET", "POST", "POST", "POST", "PUT", "DELETE", "HEAD", "OPTIONS"]);
  const parameters = Array.from({ length: random.below(4) }, () => {
    const key = random.pick([
      "topic",
      "topic",
      "channel",
      "defer",
      "binary",
      "format",
      "node",
      "x",
    ]);
    const value = random.pick([
      "t",
      "t",
      "c",
      "u%23ephemeral",
      "",
      "1",
      "true",
      "99999999999",
      "%41",
    ]);
    return `${key}=${value}`;
  });
  const query = random.pick(["", "?"]) + parameters.join("&");
  const body = random.bytes(random.pick([0, 1, 20, 900, 1100, bodyBytesMax, bodyBytesMax + 1]));
  const length = random.chance(0.6) ? `Content-Length: ${body.length}\n` : "";
  const wobble = random.chance(0.2)
    ? `X-${random.pick(["Cut", "Stall"])}: ${random.below(body.length + 2)}\n`
    : "";
  const path = random.pick(paths) + random.pick(["", "", "", "/"]);
  const head = `${method} ${path}${query} HTTP/1.1\n${length}${wobble}\n`;
  return new Uint8Array([...new TextEncoder().encode(head), ...body]);
}

/** The input as a handler gets it, or `null` when no server would hand it on. */
export function requestOf(input: Uint8Array): Request | null {
  const { lines, body } = split(input);
  const [method = "", target = ""] = (lines[0] ?? "").split(" ");
  const headers = new Headers();
  let cut = Infinity;
  let stall = Infinity;
  try {
    for (const line of lines.slice(1)) {
      const colon = line.indexOf(":");
      const name = line.slice(0, colon);
      const value = line.slice(colon + 1).trim();
      if (name === "X-Cut") cut = bytesOf(value);
      else if (name === "X-Stall") stall = bytesOf(value);
      else headers.append(name, value);
    }
    const isBodyless = method === "GET" || method === "HEAD";
    return new Request(`http://127.0.0.1:4151${target}`, {
      method,
      headers,
      ...(isBodyless ? {} : { body: stream(body, cut, stall) }),
    });
  } catch {
    return null;
  }
}

/** The input as it goes over a socket. Line ends of the head are those of HTTP. */
export function wireOf(input: Uint8Array): Uint8Array {
  const { lines, body } = split(input);
  const head = lines.map((line) => line + "\r\n").join("") + "\r\n";
  return new Uint8Array([...Uint8Array.from(head, (letter) => letter.charCodeAt(0)), ...body]);
}

/** Throws unless the answer is one that is documented. */
export async function checkAnswer(response: Response, answers: HttpAnswers): Promise<void> {
  const body = await response.text();
  const described = `${response.status} ${body.slice(0, 200)}`;
  if (!answers.statuses.includes(response.status)) {
    throw new Error(`A status of its own: ${described}`);
  }
  if (body.length > answers.bytesMax) throw new Error(`A body of ${body.length} bytes`);
  const type = response.headers.get("content-type");
  if (answers.method === "HEAD") return;
  if (response.status >= 400) {
    const document: unknown = JSON.parse(body);
    const isError = typeof document === "object" && document !== null && "message" in document &&
      typeof document.message === "string" && /^[A-Z_]+$/.test(document.message);
    if (!isError || type !== "application/json; charset=utf-8") {
      throw new Error(`An error that is not as documented: ${described}, ${type}`);
    }
  } else if (type?.startsWith("application/json")) JSON.parse(body);
}

/** The head as Latin-1 lines, and what follows the empty one. */
function split(input: Uint8Array): { lines: string[]; body: Uint8Array<ArrayBuffer> } {
  const text = String.fromCharCode(...input);
  const end = text.indexOf("\n\n");
  const head = end < 0 ? text : text.slice(0, end);
  return {
    lines: head.split("\n"),
    body: new Uint8Array(end < 0 ? [] : input.subarray(end + 2)),
  };
}

function bytesOf(value: string): number {
  return /^\d{1,6}$/.test(value) ? Number(value) : Infinity;
}

/** A body in pieces that its bytes decide. */
function stream(
  body: Uint8Array<ArrayBuffer>,
  cut: number,
  stall: number,
): ReadableStream<Uint8Array<ArrayBuffer>> {
  const random = new SeededRandom(String.fromCharCode(...body.subarray(0, 64)));
  let at = 0;
  return new ReadableStream({
    pull(controller) {
      if (at >= stall) return new Promise(() => {});
      if (at >= cut) return controller.error(new Error("the peer is gone"));
      if (at === body.length) return controller.close();
      const end = Math.min(body.length, cut, stall, at + random.pick([1, 100, 4096]));
      controller.enqueue(body.slice(at, end));
      at = end;
    },
  }, { highWaterMark: 0 });
}
