/**
 * The end of a broker, as its parts see it.
 *
 * ```
 * running --announce--> announced --begin--> begun
 * ```
 *
 * - Announced: health says so, and everything goes on, so that whoever looks has gone elsewhere before
 *   anything is refused.
 * - Begun: nothing new is accepted, and what only waits for a peer is told at once ({@linkcode Exit.add}).
 */

/** See the module. */
export class Exit {
  readonly #waiting = new Set<() => void>();
  #isAnnounced = false;
  #hasBegun = false;

  get isAnnounced(): boolean {
    return this.#isAnnounced || this.#hasBegun;
  }

  get hasBegun(): boolean {
    return this.#hasBegun;
  }

  /** How many are to be told. */
  get waitingCount(): number {
    return this.#waiting.size;
  }

  announce(): void {
    this.#isAnnounced = true;
  }

  begin(): void {
    this.#hasBegun = true;
    const waiting = [...this.#waiting];
    this.#waiting.clear();
    for (const tell of waiting) tell();
  }

  /** As if nothing had been said. For tests. */
  takeBack(): void {
    this.#isAnnounced = false;
    this.#hasBegun = false;
  }

  /** Has `tell` called when the end begins, at once if it has, unless `remove` comes before. */
  add(tell: () => void): void {
    if (this.#hasBegun) tell();
    else this.#waiting.add(tell);
  }

  remove(tell: () => void): void {
    this.#waiting.delete(tell);
  }
}
