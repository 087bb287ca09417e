/**
 * A JSON object from a peer, read field by field with its type checked: as Go's decoder does, a
 * missing field or `null` gives the default, unknown fields are ignored, and a value of another type
 * (a fraction where an integer belongs, too) fails the whole. Reading goes on after a failure; the
 * reader asks `failed` once at the end.
 */
import { utf8Text } from "./bytes.ts";

/** Integers that are not exact as a number are taken as failures. */
export class JsonFields {
  failed = false;
  readonly #fields: Readonly<Record<string, unknown>>;

  constructor(fields: Readonly<Record<string, unknown>>) {
    this.#fields = fields;
  }

  string(key: string): string {
    const value = this.#value(key);
    if (value === null) return "";
    if (typeof value === "string") return value;
    this.failed = true;
    return "";
  }

  boolean(key: string): boolean {
    const value = this.#value(key);
    if (value === null) return false;
    if (typeof value === "boolean") return value;
    this.failed = true;
    return false;
  }

  integer(key: string, min = Number.MIN_SAFE_INTEGER, max = Number.MAX_SAFE_INTEGER): number {
    const value = this.#value(key);
    if (value === null) return 0;
    if (typeof value === "number" && Number.isInteger(value) && value >= min && value <= max) {
      return value;
    }
    this.failed = true;
    return 0;
  }

  #value(key: string): unknown {
    return Object.hasOwn(this.#fields, key) ? this.#fields[key] : null;
  }
}

/** Parses `buffer[start, end)`; `undefined` when it is neither a JSON object nor `null` (which is empty). */
export function parseJsonFields(
  buffer: Uint8Array,
  start: number,
  end: number,
): JsonFields | undefined {
  let value: unknown;
  try {
    value = JSON.parse(utf8Text(buffer, start, end));
  } catch {
    return undefined;
  }
  if (value === null) return new JsonFields({});
  return isRecord(value) ? new JsonFields(value) : undefined;
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
