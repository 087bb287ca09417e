/**
 * `/v1/watch`: what changes, as server-sent events. A watcher gets
 *
 * - `added` for every broker there is, with its topics, and then `synced`: it has seen all;
 * - then `added`, `changed` and `removed` as brokers and their topics do. Changes of
 *   {@linkcode BATCH_MS} come together; what came and went within it is not told;
 * - a comment every {@linkcode HEARTBEAT_MS}, so that both sides notice a broken connection.
 *
 * Each event says how things are, not what was done, so whoever applies all of them in order ends with
 * the state of the registry, even where the first part and later changes overlap. `added` replaces
 * what is known of a broker. The `id` of an event is the revision; it means nothing to another
 * instance, so whoever connects again starts anew.
 *
 * A watcher that lets {@linkcode QUEUE_BYTES_MAX} wait is closed, and so may start anew; nobody waits
 * for it.
 */
import type { Clock, Timer } from "@sluice/shared/runtime";
import type { Roster, RosterObserver } from "./roster.ts";

export const BATCH_MS = 20;
export const HEARTBEAT_MS = 15_000;
export const QUEUE_BYTES_MAX = 4 * 1024 * 1024;
/** More changes of one broker than this are told by telling all of it again. */
export const CHANGES_MAX = 1_000;

const HEARTBEAT = new TextEncoder().encode(": still here\n\n");

/** What happened to watchers, for the metrics. */
export interface WatchFigures {
  readonly watchers: number;
  readonly opened: number;
  /** Closed because they did not read. */
  readonly slow: number;
  /** Turned away because there were too many. */
  readonly refused: number;
}

export interface WatchOptions {
  readonly roster: Roster;
  readonly clock: Clock;
  readonly instance: string;
  readonly watchersMax: number;
  /** What a watcher may let wait; {@linkcode QUEUE_BYTES_MAX} by default. */
  readonly queueBytesMax?: number;
}

interface Dirty {
  /** It came, went, or so much of it changed that all of it is told. */
  whole: boolean;
  /** What it says of itself changed. */
  broker: boolean;
  /** Topic to channels that changed; `null` among them stands for the topic itself. */
  readonly topics: Map<string, Set<string | null>>;
  changes: number;
}

/** All watchers of a service. */
export class WatchHub implements RosterObserver {
  readonly #options: WatchOptions;
  readonly #watchers = new Set<Watcher>();
  readonly #dirty = new Map<string, Dirty>();
  #batch: Timer | null = null;
  #heartbeat: Timer | null = null;
  #opened = 0;
  #slow = 0;
  #refused = 0;
  #closed = false;

  constructor(options: WatchOptions) {
    this.#options = options;
    options.roster.observer = this;
  }

  get figures(): WatchFigures {
    return {
      watchers: this.#watchers.size,
      opened: this.#opened,
      slow: this.#slow,
      refused: this.#refused,
    };
  }

