/**
 * A broker that is stopped under load: every producer knows of each publish what became of it, and a
 * restart finds what was confirmed and nothing else.
 */
import { deepEqual, equal, match, ok } from "node:assert/strict";
import {
  CLIENT_OPTIONS_DEFAULT,
  ProducerConnection,
  type PublishOutcome,
} from "@sluice/shared/client";
import { encodeMpub, encodePub, encodeSmpub, encodeSpub } from "@sluice/shared/protocol";
import { SystemClock, SystemNetwork } from "@sluice/shared/runtime/system";
import { Service, TemporaryFolder } from "./process.ts";
import { type Delivery, RawClient, text } from "./raw_client.ts";
import { eventually, within } from "./wait.ts";

const CLOSING = /^E_CLOSING the broker stops$/;
const TOPIC = "orders";
/** What one producer keeps on its way. */
const OUTSTANDING_MAX = 500;
/** Confirmed publishes after which the broker is stopped, one stop after the other. */
const STOP_AFTER = [1, 1500, 4000];
const FLAGS = ["--ring-bytes=4MiB", "--log-file-bytes=16MiB", "--max-msg-size=2MiB"];

/** How one kind of producer publishes: a message with this name, under this number. */
type Shape = (name: string, number: number) => Uint8Array;

const SHAPES: Readonly<Record<string, Shape>> = {
  small: (name, number) => encodeSpub(TOPIC, number, padded(name, 200)),
  other: (name, number) => encodeSpub(TOPIC, number, padded(name, 1000)),
  batches: (name, number) => encodeSmpub(TOPIC, number, [padded(name, 3000)]),
  /** More on its way than the broker takes or the sockets hold. */
  bulky: (name, number) => encodeSpub(TOPIC, number, padded(name, 200_000)),
  /** Goes to the log in parts. */
  large: (name, number) => encodeSpub(TOPIC, number, padded(name, 1_500_000)),
  plain: (name) => encodePub(TOPIC, padded(name, 100)),
  groups: (name) => encodeMpub(TOPIC, [padded(name, 100)]),
};

/** Few of the kinds with much in one publish. */
const OUTSTANDING_MAX_OF: Readonly<Record<string, number>> = { bulky: 60, large: 8 };

function padded(name: string, bytes: number): Uint8Array {
  return text(name.padEnd(bytes, "."));
}

/** Publishes one after the other, many at a time, until it is refused. */
class Producer {
  readonly outcomes = new Map<string, PublishOutcome>();
  confirmedCount = 0;
  sentCount = 0;
  endError: Error | null = null;
  readonly #connection: ProducerConnection;
  readonly #kind: string;
  readonly #prefix: string;

  private constructor(connection: ProducerConnection, kind: string, prefix: string) {
    this.#connection = connection;
    this.#kind = kind;
    this.#prefix = prefix;
    connection.onEnd = (error) => this.endError = error;
  }

  static async start(port: number, kind: string, prefix: string): Promise<Producer> {
    const seams = { network: new SystemNetwork(new SystemClock()), clock: new SystemClock() };
    const connection = await ProducerConnection.connect(seams, {
      ...CLIENT_OPTIONS_DEFAULT,
      host: "127.0.0.1",
      port,
      producerId: crypto.getRandomValues(new Uint8Array(16)),
    });
    equal(connection.deduplicates, true);
    return new Producer(connection, kind, prefix);
  }

  /** Whether all that was sent has an outcome, after the end. */
  get isOver(): boolean {
    return this.endError !== null && this.outcomes.size === this.sentCount;
  }

  publishAll(): void {
    const max = OUTSTANDING_MAX_OF[this.#kind] ?? OUTSTANDING_MAX;
    while (this.#connection.isOpen && this.#connection.outstandingCount < max) this.publish();
  }

  publish(): void {
    const name = `${this.#prefix}-${this.#kind}-${this.sentCount}-`;
    this.#connection.send((outcome) => {
      this.outcomes.set(name, outcome);
      if (outcome !== "confirmed") return;
      this.confirmedCount++;
      this.publishAll();
    }, SHAPES[this.#kind]!(name, this.sentCount++));
  }
}

/** The names of all messages that there are, and that a second look does not find again. */
async function takeAll(port: number, count: number): Promise<string[]> {
  const names: string[] = [];
  await using consumer = await RawClient.connect(port);
  consumer.onMessage = ({ id, body }: Delivery) => {
    names.push(body.slice(0, body.lastIndexOf("-") + 1));
    consumer.fin(id);
  };
  await consumer.sub(TOPIC, "all");
  consumer.rdy(500);
  await eventually(`${count} messages`, () => names.length >= count, 60_000);
  return names;
}

for (const stopAfter of STOP_AFTER) {
  Deno.test(`a stop after ${stopAfter} publishes leaves no producer in doubt`, async () => {
    await using folder = await TemporaryFolder.create();
    const producers: Producer[] = [];
    {
      await using broker = await Service.broker(folder.path, FLAGS);
      const { tcpPort } = broker;
      await broker.createChannels(TOPIC, "all");
      // A client that is no producer of ours is there too, and is not waited for.
      await using stock = await RawClient.connect(tcpPort);
      await stock.pub("elsewhere", "x");
      const idle = await Producer.start(tcpPort, "small", "idle");
      for (const kind of Object.keys(SHAPES)) {
        producers.push(await Producer.start(tcpPort, kind, `p${stopAfter}`));
      }
      for (const producer of producers) producer.publishAll();
      const confirmed = () =>
        producers.reduce((sum, { confirmedCount }) => sum + confirmedCount, 0);
      await eventually(`${stopAfter} confirmed`, () => confirmed() >= stopAfter);
      const askedMs = performance.now();
      broker.askToStop();
      equal(await broker.ended(), 0);
      ok(performance.now() - askedMs < 10_000, "it does not wait for its limits");
      producers.push(idle);
      await eventually(
        "the end of all producers",
        () => producers.every(({ endError }) => endError !== null),
      );
      idle.publish();
      await within(
        "an outcome for everything",
        eventually("it", () => producers.every(({ isOver }) => isOver)),
      );
      deepEqual(stock.errors, []);
    }
    const stored: string[] = [];
    let refused = 0;
    for (const { outcomes, endError } of producers) {
      match(endError!.message, /ends with: E_CLOSING the broker stops$/);
      for (const [name, outcome] of outcomes) {
        if (outcome === "confirmed") {
          stored.push(name);
        } else {
          refused++;
          equal(outcome.outcome, "refused", `${name}: ${outcome.message}`);
          if (!name.startsWith("idle")) match(outcome.serverText ?? "", CLOSING);
        }
      }
    }
    // The stop came into the middle of it.
    ok(refused > 1, `${refused} were refused`);
    await using again = await Service.broker(folder.path, FLAGS);
    const found = await takeAll(again.tcpPort, stored.length);
    await eventually("nothing else", async () => {
      const channel = await again.channel(TOPIC, "all");
      return channel !== undefined && channel.depth === 0 && channel.in_flight_count === 0;
    });
    deepEqual(found.sort(), stored.sort());
  });
}
