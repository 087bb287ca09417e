/**
 * Authorization for every service and door: who may publish, consume, read and administrate what.
 * Pure but for the seams that {@linkcode Authorization.open} is given.
 */
export { AUTH_REPLY_BYTES_MAX, AuthReplyError, parseAuthReply } from "./auth_reply.ts";
export { AuthServers, type AuthServersOptions, authUrl, shownAuthAddress } from "./auth_servers.ts";
export {
  AuthorizationUnavailable,
  Authorizer,
  type Credentials,
  GRANTS_BYTES_MAX,
  type GrantSource,
  SECRET_BYTES_MAX,
  secretOf,
} from "./authorizer.ts";
export { type Grant, Grants, type Scope, SCOPES } from "./grants.ts";
export { Authorization, type AuthorizationSeams, type AuthorizationSettings } from "./open.ts";
export { Pattern } from "./pattern.ts";
export { AuthorizationFileError, type WatchedOutcome } from "./watched_file.ts";
