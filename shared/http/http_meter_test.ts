import assert from "node:assert/strict";
import { SimClock } from "../testing/mod.ts";
import { Logger, MetricsRegistry } from "../telemetry/mod.ts";
import { HttpMeter, registerHttpMetrics } from "./http_meter.ts";
import { nsqHttp } from "./nsq_http.ts";
import { jsonReply } from "./reply.ts";

Deno.test("HttpMeter counts by the pattern of a route, and everything that is no route as one", async () => {
  const clock = new SimClock();
  const meter = new HttpMeter(clock);
  const app = nsqHttp({
    logger: new Logger({ clock, sink: () => {}, level: "error" }),
    meter,
    routes: [{
      method: "GET",
      path: "/v1/topics/:topic",
      handle: async (call) => {
        await clock.advance(20);
        return jsonReply({}, call.pathParameter("topic") === "none" ? 404 : 200);
      },
    }],
  });
  for (const path of ["a", "b", "none"]) await app.request(`/v1/topics/${path}`);
  for (const path of ["/x", "/y", "/v1/topics/a/"]) await app.request(path);
  await app.request("/v1/topics/a", { method: "DELETE" });
  const registry = new MetricsRegistry();
  registerHttpMetrics(registry, () => meter);
  const lines = (await registry.text()).split("\n");
  assert.deepEqual(lines.filter((line) => line.startsWith("sluice_http_requests_total")), [
    'sluice_http_requests_total{method="GET",route="/v1/topics/:topic",status="2xx"} 2',
    'sluice_http_requests_total{method="GET",route="/v1/topics/:topic",status="4xx"} 1',
    'sluice_http_requests_total{method="other",route="other",status="2xx"} 0',
    'sluice_http_requests_total{method="other",route="other",status="3xx"} 1',
    'sluice_http_requests_total{method="other",route="other",status="4xx"} 3',
  ]);
  const sum = lines.find((line) =>
    line.startsWith("sluice_http_request_duration_seconds_sum") && line.includes(":topic")
  );
  assert.equal(sum?.split(" ").at(-1), "0.06");
});
