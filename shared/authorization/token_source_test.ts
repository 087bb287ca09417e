/** Signed tokens: every way in which one is not to be believed. */
import { deepStrictEqual as equal, match, ok, rejects, throws } from "node:assert/strict";
import {
  exportJWK,
  exportSPKI,
  generateKeyPair,
  type JWTPayload,
  SignJWT,
  UnsecuredJWT,
} from "jose";
import { Logger, secret } from "../telemetry/mod.ts";
import { SimClock } from "../testing/mod.ts";
import {
  CLOCK_SKEW_SECONDS,
  parsePublicKeys,
  parseTokenSecret,
  TOKEN_GRANTS_MS,
  type TokenKey,
  TokenKeyError,
  TokenSource,
} from "./token_source.ts";

function bytes(text: string): Uint8Array {
  return new TextEncoder().encode(text);
}
const SECRET = "0123456789abcdef0123456789abcdef";
const CLAIMS = { sub: "shop", sluice_grants: [{ scopes: ["publish"], topics: ["orders*"] }] };

class Stage {
  readonly clock = new SimClock();
  readonly lines: string[] = [];
  readonly #keys: readonly TokenKey[];
  readonly #rules: { audience: string; issuer: string };

  constructor(keys: readonly TokenKey[], rules: { audience?: string; issuer?: string } = {}) {
    this.#keys = keys;
    this.#rules = { audience: "", issuer: "", ...rules };
  }

  get nowSeconds(): number {
    return Math.floor(this.clock.wallMs() / 1000);
  }

