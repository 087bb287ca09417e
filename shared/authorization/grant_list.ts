/**
 * Grants as people write them in a grants file and in the claims of a token:
 *
 * ```
 * [{ "scopes": ["publish", "consume"], "topics": ["orders", "orders.*"], "channels": ["*"] }]
 * ```
 *
 * Topics and channels are patterns of whole names, `*` for any characters and `?` for one. Without
 * `channels` every channel is meant; `topics` must be there. Unknown keys are errors, so that a
 * mistyped one cannot go unnoticed.
 */
import { type Grant, GRANTS_MAX, PatternBook, type Scope, SCOPES } from "./grants.ts";
import { Pattern } from "./pattern.ts";
import { PatternError } from "./pattern_syntax.ts";

/** Grants that cannot be used. The message names the place and repeats no value. */
export class GrantListError extends Error {
  override name = "GrantListError";
}

/** Reads a list of grants; `place` names it in errors. Throws {@linkcode GrantListError}. */
export function readGrantList(value: unknown, place: string): Grant[] {
  if (!Array.isArray(value)) throw new GrantListError(`${place} is not a list`);
  if (value.length > GRANTS_MAX) {
    throw new GrantListError(`${place} has more than ${GRANTS_MAX} entries`);
  }
  const book = new PatternBook((source) => Pattern.glob(source));
  return value.map((entry, index) => readGrant(entry, `${place}[${index}]`, book));
}

/** The fields of an object, of which there may be no others than `names`. */
export function readFields(
  value: unknown,
  place: string,
  names: readonly string[],
): Readonly<Record<string, unknown>> {
  if (!isRecord(value)) throw new GrantListError(`${place} is not an object`);
  if (Object.keys(value).some((name) => !names.includes(name))) {
    throw new GrantListError(`${place} has a key other than ${names.join(", ")}`);
  }
  return value;
}

function readGrant(value: unknown, place: string, book: PatternBook): Grant {
  const { scopes, topics, channels = ["*"] } = readFields(value, place, [
    "scopes",
    "topics",
    "channels",
  ]);
  return {
    scopes: readTexts(scopes, `${place}.scopes`).map((scope) => {
      if (!isScope(scope)) {
        throw new GrantListError(`${place}.scopes has one that is none of ${SCOPES.join(", ")}`);
      }
      return scope;
    }),
    topics: readPatterns(topics, `${place}.topics`, book),
    channels: readPatterns(channels, `${place}.channels`, book),
  };
}

function readPatterns(value: unknown, place: string, book: PatternBook): Pattern[] {
  return readTexts(value, place).map((source) => {
    try {
      return book.pattern(source);
    } catch (error) {
      if (!(error instanceof PatternError || error instanceof RangeError)) throw error;
      throw new GrantListError(`${place}: ${error.message}`);
    }
  });
}

function readTexts(value: unknown, place: string): readonly string[] {
  if (!Array.isArray(value) || value.length === 0) {
    throw new GrantListError(`${place} is not a list with something in it`);
  }
  return value.map((one) => {
    if (typeof one !== "string") throw new GrantListError(`${place} has what is not text`);
    return one;
  });
}

function isScope(text: string): text is Scope {
  return SCOPES.some((scope) => scope === text);
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
