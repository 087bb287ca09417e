/**
 * The brokers there are, from any number of discovery services and a list in the settings, each once.
 * Services do not agree among themselves, so they are all followed, and this is what their words come to:
 *
 * - **A broker is there while any source lists it**, in what that source said last. A source that is lost
 *   takes nobody away: whoever connects finds out.
 * - **One word decides** about readiness and ports, chosen in this order:
 *   1. of a source that is current before that of one that is not. A stream that is open tells every
 *      change within a moment, so what it said long ago is how things are now; what a lost source said
 *      last is not, however late that was;
 *   2. of the broker itself when it was asked, before what is only taken to be so because it is
 *      registered or in the settings: nobody has seen a reason against it, which is no knowledge;
 *   3. the one that was true last: when it came, less the age it had then. Sources that are current hear
 *      of a change at different moments, and who says another thing first is ahead of the others;
 *   4. the one that is ready for publishes.
 * - **It has a topic** when any current source says so; what others said counts when no current one knows
 *   the topics of the broker.
 *
 * At most {@linkcode BROKERS_MAX} brokers are known; those above it come in as others go. What is kept of one
 * source is bounded by `SOURCE_LIMITS_DEFAULT`.
 */
import { hostAndPort } from "../runtime/mod.ts";
import { BrokerWatch, type DiscoverySeams, NODES_INTERVAL_MS } from "./broker_watch.ts";
import {
  SOURCE_LIMITS_DEFAULT,
  type SourcedBroker,
  type SourceStatus,
  SourceView,
  type TopicFilter,
} from "./source_view.ts";

export const BROKERS_MAX = SOURCE_LIMITS_DEFAULT.brokersMax;

/** Where brokers are found. */
export interface BrokerDirectoryOptions {
  /** Base URLs of discovery services or nsqlookupds, such as `http://discovery:4161`. */
  readonly discoveryUrls: readonly string[];
  /** Brokers that are always there. Nobody tells their topics, unless a service lists them too. */
  readonly brokers: readonly { readonly host: string; readonly tcpPort: number }[];
  /** Which topics of brokers are kept: all, none, or those it says yes to. */
  readonly keepsTopics: boolean | ((topic: string) => boolean);
  /** The time between two questions to an nsqlookupd; {@linkcode NODES_INTERVAL_MS} by default. */
  readonly nodesIntervalMs?: number;
  /** Brokers that are known at most; {@linkcode BROKERS_MAX} by default. */
  readonly brokersMax?: number;
}

/** A broker as all sources together know it. Its fields do not change: another one takes its place. */
export interface KnownBroker {
  /** `<broadcast address>:<TCP port>`. */
  readonly id: string;
  readonly host: string;
  readonly tcpPort: number;
  readonly httpPort: number | null;
  readonly publishReady: boolean;
  readonly consumeReady: boolean;
  /** Why it is not ready, in codes of the broker's `/v1/health`. */
  readonly reasons: readonly string[];
  /** Whether it has the topic now; `null` when nobody knows, or the topic is not kept. */
  hasTopic(topic: string): boolean | null;
}

/** Told of brokers that came, went, or are not as they were; some may be as they were. */
export type DirectoryListener = (ids: ReadonlySet<string>) => void;

/** What {@linkcode BrokerDirectory} gives to those who use brokers. */
export interface BrokerSet {
  readonly brokers: ReadonlyMap<string, KnownBroker>;
  /** Returns what ends it. */
  onChange(listener: DirectoryListener): () => void;
}

interface NamedView {
  readonly url: string | null;
  readonly view: SourceView;
}

