/** What becomes of publishes in the spool, whatever brokers, the disk and the gateway do. */
import { deepStrictEqual as equal, match, ok } from "node:assert/strict";
import { utf8Bytes, utf8Text } from "@sluice/shared/protocol";
import { Logger } from "@sluice/shared/telemetry";
import { SeededRandom, settle, SimClock, SimDisk, SimNetwork } from "@sluice/shared/testing";
import { type Deed, FakeBroker } from "./fake_broker_test.ts";
import { BrokerPool, type PoolOptions } from "./pool.ts";
import { Replayer, type ReplayerOptions } from "./replayer.ts";
import { Sequences } from "./sequences.ts";
import { Spool, type SpoolOptions } from "./spool/mod.ts";

const PATH = "/spool";
/** Small enough that no group that is under way when the power goes is large. */
const SPOOL: SpoolOptions = {
  path: PATH,
  bytesMax: 64 * 2 ** 20,
  ageMsMax: 3_600_000,
  fileBytes: 4096,
  recordBytesMax: 64 * 1024,
  heldMax: 64,
  quarantineMax: 10_000,
  reserveBytes: 8192,
};

interface LifeOptions {
  readonly pool?: Partial<PoolOptions>;
  readonly spool?: Partial<SpoolOptions>;
  readonly replayer?: Partial<ReplayerOptions>;
  /** Brokers that discovery lists; all when absent. */
  readonly listed?: readonly FakeBroker[];
}

/** One life of a gateway: what it opens ends with it, what the world has stays. */
class Life {
  readonly lines: string[] = [];
  readonly broken: unknown[] = [];
  readonly sequences = new Sequences();
  readonly pool: BrokerPool;
  readonly replayer: Replayer;

  private constructor(
    readonly world: SpoolWorld,
    readonly spool: Spool,
    /** Names the producer of what is spooled in this life. */
    readonly producer: Uint8Array,
    readonly random: SeededRandom,
    { pool = {}, replayer = {}, listed }: LifeOptions,
  ) {
    const { network, clock } = world;
    const logger = new Logger({ sink: (line) => this.lines.push(line), clock });
    this.pool = new BrokerPool({
      affinity: "spread",
      connectTimeoutMs: 1_000,
      heartbeatIntervalMs: 1_000,
      authSecret: null,
      slowMs: 500,
      ...pool,
    }, { network, clock, random });
    this.replayer = new Replayer({ dedupWindowMs: 540_000, ...replayer }, {
      spool,
      pool: this.pool,
      clock,
      logger,
      onBroken: (error) => this.broken.push(error),
    });
    this.pool.onUsable = () => this.replayer.wake();
    this.list(listed ?? world.brokers);
  }

  static async start(world: SpoolWorld, options: LifeOptions = {}): Promise<Life> {
    const { disk, clock, random } = world;
    const logger = new Logger({ sink: () => {}, clock });
    const spool = await clock.runUntil(
      Spool.open({ disk, clock, logger, onFailed: () => {} }, { ...SPOOL, ...options.spool }),
      60_000,
    );
    return new Life(world, spool, random.bytes(16), random.fork(), options);
  }

  list(brokers: readonly FakeBroker[]): void {
    this.pool.list(new Map(brokers.map((broker) => [broker.id, broker.listed])));
  }

  /** Puts a message into the spool; with a broker it may be there already. */
  append(text: string, topic = "t", broker: string | null = null): Promise<void> {
    return this.spool.append({
      topic,
      isBatch: false,
      messageCount: 1,
      body: utf8Bytes(text),
      dueWallMs: 0,
      producer: this.producer,
      sequence: this.sequences.next(topic),
    }, broker);
  }

  /** Bodies in quarantine with their reasons. */
  async quarantine(): Promise<Map<string, string>> {
    const found = new Map<string, string>();
    for (const { id, reason } of await this.spool.quarantined(0, 100_000)) {
      const body = await this.spool.body(id);
      ok(body !== null, `the body of ${id} is there`);
      found.set(utf8Text(body, 0, body.length), reason);
    }
    return found;
  }

