/**
 * `deno task bench:lagging`: what a consumer that works off a cold backlog costs everybody else.
 *
 * A backlog larger than the broker's ring and caches is published first, and the broker is started
 * again, so that nothing of it is in memory. Then publishers and a consumer that keeps up are measured
 * in pairs of runs, without and with a consumer that drains the backlog meanwhile; once with the
 * backlog in a topic of its own, once in another channel of the topic that is measured. The order in
 * a pair alternates; figures are medians.
 *
 * The backlog is filled up before each run in which it is drained, and has to last: a run in which it
 * came to its end is not counted, and is told of. What is added is new, but read long after.
 */
import { parseArgs } from "node:util";
import { BrokerProcess, inFolder, runLoad, sleep } from "./broker_process.ts";
import { created } from "./loads.ts";
import { median } from "./summary.ts";

const HELP =
  `What a consumer that drains a cold backlog costs publishers and a consumer that keeps up.

  deno task bench:lagging [--backlog-mib N] [--rounds N] [--seconds S] [--bytes B]
                          [--case other|same|both] [--drain-rdy N] [--folder PATH] [--json FILE]
                          [--lagging-share PERCENT] [--nice]

  --backlog-mib N   size of the backlog (default 1536); ring and caches are 64 MiB each
  --rounds N        pairs of runs (default 5)
  --seconds S       length of a run (default 10)
  --bytes B         length of a body (default 200)
  --case CASE       the backlog is in another topic, another channel, or one after the other
  --drain-rdy N     RDY of the consumer that drains (default 200)
  --folder PATH     where the data folder goes (default: the system's temporary folder)
  --json FILE       write all figures there
  --lagging-share PERCENT  the broker's setting of that name (default: its default)
  --nice            the consumer that drains yields to all others, so that it is the broker's
                    work that is measured and not that of one more client on the same cores
`;

const SLOWDOWN_MAX = 0.1;
const CONNECTIONS = 16;
const FILL_BATCH = 100;
const FILL_SECONDS = 2;
/** The consumer is there before the publishers, and stays a little longer. */
const CONSUMER_SECONDS = 1;
const MIB = 2 ** 20;
/** The log writes some more bytes of each message than its body. */
const MESSAGE_OVERHEAD_BYTES = 64;

/** Where the backlog is. */
type Case = "other" | "same";

/** What one run has measured, messages a second. */
interface Figures {
  readonly published: number;
  readonly consumed: number;
  readonly drained: number;
}

interface Options {
  readonly backlogMib: number;
  readonly rounds: number;
  readonly seconds: number;
  readonly bytes: string;
  readonly drainRdy: string;
  readonly isNice: boolean;
  readonly flags: readonly string[];
}

/** Names of topics and channels: `live` is measured, `cold` holds the backlog. */
function namesOf(kind: Case) {
  const coldTopic = kind === "same" ? "bench" : "cold";
  return { topic: "bench", live: "live", coldTopic, cold: "cold" };
}

/** Publishes until the backlog has its size; returns how many messages wait then. */
async function fill(broker: BrokerProcess, kind: Case, options: Options): Promise<number> {
  const { coldTopic } = namesOf(kind);
  const messageBytes = Number(options.bytes) + MESSAGE_OVERHEAD_BYTES;
  const wanted = Math.ceil(options.backlogMib * MIB / messageBytes);
  let waiting = await backlogOf(broker, kind);
  while (waiting < wanted) {
    await runLoad([
      "publish",
      `--address=${broker.tcpAddress}`,
      `--topic=${coldTopic}`,
      "--connections=4",
      `--batch=${FILL_BATCH}`,
      `--bytes=${options.bytes}`,
      `--seconds=${FILL_SECONDS}`,
    ]);
    waiting = await backlogOf(broker, kind);
  }
  return waiting;
}

/** One run; the consumer of the backlog is there from before until after it. */
async function measure(
  broker: BrokerProcess,
  kind: Case,
  isDraining: boolean,
  options: Options,
): Promise<Figures> {
  const { topic, live, coldTopic, cold } = namesOf(kind);
  const { seconds } = options;
  const consume = (from: string, channel: string, rdy: string, isNice = false) =>
    runLoad([
      "consume",
      `--address=${broker.tcpAddress}`,
      `--topic=${from}`,
      `--channel=${channel}`,
      "--connections=2",
      `--rdy=${rdy}`,
      `--seconds=${seconds + 2 * CONSUMER_SECONDS}`,
    ], isNice);
  const draining = isDraining ? consume(coldTopic, cold, options.drainRdy, options.isNice) : null;
  const consuming = consume(topic, live, "200");
  await sleep(CONSUMER_SECONDS * 1000);
  const published = await runLoad([
    "publish",
    `--address=${broker.tcpAddress}`,
    `--topic=${topic}`,
    `--connections=${CONNECTIONS}`,
    `--bytes=${options.bytes}`,
    `--seconds=${seconds}`,
  ]);
  const [consumed, drained] = [await consuming, await draining];
  return {
    published: published.messagesPerSecond,
    consumed: consumed.messages / published.seconds,
    drained: drained === null ? 0 : drained.messagesPerSecond,
  };
}

