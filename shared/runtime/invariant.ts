/**
 * Checks of our own assumptions. They stay on in production: a broken one means the state can no
 * longer be trusted, so the process must stop rather than guess. They never judge what a peer, a
 * disk or a user gave us; those are error values.
 */

/** Thrown when an assumption of ours does not hold. Nothing catches it but the top of a service. */
export class InvariantError extends Error {
  override name = "InvariantError";
}

/** Throws {@linkcode InvariantError} with `message` unless `condition` holds. */
export function invariant(condition: boolean, message: string): asserts condition {
  if (!condition) throw new InvariantError(`Invariant does not hold: ${message}`);
}

/** The last arm of an exhaustive switch: does not compile while a case is missing. */
export function unreachable(value: never): never {
  throw new InvariantError(`Unreachable value: ${String(value)}`);
}
