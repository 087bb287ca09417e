/**
 * The one timer behind all deadlines: a heap of things with a time. Whoever is scheduled earlier than
 * before is put in again; the entry it leaves behind is passed over when it comes up.
 */

/** Something that wants to be looked at at a time. Kept by the {@linkcode Schedule}. */
export interface Timed {
  /** Monotonic ms of its earliest entry. */
  scheduledMs: number;
  tick(nowMs: number, wallMs: number): void;
}

/** `scheduledMs` of what is not in a schedule. */
export const NOT_SCHEDULED = Infinity;

/** The clock of the wall may jump: what is due by it is looked at again at least this often. */
export const WALL_CHECK_MS_MAX = 5000;

/** However many messages are due, others run after so many steps of handing them out. */
export const DUE_AT_ONCE = 8192;
/** From one such part to the next. */
export const DUE_PAUSE_MS = 1;

/** When to look at something that is due at `dueWallMs`, in monotonic ms. */
export function wallDueMs(dueWallMs: number, nowMs: number, wallMs: number): number {
  return nowMs + Math.min(dueWallMs - wallMs, WALL_CHECK_MS_MAX);
}

interface Entry {
  readonly dueMs: number;
  readonly timed: Timed;
}

/** A binary heap by due time. */
export class Schedule {
  readonly #heap: Entry[] = [];

  /** The earliest due time, or Infinity. */
  get earliestMs(): number {
    return this.#heap[0]?.dueMs ?? Infinity;
  }

  /** Has `timed.tick` called at `dueMs` or earlier; does nothing when that is so already. */
  add(timed: Timed, dueMs: number): void {
    if (dueMs >= timed.scheduledMs) return;
    timed.scheduledMs = dueMs;
    const heap = this.#heap;
    let at = heap.length;
    const entry = { dueMs, timed };
    heap.push(entry);
    while (at > 0) {
      const parent = (at - 1) >>> 1;
      if (heap[parent]!.dueMs <= dueMs) break;
      heap[at] = heap[parent]!;
      at = parent;
    }
    heap[at] = entry;
  }

  /** Ticks everything due. */
  run(nowMs: number, wallMs: number): void {
    while (this.earliestMs <= nowMs) {
      const { dueMs, timed } = this.#pop();
      if (dueMs !== timed.scheduledMs) continue;
      timed.scheduledMs = NOT_SCHEDULED;
      timed.tick(nowMs, wallMs);
    }
  }

  #pop(): Entry {
    const heap = this.#heap;
    const first = heap[0]!;
    const last = heap.pop()!;
    if (heap.length === 0) return first;
    let at = 0;
    while (true) {
      let child = at * 2 + 1;
      if (child >= heap.length) break;
      if (child + 1 < heap.length && heap[child + 1]!.dueMs < heap[child]!.dueMs) child++;
      if (heap[child]!.dueMs >= last.dueMs) break;
      heap[at] = heap[child]!;
      at = child;
    }
    heap[at] = last;
    return first;
  }
}
