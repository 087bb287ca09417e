/**
 * A spool through several lives on one simulated disk, each ended by a power cut, a crash or a stop at a
 * random moment, and a model that knows what may be found after each.
 */
import { deepEqual, equal, ok } from "node:assert/strict";
import { SeededRandom, settle, SimDisk } from "@sluice/shared/testing";
import { type SpoolEntry, SpoolRefusal } from "./mod.ts";
import { OpenedSpool, publishOf } from "./spool_fixture_test.ts";

const TOPICS = ["a", "b", "c"];
const BROKERS = ["one:4150", "two:4150", "three:4150"];
const ALL = 1_000_000_000;

/** What the model knows of one publish. */
class Known {
  /** `refused`: it must never turn up. */
  outcome: "under way" | "stored" | "maybe" | "refused" = "under way";
  /** `gone` once it is on disk that it is settled; `unsure` when a life has ended before. */
  fate: "owed" | "settling" | "unsure" | "gone" = "owed";
  /** Whose it may be, null for nobody's: the last that is certain, and all that were asked for later. */
  owners: { readonly broker: string | null }[];
  isQuarantined: "no" | "maybe" | "yes" = "no";
  position = -1;
  /** It is on its way into quarantine, or out of it. */
  isBusy = false;

  constructor(
    readonly topic: string,
    readonly number: number,
    readonly pinned: boolean,
    broker: string | null,
  ) {
    this.owners = [{ broker }];
  }

  mayBeOf(broker: string | null): boolean {
    return this.owners.some((owner) => owner.broker === broker);
  }

  get text(): string {
    return `${this.topic} ${this.number}`;
  }
}

/** One seed. Throws where a promise is broken. */
export async function runCrashes(seed: number | string): Promise<{ cuts: number; found: number }> {
  const workload = new Workload(seed);
  return await workload.run();
}

class Workload {
  readonly #random: SeededRandom;
  readonly #disk: SimDisk;
  readonly #known = new Map<string, Known>();
  readonly #counts = new Map<string, number>();
  #hand: SpoolEntry[] = [];
  #opened!: OpenedSpool;
  #found = 0;
  #isFull = false;
  readonly #fillsDisk: boolean;
  #highestFresh = -1;
  #seen = new Set<number>();
  /** What did not hold in a promise that nobody waits for. */
  readonly #broken: unknown[] = [];
  readonly #options;

