/**
 * `sluicectl data dump`: the messages of a topic in the order of their offsets. It reads the log from
 * its first file on and needs memory for one block, however many messages there are, and for the body
 * of one large message.
 */
import {
  type ChannelState,
  isPart,
  LARGE_MESSAGE_KIND,
  type LargeBody,
  MESSAGE_KIND,
  type MessageHeader,
  readMessageHeader,
  readTable,
  type RecoveredState,
  recoverState,
  type TopicState,
  WIRE_HEADER_BYTES,
} from "@sluice/broker/storage/format";
import { type BlockHeader, RECORD_HEADER_BYTES, type RecoveryVisitor } from "@sluice/shared/log";
import { Buffer } from "node:buffer";
import { type Command, EXIT_DAMAGE, EXIT_DONE, UsageError, type World } from "../command.ts";
import { Progress, ReadingDisk } from "../progress.ts";
import { CannotRunError, READ_OPTIONS, readFolder, refuseLocked } from "./folder.ts";
import { isOwed } from "./large_parts.ts";
import { idText, recordProblem } from "./records.ts";

const OFFSET_MAX = 2 ** 48 - 1;
/** No broker takes more; a table that says so is damaged. */
const BODY_BYTES_MAX = 2 ** 29;
/** Lines are gathered up to this much: a write a line would cost more than the line. */
const BUFFER_BYTES = 64 * 1024;
const LINE_FEED = new Uint8Array([10]);

/** The command. */
export const dumpCommand: Command = {
  name: "dump",
  summary: "Write the messages of a topic to standard output.",
  positionals: ["DIR"],
  options: {
    topic: { value: "NAME", help: "the topic; needed" },
    channel: { value: "NAME", help: "only what this channel is owed" },
    from: { value: "OFFSET", help: "begin at this offset of the topic" },
    limit: { value: "N", help: "stop after so many messages" },
    format: {
      value: "ndjson|raw",
      help: "ndjson (default), or bodies with a line break after each",
    },
    "include-finished": {
      help: "also messages that are finished and still in the log",
    },
    ...READ_OPTIONS,
  },
  description: [
    "Without --channel these are the messages that any channel is owed, or that wait for the first\n" +
    "channel. Each ndjson line has id, topic, offset, timestamp (nanoseconds, RFC 3339), attempts,\n" +
    "due (null, or when it may be delivered), and body, or body_base64 when it is not UTF-8. Attempts\n" +
    "and due of a requeue are those of --channel.",
    "Damaged messages are left out and counted on standard error; the exit code is then 1.",
  ],
  examples: [
    [
      "data dump /var/lib/sluice --topic orders --channel billing",
      "what is billing owed?",
    ],
    [
      "data dump /var/lib/sluice --topic orders --from 100 --limit 10",
      "ten messages from 100 on",
    ],
  ],
  async run(input, world) {
    const path = input.positional(0);
    const topicName = input.text("topic");
    if (topicName === null) throw new UsageError("--topic is missing");
    const format = input.text("format") ?? "ndjson";
    if (format !== "ndjson" && format !== "raw") {
      throw new UsageError(`--format takes ndjson or raw, not "${format}"`);
    }
    const from = input.integer("from", OFFSET_MAX) ?? 0;
    const limit = input.integer("limit", OFFSET_MAX) ?? Infinity;
    const readOnly = input.flag("read-only");
    const quiet = input.flag("quiet");
    if (readOnly && !quiet) {
      world.err(
        "read-only: if a broker is running, results may be mid-flight\n",
      );
    }
    if (!readOnly) await refuseLocked(world.disk, path, "before");
    // What is read goes to standard output, so there is no progress to show beside it.
    const disk = new ReadingDisk(world.disk, new Progress(world, true));
    const { log } = await readFolder(disk, path);
    const recovered = await recoverState(log);
    const topic = recovered.state.topics.get(topicName);
    if (topic === undefined) {
      throw new CannotRunError(`There is no topic "${topicName}"`);
    }
    const channelName = input.text("channel");
    const channel = channelName === null ? null : topic.channels.get(channelName) ?? null;
    if (channelName !== null && channel === null) {
      throw new CannotRunError(
        `Topic "${topicName}" has no channel "${channelName}"`,
      );
    }
    const dump = new Dump(world, { topic, channel, from, limit, format }, {
      includeFinished: input.flag("include-finished"),
    });
    const damaged = await writeAll(log, recovered, dump).finally(() => dump.flush());
    if (!readOnly) await refuseLocked(world.disk, path, "after");
    if (damaged === 0) return EXIT_DONE;
    if (!quiet) {
      world.err(
        `${damaged} damaged places were passed over; see "data verify"\n`,
      );
    }
    return EXIT_DAMAGE;
  },
};

