/**
 * What the HTTP doors of all services share: NSQ's common rules ({@linkcode nsqHttp}), its replies
 * as plain functions for paths that go without a router, query strings, and bounded bodies.
 */
export * from "./access_log.ts";
export * from "./body.ts";
export * from "./http_error.ts";
export * from "./http_meter.ts";
export * from "./name_argument.ts";
export * from "./nsq_http.ts";
export * from "./publish_request.ts";
export * from "./query.ts";
export * from "./reply.ts";
