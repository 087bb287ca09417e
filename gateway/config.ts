/**
 * The settings of the gateway: where it listens and where brokers are, how publishes are carried, and
 * the spool. TLS, compression and authorization of clients are set as for a broker.
 */
import {
  type Address,
  address,
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
  tlsSettings,
} from "@sluice/shared/server";
import { AFFINITIES } from "./balance.ts";

const MIB = 2 ** 20;
/** The ceilings of max-msg-size and max-body-size. */
const MESSAGE_BYTES_MAX = 100 * MIB;
const BODY_BYTES_MAX = 128 * MIB;

/** The gateway's values by property name. */
export type GatewayValues = ValuesOf<ReturnType<typeof allSettings>>;

/** Declares the settings of the gateway. */
export function gatewaySettings(hostname: string) {
  return declareSettings("sluice-gateway", allSettings(hostname), {
    about:
      "One address for producers: publishes go to whichever broker can take them, or to disk " +
      "until one can.",
    relations: brokenRelations,
  });
}

function allSettings(hostname: string) {
  return {
    ...networkSettings(hostname),
    ...brokerSettings(),
    ...publishSettings(),
    ...spoolSettings(),
    ...tunnelSettings(),
    ...tlsSettings(),
    ...authorizationSettings(),
    ...processSettings(),
  };
}

function networkSettings(hostname: string) {
  const group = "Network";
  return {
    tcpAddress: setting({
      name: "tcp-address",
      kind: address(),
      default: "0.0.0.0:4150",
      doc: "Where NSQ producers connect: a host and port, or the path of a Unix socket.",
      group,
    }),
    httpAddress: setting({
      name: "http-address",
      kind: address(),
      default: "0.0.0.0:4151",
      doc:
        "Where publishes over HTTP, health and metrics are served: a host and port, or the path " +
        "of a Unix socket.",
      group,
    }),
    broadcastAddress: setting({
      name: "broadcast-address",
      kind: text("HOST"),
      default: hostname,
      defaultDoc: "the host name",
      doc: "The host that /info tells.",
      group,
    }),
    connectionsMax: setting({
      name: "connections-max",
      kind: integer({ min: 1, max: 1_000_000 }),
      default: 10_000,
      doc: "Connections of producers open at a time; one more is closed at once.",
      group,
    }),
    maxHeartbeatIntervalMs: setting({
      name: "max-heartbeat-interval",
      kind: durationMs({ min: 1000 }),
      default: "1m",
      doc: "The longest heartbeat interval a client may negotiate.",
      group,
    }),
  };
}

function brokerSettings() {
  const group = "Brokers";
  return {
    discoveryUrls: setting({
      name: "discovery-http-address",
      kind: list(discoveryUrl()),
      default: "",
      file: "discovery_http_addresses",
      doc: "Discovery services that name the brokers, HOST:PORT or a URL; nsqlookupd too. All of " +
        "them are asked, and what any of them knows counts.",
      group,
    }),
    brokerTcpAddresses: setting({
      name: "broker-tcp-address",
      kind: list(address({ use: "connect" })),
      default: "",
      file: "broker_tcp_addresses",
      doc: "Brokers to publish to besides those that discovery names, by their NSQ address; nsqd " +
        "too.",
      group,
    }),
    affinity: setting({
      name: "affinity",
      kind: choice(AFFINITIES),
      default: "spread",
      doc: "Which broker gets a publish. spread: of two at random the one with less on its way. " +
        "owner-first: the same, among brokers that have the topic. hash: always the same one for a " +
        "topic, or for the header Sluice-Key over HTTP.",
      group,
    }),
    brokerConnectTimeoutMs: setting({
      name: "broker-connect-timeout",
      kind: durationMs({ min: 10 }),
      default: "2s",
      doc: "How long a connection to a broker may take.",
      group,
    }),
    brokerHeartbeatIntervalMs: setting({
      name: "broker-heartbeat-interval",
      kind: durationMs({ min: 1000, max: 60_000 }),
      default: "1s",
      doc: "Heartbeats asked of brokers. One that is silent for twice as long is given up.",
      group,
    }),
    brokerSlowMs: setting({
      name: "broker-slow",
      kind: durationMs({ min: 10 }),
      default: "500ms",
      doc:
        "A broker that owes an answer for so long gets no more publishes while another can take " +
        "them.",
      group,
    }),
    brokerAuthSecret: setting({
      name: "broker-auth-secret",
      kind: text("SECRET"),
      default: "",
      secret: true,
      doc: "Sent to brokers with AUTH; needs the scope publish.",
      group,
    }),
    brokerDedupWindowMs: setting({
      name: "broker-dedup-window",
      kind: durationMs({ min: 1000 }),
      default: "10m",
      doc: "The dedup-window of the brokers. What may be at a broker that was away for longer is " +
        "not sent again, since it could be stored twice: it goes to the quarantine.",
      group,
    }),
  };
}

