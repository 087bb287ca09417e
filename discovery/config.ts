/**
 * The settings of the discovery service: every flag of nsqlookupd under its own name and with its own
 * default, and limits on what producers may register, which nsqlookupd does not have.
 */
import {
  address,
  boolean,
  declareSettings,
  durationMs,
  integer,
  logSettings,
  type Setting,
  setting,
  showAddress,
  text,
  type ValuesOf,
} from "@sluice/shared/config";
import { REGISTRY_LIMITS, type RegistryLimits } from "./registry.ts";

/** The values of the discovery service by property name. */
export type DiscoveryValues = ValuesOf<ReturnType<typeof allSettings>>;

/** Declares the settings of the discovery service; a default derives from the name of the machine. */
export function discoverySettings(hostname: string) {
  return declareSettings("sluice-discovery", allSettings(hostname), {
    about: "Tells consumers which brokers have a topic; NSQ programs use it as nsqlookupd.",
    relations: brokenRelations,
  });
}

function allSettings(hostname: string) {
  return { ...networkSettings(hostname), ...registrySettings(), ...processSettings() };
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
  };
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
