/** The settings of TLS and compression: flags of nsqd, by its names and with its defaults. */
import {
  address,
  boolean,
  choice,
  integer,
  type Kind,
  setting,
  text,
  type ValuesOf,
} from "../config/mod.ts";

const TLS_REQUIRED = choice(["false", "true", "tcp-https"], { bare: "true" });
const GO_BOOLEANS: Readonly<Record<string, string>> = {
  "1": "true",
  t: "true",
  "0": "false",
  f: "false",
};
const TLS_VERSION = choice(["ssl3.0", "tls1.0", "tls1.1", "tls1.2", "tls1.3"]);
const DEFAULT_VERSION = "tls1.0";
/** What the runtime has at its oldest; the names before it are taken and mean this one. */
const OLDEST_VERSION = "tls1.2";

/** Whether clients must use TLS; also Go's spellings of true and false, as nsqd takes. */
const tlsRequired: Kind<"false" | "true" | "tcp-https"> = {
  ...TLS_REQUIRED,
  parse: (given) => TLS_REQUIRED.parse(GO_BOOLEANS[given.toLowerCase()] ?? given),
};

/** Names of versions; an empty one stands for the default, as in nsqd. */
const tlsVersion: typeof TLS_VERSION = {
  ...TLS_VERSION,
  parse: (given) => given === "" ? DEFAULT_VERSION : TLS_VERSION.parse(given),
  fromDocument: (value) => value === "" ? DEFAULT_VERSION : TLS_VERSION.fromDocument(value),
};

/** Declares them. */
export function tlsSettings() {
  const group = "TLS and compression";
  return {
    tlsCert: setting({
      name: "tls-cert",
      kind: text("PATH"),
      default: "",
      doc:
        "The file with the certificate (PEM, with what leads to its authority). With tls-key it " +
        "turns on TLS, for NSQ clients that ask for it and on https-address. A changed file is " +
        "used within a minute.",
      group,
    }),
    tlsKey: setting({
      name: "tls-key",
      kind: text("PATH"),
      default: "",
      doc: "The file with the private key of tls-cert (PEM, not encrypted).",
      group,
    }),
    tlsClientAuthPolicy: setting({
      name: "tls-client-auth-policy",
      kind: optional(choice(["require", "require-verify"])),
      default: "",
      defaultDoc: "clients are not asked",
      doc:
        "Whether clients show a certificate: any one, or one that tls-root-ca-file has signed. " +
        "Either makes tls-required true unless that is tcp-https. For HTTPS as well.",
      group,
    }),
    tlsRootCaFile: setting({
      name: "tls-root-ca-file",
      kind: text("PATH"),
      default: "",
      doc: "The file with the authorities that certificates of clients must come from (PEM).",
      group,
    }),
    tlsRequired: setting({
      name: "tls-required",
      kind: tlsRequired,
      default: "false",
      doc: "Whether NSQ clients and HTTP must use TLS; tcp-https leaves HTTP open. When true, " +
        "http-address answers every path with TLS_REQUIRED, probes and metrics too.",
      group,
    }),
    tlsMinVersion: setting({
      name: "tls-min-version",
      kind: tlsVersion,
      default: DEFAULT_VERSION,
      doc: "The oldest version of TLS that is accepted. Nothing older than 1.2 is offered: the " +
        "names before it mean 1.2.",
      group,
    }),
    httpsAddress: setting({
      name: "https-address",
      kind: address(),
      default: "0.0.0.0:4152",
      doc: "Where the same as on http-address is served over TLS, when TLS is on.",
      group,
    }),
    snappy: setting({
      name: "snappy",
      kind: boolean(),
      default: true,
      doc: "Whether clients may negotiate snappy compression.",
      group,
    }),
    deflate: setting({
      name: "deflate",
      kind: boolean(),
      default: true,
      doc: "Whether clients may negotiate deflate compression, which takes 300 to 450 KiB of " +
        "memory a connection.",
      group,
    }),
    maxDeflateLevel: setting({
      name: "max-deflate-level",
      kind: integer({ min: 1, max: 9 }),
      default: 6,
      doc: "The highest compression level a client may negotiate.",
      group,
    }),
  };
}

/** Their values. */
export type TlsValues = ValuesOf<ReturnType<typeof tlsSettings>>;

/** Whether there is a certificate. */
export function hasTls(values: TlsValues): boolean {
  return values.tlsCert !== "" || values.tlsKey !== "";
}

/** What `tls-required` comes to: asking clients for certificates implies it. */
export function effectiveTlsRequired(values: TlsValues): TlsValues["tlsRequired"] {
  const isAsked = values.tlsClientAuthPolicy !== "";
  return isAsked && values.tlsRequired === "false" ? "true" : values.tlsRequired;
}

/** The oldest version that is offered, in the runtime's words. */
export function tlsVersionMin(values: TlsValues): "TLSv1.2" | "TLSv1.3" {
  return values.tlsMinVersion > OLDEST_VERSION ? "TLSv1.3" : "TLSv1.2";
}

/** The rules between them that `values` breaks. */
export function brokenTlsRelations(values: TlsValues): string[] {
  const broken: string[] = [];
  if ((values.tlsCert === "") !== (values.tlsKey === "")) {
    broken.push("tls-cert and tls-key must be given together");
  }
  if (values.tlsClientAuthPolicy === "require-verify" && values.tlsRootCaFile === "") {
    // Without it anybody with a certificate of a public authority would be let in.
    broken.push("tls-client-auth-policy=require-verify needs tls-root-ca-file");
  }
  if (hasTls(values)) return broken;
  if (values.tlsRootCaFile !== "") broken.push("tls-root-ca-file needs tls-cert and tls-key");
  if (effectiveTlsRequired(values) !== "false") {
    const cause = values.tlsRequired === "false" ? "tls-client-auth-policy" : "tls-required";
    broken.push(`${cause} needs tls-cert and tls-key`);
  }
  return broken;
}

/** Values of a kind, or none. */
function optional<T extends string>(kind: Kind<T>): Kind<T | ""> {
  return {
    ...kind,
    wanted: `${kind.wanted}, or nothing`,
    parse: (given) => given === "" ? "" : kind.parse(given),
    fromDocument: (value) => value === "" ? "" : kind.fromDocument(value),
    show: (value) => value === "" ? "" : kind.show(value),
    toOption: (value) => value === "" ? { body: "", json: false } : kind.toOption(value),
  };
}
