/**
 * One way to a broker: a connection of one producer id that is made again when it ends, and the
 * publishes that are on it.
 *
 * ```
 *            wanted                   IDENTIFY                        ended
 *   idle -----------> connecting ----------------> up ------------------------------> waiting
 *    ^                    |                                                            |   |
 *    |                    '------------ failed: after a pause ------------------------>'   |
 *    '------------------------------------------------- nothing is wanted any more --------'
 * ```
 *
 * What becomes of a publish ({@linkcode LaneOutcome}):
 *
 * - `confirmed`: the broker has it.
 * - `elsewhere`: it is certainly not there and may go to another broker at once. One that was sent before
 *   without an answer may be there even when its repeat is refused: it stays.
 * - `poison`: the broker takes no such publish, and another would not either.
 * - No outcome for as long as its answer is missing: it is sent again, with its number and before all
 *   others, as soon as there is a connection, so that the broker stores it once.
 * - `unanswered`: the same, at a lane that does not keep such publishes.
 * - `unknowable`: the answer is missing and asking again would not tell, because the broker knows no
 *   numbers (an nsqd) or remembers this one no more.
 */
import {
  type ClientSeams,
  ProducerConnection,
  PublishError,
  type PublishOutcome,
} from "@sluice/shared/client";
import { encodePublishHead, errorCodeOf } from "@sluice/shared/protocol";
import { ConnectionError, type Random, randomBelow, type Timer } from "@sluice/shared/runtime";
import type { Publish } from "./publish.ts";

/** See the module. */
export type LaneOutcome =
  | { readonly kind: "confirmed" }
  | { readonly kind: "elsewhere" | "poison" | "unanswered" | "unknowable"; readonly text: string };

/** A publish on a lane. */
export interface LaneEntry {
  readonly publish: Publish;
  /** Nobody waits for the outcome any more: it is not sent again. */
  readonly isOver: boolean;
  /** It was sent to this broker before and had no answer: a refusal of the repeat says nothing of that. */
  mayBeThere: boolean;
  /** Called once, unless it is over. */
  settled(outcome: LaneOutcome): void;
}

/** What all lanes share. */
export interface LaneSeams extends ClientSeams {
  readonly random: Random;
}

/** How a lane connects. */
export interface LaneOptions {
  readonly host: string;
  readonly port: number;
  readonly producer: Uint8Array;
  readonly connectTimeoutMs: number;
  readonly heartbeatIntervalMs: number;
  readonly authSecret: Uint8Array | null;
  /** Connects at once and again, whether there is something to send or not. */
  readonly isEager: boolean;
  /** Sends publishes without an answer again by itself. */
  readonly keepsUnanswered: boolean;
}

/** Told by a lane. */
export interface LaneOwner {
  /** It is up, or not any more; `reason` says why not. */
  laneChanged(lane: Lane, reason: string): void;
  /** The broker refuses publishes for now. */
  laneThrottled(lane: Lane, text: string): void;
}

/** The first pause after a connection that could not be made; each is twice the one before. */
export const RETRY_MS_MIN = 50;
export const RETRY_MS_MAX = 2_000;
/** A connection that ended sooner, with nothing confirmed, is no reason to connect again at once. */
const STEADY_MS = 1_000;
/** A lane that nobody has used for so long is closed, unless it is eager. */
export const IDLE_MS_MAX = 10_000;

const CONFIRMED: LaneOutcome = { kind: "confirmed" };
/** A broker that says so takes nothing from this connection, whatever the publish. */
const ELSEWHERE_CODES: readonly (string | undefined)[] = [
  "E_CLOSING",
  "E_THROTTLED",
  "E_AUTH_FIRST",
  "E_AUTH_FAILED",
  undefined,
];

type State = "idle" | "connecting" | "up" | "waiting" | "closed";

/** See the module. */
export class Lane {
  readonly #options: LaneOptions;
  readonly #seams: LaneSeams;
  readonly #owner: LaneOwner;
  #state: State = "idle";
  #connection: ProducerConnection | null = null;
  /** Not sent yet: for when the connection is there. */
  #queued: LaneEntry[] = [];
  /** Sent on a connection that has ended, without an answer. */
  #unanswered: LaneEntry[] = [];
  #isEager: boolean;
  #deduplicates = false;
  /** Connections in a row that could not be made, or were of no use. */
  #failures = 0;
  /** Not before, monotonic ms, is a connection made again. */
  #notBeforeMs = 0;
  #upSinceMs = 0;
  #confirmedAny = false;
  #timer: Timer | null = null;
  #usedMs: number;
  /** Why there is no connection. */
  #reason = "not connected yet";
  /** Monotonic ms at which the broker last answered, or was first asked after it owed nothing. */
  #progressMs = 0;

