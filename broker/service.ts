/**
 * The broker put together from its parts over the seams it is given: `main.ts` runs it in the real
 * world, a test in its own process.
 *
 * Start: HTTP (which says `recovering` so far), data folder, TCP, all of HTTP, discovery. A start that is
 * told to stop gives up at once: what it had begun is what a crash may interrupt as well.
 *
 * Stop: health says `stopping` and discovery forgets us, for `drain-delay` everything goes on; then
 * nothing new is accepted, requests that wait for a peer are answered, publishes that were accepted too,
 * connections close and what they had in flight goes back, everything is synced.
 */
import {
  type Address,
  type LoadedSettings,
  Reloader,
  type ReloadReport,
  SettingsError,
} from "@sluice/shared/config";
import type { IdentifyOptions } from "@sluice/shared/protocol";
import {
  type AskHttp,
  type Clock,
  type Datagrams,
  type Disk,
  hostAndPort,
  invariant,
  type Listener,
  type Network,
  type ProcessFigures,
  type Random,
  REPORTED_VERSION,
  type ServeHttp,
  type ServeHttps,
  type Tracer,
} from "@sluice/shared/runtime";
import { HttpMeter, withAccessLog } from "@sluice/shared/http";
import { type Logger, LoopLag, MetricsRegistry } from "@sluice/shared/telemetry";
import { Authorization } from "@sluice/shared/authorization";
import {
  authorizationOf,
  effectiveTlsRequired,
  Handshakes,
  HttpDoors,
  type HttpHandler,
  listenNsq,
  OutboxBuffers,
  type TcpServer,
  tcpTarget,
} from "@sluice/shared/server";
import { Broker, type BrokerOptions, type BrokerSeams } from "./broker.ts";
import { addDoorBudgets } from "./budgets.ts";
import {
  type brokerSettings,
  type BrokerValues,
  CLIENT_TIMEOUT_MS,
  OUTPUT_BUFFER_BYTES_DEFAULT,
} from "./config.ts";
import { recoveringHealth } from "./health.ts";
import { connectionPublishBytesMax } from "./config_rates.ts";
import { answerOf, applyReload, guardOf, publishLimitsOf, type ReloadTargets } from "./reload.ts";
import { ConnectionStage } from "./server/connection_stage.ts";
import { messageTraces } from "./message_traces.ts";
import { TopicOrder } from "./queue/mod.ts";
import { RuntimeConfig } from "./runtime_config.ts";
import { isPatient, recoveringHttp } from "./server/health_http.ts";
import { brokerHttp } from "./server/http.ts";
import type { HttpGet } from "./server/lookup_channels.ts";
import { LookupPeers } from "./server/lookup_peer.ts";
import { registerMetrics } from "./server/metrics.ts";
import { TopicFigures } from "./server/topic_figures.ts";
import { RegistryRevision } from "./server/registry_http.ts";
import { ROUTE_RULES } from "./server/route_rules.ts";
import { brokerTcp, type Session } from "./server/session.ts";
import { topicStats } from "./server/stats.ts";
import { COMPACTION_OPTIONS_DEFAULT } from "./storage/mod.ts";
import { statsdPrefix, StatsdReporter } from "./statsd.ts";

/** Topics and channels are bounded so that names alone cannot fill memory. */
export const TOPICS_MAX = 100_000;
export const CHANNELS_PER_TOPIC_MAX = 10_000;
/** How long a peer may take to send the body of a publish over HTTP. */
export const HTTP_BODY_TIMEOUT_MS = 60_000;

/** How long requests under way may take when the service stops, within the shutdown timeout. */
const HTTP_GRACE_MS_MAX = 1_000;

/** The world a service runs in. */
export interface ServiceSeams {
  readonly disk: Disk;
  readonly clock: Clock;
  readonly random: Random;
  readonly network: Network;
  readonly serveHttp: ServeHttp;
  readonly serveHttps: ServeHttps;
  /** The text of a file with a certificate or a key. */
  readonly readTextFile: (path: string) => Promise<string>;
  readonly httpGet: HttpGet;
  /** Needed where figures go to statsd. */
  readonly datagrams?: Datagrams;
  readonly askHttp: AskHttp;
  readonly logger: Logger;
  /** Makes the spans of messages; null where nobody collects them. */
  readonly tracer?: Tracer | null;
  /** Memory figures of the process, for `/stats`. */
  readonly memory: () => Readonly<Record<string, number>>;
  /** Figures of the process, for metrics; told where they are known. */
  readonly process?: () => ProcessFigures;
  /** The service cannot go on: a failed log, or a mistake of ours. */
  readonly onBroken: (error: unknown) => void;
}

