/**
 * Accepts NSQ connections and carries bytes between them and their sessions. A connection reads only
 * after its session has used up what it read before, into one buffer that grows with its traffic.
 */
import { type Clock, type Connection, ConnectionError, type Listener } from "../runtime/mod.ts";
import type { Logger } from "../telemetry/mod.ts";
import { LayeredConnection } from "./connection_layers.ts";

const READ_BYTES_MIN = 2048;
const READ_BYTES_MAX = 64 * 1024;
/** How long the connections may take, when the server closes, to read what they are owed. */
const CLOSE_MS_MAX = 1_000;

/** What takes the bytes of one connection. */
export interface TcpSession {
  /** Nothing is read any more. */
  readonly isClosed: boolean;
  /** Set while nothing more can be taken; resolves when reading may go on. */
  readonly blocked: Promise<void> | null;
  /** Takes received bytes; while `blocked` is set afterwards, they are still in use. */
  receive(buffer: Uint8Array, start: number, end: number): void;
  /** The peer sends no more. */
  endOfStream(): void;
  /** Takes no more commands and closes once everything so far is answered. */
  end(): void;
  /** Ends the session at once, because the connection has failed if an error is given. */
  close(error?: ConnectionError): void;
}

/** What a {@linkcode TcpServer} serves with. */
export interface TcpServerOptions<S extends TcpSession> {
  readonly clock: Clock;
  /** Connections beyond are closed at once. */
  readonly connectionsMax: number;
  /** Makes the session of a connection; `onClose` is told once it is closed. */
  readonly open: (connection: LayeredConnection, onClose: (session: S) => void) => S;
  /** How long the connections may take, when the server closes, to read what they are owed. */
  readonly closeMsMax?: number;
  /** Told of connections that are refused; the sessions tell of the others. */
  readonly logger?: Logger;
}

/** The NSQ TCP door. */
export class TcpServer<S extends TcpSession> {
  readonly sessions = new Set<S>();
  /** Connections closed because there were too many. */
  refusedCount = 0;
  readonly #options: TcpServerOptions<S>;
  readonly #listener: Listener;
  readonly #running = new Set<Promise<void>>();
  readonly #accepting: Promise<void>;

  /** Accepts at once. The listener is the server's from here on. */
  constructor(listener: Listener, options: TcpServerOptions<S>) {
    this.#options = options;
    this.#listener = listener;
    this.#accepting = this.#accept();
  }

  get hostname(): string {
    return this.#listener.hostname;
  }

  get port(): number {
    return this.#listener.port;
  }

  /** Connections that could not be accepted. */
  get acceptFailureCount(): number {
    return this.#listener.acceptFailureCount ?? 0;
  }

  /** Takes no more connections; those there are go on. */
  stopAccepting(): void {
    this.#listener.close();
  }

  /**
   * Closes every connection once it has taken its answers, or after {@linkcode CLOSE_MS_MAX} if nothing
   * else was asked for.
   */
  async close(): Promise<void> {
    this.stopAccepting();
    await this.#accepting;
    for (const session of [...this.sessions]) session.end();
    const late = this.#options.clock.setTimer(this.#options.closeMsMax ?? CLOSE_MS_MAX, () => {
      for (const session of [...this.sessions]) session.close();
    });
    await Promise.all(this.#running);
    late.cancel();
  }

  async #accept(): Promise<void> {
    while (true) {
      const connection = await this.#listener.accept();
      if (connection === null) return;
      if (this.sessions.size >= this.#options.connectionsMax) {
        this.refusedCount++;
        this.#options.logger?.warn("Connection refused", {
          client: connection.remoteAddress,
          reason: "limit",
          connections_max: this.#options.connectionsMax,
        });
        connection.close();
        continue;
      }
      const running = this.#serve(connection);
      this.#running.add(running);
      void running.finally(() => this.#running.delete(running));
    }
  }

  async #serve(plain: Connection): Promise<void> {
    const connection = new LayeredConnection(plain);
    const session = this.#options.open(connection, (closed) => this.sessions.delete(closed));
    this.sessions.add(session);
    let buffer = new Uint8Array(READ_BYTES_MIN);
    try {
      while (!session.isClosed) {
        const bytes = await connection.read(buffer);
        if (bytes === null) {
          session.endOfStream();
          return;
        }
        session.receive(buffer, 0, bytes);
        while (session.blocked !== null) await session.blocked;
        if (bytes === buffer.length && bytes < READ_BYTES_MAX) {
          buffer = new Uint8Array(Math.min(READ_BYTES_MAX, buffer.length * 4));
        }
      }
    } catch (error) {
      if (!(error instanceof ConnectionError)) throw error;
      session.close(error);
    }
  }
}
