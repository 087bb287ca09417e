/**
 * Gives the space of old files back: the oldest one goes once nothing in it is owed, and that is on disk.
 *
 * An entry that alone keeps a file, and all that were written after it, is written once more at the
 * log's end with all that is known of it. That is done only for what is not in hand, and when it costs
 * a quarter at most of what can go then.
 */
import type { LogFileInfo, LogStore } from "@sluice/shared/log";
import type { Clock } from "@sluice/shared/runtime";
import type { Logger } from "@sluice/shared/telemetry";
import type { BacklogScanner } from "./backlog_scanner.ts";
import type { EntryReader } from "./entry_reader.ts";
import type { HandingOut } from "./handing_out.ts";
import { encodeKeep, KEEP_KIND } from "./records.ts";
import type { Settlements } from "./settlements.ts";
import type { SpoolLog } from "./spool_log.ts";
import type { SpoolState } from "./spool_state.ts";
import type { TrackedEntry } from "./tracked_entry.ts";

/** When entries cannot be moved, that is looked at again after this at the earliest. */
const MOVE_RETRY_MS = 100;
/** What an entry takes in the log besides its body, about. */
const ENTRY_BYTES = 256;
/** What is written once more is this share at most of what goes. */
const MOVED_SHARE = 4;

/** What a reclaimer works on. */
export interface ReclaimerParts {
  readonly store: LogStore;
  readonly state: SpoolState;
  readonly log: SpoolLog;
  readonly scanner: BacklogScanner;
  readonly reader: EntryReader;
  readonly settlements: Settlements;
  readonly handingOut: HandingOut;
  readonly clock: Clock;
  readonly logger: Logger;
}

/** See the module. */
export class Reclaimer {
  readonly #parts: ReclaimerParts;
  readonly #freedBytesMin: number;
  #running: Promise<void> | null = null;
  #isWanted = false;
  /** Before, it is not looked at again whether entries can be moved: there may be many. */
  #moveFromMs = 0;
  #isStopped = false;

  /** Nothing is written once more for less than `freedBytesMin`. */
  constructor(parts: ReclaimerParts, freedBytesMin: number) {
    this.#freedBytesMin = freedBytesMin;
    this.#parts = parts;
  }

  /** Something may have become free. */
  wake(): void {
    if (this.#isStopped || this.#parts.store.files.length < 2) return;
    this.#isWanted = true;
    this.#running ??= this.#run();
  }

  /** Resolves when it does nothing any more. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    await this.#running;
  }

  async #run(): Promise<void> {
    while (this.#isWanted) {
      this.#isWanted = false;
      try {
        while (!this.#isStopped && await this.#step());
      } catch (error) {
        if (this.#isStopped || this.#parts.log.log.error !== null) break;
        this.#parts.logger.warn("Cannot give back space of the spool", {
          error: error instanceof Error ? error : String(error),
        });
      }
    }
    // In the turn of the last look at what is wanted, so that no call falls in between.
    this.#running = null;
  }

  /** Returns whether it is worth going on. */
  async #step(): Promise<boolean> {
    const { store, state, scanner, handingOut, log, clock } = this.#parts;
    if (store.files.length < 2) return false;
    const first = store.files[0]!;
    if (scanner.position < first.end) {
      await handingOut.advance();
      if (scanner.position < first.end) return false;
    }
    if (state.owed.has(first.start)) {
      const nowMs = clock.monoMs();
      if (nowMs < this.#moveFromMs) return false;
      if (await this.#moveOut(first)) return true;
      this.#moveFromMs = nowMs + MOVE_RETRY_MS;
      return false;
    }
    await store.remove(first);
    log.reader.forget(first.start, first.end);
    await log.fillReserve();
    return true;
  }

  /** Writes what is owed in the first file once more, if that is worth it. */
  async #moveOut(first: LogFileInfo): Promise<boolean> {
    const { store, state, log, scanner } = this.#parts;
    let freedBytes = 0;
    for (const { start, end } of store.files.slice(0, -1)) {
      if (end > scanner.position || start !== first.start && state.owed.has(start)) break;
      freedBytes += end - start;
    }
    if (freedBytes < this.#freedBytesMin || log.isDiskFull) return false;
    const costBytes = () => {
      const owed = state.owed.get(first.start);
      return owed === undefined ? 0 : owed.bodyBytes + owed.count * ENTRY_BYTES;
    };
    if (costBytes() * MOVED_SHARE > freedBytes) return false;
    const entries = [...state.tracked].filter(({ fileStart }) => fileStart === first.start);
    // Without any it waits for settlements that are on their way to the disk.
    if (entries.length === 0 || entries.some(({ inHand }) => inHand)) return false;
    for (const entry of entries) {
      if (entry.topic === "") await this.#load(entry, first.start);
    }
    // The sizes of entries from before a start are known only now.
    if (costBytes() * MOVED_SHARE > freedBytes) return false;
    for (const entry of entries) {
      if (!await this.#move(entry, first.start)) return false;
    }
    await log.durable();
    return true;
  }

  /** Has an entry in memory, and learned; false when it is not to be moved any more, or damaged. */
  async #load(entry: TrackedEntry, fileStart: number): Promise<boolean> {
    const { state, reader, handingOut } = this.#parts;
    while (!this.#isStopped && !entry.inHand && !entry.isSettled && entry.fileStart === fileStart) {
      const read = reader.read(entry) ?? await reader.load(entry);
      if (typeof read === "string") {
        if (!entry.inHand && !entry.isSettled && entry.fileStart === fileStart) {
          handingOut.damaged(entry, read);
        }
        return false;
      }
      if (read === null) continue;
      if (entry.topic === "") {
        const { topic, messageCount, body } = reader.copy(read);
        const { spooledWallMs } = read.header;
        state.learn(entry, { topic, messageCount, spooledWallMs, bodyBytes: body.length });
      }
      return true;
    }
    return false;
  }

  /** Returns whether it is worth going on with others. */
  async #move(entry: TrackedEntry, fileStart: number): Promise<boolean> {
    const { state, log, reader, settlements } = this.#parts;
    const { log: commitLog } = log;
    while (true) {
      if (!await this.#load(entry, fileStart)) return !this.#isStopped && !entry.inHand;
      // Once more, in the turn in which it is used.
      const read = reader.read(entry);
      if (entry.inHand || entry.isSettled || read === null || typeof read === "string") continue;
      const head = encodeKeep(entry);
      const bytes = head.length + read.end - read.start;
      if (commitLog.error !== null || commitLog.stalled !== null) return false;
      if (!commitLog.hasRoom(bytes)) {
        await commitLog.room();
        continue;
      }
      // Copied first: the ring may be what it was read from, and be overwritten by it.
      const publish = read.bytes.slice(read.start, read.end);
      const start = commitLog.begin(KEEP_KIND, bytes);
      commitLog.ring.set(head, start);
      commitLog.ring.set(publish, start + head.length);
      commitLog.finish();
      settlements.free(fileStart, entry.bodyBytes);
      state.move(entry, commitLog.recordPosition, commitLog.fileStart);
      settlements.write();
      commitLog.flush();
      return true;
    }
  }
}
