/** One way to a broker, on its own: what becomes of publishes in every state of it. */
import { deepStrictEqual as equal, match, ok } from "node:assert/strict";
import { encodeResponseFrame, utf8Bytes } from "@sluice/shared/protocol";
import { SeededRandom, settle, SimClock, SimNetwork } from "@sluice/shared/testing";
import { type Deed, FakeBroker } from "./fake_broker_test.ts";
import {
  IDLE_MS_MAX,
  Lane,
  type LaneEntry,
  type LaneOptions,
  type LaneOutcome,
  RETRY_MS_MAX,
  RETRY_MS_MIN,
} from "./lane.ts";
import type { Publish } from "./publish.ts";

const PRODUCER = new Uint8Array(16).fill(7);

/** A publish with its outcome. */
class Entry implements LaneEntry {
  isOver = false;
  mayBeThere = false;
  outcome: LaneOutcome | null = null;
  readonly publish: Publish;

  constructor(readonly text: string, sequence: number, dueWallMs = 0) {
    this.publish = {
      topic: "t",
      isBatch: false,
      messageCount: 1,
      body: utf8Bytes(text),
      dueWallMs,
      producer: PRODUCER,
      sequence,
    };
  }

  settled(outcome: LaneOutcome): void {
    equal(this.outcome, null, `${this.text} has one outcome`);
    this.isOver = true;
    this.outcome = outcome;
  }

  get kind(): string | null {
    return this.outcome?.kind ?? null;
  }

  get said(): string {
    return this.outcome !== null && "text" in this.outcome ? this.outcome.text : "";
  }
}

class Stage {
  readonly clock = new SimClock();
  readonly network = new SimNetwork();
  readonly broker = new FakeBroker(this.network, 4150);
  readonly lane: Lane;
  /** Whether it was up, at each change. */
  readonly changes: boolean[] = [];
  readonly throttled: string[] = [];
  #count = 0;

  constructor(options: Partial<LaneOptions> = {}, seed = 1, isUp = true) {
    if (!isUp) this.broker.down();
    this.lane = new Lane(
      {
        host: "broker",
        port: 4150,
        producer: PRODUCER,
        connectTimeoutMs: 1_000,
        // Brokers of tests send no heartbeats.
        heartbeatIntervalMs: 60_000,
        authSecret: null,
        isEager: false,
        keepsUnanswered: true,
        ...options,
      },
      { network: this.network, clock: this.clock, random: new SeededRandom(seed) },
      {
        laneChanged: (lane) => this.changes.push(lane.isUp),
        laneThrottled: (_lane, text) => this.throttled.push(text),
      },
    );
  }

