/** The HTTP door of a gateway in a simulated world, for tests. Has no tests of its own. */
import { deepStrictEqual as equal } from "node:assert/strict";
import { HttpMeter } from "@sluice/shared/http";
import { type HttpAuthorization, openHttp } from "@sluice/shared/server";
import { Logger, MetricsRegistry } from "@sluice/shared/telemetry";
import { settle, type SimClock, SimDisk, type SimNetwork } from "@sluice/shared/testing";
import { BrokerWorld, type FakeBroker, SPOOL_PRODUCER } from "./fake_broker_test.ts";
import { type Health, judgeHealth } from "./health.ts";
import { gatewayHttp, type GatewayHttpOptions, type GatewayHttpSeams } from "./http.ts";
import type { BrokerPool, PoolOptions } from "./pool.ts";
import { Publisher } from "./publisher.ts";
import { Receiving } from "./receiving.ts";
import { Spool } from "./spool/mod.ts";
import { brokerStats, publishStats } from "./stats.ts";

/** Small enough for a test to go beyond. */
export const MESSAGE_BYTES_MAX = 4_000;
export const BODY_BYTES_MAX = 5_000;
export const BODY_TIMEOUT_MS = 60_000;
export const LOCAL = "127.0.0.1:5";

/** How a world is made. */
export interface HttpWorldOptions {
  readonly brokers?: number;
  readonly hasSpool?: boolean;
  readonly bytesMax?: number;
  readonly pool?: Partial<PoolOptions>;
  readonly authorization?: HttpAuthorization;
  readonly http?: Partial<GatewayHttpOptions>;
}

/** A request in short. */
export interface Asked {
  readonly body?: BodyInit;
  readonly headers?: Readonly<Record<string, string>>;
  readonly from?: string;
  readonly token?: string;
}

/** See the module. */
export class HttpWorld {
  readonly lines: string[] = [];
  readonly receiving: Receiving;
  readonly publisher: Publisher;
  readonly clock: SimClock;
  readonly network: SimNetwork;
  readonly brokers: readonly FakeBroker[];
  readonly pool: BrokerPool;
  readonly httpOptions: GatewayHttpOptions;
  readonly seams: GatewayHttpSeams;
  /** In place of what is judged. */
  health: Health | null = null;
  isStopping = false;
  readonly #handler: ReturnType<typeof gatewayHttp>;

  private constructor(
    world: BrokerWorld,
    readonly disk: SimDisk,
    readonly spool: Spool | null,
    options: HttpWorldOptions,
  ) {
    const { clock, pool } = world;
    this.clock = clock;
    this.network = world.network;
    this.brokers = world.brokers;
    this.pool = pool;
    const bytesMax = options.bytesMax ?? 2 ** 20;
    this.receiving = new Receiving(bytesMax);
    this.publisher = new Publisher({
      spoolProducer: SPOOL_PRODUCER,
      timeoutMs: 10_000,
      spoolAfterMs: 200,
      bytesMax,
    }, { pool, spool, clock });
    pool.onUsable = () => this.publisher.brokersChanged();
    this.httpOptions = {
      hostname: "host",
      broadcastAddress: "broadcast",
      tcpPort: () => 4150,
      httpPort: () => 4151,
      startWallMs: 1_700_000_000_999,
      authorization: options.authorization ?? openHttp(),
      messageBytesMax: MESSAGE_BYTES_MAX,
      bodyBytesMax: BODY_BYTES_MAX,
      deferMsMax: 3_600_000,
      bodyTimeoutMs: BODY_TIMEOUT_MS,
      ...options.http,
    };
    const metrics = new MetricsRegistry();
    metrics.gauge({ name: "sluice_gateway_test", help: "A metric." }, (set) => set({}, 1));
    this.seams = {
      publisher: this.publisher,
      receiving: this.receiving,
      clock,
      logger: new Logger({ sink: (line) => this.lines.push(line), clock }),
      metrics,
      meter: new HttpMeter(clock),
      spool,
      isStopping: () => this.isStopping,
      health: () => this.health ?? this.#health(),
      stats: () => ({
        connections: 0,
        publishes: publishStats(this.publisher),
        held_publishes: this.publisher.heldCount,
        held_bytes: this.publisher.heldBytes,
        brokers: brokerStats(pool),
        sources: [],
        spool: null,
      }),
    };
    this.#handler = gatewayHttp(this.httpOptions, this.seams);
  }

  /** Runs a test in a world, and sees to it that nothing is left of it. */
  static async use(
    options: HttpWorldOptions,
    test: (world: HttpWorld) => Promise<void>,
  ): Promise<void> {
    const world = await HttpWorld.#open(options);
    await settle();
    await test(world);
    world.publisher.expireAll();
    world.pool.close();
    for (const broker of world.brokers) broker.down();
    await world.clock.runUntil(world.publisher.idle(), 5_000);
    world.publisher.close();
    const closing = (world.spool?.close() ?? Promise.resolve()).catch((error) => {
      if (world.spool?.figures.failure === null) throw error;
    });
    await world.clock.runUntil(closing, 5_000);
    await world.clock.run(5_000);
    const { network, clock, receiving, publisher, disk } = world;
    equal([network.openEnds, clock.pendingTimers, disk.openFiles], [0, 0, 0]);
    equal([publisher.heldBytes, receiving.usedBytes], [0, 0]);
  }

  static async #open(options: HttpWorldOptions): Promise<HttpWorld> {
    const world = new BrokerWorld(options.brokers ?? 1, 1, options.pool);
    const { clock } = world;
    const disk = new SimDisk();
    if (options.hasSpool !== true) return new HttpWorld(world, disk, null, options);
    const logger = new Logger({ sink: () => {}, clock });
    const spool = await Spool.open({ disk, clock, logger, onFailed: () => {} }, {
      path: "/spool",
      bytesMax: 64 * 2 ** 20,
      ageMsMax: 3_600_000,
      fileBytes: 65_536,
      recordBytesMax: 64 * 1024,
      heldMax: 64,
      quarantineMax: 100,
      reserveBytes: 8192,
    });
    return new HttpWorld(world, disk, spool, options);
  }

  async fetch(method: string, path: string, asked: Asked = {}): Promise<Response> {
    const { body, headers = {}, from = LOCAL, token } = asked;
    const request = new Request(`http://127.0.0.1:4151${path}`, {
      method,
      ...(body === undefined ? {} : { body }),
      headers: {
        ...headers,
        ...(token === undefined ? {} : { Authorization: `Bearer ${token}` }),
      },
    });
    return await this.#handler(request, from);
  }

  /** Status and text. */
  async ask(method: string, path: string, asked?: Asked): Promise<[number, string]> {
    const response = await this.fetch(method, path, asked);
    return [response.status, await response.text()];
  }

  post(path: string, body?: BodyInit, headers?: Record<string, string>) {
    return this.ask("POST", path, {
      ...(body === undefined ? {} : { body }),
      ...(headers === undefined ? {} : { headers }),
    });
  }

  /** Bodies of a topic at all brokers. */
  bodies(topic = "t"): string[] {
    return this.brokers.flatMap((broker) => broker.bodies(topic));
  }

  #health(): Health {
    return judgeHealth({
      version: "1.3.0",
      draining: this.isStopping,
      listed: this.brokers.length,
      usable: this.pool.usable.length,
      spool: null,
      spoolRefuses: null,
      lost: [],
    });
  }
}

/** What an error answers. */
export function refused(code: string): string {
  return JSON.stringify({ message: code });
}
