/**
 * Hands entries out, in the order of the log: those that come next in the backlog and those that were
 * put back, or a broker's. What cannot be read when its turn comes goes to quarantine without a body, or
 * where that is full, is given up; it never holds up the rest.
 */
import { Serial } from "@sluice/shared/runtime";
import type { Logger } from "@sluice/shared/telemetry";
import type { Publish } from "../publish.ts";
import type { BacklogScanner, FoundPublish } from "./backlog_scanner.ts";
import type { EntryReader } from "./entry_reader.ts";
import { encodeQuarantine, FREE_LANE, QUARANTINE_KIND } from "./records.ts";
import type { Settlements } from "./settlements.ts";
import type { SpoolEntry } from "./spool_entry.ts";
import type { SpoolLog } from "./spool_log.ts";
import type { SpoolState } from "./spool_state.ts";
import type { TrackedEntry } from "./tracked_entry.ts";

/** Counts of what may be handed out, and be put aside. */
export interface HandingOutLimits {
  readonly heldMax: number;
  /** Of those that were nobody's when they were handed out, in hand or not. */
  readonly looseMax: number;
  readonly quarantineMax: number;
}

/** What it works on. */
export interface HandingOutParts {
  readonly state: SpoolState;
  readonly log: SpoolLog;
  readonly scanner: BacklogScanner;
  readonly reader: EntryReader;
  readonly settlements: Settlements;
  readonly logger: Logger;
  /** Start of the file that holds a position. */
  readonly fileOf: (position: number) => number;
}

const QUARANTINE_RECORD_BYTES_MAX = 4096;

/** See the module. */
export class HandingOut {
  /** Entries that could not be read. */
  damagedCount = 0;
  settledCount = 0;
  /** In hand, by position. */
  readonly #held = new Map<number, TrackedEntry>();
  readonly #parts: HandingOutParts;
  readonly #limits: HandingOutLimits;
  /** One walk at a time. */
  readonly #walks = new Serial();
  #isStopped = false;

  constructor(parts: HandingOutParts, limits: HandingOutLimits) {
    this.#parts = parts;
    this.#limits = limits;
  }

  /** The tracked side of an entry in hand; null when it is not in hand any more. */
  held(entry: SpoolEntry): TrackedEntry | null {
    return this.#held.get(entry.position) ?? null;
  }

  /** It is not in hand any more. */
  release(entry: TrackedEntry): void {
    this.#held.delete(entry.id);
  }

  /** Nothing is owed of it any more: it goes to the log with the next group. */
  settle(entry: TrackedEntry): void {
    const { state, settlements } = this.#parts;
    this.release(entry);
    state.settle(entry);
    settlements.add(entry.lane, entry.number);
    settlements.free(entry.fileStart, entry.bodyBytes);
    this.settledCount++;
  }

