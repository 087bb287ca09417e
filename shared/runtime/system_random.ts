/** Real randomness, fit for secrets. Drawn in blocks, because one call for four bytes costs most. */
import type { Random } from "./random.ts";

const BLOCK_WORDS = 256;

/** {@linkcode Random} over the machine's cryptographic generator. */
export class SystemRandom implements Random {
  readonly #block = new Uint32Array(BLOCK_WORDS);
  #next = BLOCK_WORDS;

  u32(): number {
    if (this.#next === BLOCK_WORDS) {
      crypto.getRandomValues(this.#block);
      this.#next = 0;
    }
    const value = this.#block[this.#next] ?? 0;
    // A value that was handed out may be a secret; it has no business staying in memory.
    this.#block[this.#next++] = 0;
    return value;
  }
}
