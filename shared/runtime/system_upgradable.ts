/**
 * TCP whose connections may change to TLS on the way. The runtime's own sockets cannot, as a server;
 * these are sockets of node:net. Such a socket reads one chunk at a time and only when asked, so that
 * nothing of a handshake is taken for clear text.
 */
import type { Buffer } from "node:buffer";
import { createServer, type Server, type Socket } from "node:net";
import type { Clock } from "./clock.ts";
import {
  AddressInUseError,
  type Connection,
  ConnectionError,
  type Listener,
} from "./connection.ts";
import { LISTEN_BACKLOG } from "./system_backlog.ts";
import { invariant } from "./invariant.ts";
import { addressText } from "./system_address.ts";
import { answerHandshake } from "./system_tls.ts";
import type { TlsSettings, TlsState } from "./tls.ts";
import { UNIX_PORT } from "./unix_socket.ts";

/** How long the end of a TLS stream may take to leave. */
const FAREWELL_MS_MAX = 1_000;

/** Listens for connections that may change to TLS. */
export function listenUpgradable(
  hostname: string,
  port: number,
  clock: Clock,
): Promise<Listener> {
  return new Promise((resolve, reject) => {
    const server = createServer({ allowHalfOpen: true, noDelay: true, pauseOnConnect: true });
    server.once("error", (error: Error & { code?: string }) => {
      reject(
        error.code === "EADDRINUSE"
          ? new AddressInUseError(hostname, port, { cause: error })
          : error,
      );
    });
    const where = port === UNIX_PORT ? { path: hostname } : {
      host: hostname,
      port,
      backlog: LISTEN_BACKLOG,
    };
    server.listen(where, () => resolve(new UpgradableListener(server, clock)));
  });
}

/** A connection over a socket of node:net that nobody else reads. */
export function socketConnection(socket: Socket, clock: Clock): Connection {
  return new UpgradableConnection(socket, clock);
}

class UpgradableListener implements Listener {
  readonly hostname: string;
  readonly port: number;
  readonly #server: Server;
  readonly #accepted: UpgradableConnection[] = [];
  #closed = false;
  #waiting: ((connection: Connection | null) => void) | null = null;

