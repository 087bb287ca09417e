/**
 * Names that are not to be made again for a while: a topic that was deleted stays away although its
 * producers and consumers have not been stopped yet.
 *
 * - A tombstone is of a topic or of one channel, and ends at a time of the wall clock, since it has to
 *   survive a restart.
 * - There are {@linkcode TOMBSTONES_MAX} at most; those whose time has come make room.
 */
import type { Clock } from "@sluice/shared/runtime";

export const TOMBSTONES_MAX = 4096;
/** The longest that a name may be kept away. */
export const TOMBSTONE_MS_MAX = 365 * 24 * 60 * 60 * 1000;

/** A name that is not to be made; `channel` is null for a whole topic. */
export interface Tombstone {
  readonly topic: string;
  readonly channel: string | null;
  /** Unix ms. */
  readonly untilMs: number;
}

/** See the module. */
export class Tombstones {
  /** Times that there was no room for one more. */
  refusedCount = 0;
  readonly #clock: Pick<Clock, "wallMs">;
  readonly #tombstones = new Map<string, Tombstone>();

  constructor(clock: Pick<Clock, "wallMs">) {
    this.#clock = clock;
  }

  /** Those that are remembered, some of which may have ended. */
  get size(): number {
    return this.#tombstones.size;
  }

  /** Whether a topic, or a channel of one, is not to be made now. */
  holds(topic: string, channel: string | null = null): boolean {
    if (this.#tombstones.size === 0) return false;
    const key = keyOf(topic, channel);
    const tombstone = this.#tombstones.get(key);
    if (tombstone === undefined) return false;
    if (tombstone.untilMs > this.#clock.wallMs()) return true;
    this.#tombstones.delete(key);
    return false;
  }

  /** Whether one more may be set. */
  hasRoom(topic: string, channel: string | null): boolean {
    if (this.#tombstones.size < TOMBSTONES_MAX) return true;
    if (this.#tombstones.has(keyOf(topic, channel))) return true;
    this.#forgetPast();
    if (this.#tombstones.size < TOMBSTONES_MAX) return true;
    this.refusedCount++;
    return false;
  }

  /** Sets one in place of what there was; one whose time has come is none. */
  set(tombstone: Tombstone): void {
    const key = keyOf(tombstone.topic, tombstone.channel);
    this.#tombstones.delete(key);
    if (tombstone.untilMs > this.#clock.wallMs()) this.#tombstones.set(key, tombstone);
  }

  /** Those that hold now, in the order in which they were set. */
  all(): readonly Tombstone[] {
    this.#forgetPast();
    return [...this.#tombstones.values()];
  }

  #forgetPast(): void {
    const wallMs = this.#clock.wallMs();
    for (const [key, { untilMs }] of this.#tombstones) {
      if (untilMs <= wallMs) this.#tombstones.delete(key);
    }
  }
}

/** No name has a slash in it. */
function keyOf(topic: string, channel: string | null): string {
  return channel === null ? topic : `${topic}/${channel}`;
}
