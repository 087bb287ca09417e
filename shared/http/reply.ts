/**
 * The replies of NSQ's HTTP interface as plain functions, usable with or without a router. Each
 * call makes a new `Response`. All but {@linkcode pingReply}, {@linkcode optionsReply} and
 * {@linkcode redirectReply} carry `X-NSQ-Content-Type`, without which clients look for the answer
 * in a wrapper object that is not there.
 */

const NSQ_HEADER: [string, string] = ["X-NSQ-Content-Type", "nsq; version=1.0"];
const JSON_HEADERS: [string, string][] = [
  ["Content-Type", "application/json; charset=utf-8"],
  NSQ_HEADER,
];
const TEXT_HEADER: [string, string] = ["Content-Type", "text/plain; charset=utf-8"];
const TEXT_HEADERS: [string, string][] = [TEXT_HEADER, NSQ_HEADER];

/** `value` must be serialisable; `undefined` is not. */
export function jsonReply(value: unknown, status = 200): Response {
  return new Response(JSON.stringify(value), { status, headers: JSON_HEADERS });
}

/** {@linkcode jsonReply} of a value that is JSON text already, or that in UTF-8. */
export function jsonTextReply(text: string | Uint8Array<ArrayBuffer>): Response {
  return new Response(text, { status: 200, headers: JSON_HEADERS });
}

/** A plain text reply, of text or that in UTF-8. Extra headers come after the common ones. */
export function textReply(
  text: string | Uint8Array<ArrayBuffer>,
  status = 200,
  headers: readonly [string, string][] = [],
): Response {
  return new Response(text, { status, headers: [...TEXT_HEADERS, ...headers] });
}

/** Success that says nothing: 200 without a body or a content type. */
export function emptyReply(): Response {
  return new Response(null, { status: 200, headers: [NSQ_HEADER] });
}

/** `{"message":"CODE"}`. Extra headers come after the common ones. */
export function errorReply(
  status: number,
  code: string,
  headers: readonly [string, string][] = [],
): Response {
  return new Response(JSON.stringify({ message: code }), {
    status,
    headers: [...JSON_HEADERS, ...headers],
  });
}

/** The answer of `/ping`: text without the API header. */
export function pingReply(text: string, status = 200): Response {
  return new Response(text, { status, headers: [TEXT_HEADER] });
}

/** The reply to a path that does not exist. */
export function notFoundReply(): Response {
  return errorReply(404, "NOT_FOUND");
}

/** `allow` is the value of the `Allow` header. */
export function methodNotAllowedReply(allow: string): Response {
  return errorReply(405, "METHOD_NOT_ALLOWED", [["Allow", allow]]);
}

/** The reply to OPTIONS. */
export function optionsReply(allow: string): Response {
  return new Response(null, { status: 200, headers: [["Allow", allow]] });
}

/**
 * Sends the caller to `location`: 301 for GET; 307 for all else, because clients repeat a 301 as a
 * GET and would lose the method.
 */
export function redirectReply(method: string, location: string): Response {
  const status = method === "GET" || method === "HEAD" ? 301 : 307;
  return new Response(null, { status, headers: [["Location", location]] });
}

/** What a plain listener answers to everything when the server requires TLS. */
export function tlsRequiredReply(httpsPort: number): Response {
  // Not `JSON.stringify`: clients of NSQ compare this text with its spaces.
  const body = `{"message": "TLS_REQUIRED", "https_port": ${httpsPort}}`;
  return new Response(body, { status: 403, headers: JSON_HEADERS });
}
