/**
 * How old the oldest of very many things is, without knowing each: they are counted by slices of
 * time. An age is exact to one slice, and never told too low.
 */
import { invariant } from "@sluice/shared/runtime";

/** See the module. */
export class Ages {
  readonly #sliceMs: number;
  readonly #counts = new Map<number, number>();
  /** The first slice that has anything. */
  #oldest: number | null = null;

  /** Things may be told apart that are `sliceMs` apart. */
  constructor(sliceMs: number) {
    invariant(sliceMs >= 1, "a slice takes some time");
    this.#sliceMs = sliceMs;
  }

  /** A time at which the oldest was not there yet, or just; null when there is none. */
  get oldestWallMs(): number | null {
    return this.#oldest === null ? null : this.#oldest * this.#sliceMs;
  }

  /** Slices that are in use; what takes memory. */
  get sliceCount(): number {
    return this.#counts.size;
  }

  add(wallMs: number): void {
    const slice = Math.floor(wallMs / this.#sliceMs);
    this.#counts.set(slice, (this.#counts.get(slice) ?? 0) + 1);
    if (this.#oldest === null || slice < this.#oldest) this.#oldest = slice;
  }

  /** Takes away something that was added with the same time. */
  remove(wallMs: number): void {
    const slice = Math.floor(wallMs / this.#sliceMs);
    const count = this.#counts.get(slice);
    if (count === undefined) return;
    if (count > 1) {
      this.#counts.set(slice, count - 1);
      return;
    }
    this.#counts.delete(slice);
    if (slice !== this.#oldest) return;
    this.#oldest = null;
    for (const other of this.#counts.keys()) {
      if (this.#oldest === null || other < this.#oldest) this.#oldest = other;
    }
  }

  clear(): void {
    this.#counts.clear();
    this.#oldest = null;
  }
}
