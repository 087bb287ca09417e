/**
 * One endpoint that is asked again and again, and its place in the registry. Each time: the head;
 * the whole registry only when the head has another revision or instance than what is known. A broker
 * without these routes is an nsqd: `/info` and `/stats` then, and less often.
 *
 * The broker is in the registry from its first whole answer until it was silent for `freshMs`,
 * whatever became of the requests meanwhile.
 *
 *     unknown -> sluice, unknown -> nsqd, and from both back to unknown when it is forgotten
 */
import {
  type AskHttp,
  type Clock,
  hostAndPort,
  type HttpAnswer,
  HttpAskError,
  type Timer,
} from "@sluice/shared/runtime";
import type { Logger } from "@sluice/shared/telemetry";
import type { ProducerInfo, Readiness, TopicChannels } from "../producer.ts";
import type { LimitReached, Registry } from "../registry.ts";
import { readHead, readNsqd, readRegistry } from "./broker_answers.ts";
import type { Endpoint } from "./source.ts";
import type { Turns } from "./turns.ts";

const CONNECT_TIMEOUT_MS = 2_000;
const HEAD_TIMEOUT_MS = 2_000;
const WHOLE_TIMEOUT_MS = 5_000;
const HEAD_BYTES_MAX = 8 * 1024;
/** 100,000 topics with the longest names and some channels each. */
export const REGISTRY_BYTES_MAX = 32 * 1024 * 1024;
/** An endpoint that does not answer is asked less and less often, down to once in so long. */
export const RETRY_MS_MAX = 2_000;
/** An nsqd is asked so many times while what it said is fresh. */
const NSQD_ASKS_PER_FRESH = 2.5;

/** What is asked for, for the metrics. */
export type AskedFor = "head" | "registry" | "info" | "stats";

/** Counts the requests to brokers. */
export class PollCounters {
  readonly answered = new Map<AskedFor, number>();
  readonly failed = new Map<AskedFor, number>();

  count(asked: AskedFor, isAnswered: boolean): void {
    const counts = isAnswered ? this.answered : this.failed;
    counts.set(asked, (counts.get(asked) ?? 0) + 1);
  }
}

/** What all endpoints share. */
export interface PollOptions {
  readonly registry: Registry;
  readonly clock: Clock;
  readonly askHttp: AskHttp;
  readonly logger: Logger;
  readonly counters: PollCounters;
  /** The time between two heads. */
  readonly headIntervalMs: number;
  /** How long what a broker said is fresh. */
  readonly freshMs: number;
  /** Sent as a bearer token; none when empty. */
  readonly token: string;
}

/** What became of asking. */
export interface PollStatus {
  readonly endpoint: string;
  readonly state: "new" | "fresh" | "unreachable";
  /** Why the last time gave nothing; `null` when it did. */
  readonly reason: string | null;
}

/** An answer that is of no use; the message says why. */
class PollError extends Error {
  override name = "PollError";
}

interface Whole {
  readonly info: ProducerInfo;
  readonly topics: readonly TopicChannels[];
  readonly readiness: Readiness;
}

type Known =
  | { readonly kind: "unknown" }
  | { readonly kind: "sluice"; readonly instance: string; readonly revision: number }
  | { readonly kind: "nsqd" };

/** See the module. */
export class PolledBroker {
  readonly key: string;
  readonly #address: string;
  readonly #baseUrl: string;
  readonly #options: PollOptions;
  readonly #logger: Logger;
  readonly #wholes: Turns;
  #known: Known = { kind: "unknown" };
  #info: ProducerInfo | null = null;
  #expiry: Timer | null = null;
  #failure: string | null = null;
  #failures = 0;
  #asked = false;
  #left = false;

  /** Whole registries are asked for, and read, in turns of `wholes`. */
  constructor(endpoint: Endpoint, options: PollOptions, wholes: Turns) {
    this.#wholes = wholes;
    this.#address = hostAndPort(endpoint.host, endpoint.port);
    this.key = `observed ${this.#address}`;
    this.#baseUrl = `http://${this.#address}`;
    this.#options = options;
    this.#logger = options.logger.child({ broker: this.#address });
  }

