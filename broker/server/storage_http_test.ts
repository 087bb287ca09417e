/** The routes of the storage, over a broker on a simulated disk. */
import { deepStrictEqual as equal, ok } from "node:assert/strict";
import { nsqHttp } from "@sluice/shared/http";
import { Logger } from "@sluice/shared/telemetry";
import { storageRoutes } from "./storage_http.ts";
import { pub, World, type WorldOptions } from "./world_test.ts";

const PATH = "/v1/storage/scrub";
const OPTIONS: WorldOptions = {
  broker: { scrub: { rateBytes: 65_536, intervalMs: 3_600_000 } },
  storage: { ringBytes: 1 << 20 },
};

/** A report as it is sent. */
interface Report {
  readonly running: boolean;
  readonly position: number;
  readonly bytes_verified: number;
  readonly passes: number;
  readonly damage_count: number;
  readonly damage: readonly { position: number; bytes: number; reason: string }[];
}

async function ask(world: World, method: "GET" | "POST"): Promise<[number, Report]> {
  const { clock } = world;
  const app = nsqHttp({
    logger: new Logger({ sink: () => {}, clock }),
    routes: storageRoutes(world.broker),
  });
  const request = new Request(`http://127.0.0.1:4151${PATH}`, { method });
  const response = await app.fetch(request, { remoteAddress: "127.0.0.1:50000" });
  return [response.status, await response.json()];
}

/** Publishes so much that a pass takes some seconds. */
async function fill(world: World): Promise<void> {
  const client = await world.client();
  for (let at = 0; at < 300; at++) await client.send(pub("t", "x".repeat(900)));
  equal(client.take().length, 300);
}

Deno.test("POST starts a pass and answers 202, or 200 with the report while one is running", async () => {
  await World.use(OPTIONS, async (world) => {
    await fill(world);
    equal((await ask(world, "GET"))[1].running, false);
    const [status, begun] = await ask(world, "POST");
    equal([status, begun.running, begun.passes], [202, true, 0]);
    await world.clock.run(2000);
    const [again, report] = await ask(world, "POST");
    equal([again, report.running], [200, true]);
    ok(report.position > 65_536, `${report.position}`);
    await world.clock.run(10_000);
    const [, done] = await ask(world, "GET");
    equal([done.running, done.passes, done.damage_count, done.damage], [false, 1, 0, []]);
    equal(done.bytes_verified, world.broker.storage.log.durableEnd);
  });
});

Deno.test("damage on disk is in the report, and messages around it are still there", async () => {
  await World.use(OPTIONS, async (world) => {
    await fill(world);
    world.simDisk.flipBit("/data/journal/0000000000000000.log", 200_000, 1);
    await ask(world, "POST");
    await world.clock.run(10_000);
    const [status, { damage_count, damage }] = await ask(world, "GET");
    equal([status, damage_count, damage.length], [200, 1, 1]);
    const [found] = damage;
    ok(found!.position <= 200_000 && found!.position + found!.bytes > 200_000);
    equal(found!.reason, "the record's checksum is wrong");
    equal(world.broker.topics.get("t")?.depth, 300);
    const [path] = world.simDisk.files().filter((one) => one.startsWith("/data/audit/"));
    const { at: _at, ...line } = JSON.parse(new TextDecoder().decode(world.simDisk.bytes(path!)));
    equal(line, { event: "scrub_damaged", ...found });
  });
});

Deno.test("a broker that stops answers a POST with 503 and ends the pass", async () => {
  await World.use(OPTIONS, async (world) => {
    await fill(world);
    await ask(world, "POST");
    await world.clock.run(100);
    world.broker.exiting = true;
    equal((await ask(world, "POST"))[0], 503);
    await world.clock.run(10_000);
    const [, report] = await ask(world, "GET");
    equal([report.running, report.bytes_verified], [true, 65_536]);
    await world.broker.scrubber.stop();
    equal(world.broker.scrubber.isRunning, false);
  });
});
