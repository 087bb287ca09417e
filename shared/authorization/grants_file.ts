/**
 * A file of grants, TOML or JSON, by secret token or by the common name of a client certificate:
 *
 * ```toml
 * [[identity]]
 * name = "shop"
 * token_sha256 = "9f86d0..."     # or token = "..."; printf %s TOKEN | sha256sum
 * certificate = "shop.internal"  # any or all of these
 * allow = [{ scopes = ["publish"], topics = ["orders", "orders.*"] }]
 * ```
 *
 * Only digests of tokens are kept, and a token that has not been good before is compared with all of
 * them in the same time wherever it matches. A certificate counts only when it has been verified.
 */
import { createHash, timingSafeEqual } from "node:crypto";
import { parse as parseToml, TomlError } from "smol-toml";
import type { Credentials, Granted, GrantSource } from "./authorizer.ts";
import { GrantListError, readFields, readGrantList } from "./grant_list.ts";
import { Grants } from "./grants.ts";

/** The largest file that is read. */
export const GRANTS_FILE_BYTES_MAX = 1_048_576;
/** The most identities in a file: each token that comes in is compared with all of them. */
export const IDENTITIES_MAX = 1000;
/** How long what the file says is believed: a change reaches those connected after that. */
export const FILE_GRANTS_MS = 5_000;

const NAMES = ["name", "token", "token_sha256", "certificate", "allow"];
const DIGEST_REGEXP = /^[0-9a-fA-F]{64}$/;
const NAME_CHARACTERS_MAX = 256;

interface Identity {
  readonly digests: readonly Uint8Array[];
  readonly certificate: string;
  readonly grants: Grants;
}

/** What a file says. */
export class GrantsFile {
  readonly #identities: readonly Identity[];
  /** Grants by the digests of tokens that have come in and are good: those come again and again. */
  readonly #known = new Map<string, Grants>();

  private constructor(identities: readonly Identity[]) {
    this.#identities = identities;
  }

  /** Reads the text of a file. Throws {@linkcode GrantListError}, whose message holds no value. */
  static parse(text: string): GrantsFile {
    const { identity } = readFields(parseDocument(text), "the file", ["identity"]);
    const list = identity ?? [];
    if (!Array.isArray(list)) throw new GrantListError("identity is not a list");
    if (list.length > IDENTITIES_MAX) {
      throw new GrantListError(`identity has more than ${IDENTITIES_MAX} entries`);
    }
    const identities = list.map(readIdentity);
    const names = new Set(identities.map(({ grants }) => grants.identity));
    if (names.size < identities.length) throw new GrantListError("two identities have one name");
    return new GrantsFile(identities);
  }

  /** The grants of a token. */
  byToken(token: Uint8Array): Grants | null {
    const digest = createHash("sha256").update(token).digest();
    const key = digest.toString("hex");
    const known = this.#known.get(key);
    if (known !== undefined) return known;
    let found: Grants | null = null;
    for (const { digests, grants } of this.#identities) {
      for (const one of digests) if (timingSafeEqual(one, digest)) found = grants;
    }
    if (found !== null) this.#known.set(key, found);
    return found;
  }

  /** The grants of a verified certificate. */
  byCertificate(commonName: string): Grants | null {
    if (commonName === "") return null;
    return this.#identities.find(({ certificate }) => certificate === commonName)?.grants ?? null;
  }
}

/** The file as a source; `current` is what it says now. */
export class GrantsFileSource implements GrantSource {
  readonly takesCertificates = true;
  readonly #current: () => GrantsFile;

  constructor(current: () => GrantsFile) {
    this.#current = current;
  }

  authorize(credentials: Credentials): Promise<Granted | null> {
    const { secret, commonName, isCertificateVerified } = credentials;
    const file = this.#current();
    let grants = secret === null ? null : file.byToken(secret.reveal());
    if (grants === null && isCertificateVerified) grants = file.byCertificate(commonName);
    return Promise.resolve(grants === null ? null : { grants, validMs: FILE_GRANTS_MS });
  }
}

/** Messages of parsers repeat what they read, which may be a token: only the place is told. */
function parseDocument(text: string): unknown {
  if (text.trimStart().startsWith("{")) {
    try {
      return JSON.parse(text);
    } catch {
      throw new GrantListError("the file is not valid JSON");
    }
  }
  try {
    return parseToml(text);
  } catch (error) {
    const line = error instanceof TomlError ? `: line ${error.line}` : "";
    throw new GrantListError(`the file is not valid TOML${line}`);
  }
}

function readIdentity(value: unknown, index: number): Identity {
  const place = `identity[${index}]`;
  const fields = readFields(value, place, NAMES);
  const name = readText(fields, "name", place);
  const token = readText(fields, "token", place);
  const digest = readText(fields, "token_sha256", place);
  const certificate = readText(fields, "certificate", place);
  if (name === "") throw new GrantListError(`${place} has no name`);
  if (name.length > NAME_CHARACTERS_MAX) throw new GrantListError(`${place}.name is too long`);
  if (digest !== "" && !DIGEST_REGEXP.test(digest)) {
    throw new GrantListError(`${place}.token_sha256 is not 64 hexadecimal digits`);
  }
  const digests: Uint8Array[] = [];
  if (token !== "") digests.push(createHash("sha256").update(token).digest());
  if (digest !== "") digests.push(Uint8Array.fromHex(digest));
  if (digests.length === 0 && certificate === "") {
    throw new GrantListError(`${place} has neither token, token_sha256 nor certificate`);
  }
  const allow = readGrantList(fields.allow, `${place}.allow`);
  const grants = new Grants(name, "", allow, { shared: true });
  return { digests, certificate, grants };
}

function readText(fields: Readonly<Record<string, unknown>>, name: string, place: string): string {
  const value = fields[name] ?? "";
  if (typeof value !== "string") throw new GrantListError(`${place}.${name} is not text`);
  if (value === "" && Object.hasOwn(fields, name)) {
    throw new GrantListError(`${place}.${name} is empty`);
  }
  return value;
}