/** Resolves with the damaged places that were met. */
async function writeAll(
  log: Awaited<ReturnType<typeof readFolder>>["log"],
  recovered: RecoveredState,
  dump: Dump,
): Promise<number> {
  let damaged = 0;
  try {
    for (const file of log.files) damaged += await writeFile(log, file, recovered.end, dump);
  } catch (error) {
    if (!(error instanceof EnoughError)) throw error;
  }
  return damaged + dump.malformed;
}

type Log = Awaited<ReturnType<typeof readFolder>>["log"];

/** Writes what is in one file; resolves with its damaged places. */
async function writeFile(log: Log, file: Log["files"][number], end: number, dump: Dump) {
  let from = file.start;
  while (true) {
    try {
      const { damage } = await log.walk(file, from, end, dump);
      if (!dump.wasInterrupted) return damage.length;
      break;
    } catch (error) {
      if (!(error instanceof LargeMetError)) throw error;
      await dump.writeLarge(log, error.body);
      from = dump.blockPosition;
    }
  }
  // Every interruption has lost count of what was damaged before it.
  dump.wasInterrupted = false;
  return (await log.walk(file, file.start, end, { block() {}, record() {} })).damage.length;
}

/** Interrupts the reading of a file: what was met has to be read from elsewhere. */
class LargeMetError extends Error {
  override name = "LargeMetError";
  constructor(readonly body: LargeBody) {
    super("a large message");
  }
}

/** Ends the reading when as much is written as was asked for. */
class EnoughError extends Error {
  override name = "EnoughError";
}

interface Selection {
  readonly topic: TopicState;
  readonly channel: ChannelState | null;
  readonly from: number;
  readonly limit: number;
  readonly format: "ndjson" | "raw";
}

