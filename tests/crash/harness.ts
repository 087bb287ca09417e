/**
 * One seed of the crash test: a broker on a simulated disk lives a few lives, each of random work and
 * an end at a random operation, and is held against the model after each start. The last life is a
 * quiet one: everything owed is delivered and finished, and stays so over one more crash.
 *
 * The same seed does the same on every machine. A seed fails with a {@linkcode SeedFailure} that
 * carries what was done and what the disk was asked for.
 */
import { Broker, type BrokerOptions } from "@sluice/broker/broker";
import { type AckMode, DEDUP_LIMITS_DEFAULT, type Quota } from "@sluice/broker/storage";
import { type Disk, DiskError, readWhole } from "@sluice/shared/runtime";
import { Logger } from "@sluice/shared/telemetry";
import { SeededRandom, settle, SimClock, SimDisk } from "@sluice/shared/testing";
import { inspect } from "./inspection.ts";
import { Life, type ReportedGap } from "./life.ts";
import { LifeDisk } from "./life_disk.ts";
import { Model, promised, Violation } from "./model.ts";
import { randomStep } from "./workload.ts";

/** What a run may be told besides its seed. */
export interface SeedOptions {
  /** Puts something between the broker and its disk, to plant a bug. */
  readonly wrapDisk?: (disk: Disk) => Disk;
  /** Is handed each broker that has come up, to plant a bug. */
  readonly opened?: (broker: Broker) => void;
}

/** What a seed did, summed up. */
export interface SeedReport {
  readonly starts: number;
  readonly crashes: number;
  readonly deliveries: number;
  /** Messages of relaxed topics that were written, said so, and went with the power. */
  readonly lostWritten: number;
  readonly diskOperations: number;
  /** Log files that were compacted. */
  readonly compactions: number;
  /** Decisions to give up messages, at a topic's limit or for want of space. */
  readonly trims: number;
  /** Log files that were given up for want of space. */
  readonly evictions: number;
}

/** A seed that found a broken promise. */
export class SeedFailure extends Error {
  override name = "SeedFailure";
  constructor(
    readonly seed: number,
    override readonly cause: Error,
    /** The latest things done, oldest first. */
    readonly work: readonly string[],
    /** The latest disk operations, oldest first. */
    readonly disk: readonly string[],
  ) {
    super(`Seed ${seed}: ${cause.message}`, { cause });
  }

  /** Everything there is to say, for a person. */
  describe(): string {
    return [
      "the disk was asked for:",
      ...this.disk,
      "",
      "what was done:",
      ...this.work,
      "",
      this.message,
      this.cause.stack ?? "",
      `run it again: deno task crash --seed ${this.seed} --seeds 1`,
    ].join("\n");
  }
}

const TRACE_LINES_MAX = 300;
/** A life ends by this many changes of the disk: in the start, soon after it, or much later. */
const CHANGES_MAX = [14, 40, 160, 500];
const NAMES_MAX = [8, 16, 60];
const LIVES_MAX = 6;
const REPORT_BYTES_MAX = 1 << 20;
const STEPS_MAX = [20, 80, 250];
const DATA_PATH = "/data";
const AUDIT_FOLDER = "audit";
const NO_QUOTA: Quota = { bytesMax: 0, action: "refuse" };
/** Small slices, so that work and crashes fall between them. */
const CHECKPOINT_SLICES = [
  {},
  { checkpointSlice: { bytes: 1, work: 1 } },
  { checkpointSlice: { bytes: 100, work: 4 } },
];

/** Runs one seed; rejects with {@linkcode SeedFailure}. */
export async function runSeed(seed: number, options: SeedOptions = {}): Promise<SeedReport> {
  return await new SeedRun(seed, options).run();
}

type LifeEnd = "power" | "kill" | "close";

class SeedRun {
  readonly #seed: number;
  readonly #options: SeedOptions;
  readonly #random: SeededRandom;
  readonly #disk: SimDisk;
  readonly #model: Model;
  readonly #work: string[] = [];
  readonly #brokerOptions: BrokerOptions;
  #wallMs = 1_700_000_000_000;
  #lifeDisk: LifeDisk;
  #broker: Broker | null = null;
  #starts = 0;
  #crashes = 0;
  /** Since the last start only the process has ended, not the machine. */
  #onlyProcess = true;
  #compactions = 0;
  #evictions = 0;
  /** A write or sync was made to fail: an open may fail with it. */
  #faulty = false;

