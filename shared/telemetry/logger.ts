/**
 * Structured log lines. One call is one line without a line break, whatever it is given: a peer can
 * neither forge a line nor make one longer than the bounds below. Lines go to a function, the time
 * comes from a clock; both are parameters. The sink must not throw and should not block.
 *
 * A part of a service logs as a component, which may have a level of its own. Lines that repeat can be
 * summed up, so that a client that comes back every millisecond does not fill a disk: see
 * `log_repeats.ts`.
 */
import type { Clock } from "../runtime/mod.ts";
import {
  LOG_LEVELS,
  type LogComponent,
  type LogLevel,
  type LogLevelChoice,
  LogLevels,
} from "./log_levels.ts";
import { LogRepeats, type RepeatOptions } from "./log_repeats.ts";
import { Secret } from "./secret.ts";

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
  /** `info` by default; {@linkcode Logger.level} and {@linkcode Logger.levels} change it while running. */
  readonly level?: LogLevel | LogLevelChoice;
  readonly format?: LogFormat;
  /** Text in front of every message, such as `[nsqd] `; in JSON the field `prefix`. */
  readonly prefix?: string;
}

/** What all loggers that come from one have together. */
interface Shared {
  readonly options: LoggerOptions;
  readonly levels: LogLevels;
  repeats: LogRepeats<LogFields> | null;
}

/** What tells a logger from the one it comes from. */
interface Own {
  readonly shared: Shared;
  readonly component: LogComponent | null;
  readonly fields: LogFields;
  readonly tellsEach: boolean;
}

/** Writes log lines; see the module. */
export class Logger {
  readonly #shared: Shared;
  readonly #component: LogComponent | null;
  /** The rank of the component's level; shared with `levels`, which changes it. */
  readonly #threshold: { readonly rank: number };
  readonly #fields: LogFields;
  /** Lines are not summed up, however often they repeat. */
  readonly #tellsEach: boolean;

  constructor(options: LoggerOptions, own: Own = rootOf(options)) {
    this.#shared = own.shared;
    this.#component = own.component;
    this.#threshold = own.shared.levels.thresholdOf(own.component);
    this.#fields = own.fields;
    this.#tellsEach = own.tellsEach;
  }

  /** The least severe level that is written, where a component has none of its own. */
  get level(): LogLevel {
    return this.#shared.levels.choice.base;
  }

  /** One level for all of it. */
  set level(level: LogLevel) {
    this.levels = { base: level, components: {} };
  }

  /** The levels of all parts; those that come from one logger have them together. */
  get levels(): LogLevelChoice {
    return this.#shared.levels.choice;
  }

  set levels(choice: LogLevelChoice) {
    this.#shared.levels.choice = choice;
  }

  /** Whether a line of this level would be written; asked before costly fields are gathered. */
  isWritten(level: LogLevel): boolean {
    return LOG_LEVELS.indexOf(level) >= this.#threshold.rank;
  }

  /** A logger that adds `fields` to every line. */
  child(fields: LogFields): Logger {
    return this.#with({ fields: { ...this.#fields, ...fields } });
  }

  /** The logger of a part of the service: its name is in each line, and it may have its own level. */
  component(component: LogComponent): Logger {
    return this.#with({ component });
  }

  /** A logger of lines that are each told, such as who has changed what. */
  tellingEach(): Logger {
    return this.#with({ tellsEach: true });
  }

  /** From now on lines that repeat are summed up, for all that come from one logger. */
  limitRepeats(options: RepeatOptions): void {
    this.#shared.repeats = new LogRepeats(options);
  }

  /** Writes at once what repeats have been counted: nothing more is to come. */
  tellRepeats(): void {
    this.#shared.repeats?.tell();
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
    this.tellRepeats();
    this.#write("fatal", message, fields);
  }

  #with(changes: Partial<Own>): Logger {
    return new Logger(this.#shared.options, {
      shared: this.#shared,
      component: this.#component,
      fields: this.#fields,
      tellsEach: this.#tellsEach,
      ...changes,
    });
  }

  #write(level: LogLevel, message: string, fields: LogFields | undefined): void {
    if (!this.isWritten(level)) return;
    const { repeats } = this.#shared;
    // Whoever turns on debug wants each line, and last words are few.
    if (repeats === null || this.#tellsEach || level === "debug" || level === "fatal") {
      return this.#print(level, message, fields);
    }
    const isTold = repeats.admit(
      `${level} ${this.#component ?? ""} ${message}`,
      fields ?? {},
      (count, seconds, last) => {
        const summary = `${message} (and ${count} more in ${seconds} s)`;
        this.#print(level, summary, { ...last, repeated: count });
      },
    );
    if (isTold) this.#print(level, message, fields);
  }

  #print(level: LogLevel, message: string, fields: LogFields | undefined): void {
    const { clock, format, prefix = "", sink } = this.#shared.options;
    const component = this.#component === null ? {} : { component: this.#component };
    const line: Line = {
      time: new Date(clock.wallMs()).toISOString(),
      level,
      prefix,
      message: cut(message, MESSAGE_CHARACTERS_MAX),
      fields: plainFields({ ...component, ...this.#fields, ...fields }),
    };
    sink(format === "json" ? jsonLine(line) : textLine(line));
  }
}

function rootOf(options: LoggerOptions): Own {
  const levels = new LogLevels(options.level ?? "info");
  return {
    shared: { options, levels, repeats: null },
    component: null,
    fields: {},
    tellsEach: false,
  };
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
