/**
 * Accepts NSQ connections and carries bytes between them and their sessions. A connection reads only
 * after its session has used up what it read before, into one buffer that grows with its traffic.
 */
import { type Connection, ConnectionError, type Listener } from "@sluice/shared/runtime";
import type { Broker } from "../broker.ts";
import { LayeredConnection } from "./connection_layers.ts";
import { Session, type SessionOptions } from "./session.ts";

const READ_BYTES_MIN = 2048;
const READ_BYTES_MAX = 64 * 1024;
/** How long the connections may take, when the server closes, to read what they are owed. */
const CLOSE_MS_MAX = 1_000;

/** Settings of a {@linkcode TcpServer}. */
export interface TcpServerOptions {
  /** Connections beyond are closed at once. */
  readonly connectionsMax: number;
  readonly session: SessionOptions;
}

/** The NSQ TCP door. */
export class TcpServer {
  readonly sessions = new Set<Session>();
  /** Connections closed because there were too many. */
  refusedCount = 0;
  readonly #broker: Broker;
  readonly #options: TcpServerOptions;
  readonly #listener: Listener;
  readonly #running = new Set<Promise<void>>();
  readonly #accepting: Promise<void>;

  /** Accepts at once. The listener is the server's from here on. */
  constructor(broker: Broker, listener: Listener, options: TcpServerOptions) {
    this.#broker = broker;
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
   * Closes every connection once it has taken its answers, or after {@linkcode CLOSE_MS_MAX}; what is
   * in flight goes back to its channel.
   */
  async close(): Promise<void> {
    this.stopAccepting();
    await this.#accepting;
    for (const session of [...this.sessions]) session.end();
    const late = this.#broker.clock.setTimer(CLOSE_MS_MAX, () => {
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
    const session = new Session(
      this.#broker,
      connection,
      this.#options.session,
      (closed) => this.sessions.delete(closed),
    );
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
      session.close();
    }
  }
}
