/**
 * The answer of an NSQ authorization service:
 *
 * ```
 * {"ttl":3600,"identity":"joe","identity_url":"http://x/",
 *  "authorizations":[{"topic":"^orders$","channels":[".*"],"permissions":["subscribe","publish"]}]}
 * ```
 *
 * As in nsqd a missing field is the empty value, letters of field names are of any case, a value of
 * another type, an unknown permission, a bad pattern or a `ttl` below 1 makes the whole unusable.
 * Ours: the permissions `read` and `admin`, bounds on number and cost, and a pattern that Go takes
 * and this matcher does not never matches.
 */
import { type Grant, Grants, GRANTS_MAX, PatternBook, type Scope } from "./grants.ts";
import { Pattern } from "./pattern.ts";
import { PatternError } from "./pattern_syntax.ts";

/** The largest answer that is read. */
export const AUTH_REPLY_BYTES_MAX = 1_048_576;
/** The longest that an answer is believed. */
export const TTL_SECONDS_MAX = 1_000_000;
const IDENTITY_CHARACTERS_MAX = 1024;

/** An answer of the wrong form. The message repeats nothing of it but field names and patterns. */
export class AuthReplyError extends Error {
  override name = "AuthReplyError";
}

/** What an answer says. */
export interface AuthReply {
  readonly grants: Grants;
  readonly ttlMs: number;
  /** Why patterns are not used, by pattern. */
  readonly unsupported: ReadonlyMap<string, string>;
}

const PERMISSIONS: Readonly<Record<string, Scope>> = {
  subscribe: "consume",
  publish: "publish",
  read: "read",
  admin: "admin",
};

/** Reads an answer. Throws {@linkcode AuthReplyError}. */
export function parseAuthReply(body: Uint8Array): AuthReply {
  const document = new Fields(parseJson(body));
  const ttlSeconds = document.integer("ttl");
  if (ttlSeconds <= 0) throw new AuthReplyError(`The ttl is ${ttlSeconds}`);
  const identity = document.text("identity");
  const identityUrl = document.text("identity_url");
  const entries = document.list("authorizations");
  if (entries.length > GRANTS_MAX) {
    throw new AuthReplyError(`There are more than ${GRANTS_MAX} authorizations`);
  }
  const unsupported = new Map<string, string>();
  const book = new PatternBook((source) => compile(source, unsupported));
  const grants = entries.map((entry) => readGrant(new Fields(entry), book));
  return {
    grants: new Grants(identity, identityUrl, grants),
    ttlMs: Math.min(ttlSeconds, TTL_SECONDS_MAX) * 1000,
    unsupported,
  };
}

function parseJson(body: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder().decode(body));
  } catch {
    throw new AuthReplyError("It is not JSON");
  }
}

function readGrant(entry: Fields, book: PatternBook): Grant {
  const scopes = entry.texts("permissions").map((permission) => {
    if (!Object.hasOwn(PERMISSIONS, permission)) throw new AuthReplyError("Unknown permission");
    return PERMISSIONS[permission]!;
  });
  try {
    return {
      scopes: [...new Set(scopes)],
      topics: [book.pattern(entry.text("topic"))],
      channels: entry.texts("channels").map((channel) => book.pattern(channel)),
    };
  } catch (error) {
    if (error instanceof AuthReplyError) throw error;
    if (!(error instanceof PatternError || error instanceof RangeError)) throw error;
    throw new AuthReplyError(error.message, { cause: error });
  }
}

/** Matches no name. */
const NOTHING = "[^\\x00-\\x7f]";

function compile(source: string, unsupported: Map<string, string>): Pattern {
  try {
    return Pattern.regexp(source);
  } catch (error) {
    if (!(error instanceof PatternError) || error.kind === "bad") throw error;
    unsupported.set(source, error.message);
    return Pattern.regexp(NOTHING);
  }
}

/** The fields of an object as Go reads them. */
class Fields {
  readonly #fields: Readonly<Record<string, unknown>>;

  constructor(value: unknown) {
    if (value === null) this.#fields = {};
    else if (isRecord(value)) this.#fields = value;
    else throw new AuthReplyError("It is not an object where one belongs");
  }

  text(name: string): string {
    const value = this.#value(name);
    if (value === null) return "";
    if (typeof value !== "string") throw wrongType(name);
    if (name !== "topic" && value.length > IDENTITY_CHARACTERS_MAX) {
      throw new AuthReplyError(`${name} is longer than ${IDENTITY_CHARACTERS_MAX} characters`);
    }
    return value;
  }

  integer(name: string): number {
    const value = this.#value(name);
    if (value === null) return 0;
    if (typeof value !== "number" || !Number.isInteger(value)) throw wrongType(name);
    return value;
  }

  list(name: string): readonly unknown[] {
    const value = this.#value(name);
    if (value === null) return [];
    if (!Array.isArray(value)) throw wrongType(name);
    return value;
  }

  texts(name: string): readonly string[] {
    return this.list(name).map((value) => {
      if (value === null) return "";
      if (typeof value !== "string") throw wrongType(name);
      return value;
    });
  }

  #value(name: string): unknown {
    if (Object.hasOwn(this.#fields, name)) return this.#fields[name];
    const key = Object.keys(this.#fields).find((one) => one.toLowerCase() === name);
    return key === undefined ? null : this.#fields[key];
  }
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function wrongType(name: string): AuthReplyError {
  return new AuthReplyError(`${name} is of the wrong type`);
}
