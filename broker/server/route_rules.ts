/** Who may use which route of the broker; see `HttpAccess`. */
import type { RouteNeed, RouteRules } from "@sluice/shared/server";

const READ: RouteNeed = { scope: "read", on: "node" };
const ADMIN: RouteNeed = { scope: "admin", on: "node" };
const TOPIC_ADMIN: RouteNeed = { scope: "admin", on: "topic" };
const CHANNEL_ADMIN: RouteNeed = { scope: "admin", on: "channel" };
const PUBLISH: RouteNeed = { scope: "publish", on: "topic" };

/** The rule of each route, by method and path. */
export const ROUTE_RULES: RouteRules = {
  "GET /ping": "open",
  "GET /v1/health": "open",
  "GET /v1/health?probe=write": READ,
  "GET /v1/openapi.json": READ,
  "GET /v1/capabilities": READ,
  "GET /v1/stats": READ,
  "GET /v1/observe/head": READ,
  "GET /v1/observe": READ,
  "POST /v1/manage/topics/:action": ADMIN,
  "POST /v1/manage/channels/:action": ADMIN,
  "GET /v1/manage/tombstones": READ,
  "GET /v1/topics/:topic/channels/:channel/peek": { scope: "consume", on: "channel" },
  "GET /v1/topics/:topic/channels/:channel/deferred": { scope: "read", on: "channel" },
  "DELETE /v1/topics/:topic/channels/:channel/deferred/:id": CHANNEL_ADMIN,
  "POST /v1/topics/:topic/channels/:channel/move": ADMIN,
  "GET /v1/log-level": READ,
  "PUT /v1/log-level": ADMIN,
  "GET /info": READ,
  "GET /stats": READ,
  "GET /metrics": READ,
  "GET /config/:opt": READ,
  "PUT /config/:opt": ADMIN,
  "POST /v1/reload": ADMIN,
  "POST /pub": PUBLISH,
  "POST /mpub": PUBLISH,
  "POST /topic/create": TOPIC_ADMIN,
  "POST /topic/delete": TOPIC_ADMIN,
  "POST /topic/empty": TOPIC_ADMIN,
  "POST /topic/pause": TOPIC_ADMIN,
  "POST /topic/unpause": TOPIC_ADMIN,
  "POST /channel/create": CHANNEL_ADMIN,
  "POST /channel/delete": CHANNEL_ADMIN,
  "POST /channel/empty": CHANNEL_ADMIN,
  "POST /channel/pause": CHANNEL_ADMIN,
  "POST /channel/unpause": CHANNEL_ADMIN,
  "GET /v1/storage/scrub": READ,
  "POST /v1/storage/scrub": ADMIN,
  "GET /v1/topics/:topic/policy": { scope: "read", on: "topic" },
  "PUT /v1/topics/:topic/policy": TOPIC_ADMIN,
  "GET /v1/drain": READ,
  "POST /v1/drain": ADMIN,
  "GET /v1/registry/head": READ,
  "GET /v1/registry": READ,
};
