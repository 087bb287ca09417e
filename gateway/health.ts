/**
 * Readiness of the gateway: whether it takes publishes, and if not all is well, why. Pure.
 *
 * | Code | Status | Accepting |
 * |---|---|---|
 * | `starting`, `draining` | unavailable | no |
 * | `no_broker` | degraded while the spool takes publishes, else unavailable | as the spool does |
 * | `spool_full`, `spool_stale`, `spool_failed` | degraded | while there is a broker |
 * | `backlog` | degraded | yes |
 * | `quarantine` | degraded | yes |
 * | `discovery_lost` | degraded | yes |
 *
 * A gateway that spools is of use, so it stays ready: its OK means what it always means.
 */

import { REPORTED_VERSION } from "@sluice/shared/runtime";

/** Why not all is well. */
export type HealthCode =
  | "starting"
  | "draining"
  | "no_broker"
  | "spool_full"
  | "spool_stale"
  | "spool_failed"
  | "backlog"
  | "quarantine"
  | "discovery_lost";

/** One reason, for programs and for people. */
export interface HealthReason {
  readonly code: HealthCode;
  readonly message: string;
}

/** What `/v1/health` says, as JSON. */
export interface Health {
  readonly status: "ok" | "degraded" | "unavailable";
  readonly accepting: boolean;
  readonly reasons: readonly HealthReason[];
  readonly version: string;
  readonly brokers: { readonly listed: number; readonly usable: number };
  readonly spool: SpoolHealth | null;
}

/** The spool in health and statistics. */
export interface SpoolHealth {
  readonly depth: number;
  readonly body_bytes: number;
  readonly file_bytes: number;
  readonly oldest_age_ms: number | null;
  readonly quarantined: number;
}

/** A gateway at one moment. */
export interface HealthFacts {
  readonly version: string;
  readonly draining: boolean;
  readonly listed: number;
  readonly usable: number;
  /** Null without a spool. */
  readonly spool: SpoolHealth | null;
  /** Why the spool takes no more, if it does not. */
  readonly spoolRefuses: "full" | "stale" | "failed" | null;
  /** Discovery services that are not current, with the reason. */
  readonly lost: readonly string[];
}

const REFUSALS = {
  full: ["spool_full", "the spool is full"],
  stale: ["spool_stale", "the oldest publish in the spool has waited for too long"],
  failed: ["spool_failed", "the spool cannot be written"],
} as const;

/** What a gateway says that still reads its spool. */
export function startingHealth(): Pick<Health, "status" | "accepting" | "reasons" | "version"> {
  const reasons = [{ code: "starting", message: "the gateway reads its spool" }] as const;
  return { status: "unavailable", accepting: false, reasons, version: REPORTED_VERSION };
}

/** Judges. */
export function judgeHealth(facts: HealthFacts): Health {
  const { version, draining, listed, usable, spool, spoolRefuses, lost } = facts;
  const reasons: HealthReason[] = [];
  const spools = spool !== null && spoolRefuses === null;
  const accepting = !draining && (usable > 0 || spools);
  if (draining) reasons.push({ code: "draining", message: "the gateway is stopping" });
  if (usable === 0) {
    const known = listed === 0 ? "no broker is known" : `none of ${listed} brokers takes publishes`;
    const then = spools ? "publishes are spooled" : "publishes are refused";
    reasons.push({ code: "no_broker", message: `${known}: ${then}` });
  }
  if (spoolRefuses !== null) {
    const [code, message] = REFUSALS[spoolRefuses];
    reasons.push({ code, message });
  }
  if (spool !== null && spool.depth > 0) {
    reasons.push({ code: "backlog", message: `${spool.depth} publishes are in the spool` });
  }
  if (spool !== null && spool.quarantined > 0) {
    reasons.push({
      code: "quarantine",
      message: `${spool.quarantined} publishes are in quarantine: no broker takes them`,
    });
  }
  for (const message of lost) reasons.push({ code: "discovery_lost", message });
  const status = !accepting ? "unavailable" : reasons.length > 0 ? "degraded" : "ok";
  return { status, accepting, reasons, version, brokers: { listed, usable }, spool };
}