  send(...texts: string[]): Entry[] {
    return texts.map((text) => {
      const entry = new Entry(text, this.#count++);
      this.lane.send(entry);
      return entry;
    });
  }

  /** What the broker does with its next publishes; then it is well. */
  deeds(...deeds: Deed[]): void {
    this.broker.deed = () => deeds.shift() ?? "ok";
  }

  get bodies(): string[] {
    return this.broker.bodies("t");
  }

  async close(): Promise<void> {
    this.lane.close();
    this.broker.down();
    await settle();
    equal([this.network.openEnds, this.clock.pendingTimers], [0, 0]);
  }
}

function kinds(entries: readonly Entry[]): (string | null)[] {
  return entries.map(({ kind }) => kind);
}

Deno.test("Lane connects when something is sent, and sends what waited in order", async () => {
  const stage = new Stage();
  await stage.clock.run(5_000);
  equal([stage.lane.isUp, stage.lane.isIdle, stage.network.openEnds], [false, true, 0]);
  const entries = stage.send("a", "b", "c");
  equal(stage.lane.isUp, false);
  await settle();
  equal([stage.lane.isUp, kinds(entries)], [true, Array(3).fill("confirmed")]);
  equal(stage.bodies, ["a", "b", "c"]);
  equal([stage.changes, stage.lane.deduplicates], [[true], true]);
  await stage.close();
});

Deno.test("Lane that is eager connects at once, and again when its connection ends", async () => {
  const stage = new Stage({ isEager: true });
  await settle();
  equal(stage.lane.isUp, true);
  await stage.clock.run(1_000);
  stage.broker.down();
  await settle();
  equal(stage.lane.isUp, false);
  match(stage.lane.reason, /closed the connection/);
  stage.broker.up();
  await stage.clock.run(RETRY_MS_MIN);
  equal([stage.lane.isUp, stage.lane.reason], [true, ""]);
  await stage.close();
});

Deno.test("Lane says that what it could not send is for another broker", async () => {
  const stage = new Stage({}, 1, false);
  const entries = stage.send("a", "b");
  await settle();
  equal(kinds(entries), ["elsewhere", "elsewhere"]);
  match(entries[0]!.said, /Cannot connect to broker:4150: nobody listens/);
  equal([stage.lane.isUp, stage.changes], [false, [false]]);
  await stage.close();
});

Deno.test("Lane leaves out what is over before it is sent, and tells it nothing", async () => {
  const stage = new Stage();
  const [left, kept] = stage.send("left", "kept");
  left!.isOver = true;
  await settle();
  equal([left!.kind, kept!.kind, stage.bodies], [null, "confirmed", ["kept"]]);
  await stage.close();
});

Deno.test("Lane sends repeats first after its connection ended, in order, with their numbers", async () => {
  const stage = new Stage();
  stage.deeds("ok", "stored, no answer");
  const first = stage.send("a", "b", "c", "d");
  await settle();
  equal(kinds(first), ["confirmed", null, null, null]);
  const later = stage.send("e", "f");
  await stage.clock.run(RETRY_MS_MIN);
  equal(kinds([...first, ...later]), Array(6).fill("confirmed"));
  equal([stage.bodies, stage.broker.repeats], [["a", "b", "c", "d", "e", "f"], 1]);
  equal(first.map(({ mayBeThere }) => mayBeThere), [false, true, true, true]);
  await stage.close();
});

Deno.test("Lane does not repeat what is over meanwhile, and rests when nothing is left", async () => {
  const stage = new Stage();
  stage.deeds("lost");
  const [entry] = stage.send("a");
  await settle();
  equal(entry!.kind, null);
  entry!.isOver = true;
  await stage.clock.run(1_000);
  equal(stage.bodies, []);
  await stage.clock.run(IDLE_MS_MAX * 2);
  equal([entry!.kind, stage.lane.isIdle, stage.network.openEnds], [null, true, 0]);
  await stage.close();
});

for (const deed of ["throttled", "closing"] as const) {
  Deno.test(`Lane gives what was refused (${deed}) to another broker, with all behind it`, async () => {
    const stage = new Stage();
    stage.deeds("ok", deed);
    const entries = stage.send("a", "b", "c");
    await settle();
    equal(kinds(entries), ["confirmed", "elsewhere", "elsewhere"]);
    equal(stage.throttled.length, deed === "throttled" ? 1 : 0);
    equal(stage.bodies, ["a"]);
    await stage.close();
  });

  Deno.test(`Lane keeps a repeat that is refused (${deed}): the broker may have it`, async () => {
    const stage = new Stage();
    stage.deeds("stored, no answer", deed, deed);
    const [entry] = stage.send("a");
    await stage.clock.run(5_000);
    equal([entry!.kind, stage.bodies, stage.broker.repeats], ["confirmed", ["a"], 1]);
    await stage.close();
  });
}

Deno.test("Lane says poison of what no broker takes; what is behind it may go elsewhere", async () => {
  const stage = new Stage();
  stage.deeds("bad message");
  const entries = stage.send("a", "b");
  await settle();
  equal(kinds(entries), ["poison", "elsewhere"]);
  equal(entries[0]!.said, "E_BAD_MESSAGE SPUB message too big 3 > 2");
  await stage.close();
});

Deno.test("Lane does not ask an nsqd again: what has no answer is unknowable", async () => {
  const stage = new Stage();
  stage.broker.deduplicates = false;
  stage.deeds("ok", "stored, no answer");
  const entries = stage.send("a", "b");
  await stage.clock.run(1_000);
  equal([kinds(entries), stage.lane.deduplicates], [["confirmed", "unknowable"], false]);
  equal([stage.bodies, stage.broker.seen], [["a", "b"], ["PUB t", "PUB t"]]);
  await stage.close();
});

Deno.test("Lane does not ask a broker again that has become one without numbers", async () => {
  const stage = new Stage();
  stage.deeds("stored, no answer");
  const [entry] = stage.send("a");
  await settle();
  stage.broker.deduplicates = false;
  await stage.clock.run(1_000);
  equal([entry!.kind, stage.bodies], ["unknowable", ["a"]]);
  match(entry!.said, /does not know repeats/);
  await stage.close();
});

Deno.test("Lane says that the broker remembers a number no more", async () => {
  const stage = new Stage();
  stage.broker.window = 2;
  const early = new Entry("early", 0);
  stage.send("a", "b", "c");
  await settle();
  stage.lane.send(early);
  await settle();
  equal(early.kind, "unknowable");
  match(early.said, /^E_SEQUENCE_TOO_OLD/);
  await stage.close();
});

Deno.test("Lane that keeps nothing says at once that there was no answer, and sends no repeat", async () => {
  const stage = new Stage({ keepsUnanswered: false });
  stage.deeds("ok", "stored, no answer");
  const entries = stage.send("a", "b", "c");
  await settle();
  equal(kinds(entries), ["confirmed", "unanswered", "unanswered"]);
  await stage.clock.run(IDLE_MS_MAX);
  equal([stage.bodies, stage.network.openEnds], [["a", "b"], 0]);
  await stage.close();
});

Deno.test("Lane that keeps nothing never says elsewhere of what may be there", async () => {
  for (const isUp of [false, true]) {
    const stage = new Stage({ keepsUnanswered: false }, 1, isUp);
    stage.deeds("throttled");
    const entry = new Entry("a", 0);
    entry.mayBeThere = true;
    stage.lane.send(entry);
    await settle();
    equal(entry.kind, "unanswered", `the broker is ${isUp ? "up" : "down"}`);
    await stage.close();
  }
});

Deno.test("Lane that nobody uses is closed, and connects again when it is used", async () => {
  const stage = new Stage();
  stage.send("a");
  await stage.clock.run(IDLE_MS_MAX - 1);
  equal(stage.lane.isUp, true);
  stage.send("b");
  await stage.clock.run(IDLE_MS_MAX - 1);
  equal(stage.lane.isUp, true);
  await stage.clock.run(IDLE_MS_MAX + 1);
  equal([stage.lane.isUp, stage.lane.isIdle, stage.network.openEnds], [false, true, 0]);
  const [entry] = stage.send("c");
  await settle();
  equal([entry!.kind, stage.bodies], ["confirmed", ["a", "b", "c"]]);
  await stage.close();
});

Deno.test("Lane is not closed while its broker owes an answer", async () => {
  const stage = new Stage();
  stage.deeds("stored, silent");
  const [entry] = stage.send("a");
  await stage.clock.run(IDLE_MS_MAX * 3);
  equal([stage.lane.isUp, entry!.kind], [true, null]);
  stage.broker.speak();
  await settle();
  equal(entry!.kind, "confirmed");
  await stage.close();
});

Deno.test("Lane that is retired goes once nothing is on it, and takes what comes all the same", async () => {
  const stage = new Stage({ isEager: true });
  stage.deeds("stored, silent");
  const [entry] = stage.send("a");
  await settle();
  stage.lane.retire();
  await stage.clock.run(IDLE_MS_MAX * 2);
  equal(stage.lane.isUp, true);
  stage.broker.speak();
  await stage.clock.run(IDLE_MS_MAX * 2);
  equal([entry!.kind, stage.lane.isIdle], ["confirmed", true]);
  const [late] = stage.send("late");
  await settle();
  equal(late!.kind, "confirmed");
  await stage.close();
});

Deno.test("Lane tells for how long its broker has owed an answer", async () => {
  const stage = new Stage();
  stage.deeds("ok", "stored, silent");
  const { clock, lane } = stage;
  stage.send("a");
  await clock.run(1_000);
  equal(lane.owedMs(clock.monoMs()), 0);
  stage.send("b");
  await clock.run(300);
  stage.send("c");
  await clock.run(200);
  equal(lane.owedMs(clock.monoMs()), 500);
  stage.broker.speak();
  await settle();
  equal(lane.owedMs(clock.monoMs()), 0);
  await stage.close();
});

Deno.test("Lane waits longer after each connection that it cannot make, within bounds", async () => {
  for (let seed = 1; seed <= 20; seed++) {
    const stage = new Stage({ isEager: true }, seed, false);
    await settle();
    let baseMs = RETRY_MS_MIN;
    for (let failures = 1; failures <= 10; failures++) {
      const delayMs = stage.clock.nextTimerMs ?? Infinity;
      ok(delayMs >= baseMs / 2 && delayMs <= baseMs * 1.5, `seed ${seed}: ${delayMs} ms`);
      equal(stage.changes.length, failures);
      await stage.clock.run(delayMs);
      baseMs = Math.min(RETRY_MS_MAX, baseMs * 2);
    }
    equal(baseMs, RETRY_MS_MAX);
    stage.broker.up();
    stage.lane.hurry();
    await settle();
    equal(stage.lane.isUp, true, "it tries at once when something says so");
    // The next pause is short again, once the connection has lived for a while.
    await stage.clock.run(1_000);
    stage.broker.down();
    await settle();
    ok((stage.clock.nextTimerMs ?? Infinity) <= RETRY_MS_MIN);
    await stage.close();
  }
});

Deno.test("Lane whose connections are of no use pauses between them, also for what is sent anew", async () => {
  for (const deed of ["lost", "closing"] as const) {
    const stage = new Stage({ keepsUnanswered: false });
    stage.broker.deed = () => deed;
    for (let at = 0; at < 200; at++) {
      stage.send("a");
      await settle();
    }
    ok(stage.broker.seen.length <= 200, `${stage.broker.seen.length}`);
    const before = stage.broker.connectionCount;
    ok(before <= 2, `${before} connections with no time passing`);
    await stage.clock.run(10_000);
    ok(stage.broker.connectionCount <= before + 8);
    await stage.close();
  }
});

Deno.test("Lane sends for how long a message is still deferred; what is due goes without", async () => {
  const stage = new Stage();
  const listener = stage.network.listen("0.0.0.0", 4150);
  stage.broker.down();
  const nowMs = stage.clock.wallMs();
  const due = [nowMs + 5_000, nowMs + 1_000, 0];
  due.forEach((dueWallMs, at) => stage.lane.send(new Entry(`m${at}`, at, dueWallMs)));
  const connection = await listener.accept();
  ok(connection !== null);
  const buffer = new Uint8Array(4096);
  await connection.read(buffer);
  stage.clock.jumpWall(2_000);
  await connection.writeAll(encodeResponseFrame('{"sluice_producer":""}'));
  await settle();
  const bytes = await connection.read(buffer) ?? 0;
  const sent = new TextDecoder().decode(buffer.subarray(0, bytes));
  equal(sent.match(/SPUB .*/g), ["SPUB t 0 3000", "SPUB t 1 0", "SPUB t 2 0"]);
  connection.close();
  listener.close();
  await stage.close();
});

Deno.test("Lane.close() ends everything: what was not sent may go elsewhere, the rest stays unknown", async () => {
  // Connecting.
  let stage = new Stage();
  let entries = stage.send("a", "b");
  entries[0]!.mayBeThere = true;
  stage.lane.close();
  equal(kinds(entries), [null, "elsewhere"]);
  await stage.close();
  // Up, with one on its way and one that is over.
  stage = new Stage();
  stage.deeds("stored, silent");
  entries = stage.send("a", "b");
  await settle();
  entries[1]!.isOver = true;
  stage.lane.close();
  stage.lane.close();
  await settle();
  equal([kinds(entries), stage.lane.isClosed], [[null, null], true]);
  const late = stage.send("late");
  equal(kinds(late), ["elsewhere"]);
  await stage.close();
  // Waiting for the next try, with one to be asked for again and one that was never sent.
  stage = new Stage();
  stage.deeds("lost");
  entries = stage.send("a");
  await settle();
  stage.broker.down();
  entries.push(...stage.send("b"));
  stage.lane.close();
  equal(kinds(entries), [null, "elsewhere"]);
  await stage.clock.run(10_000);
  equal(kinds(entries), [null, "elsewhere"]);
  await stage.close();
});

Deno.test("Lane.close() tells what it does not keep that there is no answer", async () => {
  const stage = new Stage({ keepsUnanswered: false });
  stage.deeds("stored, silent");
  const sent = stage.send("a");
  await settle();
  stage.lane.close();
  equal(kinds(sent), [null]);
  const again = new Entry("b", 9);
  again.mayBeThere = true;
  stage.lane.send(again);
  equal(again.kind, "unanswered");
  await stage.close();
});