  /** The identity and how long it is believed; null for a token that is not. */
  async ask(token: string): Promise<readonly [string, number] | null> {
    const logger = new Logger({ sink: (line) => this.lines.push(line), clock: this.clock });
    const source = new TokenSource(() => this.#keys, this.#rules, { clock: this.clock, logger });
    const granted = await source.authorize({
      secret: secret(bytes(token)),
      remoteIp: "192.0.2.7",
      isTls: false,
      commonName: "",
      isCertificateVerified: false,
    });
    ok(token.length < 10 || !this.lines.some((line) => line.includes(token)));
    if (granted === null) return null;
    equal(granted.grants.allows("publish", "orders.eu", ""), true);
    equal(granted.grants.allows("publish", "other", ""), false);
    return [granted.grants.identity, granted.validMs];
  }

  /** A token of our secret that is good for an hour, but for what is changed. */
  token(changes: JWTPayload = {}, key: string = SECRET): Promise<string> {
    const claims: JWTPayload = { ...CLAIMS, exp: this.nowSeconds + 3600, ...changes };
    return new SignJWT(claims).setProtectedHeader({ alg: "HS256" }).sign(bytes(key));
  }
}

Deno.test("TokenSource believes a signed token until it expires, and for a minute at most", async () => {
  const stage = new Stage([parseTokenSecret(bytes(`${SECRET}\r\n`))]);
  equal(await stage.ask(await stage.token()), ["shop", TOKEN_GRANTS_MS]);
  equal(await stage.ask(await stage.token({ exp: stage.nowSeconds + 10 })), ["shop", 40_000]);
  equal(await stage.ask(await stage.token({ exp: stage.nowSeconds - 10 })), ["shop", 20_000]);
  const nbf = stage.nowSeconds + CLOCK_SKEW_SECONDS;
  equal(await stage.ask(await stage.token({ nbf })), ["shop", TOKEN_GRANTS_MS]);
});

Deno.test("TokenSource does not believe a token that is not ours, not now, or not for us", async () => {
  const stage = new Stage([parseTokenSecret(bytes(SECRET))]);
  const now = stage.nowSeconds;
  const good = await stage.token();
  const [head = "", body = "", signature = ""] = good.split(".");
  const forged = btoa(JSON.stringify({ ...CLAIMS, sub: "root", exp: now + 3600 }))
    .replaceAll("=", "").replaceAll("+", "-").replaceAll("/", "_");
  const unsigned = new UnsecuredJWT({ ...CLAIMS, exp: now + 3600 }).encode();
  const tokens = [
    await stage.token({ exp: now - CLOCK_SKEW_SECONDS - 1 }),
    await stage.token({ nbf: now + CLOCK_SKEW_SECONDS + 1 }),
    await stage.token({}, SECRET.toUpperCase()),
    await new SignJWT(CLAIMS).setProtectedHeader({ alg: "HS256" }).sign(bytes(SECRET)),
    await new SignJWT({ ...CLAIMS, exp: now + 60 }).setProtectedHeader({ alg: "HS512" })
      .sign(bytes(SECRET + SECRET)),
    await stage.token({ aud: "someone" }),
    await stage.token({ sluice_grants: undefined }),
    await stage.token({ sluice_grants: [{ scopes: ["own"], topics: ["*"] }] }),
    await stage.token({ sluice_grants: [{ scopes: ["publish"] }] }),
    `${head}.${forged}.${signature}`,
    `${head}.${body}.`,
    `${head}.${body}.${signature.slice(1)}`,
    `${head}.${body}`,
    unsigned,
    `${unsigned}x`,
    "a.b.c",
    "..",
    "",
    "opensesame",
  ];
  for (const token of tokens) equal(await stage.ask(token), null, token);
  equal(await stage.ask(good), ["shop", TOKEN_GRANTS_MS]);
});

Deno.test("TokenSource wants the audience and the issuer that are set", async () => {
  const keys = [parseTokenSecret(bytes(SECRET))];
  const stage = new Stage(keys, { audience: "sluice", issuer: "http://issuer/" });
  const rows: readonly (readonly [JWTPayload, boolean])[] = [
    [{ aud: "sluice", iss: "http://issuer/" }, true],
    [{ aud: ["other", "sluice"], iss: "http://issuer/" }, true],
    [{ aud: "other", iss: "http://issuer/" }, false],
    [{ aud: "sluice", iss: "http://other/" }, false],
    [{ aud: "sluice" }, false],
    [{ iss: "http://issuer/" }, false],
  ];
  for (const [claims, isGood] of rows) {
    equal(await stage.ask(await stage.token(claims)) !== null, isGood, JSON.stringify(claims));
  }
  match(stage.lines[0] ?? "", /Refused a token client=192.0.2.7 reason=ERR_JWT_CLAIM_VALIDATION/);
});

Deno.test("TokenSource takes RS256 and ES256 by PEM or JWK set, each only with its own key", async () => {
  for (const algorithm of ["RS256", "ES256"]) {
    const pair = await generateKeyPair(algorithm, { extractable: true });
    const other = await generateKeyPair(algorithm, { extractable: true });
    const pem = await exportSPKI(pair.publicKey);
    const set = JSON.stringify({ keys: [{ ...await exportJWK(pair.publicKey), kid: "1" }] });
    for (const file of [pem, set]) {
      const stage = new Stage([await parsePublicKeys(bytes(file))]);
      const signed = (key: CryptoKey) =>
        new SignJWT({ ...CLAIMS, exp: stage.nowSeconds + 60 })
          .setProtectedHeader({ alg: algorithm }).sign(key);
      equal(await stage.ask(await signed(pair.privateKey)), ["shop", TOKEN_GRANTS_MS]);
      equal(await stage.ask(await signed(other.privateKey)), null);
      // The public key is known to all: it must not pass for a secret.
      equal(await stage.ask(await stage.token({}, file)), null);
      equal(await stage.ask(await stage.token({}, pem.trim())), null);
    }
  }
});

Deno.test("keys that cannot be used are refused without a word of what is in them", async () => {
  throws(() => parseTokenSecret(bytes(SECRET.slice(1))), TokenKeyError);
  throws(() => parseTokenSecret(bytes(`${SECRET.slice(1)}\n`)), TokenKeyError);
  const pair = await generateKeyPair("ES256", { extractable: true });
  const files = [
    "",
    "SECRET",
    "-----BEGIN PUBLIC KEY-----\nSECRET\n-----END PUBLIC KEY-----",
    "{",
    "{}",
    '{"keys":"SECRET"}',
    '{"keys":["SECRET"]}',
    '{"keys":[{"kty":"oct","k":"SECRET"}]}',
    '{"keys":[{"kty":"EC","crv":"P-256","x":"SECRET","y":7}]}',
    '{"keys":[{"kty":"EC"}]}',
    JSON.stringify({ keys: [await exportJWK(pair.privateKey)] }),
  ];
  for (const file of files) {
    await rejects(parsePublicKeys(bytes(file)), (error: unknown) => {
      ok(error instanceof TokenKeyError, `${file}: ${error}`);
      return !Deno.inspect(error).includes("SECRET");
    });
  }
});
