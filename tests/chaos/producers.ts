/**
 * The producers of a chaos run. Each publishes to one gateway, or goes to the next one when its
 * connection ends; each message is its own, and a publish that fails is noted and not sent again.
 *
 * | Door | How |
 * |---|---|
 * | client | our client, several publishes on their way at once |
 * | nsqjs | the NSQ client of npm, one publish after the other |
 * | http | `/pub` and `/mpub`, one publish after the other, on a kept connection |
 */
import {
  CLIENT_OPTIONS_DEFAULT,
  ProducerConnection,
  type PublishOutcome,
} from "@sluice/shared/client";
import { encodeDpub, encodeMpub, encodePub } from "@sluice/shared/protocol";
import { SystemClock, SystemNetwork } from "@sluice/shared/runtime/system";
import type { SeededRandom } from "@sluice/shared/testing";
import { eventually } from "../integration/wait.ts";
import { bodyOf, type Door, type History, type PublishRecord } from "./history.ts";
import { PlainHttp, PlainHttpError } from "./plain_http.ts";
import { StockWriter } from "./stock_clients.ts";

/** A gateway, or what stands in front of some. */
export interface Target {
  readonly name: string;
  readonly tcpPort: number;
  readonly httpPort: number;
}

/** How a producer publishes. */
export interface ProducerOptions {
  readonly name: string;
  readonly door: Door;
  /** The first one; the others are for when a connection has ended. */
  readonly targets: readonly Target[];
  readonly topics: readonly string[];
  /** Between two publishes, at most. */
  readonly pauseMsMax: number;
  /** Publishes on their way at once, where the door has such. */
  readonly windowMax: number;
}

/** What is published at once. */
interface Shape {
  readonly topic: string;
  readonly bodies: readonly string[];
  readonly deferMs: number;
}

const BATCH_MAX = 10;
const DEFER_MS_MAX = 1_500;
const SMALL_BYTES_MAX = 400;
const LARGE_BYTES_MAX = 20_000;
/** By a lane of its own from the gateway to the broker. */
const BULKY_BYTES = 300_000;
const BURST_ONE_OF = 20;
/** After a connection that could not be made. */
const AGAIN_MS = 250;
/** Nobody waits longer for an answer: it is a broken promise. */
const ANSWER_MS_MAX = 30_000;

/** See the module. */
export abstract class Producer {
  readonly options: ProducerOptions;
  protected readonly history: History;
  protected readonly random: SeededRandom;
  protected readonly clock = new SystemClock();
  protected isStopping = false;
  #number = 0;
  #target = 0;
  #running: Promise<void> | null = null;

  constructor(options: ProducerOptions, history: History, random: SeededRandom) {
    this.options = options;
    this.history = history;
    this.random = random;
  }

  /** Makes the producer for a door. */
  static of(options: ProducerOptions, history: History, random: SeededRandom): Producer {
    switch (options.door) {
      case "client":
        return new ClientProducer(options, history, random);
      case "nsqjs":
        return new StockProducer(options, history, random);
      case "http":
        return new HttpProducer(options, history, random);
    }
  }

  start(): void {
    this.#running = this.run();
  }

  /** Publishes nothing more; resolves when everything has its outcome. */
  async stop(): Promise<void> {
    this.isStopping = true;
    await this.#running;
  }

  protected abstract run(): Promise<void>;

  protected get target(): Target {
    const { targets } = this.options;
    return targets[this.#target % targets.length]!;
  }

  /** Where to connect next time. */
  protected goOn(): void {
    this.#target++;
  }

  protected pause(): Promise<void> {
    return this.clock.sleep(this.random.below(this.options.pauseMsMax + 1));
  }

  /** What to publish, noted as sent. */
  protected next(): { readonly shape: Shape; readonly record: PublishRecord } {
    const { random } = this;
    const kind = random.below(100);
    const count = kind < 75 ? 1 : 1 + random.below(BATCH_MAX);
    const deferMs = kind < 10 ? 1 + random.below(DEFER_MS_MAX) : 0;
    const first = this.#number;
    this.#number += count;
    const shape = {
      topic: random.pick(this.options.topics),
      bodies: Array.from(
        { length: count },
        (_, index) => bodyOf(this.options.name, first + index, this.#paddingBytes()),
      ),
      deferMs,
    };
    return { shape, record: this.#begin(first, count, shape.topic, deferMs) };
  }

  /** A connection could not be made: that is noted as a publish of nothing. */
  protected notConnected(startMs: number, text: string): void {
    const record = this.#begin(this.#number, 0, "-", 0, startMs);
    this.history.end(record, "refused", `cannot connect: ${text}`);
  }

  #begin(
    first: number,
    count: number,
    topic: string,
    deferMs: number,
    startMs?: number,
  ): PublishRecord {
    const { name: producer, door } = this.options;
    const gateway = this.target.name;
    return this.history.begin({ producer, first, count, topic, door, gateway, deferMs }, startMs);
  }

  #paddingBytes(): number {
    const kind = this.random.below(1_000);
    if (kind === 0) return BULKY_BYTES;
    return this.random.below(kind < 50 ? LARGE_BYTES_MAX : SMALL_BYTES_MAX);
  }
}

class ClientProducer extends Producer {
  #connection: ProducerConnection | null = null;

