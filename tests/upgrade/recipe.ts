/**
 * The work that leaves a golden folder behind, the same bytes at every run: several sealed files of
 * which the first are gone, two checkpoints, and a tail behind them that ends as a power cut leaves it.
 * What is in it is written down while it is done, and not read back from the folder.
 */
import type { Broker } from "@sluice/broker/broker";
import type { Channel, Topic } from "@sluice/broker/queue";
import { readMeta } from "@sluice/broker/storage/format";
import { invariant, SLUICE_VERSION } from "@sluice/shared/runtime";
import { SeededRandom, SimClock, SimDisk } from "@sluice/shared/testing";
import { describeTopics, type Expectation, type ExpectedMessage } from "./expectation.ts";
import { type Delivery, GoldenConsumer, openBroker, PATH } from "./golden_broker.ts";

/** 2023-11-14T22:13:20Z. */
const START_MS = 1_700_000_000_000;
/** 2096-10-02T07:06:40Z: what is deferred is due then, and every second after. */
const DUE_MS = 4_000_000_000_000;
/** A broker looks for work on its files this often. */
const MAINTAIN_MS = 1000;

/** A folder and what is in it. */
export interface Golden {
  readonly disk: SimDisk;
  readonly expectation: Expectation;
}

/** Does the work. */
export async function buildGolden(): Promise<Golden> {
  const disk = new SimDisk();
  const clock = new SimClock({ wallMs: START_MS });
  const broker = await clock.runUntil(openBroker(disk, clock), 10_000);
  const work = new Work(broker, clock);
  await work.finishAndForget();
  await work.fillTopics();
  await work.leaveTail();
  const meta = await readMeta(disk, PATH);
  invariant(meta !== null, "a broker has its meta");
  const { state } = broker.storage;
  const expectation: Expectation = {
    release: SLUICE_VERSION,
    node_id: meta.node_id,
    epoch: meta.epoch,
    sequence_reserved: meta.sequence_reserved,
    wall_ms: clock.wallMs(),
    next_topic_number: state.nextTopicNumber,
    next_channel_number: state.nextChannelNumber,
    topics: describeTopics(
      broker,
      ({ state: { number, liveFrom } }) =>
        (work.published.get(number) ?? []).filter(({ offset }) => offset >= liveFrom),
    ),
  };
  await broker.abandon();
  disk.crash();
  return { disk, expectation };
}

class Work {
  /** All messages, by the number of their topic. */
  readonly published = new Map<number, ExpectedMessage[]>();
  readonly #broker: Broker;
  readonly #clock: SimClock;
  readonly #random = new SeededRandom("golden bodies");

  constructor(broker: Broker, clock: SimClock) {
    this.#broker = broker;
    this.#clock = clock;
  }

