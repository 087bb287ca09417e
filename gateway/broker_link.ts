/**
 * One broker as the gateway sees it: its lanes, whether publishes may be sent to it, and how much is
 * on its way there.
 *
 * ```
 *            connection lost or refused                  pause over, connected
 *   closed ---------------------------------> open ------------------------------> half-open
 *     ^  '--- it refuses publishes (E_THROTTLED) --^  <--- refused again -------------'  |
 *     '----------------------------------------------------- one publish confirmed ------'
 * ```
 *
 * - Closed: publishes go there. Open: none. Half-open: one at a time, until one is confirmed.
 * - A connection that is made again after it was lost needs no proof: only refusals do.
 * - What discovery says of a broker's readiness counts as well, and so does silence: a broker that has
 *   owed an answer for {@linkcode BrokerLinkOptions.slowMs} gets nothing more while another can take it.
 * - Bodies above {@linkcode BULK_BYTES} have a lane of their own, so that small publishes need not wait
 *   behind them, and so has each producer id of the spool.
 * - The gateway has a producer id of its own at each broker and for each of these lanes, so that the numbers
 *   of a topic are dense there and come in their order. When a publish without an answer goes to the
 *   spool, the broker will be asked for it later, among others: from then on new publishes have another
 *   producer id, so that their numbers do not push that one out of what the broker remembers.
 */
import { PRODUCER_ID_BYTES, producerIdText } from "@sluice/shared/protocol";
import { invariant, type Random } from "@sluice/shared/runtime";
import type { Candidate } from "./balance.ts";
import { Sequences } from "./sequences.ts";
import type { Publish, Unstamped } from "./publish.ts";
import { Lane, type LaneEntry, type LaneOptions, type LaneOwner, type LaneSeams } from "./lane.ts";

/** Larger bodies go by their own lane. */
export const BULK_BYTES = 256 * 1024;
/** How long a broker that refuses publishes is left alone at first; each time is twice the one before. */
export const THROTTLED_MS_MIN = 250;
export const THROTTLED_MS_MAX = 4_000;

/** What discovery knows of a broker. */
export interface ListedBroker {
  readonly host: string;
  readonly tcpPort: number;
  readonly publishReady: boolean;
  readonly reasons: readonly string[];
  hasTopic(topic: string): boolean;
}

/** What all links share. */
export interface BrokerLinkOptions
  extends Omit<LaneOptions, "host" | "port" | "producer" | "isEager" | "keepsUnanswered"> {
  /** See the module. */
  readonly slowMs: number;
}

/** The state of a link's circuit, and why it is not closed. */
export type Circuit =
  | { readonly state: "closed" }
  | { readonly state: "open"; readonly untilMs: number; readonly reason: string }
  | { readonly state: "half-open"; readonly reason: string };

const CLOSED: Circuit = { state: "closed" };

/** Who the gateway is at a broker. */
interface Identity {
  readonly producer: Uint8Array;
  readonly sequences: Sequences;
  readonly lane: Lane;
}

/** See the module. */
export class BrokerLink implements Candidate, LaneOwner {
  readonly id: string;
  /** Bytes of publishes that have no outcome yet. */
  outstandingBytes = 0;
  outstandingCount = 0;
  confirmedCount = 0;
  /** Null when nothing lists it any more. */
  listed: ListedBroker | null;
  circuit: Circuit = CLOSED;
  /** Since when nobody lists it, monotonic ms; null while somebody does, and for one that never was. */
  unlistedSinceMs: number | null = null;
  /** Until then it stays, monotonic ms, though nothing lists it: something of the spool is for it. */
  wantedUntilMs = 0;
  readonly #host: string;
  readonly #port: number;
  readonly #options: BrokerLinkOptions;
  readonly #seams: LaneSeams;
  readonly #onChange: () => void;
  #live: Identity;
  #bulk: Identity | null = null;
  /** Of producer ids before: they go once nothing is on them. */
  #retired: Lane[] = [];
  /** By the text of the producer id. */
  readonly #others = new Map<string, Lane>();
  /** What the last connection has shown. */
  #deduplicates = false;
  #throttles = 0;
  #slow = false;

  constructor(
    id: string,
    address: { readonly host: string; readonly port: number },
    listed: ListedBroker | null,
    options: BrokerLinkOptions,
    seams: LaneSeams,
    onChange: () => void,
  ) {
    this.id = id;
    this.#host = address.host;
    this.#port = address.port;
    this.listed = listed;
    this.#options = options;
    this.#seams = seams;
    this.#onChange = onChange;
    this.#live = this.#identity(true);
  }

