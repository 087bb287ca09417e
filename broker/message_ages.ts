/**
 * How old the oldest unfinished message of a channel is. The log has the time of a message and nothing
 * else does, so it is read: at once while it is in memory, else from disk. What was read is remembered
 * with the channel until its oldest message is another one, so that whoever asks every few seconds
 * reads little.
 *
 * - A message that cannot be read has no age; it is not tried again while it is the oldest.
 * - Messages are looked at through a reader of its own: what is damaged is counted and recorded when a
 *   consumer meets it, not when somebody looks.
 * - Reads from disk are one at a time for each walk, and bounded by it: {@linkcode COLD_READS_MAX},
 *   {@linkcode COLD_READS_MS_MAX}.
 */
import type { Clock } from "@sluice/shared/runtime";
import { COLD, FOUND, type MessageSource } from "./queue/mod.ts";
import type { ChannelState, TopicState } from "./storage/mod.ts";

/** Messages read from disk for one walk over all channels; ages beyond are left open. */
export const COLD_READS_MAX = 256;
/** No read begins later than this in a walk: a disk may fail, and slowly. */
export const COLD_READS_MS_MAX = 2_000;
/** Tries at one message: what was read may be pushed out before it is looked at. */
const TRIES_MAX = 3;

/** A topic or channel whose oldest message is meant. */
export type AgeOwner = TopicState | ChannelState;

interface Known {
  readonly offset: number;
  /** Unix ms; null for a message that cannot be read. */
  readonly timestampMs: number | null;
}

/** See the module. */
export class MessageAges {
  readonly #source: MessageSource;
  readonly #known = new WeakMap<AgeOwner, Known>();

  readonly #clock: Clock;

  constructor(source: MessageSource, clock: Clock) {
    this.#source = source;
    this.#clock = clock;
  }

  /** A walk over channels, which may read so much from disk. */
  walk(): AgeWalk {
    return new AgeWalk(this, this.#clock);
  }

  /** When the message at `offset` was published, Unix ms, null when that cannot be said; else COLD. */
  find(topic: TopicState, owner: AgeOwner, offset: number): number | null | typeof NOT_READ {
    const known = this.#known.get(owner);
    if (known?.offset === offset) return known.timestampMs;
    const found = this.#source.find(topic, offset);
    if (found === COLD) return NOT_READ;
    const timestampMs = found === FOUND ? this.#source.timestampMs() : null;
    this.#known.set(owner, { offset, timestampMs });
    return timestampMs;
  }

  /** Reads a message from disk, so that `find` knows it. */
  load(topic: TopicState, offset: number): Promise<void> {
    return this.#source.load(topic, offset);
  }
}

/** What `find` says of a message that is on disk. */
export const NOT_READ = Symbol("not read");

/** One walk; see {@linkcode MessageAges}. */
export class AgeWalk {
  readonly #ages: MessageAges;
  readonly #clock: Clock;
  readonly #untilMs: number;
  #coldReadsLeft = COLD_READS_MAX;

  constructor(ages: MessageAges, clock: Clock) {
    this.#ages = ages;
    this.#clock = clock;
    this.#untilMs = clock.monoMs() + COLD_READS_MS_MAX;
  }

  /** When the message was published, Unix ms: null when that cannot be said, a promise when it is read. */
  timestampMs(
    topic: TopicState,
    owner: AgeOwner,
    offset: number,
  ): number | null | Promise<number | null> {
    const found = this.#ages.find(topic, owner, offset);
    if (found !== NOT_READ) return found;
    return this.#mayRead() ? this.#read(topic, owner, offset) : null;
  }

  #mayRead(): boolean {
    return this.#coldReadsLeft > 0 && this.#clock.monoMs() < this.#untilMs;
  }

  async #read(topic: TopicState, owner: AgeOwner, offset: number): Promise<number | null> {
    for (let tries = 0; tries < TRIES_MAX && this.#mayRead(); tries++) {
      this.#coldReadsLeft--;
      await this.#ages.load(topic, offset);
      const found = this.#ages.find(topic, owner, offset);
      if (found !== NOT_READ) return found;
    }
    return null;
  }
}
