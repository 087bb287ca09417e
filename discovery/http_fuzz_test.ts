/** Any request at discovery's HTTP door has a documented answer, and the registry stays in order. */
import { deepStrictEqual as equal, ok } from "node:assert/strict";
import { Logger, MetricsRegistry } from "@sluice/shared/telemetry";
import {
  checkAnswer,
  freshRequest,
  fuzz,
  HTTP_WORDS,
  requestOf,
  SimClock,
} from "@sluice/shared/testing";
import { discoveryHttp } from "./http.ts";
import { Registry, REGISTRY_LIMITS } from "./registry.ts";

const PATHS = [
  "/ping",
  "/info",
  "/metrics",
  "/lookup",
  "/topics",
  "/channels",
  "/nodes",
  "/debug",
  "/topic/create",
  "/topic/delete",
  "/topic/tombstone",
  "/channel/create",
  "/channel/delete",
  "/",
];
const ANSWERS = { statuses: [200, 301, 307, 400, 403, 404, 405], bytesMax: 100_000 };
const TOPICS_MAX = 3;

fuzz({
  name: "discovery-http",
  corpus: new URL("testdata/fuzz/http/", import.meta.url),
  words: [...HTTP_WORDS, ...PATHS],
  fresh: (random) => freshRequest(random, PATHS, 100),
  cases: 1000,
  check: async (input) => {
    const request = requestOf(input);
    if (request === null) return;
    const clock = new SimClock();
    const registry = new Registry({
      inactiveTimeoutMs: 300_000,
      tombstoneLifetimeMs: 45_000,
      limits: { ...REGISTRY_LIMITS, topicsMax: TOPICS_MAX },
    });
    const info = {
      broadcastAddress: "a",
      hostname: "a.host",
      tcpPort: 4150,
      httpPort: 1,
      version: "1.3.0",
      topologyRegion: "",
      topologyZone: "",
    };
    registry.addProducer("a", { remoteAddress: "a:5", info }, 0);
    registry.register("a", "t", "c");
    const errors: string[] = [];
    const logger = new Logger({
      sink: (line) => {
        if (line.includes("failed")) errors.push(line);
      },
      clock,
    });
    const app = discoveryHttp({ registry, clock, logger, metrics: new MetricsRegistry() });
    const ask = (asked: Request) => Promise.resolve(app.fetch(asked));
    const { method } = request;
    await checkAnswer(await clock.runUntil(ask(request), 60_000), { ...ANSWERS, method });
    equal(errors, []);
    ok(registry.topics().length <= TOPICS_MAX);
    for (const path of ["/nodes", "/topics", "/debug"]) {
      equal((await ask(new Request(`http://d${path}`))).status, 200);
    }
  },
});
