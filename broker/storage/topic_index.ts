/**
 * Where the messages of one topic are in the log: per log file a run of consecutive offsets, each
 * with the position of its record inside the file. The positions of a sealed file's run are in the
 * file's sidecar and read in pages when somebody asks for them, so that a backlog takes memory by the
 * file and not by the message; those of the file that takes appends are in memory. A run goes when
 * its file does. Between two runs, and within one, offsets can be missing: damage took them, or the
 * compaction of their file, after nobody was owed them. A channel passes over them.
 */
import { invariant } from "@sluice/shared/runtime";
import { MISSING, MISSING_WORD, NOT_LOADED } from "./index_word.ts";

const NO_WORDS = new Uint32Array();
const NO_DUE = new Float64Array();

/** Where the runs of a sealed file find their words: in the file's sidecar. */
export interface SealedWords {
  readonly file: { readonly start: number };
  /** The word at `index` of the run whose pages begin with `firstPage`, or {@linkcode NOT_LOADED}. */
  word(firstPage: number, index: number): number;
  /** Loads the page of that word; the run has `count` in all. Rejects when the disk does. */
  load(firstPage: number, count: number, index: number): Promise<void>;
  /** No run uses it any more. */
  forget(): void;
}

/** The messages of a topic in one log file. */
export class IndexRun {
  readonly fileStart: number;
  readonly firstOffset: number;
  count = 0;
  /** Messages that are there, and what their records take in the log. */
  messages = 0;
  bytes = 0;
  /** Record positions relative to `fileStart`, the first `count` in use; null: in the sidecar. */
  words: Uint32Array | null;
  #due: Float64Array;
  #dueLength: number;
  #sealed: SealedWords | null = null;
  /** The number of its first page in the sidecar. */
  #firstPage = 0;

  constructor(fileStart: number, firstOffset: number, words?: Uint32Array, due = NO_DUE) {
    this.fileStart = fileStart;
    this.firstOffset = firstOffset;
    this.words = words ?? new Uint32Array(16);
    this.count = words?.length ?? 0;
    this.messages = this.count;
    this.#due = due;
    this.#dueLength = due.length;
  }

  /** The run of a sealed file whose words are in its sidecar. */
  static sealed(
    firstOffset: number,
    count: number,
    sealed: SealedWords,
    firstPage: number,
    messages = count,
    bytes = 0,
  ): IndexRun {
    const run = new IndexRun(sealed.file.start, firstOffset, NO_WORDS);
    run.count = count;
    run.messages = messages;
    run.bytes = bytes;
    run.seal(sealed, firstPage);
    return run;
  }

  get endOffset(): number {
    return this.firstOffset + this.count;
  }

  /** Deferred messages as pairs, index in the run and Unix ms; in memory as long as the words are. */
  get due(): Float64Array {
    return this.#due.subarray(0, this.#dueLength);
  }

  /** Adds the message at `position`, of so many bytes; offsets between that are not here are missing. */
  add(offset: number, position: number, dueMs: number, bytes = 0): void {
    invariant(offset >= this.endOffset, "a topic's offsets only grow");
    while (this.endOffset < offset) this.#push(MISSING_WORD);
    if (dueMs !== 0) this.#pushDue(this.count, dueMs);
    this.#push(position - this.fileStart);
    this.messages++;
    this.bytes += bytes;
  }

  /** Leaves the words and due times to the sidecar, which is on disk. */
  seal(sealed: SealedWords, firstPage: number): void {
    this.words = null;
    this.#setDue(NO_DUE);
    this.#sealed = sealed;
    this.#firstPage = firstPage;
  }

  /**
   * Takes words and due times back into memory, from a run that was built again from the log file;
   * what that does not have is missing.
   */
  restore(found: IndexRun | undefined): void {
    const words = new Uint32Array(this.count).fill(MISSING_WORD);
    const due: number[] = [];
    if (found !== undefined && found.words !== null) {
      const shift = found.firstOffset - this.firstOffset;
      const isHere = (index: number) => index + shift >= 0 && index + shift < this.count;
      for (let index = 0; index < found.count; index++) {
        if (isHere(index)) words[index + shift] = found.words[index]!;
      }
      for (let pair = 0; pair < found.due.length; pair += 2) {
        const index = found.due[pair]!;
        if (isHere(index)) due.push(index + shift, found.due[pair + 1]!);
      }
    }
    this.words = words;
    this.#setDue(Float64Array.from(due));
    this.forget();
  }

  /** Its sidecar is gone or not to be used any more. */
  forget(): void {
    this.#sealed?.forget();
    this.#sealed = null;
  }

  /** The place of a message, {@linkcode MISSING_WORD} or {@linkcode NOT_LOADED}. */
  word(index: number): number {
    if (this.words !== null) return this.words[index]!;
    return this.#sealed!.word(this.#firstPage, index);
  }

