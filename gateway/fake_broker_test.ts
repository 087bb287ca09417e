/**
 * Brokers that take numbered publishes in memory and fail as they are told, and a world for them. Has
 * no tests of its own.
 */
import {
  CommandDecoder,
  CommandEvent,
  encodeErrorFrame,
  encodeResponseFrame,
  MpubScanner,
  nameText,
  OK_FRAME,
  parseDecimal,
  ProtocolError,
  utf8Text,
  Verb,
} from "@sluice/shared/protocol";
import type { Connection, Listener } from "@sluice/shared/runtime";
import { SeededRandom, SimClock, SimNetwork } from "@sluice/shared/testing";
import type { ListedBroker } from "./broker_link.ts";
import { BrokerPool, type PoolOptions } from "./pool.ts";

export const SPOOL_PRODUCER = new Uint8Array(16).fill(2);

/** What a broker does with the next publish. */
export type Deed =
  /** Stores it and says so. */
  | "ok"
  /** Stores it and ends the connection without a word. */
  | "stored, no answer"
  /** Ends the connection without storing it. */
  | "lost"
  | "throttled"
  | "closing"
  | "bad message"
  /** Stores it and answers only when it is told to speak. */
  | "stored, silent"
  /** Neither. */
  | "silent";

/** A broker that survives its crashes: what it stored stays. */
export class FakeBroker {
  readonly id: string;
  /** Bodies in the order they were stored, by topic. */
  readonly stored = new Map<string, string[]>();
  repeats = 0;
  /** Connections that were made to it. */
  connectionCount = 0;
  /** Commands, in short: `SPUB t 0`. */
  readonly seen: string[] = [];
  deed: () => Deed = () => "ok";
  deduplicates = true;
  /** Numbers of a producer that a topic tells apart, from the highest down. */
  window = Infinity;
  readonly #highest = new Map<string, number>();
  /** Answers of the silent. */
  readonly #unsaid: (() => void)[] = [];
  readonly #known = new Set<string>();
  readonly #connections = new Set<Connection>();
  readonly #network: SimNetwork;
  readonly #port: number;
  #listener: Listener | null = null;

  constructor(network: SimNetwork, port: number) {
    this.#network = network;
    this.#port = port;
    this.id = `broker:${port}`;
    this.up();
  }

  get isUp(): boolean {
    return this.#listener !== null;
  }

