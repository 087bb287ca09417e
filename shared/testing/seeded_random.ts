/**
 * Repeatable randomness (sfc32 seeded through a 32-bit mixer): the same seed gives the same values
 * on every machine. Not for secrets.
 */
import { invariant } from "../runtime/invariant.ts";
import { type Random, randomBelow } from "../runtime/mod.ts";

/** Rounds thrown away at the start, so that near seeds give unrelated streams. */
const WARM_UP_ROUNDS = 12;

/** {@linkcode Random} from a seed, with the choices a simulation makes. */
export class SeededRandom implements Random {
  readonly seed: number | string;
  #a: number;
  #b: number;
  #c: number;
  #counter = 1;

  constructor(seed: number | string) {
    this.seed = seed;
    const mix = mixer(typeof seed === "number" ? seed : hash(seed));
    this.#a = mix();
    this.#b = mix();
    this.#c = mix();
    for (let round = 0; round < WARM_UP_ROUNDS; round++) this.u32();
  }

  u32(): number {
    const value = (this.#a + this.#b + this.#counter) | 0;
    this.#counter = (this.#counter + 1) | 0;
    this.#a = this.#b ^ (this.#b >>> 9);
    this.#b = (this.#c + (this.#c << 3)) | 0;
    this.#c = (((this.#c << 21) | (this.#c >>> 11)) + value) | 0;
    return value >>> 0;
  }

  /** An integer from 0 to `bound` - 1. */
  below(bound: number): number {
    return randomBelow(this, bound);
  }

  /** An integer from `low` to `high`, both possible. */
  between(low: number, high: number): number {
    return low + this.below(high - low + 1);
  }

  /** True in about `probability` (0 to 1) of the calls; never at 0, always at 1. */
  chance(probability: number): boolean {
    return this.u32() / 2 ** 32 < probability;
  }

  /** One of the items, each as likely as the next. */
  pick<T>(items: readonly T[]): T {
    invariant(items.length > 0, "there is an item to pick");
    return items[this.below(items.length)] as T;
  }

  /** The items in a random order; the argument stays as it is. */
  shuffle<T>(items: readonly T[]): T[] {
    const shuffled = [...items];
    for (let last = shuffled.length - 1; last > 0; last--) {
      const other = this.below(last + 1);
      [shuffled[last], shuffled[other]] = [shuffled[other] as T, shuffled[last] as T];
    }
    return shuffled;
  }

  bytes(count: number): Uint8Array {
    const bytes = new Uint8Array(count);
    for (let index = 0; index < count; index++) bytes[index] = this.u32() & 0xff;
    return bytes;
  }

  /** A stream of its own, so that more draws here do not change what is drawn there. */
  fork(): SeededRandom {
    return new SeededRandom(this.u32());
  }
}

/** Spreads one 32-bit seed over as many words as are asked for. */
function mixer(seed: number): () => number {
  let state = seed | 0;
  return () => {
    state = (state + 0x9e3779b9) | 0;
    let word = state ^ (state >>> 16);
    word = Math.imul(word, 0x21f0aaad);
    word ^= word >>> 15;
    word = Math.imul(word, 0x735a2d97);
    return word ^ (word >>> 15);
  };
}

/** FNV-1a over the UTF-16 units. */
function hash(text: string): number {
  let sum = 0x811c9dc5;
  for (let index = 0; index < text.length; index++) {
    sum = Math.imul(sum ^ text.charCodeAt(index), 0x01000193);
  }
  return sum;
}
