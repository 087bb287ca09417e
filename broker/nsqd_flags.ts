/**
 * The flags of nsqd that this version takes no value from. Those without a meaning in Sluice are
 * accepted with a notice, so that an nsqd command line starts a broker.
 */
import { boolean, bytes, choice, durationMs, integer, list, setting } from "@sluice/shared/config";

const NO_SCAN = "Sluice wakes when a message is due and scans nothing; the setting has no effect";
const NO_EXPERIMENT =
  "Sluice gives messages to consumers of all zones and regions alike; the setting has no effect";
const ALWAYS_SYNCED =
  "Sluice confirms a message only when it is on disk; the setting has no effect";

/** Flags that change nothing here. */
export function nsqdFlagsWithoutEffect() {
  return {
    verbose: setting({
      name: "verbose",
      kind: boolean(),
      default: false,
      doc: "Replaced by log-level, as in nsqd.",
      accepted: "replaced by log-level; the setting has no effect",
    }),
    workerId: setting({
      name: "worker-id",
      kind: { ...integer(), bare: "0" },
      default: 0,
      doc: "Replaced by node-id, as in nsqd.",
      accepted: "replaced by node-id; the setting has no effect",
    }),
    memQueueSize: setting({
      name: "mem-queue-size",
      kind: integer({ min: 0 }),
      default: 10_000,
      doc: "Sluice keeps every message in its log.",
      accepted: "Sluice keeps every message in its log; the setting has no effect",
    }),
    maxBytesPerFile: setting({
      name: "max-bytes-per-file",
      kind: bytes(),
      default: 104_857_600,
      doc: "The files of Sluice's log have the size log-file-bytes.",
      accepted: "Sluice's files have the size log-file-bytes; the setting has no effect",
    }),
    syncEvery: setting({
      name: "sync-every",
      kind: integer({ min: 0 }),
      default: 2500,
      doc: "Sluice confirms a message only when it is on disk.",
      accepted: ALWAYS_SYNCED,
    }),
    syncTimeoutMs: setting({
      name: "sync-timeout",
      kind: durationMs(),
      default: "2s",
      doc: "Sluice confirms a message only when it is on disk.",
      accepted: ALWAYS_SYNCED,
    }),
    queueScanWorkerPoolMax: setting({
      name: "queue-scan-worker-pool-max",
      kind: integer({ min: 0 }),
      default: 4,
      doc: "Sluice wakes when a message is due and scans nothing.",
      accepted: NO_SCAN,
    }),
    enableExperiment: setting({
      name: "enable-experiment",
      kind: list(choice(["topology-aware-consumption"])),
      default: [],
      doc: "Sluice has none of nsqd's experiments; their names are taken.",
      accepted: (names) => names.length === 0 ? undefined : NO_EXPERIMENT,
    }),
    queueScanSelectionCount: setting({
      name: "queue-scan-selection-count",
      kind: integer({ min: 0 }),
      default: 20,
      doc: "Sluice wakes when a message is due and scans nothing.",
      accepted: NO_SCAN,
    }),
  };
}