  /** The events for one more watcher; `null` when there are too many, or the service stops. */
  open(): ReadableStream<Uint8Array> | null {
    const { roster, watchersMax, instance } = this.#options;
    if (this.#closed || this.#watchers.size >= watchersMax) {
      this.#refused += 1;
      return null;
    }
    // What is still to be told belongs to those who watch already.
    this.#flush();
    this.#opened += 1;
    const watcher = new Watcher({
      ids: roster.ids(),
      event: (id) => this.#whole(id),
      synced: () => {
        const { revision } = roster;
        return encodeEvent("synced", revision, { revision, instance });
      },
      queueBytesMax: this.#options.queueBytesMax ?? QUEUE_BYTES_MAX,
      onEnd: (isSlow) => {
        this.#watchers.delete(watcher);
        if (isSlow) this.#slow += 1;
        if (this.#watchers.size === 0) this.#stopTimers();
      },
    });
    this.#watchers.add(watcher);
    this.#heartbeat ??= this.#nextHeartbeat();
    return watcher.stream;
  }

  /** Ends every watch; there are no more after it. */
  close(): void {
    this.#closed = true;
    for (const watcher of [...this.#watchers]) watcher.end();
    this.#stopTimers();
  }

  presenceChanged(id: string): void {
    const dirty = this.#mark(id);
    if (dirty !== null) dirty.whole = true;
  }

  brokerChanged(id: string): void {
    const dirty = this.#mark(id);
    if (dirty !== null) dirty.broker = true;
  }

  registrationChanged(id: string, topic: string, channel: string | null): void {
    const dirty = this.#mark(id);
    if (dirty === null || dirty.whole) return;
    dirty.changes += 1;
    if (dirty.changes > CHANGES_MAX) {
      dirty.whole = true;
      dirty.topics.clear();
      return;
    }
    let channels = dirty.topics.get(topic);
    if (channels === undefined) dirty.topics.set(topic, channels = new Set());
    channels.add(channel);
  }

  #mark(id: string): Dirty | null {
    if (this.#watchers.size === 0) return null;
    let dirty = this.#dirty.get(id);
    if (dirty === undefined) {
      dirty = { whole: false, broker: false, topics: new Map(), changes: 0 };
      this.#dirty.set(id, dirty);
    }
    this.#batch ??= this.#options.clock.setTimer(BATCH_MS, () => this.#flush());
    return dirty;
  }

  #flush(): void {
    this.#batch?.cancel();
    this.#batch = null;
    const batch = [...this.#dirty];
    this.#dirty.clear();
    for (const [id, dirty] of batch) {
      const event = dirty.whole ? this.#whole(id) : this.#change(id, dirty);
      for (const watcher of [...this.#watchers]) watcher.push(event);
    }
  }

  /** A broker as it is, or that it is not there. */
  #whole(id: string): Uint8Array {
    const { roster } = this.#options;
    const { revision } = roster;
    const broker = roster.broker(id);
    return broker === null
      ? encodeEvent("removed", revision, { revision, id })
      : encodeEvent("added", revision, { revision, id, broker, topics: roster.topics(id) });
  }

  #change(id: string, dirty: Dirty): Uint8Array {
    const { roster } = this.#options;
    const { revision } = roster;
    const broker = roster.broker(id);
    if (broker === null) return encodeEvent("removed", revision, { revision, id });
    const changes = [...dirty.topics].flatMap(([topic, channels]) =>
      [...channels].map((channel) => ({
        topic,
        channel,
        present: roster.isRegistered(id, topic, channel),
      }))
    );
    return encodeEvent("changed", revision, {
      revision,
      id,
      ...(dirty.broker ? { broker } : {}),
      registrations: changes,
    });
  }

  #nextHeartbeat(): Timer {
    return this.#options.clock.setTimer(HEARTBEAT_MS, () => {
      this.#heartbeat = this.#nextHeartbeat();
      for (const watcher of [...this.#watchers]) watcher.beat();
    });
  }

  #stopTimers(): void {
    this.#batch?.cancel();
    this.#batch = null;
    this.#heartbeat?.cancel();
    this.#heartbeat = null;
    this.#dirty.clear();
  }
}

interface WatcherOptions {
  readonly ids: readonly string[];
  readonly event: (id: string) => Uint8Array;
  readonly synced: () => Uint8Array;
  readonly queueBytesMax: number;
  readonly onEnd: (isSlow: boolean) => void;
}

/** One stream: first what there is, made as it is read, then what was pushed. */
class Watcher {
  readonly stream: ReadableStream<Uint8Array>;
  readonly #options: WatcherOptions;
  readonly #ids: Iterator<string>;
  readonly #queue: Uint8Array[] = [];
  #queuedBytes = 0;
  #controller: ReadableStreamDefaultController<Uint8Array> | null = null;
  #wanted: (() => void) | null = null;
  #ended = false;
  #listed = false;

  constructor(options: WatcherOptions) {
    this.#options = options;
    this.#ids = options.ids[Symbol.iterator]();
    this.stream = new ReadableStream({
      start: (controller) => {
        this.#controller = controller;
      },
      pull: () => this.#pull(),
      cancel: () => this.#finish(false),
    }, { highWaterMark: 1 });
  }

  push(event: Uint8Array): void {
    if (this.#ended) return;
    if (this.#queuedBytes + event.length > this.#options.queueBytesMax) return this.end(true);
    this.#queue.push(event);
    this.#queuedBytes += event.length;
    this.#wake();
  }

  /** A heartbeat, unless something waits to be read anyway. */
  beat(): void {
    if (this.#listed && this.#queue.length === 0) this.push(HEARTBEAT);
  }

  /** Ends the stream after what it has handed over. */
  end(isSlow = false): void {
    if (this.#ended) return;
    this.#finish(isSlow);
    this.#controller?.close();
  }

  #pull(): Promise<void> | void {
    if (!this.#listed) {
      const next = this.#ids.next();
      if (next.done !== true) return this.#controller?.enqueue(this.#options.event(next.value));
      this.#listed = true;
      this.push(this.#options.synced());
    }
    const event = this.#queue.shift();
    if (event !== undefined) {
      this.#queuedBytes -= event.length;
      return this.#controller?.enqueue(event);
    }
    return new Promise<void>((resolve) => {
      this.#wanted = resolve;
    }).then(() => this.#ended ? undefined : this.#pull());
  }

  #finish(isSlow: boolean): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#queue.length = 0;
    this.#queuedBytes = 0;
    this.#wake();
    this.#options.onEnd(isSlow);
  }

  #wake(): void {
    const wanted = this.#wanted;
    this.#wanted = null;
    wanted?.();
  }
}

/** An event of `text/event-stream`. JSON has no line breaks of its own. */
function encodeEvent(name: string, revision: number, data: unknown): Uint8Array {
  return new TextEncoder().encode(
    `event: ${name}\nid: ${revision}\ndata: ${JSON.stringify(data)}\n\n`,
  );
}
