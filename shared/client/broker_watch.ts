/**
 * Follows one discovery service: `/v1/watch` of ours, or `/nodes` of an nsqlookupd again and again, which
 * is what a service is that has no `/v1/watch`. What is learned goes to a {@linkcode SourceView}.
 *
 *     ask -- 200 --> read ------- ended, silent, unreadable --> wait -> ask
 *      |  `- 404 --> poll /nodes --- no usable answer --------> wait -> ask
 *      |                        `--- so many rounds ------------------> ask
 *      `---- anything else -----------------------------------> wait -> ask
 *
 * - The wait is {@linkcode RETRY_FIRST_MS} at first and {@linkcode RETRY_MOST_MS} at most. It starts anew only
 *   after a service was followed for longer than that, so that one which drops everybody at once is
 *   not made to tell all it has ten times a second.
 * - A stream without a byte for {@linkcode SILENCE_MS} is given up: there is a comment every 15 s.
 * - An nsqlookupd is asked for `/v1/watch` again after {@linkcode NODES_ROUNDS} rounds: it may have been
 *   replaced by ours meanwhile.
 */
import {
  type AskHttp,
  type Clock,
  HttpAskError,
  type HttpStream,
  type Random,
  randomBelow,
  type StreamHttp,
} from "../runtime/mod.ts";
import type { Logger } from "../telemetry/mod.ts";
import { Backoff } from "./backoff.ts";
import { readNodes, readWatchEvent } from "./discovery_answers.ts";
import { EventStreamError, EventStreamParser, type StreamEvent } from "./event_stream.ts";
import type { SourceView } from "./source_view.ts";

export const RETRY_FIRST_MS = 100;
export const RETRY_MOST_MS = 2_000;
export const SILENCE_MS = 40_000;
export const NODES_INTERVAL_MS = 2_000;
export const NODES_ROUNDS = 30;
const CONNECT_TIMEOUT_MS = 2_000;
const ANSWER_TIMEOUT_MS = 5_000;
/** 2 million topics of 25 bytes and their tombstones. */
const NODES_BYTES_MAX = 64 * 2 ** 20;

/** The world that discovery is asked in. */
export interface DiscoverySeams {
  readonly clock: Clock;
  readonly random: Random;
  readonly streamHttp: StreamHttp;
  readonly askHttp: AskHttp;
  readonly logger: Logger;
}

/** An answer that is of no use; the message says why. */
class DiscoveryAnswerError extends Error {
  override name = "DiscoveryAnswerError";
  readonly code = "unusable_answer";
}

/** See the module. */
export class BrokerWatch {
  readonly url: string;
  readonly view: SourceView;
  readonly #seams: DiscoverySeams;
  readonly #logger: Logger;
  readonly #nodesIntervalMs: number;
  readonly #backoff: Backoff;
  readonly #stop = new AbortController();
  #stream: HttpStream | null = null;
  /** Since when this service has been followed without a break; `null` while it is not. */
  #followedSinceMs: number | null = null;
  #ended: Promise<void> = Promise.resolve();

  constructor(
    url: string,
    view: SourceView,
    seams: DiscoverySeams,
    nodesIntervalMs = NODES_INTERVAL_MS,
  ) {
    this.url = url;
    this.view = view;
    this.#seams = seams;
    this.#logger = seams.logger.child({ discovery: url });
    this.#nodesIntervalMs = nodesIntervalMs;
    this.#backoff = new Backoff(seams.random, RETRY_FIRST_MS, RETRY_MOST_MS);
  }

  /** Once. A mistake of ours, and nothing else, ends the process. */
  start(): void {
    this.#ended = this.#run();
  }

  /** Resolves when nothing is asked any more, an answer to `/nodes` included. What was learned stays. */
  async stop(): Promise<void> {
    this.#stop.abort();
    this.#stream?.close();
    await this.#ended;
  }

  async #run(): Promise<void> {
    const { clock } = this.#seams;
    const { signal } = this.#stop;
    while (!signal.aborted) {
      const failure = await this.#follow();
      if (signal.aborted) return;
      if (failure === null) continue;
      this.#lost(failure);
      // Aborted: the loop ends.
      await clock.sleep(this.#backoff.takeMs(), signal).catch(() => {});
    }
  }

