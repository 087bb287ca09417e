/**
 * Reads records back: from the ring while they are hot, else from a bounded cache of log pages. A
 * page is loaded once however many readers want it, together with some pages behind it, since a
 * reader that lags reads on. Nothing here verifies; records carry their own checksum.
 */
import type { CommitLog } from "./commit_log.ts";
import type { LogStore } from "./log_store.ts";

/** Sizes of a {@linkcode LogReader}. */
export interface LogReaderOptions {
  /** Memory for pages; never less than two of the largest records need. */
  readonly cacheBytes: number;
  /** The largest record that is to be expected. A larger one is read all the same, and not kept. */
  readonly recordBytesMax: number;
}

export const PAGE_BYTES = 128 * 1024;
/** Pages fetched behind the one that was asked for. */
const PAGES_AHEAD = 3;

interface Page {
  readonly bytes: Uint8Array;
  /** Bytes filled; fewer than a page where the log ended when it was loaded. */
  length: number;
}

/** Gives views of log bytes by position. */
export class LogReader {
  /** The bytes that the last successful `view` found, at `start`. Valid until the next `view` or append. */
  bytes: Uint8Array;
  start = 0;

  readonly #log: CommitLog;
  readonly #store: LogStore;
  readonly #pagesMax: number;
  readonly #pages = new Map<number, Page>();
  readonly #loading = new Map<number, Promise<void>>();
  #joined = new Uint8Array(4096);

  constructor(log: CommitLog, store: LogStore, options: LogReaderOptions) {
    this.#log = log;
    this.#store = store;
    const recordPages = Math.ceil(options.recordBytesMax / PAGE_BYTES) + 1;
    this.#pagesMax = Math.max(2 * recordPages, Math.floor(options.cacheBytes / PAGE_BYTES));
    this.bytes = log.ring;
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
    const first = Math.floor(position / PAGE_BYTES);
    const last = Math.floor((position + length - 1) / PAGE_BYTES);
    const offset = position - first * PAGE_BYTES;
    if (first === last) {
      const page = this.#pages.get(first);
      if (page === undefined || page.length < offset + length) return false;
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
        loading = this.#fetch(page, Math.max(last - page, PAGES_AHEAD), pagesMax);
        this.#loading.set(page, loading);
      }
      await loading;
    }
  }

  /** Forgets pages of a file that is gone. */
  forget(start: number, end: number): void {
    for (const page of [...this.#pages.keys()]) {
      if (page * PAGE_BYTES >= start && (page + 1) * PAGE_BYTES <= end) this.#pages.delete(page);
    }
  }

  async #fetch(page: number, ahead: number, pagesMax: number): Promise<void> {
    try {
      const count = Math.min(ahead + 1, pagesMax - 1);
      const start = page * PAGE_BYTES;
      const run = new Uint8Array(count * PAGE_BYTES);
      // A page may begin in a file that is gone: nobody asks for that part, but for what follows it.
      const gone = (this.#store.files[0]?.start ?? 0) - start;
      let filled = Math.min(Math.max(0, gone), run.length);
      while (filled < run.length) {
        const read = await this.#store.read(start + filled, run.subarray(filled));
        if (read === 0) break;
        filled += read;
      }
      for (let index = 0; index * PAGE_BYTES < filled; index++) {
        const from = index * PAGE_BYTES;
        const known = this.#pages.get(page + index);
        const length = Math.min(PAGE_BYTES, filled - from);
        if (known !== undefined && known.length >= length) continue;
        this.#pages.delete(page + index);
        // A copy, since a view would keep the whole run in memory as long as any page of it.
        this.#pages.set(page + index, { bytes: run.slice(from, from + PAGE_BYTES), length });
      }
      for (const oldest of this.#pages.keys()) {
        if (this.#pages.size <= pagesMax) break;
        this.#pages.delete(oldest);
      }
    } finally {
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
