/**
 * Declares the settings of a program, once: the flag, the environment variable, the key of the TOML
 * file, the help text, the documentation table and the `/config` endpoint all derive from it. A
 * declaration is data; nothing here reads arguments, environment or files.
 */
import { invariant } from "../runtime/mod.ts";
import type { Kind, OptionBody } from "./kind.ts";

/** What a program declares about one setting. */
export interface SettingOptions<T> {
  /** Kebab case: the flag is `--data-path`, the environment variable `SLUICE_DATA_PATH`. */
  readonly name: string;
  readonly kind: Kind<T>;
  /** A value, or its text as a flag would give it. */
  readonly default: NoInfer<T> | string;
  /** Says in help and documentation where a computed default comes from. */
  readonly defaultDoc?: string;
  /** One or two sentences. */
  readonly doc: string;
  /** The heading it is listed under. */
  readonly group?: string;
  /** The key in the TOML file where it is not the name with underscores. */
  readonly file?: string;
  /** The value is shown nowhere. */
  readonly secret?: boolean;
  /** A service that reads its settings again applies another value; without it that needs a restart. */
  readonly reload?: boolean;
  /** What people are shown of a value in parts of which there may be a secret. */
  readonly shown?: (value: NoInfer<T>) => string;
  /**
   * Taken for compatibility but without effect. Giving it yields one notice with this reason; a
   * function may judge the value and return `undefined` for one that needs no notice.
   */
  readonly accepted?: string | ((value: NoInfer<T>) => string | undefined);
  /** Giving anything but the default is an error with this reason: to go on would be unsafe. */
  readonly refused?: string;
}

/** One declared setting. */
export interface Setting<T> {
  readonly name: string;
  readonly kind: Kind<T>;
  readonly default: T;
  readonly defaultDoc: string | undefined;
  readonly doc: string;
  readonly group: string;
  readonly environment: string;
  readonly file: string;
  readonly secret: boolean;
  /** Whether another value is applied while the program runs. */
  readonly reload: boolean;
  /** What people are shown of a value. */
  shown(value: T): string;
  readonly refused: string | undefined;
  /** Whether giving it has no effect. */
  readonly accepted: boolean;
  /** Why giving `value` has no effect, when that is worth a line. */
  notice(value: T): string | undefined;
}

/** Settings by the property name the program reads them by. */
export type Settings = Readonly<Record<string, Setting<unknown>>>;

/** The values of declared settings. */
export type ValuesOf<S extends Settings> = {
  readonly [K in keyof S]: S[K] extends Setting<infer T> ? T : never;
};

/** What a program declares about its settings as a whole. */
export interface DeclarationOptions<S extends Settings> {
  /** One sentence on what the program is. */
  readonly about?: string;
  /** Checks between settings: a message for each that does not hold. Runs on valid values only. */
  readonly relations?: (values: ValuesOf<S>) => string[];
}

/** The settings of one program. */
export interface Declaration<S extends Settings> {
  readonly program: string;
  readonly about: string;
  readonly settings: S;
  relations(values: ValuesOf<S>): string[];
}

/** Flags that every program has and that are no settings. */
export const RESERVED_NAMES: readonly string[] = ["config", "help", "h", "version"];

/** The environment variable of a name: `SLUICE_DATA_PATH`. */
export function environmentName(name: string): string {
  return "SLUICE_" + name.toUpperCase().replaceAll("-", "_");
}

/** Declares one setting. */
export function setting<T>(options: SettingOptions<T>): Setting<T> {
  const { name, kind, accepted } = options;
  invariant(/^[a-z][a-z0-9]*(-[a-z0-9]+)*$/.test(name), `"${name}" is a kebab-case name`);
  invariant(!RESERVED_NAMES.includes(name), `"${name}" is not reserved`);
  invariant(options.doc.endsWith("."), `the text of ${name} is made of sentences`);
  invariant(
    accepted === undefined || options.refused === undefined,
    `${name} is not both accepted and refused`,
  );
  return {
    name,
    kind,
    default: readDefault(options),
    defaultDoc: options.defaultDoc,
    doc: options.doc,
    group: options.group ?? "General",
    environment: environmentName(name),
    file: options.file ?? name.replaceAll("-", "_"),
    secret: options.secret ?? false,
    reload: options.reload ?? false,
    shown: (value) => options.shown?.(value) ?? kind.show(value),
    refused: options.refused,
    accepted: accepted !== undefined,
    notice: (value) => typeof accepted === "function" ? accepted(value) : accepted,
  };
}

/** Declares the settings of a program. */
export function declareSettings<S extends Settings>(
  program: string,
  settings: S,
  options: DeclarationOptions<S> = {},
): Declaration<S> {
  const all = Object.values(settings);
  invariant(new Set(all.map((one) => one.name)).size === all.length, "setting names differ");
  invariant(new Set(all.map((one) => one.file)).size === all.length, "file keys differ");
  const relations = options.relations ?? (() => []);
  return { program, about: options.about ?? "", settings, relations };
}

/** The value of every setting when none is given. */
export function defaultValues<S extends Settings>(declaration: Declaration<S>): ValuesOf<S> {
  const entries = Object.entries(declaration.settings).map(([key, one]) => [key, one.default]);
  return Object.fromEntries(entries) as ValuesOf<S>;
}

/**
 * The environment variables a program reads, for a start that may read only named ones. Reading only
 * these means that a mistyped variable goes unnoticed.
 */
export function environmentNames(declaration: Declaration<Settings>): string[] {
  const names = Object.values(declaration.settings).map((one) => one.environment);
  return [...names, environmentName("config")];
}

/**
 * nsqd's `GET /config/:opt`: the value of the setting whose file key is `option`, or `undefined` when
 * there is none. `values` may be a copy in which the program changed some at run time.
 */
export function configOption<S extends Settings>(
  declaration: Declaration<S>,
  values: ValuesOf<S>,
  option: string,
): OptionBody | undefined {
  for (const [key, one] of Object.entries(declaration.settings)) {
    if (one.file !== option) continue;
    if (one.secret) return { body: SECRET_SHOWN, json: false };
    const shown = one.kind.parse(one.shown(values[key]));
    return one.kind.toOption(shown ?? values[key]);
  }
  return undefined;
}

/** Stands for the value of a secret setting. */
export const SECRET_SHOWN = "***";

/** A value as people may see it. */
export function showValue(one: Setting<unknown>, value: unknown): string {
  return one.secret ? SECRET_SHOWN : one.shown(value);
}

function readDefault<T>(options: SettingOptions<T>): T {
  const given = options.default;
  const value = options.kind.parse(
    typeof given === "string" ? given : options.kind.show(given),
  );
  invariant(value !== undefined, `the default of ${options.name} is a value of its kind`);
  return value;
}
