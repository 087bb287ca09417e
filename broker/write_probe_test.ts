/** The probe that writes, and what health says of a disk that hangs, fails or is full. */
import { deepStrictEqual as equal, ok } from "node:assert/strict";
import { encodeSub } from "@sluice/shared/protocol";
import { settle } from "@sluice/shared/testing";
import { WAITING_MAX, WRITES_BURST } from "./write_probe.ts";
import { worldHttp } from "./server/http_world_test.ts";
import { pub, World, type WorldOptions } from "./server/world_test.ts";

const PROBE = "/v1/health?probe=write";
const LIMITS: WorldOptions = { broker: { healthWriteTimeoutMs: 2_000 } };

interface Told {
  readonly http: number;
  readonly status: string;
  readonly accepting: boolean;
  readonly delivering: boolean;
  readonly codes: readonly string[];
  readonly durationMs: number | undefined;
  readonly message: string | undefined;
}

/** Asks for health and lets time pass until there is an answer, so long at most. */
function health(world: World, path: string, withinMs = 0): Promise<Told> {
  return world.clock.runUntil(ask(world, path), withinMs);
}

/** Asks for health. */
async function ask(world: World, path: string): Promise<Told> {
  const request = new Request(`http://127.0.0.1:4151${path}`);
  const response = await worldHttp(world)(request, "127.0.0.1:50000");
  const document = await response.json();
  return {
    http: response.status,
    status: document.status,
    accepting: document.accepting,
    delivering: document.delivering,
    codes: (document.reasons ?? []).map(({ code }: { code: string }) => code),
    durationMs: document.write_probe?.duration_ms,
    message: document.message,
  };
}

Deno.test("a probe that writes is on disk when it is answered, and costs one block and one sync", () =>
  World.use(LIMITS, async (world) => {
    const { log } = world.broker.storage;
    const [end, syncs] = [log.end, world.disk.syncs];
    const told = await health(world, PROBE);
    equal([told.http, told.status, told.durationMs], [200, "ok", 0]);
    equal([log.end - end, log.durableEnd, world.disk.syncs - syncs], [72, log.end, 1]);
    equal((await health(world, "/v1/health")).durationMs, undefined);
    equal([log.end - end, world.disk.syncs - syncs], [72, 1], "to look costs nothing");
  }));

Deno.test("probes at once share a write, and what waits for the disk already is the probe", () =>
  World.use(LIMITS, async (world) => {
    const { log } = world.broker.storage;
    const { end } = log;
    const release = world.disk.hold();
    const asked = Array.from({ length: 20 }, () => ask(world, PROBE));
    await settle();
    equal(log.end - end, 72);
    release();
    await settle();
    for (const { http } of await Promise.all(asked)) equal(http, 200);
    const again = world.disk.hold();
    const client = await world.client(pub("t", "a"));
    const published = log.end;
    const late = ask(world, PROBE);
    await settle();
    equal(log.end, published);
    again();
    equal((await late).http, 200);
    equal(client.take(), ["OK"]);
  }));

Deno.test("a disk that hangs is told of within the timeout, by a probe and by every look", () =>
  World.use(LIMITS, async (world) => {
    const { log } = world.broker.storage;
    const release = world.disk.hold();
    const client = await world.client(encodeSub("t", "c"), "RDY 1\n");
    await world.clock.run(1_999);
    equal((await health(world, "/v1/health")).codes, []);
    await world.clock.run(1);
    const slow = {
      http: 200,
      status: "degraded",
      accepting: false,
      delivering: true,
      codes: ["storage_slow"],
      durationMs: undefined,
      message: undefined,
    };
    equal(await health(world, "/v1/health"), slow);
    const { end } = log;
    equal(await health(world, PROBE, 2_000), {
      ...slow,
      http: 503,
      status: "unavailable",
      codes: ["storage_slow", "write_probe_slow"],
      durationMs: 2_000,
    });
    // The write is known to be late: nobody waits for it twice, and nothing is added to it.
    for (let at = 0; at < 100; at++) equal((await health(world, PROBE)).http, 503);
    equal([log.end, (await health(world, PROBE)).durationMs], [end, 2_000]);
    const ping = new Request("http://127.0.0.1:4151/ping");
    equal((await worldHttp(world)(ping, "127.0.0.1:50000")).status, 200, "the process is well");
    release();
    await settle();
    equal((await health(world, "/v1/health")).status, "ok");
    await world.clock.run(5_000);
    equal((await health(world, PROBE)).http, 200);
    equal(client.take()[0], "OK");
  }));

