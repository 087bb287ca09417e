/** A broker on a disk that fills up: what it refuses, what goes on, and what is there afterwards. */
import { deepStrictEqual as equal, ok, rejects, throws } from "node:assert/strict";
import { encodeSub, utf8Bytes } from "@sluice/shared/protocol";
import { SeededRandom, settle, SimClock, SimDisk } from "@sluice/shared/testing";
import { type Broker, RefusedError } from "./broker.ts";
import type { Channel, ConsumerPort, MessageView, Topic } from "./queue/mod.ts";
import { HeldDisk, openBroker, pub, sized, World, type WorldOptions } from "./server/world_test.ts";

const WIRE_HEADER_BYTES = 26;
const FILE_BYTES = 32_768;
const RESERVE_BYTES = 200_000;
const CAPACITY_BYTES = 600_000;

function guardedBy(minFreeBytes: number, logBytesMax = 0): WorldOptions {
  return {
    storage: { logFileBytes: FILE_BYTES },
    broker: { guard: { minFreeBytes, logBytesMax } },
  };
}

/** A consumer without a connection that keeps what it is given, and can finish it. */
class Taker implements ConsumerPort {
  readonly writable = true;
  readonly bodies: string[] = [];
  readonly #channel: Channel;
  readonly #consumer;
  #sequences: number[] = [];

  constructor(channel: Channel) {
    this.#channel = channel;
    const consumer = channel.join(this, 60_000, 0);
    ok(consumer !== null);
    this.#consumer = consumer;
    channel.credit(consumer, 1_000_000);
  }

  deliver({ bytes, start, length, sequence }: MessageView): void {
    const body = bytes.subarray(start + WIRE_HEADER_BYTES, start + length);
    this.bodies.push(new TextDecoder().decode(body).replace(/\.*$/, ""));
    this.#sequences.push(sequence);
  }

  channelDeleted(): void {}

  finishAll(): void {
    for (const sequence of this.#sequences) {
      equal(this.#channel.finish(this.#consumer, sequence), "done");
    }
    this.#sequences = [];
  }
}

/** A broker with one topic and channel, on a simulated disk that may be too small. */
class SmallWorld {
  readonly clock: SimClock;
  readonly confirmed: string[] = [];
  count = 0;

  private constructor(
    readonly disk: SimDisk,
    clock: SimClock,
    readonly broker: Broker,
    readonly topic: Topic,
    readonly channel: Channel,
  ) {
    this.clock = clock;
  }

  static async open(disk: SimDisk, options: WorldOptions): Promise<SmallWorld> {
    const clock = new SimClock();
    const broker = await openBroker(new HeldDisk(disk), clock, options);
    const topic = broker.ensureTopic("t");
    const channel = broker.ensureChannel(topic, "c");
    await broker.durableTo(broker.position);
    return new SmallWorld(disk, clock, broker, topic, channel);
  }

  /** Publishes one message of about a kilobyte; false when it is refused. */
  publish(): boolean {
    const { broker } = this;
    try {
      broker.admit();
    } catch (error) {
      ok(error instanceof RefusedError && error.code === "throttled");
      return false;
    }
    if (!broker.hasRoom(1000, 1)) return true;
    const name = `message ${this.count++}`;
    broker.publish(this.topic, utf8Bytes(name.padEnd(1000, ".")), 0, 1000, 0);
    broker.durableTo(broker.position).then(() => this.confirmed.push(name), () => {});
    return true;
  }

  /** Publishes until it is refused, for no longer than it takes to fill any disk of these tests. */
  async fill(): Promise<void> {
    for (let tries = 0; this.publish(); tries++) {
      ok(tries < 5000, "the disk is full in the end");
      await settle();
    }
  }

