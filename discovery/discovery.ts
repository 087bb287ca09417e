/**
 * The discovery service put together from its parts over the seams it is given: a test runs it in
 * its own process, `main.ts` with the real world. It keeps nothing on disk and knows no other
 * discovery; clients ask all of them and merge.
 *
 * Both listeners are bound before either serves, so a start succeeds whole or not at all.
 */
import { errorReply, HttpMeter, type NsqHttp, withAccessLog } from "@sluice/shared/http";
import {
  AddressInUseError,
  type AskHttp,
  type Clock,
  type HttpServer,
  invariant,
  type Listener,
  type NameResolver,
  type Network,
  type ProcessFigures,
  type Random,
  REPORTED_VERSION,
  type ServeHttp,
} from "@sluice/shared/runtime";
import { type Logger, LoopLag, MetricsRegistry } from "@sluice/shared/telemetry";
import { discoveryHttp } from "./http.ts";
import { registerMetrics } from "./metrics.ts";
import { Registry, type RegistryLimits } from "./registry.ts";
import { SessionCounters } from "./session.ts";
import { SessionServer } from "./session_server.ts";
import { Roster } from "./roster.ts";
import { Directory } from "./sources/directory.ts";
import { type DnsName, DnsSource } from "./sources/dns_source.ts";
import { PollCounters } from "./sources/polled_broker.ts";
import type { Endpoint, Source } from "./sources/source.ts";
import { StaticSource } from "./sources/static_source.ts";
import { WatchHub } from "./watch.ts";

/** How long {@linkcode Discovery.close} lets HTTP requests finish. */
export const HTTP_GRACE_MS = 5_000;

/** Where to listen; port 0 picks a free one. */
export interface ListenAddress {
  readonly host: string;
  readonly port: number;
}

export interface DiscoveryOptions {
  readonly tcpAddress: ListenAddress;
  readonly httpAddress: ListenAddress;
  /** The host brokers are told this service is reached at. */
  readonly broadcastAddress: string;
  /** The name of the machine. */
  readonly hostname: string;
  /** How long after its last ping a producer is listed, and how long a silent connection lives. */
  readonly inactiveTimeoutMs: number;
  readonly tombstoneLifetimeMs: number;
  readonly connectionsMax: number;
  readonly limits: RegistryLimits;
  /** Where to find brokers that do not register; nowhere when absent. */
  readonly polling?: PollingOptions;
  readonly watchersMax?: number;
  readonly corsOrigins?: readonly string[];
}

/** Brokers that are asked what they have. */
export interface PollingOptions {
  readonly brokers: readonly Endpoint[];
  readonly dnsNames: readonly DnsName[];
  readonly dnsIntervalMs: number;
  readonly headIntervalMs: number;
  /** How long what a broker said is fresh. */
  readonly freshMs: number;
  /** Sent as a bearer token; none when empty. */
  readonly token: string;
}

const WATCHERS_MAX = 256;
const NO_POLLING: PollingOptions = {
  brokers: [],
  dnsNames: [],
  dnsIntervalMs: 5_000,
  headIntervalMs: 500,
  freshMs: 5_000,
  token: "",
};

/** The world a discovery service lives in. */
export interface DiscoverySeams {
  readonly clock: Clock;
  readonly network: Network;
  readonly serveHttp: ServeHttp;
  readonly random: Random;
  /** Needed where there are brokers that do not register. */
  readonly askHttp?: AskHttp;
  /** Needed where there are names in DNS. */
  readonly resolver?: NameResolver;
  readonly logger: Logger;
  /** Figures of the process, for metrics; told where they are known. */
  readonly process?: () => ProcessFigures;
  /** Called for an error that is a mistake of ours: the state is no longer to be trusted. */
  readonly onBroken: (error: unknown) => void;
}

/** An address that cannot be listened on. The message names the flag. */
export class ListenError extends Error {
  override name = "ListenError";
}

/** A running service. */
export class Discovery {
  readonly #options: DiscoveryOptions;
  readonly #seams: DiscoverySeams;
  readonly #listener: Listener;
  readonly #http: HttpServer;
  readonly #httpAbort = new AbortController();
  readonly #sessions: SessionServer;
  readonly #directory: Directory;
  readonly #watch: WatchHub;
  readonly #lag: LoopLag;
  #isStopping = false;

