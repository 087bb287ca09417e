/**
 * What two servers did with one scenario, side by side. Compared are, per connection: replies in their
 * order, the messages that came (their order among replies is each server's own), and whether the
 * connection ended; and in the end the figures of each channel.
 *
 * Known differences are all in {@linkcode KNOWN}, each with its reason.
 */
import { fromLatin1, type Recorder, type Side } from "./side.ts";

/** A difference that is meant. */
interface Known {
  readonly reason: string;
  /** Whether a pair of replies is it. */
  readonly isIt: (ours: string, theirs: string) => boolean;
  /** What follows on the connection differs too. */
  readonly toTheEnd?: true;
}

/** Pairs of replies that may differ. */
export const KNOWN: readonly Known[] = [
  {
    reason: "error texts are UTF-8 here; nsqd repeats the bytes of a command as they came",
    isIt: (ours, theirs) => utf8(ours) === utf8(theirs),
  },
  {
    reason: "an MPUB that announces more than its messages take is refused; nsqd compares nothing",
    isIt: (ours, theirs) =>
      /^1 E_BAD_BODY MPUB body size \d+ does not match its messages$/.test(ours) &&
      theirs === "0 OK",
    toTheEnd: true,
  },
];

/**
 * And one in messages: where new ones and ones to deliver again both wait, ours alternate, and nsqd's
 * come in the order of its queue, so that a consumer with little room gets other ones first.
 */
function isOtherOrder(ours: readonly string[], theirs: readonly string[]): boolean {
  const differing = [
    ...ours.filter((message) => !theirs.includes(message)),
    ...theirs.filter((message) => !ours.includes(message)),
  ];
  return ours.length === theirs.length && differing.some((message) => !message.endsWith(" 1"));
}

function utf8(text: string): string {
  return new TextDecoder().decode(fromLatin1(text));
}

/** What is different, in words; empty when nothing is. */
export function compare(ours: Side, theirs: Side): string {
  const pairs = [...ours.recorders].flatMap(([connection, our]) => {
    const their = theirs.recorders.get(connection);
    return their === undefined ? [] : [{ name: "abc"[connection], our, their }];
  });
  // All replies first: what the others get hangs on what one did that is excused.
  for (const judge of [compareReplies, compareMessages, compareEnds]) {
    for (const { name, our, their } of pairs) {
      const difference = judge(our, their, ours, theirs);
      if (our.excused) return "";
      if (difference !== "") return `connection ${name}: ${difference}`;
    }
  }
  return "";
}

function compareReplies(our: Recorder, their: Recorder, ours: Side, theirs: Side): string {
  const count = Math.max(our.replies.length, their.replies.length);
  for (let at = 0; at < count; at++) {
    const [mine, its] = [our.replies[at], their.replies[at]];
    // nsqd closes with unread bytes, which resets the connection and may take replies with it.
    if (its === undefined && their.ended === "reset" && our.ended !== "") return "";
    const [a, b] = [mine && plain(ours, mine, its), its && plain(theirs, its, its)];
    if (a === b) continue;
    const known = a !== undefined && b !== undefined && KNOWN.find(({ isIt }) => isIt(a, b));
    if (known) {
      if (known.toTheEnd !== true) continue;
      our.excused = true;
      return "";
    }
    return `reply ${at} is ${JSON.stringify(a)}, nsqd's ${JSON.stringify(b)}`;
  }
  return "";
}

/** Without names and ids of one side; of a negotiation, only the fields that nsqd has. */
function plain(side: Side, reply: string, like: string | undefined): string {
  if (!reply.startsWith("0 {") || like?.startsWith("0 {") !== true) {
    // A command that was taken for the rest of a body may have left a part of an id.
    return side.plain(reply).replace(
      /(?<=invalid command )[0-9a-f]{1,15}(?= |$)/,
      "<part of an id>",
    );
  }
  const fields: Record<string, unknown> = JSON.parse(reply.slice(2));
  const wanted: Record<string, unknown> = JSON.parse(like.slice(2));
  return JSON.stringify(
    Object.keys(wanted).filter((name) => name !== "version").map((name) => [name, fields[name]]),
  );
}

function compareMessages(our: Recorder, their: Recorder): string {
  const [mine, its] = [our.messages.toSorted(), their.messages.toSorted()];
  if (their.ended !== "" && our.ended !== "") return "";
  if (JSON.stringify(mine) === JSON.stringify(its)) return "";
  if (isOtherOrder(mine, its)) {
    our.excused = true;
    return "";
  }
  return `messages are ${JSON.stringify(our.messages)}, nsqd's ${JSON.stringify(their.messages)}`;
}

function compareEnds(our: Recorder, their: Recorder): string {
  if ((our.ended === "") === (their.ended === "")) return "";
  return our.ended === "" ? "it goes on, nsqd ended it" : "it ended, nsqd goes on";
}

const FIGURES = [
  "depth",
  "in_flight_count",
  "deferred_count",
  "message_count",
  "requeue_count",
  "timeout_count",
  "client_count",
] as const;

interface Topic {
  readonly topic_name: string;
  readonly message_count: number;
  readonly channels: readonly Figures[];
}

type Figures = Readonly<Record<string, number>>;

/** The figures of a run's topics as lines that can be compared. */
export async function figures(side: Side): Promise<string> {
  const answer = await fetch(
    `http://127.0.0.1:${side.httpPort}/stats?format=json&include_clients=false&include_mem=false`,
  );
  const { topics }: { topics: Topic[] } = await answer.json();
  // An MPUB that is refused has made its topic there, and not here: an empty one says nothing.
  return topics.filter(({ topic_name, channels, message_count }) =>
    topic_name.startsWith(side.prefix) && (channels.length > 0 || message_count > 0)
  )
    .map((topic) => {
      const channels = topic.channels.map((channel) => {
        // What a lost consumer had in flight is owed again at once here, after its timeout there.
        const gone = channel["client_count"] === 0;
        const shown = FIGURES.map((name) => {
          const value = channel[name] ?? 0;
          if (!gone) return `${name}=${value}`;
          if (name === "in_flight_count" || name === "requeue_count") return "";
          return name === "depth"
            ? `owed=${value + (channel["in_flight_count"] ?? 0)}`
            : `${name}=${value}`;
        });
        return `    ${String(channel["channel_name"])} ${shown.join(" ")}`;
      });
      return `  ${side.plain(topic.topic_name)}\n${channels.join("\n")}`;
    }).join("\n");
}
