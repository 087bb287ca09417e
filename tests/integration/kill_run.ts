/**
 * Kills real brokers with SIGKILL at moments of all kinds, round after round on one folder, and
 * judges what is left: see `kill_traffic.ts` and `kill_lane.ts` for what they are under.
 *
 * The choices come from the seed; time is real, so two runs of one seed are alike and not the same.
 * The page cache outlives a killed process, so this cannot tell a missing sync; tests/crash can.
 */
import { equal } from "node:assert/strict";
import { SeededRandom } from "@sluice/shared/testing";
import { Lane } from "./kill_lane.ts";
import { type Load, traffic } from "./kill_traffic.ts";
import { Ledger, nameOf } from "./ledger.ts";
import { runToEnd, Service } from "./process.ts";
import { RawClient } from "./raw_client.ts";
import { eventually } from "./wait.ts";

/**
 * When a broker is killed: at any time, once little is confirmed, while it starts, while it stops, when
 * a log file is made, when a checkpoint is begun, when a log file is removed, when one is compacted.
 */
export type Moment =
  | "time"
  | "few"
  | "start"
  | "stop"
  | "file"
  | "checkpoint"
  | "removal"
  | "compaction";

const SCHEDULE: readonly Moment[] = [
  "time",
  "start",
  "file",
  "checkpoint",
  "removal",
  "few",
  "compaction",
  "stop",
  "time",
  "checkpoint",
  "removal",
  "compaction",
];

/** How a run goes. */
export interface KillRunOptions {
  readonly path: string;
  readonly rounds: number;
  readonly seed: number;
  /** A round that waits for a time takes up to so long. */
  readonly secondsPerRound: number;
  readonly progress?: (line: string) => void;
  /** Called after each round, to do to the folder what no broker would. */
  readonly tamper?: (round: number) => Promise<void>;
}

/** How a run came out. */
export interface KillReport {
  readonly kills: Readonly<Record<Moment, number>>;
  readonly acts: number;
  /** Log files that were compacted, at least. */
  readonly compacted: number;
  readonly ledger: Ledger;
  readonly summary: string;
}

/**
 * Small files, so that rolling, checkpoints, removal and compaction happen under the kills. A file has to
 * have a mebibyte of what is dead before it is compacted.
 */
const BROKER_FLAGS = [
  "--log-file-bytes=2MiB",
  "--ring-bytes=2MiB",
  "--max-body-size=10MiB",
  "--max-msg-size=10MiB",
];
/** So often a broker is asked what it has compacted. */
const ASK_MS = 200;
/** A round has the next one: a kill takes nothing that was confirmed in any of them. */
const ACK_MODES = ["durable", "write_ack", "nsq_relaxed"];
/** The rounds with large messages; the others leave files that can be compacted. */
const WITH_LARGE: readonly Moment[] = ["time", "few", "stop", "file", "checkpoint"];
const LANES = 3;
const FEW_MAX = 10;
/** A moment that does not come is given up. It may take two checkpoints, on a machine with much to do. */
const MOMENT_MS_MAX = 10_000;
/** Changes of the folder before a kill in a start or a stop. */
const CHANGES_MAX = 8;
/** A kill in a compaction is in one of the first that a process begins. */
const COMPACTIONS = [1, 3, 4];
/** A change is seen before what follows it: the kill comes up to so much later. */
const SEEN_MS_MAX = 4;
/** What is deferred waits for some rounds. */
const LATER_ROUNDS_MAX = 3;

/** Runs all rounds and judges what is left. What was broken is in the ledger's problems. */
export async function runKills(options: KillRunOptions): Promise<KillReport> {
  return await new KillRun(options).run();
}

