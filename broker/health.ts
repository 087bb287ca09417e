/**
 * Readiness: whether the broker takes publishes and serves consumers, and if not, why. Pure: the facts
 * of a moment go in, what `/v1/health` says comes out.
 *
 * | Code                 | Status      | Accepting | Delivering |
 * |----------------------|-------------|-----------|------------|
 * | `recovering`         | unavailable | no        | no         |
 * | `stopping`           | unavailable | no        | no         |
 * | `storage_fault`      | unavailable | no        | no         |
 * | `delivery_frozen`    | unavailable | no        | no         |
 * | `draining`           | degraded    | no        | yes        |
 * | `storage_slow`       | degraded    | no        | yes        |
 * | `log_stalled`        | degraded    | no        | yes        |
 * | `disk_pressure`      | degraded    | no        | yes        |
 * | `damaged`            | degraded    | yes       | yes        |
 * | `write_probe_failed` | unavailable | no        |            |
 * | `write_probe_slow`   | unavailable | no        |            |
 *
 * The worst reason decides the status. A broker that refuses publishes, for want of space or because it
 * drains, is no more than degraded: only its consumers can free space or empty it, so they must still be
 * led to it. The last two are there only for whoever asks for a probe.
 */
import { unreachable } from "@sluice/shared/runtime";

const SLOW_TEXT = "the disk has not answered a write of the log for too long";

/** Why not all is well. */
export type HealthCode =
  | "recovering"
  | "stopping"
  | "storage_fault"
  | "delivery_frozen"
  | "draining"
  | "storage_slow"
  | "log_stalled"
  | "disk_pressure"
  | "damaged"
  | ProbeFailure;

/** What a probe by writing may come to, other than well. */
export type ProbeFailure = "write_probe_failed" | "write_probe_slow";

export type HealthStatus = "ok" | "degraded" | "unavailable";

/** One reason; `since` is ISO 8601 in UTC, where the time is known. */
export interface HealthReason {
  readonly code: HealthCode;
  readonly message: string;
  readonly since?: string;
}

/** What `/v1/health` says, as JSON. */
export interface Health {
  readonly status: HealthStatus;
  /** Publishes are taken. */
  readonly accepting: boolean;
  /** Consumers that connect get messages. */
  readonly delivering: boolean;
  readonly reasons: readonly HealthReason[];
  readonly version: string;
  /** While recovering, once it is known how much there is to read. */
  readonly recovery?: { readonly replayed_bytes: number; readonly total_bytes: number };
  /** How long the write that was asked for has taken, or takes. */
  readonly write_probe?: { readonly duration_ms: number };
}

/** Something that holds since `sinceMs` (Unix ms). */
export interface Lasting {
  readonly message: string;
  readonly sinceMs: number;
}

/** A broker at one moment. */
export interface HealthFacts {
  readonly version: string;
  /** It was told to end. */
  readonly stopping: boolean;
  /** Since when it drains, Unix ms; null when it does not. */
  readonly drainingSinceMs: number | null;
  /** It drains and delivers nothing new. */
  readonly deliveryFrozen: boolean;
  /** Since when the disk has owed the answer to a write or sync for too long, Unix ms; else null. */
  readonly slowSinceMs: number | null;
  /** Why the log takes no more writes. */
  readonly failure: Lasting | null;
  /** Why the disk guard refuses publishes. */
  readonly pressure: Lasting | null;
  /** What a write that waits for space met. */
  readonly stalled: string | null;
  /** When the data folder was opened, Unix ms. */
  readonly openedMs: number;
  /** Damaged places found when the log was opened. */
  readonly damagedPlaces: number;
  /** Damaged places known from reading the log through; some may be the same ones. */
  readonly scrubbedPlaces: number;
  /** Records of topics and channels that damage has taken. */
  readonly orphanRecords: number;
  /** Messages passed over since the start. */
  readonly damagedMessages: number;
}

/** A start under way. */
export interface RecoveryFacts {
  readonly version: string;
  readonly sinceMs: number;
  readonly replayedBytes: number;
  /** At most this much is to be read; null while that is not known. */
  readonly totalBytes: number | null;
}

