/**
 * Brings what is in the spool to brokers, in its order.
 *
 * - Before a publish is sent to a broker for the first time, the spool says durably whose it is: after
 *   a crash it goes to that broker again, which knows a repeat, and to no other.
 * - A broker that certainly has not stored it gives it back: another one is noted, and it is sent there.
 * - All publishes of a topic go to one broker as long as that takes them, so that consumers get them in
 *   order. When a broker goes away in the middle, what it may have waits for it, and the rest goes on.
 * - What may be at a broker for longer than brokers remember producers is not sent any more: it could
 *   be stored twice. It is quarantined as ambiguous, and so is what a broker remembers no more. What no
 *   broker would take is quarantined as poison.
 * - So many are in hand at a time, and no more bytes than {@linkcode HELD_BYTES_MAX}.
 */
import { type Clock, invariant } from "@sluice/shared/runtime";
import type { Logger } from "@sluice/shared/telemetry";
import type { BrokerLink } from "./broker_link.ts";
import type { LaneEntry, LaneOutcome } from "./lane.ts";
import type { BrokerPool } from "./pool.ts";
import type { Publish } from "./publish.ts";
import { type Spool, type SpoolEntry, SpoolRefusal } from "./spool/mod.ts";

/** Publishes in hand at a time. */
export const HELD_MAX = 1_024;
/** Bytes of them, unless one alone has more. */
export const HELD_BYTES_MAX = 8 * 2 ** 20;
/** What the reason begins with of an entry that its broker may have. */
export const AMBIGUOUS = "ambiguous: ";
/** How often it is looked at again when nobody says that anything changed. */
const LOOK_MS = 250;
/** How long a stop waits for what is being decided. */
const STOP_MS_MAX = 1_000;
/** Topics whose broker is remembered. */
const TOPICS_MAX = 100_000;

/** How much may be in hand, and for how long brokers remember producers. */
export interface ReplayerOptions {
  readonly dedupWindowMs: number;
}

/** What a replayer stands on. */
export interface ReplayerSeams {
  readonly spool: Spool;
  readonly pool: BrokerPool;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Called for an error that is a mistake of ours. */
  readonly onBroken: (error: unknown) => void;
}

/** A publish in hand. */
class Replay implements LaneEntry {
  isOver = false;
  link: BrokerLink | null = null;

  constructor(
    readonly entry: SpoolEntry,
    public mayBeThere: boolean,
    readonly onSettled: (replay: Replay, outcome: LaneOutcome) => void,
  ) {}

  get publish(): Publish {
    return this.entry.publish;
  }

  settled(outcome: LaneOutcome): void {
    this.isOver = true;
    this.onSettled(this, outcome);
  }
}

/** See the module. */
export class Replayer {
  replayedCount = 0;
  readonly #seams: ReplayerSeams;
  readonly #options: ReplayerOptions;
  /** Given back by a broker, to go to another one before anything else does. */
  #again: SpoolEntry[] = [];
  readonly #held = new Set<Replay>();
  #heldBytes = 0;
  /** Which broker gets a topic. */
  readonly #brokerOf = new Map<string, string>();
  #settled: SpoolEntry[] = [];
  #stopped = false;
  #isAwake = false;
  #wake: (() => void) | null = null;
  #running: Promise<void> | null = null;

  constructor(options: ReplayerOptions, seams: ReplayerSeams) {
    this.#options = options;
    this.#seams = seams;
  }

  /** Publishes in hand. */
  get heldCount(): number {
    return this.#held.size + this.#again.length;
  }

