/**
 * `sluicectl peek`, `deferred` and `move`: single messages of a channel of a running broker. Bodies are shown
 * so that a terminal does not act on what is in them.
 */
import {
  type Command,
  type CommandGroup,
  EXIT_DONE,
  type Input,
  type Option,
  type World,
} from "./command.ts";
import { asking } from "./admin.ts";
import {
  ADDRESS,
  ADMIN_EXIT_CODES,
  type Answer,
  type BrokerDoor,
  DOOR_OPTIONS,
  EXIT_REFUSED,
  listOf,
  shown,
} from "./admin_door.ts";
import { seen } from "./http_door.ts";
import { type Column, table, tell, time } from "./admin_table.ts";

const COUNT_MAX = 1000;
const BODY_CHARACTERS_MAX = 60;
/** Messages of one request of a move. */
const MOVE_COUNT = 1000;
const COUNT_OPTION: Readonly<Record<string, Option>> = {
  count: { value: "N", help: "how many, at most" },
};

const MESSAGE_COLUMNS: readonly Column[] = [
  ["OFFSET", ({ offset }) => offset],
  ["ID", ({ id }) => id],
  ["STATE", ({ state }) => state],
  ["ATTEMPTS", ({ attempts }) => attempts],
  ["PUBLISHED", (row) => time(row["timestamp_ms"])],
  ["DUE", (row) => time(row["due_ms"])],
  ["BYTES", (row) => row["body_bytes"]],
];

/** Shows messages. */
export const peekCommand: Command = {
  name: "peek",
  summary: "Shows messages of a channel, which nobody loses by that.",
  positionals: ["TOPIC", "CHANNEL"],
  options: {
    ...DOOR_OPTIONS,
    ...COUNT_OPTION,
    from: { value: "OFFSET", help: "the first offset to look at" },
  },
  description: ["With --json bodies are whole, up to 64 KiB; what is no text is in base64."],
  exitCodes: ADMIN_EXIT_CODES,
  examples: [[`peek orders billing --count=5 ${ADDRESS}`, "what comes next"]],
  run: asking(async (input, world, door) => {
    const query = queryOf({
      count: input.integer("count", COUNT_MAX),
      from: input.integer("from", Number.MAX_SAFE_INTEGER),
    });
    const answer = await door.get(`${channelPath(input)}/peek${query}`);
    return tell(input, world, answer, () => {
      const next = answer["next"];
      const more = next === null ? "" : `more with --from=${shown(next)}\n`;
      return table(listOf(answer["messages"]), [...MESSAGE_COLUMNS, ["BODY", bodyText]]) + more;
    });
  }),
};

/** The commands about deferred messages. */
export const deferredCommands: CommandGroup = {
  name: "deferred",
  summary: "Deferred messages of a channel.",
  commands: [
    {
      name: "list",
      summary: "Lists deferred messages, the first due first.",
      positionals: ["TOPIC", "CHANNEL"],
      options: { ...DOOR_OPTIONS, ...COUNT_OPTION },
      description: [],
      exitCodes: ADMIN_EXIT_CODES,
      examples: [[`deferred list orders billing ${ADDRESS}`, "what comes due next"]],
      run: asking(async (input, world, door) => {
        const query = queryOf({ count: input.integer("count", COUNT_MAX) });
        const answer = await door.get(`${channelPath(input)}/deferred${query}`);
        const messages = listOf(answer["messages"]);
        return tell(input, world, answer, () =>
          table(messages, MESSAGE_COLUMNS) +
          `${messages.length} of ${shown(answer["deferred_count"])}\n`);
      }),
    },
    {
      name: "cancel",
      summary: "Finishes a deferred message before it is due.",
      positionals: ["TOPIC", "CHANNEL", "ID"],
      options: DOOR_OPTIONS,
      description: ["For this channel only. There is a line in the audit trail of the broker."],
      exitCodes: ADMIN_EXIT_CODES,
      examples: [
        [`deferred cancel orders billing 0001000000000f3a ${ADDRESS}`, "it is not wanted"],
      ],
      run: asking(async (input, world, door) => {
        const id = encodeURIComponent(input.positional(2));
        const answer = await door.delete(`${channelPath(input)}/deferred/${id}`);
        return tell(input, world, answer, () => `cancelled ${shown(answer["id"])}\n`);
      }),
    },
  ],
};

/** Moves messages. */
export const moveCommand: Command = {
  name: "move",
  summary: "Moves messages that wait in a channel to another topic.",
  positionals: ["TOPIC", "CHANNEL", "TO"],
  options: { ...DOOR_OPTIONS, ...COUNT_OPTION },
  description: [
    "All that wait, or --count of them. Each is on disk there before it is finished here, so that an end at any " +
    "moment may leave it in both and never in none. To go on, do it again.",
  ],
  exitCodes: "0 done, 1 refused by the broker or stopped early, 2 cannot run",
  examples: [[`move orders-dead all orders ${ADDRESS}`, "drive dead letters again"]],
  run: asking(move),
};

async function move(input: Input, world: World, door: BrokerDoor): Promise<number> {
  const count = input.integer("count", Number.MAX_SAFE_INTEGER) ?? Infinity;
  const total = { moved: 0, moved_bytes: 0, damaged: 0 };
  let answer: Answer = { complete: false, stopped: null, remaining: null };
  while (total.moved + total.damaged < count && answer["complete"] !== true) {
    answer = await door.post(`${channelPath(input)}/move`, {
      to_topic: input.positional(2),
      count: Math.min(MOVE_COUNT, count - total.moved - total.damaged),
    });
    const names = ["moved", "moved_bytes", "damaged"] as const;
    const steps = names.map((name) => numberOf(answer[name]));
    for (const [index, name] of names.entries()) total[name] += steps[index]!;
    const isStill = steps.every((step) => step === 0);
    if (answer["stopped"] !== null || isStill) break;
    if (world.errIsTerminal) world.err(`\rmoved ${total.moved}`);
  }
  if (world.errIsTerminal) world.err("\n");
  const { remaining, complete, stopped } = answer;
  const report = { ...total, remaining, complete, stopped };
  tell(input, world, report, () => {
    const left = complete === true ? "nothing waits any more" : `${shown(remaining)} wait still`;
    const why = stopped === null ? "" : `; stopped: ${shown(stopped)}`;
    return `moved ${total.moved} messages (${total.moved_bytes} bytes), ${left}${why}\n`;
  });
  return stopped === null ? EXIT_DONE : EXIT_REFUSED;
}

function channelPath(input: Input): string {
  const [topic, channel] = [0, 1].map((index) => encodeURIComponent(input.positional(index)));
  return `/v1/topics/${topic}/channels/${channel}`;
}

function queryOf(values: Readonly<Record<string, number | null>>): string {
  const pairs = Object.entries(values).filter(([, value]) => value !== null);
  return pairs.length === 0 ? "" : `?${pairs.map(([name, value]) => `${name}=${value}`).join("&")}`;
}

/** The beginning of a body on one line. */
function bodyText({ body, encoding, truncated }: Answer): string {
  const text = typeof body === "string" ? body : "";
  const isCut = text.length > BODY_CHARACTERS_MAX || truncated === true;
  const start = seen(text.slice(0, BODY_CHARACTERS_MAX));
  return `${encoding === "base64" ? "base64 " : ""}${start}${isCut ? "..." : ""}`;
}

function numberOf(value: unknown): number {
  return typeof value === "number" && Number.isFinite(value) ? value : 0;
}
