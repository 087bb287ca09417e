/**
 * Reads records back: from the ring while they are hot, else from a bounded cache of log pages. A
 * page is loaded once however many readers want it. A reader that comes from the page before gets some
 * pages behind it in the same read, since one that lags reads on; but not while such pages are pushed
 * out again before anybody has looked at them, as when many readers lag at different places.
 * Nothing here verifies; records carry their own checksum.
 */
import type { Clock } from "../runtime/mod.ts";
import { Histogram, LATENCY_BOUNDS_SECONDS } from "../telemetry/mod.ts";
import type { CommitLog } from "./commit_log.ts";
import type { LogStore } from "./log_store.ts";

/** Sizes of a {@linkcode LogReader}. */
export interface LogReaderOptions {
  /** Memory for pages; never less than two of the largest records need. */
  readonly cacheBytes: number;
  /** The largest record that is to be expected. A larger one is read all the same, and not kept. */
  readonly recordBytesMax: number;
  /** Measures {@linkcode LogReader.readSeconds}; nothing is measured without. */
  readonly clock?: Pick<Clock, "monoMs">;
}

export const PAGE_BYTES = 128 * 1024;
/** Pages fetched behind the one that was asked for, at most. */
const PAGES_AHEAD_MAX = 3;
/** After so many pages that were of use, or reads that might have been spared, one more is tried. */
const AHEAD_HITS = 8;
const AHEAD_MISSES = 32;

interface Page {
  readonly bytes: Uint8Array;
  /** Bytes filled; fewer than a page where the log ended when it was loaded. */
  length: number;
  /** Nobody has asked for it yet. */
  isAhead: boolean;
}

/** Pages `[first, end)` that are being read. */
interface Fetch {
  readonly first: number;
  readonly end: number;
  /** What it brings is not, or not all, what the log holds by now. */
  isStale: boolean;
}

/** Gives views of log bytes by position. */
export class LogReader {
  /** The bytes that the last successful `view` found, at `start`. Valid until the next `view` or append. */
  bytes: Uint8Array;
  start = 0;
  /** Looks for what is not hot, by whether the pages were there. */
  hits = 0;
  misses = 0;
  /** How long reads from disk took. */
  readonly readSeconds = new Histogram(LATENCY_BOUNDS_SECONDS);

  readonly #clock: Pick<Clock, "monoMs"> | null;
  readonly #log: CommitLog;
  readonly #store: LogStore;
  readonly #recordPages: number;
  readonly #pagesMax: number;
  readonly #pages = new Map<number, Page>();
  readonly #loading = new Map<number, Promise<void>>();
  readonly #fetches = new Set<Fetch>();
  #joined = new Uint8Array(4096);
  /** Pages that are fetched behind one whose reader reads on. */
  #ahead = PAGES_AHEAD_MAX;
  #aheadScore = 0;

  constructor(log: CommitLog, store: LogStore, options: LogReaderOptions) {
    this.#clock = options.clock ?? null;
    this.#log = log;
    this.#store = store;
    this.#recordPages = Math.ceil(options.recordBytesMax / PAGE_BYTES) + 1;
    this.#pagesMax = Math.max(2 * this.#recordPages, Math.floor(options.cacheBytes / PAGE_BYTES));
    this.bytes = log.ring;
  }

  /** Records that may be loaded at a time, be they the largest, while others are loaded. */
  get loadsMax(): number {
    return Math.floor(this.#pagesMax / (2 * this.#recordPages));
  }

  /** Memory held by pages. */
  get cachedBytes(): number {
    return this.#pages.size * PAGE_BYTES;
  }

  /**
   * Points `bytes` and `start` at `[position, position + length)` and returns true, or returns false
   * when it has to be loaded first. A hot range lies within one record, so it does not wrap.
   */
  view(position: number, length: number): boolean {
    if (position >= this.#log.hotStart) {
      this.bytes = this.#log.ring;
      this.start = position & this.#log.mask;
      return true;
    }
    if (this.#viewCold(position, length)) {
      this.hits++;
      return true;
    }
    this.misses++;
    return false;
  }

  #viewCold(position: number, length: number): boolean {
    const first = Math.floor(position / PAGE_BYTES);
    const last = Math.floor((position + length - 1) / PAGE_BYTES);
    const offset = position - first * PAGE_BYTES;
    if (first === last) {
      const page = this.#pages.get(first);
      if (page === undefined || page.length < offset + length) return false;
      if (page.isAhead) this.#useful(page);
      this.bytes = page.bytes;
      this.start = offset;
      return true;
    }
    return this.#join(first, last, offset, length);
  }

