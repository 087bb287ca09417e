/**
 * A whole gateway that is killed and loses power again and again, among brokers that do anything, while
 * producers publish to it: what it answered is true.
 */
import { deepStrictEqual as equal, ok } from "node:assert/strict";
import { utf8Text } from "@sluice/shared/protocol";
import { SeededRandom } from "@sluice/shared/testing";
import type { Deed } from "./fake_broker_test.ts";
import { Machine } from "./machine_test.ts";
import type { Gateway } from "./service.ts";

const FLAGS = [
  "--data-path=/data",
  "--publish-timeout=2s",
  "--spool-after=100ms",
  "--shutdown-timeout=4s",
];
const DEEDS: readonly Deed[] = [
  ...Array<Deed>(16).fill("ok"),
  "stored, no answer",
  "stored, no answer",
  "lost",
  "throttled",
  "throttled",
  "closing",
  "stored, silent",
  "silent",
];

const MOMENTS = ["before_effect", "after_effect"] as const;

/** One publish, of one message or of two. */
interface Sent {
  readonly texts: readonly string[];
  /** Null while there is none, and for good when the gateway died before. */
  status: number | null;
}

/** Lives of a gateway, one after the other. */
class Play {
  readonly machine: Machine;
  readonly random: SeededRandom;
  readonly sent: Sent[] = [];
  #gateway: Gateway | null = null;
  #life = 0;
  readonly #ends: Promise<void>[] = [];

  constructor(readonly seed: number) {
    this.machine = new Machine(3, seed);
    this.random = new SeededRandom(`play ${seed}`);
  }

  get gateway(): Gateway {
    ok(this.#gateway !== null);
    return this.#gateway;
  }

  async start(): Promise<void> {
    const { clock, simDisk } = this.machine;
    while (true) {
      try {
        this.#gateway = await clock.runUntil(this.machine.start(...FLAGS), 10_000);
        return;
      } catch (error) {
        if (!simDisk.poweredOff) throw error;
        simDisk.crash();
      }
    }
  }

  publish(): void {
    const { random, sent } = this;
    const name = `m${sent.length}`;
    const texts = random.chance(0.2) ? [`${name}a`, `${name}b`] : [name];
    const publish: Sent = { texts, status: null };
    sent.push(publish);
    const path = texts.length === 1 ? "/pub" : "/mpub";
    const life = this.#life;
    this.#ends.push((async () => {
      const answer = await this.machine.fetch(
        "POST",
        `${path}?topic=t${random.below(3)}`,
        texts.join("\n"),
      );
      await answer.body?.cancel();
      // What a dead gateway says nobody hears.
      if (life === this.#life) publish.status = answer.status;
    })());
  }

  /** The process ends, and maybe the machine's power. */
  async crash(isPowerLost: boolean): Promise<void> {
    this.#life++;
    this.#ends.push(this.machine.kill(this.gateway));
    if (isPowerLost) this.machine.simDisk.crash();
    await this.start();
  }

  async restart(): Promise<void> {
    const { clock, simDisk } = this.machine;
    const stopping = this.gateway.stop().catch((error) => {
      if (!simDisk.poweredOff) throw error;
    });
    await clock.runUntil(stopping, 20_000);
    this.#life++;
    if (simDisk.poweredOff) simDisk.crash();
    await this.start();
  }

  /** Resolves when everything has been answered, or never will be. */
  async end(): Promise<void> {
    await this.machine.clock.runUntil(Promise.all(this.#ends), 60_000);
  }
}

async function play(seed: number): Promise<void> {
  const play = new Play(seed);
  const { machine, random } = play;
  const { brokers, clock } = machine;
  for (const broker of brokers) broker.deed = () => random.pick(DEEDS);
  await play.start();
  for (let step = 0; step < 40; step++) {
    for (let count = random.below(7); count > 0; count--) play.publish();
    const broker = random.pick(brokers);
    switch (random.below(11)) {
      case 0:
      case 1:
        broker.down();
        break;
      case 2:
        broker.speak();
        break;
      case 3:
        await play.crash(true);
        break;
      case 4:
        await play.crash(false);
        break;
      case 5:
        await play.restart();
        break;
      case 7:
        // Its disk goes first, in the middle of something.
        machine.simDisk.powerCutAfter(random.between(1, 5), random.pick(MOMENTS));
        break;
      case 6:
        if (random.chance(0.3)) { for (const one of brokers) one.down(); }
        break;
      default:
        broker.up();
    }
    await clock.run(random.below(700));
    if (machine.simDisk.poweredOff) await play.crash(true);
  }
  // A power cut to come is forgotten.
  await play.crash(true);
  for (const broker of brokers) {
    broker.deed = () => "ok";
    broker.speak();
    broker.up();
  }
  await play.end();
  await clock.run(60_000);
  const { spool } = play.gateway;
  ok(spool !== null);
  equal([spool.figures.count, machine.broken], [0, []], "the spool is empty");
  const quarantined = new Set<string>();
  for (const { id } of await spool.quarantined(0, 10_000)) {
    const body = await spool.body(id);
    ok(body !== null);
    quarantined.add(utf8Text(body, 0, body.length));
  }
  const copies = new Map<string, number>();
  for (const text of brokers.flatMap((broker) => [...broker.stored.values()].flat())) {
    copies.set(text, (copies.get(text) ?? 0) + 1);
  }
  for (const { texts, status } of play.sent) {
    const counts = texts.map((text) => copies.get(text) ?? 0);
    const isAside = [...quarantined].some((body) => body.endsWith(texts.at(-1)!));
    const where = `${texts} (${status}) has ${counts} copies and is ${isAside ? "" : "not "}aside`;
    ok(new Set(counts).size === 1 && counts[0]! <= 1, where);
    if (status === 200) ok(counts[0] === 1 || isAside, where);
    if (status === 429) ok(counts[0] === 0 && !isAside, where);
    ok([200, 429, 504, null].includes(status), where);
  }
  await machine.stop(play.gateway);
}

const SEEDS = 15;
Deno.test(`whatever ends a gateway, each of its answers is true (${SEEDS} seeds)`, async () => {
  for (let seed = 1; seed <= SEEDS; seed++) {
    try {
      await play(seed);
    } catch (error) {
      console.error(`seed ${seed}`);
      throw error;
    }
  }
});
