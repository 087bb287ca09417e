/**
 * `sluicectl topic` and `sluicectl channel`: the topics and channels of a running broker, over its native
 * HTTP API. What changes something can be repeated; with `--operation-id` a repeat does nothing at all.
 */
import { durationMs } from "@sluice/shared/config";
import {
  type Command,
  type CommandGroup,
  type Input,
  type Option,
  UsageError,
  type World,
} from "./command.ts";
import {
  ADDRESS,
  ADMIN_EXIT_CODES,
  type Answer,
  BrokerDoor,
  DOOR_OPTIONS,
  EXIT_REFUSED,
  listOf,
  objectOf,
  RefusedByBroker,
  shown,
} from "./admin_door.ts";
import { type Column, facts, since, table, tell, time } from "./admin_table.ts";

const REVISION_MAX = Number.MAX_SAFE_INTEGER;
const OPERATION_OPTIONS: Readonly<Record<string, Option>> = {
  ...DOOR_OPTIONS,
  "operation-id": {
    value: "ID",
    help: "a repeat with the same id (16 characters or more) does nothing",
  },
  "expected-revision": { value: "N", help: "refuse when the registry is at another revision" },
  "expected-instance": { value: "INSTANCE", help: "refuse in another start of the broker" },
};
const TOMBSTONE_OPTION: Readonly<Record<string, Option>> = {
  "keep-away": { value: "DURATION", help: "refuse to make the name again for so long, such as 1h" },
};

const CHANNEL_COLUMNS: readonly Column[] = [
  ["CHANNEL", ({ channel }) => channel],
  ["DEPTH", ({ depth }) => depth],
  ["IN FLIGHT", (row) => row["in_flight_count"]],
  ["DEFERRED", (row) => row["deferred_count"]],
  ["REQUEUED", (row) => row["requeue_count"]],
  ["TIMED OUT", (row) => row["timeout_count"]],
  ["OLDEST", (row) => since(row["oldest_unfinished_ms"])],
  ["CONSUMERS", ({ consumers }) => objectOf(consumers)["count"]],
  ["PAUSED", ({ paused }) => paused === true ? "yes" : "no"],
];

/** Does what a command does; what the broker refuses is told, and ends with {@linkcode EXIT_REFUSED}. */
export function asking(
  act: (input: Input, world: World, door: BrokerDoor) => Promise<number>,
): Command["run"] {
  return async (input, world) => {
    try {
      return await act(input, world, await BrokerDoor.of(input, world));
    } catch (error) {
      if (!(error instanceof RefusedByBroker)) throw error;
      world.err(`${error.message}\n`);
      return EXIT_REFUSED;
    }
  };
}

/** The commands about topics. */
export const topicCommands: CommandGroup = {
  name: "topic",
  summary: "The topics of a running broker.",
  commands: [
    {
      name: "list",
      summary: "Lists the topics.",
      positionals: [],
      options: DOOR_OPTIONS,
      description: [],
      exitCodes: ADMIN_EXIT_CODES,
      examples: [[`topic list ${ADDRESS}`, "which topics there are"]],
      run: asking(async (input, world, door) => {
        const { topics } = await door.get("/v1/registry");
        return tell(input, world, topics ?? [], () =>
          table(listOf(topics), [
            ["TOPIC", ({ topic }) => topic],
            ["CHANNELS", ({ channels }) => Array.isArray(channels) ? channels.length : null],
          ]));
      }),
    },
    {
      name: "stats",
      summary: "Tells all about a topic and its channels.",
      positionals: ["TOPIC"],
      options: DOOR_OPTIONS,
      description: [],
      exitCodes: ADMIN_EXIT_CODES,
      examples: [[`topic stats orders ${ADDRESS}`, "what waits, and since when"]],
      run: asking(async (input, world, door) => {
        const topic = await topicStats(door, input.positional(0));
        return tell(input, world, topic, () => topicText(topic));
      }),
    },
    topicCommand("create", "Makes a topic."),
    topicCommand("delete", "Deletes a topic with its channels and messages.", TOMBSTONE_OPTION),
    topicCommand("empty", "Drops what a topic holds that no channel was given."),
    topicCommand("pause", "Stops the flow from a topic to its channels; publishing goes on."),
    topicCommand("unpause", "Starts the flow from a topic to its channels."),
  ],
};

/** The commands about channels. */
export const channelCommands: CommandGroup = {
  name: "channel",
  summary: "The channels of a running broker.",
  commands: [
    {
      name: "list",
      summary: "Lists the channels of a topic.",
      positionals: ["TOPIC"],
      options: DOOR_OPTIONS,
      description: [],
      exitCodes: ADMIN_EXIT_CODES,
      examples: [[`channel list orders ${ADDRESS}`, "who lags behind"]],
      run: asking(async (input, world, door) => {
        const { channels } = await topicStats(door, input.positional(0));
        return tell(
          input,
          world,
          channels ?? [],
          () => table(listOf(channels), CHANNEL_COLUMNS),
        );
      }),
    },
    {
      name: "stats",
      summary: "Tells all about a channel.",
      positionals: ["TOPIC", "CHANNEL"],
      options: DOOR_OPTIONS,
      description: [],
      exitCodes: ADMIN_EXIT_CODES,
      examples: [[`channel stats orders billing ${ADDRESS}`, "what waits, and for whom"]],
      run: asking(async (input, world, door) => {
        const { channels } = await topicStats(door, input.positional(0), input.positional(1));
        const channel = objectOf(listOf(channels)[0]);
        return tell(input, world, channel, () => channelText(channel));
      }),
    },
    channelCommand("create", "Makes a channel."),
    channelCommand("delete", "Deletes a channel.", TOMBSTONE_OPTION),
    channelCommand("empty", "Drops all messages of a channel."),
    channelCommand("pause", "Stops delivery of a channel."),
    channelCommand("unpause", "Starts delivery of a channel."),
  ],
};

