/**
 * A load generator for any NSQ V2 server, run as a process of its own by `main.ts`. Prints one JSON
 * object. It speaks the wire directly, with the fewest bytes copied, so that it costs little beside
 * the server it measures.
 *
 * ```
 * load.ts publish --address H:P --topic T --connections N --batch B --bytes S [--messages M]
 *   --seconds D --topics K [--transport plain|tls|snappy|deflate|http] [--ca=PEM]
 * load.ts consume --address H:P --topic T --channel C --connections N --rdy R --messages M --seconds D
 *   [--transport plain|tls|snappy|deflate] [--ca=PEM]
 * ```
 *
 * `publish` sends PUB (batch 1) or MPUB and waits for each OK before the next; with K topics, T-0 to
 * T-(K-1), each connection goes from one to the next. `consume` finishes every message; with
 * `--channel-each` connection I consumes channel CI. Both end after M messages or D seconds; time counts
 * from when all connections are open.
 *
 * Over `http` the address is that of HTTP, and what is sent is `/pub` or binary `/mpub`, one request at a
 * time on each connection. Over `tls` PEM, the text itself and no path, is the certificate that has
 * signed the server's, and that one is for `localhost`.
 */
import { parseArgs } from "node:util";
import {
  encodeRdy,
  encodeSub,
  FIN_BYTES,
  FrameDecoder,
  FrameEvent,
  FrameType,
  HEARTBEAT_TEXT,
  MESSAGE_ID_OFFSET,
  NOP_COMMAND,
  utf8Bytes,
  writeFin,
} from "@sluice/shared/protocol";
import type { Connection } from "@sluice/shared/runtime";
import {
  encodePublish,
  type LinkOptions,
  openLink,
  publishReplies,
  type Transport,
  TRANSPORTS,
} from "./load_link.ts";

/** What a run has measured. */
export interface LoadResult {
  readonly messages: number;
  readonly seconds: number;
  readonly messagesPerSecond: number;
}

const READ_BYTES = 64 * 1024;

const { positionals: [mode], values } = parseArgs({
  allowPositionals: true,
  options: {
    address: { type: "string", default: "127.0.0.1:4150" },
    topic: { type: "string", default: "bench" },
    channel: { type: "string", default: "bench" },
    connections: { type: "string", default: "1" },
    batch: { type: "string", default: "1" },
    bytes: { type: "string", default: "200" },
    seconds: { type: "string", default: "3" },
    rdy: { type: "string", default: "200" },
    messages: { type: "string", default: "0" },
    topics: { type: "string", default: "1" },
    "channel-each": { type: "boolean", default: false },
    transport: { type: "string", default: "plain" },
    ca: { type: "string", default: "" },
  },
});
const runMs = Number(values.seconds) * 1000;
const linkOptions: LinkOptions = {
  address: values.address,
  transport: transportOf(values.transport),
  authority: values.ca,
};
function transportOf(name: string): Transport {
  const transport = TRANSPORTS.find((one) => one === name);
  if (transport === undefined) throw new RangeError(`Cannot load over "${name}"`);
  return transport;
}

function openLinks(): Promise<Connection[]> {
  return Promise.all(
    Array.from({ length: Number(values.connections) }, () => openLink(linkOptions)),
  );
}

function resultSince(startMs: number, messages: number): LoadResult {
  const seconds = (performance.now() - startMs) / 1000;
  return { messages, seconds, messagesPerSecond: messages / seconds };
}

async function publish(): Promise<LoadResult> {
  const batch = Number(values.batch);
  const topics = Number(values.topics);
  const bodies = Array.from({ length: batch }, () => bodyOf(Number(values.bytes)));
  const commands = Array.from(
    { length: topics },
    (_, index) =>
      encodePublish(linkOptions, topics === 1 ? values.topic : `${values.topic}-${index}`, bodies),
  );
  const wanted = Number(values.messages);
  let sent = 0;
  const links = await openLinks();
  const startMs = performance.now();
  const deadlineMs = startMs + runMs;
  const counts = await Promise.all(
    links.map(async (link, index) => {
      const replies = publishReplies(linkOptions.transport);
      let next = index;
      let count = 0;
      while (performance.now() < deadlineMs && (wanted === 0 || sent < wanted)) {
        sent += batch;
        await link.writeAll(commands[next % topics]!);
        next += links.length;
        while (true) {
          const bytes = await link.read(replies.room());
          if (bytes === null) throw new Error("Cannot publish: the server closed the connection");
          const isConfirmed = replies.take(bytes);
          if (replies.heartbeat) {
            replies.heartbeat = false;
            await link.writeAll(NOP_COMMAND);
          }
          if (isConfirmed) break;
        }
        count += batch;
      }
      link.close();
      return count;
    }),
  );
  return resultSince(startMs, counts.reduce((sum, count) => sum + count, 0));
}

/** Text that compresses about as JSON does: half of it is said again and again, half is by chance. */
function bodyOf(bytes: number): Uint8Array {
  let text = "";
  while (text.length < bytes) {
    const chance = Math.floor(Math.random() * 2 ** 32).toString(16).padStart(8, "0");
    text += `"field":"${chance}",`;
  }
  return utf8Bytes(text.slice(0, bytes));
}

async function consume(): Promise<LoadResult> {
  if (linkOptions.transport === "http") throw new RangeError("Cannot consume over HTTP");
  const wanted = Number(values.messages);
  let received = 0;
  const links = await openLinks();
  const startMs = performance.now();
  const opened = new Set(links);
  const finish = () => {
    for (const link of opened) link.close();
    opened.clear();
  };
  const timer = setTimeout(finish, runMs);
  await Promise.all(
    links.map(async (link, index) => {
      const channel = values["channel-each"] ? `${values.channel}${index}` : values.channel;
      await link.writeAll(encodeSub(values.topic, channel));
      await link.writeAll(encodeRdy(Number(values.rdy)));
      const decoder = new FrameDecoder(2 << 20);
      const buffer = new Uint8Array(READ_BYTES);
      const fins = new Uint8Array(READ_BYTES);
      while (opened.has(link)) {
        const bytes = await link.read(buffer).catch(() => null);
        if (bytes === null) return;
        decoder.feed(buffer, 0, bytes);
        let length = 0;
        let beats = 0;
        while (decoder.next() === FrameEvent.FRAME) {
          if (decoder.type === FrameType.MESSAGE) {
            length += writeFin(
              fins,
              length,
              decoder.buffer,
              decoder.start + MESSAGE_ID_OFFSET,
            );
            received++;
            if (length + FIN_BYTES > fins.length) {
              await link.writeAll(fins.subarray(0, length)).catch(() => {});
              length = 0;
            }
          } else if (decoder.end - decoder.start === HEARTBEAT_TEXT.length) {
            beats++;
          }
        }
        if (beats > 0) await link.writeAll(NOP_COMMAND).catch(() => {});
        if (length > 0) await link.writeAll(fins.subarray(0, length)).catch(() => {});
        if (wanted > 0 && received >= wanted) finish();
      }
    }),
  );
  clearTimeout(timer);
  return resultSince(startMs, received);
}

console.log(JSON.stringify(mode === "consume" ? await consume() : await publish()));