  constructor(server: Server, clock: Clock) {
    this.#server = server;
    const address = server.address();
    invariant(address !== null, "the server listens");
    this.hostname = typeof address === "string" ? address : address.address;
    this.port = typeof address === "string" ? UNIX_PORT : address.port;
    server.removeAllListeners("error");
    // A peer that gave up or a full table must not end the service; it goes on accepting.
    server.on("error", () => {});
    server.on("connection", (socket) => {
      const connection = new UpgradableConnection(socket, clock);
      if (this.#closed) return connection.close();
      if (this.#waiting === null) this.#accepted.push(connection);
      else this.#give(connection);
    });
  }

  accept(): Promise<Connection | null> {
    const first = this.#accepted.shift();
    if (first !== undefined) return Promise.resolve(first);
    if (this.#closed) return Promise.resolve(null);
    return new Promise((resolve) => this.#waiting = resolve);
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#server.close();
    for (const connection of this.#accepted.splice(0)) connection.close();
    this.#give(null);
  }

  #give(connection: Connection | null): void {
    const waiting = this.#waiting;
    this.#waiting = null;
    waiting?.(connection);
  }
}

interface PendingRead {
  readonly into: Uint8Array;
  readonly resolve: (bytes: number | null) => void;
  readonly reject: (error: ConnectionError) => void;
}

class UpgradableConnection implements Connection {
  readonly remoteAddress: string;
  readonly localAddress: string;
  readonly tls?: TlsState;
  readonly #clock: Clock;
  readonly #socket: Socket;
  /** What was received and not read yet. */
  #chunk: Uint8Array | null = null;
  #read: PendingRead | null = null;
  #writing = false;
  #ended = false;
  #closed = false;
  #failure: Error | null = null;

  constructor(socket: Socket, clock: Clock, tls?: TlsState) {
    this.#socket = socket;
    this.#clock = clock;
    if (tls !== undefined) this.tls = tls;
    this.remoteAddress = endText(socket.remoteAddress, socket.remotePort);
    this.localAddress = endText(socket.localAddress, socket.localPort);
    socket.pause();
    socket.on("data", this.#onData);
    socket.on("end", this.#onEnd);
    socket.on("error", this.#onError);
    socket.on("close", this.#onClose);
  }

  read(into: Uint8Array): Promise<number | null> {
    invariant(into.length > 0, "a read has room for at least one byte");
    invariant(this.#read === null, "there is one read at a time");
    if (this.#chunk !== null) return Promise.resolve(this.#take(this.#chunk, into));
    if (this.#ended && !this.#closed) return Promise.resolve(null);
    if (this.#failure !== null || this.#closed || this.#socket.destroyed) {
      return Promise.reject(this.#failed("read from"));
    }
    return new Promise((resolve, reject) => {
      this.#read = { into, resolve, reject };
      this.#socket.resume();
    });
  }

  writeAll(bytes: Uint8Array): Promise<void> {
    if (this.#closed) return Promise.reject(this.#failed("write to"));
    return new Promise((resolve, reject) => {
      this.#writing = true;
      this.#socket.write(bytes, (error) => {
        this.#writing = false;
        if (error || this.#socket.destroyed) {
          this.#failure ??= error ?? null;
          reject(this.#failed("write to"));
        } else resolve();
      });
    });
  }

  closeWrite(): void {
    if (!this.#closed) this.#socket.end();
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#chunk = null;
    if (this.tls === undefined || this.#writing || this.#socket.writableEnded) {
      this.#socket.destroy();
    } else {
      // A TLS stream says that it ends, or the peer takes it for cut off.
      const late = this.#clock.setTimer(FAREWELL_MS_MAX, () => this.#socket.destroy());
      this.#socket.once("close", () => late.cancel());
      this.#socket.destroySoon();
    }
    this.#rejectRead();
  }

  async startTls(settings: TlsSettings, timeoutMs: number): Promise<Connection> {
    const socket = this.#socket;
    invariant(this.#read === null && !this.#writing, "TLS starts on a connection at rest");
    try {
      if (this.#closed || this.#ended || socket.destroyed) {
        throw new Error("the connection is closed");
      }
      if (this.#chunk !== null || socket.readableLength > 0) {
        throw new Error("there are bytes in clear before the handshake");
      }
      socket.removeListener("data", this.#onData);
      socket.removeListener("end", this.#onEnd);
      const { socket: secure, state } = await answerHandshake(
        socket,
        settings,
        this.#clock,
        timeoutMs,
      );
      const upgraded = new UpgradableConnection(secure, this.#clock, state);
      if (this.#closed) upgraded.close();
      return upgraded;
    } catch (error) {
      this.#failure ??= error instanceof Error ? error : new Error(String(error));
      const failed = this.#failed("speak TLS with");
      this.close();
      throw failed;
    }
  }

  readonly #onData = (chunk: Buffer) => {
    this.#socket.pause();
    const read = this.#read;
    this.#read = null;
    if (read === null) {
      this.#chunk = chunk;
      return;
    }
    read.resolve(this.#take(chunk, read.into));
  };

  readonly #onEnd = () => {
    this.#ended = true;
    const read = this.#read;
    this.#read = null;
    read?.resolve(null);
  };

  readonly #onError = (error: Error) => {
    this.#failure ??= error;
  };

  readonly #onClose = () => this.#rejectRead();

  #take(chunk: Uint8Array, into: Uint8Array): number {
    const count = Math.min(chunk.length, into.length);
    into.set(count === chunk.length ? chunk : chunk.subarray(0, count));
    this.#chunk = count === chunk.length ? null : chunk.subarray(count);
    return count;
  }

  #rejectRead(): void {
    const read = this.#read;
    this.#read = null;
    read?.reject(this.#failed("read from"));
  }

  #failed(action: string): ConnectionError {
    const cause = this.#failure ?? undefined;
    const detail = cause === undefined || this.#closed ? "the connection is closed" : cause.message;
    return new ConnectionError(`Cannot ${action} ${this.remoteAddress}: ${detail}`, { cause });
  }
}

function endText(hostname: string | undefined, port: number | undefined): string {
  return addressText({ hostname: hostname ?? "", port: port ?? 0 });
}
