/**
 * What a channel has handed out and not got back: one slot a delivery, found by the message's
 * sequence, and one list per consumer in the order of deadlines. Everything is in typed arrays, so a
 * delivery allocates nothing.
 */
import { invariant } from "@sluice/shared/runtime";

const NONE = -1;

/** A consumer's deliveries, earliest deadline first. Owned by the consumer, kept by the table. */
export class DeliveryList {
  head = NONE;
  tail = NONE;
  count = 0;
}

/** Slots are numbers valid from `insert` until `remove`. Times are monotonic ms. */
export class InFlightTable {
  #size = 0;
  #free = NONE;
  #slots = 0;
  #sequences = new Float64Array(0);
  #offsets = new Float64Array(0);
  #deadlines = new Float64Array(0);
  #delivered = new Float64Array(0);
  /** When messages were published, Unix ms; of no slots unless somebody wants to know. */
  #timestamps = new Float64Array(0);
  readonly #keepsTimestamps: boolean;
  #attempts = new Uint32Array(0);
  #owners = new Int32Array(0);
  #previous = new Int32Array(0);
  #next = new Int32Array(0);
  /** Slot + 1 by hash, linear probing; 0 is empty. At most half full. */
  #table = new Int32Array(32);

  constructor(keepsTimestamps = false) {
    this.#keepsTimestamps = keepsTimestamps;
    this.#growSlots(16);
  }

  get size(): number {
    return this.#size;
  }

  /**
   * Adds a delivery at the end of its consumer's list, or earlier if its deadline is; returns its
   * slot.
   */
  insert(
    sequence: number,
    offset: number,
    owner: number,
    list: DeliveryList,
    attempts: number,
    nowMs: number,
    deadlineMs: number,
  ): number {
    if (this.#free === NONE) this.#growSlots(this.#slots * 2);
    if ((this.#size + 1) * 2 > this.#table.length) this.#growTable();
    const slot = this.#free;
    this.#free = this.#next[slot]!;
    this.#sequences[slot] = sequence;
    this.#offsets[slot] = offset;
    this.#attempts[slot] = attempts;
    this.#owners[slot] = owner;
    this.#delivered[slot] = nowMs;
    this.#deadlines[slot] = deadlineMs;
    this.#link(list, slot);
    this.#enter(slot);
    this.#size++;
    return slot;
  }

  /** The slot of a sequence, or -1. */
  find(sequence: number): number {
    const mask = this.#table.length - 1;
    let at = hash(sequence) & mask;
    while (true) {
      const entry = this.#table[at]!;
      if (entry === 0) return NONE;
      if (this.#sequences[entry - 1] === sequence) return entry - 1;
      at = (at + 1) & mask;
    }
  }

  /** Takes a delivery out. */
  remove(slot: number, list: DeliveryList): void {
    this.#unlink(list, slot);
    this.#erase(slot);
    this.#next[slot] = this.#free;
    this.#free = slot;
    this.#size--;
  }

  /** Moves a delivery's deadline. */
  extend(slot: number, list: DeliveryList, deadlineMs: number): void {
    this.#unlink(list, slot);
    this.#deadlines[slot] = deadlineMs;
    this.#link(list, slot);
  }

  owner(slot: number): number {
    return this.#owners[slot]!;
  }

  offset(slot: number): number {
    return this.#offsets[slot]!;
  }

  attempts(slot: number): number {
    return this.#attempts[slot]!;
  }

  /** The delivery behind one in its consumer's list, or -1. */
  next(slot: number): number {
    return this.#next[slot]!;
  }

  deliveredMs(slot: number): number {
    return this.#delivered[slot]!;
  }

  /** Notes when the message was published. For a table that keeps timestamps. */
  setTimestampMs(slot: number, timestampMs: number): void {
    this.#timestamps[slot] = timestampMs;
  }

  timestampMs(slot: number): number {
    return this.#timestamps[slot]!;
  }

  deadlineMs(slot: number): number {
    return this.#deadlines[slot]!;
  }

  #link(list: DeliveryList, slot: number): void {
    const deadlineMs = this.#deadlines[slot]!;
    let after = list.tail;
    while (after !== NONE && this.#deadlines[after]! > deadlineMs) after = this.#previous[after]!;
    const before = after === NONE ? list.head : this.#next[after]!;
    this.#previous[slot] = after;
    this.#next[slot] = before;
    if (after === NONE) list.head = slot;
    else this.#next[after] = slot;
    if (before === NONE) list.tail = slot;
    else this.#previous[before] = slot;
    list.count++;
  }

  #unlink(list: DeliveryList, slot: number): void {
    const before = this.#previous[slot]!;
    const after = this.#next[slot]!;
    if (before === NONE) list.head = after;
    else this.#next[before] = after;
    if (after === NONE) list.tail = before;
    else this.#previous[after] = before;
    list.count--;
  }

  #enter(slot: number): void {
    const mask = this.#table.length - 1;
    let at = hash(this.#sequences[slot]!) & mask;
    while (this.#table[at] !== 0) at = (at + 1) & mask;
    this.#table[at] = slot + 1;
  }

  /** Removes a slot from the table and moves back those behind it that would not be found any more. */
  #erase(slot: number): void {
    const mask = this.#table.length - 1;
    let hole = hash(this.#sequences[slot]!) & mask;
    while (this.#table[hole] !== slot + 1) {
      invariant(this.#table[hole] !== 0, "a delivery is in the table");
      hole = (hole + 1) & mask;
    }
    let at = hole;
    while (true) {
      at = (at + 1) & mask;
      const entry = this.#table[at]!;
      if (entry === 0) break;
      const home = hash(this.#sequences[entry - 1]!) & mask;
      if (((at - home) & mask) >= ((at - hole) & mask)) {
        this.#table[hole] = entry;
        hole = at;
      }
    }
    this.#table[hole] = 0;
  }

  #growTable(): void {
    const old = this.#table;
    this.#table = new Int32Array(old.length * 2);
    for (const entry of old) if (entry !== 0) this.#enter(entry - 1);
  }

  #growSlots(slots: number): void {
    this.#sequences = grown(this.#sequences, new Float64Array(slots));
    this.#offsets = grown(this.#offsets, new Float64Array(slots));
    this.#deadlines = grown(this.#deadlines, new Float64Array(slots));
    this.#delivered = grown(this.#delivered, new Float64Array(slots));
    if (this.#keepsTimestamps) {
      this.#timestamps = grown(this.#timestamps, new Float64Array(slots));
    }
    this.#attempts = grown(this.#attempts, new Uint32Array(slots));
    this.#owners = grown(this.#owners, new Int32Array(slots));
    this.#previous = grown(this.#previous, new Int32Array(slots));
    this.#next = grown(this.#next, new Int32Array(slots));
    for (let slot = slots - 1; slot >= this.#slots; slot--) {
      this.#next[slot] = this.#free;
      this.#free = slot;
    }
    this.#slots = slots;
  }
}

function grown<T extends Float64Array | Uint32Array | Int32Array>(from: T, into: T): T {
  into.set(from);
  return into;
}

/** Spreads sequences, which come in runs, over the table. */
function hash(sequence: number): number {
  return Math.imul(sequence >>> 0, 0x9e3779b1) >>> 4;
}
