/**
 * Reads the settings of a program: default < file < environment < flag. Arguments, environment and
 * the reading of the file are parameters. Every value given anywhere is checked, also one that a
 * stronger source overrides, and all problems are reported at once.
 */
import { parse as parseToml, TomlError } from "smol-toml";
import { describeUnknown, parseArguments, quote, type Request } from "./arguments.ts";
import { nearestName } from "./nearest.ts";
import {
  type Declaration,
  defaultValues,
  environmentName,
  SECRET_SHOWN,
  type Setting,
  type Settings,
  showValue,
  type ValuesOf,
} from "./setting.ts";

/** The process as this module may see it. */
export interface SettingSources {
  /** The arguments behind the program name. */
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Reads the file named by `--config`; may throw. */
  readFile(path: string): string;
}

/** Where a value came from. */
export type Origin = "default" | "file" | "env" | "flag";

/** A line of the start-up listing; the value of a secret is masked. */
export interface ListedSetting {
  readonly name: string;
  readonly value: string;
  readonly origin: Origin;
}

/** The settings a program runs with. */
export interface LoadedSettings<S extends Settings> {
  /** `help` or `version` when the command line asks for that: then the values are the defaults. */
  readonly request: Request;
  readonly values: ValuesOf<S>;
  /** One line for each given setting that has no effect. */
  readonly notices: readonly string[];
  /** Where the value of a setting came from. */
  origin(key: keyof S): Origin;
  /** Every setting with its value, in the order of the declaration. */
  listing(): ListedSetting[];
}

/** Settings that cannot be used. The message lists every problem, one a line. */
export class SettingsError extends Error {
  override name = "SettingsError";
  constructor(program: string, readonly problems: readonly string[]) {
    const heading = problems.length === 1
      ? `${program}: a setting is wrong:`
      : `${program}: ${problems.length} settings are wrong:`;
    super([heading, ...problems.map((problem) => `  ${problem}`)].join("\n"));
  }
}

/** The largest settings file that is read. */
export const SETTINGS_FILE_CHARACTERS_MAX = 1_048_576;

/** Reads and checks all settings. Throws {@linkcode SettingsError}. */
export function loadSettings<S extends Settings>(
  declaration: Declaration<S>,
  sources: SettingSources,
): LoadedSettings<S> {
  const settings = Object.entries(declaration.settings);
  const shapes = new Map(settings.map(([, one]) => [one.name, bareShape(one)]));
  const parsed = parseArguments(sources.args, shapes);
  if (parsed.request !== "run") return loaded(declaration, parsed.request, [], new Map());

  const problems = [...parsed.problems];
  problems.push(...unknownVariables(declaration, sources.env));
  const path = parsed.configPath ?? sources.env[environmentName("config")];
  const document = path === undefined ? {} : readDocument(declaration, sources, path, problems);

  const given = new Map<string, Given>();
  for (const [key, one] of settings) {
    const candidates: Candidate[] = [];
    if (Object.hasOwn(document, one.file)) {
      const raw = document[one.file];
      const label = `${one.file} in ${path}`;
      candidates.push({ origin: "file", label, raw, value: one.kind.fromDocument(raw) });
    }
    const variable = sources.env[one.environment];
    if (variable !== undefined) {
      const value = one.kind.parse(variable);
      candidates.push({ origin: "env", label: one.environment, raw: variable, value });
    }
    const texts = parsed.flags.get(one.name);
    if (texts !== undefined) {
      // Each text of a list may itself hold several values, so joining them keeps them all.
      const raw = one.kind.repeats ? texts.join(",") : texts.at(-1) ?? "";
      const value = one.kind.parse(raw);
      candidates.push({ origin: "flag", label: `--${one.name}`, raw, value });
    }
    for (const candidate of candidates) {
      const problem = judge(one, candidate);
      if (problem !== undefined) problems.push(problem);
      else given.set(key, candidate);
    }
  }

  const result = loaded(declaration, "run", noticesOf(declaration, given), given);
  if (problems.length === 0) problems.push(...declaration.relations(result.values));
  if (problems.length > 0) throw new SettingsError(declaration.program, problems);
  return result;
}

/** A value that some source gives, with the words that name the place. */
interface Given {
  readonly origin: Origin;
  readonly label: string;
  readonly value: unknown;
}

interface Candidate extends Given {
  readonly raw: unknown;
}

