/**
 * What a spool knows of its entries: which are anybody's, whose the others are, what is in hand, in
 * quarantine, settled. No I/O; the same code when it happens and when the log is replayed.
 *
 * ```
 *               take                    assign                     settle
 *   backlog ------------> in hand <--------------> in hand, of B ---------> settled
 *      ^                   |   ^                    |   ^     \
 *      '-- (a start) ------|   | take      putBack  |   | takeAssigned
 *                  putBack v   |                    v   |       \ quarantine
 *                         returned                waits for B    '--> quarantine --> retry: returned, or
 *                                                  ^                      |          waits for B
 *                                     pinned ------'                      '--> drop: settled
 * ```
 *
 * - Nothing is kept of the backlog but numbers per topic. It is all there is in the free lane from
 *   `scannedTo` on, without what is settled, and what is tracked here.
 * - Tracked is what was handed out and is not settled, what is a broker's, and what is in quarantine.
 * - Settled numbers are runs, and end where an entry that is tracked, or was in hand at the last stop,
 *   lies between: so there are not more runs than such entries. Below `scannedTo` none are needed.
 */
import { invariant } from "@sluice/shared/runtime";
import { Ages } from "./ages.ts";
import { EntryQueue } from "./entry_queue.ts";
import { NumberRuns } from "./number_runs.ts";
import { type EntryName, FREE_LANE, PINNED_LANE, type SpoolLane } from "./records.ts";
import { type PublishFacts, TrackedEntry } from "./tracked_entry.ts";

/** Entries of one broker that are not in hand. */
class BrokerQueue extends EntryQueue<TrackedEntry> {
  /** None was given to the broker before. */
  oldestAssignedWallMs = Infinity;
}

/** What is still owed in a file, as far as it is tracked. */
export interface FileOwed {
  count: number;
  bodyBytes: number;
}

/** See the module. */
export class SpoolState {
  /** The number that the next publish of each lane gets. */
  readonly nextNumber: [number, number] = [0, 0];
  /** Settled numbers of the free lane, from `scannedTo` on. */
  readonly settled = new NumberRuns();
  /** Entries not settled, but for those in quarantine. */
  count = 0;
  bodyBytes = 0;
  heldCount = 0;
  pinnedCount = 0;
  quarantinedCount = 0;
  /** Entries of the free lane that were handed out, and are not in quarantine. */
  looseCount = 0;
  /** Announced, and not in the log yet. */
  announcedCount = 0;
  /** Something was lost of which nobody knows what it was: the figures may be too high. */
  isDoubtful = false;
  readonly owed = new Map<number, FileOwed>();
  readonly #ages: Ages;
  readonly #topics = new Map<string, number>();
  /** By lane and number. */
  readonly #tracked = new Map<number, TrackedEntry>();
  readonly #returned = new EntryQueue<TrackedEntry>();
  readonly #assigned = new Map<string, BrokerQueue>();
  #quarantined = new Map<number, TrackedEntry>();
  #scannedTo = 0;

  /** Ages are exact to `sliceMs`. */
  constructor(sliceMs: number) {
    this.#ages = new Ages(sliceMs);
  }

  /** All of the free lane below has been looked at: it is tracked or settled. */
  get scannedTo(): number {
    return this.#scannedTo;
  }

  get oldestWallMs(): number | null {
    return this.#ages.oldestWallMs;
  }

  get topicCount(): number {
    return this.#topics.size;
  }

  get tracked(): Iterable<TrackedEntry> {
    return this.#tracked.values();
  }

  /** Whether entries of a topic are not settled that anybody may get, or that are on their way in. */
  hasBacklog(topic: string): boolean {
    return this.#topics.has(topic);
  }

  /** A publish of the free lane is on its way in. */
  announce(topic: string): void {
    this.announcedCount++;
    this.#addTopic(topic);
  }

  /** One that was announced does not come. */
  withdraw(topic: string): void {
    this.announcedCount--;
    this.#removeTopic(topic);
  }

  /** A publish is in the log; one of the free lane has been announced. Returns the entry of a pinned one. */
  published(facts: PublishFacts, broker: string | null, fileStart: number): TrackedEntry | null {
    const { lane, number } = facts;
    this.nextNumber[lane] = Math.max(this.nextNumber[lane], number + 1);
    this.#add(facts);
    if (lane === FREE_LANE) {
      this.announcedCount--;
      return null;
    }
    const entry = new TrackedEntry(lane, number, facts.id, facts.id, fileStart);
    entry.setFacts(facts);
    entry.isCounted = true;
    entry.broker = broker;
    entry.assignedWallMs = facts.spooledWallMs;
    this.#track(entry);
    this.#queueOf(entry).push(entry);
    return entry;
  }