  /** The next entries that are nobody's. At least one when there is any, whatever its size. */
  take(countMax: number, bytesMax: number): Promise<SpoolEntry[]> {
    return this.#walks.run(async () => {
      const taken = new Batch(countMax, bytesMax);
      while (await this.#mayHandOut(taken) && await this.#takeNext(taken));
      return taken.entries;
    });
  }

  /** The next entries that are a broker's. */
  async takeAssigned(broker: string, countMax: number, bytesMax: number): Promise<SpoolEntry[]> {
    const { state, log } = this.#parts;
    const taken = new Batch(countMax, bytesMax);
    while (await this.#mayHandOut(taken)) {
      const entry = state.firstAssigned(broker);
      // One that is not on disk yet has not been answered yet.
      if (entry === null || entry.id >= log.log.durableEnd) break;
      if (!await this.#takeTracked(entry, taken)) break;
    }
    return taken.entries;
  }

  /** Passes whatever is not in the backlog, so that its files can go. */
  advance(): Promise<void> {
    return this.#walks.run(async () => {
      while (!this.#isStopped && this.#nextBacklog() === "wait") await this.#parts.scanner.wait();
    });
  }

  /** Hands out nothing more; resolves when no walk is under way. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    await this.#walks.run(() => Promise.resolve());
  }

  /** Numbers of the free lane that could not be read: quarantine, as far as there is room. */
  lost(position: number, start: number, end: number, reason: string): void {
    const { state, log, settlements, logger } = this.#parts;
    let count = 0;
    for (let number = start; number < end; number++) {
      if (!state.isBacklog(number)) continue;
      count++;
      // A record takes more than 8 bytes, so nothing else has this id.
      const id = position + 8 * (number - start);
      if (this.#hasQuarantineRoom) {
        const entry = state.quarantineDamaged(number, id, `damaged: ${reason}`);
        log.put(QUARANTINE_KIND, encodeQuarantine({ ...entry, reason: `damaged: ${reason}` }));
        log.log.flush();
      } else settlements.add(FREE_LANE, number);
    }
    state.scanned(end);
    if (count === 0) return;
    state.isDoubtful = true;
    this.damagedCount += count;
    logger.error("Spooled publishes are damaged on disk", { position, count, reason });
  }

  /** An entry that is known cannot be read. */
  damaged(entry: TrackedEntry, reason: string): void {
    const { state, log, settlements, logger } = this.#parts;
    const { id, topic, broker, bodyBytes, fileStart } = entry;
    this.damagedCount++;
    logger.error("A spooled publish is damaged on disk", { id, topic, broker, reason });
    entry.isDamaged = true;
    if (entry.reason === null && this.#hasQuarantineRoom) {
      state.quarantine(entry, `damaged: ${reason}`);
    } else if (entry.reason === null) {
      state.settle(entry);
      settlements.add(entry.lane, entry.number);
      settlements.free(fileStart, bodyBytes);
      return;
    }
    if (!log.hasDecisionRoom(QUARANTINE_RECORD_BYTES_MAX)) return;
    log.put(QUARANTINE_KIND, encodeQuarantine({ ...entry, reason: entry.reason ?? reason }));
    // Nothing is left of it that would have to be kept.
    settlements.free(fileStart, bodyBytes);
    entry.fileStart = -1;
    settlements.write();
    log.log.flush();
  }

  get #hasQuarantineRoom(): boolean {
    const { state, log } = this.#parts;
    return state.quarantinedCount < this.#limits.quarantineMax && log.log.error === null &&
      log.hasDecisionRoom(QUARANTINE_RECORD_BYTES_MAX);
  }

  async #mayHandOut(taken: Batch): Promise<boolean> {
    const { state, log, settlements } = this.#parts;
    while (settlements.isFull && log.log.error === null && log.log.stalled === null) {
      await log.log.room();
    }
    return !this.#isStopped && log.log.error === null && !settlements.isFull && !taken.isFull &&
      state.heldCount < this.#limits.heldMax;
  }

  /** Returns whether it is worth going on. */
  async #takeNext(taken: Batch): Promise<boolean> {
    const { state, scanner } = this.#parts;
    if (state.looseCount >= this.#limits.looseMax) {
      // Those that wait are handed out all the same, since that makes them fewer.
      const returned = state.firstReturned;
      return returned !== null && await this.#takeTracked(returned, taken);
    }
    const found = this.#nextBacklog();
    if (found === "wait") {
      await scanner.wait();
      return true;
    }
    const returned = state.firstReturned;
    if (returned !== null && (found === "end" || returned.id < found.position)) {
      return await this.#takeTracked(returned, taken);
    }
    if (found === "end") return false;
    const bodyBytes = found.end - found.header.bodyStart;
    if (!taken.hasRoom(bodyBytes)) return false;
    this.#handOutFound(found, taken);
    state.scanned(scanner.pass(found));
    return true;
  }

  #nextBacklog(): FoundPublish | "end" | "wait" {
    const { state, scanner } = this.#parts;
    while (true) {
      const found = scanner.find();
      if (found === "end") {
        state.recountAll();
        return "end";
      }
      if (found === "wait" || state.isBacklog(found.header.number)) return found;
      state.scanned(scanner.pass(found));
    }
  }

  #handOutFound(found: FoundPublish, taken: Batch): void {
    const { state, reader, fileOf } = this.#parts;
    const { number, spooledWallMs } = found.header;
    const publish = reader.copy(found);
    const entry = state.handOut({
      lane: FREE_LANE,
      number,
      id: found.position,
      topic: publish.topic,
      bodyBytes: publish.body.length,
      messageCount: publish.messageCount,
      spooledWallMs,
    }, fileOf(found.position));
    this.#hold(entry, publish, taken);
  }

  async #takeTracked(entry: TrackedEntry, taken: Batch): Promise<boolean> {
    const { state, reader } = this.#parts;
    const read = reader.read(entry);
    if (typeof read === "string") {
      this.damaged(entry, read);
      return true;
    }
    if (read === null) {
      const problem = await reader.load(entry);
      // While it was being loaded anything may have become of it.
      const isWaiting = !entry.inHand && !entry.isSettled && entry.reason === null;
      if (problem !== null && isWaiting) this.damaged(entry, problem);
      return true;
    }
    const bodyBytes = read.end - read.header.bodyStart;
    if (!taken.hasRoom(bodyBytes)) return false;
    const { spooledWallMs } = read.header;
    const publish = reader.copy(read);
    if (entry.topic === "") {
      const { topic, messageCount } = publish;
      state.learn(entry, { topic, bodyBytes, messageCount, spooledWallMs });
    }
    state.pick(entry);
    this.#hold(entry, publish, taken);
    return true;
  }

  #hold(entry: TrackedEntry, publish: Publish, taken: Batch): void {
    this.#held.set(entry.id, entry);
    const { id, broker, assignedWallMs, spooledWallMs, isPinned } = entry;
    taken.add({
      position: id,
      publish,
      spooledWallMs,
      broker,
      assignedWallMs: broker === null ? null : assignedWallMs,
      pinned: isPinned,
    });
  }
}

/** What one call hands out. */
class Batch {
  readonly entries: SpoolEntry[] = [];
  #bytes = 0;
  readonly #countMax: number;
  readonly #bytesMax: number;

  constructor(countMax: number, bytesMax: number) {
    this.#countMax = countMax;
    this.#bytesMax = bytesMax;
  }

  get isFull(): boolean {
    return this.entries.length >= this.#countMax;
  }

  hasRoom(bytes: number): boolean {
    return this.entries.length === 0 || this.#bytes + bytes <= this.#bytesMax;
  }

  add(entry: SpoolEntry): void {
    this.entries.push(entry);
    this.#bytes += entry.publish.body.length;
  }
}
