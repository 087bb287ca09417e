/**
 * The settings of the discovery service: every flag of nsqlookupd under its own name and with its own
 * default, and limits on what producers may register, which nsqlookupd does not have.
 */
import {
  type Address,
  address,
  boolean,
  declareSettings,
  durationMs,
  integer,
  type Kind,
  list,
  logSettings,
  type Setting,
  setting,
  showAddress,
  text,
  type ValuesOf,
} from "@sluice/shared/config";
import { REGISTRY_LIMITS, type RegistryLimits } from "./registry.ts";
import { type DnsName, parseDnsName, showDnsName } from "./sources/dns_source.ts";
import type { Endpoint } from "./sources/source.ts";

/** The values of the discovery service by property name. */
export type DiscoveryValues = ValuesOf<ReturnType<typeof allSettings>>;

/** Declares the settings of the discovery service; a default derives from the name of the machine. */
export function discoverySettings(hostname: string) {
  return declareSettings("sluice-discovery", allSettings(hostname), {
    about:
      "Tells consumers which brokers have a topic; NSQ programs use it as nsqlookupd. Exit codes: " +
      "0 stopped as asked, 1 could not start, 2 a mistake of ours or stopping took too long, 3 ended at " +
      "once by a second signal.",
    relations: brokenRelations,
  });
}

function allSettings(hostname: string) {
  return {
    ...networkSettings(hostname),
    ...sourceSettings(),
    ...registrySettings(),
    ...processSettings(),
  };
}

function networkSettings(hostname: string) {
  const group = "Network";
  return {
    tcpAddress: setting({
      name: "tcp-address",
      kind: address(),
      default: "0.0.0.0:4160",
      doc: "Where brokers register.",
      group,
    }),
    httpAddress: setting({
      name: "http-address",
      kind: address(),
      default: "0.0.0.0:4161",
      doc: "Where lookups, health and metrics are served.",
      group,
    }),
    broadcastAddress: setting({
      name: "broadcast-address",
      kind: text("HOST"),
      default: hostname,
      defaultDoc: "the host name",
      doc: "The host that brokers are told this service is reached at.",
      group,
    }),
    connectionsMax: setting({
      name: "connections-max",
      kind: integer({ min: 1, max: 1_000_000 }),
      default: 10_000,
      doc: "Connections of brokers open at a time; one more is closed at once.",
      group,
    }),
    watchersMax: setting({
      name: "watchers-max",
      kind: integer({ min: 0, max: 100_000 }),
      default: 256,
      doc: "Readers of /v1/watch at a time; one more is refused.",
      group,
    }),
    corsOrigins: setting({
      name: "cors-origin",
      kind: list(origin()),
      default: "",
      doc: "Sites whose pages may read /lookup in a browser; * is all of them.",
      group,
      file: "cors_origins",
    }),
  };
}

function sourceSettings() {
  const group = "Brokers that do not register";
  return {
    brokers: setting({
      name: "broker",
      kind: list(address({ use: "connect" })),
      default: "",
      doc: "Brokers to ask what they have, by their HTTP address; nsqd too.",
      group,
      file: "brokers",
    }),
    brokerDnsNames: setting({
      name: "broker-dns",
      kind: list(dnsName()),
      default: "",
      doc: "Names in DNS to find such brokers by: NAME or NAME:HTTP_PORT for addresses, " +
        "_SERVICE._tcp.NAME for SRV records.",
      group,
      file: "broker_dns",
    }),
    brokerDnsIntervalMs: setting({
      name: "broker-dns-interval",
      kind: durationMs({ min: 100 }),
      default: "5s",
      doc: "The time from looking a name up to the next.",
      group,
    }),
    brokerDnsServer: setting({
      name: "broker-dns-server",
      kind: list(address({ use: "connect" })),
      default: "",
      doc: "The name server to ask, by its IP address; those of the machine without it.",
      group,
    }),
    brokerHeadIntervalMs: setting({
      name: "broker-head-interval",
      kind: durationMs({ min: 50 }),
      default: "500ms",
      doc: "The time from asking a broker whether anything is new to the next.",
      group,
    }),
    brokerFreshMs: setting({
      name: "broker-fresh",
      kind: durationMs({ min: 200 }),
      default: "5s",
      doc: "How long after its last answer such a broker is still listed.",
      group,
    }),
    brokerToken: setting({
      name: "broker-token",
      kind: text("TOKEN"),
      default: "",
      secret: true,
      doc: "Sent to brokers that are asked, as a bearer token; needs the scope read.",
      group,
    }),
  };
}

/** The origin of a site, or `*`. */
function origin(): Kind<string> {
  const parse = (given: string) =>
    given === "*" || /^https?:\/\/[a-z0-9.:[\]-]{1,255}$/i.test(given) ? given : undefined;
  return {
    placeholder: "ORIGIN",
    wanted: "an origin such as https://console.example, or *",
    repeats: false,
    parse,
    fromDocument: (value) => typeof value === "string" ? parse(value) : undefined,
    show: (value) => value,
    toOption: (value) => ({ body: value, json: false }),
  };
}

