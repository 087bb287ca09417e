/**
 * Gives back the space of log files that cannot go because a few messages in them are still owed: a
 * slow channel, a stuck message, one that is deferred for long. Such a file is written anew without
 * what nobody is owed, and takes its own place (see `compact_file.ts`).
 *
 * ```
 * sweep: live bytes of every file, estimated --a file is mostly dead--> compact it --> sweep goes on
 * ```
 *
 * - Only files that lie before both kept checkpoints, and are not served from memory. What made messages dead is on disk before the
 *   new file takes the place of the old one.
 * - One file at a time, the oldest first, read and written at a bounded rate. A maintenance round does
 *   a bounded part of the sweep, however many files and topics there are.
 * - A file whose new version would not be half as large, or that cannot be judged, is left alone until
 *   much more of it is dead, or for good.
 * - Nothing that goes wrong costs a message: the old file stays, and is not tried again by this
 *   process, unless the disk was full.
 */
import type { CommitLog, LogFileInfo, LogStore } from "@sluice/shared/log";
import { type Clock, DiskError } from "@sluice/shared/runtime";
import { type CompactedFile, compactFile } from "./compact_file.ts";
import type { FileUsage } from "./file_usage.ts";
import type { BrokerState, TopicState } from "./state.ts";

/** Settings of a {@linkcode Compactor}. */
export interface CompactionOptions {
  /** Bytes read and written a second, at most; 0 for no compaction at all. */
  readonly rateBytes: number;
  /** A file is worth it from so many dead bytes on. */
  readonly deadBytesMin: number;
}

/** What a {@linkcode Compactor} works on. */
export interface CompactionWorld {
  readonly state: BrokerState;
  readonly log: Pick<CommitLog, "error" | "stalled">;
  readonly store: LogStore;
  readonly usage: FileUsage;
  readonly clock: Clock;
  /** Files that end here or before are in both checkpoints, and read from disk only. */
  readonly compactTo: () => number;
  /** Has all that was done before the call on disk; false when that cannot be had now. */
  makeDurable(): Promise<boolean>;
  /** Puts a file written anew in its place, of which the topics given have runs, and writes its sidecar. */
  swap(
    file: LogFileInfo,
    compacted: CompactedFile,
    topics: readonly TopicState[],
  ): Promise<void>;
  /** Something went wrong that costs no message. */
  warn(message: string, error: unknown): void;
}

/** What compaction has found and done since the start; bytes are of the log. */
export interface CompactionReport {
  /** Bytes that somebody is or may be owed, estimated; null until the first sweep is done. */
  readonly liveBytes: number | null;
  /** Files before both checkpoints that are still there, what they take, and where the oldest starts. */
  readonly pinnedFiles: number;
  readonly pinnedBytes: number;
  readonly filesCompacted: number;
  readonly bytesGivenBack: number;
  readonly spentMs: number;
}

export const COMPACTION_OPTIONS_DEFAULT: CompactionOptions = {
  rateBytes: 64 * 2 ** 20,
  deadBytesMin: 2 ** 20,
};
/** What a maintenance round may cost, and what may be done before others run: runs, and words of bitmaps. */
const ROUND_COST = 32_768;
const SLICE_COST = 2048;
/** Topics that are looked at before others run. */
const TOPICS_AT_ONCE = 4096;
/** The most that is read at once, and saved up. */
const TURN_BYTES = 1 << 20;
/** After a disk that was full. */
const FULL_PAUSE_MS = 60_000;
/** A file that turned out to be live is tried again when its estimate is so much lower. */
const RETRY_SHARE = 0.75;

/** See the module. */
export class Compactor {
  readonly #world: CompactionWorld;
  readonly #options: CompactionOptions;
  readonly #ending = new AbortController();
  #running: Promise<void> | null = null;
  #sweep: Generator<number, void, void> | null = null;
  /** Files to compact, by the last sweep, oldest first, and what is live of each. */
  #chosen: { readonly file: LogFileInfo; readonly liveBytes: number }[] = [];
  /** Files that are left alone until less than so much is live of them. */
  readonly #spared = new Map<number, number>();
  #liveBytes: number | null = null;
  #pinnedFiles = 0;
  #pinnedBytes = 0;
  #filesCompacted = 0;
  #bytesGivenBack = 0;
  #spentMs = 0;
  #pausedUntilMs = -Infinity;
  /** When the bytes read and written so far are paid for. */
  #paidMs = 0;

