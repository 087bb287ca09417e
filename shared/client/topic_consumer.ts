/**
 * A consumer of one topic and channel, on every broker of a directory that has the topic.
 *
 *     listed --> connecting --> open --> (ended) --> waiting --> connecting
 *                    `------ failed ----------------^
 *
 * - A broker is connected to as soon as the directory lists it as one that has the topic, or of whose topics
 *   nobody knows, and that serves consumers. Lost connections are made again after {@linkcode RETRY_FIRST_MS}
 *   at first and {@linkcode RETRY_MOST_MS} at most, while it is listed so.
 * - An open connection is kept until it ends by itself, whatever the directory says: who has lost a broker
 *   is more often the directory than the consumer.
 * - To subscribe makes a topic that is not there. So one that is deleted at a broker comes back if the
 *   directory hears of it later than the first retry, as from an nsqlookupd: end the consumers first.
 * - `inFlightMax` is spread over the open connections, at least one for each. Where there are too many for
 *   that, they have turns of {@linkcode TURN_MS}. What was delivered before the shares changed is still in
 *   flight then, so for that long there may be more.
 * - `stop` asks for no more messages and lets those in flight be answered; what is not answered in time
 *   goes back to its broker.
 *
 * Each message is answered once, on the connection it came by; an answer to one that has ended since does
 * nothing, and the message comes again.
 */
import { invariant, type Random, type Timer } from "../runtime/mod.ts";
import type { Logger } from "../telemetry/mod.ts";
import { Backoff } from "./backoff.ts";
import type { BrokerSet, KnownBroker } from "./broker_directory.ts";
import { CLIENT_OPTIONS_DEFAULT, type ClientOptions, type ClientSeams } from "./client_link.ts";
import { CountedConnection, type MessageHandler, type Subscription } from "./counted_connection.ts";
import { readyShares } from "./ready_shares.ts";

export const RETRY_FIRST_MS = 100;
export const RETRY_MOST_MS = 5_000;
export const TURN_MS = 1_000;

/** What is consumed, and how. */
export interface TopicConsumerOptions {
  readonly topic: string;
  readonly channel: string;
  /** Messages in flight over all brokers, at least 1. */
  readonly inFlightMax: number;
  readonly client?: Partial<Omit<ClientOptions, "host" | "port">>;
}

/** The world that a consumer lives in. */
export interface ConsumerSeams extends ClientSeams {
  readonly random: Random;
  readonly logger: Logger;
}

/** See the module. */
export class TopicConsumer {
  readonly #options: TopicConsumerOptions;
  readonly #directory: BrokerSet;
  readonly #seams: ConsumerSeams;
  readonly #handler: MessageHandler;
  readonly #owners = new Map<string, Owner>();
  #unlisten = () => {};
  #turn = 0;
  #turnTimer: Timer | null = null;
  #isStopping = false;
  #stopped: Promise<void> | null = null;
  /** Called with each change while the consumer stops. */
  #onQuiet = () => {};

  constructor(
    options: TopicConsumerOptions,
    directory: BrokerSet,
    seams: ConsumerSeams,
    handler: MessageHandler,
  ) {
    invariant(options.inFlightMax >= 1, "a consumer may have a message in flight");
    this.#options = options;
    this.#directory = directory;
    this.#seams = seams;
    this.#handler = handler;
  }

  /** Brokers with an open connection. */
  get connectionCount(): number {
    return this.#open().length;
  }

  /** Messages that are not answered. */
  get inFlightCount(): number {
    return this.#open().reduce((sum, { inFlightCount }) => sum + inFlightCount, 0);
  }

  /** Once. */
  start(): void {
    this.#unlisten = this.#directory.onChange((ids) => {
      for (const id of ids) this.#look(id);
    });
    for (const id of this.#directory.brokers.keys()) this.#look(id);
  }

  /** Resolves when there is no connection any more; one that is still being made is closed as it comes. */
  stop(timeoutMs: number): Promise<void> {
    this.#stopped ??= this.#stop(timeoutMs);
    return this.#stopped;
  }

  async #stop(timeoutMs: number): Promise<void> {
    this.#isStopping = true;
    this.#unlisten();
    this.#turnTimer?.cancel();
    for (const owner of [...this.#owners.values()]) owner.stop();
    const timer = this.#seams.clock.setTimer(timeoutMs, () => {
      for (const owner of [...this.#owners.values()]) owner.close();
    });
    await new Promise<void>((resolve) => {
      this.#onQuiet = () => {
        if (this.#owners.size === 0) resolve();
      };
      this.#onQuiet();
    });
    timer.cancel();
  }

  #look(id: string): void {
    const broker = this.#directory.brokers.get(id);
    const isOwner = broker !== undefined && broker.consumeReady &&
      broker.hasTopic(this.#options.topic) !== false;
    const owner = this.#owners.get(id);
    if (owner !== undefined) owner.isListed = isOwner;
    else if (isOwner) this.#connect(broker);
  }

  #connect({ id, host, tcpPort }: KnownBroker): void {
    const { topic, channel, inFlightMax, client } = this.#options;
    const owner = new Owner({
      seams: this.#seams,
      subscription: {
        brokerId: id,
        client: { ...CLIENT_OPTIONS_DEFAULT, ...client, host, port: tcpPort },
        topic,
        channel,
        inFlightMax,
        handler: this.#handler,
      },
      changed: () => this.#spread(),
      left: () => {
        this.#owners.delete(id);
        this.#onQuiet();
      },
    });
    this.#owners.set(id, owner);
    owner.connect();
  }

  #open(): CountedConnection[] {
    return [...this.#owners.values()].flatMap(({ open }) => open ?? []);
  }

  #spread(): void {
    if (this.#isStopping) return;
    const open = this.#open();
    const shares = readyShares(this.#options.inFlightMax, open.length, this.#turn);
    // Less for some first, then more for others.
    for (const [index, one] of open.entries()) one.ready(Math.min(one.readyCount, shares[index]!));
    for (const [index, one] of open.entries()) one.ready(shares[index]!);
    if (shares.includes(0)) this.#turnTimer ??= this.#nextTurn();
    else {
      this.#turnTimer?.cancel();
      this.#turnTimer = null;
    }
  }

  #nextTurn(): Timer {
    return this.#seams.clock.setTimer(TURN_MS, () => {
      this.#turnTimer = null;
      this.#turn += 1;
      this.#spread();
    });
  }
}

