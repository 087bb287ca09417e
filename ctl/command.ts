/**
 * A small command line: a tree of commands, options by `node:util` parseArgs, `--help` at every
 * level. A command declares what it takes; help text and checks follow from that.
 *
 * Exit codes are the same everywhere: 0 done and nothing wrong, 1 damage found, 2 cannot run.
 */
import { parseArgs } from "node:util";
import type { AskHttp, Clock, Disk } from "@sluice/shared/runtime";

export const EXIT_DONE = 0;
export const EXIT_DAMAGE = 1;
export const EXIT_CANNOT_RUN = 2;

/** What a command may touch. Output is written before the call returns, so nothing piles up. */
export interface World {
  readonly disk: Disk;
  readonly clock: Clock;
  /** Needed by commands for running services. */
  readonly askHttp?: AskHttp;
  /** Results. */
  out(bytes: Uint8Array): void;
  /** Progress, warnings and errors. */
  err(text: string): void;
  /** Whether a person watches what `err` writes. */
  readonly errIsTerminal: boolean;
}

/** An option; with a `value` it takes one, without it is a switch. */
export interface Option {
  /** How the value is called in the help, like `OFFSET`. */
  readonly value?: string;
  readonly help: string;
}

/** A command that does something. */
export interface Command {
  readonly name: string;
  /** A line for the list of commands. */
  readonly summary: string;
  /** What its arguments are called; all are needed. */
  readonly positionals: readonly string[];
  /** What further arguments are called; any number may follow. None are taken when absent. */
  readonly rest?: string;
  readonly options: Readonly<Record<string, Option>>;
  /** Paragraphs of the help. */
  readonly description: readonly string[];
  /** Command lines without the program's name, each with what it does. */
  readonly examples: readonly (readonly [line: string, does: string])[];
  /** What its exit codes say, when that is not what they say everywhere. */
  readonly exitCodes?: string;
  run(input: Input, world: World): Promise<number>;
}

/** A command that only holds others. */
export interface CommandGroup {
  readonly name: string;
  readonly summary: string;
  readonly commands: readonly (Command | CommandGroup)[];
}

/** A command line that cannot be followed; the message says why. */
export class UsageError extends Error {
  override name = "UsageError";
}

/** What stands on a command line. */
export class Input {
  readonly #values: ReadonlyMap<string, string | boolean>;

  constructor(
    readonly positionals: readonly string[],
    values: ReadonlyMap<string, string | boolean>,
  ) {
    this.#values = values;
  }

  /** The argument at a place that the command declares. */
  positional(index: number): string {
    const value = this.positionals[index];
    if (value === undefined) {
      throw new UsageError(`argument ${index + 1} is missing`);
    }
    return value;
  }

  flag(name: string): boolean {
    return this.#values.get(name) === true;
  }

  /** The value of an option, or null when it is not given. */
  text(name: string): string | null {
    const value = this.#values.get(name);
    return typeof value === "string" ? value : null;
  }

  /** The value of an option as an integer from 0 to `max`, or null when it is not given. */
  integer(name: string, max: number): number | null {
    const text = this.text(name);
    if (text === null) return null;
    const value = /^\d{1,16}$/.test(text) ? Number(text) : NaN;
    if (!(value <= max)) {
      throw new UsageError(
        `--${name} takes an integer from 0 to ${max}, not "${text}"`,
      );
    }
    return value;
  }
}

/** Follows a command line; resolves with the exit code. Errors other than {@linkcode UsageError} pass. */
export async function runCommandLine(
  root: CommandGroup,
  args: readonly string[],
  world: World,
): Promise<number> {
  let node: Command | CommandGroup = root;
  let path = root.name;
  let rest = args;
  try {
    while ("commands" in node) {
      const [word, ...others] = rest;
      if (word === undefined) {
        world.err(`${helpText(node, path)}`);
        return EXIT_CANNOT_RUN;
      }
      if (word === "--help" || word === "-h") {
        print(world, helpText(node, path));
        return EXIT_DONE;
      }
      const next: Command | CommandGroup | undefined = node.commands.find((
        one,
      ) => one.name === word);
      if (next === undefined) {
        throw new UsageError(`there is no command "${word}"`);
      }
      node = next;
      path += ` ${word}`;
      rest = others;
    }
    const input = readInput(node, rest);
    if (input === "help") {
      print(world, helpText(node, path));
      return EXIT_DONE;
    }
    return await node.run(input, world);
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    world.err(`${path}: ${error.message}\nTry "${path} --help".\n`);
    return EXIT_CANNOT_RUN;
  }
}

/** Writes text as a result. */
export function print(world: World, text: string): void {
  world.out(new TextEncoder().encode(text));
}

function readInput(command: Command, args: readonly string[]): Input | "help" {
  const options = Object.entries(command.options).map(([name, option]) =>
    [name, {
      type: option.value === undefined ? "boolean" as const : "string" as const,
    }] as const
  );
  let parsed;
  try {
    parsed = parseArgs({
      args: [...args],
      options: {
        ...Object.fromEntries(options),
        help: { type: "boolean", short: "h" },
      },
      allowPositionals: true,
      strict: true,
    });
  } catch (error) {
    throw new UsageError(
      error instanceof Error ? error.message : String(error),
    );
  }
  const values = new Map<string, string | boolean>();
  for (const [name, value] of Object.entries(parsed.values)) {
    if (typeof value === "string" || typeof value === "boolean") {
      values.set(name, value);
    }
  }
  if (values.get("help") === true) return "help";
  const { positionals } = command;
  const missing = positionals[parsed.positionals.length];
  if (missing !== undefined) throw new UsageError(`${missing} is missing`);
  const extra = command.rest === undefined ? parsed.positionals[positionals.length] : undefined;
  if (extra !== undefined) {
    throw new UsageError(`"${extra}" is one argument too many`);
  }
  return new Input(parsed.positionals, values);
}

/** The help of a command or group that is reached by `path`. */
export function helpText(node: Command | CommandGroup, path: string): string {
  if ("commands" in node) {
    return [
      node.summary,
      "",
      `Usage: ${path} COMMAND ...`,
      "",
      ...table(node.commands.map(({ name, summary }) => [name, summary])),
      "",
      `"${path} COMMAND --help" says more about one.`,
      "",
    ].join("\n");
  }
  const options = Object.entries(node.options).map(([name, option]) =>
    [
      `--${name}${option.value === undefined ? "" : ` ${option.value}`}`,
      option.help,
    ] as const
  );
  const rest = node.rest === undefined ? [] : [`[${node.rest} ...]`];
  const program = path.split(" ", 1)[0] ?? path;
  return [
    node.summary,
    "",
    `Usage: ${[path, ...node.positionals, ...rest, "[OPTION ...]"].join(" ")}`,
    ...node.description.flatMap((paragraph) => ["", paragraph]),
    "",
    "Options:",
    ...table([...options, ["--help", "this text"]]),
    "",
    "Examples:",
    ...node.examples.flatMap((
      [line, does],
    ) => [`  # ${does}`, `  ${program} ${line}`]),
    "",
    `Exit codes: ${node.exitCodes ?? "0 done and nothing wrong, 1 damage found, 2 cannot run"}.`,
    "",
  ].join("\n");
}

function table(rows: readonly (readonly [string, string])[]): string[] {
  const width = Math.max(...rows.map(([left]) => left.length));
  return rows.map(([left, right]) => `  ${left.padEnd(width)}  ${right}`);
}
