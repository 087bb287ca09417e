/**
 * A plain NSQ V2 client, written by hand over a socket and on its own: it shares no code with the
 * broker, so that both cannot be wrong in the same way. It pipelines, answers heartbeats, and can do
 * what a good client would not, such as never reading.
 *
 * Replies arrive in the order of the commands; each publish resolves with its own. An error frame
 * rejects the oldest command that waits. When the connection ends, everything that waits is rejected.
 */

/** A message as it arrived. */
export interface Delivery {
  readonly id: string;
  readonly attempts: number;
  readonly body: string;
}

interface Waiting {
  readonly resolve: () => void;
  readonly reject: (error: Error) => void;
}

const RESPONSE = 0;
const ERROR = 1;
const MESSAGE = 2;
const HEADER_BYTES = 8;
const ID_OFFSET = 10;
const BODY_OFFSET = 26;
const READ_BYTES = 64 * 1024;

/** See the module. */
export class RawClient implements AsyncDisposable {
  /** Called for each message. */
  onMessage: (delivery: Delivery) => void = () => {};
  /** Error frames that came, for whoever wants to see them. */
  readonly errors: string[] = [];
  /** Whether the connection has ended. */
  ended = false;

  readonly #connection: Deno.TcpConn;
  readonly #waiting: Waiting[] = [];
  readonly #reading: Promise<void>;
  #outgoing: Uint8Array[] = [];
  #writing: Promise<void> | null = null;
  #rest = new Uint8Array();

  private constructor(connection: Deno.TcpConn) {
    this.#connection = connection;
    this.#reading = this.#read();
  }

  static async connect(port: number): Promise<RawClient> {
    const client = new RawClient(await connectQuietly(port));
    client.send(text("  V2"));
    return client;
  }

  /** How many commands wait for a reply. */
  get waitingCount(): number {
    return this.#waiting.length;
  }

  /** Writes as soon as the socket takes it. Gathers what is sent in one turn of the event loop. */
  send(bytes: Uint8Array): void {
    if (this.ended) return;
    this.#outgoing.push(bytes);
    this.#writing ??= Promise.resolve().then(() => this.#write());
  }

  /** Sends a command that is answered. */
  request(bytes: Uint8Array): Promise<void> {
    if (this.ended) return Promise.reject(new Error("The connection has ended"));
    return new Promise((resolve, reject) => {
      this.#waiting.push({ resolve, reject });
      this.send(bytes);
    });
  }

  pub(topic: string, body: string): Promise<void> {
    return this.request(join(text(`PUB ${topic}\n`), sized(text(body))));
  }

  dpub(topic: string, deferMs: number, body: string): Promise<void> {
    return this.request(join(text(`DPUB ${topic} ${deferMs}\n`), sized(text(body))));
  }

  mpub(topic: string, bodies: readonly string[]): Promise<void> {
    const batch = join(int32(bodies.length), ...bodies.map((body) => sized(text(body))));
    return this.request(join(text(`MPUB ${topic}\n`), sized(batch)));
  }

  /** Only what this client wants of the negotiation: how long it may work on a message. */
  identify(msgTimeoutMs: number): Promise<void> {
    const wish = sized(text(JSON.stringify({ msg_timeout: msgTimeoutMs })));
    return this.request(join(text("IDENTIFY\n"), wish));
  }

  sub(topic: string, channel: string): Promise<void> {
    return this.request(text(`SUB ${topic} ${channel}\n`));
  }

  rdy(count: number): void {
    this.send(text(`RDY ${count}\n`));
  }

  fin(id: string): void {
    this.send(text(`FIN ${id}\n`));
  }

  req(id: string, deferMs: number): void {
    this.send(text(`REQ ${id} ${deferMs}\n`));
  }

  touch(id: string): void {
    this.send(text(`TOUCH ${id}\n`));
  }

  /** Resolves when the connection has ended. */
  closed(): Promise<void> {
    return this.#reading;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    closeQuietly(this.#connection);
    await this.#reading;
    await this.#writing;
  }

  async #write(): Promise<void> {
    try {
      while (this.#outgoing.length > 0) {
        const bytes = join(...this.#outgoing);
        this.#outgoing = [];
        for (let written = 0; written < bytes.length;) {
          written += await this.#connection.write(bytes.subarray(written));
        }
      }
    } catch {
      // The reading side sees the end too, and tells.
    }
    this.#writing = null;
  }

  async #read(): Promise<void> {
    const buffer = new Uint8Array(READ_BYTES);
    try {
      for (;;) {
        const count = await this.#connection.read(buffer);
        if (count === null) break;
        this.#take(join(this.#rest, buffer.subarray(0, count)));
      }
    } catch {
      // A reset is an end like any other here.
    }
    this.ended = true;
    closeQuietly(this.#connection);
    for (const { reject } of this.#waiting.splice(0)) reject(new Error("The connection has ended"));
  }

  #take(bytes: Uint8Array): void {
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    let at = 0;
    while (bytes.length - at >= HEADER_BYTES) {
      const end = at + 4 + view.getInt32(at);
      if (end > bytes.length) break;
      this.#frame(view.getInt32(at + 4), bytes.subarray(at + HEADER_BYTES, end));
      at = end;
    }
    this.#rest = bytes.slice(at);
  }

  #frame(type: number, data: Uint8Array): void {
    switch (type) {
      case RESPONSE:
        if (decode(data) === "_heartbeat_") this.send(text("NOP\n"));
        else this.#waiting.shift()?.resolve();
        break;
      case ERROR: {
        const message = decode(data);
        this.errors.push(message);
        // What consumers send has no reply; its errors belong to nobody who waits.
        if (!/^E_(?:FIN|REQ|TOUCH)_FAILED/.test(message)) {
          this.#waiting.shift()?.reject(new Error(message));
        }
        break;
      }
      case MESSAGE:
        this.onMessage({
          id: decode(data.subarray(ID_OFFSET, BODY_OFFSET)),
          attempts: (data[8]! << 8) | data[9]!,
          body: decode(data.subarray(BODY_OFFSET)),
        });
        break;
      default:
        throw new Error(`No such frame type: ${type}`);
    }
  }
}

/** A connection to a port of loopback on which nothing is read or written but by the caller. */
export async function connectQuietly(port: number): Promise<Deno.TcpConn> {
  const connection = await Deno.connect({ hostname: "127.0.0.1", port });
  connection.setNoDelay(true);
  return connection;
}

/** Closes a connection that may be closed already. */
export function closeQuietly(connection: Deno.TcpConn): void {
  try {
    connection.close();
  } catch {
    // It is closed.
  }
}

/** Text as bytes. */
export function text(value: string): Uint8Array {
  return new TextEncoder().encode(value);
}

/** A body with its size in front. */
export function sized(body: Uint8Array): Uint8Array {
  return join(int32(body.length), body);
}

/** One array of all bytes. */
export function join(...parts: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const joined = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    joined.set(part, at);
    at += part.length;
  }
  return joined;
}

/** A number as the protocol writes it. */
export function int32(value: number): Uint8Array {
  const bytes = new Uint8Array(4);
  new DataView(bytes.buffer).setInt32(0, value);
  return bytes;
}

function decode(bytes: Uint8Array): string {
  return new TextDecoder().decode(bytes);
}
