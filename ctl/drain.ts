/**
 * `sluicectl drain`: has a running broker drain, tells how far it has come, and waits until it is empty.
 * The broker is asked over its HTTP API and nothing else; see `/v1/drain`.
 *
 * - An answer that is no report, or a broker that cannot be asked, ends a command with "cannot run" and
 *   the reason; `wait` asks on, since a broker that drains may well be restarted.
 * - `wait` ends with {@linkcode EXIT_DONE} when the broker is empty, or has come to rest if that is asked for,
 *   and with {@linkcode EXIT_NOT_DONE} when that takes too long.
 */
import { durationMs, showDuration } from "@sluice/shared/config";
import type { HttpQuestion } from "@sluice/shared/runtime";
import {
  type Command,
  type CommandGroup,
  EXIT_DONE,
  type Input,
  print,
  UsageError,
  type World,
} from "./command.ts";
import { ADDRESS, DOOR_OPTIONS } from "./admin_door.ts";
import { CannotRunError } from "./data/folder.ts";
import { HttpDoor, jsonObject } from "./http_door.ts";

/** `wait`: not empty in time. */
export const EXIT_NOT_DONE = 1;

const PATH = "/v1/drain";
const BOUNDS = { timeoutMs: 10_000, bodyBytesMax: 65_536 };
/** How often `wait` asks. */
const ASK_MS = 500;
/** How often `wait` says the same again where nobody watches. */
const REPEAT_MS = 30_000;
const COUNTS = ["depth", "in_flight", "deferred", "publish_bytes", "delivery_bytes"] as const;
const FLAGS = ["draining", "delivery_frozen", "quiesced", "empty"] as const;

/** What a broker answers. */
type Report =
  & { readonly [flag in typeof FLAGS[number]]: boolean }
  & { readonly [count in typeof COUNTS[number]]: number }
  & { readonly since: string | null };

const startCommand: Command = {
  name: "start",
  summary: "Has a broker refuse publishes, so that its consumers empty it.",
  positionals: [],
  options: { ...DOOR_OPTIONS, freeze: { help: "deliver nothing new either" } },
  description: [
    "It holds until it is taken back, over restarts too. Doing it again changes --freeze only.",
  ],
  examples: [[`drain start ${ADDRESS}`, "before a broker is taken away"]],
  run: async (input, world) => {
    const freeze_deliveries = input.flag("freeze");
    return tell(input, world, await post(input, world, { enabled: true, freeze_deliveries }));
  },
};

const stopCommand: Command = {
  name: "stop",
  summary: "Takes a drain back: publishes are taken, and everything is delivered.",
  positionals: [],
  options: DOOR_OPTIONS,
  description: [],
  examples: [[`drain stop ${ADDRESS}`, "back to work"]],
  run: async (input, world) => tell(input, world, await post(input, world, { enabled: false })),
};

const statusCommand: Command = {
  name: "status",
  summary: "Tells whether a broker drains, and what is left.",
  positionals: [],
  options: DOOR_OPTIONS,
  description: [],
  examples: [[`drain status ${ADDRESS}`, "what is left"]],
  run: async (input, world) => tell(input, world, await get(input, world)),
};

const waitCommand: Command = {
  name: "wait",
  summary: "Waits until a broker that drains is empty.",
  positionals: [],
  options: {
    ...DOOR_OPTIONS,
    timeout: { value: "DURATION", help: "how long, such as 10m; without end when absent" },
    quiesced: { help: "wait until nothing is in flight, for a broker with frozen deliveries" },
  },
  description: [
    "Asks twice a second, also while the broker is away for a moment. What is left is told on " +
    "standard error. A broker that does not drain never gets empty: that ends with 2.",
  ],
  exitCodes: "0 empty (or at rest with --quiesced), 1 not in time, 2 cannot run",
  examples: [
    [`drain wait ${ADDRESS} --timeout=10m`, "until the last message is finished"],
  ],
  run: wait,
};

/** The commands. */
export const drainCommands: CommandGroup = {
  name: "drain",
  summary: "Empty a running broker before it is taken away.",
  commands: [startCommand, stopCommand, statusCommand, waitCommand],
};

