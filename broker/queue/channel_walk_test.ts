/**
 * Random walks of a topic with two channels against a model that knows only which messages each
 * channel has finished, which are in flight and how often each was delivered.
 */
import { deepStrictEqual as equal, ok } from "node:assert/strict";
import { SeededRandom } from "@sluice/shared/testing";
import { World } from "./machine_world_test.ts";

const WALKS = 150;
const STEPS = 120;
const CHANNELS = ["c", "d"] as const;

class ChannelModel {
  readonly finished = new Set<number>();
  readonly inFlight = new Map<number, string>();
  /** Those of them that may have timed out. */
  readonly doubtful = new Set<number>();
  /** Deliveries so far; what a restart may forget is between `durable` and this. */
  readonly attempts = new Map<number, number>();
  readonly durableAttempts = new Map<number, number>();
}

interface ConsumerModel {
  readonly channel: string;
  rdy: number;
  closing: boolean;
}

class Walk {
  readonly world = new World();
  readonly channels = new Map<string, ChannelModel>();
  readonly consumers = new Map<string, ConsumerModel>();
  readonly log: string[] = [];
  #consumerCount = 0;
  #advancing = false;

  constructor(readonly random: SeededRandom) {}

  async step(command: string): Promise<void> {
    this.log.push(command);
    const notes = await this.world.run([command]);
    const [verb = "", name = "", word = ""] = command.split(" ");
    this.#expect(verb, name, word);
    this.#advancing = verb === "advance";
    for (const note of notes) this.#note(note);
    if (this.#advancing) {
      // Any of them may have timed out since.
      for (const { inFlight, doubtful } of this.channels.values()) {
        for (const offset of inFlight.keys()) doubtful.add(offset);
      }
    }
    if (verb === "restart") this.#forget();
    this.#check(notes);
  }