  async stop(): Promise<void> {
    await this.world.clock.runUntil(this.replayer.stop(), 10_000);
    this.pool.close();
    await this.world.clock.runUntil(this.spool.close(), 10_000);
    equal(this.broken, []);
  }

  /** The machine loses power: nothing of this life has any effect any more. */
  async crash(): Promise<void> {
    const { disk, clock } = this.world;
    this.pool.close();
    disk.crash();
    const ends = [this.replayer.stop(), this.spool.close()].map((end) => end.catch(() => {}));
    await clock.runUntil(Promise.all(ends), 60_000);
  }
}

/** What outlives a gateway. */
class SpoolWorld {
  readonly clock = new SimClock();
  readonly network = new SimNetwork();
  readonly random: SeededRandom;
  readonly disk: SimDisk;
  readonly brokers: FakeBroker[];

  constructor(brokers: number, seed = 1) {
    this.random = new SeededRandom(seed);
    this.disk = new SimDisk({ random: this.random.fork(), tornSectorChance: 0.5 });
    this.brokers = Array.from(
      { length: brokers },
      (_, at) => new FakeBroker(this.network, 4150 + at),
    );
  }

  /** Everything that brokers hold. */
  get stored(): string[] {
    return this.brokers.flatMap((broker) => [...broker.stored.values()].flat()).sort();
  }

  async close(): Promise<void> {
    for (const broker of this.brokers) broker.down();
    await settle();
    await this.clock.run(5_000);
    equal([this.network.openEnds, this.clock.pendingTimers, this.disk.openFiles], [0, 0, 0]);
  }
}

function names(count: number, prefix = "m"): string[] {
  return Array.from({ length: count }, (_, at) => `${prefix}${at}`);
}

Deno.test("what is in the spool goes to brokers in its order, a topic to one of them, and is gone from the spool", async () => {
  const world = new SpoolWorld(3);
  const life = await Life.start(world);
  for (const text of names(300)) await life.append(text, `t${Number(text.slice(1)) % 7}`);
  life.replayer.start();
  await world.clock.run(2_000);
  for (let at = 0; at < 7; at++) {
    const holders = world.brokers.filter((broker) => broker.stored.has(`t${at}`));
    equal(holders.length, 1);
    equal(
      holders[0]!.bodies(`t${at}`),
      names(300).filter((text) => Number(text.slice(1)) % 7 === at),
    );
  }
  equal([life.spool.figures.count, life.replayer.heldCount], [0, 0]);
  equal(life.replayer.replayedCount, 300);
  await life.stop();
  await world.close();
});

Deno.test("whose a publish is, is on disk before it is sent: after a crash the same broker gets it, and knows it", async () => {
  const world = new SpoolWorld(3);
  const first = await Life.start(world);
  for (const broker of world.brokers) broker.deed = () => "stored, silent";
  for (const text of names(20)) await first.append(text);
  first.replayer.start();
  await settle();
  await world.clock.run(200);
  const [holder] = world.brokers.filter(({ seen }) => seen.length > 0);
  // It serves one command at a time, and is silent about the first.
  equal(holder!.bodies("t"), ["m0"]);
  await first.crash();
  for (const broker of world.brokers) broker.deed = () => "ok";
  const second = await Life.start(world);
  equal([...second.spool.assignedBrokers()], [holder!.id]);
  second.replayer.start();
  await world.clock.run(5_000);
  equal(holder!.bodies("t"), names(20));
  equal(world.stored.length, 20);
  ok(holder!.repeats >= 1);
  await second.stop();
  await world.close();
});

Deno.test("what a broker certainly has not stored goes to another one, in order", async () => {
  const world = new SpoolWorld(2);
  const life = await Life.start(world);
  const [bad, good] = world.brokers;
  bad!.deed = () => "throttled";
  for (const text of names(30)) await life.append(text);
  life.replayer.start();
  await world.clock.run(10_000);
  equal([bad!.bodies("t"), good!.bodies("t")], [[], names(30)]);
  await life.stop();
  await world.close();
});

