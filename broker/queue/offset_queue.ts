/** A first-in first-out queue of messages to deliver again, in typed arrays. */
import { invariant } from "@sluice/shared/runtime";

/** Offsets with the number of deliveries before. */
export class OffsetQueue {
  #offsets = new Float64Array(16);
  #attempts = new Uint32Array(16);
  #head = 0;
  #size = 0;

  get size(): number {
    return this.#size;
  }

  push(offset: number, attempts: number): void {
    if (this.#size === this.#offsets.length) this.#grow();
    const at = (this.#head + this.#size) & (this.#offsets.length - 1);
    this.#offsets[at] = offset;
    this.#attempts[at] = attempts;
    this.#size++;
  }

  /** The oldest offset; there is one. */
  get offset(): number {
    invariant(this.#size > 0, "the queue is not empty");
    return this.#offsets[this.#head]!;
  }

  /** The deliveries of the oldest offset. */
  get attempts(): number {
    return this.#attempts[this.#head]!;
  }

  shift(): void {
    this.#head = (this.#head + 1) & (this.#offsets.length - 1);
    this.#size--;
  }

  clear(): void {
    this.#size = 0;
  }

  #grow(): void {
    const size = this.#offsets.length;
    const offsets = new Float64Array(size * 2);
    const attempts = new Uint32Array(size * 2);
    for (let index = 0; index < size; index++) {
      const at = (this.#head + index) & (size - 1);
      offsets[index] = this.#offsets[at]!;
      attempts[index] = this.#attempts[at]!;
    }
    this.#offsets = offsets;
    this.#attempts = attempts;
    this.#head = 0;
  }
}
