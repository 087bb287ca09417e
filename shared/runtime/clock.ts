/**
 * Time as a parameter. Durations and deadlines use `monoMs`, which never goes back; `wallMs` is
 * only for what people and other machines read, and for due times that must survive a restart.
 */
export interface Clock {
  /** Milliseconds since the Unix epoch, an integer. May jump either way. */
  wallMs(): number;
  /** Milliseconds since an arbitrary start. Never goes back. */
  monoMs(): number;
  /** Resolves after `ms`; rejects with the signal's reason when it is aborted first. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
  /** Calls `callback` once after `delayMs` unless cancelled. Delays below zero count as zero. */
  setTimer(delayMs: number, callback: () => void): Timer;
}

/** A pending call made by {@linkcode Clock.setTimer}. */
export interface Timer {
  /** Stops the call; does nothing once it has run. */
  cancel(): void;
}

/** The longest delay one timer takes; {@linkcode Clock} callers re-arm for anything later. */
export const TIMER_DELAY_MS_MAX = 2 ** 31 - 1;
