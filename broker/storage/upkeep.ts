/**
 * What a log needs from time to time: checkpoints of the state beside it, and the removal of files
 * that nobody is owed anything of. Neither holds up anybody for long: the state is walked in slices,
 * with a turn for all others between them.
 *
 * Two checkpoints are kept, and a file goes only when the older one does not need it. A checkpoint is
 * begun when a file was sealed since the last one, but not before the log has grown by as many bytes
 * as the last one had: checkpoints at most double what is written.
 */
import type { CommitLog, LogFileInfo, LogStore } from "@sluice/shared/log";
import type { Clock } from "@sluice/shared/runtime";
import { encodeCheckpoint } from "./checkpoint.ts";
import type { SliceLimits } from "./checkpoint_chunk.ts";
import type { BrokerState } from "./state.ts";

/** What an {@linkcode Upkeep} works on. */
export interface UpkeepWorld {
  readonly state: BrokerState;
  readonly log: CommitLog;
  readonly store: LogStore;
  readonly clock: Clock;
  /** Puts the finishes that are in no group yet in the one being filled. */
  writeFinishes(): void;
  /** What is below may go as far as uploads and deliveries under way are concerned. */
  pinnedFrom(): number;
  /** Removes the oldest file: nobody asks for what is in it. */
  remove(file: LogFileInfo): Promise<void>;
  /** A checkpoint of so many bytes is on disk, and took so long. */
  checkpointed(bytes: number, ms: number): void;
  /** How much of a checkpoint is written before others run, unless as usual. */
  readonly slice?: SliceLimits | undefined;
}

/** So many topics and channels are looked at before others may run. */
const LOOKED_AT_ONCE = 4096;

/** A checkpoint under way that is not finished: the log has no room or no future, or all ends. */
class CheckpointGivenUp extends Error {
  override name = "CheckpointGivenUp";
}

/** See the module. */
export class Upkeep {
  readonly #world: UpkeepWorld;
  #checkpointPosition: number;
  #checkpointBytes: number;
  /** Files below may go: the older of the two checkpoints that are kept does not need them either. */
  #reclaimTo = 0;
  #sealedSince = false;
  #running: Promise<void> | null = null;
  /** Ends a pause: a checkpoint under way is given up. */
  readonly #ending = new AbortController();

  /** `checkpoint` is the one that the state was recovered from; all 0 without one. */
  constructor(
    world: UpkeepWorld,
    checkpoint: { readonly position: number; readonly bytes: number },
  ) {
    this.#world = world;
    this.#checkpointPosition = checkpoint.position;
    this.#checkpointBytes = checkpoint.bytes;
  }

  /** Files that end here or before are in both checkpoints that are kept. */
  get reclaimTo(): number {
    return this.#reclaimTo;
  }

  /** A file was sealed. */
  sealed(): void {
    this.#sealedSince = true;
  }