  /** Starts to serve. Throws {@linkcode ListenError}. */
  constructor(options: DiscoveryOptions, seams: DiscoverySeams) {
    this.#options = options;
    this.#seams = seams;
    const { clock, network, logger, onBroken } = seams;
    const { inactiveTimeoutMs, tombstoneLifetimeMs, limits, connectionsMax } = options;
    const registry = new Registry({ inactiveTimeoutMs, tombstoneLifetimeMs, limits });
    const metrics = new MetricsRegistry(clock);
    const meter = new HttpMeter(clock);
    this.#lag = new LoopLag(clock);
    const roster = new Roster(registry, clock);
    const instance = hex(seams.random.u32()) + hex(seams.random.u32());
    const watchersMax = options.watchersMax ?? WATCHERS_MAX;
    this.#watch = new WatchHub({ roster, clock, instance, watchersMax });
    const polls = new PollCounters();
    this.#directory = directory(options.polling ?? NO_POLLING, registry, polls, seams);
    const app = discoveryHttp({
      registry,
      clock,
      logger,
      metrics,
      meter,
      corsOrigins: options.corsOrigins ?? [],
      native: {
        instance,
        clock,
        startMs: clock.monoMs(),
        roster,
        directory: this.#directory,
        watch: this.#watch,
        isStopping: () => this.#isStopping,
      },
    });

    const { tcpAddress } = options;
    this.#listener = listening("--tcp-address", tcpAddress, () => {
      return network.listen(tcpAddress.host, tcpAddress.port);
    });
    try {
      this.#http = this.#serveHttp(app);
    } catch (error) {
      this.#listener.close();
      throw error;
    }
    const server = {
      broadcastAddress: options.broadcastAddress,
      hostname: options.hostname,
      httpPort: this.#http.port,
      tcpPort: this.#listener.port,
      version: REPORTED_VERSION,
    };
    const counters = new SessionCounters();
    this.#sessions = new SessionServer({
      listener: this.#listener,
      clock,
      logger,
      context: { registry, server, counters },
      idleTimeoutMs: inactiveTimeoutMs,
      connectionsMax,
      onBroken,
    });
    registerMetrics(metrics, () => ({
      registry,
      http: meter,
      sessions: this.#sessions,
      counters,
      acceptFailures: {
        tcp: this.#listener.acceptFailureCount ?? 0,
        http: this.#http.acceptFailureCount ?? 0,
      },
      process: seams.process,
      lag: this.#lag,
      sources: this.#directory.sources(),
      polled: this.#directory.brokers(),
      polls,
      watch: this.#watch.figures,
    }));
    this.#directory.start();
    this.#lag.start();
    logger.info(`TCP: listening on ${addressText(this.tcpAddress)}`);
    logger.info(`HTTP: listening on ${addressText(this.httpAddress)}`);
  }

  /** With the port that was chosen. */
  get tcpAddress(): ListenAddress {
    return { host: this.#listener.hostname, port: this.#listener.port };
  }

  get httpAddress(): ListenAddress {
    return { host: this.#http.hostname, port: this.#http.port };
  }

  /**
   * Tells in health that it ends, and goes on for `delayMs`. Then stops accepting, closes the connections
   * of brokers, lets HTTP requests finish for {@linkcode HTTP_GRACE_MS} and resolves when all is closed.
   */
  async close(delayMs = 0): Promise<void> {
    this.#isStopping = true;
    if (delayMs > 0) await this.#seams.clock.sleep(delayMs);
    const timer = this.#seams.clock.setTimer(HTTP_GRACE_MS, () => this.#httpAbort.abort());
    this.#lag.stop();
    // Watches never end by themselves, and what goes now is not news of brokers.
    this.#watch.close();
    try {
      await Promise.all([
        this.#sessions.close(),
        this.#http.shutdown(),
        this.#directory.stop(),
      ]);
    } finally {
      timer.cancel();
    }
    this.#seams.logger.info("TCP: closed, HTTP: closed");
  }

  #serveHttp(app: NsqHttp): HttpServer {
    const { host, port } = this.#options.httpAddress;
    return listening("--http-address", this.#options.httpAddress, () => {
      return this.#seams.serveHttp({
        hostname: host,
        port,
        handler: withAccessLog(
          (request, remoteAddress) => app.fetch(request, { remoteAddress }),
          app.routes.map(({ method, path }) => `${method} ${path}`),
          this.#seams,
        ),
        onError: (error) => {
          this.#seams.onBroken(error);
          return errorReply(500, "INTERNAL_ERROR");
        },
        signal: this.#httpAbort.signal,
      });
    });
  }
}

function directory(
  polling: PollingOptions,
  registry: Registry,
  counters: PollCounters,
  seams: DiscoverySeams,
): Directory {
  const { clock, random, logger, onBroken, resolver, askHttp } = seams;
  const { brokers, dnsNames, dnsIntervalMs, headIntervalMs, freshMs, token } = polling;
  const sources: Source[] = brokers.length > 0 ? [new StaticSource(brokers)] : [];
  for (const name of dnsNames) {
    invariant(resolver !== undefined, "a service that finds brokers by DNS has a resolver");
    sources.push(new DnsSource({ name, resolver, clock, intervalMs: dnsIntervalMs, onBroken }));
  }
  return new Directory({
    sources,
    registry,
    clock,
    random,
    askHttp: askHttp ?? unasked,
    logger,
    counters,
    headIntervalMs,
    freshMs,
    token,
    onBroken,
  });
}

function unasked(): never {
  invariant(false, "a service that asks brokers has an HTTP client");
}

function hex(value: number): string {
  return value.toString(16).padStart(8, "0");
}

function listening<T>(flag: string, address: ListenAddress, listen: () => T): T {
  try {
    return listen();
  } catch (error) {
    const reason = error instanceof AddressInUseError
      ? "the address is in use"
      : error instanceof Error
      ? error.message
      : String(error);
    throw new ListenError(`Cannot listen on ${flag}=${addressText(address)}: ${reason}`, {
      cause: error,
    });
  }
}

function addressText({ host, port }: ListenAddress): string {
  return host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;
}
