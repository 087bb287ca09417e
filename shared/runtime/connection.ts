import type { TlsSettings, TlsState } from "./tls.ts";

/**
 * A byte stream between two processes: TCP today; TLS, WebSocket and in-memory pairs look the same.
 * A caller reads into a buffer it owns, so that one buffer serves a connection for its whole life.
 */
import { hostAndPort } from "./unix_socket.ts";

/** See the module. */
export interface Connection {
  /** The peer as `host:port`, for logs and statistics; `@` over a Unix socket. */
  readonly remoteAddress: string;
  readonly localAddress: string;
  /** What TLS has settled; absent in clear text. */
  readonly tls?: TlsState;
  /**
   * Reads at least one byte into `into` and resolves with the count, or with `null` at the end of the
   * stream. `into` is borrowed until it resolves. One read at a time. Rejects with
   * {@linkcode ConnectionError} when the connection fails or is closed.
   */
  read(into: Uint8Array): Promise<number | null>;
  /**
   * Writes all of `bytes`, which are borrowed until it resolves. One write at a time. It waits as
   * long as the peer does not read: whoever writes keeps a deadline and calls `close`, which rejects
   * the pending write.
   */
  writeAll(bytes: Uint8Array): Promise<void>;
  /**
   * Ends the stream to the peer, which reads what was written and then the end; reading goes on. Not
   * during a write; nothing is written after it. A broken connection is not reported here but by
   * `read`. A close that leaves received bytes unread resets a TCP connection, and the peer may
   * then lose what it was sent last: whoever wants it to arrive calls this, reads on, and closes.
   */
  closeWrite(): void;
  /** Ends the stream to the peer and rejects what is pending. Safe to call again. */
  close(): void;
  /**
   * Answers a TLS handshake; what it resolves with takes the place of this connection. Only what
   * {@linkcode Network.listenUpgradable} accepts has it. Called when all writes have resolved and no
   * read is pending. Rejects with {@linkcode ConnectionError}, and closes, when the handshake fails,
   * takes longer than `timeoutMs`, or when bytes in clear are here already: they could be anybody's.
   */
  startTls?(settings: TlsSettings, timeoutMs: number): Promise<Connection>;
}

/** A connection that failed, was reset or was closed under a pending operation. */
export class ConnectionError extends Error {
  override name = "ConnectionError";
}

/** Accepts connections until closed. */
export interface Listener {
  readonly hostname: string;
  readonly port: number;
  /** How often it could not accept a connection so far, as when there are no descriptors left. */
  readonly acceptFailureCount?: number;
  /** The next connection, or `null` once the listener is closed. */
  accept(): Promise<Connection | null>;
  close(): void;
}

/** The network as a parameter. */
export interface Network {
  /**
   * Port 0 picks a free port; with `UNIX_PORT` the host name is the path of a Unix socket. Throws
   * {@linkcode AddressInUseError} when it is taken.
   */
  listen(hostname: string, port: number): Listener;
  /**
   * Listens for connections that may change to TLS on the way, at the price of some throughput.
   * Rejects with {@linkcode AddressInUseError} when the port is taken.
   */
  listenUpgradable(hostname: string, port: number): Promise<Listener>;
  /** Rejects with {@linkcode ConnectionError} when there is no connection within `timeoutMs`. */
  connect(hostname: string, port: number, timeoutMs: number): Promise<Connection>;
}

/** The address a listener asked for is taken by another process. */
export class AddressInUseError extends Error {
  override name = "AddressInUseError";
  constructor(readonly hostname: string, readonly port: number, options?: ErrorOptions) {
    super(`Cannot listen on ${hostAndPort(hostname, port)}: the address is in use`, options);
  }
}
