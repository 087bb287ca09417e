/**
 * So many at a time, the others in the order they came. What takes longer than `slowMs` goes on beside
 * the others and gives its turn back, so that nobody waits for it.
 */
import type { Clock, Timer } from "@sluice/shared/runtime";

/** See the module. */
export class Turns {
  readonly #slowMs: number;
  readonly #clock: Clock;
  readonly #waiting: (() => void)[] = [];
  #left: number;

  /** `slowMs` may be `Infinity`. */
  constructor(max: number, slowMs: number, clock: Clock) {
    this.#left = max;
    this.#slowMs = slowMs;
    this.#clock = clock;
  }

  /** Does `work` when there is a turn for it. */
  async run<T>(work: () => Promise<T>): Promise<T> {
    if (this.#left > 0) this.#left -= 1;
    else await new Promise<void>((resolve) => this.#waiting.push(resolve));
    let isBack = false;
    const giveBack = () => {
      if (isBack) return;
      isBack = true;
      const next = this.#waiting.shift();
      // A turn that somebody waits for is handed over.
      if (next === undefined) this.#left += 1;
      else next();
    };
    const slow: Timer | null = this.#slowMs === Infinity
      ? null
      : this.#clock.setTimer(this.#slowMs, giveBack);
    try {
      return await work();
    } finally {
      slow?.cancel();
      giveBack();
    }
  }
}
