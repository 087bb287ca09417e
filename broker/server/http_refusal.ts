/** How a refused operation is answered over HTTP. */
import { HttpError } from "@sluice/shared/http";
import { InvariantError } from "@sluice/shared/runtime";
import { RefusedError } from "../broker.ts";

/** The code of a publish that is refused for want of disk space. It may be tried again. */
export const THROTTLED = "THROTTLED";
/** The code of a publish that is refused because the broker drains. It may go to another one. */
export const DRAINING = "DRAINING";

/** A publish that is refused for now. */
export class ThrottledError extends HttpError {
  override name = "ThrottledError";
  /** For `Retry-After`. */
  readonly retryAfterSeconds: number;

  constructor(retryAfterMs: number) {
    super(429, THROTTLED);
    this.retryAfterSeconds = Math.max(1, Math.ceil(retryAfterMs / 1000));
  }
}

/** The HTTP error for a refused operation. A broken invariant is thrown on: the service must stop. */
export function refusal(error: unknown): HttpError {
  if (error instanceof InvariantError) throw error;
  if (!(error instanceof RefusedError)) return new HttpError(503, "STORAGE_FAULT");
  switch (error.code) {
    case "exiting":
      return new HttpError(503, "EXITING");
    case "draining":
      return new HttpError(503, DRAINING);
    case "storage":
      return new HttpError(503, "STORAGE_FAULT");
    case "throttled":
      return new ThrottledError(error.retryAfterMs ?? 0);
    case "sequence_too_old":
      return new HttpError(409, "SEQUENCE_TOO_OLD");
    case "tombstoned":
      return new HttpError(409, "TOMBSTONED");
    case "too_many_topics":
      return new HttpError(429, "TOO_MANY_TOPICS");
    case "too_many_channels":
      return new HttpError(429, "TOO_MANY_CHANNELS");
  }
}
