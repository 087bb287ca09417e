/**
 * What one source says of brokers, and how well it knows. Pure: words in, brokers out.
 *
 *     starting -> current <-> stale, and from starting to failed (nothing was ever said) and back
 *
 * - A source that is lost keeps what it said last and is stale: whoever connects to a broker finds out
 *   by itself whether it is there.
 * - A snapshot takes effect whole. From `begin` on its words are gathered beside those in force, which it
 *   replaces when it is complete; one that is cut off changes nothing.
 * - {@linkcode SourceLimits} bound what is kept. Brokers above the limit are left out; with too many
 *   registrations no topic of the source is known any more. Both last until the next snapshot, and
 *   both are said in `reason`. While a snapshot comes in there may be twice as much.
 */
import type { BrokerWord, ListedBroker, WatchWord } from "./discovery_answers.ts";

/** How well a source knows. */
export type SourceState = "starting" | "current" | "stale" | "failed";

/** What is known of a source. */
export interface SourceStatus {
  /** As in the settings; `null` for the list of brokers there. */
  readonly url: string | null;
  /** Our discovery service, an nsqlookupd, or the list in the settings. */
  readonly kind: "watch" | "nodes" | "static";
  readonly state: SourceState;
  /** What is wrong; `null` when nothing is. A current source may know less than there is. */
  readonly reason: string | null;
  /** Since it was last heard of; `null` before it said anything. */
  readonly ageMs: number | null;
  /** Brokers that it lists. */
  readonly brokers: number;
}

/** What is kept of one source. */
export interface SourceLimits {
  readonly brokersMax: number;
  /** Topics of all its brokers together. */
  readonly registrationsMax: number;
}

export const SOURCE_LIMITS_DEFAULT: SourceLimits = {
  brokersMax: 4_096,
  registrationsMax: 2_000_000,
};

/** Topics that are kept, by name; `null` for none. */
export type TopicFilter = ((topic: string) => boolean) | null;

/** A broker in the words of one source. */
export interface SourcedBroker {
  readonly word: BrokerWord;
  /** When the broker was heard of, by our clock: the word came then, less its age. */
  readonly saidMs: number;
  /** `null` when they are not known. */
  readonly topics: ReadonlySet<string> | null;
}

/** Told that a source says another thing of a broker, or is of another state. */
export type BrokerObserver = (id: string, topicsChanged: boolean) => void;

/** See the module. */
export class SourceView {
  readonly #limits: SourceLimits;
  readonly #keeps: TopicFilter;
  readonly #changed: BrokerObserver;
  #kind: SourceStatus["kind"];
  #inForce: Book;
  #next: Book | null = null;
  #state: SourceState = "starting";
  #failure: string | null = null;
  #heardMs: number | null = null;

  constructor(
    kind: SourceStatus["kind"],
    keeps: TopicFilter,
    changed: BrokerObserver,
    limits = SOURCE_LIMITS_DEFAULT,
  ) {
    this.#kind = kind;
    this.#keeps = keeps;
    this.#changed = changed;
    this.#limits = limits;
    this.#inForce = new Book(keeps, limits);
  }

  get brokers(): ReadonlyMap<string, SourcedBroker> {
    return this.#inForce.brokers;
  }

  get state(): SourceState {
    return this.#state;
  }

  /** There is a connection; a snapshot comes. */
  begin(): void {
    this.#next = new Book(this.#keeps, this.#limits);
  }

  /** Anything came at all. */
  heard(nowMs: number): void {
    this.#heardMs = nowMs;
  }

