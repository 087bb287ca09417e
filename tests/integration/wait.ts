/**
 * Waiting with a deadline: the only place of the integration tests that lets real time pass. Nothing
 * sleeps for a fixed time; a probe is asked until it says yes, or the error tells what never came.
 */

/** Generous, for a loaded machine: a test that passes never waits for it. */
export const DEADLINE_MS = 20_000;
const POLL_MS = 10;

/** Asks `probe` until it gives something other than `undefined` or `false`, and returns that. */
export async function eventually<T>(
  what: string,
  probe: () => T | undefined | false | Promise<T | undefined | false>,
  deadlineMs = DEADLINE_MS,
): Promise<T> {
  const endMs = performance.now() + deadlineMs;
  for (;;) {
    const found = await probe();
    if (found !== undefined && found !== false) return found;
    if (performance.now() >= endMs) {
      throw new Error(`Gave up waiting for ${what} after ${deadlineMs} ms`);
    }
    await delay(POLL_MS);
  }
}

/** What `promise` comes to, or an error that names `what` when it takes longer. */
export async function within<T>(
  what: string,
  promise: Promise<T>,
  deadlineMs = DEADLINE_MS,
): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(
      () => reject(new Error(`Gave up waiting for ${what} after ${deadlineMs} ms`)),
      deadlineMs,
    );
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** Asks `probe` again and again for `durationMs` and throws when it ever says no. */
export async function staysTrue(
  what: string,
  probe: () => boolean | Promise<boolean>,
  durationMs: number,
): Promise<void> {
  const endMs = performance.now() + durationMs;
  do {
    if (!(await probe())) throw new Error(`It was to stay true that ${what}`);
    await delay(POLL_MS);
  } while (performance.now() < endMs);
}

function delay(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