  /**
   * Has the next run write a checkpoint: the ones at these positions are damaged. `good` is the newest
   * that is not, 0 without one; it stays until then, and the files that it needs with it.
   */
  async renew(damaged: readonly number[], good: number): Promise<void> {
    // One under way is newer than any that was looked at.
    await this.#running?.catch(() => {});
    if (damaged.includes(this.#checkpointPosition)) this.#checkpointPosition = good;
    this.#checkpointBytes = 0;
    this.#sealedSince = true;
    this.#padHeldBack();
  }

  /**
   * Removes files and writes a checkpoint when one is due; `pressed` for space, also when that lets a
   * file go. One run at a time; a call during one waits for it.
   */
  run(pressed: boolean): Promise<void> {
    if (this.#ending.signal.aborted) return Promise.resolve();
    this.#running ??= this.#run(false, pressed).finally(() => this.#running = null);
    return this.#running;
  }

  /** Gives up a checkpoint under way; nothing is under way when it resolves, or begins. */
  async stop(): Promise<void> {
    this.#ending.abort();
    // Whoever began it has been told.
    await this.#running?.catch(() => {});
  }

  /** Runs a last time, after `stop`, with a checkpoint that spares the next start work. */
  finish(): Promise<void> {
    return this.#run(true, false);
  }

  async #run(final: boolean, pressed: boolean): Promise<void> {
    // What can be given back goes first: a checkpoint needs space too.
    await this.#reclaim();
    const isHeldBack = pressed && await this.#isHeldBack();
    if (isHeldBack) this.#padHeldBack();
    if (!this.#isCheckpointDue(final, isHeldBack)) return;
    this.#sealedSince = false;
    const before = this.#checkpointPosition;
    try {
      await this.#checkpoint(final);
    } finally {
      // One that failed is owed still.
      if (this.#checkpointPosition === before) this.#sealedSince = true;
    }
    await this.#reclaim();
  }

  #isCheckpointDue(final: boolean, isHeldBack: boolean): boolean {
    const grownBytes = this.#world.log.end - this.#checkpointPosition;
    if (!this.#isWritable || grownBytes === 0) return false;
    if (isHeldBack) return true;
    // Not more is written than the log had meanwhile, or than the next start need not read.
    return (final || this.#sealedSince) && grownBytes >= this.#checkpointBytes;
  }

  /** Removes the files that nobody is owed anything of. */
  async #reclaim(): Promise<void> {
    const { store } = this.#world;
    if (!this.#isWritable) return;
    for (const file of store.files.slice(0, -1)) {
      if (file.end > this.#reclaimTo || !await this.#isDead(file)) break;
      // What freed the file must not be undone by a crash: its messages would be owed again.
      if (!await this.makeDurable()) return;
      await this.#world.remove(file);
    }
  }

  async #checkpoint(final: boolean): Promise<void> {
    this.#world.writeFinishes();
    const position = this.#world.log.end;
    const older = this.#checkpointPosition;
    const startMs = this.#world.clock.monoMs();
    try {
      const slices = this.#slices(final);
      this.#checkpointBytes = await this.#world.store.putCheckpoint(position, slices, older);
    } catch (error) {
      if (error instanceof CheckpointGivenUp) return;
      throw error;
    }
    this.#reclaimTo = older;
    this.#checkpointPosition = position;
    const tookMs = this.#world.clock.monoMs() - startMs;
    this.#world.checkpointed(this.#checkpointBytes, tookMs);
  }

  /** The state in slices; others run between them, and the final one in the time that writing takes. */
  async *#slices(final: boolean): AsyncGenerator<Uint8Array, void, void> {
    const { state, log, slice: limits } = this.#world;
    const slices = encodeCheckpoint(state, () => log.end, limits);
    let slice = slices.next();
    for (; slice.done !== true; slice = slices.next()) {
      yield slice.value;
      await this.#pause();
      const isOver = this.#ending.signal.aborted && !final;
      if (isOver || !this.#isWritable) throw new CheckpointGivenUp();
    }
    yield slice.value;
    // What the slices hold must not be lost behind them.
    if (!await this.makeDurable()) throw new CheckpointGivenUp();
  }

  /** Whether anything that is written now gets to the disk soon. */
  get #isWritable(): boolean {
    const { log } = this.#world;
    return log.error === null && log.stalled === null;
  }

  /** Has all that was done before the call on disk; false when the log has failed or waits for space. */
  async makeDurable(): Promise<boolean> {
    const { log } = this.#world;
    this.#world.writeFinishes();
    const position = log.end;
    while (log.durableEnd < position && this.#isWritable) await log.room();
    return this.#isWritable;
  }

  /** Two checkpoints have to pass a file before it can go, and each needs a position of its own. */
  #padHeldBack(): void {
    const { log } = this.#world;
    if (this.#isWritable && log.end === this.#checkpointPosition) log.pad();
  }

  /** Whether the oldest file could go if there were a newer checkpoint. */
  async #isHeldBack(): Promise<boolean> {
    const [first, second] = this.#world.store.files;
    return first !== undefined && second !== undefined && first.end > this.#reclaimTo &&
      await this.#isDead(first);
  }

  /** Whether no topic is owed a message of the file, or a part of one that is elsewhere. */
  async #isDead(file: LogFileInfo): Promise<boolean> {
    if (this.#world.pinnedFrom() < file.end) return false;
    let looked = 0;
    for (const topic of this.#world.state.topics.values()) {
      const run = topic.index.runs[0];
      if (run !== undefined && run.fileStart <= file.start && run.endOffset > topic.liveFrom) {
        return false;
      }
      looked += 1 + topic.channels.size + topic.largePins.length;
      if (topic.largePinnedFrom() < file.end) return false;
      if (looked < LOOKED_AT_ONCE) continue;
      looked = 0;
      await this.#pause();
    }
    return true;
  }

  /** Lets others run, unless all is ending: then the disk's waits are enough. */
  async #pause(): Promise<void> {
    const { signal } = this.#ending;
    if (!signal.aborted) await this.#world.clock.sleep(0, signal).catch(() => {});
  }
}
