/**
 * The gateway put together from its parts over the seams it is given: `main.ts` runs it in the real
 * world, a test in its own process.
 *
 * Start: HTTP, the spool (read through), brokers, NSQ, all of HTTP. The spool is emptied meanwhile.
 *
 * Stop: health says draining, and for `drain-delay` publishes are still taken; nothing new is accepted;
 * what is on its way gets its answer, or after half of the time is spooled; connections close when
 * their answers are written; the spool is synced, and what is left in it is told.
 */
import { Authorization } from "@sluice/shared/authorization";
import { BrokerDirectory } from "@sluice/shared/client";
import { HEARTBEAT_INTERVAL_MS_MIN, IDENTIFY_OPTIONS_DEFAULT } from "@sluice/shared/protocol";
import { HttpMeter, withAccessLog } from "@sluice/shared/http";
import {
  type AskHttp,
  type Clock,
  type Disk,
  hostAndPort,
  type Network,
  type ProcessFigures,
  type Random,
  REPORTED_VERSION,
  type ServeHttp,
  type ServeHttps,
  type StreamHttp,
} from "@sluice/shared/runtime";
import {
  authorizationOf,
  effectiveTlsRequired,
  Handshakes,
  HttpDoors,
  listenNsq,
  TcpServer,
} from "@sluice/shared/server";
import { type Logger, LoopLag, MetricsRegistry } from "@sluice/shared/telemetry";
import { type ListedBroker, newProducerId } from "./broker_link.ts";
import { type GatewayValues, staticBrokers, tunnelAddress } from "./config.ts";
import { type Health, judgeHealth, type SpoolHealth } from "./health.ts";
import { GATEWAY_ROUTE_RULES, gatewayHttp, isPatient, startingHttp } from "./http.ts";
import { registerMetrics } from "./metrics.ts";
import { BrokerPool } from "./pool.ts";
import { Publisher } from "./publisher.ts";
import { Replayer } from "./replayer.ts";
import { Receiving } from "./receiving.ts";
import { Session, type SessionOptions } from "./session.ts";
import { Spool } from "./spool/mod.ts";
import { brokerStats, type GatewayStats, publishStats } from "./stats.ts";
import { TunnelServer } from "./tunnel.ts";

/** How long a peer may take to send the body of a publish over HTTP. */
const HTTP_BODY_TIMEOUT_MS = 60_000;
/** How long connections that are in use may go on when the gateway stops. */
const DRAIN_MS_MAX = 4_000;
const DRAIN_LOOK_MS = 25;
/** How long connections may take to read their last answers. */
const CLOSE_MS_MAX = 2_000;
/** The size of a file of the spool. */
const SPOOL_FILE_BYTES = 16 * 2 ** 20;
/** Room in a record of the spool beside the body. */
const SPOOL_RECORD_OVERHEAD_BYTES = 4_096;

/** The world a gateway runs in. */
export interface GatewaySeams {
  readonly disk: Disk;
  readonly clock: Clock;
  readonly random: Random;
  readonly network: Network;
  readonly serveHttp: ServeHttp;
  readonly serveHttps: ServeHttps;
  readonly readTextFile: (path: string) => Promise<string>;
  readonly askHttp: AskHttp;
  readonly streamHttp: StreamHttp;
  readonly logger: Logger;
  /** Figures of the process, for metrics; told where they are known. */
  readonly process?: () => ProcessFigures;
  /** The gateway cannot go on: a mistake of ours. */
  readonly onBroken: (error: unknown) => void;
}

/** What the settings are. */
export interface GatewaySettings {
  readonly values: GatewayValues;
  readonly hostname: string;
}

/** A running gateway. */
export class Gateway {
  readonly metrics: MetricsRegistry;
  readonly publisher: Publisher;
  readonly pool: BrokerPool;
  readonly spool: Spool | null;
  readonly tcp: TcpServer<Session>;
  readonly #settings: GatewaySettings;
  readonly #seams: GatewaySeams;
  readonly #doors: HttpDoors;
  readonly #authorization: Authorization;
  readonly #directory: BrokerDirectory;
  readonly #replayer: Replayer | null;
  readonly #tunnels: TunnelServer | null;
  readonly #receiving: Receiving;
  readonly #lag: LoopLag;
  #draining = false;
  #stopping = false;