  /** Loads what `view` did not find. Rejects when the disk does. */
  async load(position: number, length: number): Promise<void> {
    const first = Math.floor(position / PAGE_BYTES);
    const last = Math.floor((position + length - 1) / PAGE_BYTES);
    // What was written under a higher limit than today's has to be readable as well.
    const pagesMax = Math.max(this.#pagesMax, last - first + 2);
    for (let page = first; page <= last; page++) {
      const end = Math.min(PAGE_BYTES, position + length - page * PAGE_BYTES);
      const known = this.#pages.get(page);
      if (known !== undefined && known.length >= end) {
        // Touched, so that a record over several pages does not push out its own beginning.
        this.#pages.delete(page);
        this.#pages.set(page, known);
        continue;
      }
      let loading = this.#loading.get(page);
      if (loading === undefined) {
        const needed = last - page;
        loading = this.#fetch(page, needed, Math.max(needed, this.#aheadOf(page)), pagesMax);
        this.#loading.set(page, loading);
      }
      await loading;
    }
  }

  /** Forgets the pages of a file that is gone. */
  forget(start: number, end: number): void {
    this.#drop(Math.ceil(start / PAGE_BYTES), Math.floor(end / PAGE_BYTES));
  }

  /**
   * Forgets everything of a file that has been replaced: also pages that it shares with its
   * neighbours, and whatever is being loaded. Who waits for that does not find it and asks again.
   */
  replaced(start: number, end: number): void {
    this.#drop(Math.floor(start / PAGE_BYTES), Math.ceil(end / PAGE_BYTES));
  }

  /** Drops the pages `[first, end)`, and those of them that are on their way here. */
  #drop(first: number, end: number): void {
    for (const page of [...this.#pages.keys()]) {
      if (page >= first && page < end) this.#pages.delete(page);
    }
    for (const fetch of this.#fetches) {
      if (fetch.first < end && fetch.end > first) fetch.isStale = true;
    }
  }

  /** How many pages behind this one are worth reading with it. */
  #aheadOf(page: number): number {
    if (!this.#pages.has(page - 1)) return 0;
    if (this.#ahead === 0 && ++this.#aheadScore >= AHEAD_MISSES) {
      this.#ahead = 1;
      this.#aheadScore = 0;
    }
    return this.#ahead;
  }

  #useful(page: Page): void {
    page.isAhead = false;
    if (this.#ahead === PAGES_AHEAD_MAX || ++this.#aheadScore < AHEAD_HITS) return;
    this.#ahead++;
    this.#aheadScore = 0;
  }

  /** Reads a page, `needed` ones behind it that are asked for too, and others up to `ahead`. */
  async #fetch(page: number, needed: number, ahead: number, pagesMax: number): Promise<void> {
    const count = Math.min(ahead + 1, pagesMax - 1);
    const fetch = { first: page, end: page + count, isStale: false };
    this.#fetches.add(fetch);
    try {
      const start = page * PAGE_BYTES;
      const run = new Uint8Array(count * PAGE_BYTES);
      // A page may begin in a file that is gone: nobody asks for that part, but for what follows it.
      const gone = (this.#store.files[0]?.start ?? 0) - start;
      let filled = Math.min(Math.max(0, gone), run.length);
      const sinceMs = this.#clock?.monoMs() ?? NaN;
      while (filled < run.length) {
        const read = await this.#store.read(start + filled, run.subarray(filled));
        if (read === 0) break;
        filled += read;
      }
      this.readSeconds.observe(((this.#clock?.monoMs() ?? NaN) - sinceMs) / 1000);
      if (fetch.isStale) return;
      for (let index = 0; index * PAGE_BYTES < filled; index++) {
        const from = index * PAGE_BYTES;
        const known = this.#pages.get(page + index);
        const length = Math.min(PAGE_BYTES, filled - from);
        if (known !== undefined && known.length >= length) continue;
        this.#pages.delete(page + index);
        // A copy, since a view would keep the whole run in memory as long as any page of it.
        const bytes = count === 1 ? run : run.slice(from, from + PAGE_BYTES);
        this.#pages.set(page + index, { bytes, length, isAhead: index > needed });
      }
      for (const [oldest, { isAhead }] of this.#pages) {
        if (this.#pages.size <= pagesMax) break;
        this.#pages.delete(oldest);
        if (isAhead) this.#ahead = Math.max(0, this.#ahead - 1);
      }
    } finally {
      this.#fetches.delete(fetch);
      this.#loading.delete(page);
    }
  }

  #join(first: number, last: number, offset: number, length: number): boolean {
    if (this.#joined.length < length) this.#joined = new Uint8Array(length);
    let filled = 0;
    for (let number = first; number <= last; number++) {
      const page = this.#pages.get(number);
      const from = number === first ? offset : 0;
      const want = Math.min(PAGE_BYTES - from, length - filled);
      if (page === undefined || page.length < from + want) return false;
      this.#joined.set(page.bytes.subarray(from, from + want), filled);
      filled += want;
    }
    this.bytes = this.#joined;
    this.start = 0;
    return true;
  }
}
