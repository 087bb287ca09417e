/**
 * Publishes at a fixed rate, whatever the broker does, as a process of its own: each message has a
 * time at which it is due, and its latency is from then to its OK. What a stall holds up is so counted
 * for every message that was due in it. Prints one JSON object a window.
 *
 * ```
 * open_loop.ts --address H:P --topic T --rate R --connections N --bytes B --seconds D --window-ms W
 * ```
 */
import { parseArgs } from "node:util";
import {
  encodeIdentify,
  encodePub,
  FrameDecoder,
  FrameEvent,
  FrameType,
  HEARTBEAT_TEXT,
  MAGIC_V2,
  NOP_COMMAND,
} from "@sluice/shared/protocol";
import { Latencies, type LatenciesDocument } from "./latencies.ts";

/** What one window has seen. */
export interface OpenLoopWindow {
  readonly confirmed: number;
  /** Due and not confirmed yet, at its end. */
  readonly waiting: number;
  readonly latencies: LatenciesDocument;
}

/** More are not sent ahead of their OKs: the broker cannot keep up at all. */
const WAITING_MAX = 500_000;
const TICK_MS = 1;

const { values } = parseArgs({
  options: {
    address: { type: "string", default: "127.0.0.1:4150" },
    topic: { type: "string", default: "bench" },
    rate: { type: "string", default: "1000" },
    connections: { type: "string", default: "16" },
    bytes: { type: "string", default: "200" },
    seconds: { type: "string", default: "10" },
    "window-ms": { type: "string", default: "5000" },
  },
});
const rate = Number(values.rate);
const command = encodePub(values.topic, new Uint8Array(Number(values.bytes)).fill(0x61));
let latencies = new Latencies();
let waiting = 0;

/** One connection: commands gather while a write is under way. */
class Publisher {
  readonly #connection: Deno.TcpConn;
  readonly #due: number[] = [];
  #first = 0;
  #unsent = 0;
  #isWriting = false;

  constructor(connection: Deno.TcpConn) {
    this.#connection = connection;
  }

  static async connect(): Promise<Publisher> {
    const separator = values.address.lastIndexOf(":");
    const connection = await Deno.connect({
      hostname: values.address.slice(0, separator),
      port: Number(values.address.slice(separator + 1)),
    });
    connection.setNoDelay(true);
    const publisher = new Publisher(connection);
    await publisher.#write(MAGIC_V2);
    await publisher.#write(encodeIdentify({ client_id: "bench", user_agent: "sluice-bench" }));
    return publisher;
  }

  publish(dueMs: number): void {
    this.#due.push(dueMs);
    this.#unsent++;
    waiting++;
  }

  async flush(): Promise<void> {
    if (this.#isWriting) return;
    this.#isWriting = true;
    while (this.#unsent > 0) {
      const bytes = new Uint8Array(command.length * this.#unsent);
      for (let at = 0; at < bytes.length; at += command.length) bytes.set(command, at);
      this.#unsent = 0;
      await this.#write(bytes);
    }
    this.#isWriting = false;
  }

  /** Observes OKs until the connection is closed. */
  async read(): Promise<void> {
    const decoder = new FrameDecoder(1 << 20);
    const buffer = new Uint8Array(16 * 1024);
    let isIdentified = false;
    while (true) {
      const bytes = await this.#connection.read(buffer).catch(() => null);
      if (bytes === null) return;
      const nowMs = performance.now();
      decoder.feed(buffer, 0, bytes);
      while (decoder.next() === FrameEvent.FRAME) {
        if (decoder.type === FrameType.ERROR) throw new Error("Cannot publish: error frame");
        if (decoder.end - decoder.start === HEARTBEAT_TEXT.length) {
          // The end may come in between.
          await this.#write(NOP_COMMAND).catch(() => {});
        } else if (!isIdentified) isIdentified = true;
        else this.#confirmed(nowMs);
      }
    }
  }

  close(): void {
    this.#connection.close();
  }

  #confirmed(nowMs: number): void {
    latencies.observe(nowMs - this.#due[this.#first++]!);
    waiting--;
    if (this.#first < 4096) return;
    this.#due.splice(0, this.#first);
    this.#first = 0;
  }

  async #write(bytes: Uint8Array): Promise<void> {
    for (let at = 0; at < bytes.length;) at += await this.#connection.write(bytes.subarray(at));
  }
}

function report(): void {
  const window: OpenLoopWindow = {
    confirmed: latencies.count,
    waiting,
    latencies: latencies.toJSON(),
  };
  console.log(JSON.stringify(window));
  latencies = new Latencies();
}

const publishers = await Promise.all(
  Array.from({ length: Number(values.connections) }, () => Publisher.connect()),
);
const reading = publishers.map((publisher) => publisher.read());
const startMs = performance.now();
const endMs = startMs + Number(values.seconds) * 1000;
let windowMs = startMs + Number(values["window-ms"]);
let sent = 0;
for (let nowMs = startMs; nowMs < endMs; nowMs = performance.now()) {
  const due = Math.floor((nowMs - startMs) * rate / 1000);
  for (; sent < due; sent++) {
    publishers[sent % publishers.length]!.publish(startMs + sent * 1000 / rate);
  }
  if (waiting > WAITING_MAX) throw new Error(`Cannot publish at ${rate} a second`);
  for (const publisher of publishers) void publisher.flush();
  if (nowMs >= windowMs) {
    report();
    windowMs += Number(values["window-ms"]);
  }
  await new Promise((resolve) => setTimeout(resolve, TICK_MS));
}
while (waiting > 0) await new Promise((resolve) => setTimeout(resolve, TICK_MS));
report();
for (const publisher of publishers) publisher.close();
await Promise.all(reading);
