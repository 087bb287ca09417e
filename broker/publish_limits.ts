/**
 * Bounds on how fast is published, to one topic and by one client. Off by default.
 *
 * - A topic has the rates of the settings, or those of its policy. A client is who it has said it is,
 *   or else the address it comes from.
 * - At a bound a publish is refused before it is stored, with the time after which it is worth trying
 *   again; nothing waits here. A command that is taken is taken whole: see `token_bucket.ts`.
 * - At most {@linkcode CLIENTS_MAX} clients are told apart. A client whose bucket is full is forgotten when
 *   room is needed, which changes nothing for it; while none is, new ones share one bucket.
 */
import type { Clock } from "@sluice/shared/runtime";
import { remoteHost } from "@sluice/shared/server";
import { PublishLimiter, type PublishRates, TokenBucket, type Topic } from "./queue/mod.ts";
import { RefusedError } from "./refused.ts";
import { ratesOf, type TopicPolicy } from "./storage/mod.ts";

/** Clients that are told apart. */
export const CLIENTS_MAX = 65_536;
/** Buckets that are looked at for one to forget. */
const FORGET_LOOKS_MAX = 32;
/** Stands for all clients beyond. */
const OTHERS = "others";

/** What is allowed; 0 for anything. */
export interface PublishLimitOptions {
  /** To a topic without rates in its policy. */
  readonly topic: PublishRates;
  /** Messages a second of a client. */
  readonly clientMessages: number;
}

/** No bounds. */
export const NO_PUBLISH_LIMITS: PublishLimitOptions = {
  topic: { messages: 0, bytes: 0 },
  clientMessages: 0,
};

/** What a client is told apart by: who it has said it is, or where it comes from. */
export function clientOf(identity: string, remoteAddress: string): string {
  return identity === "" ? `address ${remoteHost(remoteAddress)}` : `identity ${identity}`;
}

/** See the module. */
export class PublishLimits {
  /** Publish commands that were refused, by the bound. */
  readonly refused = { topic: 0, client: 0 };
  /** Whether clients are bounded. */
  limitsClients = false;
  readonly #clock: Pick<Clock, "monoMs">;
  readonly #clients = new Map<string, TokenBucket>();
  #options: PublishLimitOptions;

  constructor(clock: Pick<Clock, "monoMs">, options: PublishLimitOptions) {
    this.#clock = clock;
    this.#options = options;
    this.limitsClients = options.clientMessages > 0;
  }

  /** Clients that are told apart now. */
  get clientCount(): number {
    return this.#clients.size;
  }

  /** Changes the bounds while running. What a bound that stays has counted stays too. */
  configure(options: PublishLimitOptions, topics: Iterable<Topic>): void {
    const isSame = options.clientMessages === this.#options.clientMessages;
    this.#options = options;
    this.limitsClients = options.clientMessages > 0;
    if (!isSame) this.#clients.clear();
    for (const topic of topics) this.attach(topic);
  }

  /** The rates that hold for a topic. */
  ratesOf(state: { readonly policy: TopicPolicy }): PublishRates {
    return ratesOf(state.policy, this.#options.topic);
  }

  /** Gives a topic the bounds that its policy and the settings say. */
  attach(topic: Topic): void {
    const rates = this.ratesOf(topic.state);
    const known = topic.limiter?.rates;
    if (known?.messages === rates.messages && known.bytes === rates.bytes) return;
    const isBounded = rates.messages > 0 || rates.bytes > 0;
    topic.limiter = isBounded ? new PublishLimiter(rates, this.#clock.monoMs()) : null;
  }

  /** Lets one publish command pass to a topic, or throws {@linkcode RefusedError}. */
  admitTo(limiter: PublishLimiter): void {
    const waitMs = limiter.waitMs(this.#clock.monoMs());
    if (waitMs === 0) return;
    this.refused.topic++;
    throw new RefusedError("throttled", "the topic is published to too fast", waitMs);
  }

  /** Lets one publish command of a client pass, or throws {@linkcode RefusedError}. */
  admitClient(client: string): void {
    const nowMs = this.#clock.monoMs();
    const waitMs = this.#bucketOf(client, nowMs).waitMs(nowMs);
    if (waitMs === 0) return;
    this.refused.client++;
    throw new RefusedError("throttled", "the client publishes too fast", waitMs);
  }

  /** A client has published. */
  publishedBy(client: string, messages: number): void {
    const nowMs = this.#clock.monoMs();
    this.#bucketOf(client, nowMs).take(messages, nowMs);
  }

  #bucketOf(client: string, nowMs: number): TokenBucket {
    const known = this.#clients.get(client);
    if (known !== undefined) return known;
    const name = this.#makeRoom(nowMs) ? client : OTHERS;
    const bucket = this.#clients.get(name) ??
      new TokenBucket(this.#options.clientMessages, nowMs);
    this.#clients.set(name, bucket);
    return bucket;
  }

  /** Whether there is room for one more client, by forgetting one that changes nothing. */
  #makeRoom(nowMs: number): boolean {
    // The last place is that of all others.
    if (this.#clients.size < CLIENTS_MAX - 1) return true;
    let looks = 0;
    for (const [client, bucket] of this.#clients) {
      if (looks++ >= FORGET_LOOKS_MAX) break;
      this.#clients.delete(client);
      if (bucket.isFull(nowMs)) return true;
      // Behind the others, so that the next search begins elsewhere.
      this.#clients.set(client, bucket);
    }
    return false;
  }
}
