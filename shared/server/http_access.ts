/**
 * Who may use which route over HTTP.
 *
 * | grant source | NSQ's routes | routes of `/v1` that change something |
 * |---|---|---|
 * | none | open, as with nsqd | peers on the same machine, and no browser |
 * | some | `Authorization: Bearer TOKEN` with the scope of the route | the same |
 * | some, and the API left open | open, as with nsqd | a token with the scope |
 *
 * A client whose certificate was verified (HTTPS with `tls-client-auth-policy=require-verify`) and that
 * a source of grants names needs no token.
 *
 * What a request is about is the `:topic` and `:channel` of its path, or else of its query. A route has
 * its rule in a table of the service; one that has none is refused as soon as there are
 * grants. Answers: 401 `AUTH_REQUIRED` without a token, 401 `INVALID_TOKEN` for one that nobody knows,
 * 403 `FORBIDDEN` when its grants do not cover the request, 503 `AUTH_FAILED` when it cannot be said.
 *
 * Grants are kept for as long as they are valid, of {@linkcode CACHE_MAX} tokens at most. What changes
 * something leaves a line in the log that says who did it.
 */
import { createHash } from "node:crypto";
import {
  AuthorizationUnavailable,
  Authorizer,
  type Grants,
  type Scope,
  secretOf,
} from "../authorization/mod.ts";
import { errorReply, type HttpCall, HttpError, type HttpRoute, parseQuery } from "../http/mod.ts";
import { isValidName, utf8Bytes } from "../protocol/mod.ts";
import type { Clock } from "../runtime/mod.ts";
import type { Logger } from "../telemetry/mod.ts";
import { isLoopback, remoteHost } from "./remote_host.ts";

/** What a route needs; `on` says whether it is about the node, a topic or a channel. */
export interface RouteNeed {
  readonly scope: Scope;
  readonly on: "node" | "topic" | "channel";
}

/** The rule of each route, by method and path. */
export type RouteRules = Readonly<Record<string, RouteNeed | "open">>;

const PUBLISH: RouteNeed = { scope: "publish", on: "topic" };

/** Tokens whose grants are kept. The oldest goes first. */
export const CACHE_MAX = 4096;
const BEARER_REGEXP = /^bearer +([\w.~+/=-]+) *$/i;
const NATIVE = "/v1/";

/** How HTTP is authorized. */
export interface HttpAuthorization {
  readonly authorizer: Authorizer;
  /** Whether NSQ's routes need a token once there are grants. */
  readonly guardsApi: boolean;
}

/** Nothing is authorized, as in nsqd. */
export function openHttp(): HttpAuthorization {
  return { authorizer: new Authorizer([]), guardsApi: true };
}

/** What HTTP access stands on. */
export interface HttpAccessSeams {
  readonly clock: Clock;
  readonly logger: Logger;
}

/** Who asks. */
export interface HttpPeer {
  /** As `host:port`. */
  readonly remoteAddress: string;
  /** The common name in its certificate, if that was verified; or empty. */
  readonly certificateName: string;
}

type Names = readonly [topic: string, channel: string];

/** Somebody who may do what was asked. */
interface Permitted {
  readonly identity: string;
}

interface Kept {
  readonly asked: Promise<Grants>;
  expiresMs: number;
  /** What memory is held for, once it is there. */
  held: Grants | null;
}

/** See the module. */
export class HttpAccess {
  readonly #authorizer: Authorizer;
  readonly #guardsApi: boolean;
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #adminLogger: Logger;
  readonly #rules: RouteRules;
  readonly #kept = new Map<string, Kept>();

  constructor(
    { authorizer, guardsApi }: HttpAuthorization,
    { clock, logger }: HttpAccessSeams,
    rules: RouteRules,
  ) {
    this.#rules = rules;
    this.#authorizer = authorizer;
    this.#guardsApi = guardsApi;
    this.#clock = clock;
    this.#logger = logger.component("http");
    this.#adminLogger = this.#logger.tellingEach();
  }

  /** Whether NSQ's routes need no token, so that they need not be looked at. */
  get isOpen(): boolean {
    return !this.#authorizer.isRequired || !this.#guardsApi;
  }

