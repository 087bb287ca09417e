/**
 * What can be asked of the storage over HTTP, in JSON: `POST /v1/storage/scrub` has the log read
 * through for damage (202, or 200 when that is under way), `GET /v1/storage/scrub` says what was
 * found.
 */
import { type HttpRoute, jsonReply } from "@sluice/shared/http";
import { type Broker, RefusedError } from "../broker.ts";
import { refusal } from "./http_refusal.ts";

const SCRUB_PATH = "/v1/storage/scrub";

/** The routes, for the door of a broker. */
export function storageRoutes(broker: Broker): HttpRoute[] {
  return [
    { method: "GET", path: SCRUB_PATH, handle: () => jsonReply(scrubReport(broker)) },
    { method: "POST", path: SCRUB_PATH, handle: () => startScrub(broker) },
  ];
}

function startScrub(broker: Broker): Response {
  if (broker.exiting) throw refusal(new RefusedError("exiting", "exiting"));
  const status = broker.scrubber.isRunning ? 200 : 202;
  void broker.scrubber.start();
  return jsonReply(scrubReport(broker), status);
}

function scrubReport(broker: Broker) {
  const report = broker.scrubber.report;
  return {
    running: report.running,
    position: report.position,
    end: report.end,
    bytes_verified: report.bytesVerified,
    passes: report.passes,
    repaired: report.repaired,
    last_started_ms: report.lastStartedMs,
    last_ended_ms: report.lastEndedMs,
    damage_count: report.damageCount,
    damage: report.damage,
  };
}
