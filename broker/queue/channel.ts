/**
 * A channel: who gets which message when. A pure machine over its durable state: each method is one
 * input at a given time, what has to happen outside goes through {@linkcode ChannelEffects}, and
 * nothing here waits.
 *
 * ```
 *                 cursor                         (first delivery, in offset order)
 *   ready <- requeued at once, timed out, left by a consumer, come due
 *        \   /
 *       dispatch -> in flight -> finished
 *                      |-> requeued at once / timed out / consumer left -> ready
 *                      '-> requeued for later -> deferred -> ready
 * ```
 *
 * - In flight is a view: a message leaves the log's debt only by FIN, so a crash, a disconnect or a
 *   timeout can only deliver it again.
 * - A consumer has at most `ready` (RDY) messages in flight, and takes turns with the others that can
 *   take one.
 * - When both new messages and messages to deliver again wait, they alternate.
 * - A message that its publisher deferred is never reached by the cursor; the topic hands it over
 *   when it is due.
 */
import { type Random, randomBelow } from "@sluice/shared/runtime";
import { type ChannelState, type DueEntry, DueHeap, type TopicState } from "../storage/mod.ts";
import { Consumer, type ConsumerPort, ConsumerRing } from "./consumer.ts";
import { InFlightTable } from "./in_flight.ts";
import type { LatencyWindow } from "./latency.ts";
import { COLD, FOUND, GONE, type MessageSource } from "./message_source.ts";
import { OffsetQueue } from "./offset_queue.ts";
import { DUE_AT_ONCE, DUE_PAUSE_MS, NOT_SCHEDULED, type Timed, wallDueMs } from "./schedule.ts";

/** What a channel asks of the broker. */
export interface ChannelEffects {
  readonly source: MessageSource;
  readonly random: Random;
  /** The message is finished, durably as soon as the next group is. */
  finish(channel: ChannelState, offset: number): void;
  /** The message is owed again, durably: at `dueMs` (Unix ms, 0: at once). */
  requeue(channel: ChannelState, offset: number, attempts: number, dueMs: number): void;
  empty(channel: ChannelState, to: number): void;
  /** Calls `tick` at a monotonic time. */
  schedule(timed: Timed, dueMs: number): void;
  /** Calls `dispatch` soon, after the input at hand. */
  wake(channel: Channel): void;
}

/** Limits a channel keeps to. */
export interface ChannelOptions {
  /** Touching cannot keep a message in flight for longer than this after its delivery. */
  readonly msgTimeoutMsMax: number;
  /** Consumers allowed at a time; 0 for any number. */
  readonly consumersMax: number;
  /** What a leaving consumer has in flight is ready again at once, else when it times out. */
  readonly requeueOnDisconnect: boolean;
  /** Makes what measures a channel from publish to finish; nothing is measured without. */
  readonly newLatency?: () => LatencyWindow;
  /** Told when a message was published that is finished now, Unix ms, of one in {@linkcode SAMPLED_OF}. */
  readonly onSample?: (publishedMs: number) => void;
}

/** Of so many messages one is measured from publish to finish, by its sequence; a power of two. */
export const SAMPLED_OF = 16;

/** The answer to FIN, REQ and TOUCH. */
export type InFlightOutcome = "done" | "not_in_flight" | "not_owner";

/** Where a message that somebody looks at is. */
export interface Looked {
  readonly state: "ready" | "in_flight" | "deferred";
  /** Deliveries so far; those before a time-out are not known of one that waits. */
  readonly attempts: number;
  /** Unix ms, 0 when it is not deferred. */
  readonly dueMs: number;
}

/** What {@linkcode Channel.takeNext} came to: the message is to be loaded first, or to ask again. */
export type Taken = "taken" | "none" | "later" | { readonly load: number };

/** Messages passed over for one that is taken, at a time. */
const TAKE_STEPS_MAX = 1024;
/** Entries of the topic looked at for each deferred message of a channel that is asked for. */
const DUE_LOOKS = 8;