  /** What every channel has finished goes with its files, so that only checkpoints tell of it. */
  async finishAndForget(): Promise<void> {
    const orders = this.#topic("orders");
    const channels = ["audit", "billing", "mail", "metrics"].map((name) =>
      this.#broker.ensureChannel(orders, name)
    );
    const gone = this.#topic("gone");
    this.#broker.ensureChannel(gone, "never");
    for (let round = 0; round < 3; round++) {
      await this.#publishMany(orders, 40, 350);
      await this.#publishMany(gone, 4, 100);
      for (const channel of channels) await this.#finishSome(orders, channel, 40, () => true);
      if (round === 1) this.#broker.administration.deleteTopic(gone);
      if (round === 1) this.#broker.ensureTopic("gone");
      await this.#clock.run(3 * MAINTAIN_MS);
    }
    invariant(this.#broker.storage.logFiles[0]!.start > 0, "the first files are gone");
    this.#broker.administration.deleteTopic(this.#topic("gone"));
  }

  /** All kinds of state, in sealed files and in checkpoints. */
  async fillTopics(): Promise<void> {
    const broker = this.#broker;
    const orders = this.#topic("orders");
    const [audit, billing, mail, metrics] = ["audit", "billing", "mail", "metrics"]
      .map((name) => broker.ensureChannel(orders, name)) as [Channel, Channel, Channel, Channel];
    await this.#publishMany(orders, 60, 300);
    await this.#finishSome(orders, billing, 45, (index) => index % 3 !== 0);
    await this.#requeueSome(orders, mail);
    for (let index = 0; index < 5; index++) {
      this.#publish(orders, this.#body(60), DUE_MS + index * 1000);
    }
    await this.#durable();
    metrics.empty();
    broker.administration.pauseChannel(audit, true);

    const kept = this.#topic("kept");
    await this.#publishMany(kept, 5, 80);
    this.#publish(kept, Uint8Array.from({ length: 256 }, (_, index) => index));
    this.#publish(kept, Uint8Array.from({ length: 512 }, (_, index) => 255 - index % 256));
    this.#publish(kept, new Uint8Array(300));
    this.#publish(kept, new Uint8Array([0]));
    this.#publish(kept, new TextEncoder().encode('{"größe": "☃ \\u0000"}\r\n'));
    this.#publish(kept, this.#random.bytes(6000));
    this.#publish(kept, this.#random.bytes(33), DUE_MS + 60_000);

    const held = this.#topic("held");
    broker.ensureChannel(held, "behind");
    await this.#publishMany(held, 6, 120);
    broker.administration.pauseTopic(held, true);
    await this.#publishMany(held, 4, 120);
    this.#publish(held, this.#body(50), DUE_MS + 120_000);

    const brief = this.#topic("brief#ephemeral");
    broker.ensureChannel(brief, "any");
    broker.ensureChannel(orders, "brief#ephemeral");
    await this.#publishMany(brief, 3, 40);

    await this.#publishMany(orders, 50, 300);
    await this.#clock.run(3 * MAINTAIN_MS);
    await this.#publishMany(orders, 55, 300);
    await this.#clock.run(3 * MAINTAIN_MS);
  }

  /** What only the end of the log tells of. */
  async leaveTail(): Promise<void> {
    const broker = this.#broker;
    const orders = this.#topic("orders");
    const billing = broker.ensureChannel(orders, "billing");
    await this.#publishMany(orders, 12, 200);
    await this.#finishSome(orders, billing, 10, (index) => index % 2 === 0);
    this.#publish(orders, this.#body(60), DUE_MS + 10_000);
    await this.#requeueSome(orders, broker.ensureChannel(orders, "mail"));
    const late = broker.ensureChannel(orders, "late");
    await this.#publishMany(orders, 3, 90);
    await this.#finishSome(orders, late, 1, () => true);

    const emptied = this.#topic("emptied");
    broker.ensureChannel(emptied, "first");
    await this.#publishMany(emptied, 4, 70);
    broker.administration.deleteChannel(emptied, broker.ensureChannel(emptied, "first"));
    await this.#publishMany(emptied, 3, 70);
    broker.administration.emptyTopic(emptied);
    await this.#publishMany(emptied, 2, 70);
    broker.administration.deleteTopic(this.#topic("gone"));
    await this.#durable();
  }

  #topic(name: string): Topic {
    return this.#broker.ensureTopic(name);
  }

  #publish(topic: Topic, body: Uint8Array, dueMs = 0): void {
    const broker = this.#broker;
    const { number, tail } = topic.state;
    const { nodeId, nextSequence } = broker.storage;
    broker.publish(topic, body, 0, body.length, dueMs);
    const messages = this.published.get(number) ?? [];
    this.published.set(number, messages);
    messages.push({
      offset: tail,
      id: hex(nodeId, 4) + hex(nextSequence, 12),
      timestamp: String(BigInt(this.#clock.wallMs()) * 1_000_000n),
      due_ms: dueMs,
      body: body.toBase64(),
    });
  }

  async #publishMany(topic: Topic, count: number, bytes: number): Promise<void> {
    for (let index = 0; index < count; index++) {
      this.#publish(topic, this.#body(bytes));
      if (index % 8 === 7) await this.#durable();
    }
    await this.#durable();
  }

  /** Text of about so many bytes. */
  #body(bytes: number): Uint8Array {
    const letters = Array.from(
      { length: this.#random.between(bytes >> 1, bytes) },
      () => this.#random.pick([..."abcdefghijklmnopqrstuvwxyz     "]),
    );
    return new TextEncoder().encode(letters.join(""));
  }

  async #finishSome(
    topic: Topic,
    channel: Channel,
    count: number,
    choose: (index: number) => boolean,
  ): Promise<void> {
    const consumer = new GoldenConsumer(this.#broker, this.#clock, topic, channel);
    const deliveries = await consumer.take(count);
    invariant(deliveries.length === count, "as many are due");
    for (const [index, delivery] of deliveries.entries()) {
      if (choose(index)) consumer.finish(delivery);
    }
    consumer.leave();
    await this.#durable();
  }

  /** Gives some messages back: at once, and until far in the future after one and after two attempts. */
  async #requeueSome(topic: Topic, channel: Channel): Promise<void> {
    const consumer = new GoldenConsumer(this.#broker, this.#clock, topic, channel);
    const later = (delivery: Delivery, afterMs: number) =>
      consumer.requeue(delivery, DUE_MS + afterMs - this.#clock.wallMs());
    const deliveries = await consumer.take(9);
    for (const [index, delivery] of deliveries.entries()) {
      if (index % 3 === 0) consumer.finish(delivery);
      else if (index % 3 === 1) later(delivery, index * 500);
      else consumer.requeue(delivery, 0);
    }
    for (const delivery of await consumer.take(2)) {
      if (delivery.attempts > 1) later(delivery, 200_000);
      else consumer.finish(delivery);
    }
    consumer.leave();
    await this.#durable();
  }

  /** Everything so far is on disk, finishes too. */
  async #durable(): Promise<void> {
    await this.#clock.runUntil(this.#broker.storage.drain(), MAINTAIN_MS);
    await this.#clock.run(1);
  }
}

function hex(value: number, digits: number): string {
  return value.toString(16).padStart(digits, "0");
}
