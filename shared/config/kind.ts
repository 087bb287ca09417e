/**
 * What values a setting takes: a {@linkcode Kind} reads them from text (flag, environment) and from
 * TOML or JSON, and writes them back. A kind judges what users type, so it never throws: `undefined`
 * means "not one of mine", and `wanted` says what would have been.
 */
import { invariant } from "../runtime/mod.ts";

/** The values of one setting. For every value `parse(show(value))` gives the value back. */
export interface Kind<T> {
  /** Stands for the value in the help text: `HOST:PORT`. */
  readonly placeholder: string;
  /** Completes the sentence "want ...". */
  readonly wanted: string;
  /** The text a flag without a value stands for; without it a flag needs a value. */
  readonly bare?: string;
  /** A list: a flag may be repeated, and each text may hold several values, comma separated. */
  readonly repeats: boolean;
  /** Reads a flag or an environment variable. */
  parse(text: string): T | undefined;
  /** Reads a value of a TOML or JSON document. */
  fromDocument(value: unknown): T | undefined;
  /** The shortest text a person would type for `value`. */
  show(value: T): string;
  /** The body of nsqd's `GET /config/:opt`. */
  toOption(value: T): OptionBody;
}

/** A `/config/:opt` answer: JSON, or else plain text. */
export interface OptionBody {
  readonly body: string;
  readonly json: boolean;
}

/** The most values a list setting holds. */
export const LIST_VALUES_MAX = 128;
/** The most characters a text setting holds. */
export const TEXT_CHARACTERS_MAX = 4096;

/** Inclusive bounds of a number. */
export interface Range {
  readonly min?: number;
  readonly max?: number;
}

/** Any text without control characters; `placeholder` stands for it in the help text. */
export function text(placeholder = "TEXT"): Kind<string> {
  return {
    placeholder,
    wanted: `text of at most ${TEXT_CHARACTERS_MAX} characters without control characters`,
    repeats: false,
    parse: (given) => isPlainText(given) ? given : undefined,
    fromDocument: (value) => typeof value === "string" && isPlainText(value) ? value : undefined,
    show: (value) => value,
    toOption: (value) => ({ body: value, json: false }),
  };
}

/** A whole number. */
export function integer(range: Range = {}): Kind<number> {
  const accept = (value: number) =>
    Number.isSafeInteger(value) && isWithin(value, range) ? value : undefined;
  const parse = (given: string) =>
    /^[+-]?\d{1,16}$/.test(given) ? accept(Number(given)) : undefined;
  return {
    placeholder: "N",
    wanted: `a whole number${describeRange(range, String)}`,
    repeats: false,
    parse,
    // Files of NSQ may have numbers in quotes.
    fromDocument: (value) => {
      if (typeof value === "number") return accept(value);
      return typeof value === "string" ? parse(value) : undefined;
    },
    show: String,
    toOption: (value) => ({ body: String(value), json: true }),
  };
}

const TRUE_WORDS: ReadonlySet<string> = new Set(["1", "t", "true"]);
const FALSE_WORDS: ReadonlySet<string> = new Set(["0", "f", "false"]);

/** True or false, in the spellings Go's flags take; a bare flag means true. */
export function boolean(): Kind<boolean> {
  const parse = (given: string) => {
    const word = given.toLowerCase();
    if (TRUE_WORDS.has(word)) return true;
    return FALSE_WORDS.has(word) ? false : undefined;
  };
  return {
    placeholder: "true|false",
    wanted: "true or false",
    bare: "true",
    repeats: false,
    parse,
    fromDocument: (value) => {
      if (typeof value === "boolean") return value;
      return typeof value === "string" ? parse(value) : undefined;
    },
    show: String,
    toOption: (value) => ({ body: String(value), json: true }),
  };
}

/** How a choice differs from a plain list of words. */
export interface ChoiceOptions {
  /** What the flag without a value stands for. */
  readonly bare?: string;
}

/** One word of a fixed list, in any case. */
export function choice<const W extends string>(
  words: readonly W[],
  options: ChoiceOptions = {},
): Kind<W> {
  invariant(words.every((word) => word === word.toLowerCase()), "choices are lower case");
  const parse = (given: string) => words.find((word) => word === given.toLowerCase());
  return {
    placeholder: words.join("|"),
    wanted: `one of ${words.join(", ")}`,
    ...(options.bare === undefined ? {} : { bare: options.bare }),
    repeats: false,
    parse,
    fromDocument: (value) =>
      typeof value === "string" || typeof value === "boolean" ? parse(String(value)) : undefined,
    show: (value) => value,
    toOption: (value) => ({ body: value, json: false }),
  };
}

/** A quantile above 0 and at most 1, for {@linkcode list}. */
export function percentile(): Kind<number> {
  return fractionWhere((value) => value > 0, "a fraction above 0 and at most 1, such as 0.99");
}

/** A share from 0 to 1. */
export function fraction(): Kind<number> {
  return fractionWhere(() => true, "a fraction from 0 to 1, such as 0.01");
}

function fractionWhere(isValid: (value: number) => boolean, wanted: string): Kind<number> {
  const accept = (value: number) => value >= 0 && value <= 1 && isValid(value) ? value : undefined;
  return {
    placeholder: "FRACTION",
    wanted,
    repeats: false,
    parse: (given) => /^\d*\.?\d+$/.test(given) ? accept(Number(given)) : undefined,
    fromDocument: (value) => typeof value === "number" ? accept(value) : undefined,
    show: (value) => value.toFixed(12).replace(/\.?0+$/, ""),
    toOption: (value) => ({ body: String(value), json: true }),
  };
}

/** Several values of one kind, none by default. An empty text is the empty list. */
export function list<T>(of: Kind<T>): Kind<readonly T[]> {
  invariant(!of.repeats && of.bare === undefined, "a list holds plain values");
  const collect = <V>(values: readonly V[], read: (value: V) => T | undefined) => {
    if (values.length > LIST_VALUES_MAX) return undefined;
    const result: T[] = [];
    for (const value of values) {
      const one = read(value);
      if (one === undefined) return undefined;
      result.push(one);
    }
    return result;
  };
  const parse = (given: string) =>
    given === "" ? [] : collect(given.split(","), (part) => of.parse(part.trim()));
  return {
    placeholder: `${of.placeholder},...`,
    wanted: `at most ${LIST_VALUES_MAX} values, comma separated, each ${of.wanted}`,
    repeats: true,
    parse,
    fromDocument: (value) => {
      if (typeof value === "string") return parse(value);
      return Array.isArray(value) ? collect(value, (one) => of.fromDocument(one)) : undefined;
    },
    show: (value) => value.map((one) => of.show(one)).join(","),
    toOption: (value) => {
      const items = value.map((one) => {
        const item = of.toOption(one);
        return item.json ? item.body : JSON.stringify(item.body);
      });
      return { body: `[${items.join(",")}]`, json: true };
    },
  };
}

/** Whether a number is within bounds. */
export function isWithin(value: number, range: Range): boolean {
  return value >= (range.min ?? -Infinity) && value <= (range.max ?? Infinity);
}

/** Bounds in words, to go behind a noun; empty when there are none. */
export function describeRange(range: Range, show: (value: number) => string): string {
  if (range.min !== undefined && range.max !== undefined) {
    return ` from ${show(range.min)} to ${show(range.max)}`;
  }
  if (range.min !== undefined) return `, at least ${show(range.min)}`;
  return range.max === undefined ? "" : `, at most ${show(range.max)}`;
}

function isPlainText(value: string): boolean {
  return value.length <= TEXT_CHARACTERS_MAX && !/\p{Cc}/u.test(value);
}