/** See the module. */
export class BrokerDirectory implements BrokerSet {
  readonly #options: BrokerDirectoryOptions;
  readonly #seams: DiscoverySeams;
  readonly #views: NamedView[] = [];
  readonly #watches: BrokerWatch[] = [];
  readonly #keeps: TopicFilter;
  readonly #brokersMax: number;
  readonly #known = new Map<string, MergedBroker>();
  readonly #listeners = new Set<DirectoryListener>();
  /** Brokers to look at again, and whether their topics changed. */
  readonly #dirty = new Map<string, boolean>();
  #changed = new Set<string>();
  #isCalling = false;
  #leavesOut = false;
  #stopped = false;

  constructor(options: BrokerDirectoryOptions, seams: DiscoverySeams) {
    this.#options = options;
    this.#seams = seams;
    this.#brokersMax = options.brokersMax ?? BROKERS_MAX;
    const { keepsTopics } = options;
    this.#keeps = typeof keepsTopics === "function" ? keepsTopics : keepsTopics ? () => true : null;
  }

  /** Once. Brokers of the settings are there when it returns. */
  start(): void {
    const { discoveryUrls, brokers, nodesIntervalMs } = this.#options;
    if (brokers.length > 0) {
      const listed = brokers.map(({ host, tcpPort }) => ({
        broker: staticWord(host, tcpPort),
        topics: [],
      }));
      this.#view(null, "static").list("static", listed, -Infinity);
    }
    for (const url of discoveryUrls) {
      const view = this.#view(url, "watch");
      this.#watches.push(
        new BrokerWatch(url, view, this.#seams, nodesIntervalMs ?? NODES_INTERVAL_MS),
      );
    }
    for (const watch of this.#watches) watch.start();
  }

  /** Resolves when nothing is asked any more. What is known stays; nobody is told of anything. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#listeners.clear();
    await Promise.all(this.#watches.map((watch) => watch.stop()));
  }

  /** The brokers there are, by id. The same map for good, as it is now. */
  get brokers(): ReadonlyMap<string, KnownBroker> {
    this.#merge();
    return this.#known;
  }

  /** Calls `listener` once for all changes of a turn of the event loop. Returns what ends it. */
  onChange(listener: DirectoryListener): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  sources(): SourceStatus[] {
    const nowMs = this.#seams.clock.monoMs();
    return this.#views.map(({ url, view }) => {
      const status = view.status(url, nowMs);
      return url === null ? { ...status, ageMs: 0 } : status;
    });
  }

  /** Whether each source has said what there is, or has failed to, at least once. */
  get isSettled(): boolean {
    return this.#views.length >= this.#options.discoveryUrls.length &&
      this.#views.every(({ view }) => view.state !== "starting");
  }

  #view(url: string | null, kind: SourceStatus["kind"]): SourceView {
    const keeps = kind === "static" ? null : this.#keeps;
    const view = new SourceView(kind, keeps, (id, topics) => this.#touch(id, topics));
    this.#views.push({ url, view });
    return view;
  }

  #touch(id: string, topicsChanged: boolean): void {
    if (this.#stopped) return;
    this.#dirty.set(id, topicsChanged || this.#dirty.get(id) === true);
    if (this.#isCalling) return;
    this.#isCalling = true;
    queueMicrotask(() => this.#call());
  }

  #call(): void {
    this.#isCalling = false;
    this.#merge();
    const changed = this.#changed;
    if (changed.size === 0) return;
    this.#changed = new Set();
    for (const listener of [...this.#listeners]) listener(changed);
  }

  #merge(): void {
    if (this.#dirty.size === 0) return;
    const dirty = [...this.#dirty];
    this.#dirty.clear();
    let hasRoomAgain = false;
    for (const [id, topicsChanged] of dirty) {
      const wasFull = this.#known.size >= this.#brokersMax;
      this.#mergeOne(id, topicsChanged);
      hasRoomAgain ||= wasFull && this.#known.size < this.#brokersMax;
    }
    if (hasRoomAgain && this.#leavesOut) this.#takeIn();
  }

  #mergeOne(id: string, topicsChanged: boolean): void {
    const before = this.#known.get(id);
    const broker = mergedBroker(this.#views, id);
    if (broker === null) {
      if (this.#known.delete(id)) this.#changed.add(id);
      return;
    }
    if (before === undefined && this.#known.size >= this.#brokersMax) {
      if (!this.#leavesOut) {
        this.#seams.logger.warn("not all brokers are known: there are too many", {
          brokers_max: this.#brokersMax,
        });
      }
      this.#leavesOut = true;
      return;
    }
    this.#known.set(id, broker);
    const isSame = before !== undefined && isSameBroker(before, broker) && !topicsChanged;
    if (!isSame) this.#changed.add(id);
  }

  /** Looks again at those that had no room. */
  #takeIn(): void {
    this.#leavesOut = false;
    for (const { view } of this.#views) {
      for (const id of view.brokers.keys()) if (!this.#known.has(id)) this.#mergeOne(id, true);
    }
  }
}

/** What a source says, and whether it is current. */
interface Voice {
  readonly said: SourcedBroker;
  readonly isCurrent: boolean;
}

class MergedBroker implements KnownBroker {
  readonly id: string;
  readonly host: string;
  readonly tcpPort: number;
  readonly httpPort: number | null;
  readonly publishReady: boolean;
  readonly consumeReady: boolean;
  readonly reasons: readonly string[];
  readonly #voices: readonly Voice[];

  /** The voices in the order of their weight. */
  constructor(best: Voice, voices: readonly Voice[]) {
    const { word } = best.said;
    this.id = word.id;
    this.host = word.host;
    this.tcpPort = word.tcpPort;
    this.httpPort = voices.find(({ said }) => said.word.httpPort !== null)?.said.word.httpPort ??
      null;
    this.publishReady = word.publishReady;
    this.consumeReady = word.consumeReady;
    this.reasons = word.reasons;
    this.#voices = voices;
  }

  hasTopic(topic: string): boolean | null {
    return hasTopic(this.#voices, true, topic) ?? hasTopic(this.#voices, false, topic);
  }
}

/** What the voices that are current, or those that are not, know of a topic. */
function hasTopic(voices: readonly Voice[], current: boolean, topic: string): boolean | null {
  let has: boolean | null = null;
  for (const { said, isCurrent } of voices) {
    if (isCurrent !== current) continue;
    if (said.topics?.has(topic) === true) return true;
    if (said.topics !== null) has = false;
  }
  return has;
}

/** See the module for the order. */
function mergedBroker(views: readonly NamedView[], id: string): MergedBroker | null {
  const voices: Voice[] = [];
  for (const { view } of views) {
    const said = view.brokers.get(id);
    if (said !== undefined) voices.push({ said, isCurrent: view.state === "current" });
  }
  const [best] = voices.sort(compareVoices);
  return best === undefined ? null : new MergedBroker(best, voices);
}

function compareVoices(a: Voice, b: Voice): number {
  return Number(b.isCurrent) - Number(a.isCurrent) ||
    Number(b.said.word.isObserved) - Number(a.said.word.isObserved) ||
    compareTimes(b.said.saidMs, a.said.saidMs) ||
    Number(b.said.word.publishReady) - Number(a.said.word.publishReady);
}

/** Without the difference of two infinities, which is no number. */
function compareTimes(a: number, b: number): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

function isSameBroker(a: KnownBroker, b: KnownBroker): boolean {
  return a.host === b.host && a.tcpPort === b.tcpPort && a.httpPort === b.httpPort &&
    a.publishReady === b.publishReady && a.consumeReady === b.consumeReady &&
    a.reasons.join() === b.reasons.join();
}

/** A broker in the settings: nobody knows more than that it is to be used. */
function staticWord(host: string, tcpPort: number) {
  return {
    id: hostAndPort(host, tcpPort),
    host,
    tcpPort,
    httpPort: null,
    publishReady: true,
    consumeReady: true,
    reasons: [],
    isObserved: false,
    ageMs: 0,
  };
}
