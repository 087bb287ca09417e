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
import { openApiRoute } from "./openapi.ts";

/** What the native routes tell of the doors. */
export interface NativeOptions extends HttpLimits {
  /** What the TCP door is; nothing is known of it when absent. */
  readonly doors?: DoorFacts;
  readonly authorization?: HttpAuthorization;
}

/** The routes, for the door of a broker. */
export function nativeRoutes(broker: Broker, options: NativeOptions): HttpRoute[] {
  const isAuthorized = options.authorization?.authorizer.isRequired ?? false;
  return [
    openApiRoute(),
    capabilitiesRoute(broker, options, options.doors ?? NO_DOORS, isAuthorized),
  ];
}
