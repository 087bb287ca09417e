/**
 * Which messages of a topic a channel has finished: a floor, below which all are, and bitmap pages
 * for the sparse rest. One bit a message above the floor, nothing below it.
 */
import { invariant } from "@sluice/shared/runtime";
import {
  clearRun,
  countRun,
  fillRun,
  findRuns,
  firstClear,
  PAGE_OFFSETS,
  PAGE_WORDS,
} from "./finished_page.ts";

/**
 * A set of offsets that only grows. Offsets are integers from 0 to 2^48 - 1. A page of 4 KiB is held
 * for each 32768 offsets of which one above the floor is finished, and none below the floor's page.
 */
export class FinishedSet {
  #floor: number;
  #above = 0;
  #pages = new Map<number, Uint32Array>();
  #cachedNumber = -1;
  #cachedPage: Uint32Array | null = null;

  constructor(floor: number) {
    this.#floor = floor;
  }

  /** Everything below is finished; the offset itself is not. */
  get floor(): number {
    return this.#floor;
  }

  /** Memory held by pages. */
  get pagesBytes(): number {
    return this.#pages.size * PAGE_WORDS * 4;
  }

  /** Finished offsets above the floor. */
  get above(): number {
    return this.#above;
  }

  has(offset: number): boolean {
    if (offset < this.#floor) return true;
    const page = this.#page(Math.floor(offset / PAGE_OFFSETS));
    if (page === null) return false;
    const bit = offset % PAGE_OFFSETS;
    return (page[bit >>> 5]! & (1 << (bit & 31))) !== 0;
  }

  /** Adds one offset; false when it was there already. */
  add(offset: number): boolean {
    if (offset < this.#floor) return false;
    if (offset === this.#floor) {
      this.#floor++;
      if (this.#floor % PAGE_OFFSETS === 0) this.#drop(this.#floor / PAGE_OFFSETS - 1);
      this.#advance();
      return true;
    }
    const number = Math.floor(offset / PAGE_OFFSETS);
    const page = this.#page(number) ?? this.#makePage(number);
    const bit = offset % PAGE_OFFSETS;
    const mask = 1 << (bit & 31);
    const word = page[bit >>> 5]!;
    if ((word & mask) !== 0) return false;
    page[bit >>> 5] = word | mask;
    this.#above++;
    return true;
  }

  /** Adds `[from, to)`. Costs a page for each 32768 offsets when the floor does not reach it. */
  addRange(from: number, to: number): void {
    if (from <= this.#floor) {
      this.raise(to);
      return;
    }
    while (from < to) {
      const number = Math.floor(from / PAGE_OFFSETS);
      const base = number * PAGE_OFFSETS;
      const end = Math.min(to, base + PAGE_OFFSETS);
      const page = this.#page(number) ?? this.#makePage(number);
      this.#above += fillRun(page, from - base, end - base);
      from = end;
    }
  }

  /** Makes everything below `floor` finished; costs nothing per message. */
  raise(floor: number): void {
    if (floor <= this.#floor) return;
    const keep = Math.floor(floor / PAGE_OFFSETS);
    const all = this.#pages.size;
    let dropped = 0;
    for (const number of this.#pages.keys()) if (number < keep) dropped++;
    // What is dropped is counted, or what stays: the lesser of the two.
    const countsLeft = all - dropped < dropped;
    for (const [number, page] of this.#pages) {
      if (number > keep) continue;
      const end = number === keep ? floor % PAGE_OFFSETS : PAGE_OFFSETS;
      if (!countsLeft) this.#above -= countRun(page, 0, end);
      if (number < keep) this.#drop(number);
      else clearRun(page, 0, end);
    }
    if (countsLeft) {
      this.#above = 0;
      for (const page of this.#pages.values()) this.#above += countRun(page, 0, PAGE_OFFSETS);
    }
    this.#floor = floor;
    this.#advance();
  }

  /** The first offset of `[from, to)` that is not finished; `to` when there is none, `from` when that is beyond. */
  firstMissing(from: number, to: number): number {
    let offset = Math.max(from, this.#floor);
    while (offset < to) {
      const page = this.#page(Math.floor(offset / PAGE_OFFSETS));
      if (page === null) return offset;
      const bit = firstClear(page, offset % PAGE_OFFSETS);
      offset += bit - offset % PAGE_OFFSETS;
      if (bit < PAGE_OFFSETS) break;
    }
    return Math.max(from, Math.min(offset, to));
  }

  /** Finished offsets of `[from, to)`. */
  count(from: number, to: number): number {
    let total = Math.max(0, Math.min(to, this.#floor) - from);
    const start = Math.max(from, this.#floor);
    for (const [number, page] of this.#pages) {
      const base = number * PAGE_OFFSETS;
      const low = Math.max(0, start - base);
      const high = Math.min(PAGE_OFFSETS, to - base);
      if (low < high) total += countRun(page, low, high);
    }
    return total;
  }

  /**
   * The pages with their numbers, in no order. It may be walked while the set changes: then it shows
   * a page as it is when its turn comes, and none that is gone by then.
   */
  pages(): MapIterator<[number, Uint32Array]> {
    return this.#pages.entries();
  }

  /** Adds a page as {@linkcode pages} gave it, all above the floor, of a number that is not there; takes `page` over. */
  addPage(number: number, page: Uint32Array): void {
    invariant(!this.#pages.has(number), "a page is added once");
    this.#pages.set(number, page);
    this.#above += countRun(page, 0, PAGE_OFFSETS);
  }

  /** Clears those bits of a page's bitmap `into`, in the words `[first, last]`, that are not finished. */
  intersect(number: number, into: Uint32Array, first: number, last: number): void {
    const floorBit = this.#floor - number * PAGE_OFFSETS;
    if (floorBit >= PAGE_OFFSETS) return;
    const page = this.#page(number);
    for (let word = first; word <= last; word++) {
      const below = floorBit - word * 32;
      if (below >= 32) continue;
      const finished = page === null ? 0 : page[word]!;
      into[word] = into[word]! & (below > 0 ? finished | ((1 << below) - 1) : finished);
    }
  }

  /** How many pages there are. */
  get pageCount(): number {
    return this.#pages.size;
  }

  /** The finished ranges above the floor as pairs `from, to`, ascending. */
  ranges(): number[] {
    const pairs: number[] = [];
    const runs = new Uint16Array(PAGE_OFFSETS);
    const pages = [...this.#pages].sort(([a], [b]) => a - b);
    for (const [number, page] of pages) {
      const base = number * PAGE_OFFSETS;
      const count = findRuns(page, runs);
      for (let at = 0; at < 2 * count; at += 2) {
        const from = base + runs[at]!;
        const to = base + runs[at + 1]! + 1;
        if (pairs.at(-1) === from) pairs[pairs.length - 1] = to;
        else pairs.push(from, to);
      }
    }
    return pairs;
  }

  #page(number: number): Uint32Array | null {
    if (number === this.#cachedNumber) return this.#cachedPage;
    const page = this.#pages.get(number);
    if (page === undefined) return null;
    this.#cachedNumber = number;
    this.#cachedPage = page;
    return page;
  }

  #makePage(number: number): Uint32Array {
    const page = new Uint32Array(PAGE_WORDS);
    this.#pages.set(number, page);
    this.#cachedNumber = number;
    this.#cachedPage = page;
    return page;
  }

  /** Moves the floor over finished offsets and drops the pages it leaves. */
  #advance(): void {
    while (this.#above > 0) {
      const number = Math.floor(this.#floor / PAGE_OFFSETS);
      const page = this.#page(number);
      if (page === null) return;
      let bit = this.#floor % PAGE_OFFSETS;
      const before = bit;
      while (bit < PAGE_OFFSETS && (page[bit >>> 5]! & (1 << (bit & 31))) !== 0) bit++;
      this.#above -= bit - before;
      this.#floor += bit - before;
      if (bit < PAGE_OFFSETS) {
        // What the floor has passed must not be counted again.
        if (bit > before) clearRun(page, before, bit);
        return;
      }
      this.#drop(number);
    }
  }

  #drop(number: number): void {
    this.#pages.delete(number);
    if (this.#cachedNumber === number) {
      this.#cachedNumber = -1;
      this.#cachedPage = null;
    }
  }
}

/** What all sets have finished of a page; used within one call. */
const COMMON = new Uint32Array(PAGE_WORDS);

/** The offsets of `[from, to)` that at least one of the sets does not have; goes by words of 32. */
export function countUnfinished(
  sets: readonly FinishedSet[],
  from: number,
  to: number,
): number {
  if (sets.length === 0) return 0;
  // What every one has below its floor needs no bitmap.
  let start = Math.max(from, sets.reduce((floor, set) => Math.min(floor, set.floor), Infinity));
  let count = 0;
  const all = COMMON;
  while (start < to) {
    const number = Math.floor(start / PAGE_OFFSETS);
    const base = number * PAGE_OFFSETS;
    const end = Math.min(to, base + PAGE_OFFSETS);
    const [first, last] = [(start - base) >>> 5, (end - 1 - base) >>> 5];
    all.fill(0xffffffff, first, last + 1);
    for (const set of sets) set.intersect(number, all, first, last);
    count += end - start - countRun(all, start - base, end - base);
    start = end;
  }
  return count;
}
