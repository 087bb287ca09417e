/** The native routes of a broker, all of `/v1` but health, registry, storage and policies. */
import type { HttpRoute } from "@sluice/shared/http";
import type { HttpAuthorization } from "@sluice/shared/server";
import type { Broker } from "../broker.ts";
import {
  capabilitiesRoute,
  type DoorFacts,
  type HttpLimits,
  NO_DOORS,
} from "./capabilities_http.ts";
import { identityDocument, observeRoutes } from "./observe_http.ts";
import type { ConfigAccess } from "./config_http.ts";
import { logLevelRoutes } from "./log_level_http.ts";
import { manageRoutes } from "./manage_http.ts";
import { openApiRoute } from "./openapi.ts";
import { messageRoutes } from "./peek_http.ts";
import type { RegistryIdentity, RegistryRevision } from "./registry_http.ts";
import type { Session } from "./session.ts";
import { statsRoute } from "./stats_v1.ts";

/** What the native routes tell of the doors. */
export interface NativeOptions extends HttpLimits, RegistryIdentity {
  readonly startWallMs: number;
  readonly config: ConfigAccess;
  readonly memory: () => Readonly<Record<string, number>>;
  /** What the TCP door is; nothing is known of it when absent. */
  readonly doors?: DoorFacts;
  readonly authorization?: HttpAuthorization;
}

/** The routes, for the door of a broker. */
export function nativeRoutes(
  broker: Broker,
  sessions: ReadonlySet<Session>,
  revision: RegistryRevision,
  options: NativeOptions,
): HttpRoute[] {
  const { doors = NO_DOORS, memory } = options;
  const isAuthorized = options.authorization?.authorizer.isRequired ?? false;
  const world = {
    broker,
    clock: broker.clock,
    sessions,
    memory,
    revision,
    limits: options,
    doors,
    identity: () => identityDocument(broker, options, revision),
  };
  return [
    openApiRoute(),
    capabilitiesRoute(broker, options, doors, isAuthorized),
    statsRoute(world),
    ...observeRoutes(world),
    ...manageRoutes(broker, revision),
    ...messageRoutes(broker),
    ...logLevelRoutes(broker, options.config),
  ];
}
