/** SIGHUP, as real processes take it. */
import { deepEqual, equal, match } from "node:assert/strict";
import { HttpProcess, TemporaryFolder } from "./process.ts";
import { RawClient } from "./raw_client.ts";
import { eventually } from "./wait.ts";

async function start(
  name: "broker" | "discovery" | "gateway",
  flags: readonly string[],
): Promise<HttpProcess> {
  const process = new HttpProcess(name, Deno.execPath(), [
    "run",
    "--quiet",
    `-P=${name}`,
    `${name}/main.ts`,
    "--tcp-address=127.0.0.1:0",
    "--http-address=127.0.0.1:0",
    ...flags,
  ]);
  await process.ready();
  return process;
}

/** A free port such that the next one is free too. */
function freePorts(): number {
  for (;;) {
    const first = Deno.listen({ hostname: "127.0.0.1", port: 0 });
    try {
      Deno.listen({ hostname: "127.0.0.1", port: first.addr.port + 1 }).close();
      return first.addr.port;
    } catch (error) {
      if (!(error instanceof Deno.errors.AddrInUse || error instanceof RangeError)) throw error;
    } finally {
      first.close();
    }
  }
}

/** How often a line has been logged. */
function count(process: HttpProcess, pattern: RegExp): number {
  return process.lines.filter((line) => pattern.test(line)).length;
}

/** Asks for a reload, and waits for the line that says how it came out. */
async function reload(process: HttpProcess, outcome = /Reloaded/): Promise<void> {
  const before = count(process, outcome);
  Deno.kill(process.pid, "SIGHUP");
  await eventually(`${outcome} in the log`, () => count(process, outcome) > before);
}

Deno.test("A broker takes SIGHUP for a reload: connections stay, what can change does", async () => {
  await using folder = await TemporaryFolder.create();
  const file = `${folder.path}/sluice.toml`;
  await Deno.writeTextFile(file, 'log_level = "info"\n');
  await using broker = await start("broker", [
    `--data-path=${folder.path}/data`,
    `--config=${file}`,
  ]);
  await using client = await RawClient.connect(broker.tcpPort);
  await client.pub("orders", "a");
  await Deno.writeTextFile(
    file,
    'log_level = "info,http=debug"\ntopic_publish_rate = 1000000\nring_bytes = "32MiB"\n',
  );
  await reload(broker);
  match(broker.log, /name=log-level before=info after="info,http=debug" origin=file/);
  match(
    broker.log,
    /WARN .*A setting needs a restart .*name=ring-bytes in_use=64MiB configured=32MiB/,
  );
  equal((await broker.get("/stats")).status, 200);
  match(broker.log, /DEBUG .*HTTP request component=http method=GET route=\/stats status=200/);
  equal((await broker.get("/config/topic_publish_rate")).text, "1000000");
  await client.pub("orders", "b");
  await Deno.writeTextFile(file, 'log_level = "loud"\ntopic_publish_rate = 1\n');
  await reload(broker, /The settings cannot be used; those before stay in use/);
  equal((await broker.get("/config/topic_publish_rate")).text, "1000000");
  const answer = await broker.post("/v1/reload");
  equal(answer.status, 422);
  await Deno.writeTextFile(file, "topic_publish_rate = 1\n");
  const { changed } = JSON.parse((await broker.post("/v1/reload")).text);
  deepEqual(changed.map(({ name }: { name: string }) => name), ["topic-publish-rate", "log-level"]);
  await client.pub("orders", "c");
  equal(await broker.terminate(), 0);
});

for (const name of ["discovery", "gateway"] as const) {
  Deno.test(`A ${name} takes SIGHUP for a reload of its log levels`, async () => {
    await using folder = await TemporaryFolder.create();
    const file = `${folder.path}/sluice.toml`;
    await Deno.writeTextFile(file, "");
    await using service = await start(name, [
      `--config=${file}`,
      ...name === "gateway" ? ["--broker-tcp-address=127.0.0.1:1"] : [],
    ]);
    await Deno.writeTextFile(file, 'log_level = "debug"\n');
    await reload(service);
    match(service.log, /name=log-level before=info after=debug origin=file/);
    equal(await service.terminate(), 0);
  });
}

Deno.test("The supervisor of several brokers passes SIGHUP on to them", async () => {
  await using folder = await TemporaryFolder.create();
  const httpPort = freePorts();
  await using unit = new HttpProcess("brokers", Deno.execPath(), [
    "run",
    "--quiet",
    "-P=brokers",
    "broker/main.ts",
    "--workers=2",
    "--worker-port-step=1",
    `--tcp-address=127.0.0.1:${freePorts()}`,
    `--http-address=127.0.0.1:${httpPort}`,
    `--data-path=${folder.path}`,
  ]);
  for (const port of [httpPort, httpPort + 1]) {
    await eventually("a broker that serves", async () => {
      const response = await fetch(`http://127.0.0.1:${port}/info`).catch(() => null);
      await response?.body?.cancel();
      return response?.ok === true;
    });
  }
  await reload(unit);
  await eventually("two reloads", () => count(unit, /Reloaded/) >= 2);
  equal(await unit.terminate(), 0);
});
