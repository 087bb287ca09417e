/** One server's side of a scenario: its connections, and what came over each of them. */
import { closeQuietly, connectQuietly } from "../../integration/raw_client.ts";
import type { Part } from "./scenario.ts";

/** What one connection got. */
export class Recorder {
  /** Responses and errors in their order, as `0 OK` or `1 E_INVALID ...`; no heartbeats. */
  readonly replies: string[] = [];
  /** Messages as `body attempts`. */
  readonly messages: string[] = [];
  /** Ids of messages by body. */
  readonly ids = new Map<string, string>();
  ended: "" | "end" | "reset" = "";
  /** From a known difference on, the rest of the connection says nothing. */
  excused = false;
  readonly #connection: Deno.TcpConn;
  readonly #reading: Promise<void>;
  #rest = "";
  #closed = false;

  private constructor(connection: Deno.TcpConn) {
    this.#connection = connection;
    this.#reading = this.#read();
  }

  static async connect(port: number): Promise<Recorder> {
    return new Recorder(await connectQuietly(port));
  }

  async send(bytes: Uint8Array): Promise<void> {
    try {
      for (let written = 0; written < bytes.length;) {
        written += await this.#connection.write(bytes.subarray(written));
      }
    } catch {
      // The reading side tells how it ended.
    }
  }

  async end(): Promise<void> {
    try {
      await this.#connection.closeWrite();
    } catch {
      // It has ended.
    }
  }

  async close(): Promise<void> {
    this.#closed = true;
    closeQuietly(this.#connection);
    await this.#reading;
  }

  async #read(): Promise<void> {
    const buffer = new Uint8Array(65_536);
    try {
      for (;;) {
        const count = await this.#connection.read(buffer);
        if (count === null) break;
        this.#take(this.#rest + latin1(buffer.subarray(0, count)));
      }
      this.ended = "end";
    } catch {
      this.ended = "reset";
    }
    if (!this.#closed) closeQuietly(this.#connection);
  }

  #take(text: string): void {
    let at = 0;
    while (text.length - at >= 8) {
      const end = at + 4 + number32(text, at);
      if (end > text.length) break;
      this.#frame(number32(text, at + 4), text.slice(at + 8, end));
      at = end;
    }
    this.#rest = text.slice(at);
  }

  #frame(type: number, data: string): void {
    if (type === 2) {
      const body = data.slice(26);
      this.ids.set(body, data.slice(10, 26));
      this.messages.push(`${body} ${number32(`\0\0${data.slice(8, 10)}`, 0)}`);
    } else if (data !== "_heartbeat_") this.replies.push(`${type} ${data}`);
  }
}

/** One server during a scenario. */
export class Side {
  readonly recorders = new Map<number, Recorder>();
  readonly port: number;
  readonly httpPort: number;
  readonly prefix: string;

  constructor(port: number, httpPort: number, prefix: string) {
    this.port = port;
    this.httpPort = httpPort;
    this.prefix = prefix;
  }

  async recorder(connection: number): Promise<Recorder> {
    let recorder = this.recorders.get(connection);
    if (recorder === undefined) {
      recorder = await Recorder.connect(this.port);
      this.recorders.set(connection, recorder);
    }
    return recorder;
  }

  /** The bytes of a command on this side; a client knows the ids of what it got itself. */
  encode(connection: number, parts: readonly Part[]): string {
    return parts.map((part) => {
      if (typeof part === "string") return part.replaceAll(/\$([tu])/g, `${this.prefix}$1`);
      return this.recorders.get(connection)?.ids.get(part.idOf) ?? "fedcba9876543210";
    }).join("");
  }

  /** A text without what this server chose itself. */
  plain(text: string): string {
    let plain = text.replaceAll(this.prefix, "$");
    for (const { ids } of this.recorders.values()) {
      for (const [body, id] of ids) plain = plain.replaceAll(id, `<id of ${body}>`);
    }
    return plain;
  }

  async close(): Promise<void> {
    await Promise.all([...this.recorders.values()].map((recorder) => recorder.close()));
  }
}

/** Bytes as text of one letter each. */
export function latin1(bytes: Uint8Array): string {
  let text = "";
  for (let at = 0; at < bytes.length; at += 8192) {
    text += String.fromCharCode(...bytes.subarray(at, at + 8192));
  }
  return text;
}

/** The reverse of {@linkcode latin1}. */
export function fromLatin1(text: string): Uint8Array {
  return Uint8Array.from(text, (letter) => letter.charCodeAt(0));
}

function number32(text: string, at: number): number {
  return (text.charCodeAt(at) << 24) | (text.charCodeAt(at + 1) << 16) |
    (text.charCodeAt(at + 2) << 8) | text.charCodeAt(at + 3);
}