function loaded<S extends Settings>(
  declaration: Declaration<S>,
  request: Request,
  notices: readonly string[],
  given: ReadonlyMap<string, Given>,
): LoadedSettings<S> {
  const values: Record<string, unknown> = { ...defaultValues(declaration) };
  for (const [key, one] of given) values[key] = one.value;
  const origin = (key: keyof S) => given.get(String(key))?.origin ?? "default";
  return {
    request,
    values: values as ValuesOf<S>,
    notices,
    origin,
    listing: () =>
      Object.entries(declaration.settings).map(([key, one]) => ({
        name: one.name,
        value: showValue(one, values[key]),
        origin: origin(key),
      })),
  };
}

function bareShape(one: Setting<unknown>): { bare?: string } {
  return one.kind.bare === undefined ? {} : { bare: one.kind.bare };
}

/** What is wrong with a value, if anything is. */
function judge(one: Setting<unknown>, candidate: Candidate): string | undefined {
  if (candidate.value === undefined) {
    const got = one.secret ? SECRET_SHOWN : describeRaw(candidate.raw);
    return `${candidate.label}: got ${got}, want ${one.kind.wanted}`;
  }
  const isDefault = one.kind.show(candidate.value) === one.kind.show(one.default);
  return one.refused === undefined || isDefault ? undefined : `${candidate.label}: ${one.refused}`;
}

function describeRaw(raw: unknown): string {
  if (typeof raw === "string") return quote(raw);
  if (typeof raw === "number" || typeof raw === "boolean") return String(raw);
  if (Array.isArray(raw)) return quote(JSON.stringify(raw));
  return raw instanceof Date ? "a date" : "a table";
}

function noticesOf(
  declaration: Declaration<Settings>,
  given: ReadonlyMap<string, Given>,
): string[] {
  const notices: string[] = [];
  for (const [key, { label, value }] of given) {
    const reason = declaration.settings[key]?.notice(value);
    if (reason !== undefined) notices.push(`${label}: ${reason}`);
  }
  return notices;
}

function readDocument(
  declaration: Declaration<Settings>,
  sources: SettingSources,
  path: string,
  problems: string[],
): Record<string, unknown> {
  let content: string;
  try {
    content = sources.readFile(path);
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    problems.push(`cannot read the settings file ${quote(path)}: ${reason}`);
    return {};
  }
  if (content.length > SETTINGS_FILE_CHARACTERS_MAX) {
    problems.push(
      `the settings file ${quote(path)} has more than ${SETTINGS_FILE_CHARACTERS_MAX} characters`,
    );
    return {};
  }
  let document: Record<string, unknown>;
  try {
    document = parseToml(content, { unsafeKeyBehaviour: "throw", maxDepth: 8 });
  } catch (error) {
    if (!(error instanceof TomlError)) throw error;
    // Only its first line: the rest quotes the file, which may hold secrets.
    const [reason = ""] = error.message.split("\n");
    problems.push(`${path}, line ${error.line}, column ${error.column}: ${reason}`);
    return {};
  }
  problems.push(...unknownKeys(declaration, document, path));
  return document;
}

function unknownKeys(
  declaration: Declaration<Settings>,
  document: Record<string, unknown>,
  path: string,
): string[] {
  const settings = Object.values(declaration.settings);
  const keys = new Set(settings.map((one) => one.file));
  const problems: string[] = [];
  for (const key of Object.keys(document)) {
    if (keys.has(key)) continue;
    // A few keys differ from their flags; whoever writes the flag's name means that key.
    const byFlag = settings.find((one) => one.name.replaceAll("-", "_") === key);
    const nearest = byFlag?.file ?? nearestName(key, keys);
    problems.push(describeUnknown(`key ${quote(key)} in ${path}`, nearest));
  }
  return problems;
}

function unknownVariables(
  declaration: Declaration<Settings>,
  env: Readonly<Record<string, string | undefined>>,
): string[] {
  const settings = Object.values(declaration.settings);
  const known = new Set([...settings.map((one) => one.environment), environmentName("config")]);
  const problems: string[] = [];
  for (const [name, value] of Object.entries(env).sort(([a], [b]) => a < b ? -1 : 1)) {
    if (!name.startsWith("SLUICE_") || known.has(name) || value === undefined) continue;
    if (isServiceLink(name, value)) continue;
    problems.push(describeUnknown(`environment variable ${name}`, nearestName(name, known)));
  }
  return problems;
}

/**
 * Whether Kubernetes made the variable: it puts some into every container for each service of the
 * namespace, so a service whose name begins with "sluice" would look like a mistyped setting.
 */
function isServiceLink(name: string, value: string): boolean {
  if (name.endsWith("_SERVICE_HOST") || /_SERVICE_PORT(_\w+)?$/.test(name)) return true;
  if (/_PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?$/.test(name)) return true;
  return name.endsWith("_PORT") && /^(tcp|udp|sctp):\/\//.test(value);
}
