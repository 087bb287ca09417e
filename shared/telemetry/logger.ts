/**
 * Structured log lines. One call is one line without a line break, whatever it is given: a peer can
 * neither forge a line nor make one longer than the bounds below. Lines go to a function, the time
 * comes from a clock; both are parameters. The sink must not throw and should not block.
 */
import type { Clock } from "../runtime/mod.ts";
import { Secret } from "./secret.ts";

/** From chatty to grave. At a level, lines of that level and graver ones are written. */
export const LOG_LEVELS = ["debug", "info", "warn", "error", "fatal"] as const;
/** One of {@linkcode LOG_LEVELS}. */
export type LogLevel = typeof LOG_LEVELS[number];

/** How a line is written: for people, or one JSON object. */
export type LogFormat = "text" | "json";

/** What a field may hold. `undefined` leaves the field out. */
export type LogValue =
  | string
  | number
  | bigint
  | boolean
  | null
  | undefined
  | Error
  | Secret<unknown>
  | readonly LogValue[];

/** Named values that go with a message. */
export type LogFields = Readonly<Record<string, LogValue>>;

/** The most characters of a message; the rest is cut. */
export const MESSAGE_CHARACTERS_MAX = 2048;
/** The most characters of a field's value; the rest is cut. */
export const FIELD_CHARACTERS_MAX = 1024;
/** The most fields of a line, fixed ones included; the rest is left out and counted in `omitted`. */
export const FIELDS_MAX = 32;
/** The most items shown of a list, and the most causes of an error. */
const ITEMS_MAX = 16;

/** Where a logger writes and what it writes. */
export interface LoggerOptions {
  /** Takes a finished line, without the line break. */
  readonly sink: (line: string) => void;
  readonly clock: Pick<Clock, "wallMs">;
  /** `info` by default; {@linkcode Logger.level} changes it while running. */
  readonly level?: LogLevel;
  readonly format?: LogFormat;
  /** Text in front of every message, such as `[nsqd] `; in JSON the field `prefix`. */
  readonly prefix?: string;
}

/** Writes log lines; see the module. */
export class Logger {
  readonly #options: LoggerOptions;
  #fields: LogFields = {};
  /** Shared with all children, so that the level changes for all of them at once. */
  #threshold: { rank: number };

  constructor(options: LoggerOptions) {
    this.#options = options;
    this.#threshold = { rank: LOG_LEVELS.indexOf(options.level ?? "info") };
  }

