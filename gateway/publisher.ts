/**
 * What becomes of a publish, from the moment it is received whole to its one outcome.
 *
 * ```
 *  received --> a broker can take it? --yes--> sent to B --confirmed--------------------> OK
 *     |            ^      | no                   |   |
 *     |            |      v                      |   '--certainly not stored---> (chosen again)
 *     |            |   waits a moment            |
 *     |            '------' | none came          +--poison: no broker would take it------> refused
 *     |                     v                    |
 *     |  topic has     spooled ------------> OK  |  no answer: sent again to B, and only to B,
 *     '--a backlog-->    | full, off             |  with its number, until B answers
 *        in the spool    v                       v
 *                     throttled               time is up --> spooled for B --> OK
 *                                                               | full, off
 *                                                               v
 *                                                            ambiguous
 * ```
 *
 * - An OK is sent when the message is on disk: at a broker, or in the spool.
 * - Sent again it has the number that it had, so a broker that has it stores nothing.
 * - What has no answer in time is not given to another broker, which could make it two: it goes to the
 *   spool in the name of its broker, which is asked again when it is back. Only where that cannot be
 *   done the publish ends as ambiguous.
 * - While the spool holds publishes of a topic, later ones of the topic go behind them. When the spool is
 *   full they go ahead, rather than be refused.
 * - Memory for publishes without an outcome is bounded: {@linkcode Publisher.hasRoom}.
 */
import { type Clock, invariant, type Timer } from "@sluice/shared/runtime";
import { Histogram, LATENCY_BOUNDS_SECONDS } from "@sluice/shared/telemetry";
import type { BrokerLink } from "./broker_link.ts";
import type { BrokerPool } from "./pool.ts";
import type { Publish, Unstamped } from "./publish.ts";
import { Sequences } from "./sequences.ts";
import { SpoolRefusal } from "./spool/mod.ts";
import { type Outcome, type PublishRequest, Transit, TransitList } from "./transit.ts";
import type { LaneOutcome } from "./lane.ts";

/** Where publishes go that no broker can take. */
export interface SpoolDoor {
  /** Whether publishes of a topic are there that have not been given to a broker. */
  hasBacklog(topic: string): boolean;
  /** Resolves when it is on disk; `broker` is who may have it already. Rejects with `SpoolRefusal`. */
  append(publish: Publish, broker: string | null): Promise<void>;
}

/** How publishes are carried. */
export interface PublisherOptions {
  /** 16 bytes, new with each start: for what goes to the spool and was never sent. */
  readonly spoolProducer: Uint8Array;
  /** How long a publish may be without an outcome before it is spooled for its broker, or ambiguous. */
  readonly timeoutMs: number;
  /** How long there is no broker before publishes are spooled. */
  readonly spoolAfterMs: number;
  /** Memory for publishes that have no outcome. */
  readonly bytesMax: number;
}

/** What a publisher stands on. */
export interface PublisherSeams {
  readonly pool: BrokerPool;
  /** Null when spooling is off. */
  readonly spool: SpoolDoor | null;
  readonly clock: Clock;
}

const CONFIRMED: Outcome = { kind: "confirmed" };
const SPOOLED: Outcome = { kind: "spooled" };
const NO_BROKER = "no broker can take it";
const NO_ANSWER = "the broker gave no answer, and whether it has the message is not known";

/** See the module. */
export class Publisher {
  /** Counts of outcomes, and of what was tried again. */
  readonly counts = {
    confirmed: 0,
    spooled: 0,
    refused: 0,
    throttled: 0,
    ambiguous: 0,
    failed: 0,
    elsewhere: 0,
    spooledForBroker: 0,
  };
  messageCount = 0;
  /** Called when something has gone into the spool. */
  onSpooled: () => void = () => {};
  /** From a publish's receipt to its outcome, seconds. */
  readonly durations = new Histogram(LATENCY_BOUNDS_SECONDS);
  readonly #options: PublisherOptions;
  readonly #pool: BrokerPool;
  readonly #spool: SpoolDoor | null;
  readonly #clock: Clock;
  readonly #spoolSequences = new Sequences();
  readonly #all = new TransitList();
  /** Those that wait for any broker. */
  #waiting: Transit[] = [];
  #waitingTimer: Timer | null = null;
  #deadlineTimer: Timer | null = null;
  #roomWaiters: (() => void)[] = [];
  #doneWaiters: (() => void)[] = [];

