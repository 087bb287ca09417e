/** Discovery services in simulated time, and what follows them. Has no tests of its own. */
import { deepStrictEqual as equal, ok } from "node:assert/strict";
import { type AskHttp, HttpAskError } from "../runtime/mod.ts";
import { Logger } from "../telemetry/mod.ts";
import {
  SeededRandom,
  settle,
  SimClock,
  type SimHttpStream,
  SimHttpStreams,
} from "../testing/mod.ts";
import { BrokerDirectory, type BrokerDirectoryOptions } from "./broker_directory.ts";
import type { DiscoverySeams } from "./broker_watch.ts";

export const A = "http://a:4161";
export const B = "http://b:4161";

/** A broker as discovery shows it, on port 4150. */
export function document(host: string, more: Record<string, unknown> = {}) {
  return {
    id: `${host}:4150`,
    broadcast_address: host,
    hostname: host,
    tcp_port: 4150,
    http_port: 4151,
    version: "1.3.0",
    topology_zone: "",
    topology_region: "",
    registered: false,
    observed: true,
    age_ms: 0,
    publish_ready: true,
    consume_ready: true,
    reasons: [],
    ...more,
  };
}

export const UNREADY = { publish_ready: false, reasons: ["disk_pressure"] };

/** The events of `/v1/watch`. */
export const say = {
  event: (name: string, data: unknown) =>
    `event: ${name}\nid: 1\ndata: ${JSON.stringify(data)}\n\n`,
  added: (host: string, topics: readonly string[] = [], more: Record<string, unknown> = {}) =>
    say.event("added", {
      revision: 1,
      id: `${host}:4150`,
      broker: document(host, more),
      topics: topics.map((topic) => ({ topic, channels: ["c"] })),
    }),
  synced: () => say.event("synced", { revision: 1, instance: "i" }),
  /** `+topic` came and `-topic` went; `more` is what the broker says anew. */
  changed: (host: string, topics: readonly string[], more?: Record<string, unknown>) =>
    say.event("changed", {
      revision: 1,
      id: `${host}:4150`,
      ...(more === undefined ? {} : { broker: document(host, more) }),
      registrations: topics.flatMap((topic) => [
        { topic: topic.slice(1), channel: null, present: topic.startsWith("+") },
        { topic: topic.slice(1), channel: "c", present: topic.startsWith("+") },
      ]),
    }),
  removed: (host: string) => say.event("removed", { revision: 1, id: `${host}:4150` }),
};

/** An answer of nsqlookupd to `/nodes`. */
export function nodes(brokers: Record<string, readonly string[]>, buried: readonly string[] = []) {
  return JSON.stringify({
    producers: Object.entries(brokers).map(([host, topics]) => ({
      remote_address: `${host}:5000`,
      hostname: host,
      broadcast_address: host,
      tcp_port: 4150,
      http_port: 4151,
      version: "1.3.0",
      tombstones: topics.map((topic) => buried.includes(topic)),
      topics,
    })),
  });
}

/** A directory and the services that it follows. */
export class DiscoveryStage {
  readonly clock = new SimClock();
  readonly streams = new SimHttpStreams(this.clock);
  /** What each URL answers to a GET; a number is a status, nothing refuses the connection. */
  readonly answers = new Map<string, string | number>();
  readonly asked: string[] = [];
  readonly lines: string[] = [];
  readonly directory: BrokerDirectory;
  /** What listeners were told, each time. */
  readonly told: string[][] = [];
  readonly #askHttp: AskHttp = async ({ url }) => {
    this.asked.push(url);
    await Promise.resolve();
    const answer = this.answers.get(url);
    if (answer === undefined) throw new HttpAskError("the connection failed: ECONNREFUSED");
    return typeof answer === "number"
      ? { status: answer, body: new Uint8Array(0) }
      : { status: 200, body: new TextEncoder().encode(answer) };
  };
  readonly seams: DiscoverySeams = {
    clock: this.clock,
    random: new SeededRandom(1),
    streamHttp: this.streams.open,
    askHttp: this.#askHttp,
    logger: new Logger({ sink: (line) => this.lines.push(line), clock: this.clock }),
  };

  constructor(options: Partial<BrokerDirectoryOptions> = {}) {
    this.directory = new BrokerDirectory({
      discoveryUrls: [A],
      brokers: [],
      keepsTopics: true,
      ...options,
    }, this.seams);
    this.directory.onChange((ids) => this.told.push([...ids].map(hostOf).sort()));
  }

  /** The stream of a service, which must be open. */
  stream(url = A): SimHttpStream {
    const stream = this.streams.stream(`${url}/v1/watch`);
    ok(stream !== undefined, `a stream of ${url} is open`);
    return stream;
  }

  watchable(...urls: readonly string[]): void {
    for (const url of urls) this.streams.set(`${url}/v1/watch`, 200);
  }

  async says(url: string, ...events: readonly string[]): Promise<void> {
    this.stream(url).send(events.join(""));
    await settle();
  }

  /** The brokers: their hosts, with `!` where they are not ready for publishes. */
  get brokers(): string {
    return [...this.directory.brokers.values()]
      .map(({ host, publishReady }) => host + (publishReady ? "" : "!"))
      .sort().join(" ");
  }

  /** The brokers that have a topic, with `?` where nobody knows. */
  having(topic: string): string {
    return [...this.directory.brokers.values()].flatMap((broker) => {
      const has = broker.hasTopic(topic);
      return has === false ? [] : [broker.host + (has === null ? "?" : "")];
    }).sort().join(" ");
  }

  /** State and reason of each source. */
  get sources(): string[] {
    return this.directory.sources().map(({ kind, state, reason }) =>
      `${kind} ${state}` + (reason === null ? "" : `: ${reason}`)
    );
  }

  async stop(): Promise<void> {
    await this.directory.stop();
    equal([this.clock.pendingTimers, this.streams.openCount], [0, 0]);
  }
}

function hostOf(id: string): string {
  return id.replace(/:4150$/, "");
}
