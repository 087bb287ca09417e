/**
 * The consumers of a chaos run: for each topic one of ours, that follows both discoveries, and if wanted
 * an nsqjs reader, which asks them in turn. Both on the same channel, so that each message is for one of
 * them. Everything is finished, some of it a little later, some of it only when it comes again.
 */
import { BrokerDirectory, TopicConsumer } from "@sluice/shared/client";
import {
  askHttp,
  streamHttp,
  SystemClock,
  SystemNetwork,
  SystemRandom,
} from "@sluice/shared/runtime/system";
import { Logger } from "@sluice/shared/telemetry";
import type { SeededRandom } from "@sluice/shared/testing";
import type { Member } from "./fleet.ts";
import type { History } from "./history.ts";
import { StockReader } from "./stock_clients.ts";

/** Who consumes what. */
export interface ConsumersOptions {
  readonly topics: readonly string[];
  readonly channel: string;
  /** Also nsqjs. */
  readonly stock: boolean;
  /** Whether some messages are not finished when they come first. */
  readonly moody: boolean;
}

const IN_FLIGHT_MAX = 50;
const LATE_MS_MAX = 300;
const STOP_MS_MAX = 10_000;

/** See the module. */
export class Consumers implements AsyncDisposable {
  readonly #options: ConsumersOptions;
  readonly #history: History;
  readonly #random: SeededRandom;
  readonly #clock = new SystemClock();
  readonly #directory: BrokerDirectory;
  readonly #ours: TopicConsumer[] = [];
  readonly #stock: StockReader[] = [];

  constructor(
    options: ConsumersOptions,
    discoveries: readonly Member[],
    history: History,
    random: SeededRandom,
  ) {
    this.#options = options;
    this.#history = history;
    this.#random = random;
    const clock = this.#clock;
    const seams = { clock, random: new SystemRandom(), network: new SystemNetwork(clock) };
    const logger = new Logger({ sink: () => {}, clock });
    this.#directory = new BrokerDirectory({
      discoveryUrls: discoveries.map(({ url }) => url),
      brokers: [],
      keepsTopics: true,
    }, { ...seams, streamHttp, askHttp, logger });
    for (const topic of options.topics) {
      this.#ours.push(this.#consumer(topic, { ...seams, logger }));
      if (options.stock) this.#stock.push(this.#reader(topic, discoveries));
    }
    this.#directory.start();
    for (const consumer of this.#ours) consumer.start();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all([
      ...this.#ours.map((consumer) => consumer.stop(STOP_MS_MAX)),
      ...this.#stock.map((reader) => reader[Symbol.asyncDispose]()),
    ]);
    await this.#directory.stop();
  }

  #consumer(
    topic: string,
    seams: ConstructorParameters<typeof TopicConsumer>[2],
  ): TopicConsumer {
    const { channel } = this.#options;
    const options = { topic, channel, inFlightMax: IN_FLIGHT_MAX };
    const consumer = `ours of ${topic}`;
    return new TopicConsumer(options, this.#directory, seams, (delivery, from) => {
      const { attempts } = delivery;
      this.#history.received({
        consumer,
        topic,
        attempts,
        id: new TextDecoder().decode(delivery.id),
        body: new TextDecoder().decode(delivery.body),
      });
      this.#answer(
        () => from.finish(delivery.id),
        (delayMs) => from.requeue(delivery.id, delayMs),
      );
    });
  }

  #reader(topic: string, discoveries: readonly Member[]): StockReader {
    const consumer = `nsqjs of ${topic}`;
    return new StockReader(topic, this.#options.channel, {
      lookupdHTTPAddresses: discoveries.map(({ httpPort }) => `127.0.0.1:${httpPort}`),
      lookupdPollInterval: 1,
      maxInFlight: IN_FLIGHT_MAX,
    }, (message) => {
      const { id, attempts } = message;
      this.#history.received({ consumer, topic, id, attempts, body: message.body.toString() });
      this.#answer(() => message.finish(), (delayMs) => message.requeue(delayMs, false));
    });
  }

  #answer(finish: () => void, requeue: (delayMs: number) => void): void {
    const mood = this.#options.moody ? this.#random.below(100) : 0;
    if (mood < 90) finish();
    else if (mood < 97) this.#clock.setTimer(this.#random.below(LATE_MS_MAX), finish);
    else requeue(this.#random.below(LATE_MS_MAX));
  }
}
