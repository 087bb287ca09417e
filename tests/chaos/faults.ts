/**
 * What is done to the services of a chaos run, at random from a seed: each fault picks its victims among
 * those that nothing is being done to, does its harm, and mends it. Faults of different victims overlap.
 *
 * At most one gateway is away at a time, so that there is always one that must not fail.
 */
import { SystemClock } from "@sluice/shared/runtime/system";
import type { SeededRandom } from "@sluice/shared/testing";
import type { Fleet, Member } from "./fleet.ts";
import type { History } from "./history.ts";

/** What can be done. */
export const FAULTS = [
  "broker killed",
  "broker killed while it starts",
  "broker stopped in order",
  "broker stands still",
  "broker slow",
  "broker full",
  "all brokers away",
  "gateway killed",
  "gateway stopped in order",
  "gateway stands still",
  "gateway with a limited spool",
  "gateway killed while all brokers are away or come back",
  "discovery killed",
  "discovery stands still",
  "all discoveries killed",
] as const;
export type Fault = typeof FAULTS[number];

/** How often each fault is picked, against the others. */
const WEIGHTS: Readonly<Record<Fault, number>> = {
  "broker killed": 6,
  "broker killed while it starts": 1,
  "broker stopped in order": 4,
  "broker stands still": 5,
  "broker slow": 2,
  "broker full": 1,
  "all brokers away": 3,
  "gateway killed": 4,
  "gateway stopped in order": 3,
  "gateway stands still": 2,
  "gateway with a limited spool": 1,
  "gateway killed while all brokers are away or come back": 3,
  "discovery killed": 2,
  "discovery stands still": 1,
  "all discoveries killed": 1,
};

/** How a run is troubled. */
export interface TroubleOptions {
  readonly fleet: Fleet;
  readonly history: History;
  readonly random: SeededRandom;
  readonly log: (line: string) => void;
  /** Multiplies how long things last; 1 for a long run. */
  readonly scale: number;
  /** A topic with a channel that nobody consumes: it fills a broker. */
  readonly fillerTopic: string;
}

/** What is done to all of a kind. */
const FOR_ALL: readonly Fault[] = [
  "all brokers away",
  "all discoveries killed",
  "gateway with a limited spool",
  "gateway killed while all brokers are away or come back",
];

const PAUSE_MS_MAX = 2_500;
const AWAY_MS_MIN = 200;
const AWAY_MS_MAX = 8_000;
const STILL_MS_MIN = 100;
const STILL_MS_MAX = 6_000;
/** A gateway that stands still answers nobody: that may last a little less than clients bear. */
const GATEWAY_STILL_MS_MAX = 3_000;
const STUTTER_MS = 100;
const STUTTERS_MAX = 25;
const FILLER_BYTES = 1_000_000;
/** More than fits a broker. */
const FILLERS_MAX = 80;
/** Starting brokers and bringing what is in a spool there takes about so long. */
const BACK_MS = 2_500;
/** A limited spool takes nothing while its oldest publish has waited for so long. */
const LIMITED_FLAG = "--spool-age-max=1s";

/** See the module. */
export class Trouble {
  readonly counts = new Map<Fault, number>();
  /** What could not be done, or not be mended. */
  readonly mishaps: string[] = [];
  readonly #options: TroubleOptions;
  readonly #clock = new SystemClock();
  /** What something is being done to. */
  readonly #busy = new Set<Member>();
  readonly #under = new Set<Promise<void>>();

  constructor(options: TroubleOptions) {
    this.#options = options;
  }

