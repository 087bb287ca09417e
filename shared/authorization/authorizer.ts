/**
 * Who may do what, from one or more sources: a file of grants, signed tokens, authorization
 * services. Every door asks the same {@linkcode Authorizer}.
 *
 * - The first source that knows the credentials decides. When none does, nothing is allowed.
 * - A source that cannot say makes the whole fail with {@linkcode AuthorizationUnavailable}: what is
 *   not known is not allowed, but is no denial either.
 * - The grants in use at one time have a bound in memory; beyond it new ones are unavailable.
 */
import { type Secret, secret } from "../telemetry/mod.ts";
import { Grants } from "./grants.ts";

/** The longest secret that is looked at; a longer one is unknown. */
export const SECRET_BYTES_MAX = 8192;
/** Memory for grants in use, over all connections and requests. */
export const GRANTS_BYTES_MAX = 128 * 1024 * 1024;

/** Who asks. */
export interface Credentials {
  /** The secret of AUTH or the token of HTTP; null when there is none. */
  readonly secret: Secret<Uint8Array> | null;
  readonly remoteIp: string;
  readonly isTls: boolean;
  /** The common name of the client's certificate, or empty. */
  readonly commonName: string;
  /** Whether an authority that is trusted here has signed the certificate. */
  readonly isCertificateVerified: boolean;
}

/** What somebody may do, and how long that is believed. */
export interface Granted {
  readonly grants: Grants;
  readonly validMs: number;
}

/** A place that grants come from. */
export interface GrantSource {
  /** Null when it knows nothing of the credentials. Rejects with {@linkcode AuthorizationUnavailable}. */
  authorize(credentials: Credentials): Promise<Granted | null>;
  /** Whether a certificate alone may be enough. */
  readonly takesCertificates: boolean;
}

/** It cannot be said what is allowed. The message says why and holds no secret. */
export class AuthorizationUnavailable extends Error {
  override name = "AuthorizationUnavailable";
}

const NOTHING: Granted = { grants: new Grants("", "", []), validMs: 1000 };
const DECODER = new TextDecoder();

/** See the module. */
export class Authorizer {
  /** Answers that allow nothing. */
  unknownCount = 0;
  /** Times that it could not be said what is allowed. */
  unavailableCount = 0;
  /** Bytes of grants in use. */
  heldBytes = 0;
  /** Times that there was no memory for grants. */
  holdRefusedCount = 0;
  readonly #sources: readonly GrantSource[];

  constructor(sources: readonly GrantSource[]) {
    this.#sources = sources;
  }

  /** Whether anything is to be authorized: without a source everybody may do everything. */
  get isRequired(): boolean {
    return this.#sources.length > 0;
  }

  /** Whether a client may be known by its certificate. */
  get takesCertificates(): boolean {
    return this.#sources.some((source) => source.takesCertificates);
  }

  /** Rejects with {@linkcode AuthorizationUnavailable}. */
  async authorize(credentials: Credentials): Promise<Granted> {
    try {
      const authorization = await this.#ask(credentials);
      if (authorization.grants.count === 0) this.unknownCount++;
      return authorization;
    } catch (error) {
      if (error instanceof AuthorizationUnavailable) this.unavailableCount++;
      throw error;
    }
  }

  /** Takes memory for grants that stay in use. Whoever gets true calls `release`. */
  hold(grants: Grants): boolean {
    const { bytes } = grants;
    if (this.heldBytes + bytes > GRANTS_BYTES_MAX) {
      this.holdRefusedCount++;
      return false;
    }
    this.heldBytes += bytes;
    return true;
  }

  release(grants: Grants): void {
    this.heldBytes -= grants.bytes;
  }

  async #ask(credentials: Credentials): Promise<Granted> {
    const { secret } = credentials;
    if (secret !== null && secret.reveal().length > SECRET_BYTES_MAX) return NOTHING;
    for (const source of this.#sources) {
      const authorization = await source.authorize(credentials);
      if (authorization !== null) return authorization;
    }
    return NOTHING;
  }
}

/** A copy of `bytes` that is never printed. */
export function secretOf(bytes: Uint8Array): Secret<Uint8Array> {
  return secret(bytes.slice());
}

/** The secret as text; what is not UTF-8 becomes U+FFFD. */
export function secretText(one: Secret<Uint8Array>): string {
  return DECODER.decode(one.reveal());
}
