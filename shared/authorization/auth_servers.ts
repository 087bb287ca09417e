/**
 * NSQ's authorization services over HTTP as a source of grants: contract section 1.12.
 *
 * ```
 * GET http://ADDRESS/auth?common_name=&remote_ip=&secret=&tls=   or POST with the same as JSON
 * ```
 *
 * - Asking begins with a service chosen at random and goes on to the next one when there is no usable
 *   answer. An answer that allows nothing is an answer.
 * - A 403 over `http:` that names an `https_port` has the same service asked there.
 * - At most {@linkcode ASKS_MAX} requests are under way and {@linkcode WAITING_MAX} wait; beyond that
 *   the answer is not available.
 * - The secret is in the request and nowhere else. That a service fails is logged with its address,
 *   when it begins to and then once a minute.
 */
import {
  type AskHttp,
  type Clock,
  type HttpAskBounds,
  HttpAskError,
  type HttpQuestion,
  InvariantError,
  type Random,
  randomBelow,
} from "../runtime/mod.ts";
import type { Logger } from "../telemetry/mod.ts";
import {
  AUTH_REPLY_BYTES_MAX,
  type AuthReply,
  AuthReplyError,
  parseAuthReply,
} from "./auth_reply.ts";
import {
  AuthorizationUnavailable,
  type Credentials,
  type Granted,
  type GrantSource,
  secretText,
} from "./authorizer.ts";

export const ASKS_MAX = 64;
export const WAITING_MAX = 10_000;
const LOG_AGAIN_MS = 60_000;
const UNSUPPORTED_LOGGED_MAX = 100;

/** Which services, and how they are asked. */
export interface AuthServersOptions {
  /** `host:port`, or a whole URL. */
  readonly addresses: readonly string[];
  readonly method: "GET" | "POST";
  readonly connectTimeoutMs: number;
  readonly timeoutMs: number;
}

/** What {@linkcode AuthServers} stands on. */
export interface AuthServersSeams {
  readonly askHttp: AskHttp;
  readonly clock: Clock;
  readonly random: Random;
  readonly logger: Logger;
}

/** Where a service is asked, or null when the address is of neither form. */
export function authUrl(address: string): URL | null {
  const text = address.includes("://") ? address : `http://${address}/auth`;
  if (!URL.canParse(text)) return null;
  const url = new URL(text);
  const isPlain = ["http:", "https:"].includes(url.protocol) && url.hostname !== "" &&
    url.username === "" && url.password === "" && url.hash === "";
  return isPlain && (address.includes("://") || url.pathname === "/auth") ? url : null;
}

/** An address as people are shown it: the query of a URL may hold a key. */
export function shownAuthAddress(address: string): string {
  return address.replace(/\?.*/s, "?***");
}

/** See the module. */
export class AuthServers implements GrantSource {
  readonly takesCertificates = false;
  /** Requests sent. */
  requestCount = 0;
  /** Requests without a usable answer. */
  failureCount = 0;
  readonly #options: AuthServersOptions;
  readonly #seams: AuthServersSeams;
  #active = 0;
  readonly #waiting: (() => void)[] = [];
  /** When the failure of a service was last logged. */
  readonly #loggedMs = new Map<string, number>();
  readonly #unsupported = new Set<string>();

  constructor(options: AuthServersOptions, seams: AuthServersSeams) {
    this.#options = options;
    this.#seams = seams;
  }

  async authorize(credentials: Credentials): Promise<Granted | null> {
    if (credentials.secret === null) return null;
    await this.#enter();
    try {
      const { grants, ttlMs, unsupported } = await this.#askAny(credentials);
      this.#logUnsupported(unsupported);
      return { grants, validMs: ttlMs };
    } finally {
      this.#active--;
      this.#waiting.shift()?.();
    }
  }