/** What the settings are. */
export interface ServiceSettings {
  readonly declaration: ReturnType<typeof brokerSettings>;
  readonly values: BrokerValues;
  readonly hostname: string;
  /** Whether the node id was asked for rather than the default. */
  readonly nodeIdGiven: boolean;
  /** Reads the settings again; without it they cannot be reloaded. */
  readonly read?: () => LoadedSettings<BrokerDeclared>;
}

type BrokerDeclared = ReturnType<typeof brokerSettings>["settings"];

/** A start was told to stop. */
export class StartStoppedError extends Error {
  override name = "StartStoppedError";
  constructor() {
    super("Stopped during the start");
  }
}

/** How long a start that is told to stop lets requests be answered. */
const START_GRACE_MS = 250;

/** A running broker. */
export class Service {
  readonly broker: Broker;
  readonly tcp: TcpServer<Session>;
  readonly metrics: MetricsRegistry;
  readonly #doors: HttpDoors;
  readonly #lag: LoopLag;
  readonly #meter: HttpMeter;
  readonly #topicOrder: TopicOrder;
  readonly #peers: LookupPeers;
  readonly #registryRevision: RegistryRevision;
  readonly #statsd: StatsdReporter | null;
  readonly #authorization: Authorization;
  readonly #seams: ServiceSeams;
  readonly #settings: ServiceSettings;
  readonly #stage: ConnectionStage;
  readonly #config: RuntimeConfig;
  readonly #reloader: Reloader<BrokerDeclared> | null;
  /** What is in use, of what a reload may change. */
  #values: BrokerValues;