  /** A word of the stream that `begin` was called for. */
  apply(word: WatchWord, nowMs: number): void {
    if (word.kind === "synced") return this.#replace("watch");
    if (this.#next !== null) this.#next.apply(word, nowMs, () => {});
    else this.#inForce.apply(word, nowMs, this.#changed);
  }

  /** A whole snapshot at once. */
  list(kind: SourceStatus["kind"], brokers: readonly ListedBroker[], nowMs: number): void {
    const next = new Book(this.#keeps, this.#limits);
    for (const listed of brokers) next.apply({ kind: "added", ...listed }, nowMs, () => {});
    this.#next = next;
    this.heard(nowMs);
    this.#replace(kind);
  }

  /** The source cannot say how things are. */
  lost(reason: string): void {
    this.#next = null;
    this.#failure = reason;
    const wasCurrent = this.#state === "current";
    this.#state = wasCurrent || this.#state === "stale" ? "stale" : "failed";
    if (wasCurrent) { for (const id of this.brokers.keys()) this.#changed(id, true); }
  }

  status(url: string | null, nowMs: number): SourceStatus {
    const isCurrent = this.#state === "current";
    return {
      url,
      kind: this.#kind,
      state: this.#state,
      reason: isCurrent ? this.#inForce.problem : this.#failure,
      ageMs: this.#heardMs === null ? null : nowMs - this.#heardMs,
      brokers: this.brokers.size,
    };
  }

  #replace(kind: SourceStatus["kind"]): void {
    const next = this.#next;
    // A second one says nothing new.
    if (next === null) return;
    const before = this.#inForce;
    const wasCurrent = this.#state === "current";
    this.#kind = kind;
    this.#inForce = next;
    this.#next = null;
    this.#state = "current";
    this.#failure = null;
    for (const id of new Set([...before.brokers.keys(), ...next.brokers.keys()])) {
      const isSame = isSameTopics(before.brokers.get(id)?.topics, next.brokers.get(id)?.topics);
      this.#changed(id, !wasCurrent || !isSame);
    }
  }
}

interface KeptBroker extends SourcedBroker {
  word: BrokerWord;
  saidMs: number;
  topics: Set<string> | null;
}

/** Brokers and their topics within limits. */
class Book {
  readonly brokers = new Map<string, KeptBroker>();
  readonly #keeps: TopicFilter;
  readonly #limits: SourceLimits;
  #registrations = 0;
  #leavesOut = false;
  /** There were too many registrations. */
  #isBlind = false;

  constructor(keeps: TopicFilter, limits: SourceLimits) {
    this.#keeps = keeps;
    this.#limits = limits;
  }

  get problem(): string | null {
    const { brokersMax, registrationsMax } = this.#limits;
    const problems = [
      ...(this.#leavesOut
        ? [`not all of its brokers are known: there are over ${brokersMax}`]
        : []),
      ...(this.#isBlind ? [`its topics are not known: there are over ${registrationsMax}`] : []),
    ];
    return problems.length === 0 ? null : problems.join("; ");
  }

  apply(word: WatchWord, nowMs: number, changed: BrokerObserver): void {
    switch (word.kind) {
      case "added":
        return this.#add(word, nowMs, changed);
      case "changed":
        return this.#change(word, nowMs, changed);
      case "removed": {
        const broker = this.brokers.get(word.id);
        if (broker === undefined) return;
        this.#registrations -= broker.topics?.size ?? 0;
        this.brokers.delete(word.id);
        return changed(word.id, true);
      }
      case "synced":
      case "unknown":
        return;
    }
  }

  #add({ broker, topics }: ListedBroker, nowMs: number, changed: BrokerObserver): void {
    const { id } = broker;
    const before = this.brokers.get(id);
    if (before === undefined && this.brokers.size >= this.#limits.brokersMax) {
      this.#leavesOut = true;
      return;
    }
    this.#registrations -= before?.topics?.size ?? 0;
    const keeps = this.#keeps;
    const kept = keeps === null || this.#isBlind ? null : new Set(topics.filter(keeps));
    this.brokers.set(id, { word: broker, saidMs: nowMs - broker.ageMs, topics: kept });
    changed(id, !isSameTopics(before?.topics, kept));
    this.#count(kept?.size ?? 0, changed);
  }

  #change(
    { id, broker: word, topics }: WatchWord & { kind: "changed" },
    nowMs: number,
    changed: BrokerObserver,
  ): void {
    const broker = this.brokers.get(id);
    // It is one of those left out, or not listed yet: then all of it comes later.
    if (broker === undefined) return;
    if (word !== null) {
      broker.word = word;
      broker.saidMs = nowMs - word.ageMs;
    }
    const { topics: kept } = broker;
    const before = kept?.size ?? 0;
    let topicsChanged = false;
    for (const { topic, present } of topics) {
      if (kept === null || kept.has(topic) === present || !this.#keeps!(topic)) continue;
      if (present) kept.add(topic);
      else kept.delete(topic);
      topicsChanged = true;
    }
    if (word !== null || topicsChanged) changed(id, topicsChanged);
    this.#count((kept?.size ?? 0) - before, changed);
  }

  #count(more: number, changed: BrokerObserver): void {
    this.#registrations += more;
    if (this.#registrations <= this.#limits.registrationsMax) return;
    this.#isBlind = true;
    this.#registrations = 0;
    for (const [id, broker] of this.brokers) {
      broker.topics = null;
      changed(id, true);
    }
  }
}

function isSameTopics(
  a: ReadonlySet<string> | null | undefined,
  b: ReadonlySet<string> | null | undefined,
): boolean {
  if (a === b) return true;
  if (a === null || a === undefined || b === null || b === undefined || a.size !== b.size) {
    return false;
  }
  for (const topic of a) if (!b.has(topic)) return false;
  return true;
}
