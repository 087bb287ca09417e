/** Brokers that are asked in simulated time, and what finds them. Has no tests of its own. */
import { deepStrictEqual as equal } from "node:assert/strict";
import {
  type AskHttp,
  type HttpAnswer,
  HttpAskError,
  type HttpQuestion,
} from "@sluice/shared/runtime";
import { Logger } from "@sluice/shared/telemetry";
import { SeededRandom, SimClock } from "@sluice/shared/testing";
import { Registry } from "../registry.ts";
import { Directory } from "./directory.ts";
import { PollCounters } from "./polled_broker.ts";
import type { Endpoint, Source, SourceSink } from "./source.ts";

export const HEAD_INTERVAL_MS = 500;
export const FRESH_MS = 5_000;

/** A source that says what a test has it say. */
export class HandSource implements Source {
  readonly kind = "kubernetes";
  sink: SourceSink | null = null;

  constructor(readonly name = "hand", readonly staleAfterMs = Infinity) {}

  start(sink: SourceSink): void {
    this.sink = sink;
  }

  stop(): Promise<void> {
    return Promise.resolve();
  }

  lists(...endpoints: Endpoint[]): void {
    this.sink?.listed(endpoints, String(endpoints.length));
  }
}

/** A broker of ours, or nsqd, as HTTP shows it. */
export class FakeBroker {
  kind: "sluice" | "nsqd" = "sluice";
  state: "up" | "down" | "hung" = "up";
  instance = "first";
  revision = 1;
  publishReady = true;
  consumeReady = true;
  reasons: string[] = [];
  topics: Record<string, string[]> = {};
  /** Answers this with status 200, whatever it is asked. */
  nonsense: string | null = null;
  readonly asked: string[] = [];
  tokens = new Set<string>();

  constructor(readonly name: string, public tcpPort = 4150) {}

  answer(path: string): unknown {
    const head = {
      format: 1,
      instance: this.instance,
      revision: this.revision,
      publish_ready: this.publishReady,
      consume_ready: this.consumeReady,
      reasons: this.reasons,
    };
    const info = {
      broadcast_address: this.name,
      hostname: "machine",
      tcp_port: this.tcpPort,
      http_port: 4151,
      version: "1.3.0",
      topology_zone: "",
      topology_region: "",
    };
    const topics = Object.entries(this.topics);
    if (this.kind === "nsqd") {
      if (path === "/info") return info;
      if (!path.startsWith("/stats?")) return null;
      return {
        health: this.publishReady ? "OK" : "NOK - the disk is full",
        topics: topics.map(([topic_name, channels]) => ({
          topic_name,
          channels: channels.map((channel_name) => ({ channel_name })),
        })),
      };
    }
    if (path === "/v1/registry/head") return head;
    if (path !== "/v1/registry") return null;
    return {
      ...head,
      ...info,
      topics: topics.map(([topic, channels]) => ({ topic, channels })),
    };
  }
}

/** A registry that is fed by a directory in simulated time. */
export class DirectoryStage {
  readonly clock = new SimClock();
  readonly registry = new Registry({ inactiveTimeoutMs: 300_000, tombstoneLifetimeMs: 45_000 });
  readonly counters = new PollCounters();
  readonly brokers = new Map<string, FakeBroker>();
  readonly directory: Directory;
  /** Requests under way, and the most there were. */
  asking = 0;
  askingMax = 0;
  readonly lines: string[] = [];
  readonly #broken: unknown[] = [];

  constructor(sources: readonly Source[], token = "") {
    this.directory = new Directory({
      sources,
      registry: this.registry,
      clock: this.clock,
      random: new SeededRandom(1),
      askHttp: this.#ask,
      logger: new Logger({ sink: (line) => this.lines.push(line), clock: this.clock }),
      counters: this.counters,
      headIntervalMs: HEAD_INTERVAL_MS,
      freshMs: FRESH_MS,
      token,
      onBroken: (error) => this.#broken.push(error),
    });
    this.directory.start();
  }

  broker(name: string, topics: Record<string, string[]> = {}, port = 4151): FakeBroker {
    const broker = new FakeBroker(name);
    broker.topics = topics;
    this.brokers.set(`${name}:${port}`, broker);
    return broker;
  }

  /** Broadcast addresses of the producers of a topic; `null` for an unknown topic. */
  found(topic: string): string[] | null {
    return this.registry.lookup(topic, this.clock.monoMs())
      ?.map(({ info }) => info.broadcastAddress) ?? null;
  }

  async stop(): Promise<void> {
    const stopped = this.directory.stop();
    await this.clock.runUntil(stopped, 60_000);
    equal(this.#broken, []);
    equal(this.clock.pendingTimers, 0);
    equal(this.registry.producerCount, 0);
  }

  readonly #ask: AskHttp = async (question, { timeoutMs }) => {
    this.asking += 1;
    this.askingMax = Math.max(this.askingMax, this.asking);
    try {
      return await this.#answer(question, timeoutMs);
    } finally {
      this.asking -= 1;
    }
  };

  async #answer(question: HttpQuestion, timeoutMs: number): Promise<HttpAnswer> {
    await Promise.resolve();
    const url = new URL(question.url);
    const broker = this.brokers.get(`${url.hostname}:${url.port}`);
    const path = url.pathname + url.search;
    broker?.asked.push(path);
    broker?.tokens.add(question.headers["Authorization"] ?? "");
    if (broker?.state === "hung") {
      await this.clock.sleep(timeoutMs);
      throw new HttpAskError(`no whole answer within ${timeoutMs} ms`);
    }
    if (broker === undefined || broker.state === "down") {
      throw new HttpAskError("the connection failed: ECONNREFUSED");
    }
    if (broker.nonsense !== null) return { status: 200, body: bytes(broker.nonsense) };
    const answer = broker.answer(path);
    return answer === null
      ? { status: 404, body: bytes('{"message":"NOT_FOUND"}') }
      : { status: 200, body: bytes(JSON.stringify(answer)) };
  }
}

export function at(host: string, port = 4151): Endpoint {
  return { host, port };
}

function bytes(text: string): Uint8Array {
  return new TextEncoder().encode(text);
}
