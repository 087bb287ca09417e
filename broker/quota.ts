/**
 * A bound on the bytes that one topic holds in the log, from the oldest message that anybody is owed
 * to the newest one. At the bound a topic either refuses publishes or gives up its oldest messages.
 *
 * - What a topic holds is estimated as in `storage/run_bytes.ts`, well enough for a bound: it is
 *   measured when what has been published since the last time may have used up the room, and a topic
 *   that is full is measured again at each attempt. One command may go beyond the bound, once.
 * - `drop_oldest` gives up a sixteenth of the bound at a time, so that not every publish has to. The
 *   audit trail says once a minute what each topic has given up since.
 */
import type { Audit } from "./audit.ts";
import { gapsOf } from "./eviction.ts";
import type { Topic } from "./queue/mod.ts";
import { bytesFrom, offsetKeeping, type Quota, type TopicState } from "./storage/mod.ts";

/** What a publisher is told. */
export const QUOTA_TEXT = "the topic has reached its limit";

/** Given up at a time, of the bound. */
const DROP_SHARE = 1 / 16;
/** From one line of the audit trail about a topic to the next. */
export const QUOTA_REPORT_MS = 60_000;

/** What {@linkcode TopicQuotas} works on. */
export interface QuotaWorld {
  readonly audit: Pick<Audit, "record">;
  /** The bound of a topic. */
  quotaOf(topic: TopicState): Quota;
  /** Gives up what a topic has below an offset. */
  trim(topic: Topic, to: number): void;
}

/** See the module. */
export class TopicQuotas {
  /** Publish commands that were refused. */
  refusedCount = 0;
  /** Messages given up; one counts once for each channel that was owed it. */
  droppedCount = 0;
  readonly #world: QuotaWorld;
  /** Given up and not in the audit trail yet, by topic. */
  readonly #unreported = new Map<string, { to: number; messages: number }>();
  #reportedMs = -Infinity;

  constructor(world: QuotaWorld) {
    this.#world = world;
  }

  /** Bytes a topic holds. */
  heldBytes({ index, liveFrom }: TopicState): number {
    return bytesFrom(index.runs, liveFrom);
  }

  /** Whether a topic whose room is used up, as far as known, takes a publish all the same. */
  admits(topic: Topic): boolean {
    const { bytesMax, action } = this.#world.quotaOf(topic.state);
    topic.quotaRoomBytes = bytesMax === 0 ? Infinity : bytesMax - this.heldBytes(topic.state);
    if (topic.quotaRoomBytes > 0) return true;
    if (action === "drop_oldest") {
      this.#drop(topic, bytesMax);
      topic.quotaRoomBytes = bytesMax - this.heldBytes(topic.state);
      if (topic.quotaRoomBytes > 0) return true;
    }
    this.refusedCount++;
    return false;
  }

  /** Puts what was given up in the audit trail, when it is time for that or all ends. */
  report(nowMs: number, isLast = false): void {
    if (this.#unreported.size === 0) return;
    if (!isLast && nowMs - this.#reportedMs < QUOTA_REPORT_MS) return;
    this.#reportedMs = nowMs;
    for (const [topic, { to, messages }] of this.#unreported) {
      this.#world.audit.record({ event: "topic_trimmed", topic, to, messages });
    }
    this.#unreported.clear();
  }

  #drop(topic: Topic, bytesMax: number): void {
    const { state } = topic;
    // What is not on disk yet, or hidden behind a pause, is not given up.
    const to = Math.min(
      offsetKeeping(state.index.runs, bytesMax * (1 - DROP_SHARE)),
      state.visibleTail,
    );
    if (to <= state.liveFrom) return;
    const messages = gapsOf(state, to).reduce((sum, gap) => sum + gap.messages, 0);
    this.droppedCount += messages;
    this.#world.trim(topic, to);
    const before = this.#unreported.get(state.name)?.messages ?? 0;
    this.#unreported.set(state.name, { to, messages: before + messages });
  }
}