  constructor(world: CompactionWorld, options: CompactionOptions) {
    this.#world = world;
    this.#options = options;
  }

  get report(): CompactionReport {
    return {
      liveBytes: this.#liveBytes,
      pinnedFiles: this.#pinnedFiles,
      pinnedBytes: this.#pinnedBytes,
      filesCompacted: this.#filesCompacted,
      bytesGivenBack: this.#bytesGivenBack,
      spentMs: this.#spentMs,
    };
  }

  /** Does a bounded part of what there is to do, at most one file. Never rejects. */
  round(): Promise<void> {
    return this.#start(() => this.#round());
  }

  /** Looks at all files and compacts what is worth it. Never rejects. */
  async all(): Promise<void> {
    await this.#running;
    await this.#start(async () => {
      this.#sweep = null;
      this.#pausedUntilMs = -Infinity;
      await this.#sweepOn(Infinity);
      while (this.#chosen.length > 0) await this.#compactNext();
    });
  }

  /** Ends what is under way; nothing is when it resolves, or begins. */
  async stop(): Promise<void> {
    this.#ending.abort();
    await this.#running;
  }

  /** A file is gone. */
  removed(fileStart: number): void {
    this.#spared.delete(fileStart);
  }

  #start(work: () => Promise<void>): Promise<void> {
    if (this.#ending.signal.aborted) return Promise.resolve();
    this.#running ??= work()
      .catch((error) => {
        if (!this.#ending.signal.aborted) this.#world.warn("Cannot compact the log", error);
      })
      .finally(() => this.#running = null);
    return this.#running;
  }

  async #round(): Promise<void> {
    if (this.#chosen.length === 0) await this.#sweepOn(ROUND_COST);
    await this.#compactNext();
  }

  /** Goes on with the sweep, to its end if that costs no more. */
  async #sweepOn(costMax: number): Promise<void> {
    this.#sweep ??= this.#sweepAll();
    let cost = 0;
    let sliceCost = 0;
    while (cost < costMax) {
      const next = this.#sweep.next();
      if (next.done === true) {
        this.#sweep = null;
        return;
      }
      cost += next.value;
      sliceCost += next.value;
      if (sliceCost < SLICE_COST) continue;
      sliceCost = 0;
      await this.#world.clock.sleep(0, this.#ending.signal);
    }
  }

  /** Estimates what is live of each file and chooses; yields what the last step has cost. */
  *#sweepAll(): Generator<number, void, void> {
    const { state, store, usage } = this.#world;
    const liveOf = new Map<number, number>();
    let liveBytes = 0;
    for (const topic of [...state.topics.values()]) {
      const { runs } = topic.index;
      yield 1;
      for (let at = 0; at < runs.length; at++) {
        const run = runs[at]!;
        const owed = topic.owedCount(run.firstOffset, run.endOffset);
        if (owed > 0 && run.messages > 0) {
          const bytes = Math.min(run.bytes, owed * run.bytes / run.messages);
          liveOf.set(run.fileStart, (liveOf.get(run.fileStart) ?? 0) + bytes);
          liveBytes += bytes;
        }
        yield 1 + (run.count >>> 9) * topic.channels.size;
      }
    }
    const chosen: { file: LogFileInfo; liveBytes: number }[] = [];
    let [pinnedFiles, pinnedBytes] = [0, 0];
    const compactTo = this.#world.compactTo();
    // A copy: files go and change meanwhile.
    for (const file of store.files.slice(0, -1)) {
      if (file.end > compactTo) break;
      const storedBytes = file.end - file.start - usage.holeOf(file.start);
      pinnedFiles++;
      pinnedBytes += storedBytes;
      const live = liveOf.get(file.start) ?? 0;
      if (this.#isWorth(file, storedBytes, live)) chosen.push({ file, liveBytes: live });
      yield 0.1;
    }
    this.#liveBytes = liveBytes;
    this.#pinnedFiles = pinnedFiles;
    this.#pinnedBytes = pinnedBytes;
    this.#chosen = chosen;
  }

  #isWorth({ start }: LogFileInfo, storedBytes: number, liveBytes: number): boolean {
    const { rateBytes, deadBytesMin } = this.#options;
    const deadBytes = storedBytes - liveBytes;
    return rateBytes > 0 && deadBytes >= deadBytesMin && deadBytes > storedBytes / 2 &&
      liveBytes < (this.#spared.get(start) ?? Infinity);
  }

  async #compactNext(): Promise<void> {
    const { clock, store, log, warn } = this.#world;
    const next = this.#chosen.shift();
    if (next === undefined || clock.monoMs() < this.#pausedUntilMs) return;
    if (log.error !== null || log.stalled !== null) return;
    const { file, liveBytes } = next;
    // The first one goes anyway as soon as nothing of it is owed.
    const isFirst = store.files[0]?.start === file.start;
    if (isFirst && liveBytes === 0) return;
    const known = store.files.find(({ start }) => start === file.start);
    if (known === undefined || known.version !== file.version) return;
    const beganMs = clock.monoMs();
    try {
      if (await this.#compact(file, liveBytes)) this.#filesCompacted++;
    } catch (error) {
      const isGone = (store.files[0]?.start ?? 0) > file.start;
      if (this.#ending.signal.aborted || isGone) return;
      const isFull = error instanceof DiskError && error.kind === "no_space";
      if (isFull) this.#pausedUntilMs = clock.monoMs() + FULL_PAUSE_MS;
      else this.#spared.set(file.start, -1);
      warn("Cannot compact a log file; it stays as it is", error);
    } finally {
      this.#spentMs += clock.monoMs() - beganMs;
    }
  }

  /** Writes a file anew; false when it stays as it is. */
  async #compact(file: LogFileInfo, liveBytes: number): Promise<boolean> {
    const { state, store, usage } = this.#world;
    const holeBefore = usage.holeOf(file.start);
    const storedBytes = file.end - file.start - holeBefore;
    const compacted = await compactFile(
      {
        store,
        isOwed: (topic, offset) => state.topicsByNumber.get(topic)?.isOwed(offset) ?? false,
        turn: (bytes) => this.#turn(bytes),
      },
      file,
      storedBytes / 2,
    );
    if (compacted === "unfit" || compacted === "live") {
      this.#spared.set(file.start, compacted === "unfit" ? -1 : liveBytes * RETRY_SHARE);
      return false;
    }
    try {
      const topics = await this.#topicsIn(file);
      // What is dead by what is not on disk yet would be owed again after a crash, and be gone.
      if (!await this.#world.makeDurable()) return false;
      this.#ending.signal.throwIfAborted();
      await this.#world.swap(file, compacted, topics);
    } finally {
      await compacted.replacement.abandon();
    }
    this.#bytesGivenBack += compacted.holeBytes - holeBefore;
    return true;
  }

  /** The topics that have messages in a file, sealed long ago: there can only be fewer. */
  async #topicsIn(file: LogFileInfo): Promise<TopicState[]> {
    const topics: TopicState[] = [];
    let looked = 0;
    for (const topic of this.#world.state.topics.values()) {
      if (topic.index.runIn(file.start) !== undefined) topics.push(topic);
      if (++looked % TOPICS_AT_ONCE === 0) await this.#world.clock.sleep(0, this.#ending.signal);
    }
    return topics;
  }

  /** Waits until `bytes` more may be read or written, and lets others run. */
  async #turn(bytes: number): Promise<void> {
    const { clock, log } = this.#world;
    const nowMs = clock.monoMs();
    await clock.sleep(Math.max(0, this.#paidMs - nowMs), this.#ending.signal);
    // The disk is needed for what waits to be written.
    if (log.error !== null || log.stalled !== null) {
      throw new DiskError("no_space", "Cannot compact a log file: the log waits for space");
    }
    const msPerByte = 1000 / this.#options.rateBytes;
    const savedFromMs = clock.monoMs() - TURN_BYTES * msPerByte;
    this.#paidMs = Math.max(this.#paidMs, savedFromMs) + bytes * msPerByte;
  }
}
