/**
 * Pass-through: each connection is carried to one broker, byte for byte, for consumers of networks in
 * which brokers cannot be reached. Such a consumer sees that broker only, so a tunnel ends after a
 * while, and the next one may lead to another.
 *
 * - The broker with the fewest tunnels is taken, of those that serve consumers; the next one when it
 *   cannot be reached.
 * - Each direction has one buffer: who does not read holds up his own tunnel.
 * - A tunnel is cut at its age, without regard to what is under way: consumers connect again, and what
 *   was in flight is delivered again.
 */
import {
  type Clock,
  type Connection,
  ConnectionError,
  type Listener,
  type Network,
  type Random,
  randomBelow,
} from "@sluice/shared/runtime";

const BUFFER_BYTES = 32 * 1024;

/** Where a tunnel may lead. */
export interface TunnelTarget {
  readonly id: string;
  readonly host: string;
  readonly port: number;
}

/** How tunnels are made. */
export interface TunnelOptions {
  readonly tunnelsMax: number;
  /** How long one lasts, give or take a tenth. */
  readonly ageMsMax: number;
  readonly connectTimeoutMs: number;
}

/** What they stand on. */
export interface TunnelSeams {
  readonly network: Network;
  readonly clock: Clock;
  readonly random: Random;
  /** Brokers that serve consumers now. */
  readonly targets: () => readonly TunnelTarget[];
}

/** See the module. */
export class TunnelServer {
  openedCount = 0;
  refusedCount = 0;
  expiredCount = 0;
  readonly #listener: Listener;
  readonly #options: TunnelOptions;
  readonly #seams: TunnelSeams;
  readonly #running = new Set<Promise<void>>();
  readonly #open = new Set<() => void>();
  /** Tunnels by broker. */
  readonly #counts = new Map<string, number>();
  readonly #accepting: Promise<void>;
  #taken = 0;
  #isClosed = false;

  /** Accepts at once. The listener is the server's from here on. */
  constructor(listener: Listener, options: TunnelOptions, seams: TunnelSeams) {
    this.#listener = listener;
    this.#options = options;
    this.#seams = seams;
    this.#accepting = this.#accept();
  }

  get hostname(): string {
    return this.#listener.hostname;
  }

  get port(): number {
    return this.#listener.port;
  }

  get tunnelCount(): number {
    return this.#taken;
  }

  /** Ends all tunnels and takes no more. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#listener.close();
    await this.#accepting;
    for (const cut of [...this.#open]) cut();
    await Promise.all(this.#running);
  }

  async #accept(): Promise<void> {
    while (true) {
      const client = await this.#listener.accept();
      if (client === null) return;
      if (this.#taken >= this.#options.tunnelsMax) {
        this.refusedCount++;
        client.close();
        continue;
      }
      this.#taken++;
      const running = this.#serve(client).finally(() => {
        this.#taken--;
        this.#running.delete(running);
      });
      this.#running.add(running);
    }
  }

  async #serve(client: Connection): Promise<void> {
    const found = await this.#connect();
    if (found === null) {
      this.refusedCount++;
      return client.close();
    }
    const { target, broker } = found;
    if (this.#isClosed) {
      broker.close();
      return client.close();
    }
    this.openedCount++;
    this.#counts.set(target.id, (this.#counts.get(target.id) ?? 0) + 1);
    const cut = () => {
      client.close();
      broker.close();
    };
    this.#open.add(cut);
    const { ageMsMax } = this.#options;
    const ageMs = ageMsMax * 0.9 + randomBelow(this.#seams.random, Math.ceil(ageMsMax / 5));
    const timer = this.#seams.clock.setTimer(ageMs, () => {
      this.expiredCount++;
      cut();
    });
    try {
      await Promise.all([carry(client, broker, cut), carry(broker, client, cut)]);
    } finally {
      timer.cancel();
      cut();
      this.#open.delete(cut);
      const left = (this.#counts.get(target.id) ?? 1) - 1;
      if (left === 0) this.#counts.delete(target.id);
      else this.#counts.set(target.id, left);
    }
  }

  /** A connection to the broker with the fewest tunnels that can be reached. */
  async #connect(): Promise<{ target: TunnelTarget; broker: Connection } | null> {
    const count = ({ id }: TunnelTarget) => this.#counts.get(id) ?? 0;
    const { random } = this.#seams;
    const order = this.#seams.targets()
      // Gateways do not know each other's tunnels: the same count is no order.
      .map((target) => ({ target, tunnels: count(target), tie: random.u32() }))
      .sort((a, b) => a.tunnels - b.tunnels || a.tie - b.tie);
    for (const { target } of order) {
      if (this.#isClosed) return null;
      try {
        const { host, port } = target;
        const broker = await this.#seams.network.connect(
          host,
          port,
          this.#options.connectTimeoutMs,
        );
        return { target, broker };
      } catch (error) {
        if (!(error instanceof ConnectionError)) throw error;
      }
    }
    return null;
  }
}

/** Carries bytes until the end of `from`, which `to` is told; a failure cuts both. */
async function carry(from: Connection, to: Connection, cut: () => void): Promise<void> {
  const buffer = new Uint8Array(BUFFER_BYTES);
  try {
    while (true) {
      const bytes = await from.read(buffer);
      if (bytes === null) return to.closeWrite();
      await to.writeAll(buffer.subarray(0, bytes));
    }
  } catch (error) {
    if (!(error instanceof ConnectionError)) throw error;
    cut();
  }
}
