/**
 * `deno task bench:backlog`: what a backlog costs. Two cases, each with a broker process of its own
 * and an empty folder:
 *
 * - ready: N messages wait in T topics with one channel each; the broker is stopped and started
 *   again, then all is consumed.
 * - deferred: N messages are deferred by an hour or two in one topic; the broker is started again,
 *   and some more that are due soon are timed from when they were due to when they arrive.
 *
 * Figures of memory are the resident size of the broker's process, from /proc.
 */
import { parseArgs } from "node:util";
import {
  encodeDpub,
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
  MESSAGE_BODY_OFFSET,
  MESSAGE_ID_OFFSET,
  NOP_COMMAND,
  writeFin,
} from "@sluice/shared/protocol";
import type { LoadResult } from "./load.ts";

const HELP = `Measures what a backlog costs: start, memory, disk, drain, due times.

  deno task bench:backlog [--messages N] [--topics T] [--bytes B] [--case ready|deferred|both]
                          [--folder PATH]

  --messages N   messages of each case (default 1000000)
  --topics T     topics of the ready case (default 10)
  --bytes B      length of a body (default 200)
  --case CASE    only this case (default both)
  --folder PATH  where the data folder goes (default: the system's temporary folder)
`;

const ROOT = new URL("..", import.meta.url).pathname.replace(/\/$/, "");
const CONNECTIONS = 4;
const BATCH = 100;
/** Commands of DPUB on their way, over all connections. */
const DEFERRED_AT_ONCE = 4000;
const START_MS_MAX = 120_000;
const REST_MS = 3000;
const CONSUME_SECONDS_MAX = 3600;
const HOUR_MS = 3_600_000;
/** Messages that are timed, due within so many ms. */
const TIMED = { messages: 2000, fromMs: 3000, toMs: 9000 };
const MIB = 2 ** 20;

/** A broker that runs. */
interface Broker {
  readonly process: Deno.ChildProcess;
  readonly tcpAddress: string;
  readonly httpAddress: string;
  readonly readyMs: number;
}

async function start(folder: string): Promise<Broker> {
  const [tcpAddress, httpAddress] = [freeAddress(), freeAddress()];
  const startMs = performance.now();
  const process = new Deno.Command(Deno.execPath(), {
    args: [
      "run",
      "-P=broker",
      `${ROOT}/broker/main.ts`,
      `--tcp-address=${tcpAddress}`,
      `--http-address=${httpAddress}`,
      `--data-path=${folder}`,
      "--max-req-timeout=24h",
      "--log-level=warn",
    ],
    cwd: ROOT,
    stdin: "null",
    stdout: "null",
    stderr: "inherit",
  }).spawn();
  while (performance.now() - startMs < START_MS_MAX) {
    try {
      const response = await fetch(`http://${httpAddress}/info`);
      await response.body?.cancel();
      if (response.ok) {
        return { process, tcpAddress, httpAddress, readyMs: performance.now() - startMs };
      }
    } catch {
      // Not up yet.
    }
    await sleep(5);
  }
  process.kill("SIGKILL");
  throw new Error(`Cannot start the broker: no answer within ${START_MS_MAX} ms`);
}

async function stop({ process }: Broker): Promise<number> {
  const startMs = performance.now();
  process.kill("SIGTERM");
  await process.status;
  return performance.now() - startMs;
}

/** The resident size of a broker, MiB. */
async function residentMib({ process }: Broker): Promise<number> {
  const status = await Deno.readTextFile(`/proc/${process.pid}/status`);
  return Number(/VmRSS:\s+(\d+) kB/.exec(status)?.[1]) / 1024;
}

async function diskBytes(folder: string): Promise<number> {
  let bytes = 0;
  for await (const entry of Deno.readDir(folder)) {
    const path = `${folder}/${entry.name}`;
    bytes += entry.isDirectory ? await diskBytes(path) : (await Deno.stat(path)).size;
  }
  return bytes;
}

async function post({ httpAddress }: Broker, path: string): Promise<void> {
  const response = await fetch(`http://${httpAddress}/${path}`, { method: "POST" });
  await response.body?.cancel();
  if (!response.ok) throw new Error(`Cannot POST ${path}: ${response.status}`);
}

async function createTopic(broker: Broker, topic: string): Promise<void> {
  await post(broker, `topic/create?topic=${topic}`);
  await post(broker, `channel/create?topic=${topic}&channel=bench`);
}

/** A connection that hands out its frames. */
class Client {
  readonly #connection: Deno.TcpConn;
  readonly #decoder = new FrameDecoder(2 << 20);
  readonly #buffer = new Uint8Array(64 * 1024);

  private constructor(connection: Deno.TcpConn) {
    this.#connection = connection;
  }

