/** Brokers in memory that consumers subscribe to. Has no tests of its own. */
import {
  encodeMessageFrame,
  encodeResponseFrame,
  FRAME_HEADER_BYTES,
  MESSAGE_ID_OFFSET,
  OK_FRAME,
  utf8Bytes,
} from "../protocol/mod.ts";
import type { Connection, Listener } from "../runtime/mod.ts";
import { settle, type SimNetwork } from "../testing/mod.ts";

const FEATURES = encodeResponseFrame(JSON.stringify({ version: "1.3.0" }));
const CLOSE_WAIT = encodeResponseFrame("CLOSE_WAIT");

/** A broker on port 4150 of its host; it does with messages what a test says. */
export class FakeBroker {
  /** Answers SUB; without, it says nothing to it. */
  takesSubscriptions = true;
  /** Ends each connection behind its answer to SUB. */
  leavesAfterSub = false;
  /** Subscriptions so far. */
  subscriptions: string[] = [];
  /** What RDY said last on each open connection. */
  readonly ready = new Map<Connection, number>();
  /** Commands behind SUB, but RDY. */
  readonly commands: string[] = [];
  readonly #network: SimNetwork;
  readonly #host: string;
  readonly #open = new Set<Connection>();
  #listener: Listener | null = null;

  constructor(network: SimNetwork, host: string) {
    this.#network = network;
    this.#host = host;
    this.up();
  }

  up(): void {
    this.#listener = this.#network.listen(this.#host, 4150);
    void this.#accept(this.#listener);
  }

  /** It takes no connections, and those there are end. */
  async down(): Promise<void> {
    this.#listener?.close();
    for (const connection of [...this.#open]) connection.close();
    await settle();
  }

  get connectionCount(): number {
    return this.#open.size;
  }

  get readyCount(): number {
    return [...this.ready.values()].reduce((sum, count) => sum + count, 0);
  }

  /** Sends a message with this id, filled up with dots, to the one consumer there is. */
  async send(id: string): Promise<void> {
    const head = { timestampMs: 0, attempts: 1, nodeId: 0, sequence: 0 };
    const frame = encodeMessageFrame(head, utf8Bytes("body"));
    frame.set(utf8Bytes(id.padEnd(16, ".")), FRAME_HEADER_BYTES + MESSAGE_ID_OFFSET);
    for (const connection of this.#open) await connection.writeAll(frame);
    await settle();
  }

  async #accept(listener: Listener): Promise<void> {
    for (;;) {
      const connection = await listener.accept();
      if (connection === null) return;
      this.#open.add(connection);
      void this.#serve(connection).finally(() => {
        connection.close();
        this.#open.delete(connection);
        this.ready.delete(connection);
      });
    }
  }

  async #serve(connection: Connection): Promise<void> {
    const buffer = new Uint8Array(4096);
    let text = "";
    try {
      await connection.writeAll(FEATURES);
      for (;;) {
        const bytes = await connection.read(buffer);
        if (bytes === null) return;
        text += new TextDecoder("latin1").decode(buffer.subarray(0, bytes));
        text = text.replace(/^ {2}V2/, "").replace(/^IDENTIFY\n[^]{4}\{.*?\}/, "");
        if (text.startsWith("IDENTIFY")) continue;
        const lines = text.split("\n");
        text = lines.pop() ?? "";
        for (const line of lines) await this.#command(connection, line);
      }
    } catch {
      // Ended by the other side.
    }
  }

  async #command(connection: Connection, line: string): Promise<void> {
    const [verb, ...words] = line.split(" ");
    if (verb === "SUB") {
      this.subscriptions.push(words.join(" "));
      if (this.takesSubscriptions) await connection.writeAll(OK_FRAME);
      if (this.leavesAfterSub) connection.close();
    } else if (verb === "RDY") {
      this.ready.set(connection, Number(words[0]));
    } else if (verb !== "NOP") {
      this.commands.push(line.replace(/\.+/, ""));
      if (verb === "CLS") await connection.writeAll(CLOSE_WAIT);
    }
  }
}