/** Writes the messages that are asked for as it is shown them. */
class Dump implements RecoveryVisitor {
  malformed = 0;
  /** Position of the block that was shown last. */
  blockPosition = 0;
  /** Set by a large message; what was shown up to it is passed over from then on. */
  wasInterrupted = false;
  #shownTo = -1;
  /** The bytes of its record, which the reader uses again. */
  #largeRecord = new Uint8Array();
  readonly #world: World;
  readonly #selection: Selection;
  readonly #includeFinished: boolean;
  readonly #header: MessageHeader = {
    topic: 0,
    offset: 0,
    dueMs: 0,
    wireStart: 0,
  };
  readonly #text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  readonly #encoder = new TextEncoder();
  readonly #buffer = new Uint8Array(BUFFER_BYTES);
  #buffered = 0;
  #written = 0;

  constructor(
    world: World,
    selection: Selection,
    { includeFinished }: { includeFinished: boolean },
  ) {
    this.#world = world;
    this.#selection = selection;
    this.#includeFinished = includeFinished;
  }

  /** Writes what is still in memory. */
  flush(): void {
    if (this.#buffered > 0) {
      this.#world.out(this.#buffer.subarray(0, this.#buffered));
    }
    this.#buffered = 0;
  }

  /** Writes the large message that interrupted, whose header is the last one read. */
  async writeLarge(log: Log, { bytes, parts }: LargeBody): Promise<void> {
    const body = new Uint8Array(bytes);
    let at = 0;
    for (const part of parts) {
      const into = body.subarray(at, at + part.bytes);
      for (let filled = 0; filled < into.length;) {
        const from = part.position + RECORD_HEADER_BYTES + filled;
        const read = await log.read(from, into.subarray(filled));
        if (read === 0) break;
        filled += read;
      }
      if (!isPart(part, into)) {
        this.malformed++;
        return;
      }
      at += part.bytes;
    }
    this.#writeMessage(this.#largeRecord, body);
  }

  block(header: BlockHeader): void {
    this.blockPosition = header.position;
  }

  record(
    kind: number,
    bytes: Uint8Array,
    start: number,
    end: number,
    position: number,
  ): void {
    const { topic, from, limit } = this.#selection;
    if (this.#written >= limit) throw new EnoughError();
    const isLarge = kind === LARGE_MESSAGE_KIND;
    if ((kind !== MESSAGE_KIND && !isLarge) || position <= this.#shownTo) return;
    const header = this.#header;
    if (recordProblem(kind, bytes, start, end, position, header) !== null) {
      this.malformed++;
      return;
    }
    readMessageHeader(bytes, start, header);
    const { offset } = header;
    if (header.topic !== topic.number || offset < from) return;
    if (!this.#includeFinished && !this.#isOwed(offset)) return;
    const content = header.wireStart + WIRE_HEADER_BYTES;
    if (!isLarge) return this.#writeMessage(bytes, bytes.subarray(content, end));
    const body = readTable(bytes, content, end, position);
    if (body === null || body.bytes > BODY_BYTES_MAX) {
      this.malformed++;
      return;
    }
    this.#shownTo = position;
    this.wasInterrupted = true;
    this.#largeRecord = bytes.slice(0, content);
    throw new LargeMetError(body);
  }

  /** Writes the message whose header was read from `record`. */
  #writeMessage(record: Uint8Array, body: Uint8Array): void {
    this.#written++;
    if (this.#selection.format === "raw") {
      this.#write(body);
      this.#write(LINE_FEED);
    } else {
      this.#write(this.#line(record, body, !this.#isOwed(this.#header.offset)));
    }
  }

  #write(bytes: Uint8Array): void {
    if (this.#buffered + bytes.length > this.#buffer.length) this.flush();
    if (bytes.length > this.#buffer.length) return this.#world.out(bytes);
    this.#buffer.set(bytes, this.#buffered);
    this.#buffered += bytes.length;
  }

  #isOwed(offset: number): boolean {
    const { topic, channel } = this.#selection;
    return channel === null ? isOwed(topic, offset) : !channel.finished.has(offset);
  }

  #line(bytes: Uint8Array, body: Uint8Array, isFinished: boolean): Uint8Array {
    const { topic, channel } = this.#selection;
    const { offset, dueMs, wireStart } = this.#header;
    const requeue = channel?.requeues.get(offset);
    const due = requeue?.dueMs ?? dueMs;
    const line = {
      id: idText(bytes, wireStart),
      topic: topic.name,
      offset,
      timestamp: timestampText(bytes, wireStart),
      attempts: requeue?.attempts ?? 0,
      due: due === 0 ? null : new Date(due).toISOString(),
      ...(this.#includeFinished ? { finished: isFinished } : {}),
      ...this.#body(body),
    };
    return this.#encoder.encode(`${JSON.stringify(line)}\n`);
  }

  #body(body: Uint8Array): { body: string } | { body_base64: string } {
    try {
      return { body: this.#text.decode(body) };
    } catch (error) {
      if (!(error instanceof TypeError)) throw error;
      const view = Buffer.from(body.buffer, body.byteOffset, body.byteLength);
      return { body_base64: view.toString("base64") };
    }
  }
}

/** `2023-11-14T22:13:20.000000001Z`. */
function timestampText(bytes: Uint8Array, wireStart: number): string {
  const view = new DataView(bytes.buffer, bytes.byteOffset + wireStart, 8);
  const ns = view.getBigInt64(0);
  const date = new Date(Number(ns / 1_000_000n));
  if (ns < 0n || Number.isNaN(date.getTime())) return String(ns);
  const fraction = String(ns % 1_000_000_000n).padStart(9, "0");
  return `${date.toISOString().slice(0, 19)}.${fraction}Z`;
}
