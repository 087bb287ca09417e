/**
 * Sends the figures of `/stats` to statsd, under nsqd's names (contract section 3.5).
 *
 * - Counters are what was added since the round before; a round that could not be sent is not made
 *   up for. A topic or channel that was made anew counts from zero.
 * - A packet holds whole lines and no more bytes than it may; a line that does not fit one is left
 *   out. The packets of a round are spread over its interval, so that no buffer on the way
 *   overflows, and a round is over before the next one begins.
 * - The first of the failures in a row is logged, and that it works again.
 */
import {
  type Clock,
  ConnectionError,
  type Datagrams,
  type DatagramSender,
  invariant,
  type Timer,
} from "@sluice/shared/runtime";
import type { Logger } from "@sluice/shared/telemetry";
import type { ChannelStats, TopicStats } from "./server/stats.ts";

/** What is sent, where and how often. */
export interface StatsdOptions {
  readonly host: string;
  readonly port: number;
  /** In front of every key. */
  readonly prefix: string;
  readonly intervalMs: number;
  readonly packetBytesMax: number;
  readonly includeMemory: boolean;
  readonly excludeEphemeral: boolean;
}

/** What a {@linkcode StatsdReporter} stands on. */
export interface StatsdSeams {
  readonly clock: Clock;
  readonly datagrams: Datagrams;
  readonly logger: Logger;
  readonly topics: () => readonly TopicStats[];
  /** nsqd's figures of memory. */
  readonly memory: () => Readonly<Record<string, number>>;
  /** Told of a mistake of ours. */
  readonly onBroken: (error: unknown) => void;
}

/** The end of an interval that packets are not spread over, as in nsqd. */
const REST_MS = 1_000;
const EPHEMERAL_REGEXP = /#ephemeral$/;
const TEXT_ENCODER = new TextEncoder();

/** nsqd's reading of `statsd-prefix`: `%s` is the broadcast address and HTTP port. */
export function statsdPrefix(pattern: string, broadcastAddress: string, httpPort: number): string {
  if (pattern === "") return "";
  const host = broadcastAddress.includes(":") ? `[${broadcastAddress}]` : broadcastAddress;
  const prefix = pattern.replaceAll("%s", `${host}:${httpPort}`.replace(/[.:]/g, "_"));
  return prefix.endsWith(".") ? prefix : `${prefix}.`;
}

/** Counters of the round before, by key. */
export class StatsdCounters {
  #last = new Map<string, number>();
  #next = new Map<string, number>();

  /** What was added to a counter since the round before. */
  added(key: string, value: number): number {
    const last = this.#last.get(key) ?? 0;
    this.#next.set(key, value);
    return value >= last ? value - last : value;
  }

  /** Ends a round: what was not counted in it is forgotten. */
  turn(): void {
    this.#last = this.#next;
    this.#next = new Map();
  }
}

/** The lines of a round, without line breaks. */
export function* statsdLines(
  topics: readonly TopicStats[],
  memory: Readonly<Record<string, number>> | null,
  counters: StatsdCounters,
  { prefix, excludeEphemeral }: Pick<StatsdOptions, "prefix" | "excludeEphemeral">,
): Iterable<string> {
  const gauge = (key: string, value: number) => `${prefix}${key}:${value}|g`;
  const counter = (key: string, value: number) => `${prefix}${key}:${counters.added(key, value)}|c`;

  function* latencies(key: string, stats: TopicStats | ChannelStats): Iterable<string> {
    for (const { quantile, value } of stats.e2e_processing_latency.percentiles ?? []) {
      yield gauge(`${key}.e2e_processing_latency_${Math.round(quantile * 100)}`, value);
    }
  }

  for (const topic of topics) {
    if (excludeEphemeral && EPHEMERAL_REGEXP.test(topic.topic_name)) continue;
    const key = `topic.${topic.topic_name}`;
    yield counter(`${key}.message_count`, topic.message_count);
    yield counter(`${key}.message_bytes`, topic.message_bytes);
    yield gauge(`${key}.depth`, topic.depth);
    yield gauge(`${key}.backend_depth`, topic.backend_depth);
    yield* latencies(key, topic);
    for (const channel of topic.channels) {
      if (excludeEphemeral && EPHEMERAL_REGEXP.test(channel.channel_name)) continue;
      const channelKey = `${key}.channel.${channel.channel_name}`;
      yield counter(`${channelKey}.message_count`, channel.message_count);
      yield gauge(`${channelKey}.depth`, channel.depth);
      yield gauge(`${channelKey}.backend_depth`, channel.backend_depth);
      yield gauge(`${channelKey}.in_flight_count`, channel.in_flight_count);
      yield gauge(`${channelKey}.deferred_count`, channel.deferred_count);
      yield counter(`${channelKey}.requeue_count`, channel.requeue_count);
      yield counter(`${channelKey}.timeout_count`, channel.timeout_count);
      yield gauge(`${channelKey}.clients`, channel.client_count);
      yield* latencies(channelKey, channel);
    }
  }
  for (const [name, value] of Object.entries(memory ?? {})) {
    if (name === "gc_total_runs") yield counter("mem.gc_runs", value);
    else yield gauge(`mem.${name}`, value);
  }
  counters.turn();
}

