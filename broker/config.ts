/**
 * The settings of the broker: every flag of nsqd under its own name and with its own default, and
 * what only Sluice has. A flag of nsqd without a meaning here is accepted and says so at the start.
 */
import { createHash } from "node:crypto";
import { crc32 } from "node:zlib";
import {
  address,
  boolean,
  bytes,
  choice,
  declareSettings,
  durationMs,
  integer,
  type Kind,
  list,
  logSettings,
  setting,
  showAddress,
  showBytes,
  showDuration,
  text,
  type ValuesOf,
} from "@sluice/shared/config";
import {
  authorizationProblems,
  authorizationSettings,
  brokenTlsRelations,
  hasTls,
  tlsSettings,
} from "@sluice/shared/server";
import { connectionPublishBytesMax, rateSettings } from "./config_rates.ts";
import { statisticsSettings } from "./config_statistics.ts";
import { nsqdFlagsWithoutEffect } from "./nsqd_flags.ts";
import { brokenWorkerRelations, NODE_ID_MAX } from "./workers/relations.ts";
import { ACK_MODES, DEDUP_SEQUENCES_MAX, QUOTA_ACTIONS } from "./storage/mod.ts";

/** The longest silence of a client that negotiates no heartbeat interval: two of them. No flag. */
export const CLIENT_TIMEOUT_MS = 60_000;
/** The output buffer of a connection that negotiates none. No flag. */
export const OUTPUT_BUFFER_BYTES_DEFAULT = 16_384;
/** Bodies above 64 KiB may take this share of publish-bytes-max. */
export const LARGE_BODIES_SHARE = 3 / 4;
/** A bounded log has room for so many files. */
const LOG_FILES_MIN = 4;

const MIB = 2 ** 20;
/** The ceilings of max-msg-size and max-body-size. */
const MESSAGE_BYTES_MAX = 100 * MIB;
const BODY_BYTES_MAX = 128 * MIB;

/** nsqd's node id of a machine nobody gave one: CRC-32 of the MD5 of its name, modulo 1024. */
export function defaultNodeId(hostname: string): number {
  return crc32(createHash("md5").update(hostname).digest()) % (NODE_ID_MAX + 1);
}

/** The broker's values by property name. */
export type BrokerValues = ValuesOf<ReturnType<typeof allSettings>>;

/** Declares the broker's settings; some defaults derive from the name of the machine. */
export function brokerSettings(hostname: string) {
  return declareSettings("sluice-broker", allSettings(hostname), {
    about:
      "A durable message broker that NSQ clients and tools use as nsqd. Exit codes: 0 stopped as " +
      "asked, 1 could not start, 2 the log failed or stopping took too long, 3 ended at once by a second " +
      "signal.",
    relations: brokenRelations,
  });
}

function allSettings(hostname: string) {
  return {
    ...networkSettings(hostname),
    ...discoverySettings(),
    ...storageSettings(),
    ...dedupSettings(),
    ...messageSettings(),
    ...clientSettings(),
    ...rateSettings(),
    ...statisticsSettings(),
    ...tlsSettings(),
    ...authorizationSettings(),
    ...processSettings(hostname),
    ...nsqdFlagsWithoutEffect(),
  };
}

function networkSettings(hostname: string) {
  const group = "Network";
  return {
    tcpAddress: setting({
      name: "tcp-address",
      kind: address(),
      default: "0.0.0.0:4150",
      doc: "Where NSQ clients connect: a host and port, or the path of a Unix socket.",
      group,
    }),
    httpAddress: setting({
      name: "http-address",
      kind: address(),
      default: "0.0.0.0:4151",
      doc: "Where the HTTP API, health and metrics are served: a host and port, or the path of a " +
        "Unix socket.",
      group,
    }),
    broadcastAddress: setting({
      name: "broadcast-address",
      kind: text("HOST"),
      default: hostname,
      defaultDoc: "the host name",
      doc: "The host that consumers are told to connect to.",
      group,
    }),
    broadcastTcpPort: setting({
      name: "broadcast-tcp-port",
      kind: integer({ min: 0, max: 65_535 }),
      default: 0,
      doc: "The TCP port that consumers are told to connect to; 0 is the port listened on.",
      group,
    }),
    broadcastHttpPort: setting({
      name: "broadcast-http-port",
      kind: integer({ min: 0, max: 65_535 }),
      default: 0,
      doc: "The HTTP port that tools are told to use; 0 is the port listened on.",
      group,
    }),
    connectionsMax: setting({
      name: "connections-max",
      kind: integer({ min: 1, max: 1_000_000 }),
      default: 10_000,
      doc: "Client connections open at a time; one more is closed at once.",
      group,
    }),
  };
}

