/** The signals that ask a service to stop. */

/** Resolves with the first of SIGTERM and SIGINT; from the call on they do not end the process. */
export function stopRequest(): Promise<string> {
  return new Promise((resolve) => {
    for (const signal of ["SIGTERM", "SIGINT"] as const) {
      Deno.addSignalListener(signal, () => resolve(signal));
    }
  });
}