/** See the module. Monotonic times are `nowMs`, Unix times `wallMs`. */
export class Channel implements Timed {
  readonly consumers = new Map<number, Consumer>();
  scheduledMs = NOT_SCHEDULED;
  /** Set while the channel waits to be dispatched; kept by the broker. */
  woken = false;
  /** What it has delivered last, or tried to, came from disk. */
  isLagging = false;
  deleted = false;
  /** Where the log has to be durable for the channel to survive a crash; kept by the broker. */
  createdEnd = 0;
  timeoutCount = 0;
  requeueCount = 0;
  deliveredCount = 0;
  /** Deferred by their publisher and not due yet. */
  topicDeferred = 0;
  /** From publish to finish; null when that is not measured. */
  readonly latency: LatencyWindow | null;

  readonly #effects: ChannelEffects;
  readonly #options: ChannelOptions;
  readonly #inFlight: InFlightTable;
  readonly #ring = new ConsumerRing();
  readonly #ready = new OffsetQueue();
  readonly #deferred = new DueHeap();
  /** Offsets in `#deferred` that were cancelled: finished, and not to be counted. */
  readonly #cancelled = new Set<number>();
  /** Lists of consumers that left while their messages may still time out. */
  readonly #orphans = new Map<number, Consumer>();
  readonly #enteredFrom: number;
  #cursor: number;
  /** Below it the cursor may meet messages that are finished or owed already. */
  #checkUntil: number;
  #lastWasReady = false;
  /** Deliveries before of the message that `#take` took from `#ready`. */
  #readyAttempts = 0;
  #loading = false;
  #consumerNumber = 0;

  constructor(
    readonly state: ChannelState,
    readonly topic: TopicState,
    effects: ChannelEffects,
    options: ChannelOptions,
    recovered: boolean,
  ) {
    this.#effects = effects;
    this.#options = options;
    this.latency = options.newLatency?.() ?? null;
    this.#inFlight = new InFlightTable(this.latency !== null || options.onSample !== undefined);
    this.#cursor = state.finished.floor;
    this.#enteredFrom = recovered ? topic.visibleTail : state.start;
    this.#checkUntil = topic.tail;
    const ready: [offset: number, attempts: number][] = [];
    for (const [offset, owed] of state.requeues) {
      if (owed.dueMs === 0) ready.push([offset, owed.attempts]);
      else this.#deferred.push(owed.dueMs, offset);
    }
    // In the order in which they were published, as far as that is possible.
    ready.sort(([one], [other]) => one - other);
    for (const [offset, attempts] of ready) this.#ready.push(offset, attempts);
  }