  private constructor(
    broker: Broker,
    doors: HttpDoors,
    tcpListener: Listener,
    authorization: Authorization,
    settings: ServiceSettings,
    seams: ServiceSeams,
  ) {
    this.broker = broker;
    this.#doors = doors;
    this.#authorization = authorization;
    this.#settings = settings;
    this.#seams = seams;
    const { values } = settings;
    const { logger } = seams;
    const { tls } = doors;
    const { authorizer } = authorization;
    const tlsRequired = effectiveTlsRequired(values);
    const handshakes = new Handshakes(seams.clock);
    this.#values = values;
    this.#stage = new ConnectionStage(connectionPublishBytesMax(values));
    // Asked for each connection: what it has been told holds for as long as it lasts.
    const identify = () => identifyOptions(this.#values, tls !== null, authorizer.isRequired);
    this.tcp = brokerTcp(broker, tcpListener, {
      connectionsMax: values.connectionsMax,
      session: {
        get identify() {
          return identify();
        },
        messageBytesMax: values.maxMsgSizeBytes,
        bodyBytesMax: values.maxBodySizeBytes,
        requeueMsMax: values.maxReqTimeoutMs,
        deferMsMax: deferMsMax(values),
        consumersMax: values.maxChannelConsumers,
        buffers: new OutboxBuffers(),
        authorization: authorizer.isRequired
          ? { authorizer, rechecks: values.authRecheckSubscriptions }
          : null,
        tls: tls === null ? null : {
          settings: () => tls.settings,
          required: tlsRequired !== "false",
          handshakes,
        },
      },
    });
    addDoorBudgets(broker.budgets, this.tcp, handshakes, authorizer, values.connectionsMax);
    this.#statsd = this.#statsdReporter();
    this.#lag = new LoopLag(seams.clock);
    this.metrics = new MetricsRegistry(seams.clock);
    this.#topicOrder = new TopicOrder(broker.topics);
    const topics = new TopicFigures(broker, values.metricsTopicsMax, this.#topicOrder);
    this.#meter = new HttpMeter(seams.clock);
    registerMetrics(this.metrics, () => ({
      broker,
      topics,
      http: this.#meter,
      registrations: this.#peers.peers,
      tcp: this.tcp,
      handshakes,
      certificateExpiresWallMs: tls?.expiresWallMs ?? null,
      acceptFailures: { tcp: this.tcp.acceptFailureCount, http: doors.acceptFailureCount },
      process: seams.process,
      statsd: this.#statsd,
      lag: this.#lag,
      authorization,
    }));
    logger.info(`TCP: listening on ${hostAndPort(this.tcp.hostname, this.tcp.port)}`);
    this.#registryRevision = new RegistryRevision(seams.random);
    this.#config = new RuntimeConfig(
      settings.declaration,
      { ...values, statsdPrefix: this.#statsdPrefix },
      {
        logLevel: (levels) => logger.levels = levels,
        lookupdTcpAddresses: (addresses) => this.#lookUpAt(addresses),
      },
    );
    this.#reloader = this.#newReloader();
    doors.serve(withAccessLog(this.#httpHandler(), Object.keys(ROUTE_RULES), seams));
    this.#peers = this.#lookupPeers();
    this.#registryRevision.next = this.#peers;
    broker.administration.registry = this.#registryRevision;
    this.#lookUpAt(values.lookupdTcpAddresses);
    broker.onFailure = seams.onBroken;
    this.#trace(values.traceSample);
    this.#peers.start();
    this.#statsd?.start();
    this.#lag.start();
  }

  /**
   * Opens the data folder and serves. Rejects with {@linkcode ListenError}, `TlsFilesError`, or as
   * `Broker.open` does; with {@linkcode StartStoppedError} when `stop` comes first. The data folder is then in
   * use until the process ends, or the start would have been over.
   */
  static async start(
    settings: ServiceSettings,
    seams: ServiceSeams,
    stop: AbortSignal = new AbortController().signal,
  ): Promise<Service> {
    const { doors, recovering } = await openDoors(settings, seams);
    const stopped = Promise.withResolvers<never>();
    const asked = () => stopped.reject(new StartStoppedError());
    if (stop.aborted) asked();
    stop.addEventListener("abort", asked);
    const opening = Service.#open(doors, recovering, settings, seams);
    try {
      return await Promise.race([opening, stopped.promise]);
    } catch (error) {
      if (!(error instanceof StartStoppedError)) {
        await doors.abort();
        throw error;
      }
      opening.then((service) => service.stop()).catch(() => {});
      await doors.shutdown(START_GRACE_MS);
      throw error;
    } finally {
      stop.removeEventListener("abort", asked);
    }
  }

  static async #open(
    doors: HttpDoors,
    recovering: NonNullable<BrokerSeams["recovering"]>,
    settings: ServiceSettings,
    seams: ServiceSeams,
  ): Promise<Service> {
    const authorization = await Authorization.open(authorizationOf(settings.values), seams);
    try {
      return await Service.#openBroker(authorization, doors, { ...seams, recovering }, settings);
    } catch (error) {
      await authorization.close();
      throw error;
    }
  }

  static async #openBroker(
    authorization: Authorization,
    doors: HttpDoors,
    seams: ServiceSeams & Pick<BrokerSeams, "recovering">,
    settings: ServiceSettings,
  ): Promise<Service> {
    const { logger } = seams;
    if (!authorization.authorizer.isRequired) {
      logger.warn("Everybody who can connect may publish, consume and delete: no source of grants");
    }
    const broker = await Broker.open(seams, brokerOptions(settings));
    const { opening, nodeId } = broker.storage;
    const storageLogger = logger.component("storage");
    storageLogger.info("Opened the data folder", {
      path: settings.values.dataPath,
      node_id: nodeId,
      topics: broker.topics.size,
      replayed_records: opening.replayedRecords,
      torn_bytes: opening.tornBytes,
    });
    for (const { position, bytes, reason } of opening.damage) {
      storageLogger.error("The log is damaged; what is good around it is served", {
        position,
        bytes,
        reason,
      });
    }
    try {
      const listener = await listenNsq(
        "--tcp-address",
        settings.values.tcpAddress,
        seams.network,
        doors.tls !== null,
      );
      return new Service(broker, doors, listener, authorization, settings, seams);
    } catch (error) {
      await broker.close();
      throw error;
    }
  }

  get httpPort(): number {
    return this.#doors.http.port;
  }

  /** `null` without TLS. */
  get httpsPort(): number | null {
    return this.#doors.https?.port ?? null;
  }

  /**
   * Reads the settings and the files they name again, and has what can change be in use. Rejects with
   * `SettingsError` when they are wrong: then nothing has changed.
   */
  reload(): Promise<ReloadReport> {
    invariant(this.#reloader !== null, "a service that reloads was given where to read");
    return this.#reloader.reload();
  }

  /** Stops in order; resolves when everything is on disk and the folder is given back. */
  async stop(): Promise<void> {
    const { values } = this.#settings;
    this.broker.exit.announce();
    const forgotten = this.#peers.stop();
    if (values.drainDelayMs > 0) await this.#seams.clock.sleep(values.drainDelayMs);
    await forgotten;
    this.broker.exit.begin();
    this.tcp.stopAccepting();
    const graceMs = Math.min(HTTP_GRACE_MS_MAX, values.shutdownTimeoutMs / 4);
    const answered = this.#doors.shutdown(graceMs);
    this.#lag.stop();
    await this.#statsd?.stop();
    // What was accepted before is answered before its connection closes.
    await this.#unlessFailed(this.broker.storage.drain());
    await this.tcp.close();
    await answered;
    await this.#authorization.close();
    await this.#unlessFailed(this.broker.close());
  }

  /** A failed log has been told of, and does not keep the rest from being given back. */
  async #unlessFailed(done: Promise<void>): Promise<void> {
    try {
      await done;
    } catch (error) {
      if (this.broker.failure === null) throw error;
    }
  }

  #httpHandler(): HttpHandler {
    const { values, hostname } = this.#settings;
    const { memory } = this.#seams;
    const reloader = this.#reloader;
    const maxRdyCount = () => this.#values.maxRdyCount;
    return brokerHttp(this.broker, this.tcp.sessions, this.metrics, {
      hostname,
      broadcastAddress: values.broadcastAddress,
      broadcastTcpPort: () => this.#broadcastTcpPort,
      broadcastHttpPort: () => this.#broadcastHttpPort,
      startWallMs: this.broker.clock.wallMs(),
      maxHeartbeatIntervalMs: values.maxHeartbeatIntervalMs,
      maxOutputBufferBytes: values.maxOutputBufferSizeBytes,
      maxOutputBufferTimeoutMs: values.maxOutputBufferTimeoutMs,
      maxDeflateLevel: values.maxDeflateLevel,
      topologyZone: values.topologyZone,
      topologyRegion: values.topologyRegion,
      config: this.#config,
      ...(reloader === null ? {} : { reload: () => answerOf(reloader.reload()) }),
      stage: this.#stage,
      memory,
      messageBytesMax: values.maxMsgSizeBytes,
      bodyBytesMax: values.maxBodySizeBytes,
      deferMsMax: deferMsMax(values),
      bodyTimeoutMs: HTTP_BODY_TIMEOUT_MS,
      authorization: {
        authorizer: this.#authorization.authorizer,
        guardsApi: values.authHttpApi,
      },
      registryRevision: this.#registryRevision,
      meter: this.#meter,
      topicOrder: this.#topicOrder,
      doors: {
        get rdyCountMax() {
          return maxRdyCount();
        },
        connectionsMax: values.connectionsMax,
        requeueMsMax: values.maxReqTimeoutMs,
        tls: this.#doors.tls !== null,
        snappy: values.snappy,
        deflate: values.deflate,
      },
    });
  }

  #newReloader(): Reloader<BrokerDeclared> | null {
    const { declaration, read } = this.#settings;
    if (read === undefined) return null;
    return new Reloader({
      declaration,
      read: () => {
        const loaded = read();
        if (loaded.values.lookupdTcpAddresses.every(({ transport }) => transport === "tcp")) {
          return loaded;
        }
        throw new SettingsError(declaration.program, [
          "lookupd-tcp-address takes hosts and ports, and no paths",
        ]);
      },
      current: () => ({ ...this.#config.values, statsdPrefix: this.#values.statsdPrefix }),
      apply: (values, keys) => {
        this.#values = values;
        this.#config.replace({ ...values, statsdPrefix: this.#statsdPrefix });
        applyReload(this.#reloadTargets(), values, keys);
      },
      files: async () => {
        const tls = await this.#doors.tls?.reload();
        return [...tls === undefined ? [] : [tls], ...await this.#authorization.reload()];
      },
      logger: this.#seams.logger,
    });
  }

  #reloadTargets(): ReloadTargets {
    const { broker } = this;
    return {
      logLevels: (levels) => this.#seams.logger.levels = levels,
      lookUpAt: (addresses) => this.#lookUpAt(addresses),
      trace: (share) => this.#trace(share),
      // Connections ask for it as they come.
      identify: () => {},
      diskBounds: (bounds) => broker.guard.setOptions(bounds),
      limits: (limits) => broker.limits.configure(limits, broker.topics.values()),
      connectionBytesMax: (bytes) => this.#stage.bytesMax = bytes,
    };
  }

  #statsdReporter(): StatsdReporter | null {
    const { values } = this.#settings;
    const { datagrams, clock, logger, memory, onBroken } = this.#seams;
    if (values.statsdAddress === null) return null;
    invariant(datagrams !== undefined, "a service that sends to statsd can send packets");
    const filter = { topic: null, channel: null, includeClients: false };
    return new StatsdReporter({
      ...tcpTarget("--statsd-address", values.statsdAddress),
      prefix: this.#statsdPrefix,
      intervalMs: values.statsdIntervalMs,
      packetBytesMax: values.statsdPacketBytes,
      includeMemory: values.statsdMemStats,
      excludeEphemeral: values.statsdExcludeEphemeral,
    }, {
      clock,
      datagrams,
      logger: logger.component("statsd"),
      topics: () => topicStats(this.broker, [], filter) ?? [],
      memory,
      onBroken,
    });
  }

  /** Traces a share of messages from now on, if there is anybody to collect spans. */
  #trace(share: number): void {
    const { broker } = this;
    const { tracer = null, random, logger } = this.#seams;
    if (share > 0 && tracer === null) {
      logger.warn("trace-sample has no effect: OTEL_DENO=true is not in the environment");
    }
    if (share === 0 || tracer === null) {
      broker.traces = null;
      return;
    }
    broker.traces ??= messageTraces(broker, tracer, random);
    broker.traces.share = share;
  }

  /** With its `%s` filled in, which `/config/statsd_prefix` shows too, as in nsqd. */
  get #statsdPrefix(): string {
    const { values } = this.#settings;
    return statsdPrefix(values.statsdPrefix, values.broadcastAddress, this.#broadcastHttpPort);
  }

  /** Registers with these discovery services from now on, and with no others. */
  #lookUpAt(addresses: readonly Address[]): void {
    this.#peers.replace(
      addresses.map((address) => tcpTarget("--lookupd-tcp-address", address)),
    );
    this.broker.administration.knownChannels = addresses.length === 0
      ? null
      : (topic) => this.#peers.lookupChannels(topic);
  }

  #lookupPeers(): LookupPeers {
    const { values, hostname } = this.#settings;
    const { broker } = this;
    const { httpGet } = this.#seams;
    const timeoutMs = values.httpClientRequestTimeoutMs;
    return new LookupPeers({
      ...this.#seams,
      logger: this.#seams.logger.component("discovery"),
      httpGet: (url, bounds) => httpGet(url, { ...bounds, timeoutMs }),
      identity: {
        broadcastAddress: values.broadcastAddress,
        hostname,
        tcpPort: this.#broadcastTcpPort,
        httpPort: this.#broadcastHttpPort,
        version: REPORTED_VERSION,
        topologyRegion: values.topologyRegion,
        topologyZone: values.topologyZone,
      },
      source: {
        *topics() {
          for (const topic of broker.topics.values()) {
            yield { name: topic.state.name, channels: topic.channels.keys() };
          }
        },
      },
    });
  }

  get #broadcastTcpPort(): number {
    return this.#settings.values.broadcastTcpPort || this.tcp.port;
  }

  get #broadcastHttpPort(): number {
    return this.#settings.values.broadcastHttpPort || this.httpPort;
  }
}

