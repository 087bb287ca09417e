/**
 * Things that become due at a wall-clock time: a 4-ary heap on typed arrays, 20 bytes an entry.
 * Entries are never removed but by popping; whoever pops checks whether the entry still means
 * anything.
 */
import { invariant } from "@sluice/shared/runtime";

/** Ordered by due time; entries of the same time come in no particular order. */
export class DueHeap {
  #dues = new Float64Array(16);
  #offsets = new Float64Array(16);
  #attempts = new Uint32Array(16);
  #size = 0;
  /** What the last `pop` took out. */
  poppedOffset = 0;
  poppedAttempts = 0;

  get size(): number {
    return this.#size;
  }

  /** The earliest due time, or Infinity. */
  get earliestMs(): number {
    return this.#size === 0 ? Infinity : this.#dues[0]!;
  }

  push(dueMs: number, offset: number, attempts: number): void {
    if (this.#size === this.#dues.length) this.#grow();
    let at = this.#size++;
    while (at > 0) {
      const parent = (at - 1) >>> 2;
      if (this.#dues[parent]! <= dueMs) break;
      this.#move(parent, at);
      at = parent;
    }
    this.#put(at, dueMs, offset, attempts);
  }

  /** Takes the earliest entry out, into `poppedOffset` and `poppedAttempts`. */
  pop(): void {
    invariant(this.#size > 0, "there is an entry to pop");
    this.poppedOffset = this.#offsets[0]!;
    this.poppedAttempts = this.#attempts[0]!;
    const last = --this.#size;
    if (last === 0) return;
    const dueMs = this.#dues[last]!;
    let at = 0;
    while (true) {
      let child = at * 4 + 1;
      if (child >= last) break;
      const end = Math.min(child + 4, last);
      for (let other = child + 1; other < end; other++) {
        if (this.#dues[other]! < this.#dues[child]!) child = other;
      }
      if (this.#dues[child]! >= dueMs) break;
      this.#move(child, at);
      at = child;
    }
    this.#put(at, dueMs, this.#offsets[last]!, this.#attempts[last]!);
  }

  clear(): void {
    this.#size = 0;
  }

  /** Entries whose offset passes `test`. */
  countWhere(test: (offset: number) => boolean): number {
    let count = 0;
    for (let at = 0; at < this.#size; at++) if (test(this.#offsets[at]!)) count++;
    return count;
  }

  /** Keeps only the entries whose offset passes `test`. */
  retain(test: (offset: number) => boolean): void {
    const dues = this.#dues.slice(0, this.#size);
    const offsets = this.#offsets.slice(0, this.#size);
    const attempts = this.#attempts.slice(0, this.#size);
    this.#size = 0;
    dues.forEach((dueMs, at) => {
      if (test(offsets[at]!)) this.push(dueMs, offsets[at]!, attempts[at]!);
    });
  }

  #put(at: number, dueMs: number, offset: number, attempts: number): void {
    this.#dues[at] = dueMs;
    this.#offsets[at] = offset;
    this.#attempts[at] = attempts;
  }

  #move(from: number, to: number): void {
    this.#put(to, this.#dues[from]!, this.#offsets[from]!, this.#attempts[from]!);
  }

  #grow(): void {
    const size = this.#dues.length * 2;
    const dues = new Float64Array(size);
    dues.set(this.#dues);
    this.#dues = dues;
    const offsets = new Float64Array(size);
    offsets.set(this.#offsets);
    this.#offsets = offsets;
    const attempts = new Uint32Array(size);
    attempts.set(this.#attempts);
    this.#attempts = attempts;
  }
}
