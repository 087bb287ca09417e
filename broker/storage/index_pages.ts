/**
 * Pages of sidecars in memory: what says where the messages of sealed files are, as far as somebody
 * has asked for it lately. Bounded in bytes; the page that was used least lately goes first. A page
 * is loaded once however many want it, and one that is damaged has its file's sidecar made again,
 * once at a time, while those who asked wait.
 */
import type { LogFileInfo, LogStore } from "@sluice/shared/log";
import { invariant } from "@sluice/shared/runtime";
import { FileUsage } from "./file_usage.ts";
import { NOT_LOADED } from "./index_word.ts";
import {
  decodeDirectory,
  decodeDue,
  decodeWords,
  DIRECTORY_HEADER_BYTES,
  directoryBytesOf,
  encodeSidecar,
  PAGE_ENTRIES,
  type SidecarDirectory,
  type SidecarRun,
} from "./sidecar.ts";
import type { SealedWords } from "./topic_index.ts";

/** What a page takes besides its words, about. */
const PAGE_OVERHEAD_BYTES = 160;
/** Held whatever the bound: one reader needs two at a time, and there may be some. */
const PAGES_MIN = 8;
/** Read at once in the hope that it is the whole directory. */
const DIRECTORY_READ_BYTES = 4096;
/** Due times are read in parts of about this size. */
const DUE_READ_BYTES = 1 << 20;
const NO_DUE = new Float64Array();

/** The cache. See the module. */
export class IndexPages {
  /** Makes the sidecar of a file again whose pages are damaged, and has its runs use it. */
  repair: (file: LogFileInfo) => Promise<void> = (file) =>
    Promise.reject(new Error(`The index of the log file at position ${file.start} is damaged`));

  /** What the files take, as sidecars and scans have told. */
  readonly usage = new FileUsage();
  /** Looks for a page, by whether it was there. */
  hits = 0;
  misses = 0;
  readonly #store: LogStore;
  readonly #bytesMax: number;
  readonly #pages = new Map<number, Uint32Array>();
  readonly #loading = new Map<number, Promise<void>>();
  readonly #repairing = new Map<number, Promise<void>>();
  /** Every sealed file's pages have keys of their own. */
  #nextKey = 0;
  #bytes = 0;
  #latestKey = -1;
  #latest: Uint32Array | null = null;

  constructor(store: LogStore, bytesMax: number) {
    this.#store = store;
    this.#bytesMax = bytesMax;
  }

