/**
 * How long to wait before the next try: twice as long with each, up to a most, and a random part of it
 * so that many who lost the same peer do not come back in step.
 */
import { type Random, randomBelow } from "../runtime/mod.ts";

/** See the module. */
export class Backoff {
  readonly #random: Random;
  readonly #firstMs: number;
  readonly #mostMs: number;
  #nextMs: number;

  /** The first wait is `firstMs` at most. */
  constructor(random: Random, firstMs: number, mostMs: number) {
    this.#random = random;
    this.#firstMs = firstMs;
    this.#mostMs = mostMs;
    this.#nextMs = firstMs;
  }

  /** The next wait: from half of its most to all of it. */
  takeMs(): number {
    const fullMs = this.#nextMs;
    this.#nextMs = Math.min(2 * fullMs, this.#mostMs);
    return fullMs - randomBelow(this.#random, Math.floor(fullMs / 2) + 1);
  }

  /** It works again: the next wait is the first one. */
  reset(): void {
    this.#nextMs = this.#firstMs;
  }
}
