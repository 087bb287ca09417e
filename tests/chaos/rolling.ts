/**
 * A rolling restart under load: one broker after the other, then one gateway after the other, each
 * stopped in order and started again, while producers publish through a balancer and know of one address.
 */
import { SystemClock } from "@sluice/shared/runtime/system";
import { SeededRandom } from "@sluice/shared/testing";
import { eventually } from "../integration/wait.ts";
import { Balancer } from "./balancer.ts";
import { judge, type Verdict } from "./checker.ts";
import { Consumers } from "./consumers.ts";
import { Fleet } from "./fleet.ts";
import { History } from "./history.ts";
import { Producer, type ProducerOptions } from "./producers.ts";
import { gatherQuarantine, rest } from "./settle.ts";

/** How a rolling restart goes. */
export interface RollingOptions {
  readonly path: string;
  readonly seed: number;
  readonly producers: readonly Omit<ProducerOptions, "targets" | "topics">[];
  readonly log: (line: string) => void;
}

/** How it came out. Failed publishes are among the problems of the verdict. */
export interface RollingReport {
  readonly history: History;
  readonly verdict: Verdict;
  /** What is wrong besides. */
  readonly mishaps: readonly string[];
}

const TOPICS = ["orders", "mails"];
const CHANNEL = "c";
/** Balancers have this time to look elsewhere. */
const GATEWAY_FLAGS = ["--drain-delay=1s"];
const BETWEEN_MS = 500;
const REST_MS_MAX = 60_000;

/** Rolls over all brokers and gateways. */
export async function rollingRestart(options: RollingOptions): Promise<RollingReport> {
  const { path, seed, log } = options;
  const clock = new SystemClock();
  const random = new SeededRandom(seed);
  const history = new History();
  const mishaps: string[] = [];
  await using fleet = await Fleet.start({
    path,
    brokers: 3,
    gateways: 2,
    discoveries: 2,
    gatewayFlags: GATEWAY_FLAGS,
  });
  await fleet.createChannels(TOPICS, CHANNEL);
  await fleet.connected();
  await using balancer = new Balancer(fleet.gateways);
  const both = () => eventually("both gateways to be ready", () => balancer.readyCount === 2);
  await both();
  const consuming = { topics: TOPICS, channel: CHANNEL, stock: true, moody: false };
  await using _consumers = new Consumers(consuming, fleet.discoveries, history, random.fork());
  const producers = options.producers.map((one) =>
    Producer.of({ ...one, targets: [balancer], topics: TOPICS }, history, random.fork())
  );
  for (const producer of producers) producer.start();
  for (const member of [...fleet.brokers, ...fleet.gateways]) {
    await clock.sleep(BETWEEN_MS);
    log(`${member.name} is stopped`);
    await member.terminate();
    await member.start();
    log(`${member.name} is back`);
    // As a rollout does: the next one only when this one is in use.
    await fleet.connected();
    await both();
  }
  await clock.sleep(BETWEEN_MS);
  await Promise.all(producers.map((producer) => producer.stop()));
  mishaps.push(...await rest(fleet, history, REST_MS_MAX));
  await gatherQuarantine(fleet, history);
  for (const member of fleet.all) mishaps.push(...member.mishaps);
  const brokers = fleet.brokers.map(({ name }) => name);
  return { history, verdict: judge(history, { brokers, spooledBetweenMs: null }), mishaps };
}