Deno.test("a broker that stops and is back keeps nothing from being stored once, in order", async () => {
  const world = new SpoolWorld(1);
  const life = await Life.start(world);
  const [broker] = world.brokers;
  let asked = 0;
  broker!.deed = () => ++asked % 4 === 0 ? "closing" : "ok";
  for (const text of names(30)) await life.append(text);
  life.replayer.start();
  await world.clock.run(10_000);
  equal(broker!.bodies("t"), names(30));
  await life.stop();
  await world.close();
});

Deno.test("a broker that goes away in the middle keeps what it may have, and the rest goes on", async () => {
  const world = new SpoolWorld(2);
  const life = await Life.start(world);
  let asked = 0;
  let away: FakeBroker | null = null;
  for (const broker of world.brokers) {
    broker.deed = () => {
      if (++asked === 6) {
        away = broker;
        broker.down();
        return "stored, no answer";
      }
      return "ok";
    };
  }
  for (const text of names(20)) await life.append(text);
  life.replayer.start();
  await settle();
  ok(away !== null);
  const gone: FakeBroker = away;
  const other = world.brokers.find((broker) => broker !== gone);
  equal(gone.bodies("t"), names(6));
  for (const text of names(20, "n")) await life.append(text);
  life.replayer.wake();
  await world.clock.run(5_000);
  equal(other!.bodies("t"), names(20, "n"));
  equal(gone.bodies("t"), names(6));
  gone.up();
  await world.clock.run(10_000);
  equal([gone.bodies("t"), gone.repeats], [names(20), 1]);
  equal(life.spool.figures.count, 0);
  await life.stop();
  await world.close();
});

Deno.test("poison goes to the quarantine with what the broker said, and what is behind it goes on", async () => {
  const world = new SpoolWorld(1);
  const life = await Life.start(world);
  const [broker] = world.brokers;
  let asked = 0;
  broker!.deed = () => ++asked === 2 ? "bad message" : "ok";
  for (const text of names(5)) await life.append(text);
  life.replayer.start();
  await world.clock.run(5_000);
  equal(broker!.bodies("t"), ["m0", "m2", "m3", "m4"]);
  equal(
    await life.quarantine(),
    new Map([["m1", "E_BAD_MESSAGE SPUB message too big 3 > 2"]]),
  );
  ok(life.lines.some((line) => line.includes("is in quarantine")));
  await life.stop();
  await world.close();
});

Deno.test("what an nsqd may have is not sent again: it goes to the quarantine", async () => {
  const world = new SpoolWorld(1);
  const life = await Life.start(world);
  const [broker] = world.brokers;
  broker!.deduplicates = false;
  let asked = 0;
  broker!.deed = () => ++asked === 1 ? "stored, no answer" : "ok";
  for (const text of names(3)) await life.append(text);
  life.replayer.start();
  await world.clock.run(5_000);
  const quarantine = await life.quarantine();
  match(quarantine.get("m0") ?? "", /^ambiguous: /);
  // Those behind it had left as well.
  equal(new Set([...quarantine.keys(), ...broker!.bodies("t")]), new Set(names(3)));
  equal(broker!.bodies("t").filter((text) => text === "m0").length, 1);
  await life.stop();
  await world.close();
});

Deno.test("what an nsqd may have is not sent again by the next life either", async () => {
  const world = new SpoolWorld(1);
  const [broker] = world.brokers;
  broker!.deduplicates = false;
  broker!.deed = () => "stored, silent";
  const first = await Life.start(world);
  await first.append("m0");
  first.replayer.start();
  await world.clock.run(100);
  await first.crash();
  broker!.deed = () => "ok";
  const second = await Life.start(world);
  second.replayer.start();
  await world.clock.run(5_000);
  equal(broker!.bodies("t"), ["m0"]);
  equal([...(await second.quarantine()).keys()], ["m0"]);
  await second.stop();
  await world.close();
});