  constructor(options: PublisherOptions, { pool, spool, clock }: PublisherSeams) {
    this.#options = options;
    this.#pool = pool;
    this.#spool = spool;
    this.#clock = clock;
  }

  /** Publishes without an outcome. */
  get heldCount(): number {
    return this.#all.count;
  }

  get heldBytes(): number {
    return this.#all.bytes;
  }

  get bytesMax(): number {
    return this.#options.bytesMax;
  }

  /** Whether a body of `bytes` may be held; one is, however large. */
  hasRoom(bytes: number): boolean {
    return this.#all.count === 0 || this.#all.bytes + bytes <= this.#options.bytesMax;
  }

  /** Resolves when a publish has ended, or at once when there is none. */
  room(): Promise<void> {
    if (this.#all.count === 0) return Promise.resolve();
    return new Promise((resolve) => this.#roomWaiters.push(resolve));
  }

  /** Takes a publish; `done` is called once, later or at once. */
  publish(request: PublishRequest, done: (outcome: Outcome) => void): void {
    const nowMs = this.#clock.monoMs();
    const transit = new Transit(this, request, nowMs, nowMs + this.#options.timeoutMs, done);
    this.#all.add(transit);
    if (this.#deadlineTimer === null) this.#armDeadline();
    if (this.#spool?.hasBacklog(request.topic) === true) this.#toSpool(transit);
    else this.#route(transit);
  }

  /**
   * Puts a publish into the spool anew, with another number: whoever has it under the one it had does not
   * know it. On disk when it resolves; rejects with `SpoolRefusal`.
   */
  async spoolAnew({ topic, isBatch, messageCount, body, dueWallMs }: Unstamped): Promise<void> {
    invariant(this.#spool !== null, "what is spooled anew was in the spool");
    const producer = this.#options.spoolProducer;
    const sequence = this.#spoolSequences.next(topic);
    const publish = { topic, isBatch, messageCount, body, dueWallMs, producer, sequence };
    await this.#spool.append(publish, null);
    this.onSpooled();
  }

  /** There may be a broker again: what waits goes on. */
  brokersChanged(): void {
    if (this.#waiting.length === 0 || this.#pool.usable.length === 0) return;
    const waiting = this.#waiting;
    this.#waiting = [];
    this.#waitingTimer?.cancel();
    this.#waitingTimer = null;
    for (const transit of waiting) if (!transit.isOver) this.#route(transit);
  }

  /** Resolves when everything has an outcome. */
  idle(): Promise<void> {
    if (this.#all.count === 0) return Promise.resolve();
    return new Promise((resolve) => this.#doneWaiters.push(resolve));
  }

  /** Ends the time of everything that has no outcome: it is spooled where that can be done. */
  expireAll(): void {
    this.#expire(Infinity);
  }

  /** Nothing is timed any more. */
  close(): void {
    this.#deadlineTimer?.cancel();
    this.#waitingTimer?.cancel();
  }

  // TransitOwner

  transitSettled(transit: Transit, outcome: LaneOutcome): void {
    const link = this.#leave(transit);
    switch (outcome.kind) {
      case "confirmed":
        link?.confirmed();
        return this.#finish(transit, CONFIRMED);
      case "elsewhere":
        this.counts.elsewhere++;
        return this.#route(transit);
      case "poison":
        return this.#finish(transit, { kind: "refused", text: outcome.text });
      case "unanswered":
      case "unknowable":
        return this.#finish(transit, { kind: "ambiguous", text: outcome.text });
    }
  }

  #route(transit: Transit): void {
    const { request } = transit;
    const link = this.#pool.choose(request.topic, request.key);
    if (link === null) return this.#wait(transit);
    transit.link = link;
    transit.stamped = link.stamp(request);
    link.outstandingBytes += transit.bytes;
    link.outstandingCount++;
    link.send(transit);
  }

  /** Takes a publish off its link. */
  #leave(transit: Transit): BrokerLink | null {
    const { link } = transit;
    if (link === null) return null;
    link.outstandingBytes -= transit.bytes;
    link.outstandingCount--;
    transit.link = null;
    return link;
  }

  /** No broker can take it: the spool can, once that has lasted for a moment. */
  #wait(transit: Transit): void {
    if (this.#spool !== null) {
      const leftMs = this.#options.spoolAfterMs - this.#pool.unusableMs;
      if (leftMs <= 0) return this.#toSpool(transit);
      this.#waitingTimer ??= this.#clock.setTimer(leftMs, () => this.#spoolWaiting());
    }
    this.#waiting.push(transit);
  }

  #spoolWaiting(): void {
    this.#waitingTimer = null;
    const waiting = this.#waiting;
    this.#waiting = [];
    // A broker that came and went has begun the moment anew for those that are left.
    for (const transit of waiting) if (!transit.isOver) this.#route(transit);
  }

  /** Spools what was certainly not stored anywhere. */
  #toSpool(transit: Transit): void {
    const { topic, isBatch, messageCount, body, dueWallMs } = transit.request;
    transit.stamped = {
      topic,
      isBatch,
      messageCount,
      body,
      dueWallMs,
      producer: this.#options.spoolProducer,
      sequence: this.#spoolSequences.next(topic),
    };
    this.#append(transit, null, ({ message, mayBeStored }) => {
      if (mayBeStored) {
        const text = `whether the spool has it shows at the next start: ${message}`;
        return this.#finish(transit, { kind: "ambiguous", text });
      }
      // It may go ahead of the backlog rather than be refused.
      if (this.#pool.usable.length === 0) {
        return this.#finish(transit, { kind: "throttled", text: `${NO_BROKER}: ${message}` });
      }
      transit.isOver = false;
      this.#route(transit);
    });
  }

  /** Spools what a broker may have, for that broker. */
  #toSpoolFor(transit: Transit, link: BrokerLink): void {
    this.counts.spooledForBroker++;
    link.setAside(transit.publish);
    this.#append(transit, link.id, ({ message }) => {
      this.#finish(transit, { kind: "ambiguous", text: `${NO_ANSWER}: ${message}` });
    });
  }

  #append(
    transit: Transit,
    broker: string | null,
    refused: (refusal: SpoolRefusal) => void,
  ): void {
    transit.isOver = true;
    invariant(this.#spool !== null, "what is spooled has a spool");
    this.#spool.append(transit.publish, broker).then(
      () => {
        this.#finish(transit, SPOOLED);
        this.onSpooled();
      },
      (error) => {
        if (!(error instanceof SpoolRefusal)) throw error;
        refused(error);
      },
    );
  }

  #finish(transit: Transit, outcome: Outcome): void {
    transit.isOver = true;
    this.#all.remove(transit);
    this.counts[outcome.kind]++;
    this.durations.observe((this.#clock.monoMs() - transit.sinceMs) / 1000);
    this.messageCount += transit.request.messageCount;
    transit.done(outcome);
    if (this.#roomWaiters.length > 0) wake(this.#roomWaiters.splice(0));
    if (this.#all.count === 0 && this.#doneWaiters.length > 0) wake(this.#doneWaiters.splice(0));
  }

  #armDeadline(): void {
    const { head } = this.#all;
    this.#deadlineTimer = null;
    if (head === null) return;
    // What is being spooled keeps its place in front; it is looked at again a little later.
    const delayMs = Math.max(DEADLINE_MS_MIN, head.deadlineMs - this.#clock.monoMs());
    this.#deadlineTimer = this.#clock.setTimer(delayMs, () => {
      this.#expire(this.#clock.monoMs());
      this.#armDeadline();
    });
  }

  /** Ends the time of what had to have an outcome by `nowMs`. */
  #expire(nowMs: number): void {
    for (let transit = this.#all.head; transit !== null;) {
      const { next } = transit;
      if (transit.deadlineMs > nowMs) break;
      if (!transit.isOver) this.#runOut(transit);
      transit = next;
    }
    this.#waiting = this.#waiting.filter(({ isOver }) => !isOver);
  }

  #runOut(transit: Transit): void {
    const link = this.#leave(transit);
    if (link === null) {
      if (this.#spool !== null) return this.#toSpool(transit);
      return this.#finish(transit, { kind: "throttled", text: NO_BROKER });
    }
    transit.isOver = true;
    if (this.#spool !== null && link.deduplicates) return this.#toSpoolFor(transit, link);
    this.#finish(transit, { kind: "ambiguous", text: NO_ANSWER });
  }
}

/** Deadlines are looked at no more often. */
const DEADLINE_MS_MIN = 50;

function wake(waiters: readonly (() => void)[]): void {
  for (const waiter of waiters) waiter();
}
