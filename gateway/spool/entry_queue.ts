/** Entries that wait to be handed out, the first of the log first; any of them can be taken away. */

/** What is ordered by where it was put first. */
export interface Ordered {
  readonly id: number;
}

/** A heap over a set: what was taken away is passed over when its turn comes. */
export class EntryQueue<T extends Ordered> {
  readonly #members = new Set<T>();
  #heap: T[] = [];

  get size(): number {
    return this.#members.size;
  }

  /** The members, in no order. */
  get members(): Iterable<T> {
    return this.#members;
  }

  /** Adds one that is not there. */
  push(item: T): void {
    this.#members.add(item);
    const heap = this.#heap;
    let at = heap.length;
    heap.push(item);
    while (at > 0) {
      const parent = (at - 1) >>> 1;
      if (heap[parent]!.id <= item.id) break;
      heap[at] = heap[parent]!;
      at = parent;
    }
    heap[at] = item;
  }

  delete(item: T): void {
    if (!this.#members.delete(item)) return;
    // What is left behind in the heap is at most as much as there is.
    if (this.#heap.length <= 2 * this.#members.size + 16) return;
    this.#heap = [...this.#members].sort((a, b) => a.id - b.id);
  }

  /** The first one, which stays. */
  peek(): T | null {
    while (this.#heap.length > 0) {
      const first = this.#heap[0]!;
      if (this.#members.has(first)) return first;
      this.#popHeap();
    }
    return null;
  }

  /** Takes the first one. */
  pop(): T | null {
    const first = this.peek();
    if (first === null) return null;
    this.#members.delete(first);
    this.#popHeap();
    return first;
  }

  #popHeap(): void {
    const heap = this.#heap;
    const last = heap.pop()!;
    if (heap.length === 0) return;
    let at = 0;
    while (true) {
      let child = 2 * at + 1;
      if (child >= heap.length) break;
      if (child + 1 < heap.length && heap[child + 1]!.id < heap[child]!.id) child++;
      if (heap[child]!.id >= last.id) break;
      heap[at] = heap[child]!;
      at = child;
    }
    heap[at] = last;
  }
}
