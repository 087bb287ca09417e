/** What becomes of publishes, whatever brokers do. */
import { deepStrictEqual as equal, ok } from "node:assert/strict";
import { utf8Bytes, utf8Text } from "@sluice/shared/protocol";
import { SeededRandom, settle } from "@sluice/shared/testing";
import { BrokerWorld, type Deed, SPOOL_PRODUCER } from "./fake_broker_test.ts";
import { type PoolOptions, UNLISTED_MS } from "./pool.ts";
import type { Publish } from "./publish.ts";
import { Publisher, type PublisherOptions, type SpoolDoor } from "./publisher.ts";
import { SpoolRefusal } from "./spool/mod.ts";
import type { Outcome } from "./transit.ts";

/** A spool in memory. */
class HandSpool implements SpoolDoor {
  readonly publishes: Publish[] = [];
  readonly entries: { text: string; topic: string; broker: string | null }[] = [];
  refusal: string | null = null;
  backlog = false;
  isUnsure = false;

  hasBacklog(): boolean {
    return this.backlog;
  }

  append(publish: Publish, broker: string | null): Promise<void> {
    const { body, topic } = publish;
    if (this.refusal !== null) {
      return Promise.reject(new SpoolRefusal("full", this.refusal, this.isUnsure));
    }
    this.publishes.push(publish);
    this.entries.push({ text: utf8Text(body, 0, body.length), topic, broker });
    return Promise.resolve();
  }
}

class Stage {
  readonly world: BrokerWorld;
  readonly publisher: Publisher;
  readonly outcomes = new Map<string, string>();

  constructor(
    count: number,
    readonly spool: HandSpool | null = null,
    seed = 1,
    options: Partial<PublisherOptions> = {},
    pool: Partial<PoolOptions> = {},
  ) {
    this.world = new BrokerWorld(count, seed, pool);
    this.publisher = new Publisher({
      spoolProducer: SPOOL_PRODUCER,
      timeoutMs: 10_000,
      spoolAfterMs: 200,
      bytesMax: 2 ** 20,
      ...options,
    }, { pool: this.world.pool, spool, clock: this.world.clock });
    this.world.pool.onUsable = () => this.publisher.brokersChanged();
  }

  publish(text: string, topic = "t"): void {
    this.publisher.publish({
      topic,
      isBatch: false,
      messageCount: 1,
      body: utf8Bytes(text),
      dueWallMs: 0,
      key: "",
    }, (outcome: Outcome) => {
      ok(!this.outcomes.has(text), `${text} has one outcome`);
      this.outcomes.set(text, outcome.kind);
    });
  }

  /** Everything that brokers hold. */
  get stored(): string[] {
    return this.world.brokers.flatMap((broker) => [...broker.stored.values()].flat()).sort();
  }

  async close(): Promise<void> {
    this.publisher.close();
    this.world.close();
    await settle();
    await this.world.clock.run(5_000);
    equal([this.world.network.openEnds, this.world.clock.pendingTimers], [0, 0]);
  }
}

Deno.test("a publish is confirmed once a broker has it", async () => {
  const stage = new Stage(3);
  await settle();
  for (let at = 0; at < 30; at++) stage.publish(`m${at}`);
  await settle();
  equal([...stage.outcomes.values()], Array(30).fill("confirmed"));
  equal(stage.stored.length, 30);
  ok(stage.world.brokers.every((broker) => broker.bodies("t").length > 0), "all brokers get some");
  equal([stage.publisher.heldCount, stage.publisher.heldBytes], [0, 0]);
  await stage.close();
});

for (const deed of ["throttled", "closing"] as const) {
  Deno.test(`what a broker certainly has not stored (${deed}) goes to another at once, once`, async () => {
    const stage = new Stage(2);
    await settle();
    const [bad, good] = stage.world.brokers;
    bad!.deed = () => deed;
    for (let at = 0; at < 20; at++) stage.publish(`m${at}`);
    await settle();
    equal([...stage.outcomes.values()], Array(20).fill("confirmed"));
    equal([bad!.bodies("t").length, good!.bodies("t").length], [0, 20]);
    ok(stage.publisher.counts.elsewhere > 0);
    await stage.close();
  });
}

