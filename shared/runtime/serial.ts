/**
 * Runs asynchronous operations one after the other, in the order of the calls. The first one starts
 * within the call itself, so an idle line costs no extra turn. The queue has no limit of its own:
 * each caller holds the promise of its operation and bounds how many it starts.
 */
export class Serial {
  #queued = 0;
  #last: Promise<void> = Promise.resolve();
  readonly #finished = () => {
    this.#queued--;
  };

  /** Nothing is running or waiting, so a synchronous operation may run now and keep the order. */
  get idle(): boolean {
    return this.#queued === 0;
  }

  /** Runs `operation` after all earlier ones have settled, whatever they came to. */
  run<T>(operation: () => Promise<T>): Promise<T> {
    const result = this.#queued === 0 ? operation() : this.#last.then(operation);
    this.#queued++;
    this.#last = result.then(this.#finished, this.#finished);
    return result;
  }
}
