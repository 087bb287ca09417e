import assert from "node:assert/strict";
import { Logger, type LogLevel } from "../telemetry/mod.ts";
import { SimClock } from "../testing/mod.ts";
import { withAccessLog } from "./access_log.ts";

const ROUTES = ["GET /stats", "POST /pub", "GET /v1/topics/:topic/policy"];

async function ask(level: LogLevel, ...urls: string[]): Promise<unknown[]> {
  const clock = new SimClock();
  const lines: string[] = [];
  const sink = (line: string) => lines.push(line);
  const logger = new Logger({ clock, sink, level, format: "json" });
  const handler = withAccessLog(
    async () => {
      await clock.advance(12);
      return new Response("", { status: 418 });
    },
    ROUTES,
    { clock, logger },
  );
  for (const url of urls) await handler(new Request(url, { method: "PUT" }), "192.0.2.1:9");
  return lines.map((line) => JSON.parse(line));
}

Deno.test("a request leaves one line at debug with its route, status, duration and client", async () => {
  const [line, ...rest] = await ask("debug", "http://h/v1/topics/secret-name/policy?token=hunter2");
  assert.deepEqual([line, rest], [{
    time: "2023-11-14T22:13:20.012Z",
    level: "debug",
    message: "HTTP request",
    component: "http",
    method: "PUT",
    route: "/v1/topics/:topic/policy",
    status: 418,
    duration_ms: 12,
    client: "192.0.2.1:9",
  }, []]);
});

Deno.test("a request to no route is told without its path, and none is told below debug", async () => {
  const lines = await ask("debug", "http://h/hunter2", "http://h/stats/", "http://h/pub#x");
  const routes = (lines as { route: string }[]).map(({ route }) => route);
  assert.deepEqual(routes, ["none", "none", "/pub"]);
  assert.deepEqual(await ask("info", "http://h/pub"), []);
});
