/** Files of grants: what they say, and what is wrong with them without a word of what is in them. */
import { deepStrictEqual as equal, ok, throws } from "node:assert/strict";
import { createHash } from "node:crypto";
import { secret } from "../telemetry/mod.ts";
import type { Credentials } from "./authorizer.ts";
import { GrantListError } from "./grant_list.ts";
import { FILE_GRANTS_MS, GrantsFile, GrantsFileSource, IDENTITIES_MAX } from "./grants_file.ts";

function bytes(text: string): Uint8Array {
  return new TextEncoder().encode(text);
}
const DIGEST = createHash("sha256").update("by digest").digest("hex");

const TOML = `
[[identity]]
name = "shop"
token = "in plain"
allow = [
  { scopes = ["publish"], topics = ["orders", "orders.*"] },
  { scopes = ["consume"], topics = ["replies"], channels = ["shop-*"] },
]

[[identity]]
name = "operator"
token_sha256 = "${DIGEST.toUpperCase()}"
certificate = "operator.internal"
allow = [{ scopes = ["read", "admin"], topics = ["*"] }]
`;

const JSON_TEXT = JSON.stringify({
  identity: [{
    name: "shop",
    token: "in plain",
    allow: [{ scopes: ["publish"], topics: ["orders", "orders.*"] }],
  }],
});

Deno.test("GrantsFile gives grants by token, digest and certificate", () => {
  const file = GrantsFile.parse(TOML);
  const shop = file.byToken(bytes("in plain"));
  ok(shop !== null);
  equal([shop.identity, shop.count], ["shop", 2]);
  equal(
    [
      shop.allows("publish", "orders", ""),
      shop.allows("publish", "orders.eu", ""),
      shop.allows("publish", "orders2", ""),
      shop.allows("publish", "replies", ""),
      shop.allows("consume", "replies", "shop-1"),
      shop.allows("consume", "replies", "other"),
      shop.allows("consume", "orders", "shop-1"),
      shop.allows("read", "", ""),
    ],
    [true, true, false, false, true, false, false, false],
  );
  const operator = file.byToken(bytes("by digest"));
  equal(operator?.identity, "operator");
  equal(file.byCertificate("operator.internal"), operator);
  equal([operator?.allows("read", "", ""), operator?.allows("admin", "t", "c")], [true, true]);
  equal(operator?.allows("publish", "t", ""), false);
  for (const token of ["", "in plain ", "in plai", DIGEST, "operator.internal"]) {
    equal(file.byToken(bytes(token)), null);
  }
  equal([file.byCertificate(""), file.byCertificate("shop")], [null, null]);
});

Deno.test("GrantsFile reads JSON as well, and a file without anybody", () => {
  equal(GrantsFile.parse(JSON_TEXT).byToken(bytes("in plain"))?.identity, "shop");
  for (const text of ["", "{}", '{"identity":[]}', "# nobody\n"]) {
    equal(GrantsFile.parse(text).byToken(bytes("")), null);
  }
});

Deno.test("GrantsFile names what is wrong and repeats nothing that may be secret", () => {
  const identity = (fields: object) => JSON.stringify({ identity: [fields] });
  const good = { name: "a", token: "SECRET", allow: [{ scopes: ["read"], topics: ["*"] }] };
  const rows: readonly string[] = [
    '{"identity":[{"token":"SECRET"',
    '[[identity]]\nname = "a"\ntoken = "SECRET',
    "token = SECRET\n",
    '{"SECRET":1}',
    '{"identity":"SECRET"}',
    '{"identity":["SECRET"]}',
    identity({ ...good, tokens: "SECRET" }),
    identity({ ...good, name: "" }),
    identity({ ...good, name: undefined }),
    identity({ ...good, name: 7 }),
    identity({ ...good, name: "x".repeat(257) }),
    identity({ ...good, token: "" }),
    identity({ ...good, token: ["SECRET"] }),
    identity({ ...good, token: undefined }),
    identity({ ...good, token_sha256: "SECRET" }),
    identity({ ...good, certificate: "" }),
    identity({ ...good, allow: undefined }),
    identity({ ...good, allow: "SECRET" }),
    identity({ ...good, allow: [7] }),
    identity({ ...good, allow: [{ scopes: ["SECRET"], topics: ["*"] }] }),
    identity({ ...good, allow: [{ scopes: ["publish"] }] }),
    identity({ ...good, allow: [{ scopes: ["publish"], topics: [] }] }),
    identity({ ...good, allow: [{ scopes: [], topics: ["*"] }] }),
    identity({ ...good, allow: [{ scopes: "publish", topics: ["*"] }] }),
    identity({ ...good, allow: [{ scopes: ["publish"], topics: ["*"], channels: [7] }] }),
    identity({ ...good, allow: [{ scopes: ["publish"], topic: ["*"] }] }),
    identity({ ...good, allow: [{ scopes: ["publish"], topics: ["x".repeat(5000)] }] }),
    JSON.stringify({ identity: [good, good] }),
    JSON.stringify({ identity: Array(IDENTITIES_MAX + 1).fill(good) }),
  ];
  for (const text of rows) {
    throws(() => GrantsFile.parse(text), (error: unknown) => {
      ok(error instanceof GrantListError, `${text.slice(0, 80)}: ${error}`);
      ok(!Deno.inspect(error).split("\n    at ")[0]?.includes("SECRET"), `${error}`);
      return true;
    });
  }
});

Deno.test("GrantsFileSource counts a certificate only when it is verified, and a token first", async () => {
  const file = GrantsFile.parse(TOML);
  const source = new GrantsFileSource(() => file);
  const ask = async (token: string | null, more: Partial<Credentials> = {}) => {
    const granted = await source.authorize({
      secret: token === null ? null : secret(bytes(token)),
      remoteIp: "192.0.2.7",
      isTls: true,
      commonName: "operator.internal",
      isCertificateVerified: true,
      ...more,
    });
    return granted === null ? null : [granted.grants.identity, granted.validMs];
  };
  equal(await ask(null), ["operator", FILE_GRANTS_MS]);
  equal(await ask("unknown"), ["operator", FILE_GRANTS_MS]);
  equal(await ask("in plain"), ["shop", FILE_GRANTS_MS]);
  equal(await ask(null, { isCertificateVerified: false }), null);
  equal(await ask(null, { commonName: "other" }), null);
});
