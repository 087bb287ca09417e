/** Operations that the broker refuses. */

/** Why an operation was refused. */
export type RefusalCode =
  | "exiting"
  | "draining"
  | "storage"
  | "throttled"
  | "sequence_too_old"
  | "too_many_topics"
  | "too_many_channels"
  | "tombstoned";

/** An operation that the broker refuses; `message` is for the peer. */
export class RefusedError extends Error {
  override name = "RefusedError";
  /** `retryAfterMs` says when it is worth trying again, where that is known. */
  constructor(readonly code: RefusalCode, message: string, readonly retryAfterMs?: number) {
    super(message);
  }
}
