/** TLS as a parameter: what a server is told, and what a handshake has settled. */

/** Whether clients show a certificate: not asked, any one, or one that an authority of ours signed. */
export type TlsClientPolicy = "none" | "require" | "require-verify";

/** How a server speaks TLS. Texts are PEM. */
export interface TlsSettings {
  /** The certificate with what leads to its authority. */
  readonly certificate: string;
  readonly key: string;
  /** Who signs certificates of clients. Needed to verify them. */
  readonly authorities: string | null;
  readonly clientPolicy: TlsClientPolicy;
  /** The runtime speaks nothing older. */
  readonly versionMin: "TLSv1.2" | "TLSv1.3";
}

/** What holds on a connection that speaks TLS. */
export interface TlsState {
  /** `TLS1.2` or `TLS1.3`. */
  readonly version: string;
  readonly cipherSuite: string;
  /** The common name in the client's certificate; empty without one. */
  readonly commonName: string;
}
