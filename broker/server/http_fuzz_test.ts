/**
 * Any request at the broker's HTTP door has a documented answer in time, leaves nothing behind, and
 * keeps nobody from publishing. Bodies above 1000 bytes go the way of large messages.
 */
import { deepStrictEqual as equal } from "node:assert/strict";
import { checkAnswer, freshRequest, fuzz, HTTP_WORDS, requestOf } from "@sluice/shared/testing";
import { BODY_BYTES_MAX, BODY_TIMEOUT_MS, worldHttp } from "./http_world_test.ts";
import { World } from "./world_test.ts";

const PATHS = [
  "/pub",
  "/pub",
  "/mpub",
  "/mpub",
  "/stats",
  "/info",
  "/ping",
  "/metrics",
  "/config/name",
  "/topic/create",
  "/topic/delete",
  "/topic/empty",
  "/topic/pause",
  "/topic/unpause",
  "/channel/create",
  "/channel/delete",
  "/channel/empty",
  "/channel/pause",
  "/channel/unpause",
  "/v1/health",
  "/v1/storage/scrub",
  "/v1/topics/t/policy",
  "/v1/stats",
  "/v1/observe",
  "/v1/manage/topics/create",
  "/v1/manage/channels/delete",
  "/v1/topics/t/channels/c/peek",
  "/v1/topics/t/channels/c/deferred/0001000000000001",
  "/v1/topics/t/channels/c/move",
  "/v1/log-level",
  "/debug/pprof",
  "/",
];
const ANSWERS = {
  statuses: [200, 202, 301, 307, 400, 403, 404, 405, 408, 409, 413, 429],
  bytesMax: 1_000_000,
};

fuzz({
  name: "broker-http",
  corpus: new URL("testdata/fuzz/http/", import.meta.url),
  words: [...HTTP_WORDS, ...PATHS],
  fresh: (random) => freshRequest(random, PATHS, BODY_BYTES_MAX),
  cases: 150,
  check: async (input) => {
    const request = requestOf(input);
    if (request === null) return;
    await World.use({ storage: { largeBodyBytes: 1000 } }, async (world) => {
      const answer = worldHttp(world);
      const ask = async (asked: Request) => {
        const response = Promise.resolve(answer(asked, "127.0.0.1:50000"));
        return await world.clock.runUntil(response, 2 * BODY_TIMEOUT_MS);
      };
      await ask(new Request("http://b/topic/create?topic=t", { method: "POST" }));
      await ask(new Request("http://b/channel/create?topic=t&channel=c", { method: "POST" }));
      await checkAnswer(await ask(request), { ...ANSWERS, method: request.method });
      equal(world.broker.stagedBytes, 0);
      equal(world.failures, []);
      const after = await ask(
        new Request("http://b/pub?topic=after", { method: "POST", body: "x" }),
      );
      equal([after.status, await after.text()], [200, "OK"]);
    });
  },
});