function discoverySettings() {
  const group = "Discovery";
  return {
    lookupdTcpAddresses: setting({
      name: "lookupd-tcp-address",
      reload: true,
      kind: list(address({ use: "connect" })),
      default: [],
      file: "nsqlookupd_tcp_addresses",
      doc: "The discovery services (or nsqlookupd) to register with.",
      group,
    }),
    httpClientConnectTimeoutMs: setting({
      name: "http-client-connect-timeout",
      kind: durationMs({ min: 1 }),
      default: "2s",
      doc:
        "How long a connection to the HTTP API of a discovery or authorization service may take.",
      group,
    }),
    httpClientRequestTimeoutMs: setting({
      name: "http-client-request-timeout",
      kind: durationMs({ min: 1 }),
      default: "5s",
      doc: "How long a request to the HTTP API of a discovery or authorization service may take.",
      group,
    }),
    topologyRegion: setting({
      name: "topology-region",
      kind: text(),
      default: "",
      doc: "The region this broker runs in, told to clients and discovery.",
      group,
    }),
    topologyZone: setting({
      name: "topology-zone",
      kind: text(),
      default: "",
      doc: "The zone this broker runs in, told to clients and discovery.",
      group,
    }),
  };
}

function storageSettings() {
  const group = "Storage and memory";
  return {
    dataPath: setting({
      name: "data-path",
      kind: text("PATH"),
      default: ".",
      defaultDoc: "the working directory",
      doc: "The folder with the broker's data. One broker at a time holds it.",
      group,
    }),
    logFileBytes: setting({
      name: "log-file-bytes",
      kind: bytes({ min: MIB, max: 4096 * MIB }),
      default: "64MiB",
      doc:
        "The size of a file of the log. Space is given back by whole files, or by compacting them.",
      group,
    }),
    minFreeBytes: setting({
      name: "min-free-bytes",
      reload: true,
      kind: autoOr(bytes({ max: 2 ** 50 })),
      default: "auto",
      doc: "Publishes are refused while less of the disk is free, and everything else goes on: " +
        "what frees space needs some. auto is 5 % of the disk, at most 10GiB.",
      group,
    }),
    logBytesMax: setting({
      name: "log-bytes-max",
      reload: true,
      kind: bytes({ max: 2 ** 50 }),
      default: 0,
      doc:
        "Publishes are refused once the log has this size, until it is 10 % smaller; 0 sets no " +
        "limit but the disk.",
      group,
    }),
    finishSyncIntervalMs: setting({
      name: "finish-sync-interval",
      kind: durationMs({ min: 0, max: 60_000 }),
      default: "10ms",
      doc: "How long a finished message may wait until that is on disk. A crash within it means " +
        "that the message is delivered again.",
      group,
    }),
    topicBytesMax: setting({
      name: "topic-bytes-max",
      kind: bytes({ min: 0 }),
      default: "0",
      doc: "Bytes that one topic may hold in the log, from the oldest message that is owed to " +
        "the newest; 0 for any number.",
      group,
    }),
    topicBytesAction: setting({
      name: "topic-bytes-action",
      kind: choice(QUOTA_ACTIONS),
      default: "refuse",
      doc: "What a topic at topic-bytes-max does: refuse publishes, or give up its oldest " +
        "messages (drop_oldest).",
      group,
    }),
    evictAfterMs: setting({
      name: "evict-after",
      kind: durationMs({ min: 0 }),
      default: "0s",
      doc: "Give up the oldest log file when publishes have been refused for want of space for " +
        "so long, and so on until they are taken; 0 to keep everything, whatever happens.",
      group,
    }),
    ackMode: setting({
      name: "ack-mode",
      kind: choice(ACK_MODES),
      default: "durable",
      doc:
        "When a publish is confirmed, in topics without a policy of their own. durable: once it is " +
        "on disk; nothing confirmed is lost. write_ack: once it is written; a power cut loses the " +
        "latest, which no consumer has seen. nsq_relaxed: the same, and consumers are given messages " +
        "before they are on disk: what a power cut loses may have been delivered. The latest is at " +
        "most 2,500 messages and 8 MiB, and is synced after 10 ms. kill -9 loses nothing in any mode.",
      group,
    }),
    scrubRateBytes: setting({
      name: "scrub-rate",
      kind: bytes({ min: 64 * 1024, max: 65_536 * MIB }),
      default: "64MiB",
      doc: "Bytes a second at which the log is read through for damage, at most.",
      group,
    }),
    scrubIntervalMs: setting({
      name: "scrub-interval",
      kind: durationMs({ min: 0 }),
      default: "24h",
      doc:
        "From the end of one reading of the whole log to the next; 0 for readings on demand only.",
      group,
    }),
    compactionRateBytes: setting({
      name: "compaction-rate",
      kind: bytes({ max: 65_536 * MIB }),
      default: "64MiB",
      doc: "Bytes a second at which log files that a few messages keep from going are written " +
        "anew without the rest, at most; 0 leaves them as they are.",
      group,
    }),
    ringBytes: setting({
      name: "ring-bytes",
      kind: bytes({ min: MIB, max: 1024 * MIB, powerOfTwo: true }),
      default: "64MiB",
      doc: "Memory for records on their way to disk and for the newest ones, which consumers " +
        "that keep up are served from.",
      group,
    }),
    pageCacheBytes: setting({
      name: "page-cache-bytes",
      kind: bytes({ min: MIB, max: 65_536 * MIB }),
      default: "64MiB",
      doc: "Memory for pages of the backlog.",
      group,
    }),
    indexCacheBytes: setting({
      name: "index-cache-bytes",
      kind: bytes({ min: MIB, max: 65_536 * MIB }),
      default: "64MiB",
      doc: "Memory for the places of the backlog's messages, which are on disk beside them.",
      group,
    }),
    laggingSharePercent: setting({
      name: "lagging-share",
      kind: integer({ min: 1, max: 100 }),
      default: 20,
      doc: "Percent of the broker's time that consumers whose messages come from disk may take " +
        "while anybody publishes, all of them together; 100 for any. Without publishes it is not used.",
      group,
    }),
    publishBytesMax: setting({
      name: "publish-bytes-max",
      kind: bytes({ min: MIB, max: 65_536 * MIB }),
      default: "256MiB",
      doc: "Bytes of publishes being received or waiting for the disk, over all connections.",
      group,
    }),
  };
}

