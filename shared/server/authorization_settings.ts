/** The settings that say who may do what, and what follows from them. */
import { boolean, choice, list, setting, text, type ValuesOf } from "../config/mod.ts";
import { type AuthorizationSettings, authUrl, shownAuthAddress } from "../authorization/mod.ts";

type Values = ValuesOf<ReturnType<typeof authorizationSettings>>;

/** Declares them. */
export function authorizationSettings() {
  const group = "Authorization";
  return {
    authHttpAddresses: setting({
      name: "auth-http-address",
      kind: list(text("ADDRESS")),
      default: [],
      file: "auth_http_addresses",
      doc: "The services asked what a client may do: HOST:PORT, or a URL.",
      shown: (addresses) => addresses.map(shownAuthAddress).join(","),
      group,
    }),
    authHttpRequestMethod: setting({
      name: "auth-http-request-method",
      kind: choice(["get", "post"]),
      default: "get",
      doc: "The method of the requests to them. With get the secret is in the URL.",
      group,
    }),
    authHttpApi: setting({
      name: "auth-http-api",
      kind: boolean(),
      default: true,
      doc:
        "Whether the HTTP API needs a bearer token once there is a source of grants. When false " +
        "the routes of nsqd stay open, as with nsqd.",
      group,
    }),
    authRecheckSubscriptions: setting({
      name: "auth-recheck-subscriptions",
      kind: boolean(),
      default: true,
      doc: "Whether a live subscription is closed once its grants have expired and are not given " +
        "again. When false it stays until the client leaves, as with nsqd.",
      group,
    }),
    grantsFile: setting({
      name: "grants-file",
      kind: text("PATH"),
      default: "",
      doc:
        "A file that says what tokens and client certificates may do. Read again when it changes.",
      group,
    }),
    jwtSecretFile: setting({
      name: "jwt-secret-file",
      kind: text("PATH"),
      default: "",
      doc:
        "A file with the secret that tokens are signed with (HS256). Read again when it changes.",
      group,
    }),
    jwtPublicKeyFile: setting({
      name: "jwt-public-key-file",
      kind: text("PATH"),
      default: "",
      doc:
        "A file with the public key (PEM) or keys (JWK set) that tokens are checked with (RS256, " +
        "ES256). Read again when it changes.",
      group,
    }),
    jwtAudience: setting({
      name: "jwt-audience",
      kind: text(),
      default: "",
      doc: "The audience that a token must be for. When empty, tokens for an audience are refused.",
      group,
    }),
    jwtIssuer: setting({
      name: "jwt-issuer",
      kind: text(),
      default: "",
      doc: "The issuer that a token must be from; any when empty.",
      group,
    }),
  };
}

/** The rules that `values` breaks. */
export function authorizationProblems(values: Values): string[] {
  const problems = values.authHttpAddresses
    .filter((address) => authUrl(address) === null)
    .map(() => "auth-http-address must be HOST:PORT or a URL of http or https without a password");
  const hasKey = values.jwtSecretFile !== "" || values.jwtPublicKeyFile !== "";
  const hasRule = values.jwtAudience !== "" || values.jwtIssuer !== "";
  if (hasRule && !hasKey) {
    problems.push("jwt-audience and jwt-issuer need jwt-secret-file or jwt-public-key-file");
  }
  return problems;
}

/** What authorization is opened with. */
export function authorizationOf(
  values: Values & {
    readonly httpClientConnectTimeoutMs: number;
    readonly httpClientRequestTimeoutMs: number;
  },
): AuthorizationSettings {
  return {
    grantsFile: values.grantsFile,
    tokenSecretFile: values.jwtSecretFile,
    tokenPublicKeyFile: values.jwtPublicKeyFile,
    audience: values.jwtAudience,
    issuer: values.jwtIssuer,
    servers: {
      addresses: values.authHttpAddresses,
      method: values.authHttpRequestMethod === "post" ? "POST" : "GET",
      connectTimeoutMs: values.httpClientConnectTimeoutMs,
      timeoutMs: values.httpClientRequestTimeoutMs,
    },
  };
}
