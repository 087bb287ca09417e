/**
 * A chaos run: brokers, gateways and discoveries as real processes, producers and consumers on them, and
 * faults. At the end everything is up, comes to rest, and is judged; then the gateways are killed and
 * started once more, which must bring nothing back.
 *
 * | Scenario | What is done |
 * |---|---|
 * | random | faults at random, of all services |
 * | all-down | all brokers are killed under load and come back: what was spooled comes in its order |
 * | all-stopped | the same, and they are stopped in order |
 * | spool-full | all brokers are killed and one gateway's spool is filled to its limit |
 * | disk-full | the same, and what is full is its disk; takes root |
 *
 * The choices come from the seed; time is real, so two runs of one seed are alike and not the same.
 */
import { SystemClock } from "@sluice/shared/runtime/system";
import { SeededRandom } from "@sluice/shared/testing";
import { eventually } from "../integration/wait.ts";
import { judge, type Verdict } from "./checker.ts";
import { Consumers } from "./consumers.ts";
import { Trouble } from "./faults.ts";
import { Fleet, gatewayFigures, type Member } from "./fleet.ts";
import { type Door, History } from "./history.ts";
import { Producer } from "./producers.ts";
import { gatherQuarantine, rest } from "./settle.ts";
import { summaryOf } from "./summary.ts";

/** See the module. */
export type Scenario = "random" | "all-down" | "all-stopped" | "spool-full" | "disk-full";

/** How a run goes. */
export interface ChaosOptions {
  /** Where folders and logs are made. */
  readonly path: string;
  readonly seed: number;
  readonly scenario: Scenario;
  /** How long there is trouble; starting and coming to rest take their own time. */
  readonly seconds: number;
  /** Multiplies how long faults last; 1 by default. */
  readonly scale?: number;
  readonly log: (line: string) => void;
}

/** How a run came out. */
export interface ChaosReport {
  /** In words; none when all is well. */
  readonly problems: readonly string[];
  readonly verdict: Verdict;
  readonly history: History;
  readonly summary: readonly string[];
}

const TOPICS = ["orders", "mails", "clicks", "logs"];
const FILLER_TOPIC = "filler";
const CHANNEL = "c";
const BROKERS = 3;
const GATEWAYS = 2;
const DISCOVERIES = 2;
const GATEWAY_FLAGS = ["--publish-timeout=3s"];
/** Half the spool's bytes are left by what is refused. */
const SPOOL_FULL_FLAG = "--spool-bytes-max=64MiB";
const SPOOL_DISK_BYTES = 64 * 2 ** 20;
const SPOOL_FILLERS_MAX = 80;
const FILLER_BYTES = 1_000_000;
const PROGRESS_MS = 10_000;
const WARM_UP_MS = 2_000;
const REST_MS_MAX = 180_000;
const REST_AGAIN_MS_MAX = 60_000;
/** After brokers were killed: by then whatever was on its way to one is known to have no answer. */
const NOTICED_MS = 1_000;

/** Runs a scenario and judges it. Rejects when a service cannot be run at all. */
export async function runChaos(options: ChaosOptions): Promise<ChaosReport> {
  const { path, scenario } = options;
  const gatewayFlags = scenario === "spool-full"
    ? [...GATEWAY_FLAGS, SPOOL_FULL_FLAG]
    : GATEWAY_FLAGS;
  const counts = { brokers: BROKERS, gateways: GATEWAYS, discoveries: DISCOVERIES };
  const disk = scenario === "disk-full" ? { gatewayDiskBytes: SPOOL_DISK_BYTES } : {};
  await using fleet = await Fleet.start({ path, gatewayFlags, ...disk, ...counts });
  return await new ChaosRun(options, fleet).run();
}

class ChaosRun {
  readonly #options: ChaosOptions;
  readonly #fleet: Fleet;
  readonly #history = new History();
  readonly #random: SeededRandom;
  readonly #clock = new SystemClock();
  readonly #producers: Producer[];
  readonly #startMs = performance.now();
  /** What is wrong besides what the judge finds. */
  readonly #mishaps: string[] = [];

  constructor(options: ChaosOptions, fleet: Fleet) {
    this.#options = options;
    this.#fleet = fleet;
    this.#random = new SeededRandom(options.seed);
    this.#producers = this.#newProducers();
  }

