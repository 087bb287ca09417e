/**
 * The HTTP listener, up before what it serves. Requests that come before there is a broker wait for
 * it a moment, so that whoever asks `/ping` in a short start finds all of it, as with nsqd; in a long
 * one they are answered by another handler, which says that the broker recovers.
 */
import { errorReply } from "@sluice/shared/http";
import type { Clock, HttpServer, ServeHttp, Timer } from "@sluice/shared/runtime";

/** How long a request waits for the broker before it is told that there is none yet. */
export const READY_WAIT_MS = 1_000;

/** Answers a request; `remoteAddress` is the peer as `host:port`. */
export type HttpHandler = (
  request: Request,
  remoteAddress: string,
) => Response | Promise<Response>;

/** What a {@linkcode HttpListener} stands on. */
export interface HttpListenerSeams {
  readonly serveHttp: ServeHttp;
  readonly clock: Clock;
  /** Told of what a handler throws. */
  readonly onBroken: (error: unknown) => void;
}

/** See the module. */
export class HttpListener {
  readonly #clock: Clock;
  readonly #server: HttpServer;
  readonly #abort = new AbortController();
  readonly #waiting = new Map<() => void, Timer>();
  #handler: HttpHandler | null = null;

  /**
   * Listens at once. Until `serve` is called, `early` answers what `isPatient` is false for, and what
   * has waited long enough. Throws `AddressInUseError`.
   */
  constructor(
    { serveHttp, clock, onBroken }: HttpListenerSeams,
    address: { readonly host: string; readonly port: number },
    early: HttpHandler,
    isPatient: (request: Request) => boolean,
  ) {
    this.#clock = clock;
    this.#server = serveHttp({
      hostname: address.host,
      port: address.port,
      handler: async (request, remoteAddress) => {
        if (this.#handler === null && isPatient(request)) await this.#ready();
        return await (this.#handler ?? early)(request, remoteAddress);
      },
      onError: (error) => {
        onBroken(error);
        return errorReply(500, "INTERNAL_ERROR");
      },
      signal: this.#abort.signal,
    });
  }

  get hostname(): string {
    return this.#server.hostname;
  }

  get port(): number {
    return this.#server.port;
  }

  /** How often it could not accept connections. */
  get acceptFailureCount(): number {
    return this.#server.acceptFailureCount ?? 0;
  }

  /** There is a broker: all requests are its handler's. */
  serve(handler: HttpHandler): void {
    this.#handler = handler;
    this.#wake();
  }

  /** Stops accepting; requests under way have `graceMs` to be answered, or they are cut off. */
  async shutdown(clock: Clock, graceMs: number): Promise<void> {
    const grace = clock.setTimer(graceMs, () => this.#abort.abort());
    await this.#server.shutdown();
    grace.cancel();
  }

  /** Stops at once. */
  async abort(): Promise<void> {
    this.#wake();
    const stopped = this.#server.shutdown();
    this.#abort.abort();
    await stopped;
  }

  /** Resolves when there is a broker, or no reason to wait any longer. */
  #ready(): Promise<void> {
    return new Promise((resolve) => {
      const timer = this.#clock.setTimer(READY_WAIT_MS, () => {
        this.#waiting.delete(resolve);
        resolve();
      });
      this.#waiting.set(resolve, timer);
    });
  }

  #wake(): void {
    for (const [resolve, timer] of this.#waiting) {
      timer.cancel();
      resolve();
    }
    this.#waiting.clear();
  }
}
