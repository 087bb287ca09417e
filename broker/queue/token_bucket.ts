/**
 * A token bucket in whole numbers: it fills by `rate` tokens a second up to one second's worth, and
 * begins full.
 *
 * What is taken may go beyond what is there, once: a batch is taken whole, and then nothing more until
 * that is made up for. So the rate holds in the long run whatever the size of a batch, and none is too
 * large to be taken ever.
 */

/** Tokens are counted in thousandths, so that each millisecond adds a whole number. */
const PARTS = 1000;

/** See the module. Time is milliseconds that never go back, of which whole ones count. */
export class TokenBucket {
  /** Tokens a second; above 0. */
  readonly rate: number;
  #parts: number;
  #filledMs: number;

  constructor(rate: number, nowMs: number) {
    this.rate = rate;
    this.#parts = rate * PARTS;
    this.#filledMs = Math.floor(nowMs);
  }

  /** How long until something may be taken; 0 for now. */
  waitMs(nowMs: number): number {
    this.#fill(nowMs);
    return this.#parts > 0 ? 0 : Math.floor(-this.#parts / this.rate) + 1;
  }

  /** Takes tokens, whether they are there or not. */
  take(tokens: number, nowMs: number): void {
    this.#fill(nowMs);
    this.#parts -= tokens * PARTS;
  }

  /** Whether it is as a new one would be. */
  isFull(nowMs: number): boolean {
    this.#fill(nowMs);
    return this.#parts === this.rate * PARTS;
  }

  #fill(nowMs: number): void {
    const now = Math.floor(nowMs);
    const { rate } = this;
    const fullParts = rate * PARTS;
    // The product may be beyond what is exact, but only when the bucket is full by far.
    this.#parts = Math.min(fullParts, this.#parts + (now - this.#filledMs) * rate);
    this.#filledMs = now;
  }
}

/** The bounds on what is published to one topic; 0 for none. */
export interface PublishRates {
  /** Messages a second. */
  readonly messages: number;
  /** Bytes of bodies a second. */
  readonly bytes: number;
}

/** Both buckets of a topic. */
export class PublishLimiter {
  readonly rates: PublishRates;
  readonly #messages: TokenBucket | null;
  readonly #bytes: TokenBucket | null;

  constructor(rates: PublishRates, nowMs: number) {
    this.rates = rates;
    this.#messages = rates.messages === 0 ? null : new TokenBucket(rates.messages, nowMs);
    this.#bytes = rates.bytes === 0 ? null : new TokenBucket(rates.bytes, nowMs);
  }

  /** How long until a publish is taken; 0 for now. */
  waitMs(nowMs: number): number {
    return Math.max(this.#messages?.waitMs(nowMs) ?? 0, this.#bytes?.waitMs(nowMs) ?? 0);
  }

  /** A message has been published. */
  published(bytes: number, nowMs: number): void {
    this.#messages?.take(1, nowMs);
    this.#bytes?.take(bytes, nowMs);
  }
}
