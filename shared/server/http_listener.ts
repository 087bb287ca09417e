/**
 * The HTTP listener, up before what it serves. Requests that come before that is there wait for
 * it a moment, so that whoever asks `/ping` in a short start finds all of it, as with nsqd; in a long
 * one they are answered by another handler, which says how far the start is.
 */
import { errorReply } from "../http/mod.ts";
import {
  type Clock,
  type HttpServer,
  invariant,
  type ServeHttpOptions,
  type Timer,
} from "../runtime/mod.ts";

/** How long a request waits for the service before it is told that there is none yet. */
export const READY_WAIT_MS = 1_000;

/** Answers a request; see {@linkcode ServeHttpOptions.handler}. */
export type HttpHandler = ServeHttpOptions["handler"];

/** What a {@linkcode HttpListener} stands on. */
export interface HttpListenerSeams {
  /** Starts the server, in clear or over TLS. */
  readonly serve: (options: ServeHttpOptions) => HttpServer | Promise<HttpServer>;
  readonly clock: Clock;
  /** Told of what a handler throws. */
  readonly onBroken: (error: unknown) => void;
}

/** See the module. */
export class HttpListener {
  readonly #clock: Clock;
  readonly #early: HttpHandler;
  readonly #isPatient: (request: Request) => boolean;
  readonly #abort = new AbortController();
  readonly #waiting = new Map<() => void, Timer>();
  #started: HttpServer | null = null;
  #handler: HttpHandler | null = null;

  private constructor(
    clock: Clock,
    early: HttpHandler,
    isPatient: (request: Request) => boolean,
  ) {
    this.#clock = clock;
    this.#early = early;
    this.#isPatient = isPatient;
  }

  /**
   * Listens. Until `serve` is called, `early` answers what `isPatient` is false for, and what has
   * waited long enough. Rejects with `AddressInUseError`.
   */
  static async start(
    { serve, clock, onBroken }: HttpListenerSeams,
    address: { readonly host: string; readonly port: number },
    early: HttpHandler,
    isPatient: (request: Request) => boolean,
  ): Promise<HttpListener> {
    const listener = new HttpListener(clock, early, isPatient);
    listener.#started = await serve({
      hostname: address.host,
      port: address.port,
      handler: (...asked) => listener.#answer(...asked),
      onError: (error) => {
        onBroken(error);
        return errorReply(500, "INTERNAL_ERROR");
      },
      signal: listener.#abort.signal,
    });
    return listener;
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

  /** The service is there: all requests are its handler's. */
  serve(handler: HttpHandler): void {
    this.#handler = handler;
    this.#wake();
  }

  /**
   * Stops accepting; requests under way have `graceMs` to be answered, or they are cut off. Those that wait
   * for the service wait no longer.
   */
  async shutdown(clock: Clock, graceMs: number): Promise<void> {
    this.#wake();
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

  get #server(): HttpServer {
    invariant(this.#started !== null, "the listener has started");
    return this.#started;
  }

  async #answer(...[request, ...peer]: Parameters<HttpHandler>): Promise<Response> {
    if (this.#handler === null && this.#isPatient(request)) await this.#ready();
    return await (this.#handler ?? this.#early)(request, ...peer);
  }

  /** Resolves when the service is there, or there is no reason to wait any longer. */
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