  constructor(seed: number, options: SeedOptions) {
    this.#seed = seed;
    this.#options = options;
    this.#random = new SeededRandom(seed);
    const random = this.#random;
    this.#disk = new SimDisk({
      random: random.fork(),
      extraTurnsMax: random.pick([0, 0, 1, 4]),
      tornSectorChance: random.pick([0, 0, 0.5]),
      traceEntriesMax: TRACE_LINES_MAX,
    });
    this.#lifeDisk = this.#newLifeDisk();
    const relaxed = {
      ackMode: random.pick<AckMode>(["durable", "durable", "write_ack", "nsq_relaxed"]),
      lossWindow: {
        messages: random.pick([3, 20, 2500]),
        bytes: random.pick([2000, 16_384]),
        intervalMs: random.pick([2, 10, 1000]),
      },
    };
    const quota = random.pick<Quota>([
      ...Array(4).fill(NO_QUOTA),
      { bytesMax: 4000, action: "refuse" },
      { bytesMax: 4000, action: "drop_oldest" },
      { bytesMax: 20_000, action: "drop_oldest" },
    ]);
    const logFileBytes = random.pick([4096, 16_384, 32_768]);
    const pressure = random.chance(0.3)
      ? {
        guard: { minFreeBytes: 0, logBytesMax: logFileBytes * random.pick([2, 4]) },
        eviction: { afterMs: random.pick([1, 1, 1500]) },
      }
      : {};
    this.#model = new Model({ ...relaxed, quota });
    this.#brokerOptions = {
      storage: {
        dataPath: DATA_PATH,
        nodeId: { value: 1, required: false },
        ringBytes: 65_536,
        logFileBytes,
        pageCacheBytes: 0,
        indexCacheBytes: 0,
        bodyBytesMax: 8192,
        finishSyncIntervalMs: random.pick([1, 10]),
        ...relaxed,
        compaction: { rateBytes: 2 ** 40, deadBytesMin: 300 },
        // Nobody is forgotten: what is answered as a repeat is what the model has, no more and no less.
        dedup: { ...DEDUP_LIMITS_DEFAULT, windowMs: 2 ** 40 },
        ...random.pick(CHECKPOINT_SLICES),
      },
      channel: { msgTimeoutMsMax: 7_200_000, consumersMax: 0, requeueOnDisconnect: true },
      topicsMax: 100,
      channelsPerTopicMax: 100,
      publishBytesMax: 1 << 20,
      quota,
      ...pressure,
      laggingSharePercent: 20,
    };
  }

  async run(): Promise<SeedReport> {
    try {
      for (let lives = this.#random.between(1, LIVES_MAX); lives > 0; lives--) {
        await this.#liveOnce();
      }
      // A planned failure that has not come yet goes with the power.
      if (this.#faulty) await this.#endLife("power");
      await this.#liveLast();
    } catch (error) {
      const cause = error instanceof Error ? error : new Error(String(error));
      throw new SeedFailure(this.#seed, cause, this.#work, this.#disk.trace.lines());
    }
    return {
      starts: this.#starts,
      crashes: this.#crashes,
      deliveries: this.#model.deliveries,
      lostWritten: this.#model.lostWritten,
      diskOperations: this.#disk.trace.mutations,
      compactions: this.#compactions,
      trims: this.#model.trims,
      evictions: this.#evictions,
    };
  }

  /** A start, random work, and an end at any moment, which may be before the start is done. */
  async #liveOnce(): Promise<void> {
    const random = this.#random;
    const end = random.pick<LifeEnd>(["power", "power", "power", "kill", "kill", "close"]);
    const namesOnly = random.chance(0.3);
    const after = random.between(1, random.pick(namesOnly ? NAMES_MAX : CHANGES_MAX));
    const effectFirst = random.chance(0.5);
    this.#note(`life until ${end} after ${after} changes, names: ${namesOnly}, ${effectFirst}`);
    const moment = effectFirst ? "after_effect" : "before_effect";
    const cutPower = () => this.#disk.powerCutAfter(1, moment);
    if (end !== "close") {
      const plan = { after, namesOnly, effectFirst };
      this.#lifeDisk.endAt(end === "power" ? { ...plan, cutPower } : plan);
    }
    if (random.chance(0.15)) this.#plantFault();
    const life = await this.#open();
    if (life !== null) {
      for (
        let steps = random.between(5, random.pick(STEPS_MAX));
        steps > 0 && !this.#ended(life);
        steps--
      ) {
        if (!await this.#try(life, () => randomStep(life))) break;
      }
      if (end === "close" && !this.#ended(life)) {
        await this.#try(life, () => this.#close(life));
      }
      life.rethrow();
    }
    await this.#endLife(end);
    life?.rethrow();
  }

  /** Delivers and finishes everything, crashes once more, and finds nothing owed. */
  async #liveLast(): Promise<void> {
    const life = await this.#openSurely();
    for (const topic of [...life.broker.topics.values()]) {
      if (topic.state.paused) life.pauseTopic(topic, false);
      if (topic.channels.size === 0) life.channel(topic, "last");
      for (const channel of topic.channels.values()) {
        if (channel.state.paused) life.pauseChannel(topic, channel, false);
        life.credit(life.join(topic, channel, 3_600_000), 1000);
      }
    }
    await life.clock.run(30_000);
    for (const fake of life.consumers) {
      for (const sequence of [...fake.held.keys()]) life.finish(fake, sequence);
    }
    await life.clock.run(2000);
    for (const [topicName, topic] of this.#model.topics) {
      promised(topic.kept.size + topic.held.size === 0, `${topicName} has handed out everything`);
      for (const [name, channel] of topic.channels) {
        promised(channel.owed.size === 0, `${topicName}/${name} has delivered everything`);
      }
    }
    await life.broker.storage.drain();
    await life.broker.storage.maintain();
    await life.clock.runUntil(life.broker.storage.compact(), 10_000);
    life.rethrow();
    await this.#endLife("power");
    const after = await this.#openSurely();
    await this.#close(after);
    await this.#endLife("close");
  }

  /** Opens the broker and inspects it; null when the life ended on the way. */
  async #open(): Promise<Life | null> {
    this.#starts++;
    const clock = new SimClock({ wallMs: this.#wallMs });
    const { wrapDisk } = this.#options;
    const disk = wrapDisk === undefined ? this.#lifeDisk : wrapDisk(this.#lifeDisk);
    const logger = new Logger({ sink: (line) => this.#note(line), clock, level: "warn" });
    let broker: Broker;
    try {
      const random = this.#random.fork();
      broker = await Broker.open({ disk, clock, random, logger }, this.#brokerOptions);
    } catch (error) {
      if (this.#gone || (this.#faulty && error instanceof DiskError)) {
        this.#note(`the start was cut short: ${error}`);
        return null;
      }
      throw new Violation(`the folder does not open after a crash: ${error}`, { cause: error });
    }
    if (this.#gone) return null;
    this.#broker = broker;
    this.#note(`up at ${broker.position}`);
    this.#options.opened?.(broker);
    this.#model.restart(broker.position, this.#onlyProcess);
    this.#onlyProcess = true;
    const life = new Life(
      broker,
      clock,
      this.#model,
      this.#random,
      (line) => this.#note(line),
      () => readReports(disk),
    );
    await this.#try(life, () => inspect(life));
    this.#wallMs = clock.wallMs();
    return life;
  }

  async #openSurely(): Promise<Life> {
    const life = await this.#open();
    promised(life !== null && !this.#ended(life), "a start without a crash succeeds");
    return life;
  }

  async #close(life: Life): Promise<void> {
    this.#note("close");
    await life.clock.runUntil(life.broker.close(), 10_000);
    life.model.confirm(life.broker.position);
  }

  /** Runs something in a life; false when the life ended in it. */
  async #try(life: Life, run: () => Promise<void>): Promise<boolean> {
    try {
      await run();
      life.rethrow();
    } catch (error) {
      const excused = this.#ended(life) || (this.#faulty && error instanceof DiskError);
      if (error instanceof Violation || !excused) throw error;
      this.#note(`ended in an operation: ${error}`);
      return false;
    } finally {
      this.#wallMs = life.clock.wallMs();
    }
    return true;
  }

  #ended(life: Life): boolean {
    return this.#gone || life.broker.failure !== null;
  }

  /** The machine or the process is gone. */
  get #gone(): boolean {
    return this.#disk.poweredOff || this.#lifeDisk.dead;
  }

  async #endLife(end: LifeEnd): Promise<void> {
    this.#compactions += this.#broker?.storage.compaction.filesCompacted ?? 0;
    this.#evictions += this.#broker?.evictor.fileCount ?? 0;
    this.#broker = null;
    // What was under way meets the end of its world before the next life begins.
    if (end === "power") {
      this.#disk.crash();
      this.#onlyProcess = false;
    }
    // A planned failure that has not come is forgotten with a power cut, and may come later without.
    this.#faulty &&= end !== "power";
    this.#lifeDisk.kill();
    this.#note(`end: ${end}`);
    this.#crashes++;
    await settle();
    this.#disk.setCapacity(2 ** 40);
    this.#lifeDisk = this.#newLifeDisk();
    this.#wallMs += this.#random.pick([0, 3, 2000, 10_000]);
  }

  #plantFault(): void {
    const random = this.#random;
    this.#faulty = true;
    const kind = random.below(3);
    this.#note(`fault of kind ${kind} to come`);
    if (kind === 2) {
      this.#disk.setCapacity(this.#usedBytes() + random.between(100, 60_000));
      return;
    }
    this.#disk.failNext({
      operation: kind === 0 ? "write" : "sync",
      kind: "io",
      skip: random.between(0, 60),
    });
  }

  #usedBytes(): number {
    return this.#disk.files().reduce((sum, path) => sum + this.#disk.bytes(path).length, 0);
  }

  #newLifeDisk(): LifeDisk {
    return new LifeDisk(this.#disk);
  }

  #note(line: string): void {
    this.#work.push(line);
    if (this.#work.length > TRACE_LINES_MAX) this.#work.shift();
  }
}

/** All that the reports of evictions say. */
async function readReports(disk: Disk): Promise<ReportedGap[]> {
  const folder = `${DATA_PATH}/${AUDIT_FOLDER}`;
  const gaps: ReportedGap[] = [];
  for (const name of await disk.list(folder)) {
    if (!/^evicted-.*\.jsonl$/.test(name)) continue;
    const text = new TextDecoder().decode(
      await readWhole(disk, `${folder}/${name}`, REPORT_BYTES_MAX),
    );
    const lines = text.split("\n").filter((line) => line !== "");
    gaps.push(...lines.map((line) => JSON.parse(line) as ReportedGap));
  }
  return gaps;
}
