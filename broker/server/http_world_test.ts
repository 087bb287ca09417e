/** The HTTP door of a broker in a simulated world, for tests. Has no tests of its own. */
import { LoopLag, MetricsRegistry } from "@sluice/shared/telemetry";
import type { HttpHandler } from "@sluice/shared/server";
import { brokerHttp, type HttpOptions } from "./http.ts";
import { registerMetrics } from "./metrics.ts";
import { TopicFigures } from "./topic_figures.ts";
import type { World } from "./world_test.ts";

/** Small enough for a test to go beyond. */
export const MESSAGE_BYTES_MAX = 4000;
export const BODY_BYTES_MAX = 5000;
/** How long a body may take. */
export const BODY_TIMEOUT_MS = 60_000;

/** Makes the door. */
export function worldHttp(world: World): HttpHandler {
  const metrics = new MetricsRegistry();
  const topics = new TopicFigures(world.broker, 1000);
  registerMetrics(metrics, () => ({
    broker: world.broker,
    topics,
    tcp: world.server,
    handshakes: { failedCount: 0 },
    certificateExpiresWallMs: null,
    lag: new LoopLag(world.clock),
  }));
  return brokerHttp(world.broker, world.server.sessions, metrics, worldHttpOptions());
}

/** What the door is made with. */
export function worldHttpOptions(): HttpOptions {
  let level = "info";
  return {
    hostname: "host",
    broadcastAddress: "broadcast",
    broadcastTcpPort: () => 4150,
    broadcastHttpPort: () => 4151,
    startWallMs: 1_700_000_000_999,
    maxHeartbeatIntervalMs: 60_000,
    maxOutputBufferBytes: 65_536,
    maxOutputBufferTimeoutMs: 30_000,
    topologyZone: "z",
    topologyRegion: "r",
    config: {
      get: (option) => {
        if (option === "log_level") return { body: level, json: false };
        return option === "name" ? { body: "host", json: false } : undefined;
      },
      change: (option, body) => {
        if (option !== "name" && option !== "log_level") return "INVALID_OPTION";
        if (body === "bad") return "INVALID_VALUE";
        if (option === "log_level") level = body;
        return null;
      },
    },
    memory: () => ({ heap_objects: 0 }),
    messageBytesMax: MESSAGE_BYTES_MAX,
    bodyBytesMax: BODY_BYTES_MAX,
    deferMsMax: 3_600_000,
    maxDeflateLevel: 6,
    bodyTimeoutMs: BODY_TIMEOUT_MS,
  };
}
