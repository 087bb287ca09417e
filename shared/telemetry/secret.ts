/** A value that is never printed: not by our logger, nor by string conversion, JSON or inspection. */

const SHOWN = "***";

/** Wraps a password, token or key, so that only {@linkcode Secret.reveal} gives it out. */
export class Secret<T = string> {
  readonly #value: T;

  constructor(value: T) {
    this.#value = value;
  }

  /** The value itself, for where it is used. */
  reveal(): T {
    return this.#value;
  }

  toString(): string {
    return SHOWN;
  }

  toJSON(): string {
    return SHOWN;
  }

  [Symbol.for("nodejs.util.inspect.custom")](): string {
    return SHOWN;
  }

  [Symbol.for("Deno.customInspect")](): string {
    return SHOWN;
  }
}

/** Wraps `value`, so that it prints as `***`. */
export function secret<T>(value: T): Secret<T> {
  return new Secret(value);
}