  constructor(seed: number | string) {
    const random = this.#random = new SeededRandom(seed);
    this.#disk = new SimDisk({
      random: random.fork(),
      extraTurnsMax: random.pick([0, 0, 3]),
      tornSectorChance: 0.3,
    });
    this.#fillsDisk = random.chance(0.3);
    this.#options = {
      fileBytes: random.pick([4096, 4096, 8192, 20_000]),
      heldMax: 10_000,
      quarantineMax: 1000,
    };
  }

  async run(): Promise<{ cuts: number; found: number }> {
    const random = this.#random;
    let cuts = 0;
    const lives = random.between(2, 6);
    for (let life = 0; life < lives; life++) {
      if (random.chance(0.2)) {
        // During the start as well.
        this.#disk.powerCutAfter(
          random.between(1, 25),
          random.pick(["before_effect", "after_effect"]),
        );
      }
      try {
        this.#opened = await OpenedSpool.open(this.#disk, this.#options);
      } catch (error) {
        if (!this.#disk.poweredOff) throw error;
        cuts++;
        this.#disk.crash();
        this.#opened = await OpenedSpool.open(this.#disk, this.#options);
      }
      // Not always: what was not looked at yet is another state to be in.
      if (random.chance(0.6) && !await this.#check()) {
        // The power went while what a start leaves to do was done.
        cuts++;
        this.#opened.kill();
        this.#disk.crash();
        this.#atEndOfLife();
        this.#opened = await OpenedSpool.open(this.#disk, this.#options);
        ok(await this.#check());
      }
      if (random.chance(0.8)) {
        const moment = random.pick(["before_effect", "after_effect"] as const);
        this.#disk.powerCutAfter(random.between(1, random.pick([10, 60, 200])), moment);
      }
      const steps = random.between(5, random.pick([30, 150, 400]));
      for (let step = 0; step < steps && !this.#disk.poweredOff; step++) {
        this.#step(), await this.#pause();
      }
      if (this.#disk.poweredOff || random.chance(0.5)) {
        cuts++;
        this.#opened.kill();
        // Or only the process ends, and what it has written is there.
        if (this.#disk.poweredOff || random.chance(0.7)) this.#disk.crash();
        await settle();
      } else {
        const isClosed = await this.#opened.spool.close().then(() => true, (error) => {
          if (!this.#disk.poweredOff && !this.#isFull) throw error;
          return false;
        });
        await settle();
        if (isClosed) this.#allSettled();
        this.#opened.kill();
        // Also after a stop: what it left has to survive that, and a power cut to come is forgotten.
        this.#disk.crash();
      }
      this.#atEndOfLife();
    }
    this.#disk.crash();
    this.#opened = await OpenedSpool.open(this.#disk, this.#options);
    ok(await this.#check());
    await this.#drain();
    await this.#opened.spool.close();
    equal(this.#disk.openFiles, 0);
    return { cuts, found: this.#found };
  }

  async #pause(): Promise<void> {
    if (this.#random.chance(0.6)) await settle();
    if (this.#random.chance(0.15)) await this.#opened.clock.run(this.#random.between(1, 15));
    if (this.#broken.length > 0) throw this.#broken[0];
  }

  #step(): void {
    const random = this.#random;
    const what = random.below(100);
    if (this.#fillsDisk && random.chance(0.03)) this.#turnDisk();
    if (what < 40) this.#append();
    else if (what < 52) this.#take();
    else if (what < 60) this.#takeAssigned();
    else if (what < 70) this.#assign();
    else if (what < 86) this.#settle();
    else if (what < 90) this.#putBack();
    else if (what < 94) this.#quarantine();
    else this.#fromQuarantine();
  }

  /** The disk is full from now on, or has room again. */
  #turnDisk(): void {
    this.#isFull = !this.#isFull;
    const usedBytes = this.#disk.files().reduce((sum, path) => {
      return sum + this.#disk.bytes(path).length;
    }, 0);
    this.#disk.setCapacity(this.#isFull ? usedBytes + this.#random.below(3000) : 2 ** 40);
  }

  #append(): void {
    const random = this.#random;
    const topic = random.pick(TOPICS);
    const number = (this.#counts.get(topic) ?? 0) + 1;
    this.#counts.set(topic, number);
    const broker = random.chance(0.2) ? random.pick(BROKERS) : null;
    const known = new Known(topic, number, broker !== null, broker);
    this.#known.set(known.text, known);
    const text = known.text + " ".repeat(random.pick([0, 10, 200, 1500]));
    const after = this.#settling();
    this.#opened.spool.append(publishOf(topic, text, number), broker).then(() => {
      known.outcome = "stored";
      markGone(after);
    }, (error) => {
      ok(error instanceof SpoolRefusal, String(error));
      known.outcome = error.mayBeStored ? "maybe" : "refused";
    }).catch((error) => this.#broken.push(error));
    if (broker === null && known.outcome === "under way") {
      // Unless it is refused within the call nothing may overtake it from now on.
      ok(
        this.#opened.failures.length > 0 || this.#opened.spool.figures.isFull ||
          this.#opened.spool.hasBacklog(topic),
      );
    }
  }

  #take(): void {
    const opened = this.#opened;
    const count = this.#random.between(1, 8);
    opened.spool.take(count, this.#random.pick([10, 1000, ALL])).then((entries) => {
      if (opened !== this.#opened) return;
      ok(entries.length <= count);
      for (const entry of entries) {
        const known = this.#handed(entry);
        ok(known.mayBeOf(null), `${known.text} is a broker's`);
        equal(entry.broker, null);
        if (this.#seen.has(entry.position)) continue;
        // What was not seen before in this life comes in order.
        ok(entry.position > this.#highestFresh, `${known.text} is out of order`);
        this.#highestFresh = entry.position;
        this.#seen.add(entry.position);
      }
    }, (error) => ok(this.#disk.poweredOff, String(error))).catch((error) =>
      this.#broken.push(error)
    );
  }

  #takeAssigned(): void {
    const opened = this.#opened;
    const broker = this.#random.pick(BROKERS);
    opened.spool.takeAssigned(broker, this.#random.between(1, 8), ALL).then((entries) => {
      if (opened !== this.#opened) return;
      for (const entry of entries) {
        equal(entry.broker, broker);
        this.#handed(entry);
      }
    }, (error) => ok(this.#disk.poweredOff, String(error))).catch((error) =>
      this.#broken.push(error)
    );
  }

  #handed(entry: SpoolEntry): Known {
    const text = new TextDecoder().decode(entry.publish.body).trimEnd();
    const known = this.#known.get(text);
    ok(known !== undefined, `"${text}" was never appended`);
    this.#found++;
    equal(known.outcome === "refused", false, `${text} had been refused`);
    equal(known.fate === "gone", false, `${text} was settled`);
    ok(
      known.mayBeOf(entry.broker),
      `${known.text} is of ${JSON.stringify(known.owners)}, not of ${entry.broker}`,
    );
    equal(entry.pinned, known.pinned);
    equal(entry.publish.sequence, known.number);
    equal(entry.publish.topic, known.topic);
    if (known.position >= 0) equal(entry.position, known.position);
    known.position = entry.position;
    if (known.fate === "unsure") known.fate = "owed";
    this.#hand.push(entry);
    return known;
  }

  #assign(): void {
    const entries = this.#some(this.#hand);
    // What is settled under way stays in hand for nobody.
    if (entries.length === 0) return;
    const broker = this.#random.pick(BROKERS);
    const knowns = entries.map((entry) => this.#knownOf(entry));
    const owner = { broker };
    for (const known of knowns) known.owners.push(owner);
    const after = this.#settling();
    this.#opened.spool.assign(entries, broker).then(() => {
      // A later one may be on its way already; the earlier ones are over.
      for (const known of knowns) {
        known.owners.splice(0, Math.max(0, known.owners.indexOf(owner)));
      }
      markGone(after);
    }, () => {});
  }

  #settle(): void {
    const entries = this.#some(this.#hand);
    this.#hand = this.#hand.filter((entry) => !entries.includes(entry));
    if (this.#opened.failures.length > 0) return;
    this.#opened.spool.settle(entries);
    for (const entry of entries) this.#knownOf(entry).fate = "settling";
  }

  #putBack(): void {
    const entries = this.#some(this.#hand);
    this.#hand = this.#hand.filter((entry) => !entries.includes(entry));
    this.#opened.spool.putBack(entries);
  }

  #quarantine(): void {
    const [entry] = this.#some(this.#hand);
    if (entry === undefined) return;
    this.#hand = this.#hand.filter((other) => other !== entry);
    const known = this.#knownOf(entry);
    known.isQuarantined = "maybe";
    known.isBusy = true;
    const opened = this.#opened;
    const after = this.#settling();
    opened.spool.quarantine(entry, "poison").then(() => {
      if (opened !== this.#opened) return;
      known.isBusy = false;
      known.isQuarantined = "yes";
      markGone(after);
    }, () => {});
  }

  #fromQuarantine(): void {
    const opened = this.#opened;
    const isRetry = this.#random.chance(0.5);
    void opened.spool.quarantined(0, 100).then((list) => {
      if (list.length === 0 || opened !== this.#opened) return;
      const { id } = this.#random.pick(list);
      const known = [...this.#known.values()].find(({ position }) => position === id);
      ok(known !== undefined, "what is in quarantine was in hand once");
      if (known.isBusy) return;
      known.isBusy = true;
      // It is behind others that were handed out.
      this.#seen.add(id);
      if (isRetry) known.isQuarantined = "maybe";
      else known.fate = "settling";
      const done = isRetry ? opened.spool.retry(id) : opened.spool.drop(id);
      done.then((isDone) => {
        equal(isDone, true);
        if (opened !== this.#opened) return;
        known.isBusy = false;
        if (isRetry) known.isQuarantined = "no";
        else known.fate = "gone";
      }, () => {}).catch((error) => this.#broken.push(error));
    }).catch((error) => this.#broken.push(error));
  }

  /** What is settled by now: on disk as soon as anything that is asked for later is. */
  #settling(): Known[] {
    return [...this.#known.values()].filter(({ fate, isQuarantined }) =>
      fate === "settling" && isQuarantined === "no"
    );
  }

  #allSettled(): void {
    markGone([...this.#known.values()].filter(({ fate }) => fate === "settling"));
  }

  #atEndOfLife(): void {
    if (this.#isFull) this.#turnDisk();
    this.#hand = [];
    this.#highestFresh = -1;
    this.#seen = new Set();
    for (const known of this.#known.values()) {
      known.isBusy = false;
      if (known.fate === "settling") known.fate = "unsure";
      if (known.outcome === "under way") known.outcome = "maybe";
    }
  }

  #knownOf(entry: SpoolEntry): Known {
    return this.#known.get(new TextDecoder().decode(entry.publish.body).trimEnd())!;
  }

  #some<T>(items: readonly T[]): T[] {
    return this.#random.shuffle(items).slice(0, this.#random.between(1, 6));
  }

  /** Looks at all there is after a start, and puts it back. False when the power went meanwhile. */
  async #check(): Promise<boolean> {
    const { spool, lines } = this.#opened;
    const { count, bodyBytes, quarantined, damaged, pinned } = spool.figures;
    const topics = TOPICS.filter((topic) => spool.hasBacklog(topic));
    const free = await spool.take(ALL, ALL).catch(() => []);
    const entries = [...free];
    for (const broker of [...spool.assignedBrokers()]) {
      const assigned = await spool.takeAssigned(broker, ALL, ALL).catch(() => []);
      const positions = assigned.map(({ position }) => position);
      deepEqual(positions, positions.toSorted((a, b) => a - b));
      entries.push(...assigned);
    }
    const list = await spool.quarantined(0, ALL);
    const bodies: (Uint8Array | null)[] = [];
    for (const { id } of list) bodies.push(await spool.body(id).catch(() => null));
    if (this.#disk.poweredOff) return false;
    equal(damaged, 0, lines.join("\n"));
    const found = new Set<Known>();
    for (const entry of entries) {
      const known = this.#handed(entry);
      ok(!found.has(known), `${known.text} is there twice`);
      ok(known.isQuarantined !== "yes", `${known.text} was in quarantine`);
      found.add(known);
      // It is on disk now, whatever was known.
      known.outcome = "stored";
      known.fate = "owed";
      known.isQuarantined = "no";
      known.owners = [{ broker: entry.broker }];
    }
    for (const [index, { id, broker, topic, bodyBytes }] of list.entries()) {
      const body = bodies[index] ?? null;
      ok(body !== null);
      equal(body.length, bodyBytes);
      const known = this.#known.get(new TextDecoder().decode(body).trimEnd());
      this.#seen.add(id);
      ok(known !== undefined && !found.has(known) && known.isQuarantined !== "no");
      ok(known.mayBeOf(broker) && known.fate !== "gone" && known.topic === topic);
      known.fate = "owed";
      known.isQuarantined = "yes";
      known.owners = [{ broker }];
      found.add(known);
    }
    for (const known of this.#known.values()) {
      if (found.has(known)) continue;
      ok(known.outcome !== "stored" || known.fate !== "owed", `${known.text} is lost`);
      known.fate = "gone";
    }
    equal(count, entries.length, "the count is right");
    equal(quarantined, list.length);
    equal(bodyBytes, entries.reduce((sum, { publish }) => sum + publish.body.length, 0));
    equal(pinned, [...found].filter((known) => known.pinned).length);
    deepEqual(
      topics,
      TOPICS.filter((topic) =>
        entries.some((entry) => !entry.pinned && entry.publish.topic === topic)
      ),
    );
    // In the order of the topic.
    for (const topic of TOPICS) {
      const ofTopic = free.filter(({ publish }) => publish.topic === topic);
      const numbers = ofTopic.map(({ publish }) => publish.sequence);
      deepEqual(numbers, numbers.toSorted((a, b) => a - b));
    }
    const { fileBytes, oldestWallMs } = spool.figures;
    ok(fileBytes >= bodyBytes && (oldestWallMs === null) === (count === 0));
    if (this.#random.chance(0.7)) {
      spool.putBack(entries);
      this.#hand = [];
    }
    for (const { position } of entries) this.#seen.add(position);
    this.#highestFresh = Math.max(-1, ...entries.map(({ position }) => position));
    return true;
  }

  /** Settles everything: nothing is owed then, and the files go. */
  async #drain(): Promise<void> {
    const { spool } = this.#opened;
    spool.putBack(this.#hand);
    const entries = await spool.take(ALL, ALL);
    for (const broker of [...spool.assignedBrokers()]) {
      entries.push(...await spool.takeAssigned(broker, ALL, ALL));
    }
    spool.settle(entries);
    for (const { id } of await spool.quarantined(0, ALL)) equal(await spool.drop(id), true);
    await this.#opened.flush();
    // The file that takes appends stays, and grows until it is full.
    for (let count = 0; count < 30; count++) {
      await spool.append(publishOf("a", " ".repeat(1000), 0), null);
      spool.settle(await spool.take(10, ALL));
      await this.#opened.flush();
    }
    const { count, bodyBytes, fileBytes, held, pinned, quarantined, oldestWallMs } = spool.figures;
    deepEqual([count, bodyBytes, held, pinned, quarantined, oldestWallMs], [0, 0, 0, 0, 0, null]);
    ok(fileBytes <= 3 * this.#options.fileBytes, `${fileBytes} bytes are left`);
  }
}

function markGone(knowns: readonly Known[]): void {
  for (const known of knowns) {
    if (known.fate === "settling") known.fate = "gone";
  }
}
