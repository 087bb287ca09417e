/**
 * The work that leaves the golden folder of the feature levels since the first release, the same bytes
 * at every run: policies, topics that gave up their oldest messages, large messages in parts, some of
 * which begin in an earlier file, and compacted files, in checkpoints and in the tail behind them.
 */
import type { Broker } from "@sluice/broker/broker";
import type { Channel, Topic } from "@sluice/broker/queue";
import { readMeta } from "@sluice/broker/storage/format";
import { invariant, SLUICE_VERSION } from "@sluice/shared/runtime";
import { SeededRandom, SimClock, SimDisk } from "@sluice/shared/testing";
import { describeTopics, type ExpectedMessage } from "./expectation.ts";
import { GoldenConsumer, openBroker, PATH } from "./golden_broker.ts";
import type { Golden } from "./recipe.ts";

/** The name of the folder: it needs feature levels up to 3. */
export const LEVELS_NAME = "levels-3";

/** 2024-11-14T00:00:00Z. */
const START_MS = 1_731_542_400_000;
/** 2096-10-02T07:06:40Z: what is deferred is due then. */
const DUE_MS = 4_000_000_000_000;
const MAINTAIN_MS = 1000;
/** Of so many messages one stays owed. */
const SLOW_LEAVES_ONE_OF = 29;
const SLOW_LEAVES = 6;
/** Three parts and a bit. */
const LARGE_BYTES = 13_000;

/** Does the work. */
export async function buildLevelsGolden(): Promise<Golden> {
  const disk = new SimDisk();
  const clock = new SimClock({ wallMs: START_MS });
  const compaction = { rateBytes: 2 ** 40, deadBytesMin: 2000 };
  const broker = await clock.runUntil(openBroker(disk, clock, { compaction }), 10_000);
  await broker.storage.allowPolicies();
  const work = new Work(broker, clock);
  await work.pinFiles();
  await work.decidePolicies();
  await work.giveUpOldest();
  await work.publishLarge();
  await work.passCheckpoints();
  await work.leaveTail();
  const meta = await readMeta(disk, PATH);
  invariant(meta !== null, "a broker has its meta");
  const { state } = broker.storage;
  const expectation = {
    release: SLUICE_VERSION,
    node_id: meta.node_id,
    epoch: meta.epoch,
    sequence_reserved: meta.sequence_reserved,
    wall_ms: clock.wallMs(),
    next_topic_number: state.nextTopicNumber,
    next_channel_number: state.nextChannelNumber,
    topics: describeTopics(
      broker,
      (topic) =>
        (work.published.get(topic.state.number) ?? [])
          .filter(({ offset }) => topic.state.isOwed(offset)),
    ),
  };
  invariant(broker.storage.compaction.filesCompacted > 2, "files were compacted");
  await broker.abandon();
  disk.crash();
  return { disk, expectation };
}

class Work {
  /** All messages, by the number of their topic. */
  readonly published = new Map<number, ExpectedMessage[]>();
  readonly #broker: Broker;
  readonly #clock: SimClock;
  readonly #random = new SeededRandom("golden bodies of later levels");

  constructor(broker: Broker, clock: SimClock) {
    this.#broker = broker;
    this.#clock = clock;
  }

  /** Files of which nearly nothing is owed. */
  async pinFiles(): Promise<void> {
    const [orders, fast, slow] = this.#topic("orders", "fast", "slow");
    await this.#publishMany(orders, 150, 300);
    this.#publish(orders, this.#random.bytes(40), DUE_MS);
    await this.#publishMany(orders, 40, 300);
    await this.#finish(orders, fast!, () => true);
    await this.#finish(orders, slow!, (index) => index % SLOW_LEAVES_ONE_OF !== 3);
  }

  /** Also with a name that this release does not know. */
  async decidePolicies(): Promise<void> {
    const broker = this.#broker;
    const [confirmed] = this.#topic("confirmed", "c");
    broker.administration.configureTopic(confirmed, {
      ack_mode: "write_ack",
      quota_bytes: 2 ** 20,
    });
    const [relaxed] = this.#topic("relaxed");
    broker.administration.configureTopic(relaxed, {
      ack_mode: "nsq_relaxed",
      of_a_later_release: { x: [1] },
    });
    const [changed] = this.#topic("changed", "c");
    broker.administration.configureTopic(changed, {
      ack_mode: "nsq_relaxed",
      quota_action: "refuse",
    });
    broker.administration.configureTopic(changed, { ack_mode: null });
    for (const topic of [confirmed, relaxed, changed]) await this.#publishMany(topic, 4, 60);
  }

