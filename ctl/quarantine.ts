/**
 * `sluicectl quarantine`: what a gateway has put aside, because no broker takes it or because it cannot
 * be known whether one has it. Each entry is a publish that somebody got an OK for, so nothing is given
 * up unless it is named, or `--yes` is said.
 */
import {
  type Command,
  type CommandGroup,
  EXIT_CANNOT_RUN,
  EXIT_DONE,
  type Input,
  print,
  UsageError,
  type World,
} from "./command.ts";
import {
  DOOR_OPTIONS,
  GatewayDoor,
  PAGE_ENTRIES_MAX,
  type QuarantinedPublish,
} from "./gateway_door.ts";

/** Some of what was named was not there, or was left. */
export const EXIT_NOT_ALL = 1;

const ADDRESS = "--gateway-http-address=127.0.0.1:4151";
const LIMIT_DEFAULT = 100;
const ENTRIES_MAX = 1_000_000;
const REASON_CHARACTERS_MAX = 80;
const PREVIEW_BYTES = 1_024;
const EXIT_CODES = "0 all of it done, 1 some was not there or was left, 2 cannot run";
/** Reasons of what may be at a broker begin so. */
const AMBIGUOUS = "ambiguous";

const listCommand: Command = {
  name: "list",
  summary: "Lists publishes in quarantine, the oldest first.",
  positionals: [],
  options: {
    ...DOOR_OPTIONS,
    limit: { value: "N", help: `how many at most; ${LIMIT_DEFAULT} when absent` },
    from: { value: "ID", help: "from this id on" },
    all: { help: "all there are" },
    json: { help: "as one JSON object" },
  },
  description: [
    'A reason that begins with "ambiguous" says that a broker may have the publish.',
  ],
  examples: [
    [`quarantine list ${ADDRESS}`, "what is there, and why?"],
    [`quarantine list ${ADDRESS} --all --json`, "all of it, for a program"],
  ],
  run: list,
};

const showCommand: Command = {
  name: "show",
  summary: "Shows a publish in quarantine with the beginning of its body.",
  positionals: ["ID"],
  options: {
    ...DOOR_OPTIONS,
    body: { help: "the whole body as it is, and nothing else" },
    json: { help: "as one JSON object, with the whole body in base64" },
  },
  description: ["The body of several messages is that of an MPUB: a count, then sized messages."],
  exitCodes: "0 done, 1 there is none of that id, or its body cannot be read, 2 cannot run",
  examples: [
    [`quarantine show ${ADDRESS} 4096`, "what is it?"],
    [`quarantine show ${ADDRESS} 4096 --body > message`, "keep it"],
  ],
  run: show,
};

const retryCommand: Command = {
  name: "retry",
  summary: "Has publishes go to a broker again.",
  positionals: [],
  rest: "ID",
  options: {
    ...DOOR_OPTIONS,
    all: { help: "all there are but the ambiguous ones" },
    ambiguous: { help: "with --all, those too" },
    json: { help: "the outcome as one JSON object" },
  },
  description: [
    "What is put aside again comes back to the quarantine under the same id. An ambiguous one may\n" +
    "become a message for the second time: look at the topic first.",
  ],
  exitCodes: EXIT_CODES,
  examples: [
    [`quarantine retry ${ADDRESS} 4096 8192`, "the limit of the brokers is higher now"],
    [`quarantine retry ${ADDRESS} --all`, "everything that no broker can have"],
  ],
  run: retry,
};

const dropCommand: Command = {
  name: "drop",
  summary: "Gives publishes up for good.",
  positionals: [],
  rest: "ID",
  options: {
    ...DOOR_OPTIONS,
    all: { help: "all there are; needs --yes" },
    yes: { help: "with --all, do it" },
    json: { help: "the outcome as one JSON object" },
  },
  description: ["Their producers got an OK. Keep what matters with show --body first."],
  exitCodes: EXIT_CODES,
  examples: [[`quarantine drop ${ADDRESS} 4096`, "nobody needs it"]],
  run: drop,
};

/** The commands. */
export const quarantineCommands: CommandGroup = {
  name: "quarantine",
  summary: "What a gateway has put aside: look at it, try it again, give it up.",
  commands: [listCommand, showCommand, retryCommand, dropCommand],
};

async function list(input: Input, world: World): Promise<number> {
  const isAll = input.flag("all");
  const limit = input.integer("limit", ENTRIES_MAX);
  if (isAll && limit !== null) throw new UsageError("--all and --limit are one too many");
  const door = await GatewayDoor.of(input, world);
  const entries: QuarantinedPublish[] = [];
  const wanted = isAll ? ENTRIES_MAX : limit ?? LIMIT_DEFAULT;
  let more = input.integer("from", Number.MAX_SAFE_INTEGER) ?? 0 as number | null;
  while (more !== null && entries.length < wanted) {
    const page = await door.page(more, Math.min(PAGE_ENTRIES_MAX, wanted - entries.length));
    entries.push(...page.entries);
    more = page.next;
  }
  if (input.flag("json")) {
    print(world, `${JSON.stringify({ entries, next: more }, null, 2)}\n`);
    return EXIT_DONE;
  }
  print(world, tableOf(entries));
  if (more !== null) world.err(`There are more: go on with --from=${more}, or use --all\n`);
  return EXIT_DONE;
}

async function show(input: Input, world: World): Promise<number> {
  const isRaw = input.flag("body");
  if (isRaw && input.flag("json")) throw new UsageError("--body and --json are one too many");
  const [id = 0] = idsOf(input);
  const door = await GatewayDoor.of(input, world);
  const entry = await door.entry(id);
  if (entry === null) {
    world.err(`${id} is not in quarantine\n`);
    return EXIT_NOT_ALL;
  }
  const body = await door.body(id);
  if (isRaw) {
    if (body === null) world.err(`the body of ${id} cannot be read\n`);
    else world.out(body);
  } else if (input.flag("json")) {
    const text = body === null ? null : body.toBase64();
    print(world, `${JSON.stringify({ ...entry, body_base64: text }, null, 2)}\n`);
  } else print(world, factsOf(entry, body));
  return body === null ? EXIT_NOT_ALL : EXIT_DONE;
}

