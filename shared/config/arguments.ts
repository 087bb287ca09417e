/**
 * Splits a command line into flags by the rules of Go's `flag` package: one or two dashes,
 * `--name value` or `--name=value`; a flag that needs no value takes one only behind `=`. A word that
 * belongs to no flag is an error here, where Go would drop it and all that follows.
 */
import { nearestName } from "./nearest.ts";
import { RESERVED_NAMES } from "./setting.ts";

/** What is known of a flag before its value is read. */
export interface FlagShape {
  /** The text it stands for when it has no value. */
  readonly bare?: string;
}

/** What the command line asks for. */
export type Request = "run" | "help" | "version";

/** A command line, taken apart. */
export interface ParsedArguments {
  readonly request: Request;
  /** The path given with `--config`. */
  readonly configPath: string | undefined;
  /** The texts each flag was given, in order. */
  readonly flags: ReadonlyMap<string, readonly string[]>;
  readonly problems: readonly string[];
}

/** Takes a command line apart; `known` are the flags besides the reserved ones. */
export function parseArguments(
  args: readonly string[],
  known: ReadonlyMap<string, FlagShape>,
): ParsedArguments {
  const flags = new Map<string, string[]>();
  const problems: string[] = [];
  let request: Request = "run";
  let configPath: string | undefined;
  const shapes = new Map<string, FlagShape>([
    ...known,
    ["config", {}],
    ["help", { bare: "true" }],
    ["h", { bare: "true" }],
    ["version", { bare: "true" }],
  ]);

  for (let index = 0; index < args.length; index++) {
    const argument = args[index] ?? "";
    const match = /^--?([^-=][^=]*)(?:=([^]*))?$/.exec(argument);
    if (match === null) {
      problems.push(`${quote(argument)} is no flag; a setting is written --name=value`);
      continue;
    }
    const [, name = "", inlineText] = match;
    const shape = shapes.get(name);
    const next = args[index + 1];
    if (shape === undefined) {
      problems.push(describeUnknown(`flag --${clip(name)}`, nearestFlag(name, shapes)));
      // Most likely its value: a second complaint about it would only distract.
      if (inlineText === undefined && next !== undefined && !next.startsWith("-")) index++;
      continue;
    }
    let given = inlineText ?? shape.bare;
    if (given === undefined) {
      if (next === undefined || isKnownFlag(next, shapes)) {
        problems.push(`flag --${name} needs a value`);
        continue;
      }
      given = next;
      index++;
    }
    if (name === "config") {
      configPath = given;
    } else if (RESERVED_NAMES.includes(name)) {
      if (given === "true") request = name === "version" ? "version" : "help";
      else if (given !== "false") problems.push(`flag --${name} takes no value`);
    } else {
      const texts = flags.get(name);
      if (texts === undefined) flags.set(name, [given]);
      else texts.push(given);
    }
  }
  return { request, configPath, flags, problems };
}

/** The sentence about a name nobody declared. */
export function describeUnknown(what: string, nearest: string | undefined): string {
  return nearest === undefined
    ? `unknown ${what}; --help lists the settings`
    : `unknown ${what}; did you mean ${nearest}?`;
}

/** Text in quotes, control characters escaped, cut to a length that fits a line. */
export function quote(given: string): string {
  return JSON.stringify(clip(given));
}

function clip(given: string): string {
  return given.length > 100 ? given.slice(0, 100) + "..." : given;
}

function nearestFlag(name: string, shapes: ReadonlyMap<string, FlagShape>): string | undefined {
  const nearest = nearestName(name, shapes.keys());
  return nearest === undefined ? undefined : `--${nearest}`;
}

function isKnownFlag(argument: string, shapes: ReadonlyMap<string, FlagShape>): boolean {
  const match = /^--?([^-=][^=]*)/.exec(argument);
  return match !== null && shapes.has(match[1] ?? "");
}