Deno.test("a disk that fails is told of as failed, and by no later probe otherwise", () =>
  World.use(LIMITS, async (world) => {
    const release = world.disk.hold();
    const asked = ask(world, PROBE);
    await settle();
    world.disk.failSyncs();
    release();
    const failed = {
      http: 503,
      status: "unavailable",
      accepting: false,
      delivering: false,
      codes: ["storage_fault", "write_probe_failed"],
      durationMs: 0,
      message: undefined,
    };
    equal(await asked, failed);
    equal(await health(world, PROBE), failed);
    equal((await health(world, "/v1/health")).codes, ["storage_fault"]);
  }));

Deno.test("a full disk is 200 for who looks, and fails the probe; with space both are well", () =>
  World.use(
    { broker: { ...LIMITS.broker, guard: { minFreeBytes: 0, logBytesMax: 0 } } },
    async (world) => {
      const client = await world.client(encodeSub("t", "c"));
      world.simDisk.setCapacity(1);
      const blocked = await world.client();
      // What the file has room for already goes on for a while.
      let sent = 0;
      for (; world.broker.storage.log.stalled === null; sent++) {
        ok(sent < 2_000, "the disk is full in the end");
        await blocked.send(pub("t", "x".repeat(900)));
      }
      const look = await health(world, "/v1/health");
      equal([look.http, look.status, look.accepting, look.delivering], [
        200,
        "degraded",
        false,
        true,
      ]);
      equal(look.codes, ["log_stalled", "disk_pressure"]);
      const probe = await health(world, PROBE);
      equal([probe.http, probe.codes.at(-1)], [503, "write_probe_failed"]);
      // Delivering means this: who connects to a channel that is there gets what is on disk.
      const late = await world.client(encodeSub("t", "c"), "RDY 1\n");
      const frames = late.take();
      equal([frames[0], frames[1]?.endsWith(" #1")], ["OK", true]);
      const other = await world.client(encodeSub("t", "new"));
      equal(other.take(), []);
      world.simDisk.setCapacity(Infinity);
      await world.clock.run(3_000);
      equal((await health(world, PROBE)).http, 200);
      equal([client.take(), other.take(), blocked.take().length], [["OK"], ["OK"], sent]);
    },
  ));

Deno.test("a probe that finds the disk full while it waits says so, not that it is slow", () =>
  World.use(
    { broker: { ...LIMITS.broker, guard: { minFreeBytes: 0, logBytesMax: 0 } } },
    async (world) => {
      world.simDisk.setCapacity(1);
      const told = await health(world, PROBE, 2_000);
      equal([told.http, told.codes.at(-1), told.durationMs], [503, "write_probe_failed", 2_000]);
      world.simDisk.setCapacity(Infinity);
      await world.clock.run(3_000);
    },
  ));

Deno.test("more probes than a few at once and one a second are refused and write nothing", () =>
  World.use(LIMITS, async (world) => {
    const { log } = world.broker.storage;
    const { end } = log;
    for (let at = 0; at < WRITES_BURST; at++) equal((await health(world, PROBE)).http, 200);
    for (let at = 0; at < 50; at++) {
      const told = await health(world, PROBE);
      equal([told.http, told.message], [429, "TOO_MANY_PROBES"]);
    }
    equal([log.end - end, world.broker.writeProbe.refusedCount], [72 * WRITES_BURST, 50]);
    await world.clock.run(1_000);
    equal([(await health(world, PROBE)).http, (await health(world, PROBE)).http], [200, 429]);
    await world.clock.run(3_600_000);
    for (let at = 0; at < WRITES_BURST; at++) equal((await health(world, PROBE)).http, 200);
    equal((await health(world, PROBE)).http, 429);
  }));

Deno.test("so many probes wait at a time; the next one is refused at once", () =>
  World.use(LIMITS, async (world) => {
    const release = world.disk.hold();
    const asked = Array.from({ length: WAITING_MAX }, () => ask(world, PROBE));
    await settle();
    equal((await health(world, PROBE)).http, 429);
    release();
    await settle();
    for (const { http } of await Promise.all(asked)) equal(http, 200);
  }));

Deno.test("another probe than that is refused", () =>
  World.use(LIMITS, async (world) => {
    const told = await health(world, "/v1/health?probe=read");
    equal([told.http, told.message], [400, "INVALID_PROBE"]);
  }));

Deno.test("a broker that stops is not written to for a probe", () =>
  World.use(LIMITS, async (world) => {
    const { end } = world.broker.storage.log;
    world.broker.exit.announce();
    const told = await health(world, "/v1/health");
    equal([told.http, told.codes], [503, ["stopping"]]);
    ok(!world.broker.exiting, "it is only announced");
    equal((await world.client(pub("t", "a"))).take(), ["OK"]);
    world.broker.exit.begin();
    const { end: published } = world.broker.storage.log;
    equal((await health(world, PROBE)).codes, ["stopping"]);
    ok(published > end && world.broker.storage.log.end === published);
  }));