  start(): void {
    this.#running = this.#run().catch((error) => {
      if (!this.#stopped) this.#seams.onBroken(error);
    });
  }

  /** Something has changed: a broker is there, or something is in the spool. */
  wake(): void {
    this.#isAwake = true;
    this.#wake?.();
  }

  /**
   * Resolves when nothing is sent any more. What has no answer by then is sent again at the next start. A
   * decision that waits for room on a full disk is not waited for: nothing is sent after it.
   */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.wake();
    const late = Promise.withResolvers<void>();
    const timer = this.#seams.clock.setTimer(STOP_MS_MAX, late.resolve);
    await Promise.race([this.#running, late.promise]);
    timer.cancel();
    this.#flushSettled();
    for (const replay of this.#held) replay.isOver = true;
    this.#held.clear();
  }

  async #run(): Promise<void> {
    while (!this.#stopped) {
      this.#isAwake = false;
      const isBusy = await this.#sendAssigned() || await this.#sendNext();
      if (!isBusy && !this.#isAwake) await this.#sleep();
    }
  }

  #sleep(): Promise<void> {
    return new Promise((resolve) => {
      const timer = this.#seams.clock.setTimer(LOOK_MS, () => this.#wake?.());
      this.#wake = () => {
        timer.cancel();
        this.#wake = null;
        resolve();
      };
    });
  }

  get #roomCount(): number {
    const isFull = this.#held.size > 0 && this.#heldBytes >= HELD_BYTES_MAX;
    return isFull ? 0 : HELD_MAX - this.#held.size;
  }

  /** Sends what is a broker's already; returns whether there was any. */
  async #sendAssigned(): Promise<boolean> {
    const { spool, pool, clock } = this.#seams;
    let isBusy = false;
    for (const broker of [...spool.assignedBrokers()]) {
      if (this.#roomCount === 0 || this.#stopped) break;
      const link = pool.linkTo(broker);
      const oldestWallMs = clock.wallMs() - this.#options.dedupWindowMs;
      const isUp = link !== null && link.isConnected && link.circuit.state !== "open";
      if (!isUp && !spool.hasAssignedBefore(broker, oldestWallMs)) continue;
      const entries = await spool.takeAssigned(broker, this.#roomCount, HELD_BYTES_MAX);
      const late: SpoolEntry[] = [];
      for (const entry of entries) {
        if ((entry.assignedWallMs ?? 0) < oldestWallMs) {
          const reason = `${AMBIGUOUS}${broker} was away for too long`;
          if (await this.#quarantine(entry, reason)) isBusy = true;
        } else if (isUp) {
          this.#send(entry, link, true);
          isBusy = true;
        } else late.push(entry);
      }
      if (late.length > 0) spool.putBack(late);
    }
    return isBusy;
  }

  /** Sends what is nobody's yet, and what was given back; returns whether there was any. */
  async #sendNext(): Promise<boolean> {
    const { spool, pool } = this.#seams;
    if (pool.usable.length === 0) return false;
    const room = this.#roomCount;
    let entries = this.#again;
    this.#again = [];
    if (entries.length === 0) {
      if (room === 0) return false;
      entries = await spool.take(room, HELD_BYTES_MAX);
    } else entries.sort((a, b) => a.position - b.position);
    if (entries.length === 0) {
      if (spool.figures.count === 0) this.#brokerOf.clear();
      return false;
    }
    const chosen: { entry: SpoolEntry; link: BrokerLink }[] = [];
    const groups = new Map<BrokerLink, SpoolEntry[]>();
    for (const entry of entries) {
      const link = this.#brokerFor(entry.publish.topic);
      if (link === null) {
        this.#again.push(entry);
        continue;
      }
      chosen.push({ entry, link });
      const group = groups.get(link);
      if (group === undefined) groups.set(link, [entry]);
      else group.push(entry);
    }
    try {
      await Promise.all([...groups].map(([link, group]) => spool.assign(group, link.id)));
    } catch (error) {
      if (!(error instanceof SpoolRefusal)) throw error;
      // The disk failed: nothing more is sent until the next start.
      spool.putBack(chosen.map(({ entry }) => entry));
      return false;
    }
    if (this.#stopped) return false;
    for (const { entry, link } of chosen) this.#send(entry, link, false);
    return chosen.length > 0;
  }

  #brokerFor(topic: string): BrokerLink | null {
    const { pool } = this.#seams;
    const known = this.#brokerOf.get(topic);
    const link = known === undefined ? undefined : pool.links.get(known);
    if (link?.isUsable === true) return link;
    const chosen = pool.choose(topic, "");
    if (chosen === null) return null;
    if (this.#brokerOf.size >= TOPICS_MAX) this.#brokerOf.clear();
    this.#brokerOf.set(topic, chosen.id);
    return chosen;
  }

  #send(entry: SpoolEntry, link: BrokerLink, mayBeThere: boolean): void {
    const replay = new Replay(entry, mayBeThere, (...settled) => this.#onSettled(...settled));
    replay.link = link;
    this.#held.add(replay);
    const bytes = entry.publish.body.length;
    this.#heldBytes += bytes;
    link.outstandingBytes += bytes;
    link.outstandingCount++;
    link.sendAs(replay);
  }

  #onSettled(replay: Replay, outcome: LaneOutcome): void {
    if (!this.#held.delete(replay)) return;
    const { entry, link } = replay;
    invariant(link !== null, "what is in hand is on a link");
    const bytes = entry.publish.body.length;
    this.#heldBytes -= bytes;
    link.outstandingBytes -= bytes;
    link.outstandingCount--;
    switch (outcome.kind) {
      case "confirmed":
        link.confirmed();
        this.replayedCount++;
        if (this.#settled.push(entry) === 1) queueMicrotask(() => this.#flushSettled());
        return;
      case "elsewhere":
        this.#again.push(entry);
        return this.wake();
      case "unanswered":
        this.#seams.spool.putBack([entry]);
        return this.wake();
      case "poison":
        void this.#quarantine(entry, outcome.text);
        return;
      case "unknowable":
        void this.#quarantine(entry, `${AMBIGUOUS}${outcome.text}`);
        return;
    }
  }

  #flushSettled(): void {
    const settled = this.#settled;
    this.#settled = [];
    if (settled.length === 0) return;
    this.#seams.spool.settle(settled);
    this.wake();
  }

  /** Returns whether that could be done; if not, the entry stays where it is. */
  async #quarantine(entry: SpoolEntry, reason: string): Promise<boolean> {
    const { spool, logger } = this.#seams;
    const { topic } = entry.publish;
    try {
      await spool.quarantine(entry, reason);
      logger.error("A spooled publish is in quarantine", { id: entry.position, topic, reason });
      return true;
    } catch (error) {
      logger.error("A spooled publish stays in the spool: it cannot be put in quarantine", {
        id: entry.position,
        topic,
        reason,
        error: error instanceof Error ? error : String(error),
      });
      spool.putBack([entry]);
      return false;
    }
  }
}
