/** Reads the small JSON object that a request of the native API has for a body. */
import { HttpError, readBody } from "@sluice/shared/http";
import type { Clock } from "@sluice/shared/runtime";

/** The largest body. */
export const JSON_BODY_BYTES_MAX = 8192;
/** How long a peer may take to send so little. */
const BODY_TIMEOUT_MS = 10_000;

/** A JSON object, not judged any further. */
export type JsonObject = Readonly<Record<string, unknown>>;

/** A field of a body that is not right; `message` is for the peer. */
export class FieldError extends Error {
  override name = "FieldError";
}

/**
 * What a body holds; an empty body is an empty object. Throws {@linkcode FieldError} for what is no JSON;
 * `HttpError` 408 and 413 for what does not come or is too large.
 */
export async function readJson(clock: Clock, request: Request): Promise<unknown> {
  const late = new AbortController();
  const timer = clock.setTimer(BODY_TIMEOUT_MS, () => late.abort());
  const body = await readBody(request, JSON_BODY_BYTES_MAX, late.signal);
  timer.cancel();
  if (body.kind === "too_large") throw new HttpError(413, "BODY_TOO_BIG");
  if (body.kind === "cut") throw new HttpError(408, "BODY_INCOMPLETE");
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(body.bytes);
    return text.trim() === "" ? {} : JSON.parse(text);
  } catch {
    throw new FieldError("the body is not JSON");
  }
}

/** As {@linkcode readJson}, and throws for what is no object, or has a field that is not in `fields`. */
export async function readJsonObject(
  clock: Clock,
  request: Request,
  fields: readonly string[],
): Promise<JsonObject> {
  const value = await readJson(clock, request);
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new FieldError("the body is not a JSON object");
  }
  for (const name of Object.keys(value)) {
    if (fields.includes(name)) continue;
    throw new FieldError(
      `there is no field ${JSON.stringify(name)}; there are: ${fields.join(", ")}`,
    );
  }
  return value as JsonObject;
}

/** A whole number of `[least, most]`, or null when it is not there. */
export function integerField(
  object: JsonObject,
  name: string,
  least: number,
  most: number,
): number | null {
  const value = object[name] ?? null;
  if (value === null) return null;
  if (Number.isInteger(value) && (value as number) >= least && (value as number) <= most) {
    return value as number;
  }
  throw new FieldError(`${name} is a whole number from ${least} to ${most}`);
}

/** A text that `pattern` matches, or null when it is not there; `wanted` says what it is. */
export function textField(
  object: JsonObject,
  name: string,
  pattern: RegExp,
  wanted: string,
): string | null {
  const value = object[name] ?? null;
  if (value === null) return null;
  if (typeof value === "string" && pattern.test(value)) return value;
  throw new FieldError(`${name} is ${wanted}`);
}