Deno.test("what the quarantine has no room for is looked at now and then, and holds up nobody", async () => {
  const world = new SpoolWorld(2);
  const [away, other] = world.brokers;
  away!.down();
  const life = await Life.start(world, {
    replayer: { dedupWindowMs: 1_000 },
    spool: { quarantineMax: 0 },
  });
  let looks = 0;
  const take = life.spool.takeAssigned.bind(life.spool);
  life.spool.takeAssigned = (...args) => {
    looks++;
    return take(...args);
  };
  await life.append("old", "t", away!.id);
  life.replayer.start();
  await world.clock.run(5_000);
  await life.append("new", "u");
  await world.clock.run(5_000);
  ok(looks < 200, `${looks} looks in 10 s`);
  equal(other!.bodies("u"), ["new"]);
  await life.stop();
  await world.close();
});

Deno.test("asleep, it notices what comes for a broker that is there", async () => {
  const world = new SpoolWorld(1);
  const [broker] = world.brokers;
  const life = await Life.start(world);
  life.replayer.start();
  await world.clock.run(60_000);
  await life.append("m0", "t", broker!.id);
  await world.clock.run(1_000);
  equal(broker!.bodies("t"), ["m0"]);
  await life.stop();
  await world.close();
});

Deno.test("what may be at a broker for longer than it remembers producers is not sent any more", async () => {
  const world = new SpoolWorld(2);
  const life = await Life.start(world, { replayer: { dedupWindowMs: 60_000 } });
  const [away, other] = world.brokers;
  await life.append("pinned", "t", away!.id);
  away!.down();
  life.replayer.start();
  await world.clock.run(50_000);
  equal(life.spool.figures.quarantined, 0);
  await life.append("later", "t", away!.id);
  await world.clock.run(15_000);
  equal(
    [...await life.quarantine()],
    [["pinned", `ambiguous: ${away!.id} was away for too long`]],
  );
  away!.up();
  await world.clock.run(5_000);
  equal([away!.bodies("t"), other!.bodies("t")], [["later"], []]);
  await life.stop();
  await world.close();
});

Deno.test("the time that a broker was away counts over a restart of the gateway", async () => {
  const world = new SpoolWorld(1);
  const [away] = world.brokers;
  const first = await Life.start(world, { replayer: { dedupWindowMs: 60_000 } });
  away!.down();
  await first.append("pinned", "t", away!.id);
  await first.stop();
  await world.clock.run(61_000);
  away!.up();
  const second = await Life.start(world, { replayer: { dedupWindowMs: 60_000 } });
  second.replayer.start();
  await world.clock.run(2_000);
  equal([...(await second.quarantine()).keys()], ["pinned"]);
  equal(away!.seen, []);
  await second.stop();
  await world.close();
});

Deno.test("no more is in hand than may be, and it goes on as answers come", async () => {
  const world = new SpoolWorld(1);
  const life = await Life.start(world, { spool: { heldMax: 10 } });
  const [broker] = world.brokers;
  broker!.deed = () => "stored, silent";
  for (const text of names(50)) await life.append(text);
  life.replayer.start();
  await world.clock.run(100);
  equal([life.replayer.heldCount, life.spool.figures.held], [10, 10]);
  broker!.deed = () => "ok";
  broker!.speak();
  await world.clock.run(20_000);
  equal(broker!.bodies("t"), names(50));
  await life.stop();
  await world.close();
});

Deno.test("stopped, it sends nothing more; the next life finishes", async () => {
  const world = new SpoolWorld(1);
  const first = await Life.start(world);
  const [broker] = world.brokers;
  broker!.deed = () => "stored, silent";
  for (const text of names(10)) await first.append(text);
  first.replayer.start();
  await world.clock.run(100);
  await first.stop();
  const { length } = broker!.seen;
  broker!.deed = () => "ok";
  await world.clock.run(10_000);
  equal(broker!.seen.length, length);
  const second = await Life.start(world);
  equal(second.spool.figures.count, 10);
  second.replayer.start();
  await world.clock.run(5_000);
  equal([broker!.bodies("t"), second.spool.figures.count], [names(10), 0]);
  await second.stop();
  await world.close();
});

