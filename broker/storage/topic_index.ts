/**
 * Where the messages of one topic are in the log: per log file a run of consecutive offsets, each
 * with the position of its record inside the file. Four bytes a message; a run goes when its file
 * does. An offset that damage took is marked, so that a channel passes over it.
 */
import { invariant } from "@sluice/shared/runtime";

/** `position` of an offset that cannot be read any more. */
export const MISSING = -1;
const MISSING_WORD = 0xffffffff;

/** The messages of a topic in one log file. */
export class IndexRun {
  readonly fileStart: number;
  readonly firstOffset: number;
  count = 0;
  /** Deferred messages of the run, as pairs: index in the run, Unix ms. */
  readonly due: number[] = [];
  /** Record positions relative to `fileStart`; the first `count` are in use. */
  words: Uint32Array;

  constructor(fileStart: number, firstOffset: number, words?: Uint32Array) {
    this.fileStart = fileStart;
    this.firstOffset = firstOffset;
    this.words = words ?? new Uint32Array(16);
    this.count = words?.length ?? 0;
  }

  get endOffset(): number {
    return this.firstOffset + this.count;
  }

  /** Adds the message at `position`; offsets between that are not here are missing. */
  add(offset: number, position: number, dueMs: number): void {
    invariant(offset >= this.endOffset, "a topic's offsets only grow");
    while (this.endOffset < offset) this.push(MISSING_WORD);
    if (dueMs !== 0) this.due.push(this.count, dueMs);
    this.push(position - this.fileStart);
  }

  push(word: number): void {
    if (this.count === this.words.length) {
      const larger = new Uint32Array(Math.max(16, this.words.length * 2));
      larger.set(this.words);
      this.words = larger;
    }
    this.words[this.count++] = word;
  }
}

/** The runs of one topic, oldest first, without a gap between them. */
export class TopicIndex {
  readonly #runs: IndexRun[] = [];
  #last: IndexRun | null = null;
  #found: IndexRun | null = null;

  get runs(): readonly IndexRun[] {
    return this.#runs;
  }

  /** The oldest offset that has a position, or `fallback` when there is none. */
  firstOffset(fallback: number): number {
    return this.#runs[0]?.firstOffset ?? fallback;
  }

  /** Adds the next offset. `offset` must follow the last one or, after damage, lie beyond it. */
  append(offset: number, fileStart: number, position: number, dueMs: number): void {
    let run = this.#last;
    if (run === null || run.fileStart !== fileStart) {
      run = new IndexRun(fileStart, run?.endOffset ?? offset);
      this.#addRun(run);
    }
    run.add(offset, position, dueMs);
  }

  /** Adds a whole run read from a sidecar; runs come in the order of their files. */
  addRun(run: IndexRun): void {
    const last = this.#last;
    invariant(last === null || last.fileStart < run.fileStart, "runs come in file order");
    if (last !== null && run.firstOffset > last.endOffset) {
      while (last.endOffset < run.firstOffset) last.push(MISSING_WORD);
    }
    this.#addRun(run);
  }

  /** The log position of an offset's record, or {@linkcode MISSING}. */
  position(offset: number): number {
    let run = this.#found;
    if (run === null || offset < run.firstOffset || offset >= run.endOffset) {
      run = this.#find(offset);
      if (run === null) return MISSING;
      this.#found = run;
    }
    const word = run.words[offset - run.firstOffset]!;
    return word === MISSING_WORD ? MISSING : run.fileStart + word;
  }

  /** The offset after the last one of the file that starts at `fileStart` or any before it. */
  endOffsetOf(fileStart: number): number {
    return this.#runs.findLast((run) => run.fileStart <= fileStart)?.endOffset ?? 0;
  }

  /** Forgets the run of a file that is gone. */
  dropFile(fileStart: number): void {
    const first = this.#runs[0];
    if (first === undefined || first.fileStart !== fileStart) return;
    this.#runs.shift();
    if (this.#last === first) this.#last = null;
    if (this.#found === first) this.#found = null;
  }

  #addRun(run: IndexRun): void {
    this.#runs.push(run);
    this.#last = run;
  }

  #find(offset: number): IndexRun | null {
    let low = 0;
    let high = this.#runs.length - 1;
    while (low <= high) {
      const middle = (low + high) >>> 1;
      const run = this.#runs[middle]!;
      if (offset < run.firstOffset) high = middle - 1;
      else if (offset >= run.endOffset) low = middle + 1;
      else return run;
    }
    return null;
  }
}