  /** Has `word` of this message know it, if the disk does. Rejects when the disk does. */
  async load(index: number): Promise<void> {
    const before = this.#sealed;
    if (this.words === null) await before?.load(this.#firstPage, this.count, index);
    // It was damaged and made again, and is there to be read.
    const sealed = this.#sealed;
    if (sealed !== before) await sealed?.load(this.#firstPage, this.count, index);
  }

  #push(word: number): void {
    const { words } = this;
    invariant(words !== null, "a sealed file gets no more messages");
    if (this.count === words.length) {
      this.words = new Uint32Array(Math.max(16, words.length * 2));
      this.words.set(words);
    }
    this.words![this.count++] = word;
  }

  #pushDue(index: number, dueMs: number): void {
    if (this.#dueLength === this.#due.length) {
      const larger = new Float64Array(Math.max(16, this.#due.length * 2));
      larger.set(this.#due);
      this.#due = larger;
    }
    this.#due[this.#dueLength++] = index;
    this.#due[this.#dueLength++] = dueMs;
  }

  #setDue(due: Float64Array): void {
    this.#due = due;
    this.#dueLength = due.length;
  }
}

/** The runs of one topic, oldest first. Offsets between two of them are missing. */
export class TopicIndex {
  readonly #runs: IndexRun[] = [];
  #last: IndexRun | null = null;
  #found: IndexRun | null = null;
  #bytes = 0;

  /** What the records of all its messages take in the log, those that are finished but still there too. */
  get storedBytes(): number {
    return this.#bytes;
  }

  get runs(): readonly IndexRun[] {
    return this.#runs;
  }

  /** The oldest offset that has a position, or `fallback` when there is none. */
  firstOffset(fallback: number): number {
    return this.#runs[0]?.firstOffset ?? fallback;
  }

  /** Adds the next offset. `offset` must follow the last one or, after damage, lie beyond it. */
  append(offset: number, fileStart: number, position: number, dueMs: number, bytes = 0): void {
    let run = this.#last;
    if (run === null || run.fileStart !== fileStart) {
      invariant(run === null || offset >= run.endOffset, "a topic's offsets only grow");
      run = new IndexRun(fileStart, offset);
      this.#addRun(run);
    }
    run.add(offset, position, dueMs, bytes);
    this.#bytes += bytes;
  }

  /** Adds a whole run of a sealed file; runs come in the order of their files. */
  addRun(run: IndexRun): void {
    const last = this.#last;
    invariant(last === null || last.fileStart < run.fileStart, "runs come in file order");
    this.#addRun(run);
  }

  /** The log position of an offset's record, {@linkcode MISSING} or {@linkcode NOT_LOADED}. */
  position(offset: number): number {
    const run = this.#runOf(offset);
    if (run === null) return MISSING;
    const word = run.word(offset - run.firstOffset);
    if (word === NOT_LOADED) return NOT_LOADED;
    return word === MISSING_WORD ? MISSING : run.fileStart + word;
  }

  /**
   * Resolves when `position` of an offset is worth asking again after {@linkcode NOT_LOADED}. Rejects
   * when the disk does.
   */
  async load(offset: number): Promise<void> {
    const run = this.#runOf(offset);
    if (run !== null) await run.load(offset - run.firstOffset);
  }

  /** The run in the file that starts at `fileStart`. */
  runIn(fileStart: number): IndexRun | undefined {
    const run = this.#runs[this.#atOrBefore(fileStart)];
    return run?.fileStart === fileStart ? run : undefined;
  }

  /** The offset after the last one of the file that starts at `fileStart` or any before it. */
  endOffsetOf(fileStart: number): number {
    return this.#runs[this.#atOrBefore(fileStart)]?.endOffset ?? 0;
  }

  /** Has a file's run say something else: what is left of its messages, or nothing when null. */
  replaceRun(fileStart: number, run: IndexRun | null): void {
    const at = this.#atOrBefore(fileStart);
    const before = this.#runs[at];
    if (before === undefined || before.fileStart !== fileStart) return;
    this.#runs.splice(at, 1, ...(run === null ? [] : [run]));
    this.#bytes += (run?.bytes ?? 0) - before.bytes;
    this.#last = this.#runs.at(-1) ?? null;
    this.#found = null;
    before.forget();
  }

  /** Forgets the run of a file that is gone. */
  dropFile(fileStart: number): void {
    const first = this.#runs[0];
    if (first === undefined || first.fileStart !== fileStart) return;
    this.#runs.shift();
    if (this.#last === first) this.#last = null;
    if (this.#found === first) this.#found = null;
    this.#bytes -= first.bytes;
    first.forget();
  }

  /** Where the last run is whose file starts at `fileStart` or before; -1 when there is none. */
  #atOrBefore(fileStart: number): number {
    let low = 0;
    let high = this.#runs.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (this.#runs[middle]!.fileStart <= fileStart) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  }

  #addRun(run: IndexRun): void {
    this.#runs.push(run);
    this.#last = run;
    this.#bytes += run.bytes;
  }

  #runOf(offset: number): IndexRun | null {
    const found = this.#found;
    if (found !== null && offset >= found.firstOffset && offset < found.endOffset) return found;
    let low = 0;
    let high = this.#runs.length - 1;
    while (low <= high) {
      const middle = (low + high) >>> 1;
      const run = this.#runs[middle]!;
      if (offset < run.firstOffset) high = middle - 1;
      else if (offset >= run.endOffset) low = middle + 1;
      else return this.#found = run;
    }
    return null;
  }
}
