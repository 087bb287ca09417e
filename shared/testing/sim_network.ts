/**
 * A network in memory: connections are {@linkcode connectionPair}s, ports are numbers in a map. A
 * connection is made as soon as somebody listens, accepted or not, up to a backlog; beyond it, or with
 * no listener, connecting is refused at once, so the time limit never matters.
 */
import {
  AddressInUseError,
  type Connection,
  ConnectionError,
  type Listener,
  type Network,
} from "../runtime/mod.ts";
import { connectionPair } from "./sim_connection.ts";

const FREE_PORT_FIRST = 49152;
const PORT_MAX = 65535;
const ANY_HOSTS: readonly string[] = ["0.0.0.0", "::"];

/** How a {@linkcode SimNetwork} behaves. */
export interface SimNetworkOptions {
  /** What each direction of a connection holds; 64 KiB by default. */
  readonly bufferBytesMax?: number;
  /** Connections that may wait to be accepted; 128 by default. */
  readonly backlogMax?: number;
}

/** {@linkcode Network} in memory. */
export class SimNetwork implements Network {
  readonly #listeners = new Map<string, SimListener>();
  readonly #bufferBytesMax: number;
  readonly #backlogMax: number;
  #nextPort = FREE_PORT_FIRST;
  #openEnds = 0;

  constructor(options: SimNetworkOptions = {}) {
    this.#bufferBytesMax = options.bufferBytesMax ?? 64 * 1024;
    this.#backlogMax = options.backlogMax ?? 128;
  }

  /** Ends of connections that are open; 0 when nothing leaked. */
  get openEnds(): number {
    return this.#openEnds;
  }

  listen(hostname: string, port: number): Listener {
    const chosen = port === 0 ? this.#freePort() : port;
    const key = addressKey(hostname, chosen);
    if (this.#listeners.has(key)) throw new AddressInUseError(hostname, chosen);
    const listener = new SimListener(
      hostname,
      chosen,
      this.#backlogMax,
      () => this.#listeners.delete(key),
    );
    this.#listeners.set(key, listener);
    return listener;
  }

  /** As `listen`: its connections do not speak TLS. */
  listenUpgradable(hostname: string, port: number): Promise<Listener> {
    return Promise.resolve().then(() => this.listen(hostname, port));
  }

  connect(hostname: string, port: number, _timeoutMs: number): Promise<Connection> {
    const listener = [hostname, ...ANY_HOSTS]
      .map((host) => this.#listeners.get(addressKey(host, port)))
      .find((found) => found !== undefined);
    if (listener === undefined || !listener.hasRoom) {
      const detail = listener === undefined ? "nobody listens" : "the backlog is full";
      return Promise.reject(
        new ConnectionError(`Cannot connect to ${hostname}:${port}: ${detail}`),
      );
    }
    const [near, far] = connectionPair({
      bufferBytesMax: this.#bufferBytesMax,
      addresses: [addressKey("127.0.0.1", this.#freePort()), addressKey(hostname, port)],
      onClose: () => this.#openEnds--,
    });
    this.#openEnds += 2;
    listener.offer(far);
    return Promise.resolve(near);
  }

  #freePort(): number {
    const port = this.#nextPort;
    this.#nextPort = port === PORT_MAX ? FREE_PORT_FIRST : port + 1;
    return port;
  }
}

class SimListener implements Listener {
  readonly hostname: string;
  readonly port: number;
  readonly #backlogMax: number;
  readonly #onClose: () => void;
  readonly #backlog: Connection[] = [];
  readonly #waiting: ((connection: Connection | null) => void)[] = [];
  #closed = false;

  constructor(hostname: string, port: number, backlogMax: number, onClose: () => void) {
    this.hostname = hostname;
    this.port = port;
    this.#backlogMax = backlogMax;
    this.#onClose = onClose;
  }

  get hasRoom(): boolean {
    return this.#backlog.length < this.#backlogMax;
  }

  offer(connection: Connection): void {
    const waiting = this.#waiting.shift();
    if (waiting === undefined) this.#backlog.push(connection);
    else waiting(connection);
  }

  accept(): Promise<Connection | null> {
    const connection = this.#backlog.shift();
    if (connection !== undefined) return Promise.resolve(connection);
    if (this.#closed) return Promise.resolve(null);
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  /** What was not accepted is closed, as the peer of a real socket would see it. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#onClose();
    for (const connection of this.#backlog.splice(0)) connection.close();
    for (const waiting of this.#waiting.splice(0)) waiting(null);
  }
}

function addressKey(hostname: string, port: number): string {
  return hostname.includes(":") ? `[${hostname}]:${port}` : `${hostname}:${port}`;
}