/** Listens on HTTP and HTTPS, and tells there how far the start is. */
async function openDoors(
  { values }: ServiceSettings,
  seams: ServiceSeams,
): Promise<{ doors: HttpDoors; recovering: (replayedBytes: number, totalBytes: number) => void }> {
  const { clock, logger } = seams;
  const sinceMs = clock.wallMs();
  let progress: { replayedBytes: number; totalBytes: number | null } = {
    replayedBytes: 0,
    totalBytes: null,
  };
  const early = recoveringHttp(
    logger,
    () => recoveringHealth({ version: REPORTED_VERSION, sinceMs, ...progress }),
  );
  const doors = await HttpDoors.open(values, seams, early, isPatient);
  return {
    doors,
    recovering: (replayedBytes, totalBytes) => progress = { replayedBytes, totalBytes },
  };
}

/** Settings of the broker proper. */
export function brokerOptions(settings: ServiceSettings): BrokerOptions {
  const { values } = settings;
  return {
    storage: {
      dataPath: values.dataPath,
      nodeId: { value: values.nodeId, required: settings.nodeIdGiven },
      ringBytes: values.ringBytes,
      logFileBytes: values.logFileBytes,
      pageCacheBytes: values.pageCacheBytes,
      indexCacheBytes: values.indexCacheBytes,
      bodyBytesMax: values.maxMsgSizeBytes,
      finishSyncIntervalMs: values.finishSyncIntervalMs,
      ackMode: values.ackMode,
      dedup: {
        windowMs: values.dedupWindowMs,
        sequences: values.dedupSequences,
        producers: values.dedupProducers,
        bytes: values.dedupBytesMax,
      },
      compaction: {
        rateBytes: values.compactionRateBytes,
        // A small file would never have as much that is dead.
        deadBytesMin: Math.min(COMPACTION_OPTIONS_DEFAULT.deadBytesMin, values.logFileBytes / 4),
      },
    },
    channel: {
      msgTimeoutMsMax: values.maxMsgTimeoutMs,
      consumersMax: values.maxChannelConsumers,
      requeueOnDisconnect: values.requeueOnDisconnect,
    },
    guard: guardOf(values),
    quota: { bytesMax: values.topicBytesMax, action: values.topicBytesAction },
    limits: publishLimitsOf(values),
    eviction: { afterMs: values.evictAfterMs },
    ...latencyOptions(values),
    scrub: { rateBytes: values.scrubRateBytes, intervalMs: values.scrubIntervalMs },
    topicsMax: TOPICS_MAX,
    channelsPerTopicMax: CHANNELS_PER_TOPIC_MAX,
    publishBytesMax: values.publishBytesMax,
    laggingSharePercent: values.laggingSharePercent,
    healthWriteTimeoutMs: values.healthWriteTimeoutMs,
  };
}