  /** A route that is only handled for those who may. */
  guarded(route: HttpRoute): HttpRoute {
    const { method, path, handle } = route;
    const name = `${method} ${path}`;
    const rule = Object.hasOwn(this.#rules, name) ? this.#rules[name]! : null;
    if (rule === "open") return route;
    return {
      ...route,
      handle: async (call) => {
        const names = () => namesOf(path, call);
        const permitted = await this.#permit(rule, path, call.request, call, names);
        if (permitted instanceof Response) return permitted;
        if (rule?.scope !== "admin") return handle(call);
        const done = (status: number) => {
          const [topic, channel] = names();
          this.#adminLogger.info("Admin action", {
            action: name,
            topic,
            channel,
            identity: permitted.identity,
            client: call.remoteAddress,
            status,
          });
        };
        try {
          const response = await handle(call);
          done(response.status);
          return response;
        } catch (error) {
          done(error instanceof HttpError ? error.status : 500);
          throw error;
        }
      },
    };
  }

  /** {@linkcode guarded} for the paths that go around the router: null when the publish may go on. */
  async refusePublish(request: Request, peer: HttpPeer): Promise<Response | null> {
    const names = () => namesIn(request.url);
    const permitted = await this.#permit(PUBLISH, "/pub", request, peer, names);
    return permitted instanceof Response ? permitted : null;
  }

  /** As {@linkcode HttpAccess.refusePublish}; who it is when it may go on. */
  async permitPublish(request: Request, peer: HttpPeer): Promise<Response | string> {
    const names = () => namesIn(request.url);
    const permitted = await this.#permit(PUBLISH, "/pub", request, peer, names);
    return permitted instanceof Response ? permitted : permitted.identity;
  }

  async #permit(
    rule: RouteNeed | null,
    path: string,
    request: Request,
    peer: HttpPeer,
    names: () => Names,
  ): Promise<Permitted | Response> {
    const { remoteAddress } = peer;
    const isNativeAdmin = path.startsWith(NATIVE) && rule?.scope !== "read";
    if (!this.#authorizer.isRequired) {
      // A page in a browser on this machine is not who sits at it.
      const isLocal = isLoopback(remoteAddress) && request.headers.get("origin") === null;
      if (isNativeAdmin && !isLocal) return this.#refuse(request, remoteAddress, 403, "FORBIDDEN");
      return { identity: "" };
    }
    if (!this.#guardsApi && !isNativeAdmin) return { identity: "" };
    const token = BEARER_REGEXP.exec(request.headers.get("authorization") ?? "")?.[1] ?? null;
    const isNamed = peer.certificateName !== "" && this.#authorizer.takesCertificates;
    if (token === null && !isNamed) {
      return this.#refuse(request, remoteAddress, 401, "AUTH_REQUIRED");
    }
    let grants: Grants;
    try {
      grants = await this.#grants(token, request.url.startsWith("https:"), peer);
    } catch (error) {
      if (!(error instanceof AuthorizationUnavailable)) throw error;
      return this.#refuse(request, remoteAddress, 503, "AUTH_FAILED");
    }
    if (grants.count === 0) {
      const code = token === null ? "AUTH_REQUIRED" : "INVALID_TOKEN";
      return this.#refuse(request, remoteAddress, 401, code);
    }
    const [topic, channel] = names();
    const isAllowed = rule !== null && grants.allows(
      rule.scope,
      rule.on === "node" ? "" : topic,
      rule.on === "channel" ? channel : "",
    );
    if (isAllowed) return { identity: grants.identity };
    return this.#refuse(request, remoteAddress, 403, "FORBIDDEN", grants.identity);
  }

  async #refuse(
    request: Request,
    remoteAddress: string,
    status: number,
    code: string,
    identity = "",
  ): Promise<Response> {
    this.#logger.info("Refused a request over HTTP", {
      client: remoteAddress,
      method: request.method,
      path: new URL(request.url).pathname,
      identity,
      status,
      code,
    });
    await request.body?.cancel().catch(() => {});
    const headers: [string, string][] = [];
    if (status === 401) headers.push(["WWW-Authenticate", "Bearer"]);
    if (status === 503) headers.push(["Retry-After", "1"]);
    return errorReply(status, code, headers);
  }

  /**
   * The grants of a token, a verified certificate, or both, asked for once by all who come with the
   * same at the same time.
   */
  #grants(
    token: string | null,
    isTls: boolean,
    { remoteAddress, certificateName }: HttpPeer,
  ): Promise<Grants> {
    const secret = token === null ? null : utf8Bytes(token);
    const remoteIp = remoteHost(remoteAddress);
    // The token itself is not kept.
    const key = createHash("sha256")
      .update(JSON.stringify([token, isTls, remoteIp, certificateName])).digest("hex");
    const kept = this.#kept.get(key);
    if (kept !== undefined && this.#clock.monoMs() < kept.expiresMs) return kept.asked;
    this.#drop(key);
    // Only the oldest goes: each new one makes room for itself.
    for (const oldest of this.#kept.keys()) {
      if (this.#kept.size < CACHE_MAX) break;
      this.#drop(oldest);
    }
    const entry: Kept = {
      expiresMs: Infinity,
      held: null,
      asked: this.#authorizer.authorize({
        secret: secret && secretOf(secret),
        remoteIp,
        isTls,
        commonName: certificateName,
        isCertificateVerified: certificateName !== "",
      }).then(({ grants, validMs }) => {
        // Unknown tokens are not kept: anybody can make up as many as there is room for.
        const isKept = grants.count > 0 && this.#kept.get(key) === entry &&
          this.#authorizer.hold(grants);
        if (isKept) {
          entry.held = grants;
          entry.expiresMs = this.#clock.monoMs() + validMs;
        } else this.#forget(key, entry);
        return grants;
      }, (error) => {
        this.#forget(key, entry);
        throw error;
      }),
    };
    this.#kept.set(key, entry);
    return entry.asked;
  }

  #forget(key: string, entry: Kept): void {
    if (this.#kept.get(key) === entry) this.#drop(key);
  }

  #drop(key: string): void {
    const held = this.#kept.get(key)?.held ?? null;
    if (held !== null) this.#authorizer.release(held);
    this.#kept.delete(key);
  }
}

/** The topic and channel of a request: of its path where that has them, or else of its query. */
function namesOf(path: string, call: HttpCall): Names {
  const [topic, channel] = namesIn(call.request.url);
  return [
    path.includes("/:topic") ? validName(call.pathParameter("topic")) : topic,
    path.includes("/:channel") ? validName(call.pathParameter("channel")) : channel,
  ];
}

function namesIn(url: string): Names {
  const query = parseQuery(url);
  return [validName(query?.get("topic") ?? ""), validName(query?.get("channel") ?? "")];
}

/** What is no name is taken for none, which fewer patterns match. */
function validName(text: string): string {
  return isValidName(text) ? text : "";
}