  /** Whether new publishes may be sent. */
  get isUsable(): boolean {
    if (!this.#live.lane.isUp || this.listed?.publishReady !== true) return false;
    const { state } = this.circuit;
    return state === "closed" || (state === "half-open" && this.outstandingCount === 0);
  }

  /** Whether it has owed an answer for too long. */
  get isSlow(): boolean {
    return this.#slow;
  }

  get isConnected(): boolean {
    return this.#live.lane.isUp;
  }

  /** Whether it knows repeats by their numbers, as far as it was heard of; an nsqd does not. */
  get deduplicates(): boolean {
    return this.#deduplicates;
  }

  /** Why it is not used; empty when it is. */
  get reason(): string {
    if (!this.#live.lane.isUp) return this.#live.lane.reason;
    if (this.circuit.state !== "closed") return this.circuit.reason;
    if (this.listed === null) return "no source lists it any more";
    if (!this.listed.publishReady) return `it is not ready: ${this.listed.reasons.join(", ")}`;
    return this.#slow ? "it is slow to answer" : "";
  }

  hasTopic(topic: string): boolean {
    return this.listed?.hasTopic(topic) ?? false;
  }

  /** Gives a publish the gateway's producer id at this broker, and its number. */
  stamp(unstamped: Unstamped): Publish {
    const { topic, isBatch, messageCount, body, dueWallMs } = unstamped;
    const { producer, sequences } = this.#identityFor(body);
    const sequence = sequences.next(topic);
    return { topic, isBatch, messageCount, body, dueWallMs, producer, sequence };
  }

  /** Sends what was stamped just now. */
  send(entry: LaneEntry): void {
    this.#identityFor(entry.publish.body).lane.send(entry);
  }

  /** A publish that was stamped here will be asked for later, from the spool: see the module. */
  setAside({ producer }: Publish): void {
    if (producer === this.#live.producer) {
      this.#retire(this.#live.lane);
      this.#live = this.#identity(true);
      this.#onChange();
    } else if (producer === this.#bulk?.producer) {
      this.#retire(this.#bulk.lane);
      this.#bulk = null;
    }
  }

  /** Sends a publish of any producer id; one without an answer is not sent again by itself. */
  sendAs(entry: LaneEntry): void {
    const { producer } = entry.publish;
    const key = producerIdText(producer);
    let lane = this.#others.get(key);
    if (lane === undefined) {
      // The number of lives that have left something in the spool.
      invariant(this.#others.size < 4096, "producer ids are few");
      this.#others.set(key, lane = this.#lane(producer, false, false));
    }
    lane.send(entry);
  }

  /** Looks at the clock: what has been owed for too long, and whether a pause is over. */
  tick(nowMs: number): void {
    const wasSlow = this.#slow;
    let owedMs = this.#live.lane.owedMs(nowMs);
    if (this.#bulk !== null) owedMs = Math.max(owedMs, this.#bulk.lane.owedMs(nowMs));
    for (const lane of this.#retired) owedMs = Math.max(owedMs, lane.owedMs(nowMs));
    if (this.#retired.some((lane) => lane.isIdle)) {
      this.#retired = this.#retired.filter((lane) => !lane.isIdle);
    }
    this.#slow = owedMs >= this.#options.slowMs;
    let isChanged = wasSlow !== this.#slow;
    if (this.circuit.state === "open" && nowMs >= this.circuit.untilMs) {
      this.circuit = { state: "half-open", reason: this.circuit.reason };
      isChanged = true;
    }
    if (isChanged) this.#onChange();
  }

  /** A publish has been confirmed. */
  confirmed(): void {
    this.confirmedCount++;
    if (this.circuit.state === "closed") return;
    this.circuit = CLOSED;
    this.#throttles = 0;
    this.#onChange();
  }

  /** Tries to connect now: something says that the broker is there. */
  hurry(): void {
    for (const lane of this.#lanes()) lane.hurry();
  }

  close(): void {
    for (const lane of this.#lanes()) lane.close();
  }

  // LaneOwner

  laneChanged(lane: Lane, _reason: string): void {
    if (lane.isUp) this.#deduplicates = lane.deduplicates;
    if (lane === this.#live.lane && lane.isUp) this.hurry();
    this.#onChange();
  }

  laneThrottled(_lane: Lane, text: string): void {
    if (this.circuit.state === "open") return;
    const pauseMs = Math.min(THROTTLED_MS_MAX, THROTTLED_MS_MIN * 2 ** this.#throttles++);
    const untilMs = this.#seams.clock.monoMs() + pauseMs;
    this.circuit = { state: "open", untilMs, reason: text };
    this.#onChange();
  }

  #identityFor(body: Uint8Array): Identity {
    if (body.length <= BULK_BYTES) return this.#live;
    return this.#bulk ??= this.#identity(false);
  }

  #identity(isEager: boolean): Identity {
    const producer = newProducerId(this.#seams.random);
    return { producer, sequences: new Sequences(), lane: this.#lane(producer, isEager, true) };
  }

  #retire(lane: Lane): void {
    lane.retire();
    this.#retired.push(lane);
  }

  #lanes(): Lane[] {
    const lanes = [this.#live.lane, ...this.#retired, ...this.#others.values()];
    return this.#bulk === null ? lanes : [...lanes, this.#bulk.lane];
  }

  #lane(producer: Uint8Array, isEager: boolean, keepsUnanswered: boolean): Lane {
    const address = { host: this.#host, port: this.#port };
    const options = { ...this.#options, ...address, producer, isEager, keepsUnanswered };
    return new Lane(options, this.#seams, this);
  }
}

/** A producer id that nobody else has. */
export function newProducerId(random: Random): Uint8Array {
  const id = new Uint8Array(PRODUCER_ID_BYTES);
  const view = new DataView(id.buffer);
  for (let at = 0; at < PRODUCER_ID_BYTES; at += 4) view.setUint32(at, random.u32());
  return id;
}