Deno.test("a broker that throttles is left alone, tried with one publish, and used again", async () => {
  const stage = new Stage(1);
  await settle();
  const [broker] = stage.world.brokers;
  let refusals = 0;
  broker!.deed = () => refusals++ < 3 ? "throttled" : "ok";
  for (let at = 0; at < 5; at++) stage.publish(`m${at}`);
  await settle();
  equal(stage.outcomes.size, 0);
  await stage.world.clock.run(3_000);
  equal([...stage.outcomes.values()], Array(5).fill("confirmed"));
  equal(stage.stored, ["m0", "m1", "m2", "m3", "m4"]);
  // One at a time: five at first, then two trials that were refused, then all.
  ok(broker!.seen.length <= 1 + 1 + 1 + 5, `${broker!.seen.length} publishes were sent`);
  await stage.close();
});

for (const deed of ["stored, no answer", "lost"] as const) {
  Deno.test(`what has no answer (${deed}) is asked for again at its broker alone, and is there once`, async () => {
    const stage = new Stage(2);
    await settle();
    const first = new Map<unknown, boolean>();
    for (const broker of stage.world.brokers) {
      broker.deed = () => {
        if (first.has(broker)) return "ok";
        first.set(broker, true);
        return deed;
      };
    }
    for (let at = 0; at < 10; at++) stage.publish(`m${at}`);
    await stage.world.clock.run(1_000);
    equal([...stage.outcomes.values()], Array(10).fill("confirmed"));
    equal(stage.stored, Array.from({ length: 10 }, (_, at) => `m${at}`).sort());
    equal(stage.publisher.counts.elsewhere, 0);
    await stage.close();
  });
}

Deno.test("a repeat that is refused stays with the broker that may have it", async () => {
  const stage = new Stage(2, null, 1, {}, { affinity: "hash" });
  await settle();
  let asked = 0;
  for (const broker of stage.world.brokers) {
    broker.deed = () => {
      asked++;
      return asked === 1 ? "stored, no answer" : asked === 2 ? "throttled" : "ok";
    };
  }
  stage.publish("once");
  await stage.world.clock.run(5_000);
  equal(stage.outcomes.get("once"), "confirmed");
  equal(stage.stored, ["once"]);
  await stage.close();
});

Deno.test("without a spool, what has no answer in time is ambiguous, and what nobody takes is throttled", async () => {
  const stage = new Stage(1);
  await settle();
  const [broker] = stage.world.brokers;
  broker!.deed = () => "stored, no answer";
  stage.publish("maybe");
  await settle();
  broker!.down();
  stage.publish("never");
  await stage.world.clock.run(9_000);
  equal(stage.outcomes.size, 0);
  await stage.world.clock.run(2_000);
  equal(Object.fromEntries(stage.outcomes), { maybe: "ambiguous", never: "throttled" });
  await stage.close();
});

Deno.test("with a spool, what nobody takes is spooled, and what a broker may have is spooled for it", async () => {
  const spool = new HandSpool();
  const stage = new Stage(1, spool);
  await settle();
  const [broker] = stage.world.brokers;
  broker!.deed = () => "stored, no answer";
  stage.publish("maybe");
  await settle();
  broker!.down();
  await settle();
  stage.publish("never");
  await stage.world.clock.run(150);
  equal(stage.outcomes.size, 0);
  await stage.world.clock.run(100);
  equal(Object.fromEntries(stage.outcomes), { never: "spooled" });
  stage.publish("later");
  await settle();
  equal(stage.outcomes.get("later"), "spooled");
  await stage.world.clock.run(10_000);
  equal(spool.entries, [
    { text: "never", topic: "t", broker: null },
    { text: "later", topic: "t", broker: null },
    { text: "maybe", topic: "t", broker: broker!.id },
  ]);
  await stage.close();
});

Deno.test("all that have no answer in time are spooled for their broker, however many", async () => {
  const spool = new HandSpool();
  const stage = new Stage(1, spool);
  await settle();
  const [broker] = stage.world.brokers;
  broker!.deed = () => "silent";
  for (let at = 0; at < 20; at++) stage.publish(`m${at}`);
  await stage.world.clock.run(11_000);
  equal([...stage.outcomes.values()], Array(20).fill("spooled"));
  equal(spool.entries.map((entry) => entry.broker), Array(20).fill(broker!.id));
  await stage.close();
});