  get status(): PollStatus {
    const state = this.#info !== null ? "fresh" : this.#asked ? "unreachable" : "new";
    return { endpoint: this.#address, state, reason: this.#failure };
  }

  /** Whether it gave no answer when it was last asked. */
  get isFailing(): boolean {
    return this.#failures > 0;
  }

  /** When to ask next, from the end of the last time. */
  get delayMs(): number {
    const { headIntervalMs, freshMs } = this.#options;
    if (this.#failures > 0) {
      const backOffMs = headIntervalMs * 2 ** Math.min(this.#failures - 1, 16);
      return Math.max(headIntervalMs, Math.min(RETRY_MS_MAX, backOffMs));
    }
    if (this.#known.kind !== "nsqd") return headIntervalMs;
    return Math.max(headIntervalMs, freshMs / NSQD_ASKS_PER_FRESH);
  }

  /** Asks once. Rejects only with a mistake of ours. */
  async poll(): Promise<void> {
    try {
      await this.#poll();
      if (this.#failures > 0) this.#logger.info("the broker answers again");
      this.#failure = null;
      this.#failures = 0;
    } catch (error) {
      if (!(error instanceof HttpAskError || error instanceof PollError)) throw error;
      this.#failures += 1;
      this.#failure = error.message;
      if (this.#failures === 1) {
        this.#logger.warn("the broker gives no answer", { reason: error.message });
      }
    } finally {
      this.#asked = true;
    }
  }

  /** Takes the broker out of the registry; answers that are still under way count no more. */
  leave(): void {
    this.#left = true;
    this.#forget();
  }

  async #poll(): Promise<void> {
    if (this.#known.kind === "nsqd") return await this.#pollNsqd();
    const answer = await this.#ask("head", "/v1/registry/head", HEAD_BYTES_MAX, HEAD_TIMEOUT_MS);
    if (answer.status === 404) return await this.#pollNsqd();
    const head = readHead(okBody(answer));
    if (head === null) throw new PollError("the head of its registry cannot be read");
    const known = this.#known;
    const isSame = known.kind === "sluice" && this.#info !== null &&
      known.instance === head.instance && known.revision === head.revision;
    if (isSame) return this.#seen(head.readiness);
    await this.#wholes.run(async () => {
      const whole = readRegistry(okBody(await this.#askWhole("registry", "/v1/registry")));
      if (whole === null) throw new PollError("its registry cannot be read");
      this.#apply(whole, { kind: "sluice", instance: whole.instance, revision: whole.revision });
    });
  }

  async #pollNsqd(): Promise<void> {
    const info = okBody(await this.#ask("info", "/info", HEAD_BYTES_MAX, HEAD_TIMEOUT_MS));
    const stats = okBody(
      await this.#askWhole("stats", "/stats?format=json&include_clients=false&include_mem=false"),
    );
    const whole = readNsqd(info, stats);
    if (whole === null) throw new PollError("its /info and /stats cannot be read");
    this.#apply(whole, { kind: "nsqd" });
  }

  #apply({ info, topics, readiness }: Whole, known: Known): void {
    if (this.#left) return;
    const { registry, clock, freshMs } = this.#options;
    if (this.#info !== null && !isSameInfo(this.#info, info)) this.#forget();
    if (this.#info === null) {
      const producer = { remoteAddress: this.#address, info };
      const limited = registry.addProducer(this.key, producer, clock.monoMs(), {
        readiness,
        freshMs,
      });
      if (limited !== null) throw new PollError(limitText(limited));
      this.#info = info;
      this.#logger.info("a broker is found", {
        broadcast: info.broadcastAddress,
        tcp_port: info.tcpPort,
        version: info.version,
        topics: topics.length,
      });
    }
    this.#seen(readiness);
    const limited = registry.replaceRegistrations(this.key, topics);
    // Not known as it is: so all of it is asked for again.
    if (limited !== null) throw new PollError(limitText(limited));
    this.#known = known;
  }

  #seen(readiness: Readiness): void {
    if (this.#left) return;
    const { registry, clock, freshMs } = this.#options;
    registry.touch(this.key, clock.monoMs());
    registry.setObservation(this.key, { readiness, freshMs });
    this.#expiry?.cancel();
    this.#expiry = clock.setTimer(freshMs, () => {
      this.#logger.warn("the broker is not listed any more", { silent_ms: freshMs });
      this.#forget();
    });
  }

  #forget(): void {
    this.#expiry?.cancel();
    this.#expiry = null;
    if (this.#info === null) return;
    this.#info = null;
    this.#known = { kind: "unknown" };
    this.#options.registry.removeProducer(this.key);
  }

  #askWhole(asked: AskedFor, path: string): Promise<HttpAnswer> {
    return this.#ask(asked, path, REGISTRY_BYTES_MAX, WHOLE_TIMEOUT_MS);
  }

  async #ask(
    asked: AskedFor,
    path: string,
    bodyBytesMax: number,
    timeoutMs: number,
  ): Promise<HttpAnswer> {
    const { askHttp, counters, token } = this.#options;
    const headers: Record<string, string> = { Accept: "application/vnd.nsq; version=1.0" };
    if (token !== "") headers["Authorization"] = `Bearer ${token}`;
    const question = { method: "GET", url: this.#baseUrl + path, headers } as const;
    try {
      const answer = await askHttp(question, {
        connectTimeoutMs: CONNECT_TIMEOUT_MS,
        timeoutMs,
        bodyBytesMax,
      });
      counters.count(asked, true);
      return answer;
    } catch (error) {
      counters.count(asked, false);
      throw error;
    }
  }
}

function okBody({ status, body }: HttpAnswer): Uint8Array {
  if (status === 200) return body;
  if (status === 401 || status === 403) {
    throw new PollError("it wants a token with the scope read, or TLS");
  }
  throw new PollError(`it answers with status ${status}`);
}

function limitText({ limit, max }: LimitReached): string {
  return `not all of it is listed: ${limit} ${max} is reached`;
}

function isSameInfo(a: ProducerInfo, b: ProducerInfo): boolean {
  return a.broadcastAddress === b.broadcastAddress && a.tcpPort === b.tcpPort &&
    a.httpPort === b.httpPort && a.hostname === b.hostname && a.version === b.version &&
    a.topologyZone === b.topologyZone && a.topologyRegion === b.topologyRegion;
}
