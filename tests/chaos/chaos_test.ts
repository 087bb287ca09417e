/**
 * Short runs of chaos with real processes: what a long one checks (`deno task chaos`), all brokers gone
 * for a moment, and a rolling restart that nobody is to notice.
 */
import { deepStrictEqual as equal, ok } from "node:assert/strict";
import { type Door, type History, keyOf, type PublishRecord } from "./history.ts";
import { type RollingOptions, rollingRestart } from "./rolling.ts";
import { type ChaosReport, runChaos, type Scenario } from "./run.ts";

const SEEDS = [1, 2];
const SECONDS = 4;
/** Faults last as much shorter as the run does. */
const SCALE = 0.25;
/** Longer than publish-timeout, after which producers that wait go on. */
const DOWN_SECONDS = 5;

const WINDOW_MAX = 20;
/** Behind one address, while everything is restarted. */
const PRODUCERS: RollingOptions["producers"] = [
  { name: "http-busy", door: "http", pauseMsMax: 2, windowMax: 1 },
  { name: "http-often", door: "http", pauseMsMax: 30, windowMax: 1 },
  { name: "http-seldom", door: "http", pauseMsMax: 400, windowMax: 1 },
  // It pauses now and then, which the gateway waits for to end the connection.
  { name: "client", door: "client", pauseMsMax: 200, windowMax: WINDOW_MAX },
  { name: "client-busy", door: "client", pauseMsMax: 10, windowMax: WINDOW_MAX },
  { name: "nsqjs-busy", door: "nsqjs", pauseMsMax: 10, windowMax: 1 },
  { name: "nsqjs-seldom", door: "nsqjs", pauseMsMax: 200, windowMax: 1 },
];

/** Gives `act` a folder, which is kept with what was logged when a promise is broken. */
async function inFolder<T>(
  act: (path: string, log: (line: string) => void) => Promise<T>,
): Promise<T> {
  const path = await Deno.makeTempDir({ prefix: "sluice_chaos_" });
  const lines: string[] = [];
  try {
    const result = await act(path, (line) => lines.push(line));
    await Deno.remove(path, { recursive: true });
    return result;
  } catch (error) {
    console.error([...lines, `folders and logs are kept in ${path}`].join("\n"));
    throw error;
  }
}

/** Runs a scenario, which must have no problems. */
async function kept(scenario: Scenario, seed: number, seconds: number): Promise<ChaosReport> {
  return await inFolder(async (path, log) => {
    const report = await runChaos({ path, seed, scenario, seconds, scale: SCALE, log });
    for (const line of report.summary) log(line);
    equal(report.problems, []);
    return report;
  });
}

for (const seed of SEEDS) {
  Deno.test(`brokers, gateways and discoveries in trouble lose nothing, store nothing twice and fail nobody, seed ${seed}`, async () => {
    const { history } = await kept("random", seed, SECONDS);
    ok(history.publishes.filter(({ result }) => result === "ok").length > 100, "there was load");
  });
}

Deno.test("all brokers down under load and back: everything spooled arrives, in order, once", async () => {
  const { verdict, history } = await kept("all-down", 1, DOWN_SECONDS);
  ok(verdict.ordered > 100, `order was looked at of ${verdict.ordered} messages`);
  equal(history.publishes.filter(({ result }) => result !== "ok"), []);
});

Deno.test("a rolling restart of brokers and of gateways behind one address loses nothing, fails no HTTP client, and what it fails is not stored", async () => {
  await inFolder(async (path, log) => {
    const { history, verdict, mishaps } = await rollingRestart({
      path,
      seed: 1,
      producers: PRODUCERS,
      log,
    });
    for (const problem of verdict.problems) log(problem);
    const others = [...verdict.counts.keys()].filter((kind) => kind !== "failed");
    equal([failedBy(history, "http"), others, mishaps], [[], [], []]);
    // A PUB that is on the wire when its connection ends fails: NSQ has no word for it.
    for (const door of ["client", "nsqjs"] satisfies Door[]) {
      const failed = failedBy(history, door);
      // Ours learns of each what became of it, and may send it again.
      if (door === "client") equal(failed.filter(({ result }) => result !== "refused"), []);
      const end = door === "client" ? /E_CLOSING|closed|reset/i : /closed|reset/i;
      const all = history.publishes.filter((publish) => publish.door === door).length;
      console.log(`${door}: ${failed.length} of ${all} publishes failed`);
      equal(failed.filter(({ text }) => !end.test(text)), []);
      const isStored = ({ producer, first }: PublishRecord) =>
        history.seen.has(keyOf(producer, first));
      equal(failed.filter(isStored), []);
      // Two gateways stop, and a connection has no more on its way.
      const producers = PRODUCERS.filter((producer) => producer.door === door).length;
      ok(failed.length <= 2 * producers * WINDOW_MAX, `${failed.length} failed`);
    }
  });
});

function failedBy({ publishes }: History, door: Door): PublishRecord[] {
  return publishes.filter((publish) => publish.door === door && publish.result !== "ok");
}
