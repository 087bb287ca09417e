/**
 * The quarantine of the spool: publishes that no broker takes, or whose outcome cannot be known.
 *
 * ```
 * GET    /v1/quarantine?from=ID&limit=N    {"entries":[{"id","topic","messages","bytes","reason",
 *                                           "spooled","broker"}],"next":ID|null}
 * GET    /v1/quarantine/ID/body            the message, or the body of an MPUB
 * POST   /v1/quarantine/ID/retry           it goes to a broker again
 * DELETE /v1/quarantine/ID                 it is given up
 * ```
 *
 * What its broker may have (the reason begins with "ambiguous") goes into the spool anew, for any broker and
 * with another number, and so may be stored twice: nobody can know. The rest goes to the broker that it
 * was for.
 *
 * What is damaged on disk has no topic, no body, and null for `spooled`. 503 `SPOOL_FAILED` when the
 * spool cannot be written, `SPOOL_FULL` or `SPOOL_STALE` when it takes nothing anew.
 */
import { emptyReply, HttpError, type HttpRoute, jsonReply } from "@sluice/shared/http";
import type { Publish } from "./publish.ts";
import { AMBIGUOUS } from "./replayer.ts";
import { type Spool, SpoolRefusal } from "./spool/mod.ts";

const LIMIT_DEFAULT = 100;
const LIMIT_MAX = 1_000;
const NUMBER_REGEXP = /^\d{1,16}$/;

/** The routes; without a spool the quarantine is empty. `spoolAnew` gives a publish another number. */
export function quarantineRoutes(
  spool: Spool | null,
  spoolAnew: (publish: Publish) => Promise<void>,
): HttpRoute[] {
  const path = "/v1/quarantine";
  return [
    {
      method: "GET",
      path,
      handle: async ({ query }) => {
        const from = number(query.get("from") ?? "0", Number.MAX_SAFE_INTEGER);
        const limit = number(query.get("limit") ?? String(LIMIT_DEFAULT), LIMIT_MAX);
        const found = await spool?.quarantined(from, limit + 1) ?? [];
        return jsonReply({
          entries: found.slice(0, limit).map((entry) => ({
            id: entry.id,
            topic: entry.topic,
            messages: entry.messageCount,
            bytes: entry.bodyBytes,
            reason: entry.reason,
            spooled: entry.spooledWallMs === 0 ? null : new Date(entry.spooledWallMs).toISOString(),
            broker: entry.broker,
          })),
          next: found[limit]?.id ?? null,
        });
      },
    },
    {
      method: "GET",
      path: `${path}/:id/body`,
      handle: async (call) => {
        const body = await spool?.body(idOf(call.pathParameter("id"))) ?? null;
        if (body === null) throw new HttpError(404, "NOT_IN_QUARANTINE");
        return new Response(body.slice(), {
          headers: { "Content-Type": "application/octet-stream" },
        });
      },
    },
    {
      method: "POST",
      path: `${path}/:id/retry`,
      handle: async (call) => {
        const id = idOf(call.pathParameter("id"));
        return await done(spool === null ? undefined : retry(spool, id, spoolAnew));
      },
    },
    {
      method: "DELETE",
      path: `${path}/:id`,
      handle: async (call) => await done(spool?.drop(idOf(call.pathParameter("id")))),
    },
  ];
}

async function retry(
  spool: Spool,
  id: number,
  spoolAnew: (publish: Publish) => Promise<void>,
): Promise<boolean> {
  const [entry] = await spool.quarantined(id, 1);
  if (entry?.id !== id) return false;
  if (!entry.reason.startsWith(AMBIGUOUS)) return await spool.retry(id);
  const publish = await spool.quarantinedPublish(id);
  if (publish === null) return false;
  // A crash in between leaves it in quarantine as well: it is not lost.
  await spoolAnew(publish);
  return await spool.drop(id);
}

async function done(action: Promise<boolean> | undefined): Promise<Response> {
  try {
    if (await action !== true) throw new HttpError(404, "NOT_IN_QUARANTINE");
    return emptyReply();
  } catch (error) {
    if (!(error instanceof SpoolRefusal)) throw error;
    throw new HttpError(503, `SPOOL_${error.code.toUpperCase()}`);
  }
}

function idOf(text: string): number {
  if (!NUMBER_REGEXP.test(text)) throw new HttpError(404, "NOT_IN_QUARANTINE");
  return Number(text);
}

function number(text: string, max: number): number {
  const value = NUMBER_REGEXP.test(text) ? Number(text) : -1;
  if (value < 0 || value > max) throw new HttpError(400, "INVALID_REQUEST");
  return value;
}