interface OwnerOptions {
  readonly seams: ConsumerSeams;
  readonly subscription: Subscription;
  /** It has an open connection, or has none any more. */
  readonly changed: () => void;
  /** It is not needed any more. */
  readonly left: () => void;
}

type OwnerState =
  | { readonly kind: "connecting" }
  | { readonly kind: "open"; readonly connection: CountedConnection; readonly sinceMs: number }
  | { readonly kind: "waiting"; readonly timer: Timer }
  | { readonly kind: "left" };

/** The connection to one broker, made again and again. */
class Owner {
  readonly #options: OwnerOptions;
  readonly #backoff: Backoff;
  readonly #logger: Logger;
  #state: OwnerState = { kind: "connecting" };
  #isListed = true;
  #isStopping = false;
  #hasFailed = false;

  constructor(options: OwnerOptions) {
    this.#options = options;
    const { random, logger } = options.seams;
    this.#backoff = new Backoff(random, RETRY_FIRST_MS, RETRY_MOST_MS);
    this.#logger = logger.child({ broker: options.subscription.brokerId });
  }

  get open(): CountedConnection | null {
    return this.#state.kind === "open" ? this.#state.connection : null;
  }

  set isListed(isListed: boolean) {
    this.#isListed = isListed;
    if (!isListed && this.#state.kind === "waiting") this.#leave();
  }

  connect(): void {
    this.#state = { kind: "connecting" };
    void this.#subscribe();
  }

  /** Ends when nothing is in flight. */
  stop(): void {
    this.#isStopping = true;
    if (this.#state.kind === "open") this.#state.connection.stop();
    else if (this.#state.kind === "waiting") this.#leave();
  }

  /** Ends now; a connection that is being made is closed when it is there. */
  close(): void {
    if (this.#state.kind === "open") this.#state.connection.close();
    else this.#leave();
  }

  async #subscribe(): Promise<void> {
    const { seams, subscription, changed } = this.#options;
    let connection: CountedConnection;
    try {
      connection = await CountedConnection.subscribe(seams, {
        ...subscription,
        ended: (error) => this.#ended(error?.message ?? "the connection was closed"),
        failed: (text) => this.#logger.debug("the broker did not take an answer", { text }),
      });
    } catch (error) {
      return this.#again(error instanceof Error ? error.message : String(error));
    }
    // It has told of its end before there was anybody to tell.
    if (!connection.isOpen) return this.#again("the connection ended at once");
    // Left or stopped meanwhile: its end, which it tells, does the rest.
    const isWanted = this.#state.kind === "connecting" && !this.#isStopping;
    if (isWanted && this.#hasFailed) this.#logger.info("the broker is consumed from again");
    if (this.#state.kind !== "left") {
      this.#state = { kind: "open", connection, sinceMs: seams.clock.monoMs() };
    }
    if (!isWanted) return connection.close();
    this.#hasFailed = false;
    changed();
  }

  #ended(reason: string): void {
    if (this.#state.kind !== "open") return;
    const heldMs = this.#options.seams.clock.monoMs() - this.#state.sinceMs;
    if (heldMs > RETRY_MOST_MS) this.#backoff.reset();
    this.#again(reason);
    this.#options.changed();
  }

  #again(reason: string): void {
    if (this.#isStopping || !this.#isListed) return this.#leave();
    if (this.#state.kind === "left") return;
    const retryInMs = this.#backoff.takeMs();
    if (!this.#hasFailed) {
      this.#logger.warn("the broker is not consumed from", { reason, retry_in_ms: retryInMs });
    }
    this.#hasFailed = true;
    const timer = this.#options.seams.clock.setTimer(retryInMs, () => this.connect());
    this.#state = { kind: "waiting", timer };
  }

  #leave(): void {
    const state = this.#state;
    if (state.kind === "left") return;
    if (state.kind === "waiting") state.timer.cancel();
    this.#state = { kind: "left" };
    this.#options.left();
  }
}