  constructor(options: LaneOptions, seams: LaneSeams, owner: LaneOwner) {
    this.#options = options;
    this.#seams = seams;
    this.#owner = owner;
    this.#usedMs = seams.clock.monoMs();
    this.#isEager = options.isEager;
    if (options.isEager) this.#connect();
  }

  get isUp(): boolean {
    return this.#state === "up" && this.#connection?.isOpen === true;
  }

  /** Why it is not up. */
  get reason(): string {
    return this.#reason;
  }

  get isClosed(): boolean {
    return this.#state === "closed";
  }

  /** Whether the broker knows repeats by their numbers, as far as it was heard of. */
  get deduplicates(): boolean {
    return this.#deduplicates;
  }

  /** For how long the broker has owed an answer, ms; 0 when it owes none. */
  owedMs(nowMs: number): number {
    const owes = (this.#connection?.outstandingCount ?? 0) > 0;
    return owes ? nowMs - this.#progressMs : 0;
  }

  /** Whether nothing is on it and no connection is kept. */
  get isIdle(): boolean {
    return this.#state === "idle";
  }

  /** Sends it now, or as soon as there is a connection. */
  send(entry: LaneEntry): void {
    this.#usedMs = this.#seams.clock.monoMs();
    if (this.#state === "up") return this.#send(entry);
    if (this.#state === "closed") return this.#notSent(entry, "the broker is left");
    this.#queued.push(entry);
    if (this.#state === "idle") this.#connectLater();
  }

  /** Connects no more than what is on it needs. */
  retire(): void {
    this.#isEager = false;
    if (this.#state === "up") this.#armIdle();
    else if (this.#state === "waiting" && !this.#isWanted) this.#rest();
  }

  /** Tries to connect now if it pauses: the broker may be back. */
  hurry(): void {
    if (this.#state !== "waiting") return;
    this.#timer?.cancel();
    this.#connect();
  }

  /** Ends the connection. What is not sent may go elsewhere; what has no answer stays without one. */
  close(): void {
    if (this.#state === "closed") return;
    this.#state = "closed";
    this.#timer?.cancel();
    this.#timer = null;
    this.#connection?.close();
    this.#connection = null;
    const left = this.#queued;
    this.#queued = [];
    this.#unanswered = [];
    for (const entry of left) if (!entry.isOver) this.#notSent(entry, "the broker is left");
  }

  #connect(): void {
    this.#state = "connecting";
    this.#timer = null;
    const { authSecret, producer, ...rest } = this.#options;
    ProducerConnection.connect(this.#seams, {
      host: rest.host,
      port: rest.port,
      connectTimeoutMs: rest.connectTimeoutMs,
      heartbeatIntervalMs: rest.heartbeatIntervalMs,
      frameBytesMax: FRAME_BYTES_MAX,
      identify: { client_id: "sluice-gateway", user_agent: "sluice-gateway" },
      producerId: producer,
      ...(authSecret === null ? {} : { authSecret }),
    }).then(
      (connection) => this.#up(connection),
      (error) => {
        if (!(error instanceof ConnectionError)) throw error;
        this.#failed(error.message);
      },
    );
  }

  #up(connection: ProducerConnection): void {
    if (this.#state === "closed") return connection.close();
    this.#connection = connection;
    this.#state = "up";
    this.#deduplicates = connection.deduplicates;
    this.#upSinceMs = this.#seams.clock.monoMs();
    this.#confirmedAny = false;
    this.#reason = "";
    connection.onEnd = (error) => this.#ended(connection, error?.message ?? "closed");
    // It may have ended before it was looked at.
    if (!connection.isOpen) return this.#ended(connection, "it closes at once");
    const entries = [...this.#unanswered, ...this.#queued];
    this.#unanswered = [];
    this.#queued = [];
    for (const entry of entries) if (!entry.isOver) this.#send(entry);
    this.#owner.laneChanged(this, "");
    this.#armIdle();
  }

  #failed(reason: string): void {
    if (this.#state === "closed") return;
    this.#reason = reason;
    this.#failures++;
    this.#pause();
    const left = this.#queued;
    this.#queued = [];
    this.#owner.laneChanged(this, reason);
    for (const entry of left) if (!entry.isOver) this.#notSent(entry, reason);
  }

  /** It did not get onto a connection. */
  #notSent(entry: LaneEntry, reason: string): void {
    if (!entry.mayBeThere) return entry.settled(elsewhere(reason));
    if (!this.#options.keepsUnanswered) {
      return entry.settled({ kind: "unanswered", text: reason });
    }
    if (this.#state !== "closed") this.#unanswered.push(entry);
  }

  #ended(connection: ProducerConnection, reason: string): void {
    if (this.#connection !== connection || this.#state === "closed") return;
    this.#connection = null;
    this.#reason = reason;
    this.#timer?.cancel();
    this.#timer = null;
    const livedMs = this.#seams.clock.monoMs() - this.#upSinceMs;
    this.#failures = this.#confirmedAny || livedMs >= STEADY_MS ? 0 : this.#failures + 1;
    this.#pause();
    this.#owner.laneChanged(this, reason);
  }

  get #isWanted(): boolean {
    return this.#isEager || this.#queued.length > 0 ||
      this.#unanswered.some(({ isOver }) => !isOver);
  }

  #rest(): void {
    this.#timer?.cancel();
    this.#timer = null;
    this.#state = "idle";
    this.#unanswered = [];
  }

  /** Connects again after a while, if anything wants it. */
  #pause(): void {
    const base = this.#failures === 0
      ? RETRY_MS_MIN / 2
      : Math.min(RETRY_MS_MAX, RETRY_MS_MIN * 2 ** (this.#failures - 1));
    const { random, clock } = this.#seams;
    this.#notBeforeMs = clock.monoMs() + base / 2 + randomBelow(random, Math.ceil(base));
    if (this.#isWanted) this.#connectLater();
    else this.#rest();
  }

  /** Connects as soon as that may be. */
  #connectLater(): void {
    const { clock } = this.#seams;
    const delayMs = this.#notBeforeMs - clock.monoMs();
    if (delayMs <= 0) return this.#connect();
    this.#state = "waiting";
    this.#timer = clock.setTimer(delayMs, () => this.#connect());
  }

  #send(entry: LaneEntry): void {
    const connection = this.#connection!;
    const { publish } = entry;
    if (entry.mayBeThere && !connection.deduplicates) {
      return entry.settled(unknowable("the broker does not know repeats"));
    }
    const { clock } = this.#seams;
    if (connection.outstandingCount === 0) this.#progressMs = clock.monoMs();
    const { topic, isBatch, body, dueWallMs } = publish;
    const head = encodePublishHead({
      topic,
      isBatch,
      bodyBytes: body.length,
      deferMs: dueWallMs === 0 ? 0 : Math.max(0, dueWallMs - clock.wallMs()),
      sequence: connection.deduplicates ? publish.sequence : null,
    });
    connection.send((outcome) => this.#answered(connection, entry, outcome), head, body);
  }

  #answered(connection: ProducerConnection, entry: LaneEntry, outcome: PublishOutcome): void {
    if (outcome === "confirmed") {
      this.#progressMs = this.#seams.clock.monoMs();
      this.#confirmedAny = true;
      if (!entry.isOver) entry.settled(CONFIRMED);
      return;
    }
    const known = outcomeOf(outcome, connection.deduplicates, entry.mayBeThere);
    if (errorCodeOf(outcome.serverText ?? "") === "E_THROTTLED") {
      this.#owner.laneThrottled(this, outcome.serverText ?? "");
    }
    if (entry.isOver) return;
    if (known !== null) return entry.settled(known);
    if (this.#state === "closed") return;
    entry.mayBeThere = true;
    if (!this.#options.keepsUnanswered) {
      return entry.settled({ kind: "unanswered", text: outcome.message });
    }
    this.#unanswered.push(entry);
  }

  /** Closes what nobody uses. */
  #armIdle(): void {
    if (this.#isEager) return;
    const { clock } = this.#seams;
    this.#timer?.cancel();
    this.#timer = clock.setTimer(IDLE_MS_MAX, () => {
      const connection = this.#connection;
      if (connection === null) return;
      const isIdle = connection.outstandingCount === 0 &&
        clock.monoMs() - this.#usedMs >= IDLE_MS_MAX;
      if (isIdle) connection.close();
      else this.#armIdle();
    });
  }
}

/** Responses and errors are short. */
const FRAME_BYTES_MAX = 64 * 1024;

/** What an answer, or none, comes to; null while it is to be asked for again. */
function outcomeOf(
  error: PublishError,
  deduplicates: boolean,
  mayBeThere: boolean,
): LaneOutcome | null {
  const text = error.serverText ?? error.message;
  const code = errorCodeOf(error.serverText ?? "");
  if (error.outcome === "refused") {
    // What a refusal says is of this sending; of the one before nobody knows.
    if (ELSEWHERE_CODES.includes(code)) return mayBeThere ? null : elsewhere(text);
    return mayBeThere ? unknowable(text) : { kind: "poison", text };
  }
  if (code === "E_SEQUENCE_TOO_OLD" || !deduplicates) return unknowable(text);
  return null;
}

function elsewhere(text: string): LaneOutcome {
  return { kind: "elsewhere", text };
}

function unknowable(text: string): LaneOutcome {
  return { kind: "unknowable", text };
}
