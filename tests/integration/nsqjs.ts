/**
 * nsqjs, the NSQ client of npm, unmodified, with types and promises over it. It has none of its own;
 * what is typed here is what the tests use.
 */
import { EventEmitter } from "node:events";
import nsqjs from "nsqjs";
import { eventually, within } from "./wait.ts";

/** A message as nsqjs hands it out. */
export interface NsqjsMessage {
  readonly id: string;
  readonly attempts: number;
  readonly body: { toString(): string };
  /** BigInt-like nanoseconds; only its text is used. */
  readonly timestamp: { toString(): string };
  finish(): void;
  requeue(delayMs: number, backoff: boolean): void;
  touch(): void;
}

interface NsqjsReader extends EventEmitter {
  connect(): void;
  close(): void;
  pause(): void;
  unpause(): void;
  queryLookupd(): Promise<void>;
}

interface NsqjsWriter extends EventEmitter {
  connect(): void;
  close(): void;
  publish(topic: string, messages: string | string[], done: (error: Error | null) => void): void;
  deferPublish(
    topic: string,
    message: string[],
    deferMs: number,
    done: (error: Error | null) => void,
  ): void;
}

interface Nsqjs {
  readonly Reader: new (topic: string, channel: string, options: ReaderOptions) => NsqjsReader;
  readonly Writer: new (host: string, port: number, options?: object) => NsqjsWriter;
}

/** How nsqjs connects, by its names. */
export interface ConnectionOptions {
  readonly authSecret?: string;
  readonly tls?: boolean;
  /** The authority's certificate. */
  readonly ca?: Uint8Array;
  readonly snappy?: boolean;
  readonly deflate?: boolean;
  readonly deflateLevel?: number;
}

/** Options of a reader, by nsqjs's names; times are seconds where nsqjs has seconds. */
export interface ReaderOptions extends ConnectionOptions {
  readonly lookupdHTTPAddresses?: readonly string[];
  readonly nsqdTCPAddresses?: readonly string[];
  readonly maxInFlight?: number;
  readonly lookupdPollInterval?: number;
  /** Milliseconds. */
  readonly messageTimeout?: number;
  readonly clientId?: string;
}

const { Reader, Writer }: Nsqjs = nsqjs;

/** A connected writer. A publish rejects when the connection ends before its reply. */
export class TestWriter implements AsyncDisposable {
  readonly #writer: NsqjsWriter;
  #closed = false;

  private constructor(port: number, options: ConnectionOptions) {
    this.#writer = new Writer("127.0.0.1", port, options);
    // An emitter throws an error that nobody listens for; the callbacks get it anyway.
    this.#writer.on("error", () => {});
    this.#writer.on("closed", () => this.#closed = true);
  }

  static async connect(port: number, options: ConnectionOptions = {}): Promise<TestWriter> {
    const writer = new TestWriter(port, options);
    const ready = new Promise<void>((resolve) => writer.#writer.once("ready", resolve));
    writer.#writer.connect();
    await within("nsqjs to be ready to write", ready);
    return writer;
  }

  /** PUB for a text, MPUB for several. */
  publish(topic: string, messages: string | readonly string[]): Promise<void> {
    return this.#done((done) =>
      this.#writer.publish(topic, typeof messages === "string" ? messages : [...messages], done)
    );
  }

  /** DPUB. */
  publishLater(topic: string, message: string, deferMs: number): Promise<void> {
    return this.#done((done) => this.#writer.deferPublish(topic, [message], deferMs, done));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#closed) return;
    this.#writer.close();
    await eventually("nsqjs to close its writer", () => this.#closed);
  }

  #done(start: (done: (error: Error | null) => void) => void): Promise<void> {
    return within(
      "a reply to nsqjs",
      new Promise((resolve, reject) => start((error) => error ? reject(error) : resolve())),
    );
  }
}

/** A reader that gathers what it gets. It finishes each message unless `handle` is replaced. */
export class TestReader implements AsyncDisposable {
  readonly bodies: string[] = [];
  readonly messages: NsqjsMessage[] = [];
  readonly errors: string[] = [];
  /** Brokers it is connected to. */
  connections = 0;
  handle: (message: NsqjsMessage) => void = (message) => message.finish();
  readonly #reader: NsqjsReader;

  constructor(topic: string, channel: string, options: ReaderOptions) {
    this.#reader = new Reader(topic, channel, { lookupdPollInterval: 1, ...options });
    this.#reader.on("message", (message: NsqjsMessage) => {
      this.messages.push(message);
      this.bodies.push(message.body.toString());
      this.handle(message);
    });
    this.#reader.on("error", (error: Error) => this.errors.push(String(error)));
    this.#reader.on("nsqd_connected", () => this.connections++);
    this.#reader.on("nsqd_closed", () => this.connections--);
    this.#reader.connect();
  }

  /** Waits until it has so many messages. */
  async received(count: number): Promise<void> {
    await eventually(
      `${count} messages at nsqjs (it has ${this.bodies.length})`,
      () => this.bodies.length >= count,
    );
  }

  /** Waits until it is connected to so many brokers, asking discovery again meanwhile. */
  async connected(count: number): Promise<void> {
    await eventually(`nsqjs at ${count} brokers`, () => this.connections === count);
  }

  pause(): void {
    this.#reader.pause();
  }

  unpause(): void {
    this.#reader.unpause();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#reader.close();
    await eventually("nsqjs to close its reader", () => this.connections === 0);
  }
}