class KillRun {
  readonly #options: KillRunOptions;
  readonly #random: SeededRandom;
  readonly #ledger = new Ledger();
  readonly #lanes: Lane[];
  readonly #kills: Record<Moment, number> = {
    time: 0,
    few: 0,
    start: 0,
    stop: 0,
    file: 0,
    checkpoint: 0,
    removal: 0,
    compaction: 0,
  };
  /** Files compacted, by what the processes said last. */
  #compacted = 0;

  constructor(options: KillRunOptions) {
    this.#options = options;
    this.#random = new SeededRandom(options.seed);
    this.#lanes = Array.from(
      { length: LANES },
      (_, number) => new Lane(`lane${number}`, this.#ledger, this.#random.fork()),
    );
  }

  async run(): Promise<KillReport> {
    const { rounds, path, progress = () => {}, tamper = async () => {} } = this.#options;
    for (let round = 0; round < rounds; round++) {
      const moment = SCHEDULE[round % SCHEDULE.length]!;
      let killedAt: Moment | null = moment;
      if (moment === "start") {
        await this.#killInStart(round);
      } else {
        await using broker = await Service.broker(path, flagsOf(round));
        if (round === 0) await this.#createTopics(broker);
        for (const lane of this.#lanes) await lane.settle(broker);
        // Nothing of the older log files is owed to anybody after this.
        if (moment === "removal") await this.#drainAll(broker);
        this.#checkLog(broker);
        killedAt = await this.#loadAndKill(broker, moment);
      }
      this.#kills[killedAt]++;
      await tamper(round);
      const { confirmedCount, delivered, problems } = this.#ledger;
      progress(
        `round ${round + 1} of ${rounds}: killed at ${killedAt}, ${confirmedCount} confirmed, ` +
          `${delivered} delivered, ${problems.length} problems`,
      );
    }
    await this.#judge();
    return {
      kills: this.#kills,
      acts: this.#lanes.reduce((sum, { acts }) => sum + acts, 0),
      compacted: this.#compacted,
      ledger: this.#ledger,
      summary: this.#summary(),
    };
  }

  async #createTopics(broker: Service): Promise<void> {
    await broker.createChannels("orders", "worked", "slow");
    await broker.createChannels("later", "c");
    await broker.createChannels("far", "c");
    await broker.createChannels("large", "c");
  }

  /** Has everything delivered that is due within the run, and what is not given up. */
  async #drainAll(broker: Service): Promise<void> {
    // Only now: until its first channel is there, a topic keeps its messages.
    await broker.createChannels("alone", "late");
    await this.#drain(broker, "orders", "worked");
    await this.#drain(broker, "orders", "slow");
    await this.#drain(broker, "alone", "late");
    await this.#drain(broker, "later", "c");
    await this.#drain(broker, "large", "c");
    await this.#countFar(broker);
    await broker.order("/channel/empty?topic=far&channel=c");
    equal((await broker.channel("far", "c"))?.deferred_count, 0);
    this.#ledger.giveUp("far");
  }

  /** What is deferred beyond the run cannot be seen, but counted. */
  async #countFar(broker: Service): Promise<void> {
    const confirmed = [...this.#ledger.confirmed].filter((name) => name.startsWith("far ")).length;
    const count = (await broker.channel("far", "c"))?.deferred_count ?? 0;
    if (count < confirmed) {
      this.#ledger.problem("missing", `${count} of ${confirmed} far messages are deferred`);
    }
  }

  /** Publishes and consumes up to the moment, and kills the broker right then. Returns what it was. */
  async #loadAndKill(broker: Service, moment: Moment): Promise<Moment> {
    const { path, secondsPerRound } = this.#options;
    const random = this.#random;
    const ledger = this.#ledger;
    const roundMsMax = Math.ceil(secondsPerRound * 1_000);
    let reached: Moment = "time";
    let killing: Promise<void> | null = null;
    const kill = (at: Moment, delayMs = 0) => {
      if (killing !== null) return;
      reached = at;
      killing = broker.killAfter(delayMs);
    };
    const few = moment === "few" ? ledger.confirmed.size + 1 + random.below(FEW_MAX) : Infinity;
    const load: Load = {
      broker,
      ledger,
      random,
      isLarge: WITH_LARGE.includes(moment),
      laterMsMax: roundMsMax * LATER_ROUNDS_MAX,
      stopping: false,
      confirmed: () => ledger.confirmed.size >= few && kill("few"),
    };
    let changesLeft = 1 + random.below(CHANGES_MAX);
    let compactionsLeft = random.pick(COMPACTIONS);
    const watcher = Deno.watchFs(path);
    const watching = watchFolder(watcher, (event) => {
      if (moment === "stop") {
        if (load.stopping && --changesLeft === 0) kill("stop");
      } else if (isMoment(moment, event) && (moment !== "compaction" || --compactionsLeft === 0)) {
        kill(moment, random.below(SEEN_MS_MAX));
      }
    });
    const isTimed = moment === "time" || moment === "stop";
    const roundMs = isTimed ? random.below(roundMsMax) : MOMENT_MS_MAX;
    const work = [
      traffic(load),
      this.#watchCompaction(broker),
      ...this.#lanes.map((lane) => lane.run(broker)),
    ];
    await Promise.race([
      broker.endsWithin(roundMs),
      Promise.all(work),
    ]);
    if (killing === null && moment === "stop") {
      load.stopping = true;
      broker.askToStop();
      await broker.endsWithin(MOMENT_MS_MAX);
      reached = "stop";
    } else kill("time");
    await Promise.all(work);
    await killing;
    watcher.close();
    await watching;
    if (broker.code !== 137 && !(moment === "stop" && broker.code === 0)) {
      this.#ledger.problem("undone", `the broker ended with ${broker.code}: ${tail(broker)}`);
    }
    this.#checkLog(broker);
    return reached;
  }

  /** Adds what a broker has compacted, as far as it could tell before it was gone. */
  async #watchCompaction(broker: Service): Promise<void> {
    let compacted = 0;
    while (!await broker.endsWithin(ASK_MS)) {
      // A killed broker resets what is asked of it.
      const answer = await broker.get("/metrics").catch(() => null);
      const value = /^sluice_log_files_compacted_total (\d+)/m.exec(answer?.text ?? "")?.[1];
      if (value !== undefined) compacted = Number(value);
    }
    this.#compacted += compacted;
  }

  /** Kills a broker at one of the first changes that its start makes of the folder. */
  async #killInStart(round: number): Promise<void> {
    const { path } = this.#options;
    const watcher = Deno.watchFs(path);
    let changesLeft = 1 + this.#random.below(CHANGES_MAX);
    await using broker = Service.spawn("broker", [`--data-path=${path}`, ...flagsOf(round)]);
    const watching = watchFolder(watcher, () => --changesLeft === 0 && void broker.kill());
    await Promise.race([
      broker.logged(/TCP: listening/).catch(() => {}),
      broker.endsWithin(10_000),
    ]);
    await broker.kill();
    watcher.close();
    await watching;
    this.#checkLog(broker);
  }

  /** A killed broker damages nothing, and nothing of it is an error. */
  #checkLog(broker: Service): void {
    for (const line of broker.lines) {
      if (/"level":"(?:error|fatal)"|damaged|Uncaught|panicked/.test(line)) {
        this.#ledger.problem("undone", `the broker logs ${line}`);
      }
    }
  }

  /** Receives and finishes everything that a channel holds, each message exactly once. */
  async #drain(broker: Service, topic: string, channel: string): Promise<void> {
    const key = `${topic}/${channel}`;
    const ledger = this.#ledger;
    const { finished } = ledger.channel(key);
    await using client = await RawClient.connect(broker.tcpPort);
    const now = new Set<string>();
    client.onMessage = (delivery) => {
      const name = ledger.deliver(delivery, key);
      if (now.has(name)) ledger.problem("twice", `"${name}" twice in one drain of ${key}`);
      now.add(name);
      finished.add(name);
      client.fin(delivery.id);
    };
    await client.sub(topic, channel);
    client.rdy(1_000);
    await eventually(`an empty channel ${key}`, async () => {
      const figures = await broker.channel(topic, channel);
      return figures?.depth === 0 && figures.deferred_count === 0 && figures.in_flight_count === 0;
    });
    for (const error of client.errors) ledger.problem("refused", error);
  }

  async #judge(): Promise<void> {
    const { path } = this.#options;
    const ledger = this.#ledger;
    await using broker = await Service.broker(path, flagsOf(this.#options.rounds));
    for (const lane of this.#lanes) await lane.settle(broker);
    await broker.createChannels("alone", "late");
    await this.#drain(broker, "orders", "worked");
    await this.#drain(broker, "orders", "slow");
    await this.#drain(broker, "alone", "late");
    await this.#drain(broker, "later", "c");
    await this.#drain(broker, "large", "c");
    await this.#countFar(broker);
    equal(await broker.terminate(), 0);
    ledger.missing("orders", "worked");
    ledger.missing("orders", "slow");
    ledger.missing("alone", "late");
    ledger.missing("later", "c");
    ledger.missing("large", "c");
    await this.#judgeFolder();
  }

  /** What an orderly stop left, offline: nothing is damaged, and the far messages are owed. */
  async #judgeFolder(): Promise<void> {
    const ledger = this.#ledger;
    const verified = await dataCommand("verify", this.#options.path);
    if (verified.code !== 0) {
      ledger.problem("undone", `verify: ${verified.stdout}${verified.stderr}`);
    }
    const args = ["--topic", "far", "--channel", "c"];
    const { code, stdout, stderr } = await dataCommand("dump", this.#options.path, ...args);
    if (code !== 0) ledger.problem("undone", `dump: ${stderr}`);
    const far = ledger.channel("far/c").finished;
    for (const line of stdout.split("\n")) {
      if (line !== "") far.add(nameOf((JSON.parse(line) as { body: string }).body));
    }
    ledger.missing("far", "c");
  }

  #summary(): string {
    const { confirmedCount, delivered, counts } = this.#ledger;
    const count = (kind: Parameters<Ledger["problem"]>[0]) => counts.get(kind) ?? 0;
    const kills = Object.entries(this.#kills).map(([moment, times]) => `${moment} ${times}`);
    const others = count("unknown body") + count("early") + count("twice") + count("undone") +
      count("refused");
    return `rounds: ${this.#options.rounds}, kills: ${kills.join(" ")}, ` +
      `confirmed: ${confirmedCount}, large: ${this.#ledger.largeCount}, ` +
      `compacted files: ${this.#compacted}, delivered: ${delivered}, missing: ${
        count("missing")
      }, ` +
      `resurrected: ${count("resurrected")}, ids repeated: ${count("id repeated")}, ` +
      `other problems: ${others}`;
  }
}

function flagsOf(round: number): string[] {
  return [...BROKER_FLAGS, `--ack-mode=${ACK_MODES[round % ACK_MODES.length]}`];
}

function dataCommand(command: string, path: string, ...args: readonly string[]) {
  const quiet = ["--quiet", ...args];
  return runToEnd(Deno.execPath(), [
    "run",
    "-P=ctl",
    "ctl/main.ts",
    "data",
    command,
    path,
    ...quiet,
  ]);
}

function isMoment(moment: Moment, { kind, paths }: Deno.FsEvent): boolean {
  const has = (part: string) => paths.some((path) => path.includes(part));
  if (moment === "file") return kind === "create" && has(".log") && !has(".tmp");
  if (moment === "compaction") return kind === "create" && has(".log.tmp");
  if (moment === "checkpoint") return kind === "create" && has(".ckp");
  return moment === "removal" && kind === "remove" && has(".log");
}

async function watchFolder(
  watcher: Deno.FsWatcher,
  changed: (event: Deno.FsEvent) => void,
): Promise<void> {
  for await (const event of watcher) if (event.kind !== "access") changed(event);
}

function tail(broker: Service): string {
  return broker.log.slice(-2_000);
}
