/** Randomness as a parameter, so that a run can be repeated from a seed. */
export interface Random {
  /** An integer from 0 to 2^32 - 1, each as likely as the next. */
  u32(): number;
}

/** An integer from 0 to `bound` - 1; `bound` is from 1 to 2^32. */
export function randomBelow(random: Random, bound: number): number {
  return Math.floor((random.u32() / 2 ** 32) * bound);
}