Deno.test("what is spooled for a broker is not pushed out of what that remembers by later publishes", async () => {
  const spool = new HandSpool();
  const stage = new Stage(1, spool);
  const [broker] = stage.world.brokers;
  broker!.window = 10;
  await settle();
  broker!.deed = () => "stored, no answer";
  stage.publish("maybe");
  await settle();
  broker!.down();
  await stage.world.clock.run(11_000);
  equal(spool.entries.map((entry) => entry.broker), [broker!.id]);
  broker!.deed = () => "ok";
  broker!.up();
  await stage.world.clock.run(3_000);
  for (let at = 0; at < 50; at++) stage.publish(`m${at}`);
  await settle();
  const outcomes: string[] = [];
  stage.world.pool.links.get(broker!.id)!.sendAs({
    publish: spool.publishes[0]!,
    isOver: false,
    mayBeThere: true,
    settled: ({ kind }) => outcomes.push(kind),
  });
  await settle();
  equal([outcomes, broker!.repeats], [["confirmed"], 1]);
  equal(stage.stored.filter((text) => text === "maybe").length, 1);
  await stage.world.clock.run(25_000);
  await stage.close();
});

Deno.test("while a topic has a backlog it goes on into the spool; when that is full, ahead of it", async () => {
  const spool = new HandSpool();
  const stage = new Stage(1, spool);
  await settle();
  spool.backlog = true;
  stage.publish("behind");
  await settle();
  equal(stage.outcomes.get("behind"), "spooled");
  spool.refusal = "the spool is full";
  stage.publish("ahead");
  await settle();
  equal(stage.outcomes.get("ahead"), "confirmed");
  stage.world.brokers[0]!.down();
  await settle();
  stage.publish("refused");
  await stage.world.clock.run(300);
  equal(stage.outcomes.get("refused"), "throttled");
  await stage.close();
});

Deno.test("what the spool may have is ambiguous, and goes nowhere else", async () => {
  const spool = new HandSpool();
  const stage = new Stage(1, spool);
  await settle();
  spool.backlog = true;
  spool.refusal = "the disk has failed";
  spool.isUnsure = true;
  stage.publish("maybe");
  await settle();
  equal(stage.outcomes.get("maybe"), "ambiguous");
  equal(stage.stored, []);
  await stage.close();
});

Deno.test("poison is told to its producer, and what was behind it goes on", async () => {
  const stage = new Stage(1);
  await settle();
  const [broker] = stage.world.brokers;
  let asked = 0;
  broker!.deed = () => asked++ === 0 ? "bad message" : "ok";
  stage.publish("poison");
  stage.publish("good");
  await stage.world.clock.run(1_000);
  equal(Object.fromEntries(stage.outcomes), { poison: "refused", good: "confirmed" });
  equal(stage.stored, ["good"]);
  await stage.close();
});

Deno.test("a repeat that is refused as poison may be stored all the same: it is ambiguous", async () => {
  const stage = new Stage(1);
  await settle();
  const deeds: Deed[] = ["stored, no answer", "bad message"];
  stage.world.brokers[0]!.deed = () => deeds.shift() ?? "ok";
  stage.publish("a");
  await stage.world.clock.run(2_000);
  equal([stage.stored, stage.outcomes.get("a")], [["a"], "ambiguous"]);
  await stage.close();
});

Deno.test("an nsqd gets plain commands, and without its answer nobody knows", async () => {
  const stage = new Stage(1);
  stage.world.brokers[0]!.deduplicates = false;
  await settle();
  stage.publish("plain");
  await settle();
  equal(stage.world.brokers[0]!.seen, ["PUB t"]);
  stage.world.brokers[0]!.deed = () => "lost";
  stage.publish("unknown");
  await settle();
  equal(Object.fromEntries(stage.outcomes), { plain: "confirmed", unknown: "ambiguous" });
  await stage.close();
});

Deno.test("a broker that owes an answer for too long gets nothing more while another can take it", async () => {
  const stage = new Stage(2);
  await settle();
  const [slow, fast] = stage.world.brokers;
  slow!.deed = () => "stored, silent";
  for (let at = 0; at < 8; at++) stage.publish(`m${at}`);
  await stage.world.clock.run(800);
  const before = slow!.seen.length;
  ok(before > 0, "it got some at first");
  for (let at = 0; at < 20; at++) stage.publish(`n${at}`);
  await settle();
  equal(slow!.seen.length, before);
  equal(fast!.bodies("t").filter((text) => text.startsWith("n")).length, 20);
  // A silent one is given up, and asked again when it is back; here it speaks up.
  slow!.deed = () => "ok";
  slow!.speak();
  await stage.world.clock.run(5_000);
  equal(new Set(stage.outcomes.values()), new Set(["confirmed"]));
  equal(stage.stored.length, 28);
  await stage.close();
});