  /** Whether a publish of the free lane that was just read is in the backlog. */
  isBacklog(number: number): boolean {
    return !this.settled.has(number) && !this.#tracked.has(keyOf(FREE_LANE, number));
  }

  find(lane: SpoolLane, number: number): TrackedEntry | null {
    return this.#tracked.get(keyOf(lane, number)) ?? null;
  }

  /** The free lane has been looked at up to here, exclusively. */
  scanned(number: number): void {
    this.#scannedTo = number;
    this.settled.trim(number);
  }

  /** Hands out an entry of the backlog. */
  handOut(facts: PublishFacts, fileStart: number): TrackedEntry {
    const entry = new TrackedEntry(facts.lane, facts.number, facts.id, facts.id, fileStart);
    entry.setFacts(facts);
    entry.isCounted = true;
    this.#track(entry);
    this.looseCount++;
    entry.inHand = true;
    this.heldCount++;
    return entry;
  }

  /** An entry that a start knows by name only has been read. */
  learn(entry: TrackedEntry, facts: Omit<PublishFacts, keyof EntryName>): void {
    const owed = this.owed.get(entry.fileStart);
    if (owed !== undefined) owed.bodyBytes += facts.bodyBytes - entry.bodyBytes;
    entry.setFacts(facts);
  }

  /** The first of those that were handed out, or in quarantine, and are nobody's. */
  get firstReturned(): TrackedEntry | null {
    return this.#returned.peek();
  }

  /** The first of a broker's that is not in hand. */
  firstAssigned(broker: string): TrackedEntry | null {
    return this.#assigned.get(broker)?.peek() ?? null;
  }

  /** Hands out what {@linkcode firstReturned} or {@linkcode firstAssigned} found. */
  pick(entry: TrackedEntry): void {
    this.#leaveQueue(entry);
    entry.inHand = true;
    this.heldCount++;
  }

  assignedBrokers(): IterableIterator<string> {
    return this.#assigned.keys();
  }

  /** Whether a broker has entries that are not in hand and were given to it before a time. */
  hasAssignedBefore(broker: string, wallMs: number): boolean {
    const queue = this.#assigned.get(broker);
    if (queue === undefined || queue.oldestAssignedWallMs >= wallMs) return false;
    // What was the oldest may be gone.
    let oldest = Infinity;
    for (const { assignedWallMs } of queue.members) oldest = Math.min(oldest, assignedWallMs);
    queue.oldestAssignedWallMs = oldest;
    return oldest < wallMs;
  }

  /** An entry in hand is a broker's from now on, and of no other. */
  assign(entry: TrackedEntry, broker: string, wallMs: number): void {
    invariant(entry.inHand && !entry.isSettled, "what is assigned is in hand");
    entry.broker = broker;
    entry.assignedWallMs = wallMs;
  }

  putBack(entry: TrackedEntry): void {
    if (!entry.inHand) return;
    this.#release(entry);
    this.#queueOf(entry).push(entry);
  }

