/**
 * A topic: hands what becomes visible to its channels, and what its publishers deferred when it is
 * due. One index of due times serves all channels.
 */
import type { ChannelState, TopicState } from "../storage/mod.ts";
import { Channel, type ChannelEffects, type ChannelOptions } from "./channel.ts";
import type { PublishLimiter } from "./token_bucket.ts";
import { DUE_AT_ONCE, DUE_PAUSE_MS, NOT_SCHEDULED, type Timed, wallDueMs } from "./schedule.ts";

/** Unix ms of what came due before anybody could have it. */
const LONG_DUE = 0;

/** The running side of a {@linkcode TopicState}. */
export class Topic implements Timed {
  readonly channels = new Map<string, Channel>();
  scheduledMs = NOT_SCHEDULED;
  deleted = false;
  /** Published since the broker started. */
  messageCount = 0;
  messageBytes = 0;
  /** Bytes that may be published before the topic's limit has to be looked at. */
  quotaRoomBytes = 0;
  /** How fast may be published; null for any. */
  limiter: PublishLimiter | null = null;

  readonly #effects: ChannelEffects;
  readonly #channelOptions: ChannelOptions;

  constructor(
    readonly state: TopicState,
    effects: ChannelEffects,
    channelOptions: ChannelOptions,
  ) {
    this.#effects = effects;
    this.#channelOptions = channelOptions;
  }

  /** Takes up what a start has recovered. */
  recover(nowMs: number, wallMs: number): void {
    const { state } = this;
    if (state.paused) this.hide();
    for (const channelState of state.channels.values()) {
      const channel = this.#addChannel(channelState, true);
      channel.tick(nowMs, wallMs);
    }
    this.appended(nowMs, wallMs);
    for (const channel of this.channels.values()) channel.countTopicDeferred();
    this.#schedule(nowMs, wallMs);
  }

  /**
   * Has all that is deferred wait behind the pause; `appended` brings back what is visible. For a
   * topic without running channels: they would count it as theirs still.
   */
  hide(): void {
    const { state } = this;
    const hidden = state.hiddenDue;
    state.due.each((dueMs, offset) => hidden.push(dueMs, offset));
    state.due.clear();
    for (const offset of state.keptDue) hidden.push(LONG_DUE, offset);
    state.keptDue = [];
    state.hiddenDue = sortedByOffset(hidden);
  }

  /** Messages that no channel has been given: kept for the first one, or behind a pause. */
  get depth(): number {
    const { state } = this;
    const from = this.channels.size === 0
      ? Math.min(state.keepFrom, state.visibleTail)
      : state.visibleTail;
    return state.durableTail - from;
  }

  /** Adds the running side of a channel that was just created. */
  addChannel(state: ChannelState): Channel {
    const channel = this.#addChannel(state, false);
    for (const offset of this.state.keptDue) channel.keep(offset);
    channel.countTopicDeferred();
    this.settle();
    channel.appended();
    return channel;
  }

  /** Forgets what was kept for the first channel, once there is one and no more are expected. */
  settle(): void {
    if (this.state.settled && this.state.durableChannelCount > 0) this.state.keptDue = [];
  }

  /** More messages are durable, or a pause has ended. */
  appended(nowMs: number, wallMs: number): void {
    const { state } = this;
    const pairs = state.hiddenDue;
    if (pairs.length > 0) {
      const { visibleTail } = state;
      let at = 0;
      for (; at < pairs.length && pairs[at + 1]! < visibleTail; at += 2) {
        state.due.push(pairs[at]!, pairs[at + 1]!);
        for (const channel of this.channels.values()) channel.deferred(pairs[at + 1]!);
      }
      // A copy of all that waits behind a pause, with every group, would be too much.
      if (at > 0) state.hiddenDue = pairs.slice(at);
      this.#schedule(nowMs, wallMs);
    }
    for (const channel of this.channels.values()) channel.appended();
  }

  /** Messages below `to` were given up. */
  trimmed(to: number): void {
    const { state } = this;
    state.due.retain((offset) => offset >= to);
    state.keptDue = state.keptDue.filter((offset) => offset >= to);
    let kept = 0;
    // Ascending by offset.
    while (kept < state.hiddenDue.length && state.hiddenDue[kept + 1]! < to) kept += 2;
    state.hiddenDue = state.hiddenDue.slice(kept);
    for (const channel of this.channels.values()) channel.trimmed(to);
  }

  /** Hands out the deferred messages that are due. */
  tick(nowMs: number, wallMs: number): void {
    if (this.deleted) return;
    const { state } = this;
    const keeps = state.durableChannelCount === 0 || !state.settled;
    let left = DUE_AT_ONCE;
    while (state.due.earliestMs <= wallMs && left > 0) {
      left -= 1 + this.channels.size;
      state.due.pop();
      const offset = state.due.poppedOffset;
      if (keeps && offset >= state.keepFrom) state.keptDue.push(offset);
      for (const channel of this.channels.values()) channel.due(offset);
    }
    if (state.due.earliestMs <= wallMs) this.#effects.schedule(this, nowMs + DUE_PAUSE_MS);
    else this.#schedule(nowMs, wallMs);
  }

  #addChannel(state: ChannelState, recovered: boolean): Channel {
    const channel = new Channel(state, this.state, this.#effects, this.#channelOptions, recovered);
    this.channels.set(state.name, channel);
    return channel;
  }

  #schedule(nowMs: number, wallMs: number): void {
    const { earliestMs } = this.state.due;
    if (earliestMs < Infinity) {
      this.#effects.schedule(this, wallDueMs(earliestMs, nowMs, wallMs));
    }
  }
}

/** So many pairs can be numbered in what a number has left beside 31 bits of an offset. */
const PAIRS_AT_ONCE = 2 ** 22;

/** Pairs of Unix ms and offset, the offsets ascending. */
function sortedByOffset(pairs: readonly number[]): number[] {
  const count = pairs.length / 2;
  let [first, last] = [Infinity, 0];
  for (let at = 1; at < pairs.length; at += 2) {
    first = Math.min(first, pairs[at]!);
    last = Math.max(last, pairs[at]!);
  }
  if (count > PAIRS_AT_ONCE || last - first >= 2 ** 31) return sortedPairByPair(pairs);
  // Offset and place in one number: those are sorted many times faster than by a comparison of ours.
  const order = new Float64Array(count);
  for (let index = 0; index < count; index++) {
    order[index] = (pairs[2 * index + 1]! - first) * PAIRS_AT_ONCE + index;
  }
  const sorted: number[] = [];
  for (const packed of order.sort()) {
    const index = packed % PAIRS_AT_ONCE;
    sorted.push(pairs[2 * index]!, pairs[2 * index + 1]!);
  }
  return sorted;
}

function sortedPairByPair(pairs: readonly number[]): number[] {
  const order: [number, number][] = [];
  for (let at = 0; at < pairs.length; at += 2) order.push([pairs[at]!, pairs[at + 1]!]);
  return order.sort((a, b) => a[1] - b[1]).flat();
}
