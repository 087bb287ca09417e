/** The log level over HTTP. */
import { deepStrictEqual as equal } from "node:assert/strict";
import { nsqHttp } from "@sluice/shared/http";
import { worldHttpOptions } from "./http_world_test.ts";
import { logLevelRoutes } from "./log_level_http.ts";
import { World } from "./world_test.ts";

const START_MS = 1_700_000_000_000;

function test(
  promise: string,
  run: (
    world: World,
    put: (body: unknown) => Promise<unknown>,
    level: () => Promise<unknown>,
    change: (level: string) => void,
  ) => Promise<void>,
): void {
  Deno.test(promise, () =>
    World.use({}, async (world) => {
      const { config } = worldHttpOptions();
      const app = nsqHttp({
        logger: world.broker.logger,
        routes: logLevelRoutes(world.broker, config),
      });
      const ask = async (init: RequestInit) =>
        await (await app.request("/v1/log-level", init)).json();
      await run(
        world,
        (body) => ask({ method: "PUT", body: JSON.stringify(body) }),
        () => ask({}),
        (level) => void config.change("log_level", level),
      );
    }));
}

function forGood(level: string) {
  return { level, until_ms: null, then: null };
}

test("a level for good stays", async (world, put, level) => {
  equal(await level(), forGood("info"));
  equal(await put({ level: "debug" }), forGood("debug"));
  await world.clock.run(100_000);
  equal(await level(), forGood("debug"));
});

test(
  "a level for a while goes back by itself, over another one for a while too",
  async (world, put, level) => {
    const untilMs = START_MS + 1000;
    equal(await put({ level: "debug", for_ms: 1000 }), {
      level: "debug",
      until_ms: untilMs,
      then: "info",
    });
    await world.clock.run(500);
    equal(await put({ level: "warn", for_ms: 1000 }), {
      level: "warn",
      until_ms: untilMs + 500,
      then: "info",
    });
    await world.clock.run(999);
    equal((await level() as { level: string }).level, "warn");
    await world.clock.run(1);
    equal(await level(), forGood("info"));
  },
);

test(
  "a level that was changed in another way meanwhile stays",
  async (world, put, level, change) => {
    await put({ level: "debug", for_ms: 1000 });
    change("error");
    equal(await level(), forGood("error"));
    await world.clock.run(1000);
    equal(await level(), forGood("error"));
  },
);

test("a level for good ends one for a while", async (world, put, level) => {
  await put({ level: "debug", for_ms: 1000 });
  equal(await put({ level: "warn" }), forGood("warn"));
  await world.clock.run(1000);
  equal(await level(), forGood("warn"));
});

test(
  "what is not right names the reason; a broker that stops waits for nothing",
  async (_world, put, level) => {
    const detail = "level is a log level, as the setting log_level has it";
    for (const body of [{}, { level: 1 }, { level: "bad" }]) {
      equal(await put(body), { message: "INVALID_LEVEL", detail });
    }
    equal(await put({ level: "debug", for_ms: 0 }), {
      message: "INVALID_LEVEL",
      detail: "for_ms is a whole number from 1 to 604800000",
    });
    equal(await level(), forGood("info"));
    // Closing the world checks that no timer is left.
    await put({ level: "debug", for_ms: 1000 });
  },
);