async function wait(input: Input, world: World): Promise<number> {
  const { clock } = world;
  const timeoutMs = timeoutOf(input);
  const goal = input.flag("quiesced") ? "quiesced" : "empty";
  const startMs = clock.monoMs();
  const line = new Line(world);
  // Whoever gives a wrong address or token is to know at once.
  let report: Report | null = await get(input, world);
  while (report === null || !report[goal]) {
    if (report !== null && !report.draining) {
      line.end();
      throw new CannotRunError("the broker does not drain: start that first");
    }
    line.show(report === null ? "the broker cannot be asked" : leftText(report));
    if (clock.monoMs() - startMs >= timeoutMs) {
      line.end();
      world.err(`not ${goal} within ${showDuration(timeoutMs)}\n`);
      if (report !== null) tell(input, world, report);
      return EXIT_NOT_DONE;
    }
    await clock.sleep(Math.min(ASK_MS, startMs + timeoutMs - clock.monoMs()));
    try {
      report = await get(input, world);
    } catch (error) {
      if (!(error instanceof CannotRunError)) throw error;
      report = null;
    }
  }
  line.end();
  return tell(input, world, report);
}

function timeoutOf(input: Input): number {
  const text = input.text("timeout");
  if (text === null) return Infinity;
  const kind = durationMs();
  const timeoutMs = kind.parse(text);
  if (timeoutMs === undefined) throw new UsageError(`--timeout takes ${kind.wanted}`);
  return timeoutMs;
}

/** What `wait` says meanwhile: one line that is written over, or a line for each change. */
class Line {
  readonly #world: World;
  #text = "";
  #shownMs = -Infinity;

  constructor(world: World) {
    this.#world = world;
  }

  show(text: string): void {
    const { clock, errIsTerminal } = this.#world;
    if (errIsTerminal) this.#world.err(`\r${text.padEnd(this.#text.length)}`);
    else if (clock.monoMs() - this.#shownMs >= REPEAT_MS) {
      this.#world.err(`${text}\n`);
      this.#shownMs = clock.monoMs();
    }
    this.#text = text;
  }

  end(): void {
    if (this.#world.errIsTerminal && this.#text !== "") this.#world.err("\n");
  }
}

function leftText(report: Report): string {
  const left = COUNTS.filter((name) => report[name] > 0).map((name) => `${name} ${report[name]}`);
  const frozen = report.delivery_frozen ? ", deliveries are frozen" : "";
  return `left: ${left.join(", ") || "nothing"}${frozen}`;
}

function tell(input: Input, world: World, report: Report): number {
  const names = [...FLAGS, "since", ...COUNTS] as const;
  print(
    world,
    input.flag("json")
      ? `${JSON.stringify(report)}\n`
      : names.map((name) => `${name.padEnd(15)} ${report[name] ?? "-"}\n`).join(""),
  );
  return EXIT_DONE;
}

function get(input: Input, world: World): Promise<Report> {
  return ask(input, world, { method: "GET" });
}

function post(input: Input, world: World, wanted: object): Promise<Report> {
  const body = new TextEncoder().encode(JSON.stringify(wanted));
  return ask(input, world, { method: "POST", body });
}

async function ask(
  input: Input,
  world: World,
  question: Pick<HttpQuestion, "method" | "body">,
): Promise<Report> {
  const door = await HttpDoor.of(input, world, "http-address");
  const answer = await door.ask(question, PATH, BOUNDS);
  const report = answer.status === 200 ? reportOf(answer.body) : null;
  if (report !== null) return report;
  throw door.cannotUse(answer);
}

function reportOf(body: Uint8Array): Report | null {
  const fields = jsonObject(body);
  if (fields === null) return null;
  const { since } = fields;
  const isReport = FLAGS.every((name) => typeof fields[name] === "boolean") &&
    COUNTS.every((name) => typeof fields[name] === "number") &&
    (since === null || typeof since === "string");
  return isReport ? fields as unknown as Report : null;
}