function publishSettings() {
  const group = "Publishes";
  return {
    publishTimeoutMs: setting({
      name: "publish-timeout",
      kind: durationMs({ min: 100 }),
      default: "10s",
      doc:
        "How long a publish may be without an outcome. What has no answer by then is spooled for " +
        "its broker, or is ambiguous where that cannot be done.",
      group,
    }),
    maxMsgSizeBytes: setting({
      name: "max-msg-size",
      kind: bytes({ min: 1, max: MESSAGE_BYTES_MAX }),
      default: "1MiB",
      doc: "The largest message; no more than that of the brokers.",
      group,
    }),
    maxBodySizeBytes: setting({
      name: "max-body-size",
      kind: bytes({ min: 1, max: BODY_BYTES_MAX }),
      default: "5MiB",
      doc: "The largest body of a command, such as a batch of messages.",
      group,
    }),
    maxDeferTimeoutMs: setting({
      name: "max-defer-timeout",
      kind: durationMs({ min: 0, max: 10 * 365 * 24 * 60 * 60 * 1000 }),
      default: "1h",
      doc: "The longest time a publish may defer its message; no more than that of the brokers.",
      group,
    }),
    publishBytesMax: setting({
      name: "publish-bytes-max",
      kind: bytes({ min: MIB, max: 65_536 * MIB }),
      default: "256MiB",
      doc:
        "Bytes of publishes that have no outcome, over all connections. NSQ connections are not " +
        "read from while that much waits; HTTP is answered with 429.",
      group,
    }),
    connectionPublishBytesMax: setting({
      name: "connection-publish-bytes-max",
      kind: bytes({ min: 64 * 1024, max: 65_536 * MIB }),
      default: "16MiB",
      doc: "The same for one NSQ connection.",
      group,
    }),
  };
}

function spoolSettings() {
  const group = "Spool";
  return {
    dataPath: setting({
      name: "data-path",
      kind: text("PATH"),
      default: "",
      defaultDoc: "no spool",
      doc: "The folder of the spool: publishes that no broker can take go there, and to brokers " +
        "later. One gateway at a time holds it. Without it such publishes are refused.",
      group,
    }),
    spoolBytesMax: setting({
      name: "spool-bytes-max",
      kind: bytes({ min: 64 * MIB, max: 2 ** 50 }),
      default: "10GiB",
      doc: "What the spool may take of the disk. Publishes that find it full are refused " +
        "(E_THROTTLED, 429).",
      group,
    }),
    spoolAgeMsMax: setting({
      name: "spool-age-max",
      kind: durationMs({ min: 1000 }),
      default: "24h",
      doc: "Nothing more is taken into the spool while its oldest publish has waited for so long.",
      group,
    }),
    spoolAfterMs: setting({
      name: "spool-after",
      kind: durationMs({ min: 0, max: 60_000 }),
      default: "200ms",
      doc: "How long there is no broker that can take publishes before they are spooled.",
      group,
    }),
    quarantineMax: setting({
      name: "quarantine-max",
      kind: integer({ min: 0, max: 1_000_000 }),
      default: 10_000,
      doc:
        "Publishes of the spool that no broker takes and that are kept aside; more stay in the " +
        "spool and are tried again and again.",
      group,
    }),
  };
}

function tunnelSettings() {
  const group = "Tunnel";
  return {
    tunnelAddress: setting({
      name: "tunnel-tcp-address",
      kind: list(address()),
      default: "",
      defaultDoc: "no tunnel",
      file: "tunnel_tcp_address",
      doc:
        "Where connections are passed through to one broker each, byte for byte, for consumers " +
        "that cannot reach brokers. Such a consumer sees that broker only.",
      group,
    }),
    tunnelAgeMsMax: setting({
      name: "tunnel-age-max",
      kind: durationMs({ min: 1000 }),
      default: "5m",
      doc:
        "How long such a connection lasts, give or take a tenth, so that consumers come to all " +
        "brokers in time.",
      group,
    }),
    tunnelsMax: setting({
      name: "tunnels-max",
      kind: integer({ min: 1, max: 1_000_000 }),
      default: 1_000,
      doc: "Such connections open at a time; one more is closed at once.",
      group,
    }),
  };
}

