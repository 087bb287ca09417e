/** {@linkcode Clock.sleep} in terms of a clock's own timer: what every clock shares. */
import type { Timer } from "./clock.ts";

/**
 * Resolves when a timer of `delayMs` made by `setTimer` runs; rejects with the signal's reason when
 * that is aborted first. Leaves neither a timer nor a listener behind.
 */
export function sleepByTimer(
  setTimer: (delayMs: number, callback: () => void) => Timer,
  delayMs: number,
  signal?: AbortSignal,
): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const onAbort = () => {
      timer.cancel();
      reject(signal?.reason);
    };
    const timer = setTimer(delayMs, () => {
      signal?.removeEventListener("abort", onAbort);
      resolve();
    });
    signal?.addEventListener("abort", onAbort, { once: true });
  });
}