function dedupSettings() {
  const group = "Producers with sequences";
  return {
    dedupWindowMs: setting({
      name: "dedup-window",
      kind: durationMs({ min: 1000 }),
      default: "10m",
      doc: "How long a topic remembers a producer that publishes nothing more to it with a " +
        "sequence. A publish that is sent again later is stored again.",
      group,
    }),
    dedupSequences: setting({
      name: "dedup-sequences",
      kind: integer({ min: 64, max: DEDUP_SEQUENCES_MAX }),
      default: 65_536,
      doc:
        "Sequences of a producer that a topic tells apart, from its highest down. What is below " +
        "is refused with E_SEQUENCE_TOO_OLD.",
      group,
    }),
    dedupProducers: setting({
      name: "dedup-producers",
      kind: integer({ min: 1, max: 65_536 }),
      default: 1024,
      doc: "Producers that a topic remembers; one more, and the one idle longest is forgotten.",
      group,
    }),
    dedupBytesMax: setting({
      name: "dedup-bytes-max",
      kind: bytes({ min: MIB, max: 65_536 * MIB }),
      default: "64MiB",
      doc: "Memory for what is remembered of producers, over all topics. What would need more is " +
        "refused with E_THROTTLED.",
      group,
    }),
  };
}

/** Values of a kind, or the word `auto`. */
function autoOr(kind: Kind<number>): Kind<number | "auto"> {
  const isAuto = (value: unknown) => typeof value === "string" && value.toLowerCase() === "auto";
  return {
    placeholder: `${kind.placeholder}|auto`,
    wanted: `auto, or ${kind.wanted}`,
    repeats: false,
    parse: (given) => isAuto(given) ? "auto" : kind.parse(given),
    fromDocument: (value) => isAuto(value) ? "auto" : kind.fromDocument(value),
    show: (value) => value === "auto" ? value : kind.show(value),
    toOption: (value) => value === "auto" ? { body: value, json: false } : kind.toOption(value),
  };
}

