/**
 * Signed tokens (JWT) as a source of grants. A token is taken when its signature is one of ours
 * (HS256 with the secret; RS256 or ES256 with a public key), it has not expired, is in force already,
 * and was made for us:
 *
 * | claim | |
 * |---|---|
 * | `exp` | needed |
 * | `nbf` | must have passed, if there is one |
 * | `aud` | must have the audience that is set; without one set a token for an audience is refused |
 * | `iss` | must be the issuer that is set, if one is |
 * | `sub` | the identity |
 * | `sluice_grants` | the grants, see `grant_list.ts` |
 *
 * Clocks may differ by {@linkcode CLOCK_SKEW_SECONDS}. Which algorithm is allowed depends on the key
 * alone and never on the token, so a public key cannot be taken for a secret.
 */
import {
  createLocalJWKSet,
  decodeProtectedHeader,
  errors,
  importJWK,
  importSPKI,
  type JWTPayload,
  jwtVerify,
  type JWTVerifyGetKey,
} from "jose";
import type { Clock } from "../runtime/mod.ts";
import { type Logger, type Secret, secret } from "../telemetry/mod.ts";
import { type Credentials, type Granted, type GrantSource, secretText } from "./authorizer.ts";
import { GrantListError, readGrantList } from "./grant_list.ts";
import { Grants } from "./grants.ts";

/** The largest key file that is read. */
export const KEY_FILE_BYTES_MAX = 262_144;
/** A shorter secret could be guessed. */
export const TOKEN_SECRET_BYTES_MIN = 32;
export const CLOCK_SKEW_SECONDS = 30;
/** How long a token is believed at most: a changed key reaches those connected after that. */
export const TOKEN_GRANTS_MS = 60_000;

const CLAIM = "sluice_grants";
const TOKEN_REGEXP = /^[\w-]+\.[\w-]+\.[\w-]+$/;
const IDENTITY_CHARACTERS_MAX = 256;

/** A key that cannot be used. The message holds nothing of it. */
export class TokenKeyError extends Error {
  override name = "TokenKeyError";
}

/** Says with which key, and with which algorithms, a signature is checked. */
export interface TokenKey {
  readonly algorithms: readonly string[];
  readonly key: Secret<Uint8Array> | CryptoKey | JWTVerifyGetKey;
}

/** The secret of HS256; a line feed at its end is not part of it. Throws {@linkcode TokenKeyError}. */
export function parseTokenSecret(bytes: Uint8Array): TokenKey {
  let end = bytes.length;
  while (end > 0 && (bytes[end - 1] === 0x0a || bytes[end - 1] === 0x0d)) end--;
  if (end < TOKEN_SECRET_BYTES_MIN) {
    throw new TokenKeyError(`the secret has less than ${TOKEN_SECRET_BYTES_MIN} bytes`);
  }
  return { algorithms: ["HS256"], key: secret(bytes.slice(0, end)) };
}

/** Public keys: one in PEM, or a JWK set. Rejects with {@linkcode TokenKeyError}. */
export async function parsePublicKeys(bytes: Uint8Array): Promise<TokenKey> {
  const text = new TextDecoder().decode(bytes).trim();
  if (text.startsWith("{")) return parseKeySet(text);
  for (const algorithm of ["RS256", "ES256"]) {
    try {
      return { algorithms: [algorithm], key: await importSPKI(text, algorithm) };
    } catch {
      // Of another kind, or no key at all.
    }
  }
  throw new TokenKeyError("it is neither a public key (RSA or P-256) in PEM nor a JWK set");
}

async function parseKeySet(text: string): Promise<TokenKey> {
  const unusable = new TokenKeyError("it is not a JWK set");
  let set: unknown;
  try {
    set = JSON.parse(text);
  } catch {
    throw unusable;
  }
  if (typeof set !== "object" || set === null || !("keys" in set) || !Array.isArray(set.keys)) {
    throw unusable;
  }
  for (const key of set.keys) {
    const isKey = typeof key === "object" && key !== null;
    if (!isKey || !["RSA", "EC"].includes(key.kty) || "d" in key) {
      throw new TokenKeyError("the JWK set has what is no public key of kind RSA or EC");
    }
    try {
      await importJWK(key, key.kty === "RSA" ? "RS256" : "ES256");
    } catch {
      throw new TokenKeyError("the JWK set has a key that cannot be used for RS256 or ES256");
    }
  }
  return { algorithms: ["RS256", "ES256"], key: createLocalJWKSet({ keys: set.keys }) };
}

/** What a token must say. */
export interface TokenRules {
  /** Empty for tokens without an audience. */
  readonly audience: string;
  /** Empty for any. */
  readonly issuer: string;
}

/** Tokens as a source; `keys` are those of now. */
export class TokenSource implements GrantSource {
  readonly takesCertificates = false;
  readonly #keys: () => readonly TokenKey[];
  readonly #rules: TokenRules;
  readonly #clock: Clock;
  readonly #logger: Logger;

  constructor(
    keys: () => readonly TokenKey[],
    rules: TokenRules,
    seams: { readonly clock: Clock; readonly logger: Logger },
  ) {
    this.#keys = keys;
    this.#rules = rules;
    this.#clock = seams.clock;
    this.#logger = seams.logger;
  }

  async authorize({ secret, remoteIp }: Credentials): Promise<Granted | null> {
    if (secret === null) return null;
    const token = secretText(secret);
    if (!TOKEN_REGEXP.test(token)) return null;
    try {
      const payload = await this.#verify(token);
      return payload === null ? null : this.#authorization(payload);
    } catch (error) {
      // Whatever is thrown over a token of a peer, it costs that token only.
      let reason = error instanceof Error ? error.name : "unknown";
      if (error instanceof errors.JOSEError) reason = error.code;
      else if (error instanceof GrantListError) reason = error.message;
      this.#logger.info("Refused a token", { client: remoteIp, reason });
      return null;
    }
  }

  /** The claims, or null when the token is for no key of ours. */
  async #verify(token: string): Promise<JWTPayload | null> {
    const { alg } = decodedHeader(token);
    const known = this.#keys().find(({ algorithms }) => algorithms.includes(alg ?? ""));
    if (known === undefined) return null;
    const { audience, issuer } = this.#rules;
    const options = {
      algorithms: [...known.algorithms],
      currentDate: new Date(this.#clock.wallMs()),
      clockTolerance: CLOCK_SKEW_SECONDS,
      requiredClaims: ["exp"],
      ...(audience === "" ? {} : { audience }),
      ...(issuer === "" ? {} : { issuer }),
    };
    const { key } = known;
    const { payload } = typeof key === "function"
      ? await jwtVerify(token, key, options)
      : await jwtVerify(token, key instanceof CryptoKey ? key : key.reveal(), options);
    if (audience === "" && payload.aud !== undefined) {
      throw new GrantListError("the token is for an audience, and none is set here");
    }
    return payload;
  }

  #authorization(payload: JWTPayload): Granted {
    const grants = readGrantList(payload[CLAIM], CLAIM);
    const identity = (payload.sub ?? "").slice(0, IDENTITY_CHARACTERS_MAX);
    const leftMs = ((payload.exp ?? 0) + CLOCK_SKEW_SECONDS) * 1000 - this.#clock.wallMs();
    return {
      grants: new Grants(identity, "", grants),
      validMs: Math.max(0, Math.min(leftMs, TOKEN_GRANTS_MS)),
    };
  }
}

function decodedHeader(token: string): ReturnType<typeof decodeProtectedHeader> {
  try {
    return decodeProtectedHeader(token);
  } catch {
    // It only looks like a token.
    return {};
  }
}
