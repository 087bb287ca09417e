/**
 * Lets so many in at a time; the others wait in line, first come, first served. The line is bounded by
 * whoever uses it: one place for each caller that waits.
 */
import { invariant } from "@sluice/shared/runtime";

/** See the module. */
export class Gate {
  readonly #line: (() => void)[] = [];
  #free: number;

  constructor(insideMax: number) {
    invariant(insideMax >= 1, "somebody may be inside");
    this.#free = insideMax;
  }

  /** Resolves when the caller is inside; it has to `leave`, whatever happens. */
  async enter(): Promise<void> {
    if (this.#free > 0) {
      this.#free--;
      return;
    }
    await new Promise<void>((resolve) => this.#line.push(resolve));
  }

  /** Gives the place to the first in line. */
  leave(): void {
    const next = this.#line.shift();
    if (next === undefined) this.#free++;
    else next();
  }
}