/** Messages that wait in the backlog's channel. */
async function backlogOf(broker: BrokerProcess, kind: Case): Promise<number> {
  const { coldTopic, cold } = namesOf(kind);
  const text = await broker.get(`/stats?format=json&topic=${coldTopic}&channel=${cold}`);
  const { topics } = JSON.parse(text) as {
    topics: { channels: { channel_name: string; depth: number }[] }[];
  };
  return topics[0]?.channels.find(({ channel_name }) => channel_name === cold)?.depth ?? 0;
}

async function runCase(folder: string, kind: Case, options: Options) {
  const flags = ["--scrub-interval=0", ...options.flags];
  const without: Figures[] = [];
  const draining: Figures[] = [];
  {
    await using broker = await BrokerProcess.start(folder, flags);
    await created(broker, [namesOf(kind).cold], namesOf(kind).coldTopic);
    const messages = await fill(broker, kind, options);
    console.log(`${kind}: a backlog of ${messages} messages`);
  }
  await using broker = await BrokerProcess.start(folder, flags);
  await created(broker, ["live"]);
  for (let round = 0; round < options.rounds; round++) {
    for (const isDraining of round % 2 === 0 ? [false, true] : [true, false]) {
      if (isDraining) {
        await fill(broker, kind, options);
        await broker.post("/channel/empty?topic=bench&channel=live");
      }
      const figures = await measure(broker, kind, isDraining, options);
      const left = await backlogOf(broker, kind);
      const isCounted = !isDraining || left > 0;
      if (isCounted) (isDraining ? draining : without).push(figures);
      console.log(
        `${kind} ${round + 1}/${options.rounds} ${isDraining ? "draining" : "without "}: ` +
          `published ${show(figures.published)}, consumed ${show(figures.consumed)}, ` +
          `drained ${show(figures.drained)} messages/s, ${left} left` +
          (isCounted ? "" : "; NOT COUNTED: the backlog came to its end"),
      );
    }
  }
  return { without, draining };
}

function show(perSecond: number): string {
  return perSecond.toFixed(0);
}

/** How much less the second is than the first, as a share. */
function slowdown(without: readonly number[], draining: readonly number[]): number {
  return 1 - median(draining) / median(without);
}

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      "backlog-mib": { type: "string", default: "1536" },
      rounds: { type: "string", default: "5" },
      seconds: { type: "string", default: "10" },
      bytes: { type: "string", default: "200" },
      case: { type: "string", default: "both" },
      "drain-rdy": { type: "string", default: "200" },
      folder: { type: "string" },
      "lagging-share": { type: "string" },
      nice: { type: "boolean", default: false },
      json: { type: "string" },
      help: { type: "boolean", default: false },
    },
  });
  if (values.help) {
    console.log(HELP);
    return 0;
  }
  const options: Options = {
    backlogMib: Number(values["backlog-mib"]),
    rounds: Number(values.rounds),
    seconds: Number(values.seconds),
    bytes: values.bytes,
    drainRdy: values["drain-rdy"],
    isNice: values.nice,
    flags: values["lagging-share"] === undefined
      ? []
      : [`--lagging-share=${values["lagging-share"]}`],
  };
  const cases = (["other", "same"] as const)
    .filter((kind) => values.case === kind || values.case === "both");
  if (
    cases.length === 0 || !(options.backlogMib > 0 && options.rounds > 0 && options.seconds > 0)
  ) {
    console.error(HELP);
    return 2;
  }
  const document: Record<string, unknown> = {};
  const rows: string[] = [];
  let isMet = true;
  for (const kind of cases) {
    const { without, draining } = await inFolder(
      values.folder,
      (folder) => runCase(folder, kind, options),
    );
    document[kind] = { without, draining };
    for (const what of ["published", "consumed"] as const) {
      const [before, during] = [without, draining].map((all) => all.map((one) => one[what]));
      const share = slowdown(before!, during!);
      // Nothing counted is nothing shown.
      const isRowMet = draining.length > 0 && share <= SLOWDOWN_MAX;
      isMet &&= isRowMet;
      rows.push(
        `| ${kind === "same" ? "other channel" : "other topic"} | ${what} | ` +
          `${show(median(before!))} | ${show(median(during!))} | ${(share * 100).toFixed(1)} % | ` +
          `${isRowMet ? "met" : "MISSED"} |`,
      );
    }
  }
  console.log("\n| backlog in | messages/s | without | draining | slower by | at most 10 % |");
  console.log("|---|---|---:|---:|---:|---|");
  for (const row of rows) console.log(row);
  if (values.json !== undefined) {
    await Deno.writeTextFile(values.json, JSON.stringify(document, null, 2));
  }
  return isMet ? 0 : 1;
}

Deno.exit(await main());