function latencyOptions(values: BrokerValues): Pick<BrokerOptions, "latency"> {
  const { endToEndLatencyPercentiles: quantiles, endToEndLatencyWindowMs: windowMs } = values;
  return quantiles.length === 0 ? {} : { latency: { quantiles, windowMs } };
}

/** The longest a publish may defer its message. */
function deferMsMax(values: BrokerValues): number {
  return values.maxDeferTimeoutMs || values.maxReqTimeoutMs;
}

function identifyOptions(
  values: BrokerValues,
  tls: boolean,
  authRequired: boolean,
): IdentifyOptions {
  return {
    version: REPORTED_VERSION,
    producers: true,
    rdyCountMax: values.maxRdyCount,
    heartbeatIntervalMsDefault: CLIENT_TIMEOUT_MS / 2,
    heartbeatIntervalMsMax: values.maxHeartbeatIntervalMs,
    outputBufferTimeoutMsDefault: values.outputBufferTimeoutMs,
    outputBufferTimeoutMsMin: values.minOutputBufferTimeoutMs,
    outputBufferTimeoutMsMax: values.maxOutputBufferTimeoutMs,
    outputBufferBytesDefault: OUTPUT_BUFFER_BYTES_DEFAULT,
    outputBufferBytesMax: values.maxOutputBufferSizeBytes,
    messageTimeoutMsDefault: values.msgTimeoutMs,
    messageTimeoutMsMax: values.maxMsgTimeoutMs,
    deflateLevelMax: values.maxDeflateLevel,
    tls,
    snappy: values.snappy,
    deflate: values.deflate,
    authRequired,
    topologyRegion: values.topologyRegion,
    topologyZone: values.topologyZone,
  };
}