async function retry(input: Input, world: World): Promise<number> {
  const isAll = input.flag("all");
  const takesAmbiguous = input.flag("ambiguous");
  if (takesAmbiguous && !isAll) throw new UsageError("--ambiguous goes with --all");
  const ids = namedOf(input);
  const door = await GatewayDoor.of(input, world);
  const outcome = new Outcome(input, world, "goes to a broker again");
  if (!isAll) { for (const id of ids) outcome.add(id, await door.retry(id)); }
  else {
    for await (const { id, topic, reason } of door.all()) {
      // Damaged: there is nothing to send.
      const isLeft = topic === "" || (!takesAmbiguous && reason.startsWith(AMBIGUOUS));
      if (isLeft) outcome.leave(id);
      else outcome.add(id, await door.retry(id));
    }
  }
  return outcome.tell();
}

async function drop(input: Input, world: World): Promise<number> {
  const isAll = input.flag("all");
  const ids = namedOf(input);
  const door = await GatewayDoor.of(input, world);
  if (isAll && !input.flag("yes")) {
    let count = 0;
    for await (const _entry of door.all()) count++;
    world.err(`${count} publishes would be given up for good: say --yes to do it\n`);
    return EXIT_CANNOT_RUN;
  }
  const outcome = new Outcome(input, world, "is given up");
  if (!isAll) { for (const id of ids) outcome.add(id, await door.drop(id)); }
  else for await (const { id } of door.all()) outcome.add(id, await door.drop(id));
  return outcome.tell();
}

/** What became of those that were named. */
class Outcome {
  readonly #done: number[] = [];
  readonly #missing: number[] = [];
  readonly #left: number[] = [];
  readonly #input: Input;
  readonly #world: World;
  readonly #deed: string;

  constructor(input: Input, world: World, deed: string) {
    this.#input = input;
    this.#world = world;
    this.#deed = deed;
  }

  add(id: number, isDone: boolean): void {
    (isDone ? this.#done : this.#missing).push(id);
    if (this.#input.flag("json")) return;
    if (isDone) print(this.#world, `${id} ${this.#deed}\n`);
    else this.#world.err(`${id} is not in quarantine, or cannot be read\n`);
  }

  leave(id: number): void {
    this.#left.push(id);
  }

  /** Returns the exit code. */
  tell(): number {
    const [done, missing, left] = [this.#done, this.#missing, this.#left];
    if (this.#input.flag("json")) {
      print(this.#world, `${JSON.stringify({ done, missing, left })}\n`);
    } else if (left.length > 0) {
      this.#world.err(`${left.length} were left: they are damaged, or a broker may have them\n`);
    } else if (done.length + missing.length === 0) this.#world.err("The quarantine is empty\n");
    return missing.length + left.length === 0 ? EXIT_DONE : EXIT_NOT_ALL;
  }
}

/** Those on the command line; exactly one of ids and `--all`. */
function namedOf(input: Input): number[] {
  const ids = idsOf(input);
  if (input.flag("all") && ids.length > 0) throw new UsageError("ids and --all are one too many");
  if (!input.flag("all") && ids.length === 0) throw new UsageError("ID is missing, or --all");
  return ids;
}

function idsOf(input: Input): number[] {
  return input.positionals.map((text) => {
    const id = /^\d{1,16}$/.test(text) ? Number(text) : NaN;
    if (!Number.isSafeInteger(id)) throw new UsageError(`an id is a number, not "${text}"`);
    return id;
  });
}

function tableOf(entries: readonly QuarantinedPublish[]): string {
  const rows = entries.map((entry) => [
    `${entry.id}`,
    entry.topic === "" ? "-" : entry.topic,
    `${entry.messages}`,
    `${entry.bytes}`,
    entry.spooled ?? "-",
    entry.broker ?? "-",
    printable(entry.reason, REASON_CHARACTERS_MAX),
  ]);
  const all = [["ID", "TOPIC", "MESSAGES", "BYTES", "SPOOLED", "BROKER", "REASON"], ...rows];
  const widths = all[0]!.map((_, column) =>
    all.reduce((width, row) => Math.max(width, row[column]!.length), 0)
  );
  return all
    .map((row) => row.map((cell, column) => cell.padEnd(widths[column]!)).join("  ").trimEnd())
    .map((line) => `${line}\n`).join("");
}

function factsOf(entry: QuarantinedPublish, body: Uint8Array | null): string {
  const facts = Object.entries({ ...entry, reason: printable(entry.reason, Infinity) })
    .map(([name, value]) => `${name.padEnd(8)} ${value === null || value === "" ? "-" : value}\n`);
  if (body === null) return `${facts.join("")}\nThe body cannot be read.\n`;
  const shown = new TextDecoder().decode(body.subarray(0, PREVIEW_BYTES));
  const isCut = body.length > PREVIEW_BYTES;
  return `${facts.join("")}\n${printable(shown, Infinity)}${isCut ? "..." : ""}\n`;
}

/** Text of others, without what a terminal would obey. */
function printable(text: string, charactersMax: number): string {
  const whole = text.replace(/\p{Cc}/gu, (letter) => {
    return letter === "\n" ? "\\n" : `\\x${letter.charCodeAt(0).toString(16).padStart(2, "0")}`;
  });
  return whole.length > charactersMax ? `${whole.slice(0, charactersMax)}...` : whole;
}
