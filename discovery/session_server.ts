/**
 * Accepts registration connections and runs a {@linkcode LookupSession} on each. A connection that
 * sends nothing for `idleTimeoutMs` is closed, as is one that does not take its replies within
 * {@linkcode WRITE_TIMEOUT_MS}; one above `connectionsMax` is closed at once, unanswered.
 */
import { concatBytes } from "@sluice/shared/protocol";
import {
  type Clock,
  type Connection,
  ConnectionError,
  type Listener,
  type Timer,
} from "@sluice/shared/runtime";
import type { Logger } from "@sluice/shared/telemetry";
import { LookupSession, type SessionContext, type SessionOutput } from "./session.ts";

export const WRITE_TIMEOUT_MS = 5_000;
/** How long, and how much, is read and dropped after a last reply until the broker closes. */
export const LINGER_MS_MAX = 1_000;
const LINGER_BYTES_MAX = 64 * 1024;

const READ_BUFFER_BYTES = 4_096;

export interface SessionServerOptions {
  readonly listener: Listener;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly context: SessionContext;
  readonly idleTimeoutMs: number;
  readonly connectionsMax: number;
  /** Called for an error that is a mistake of ours; the service must stop. */
  readonly onBroken: (error: unknown) => void;
}

/** Why a connection has ended, for the log. */
type EndReason = "client_closed" | "connection_failed" | "protocol_error" | "timeout" | "stop";

export class SessionServer {
  readonly #options: SessionServerOptions;
  readonly #connections = new Map<Connection, Promise<void>>();
  readonly #accepting: Promise<void>;
  /** Those that have been closed for taking too long. */
  readonly #late = new WeakSet<Connection>();
  #accepted = 0;
  #refused = 0;
  #isClosing = false;

  constructor(options: SessionServerOptions) {
    this.#options = { ...options, logger: options.logger.component("discovery") };
    this.#accepting = this.#accept().catch(options.onBroken);
  }

  get connectionCount(): number {
    return this.#connections.size;
  }

  /** Connections accepted since the start, without the refused ones. */
  get acceptedCount(): number {
    return this.#accepted;
  }

  get refusedCount(): number {
    return this.#refused;
  }

  /** Stops accepting, closes every connection and resolves when all sessions have ended. */
  async close(): Promise<void> {
    this.#isClosing = true;
    this.#options.listener.close();
    // First, so that no connection turns up behind the loop that closes them.
    await this.#accepting;
    for (const connection of this.#connections.keys()) connection.close();
    await Promise.all(this.#connections.values());
  }

  async #accept(): Promise<void> {
    const { listener, logger, connectionsMax, onBroken } = this.#options;
    while (true) {
      const connection = await listener.accept();
      if (connection === null) return;
      if (this.#connections.size >= connectionsMax) {
        this.#refused += 1;
        logger.warn("a connection is refused", {
          client: connection.remoteAddress,
          reason: "limit",
          connections_max: connectionsMax,
        });
        connection.close();
        continue;
      }
      this.#accepted += 1;
      const client = logger.child({ client: connection.remoteAddress });
      const key = String(this.#accepted);
      const session = new LookupSession(
        key,
        connection.remoteAddress,
        this.#options.context,
        client,
      );
      const running = this.#run(connection, session, client)
        .catch(onBroken)
        .finally(() => this.#connections.delete(connection));
      this.#connections.set(connection, running);
    }
  }

  async #run(connection: Connection, session: LookupSession, logger: Logger): Promise<void> {
    logger.debug("a connection is open");
    let reason: EndReason = "connection_failed";
    let failure: string | undefined;
    try {
      reason = await this.#serve(connection, session, logger);
    } catch (error) {
      if (!(error instanceof ConnectionError)) throw error;
      failure = error.message;
    } finally {
      session.close();
      connection.close();
      if (this.#isClosing) reason = "stop";
      else if (this.#late.delete(connection)) reason = "timeout";
      logger.info("the connection is closed", { reason, error: failure });
    }
  }

  async #serve(
    connection: Connection,
    session: LookupSession,
    logger: Logger,
  ): Promise<EndReason> {
    const { clock, idleTimeoutMs } = this.#options;
    const buffer = new Uint8Array(READ_BUFFER_BYTES);
    while (true) {
      const count = await this.#within(connection, logger, "sent nothing", idleTimeoutMs, () => {
        return connection.read(buffer);
      });
      const output: SessionOutput = count === null
        ? session.endOfStream()
        : session.receive(buffer.subarray(0, count), clock.monoMs());
      if (output.replies.length > 0) {
        await this.#within(connection, logger, "took no reply", WRITE_TIMEOUT_MS, () => {
          return connection.writeAll(concatBytes(...output.replies));
        });
      }
      if (!output.close) continue;
      session.close();
      if (count === null) return "client_closed";
      await this.#linger(connection, buffer);
      return "protocol_error";
    }
  }

  /**
   * Reads and drops what a broker still sends after its last reply, for a moment: closing with unread
   * bytes would take the reply back from it.
   */
  async #linger(connection: Connection, buffer: Uint8Array): Promise<void> {
    connection.closeWrite();
    const timer: Timer = this.#options.clock.setTimer(LINGER_MS_MAX, () => connection.close());
    try {
      for (let left = LINGER_BYTES_MAX; left > 0;) {
        const count = await connection.read(buffer);
        if (count === null) return;
        left -= count;
      }
    } finally {
      timer.cancel();
    }
  }

  /** Closes the connection, which rejects `operation`, when it takes longer than `timeoutMs`. */
  async #within<T>(
    connection: Connection,
    logger: Logger,
    what: string,
    timeoutMs: number,
    operation: () => Promise<T>,
  ): Promise<T> {
    const timer: Timer = this.#options.clock.setTimer(timeoutMs, () => {
      logger.warn(`the broker ${what} in time`, { timeout_ms: timeoutMs });
      this.#late.add(connection);
      connection.close();
    });
    try {
      return await operation();
    } finally {
      timer.cancel();
    }
  }
}