  static async connect({ tcpAddress }: Broker): Promise<Client> {
    const separator = tcpAddress.lastIndexOf(":");
    const connection = await Deno.connect({
      hostname: tcpAddress.slice(0, separator),
      port: Number(tcpAddress.slice(separator + 1)),
    });
    connection.setNoDelay(true);
    const client = new Client(connection);
    await client.write(MAGIC_V2);
    await client.write(encodeIdentify({ client_id: "bench", user_agent: "sluice-bench" }));
    await client.frames(() => {});
    return client;
  }

  async write(bytes: Uint8Array): Promise<void> {
    for (let at = 0; at < bytes.length;) at += await this.#connection.write(bytes.subarray(at));
  }

  /** Reads once at least; calls `frame` for each frame that is no heartbeat and returns how many came. */
  async frames(frame: (decoder: FrameDecoder) => void): Promise<number> {
    let count = 0;
    while (count === 0) {
      const bytes = await this.#connection.read(this.#buffer);
      if (bytes === null) throw new Error("The broker closed the connection");
      this.#decoder.feed(this.#buffer, 0, bytes);
      while (this.#decoder.next() === FrameEvent.FRAME) {
        const { type, start, end } = this.#decoder;
        if (type === FrameType.ERROR) throw new Error("The broker answered with an error");
        if (type === FrameType.RESPONSE && end - start === HEARTBEAT_TEXT.length) {
          await this.write(NOP_COMMAND);
        } else {
          frame(this.#decoder);
          count++;
        }
      }
    }
    return count;
  }

  close(): void {
    this.#connection.close();
  }
}

/** Sends commands, each answered by one frame, with at most `atOnce` on their way. */
async function send(broker: Broker, count: number, atOnce: number, command: () => Uint8Array) {
  let left = count;
  await Promise.all(Array.from({ length: CONNECTIONS }, async () => {
    const client = await Client.connect(broker);
    let pending = 0;
    while (left > 0 || pending > 0) {
      const commands: Uint8Array[] = [];
      for (; left > 0 && pending < atOnce / CONNECTIONS; left--, pending++) {
        commands.push(command());
      }
      await client.write(joined(commands));
      pending -= await client.frames(() => {});
    }
    client.close();
  }));
}

async function readyCase(folder: string, messages: number, topics: number, bodyBytes: number) {
  const body = new Uint8Array(bodyBytes).fill(0x61);
  const names = Array.from({ length: topics }, (_, index) => `backlog${index}`);
  let broker = await start(folder);
  report("ready, empty folder", `${ms(broker.readyMs)}`);
  await sleep(REST_MS);
  report("memory at rest, empty", mib(await residentMib(broker)));
  for (const name of names) await createTopic(broker, name);
  const commands = names.map((name) => encodeMpub(name, new Array<Uint8Array>(BATCH).fill(body)));
  const batches = Math.ceil(messages / BATCH / topics) * topics;
  const total = batches * BATCH;
  let next = 0;
  const startMs = performance.now();
  await send(broker, batches, 4 * CONNECTIONS, () => commands[next++ % topics]!);
  report("publish", perSecond(total, performance.now() - startMs));
  report("memory after publishing", mib(await residentMib(broker)));
  report("orderly stop", ms(await stop(broker)));
  const bytes = await diskBytes(folder);
  report("disk", `${(bytes / total).toFixed(1)} bytes a message, ${mib(bytes / MIB)} in all`);
  broker = await start(folder);
  report("ready with the backlog", ms(broker.readyMs));
  await sleep(REST_MS);
  report("memory at rest with the backlog", mib(await residentMib(broker)));
  let consumed = 0;
  let seconds = 0;
  let peakMib = 0;
  for (const name of names) {
    const result = await consume(broker, name, total / topics);
    consumed += result.messages;
    seconds += result.seconds;
    peakMib = Math.max(peakMib, await residentMib(broker));
  }
  if (consumed < total) throw new Error(`Only ${consumed} of ${total} messages came`);
  report("drain", perSecond(consumed, seconds * 1000));
  report("largest memory seen while draining", mib(peakMib));
  await stop(broker);
}

async function consume(
  { tcpAddress }: Broker,
  topic: string,
  messages: number,
): Promise<LoadResult> {
  const { success, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: [
      "run",
      "--allow-net",
      `${ROOT}/benches/load.ts`,
      "consume",
      `--address=${tcpAddress}`,
      `--topic=${topic}`,
      "--rdy=2500",
      `--messages=${messages}`,
      `--seconds=${CONSUME_SECONDS_MAX}`,
    ],
    stdin: "null",
  }).output();
  if (!success) throw new Error(`Cannot consume: ${new TextDecoder().decode(stderr).trim()}`);
  return JSON.parse(new TextDecoder().decode(stdout)) as LoadResult;
}