  private constructor(parts: Parts, settings: GatewaySettings, seams: GatewaySeams) {
    const { doors, authorization, spool } = parts;
    const { values, hostname } = settings;
    const { clock, logger, random, network } = seams;
    this.#settings = settings;
    this.#seams = seams;
    this.metrics = new MetricsRegistry(clock);
    this.#doors = doors;
    this.#authorization = authorization;
    this.spool = spool;
    this.pool = new BrokerPool({
      affinity: values.affinity,
      connectTimeoutMs: values.brokerConnectTimeoutMs,
      heartbeatIntervalMs: Math.max(HEARTBEAT_INTERVAL_MS_MIN, values.brokerHeartbeatIntervalMs),
      authSecret: values.brokerAuthSecret === ""
        ? null
        : new TextEncoder().encode(values.brokerAuthSecret),
      slowMs: values.brokerSlowMs,
    }, { network, clock, random });
    this.publisher = new Publisher({
      spoolProducer: newProducerId(random),
      timeoutMs: values.publishTimeoutMs,
      spoolAfterMs: values.spoolAfterMs,
      bytesMax: values.publishBytesMax,
    }, { pool: this.pool, spool, clock });
    this.#replayer = spool && new Replayer(
      { dedupWindowMs: repeatableMs(values) },
      { spool, pool: this.pool, clock, logger, onBroken: seams.onBroken },
    );
    this.#receiving = new Receiving(values.publishBytesMax);
    this.#directory = new BrokerDirectory({
      discoveryUrls: values.discoveryUrls,
      brokers: staticBrokers(values).map(({ host, port }) => ({ host, tcpPort: port })),
      keepsTopics: values.affinity === "owner-first",
    }, seams);
    this.pool.onUsable = () => {
      this.publisher.brokersChanged();
      this.#replayer?.wake();
    };
    this.publisher.onSpooled = () => this.#replayer?.wake();
    const handshakes = new Handshakes(clock);
    this.tcp = new TcpServer(parts.listener, {
      clock,
      connectionsMax: values.connectionsMax,
      closeMsMax: closeMsMax(values),
      open: (connection, onClose) =>
        new Session(connection, this.#sessionOptions(handshakes), {
          publisher: this.publisher,
          receiving: this.#receiving,
          clock,
          logger,
        }, onClose),
    });
    this.#tunnels = parts.tunnelListener && new TunnelServer(parts.tunnelListener, {
      tunnelsMax: values.tunnelsMax,
      ageMsMax: values.tunnelAgeMsMax,
      connectTimeoutMs: values.brokerConnectTimeoutMs,
    }, { network, clock, random, targets: () => this.#tunnelTargets() });
    this.#lag = new LoopLag(clock);
    const meter = new HttpMeter(clock);
    registerMetrics(this.metrics, () => ({
      publisher: this.publisher,
      pool: this.pool,
      receiving: this.#receiving,
      spool,
      replayer: this.#replayer,
      tunnels: this.#tunnels,
      http: meter,
      tcp: this.tcp,
      acceptFailures: { tcp: this.tcp.acceptFailureCount, http: doors.acceptFailureCount },
      handshakes,
      certificateExpiresWallMs: doors.tls?.expiresWallMs ?? null,
      sources: this.#directory.sources(),
      health: this.health(),
      lag: this.#lag,
      nowWallMs: clock.wallMs(),
      process: seams.process,
      authorization,
    }));
    const handler = gatewayHttp({
      hostname,
      broadcastAddress: values.broadcastAddress,
      tcpPort: () => this.tcp.port,
      httpPort: () => this.httpPort,
      startWallMs: clock.wallMs(),
      authorization: { authorizer: authorization.authorizer, guardsApi: values.authHttpApi },
      messageBytesMax: values.maxMsgSizeBytes,
      bodyBytesMax: values.maxBodySizeBytes,
      deferMsMax: values.maxDeferTimeoutMs,
      bodyTimeoutMs: HTTP_BODY_TIMEOUT_MS,
    }, {
      publisher: this.publisher,
      receiving: this.#receiving,
      clock,
      logger,
      metrics: this.metrics,
      meter,
      spool,
      isStopping: () => this.#draining,
      health: () => this.health(),
      stats: () => this.#stats(),
    });
    doors.serve(withAccessLog(handler, Object.keys(GATEWAY_ROUTE_RULES), seams));
    logger.info(`TCP: listening on ${hostAndPort(this.tcp.hostname, this.tcp.port)}`);
    if (this.#tunnels !== null) {
      const { hostname: host, port } = this.#tunnels;
      logger.info(`Tunnel: listening on ${hostAndPort(host, port)}`);
    }
    this.#directory.onChange(() => this.#listBrokers());
    this.#directory.start();
    this.#listBrokers();
    this.#replayer?.start();
    this.#lag.start();
  }

  /** Opens the spool and serves. Rejects as its parts do, with errors that name the flag. */
  static async start(settings: GatewaySettings, seams: GatewaySeams): Promise<Gateway> {
    const { values } = settings;
    const { logger, network } = seams;
    const undo: (() => unknown)[] = [];
    try {
      const doors = await HttpDoors.open(values, seams, startingHttp(logger), isPatient);
      undo.push(() => doors.abort());
      const authorization = await Authorization.open(authorizationOf(values), seams);
      undo.push(() => authorization.close());
      if (!authorization.authorizer.isRequired) {
        logger.warn("Everybody who can connect may publish: no source of grants");
      }
      const spool = await openSpool(values, seams);
      if (spool !== null) undo.push(() => spool.close());
      const isTls = doors.tls !== null;
      const listener = await listenNsq("--tcp-address", values.tcpAddress, network, isTls);
      undo.push(() => listener.close());
      const tunnel = tunnelAddress(values);
      const tunnelListener = tunnel &&
        await listenNsq("--tunnel-tcp-address", tunnel, network, false);
      const parts = { doors, authorization, spool, listener, tunnelListener };
      return new Gateway(parts, settings, seams);
    } catch (error) {
      for (const action of undo.reverse()) await action();
      throw error;
    }
  }

  get httpPort(): number {
    return this.#doors.http.port;
  }

  /** `null` without a tunnel. */
  get tunnelPort(): number | null {
    return this.#tunnels?.port ?? null;
  }

  /** What `/v1/health` says. */
  health(): Health {
    const { spool, pool } = this;
    const sources = this.#directory.sources();
    return judgeHealth({
      version: REPORTED_VERSION,
      draining: this.#draining,
      listed: [...pool.links.values()].filter(({ listed }) => listed !== null).length,
      usable: pool.usable.length,
      spool: this.#spoolHealth(),
      spoolRefuses: spool === null ? null : this.#spoolRefuses(spool),
      lost: sources
        .filter(({ state }) => state === "stale" || state === "failed")
        .map(({ url, reason }) => `${url ?? "the settings"}: ${reason ?? "nothing was heard"}`),
    });
  }

  /** Stops in order; resolves when what is not at a broker is in the spool, on disk. */
  async stop(): Promise<void> {
    const { values } = this.#settings;
    const { clock, logger } = this.#seams;
    this.#draining = true;
    if (values.drainDelayMs > 0) await clock.sleep(values.drainDelayMs);
    this.#stopping = true;
    this.tcp.stopAccepting();
    await this.#tunnels?.close();
    await this.#drainSessions(Math.min(DRAIN_MS_MAX, values.shutdownTimeoutMs / 4));
    const half = clock.setTimer(values.shutdownTimeoutMs / 2, () => this.publisher.expireAll());
    const http = this.#doors.shutdown(values.shutdownTimeoutMs / 2 + CLOSE_MS_MAX);
    await this.tcp.close();
    await http;
    await this.publisher.idle();
    half.cancel();
    await this.#directory.stop();
    await this.#replayer?.stop();
    this.publisher.close();
    this.pool.close();
    this.#lag.stop();
    await this.#authorization.close();
    const left = this.#spoolHealth();
    await this.#closeSpool();
    if (left !== null && left.depth > 0) {
      logger.warn("Publishes are left in the spool; they go to brokers at the next start", {
        ...left,
      });
    }
  }

  /** A disk that is full or has failed keeps nobody from stopping; what was settled may come again. */
  async #closeSpool(): Promise<void> {
    try {
      await this.spool?.close();
    } catch (error) {
      this.#seams.logger.error("The spool could not be written to its end", {
        error: error instanceof Error ? error : String(error),
      });
    }
  }

  /** Lets connections end where that costs their clients nothing, for so long. */
  async #drainSessions(timeoutMs: number): Promise<void> {
    const { clock } = this.#seams;
    const sessions = () => [...this.tcp.sessions];
    for (const session of sessions()) session.drain(false);
    const untilMs = clock.monoMs() + timeoutMs;
    let isUrgent = false;
    while (this.tcp.sessions.size > 0 && clock.monoMs() < untilMs) {
      await clock.sleep(DRAIN_LOOK_MS);
      if (isUrgent || clock.monoMs() < untilMs - timeoutMs / 4) continue;
      isUrgent = true;
      for (const session of sessions()) session.drain(true);
    }
  }

  #sessionOptions(handshakes: Handshakes): SessionOptions {
    const { values } = this.#settings;
    const { tls } = this.#doors;
    const { authorizer } = this.#authorization;
    return {
      identify: {
        ...IDENTIFY_OPTIONS_DEFAULT,
        version: REPORTED_VERSION,
        heartbeatIntervalMsMax: values.maxHeartbeatIntervalMs,
        deflateLevelMax: values.maxDeflateLevel,
        tls: tls !== null,
        snappy: values.snappy,
        deflate: values.deflate,
        authRequired: authorizer.isRequired,
        producers: false,
        outcomes: true,
      },
      messageBytesMax: values.maxMsgSizeBytes,
      bodyBytesMax: values.maxBodySizeBytes,
      deferMsMax: values.maxDeferTimeoutMs,
      connectionBytesMax: values.connectionPublishBytesMax,
      closeMsMax: closeMsMax(values),
      authorization: authorizer.isRequired ? { authorizer, rechecks: false } : null,
      tls: tls === null ? null : {
        settings: () => tls.settings,
        required: effectiveTlsRequired(values) !== "false",
        handshakes,
      },
    };
  }

  /** Tells the pool what discovery knows. */
  #listBrokers(): void {
    if (this.#stopping) return;
    // Readiness is news of the moment: when nobody tells it any more, the broker itself does.
    const isBlind = this.#directory.sources().every(({ state }) => state !== "current");
    const listed = new Map<string, ListedBroker>();
    for (const [id, broker] of this.#directory.brokers) {
      listed.set(id, {
        host: broker.host,
        tcpPort: broker.tcpPort,
        publishReady: broker.publishReady || isBlind,
        reasons: broker.reasons,
        hasTopic: (topic) => broker.hasTopic(topic) === true,
      });
    }
    this.pool.list(listed);
  }

  #tunnelTargets() {
    return [...this.#directory.brokers.values()]
      .filter(({ consumeReady }) => consumeReady)
      .map(({ id, host, tcpPort }) => ({ id, host, port: tcpPort }));
  }

  #spoolRefuses(spool: Spool): "full" | "stale" | "failed" | null {
    const { failure, isFull, oldestWallMs } = spool.figures;
    if (failure !== null) return "failed";
    if (isFull) return "full";
    const ageMs = oldestWallMs === null ? 0 : this.#seams.clock.wallMs() - oldestWallMs;
    return ageMs > this.#settings.values.spoolAgeMsMax ? "stale" : null;
  }

  #spoolHealth(): SpoolHealth | null {
    if (this.spool === null) return null;
    const { count, bodyBytes, fileBytes, oldestWallMs, quarantined } = this.spool.figures;
    const nowMs = this.#seams.clock.wallMs();
    return {
      depth: count,
      body_bytes: bodyBytes,
      file_bytes: fileBytes,
      oldest_age_ms: oldestWallMs === null ? null : Math.max(0, nowMs - oldestWallMs),
      quarantined,
    };
  }

  #stats(): GatewayStats {
    return {
      connections: this.tcp.sessions.size,
      publishes: publishStats(this.publisher),
      held_publishes: this.publisher.heldCount,
      held_bytes: this.publisher.heldBytes,
      brokers: brokerStats(this.pool),
      sources: this.#directory.sources(),
      spool: this.#spoolHealth(),
    };
  }
}