  async run(): Promise<ChaosReport> {
    const fleet = this.#fleet;
    const { scenario, seconds } = this.#options;
    await fleet.createChannels([...TOPICS, FILLER_TOPIC], CHANNEL);
    await fleet.connected();
    let spooledBetweenMs: readonly [number, number] | null = null;
    {
      await using _consumers = this.#consumers();
      this.#log(`everything runs, logs are in ${this.#options.path}`);
      const ended = new AbortController();
      const progress = this.#tellProgress(ended.signal);
      try {
        for (const producer of this.#producers) producer.start();
        await this.#clock.sleep(WARM_UP_MS * (this.#options.scale ?? 1));
        switch (scenario) {
          case "random":
            await this.#randomTrouble(seconds * 1_000);
            break;
          case "all-down":
            spooledBetweenMs = await this.#allDown("kill", seconds * 1_000);
            break;
          case "all-stopped":
            spooledBetweenMs = await this.#allDown("terminate", seconds * 1_000);
            break;
          case "spool-full":
          case "disk-full":
            await this.#spoolFull(seconds * 1_000);
            break;
        }
        await this.#stopProducers();
      } finally {
        ended.abort();
        await progress;
      }
      await this.#rest("at the end", REST_MS_MAX);
      await gatherQuarantine(fleet, this.#history);
      await this.#figures();
      await this.#startGatewaysAgain();
    }
    for (const member of fleet.all) this.#mishaps.push(...member.mishaps);
    const brokers = fleet.brokers.map(({ name }) => name);
    const verdict = judge(this.#history, { brokers, spooledBetweenMs });
    return {
      problems: [...this.#mishaps, ...verdict.problems],
      verdict,
      history: this.#history,
      summary: summaryOf(this.#history, verdict),
    };
  }

  async #randomTrouble(durationMs: number): Promise<void> {
    const trouble = new Trouble({
      fleet: this.#fleet,
      history: this.#history,
      random: this.#random.fork(),
      log: (line) => this.#log(line),
      scale: this.#options.scale ?? 1,
      fillerTopic: FILLER_TOPIC,
    });
    await trouble.run(durationMs);
    this.#mishaps.push(...trouble.mishaps);
    const counts = [...trouble.counts].sort().map(([fault, count]) => `${fault} ${count}`);
    this.#log(`faults: ${counts.join(", ")}`);
  }

  /** Returns from when to when everything that was published was spooled. */
  async #allDown(
    how: "kill" | "terminate",
    downMs: number,
  ): Promise<readonly [number, number]> {
    const { brokers } = this.#fleet;
    const backs = brokers.map(({ name }) => this.#history.span(name, "away"));
    this.#log(`all brokers: ${how}, for ${downMs} ms`);
    await Promise.all(brokers.map((broker) => broker[how]()));
    const fromMs = Date.now() + NOTICED_MS;
    await this.#clock.sleep(downMs + NOTICED_MS);
    const untilMs = Date.now();
    this.#log("all brokers are started");
    await Promise.all(brokers.map(async (broker, index) => {
      await broker.start();
      backs[index]!();
    }));
    this.#log("all brokers are back");
    await this.#clock.sleep(WARM_UP_MS);
    return [fromMs, untilMs];
  }

  /** Fills the spool of one gateway with what nobody consumes, and leaves it so for a while. */
  async #spoolFull(fullMs: number): Promise<void> {
    const { brokers, gateways } = this.#fleet;
    const [gateway] = gateways;
    const mended = gateways.map(({ name }) => this.#history.span(name, "spool limited"));
    const backs = brokers.map(({ name }) => this.#history.span(name, "away"));
    this.#log("all brokers are killed");
    await Promise.all(brokers.map((broker) => broker.kill()));
    const count = await this.#fillSpool(gateway!);
    this.#log(`the spool of ${gateway!.name} is full after ${count} fillers, for ${fullMs} ms`);
    if (count === SPOOL_FILLERS_MAX) this.#mishaps.push(`the spool took ${count} fillers`);
    await this.#clock.sleep(fullMs);
    await Promise.all(brokers.map(async (broker, index) => {
      await broker.start();
      backs[index]!();
    }));
    this.#log("all brokers are back");
    await eventually("an empty spool", async () => {
      const { spool } = await gatewayFigures(gateway!);
      return spool.depth === 0;
    }, REST_MS_MAX);
    for (const end of mended) end();
    for (const broker of brokers) {
      await broker.order(`/channel/empty?topic=${FILLER_TOPIC}&channel=${CHANNEL}`);
    }
    await this.#clock.sleep(WARM_UP_MS);
  }

  async #fillSpool(gateway: Member): Promise<number> {
    const body = "x".repeat(FILLER_BYTES);
    for (let count = 0; count < SPOOL_FILLERS_MAX; count++) {
      const url = `${gateway.url}/pub?topic=${FILLER_TOPIC}`;
      const response = await fetch(url, { method: "POST", body });
      await response.text();
      if (response.status !== 200) return count;
    }
    return SPOOL_FILLERS_MAX;
  }

  async #stopProducers(): Promise<void> {
    await Promise.all(this.#producers.map((producer) => producer.stop()));
    this.#progress();
  }

  async #rest(when: string, timeoutMs: number): Promise<void> {
    const startMs = performance.now();
    const restless = await rest(this.#fleet, this.#history, timeoutMs);
    for (const words of restless) this.#mishaps.push(`no rest ${when}: ${words}`);
    const tookMs = Math.round(performance.now() - startMs);
    this.#log(restless.length === 0 ? `at rest after ${tookMs} ms` : "it does not come to rest");
  }

  /** What was settled durably must not come again. */
  async #startGatewaysAgain(): Promise<void> {
    const before = this.#history.deliveryCount;
    for (const gateway of this.#fleet.gateways) await gateway.kill();
    for (const gateway of this.#fleet.gateways) await gateway.start();
    await this.#rest("after the gateways were started again", REST_AGAIN_MS_MAX);
    const more = this.#history.deliveryCount - before;
    this.#log(`the gateways were killed and started again, after which ${more} messages came`);
  }

  async #figures(): Promise<void> {
    for (const gateway of this.#fleet.gateways) {
      const { publishes } = await gatewayFigures(gateway);
      this.#log(`${gateway.name} since its start: ${JSON.stringify(publishes)}`);
    }
  }

  #consumers(): Consumers {
    const isRandom = this.#options.scenario === "random";
    // Order can be seen where one consumer gets all of a topic, and finishes all at once.
    const options = { topics: TOPICS, channel: CHANNEL, stock: isRandom, moody: isRandom };
    const { discoveries } = this.#fleet;
    return new Consumers(options, discoveries, this.#history, this.#random.fork());
  }

  #newProducers(): Producer[] {
    const [first, second] = this.#fleet.gateways;
    const kinds: { door: Door; targets: Member[]; pauseMsMax: number; windowMax: number }[] = [
      { door: "client", targets: [first!], pauseMsMax: 25, windowMax: 20 },
      { door: "client", targets: [second!, first!], pauseMsMax: 25, windowMax: 20 },
      { door: "nsqjs", targets: [second!], pauseMsMax: 25, windowMax: 1 },
      { door: "nsqjs", targets: [first!, second!], pauseMsMax: 25, windowMax: 1 },
      { door: "http", targets: [first!], pauseMsMax: 25, windowMax: 1 },
      { door: "http", targets: [second!], pauseMsMax: 25, windowMax: 1 },
      { door: "http", targets: [first!, second!], pauseMsMax: 25, windowMax: 1 },
    ];
    return kinds.map((kind, index) => {
      const name = `${kind.door}-${index}${kind.targets.length > 1 ? "-any" : ""}`;
      return Producer.of({ ...kind, name, topics: TOPICS }, this.#history, this.#random.fork());
    });
  }

  async #tellProgress(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await this.#clock.sleep(PROGRESS_MS, signal).catch(() => {});
      if (!signal.aborted) this.#progress();
    }
  }

  #progress(): void {
    const { publishes, seen, deliveryCount } = this.#history;
    const ok = publishes.filter(({ result }) => result === "ok").length;
    const waiting = publishes.filter(({ result }) => result === null).length;
    const failed = publishes.length - ok - waiting;
    this.#log(
      `${ok} publishes ok, ${failed} failed, ${waiting} on their way; ${deliveryCount} deliveries ` +
        `of ${seen.size} messages`,
    );
  }

  #log(line: string): void {
    const seconds = ((performance.now() - this.#startMs) / 1_000).toFixed(1).padStart(6);
    const at = new Date().toISOString().slice(11, 23);
    this.#options.log(`${seconds} s  ${at}  ${line}`);
  }
}