  /** Nothing is owed of it any more. What it takes on disk is freed by {@linkcode freed}. */
  settle(entry: TrackedEntry): void {
    invariant(!entry.isSettled, "an entry is settled once");
    if (entry.inHand) this.#release(entry);
    else if (entry.reason === null) this.#leaveQueue(entry);
    if (entry.reason !== null) {
      this.quarantinedCount--;
      this.#quarantined.delete(entry.id);
    } else if (!entry.isPinned) this.looseCount--;
    this.#uncount(entry);
    entry.isSettled = true;
    this.#tracked.delete(keyOf(entry.lane, entry.number));
    if (entry.isPinned) this.pinnedCount--;
    else if (entry.number >= this.#scannedTo) this.settled.add(entry.number, entry.number + 1);
  }

  /** That an entry is settled, or is elsewhere, is on disk. */
  freed(fileStart: number, bodyBytes: number): void {
    const owed = this.owed.get(fileStart);
    if (owed === undefined) return;
    owed.count--;
    owed.bodyBytes -= bodyBytes;
    if (owed.count === 0) this.owed.delete(fileStart);
  }

  quarantine(entry: TrackedEntry, reason: string): void {
    invariant(entry.reason === null && !entry.isSettled, "an entry is put in quarantine once");
    if (entry.inHand) this.#release(entry);
    else this.#leaveQueue(entry);
    this.#uncount(entry);
    if (!entry.isPinned) this.looseCount--;
    entry.reason = reason;
    this.quarantinedCount++;
    this.#quarantined.set(entry.id, entry);
  }

  /** An entry of the free lane that cannot be read: known by its number only. */
  quarantineDamaged(number: number, id: number, reason: string): TrackedEntry {
    const entry = new TrackedEntry(FREE_LANE, number, id, id, -1);
    entry.isDamaged = true;
    entry.reason = reason;
    this.#tracked.set(keyOf(FREE_LANE, number), entry);
    this.quarantinedCount++;
    this.#quarantined.set(id, entry);
    return entry;
  }

  /** Back to where it would be without the quarantine. */
  retry(entry: TrackedEntry): void {
    invariant(entry.reason !== null && !entry.isDamaged, "what is tried again was in quarantine");
    entry.reason = null;
    this.quarantinedCount--;
    this.#quarantined.delete(entry.id);
    if (!entry.isPinned) this.looseCount++;
    this.#recount(entry);
    this.#queueOf(entry).push(entry);
  }

  quarantinedById(id: number): TrackedEntry | null {
    return this.#quarantined.get(id) ?? null;
  }

  /** Those in quarantine with an id of `from` or above, the lowest first. */
  quarantined(from: number, countMax: number): TrackedEntry[] {
    return [...this.#quarantined.values()].filter(({ id }) => id >= from)
      .sort((a, b) => a.id - b.id).slice(0, countMax);
  }

  /** Its record is elsewhere now. The old place is given up by {@linkcode freed}. */
  move(entry: TrackedEntry, location: number, fileStart: number): void {
    entry.location = location;
    entry.fileStart = fileStart;
    this.#owe(entry);
  }

  /** Counts anew where that is needed, once everything of the free lane has been looked at. */
  recountAll(): void {
    if (!this.isDoubtful || this.announcedCount > 0) return;
    if (this.#scannedTo < this.nextNumber[FREE_LANE]) return;
    const known = [...this.#tracked.values()].filter(({ isCounted }) => isCounted);
    if (known.some(({ topic }) => topic === "")) return;
    this.isDoubtful = false;
    this.count = 0;
    this.bodyBytes = 0;
    this.#ages.clear();
    this.#topics.clear();
    for (const entry of known) this.#recount(entry);
  }

  // What follows is for the replay of a log.

  /** Numbers of a lane were settled. */
  replaySettled(lane: SpoolLane, start: number, end: number): void {
    this.nextNumber[lane] = Math.max(this.nextNumber[lane], end);
    if (lane === FREE_LANE) this.settled.add(start, end);
    if (end - start > this.#tracked.size) {
      for (const entry of this.#tracked.values()) {
        if (entry.lane === lane && entry.number >= start && entry.number < end) this.#drop(entry);
      }
      return;
    }
    for (let number = start; number < end; number++) {
      const entry = this.find(lane, number);
      if (entry !== null) this.#drop(entry);
    }
  }

  /**
   * The entry that a decision is about, tracked from now on; null when it is settled. A pinned one
   * that is not known was settled.
   */
  replayNamed({ lane, number, id }: EntryName): TrackedEntry | null {
    this.nextNumber[lane] = Math.max(this.nextNumber[lane], number + 1);
    const known = this.find(lane, number);
    if (known !== null) return known;
    if (lane === PINNED_LANE || this.settled.has(number)) return null;
    const entry = new TrackedEntry(lane, number, id, id, -1);
    this.#tracked.set(keyOf(lane, number), entry);
    return entry;
  }

  /** An entry that was written once more, with all that was known of it. */
  replayKept(facts: PublishFacts, location: number): TrackedEntry {
    const { lane, number, id } = facts;
    this.nextNumber[lane] = Math.max(this.nextNumber[lane], number + 1);
    const entry = this.find(lane, number) ?? new TrackedEntry(lane, number, id, location, -1);
    this.#tracked.set(keyOf(lane, number), entry);
    entry.location = location;
    entry.setFacts(facts);
    return entry;
  }

  /** Takes a publish of the free lane out of the figures again: it is settled. */
  replayUncount(facts: PublishFacts): void {
    this.#remove(facts);
    this.#removeTopic(facts.topic);
  }

  /**
   * The replay is at its end: puts everything that is tracked in its place. `firstPosition` is where
   * the log begins, `fileOf` finds the start of a file. Returns how many were dropped because their
   * publish is gone: what says that they are settled was damaged.
   */
  replayed(firstPosition: number, fileOf: (position: number) => number): number {
    let dropped = 0;
    this.owed.clear();
    this.pinnedCount = 0;
    this.quarantinedCount = 0;
    this.#quarantined = new Map();
    this.#assigned.clear();
    for (const entry of [...this.#tracked.values()]) {
      if (!entry.isDamaged && entry.location < firstPosition) {
        this.#drop(entry);
        dropped++;
        continue;
      }
      // A publish of the free lane was counted when it was read; a pinned one says so itself.
      if (!entry.isPinned) entry.isCounted = !entry.isDamaged && entry.id >= firstPosition;
      entry.fileStart = entry.isDamaged ? -1 : fileOf(entry.location);
      if (entry.isPinned) this.pinnedCount++;
      if (!entry.isDamaged) this.#owe(entry);
      if (entry.reason !== null) {
        this.#uncount(entry);
        this.quarantinedCount++;
        this.#quarantined.set(entry.id, entry);
        continue;
      }
      if (!entry.isCounted) this.#recount(entry);
      if (!entry.isPinned) this.looseCount++;
      this.#queueOf(entry).push(entry);
    }
    return dropped;
  }

  /** Forgets an entry during a replay. */
  #drop(entry: TrackedEntry): void {
    this.#tracked.delete(keyOf(entry.lane, entry.number));
    if (entry.isPinned && entry.isCounted) this.#remove(entry);
    if (entry.isPinned && entry.broker !== null) this.#leaveQueue(entry);
  }

  #track(entry: TrackedEntry): void {
    this.#tracked.set(keyOf(entry.lane, entry.number), entry);
    this.#owe(entry);
    if (entry.isPinned) this.pinnedCount++;
  }

  #owe({ fileStart, bodyBytes }: TrackedEntry): void {
    const owed = this.owed.get(fileStart);
    if (owed === undefined) this.owed.set(fileStart, { count: 1, bodyBytes });
    else {
      owed.count++;
      owed.bodyBytes += bodyBytes;
    }
  }

  #release(entry: TrackedEntry): void {
    entry.inHand = false;
    this.heldCount--;
  }

  /** Where an entry waits that is neither in hand nor in quarantine. */
  #queueOf(entry: TrackedEntry): EntryQueue<TrackedEntry> {
    if (entry.broker === null) return this.#returned;
    let queue = this.#assigned.get(entry.broker);
    if (queue === undefined) this.#assigned.set(entry.broker, queue = new BrokerQueue());
    queue.oldestAssignedWallMs = Math.min(queue.oldestAssignedWallMs, entry.assignedWallMs);
    return queue;
  }