  /** The least severe level that is written. Children and parent have one level together. */
  get level(): LogLevel {
    return LOG_LEVELS[this.#threshold.rank] ?? "info";
  }

  set level(level: LogLevel) {
    this.#threshold.rank = LOG_LEVELS.indexOf(level);
  }

  /** Whether a line of this level would be written; asked before costly fields are gathered. */
  isWritten(level: LogLevel): boolean {
    return LOG_LEVELS.indexOf(level) >= this.#threshold.rank;
  }

  /** A logger that adds `fields` to every line. */
  child(fields: LogFields): Logger {
    const child = new Logger(this.#options);
    child.#fields = { ...this.#fields, ...fields };
    child.#threshold = this.#threshold;
    return child;
  }

  debug(message: string, fields?: LogFields): void {
    this.#write("debug", message, fields);
  }

  info(message: string, fields?: LogFields): void {
    this.#write("info", message, fields);
  }

  warn(message: string, fields?: LogFields): void {
    this.#write("warn", message, fields);
  }

  error(message: string, fields?: LogFields): void {
    this.#write("error", message, fields);
  }

  /** For the last words of a process. */
  fatal(message: string, fields?: LogFields): void {
    this.#write("fatal", message, fields);
  }

  #write(level: LogLevel, message: string, fields: LogFields | undefined): void {
    if (!this.isWritten(level)) return;
    const { clock, format, prefix = "", sink } = this.#options;
    const line: Line = {
      time: new Date(clock.wallMs()).toISOString(),
      level,
      prefix,
      message: cut(message, MESSAGE_CHARACTERS_MAX),
      fields: plainFields({ ...this.#fields, ...fields }),
    };
    sink(format === "json" ? jsonLine(line) : textLine(line));
  }
}

interface Line {
  readonly time: string;
  readonly level: LogLevel;
  readonly prefix: string;
  readonly message: string;
  readonly fields: readonly (readonly [name: string, value: PlainValue])[];
}

type PlainValue = string | number | boolean | null | readonly PlainValue[];

function textLine({ time, level, prefix, message, fields }: Line): string {
  const head = `${time} ${level.toUpperCase().padEnd(5)} ${prefix}${escapeUnseen(message)}`;
  return head + fields.map(([name, value]) => ` ${name}=${textValue(value)}`).join("");
}

function textValue(value: PlainValue): string {
  if (Array.isArray(value)) return quoteWhereNeeded(value.map(String).join(","));
  return quoteWhereNeeded(String(value));
}

function quoteWhereNeeded(value: string): string {
  return /^[^\s"=\\\p{C}]+$/u.test(value) ? value : escapeUnseen(JSON.stringify(value));
}

function jsonLine({ time, level, prefix, message, fields }: Line): string {
  const record: Record<string, PlainValue> = { time, level };
  if (prefix !== "") record.prefix = prefix.trim();
  record.message = message;
  for (const [name, value] of fields) {
    record[Object.hasOwn(record, name) ? `field_${name}` : name] = value;
  }
  return escapeUnseen(JSON.stringify(record));
}

function plainFields(fields: LogFields): [string, PlainValue][] {
  const given = Object.entries(fields).filter(([, value]) => value !== undefined);
  const shown = given.slice(0, FIELDS_MAX).map(([name, value]): [string, PlainValue] => [
    cut(name.replace(/[^\w.]/g, "_"), 64),
    plainValue(value, 0),
  ]);
  if (given.length > FIELDS_MAX) shown.push(["omitted", given.length - FIELDS_MAX]);
  return shown;
}

function plainValue(value: LogValue, depth: number): PlainValue {
  if (value === undefined || value === null || typeof value === "boolean") return value ?? null;
  if (typeof value === "number") return Number.isFinite(value) ? value : String(value);
  if (typeof value === "string") return cut(value, FIELD_CHARACTERS_MAX);
  if (typeof value === "bigint" || value instanceof Secret) return String(value);
  if (value instanceof Error) return cut(describeError(value), FIELD_CHARACTERS_MAX);
  if (depth > 0) return "[...]";
  const items = value.slice(0, ITEMS_MAX).map((item) => plainValue(item, depth + 1));
  const text = items.map(String).join(",");
  // Many long items: the joined text, cut, rather than a list of unbounded size.
  if (text.length > FIELD_CHARACTERS_MAX) return cut(text, FIELD_CHARACTERS_MAX);
  return value.length > ITEMS_MAX ? [...items, `+${value.length - ITEMS_MAX}`] : items;
}

/** An error and what caused it: `DiskError: Cannot sync <- Error: EIO`. */
function describeError(error: Error): string {
  const parts: string[] = [];
  let current: unknown = error;
  while (current !== undefined && current !== null && parts.length < ITEMS_MAX) {
    if (!(current instanceof Error)) {
      parts.push(String(current));
      break;
    }
    parts.push(`${current.name}: ${current.message}`);
    current = current.cause;
  }
  return parts.join(" <- ");
}

function cut(text: string, charactersMax: number): string {
  if (text.length <= charactersMax) return text;
  return `${text.slice(0, charactersMax)}...(+${text.length - charactersMax})`;
}

/** Characters that end a line or that a terminal would act on, as `\uXXXX`. */
function escapeUnseen(text: string): string {
  return text.replace(/[\p{Cc}\p{Cf}\u2028\u2029]/gu, (character) => {
    const units = Array.from(
      { length: character.length },
      (_, index) => character.charCodeAt(index),
    );
    return units.map((unit) => `\\u${unit.toString(16).padStart(4, "0")}`).join("");
  });
}