/** What is opened before the gateway is made. */
interface Parts {
  readonly doors: HttpDoors;
  readonly authorization: Authorization;
  readonly spool: Spool | null;
  readonly listener: Awaited<ReturnType<typeof listenNsq>>;
  readonly tunnelListener: Awaited<ReturnType<typeof listenNsq>> | null;
}

/** Publishes have an outcome after half of the shutdown's time; then it is to be read. */
function closeMsMax(values: GatewayValues): number {
  return values.shutdownTimeoutMs / 2 + CLOSE_MS_MAX;
}

/** Clocks of brokers and of this process differ a little. */
const DEDUP_MARGIN = 0.9;

/** For how long after it was spooled a publish may be repeated: its broker may have it since before. */
function repeatableMs({ brokerDedupWindowMs, publishTimeoutMs }: GatewayValues): number {
  return brokerDedupWindowMs * DEDUP_MARGIN - publishTimeoutMs;
}

async function openSpool(values: GatewayValues, seams: GatewaySeams): Promise<Spool | null> {
  const { logger } = seams;
  if (values.dataPath === "") {
    logger.warn("Publishes that no broker can take are refused: no --data-path for a spool");
    return null;
  }
  const spool = await Spool.open({
    ...seams,
    onFailed: (error) => logger.error("The spool cannot be written any more", { error }),
  }, {
    path: values.dataPath,
    bytesMax: values.spoolBytesMax,
    ageMsMax: values.spoolAgeMsMax,
    fileBytes: SPOOL_FILE_BYTES,
    recordBytesMax: Math.max(values.maxMsgSizeBytes, values.maxBodySizeBytes) +
      SPOOL_RECORD_OVERHEAD_BYTES,
    heldMax: 4_096,
    quarantineMax: values.quarantineMax,
  });
  const { count, bodyBytes, quarantined } = spool.figures;
  logger.info("Opened the spool", {
    path: values.dataPath,
    publishes: count,
    body_bytes: bodyBytes,
    quarantined,
  });
  return spool;
}
