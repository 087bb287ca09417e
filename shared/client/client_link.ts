/**
 * The client's end of one NSQ V2 connection: magic, IDENTIFY and AUTH, heartbeats answered, frames handed
 * to an owner, commands written in the order they were sent.
 *
 * - One write is under way at a time; what is sent meanwhile goes out with the next. What waits is
 *   bounded by the owner: `waitingBytes` says how much there is.
 * - Bytes are counted as they are sent and as they are handed to the system (`sentBytes`, `handedBytes`), so that
 *   whoever sent a command knows for sure when nothing of it can have left. After a write that failed
 *   nothing more is handed over.
 * - The secret of AUTH is sent to the server and goes nowhere else.
 * - A server that is silent for longer than two heartbeat intervals, or that does not take a write for
 *   as long, is given up. One that answers nothing else still sends heartbeats.
 * - The end, whatever its cause, is told once, after the last frame.
 */
import {
  concatBytes,
  encodeAuth,
  encodeIdentify,
  FrameDecoder,
  FrameEvent,
  FrameType,
  HEARTBEAT_TEXT,
  MAGIC_V2,
  NOP_COMMAND,
  OK_TEXT,
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
  /**
   * The secret for AUTH, which is sent where the server requires authorization or does not say: one
   * without feature negotiation.
   */
  readonly authSecret?: Uint8Array;
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
/** What is small is gathered up to this size, to one write. */
const GATHER_BYTES = 64 * 1024;
/** Slots of the queue that have been used up are kept until there are as many, and more than others. */
const USED_SLOTS_MAX = 1024;
const LETTER_O = 0x4f;
const LETTER_K = 0x4b;
/** Takes the place of what was written, so that its memory is not held. */
const NOTHING = new Uint8Array(0);

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
  /** The first of `#outgoing` that is not with the system. */
  #head = 0;
  /** Small commands go through here; made when it is first needed, free when no write is under way. */
  #gathered: Uint8Array | null = null;
  #writing = false;
  #writeFailed = false;
  #writingSinceMs = 0;
  #heardMs: number;
  #timer: Timer | null = null;
  #ended = false;
  /** Bytes sent that are not with the system yet. */
  waitingBytes = 0;
  /** Bytes sent so far. */
  sentBytes = 0;
  /** How many of them the system was given, or is being given; the rest never left this process. */
  handedBytes = 0;

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

  /**
   * Rejects with {@linkcode ConnectionError} when there is no server that takes our IDENTIFY, and our AUTH
   * if there is one, in time.
   */
  static async connect(
    { network, clock }: ClientSeams,
    options: ClientOptions,
  ): Promise<ClientLink> {
    const { host, port, connectTimeoutMs, frameBytesMax } = options;
    const connection = await network.connect(host, port, connectTimeoutMs);
    const timer = clock.setTimer(connectTimeoutMs, () => connection.close());
    try {
      const decoder = new FrameDecoder(frameBytesMax);
      const features = await introduce(new Greeting(connection, decoder), options);
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

  /**
   * Sends `parts` one after the other; they must not change afterwards. Does nothing once the connection
   * has ended.
   */
  send(...parts: Uint8Array[]): void {
    if (this.#ended) return;
    for (let index = 0; index < parts.length; index++) {
      const part = parts[index]!;
      this.#outgoing.push(part);
      this.waitingBytes += part.length;
      this.sentBytes += part.length;
    }
    if (this.#writing || this.#writeFailed) return;
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
    // Nearly all that a producer hears, so no text is made of it.
    const isOk = end - start === 2 && buffer[start] === LETTER_O && buffer[start + 1] === LETTER_K;
    if (isOk && type === FrameType.RESPONSE) return owner.response(OK_TEXT);
    const text = utf8Text(buffer, start, end);
    if (type === FrameType.ERROR) owner.error(text);
    else if (text === HEARTBEAT_TEXT) this.send(NOP_COMMAND);
    else owner.response(text);
  }

  async #write(): Promise<void> {
    try {
      while (this.#head < this.#outgoing.length && !this.#ended) {
        this.#writingSinceMs = this.#clock.monoMs();
        const bytes = this.#gather();
        this.handedBytes += bytes.length;
        await this.#connection.writeAll(bytes);
        if (!this.#ended) this.waitingBytes -= bytes.length;
      }
    } catch {
      // The reading side sees the end too, behind what the server said before it.
      this.#writeFailed = true;
    }
    this.#writing = false;
  }

  /** The next bytes to write: one large part as it is, or small ones together. */
  #gather(): Uint8Array {
    const queue = this.#outgoing;
    const first = queue[this.#head]!;
    const isAlone = this.#head + 1 === queue.length;
    if (isAlone || first.length + queue[this.#head + 1]!.length > GATHER_BYTES) {
      this.#drop(1);
      return first;
    }
    const gathered = this.#gathered ??= new Uint8Array(GATHER_BYTES);
    let count = 0;
    let length = 0;
    while (this.#head + count < queue.length) {
      const part = queue[this.#head + count]!;
      if (length + part.length > GATHER_BYTES) break;
      gathered.set(part, length);
      length += part.length;
      count++;
    }
    this.#drop(count);
    return gathered.subarray(0, length);
  }

  /** The first `count` parts of the queue are on their way. */
  #drop(count: number): void {
    const queue = this.#outgoing;
    for (let index = 0; index < count; index++) queue[this.#head++] = NOTHING;
    if (this.#head === queue.length) {
      queue.length = 0;
      this.#head = 0;
    } else if (this.#head > USED_SLOTS_MAX && this.#head * 2 > queue.length) {
      this.#outgoing = queue.slice(this.#head);
      this.#head = 0;
    }
  }

  #armSilence(): void {
    this.#timer = this.#clock.setTimer(this.#silenceMsMax / 4, () => {
      const nowMs = this.#clock.monoMs();
      // A failed write whose end the reading side has not seen by now is not going to be seen there.
      const isStuck = this.#writeFailed ||
        this.#writing && nowMs - this.#writingSinceMs > this.#silenceMsMax;
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
    this.#head = 0;
    this.waitingBytes = 0;
    this.#connection.close();
    this.#owner?.ended(error);
  }
}

/** What is said before anything else: one question at a time. */
class Greeting {
  readonly #connection: Connection;
  readonly #decoder: FrameDecoder;
  readonly #buffer = new Uint8Array(READ_BYTES);

  constructor(connection: Connection, decoder: FrameDecoder) {
    this.#connection = connection;
    this.#decoder = decoder;
  }

  /** Sends a command and resolves with its answer; the decoder keeps what comes behind it. */
  async ask(name: string, command: Uint8Array): Promise<FrameDecoder> {
    await this.#connection.writeAll(command);
    const decoder = this.#decoder;
    while (true) {
      switch (decoder.next()) {
        case FrameEvent.NEED_MORE: {
          const bytes = await this.#connection.read(this.#buffer);
          if (bytes === null) {
            throw new ConnectionError(`The server closed the connection at ${name}`);
          }
          decoder.feed(this.#buffer, 0, bytes);
          break;
        }
        case FrameEvent.BAD_FRAME:
          throw new ConnectionError("What answers is no NSQ server");
        case FrameEvent.FRAME:
          if (decoder.type === FrameType.RESPONSE && decoder.text() === HEARTBEAT_TEXT) {
            await this.#connection.writeAll(NOP_COMMAND);
            break;
          }
          return decoder;
      }
    }
  }
}

/** Magic, IDENTIFY, and AUTH where it is asked for. */
async function introduce(greeting: Greeting, options: ClientOptions): Promise<ServerFeatures> {
  const { producerId, authSecret } = options;
  const identify = encodeIdentify({
    ...options.identify,
    ...(producerId === undefined ? {} : { sluice_producer: producerIdText(producerId) }),
    feature_negotiation: true,
    heartbeat_interval: options.heartbeatIntervalMs,
  });
  const features = featuresOf(await greeting.ask("IDENTIFY", concatBytes(MAGIC_V2, identify)));
  const isRequired = features["auth_required"];
  if (authSecret === undefined) {
    if (isRequired !== true) return features;
    throw new ConnectionError("The server requires authorization, and there is no secret for it");
  }
  // One that does not negotiate has not said whether it asks for it.
  const negotiates = Object.keys(features).length > 0;
  if (isRequired !== true && negotiates) return features;
  const answer = await greeting.ask("AUTH", encodeAuth(authSecret));
  if (answer.type === FrameType.RESPONSE) return features;
  throw new ConnectionError(`The server refuses AUTH: ${answer.text()}`);
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