  #leaveQueue(entry: TrackedEntry): void {
    if (entry.broker === null) {
      this.#returned.delete(entry);
      return;
    }
    const queue = this.#assigned.get(entry.broker);
    queue?.delete(entry);
    if (queue?.size === 0) this.#assigned.delete(entry.broker);
  }

  #recount(entry: TrackedEntry): void {
    entry.isCounted = true;
    this.#add(entry);
    if (!entry.isPinned) this.#addTopic(entry.topic);
  }

  #uncount(entry: TrackedEntry): void {
    if (!entry.isCounted) return;
    entry.isCounted = false;
    if (entry.topic === "") this.isDoubtful = true;
    this.#remove(entry);
    if (!entry.isPinned) this.#removeTopic(entry.topic);
  }

  #addTopic(topic: string): void {
    this.#topics.set(topic, (this.#topics.get(topic) ?? 0) + 1);
  }

  #removeTopic(topic: string): void {
    const count = this.#topics.get(topic) ?? 0;
    if (count > 1) this.#topics.set(topic, count - 1);
    else this.#topics.delete(topic);
  }

  #add({ bodyBytes, spooledWallMs }: { bodyBytes: number; spooledWallMs: number }): void {
    this.count++;
    this.bodyBytes += bodyBytes;
    this.#ages.add(spooledWallMs);
  }

  #remove({ bodyBytes, spooledWallMs }: { bodyBytes: number; spooledWallMs: number }): void {
    this.count--;
    this.bodyBytes -= bodyBytes;
    this.#ages.remove(spooledWallMs);
  }
}

/** Names an entry in one number. */
function keyOf(lane: SpoolLane, number: number): number {
  return number * 2 + lane;
}
