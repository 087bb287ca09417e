/** What goes into a spool and comes out of it, as its users see it. */
import type { Publish } from "../publish.ts";

/** A publish in a spool that was handed out. Nothing of it ever changes. */
export interface SpoolEntry {
  /** Where it was put into the log first: its id for good, and its place in the order. */
  readonly position: number;
  readonly publish: Publish;
  /** When it was put there, Unix ms. */
  readonly spooledWallMs: number;
  /** Whose it was when it was handed out, if it may have been sent there. */
  readonly broker: string | null;
  /** Since when it may be there: it was given to `broker` then, Unix ms. Null without a broker. */
  readonly assignedWallMs: number | null;
  /** Put there by a publish whose outcome at its first broker is unknown. */
  readonly pinned: boolean;
}

/** An entry that was put aside: no broker takes it, or it cannot be read. */
export interface QuarantinedEntry {
  /** Its {@linkcode SpoolEntry.position}. */
  readonly id: number;
  /** Empty when it cannot be read. */
  readonly topic: string;
  readonly bodyBytes: number;
  readonly messageCount: number;
  readonly reason: string;
  /** 0 when it cannot be read. */
  readonly spooledWallMs: number;
  readonly broker: string | null;
  /** It cannot be read: there is no body, and it can only be dropped. */
  readonly isDamaged: boolean;
}

/** Why a spool does not take something. */
export type SpoolRefusalCode = "full" | "stale" | "failed" | "too_large";

/** A publish or a decision that a spool has not taken. `code` is what a caller decides by. */
export class SpoolRefusal extends Error {
  override name = "SpoolRefusal";
  constructor(
    readonly code: SpoolRefusalCode,
    message: string,
    /** It was on its way to the disk: whether it is there shows at the next start. */
    readonly mayBeStored: boolean = false,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}
