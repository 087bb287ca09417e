/**
 * Real TCP. Small writes leave at once (no Nagle delay). Every failure of a connection is a
 * {@linkcode ConnectionError} with its cause; a listener outlives what goes wrong with a single
 * connection or with a shortage of descriptors.
 */
import type { Clock } from "./clock.ts";
import {
  AddressInUseError,
  type Connection,
  ConnectionError,
  type Listener,
  type Network,
} from "./connection.ts";
import { invariant } from "./invariant.ts";
import { addressText, hostOf } from "./system_address.ts";
import { LISTEN_BACKLOG } from "./system_backlog.ts";
import { listenUnix } from "./system_unix.ts";
import { listenUpgradable } from "./system_upgradable.ts";
import { UNIX_PORT } from "./unix_socket.ts";

/** How long a listener waits after a failed accept: a shortage of descriptors does not pass at once. */
export const ACCEPT_RETRY_MS = 50;

/** A connection of the runtime: TCP, or a Unix socket. */
type SystemConn = Deno.TcpConn | Deno.UnixConn;

/** The part of the runtime's listener that {@linkcode SystemListener} needs. */
export interface Accepts {
  readonly addr: Deno.Addr;
  accept(): Promise<SystemConn>;
  close(): void;
}

/** {@linkcode Network} over the machine's TCP, and over Unix sockets to listen on. */
export class SystemNetwork implements Network {
  readonly #clock: Clock;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  listen(hostname: string, port: number): Listener {
    if (port === UNIX_PORT) return new SystemListener(listenUnix(hostname), this.#clock);
    try {
      return new SystemListener(
        Deno.listen({ hostname, port, tcpBacklog: LISTEN_BACKLOG }),
        this.#clock,
      );
    } catch (error) {
      if (error instanceof Deno.errors.AddrInUse) {
        throw new AddressInUseError(hostname, port, { cause: error });
      }
      throw error;
    }
  }

  listenUpgradable(hostname: string, port: number): Promise<Listener> {
    return listenUpgradable(hostname, port, this.#clock);
  }

  async connect(hostname: string, port: number, timeoutMs: number): Promise<Connection> {
    const abort = new AbortController();
    let timedOut = false;
    const timer = this.#clock.setTimer(timeoutMs, () => {
      timedOut = true;
      abort.abort();
    });
    try {
      return wrap(await Deno.connect({ hostname, port, signal: abort.signal }));
    } catch (error) {
      const detail = timedOut ? `no answer within ${timeoutMs} ms` : messageOf(error);
      throw new ConnectionError(`Cannot connect to ${hostname}:${port}: ${detail}`, {
        cause: error,
      });
    } finally {
      timer.cancel();
    }
  }
}

/** {@linkcode Listener} over a bound socket, which it owns. */
export class SystemListener implements Listener {
  readonly hostname: string;
  readonly port: number;
  acceptFailureCount = 0;
  readonly #inner: Accepts;
  readonly #clock: Clock;
  readonly #closed = new AbortController();

  constructor(inner: Accepts, clock: Clock) {
    this.#inner = inner;
    this.#clock = clock;
    const { hostname, port } = hostOf(inner.addr);
    this.hostname = hostname;
    this.port = port;
  }

  async accept(): Promise<Connection | null> {
    while (!this.#closed.signal.aborted) {
      try {
        return wrap(await this.#inner.accept());
      } catch (_error) {
        if (!this.#closed.signal.aborted) this.acceptFailureCount++;
        // A peer that gave up (ECONNABORTED) or a full table (EMFILE) must not end the service.
        // Only close() ends a listener, and it cuts this wait short.
        await this.#clock.sleep(ACCEPT_RETRY_MS, this.#closed.signal).catch(() => {});
      }
    }
    return null;
  }

  close(): void {
    if (this.#closed.signal.aborted) return;
    this.#closed.abort();
    this.#inner.close();
  }
}

class SystemConnection implements Connection {
  readonly remoteAddress: string;
  readonly localAddress: string;
  readonly #inner: SystemConn;
  #closed = false;

  constructor(inner: SystemConn) {
    this.#inner = inner;
    this.remoteAddress = addressText(inner.remoteAddr);
    this.localAddress = addressText(inner.localAddr);
  }

  async read(into: Uint8Array): Promise<number | null> {
    invariant(into.length > 0, "a read has room for at least one byte");
    try {
      return await this.#inner.read(into);
    } catch (error) {
      throw this.#failed("read from", error);
    }
  }

  async writeAll(bytes: Uint8Array): Promise<void> {
    try {
      // One write takes only what the socket has room for: loop until all is gone.
      for (let written = 0; written < bytes.length;) {
        written += await this.#inner.write(written === 0 ? bytes : bytes.subarray(written));
      }
    } catch (error) {
      throw this.#failed("write to", error);
    }
  }

  closeWrite(): void {
    // It fails when the peer is gone already; the next read says so.
    if (!this.#closed) this.#inner.closeWrite().catch(() => {});
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#inner.close();
  }

  #failed(action: string, error: unknown): ConnectionError {
    const detail = this.#closed ? "the connection is closed" : messageOf(error);
    return new ConnectionError(`Cannot ${action} ${this.remoteAddress}: ${detail}`, {
      cause: error,
    });
  }
}

function wrap(inner: SystemConn): Connection {
  try {
    if ("setNoDelay" in inner) inner.setNoDelay(true);
    return new SystemConnection(inner);
  } catch (error) {
    inner.close();
    throw error;
  }
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
