/**
 * The writer and the reader of nsqjs, unmodified, for a run in which connections fail. To connect a writer
 * ends at once when it cannot be done, and everything that waits ends with the connection. A reader
 * ends when it is told to, whatever its connections are doing.
 */
import { EventEmitter } from "node:events";
import nsqjs from "nsqjs";
import type { NsqjsMessage, ReaderOptions } from "../integration/nsqjs.ts";
import { eventually } from "../integration/wait.ts";

interface Writer extends EventEmitter {
  connect(): void;
  close(): void;
  publish(topic: string, messages: readonly string[], done: Done): void;
  deferPublish(topic: string, messages: readonly string[], deferMs: number, done: Done): void;
}

interface Reader extends EventEmitter {
  connect(): void;
  close(): void;
  /** Called with each connection that it is about to make. */
  registerConnectionListeners(connection: ReaderConnection): void;
}

interface ReaderConnection extends EventEmitter {
  close(): void;
}

type Done = (error: unknown) => void;

interface Nsqjs {
  readonly Writer: new (host: string, port: number, options: object) => Writer;
  readonly Reader: new (topic: string, channel: string, options: ReaderOptions) => Reader;
}

const { Writer: NsqjsWriter, Reader: NsqjsReader }: Nsqjs = nsqjs;

/** See the module. */
export class StockWriter {
  readonly #writer: Writer;
  #isOpen = false;

  private constructor(writer: Writer) {
    this.#writer = writer;
  }

  static async connect(port: number): Promise<StockWriter> {
    const inner = new NsqjsWriter("127.0.0.1", port, {});
    const writer = new StockWriter(inner);
    await new Promise<void>((resolve, reject) => {
      inner.on("ready", () => {
        writer.#isOpen = true;
        resolve();
      });
      const failed = (error?: unknown) => {
        writer.#isOpen = false;
        reject(error instanceof Error ? error : new Error(String(error ?? "closed")));
      };
      inner.on("error", failed);
      inner.on("closed", () => failed());
      inner.connect();
    });
    return writer;
  }

  get isOpen(): boolean {
    return this.#isOpen;
  }

  /** PUB for one message, MPUB for several. */
  publish(topic: string, messages: readonly string[]): Promise<void> {
    return told((done) => this.#writer.publish(topic, messages, done));
  }

  /** DPUB. */
  publishLater(topic: string, message: string, deferMs: number): Promise<void> {
    return told((done) => this.#writer.deferPublish(topic, [message], deferMs, done));
  }

  close(): void {
    this.#writer.close();
  }
}

function told(start: (done: Done) => void): Promise<void> {
  return new Promise((resolve, reject) => {
    start((error) => {
      if (error === null || error === undefined) resolve();
      else reject(error instanceof Error ? error : new Error(String(error)));
    });
  });
}

/**
 * A reader that knows its connections: nsqjs loses sight of one when another one that it is making fails,
 * and would leave it open.
 */
class KnowingReader extends NsqjsReader {
  readonly open = new Set<ReaderConnection>();

  override registerConnectionListeners(connection: ReaderConnection): void {
    super.registerConnectionListeners(connection);
    this.open.add(connection);
    connection.on("closed", () => this.open.delete(connection));
  }
}

/** See the module. */
export class StockReader implements AsyncDisposable {
  readonly #reader: KnowingReader;

  constructor(
    topic: string,
    channel: string,
    options: ReaderOptions,
    handle: (message: NsqjsMessage) => void,
  ) {
    this.#reader = new KnowingReader(topic, channel, options);
    this.#reader.on("message", handle);
    // An emitter throws an error that nobody listens for; lost connections are made again.
    this.#reader.on("error", () => {});
    this.#reader.connect();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#reader.close();
    for (const connection of [...this.#reader.open]) connection.close();
    await eventually("nsqjs to close its reader", () => this.#reader.open.size === 0);
  }
}