  /** Messages it could deliver now. */
  get depth(): number {
    const { finished } = this.state;
    const owed = this.topic.visibleTail - finished.floor - finished.above;
    return Math.max(0, owed - this.#inFlight.size - this.deferredCount);
  }

  get inFlightCount(): number {
    return this.#inFlight.size;
  }

  get deferredCount(): number {
    return this.#deferred.size - this.#cancelled.size + this.topicDeferred;
  }

  /** When the next deferred message may come due, Unix ms; Infinity when none is deferred. */
  get nextDueMs(): number {
    const publishedMs = this.topicDeferred > 0 ? this.topic.due.earliestMs : Infinity;
    return Math.min(this.#deferred.earliestMs, publishedMs);
  }

  /** Messages that have entered it since the broker started. */
  get messageCount(): number {
    return Math.max(0, this.topic.visibleTail - this.#enteredFrom);
  }

  /** Adds a consumer, or null when there are as many as may be. */
  join(port: ConsumerPort, msgTimeoutMs: number, sampleRate: number): Consumer | null {
    const { consumersMax } = this.#options;
    if (consumersMax > 0 && this.consumers.size >= consumersMax) return null;
    const consumer = new Consumer(this.#consumerNumber++, port, msgTimeoutMs, sampleRate);
    this.consumers.set(consumer.number, consumer);
    return consumer;
  }

  /** A consumer's connection has ended. */
  leave(consumer: Consumer): void {
    this.consumers.delete(consumer.number);
    this.#ring.remove(consumer);
    consumer.closing = true;
    if (consumer.deliveries.count === 0) return;
    if (this.#options.requeueOnDisconnect) this.#takeBackAll(consumer);
    else this.#orphans.set(consumer.number, consumer);
    this.#wake();
  }

  /** Has a start know how often the messages were delivered that a consumer has, for as long as there is room. */
  keepAttempts(consumer: Consumer, hasRoom: () => boolean): void {
    for (let slot = consumer.deliveries.head; slot >= 0; slot = this.#inFlight.next(slot)) {
      if (!hasRoom()) return;
      this.#effects.requeue(
        this.state,
        this.#inFlight.offset(slot),
        this.#inFlight.attempts(slot),
        0,
      );
    }
  }

  /** RDY: the most messages it wants in flight. */
  credit(consumer: Consumer, ready: number): void {
    consumer.ready = ready;
    this.writable(consumer);
  }

  /** CLS: it wants no more; what it has can still be answered. */
  close(consumer: Consumer): void {
    consumer.closing = true;
    this.#ring.remove(consumer);
  }

  /** Something about what the consumer can take has changed. */
  writable(consumer: Consumer): void {
    this.#ring.update(consumer);
    if (this.#ring.current !== null) this.#wake();
  }

  /** FIN. */
  finish(consumer: Consumer, sequence: number): InFlightOutcome {
    const slot = this.#inFlight.find(sequence);
    if (slot < 0) return "not_in_flight";
    if (this.#inFlight.owner(slot) !== consumer.number) return "not_owner";
    const offset = this.#inFlight.offset(slot);
    if (this.latency !== null) this.latency.finished(this.#inFlight.timestampMs(slot));
    if (isSampled(sequence)) this.#options.onSample?.(this.#inFlight.timestampMs(slot));
    this.#inFlight.remove(slot, consumer.deliveries);
    consumer.finishCount++;
    this.#effects.finish(this.state, offset);
    this.writable(consumer);
    return "done";
  }

  /** REQ: owed again after `delayMs`. */
  requeue(
    consumer: Consumer,
    sequence: number,
    delayMs: number,
    nowMs: number,
    wallMs: number,
  ): InFlightOutcome {
    const slot = this.#inFlight.find(sequence);
    if (slot < 0) return "not_in_flight";
    if (this.#inFlight.owner(slot) !== consumer.number) return "not_owner";
    const offset = this.#inFlight.offset(slot);
    const attempts = this.#inFlight.attempts(slot);
    const dueMs = delayMs === 0 ? 0 : wallMs + delayMs;
    this.#effects.requeue(this.state, offset, attempts, dueMs);
    this.#inFlight.remove(slot, consumer.deliveries);
    consumer.requeueCount++;
    this.requeueCount++;
    if (dueMs === 0) {
      this.#ready.push(offset, attempts);
      // The message behind it in line comes first, as from the tail of a queue.
      this.#lastWasReady = true;
    } else {
      this.#deferred.push(dueMs, offset);
      this.#effects.schedule(this, wallDueMs(dueMs, nowMs, wallMs));
    }
    this.writable(consumer);
    return "done";
  }

  /** TOUCH: a new deadline, never beyond the longest time a message may be in flight. */
  touch(consumer: Consumer, sequence: number, nowMs: number): InFlightOutcome {
    const slot = this.#inFlight.find(sequence);
    if (slot < 0) return "not_in_flight";
    if (this.#inFlight.owner(slot) !== consumer.number) return "not_owner";
    const latestMs = this.#inFlight.deliveredMs(slot) + this.#options.msgTimeoutMsMax;
    const deadlineMs = Math.min(nowMs + consumer.msgTimeoutMs, latestMs);
    this.#inFlight.extend(slot, consumer.deliveries, deadlineMs);
    return "done";
  }

  /** A message that its publisher had deferred has come due. */
  due(offset: number): void {
    if (!this.#owesDue(offset)) return;
    this.topicDeferred--;
    this.#ready.push(offset, 0);
    this.#wake();
  }

  /** A deferred message has become visible. */
  deferred(offset: number): void {
    if (this.#owesDue(offset)) this.topicDeferred++;
  }

  /** A deferred message that came due before this channel was there. */
  keep(offset: number): void {
    if (this.#owesDue(offset)) this.#ready.push(offset, 0);
  }

  /** Counts the topic's deferred messages that this channel owes, after a start or a change of many. */
  countTopicDeferred(): void {
    this.topicDeferred = this.topic.due.countWhere((offset) => this.#owesDue(offset));
  }

  /** More of the topic can be seen. */
  appended(): void {
    if (this.#ring.current !== null) this.#wake();
  }

  /** Messages below `to` were finished in a way other than FIN. */
  finishedOutside(to: number): void {
    this.#checkUntil = Math.max(this.#checkUntil, to);
    this.#wake();
  }

  /** Messages below `to` were given up, also those in flight and deferred. */
  trimmed(to: number): void {
    for (const consumer of [...this.consumers.values(), ...this.#orphans.values()]) {
      let slot = consumer.deliveries.head;
      while (slot >= 0) {
        const next = this.#inFlight.next(slot);
        if (this.#inFlight.offset(slot) < to) this.#inFlight.remove(slot, consumer.deliveries);
        slot = next;
      }
      this.writable(consumer);
    }
    this.#deferred.retain((offset) => offset >= to);
    for (const offset of this.#cancelled) if (offset < to) this.#cancelled.delete(offset);
    this.countTopicDeferred();
    this.#cursor = Math.max(this.#cursor, to);
    this.finishedOutside(to);
  }

  setPaused(paused: boolean): void {
    this.state.paused = paused;
    this.#wake();
  }

  /** Finishes everything there is: waiting, in flight and deferred. */
  empty(): void {
    const to = this.topic.visibleTail;
    this.#effects.empty(this.state, to);
    for (const consumer of [...this.consumers.values(), ...this.#orphans.values()]) {
      while (consumer.deliveries.head >= 0) {
        this.#inFlight.remove(consumer.deliveries.head, consumer.deliveries);
      }
      this.writable(consumer);
    }
    this.#orphans.clear();
    this.#ready.clear();
    this.#deferred.clear();
    this.#cancelled.clear();
    // Of the topic's there are only those that can be seen.
    this.topicDeferred = 0;
    this.#cursor = Math.max(this.#cursor, to);
  }

  /** Where a visible message is, whose publisher deferred it until `dueMs`; null when it is finished. */
  look(offset: number, sequence: number, dueMs: number, wallMs: number): Looked | null {
    if (offset < this.state.start || this.state.finished.has(offset)) return null;
    const slot = this.#inFlight.find(sequence);
    if (slot >= 0) {
      return { state: "in_flight", attempts: this.#inFlight.attempts(slot), dueMs: 0 };
    }
    const owed = this.state.requeues.get(offset);
    const untilMs = owed?.dueMs ?? dueMs;
    const attempts = owed?.attempts ?? 0;
    return untilMs > wallMs
      ? { state: "deferred", attempts, dueMs: untilMs }
      : { state: "ready", attempts, dueMs: 0 };
  }

  /** Deferred messages, those that are due first; at most `count`, and not all where others own most. */
  firstDeferred(count: number): DueEntry[] {
    const looksMax = count * DUE_LOOKS;
    const { requeues } = this.state;
    const requeued = this.#deferred.first(count, (offset) => requeues.has(offset), looksMax);
    const published = this.topic.due.first(count, (offset) => this.#owesDue(offset), looksMax);
    return [...requeued, ...published].sort((a, b) => a.dueMs - b.dueMs).slice(0, count);
  }

  /** Finishes a message that `look` has said is deferred. */
  cancelDeferred(offset: number): void {
    if (this.state.requeues.has(offset)) this.#cancelled.add(offset);
    else this.topicDeferred--;
    this.#effects.finish(this.state, offset);
    // What comes due next is to be one that counts.
    while (this.#deferred.size > 0 && this.#cancelled.has(this.#deferred.earliestOffset)) {
      this.#deferred.pop();
      this.#cancelled.delete(this.#deferred.poppedOffset);
    }
  }

  /** Hands `consumer` the next message, whatever it is ready for, and although the channel may be paused. */
  takeNext(consumer: Consumer, nowMs: number): Taken {
    const { source } = this.#effects;
    for (let step = 0; step < TAKE_STEPS_MAX; step++) {
      if (this.deleted) return "none";
      const fromReady = this.#takeFromReady();
      const offset = fromReady ? this.#ready.offset : this.#cursor;
      if (!fromReady && offset >= this.topic.visibleTail) return "none";
      const found = source.find(this.topic, offset);
      if (found === COLD) return { load: offset };
      this.#take(fromReady);
      if (found === GONE) this.#effects.finish(this.state, offset);
      else if (this.#deliver(consumer, offset, fromReady, nowMs)) return "taken";
    }
    return "later";
  }

  /** Ends the channel: its consumers' connections close. */
  delete(): void {
    this.deleted = true;
    for (const consumer of [...this.consumers.values()]) consumer.port.channelDeleted();
  }

  /** Takes back what has timed out, makes ready what has come due, and says when to look again. */
  tick(nowMs: number, wallMs: number): void {
    if (this.deleted) return;
    for (const consumer of this.consumers.values()) this.#expire(consumer, nowMs);
    for (const consumer of this.#orphans.values()) {
      this.#expire(consumer, nowMs);
      if (consumer.deliveries.count === 0) this.#orphans.delete(consumer.number);
    }
    let left = DUE_AT_ONCE;
    while (this.#deferred.earliestMs <= wallMs && left-- > 0) {
      this.#deferred.pop();
      const offset = this.#deferred.poppedOffset;
      this.#cancelled.delete(offset);
      // What was finished meanwhile is owed no more.
      const owed = this.state.requeues.get(offset);
      if (owed !== undefined) this.#ready.push(offset, owed.attempts);
    }
    this.#schedule(nowMs, wallMs);
    this.#wake();
  }

  /**
   * Hands out what can be handed out, but takes only so many steps for messages from disk. False when
   * that is why it has stopped.
   */
  dispatch(nowMs: number, coldSteps = Infinity): boolean {
    if (this.state.paused || this.deleted || this.#loading) return true;
    const { source } = this.#effects;
    let consumer = this.#ring.current;
    while (consumer !== null) {
      const fromReady = this.#takeFromReady();
      const offset = fromReady ? this.#ready.offset : this.#cursor;
      if (!fromReady && offset >= this.topic.visibleTail) return true;
      const found = source.find(this.topic, offset);
      this.isLagging = source.isCold;
      if (source.isCold && coldSteps-- <= 0) return false;
      if (found === FOUND) {
        this.#take(fromReady);
        if (this.#deliver(consumer, offset, fromReady, nowMs)) this.#ring.rotate();
        this.#ring.update(consumer);
      } else if (found === GONE) {
        this.#take(fromReady);
        this.#effects.finish(this.state, offset);
      } else {
        this.#load(offset);
        return true;
      }
      consumer = this.#ring.current;
    }
    return true;
  }

  /** Whether the next message comes from those to deliver again; drops what is finished on the way. */
  #takeFromReady(): boolean {
    const { finished, requeues } = this.state;
    while (this.#ready.size > 0 && finished.has(this.#ready.offset)) this.#ready.shift();
    if (this.#cursor < this.#checkUntil) {
      const end = Math.min(this.#checkUntil, this.topic.visibleTail);
      this.#cursor = finished.firstMissing(this.#cursor, end);
      while (this.#cursor < end && requeues.has(this.#cursor)) {
        this.#cursor = finished.firstMissing(this.#cursor + 1, end);
      }
    }
    if (this.#ready.size === 0) return false;
    return this.#cursor >= this.topic.visibleTail || !this.#lastWasReady;
  }

  /** Takes the message that dispatch looked at out of its place. */
  #take(fromReady: boolean): void {
    this.#lastWasReady = fromReady;
    if (!fromReady) {
      this.#cursor++;
      return;
    }
    this.#readyAttempts = this.#ready.attempts;
    this.#ready.shift();
  }

  /** Delivers the message found; false when this one is not for now or not for this consumer. */
  #deliver(consumer: Consumer, offset: number, fromReady: boolean, nowMs: number): boolean {
    const { view } = this.#effects.source;
    if (!fromReady && view.dueMs !== 0) return false;
    if (
      consumer.sampleRate > 0 &&
      randomBelow(this.#effects.random, 100) > consumer.sampleRate
    ) {
      this.#effects.finish(this.state, offset);
      return false;
    }
    const attempts = (fromReady ? this.#readyAttempts : 0) + 1;
    const deadlineMs = nowMs + consumer.msgTimeoutMs;
    const slot = this.#inFlight.insert(
      view.sequence,
      offset,
      consumer.number,
      consumer.deliveries,
      attempts,
      nowMs,
      deadlineMs,
    );
    if (this.latency !== null || isSampled(view.sequence)) {
      this.#inFlight.setTimestampMs(slot, this.#effects.source.timestampMs());
    }
    consumer.messageCount++;
    this.deliveredCount++;
    consumer.port.deliver(view, attempts);
    if (deadlineMs < this.scheduledMs) this.#effects.schedule(this, deadlineMs);
    return true;
  }

  #load(offset: number): void {
    this.#loading = true;
    void this.#effects.source.load(this.topic, offset).then(() => {
      this.#loading = false;
      this.#wake();
    });
  }

  #expire(consumer: Consumer, nowMs: number): void {
    const list = consumer.deliveries;
    let expired = false;
    while (list.head >= 0 && this.#inFlight.deadlineMs(list.head) <= nowMs) {
      this.#takeBack(list.head, consumer);
      this.timeoutCount++;
      expired = true;
    }
    if (!expired) return;
    // As after REQ: from the tail of the queue.
    this.#lastWasReady = true;
    this.writable(consumer);
  }

  #takeBackAll(consumer: Consumer): void {
    while (consumer.deliveries.head >= 0) this.#takeBack(consumer.deliveries.head, consumer);
  }

  #takeBack(slot: number, consumer: Consumer): void {
    this.#ready.push(this.#inFlight.offset(slot), this.#inFlight.attempts(slot));
    this.#inFlight.remove(slot, consumer.deliveries);
  }

  #schedule(nowMs: number, wallMs: number): void {
    const { earliestMs } = this.#deferred;
    let dueMs = Infinity;
    if (earliestMs <= wallMs) dueMs = nowMs + DUE_PAUSE_MS;
    else if (earliestMs < Infinity) dueMs = wallDueMs(earliestMs, nowMs, wallMs);
    for (const consumer of this.consumers.values()) {
      const { head } = consumer.deliveries;
      if (head >= 0) dueMs = Math.min(dueMs, this.#inFlight.deadlineMs(head));
    }
    for (const { deliveries } of this.#orphans.values()) {
      if (deliveries.head >= 0) dueMs = Math.min(dueMs, this.#inFlight.deadlineMs(deliveries.head));
    }
    if (dueMs < Infinity) this.#effects.schedule(this, dueMs);
  }

  /** A deferred message is this channel's unless it is finished, or owed again since a start. */
  #owesDue(offset: number): boolean {
    return offset >= this.state.start && !this.state.finished.has(offset) &&
      !this.state.requeues.has(offset);
  }

  #wake(): void {
    if (!this.woken) this.#effects.wake(this);
  }
}

function isSampled(sequence: number): boolean {
  return (sequence & (SAMPLED_OF - 1)) === 0;
}
