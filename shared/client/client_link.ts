/**
 * The client's end of one NSQ V2 connection: magic and IDENTIFY, heartbeats answered, frames handed to
 * an owner, commands written in the order they were sent.
 *
 * - One write is under way at a time; what is sent meanwhile goes out with the next. What waits is
 *   bounded by the owner: `waitingBytes` says how much there is.
 * - A server that is silent for longer than two heartbeat intervals, or that does not take a write for
 *   as long, is given up. One that answers nothing else still sends heartbeats.
 * - The end, whatever its cause, is told once, after the last frame.
 */
import {
  encodeIdentify,
  FrameDecoder,
  FrameEvent,
  FrameType,
  HEARTBEAT_TEXT,
  MAGIC_V2,
  NOP_COMMAND,
  producerIdText,
  utf8Text,
} from "../protocol/mod.ts";
import {
  type Clock,
  type Connection,
  ConnectionError,
  type Network,
  type Timer,
} from "../runtime/mod.ts";

/** How a connection is made. */
export interface ClientOptions {
  readonly host: string;
  readonly port: number;
  readonly connectTimeoutMs: number;
  readonly heartbeatIntervalMs: number;
  /** The largest frame that is taken from the server: type and data. */
  readonly frameBytesMax: number;
  /** Sent with IDENTIFY as they are, besides what this needs. */
  readonly identify: Readonly<Record<string, unknown>>;
  /** 16 bytes that name the producer whose publishes have sequences. */
  readonly producerId?: Uint8Array;
}

export const CLIENT_OPTIONS_DEFAULT: Omit<ClientOptions, "host" | "port"> = {
  connectTimeoutMs: 2000,
  heartbeatIntervalMs: 10_000,
  frameBytesMax: 16 * 2 ** 20,
  identify: {},
};

/** The world a client lives in. */
export interface ClientSeams {
  readonly network: Network;
  readonly clock: Clock;
}

/** Who is told what comes in. Frames are borrowed for the call. */
export interface LinkOwner {
  /** A response that is no heartbeat. */
  response(text: string): void;
  error(text: string): void;
  message(buffer: Uint8Array, start: number, end: number): void;
  /** Nothing comes any more; null when this side has closed it. */
  ended(error: Error | null): void;
}

/** What the server says of itself; empty for one that does not negotiate. */
export type ServerFeatures = Readonly<Record<string, unknown>>;

const READ_BYTES = 64 * 1024;
/** Commands up to this size are gathered to one write. */
const GATHER_BYTES = 64 * 1024;

/** See the module. */
export class ClientLink {
  readonly features: ServerFeatures;
  readonly address: string;
  readonly #connection: Connection;
  readonly #clock: Clock;
  readonly #silenceMsMax: number;
  readonly #decoder: FrameDecoder;
  readonly #buffer = new Uint8Array(READ_BYTES);
  #owner: LinkOwner | null = null;
  #outgoing: Uint8Array[] = [];
  #writing = false;
  #writingSinceMs = 0;
  #heardMs: number;
  #timer: Timer | null = null;
  #ended = false;
  /** Bytes sent that are not with the system yet. */
  waitingBytes = 0;

  private constructor(
    connection: Connection,
    clock: Clock,
    decoder: FrameDecoder,
    features: ServerFeatures,
    options: ClientOptions,
  ) {
    this.#connection = connection;
    this.#clock = clock;
    this.#decoder = decoder;
    this.features = features;
    this.address = `${options.host}:${options.port}`;
    this.#silenceMsMax = 2 * options.heartbeatIntervalMs;
    this.#heardMs = clock.monoMs();
  }

  /** Rejects with {@linkcode ConnectionError} when there is no server that takes our IDENTIFY in time. */
  static async connect(
    { network, clock }: ClientSeams,
    options: ClientOptions,
  ): Promise<ClientLink> {
    const { host, port, connectTimeoutMs, frameBytesMax } = options;
    const connection = await network.connect(host, port, connectTimeoutMs);
    const timer = clock.setTimer(connectTimeoutMs, () => connection.close());
    try {
      const decoder = new FrameDecoder(frameBytesMax);
      const features = await identify(connection, decoder, options);
      return new ClientLink(connection, clock, decoder, features, options);
    } catch (error) {
      connection.close();
      throw error;
    } finally {
      timer.cancel();
    }
  }

  get isOpen(): boolean {
    return !this.#ended;
  }

  /** Reads from now on. Once. */
  start(owner: LinkOwner): void {
    this.#owner = owner;
    this.#armSilence();
    void this.#read();
  }