/** Judges a broker that has recovered. */
export function judgeHealth(facts: HealthFacts): Health {
  const reasons: HealthReason[] = [];
  if (facts.stopping) reasons.push({ code: "stopping", message: "the broker is stopping" });
  if (facts.failure !== null) reasons.push(lasting("storage_fault", facts.failure));
  reasons.push(...drainReasons(facts));
  if (facts.slowSinceMs !== null) {
    reasons.push(lasting("storage_slow", { message: SLOW_TEXT, sinceMs: facts.slowSinceMs }));
  }
  if (facts.stalled !== null) reasons.push({ code: "log_stalled", message: facts.stalled });
  if (facts.pressure !== null) reasons.push(lasting("disk_pressure", facts.pressure));
  const damage = damageText(facts);
  if (damage !== null) {
    // What was met while running has no time of its own: the audit trail has one for each message.
    const atOpen = facts.damagedPlaces > 0 || facts.orphanRecords > 0;
    reasons.push(
      atOpen
        ? lasting("damaged", { message: damage, sinceMs: facts.openedMs })
        : { code: "damaged", message: damage },
    );
  }
  return verdict(facts.version, reasons);
}

/** What a broker says before it has recovered. */
export function recoveringHealth(facts: RecoveryFacts): Health {
  const message = "the broker reads its log";
  const health = verdict(facts.version, [
    lasting("recovering", { message, sinceMs: facts.sinceMs }),
  ]);
  if (facts.totalBytes === null) return health;
  const recovery = { replayed_bytes: facts.replayedBytes, total_bytes: facts.totalBytes };
  return { ...health, recovery };
}

/** What is said when a probe by writing was asked for, and has come to this. */
export function probedHealth(
  health: Health,
  durationMs: number,
  failure: { readonly code: ProbeFailure; readonly message: string } | null,
): Health {
  const write_probe = { duration_ms: Math.round(durationMs * 1000) / 1000 };
  if (failure === null) return { ...health, write_probe };
  return {
    ...health,
    status: "unavailable",
    accepting: false,
    reasons: [...health.reasons, failure],
    write_probe,
  };
}

function drainReasons({ drainingSinceMs: sinceMs, deliveryFrozen }: HealthFacts): HealthReason[] {
  if (sinceMs === null) return [];
  const draining = lasting("draining", { message: "publishes are refused by request", sinceMs });
  if (!deliveryFrozen) return [draining];
  return [{ code: "delivery_frozen", message: "deliveries are frozen by request" }, draining];
}

function verdict(version: string, reasons: readonly HealthReason[]): Health {
  let status: HealthStatus = "ok";
  let accepting = true;
  let delivering = true;
  for (const { code } of reasons) {
    switch (code) {
      case "recovering":
      case "stopping":
      case "storage_fault":
      case "delivery_frozen":
        status = "unavailable";
        accepting = false;
        delivering = false;
        break;
      case "draining":
      case "storage_slow":
      case "log_stalled":
      case "disk_pressure":
        if (status === "ok") status = "degraded";
        accepting = false;
        break;
      case "damaged":
        if (status === "ok") status = "degraded";
        break;
      case "write_probe_failed":
      case "write_probe_slow":
        status = "unavailable";
        accepting = false;
        break;
      default:
        unreachable(code);
    }
  }
  return { status, accepting, delivering, reasons, version };
}

function lasting(code: HealthCode, { message, sinceMs }: Lasting): HealthReason {
  return { code, message, since: new Date(sinceMs).toISOString() };
}

function damageText(facts: HealthFacts): string | null {
  const parts = [
    counted(facts.damagedPlaces, "damaged place in the log", "damaged places in the log"),
    counted(facts.scrubbedPlaces, "place found by scrubbing", "places found by scrubbing"),
    counted(
      facts.orphanRecords,
      "record of a lost topic or channel",
      "records of lost topics or channels",
    ),
    counted(facts.damagedMessages, "message passed over", "messages passed over"),
  ].filter((part) => part !== null);
  return parts.length === 0 ? null : parts.join(", ");
}

function counted(count: number, one: string, many: string): string | null {
  return count === 0 ? null : `${count} ${count === 1 ? one : many}`;
}