  /** What discovery would say of it. */
  get listed(): ListedBroker {
    const hasTopic = (topic: string) => this.stored.has(topic);
    return { host: "broker", tcpPort: this.#port, publishReady: true, reasons: [], hasTopic };
  }

  up(): void {
    if (this.#listener !== null) return;
    this.#listener = this.#network.listen("broker", this.#port);
    void this.#accept(this.#listener);
  }

  /** Dies: its connections end without a word. */
  down(): void {
    this.#listener?.close();
    this.#listener = null;
    this.#unsaid.length = 0;
    for (const connection of [...this.#connections]) connection.close();
  }

  /** Answers what it was silent about. */
  speak(): void {
    for (const say of this.#unsaid.splice(0)) say();
  }

  bodies(topic: string): string[] {
    return this.stored.get(topic) ?? [];
  }

  async #accept(listener: Listener): Promise<void> {
    while (true) {
      const connection = await listener.accept();
      if (connection === null) return;
      this.#connections.add(connection);
      this.connectionCount++;
      void this.#serve(connection).catch(() => {}).finally(() => {
        this.#connections.delete(connection);
        connection.close();
      });
    }
  }

  async #serve(connection: Connection): Promise<void> {
    const decoder = new CommandDecoder();
    const buffer = new Uint8Array(65_536);
    let producer = "";
    const scanner = new MpubScanner({ messageBytesMax: 2 ** 20, bodyBytesMax: 2 ** 23 });
    while (true) {
      const bytes = await connection.read(buffer);
      if (bytes === null) return;
      decoder.feed(buffer, 0, bytes);
      for (let event = decoder.next(); event !== CommandEvent.NEED_MORE; event = decoder.next()) {
        const { line } = decoder;
        if (event === CommandEvent.LINE && line.verb !== Verb.NOP) decoder.expectBody();
        if (event === CommandEvent.BODY_SIZE) {
          decoder.acceptBody();
          scanner.begin(decoder.bodySize);
        }
        if (event !== CommandEvent.BODY) continue;
        const body = decoder.bodyBuffer.slice(decoder.bodyStart, decoder.bodyEnd);
        if (line.verb === Verb.IDENTIFY) {
          const { sluice_producer } = JSON.parse(utf8Text(body, 0, body.length));
          producer = sluice_producer;
          const features = this.deduplicates ? { sluice_producer } : {};
          await connection.writeAll(encodeResponseFrame(JSON.stringify(features)));
          continue;
        }
        const topic = nameText(line.buffer, line.paramStart(0), line.paramEnd(0));
        const isNumbered = line.verb === Verb.SPUB || line.verb === Verb.SMPUB;
        const sequence = isNumbered
          ? parseDecimal(line.buffer, line.paramStart(1), line.paramEnd(1))
          : null;
        const texts: string[] = [];
        if (line.verb === Verb.SMPUB || line.verb === Verb.MPUB) {
          scanner.check(body, 0, body.length);
          scanner.rewind();
          while (scanner.nextMessage(body, 0)) {
            texts.push(utf8Text(body, scanner.messageStart, scanner.messageEnd));
          }
        } else texts.push(utf8Text(body, 0, body.length));
        this.seen.push(`${isNumbered ? "S" : ""}${texts.length > 1 ? "MPUB" : "PUB"} ${topic}`);
        if (!await this.#publish(connection, producer, topic, sequence, texts)) return;
      }
    }
  }

  /** Returns whether the connection goes on. */
  async #publish(
    connection: Connection,
    producer: string,
    topic: string,
    sequence: number | null,
    texts: readonly string[],
  ): Promise<boolean> {
    const store = () => {
      const key = `${producer} ${topic} ${sequence}`;
      if (sequence !== null && this.#known.has(key)) {
        this.repeats++;
        return;
      }
      this.#known.add(key);
      this.stored.set(topic, [...this.bodies(topic), ...texts]);
    };
    const refuse = async (error: ProtocolError) => {
      await connection.writeAll(encodeErrorFrame(error));
      connection.closeWrite();
      const rest = new Uint8Array(65_536);
      while (await connection.read(rest) !== null);
      return false;
    };
    const window = `${producer} ${topic}`;
    const highest = Math.max(this.#highest.get(window) ?? 0, sequence ?? 0);
    this.#highest.set(window, highest);
    if (sequence !== null && sequence <= highest - this.window) {
      return await refuse(new ProtocolError("E_SEQUENCE_TOO_OLD", "SPUB failed too old"));
    }
    switch (this.deed()) {
      case "ok":
        store();
        await connection.writeAll(OK_FRAME);
        return true;
      case "stored, no answer":
        store();
        return false;
      case "lost":
        return false;
      case "throttled":
        return await refuse(new ProtocolError("E_THROTTLED", "SPUB the disk is nearly full"));
      case "closing":
        return await refuse(new ProtocolError("E_CLOSING", "the broker stops"));
      case "bad message":
        return await refuse(new ProtocolError("E_BAD_MESSAGE", "SPUB message too big 3 > 2"));
      case "stored, silent":
        store();
        this.#unsaid.push(() => void connection.writeAll(OK_FRAME).catch(() => {}));
        await new Promise<void>((resolve) => this.#unsaid.push(resolve));
        return true;
      case "silent":
        await new Promise<void>((resolve) => this.#unsaid.push(resolve));
        return false;
    }
  }
}

/** Some brokers and the pool that knows them. */
export class BrokerWorld {
  readonly clock = new SimClock();
  readonly network = new SimNetwork();
  readonly random: SeededRandom;
  readonly brokers: FakeBroker[];
  readonly pool: BrokerPool;

  constructor(count: number, seed = 1, options: Partial<PoolOptions> = {}) {
    this.random = new SeededRandom(seed);
    this.brokers = Array.from(
      { length: count },
      (_, at) => new FakeBroker(this.network, 4150 + at),
    );
    this.pool = new BrokerPool({
      affinity: "spread",
      connectTimeoutMs: 1_000,
      heartbeatIntervalMs: 1_000,
      authSecret: null,
      slowMs: 500,
      ...options,
    }, { network: this.network, clock: this.clock, random: this.random });
    this.list();
  }

  /** Discovery lists all of them. */
  list(): void {
    this.pool.list(new Map(this.brokers.map((broker) => [broker.id, broker.listed])));
  }

  close(): void {
    this.pool.close();
    for (const broker of this.brokers) broker.down();
  }
}
