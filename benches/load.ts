/**
 * A load generator for any NSQ V2 server, run as a process of its own by `main.ts`. Prints one JSON
 * object. It speaks the wire directly, with the fewest bytes copied, so that it costs little beside
 * the server it measures.
 *
 * ```
 * load.ts publish --address H:P --topic T --connections N --batch B --bytes S [--messages M]
 *   --seconds D --topics K
 * load.ts consume --address H:P --topic T --channel C --connections N --rdy R --messages M --seconds D
 * ```
 *
 * `publish` sends PUB (batch 1) or MPUB and waits for each OK before the next; with K topics, T-0 to
 * T-(K-1), each connection goes from one to the next. `consume` finishes every message; with
 * `--channel-each` connection I consumes channel CI. Both end after M messages or D seconds.
 */
import { parseArgs } from "node:util";
import {
  encodeIdentify,
  encodeMpub,
  encodePub,
  encodeRdy,
  encodeSub,
  FIN_BYTES,
  FrameDecoder,
  FrameEvent,
  FrameType,
  HEARTBEAT_TEXT,
  MAGIC_V2,
  MESSAGE_ID_OFFSET,
  NOP_COMMAND,
  writeFin,
} from "@sluice/shared/protocol";

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
  },
});
const connections = Number(values.connections);
const deadlineMs = performance.now() + Number(values.seconds) * 1000;

async function open(): Promise<Deno.TcpConn> {
  const separator = values.address.lastIndexOf(":");
  const connection = await Deno.connect({
    hostname: values.address.slice(0, separator),
    port: Number(values.address.slice(separator + 1)),
  });
  connection.setNoDelay(true);
  await writeAll(connection, MAGIC_V2);
  await writeAll(connection, encodeIdentify({ client_id: "bench", user_agent: "sluice-bench" }));
  return connection;
}

async function writeAll(connection: Deno.TcpConn, bytes: Uint8Array): Promise<void> {
  for (let at = 0; at < bytes.length;) at += await connection.write(bytes.subarray(at));
}

async function publish(): Promise<number> {
  const body = new Uint8Array(Number(values.bytes)).fill(0x61);
  const batch = Number(values.batch);
  const topics = Number(values.topics);
  const commands = Array.from({ length: topics }, (_, index) => {
    const topic = topics === 1 ? values.topic : `${values.topic}-${index}`;
    return batch === 1
      ? encodePub(topic, body)
      : encodeMpub(topic, new Array<Uint8Array>(batch).fill(body));
  });
  const wanted = Number(values.messages);
  let sent = 0;
  const counts = await Promise.all(
    Array.from({ length: connections }, async (_, index) => {
      const connection = await open();
      const decoder = new FrameDecoder(1 << 20);
      const buffer = new Uint8Array(4096);
      let next = index;
      let count = 0;
      let pending = 1; // The reply to IDENTIFY.
      while (true) {
        const bytes = await connection.read(buffer);
        if (bytes === null) throw new Error("Cannot publish: the server closed the connection");
        decoder.feed(buffer, 0, bytes);
        while (decoder.next() === FrameEvent.FRAME) {
          if (decoder.type === FrameType.ERROR) throw new Error("Cannot publish: error frame");
          if (decoder.end - decoder.start === HEARTBEAT_TEXT.length) {
            await writeAll(connection, NOP_COMMAND);
          } else {
            pending--;
          }
        }
        if (pending > 0) continue;
        if (performance.now() >= deadlineMs || (wanted > 0 && sent >= wanted)) break;
        sent += batch;
        await writeAll(connection, commands[next % topics]!);
        next += connections;
        pending = 1;
        count += batch;
      }
      connection.close();
      return count;
    }),
  );
  return counts.reduce((sum, count) => sum + count, 0);
}

async function consume(): Promise<number> {
  const wanted = Number(values.messages);
  let received = 0;
  const opened = new Set<Deno.TcpConn>();
  const finish = () => {
    for (const connection of opened) connection.close();
    opened.clear();
  };
  const timer = setTimeout(finish, Number(values.seconds) * 1000);
  await Promise.all(
    Array.from({ length: connections }, async (_, index) => {
      const connection = await open();
      opened.add(connection);
      const channel = values["channel-each"] ? `${values.channel}${index}` : values.channel;
      await writeAll(connection, encodeSub(values.topic, channel));
      await writeAll(connection, encodeRdy(Number(values.rdy)));
      const decoder = new FrameDecoder(2 << 20);
      const buffer = new Uint8Array(READ_BYTES);
      const fins = new Uint8Array(READ_BYTES);
      while (opened.has(connection)) {
        const bytes = await connection.read(buffer).catch(() => null);
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
              await writeAll(connection, fins.subarray(0, length)).catch(() => {});
              length = 0;
            }
          } else if (decoder.end - decoder.start === HEARTBEAT_TEXT.length) {
            beats++;
          }
        }
        if (beats > 0) await writeAll(connection, NOP_COMMAND).catch(() => {});
        if (length > 0) await writeAll(connection, fins.subarray(0, length)).catch(() => {});
        if (wanted > 0 && received >= wanted) finish();
      }
    }),
  );
  clearTimeout(timer);
  return received;
}

const startMs = performance.now();
const messages = mode === "consume" ? await consume() : await publish();
const seconds = (performance.now() - startMs) / 1000;
const result: LoadResult = { messages, seconds, messagesPerSecond: messages / seconds };
console.log(JSON.stringify(result));