const DEEDS: readonly Deed[] = [
  ...Array<Deed>(24).fill("ok"),
  "stored, no answer",
  "stored, no answer",
  "lost",
  "throttled",
  "closing",
  "bad message",
  "stored, silent",
  "silent",
];

/** Whether a life could be stopped in order: the power may have gone, or go meanwhile. */
async function stopped(life: Life): Promise<boolean> {
  const { disk } = life.world;
  if (disk.poweredOff) return false;
  try {
    await life.stop();
  } catch (error) {
    if (!disk.poweredOff) throw error;
  }
  return !disk.poweredOff;
}

/** Lives of a gateway among brokers that do anything, and what has to hold when all is over. */
async function play(seed: number): Promise<void> {
  const world = new SpoolWorld(3, seed);
  const random = new SeededRandom(`play ${seed}`);
  const { clock, disk, brokers } = world;
  const options: LifeOptions = {
    spool: { heldMax: random.pick([1, 8, 64]), fileBytes: random.pick([4096, 65_536]) },
    replayer: { dedupWindowMs: random.pick([3_000, 540_000]) },
  };
  for (const broker of brokers) broker.deed = () => random.pick(DEEDS);
  const appended = new Set<string>();
  const tried: string[] = [];
  let life = await Life.start(world, options);
  life.replayer.start();
  const append = async (text: string, broker: string | null) => {
    const { spool } = life;
    tried.push(text);
    try {
      await life.append(text, `t${random.below(4)}`, broker);
      appended.add(text);
    } catch {
      // The disk went away meanwhile: it may be there.
    }
    if (life.spool === spool) life.replayer.wake();
  };
  const restart = async (isOrderly: boolean) => {
    if (!isOrderly || !await stopped(life)) await life.crash();
    while (true) {
      try {
        life = await Life.start(world, options);
        break;
      } catch (error) {
        if (!disk.poweredOff) throw error;
        disk.crash();
      }
    }
    life.replayer.start();
  };
  const appends: Promise<void>[] = [];
  for (let step = 0; step < 40; step++) {
    for (let count = random.below(8); count > 0; count--) {
      const broker = random.chance(0.1) ? random.pick(brokers) : null;
      const text = `m${tried.length}`;
      appends.push(append(text, broker?.id ?? null));
    }
    const broker = random.pick(brokers);
    switch (random.below(9)) {
      case 0:
        broker.down();
        break;
      case 1:
        broker.speak();
        break;
      case 2:
        disk.powerCutAfter(random.between(1, 6), random.pick(["before_effect", "after_effect"]));
        break;
      case 3:
        await restart(false);
        break;
      case 4:
        await restart(true);
        break;
      default:
        broker.up();
    }
    await clock.run(random.below(500));
    if (disk.poweredOff) await restart(false);
  }
  if (disk.poweredOff) await restart(false);
  await restart(false);
  for (const broker of brokers) {
    broker.deed = () => "ok";
    broker.speak();
    broker.up();
  }
  await clock.run(60_000);
  await Promise.all(appends);
  equal(life.broken, []);
  equal(life.spool.figures.count, 0, "the spool is empty");
  const quarantine = await life.quarantine();
  const copies = new Map<string, number>();
  for (const text of world.stored) copies.set(text, (copies.get(text) ?? 0) + 1);
  for (const text of tried) {
    const count = copies.get(text) ?? 0;
    const reason = quarantine.get(text);
    const where = `${text} has ${count} copies and is ${reason ?? "not"} in quarantine`;
    ok(count <= 1, where);
    if (appended.has(text)) ok(count === 1 || reason !== undefined, where);
  }
  equal([...copies.keys(), ...quarantine.keys()].filter((text) => !tried.includes(text)), []);
  await life.stop();
  await world.close();
}

const SEEDS = 40;
Deno.test(`whatever brokers, the disk and the gateway do, what is spooled is stored once or in quarantine (${SEEDS} seeds)`, async () => {
  for (let seed = 1; seed <= SEEDS; seed++) {
    try {
      await play(seed);
    } catch (error) {
      console.error(`seed ${seed}`);
      throw error;
    }
  }
});