function processSettings() {
  const group = "Process and log";
  return {
    ...logSettings(group, "[sluice-gateway] "),
    shutdownTimeoutMs: setting({
      name: "shutdown-timeout",
      kind: durationMs({ min: 1000, max: 3_600_000 }),
      default: "25s",
      doc: "How long stopping may take. What has no answer from a broker by half of it is spooled.",
      group,
    }),
    drainDelayMs: setting({
      name: "drain-delay",
      kind: durationMs({ min: 0, max: 600_000 }),
      default: "0s",
      doc:
        "How long publishes are still taken after the order to stop, while health says draining, so " +
        "that balancers have time to look elsewhere.",
      group,
    }),
    httpClientConnectTimeoutMs: setting({
      name: "http-client-connect-timeout",
      kind: durationMs({ min: 1 }),
      default: "2s",
      doc: "How long a connection to the HTTP API of an authorization service may take.",
      group,
    }),
    httpClientRequestTimeoutMs: setting({
      name: "http-client-request-timeout",
      kind: durationMs({ min: 1 }),
      default: "5s",
      doc: "How long a request to the HTTP API of an authorization service may take.",
      group,
    }),
  };
}

/** A discovery service: `HOST:PORT`, or the start of its URLs. */
function discoveryUrl(): Kind<string> {
  const parse = (given: string) => {
    const url = given.includes("://") ? given : `http://${given}`;
    const isUrl = /^https?:\/\/(?:\[[0-9a-f:.]+\]|[\w.-]{1,253}):\d{1,5}$/i.test(
      url.replace(/\/$/, ""),
    );
    return isUrl ? url.replace(/\/$/, "") : undefined;
  };
  return {
    placeholder: "HOST:PORT",
    wanted: "an address such as discovery-0:4161, or a URL such as http://discovery-0:4161",
    repeats: false,
    parse,
    fromDocument: (value) => typeof value === "string" ? parse(value) : undefined,
    show: (value) => value,
    toOption: (value) => ({ body: value, json: false }),
  };
}

/** The host and port of the brokers in the settings; the relations see to it that there are no others. */
export function staticBrokers(values: GatewayValues): { host: string; port: number }[] {
  return values.brokerTcpAddresses.filter((one) => one.transport === "tcp");
}

/** The address of the tunnel, if there is to be one. */
export function tunnelAddress(values: GatewayValues): Address | null {
  return values.tunnelAddress[0] ?? null;
}

/** The rules between settings that `values` breaks. */
function brokenRelations(values: GatewayValues): string[] {
  const broken = [...brokenTlsRelations(values), ...authorizationProblems(values)];
  const addresses = [values.tcpAddress, values.httpAddress, ...values.tunnelAddress]
    .map(showAddress).filter((shown) => !shown.endsWith(":0"));
  if (new Set(addresses).size < addresses.length) {
    broken.push("tcp-address, http-address and tunnel-tcp-address must differ");
  }
  if (values.tunnelAddress.length > 1) broken.push("tunnel-tcp-address is one address");
  if (values.discoveryUrls.length === 0 && values.brokerTcpAddresses.length === 0) {
    broken.push("discovery-http-address or broker-tcp-address is needed: there are no brokers");
  }
  for (const given of values.brokerTcpAddresses) {
    if (given.transport === "unix") {
      broken.push(`brokers have a host and a port, not a path: ${given.path}`);
    }
  }
  const { brokerDedupWindowMs, publishTimeoutMs } = values;
  if (2 * publishTimeoutMs > brokerDedupWindowMs) {
    broken.push(
      `broker-dedup-window (${showDuration(brokerDedupWindowMs)}) must be at least twice ` +
        `publish-timeout (${showDuration(publishTimeoutMs)})`,
    );
  }
  const { maxMsgSizeBytes, maxBodySizeBytes, publishBytesMax } = values;
  if (maxMsgSizeBytes > maxBodySizeBytes) {
    broken.push(
      `max-msg-size (${showBytes(maxMsgSizeBytes)}) must not exceed max-body-size ` +
        `(${showBytes(maxBodySizeBytes)})`,
    );
  }
  if (maxBodySizeBytes > publishBytesMax) {
    broken.push(
      `max-body-size (${showBytes(maxBodySizeBytes)}) must not exceed publish-bytes-max ` +
        `(${showBytes(publishBytesMax)})`,
    );
  }
  return broken;
}
