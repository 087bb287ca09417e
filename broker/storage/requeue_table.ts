/**
 * What a channel owes again: by offset, how often it was delivered and when it is due. Like the
 * finished set it is cut in pages of 32768 offsets, so that it grows without a pause, gives memory
 * back, and forgets a range at the cost of its pages. A page is a small hash table in typed arrays,
 * about 20 bytes an entry: a million of them are no work for the garbage collector.
 */
import { PAGE_OFFSETS } from "./finished_page.ts";

/** A requeue that is not finished: how often it was delivered and when it is due, Unix ms (0: at once). */
export interface Owed {
  readonly attempts: number;
  readonly dueMs: number;
}

const NO_ENTRIES = new Float64Array();
const SLOTS_MIN = 8;
/** Of the slots of a page, at most so many are in use. */
const FULL_SHARE = 3 / 4;
const HASH_FACTOR = 0x9e3779b1;

/** The entries of one page, by offset within it; open addressing with linear probing. */
class RequeuePage {
  count = 0;
  /** Offset within the page + 1; 0 is empty. */
  #keys = new Uint16Array(SLOTS_MIN);
  #attempts = new Uint32Array(SLOTS_MIN);
  #dueMs = new Float64Array(SLOTS_MIN);

  get heldBytes(): number {
    return this.#keys.byteLength + this.#attempts.byteLength + this.#dueMs.byteLength;
  }

  has(key: number): boolean {
    return this.#keys[this.#find(key)] !== 0;
  }

  get(key: number): Owed | undefined {
    const slot = this.#find(key);
    if (this.#keys[slot] === 0) return undefined;
    return { attempts: this.#attempts[slot]!, dueMs: this.#dueMs[slot]! };
  }

  set(key: number, attempts: number, dueMs: number): void {
    let slot = this.#find(key);
    if (this.#keys[slot] === 0) {
      if (this.count + 1 > this.#keys.length * FULL_SHARE) {
        this.#grow();
        slot = this.#find(key);
      }
      this.#keys[slot] = key;
      this.count++;
    }
    this.#attempts[slot] = attempts;
    this.#dueMs[slot] = dueMs;
  }

  delete(key: number): boolean {
    let hole = this.#find(key);
    if (this.#keys[hole] === 0) return false;
    this.count--;
    const mask = this.#keys.length - 1;
    // Entries behind it that would not be found any more move up.
    for (let at = (hole + 1) & mask; this.#keys[at] !== 0; at = (at + 1) & mask) {
      const home = this.#home(this.#keys[at]!);
      if (((at - home) & mask) < ((at - hole) & mask)) continue;
      this.#move(at, hole);
      hole = at;
    }
    this.#keys[hole] = 0;
    return true;
  }

  /** A copy of the entries as key, attempts and due time in turn, in no order. */
  entries(): Float64Array {
    const entries = new Float64Array(this.count * 3);
    let at = 0;
    for (let slot = 0; slot < this.#keys.length; slot++) {
      if (this.#keys[slot] === 0) continue;
      entries[at++] = this.#keys[slot]!;
      entries[at++] = this.#attempts[slot]!;
      entries[at++] = this.#dueMs[slot]!;
    }
    return entries;
  }

  #home(key: number): number {
    return (Math.imul(key, HASH_FACTOR) >>> 16) & (this.#keys.length - 1);
  }

  /** The slot of a key, or the empty one where it goes. */
  #find(key: number): number {
    const keys = this.#keys;
    const mask = keys.length - 1;
    let slot = this.#home(key);
    while (keys[slot] !== 0 && keys[slot] !== key) slot = (slot + 1) & mask;
    return slot;
  }

  #move(from: number, to: number): void {
    this.#keys[to] = this.#keys[from]!;
    this.#attempts[to] = this.#attempts[from]!;
    this.#dueMs[to] = this.#dueMs[from]!;
  }

  #grow(): void {
    const entries = this.entries();
    const slots = this.#keys.length * 2;
    this.#keys = new Uint16Array(slots);
    this.#attempts = new Uint32Array(slots);
    this.#dueMs = new Float64Array(slots);
    this.count = 0;
    for (let at = 0; at < entries.length; at += 3) {
      this.set(entries[at]!, entries[at + 1]!, entries[at + 2]!);
    }
  }
}

/** See the module. Offsets are integers from 0 to 2^48 - 1. */
export class RequeueTable {
  readonly #pages = new Map<number, RequeuePage>();
  #size = 0;

  get size(): number {
    return this.#size;
  }

  /** Memory that holds entries. */
  get heldBytes(): number {
    let total = 0;
    for (const page of this.#pages.values()) total += page.heldBytes;
    return total;
  }

  has(offset: number): boolean {
    return this.#size > 0 && this.#page(offset)?.has(keyOf(offset)) === true;
  }

  get(offset: number): Owed | undefined {
    return this.#page(offset)?.get(keyOf(offset));
  }

  set(offset: number, attempts: number, dueMs: number): void {
    let page = this.#page(offset);
    if (page === undefined) {
      page = new RequeuePage();
      this.#pages.set(Math.floor(offset / PAGE_OFFSETS), page);
    }
    const before = page.count;
    page.set(keyOf(offset), attempts, dueMs);
    this.#size += page.count - before;
  }

  delete(offset: number): boolean {
    const page = this.#page(offset);
    if (page === undefined || !page.delete(keyOf(offset))) return false;
    this.#size--;
    if (page.count === 0) this.#pages.delete(Math.floor(offset / PAGE_OFFSETS));
    return true;
  }

  /** Forgets those of `[from, to)`; pages that lie in it whole cost nothing per entry. */
  deleteRange(from: number, to: number): void {
    for (const [number, page] of this.#pages) {
      const base = number * PAGE_OFFSETS;
      if (base >= to || base + PAGE_OFFSETS <= from) continue;
      if (base >= from && base + PAGE_OFFSETS <= to) {
        this.#size -= page.count;
        this.#pages.delete(number);
        continue;
      }
      const entries = page.entries();
      for (let at = 0; at < entries.length; at += 3) {
        const offset = base + entries[at]! - 1;
        if (offset >= from && offset < to) this.delete(offset);
      }
    }
  }

  /**
   * The entries in no order. The table may change while it is walked: of each page that was there at
   * first, what is in it when the walk comes to it is shown, as it is then.
   */
  *[Symbol.iterator](): Generator<[number, Owed], void, void> {
    for (const number of [...this.#pages.keys()]) {
      const entries = this.#pages.get(number)?.entries() ?? NO_ENTRIES;
      for (let at = 0; at < entries.length; at += 3) {
        const offset = number * PAGE_OFFSETS + entries[at]! - 1;
        yield [offset, { attempts: entries[at + 1]!, dueMs: entries[at + 2]! }];
      }
    }
  }

  #page(offset: number): RequeuePage | undefined {
    return this.#pages.get(Math.floor(offset / PAGE_OFFSETS));
  }
}

function keyOf(offset: number): number {
  return offset % PAGE_OFFSETS + 1;
}