function messageSettings() {
  const group = "Messages";
  return {
    msgTimeoutMs: setting({
      name: "msg-timeout",
      reload: true,
      kind: durationMs({ min: 1 }),
      default: "1m",
      doc: "How long a consumer may work on a message before it is delivered again, when the " +
        "consumer negotiates no other time.",
      group,
    }),
    maxMsgTimeoutMs: setting({
      name: "max-msg-timeout",
      kind: durationMs({ min: 1 }),
      default: "15m",
      doc: "The longest time a consumer may negotiate, and reach by TOUCH.",
      group,
    }),
    maxMsgSizeBytes: setting({
      name: "max-msg-size",
      kind: bytes({ min: 1, max: MESSAGE_BYTES_MAX }),
      default: "1MiB",
      doc: "The largest message. One above 1MiB goes to disk and to consumers in parts, so that " +
        "memory does not depend on its size.",
      group,
    }),
    maxBodySizeBytes: setting({
      name: "max-body-size",
      kind: bytes({ min: 1, max: BODY_BYTES_MAX }),
      default: "5MiB",
      doc:
        "The largest body of a command, such as a batch of messages; a batch is in memory whole.",
      group,
    }),
    maxReqTimeoutMs: setting({
      name: "max-req-timeout",
      kind: durationMs({ min: 0 }),
      default: "1h",
      doc: "The longest time a message may be deferred by requeue; more is clamped.",
      group,
    }),
    maxDeferTimeoutMs: setting({
      name: "max-defer-timeout",
      kind: durationMs({ min: 0, max: 10 * 365 * 24 * 60 * 60 * 1000 }),
      default: "0s",
      doc: "The longest time a publish may defer its message; 0 for max-req-timeout, as in nsqd.",
      group,
    }),
    requeueOnDisconnect: setting({
      name: "requeue-on-disconnect",
      kind: boolean(),
      default: true,
      doc: "Deliver the messages of a lost connection again at once. When false they wait for " +
        "their timeout, as with nsqd.",
      group,
    }),
  };
}

function clientSettings() {
  const group = "Clients";
  return {
    maxHeartbeatIntervalMs: setting({
      name: "max-heartbeat-interval",
      kind: durationMs({ min: 1_000 }),
      default: "1m",
      doc: "The longest heartbeat interval a client may negotiate.",
      group,
    }),
    maxRdyCount: setting({
      name: "max-rdy-count",
      reload: true,
      kind: integer({ min: 1, max: 2 ** 31 - 1 }),
      default: 2500,
      doc: "The most messages a connection may have in flight.",
      group,
    }),
    maxOutputBufferSizeBytes: setting({
      name: "max-output-buffer-size",
      kind: bytes({ min: 64, max: 1024 * MIB }),
      default: 65_536,
      doc: "The largest output buffer a client may negotiate.",
      group,
    }),
    maxOutputBufferTimeoutMs: setting({
      name: "max-output-buffer-timeout",
      kind: durationMs({ min: 1 }),
      default: "30s",
      doc: "The longest time between flushes a client may negotiate.",
      group,
    }),
    minOutputBufferTimeoutMs: setting({
      name: "min-output-buffer-timeout",
      kind: durationMs({ min: 1 }),
      default: "25ms",
      doc: "The shortest time between flushes a client may negotiate.",
      group,
    }),
    outputBufferTimeoutMs: setting({
      name: "output-buffer-timeout",
      kind: durationMs({ min: 1 }),
      default: "250ms",
      doc: "The time between flushes when a client negotiates none.",
      group,
    }),
    maxChannelConsumers: setting({
      name: "max-channel-consumers",
      kind: integer({ min: 0, max: 1_000_000 }),
      default: 0,
      doc: "The most consumers of a channel; 0 sets no limit but connections-max.",
      group,
    }),
  };
}