  /** With channels, without one, and in front of a pause. */
  async giveUpOldest(): Promise<void> {
    const broker = this.#broker;
    const [trimmed, slow] = this.#topic("trimmed", "slow", "other");
    const [kept] = this.#topic("trimmed and kept");
    const [paused] = this.#topic("trimmed and paused", "c");
    for (const topic of [trimmed, kept, paused]) {
      broker.administration.configureTopic(topic, {
        quota_bytes: 4000,
        quota_action: "drop_oldest",
      });
      await this.#publishMany(topic, 9, 200);
      this.#publish(topic, this.#random.bytes(20), DUE_MS + 1000);
      await this.#publishMany(topic, 9, 200);
    }
    await this.#finish(trimmed, slow!, (index) => index % 2 === 0);
    await this.#publishMany(trimmed, 9, 200);
    await this.#publishMany(kept, 30, 200);
    await this.#publishMany(paused, 12, 200);
    broker.administration.pauseTopic(paused, true);
    await this.#publishMany(paused, 3, 200);
    for (const { state } of [trimmed, kept, paused]) {
      invariant(state.liveFrom > 0 && state.liveFrom < state.tail, `${state.name} gave up some`);
    }
  }

  /** Whole in a file, over files, given back, finished, kept for a first channel. */
  async publishLarge(): Promise<void> {
    const [large, channel] = this.#topic("large", "c");
    const [kept] = this.#topic("large and kept");
    await this.#upload(large, 0);
    await this.#upload(large, 40);
    await this.#upload(kept, 40);
    await this.#upload(large, 0);
    await this.#finish(large, channel!, (index) => index === 2, 1);
  }

  /** Two checkpoints behind all of it, and compactions. */
  async passCheckpoints(): Promise<void> {
    const [orders, fast, slow] = this.#topic("orders", "fast", "slow");
    for (let round = 0; round < 4; round++) {
      await this.#publishMany(orders, 60, 250);
      await this.#finish(orders, fast!, () => true);
      await this.#finish(orders, slow!, (index) => index >= SLOW_LEAVES);
      await this.#clock.run(3 * MAINTAIN_MS);
    }
    await this.#clock.runUntil(this.#broker.storage.compact(), 10_000);
  }

  /** What only the end of the log tells of. */
  async leaveTail(): Promise<void> {
    const broker = this.#broker;
    const [changed] = this.#topic("changed", "c");
    broker.administration.configureTopic(changed, { ack_mode: "durable" });
    const [trimmed] = this.#topic("trimmed");
    await this.#publishMany(trimmed, 12, 200);
    const [large, channel] = this.#topic("large", "c");
    await this.#upload(large, 8);
    await this.#finish(large, channel!, (index) => index === 0);
    await this.#durable();
  }

  #topic(name: string, ...channels: readonly string[]): [Topic, ...Channel[]] {
    const topic = this.#broker.ensureTopic(name);
    return [topic, ...channels.map((channel) => this.#broker.ensureChannel(topic, channel))];
  }

  #publish(topic: Topic, body: Uint8Array, dueMs = 0): void {
    this.#broker.admitTo(topic);
    this.#expect(topic, body, dueMs);
    this.#broker.publish(topic, body, 0, body.length, dueMs);
  }

  /** Writes down what is published next. */
  #expect({ state: { number, tail } }: Topic, body: Uint8Array, dueMs: number): void {
    const { nodeId, nextSequence } = this.#broker.storage;
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
      this.#publish(topic, this.#random.bytes(this.#random.between(bytes >> 1, bytes)));
      if (index % 8 === 7) await this.#durable();
    }
    await this.#durable();
  }

  /** Publishes a large message, with so many messages of another topic between two of its parts. */
  async #upload(topic: Topic, between: number): Promise<void> {
    const broker = this.#broker;
    const [orders] = this.#topic("orders");
    const body = this.#random.bytes(LARGE_BYTES);
    const upload = broker.beginUpload(() => {});
    invariant(upload !== null, "there is memory for an upload");
    for (let at = 0; at < body.length;) {
      const taken = upload.receive(body, at, Math.min(body.length, at + 6000));
      at += taken;
      if (taken === 0) await this.#clock.runUntil(broker.room(), MAINTAIN_MS);
      if (between > 0 && at > 8000 && at < body.length) {
        await this.#publishMany(orders, between, 300);
      }
    }
    await this.#durable();
    this.#expect(topic, body, 0);
    invariant(upload.finish(topic, 0), "there is room for the last part");
    await this.#durable();
  }

  /** Takes all that is due, finishes what is chosen, and gives some back until far in the future. */
  async #finish(
    topic: Topic,
    channel: Channel,
    choose: (index: number) => boolean,
    requeued = -1,
  ): Promise<void> {
    const consumer = new GoldenConsumer(this.#broker, this.#clock, topic, channel);
    for (const [index, delivery] of (await consumer.take(1000)).entries()) {
      if (choose(index)) consumer.finish(delivery);
      else if (index === requeued) {
        consumer.requeue(delivery, DUE_MS + 5000 - this.#clock.wallMs());
      }
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
