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
 *   behind them, and each producer id of the spool has one.
 */
import { invariant } from "@sluice/shared/runtime";
import { producerIdText } from "@sluice/shared/protocol";
import type { Candidate } from "./balance.ts";
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
  extends Omit<LaneOptions, "host" | "port" | "isEager" | "keepsUnanswered"> {
  /** See the module. */
  readonly slowMs: number;
}

/** The state of a link's circuit, and why it is not closed. */
export type Circuit =
  | { readonly state: "closed" }
  | { readonly state: "open"; readonly untilMs: number; readonly reason: string }
  | { readonly state: "half-open"; readonly reason: string };

const CLOSED: Circuit = { state: "closed" };

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
  readonly #host: string;
  readonly #port: number;
  readonly #options: BrokerLinkOptions;
  readonly #seams: LaneSeams;
  readonly #onChange: () => void;
  readonly #live: Lane;
  #bulk: Lane | null = null;
  /** By the text of the producer id. */
  readonly #others = new Map<string, Lane>();
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
    this.#live = this.#lane(options.producer, true, true);
  }

  /** Whether new publishes may be sent. */
  get isUsable(): boolean {
    if (!this.#live.isUp || this.listed?.publishReady !== true) return false;
    const { state } = this.circuit;
    return state === "closed" || (state === "half-open" && this.outstandingCount === 0);
  }

  /** Whether it has owed an answer for too long. */
  get isSlow(): boolean {
    return this.#slow;
  }

  get isConnected(): boolean {
    return this.#live.isUp;
  }

  /** Whether it knows repeats by their numbers, as far as it was heard of; an nsqd does not. */
  get deduplicates(): boolean {
    return this.#live.deduplicates;
  }

  /** Why it is not used; empty when it is. */
  get reason(): string {
    if (!this.#live.isUp) return this.#live.reason;
    if (this.circuit.state !== "closed") return this.circuit.reason;
    if (this.listed === null) return "no source lists it any more";
    if (!this.listed.publishReady) return `it is not ready: ${this.listed.reasons.join(", ")}`;
    return this.#slow ? "it is slow to answer" : "";
  }

  hasTopic(topic: string): boolean {
    return this.listed?.hasTopic(topic) ?? false;
  }

  /** Sends a publish of the gateway's own producer id. */
  send(entry: LaneEntry): void {
    if (entry.publish.body.length <= BULK_BYTES) return this.#live.send(entry);
    this.#bulk ??= this.#lane(this.#options.producer, false, true);
    this.#bulk.send(entry);
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
    const owedMs = Math.max(this.#live.owedMs(nowMs), this.#bulk?.owedMs(nowMs) ?? 0);
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
    this.#live.hurry();
    for (const lane of this.#others.values()) lane.hurry();
  }

  close(): void {
    for (const lane of [this.#live, this.#bulk, ...this.#others.values()]) lane?.close();
  }

  // LaneOwner

  laneChanged(lane: Lane, _reason: string): void {
    if (lane === this.#live && lane.isUp) {
      this.#bulk?.hurry();
      for (const other of this.#others.values()) other.hurry();
    }
    this.#onChange();
  }

  laneThrottled(_lane: Lane, text: string): void {
    if (this.circuit.state === "open") return;
    const pauseMs = Math.min(THROTTLED_MS_MAX, THROTTLED_MS_MIN * 2 ** this.#throttles++);
    const untilMs = this.#seams.clock.monoMs() + pauseMs;
    this.circuit = { state: "open", untilMs, reason: text };
    this.#onChange();
  }

  #lane(producer: Uint8Array, isEager: boolean, keepsUnanswered: boolean): Lane {
    const address = { host: this.#host, port: this.#port };
    const options = { ...this.#options, ...address, producer, isEager, keepsUnanswered };
    return new Lane(options, this.#seams, this);
  }
}