function processSettings(hostname: string) {
  const group = "Process and log";
  return {
    nodeId: setting({
      name: "node-id",
      kind: integer({ min: 0, max: NODE_ID_MAX }),
      default: defaultNodeId(hostname),
      defaultDoc: "computed from the host name",
      file: "id",
      doc: "The part of message ids that tells brokers apart.",
      group,
    }),
    shutdownTimeoutMs: setting({
      name: "shutdown-timeout",
      kind: durationMs({ min: 0 }),
      default: "10s",
      doc: "How long an orderly stop may take before the process ends without it.",
      group,
    }),
    drainDelayMs: setting({
      name: "drain-delay",
      kind: durationMs({ min: 0, max: 600_000 }),
      default: "0s",
      doc:
        "How long everything goes on after the order to stop, while health says stopping, so that " +
        "clients and balancers have time to look elsewhere. shutdown-timeout counts from then on.",
      group,
    }),
    healthWriteTimeoutMs: setting({
      name: "health-write-timeout",
      kind: durationMs({ min: 1, max: 60_000 }),
      default: "2s",
      doc:
        "How long the disk may take to answer a write before health says storage_slow, and a write " +
        "probe write_probe_slow.",
      group,
    }),
    workers: setting({
      name: "workers",
      kind: integer({ min: 1, max: 64 }),
      default: 1,
      doc:
        "Brokers to run on this machine as one unit, to use more cores: each has ports, a folder " +
        "and a node id of its own, and registers with discovery by itself. See docs/OPERATIONS.md.",
      group,
    }),
    workerPortStep: setting({
      name: "worker-port-step",
      kind: integer({ min: 1, max: 10_000 }),
      default: 100,
      doc: "How far the ports of one of them are from those of the next.",
      group,
    }),
    ...logSettings(group, "[nsqd] "),
  };
}

/** The rules between settings that `values` breaks. */
function brokenRelations(values: BrokerValues): string[] {
  const durations: Order[] = [
    ["msg-timeout", values.msgTimeoutMs, "max-msg-timeout", values.maxMsgTimeoutMs],
    [
      "min-output-buffer-timeout",
      values.minOutputBufferTimeoutMs,
      "output-buffer-timeout",
      values.outputBufferTimeoutMs,
    ],
    [
      "output-buffer-timeout",
      values.outputBufferTimeoutMs,
      "max-output-buffer-timeout",
      values.maxOutputBufferTimeoutMs,
    ],
  ];
  const sizes: Order[] = [
    ["max-msg-size", values.maxMsgSizeBytes, "max-body-size", values.maxBodySizeBytes],
    [
      "max-body-size",
      values.maxBodySizeBytes,
      "three quarters of publish-bytes-max",
      Math.floor(values.publishBytesMax * LARGE_BODIES_SHARE),
    ],
  ];
  sizes.push([
    "max-body-size",
    values.maxBodySizeBytes,
    "connection-publish-bytes-max",
    connectionPublishBytesMax(values),
  ]);
  if (values.logBytesMax > 0) {
    // Whole files are given back, and not the two newest.
    const filesBytes = LOG_FILES_MIN * values.logFileBytes;
    sizes.push(["four times log-file-bytes", filesBytes, "log-bytes-max", values.logBytesMax]);
  }
  const doors: [name: string, address: string][] = [
    ["tcp-address", showAddress(values.tcpAddress)],
    ["http-address", showAddress(values.httpAddress)],
  ];
  if (hasTls(values)) doors.push(["https-address", showAddress(values.httpsAddress)]);
  return [
    ...outOfOrder(durations, showDuration),
    ...outOfOrder(sizes, showBytes),
    ...sharedAddresses(doors),
    ...brokenTlsRelations(values),
    ...authorizationProblems(values),
    ...brokenWorkerRelations(values),
  ];
}

function sharedAddresses(doors: readonly (readonly [name: string, address: string])[]): string[] {
  return doors.flatMap(([name, address], index) =>
    doors.slice(0, index)
      .filter(([, other]) => other === address && !address.endsWith(":0"))
      .map(([other]) => `${other} and ${name} must differ, both are ${address}`)
  );
}

/** A setting, its value, and the setting (or bound) it must not exceed with that one's value. */
type Order = readonly [low: string, lowValue: number, high: string, highValue: number];

function outOfOrder(orders: readonly Order[], show: (value: number) => string): string[] {
  return orders
    .filter(([, lowValue, , highValue]) => lowValue > highValue)
    .map(([low, lowValue, high, highValue]) =>
      `${low} (${show(lowValue)}) must not exceed ${high} (${show(highValue)})`
    );
}