function topicCommand(
  action: string,
  summary: string,
  options: Readonly<Record<string, Option>> = {},
): Command {
  return {
    name: action,
    summary,
    positionals: ["TOPIC"],
    options: { ...OPERATION_OPTIONS, ...options },
    description: ["Doing it again is fine: the answer says whether anything has changed."],
    exitCodes: ADMIN_EXIT_CODES,
    examples: [[`topic ${action} orders ${ADDRESS}`, summary.toLowerCase().replace(/\.$/, "")]],
    run: asking((input, world, door) => manage(input, world, door, "topics", action)),
  };
}

function channelCommand(
  action: string,
  summary: string,
  options: Readonly<Record<string, Option>> = {},
): Command {
  return {
    ...topicCommand(action, summary, options),
    positionals: ["TOPIC", "CHANNEL"],
    examples: [[
      `channel ${action} orders billing ${ADDRESS}`,
      summary.toLowerCase().replace(/\.$/, ""),
    ]],
    run: asking((input, world, door) => manage(input, world, door, "channels", action)),
  };
}

async function manage(
  input: Input,
  world: World,
  door: BrokerDoor,
  kind: "topics" | "channels",
  action: string,
): Promise<number> {
  const keepAwayMs = durationOf(input, "keep-away");
  const answer = await door.post(`/v1/manage/${kind}/${action}`, {
    topic: input.positional(0),
    ...(kind === "channels" ? { channel: input.positional(1) } : {}),
    ...given("operation_id", input.text("operation-id")),
    ...given("expected_revision", input.integer("expected-revision", REVISION_MAX)),
    ...given("expected_instance", input.text("expected-instance")),
    ...given("tombstone_ms", keepAwayMs),
  });
  return tell(input, world, answer, () => {
    const done = answer["changed"] === true ? "done" : "nothing to do";
    const repeated = answer["repeated"] === true ? ", as answered before" : "";
    return `${done}${repeated}; the registry is at ${shown(answer["instance"])} ` +
      `${shown(answer["revision"])}\n`;
  });
}

function given(name: string, value: unknown): Answer {
  return value === null ? {} : { [name]: value };
}

function durationOf(input: Input, name: string): number | null {
  const text = input.text(name);
  if (text === null) return null;
  const kind = durationMs();
  const ms = kind.parse(text);
  if (ms === undefined) throw new UsageError(`--${name} takes ${kind.wanted}`);
  return ms;
}

async function topicStats(door: BrokerDoor, topic: string, channel?: string): Promise<Answer> {
  const query = new URLSearchParams({ topic, ...(channel === undefined ? {} : { channel }) });
  const { topics } = await door.get(`/v1/stats?${query}`);
  const found = listOf(topics)[0];
  if (found !== undefined) return found;
  const what = channel === undefined ? `topic "${topic}"` : `channel "${channel}" of "${topic}"`;
  throw new RefusedByBroker(`there is no ${what}`);
}

function topicText(topic: Answer): string {
  const policy = objectOf(objectOf(topic["policy"])["effective"]);
  return facts([
    ["topic", topic["topic"]],
    ["depth", topic["depth"]],
    ["messages published", topic["message_count"]],
    ["bytes held", topic["held_bytes"]],
    ["oldest unfinished", since(topic["oldest_unfinished_ms"])],
    ["deferred", topic["deferred_count"]],
    ["next due", time(topic["next_due_ms"])],
    ["paused", topic["paused"]],
    ["ack mode", policy["ack_mode"]],
    ["quota bytes", policy["quota_bytes"]],
    ["named producers", topic["dedup_producer_count"]],
  ]) + "\n" + table(listOf(topic["channels"]), CHANNEL_COLUMNS);
}

function channelText(channel: Answer): string {
  const consumers = objectOf(channel["consumers"]);
  return facts([
    ["channel", channel["channel"]],
    ["depth", channel["depth"]],
    ["in flight", channel["in_flight_count"]],
    ["deferred", channel["deferred_count"]],
    ["next due", time(channel["next_due_ms"])],
    ["delivered", channel["delivered_count"]],
    ["requeued", channel["requeue_count"]],
    ["timed out", channel["timeout_count"]],
    ["bytes held", channel["held_bytes"]],
    ["oldest unfinished", since(channel["oldest_unfinished_ms"])],
    ["reading from disk", channel["reading_from_disk"]],
    ["paused", channel["paused"]],
    ["consumers", consumers["count"]],
    ["ready for", consumers["ready_count"]],
    ["consumers at their limit", consumers["at_limit_count"]],
  ]);
}