  async #enter(): Promise<void> {
    if (this.#active < ASKS_MAX) {
      this.#active++;
      return;
    }
    if (this.#waiting.length >= WAITING_MAX) {
      throw new AuthorizationUnavailable("too many clients wait for the authorization services");
    }
    await new Promise<void>((resolve) => {
      this.#waiting.push(() => {
        this.#active++;
        resolve();
      });
    });
  }

  async #askAny(credentials: Credentials): Promise<AuthReply> {
    const { addresses } = this.#options;
    const first = randomBelow(this.#seams.random, addresses.length);
    for (let at = 0; at < addresses.length; at++) {
      const address = addresses[(first + at) % addresses.length]!;
      try {
        const reply = parseAuthReply(await this.#ask(address, credentials));
        this.#loggedMs.delete(address);
        return reply;
      } catch (error) {
        if (error instanceof InvariantError) throw error;
        this.failureCount++;
        const isPlain = error instanceof HttpAskError || error instanceof AuthReplyError;
        // Any other message may repeat the request.
        this.#logFailure(address, isPlain ? error.message : "the request failed");
      }
    }
    throw new AuthorizationUnavailable("no authorization service gave a usable answer");
  }

  async #ask(address: string, credentials: Credentials): Promise<Uint8Array> {
    const url = authUrl(address);
    if (url === null) throw new HttpAskError("the address is not valid");
    let answer = await this.#send(url, credentials);
    if (answer.status === 403 && url.protocol === "http:") {
      const port = httpsPort(answer.body);
      if (port !== null) {
        url.protocol = "https:";
        url.port = String(port);
        answer = await this.#send(url, credentials);
      }
    }
    if (answer.status !== 200) throw new HttpAskError(`the status is ${answer.status}`);
    return answer.body;
  }

  #send(url: URL, credentials: Credentials): ReturnType<AskHttp> {
    const { method, connectTimeoutMs, timeoutMs } = this.#options;
    const bounds: HttpAskBounds = {
      connectTimeoutMs,
      timeoutMs,
      bodyBytesMax: AUTH_REPLY_BYTES_MAX,
    };
    this.requestCount++;
    return this.#seams.askHttp(questionOf(url, method, credentials), bounds);
  }

  #logFailure(address: string, reason: string): void {
    const nowMs = this.#seams.clock.monoMs();
    const loggedMs = this.#loggedMs.get(address);
    if (loggedMs !== undefined && nowMs - loggedMs < LOG_AGAIN_MS) return;
    this.#loggedMs.set(address, nowMs);
    this.#seams.logger.warn("An authorization service gave no usable answer", {
      address: shownAuthAddress(address),
      reason,
    });
  }

  #logUnsupported(unsupported: ReadonlyMap<string, string>): void {
    for (const [pattern, reason] of unsupported) {
      if (this.#unsupported.has(pattern)) continue;
      if (this.#unsupported.size >= UNSUPPORTED_LOGGED_MAX) return;
      this.#unsupported.add(pattern);
      this.#seams.logger.warn("A pattern of a grant is not supported and allows nothing", {
        pattern,
        reason,
      });
    }
  }
}

/** The request that nsqd makes: the parameters sorted, the secret byte by byte. */
function questionOf(url: URL, method: "GET" | "POST", credentials: Credentials): HttpQuestion {
  const { commonName, remoteIp, secret, isTls } = credentials;
  const headers = { Accept: "application/vnd.nsq; version=1.0" };
  if (method === "POST") {
    const body = JSON.stringify({
      common_name: [commonName],
      remote_ip: [remoteIp],
      secret: [secret === null ? "" : secretText(secret)],
      tls: [String(isTls)],
    });
    return {
      method,
      url: url.href,
      headers: { ...headers, "Content-Type": "application/json" },
      body: new TextEncoder().encode(body),
    };
  }
  const encoder = new TextEncoder();
  const query = [
    `common_name=${escaped(encoder.encode(commonName))}`,
    `remote_ip=${escaped(encoder.encode(remoteIp))}`,
    `secret=${escaped(secret?.reveal() ?? new Uint8Array())}`,
    `tls=${isTls}`,
  ].join("&");
  return { method, url: `${url.href}${url.search === "" ? "?" : "&"}${query}`, headers };
}

/** Bytes as Go escapes them in a query. */
function escaped(bytes: Uint8Array): string {
  let text = "";
  for (const byte of bytes) {
    const character = String.fromCharCode(byte);
    if (/[\w.~-]/.test(character)) text += character;
    else if (byte === 0x20) text += "+";
    else text += `%${byte.toString(16).toUpperCase().padStart(2, "0")}`;
  }
  return text;
}

function httpsPort(body: Uint8Array): number | null {
  try {
    const document: unknown = JSON.parse(new TextDecoder().decode(body));
    if (typeof document !== "object" || document === null || !("https_port" in document)) {
      return null;
    }
    const port = document.https_port;
    const isPort = typeof port === "number" && Number.isInteger(port) && port > 0 && port < 65_536;
    return isPort ? port : null;
  } catch {
    return null;
  }
}