  async close(): Promise<void> {
    await this.broker.close();
    await settle();
    equal([this.disk.openFiles, this.clock.pendingTimers], [0, 0]);
  }
}

Deno.test("on a disk that is nearly full publishes get E_THROTTLED, and all else goes on", async () => {
  const disk = new SimDisk({ capacityBytes: CAPACITY_BYTES });
  await World.use({ ...guardedBy(RESERVE_BYTES), disk }, async (world) => {
    const consumer = await world.client(encodeSub("t", "c"), "RDY 5\n");
    const early = await world.client(pub("t", "a"), pub("t", "b"));
    equal(early.take(), ["OK", "OK"]);
    disk.setCapacity(RESERVE_BYTES);
    await world.clock.run(1000);
    const batch = Uint8Array.of(0, 0, 0, 1, 0, 0, 0, 1, 65);
    const refused = "the disk is nearly full";
    for (
      const [command, answer] of [
        [pub("t", "x"), `E_THROTTLED PUB ${refused}`],
        [pub("unknown", "x"), `E_THROTTLED PUB ${refused}`],
        [sized("MPUB t\n", batch), `E_THROTTLED MPUB ${refused}`],
        [sized("DPUB t 100\n", utf8Bytes("x")), `E_THROTTLED DPUB ${refused}`],
        // What is wrong for good is said first.
        [sized("PUB t\n", new Uint8Array()), "E_BAD_MESSAGE PUB invalid message body size 0"],
      ] as const
    ) {
      const client = await world.client(command);
      equal(client.take(), [answer, "end"]);
    }
    equal(world.broker.topics.has("unknown"), false);
    equal(world.broker.guard.throttledCount, 4);
    equal(consumer.take(), ["OK", "a #1", "b #1"]);
    await consumer.send(`FIN ${consumer.ids[0]}\n`, `REQ ${consumer.ids[1]} 0\n`);
    await world.clock.run(100);
    equal(consumer.take(), ["b #2"]);
    equal(world.counts("t", "c"), [0, 1, 0]);
    const other = await world.client(encodeSub("fresh", "d"), "RDY 1\n");
    equal(other.take(), ["OK"]);
    world.broker.administration.deleteTopic(world.broker.topics.get("fresh")!);
    await world.broker.durableTo(world.broker.position);
    disk.setCapacity(CAPACITY_BYTES);
    await world.clock.run(1000);
    const late = await world.client(pub("t", "late"));
    equal(late.take(), ["OK"]);
  });
});

Deno.test("publishers that wait for a full disk are told so; what was taken is answered in the end", async () => {
  const disk = new SimDisk({ capacityBytes: CAPACITY_BYTES });
  await World.use({ ...guardedBy(0), disk }, async (world) => {
    const consumer = await world.client(encodeSub("t", "c"), "RDY 100\n");
    const early = await world.client(pub("t", "early"));
    equal([consumer.take(), early.take()], [["OK", "early #1"], ["OK"]]);
    const release = world.disk.hold();
    const taken = await world.client(pub("t", "taken"));
    // Half the ring is what may wait for the disk; the rest stops in front of it.
    const body = "x".repeat(1000);
    const many = await world.client(...Array.from({ length: 40 }, () => pub("t", body)));
    const waiting = await world.client(pub("t", body));
    equal([taken.take(), many.take(), waiting.take()], [[], [], []]);
    disk.setCapacity(0);
    release();
    await settle();
    // The group that was on its way had been written; the next one finds the disk full.
    equal(taken.take(), ["OK"]);
    equal(world.broker.storage.log.stalled?.code, "no_space");
    const { status, delivering, reasons } = world.broker.health();
    equal([status, delivering], ["degraded", true]);
    equal(reasons.map(({ code }) => code), ["log_stalled", "disk_pressure"]);
    equal(waiting.take(), ["E_THROTTLED PUB the disk is full", "end"]);
    const fresh = await world.client(pub("t", "fresh"));
    equal(fresh.take(), ["E_THROTTLED PUB the disk is full", "end"]);
    // Consuming goes on, and a FIN has no reply.
    equal(consumer.take(), ["taken #1"]);
    await consumer.send(...consumer.ids.map((id) => `FIN ${id}\n`));
    await world.clock.run(5000);
    equal([consumer.take(), world.failures, early.state], [[], [], "open"]);
    disk.setCapacity(CAPACITY_BYTES);
    await world.clock.run(1000);
    equal(world.broker.storage.log.stalled, null);
    const answers = many.take();
    const oks = answers.filter((answer) => answer === "OK").length;
    equal(answers.slice(oks), ["E_THROTTLED PUB the disk is full", "end"]);
    equal(consumer.take().length, oks);
    await world.clock.run(1000);
    const late = await world.client(pub("t", "late"));
    equal(late.take(), ["OK"]);
    equal(world.broker.health().status, "ok");
  });
});

Deno.test("an MPUB is refused whole when it would pass the limit of the log, never in the middle", async () => {
  await World.use(guardedBy(0, 4 * FILE_BYTES), async (world) => {
    const message = [0, 0, 3, 0xe8, ...new Uint8Array(1000).fill(65)];
    const batch = Uint8Array.from([0, 0, 0, 4, ...message, ...message, ...message, ...message]);
    let answered = 0;
    for (; answered < 100; answered++) {
      const client = await world.client(sized("MPUB t\n", batch));
      const [answer] = client.take();
      if (answer !== "OK") {
        equal(answer, "E_THROTTLED MPUB the log has reached its limit");
        break;
      }
    }
    const messages = world.broker.topics.get("t")!.messageCount;
    equal(messages, answered * 4);
    ok(answered > 20 && answered < 40);
  });
});

Deno.test("a full disk is drained by consumers, given back, and filled again, over and over", async () => {
  const disk = new SimDisk({ capacityBytes: CAPACITY_BYTES });
  const world = await SmallWorld.open(disk, guardedBy(RESERVE_BYTES));
  const { broker, clock, channel } = world;
  const taker = new Taker(channel);
  for (let round = 0; round < 5; round++) {
    const before = world.confirmed.length;
    await world.fill();
    await clock.run(50);
    equal(broker.storage.log.stalled, null);
    const { freeBytes } = await disk.space("/data");
    ok(freeBytes > RESERVE_BYTES - 2 * FILE_BYTES, "the reserve is not used up");
    ok(world.confirmed.length >= before + 100, "each round has room for new messages");
    // Nothing comes back while consumers lag.
    await clock.run(5000);
    equal(world.publish(), false);
    taker.finishAll();
    await clock.run(3000);
    equal(broker.guard.isClosed, false);
  }
  equal(taker.bodies, world.confirmed);
  equal([channel.depth, channel.inFlightCount], [0, 0]);
  await world.close();
});

Deno.test("the limit of the log alone is kept, and space comes back without a new file", async () => {
  const logBytesMax = 4 * FILE_BYTES;
  const world = await SmallWorld.open(new SimDisk(), guardedBy(0, logBytesMax));
  const { broker, clock, channel } = world;
  const taker = new Taker(channel);
  const logBytes = () => broker.position - broker.storage.logFiles[0]!.start;
  for (let round = 0; round < 4; round++) {
    await world.fill();
    await clock.run(50);
    ok(logBytes() >= logBytesMax && logBytes() < logBytesMax + 4096);
    taker.finishAll();
    await clock.run(3000);
    equal(broker.guard.isClosed, false);
  }
  equal(taker.bodies, world.confirmed);
  await world.close();
});

Deno.test("a broker that waits for space is stopped at once, and has lost nothing confirmed", async () => {
  const disk = new SimDisk({ capacityBytes: CAPACITY_BYTES });
  const first = await SmallWorld.open(disk, guardedBy(0));
  await first.fill();
  const { broker } = first;
  ok(broker.storage.log.stalled !== null);
  const failures: Error[] = [];
  broker.onFailure = (error) => failures.push(error);
  throws(() => broker.admit(), { code: "throttled", message: "the disk is full" });
  await rejects(broker.close(), { code: "sealed" });
  equal([failures.length, disk.openFiles, first.clock.pendingTimers], [1, 0, 0]);
  disk.setCapacity(2 * CAPACITY_BYTES);
  const second = await SmallWorld.open(disk, guardedBy(0));
  const taker = new Taker(second.channel);
  await settle();
  equal(taker.bodies.slice(0, first.confirmed.length), first.confirmed);
  await second.close();
});

Deno.test("a checkpoint that does not fit costs nothing, and is made up for when there is space", async () => {
  const disk = new SimDisk();
  const world = await SmallWorld.open(disk, guardedBy(0));
  const { broker, clock } = world;
  const taker = new Taker(world.channel);
  for (let count = 0; count < 100; count++) {
    world.publish();
    await settle();
  }
  const before = disk.files();
  disk.setCapacity(0);
  await clock.run(3000);
  equal(broker.storage.counters.checkpoints, 0);
  equal(disk.files().filter((path) => path.endsWith(".tmp")), []);
  equal(disk.files(), before);
  disk.setCapacity(2 ** 30);
  taker.finishAll();
  await clock.run(3000);
  equal(broker.storage.counters.checkpoints > 0, true);
  await world.close();
});

Deno.test("nothing confirmed is lost when the power is cut on a full disk", async () => {
  let stalls = 0;
  for (let seed = 0; seed < 60; seed++) {
    const random = new SeededRandom(seed);
    const disk = new SimDisk({ random: random.fork(), tornSectorChance: 0.3 });
    const options = guardedBy(random.pick([0, 0, 60_000]));
    const owed = new Set<string>();
    const finished = new Set<string>();
    let count = 0;
    for (let life = 0; life < 3; life++) {
      disk.setCapacity(2 ** 30);
      const world = await SmallWorld.open(disk, options);
      world.count = count;
      const taker = new Taker(world.channel);
      await settle();
      for (const body of owed) ok(taker.bodies.includes(body), `seed ${seed}: ${body} is owed`);
      const used = disk.files().reduce((sum, path) => sum + disk.bytes(path).length, 0);
      disk.setCapacity(used + random.between(1000, 200_000));
      for (let step = random.between(20, 300); step > 0; step--) {
        world.publish();
        if (random.chance(0.5)) await settle();
        if (random.chance(0.05)) await world.clock.run(random.between(1, 1500));
        if (random.chance(0.03) && world.broker.hasRoom(1000, 1)) {
          // From here on a crash may or may not bring them back.
          for (const body of taker.bodies) finished.add(body);
          taker.finishAll();
        }
        if (random.chance(0.02)) disk.setCapacity(used + random.between(1000, 300_000));
      }
      if (world.broker.storage.log.stalled !== null) stalls++;
      equal(world.broker.failure, null);
      for (const body of world.confirmed) owed.add(body);
      for (const body of finished) owed.delete(body);
      count = world.count;
      const abandoned = world.broker.abandon();
      disk.crash();
      await abandoned.catch(() => {});
      await settle();
    }
  }
  ok(stalls > 20, `the disk was full ${stalls} times`);
});
