/**
 * Publishes in memory that have no outcome yet, oldest first. All have the same time to get one, so
 * the oldest is the next to run out of it.
 */
import { invariant } from "@sluice/shared/runtime";
import type { BrokerLink } from "./broker_link.ts";
import type { LaneEntry, LaneOutcome } from "./lane.ts";
import { type Publish, PUBLISH_OVERHEAD_BYTES, type Unstamped } from "./publish.ts";

/** What became of a publish. */
export type Outcome =
  | { readonly kind: "confirmed" | "spooled" }
  /**
   * `refused`: no broker takes it, as `text` says; it is not stored. `throttled`: nobody can take it now;
   * it is not stored. `ambiguous`: whether a broker has it is not known. `failed`: it is not stored, for
   * a reason of the gateway's.
   */
  | { readonly kind: "refused" | "throttled" | "ambiguous" | "failed"; readonly text: string };

/** What is to be published. `body` must not change afterwards. */
export interface PublishRequest extends Unstamped {
  /** For choosing a broker by hash; empty for none. */
  readonly key: string;
}

/** Whom a transit tells. */
export interface TransitOwner {
  transitSettled(transit: Transit, outcome: LaneOutcome): void;
}

/** One publish on its way. */
export class Transit implements LaneEntry {
  readonly request: PublishRequest;
  /** As it was stamped last; null before it goes anywhere. */
  stamped: Publish | null = null;
  readonly bytes: number;
  /** When it was taken, monotonic ms. */
  readonly sinceMs: number;
  readonly deadlineMs: number;
  readonly done: (outcome: Outcome) => void;
  /** Where it has been sent. */
  link: BrokerLink | null = null;
  /** Nothing more is to become of it on a lane: it has an outcome, or is going to the spool. */
  isOver = false;
  mayBeThere = false;
  previous: Transit | null = null;
  next: Transit | null = null;
  readonly #owner: TransitOwner;

  constructor(
    owner: TransitOwner,
    request: PublishRequest,
    sinceMs: number,
    deadlineMs: number,
    done: (outcome: Outcome) => void,
  ) {
    this.#owner = owner;
    this.request = request;
    this.bytes = request.body.length + PUBLISH_OVERHEAD_BYTES;
    this.sinceMs = sinceMs;
    this.deadlineMs = deadlineMs;
    this.done = done;
  }

  get publish(): Publish {
    invariant(this.stamped !== null, "what is sent has a number");
    return this.stamped;
  }

  settled(outcome: LaneOutcome): void {
    this.#owner.transitSettled(this, outcome);
  }
}

/** See the module. Adding and removing cost the same however many there are. */
export class TransitList {
  head: Transit | null = null;
  count = 0;
  bytes = 0;
  #tail: Transit | null = null;

  add(transit: Transit): void {
    transit.previous = this.#tail;
    if (this.#tail === null) this.head = transit;
    else this.#tail.next = transit;
    this.#tail = transit;
    this.count++;
    this.bytes += transit.bytes;
  }

  remove(transit: Transit): void {
    const { previous, next } = transit;
    if (previous === null) this.head = next;
    else previous.next = next;
    if (next === null) this.#tail = previous;
    else next.previous = previous;
    transit.previous = null;
    transit.next = null;
    this.count--;
    this.bytes -= transit.bytes;
  }
}