  /** Resolves with why the service is not followed any more; `null` when it is to be asked at once. */
  async #follow(): Promise<string | null> {
    try {
      const isOurs = await this.#readWatch();
      if (!isOurs) await this.#pollNodes();
      return null;
    } catch (error) {
      const isTheirs = error instanceof HttpAskError || error instanceof EventStreamError ||
        error instanceof DiscoveryAnswerError || this.#stop.signal.aborted;
      if (!isTheirs) throw error;
      return error instanceof Error ? error.message : String(error);
    }
  }

  /** Reads the stream until it fails; `false` when there is none. */
  async #readWatch(): Promise<boolean> {
    const { streamHttp } = this.#seams;
    const question = {
      url: this.#path("/v1/watch"),
      headers: { Accept: "text/event-stream", "Cache-Control": "no-store" },
    };
    const bounds = { connectTimeoutMs: CONNECT_TIMEOUT_MS, headTimeoutMs: ANSWER_TIMEOUT_MS };
    const stream = await streamHttp(question, bounds, this.#stop.signal);
    this.#stream = stream;
    try {
      // Stopped as the answer began: `stop` did not see the stream.
      if (this.#stop.signal.aborted) return true;
      if (stream.status === 404) return false;
      if (stream.status !== 200) throw badStatus("/v1/watch", stream.status);
      await this.#readEvents(stream);
      throw new DiscoveryAnswerError("it ended the stream");
    } finally {
      this.#stream = null;
      stream.close();
    }
  }

  async #readEvents(stream: HttpStream): Promise<void> {
    const { clock } = this.#seams;
    const parser = new EventStreamParser();
    this.view.begin();
    for (;;) {
      const bytes = await this.#readInTime(stream);
      if (bytes === null || this.#stop.signal.aborted) return;
      this.view.heard(clock.monoMs());
      parser.feed(bytes, (event) => this.#event(event));
    }
  }

  async #readInTime(stream: HttpStream): Promise<Uint8Array | null> {
    let isSilent = false;
    const timer = this.#seams.clock.setTimer(SILENCE_MS, () => {
      isSilent = true;
      stream.close();
    });
    try {
      return await stream.read();
    } catch (error) {
      if (isSilent) throw new DiscoveryAnswerError(`it was silent for ${SILENCE_MS} ms`);
      throw error;
    } finally {
      timer.cancel();
    }
  }

  #event(event: StreamEvent): void {
    const word = readWatchEvent(event);
    if (word === null) throw new DiscoveryAnswerError(`its event "${event.name}" cannot be read`);
    this.view.apply(word, this.#seams.clock.monoMs());
    if (word.kind === "synced") this.#followed();
  }

  async #pollNodes(): Promise<void> {
    const { clock, random, askHttp } = this.#seams;
    for (let round = 0; round < NODES_ROUNDS; round++) {
      const { status, body } = await askHttp({
        method: "GET",
        url: this.#path("/nodes"),
        // Without it an old nsqlookupd wraps its answer.
        headers: { Accept: "application/vnd.nsq; version=1.0" },
      }, {
        connectTimeoutMs: CONNECT_TIMEOUT_MS,
        timeoutMs: ANSWER_TIMEOUT_MS,
        bodyBytesMax: NODES_BYTES_MAX,
      });
      if (this.#stop.signal.aborted) return;
      if (status !== 200) throw badStatus("/nodes", status);
      const brokers = readNodes(body);
      if (brokers === null) throw new DiscoveryAnswerError("its answer to /nodes cannot be read");
      this.view.list("nodes", brokers, clock.monoMs());
      this.#followed();
      const jitterMs = randomBelow(random, Math.floor(this.#nodesIntervalMs / 10) + 1);
      await clock.sleep(this.#nodesIntervalMs - jitterMs, this.#stop.signal);
    }
  }

  #followed(): void {
    const { clock } = this.#seams;
    if (this.#followedSinceMs !== null) return;
    this.#followedSinceMs = clock.monoMs();
    const { kind, brokers } = this.view.status(this.url, clock.monoMs());
    this.#logger.info("discovery is followed", { kind, brokers });
  }

  #lost(reason: string): void {
    const { clock } = this.#seams;
    const sinceMs = this.#followedSinceMs;
    if (sinceMs !== null && clock.monoMs() - sinceMs > RETRY_MOST_MS) this.#backoff.reset();
    // Said when it is news, not with every try.
    if (sinceMs !== null || this.view.state === "starting") {
      this.#logger.warn("discovery gives no answer", { reason });
    }
    this.#followedSinceMs = null;
    this.view.lost(reason);
  }

  #path(path: string): string {
    return this.url.replace(/\/+$/, "") + path;
  }
}

function badStatus(path: string, status: number): DiscoveryAnswerError {
  return new DiscoveryAnswerError(`it answers ${path} with status ${status}`);
}
