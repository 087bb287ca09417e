/**
 * A broker over a folder in memory, for the golden folders: opened with sizes so small that little work
 * makes several files, and consumers without connections. Whatever it warns of is an error here.
 */
import { Broker, type BrokerOptions } from "@sluice/broker/broker";
import type {
  Channel,
  Consumer,
  ConsumerPort,
  LargeMessage,
  MessageView,
  Topic,
} from "@sluice/broker/queue";
import { WIRE_HEADER_BYTES, WIRE_ID_OFFSET } from "@sluice/broker/storage/format";
import { type Disk, invariant } from "@sluice/shared/runtime";
import { Logger } from "@sluice/shared/telemetry";
import { SeededRandom, settle, type SimClock } from "@sluice/shared/testing";

/** Where the folder is. */
export const PATH = "/data";
export const NODE_ID = 77;
const LOG_FILE_BYTES = 16_384;
/** So long that nothing times out. */
const TIMEOUT_MS = 3_600_000;

export async function openBroker(
  disk: Disk,
  clock: SimClock,
  changes: Partial<BrokerOptions["storage"]> = {},
): Promise<Broker> {
  const sink = (line: string) => {
    throw new Error(line);
  };
  const seams = {
    disk,
    clock,
    random: new SeededRandom("golden broker"),
    logger: new Logger({ sink, clock, level: "warn" }),
  };
  return await Broker.open(seams, {
    storage: {
      dataPath: PATH,
      nodeId: { value: NODE_ID, required: false },
      ringBytes: 65_536,
      logFileBytes: LOG_FILE_BYTES,
      pageCacheBytes: 1 << 20,
      indexCacheBytes: 1 << 20,
      bodyBytesMax: 16_000,
      finishSyncIntervalMs: 10,
      ...changes,
    },
    channel: { msgTimeoutMsMax: TIMEOUT_MS, consumersMax: 0, requeueOnDisconnect: true },
    guard: { minFreeBytes: 0, logBytesMax: 0 },
    topicsMax: 100,
    channelsPerTopicMax: 100,
    publishBytesMax: 1 << 20,
  });
}

/** A message as a consumer gets it. */
export interface Delivery {
  readonly sequence: number;
  /** Hexadecimal, as clients see it. */
  readonly id: string;
  /** Nanoseconds since 1970. */
  readonly timestamp: string;
  readonly attempts: number;
  /** Of a large message it is there once `take` has resolved. */
  body: Uint8Array;
}

/** A subscription that keeps what it gets until it is told what to do with it. */
export class GoldenConsumer implements ConsumerPort {
  readonly writable = true;
  readonly deliveries: Delivery[] = [];
  readonly #broker: Broker;
  readonly #clock: SimClock;
  readonly #topic: Topic;
  readonly #channel: Channel;
  readonly #consumer: Consumer;
  /** Bodies of large messages that are on their way. */
  readonly #reading: Promise<void>[] = [];

  constructor(broker: Broker, clock: SimClock, topic: Topic, channel: Channel) {
    this.#broker = broker;
    this.#clock = clock;
    this.#topic = topic;
    this.#channel = channel;
    const consumer = channel.join(this, TIMEOUT_MS, 0);
    invariant(consumer !== null, "a channel without a limit takes a consumer");
    this.#consumer = consumer;
  }

  deliver({ bytes, start, length, sequence, large }: MessageView, attempts: number): void {
    const id = bytes.subarray(start + WIRE_ID_OFFSET, start + WIRE_HEADER_BYTES);
    const view = new DataView(bytes.buffer, bytes.byteOffset + start);
    const delivery = {
      sequence,
      id: new TextDecoder().decode(id),
      timestamp: String(view.getBigInt64(0)),
      attempts,
      body: bytes.slice(start + WIRE_HEADER_BYTES, start + length),
    };
    this.deliveries.push(delivery);
    if (large !== null) this.#reading.push(this.#read(delivery, large));
  }

  channelDeleted(): void {}

  async #read(delivery: Delivery, { body }: LargeMessage): Promise<void> {
    const reader = this.#broker.readBody(body);
    const bytes = new Uint8Array(body.bytes);
    let at = 0;
    for (let part = await reader.next(); part !== null; part = await reader.next()) {
      bytes.set(part, at);
      at += part.length;
    }
    reader.close();
    delivery.body = bytes;
  }

  /** Takes up to `count` messages that are due, and returns those it had not had before. No time passes. */
  async take(count: number): Promise<Delivery[]> {
    const clock = this.#clock;
    const before = this.deliveries.length;
    this.#channel.credit(this.#consumer, this.#consumer.deliveries.count + count);
    // What is read from disk comes some turns later.
    for (let idle = 0, seen = before; idle < 3; idle++) {
      await settle();
      await clock.run(0);
      if (this.deliveries.length > seen) idle = 0;
      seen = this.deliveries.length;
    }
    this.#channel.credit(this.#consumer, 0);
    await clock.runUntil(Promise.all(this.#reading.splice(0)), 1000);
    return this.deliveries.slice(before);
  }

  finish({ sequence }: Delivery): void {
    const outcome = this.#channel.finish(this.#consumer, sequence);
    invariant(outcome === "done", "what was delivered can be finished");
  }

  requeue({ sequence }: Delivery, delayMs: number): void {
    const clock = this.#clock;
    const outcome = this.#channel.requeue(
      this.#consumer,
      sequence,
      delayMs,
      clock.monoMs(),
      clock.wallMs(),
    );
    invariant(outcome === "done", "what was delivered can be requeued");
  }

  leave(): void {
    this.#broker.leave(this.#topic, this.#channel, this.#consumer);
  }
}