  /** Sends `bytes`, which must not change afterwards. Does nothing once the connection has ended. */
  send(bytes: Uint8Array): void {
    if (this.#ended) return;
    this.#outgoing.push(bytes);
    this.waitingBytes += bytes.length;
    if (this.#writing) return;
    this.#writing = true;
    queueMicrotask(() => void this.#write());
  }

  /** Ends the connection; what is not with the system yet is not sent. */
  close(): void {
    this.#end(null);
  }

  async #read(): Promise<void> {
    try {
      while (!this.#ended) {
        this.#frames();
        if (this.#ended) return;
        const bytes = await this.#connection.read(this.#buffer);
        if (bytes === null) throw new ConnectionError(`${this.address} closed the connection`);
        this.#heardMs = this.#clock.monoMs();
        this.#decoder.feed(this.#buffer, 0, bytes);
      }
    } catch (error) {
      this.#end(toError(error));
    }
  }

  #frames(): void {
    const decoder = this.#decoder;
    while (!this.#ended) {
      const event = decoder.next();
      if (event === FrameEvent.NEED_MORE) return;
      if (event === FrameEvent.BAD_FRAME) {
        throw new ConnectionError(`${this.address} sent a frame of ${decoder.size} bytes`);
      }
      this.#frame(decoder);
    }
  }

  #frame({ type, buffer, start, end }: FrameDecoder): void {
    const owner = this.#owner!;
    if (type === FrameType.MESSAGE) return owner.message(buffer, start, end);
    const text = utf8Text(buffer, start, end);
    if (type === FrameType.ERROR) owner.error(text);
    else if (text === HEARTBEAT_TEXT) this.send(NOP_COMMAND);
    else owner.response(text);
  }

  async #write(): Promise<void> {
    try {
      while (this.#outgoing.length > 0 && !this.#ended) {
        this.#writingSinceMs = this.#clock.monoMs();
        const bytes = this.#gather();
        await this.#connection.writeAll(bytes);
        this.waitingBytes -= bytes.length;
      }
    } catch {
      // The reading side sees the end too, behind what the server said before it.
    }
    this.#writing = false;
  }

  /** The next bytes to write: one large command, or small ones together. */
  #gather(): Uint8Array {
    const queue = this.#outgoing;
    let count = 0;
    let total = 0;
    while (count < queue.length && (count === 0 || total + queue[count]!.length <= GATHER_BYTES)) {
      total += queue[count++]!.length;
    }
    const taken = queue.splice(0, count);
    if (count === 1) return taken[0]!;
    const bytes = new Uint8Array(total);
    let at = 0;
    for (const part of taken) {
      bytes.set(part, at);
      at += part.length;
    }
    return bytes;
  }

  #armSilence(): void {
    this.#timer = this.#clock.setTimer(this.#silenceMsMax / 4, () => {
      const nowMs = this.#clock.monoMs();
      const isStuck = this.#writing && nowMs - this.#writingSinceMs > this.#silenceMsMax;
      if (isStuck || nowMs - this.#heardMs > this.#silenceMsMax) {
        this.#end(new ConnectionError(`${this.address} has been silent for too long`));
      } else {
        this.#armSilence();
      }
    });
  }

  #end(error: Error | null): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#timer?.cancel();
    this.#outgoing = [];
    this.waitingBytes = 0;
    this.#connection.close();
    this.#owner?.ended(error);
  }
}

/** Sends magic and IDENTIFY, and reads the answer; the decoder keeps what comes behind it. */
async function identify(
  connection: Connection,
  decoder: FrameDecoder,
  options: ClientOptions,
): Promise<ServerFeatures> {
  await connection.writeAll(MAGIC_V2);
  const { producerId } = options;
  await connection.writeAll(encodeIdentify({
    ...options.identify,
    ...(producerId === undefined ? {} : { sluice_producer: producerIdText(producerId) }),
    feature_negotiation: true,
    heartbeat_interval: options.heartbeatIntervalMs,
  }));
  const buffer = new Uint8Array(READ_BYTES);
  while (true) {
    const bytes = await connection.read(buffer);
    if (bytes === null) throw new ConnectionError("The server closed the connection at IDENTIFY");
    decoder.feed(buffer, 0, bytes);
    switch (decoder.next()) {
      case FrameEvent.NEED_MORE:
        continue;
      case FrameEvent.BAD_FRAME:
        throw new ConnectionError("What answers is no NSQ server");
      case FrameEvent.FRAME:
        return featuresOf(decoder);
    }
  }
}

function featuresOf(decoder: FrameDecoder): ServerFeatures {
  const text = decoder.text();
  if (decoder.type !== FrameType.RESPONSE) {
    throw new ConnectionError(`The server refuses IDENTIFY: ${text}`);
  }
  if (!text.startsWith("{")) return {};
  try {
    return JSON.parse(text) as ServerFeatures;
  } catch (error) {
    throw new ConnectionError("The server's answer to IDENTIFY is not JSON", { cause: error });
  }
}

function toError(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error));
}
