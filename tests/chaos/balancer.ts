/**
 * A balancer of TCP connections as a Service of Kubernetes is one: each new connection goes to the next of
 * the gateways that said a moment ago that they take publishes; a connection that is open stays where it
 * is. Both of its ports go to the same gateways, one to NSQ, one to HTTP.
 */
import { SystemClock } from "@sluice/shared/runtime/system";
import { closeQuietly } from "../integration/raw_client.ts";
import type { Member } from "./fleet.ts";
import type { Target } from "./producers.ts";

/** How often gateways are asked. */
const LOOK_MS = 100;
const LOOK_MS_MAX = 1_000;
const READ_BYTES = 64 * 1024;

/** See the module. */
export class Balancer implements Target, AsyncDisposable {
  readonly name = "balancer";
  readonly #gateways: readonly Member[];
  readonly #clock = new SystemClock();
  readonly #closed = new AbortController();
  readonly #tcp = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  readonly #http = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  readonly #open = new Set<Deno.TcpConn>();
  #ready: readonly Member[] = [];
  #turn = 0;
  readonly #running: Promise<unknown>;

  constructor(gateways: readonly Member[]) {
    this.#gateways = gateways;
    this.#running = Promise.all([
      this.#look(),
      this.#serve(this.#tcp, ({ tcpPort }) => tcpPort),
      this.#serve(this.#http, ({ httpPort }) => httpPort),
    ]);
  }

  get tcpPort(): number {
    return this.#tcp.addr.port;
  }

  get httpPort(): number {
    return this.#http.addr.port;
  }

  /** Gateways that connections are given to. */
  get readyCount(): number {
    return this.#ready.length;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closed.abort();
    this.#tcp.close();
    this.#http.close();
    for (const connection of this.#open) closeQuietly(connection);
    await this.#running;
  }

  async #look(): Promise<void> {
    const { signal } = this.#closed;
    while (!signal.aborted) {
      const answers = await Promise.all(this.#gateways.map((gateway) => this.#isReady(gateway)));
      this.#ready = this.#gateways.filter((_, index) => answers[index]);
      await this.#clock.sleep(LOOK_MS, signal).catch(() => {});
    }
  }

  async #isReady(gateway: Member): Promise<boolean> {
    const late = new AbortController();
    const timer = this.#clock.setTimer(LOOK_MS_MAX, () => late.abort());
    try {
      const response = await fetch(`${gateway.url}/v1/health`, { signal: late.signal });
      await response.body?.cancel();
      return response.status === 200;
    } catch {
      return false;
    } finally {
      timer.cancel();
    }
  }

  async #serve(listener: Deno.TcpListener, portOf: (member: Member) => number): Promise<void> {
    try {
      for await (const client of listener) void this.#pass(client, portOf);
    } catch (error) {
      if (!this.#closed.signal.aborted) throw error;
    }
  }

  async #pass(client: Deno.TcpConn, portOf: (member: Member) => number): Promise<void> {
    this.#open.add(client);
    let server: Deno.TcpConn | null = null;
    try {
      const gateway = this.#ready[this.#turn++ % Math.max(1, this.#ready.length)];
      if (gateway === undefined) return;
      server = await Deno.connect({ hostname: "127.0.0.1", port: portOf(gateway) });
      server.setNoDelay(true);
      client.setNoDelay(true);
      this.#open.add(server);
      await Promise.all([copy(client, server), copy(server, client)]);
    } catch {
      // Whoever is at the other end sees that it is over.
    } finally {
      for (const connection of [client, server]) {
        if (connection === null) continue;
        closeQuietly(connection);
        this.#open.delete(connection);
      }
    }
  }
}

/** Copies until the end of one direction, and ends the other side of it. */
async function copy(from: Deno.TcpConn, to: Deno.TcpConn): Promise<void> {
  const buffer = new Uint8Array(READ_BYTES);
  for (;;) {
    const count = await from.read(buffer);
    if (count === null) return await to.closeWrite();
    for (let written = 0; written < count;) {
      written += await to.write(buffer.subarray(written, count));
    }
  }
}