async function deferredCase(folder: string, messages: number, bodyBytes: number) {
  const body = new Uint8Array(bodyBytes).fill(0x61);
  let broker = await start(folder);
  await createTopic(broker, "deferred");
  // What every broker that has worked takes: its ring and caches are filled once.
  await createTopic(broker, "warm");
  await send(
    broker,
    Math.ceil(100 * MIB / (bodyBytes + 48)),
    DEFERRED_AT_ONCE,
    () => encodePub("warm", body),
  );
  await post(broker, "topic/delete?topic=warm");
  await sleep(REST_MS);
  const beforeMib = await residentMib(broker);
  report("memory before, ring filled", mib(beforeMib));
  const startMs = performance.now();
  await send(
    broker,
    messages,
    DEFERRED_AT_ONCE,
    () => encodeDpub("deferred", Math.floor(HOUR_MS * (1 + Math.random())), body),
  );
  report("publish deferred", perSecond(messages, performance.now() - startMs));
  const rightAfterMib = await residentMib(broker);
  await sleep(REST_MS);
  const growth = (afterMib: number) => `${mib(afterMib)}, grown by ${mib(afterMib - beforeMib)}`;
  report("memory right after", growth(rightAfterMib));
  report("memory at rest", growth(await residentMib(broker)));
  report("due-time error", await dueErrors(broker, "deferred"));
  report("orderly stop", ms(await stop(broker)));
  broker = await start(folder);
  report("ready with them", ms(broker.readyMs));
  report("memory when ready", mib(await residentMib(broker)));
  await sleep(REST_MS);
  report("memory at rest after the start", mib(await residentMib(broker)));
  report("due-time error after the start", await dueErrors(broker, "deferred"));
  await stop(broker);
}

/** How late messages arrive, against the time of their publish and the delay that was asked for. */
async function dueErrors(broker: Broker, topic: string): Promise<string> {
  const consumer = await Client.connect(broker);
  await consumer.write(encodeSub(topic, "bench"));
  await consumer.frames(() => {});
  await consumer.write(encodeRdy(2500));
  const errors: number[] = [];
  const view = new DataView(new ArrayBuffer(8));
  const sending = send(broker, TIMED.messages, CONNECTIONS, () => {
    const delayMs = Math.round(TIMED.fromMs + Math.random() * (TIMED.toMs - TIMED.fromMs));
    view.setFloat64(0, Date.now() + delayMs);
    return encodeDpub(topic, delayMs, new Uint8Array(view.buffer.slice(0)));
  });
  while (errors.length < TIMED.messages) {
    const fins: Uint8Array[] = [];
    await consumer.frames(({ buffer, start }) => {
      const at = start + MESSAGE_BODY_OFFSET;
      const dueMs = new DataView(buffer.buffer, buffer.byteOffset).getFloat64(at);
      errors.push(Date.now() - dueMs);
      const fin = new Uint8Array(FIN_BYTES);
      writeFin(fin, 0, buffer, start + MESSAGE_ID_OFFSET);
      fins.push(fin);
    });
    await consumer.write(joined(fins));
  }
  await sending;
  consumer.close();
  errors.sort((a, b) => a - b);
  const at = (share: number) => ms(errors[Math.floor((errors.length - 1) * share)]!);
  return `p50 ${at(0.5)}, p99 ${at(0.99)}, largest ${at(1)}, of ${errors.length}`;
}

function joined(parts: readonly Uint8Array[]): Uint8Array {
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

function freeAddress(): string {
  const listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const { port } = listener.addr;
  listener.close();
  return `127.0.0.1:${port}`;
}

function sleep(forMs: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, forMs));
}

function ms(value: number): string {
  return `${value.toFixed(0)} ms`;
}

function mib(value: number): string {
  return `${value.toFixed(0)} MiB`;
}

function perSecond(messages: number, overMs: number): string {
  return `${(messages / overMs).toFixed(0)}k messages/s`;
}

function report(what: string, value: string): void {
  console.log(`| ${what} | ${value} |`);
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      messages: { type: "string", default: "1000000" },
      topics: { type: "string", default: "10" },
      bytes: { type: "string", default: "200" },
      case: { type: "string", default: "both" },
      folder: { type: "string" },
      help: { type: "boolean", default: false },
    },
  });
  if (values.help) return console.log(HELP);
  const [messages, topics, bytes] = [values.messages, values.topics, values.bytes].map(Number);
  const inFolder = async (title: string, run: (folder: string) => Promise<void>) => {
    const dir = values.folder;
    const folder = await Deno.makeTempDir({ prefix: "sluice-bench-", ...(dir ? { dir } : {}) });
    console.log(`| ${title} | |\n|---|---|`);
    try {
      await run(folder);
    } finally {
      await Deno.remove(folder, { recursive: true });
    }
    console.log("");
  };
  if (values.case !== "deferred") {
    const title = `${messages} messages of ${bytes} bytes in ${topics} topics`;
    await inFolder(title, (folder) => readyCase(folder, messages!, topics!, bytes!));
  }
  if (values.case !== "ready") {
    const title = `${messages} deferred messages of ${bytes} bytes in one topic`;
    await inFolder(title, (folder) => deferredCase(folder, messages!, bytes!));
  }
}

await main();
