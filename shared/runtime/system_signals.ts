/** The signals that ask a service to stop, or to read its settings again. */

/** A second signal within this time is taken for the first one: a terminal and a supervisor both send it. */
const SAME_MS = 500;

/**
 * Resolves with the first of SIGTERM and SIGINT; from the call on they do not end the process. `again` is
 * called with each that comes later: whoever sends it does not want to wait.
 */
export function stopRequest(again: (signal: string) => void = () => {}): Promise<string> {
  let askedMs: number | null = null;
  return new Promise((resolve) => {
    for (const signal of ["SIGTERM", "SIGINT"] as const) {
      Deno.addSignalListener(signal, () => {
        const nowMs = performance.now();
        if (askedMs !== null && nowMs - askedMs >= SAME_MS) return again(signal);
        askedMs ??= nowMs;
        resolve(signal);
      });
    }
  });
}

/** Calls `asked` with each SIGHUP, which does not end the process from the call on. Returns the way back. */
export function onReloadRequest(asked: () => void): () => void {
  Deno.addSignalListener("SIGHUP", asked);
  return () => Deno.removeSignalListener("SIGHUP", asked);
}