  /**
   * Messages whose pages may be loaded at a time: each needs two, until after it was loaded, and others
   * are loaded meanwhile.
   */
  get loadsMax(): number {
    const pages = Math.floor(this.#bytesMax / (PAGE_ENTRIES * 4 + PAGE_OVERHEAD_BYTES));
    return Math.max(1, Math.floor(pages / PAGES_MIN));
  }

  /** Memory held by pages. */
  get cachedBytes(): number {
    return this.#bytes;
  }

  /** Reads the directory of a file's sidecar; null when it is missing, damaged or of another format. */
  async open(file: LogFileInfo): Promise<OpenedSidecar | null> {
    let bytes = new Uint8Array(DIRECTORY_READ_BYTES);
    let read = await this.#store.readSidecar(file, 0, bytes);
    const directoryBytes = directoryBytesOf(bytes.subarray(0, read));
    // Every run and page is of some record, so that a damaged count does not ask for all memory.
    const directoryBytesMax = DIRECTORY_HEADER_BYTES + 4 * (file.end - file.start);
    if (directoryBytes === null || directoryBytes > directoryBytesMax) return null;
    if (directoryBytes > read) {
      bytes = new Uint8Array(directoryBytes);
      read = await this.#store.readSidecar(file, 0, bytes);
    }
    const directory = decodeDirectory(bytes.subarray(0, read));
    if (directory === null) return null;
    this.usage.setHole(file.start, Math.max(0, file.end - file.start - directory.storedBytes));
    return { directory, sealed: this.#sealed(file, directory) };
  }

  /**
   * Writes the sidecar of a sealed file whose runs are in memory, and leaves them to it. Rejects when
   * the disk does; then they stay in memory.
   */
  async store(file: LogFileInfo, runs: readonly SidecarRun[]): Promise<OpenedSidecar> {
    const storedBytes = file.end - file.start - this.usage.holeOf(file.start);
    const bytes = encodeSidecar(runs, storedBytes);
    const directory = decodeDirectory(bytes);
    invariant(directory !== null, "what was encoded can be decoded");
    await this.#store.putSidecar(file, bytes);
    const sealed = this.#sealed(file, directory);
    for (const [index, { run }] of runs.entries()) {
      run.seal(sealed, directory.runs[index]!.firstPage);
    }
    return { directory, sealed };
  }

  /** The due times of each run of a sidecar as pairs of index and Unix ms; null when damaged. */
  async readDue({ directory, sealed }: OpenedSidecar): Promise<Float64Array[] | null> {
    const { bounds, runs } = directory;
    let buffer = new Uint8Array();
    let from = 0;
    const result: Float64Array[] = [];
    for (const { dueCount, firstDuePage } of runs) {
      const due = dueCount === 0 ? NO_DUE : new Float64Array(dueCount * 2);
      result.push(due);
      for (let done = 0, page = firstDuePage; done < dueCount; done += PAGE_ENTRIES, page++) {
        const [start, end] = [bounds[page]!, bounds[page + 1]!];
        if (end > from + buffer.length) {
          const wanted = Math.min(bounds.at(-1)! - start, Math.max(DUE_READ_BYTES, end - start));
          buffer = new Uint8Array(wanted);
          from = start;
          const read = await this.#store.readSidecar(sealed.file, from, buffer);
          buffer = buffer.subarray(0, read);
        }
        const bytes = buffer.subarray(start - from, end - from);
        const some = decodeDue(bytes, Math.min(PAGE_ENTRIES, dueCount - done));
        if (some === null) return null;
        due.set(some, done * 2);
      }
    }
    return result;
  }

  /** The words of a page, or undefined when it is not here. */
  find(key: number): Uint32Array | undefined {
    if (key === this.#latestKey) {
      this.hits++;
      return this.#latest!;
    }
    const words = this.#pages.get(key);
    if (words === undefined) {
      this.misses++;
      return undefined;
    }
    this.hits++;
    this.#pages.delete(key);
    this.#pages.set(key, words);
    this.#latestKey = key;
    this.#latest = words;
    return words;
  }

  /** Loads page `page` with `count` words; it may be gone again at once if many others are loaded. */
  load(sealed: SealedIndex, page: number, count: number): Promise<void> {
    const key = sealed.firstKey + page;
    if (this.#pages.has(key)) return Promise.resolve();
    let loading = this.#loading.get(key);
    if (loading === undefined) {
      loading = this.#load(sealed, page, count).finally(() => this.#loading.delete(key));
      this.#loading.set(key, loading);
    }
    return loading;
  }

  /** Forgets a page. */
  drop(key: number): void {
    const words = this.#pages.get(key);
    if (words === undefined) return;
    this.#pages.delete(key);
    this.#bytes -= words.byteLength + PAGE_OVERHEAD_BYTES;
    if (key !== this.#latestKey) return;
    this.#latestKey = -1;
    this.#latest = null;
  }

  async #load(sealed: SealedIndex, page: number, count: number): Promise<void> {
    const [start, end] = [sealed.bounds[page]!, sealed.bounds[page + 1]!];
    const bytes = new Uint8Array(end - start);
    const read = await this.#store.readSidecar(sealed.file, start, bytes);
    // Whoever waits for it looks in another place now, or for nothing.
    if (sealed.gone) return;
    const words = read < bytes.length ? null : decodeWords(bytes, count);
    if (words === null) await this.remake(sealed.file);
    else this.#keep(sealed.firstKey + page, words);
  }

  /** Makes the sidecar of a file again, once at a time. */
  remake(file: LogFileInfo): Promise<void> {
    let repairing = this.#repairing.get(file.start);
    if (repairing === undefined) {
      repairing = this.repair(file).finally(() => this.#repairing.delete(file.start));
      this.#repairing.set(file.start, repairing);
    }
    return repairing;
  }

  #keep(key: number, words: Uint32Array): void {
    this.#pages.set(key, words);
    this.#bytes += words.byteLength + PAGE_OVERHEAD_BYTES;
    for (const oldest of this.#pages.keys()) {
      if (this.#bytes <= this.#bytesMax || this.#pages.size <= PAGES_MIN) break;
      this.drop(oldest);
    }
  }

  #sealed(file: LogFileInfo, { bounds }: SidecarDirectory): SealedIndex {
    const sealed = new SealedIndex(this, file, bounds, this.#nextKey);
    this.#nextKey += bounds.length;
    return sealed;
  }
}

/** A sidecar whose directory was read. */
export interface OpenedSidecar {
  readonly directory: SidecarDirectory;
  readonly sealed: SealedIndex;
}

/** Where the runs of one sealed file find their words. */
export class SealedIndex implements SealedWords {
  /** Its file is gone, or it has been replaced. */
  gone = false;

  constructor(
    readonly pages: IndexPages,
    readonly file: LogFileInfo,
    /** See {@linkcode SidecarDirectory.bounds}. */
    readonly bounds: Uint32Array,
    /** Key of its first page in the cache. */
    readonly firstKey: number,
  ) {}

  word(firstPage: number, index: number): number {
    const page = firstPage + Math.floor(index / PAGE_ENTRIES);
    const words = this.pages.find(this.firstKey + page);
    return words === undefined ? NOT_LOADED : words[index % PAGE_ENTRIES]!;
  }

  load(firstPage: number, count: number, index: number): Promise<void> {
    const inRun = Math.floor(index / PAGE_ENTRIES);
    const left = count - inRun * PAGE_ENTRIES;
    return this.pages.load(this, firstPage + inRun, Math.min(PAGE_ENTRIES, left));
  }

  forget(): void {
    if (this.gone) return;
    this.gone = true;
    for (let page = 0; page < this.bounds.length - 1; page++) this.pages.drop(this.firstKey + page);
  }
}