/** Whole lines, each with its line break, in packets of at most `bytesMax`. */
export function packets(lines: Iterable<string>, bytesMax: number): Uint8Array[] {
  const result: Uint8Array[] = [];
  let packet = new Uint8Array(bytesMax);
  let length = 0;
  for (const line of lines) {
    const bytes = TEXT_ENCODER.encode(`${line}\n`);
    if (bytes.length > bytesMax) continue;
    if (length + bytes.length > bytesMax) {
      result.push(packet.subarray(0, length));
      packet = new Uint8Array(bytesMax);
      length = 0;
    }
    packet.set(bytes, length);
    length += bytes.length;
  }
  if (length > 0) result.push(packet.subarray(0, length));
  return result;
}

/** See the module. */
export class StatsdReporter {
  readonly #options: StatsdOptions;
  readonly #seams: StatsdSeams;
  readonly #counters = new StatsdCounters();
  readonly #stopped = new AbortController();
  #timer: Timer | null = null;
  #round: Promise<void> = Promise.resolve();
  #isSending = false;
  #isFailing = false;
  /** Packets that were sent. */
  packetCount = 0;
  /** Rounds that were not sent whole. */
  failureCount = 0;

  constructor(options: StatsdOptions, seams: StatsdSeams) {
    this.#options = options;
    this.#seams = seams;
  }

  /** Sends after each interval from now on. */
  start(): void {
    invariant(this.#timer === null, "a reporter is started once");
    this.#arm();
  }

  /** Sends nothing more; resolves when nothing is under way. */
  async stop(): Promise<void> {
    this.#stopped.abort();
    this.#timer?.cancel();
    await this.#round;
  }

  #arm(): void {
    const { clock } = this.#seams;
    const { intervalMs } = this.#options;
    this.#timer = clock.setTimer(intervalMs, () => {
      const endMs = clock.monoMs() + intervalMs;
      this.#arm();
      // A round that is not over, because a name server does not answer, is not joined by another.
      if (!this.#isSending) {
        this.#round = this.#send(endMs - REST_MS).catch(this.#seams.onBroken);
      }
    });
  }

  async #send(endMs: number): Promise<void> {
    this.#isSending = true;
    const { datagrams } = this.#seams;
    const { host, port } = this.#options;
    let sender: DatagramSender | null = null;
    try {
      const waiting = this.#packets();
      sender = await datagrams.connect(host, port);
      await this.#spread(waiting, sender, endMs);
      if (this.#isFailing) this.#seams.logger.info("Figures can be sent to statsd again");
      this.#isFailing = false;
    } catch (error) {
      if (!(error instanceof ConnectionError)) throw error;
      this.failureCount++;
      if (!this.#isFailing) {
        this.#seams.logger.warn("Cannot send figures to statsd; later ones are tried", {
          error: String(error),
        });
      }
      this.#isFailing = true;
    } finally {
      sender?.close();
      this.#isSending = false;
    }
  }

  async #spread(
    waiting: readonly Uint8Array[],
    sender: DatagramSender,
    endMs: number,
  ): Promise<void> {
    const { clock } = this.#seams;
    const { signal } = this.#stopped;
    const gapMs = (endMs - clock.monoMs()) / waiting.length;
    for (const [index, packet] of waiting.entries()) {
      if (index > 0 && gapMs > 0) await clock.sleep(gapMs, signal).catch(() => {});
      if (signal.aborted) return;
      await sender.send(packet);
      this.packetCount++;
    }
  }

  #packets(): Uint8Array[] {
    const { topics, memory } = this.#seams;
    const { includeMemory, packetBytesMax } = this.#options;
    const figures = includeMemory ? memory() : null;
    return packets(
      statsdLines(topics(), figures, this.#counters, this.#options),
      packetBytesMax,
    );
  }
}