Deno.test("a broker that nobody lists any more is used on for a while, and as long as nobody lists any", async () => {
  const stage = new Stage(2);
  const { pool, clock, brokers } = stage.world;
  await settle();
  const usable = () => pool.usable.map(({ id }) => id).sort();
  const [a, b] = brokers;
  pool.list(new Map());
  await clock.run(3 * UNLISTED_MS);
  equal(usable(), [a!.id, b!.id]);
  pool.list(new Map([[a!.id, a!.listed]]));
  await clock.run(200);
  equal(usable(), [a!.id]);
  stage.world.list();
  await clock.run(200);
  equal(usable(), [a!.id, b!.id]);
  pool.list(new Map([[a!.id, a!.listed]]));
  await clock.run(UNLISTED_MS - 200);
  equal(usable(), [a!.id, b!.id]);
  await clock.run(400);
  equal([usable(), pool.links.size], [[a!.id], 1]);
  await stage.close();
});

Deno.test("memory is bounded: there is room again when publishes end", async () => {
  const stage = new Stage(1, null, 1, { bytesMax: 2_000 });
  stage.world.brokers[0]!.deed = () => "stored, silent";
  await settle();
  for (let at = 0; at < 7; at++) stage.publish(`m${at}`);
  ok(!stage.publisher.hasRoom(500));
  let isRoom = false;
  void stage.publisher.room().then(() => isRoom = true);
  await settle();
  equal(isRoom, false);
  stage.world.brokers[0]!.deed = () => "ok";
  stage.world.brokers[0]!.speak();
  await stage.world.clock.run(5_000);
  ok(isRoom && stage.publisher.hasRoom(500));
  await stage.close();
});

const DEEDS: readonly Deed[] = [
  ...Array<Deed>(30).fill("ok"),
  "stored, no answer",
  "lost",
  "throttled",
  "closing",
  "stored, silent",
  "silent",
];

/** A run in which everything may happen, and what has to hold at its end. */
async function play(seed: number, spooled: boolean): Promise<void> {
  const random = new SeededRandom(seed);
  const spool = spooled ? new HandSpool() : null;
  const stage = new Stage(3, spool, seed, { timeoutMs: 4_000 });
  const { world } = stage;
  for (const broker of world.brokers) broker.deed = () => random.pick(DEEDS);
  let published = 0;
  for (let step = 0; step < 60; step++) {
    const count = random.below(6);
    for (let at = 0; at < count; at++) stage.publish(`m${published++}`, `t${random.below(3)}`);
    const broker = random.pick(world.brokers);
    switch (random.below(8)) {
      case 0:
        broker.down();
        break;
      case 1:
        broker.speak();
        break;
      case 2:
        world.pool.list(
          new Map(
            world.brokers.filter(() => random.below(4) > 0).map((one) => [one.id, one.listed]),
          ),
        );
        break;
      case 3:
        if (spool !== null) spool.refusal = random.below(4) === 0 ? "the spool is full" : null;
        break;
      default:
        broker.up();
    }
    await world.clock.run(random.below(400));
  }
  await world.clock.run(30_000);
  equal(stage.outcomes.size, published, "every publish has an outcome");
  const at = new Map<string, number>();
  for (const text of stage.stored) at.set(text, (at.get(text) ?? 0) + 1);
  const free = new Set((spool?.entries ?? []).filter((e) => e.broker === null).map((e) => e.text));
  const bound = new Map(
    (spool?.entries ?? []).filter((e) => e.broker !== null)
      .map((e) => [e.text, e.broker]),
  );
  for (const [text, outcome] of stage.outcomes) {
    const copies = at.get(text) ?? 0;
    const where = `${text} is ${outcome} with ${copies} copies`;
    ok(copies <= 1, where);
    if (outcome === "confirmed") equal(copies, 1, where);
    if (outcome === "throttled" || outcome === "refused") equal(copies, 0, where);
    if (outcome === "spooled") {
      if (free.has(text)) equal(copies, 0, `${where} and is anybody's in the spool`);
      else ok(bound.has(text), where);
    }
  }
  // What is spooled for a broker is at no other.
  for (const [text, broker] of bound) {
    for (const one of world.brokers) {
      if (one.id !== broker) {
        ok(![...one.stored.values()].flat().includes(text), `${text} at ${one.id}`);
      }
    }
  }
  await stage.close();
}

const SEEDS = 150;
Deno.test(`whatever brokers do, every OK is stored once and nothing else is (${SEEDS} seeds)`, async () => {
  for (let seed = 1; seed <= SEEDS; seed++) {
    try {
      await play(seed, seed % 2 === 0);
    } catch (error) {
      console.error(`seed ${seed}`);
      throw error;
    }
  }
});