  /** What a command itself does to the model, before its consequences. */
  #expect(verb: string, name: string, word: string): void {
    const consumer = this.consumers.get(name);
    if (verb === "join") {
      this.consumers.set(name, { channel: word.slice("on=".length), rdy: 0, closing: false });
    } else if (verb === "rdy" && consumer !== undefined) consumer.rdy = Number(word);
    else if (verb === "cls" && consumer !== undefined) consumer.closing = true;
    else if (verb === "leave" && consumer !== undefined) {
      this.consumers.delete(name);
      const { inFlight } = this.model(consumer.channel);
      for (const [offset, owner] of inFlight) if (owner === name) inFlight.delete(offset);
    } else if (verb === "channel") {
      this.channels.set(name, new ChannelModel());
    }
  }

  #note(note: string): void {
    const [what, name = "", offsetText = "", more = ""] = note.split(" ");
    const offset = Number(offsetText);
    if (what === "deliver") {
      const consumer = this.consumers.get(name)!;
      const model = this.model(consumer.channel);
      ok(!model.finished.has(offset), `${note}: it is finished`);
      const isHeld = model.inFlight.has(offset) && !model.doubtful.has(offset);
      ok(!isHeld || this.#advancing, `${note}: it is in flight`);
      model.doubtful.delete(offset);
      const attempts = Number(more.slice(1));
      equal(attempts, (model.attempts.get(offset) ?? 0) + 1, note);
      model.attempts.set(offset, attempts);
      model.inFlight.set(offset, name);
      const held = [...model.inFlight].filter(([held, owner]) => {
        return owner === name && !model.doubtful.has(held);
      });
      ok(!consumer.closing && consumer.rdy > 0, `${note}: it wants none`);
      ok(held.length <= consumer.rdy || this.#advancing, `${note}: it wants no more`);
    } else if (what === "finish") {
      const model = this.model(name);
      model.finished.add(offset);
      model.inFlight.delete(offset);
    } else if (what === "requeue") {
      const model = this.model(name);
      model.inFlight.delete(offset);
      model.durableAttempts.set(offset, Number(more.slice(1)));
    } else if (what === "empty") {
      const model = this.model(name);
      for (let below = this.world.startOf(name); below < Number(offsetText.slice(1)); below++) {
        model.finished.add(below);
      }
      model.inFlight.clear();
    }
  }

  #forget(): void {
    this.consumers.clear();
    for (const model of this.channels.values()) {
      model.inFlight.clear();
      model.attempts.clear();
      for (const [offset, attempts] of model.durableAttempts) model.attempts.set(offset, attempts);
    }
  }

  #check(notes: readonly string[]): void {
    for (const [name, model] of this.channels) {
      const [depth, inFlight, deferred] = this.world.counts(name);
      const finished = [...model.finished].filter((offset) => offset < this.world.visibleTail);
      const owed = this.world.visibleTail - Math.min(
        this.world.startOf(name),
        this.world.visibleTail,
      ) - finished.length;
      equal(depth + inFlight + deferred, owed, `${name}: ${notes.join("; ")}`);
      ok(depth >= 0 && inFlight >= 0 && deferred >= 0);
    }
  }

  model(channel: string): ChannelModel {
    return this.channels.get(channel)!;
  }

  /** A command that makes sense now. */
  command(): string {
    const { random } = this;
    const names = [...this.consumers.keys()];
    const channel = random.pick(CHANNELS);
    if (names.length === 0 || (names.length < 5 && random.chance(0.1))) {
      return `join k${this.#consumerCount++} on=${channel} timeout=${random.pick([1000, 3000])}`;
    }
    const name = random.pick(names);
    const { inFlight } = this.model(this.consumers.get(name)!.channel);
    const held = [...inFlight].filter(([, owner]) => owner === name).map(([offset]) => offset);
    const some = held.length > 0 ? random.pick(held) : random.below(10);
    const tail = this.world.visibleTail;
    const commands: readonly [number, string][] = [
      [8, `publish ${random.between(1, 3)}`],
      [3, `publish 1 due=${random.between(1, 3000)}`],
      [2, `publish 1 due=${random.between(1, 500)} hidden`],
      [2, "durable"],
      [8, `rdy ${name} ${random.below(5)}`],
      [16, `fin ${name} ${some}`],
      [4, `req ${name} ${some} 0`],
      [4, `req ${name} ${some} ${random.between(1, 3000)}`],
      [2, `touch ${name} ${some}`],
      [1, `leave ${name}`],
      [1, `cls ${name}`],
      [1, `stuck ${name}`],
      [2, `unstuck ${name}`],
      [1, `pause ${channel}`],
      [2, `unpause ${channel}`],
      [1, "topic-pause"],
      [2, "topic-unpause"],
      [1, `empty ${channel}`],
      [2, `cold ${random.below(tail + 1)}`],
      [3, "loaded"],
      [4, `advance ${random.between(1, 1200)}`],
      [1, "restart"],
    ];
    let at = random.below(commands.reduce((sum, [weight]) => sum + weight, 0));
    for (const [weight, command] of commands) {
      at -= weight;
      if (at < 0) return command;
    }
    return "durable";
  }

  /** Lets everything go and finishes what comes until each channel owes nothing. */
  async drain(): Promise<void> {
    await this.step("restart");
    for (const command of ["durable", "topic-unpause", "unpause c", "unpause d"]) {
      await this.step(command);
    }
    for (const channel of CHANNELS) {
      await this.step(`join last_${channel} on=${channel} timeout=1000000`);
      await this.step(`rdy last_${channel} 100`);
    }
    for (let round = 0; round < 200; round++) {
      await this.step("loaded");
      await this.step("advance 100");
      for (const channel of CHANNELS) {
        for (const offset of [...this.model(channel).inFlight.keys()]) {
          await this.step(`fin last_${channel} ${offset}`);
        }
      }
    }
    for (const channel of CHANNELS) equal(this.world.counts(channel), [0, 0, 0]);
  }
}

Deno.test(`Channel keeps count and owes each message until it is finished, in ${WALKS} random walks`, async () => {
  const base = new SeededRandom("channel walks").u32();
  for (let index = 0; index < WALKS; index++) {
    const walk = new Walk(new SeededRandom(base + index));
    try {
      await walk.step("channel c");
      for (let step = 0; step < STEPS; step++) {
        if (step === 15) await walk.step("channel d");
        else if (step > 15) await walk.step(walk.command());
        else await walk.step(`publish 1${step % 3 === 0 ? " due=700" : ""}`);
      }
      await walk.drain();
    } catch (error) {
      throw new Error(`Seed ${base + index} fails after:\n${walk.log.join("\n")}`, {
        cause: error,
      });
    }
  }
});
