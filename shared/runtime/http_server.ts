import type { TlsSettings } from "./tls.ts";

/** The HTTP server as a parameter: what a service holds while it serves, and how it is asked to. */
export interface HttpServer {
  readonly hostname: string;
  readonly port: number;
  /** How often it could not accept connections so far, as when there are no descriptors left. */
  readonly acceptFailureCount?: number;
  /**
   * Stops accepting, closes idle connections and resolves when every request under way is answered.
   * It waits as long as they take, unless the `signal` of {@linkcode ServeHttpOptions} is aborted
   * meanwhile: then it resolves at once, and what is still open ends with its peer or the process.
   */
  shutdown(): Promise<void>;
}

/** What to serve, and where. */
export interface ServeHttpOptions {
  readonly hostname: string;
  /** 0 picks a free port; with `UNIX_PORT` the host name is the path of a Unix socket. */
  readonly port: number;
  /**
   * Answers one request; `remoteAddress` is the peer as `host:port`. `certificateName` is the common
   * name in the client's certificate, if clients need one that an authority of ours has signed.
   */
  readonly handler: (
    request: Request,
    remoteAddress: string,
    certificateName?: string,
  ) => Response | Promise<Response>;
  /** Answers a request whose handler threw. */
  readonly onError: (error: unknown) => Response | Promise<Response>;
  /** More connections than these are closed as they come; over TLS only, and a few thousand there. */
  readonly connectionsMax?: number;
  /** Drops the listener and all connections at once when aborted. */
  readonly signal?: AbortSignal;
}

/** Serves until shut down. Throws `AddressInUseError` when the port is taken. */
export type ServeHttp = (options: ServeHttpOptions) => HttpServer;

/** An HTTP server that speaks TLS. */
export interface HttpsServer extends HttpServer {
  /** Uses another certificate and other authorities from now on; the rest stays as it is. */
  renew(tls: TlsSettings): void;
}

/** Serves over TLS until shut down. Rejects with `AddressInUseError` when the port is taken. */
export type ServeHttps = (
  options: ServeHttpOptions,
  tls: TlsSettings,
) => Promise<HttpsServer>;
