/**
 * The numbers of a producer's publishes, per topic. They go up by one, so that the window in which a
 * broker knows repeats is used by publishes to that topic alone. Of too many topics all are forgotten
 * at once, and every topic goes on above the highest number there was: none is used twice.
 */

/** Topics that are counted one by one, at each broker. */
export const COUNTED_TOPICS_MAX = 8_192;

/** See the module. */
export class Sequences {
  readonly #next = new Map<string, number>();
  readonly #topicsMax: number;
  /** Above every number of a topic that is not counted. */
  #floor = 0;
  #highest = 0;

  constructor(topicsMax: number = COUNTED_TOPICS_MAX) {
    this.#topicsMax = topicsMax;
  }

  /** The next number for a topic, from 0. */
  next(topic: string): number {
    const known = this.#next.get(topic);
    if (known === undefined && this.#next.size >= this.#topicsMax) {
      this.#next.clear();
      this.#floor = this.#highest;
    }
    const sequence = known ?? this.#floor;
    this.#next.set(topic, sequence + 1);
    if (sequence >= this.#highest) this.#highest = sequence + 1;
    return sequence;
  }
}
