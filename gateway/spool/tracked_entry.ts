/** What a spool knows of one entry while it has to know more than its number. */
import { type EntryName, PINNED_LANE, type SpoolLane } from "./records.ts";

/** What there is to know of a publish without its body. */
export interface PublishFacts extends EntryName {
  readonly topic: string;
  readonly bodyBytes: number;
  readonly messageCount: number;
  readonly spooledWallMs: number;
}

/** An entry of which more is known than that it is in the backlog. */
export class TrackedEntry implements EntryName {
  /** Empty, with the other facts 0, while it has not been read since a start. */
  topic = "";
  bodyBytes = 0;
  messageCount = 0;
  spooledWallMs = 0;
  broker: string | null = null;
  /** When it was given to `broker`. */
  assignedWallMs = 0;
  /** Why it is in quarantine; null when it is not. */
  reason: string | null = null;
  isDamaged = false;
  inHand = false;
  isSettled = false;
  /** It is part of the figures. */
  isCounted = false;

  constructor(
    readonly lane: SpoolLane,
    readonly number: number,
    readonly id: number,
    /** Where its record is now. */
    public location: number,
    /** Start of the file that holds it. */
    public fileStart: number,
  ) {}

  get isPinned(): boolean {
    return this.lane === PINNED_LANE;
  }

  setFacts(facts: Omit<PublishFacts, keyof EntryName>): void {
    this.topic = facts.topic;
    this.bodyBytes = facts.bodyBytes;
    this.messageCount = facts.messageCount;
    this.spooledWallMs = facts.spooledWallMs;
  }
}