function dnsName(): Kind<DnsName> {
  return {
    placeholder: "NAME",
    wanted: "a name such as brokers.internal:4151 or _nsqd-http._tcp.brokers.internal",
    repeats: false,
    parse: parseDnsName,
    fromDocument: (value) => typeof value === "string" ? parseDnsName(value) : undefined,
    show: showDnsName,
    toOption: (value) => ({ body: showDnsName(value), json: false }),
  };
}

/** The TCP addresses of a list; the relations see to it that there are no others. */
export function tcpEndpoints(addresses: readonly Address[]): Endpoint[] {
  return addresses.filter((one) => one.transport === "tcp");
}

function registrySettings() {
  const group = "Registry";
  return {
    inactiveProducerTimeoutMs: setting({
      name: "inactive-producer-timeout",
      kind: durationMs({ min: 1 }),
      default: "5m",
      doc: "How long after its last ping a broker is still listed.",
      group,
    }),
    tombstoneLifetimeMs: setting({
      name: "tombstone-lifetime",
      kind: durationMs({ min: 1 }),
      default: "45s",
      doc: "How long a broker stays hidden for a topic that was tombstoned on it.",
      group,
    }),
    producersMax: limit("producers-max", "producersMax", "Brokers registered at a time."),
    topicsMax: limit("topics-max", "topicsMax", "Topics in the registry."),
    channelsMax: limit("channels-max", "channelsMax", "Channels of all topics together."),
    channelsPerTopicMax: limit(
      "channels-per-topic-max",
      "channelsPerTopicMax",
      "Channels of one topic.",
    ),
    registrationsMax: limit(
      "registrations-max",
      "registrationsMax",
      "Topics and channels that all brokers registered, counted together.",
    ),
    registrationsPerProducerMax: limit(
      "registrations-per-producer-max",
      "registrationsPerProducerMax",
      "Topics and channels that one broker registered, counted together.",
    ),
  };
}

function limit(name: string, key: keyof RegistryLimits, doc: string): Setting<number> {
  return setting({
    name,
    kind: integer({ min: 1, max: 10_000_000 }),
    default: REGISTRY_LIMITS[key],
    doc: `${doc} What would pass the limit is refused.`,
    group: "Registry",
  });
}

function processSettings() {
  const group = "Process and log";
  return {
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
        "balancers have time to look elsewhere. shutdown-timeout counts from then on.",
      group,
    }),
    ...logSettings(group, "[nsqlookupd] "),
    verbose: setting({
      name: "verbose",
      kind: boolean(),
      default: false,
      doc: "Replaced by log-level, as in nsqlookupd.",
      accepted: "replaced by log-level; the setting has no effect",
    }),
  };
}

/** The limits of the registry, as set. */
export function registryLimits(values: DiscoveryValues): RegistryLimits {
  const { producersMax, topicsMax, channelsMax, channelsPerTopicMax } = values;
  const { registrationsMax, registrationsPerProducerMax } = values;
  return {
    producersMax,
    topicsMax,
    channelsMax,
    channelsPerTopicMax,
    registrationsMax,
    registrationsPerProducerMax,
  };
}

/** The rules between settings that `values` breaks. */
function brokenRelations(values: DiscoveryValues): string[] {
  const broken: string[] = [];
  const tcp = showAddress(values.tcpAddress);
  if (tcp === showAddress(values.httpAddress) && !tcp.endsWith(":0")) {
    broken.push(`tcp-address and http-address must differ, both are ${tcp}`);
  }
  for (const given of [...values.brokers, ...values.brokerDnsServer]) {
    if (given.transport === "unix") {
      broken.push(`brokers and name servers have an address, not a path: ${given.path}`);
    }
  }
  const { brokerDnsServer, brokerHeadIntervalMs, brokerFreshMs } = values;
  if (brokerDnsServer.length > 1) broken.push("broker-dns-server is one address");
  if (brokerFreshMs < 2 * brokerHeadIntervalMs) {
    broken.push(
      `broker-fresh (${brokerFreshMs} ms) must be at least twice broker-head-interval ` +
        `(${brokerHeadIntervalMs} ms)`,
    );
  }
  const { channelsPerTopicMax, channelsMax } = values;
  if (channelsPerTopicMax > channelsMax) {
    broken.push(
      `channels-per-topic-max (${channelsPerTopicMax}) must not exceed channels-max (${channelsMax})`,
    );
  }
  const { registrationsPerProducerMax, registrationsMax } = values;
  if (registrationsPerProducerMax > registrationsMax) {
    broken.push(
      `registrations-per-producer-max (${registrationsPerProducerMax}) must not exceed ` +
        `registrations-max (${registrationsMax})`,
    );
  }
  return broken;
}