  protected async run(): Promise<void> {
    while (!this.isStopping) {
      const connection = await this.#connected();
      if (connection === null) continue;
      // Now and then as many as may be on their way, so that there are some when something ends.
      const burst = this.random.below(BURST_ONE_OF) === 0 ? this.options.windowMax : 1;
      for (let count = 0; count < burst && connection.isOpen; count++) {
        if (connection.outstandingCount < this.options.windowMax) this.#publish(connection);
      }
      await this.pause();
    }
    const connection = this.#connection;
    if (connection === null) return;
    await eventually(
      `all answers to ${this.options.name}`,
      () => connection.outstandingCount === 0,
      ANSWER_MS_MAX,
    ).catch(() => {});
    connection.close();
  }

  async #connected(): Promise<ProducerConnection | null> {
    if (this.#connection?.isOpen === true) return this.#connection;
    if (this.#connection !== null) {
      // Its end has been told to all who waited.
      this.#connection = null;
      this.goOn();
    }
    const startMs = Date.now();
    try {
      const { clock } = this;
      return this.#connection = await ProducerConnection.connect(
        { network: new SystemNetwork(clock), clock },
        { ...CLIENT_OPTIONS_DEFAULT, host: "127.0.0.1", port: this.target.tcpPort },
      );
    } catch (error) {
      this.notConnected(startMs, String(error));
      this.goOn();
      await this.clock.sleep(AGAIN_MS);
      return null;
    }
  }

  #publish(connection: ProducerConnection): void {
    const { shape, record } = this.next();
    connection.send((outcome) => this.#settled(record, outcome), encoded(shape));
  }

  #settled(record: PublishRecord, outcome: PublishOutcome): void {
    if (outcome === "confirmed") return this.history.end(record, "ok");
    const { cause } = outcome;
    const why = cause instanceof Error ? ` (${cause.message})` : "";
    this.history.end(record, outcome.outcome, outcome.message + why);
  }
}

class StockProducer extends Producer {
  protected async run(): Promise<void> {
    let writer: StockWriter | null = null;
    while (!this.isStopping) {
      if (writer !== null && !writer.isOpen) {
        writer = null;
        this.goOn();
      }
      writer ??= await this.#connect();
      if (writer === null) continue;
      const { shape, record } = this.next();
      const { topic, bodies, deferMs } = shape;
      try {
        if (deferMs > 0) await writer.publishLater(topic, bodies[0]!, deferMs);
        else await writer.publish(topic, bodies);
        this.history.end(record, "ok");
      } catch (error) {
        const text = error instanceof Error ? error.message : String(error);
        this.history.end(record, text.includes("E_THROTTLED") ? "refused" : "unknown", text);
      }
      await this.pause();
    }
    writer?.close();
  }

  async #connect(): Promise<StockWriter | null> {
    const startMs = Date.now();
    try {
      return await StockWriter.connect(this.target.tcpPort);
    } catch (error) {
      this.notConnected(startMs, String(error));
      this.goOn();
      await this.clock.sleep(AGAIN_MS);
      return null;
    }
  }
}

class HttpProducer extends Producer {
  protected async run(): Promise<void> {
    let client = new PlainHttp(this.target.httpPort);
    while (!this.isStopping) {
      const { shape, record } = this.next();
      if (!await this.#publish(client, shape, record)) {
        client[Symbol.dispose]();
        this.goOn();
        client = new PlainHttp(this.target.httpPort);
        await this.clock.sleep(AGAIN_MS);
      }
      await this.pause();
    }
    client[Symbol.dispose]();
  }

  async #publish(client: PlainHttp, shape: Shape, record: PublishRecord): Promise<boolean> {
    const { topic, bodies, deferMs } = shape;
    const verb = bodies.length > 1 ? "mpub" : "pub";
    const defer = deferMs > 0 ? `&defer=${deferMs}` : "";
    const path = `/${verb}?topic=${topic}${defer}`;
    try {
      const { status, headers, text } = await client.post(path, bodies.join("\n"), ANSWER_MS_MAX);
      if (status === 200) {
        this.history.end(record, "ok", "", headers.get("sluice-spooled") === "true");
        return true;
      }
      const isUnknown = status >= 500 && status !== 503;
      this.history.end(record, isUnknown ? "unknown" : "refused", `${status} ${text}`);
    } catch (error) {
      if (!(error instanceof PlainHttpError)) throw error;
      this.history.end(record, error.isSent ? "unknown" : "refused", error.message);
    }
    return false;
  }
}

function encoded({ topic, bodies, deferMs }: Shape): Uint8Array {
  const encoder = new TextEncoder();
  const list = bodies.map((body) => encoder.encode(body));
  if (deferMs > 0) return encodeDpub(topic, deferMs, list[0]!);
  return list.length === 1 ? encodePub(topic, list[0]!) : encodeMpub(topic, list);
}