  /** Makes trouble for so long; resolves when all is mended. */
  async run(durationMs: number): Promise<void> {
    const endMs = performance.now() + durationMs;
    while (performance.now() < endMs) {
      await this.#clock.sleep(this.#ms(0, PAUSE_MS_MAX));
      const fault = this.#pick();
      const victims = await this.#whenFree(fault);
      if (victims === null) continue;
      this.counts.set(fault, (this.counts.get(fault) ?? 0) + 1);
      for (const victim of victims) this.#busy.add(victim);
      const doing = this.#do(fault, victims).catch((error) => {
        this.mishaps.push(`${fault}: ${error instanceof Error ? error.message : error}`);
      }).finally(() => {
        for (const victim of victims) this.#busy.delete(victim);
        this.#under.delete(doing);
      });
      this.#under.add(doing);
    }
    await Promise.all(this.#under);
  }

  #pick(): Fault {
    const { random } = this.#options;
    const total = FAULTS.reduce((sum, fault) => sum + WEIGHTS[fault], 0);
    let at = random.below(total);
    for (const fault of FAULTS) {
      at -= WEIGHTS[fault];
      if (at < 0) return fault;
    }
    return FAULTS[0];
  }

  /** Those it is done to. What is done to all is waited for, or it would hardly ever be done. */
  async #whenFree(fault: Fault): Promise<Member[] | null> {
    for (;;) {
      const victims = this.#victims(fault);
      if (victims !== null || !FOR_ALL.includes(fault)) return victims;
      await Promise.race(this.#under);
    }
  }

  /** Those it is done to; null when somebody has to be left alone for now. */
  #victims(fault: Fault): Member[] | null {
    const { random, fleet } = this.#options;
    const { brokers, gateways, discoveries } = fleet;
    const isFree = (member: Member) => !this.#busy.has(member);
    const one = (members: readonly Member[]) => {
      const free = members.filter(isFree);
      return free.length === 0 ? null : [random.pick(free)];
    };
    const all = (members: readonly Member[]) => members.every(isFree) ? [...members] : null;
    switch (fault) {
      case "broker killed":
      case "broker killed while it starts":
      case "broker stopped in order":
      case "broker stands still":
      case "broker slow":
      case "broker full":
        return one(brokers);
      case "all brokers away":
        return all(brokers);
      case "gateway killed":
      case "gateway stopped in order":
      case "gateway stands still":
        return gateways.every(isFree) ? one(gateways) : null;
      case "gateway with a limited spool":
      case "gateway killed while all brokers are away or come back": {
        const gateway = gateways.every(isFree) ? one(gateways) : null;
        const others = all([...brokers, ...discoveries]);
        return gateway === null || others === null ? null : [...gateway, ...others];
      }
      case "discovery killed":
      case "discovery stands still":
        return one(discoveries);
      case "all discoveries killed":
        return all(discoveries);
    }
  }

  async #do(fault: Fault, victims: readonly Member[]): Promise<void> {
    const [victim] = victims;
    switch (fault) {
      case "broker killed":
      case "gateway killed":
      case "discovery killed":
        return await this.#replaced(victim!, "kill");
      case "broker stopped in order":
      case "gateway stopped in order":
        return await this.#replaced(victim!, "stop");
      case "broker killed while it starts":
        return await this.#killedTwice(victim!);
      case "broker stands still":
      case "discovery stands still":
        return await this.#still(victim!, this.#ms(STILL_MS_MIN, STILL_MS_MAX));
      case "gateway stands still":
        return await this.#still(victim!, this.#ms(STILL_MS_MIN, GATEWAY_STILL_MS_MAX));
      case "broker slow":
        return await this.#stutter(victim!);
      case "broker full":
        return await this.#fill(victim!);
      case "all brokers away":
      case "all discoveries killed":
        return await this.#allAway(victims, this.#ms(1_000, AWAY_MS_MAX));
      case "gateway with a limited spool":
        return await this.#limitedSpool(victim!);
      case "gateway killed while all brokers are away or come back":
        return await this.#killedWithoutBrokers(victim!);
    }
  }

  /** Ends it and starts it again on what it has left. */
  async #replaced(member: Member, how: "kill" | "stop"): Promise<void> {
    const awayMs = this.#ms(AWAY_MS_MIN, AWAY_MS_MAX);
    const back = this.#gone(member);
    this.#log(`${member.name}: ${how}, back in ${awayMs} ms`);
    if (how === "kill") await member.kill();
    else await this.#stopped(member);
    await this.#clock.sleep(awayMs);
    await member.start();
    back();
    this.#log(`${member.name}: back`);
  }

  async #stopped(member: Member): Promise<void> {
    const ended = this.#options.history.span(member.name, "stopping");
    await member.terminate();
    ended();
  }

  async #killedTwice(member: Member): Promise<void> {
    const back = this.#gone(member);
    const runsMs = this.#ms(50, 1_500);
    this.#log(`${member.name}: kill, and again ${runsMs} ms after its start`);
    await member.kill();
    member.spawn();
    await this.#clock.sleep(runsMs);
    await member.kill();
    await member.start();
    back();
    this.#log(`${member.name}: back`);
  }

  async #still(member: Member, stillMs: number): Promise<void> {
    // A gateway that stands still is not gone: who waits gets the answer.
    const back = this.#isGateway(member) ? () => {} : this.#gone(member);
    this.#log(`${member.name}: stands still for ${stillMs} ms`);
    member.pause();
    await this.#clock.sleep(stillMs);
    member.resume();
    back();
    this.#log(`${member.name}: goes on`);
  }

  async #stutter(member: Member): Promise<void> {
    const times = this.#options.random.between(5, STUTTERS_MAX);
    this.#log(`${member.name}: is slow, ${times} times ${STUTTER_MS} ms`);
    const back = this.#gone(member);
    for (let time = 0; time < times; time++) {
      member.pause();
      await this.#clock.sleep(STUTTER_MS);
      member.resume();
      await this.#clock.sleep(STUTTER_MS);
    }
    back();
    this.#log(`${member.name}: is fast again`);
  }

  /** Publishes to a broker what nobody consumes until it takes no more, and empties it after a while. */
  async #fill(member: Member): Promise<void> {
    const { fillerTopic } = this.#options;
    const fullMs = this.#ms(AWAY_MS_MIN, AWAY_MS_MAX);
    const back = this.#gone(member);
    const filler = "x".repeat(FILLER_BYTES);
    let count = 0;
    while (count < FILLERS_MAX) {
      const url = `${member.url}/pub?topic=${fillerTopic}`;
      const response = await fetch(url, { method: "POST", body: filler });
      await response.text();
      if (response.status !== 200) break;
      count++;
    }
    this.#log(`${member.name}: full after ${count} fillers, for ${fullMs} ms`);
    await this.#clock.sleep(fullMs);
    await member.order(`/topic/empty?topic=${fillerTopic}`);
    await member.order(`/channel/empty?topic=${fillerTopic}&channel=c`);
    back();
    this.#log(`${member.name}: emptied`);
  }

  /** Ends all of them at about the same time, each in its way, and starts them again. */
  async #allAway(members: readonly Member[], awayMs: number): Promise<void> {
    const { random } = this.#options;
    const backs = members.map((member) => this.#gone(member));
    this.#log(`${members.map(({ name }) => name).join(", ")}: all away for ${awayMs} ms`);
    await Promise.all(members.map(async (member) => {
      await this.#clock.sleep(random.below(300));
      if (random.chance(0.5)) await member.kill();
      else await member.terminate();
    }));
    await this.#clock.sleep(awayMs);
    await Promise.all(members.map(async (member, index) => {
      await this.#clock.sleep(random.below(1_000));
      await member.start();
      backs[index]!();
      this.#log(`${member.name}: back`);
    }));
  }

  /** A gateway whose spool refuses what is old, while there is no broker for longer than that. */
  async #limitedSpool(gateway: Member): Promise<void> {
    const { history, fleet } = this.#options;
    let back = this.#gone(gateway);
    this.#log(`${gateway.name}: starts again with ${LIMITED_FLAG}`);
    const mended = history.span(gateway.name, "spool limited");
    await this.#stopped(gateway);
    await gateway.start([LIMITED_FLAG]);
    back();
    await this.#allAway(fleet.brokers, this.#ms(2_000, AWAY_MS_MAX));
    await this.#clock.sleep(this.#ms(500, 2_000));
    back = this.#gone(gateway);
    await this.#stopped(gateway);
    await gateway.start();
    mended();
    back();
    this.#log(`${gateway.name}: runs without a limit again`);
  }

  /** While it spools, or while it brings what is in its spool to brokers, one of which may die again. */
  async #killedWithoutBrokers(gateway: Member): Promise<void> {
    const { fleet, random } = this.#options;
    const awayMs = this.#ms(1_000, AWAY_MS_MAX);
    const afterMs = random.below(awayMs + BACK_MS);
    await Promise.all([
      this.#allAway(fleet.brokers, awayMs),
      this.#clock.sleep(afterMs).then(() => this.#replaced(gateway, "kill")),
    ]);
    if (random.chance(0.5)) await this.#replaced(random.pick(fleet.brokers), "kill");
  }

  /** Notes that it is not as it should be; the answer ends that. */
  #gone(member: Member): () => void {
    return this.#options.history.span(member.name, this.#isGateway(member) ? "down" : "away");
  }

  #isGateway(member: Member): boolean {
    return this.#options.fleet.gateways.includes(member);
  }

  #ms(from: number, to: number): number {
    const { random, scale } = this.#options;
    return Math.round(random.between(from, to) * scale);
  }

  #log(line: string): void {
    this.#options.log(line);
  }
}
