import { deepEqual, equal, ok } from "node:assert/strict";
import { settle, SimClock } from "@sluice/shared/testing";
import { LaggingPace, SLICE_STEPS } from "./lagging_pace.ts";
import { Channel, type ChannelEffects, FOUND, type MessageSource } from "./queue/mod.ts";
import { ChannelState, TopicState } from "./storage/mod.ts";
import { Turn } from "./turn.ts";

const MESSAGES = 100_000;
const DELIVERY_MS = 0.01;

/** Channels of topics of their own, each with one consumer that never has enough; deliveries take time. */
class World {
  readonly clock = new SimClock();
  published = 0;
  readonly pace = new LaggingPace(() => this.published, 20);
  readonly turn = new Turn(this.clock, this.pace);
  /** What was delivered and flushed, in order. */
  readonly events: string[] = [];
  readonly #cold = new Set<string>();
  readonly #view = {
    bytes: new Uint8Array(),
    start: 0,
    length: 0,
    sequence: 0,
    dueMs: 0,
    large: null,
  };

  channel(name: string, isCold: boolean, messages = MESSAGES): Channel {
    if (isCold) this.#cold.add(name);
    const source: MessageSource & { isCold: boolean } = {
      view: this.#view,
      isCold,
      find: (topic, offset) => {
        source.isCold = this.#cold.has(topic.name);
        this.#view.sequence = offset + 1;
        return FOUND;
      },
      timestampMs: () => 0,
      load: () => Promise.resolve(),
    };
    const effects: ChannelEffects = {
      source,
      random: { u32: () => 0 },
      finish() {},
      requeue() {},
      empty() {},
      schedule() {},
      wake: (channel) => this.turn.wake(channel),
    };
    const topic = new TopicState(1, name, false);
    topic.tail = messages;
    topic.durableTail = messages;
    const channel = new Channel(new ChannelState(1, topic, name, false, 0), topic, effects, {
      msgTimeoutMsMax: 1e9,
      consumersMax: 0,
      requeueOnDisconnect: true,
    }, false);
    const consumer = channel.join(
      {
        writable: true,
        deliver: () => {
          this.events.push(name);
          this.turn.flushLater({ flush: () => this.events.push(`flush ${name}`) });
          this.clock.advance(DELIVERY_MS);
        },
        channelDeleted() {},
      },
      1e9,
      0,
    )!;
    channel.credit(consumer, MESSAGES);
    return channel;
  }

  /** What was a backlog is caught up with. */
  warm(name: string): void {
    this.#cold.delete(name);
  }

  delivered(name: string): number {
    return this.events.filter((event) => event === name).length;
  }

  /** Lets time pass while somebody publishes. */
  async publish(forMs: number): Promise<void> {
    const untilMs = this.clock.monoMs() + forMs;
    while (this.clock.monoMs() < untilMs) {
      this.published++;
      await this.clock.run(1);
    }
  }
}

Deno.test("a lagging channel gets all the time there is while nobody publishes", async () => {
  const world = new World();
  world.channel("cold", true, 5000);
  await settle();
  equal(world.delivered("cold"), 5000);
  equal(world.pace.heldCount, 0);
  equal(world.clock.pendingTimers, 0);
});

Deno.test("a lagging channel gets its share and no more while somebody publishes", async () => {
  const world = new World();
  world.published++;
  world.channel("cold", true);
  await settle();
  equal(world.delivered("cold") <= 2 * SLICE_STEPS, true);
  const startMs = world.clock.monoMs();
  await world.publish(1000);
  const share = world.delivered("cold") * DELIVERY_MS * 2 / (world.clock.monoMs() - startMs);
  ok(share > 0.17 && share < 0.21, `${share}`);
  ok(world.pace.heldCount > 100);
  ok(world.pace.heldMs(world.clock.monoMs()) > 500);
  world.turn.stop();
  equal(world.clock.pendingTimers, 0);
});

Deno.test("a lagging channel that was held goes on at once when the publishing has ended", async () => {
  const world = new World();
  world.published++;
  world.channel("cold", true, 20_000);
  await settle();
  await world.publish(5);
  ok(world.delivered("cold") < 1000);
  await world.clock.run(15);
  equal(world.delivered("cold"), 20_000);
  equal(world.clock.pendingTimers, 0);
});

Deno.test("lagging channels take turns", async () => {
  const world = new World();
  world.published++;
  const names = ["a", "b", "c"];
  for (const name of names) world.channel(name, true);
  await settle();
  await world.publish(200);
  const counts = names.map((name) => world.delivered(name));
  ok(Math.min(...counts) > 200, `${counts}`);
  ok(Math.max(...counts) - Math.min(...counts) <= 2 * SLICE_STEPS, `${counts}`);
  world.turn.stop();
});

Deno.test("a channel that keeps up is dispatched and flushed before any slice of those that lag", async () => {
  const world = new World();
  world.published++;
  world.channel("cold", true);
  await settle();
  await world.publish(3);
  world.events.length = 0;
  world.clock.advance(10);
  world.published++;
  world.channel("hot", false, 3);
  await settle();
  deepEqual(world.events.slice(0, 4), ["hot", "hot", "hot", "flush hot"]);
  ok(world.events.indexOf("cold") > 3);
  world.turn.stop();
});

Deno.test("a channel that has caught up is held no longer", async () => {
  const world = new World();
  world.published++;
  const channel = world.channel("cold", true, 5000);
  await settle();
  await world.publish(10);
  ok(world.delivered("cold") < 1000);
  equal(channel.isLagging, true);
  world.warm("cold");
  await world.publish(10);
  equal(channel.isLagging, false);
  equal(world.delivered("cold"), 5000);
  equal(world.clock.pendingTimers, 0);
});
