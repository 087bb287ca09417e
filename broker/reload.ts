/**
 * What a broker does with settings that are other ones after a reload: each that can change has an
 * effect here, and no other is marked so in its declaration.
 */
import { type Address, type ReloadReport, SettingsError } from "@sluice/shared/config";
import type { LogLevelChoice } from "@sluice/shared/telemetry";
import type { brokerSettings, BrokerValues } from "./config.ts";
import { connectionPublishBytesMax } from "./config_rates.ts";
import type { DiskGuardOptions } from "./disk_guard.ts";
import type { PublishLimitOptions } from "./publish_limits.ts";
import type { ReloadAnswer } from "./server/reload_http.ts";

/** The keys of the broker's settings. */
export type BrokerKey = keyof ReturnType<typeof brokerSettings>["settings"];

/** What of a running broker can change. */
export interface ReloadTargets {
  logLevels(levels: LogLevelChoice): void;
  lookUpAt(addresses: readonly Address[]): void;
  /** The share of messages that are traced. */
  trace(share: number): void;
  /** What connections negotiate from now on. */
  identify(values: BrokerValues): void;
  diskBounds(guard: DiskGuardOptions): void;
  limits(limits: PublishLimitOptions): void;
  /** Bytes of publishes that one connection may have under way. */
  connectionBytesMax(bytes: number): void;
}

interface Effect {
  readonly keys: readonly BrokerKey[];
  readonly apply: (targets: ReloadTargets, values: BrokerValues) => void;
}

const EFFECTS: readonly Effect[] = [
  { keys: ["logLevel"], apply: (to, { logLevel }) => to.logLevels(logLevel) },
  {
    keys: ["lookupdTcpAddresses"],
    apply: (to, { lookupdTcpAddresses }) => to.lookUpAt(lookupdTcpAddresses),
  },
  { keys: ["traceSample"], apply: (to, { traceSample }) => to.trace(traceSample) },
  { keys: ["maxRdyCount", "msgTimeoutMs"], apply: (to, values) => to.identify(values) },
  {
    keys: ["minFreeBytes", "logBytesMax"],
    apply: (to, values) => to.diskBounds(guardOf(values)),
  },
  {
    keys: ["topicPublishRate", "topicPublishBytesRate", "clientPublishRate"],
    apply: (to, values) => to.limits(publishLimitsOf(values)),
  },
  {
    keys: ["connectionPublishBytesMax"],
    apply: (to, values) => to.connectionBytesMax(connectionPublishBytesMax(values)),
  },
];

/** The settings that have an effect when they change. */
export const RELOADED_KEYS: readonly BrokerKey[] = EFFECTS.flatMap(({ keys }) => keys);

/** Has what differs be in use. */
export function applyReload(
  targets: ReloadTargets,
  values: BrokerValues,
  changed: ReadonlySet<BrokerKey>,
): void {
  for (const { keys, apply } of EFFECTS) {
    if (keys.some((key) => changed.has(key))) apply(targets, values);
  }
}

/** What a reload has come to, as it is answered over HTTP. */
export async function answerOf(reloading: Promise<ReloadReport>): Promise<ReloadAnswer> {
  try {
    const { changed, needsRestart, files } = await reloading;
    const needs_restart = needsRestart.map(({ name, before, after }) => ({
      name,
      in_use: before,
      configured: after,
    }));
    return { changed, needs_restart, files };
  } catch (error) {
    if (!(error instanceof SettingsError)) throw error;
    return { problems: error.problems };
  }
}

/** What is kept free of the disk. */
export function guardOf({ minFreeBytes, logBytesMax }: BrokerValues): DiskGuardOptions {
  return { minFreeBytes, logBytesMax };
}

/** How fast may be published. */
export function publishLimitsOf(values: BrokerValues): PublishLimitOptions {
  return {
    topic: { messages: values.topicPublishRate, bytes: values.topicPublishBytesRate },
    clientMessages: values.clientPublishRate,
  };
}
