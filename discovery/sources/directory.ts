/**
 * All sources of a service together: an endpoint that several of them list is asked once, and what is
 * found is put into the registry.
 *
 * {@linkcode PARALLEL_MAX} endpoints have their turn at a time, each in its own rhythm; who takes longer
 * than {@linkcode SLOW_MS} goes on beside the others, one request each. Those that did not answer last
 * time have {@linkcode PARALLEL_RETRIES_MAX} turns of their own. So however many are slow or gone, the
 * others stay fresh.
 */
import { type Random, randomBelow } from "@sluice/shared/runtime";
import { PolledBroker, type PollOptions, type PollStatus } from "./polled_broker.ts";
import { type Endpoint, type Source, type SourceStatus, SourceView } from "./source.ts";
import { Turns } from "./turns.ts";

export const PARALLEL_MAX = 128;
export const PARALLEL_RETRIES_MAX = 32;
/** Reading a whole registry keeps this process busy, so not many come in at once. */
const PARALLEL_WHOLES_MAX = 4;
/** Who takes longer keeps no turn from the others: a network that is cut makes many wait at once. */
const SLOW_MS = 200;

/** What a directory stands on. */
export interface DirectoryOptions extends PollOptions {
  readonly sources: readonly Source[];
  readonly random: Random;
  /** Called for an error that is a mistake of ours; the service must stop. */
  readonly onBroken: (error: unknown) => void;
}

interface Polling {
  readonly broker: PolledBroker;
  readonly stop: AbortController;
  readonly ended: Promise<void>;
}

/** See the module. */
export class Directory {
  readonly #options: DirectoryOptions;
  readonly #views: readonly SourceView[];
  readonly #polled = new Map<string, Polling>();
  /** Endpoints that no source lists any more, until their requests have ended. */
  readonly #leaving = new Set<Promise<void>>();
  readonly #asks: Turns;
  readonly #retries: Turns;
  readonly #wholes: Turns;
  #stopped = false;

  constructor(options: DirectoryOptions) {
    this.#options = options;
    const { logger, clock } = options;
    this.#asks = new Turns(PARALLEL_MAX, SLOW_MS, clock);
    this.#retries = new Turns(PARALLEL_RETRIES_MAX, Infinity, clock);
    this.#wholes = new Turns(PARALLEL_WHOLES_MAX, SLOW_MS, clock);
    this.#views = options.sources.map((source) =>
      new SourceView(
        source,
        clock,
        () => this.#match(),
        (reason) => logger.warn("a source of brokers fails", { source: source.name, reason }),
      )
    );
  }

  start(): void {
    for (const view of this.#views) view.source.start(view);
  }

  /** Resolves when nothing is asked any more. */
  async stop(): Promise<void> {
    this.#stopped = true;
    await Promise.all(this.#views.map(({ source }) => source.stop()));
    for (const key of [...this.#polled.keys()]) this.#leave(key);
    await Promise.all(this.#leaving);
  }

  sources(): SourceStatus[] {
    return this.#views.map((view) => view.status());
  }

  brokers(): PollStatus[] {
    return [...this.#polled.values()].map(({ broker }) => broker.status);
  }

  /** Whether each source and each endpoint has been heard of, or has failed, at least once. */
  get isSettled(): boolean {
    return this.sources().every(({ state }) => state !== "starting") &&
      [...this.#polled.values()].every(({ broker }) => broker.status.state !== "new");
  }

  /** Asks what the sources list, and nobody else. */
  #match(): void {
    if (this.#stopped) return;
    const wanted = new Map<string, Endpoint>();
    for (const view of this.#views) {
      for (const [key, endpoint] of view.endpoints) wanted.set(key, endpoint);
    }
    for (const key of [...this.#polled.keys()]) if (!wanted.has(key)) this.#leave(key);
    for (const [key, endpoint] of wanted) {
      if (this.#polled.has(key)) continue;
      const broker = new PolledBroker(endpoint, this.#options, this.#wholes);
      const stop = new AbortController();
      const ended = this.#poll(broker, stop.signal).catch((error) => {
        if (error !== stop.signal.reason) this.#options.onBroken(error);
      });
      this.#polled.set(key, { broker, stop, ended });
    }
  }

  #leave(key: string): void {
    const polling = this.#polled.get(key);
    if (polling === undefined) return;
    this.#polled.delete(key);
    polling.broker.leave();
    polling.stop.abort();
    const left = polling.ended.finally(() => this.#leaving.delete(left));
    this.#leaving.add(left);
  }

  async #poll(broker: PolledBroker, signal: AbortSignal): Promise<void> {
    const { clock, random } = this.#options;
    // All are found at once, and would go on in step: that would keep everybody waiting twice a second.
    let isFirst = true;
    while (!signal.aborted) {
      const turns = broker.isFailing ? this.#retries : this.#asks;
      await turns.run(async () => {
        if (!signal.aborted) await broker.poll();
      });
      // Not later than promised.
      const { delayMs } = broker;
      const earlyMs = randomBelow(random, Math.floor(isFirst ? delayMs : delayMs / 10) + 1);
      isFirst = false;
      await clock.sleep(delayMs - earlyMs, signal);
    }
  }
}
