/**
 * Long HTTP answers in memory. A test says what each URL does, and sends what the answers hold, piece
 * by piece; it may end an answer, or lose it. A URL that nothing is said of refuses connections.
 */
import {
  type Clock,
  HttpAskError,
  type HttpStream,
  type StreamHttp,
  type Timer,
} from "../runtime/mod.ts";

/** What a URL does: no connection, no answer, or an answer of this status that a test sends. */
export type SimUrl = "refused" | "silent" | number;

/** {@linkcode StreamHttp} in memory. */
export class SimHttpStreams {
  /** Every URL that was asked for, in order. */
  readonly asked: string[] = [];
  /** All answers that have begun, in order. */
  readonly streams: SimHttpStream[] = [];
  readonly #clock: Clock;
  readonly #urls = new Map<string, SimUrl>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** What `url` does from now on. */
  set(url: string, does: SimUrl): void {
    this.#urls.set(url, does);
  }

  /** The newest answer of `url` that has begun, if it is open. */
  stream(url: string): SimHttpStream | undefined {
    const newest = this.streams.findLast((stream) => stream.url === url);
    return newest?.isOpen === true ? newest : undefined;
  }

  /** Answers that the client has not closed; 0 when nothing leaked. */
  get openCount(): number {
    return this.streams.filter(({ isOpen }) => isOpen).length;
  }

  readonly open: StreamHttp = async ({ url }, { headTimeoutMs }, signal) => {
    this.asked.push(url);
    await Promise.resolve();
    if (signal.aborted) throw new HttpAskError("the connection was closed");
    const does = this.#urls.get(url) ?? "refused";
    if (does === "refused") throw new HttpAskError("the connection failed: ECONNREFUSED");
    if (does === "silent") return await this.#nothing(headTimeoutMs, signal);
    const stream = new SimHttpStream(url, does);
    this.streams.push(stream);
    return stream;
  };

  #nothing(headTimeoutMs: number, signal: AbortSignal): Promise<never> {
    return new Promise((_, reject) => {
      const end = (reason: string) => {
        timer.cancel();
        signal.removeEventListener("abort", aborted);
        reject(new HttpAskError(reason));
      };
      const aborted = () => end("the connection was closed");
      const timer: Timer = this.#clock.setTimer(
        headTimeoutMs,
        () => end(`no answer within ${headTimeoutMs} ms`),
      );
      signal.addEventListener("abort", aborted);
    });
  }
}

/** One answer, with both its ends. */
export class SimHttpStream implements HttpStream {
  readonly url: string;
  readonly status: number;
  /** Whether the client has not closed it. */
  isOpen = true;
  readonly #waiting: Uint8Array[] = [];
  #over: "ended" | "lost" | null = null;
  #wake: (() => void) | null = null;

  constructor(url: string, status: number) {
    this.url = url;
    this.status = status;
  }

  /** What the client reads next, in one piece. */
  send(piece: string | Uint8Array): void {
    this.#waiting.push(typeof piece === "string" ? new TextEncoder().encode(piece) : piece);
    this.#wake?.();
  }

  /** The answer is whole. */
  end(): void {
    this.#over ??= "ended";
    this.#wake?.();
  }

  /** The connection breaks, behind what was sent. */
  lose(): void {
    this.#over ??= "lost";
    this.#wake?.();
  }

  async read(): Promise<Uint8Array | null> {
    while (this.isOpen) {
      const piece = this.#waiting.shift();
      if (piece !== undefined) return piece;
      if (this.#over === "ended") return null;
      if (this.#over === "lost") break;
      await new Promise<void>((resolve) => this.#wake = resolve);
      this.#wake = null;
    }
    throw new HttpAskError("the connection was lost within the answer");
  }

  close(): void {
    this.isOpen = false;
    this.#waiting.length = 0;
    this.#wake?.();
  }
}
