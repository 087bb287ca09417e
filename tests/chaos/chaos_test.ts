/**
 * Short runs of chaos with real processes: what a long one checks (`deno task chaos`), all brokers gone
 * for a moment, and a rolling restart that nobody is to notice.
 */
import { deepStrictEqual as equal, ok } from "node:assert/strict";
import { TemporaryFolder } from "../integration/process.ts";
import { type Door, type History, keyOf, type PublishRecord } from "./history.ts";
import { rollingRestart } from "./rolling.ts";
import { type ChaosReport, runChaos, type Scenario } from "./run.ts";

const SEEDS = [1, 2];
const SECONDS = 4;
/** Faults last as much shorter as the run does. */
const SCALE = 0.25;
const DOWN_SECONDS = 3;
/** Nothing is away for longer: what has no answer is asked for again when its broker is back. */
const PUBLISH_TIMEOUT_SECONDS = 10;

/** Runs a scenario; fails with everything that it has logged when a promise is broken. */
async function kept(scenario: Scenario, seed: number, seconds: number): Promise<ChaosReport> {
  await using folder = await TemporaryFolder.create();
  const lines: string[] = [];
  const log = (line: string) => lines.push(line);
  const report = await runChaos({
    path: folder.path,
    seed,
    scenario,
    seconds,
    scale: SCALE,
    publishTimeoutSeconds: PUBLISH_TIMEOUT_SECONDS,
    log,
  });
  const { problems, summary } = report;
  if (problems.length > 0) console.error([...lines, ...summary, ...problems].join("\n"));
  equal(problems, []);
  return report;
}

for (const seed of SEEDS) {
  Deno.test(`brokers, gateways and discoveries in trouble lose nothing, store nothing twice and fail nobody, seed ${seed}`, async () => {
    const { history } = await kept("random", seed, SECONDS);
    ok(history.publishes.filter(({ result }) => result === "ok").length > 100, "there was load");
  });
}

Deno.test("all brokers down under load and back: everything spooled arrives, in order, once", async () => {
  const { verdict, history } = await kept("all-stopped", 1, DOWN_SECONDS);
  ok(verdict.ordered > 100, `order was looked at of ${verdict.ordered} messages`);
  equal(history.publishes.filter(({ result }) => result !== "ok"), []);
});

Deno.test("a rolling restart of brokers and of gateways behind one address fails no HTTP client and none of ours", async () => {
  await using folder = await TemporaryFolder.create();
  const lines: string[] = [];
  const { history, verdict, mishaps } = await rollingRestart({
    path: folder.path,
    seed: 1,
    producers: [
      { name: "http-busy", door: "http", pauseMsMax: 2, windowMax: 1 },
      { name: "http-often", door: "http", pauseMsMax: 30, windowMax: 1 },
      { name: "http-seldom", door: "http", pauseMsMax: 400, windowMax: 1 },
      // Pauses now and then, which the gateway waits for to end the connection.
      { name: "client", door: "client", pauseMsMax: 200, windowMax: 20 },
      { name: "nsqjs-busy", door: "nsqjs", pauseMsMax: 10, windowMax: 1 },
      { name: "nsqjs-seldom", door: "nsqjs", pauseMsMax: 200, windowMax: 1 },
    ],
    log: (line) => lines.push(line),
  });
  const failed = failedBy(history);
  const untold = [...verdict.counts.keys()].filter((kind) => kind !== "failed");
  if (failed.http.length + failed.client.length + untold.length + mishaps.length > 0) {
    console.error([...lines, ...mishaps, ...verdict.problems].join("\n"));
  }
  equal([failed.http, failed.client, untold, mishaps], [[], [], [], []]);
  // A PUB that is on the wire when the connection ends fails: NSQ has no word for it. It is not stored.
  const stock = history.publishes.filter(({ door }) => door === "nsqjs").length;
  console.log(`nsqjs: ${failed.nsqjs.length} of ${stock} publishes failed`);
  equal(failed.nsqjs.filter(({ text }) => !/closed|ECONNRESET/.test(text)), []);
  equal(failed.nsqjs.filter(({ producer, first }) => history.seen.has(keyOf(producer, first))), []);
});

function failedBy({ publishes }: History): Record<Door, PublishRecord[]> {
  const failed: Record<Door, PublishRecord[]> = { http: [], client: [], nsqjs: [] };
  for (const publish of publishes) if (publish.result !== "ok") failed[publish.door].push(publish);
  return failed;
}
