/**
 * The flags of nsqd that this version takes no value from. Those without a meaning in Sluice are
 * accepted with a notice, so that an nsqd command line starts a broker. Those whose absence nobody
 * should overlook, such as authorization, are refused as soon as they ask for something.
 */
import { boolean, bytes, durationMs, integer, list, setting, text } from "@sluice/shared/config";

const NO_SCAN = "Sluice wakes when a message is due and scans nothing; the setting has no effect";
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
    queueScanSelectionCount: setting({
      name: "queue-scan-selection-count",
      kind: integer({ min: 0 }),
      default: 20,
      doc: "Sluice wakes when a message is due and scans nothing.",
      accepted: NO_SCAN,
    }),
  };
}

/** Flags that ask for something this version cannot give. */
export function nsqdFlagsRefused() {
  return {
    enableExperiment: setting({
      name: "enable-experiment",
      kind: list(text()),
      default: [],
      doc: "Names of experimental features.",
      refused: notYet("experiments"),
    }),
  };
}

function notYet(feature: string): string {
  return `not supported yet by this version (${feature})`;
}
