/**
 * What discovery tells over HTTP beside nsqlookupd's paths, all under `/v1`:
 *
 * - `brokers` and `publishers` (those that take publishes): the brokers that were heard of lately.
 *   `publishers/head` has only the revision, to be asked often;
 * - `health`: how well it knows, source by source. 503 until every source and every broker they list
 *   has been heard of or has failed, for {@linkcode SETTLE_MS} at most; then 200, `degraded` when
 *   something is not as it should be; 503 `stopping` once it was told to end;
 * - `watch`: see `watch.ts`; 503 as long as `health` says `starting`.
 *
 * Whatever lists brokers says in `stale_sources` which sources are not current, so that nobody takes
 * the list for all there is. Revisions count for one `instance`, the time from start to stop.
 */
import { errorReply, type HttpRoute, jsonReply } from "@sluice/shared/http";
import { type Clock, REPORTED_VERSION } from "@sluice/shared/runtime";
import type { Roster } from "./roster.ts";
import type { Directory } from "./sources/directory.ts";
import type { WatchHub } from "./watch.ts";

/** How long a start waits for sources and brokers before it serves what it knows. */
export const SETTLE_MS = 5_000;
/** Brokers that do not answer which `/v1/health` names. */
const UNREACHABLE_SHOWN = 50;

/** Statuses for which nobody is to be sent here. */
const UNREADY = ["starting", "stopping"];

/** What the routes answer from. */
export interface NativeHttpOptions {
  readonly instance: string;
  readonly clock: Clock;
  readonly startMs: number;
  readonly roster: Roster;
  readonly directory: Directory;
  readonly watch: WatchHub;
  /** Whether it was told to end; never when absent. */
  readonly isStopping?: () => boolean;
}

/** The routes, for the HTTP door of discovery. */
export function nativeRoutes(options: NativeHttpOptions): HttpRoute[] {
  const { roster, watch } = options;
  const get = (path: string, handle: () => Response): HttpRoute => ({
    method: "GET",
    path: `/v1/${path}`,
    handle,
  });
  return [
    get(
      "brokers",
      () => jsonReply({ ...headOf(options, roster.revision), brokers: roster.brokers() }),
    ),
    get(
      "publishers",
      () =>
        jsonReply({ ...headOf(options, roster.brokersRevision), producers: roster.publishers() }),
    ),
    get("publishers/head", () => jsonReply(headOf(options, roster.brokersRevision))),
    get("health", () => {
      const health = healthDocument(options);
      return jsonReply(health, UNREADY.includes(health.status) ? 503 : 200);
    }),
    get("watch", () => {
      // A first part with hardly any broker would be taken for all there is.
      if (!isSettled(options)) return errorReply(503, "STARTING", [["Retry-After", "1"]]);
      const events = watch.open();
      if (events === null) {
        return errorReply(503, "WATCH_LIMIT_REACHED", [["Retry-After", "1"]]);
      }
      return new Response(events, {
        headers: {
          "Content-Type": "text/event-stream; charset=utf-8",
          "Cache-Control": "no-store",
          "X-Accel-Buffering": "no",
        },
      });
    }),
  ];
}

function headOf({ instance, roster, directory }: NativeHttpOptions, revision: number) {
  const stale = directory.sources().filter(({ state }) => state !== "current");
  return {
    instance,
    revision,
    broker_count: roster.brokerCount,
    stale_sources: stale.map(({ name }) => name),
  };
}

/** Whether what the sources list has been asked, or has had the time for that. */
function isSettled({ directory, clock, startMs }: NativeHttpOptions): boolean {
  return directory.isSettled || clock.monoMs() - startMs >= SETTLE_MS;
}

function statusOf(options: NativeHttpOptions, isWell: boolean): string {
  if (options.isStopping?.() === true) return "stopping";
  if (!isSettled(options)) return "starting";
  return isWell ? "ok" : "degraded";
}

function healthDocument(options: NativeHttpOptions) {
  const { instance, roster, directory } = options;
  const sources = directory.sources();
  const polled = directory.brokers();
  const unreachable = polled.filter(({ state }) => state === "unreachable");
  const failing = polled.filter(({ state, reason }) => state === "fresh" && reason !== null);
  const isWell = sources.every(({ state }) => state === "current") &&
    unreachable.length === 0 && failing.length === 0;
  return {
    status: statusOf(options, isWell),
    version: REPORTED_VERSION,
    instance,
    brokers: roster.brokerCount,
    sources: [
      { name: "registration", kind: "registration", state: "current", reason: null },
      ...sources.map(({ ageMs, ...source }) => ({
        ...source,
        age_ms: ageMs === null ? null : Math.floor(ageMs),
      })),
    ],
    polled: {
      endpoints: polled.length,
      fresh: polled.filter(({ state }) => state === "fresh").length,
      unreachable: unreachable.length,
      problems: [...unreachable, ...failing].slice(0, UNREACHABLE_SHOWN),
    },
  };
}
