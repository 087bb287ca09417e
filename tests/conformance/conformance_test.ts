/**
 * The scripts in `testdata`, each against a service in memory with simulated time, against one behind
 * real TCP with a folder on disk, and against the server at `NSQ_ADDRESS` when that is set
 * (`127.0.0.1:4150`; an empty nsqd with its default settings).
 */
import { deepStrictEqual as equal } from "node:assert/strict";
import { brokerSettings } from "@sluice/broker/config";
import { Service, type ServiceSeams } from "@sluice/broker/service";
import { loadSettings } from "@sluice/shared/config";
import type { HttpServer } from "@sluice/shared/runtime";
import {
  serveHttp,
  SystemClock,
  SystemDisk,
  SystemNetwork,
  SystemRandom,
} from "@sluice/shared/runtime/system";
import { Logger } from "@sluice/shared/telemetry";
import { SeededRandom, SimClock, SimDisk, SimNetwork } from "@sluice/shared/testing";
import { parseScript, playScript, type Stage } from "./wire_script.ts";

const FOLDER = new URL("./testdata/", import.meta.url);
/** The longest simulated time that a script may wait for one thing. */
const PATIENCE_MS = 120_000;

const SCRIPTS = [...Deno.readDirSync(FOLDER)]
  .map(({ name }) => ({ name, ...parseScript(Deno.readTextFileSync(new URL(name, FOLDER))) }))
  .sort((a, b) => (a.name < b.name ? -1 : 1));

async function start(
  args: readonly string[],
  seams: Pick<ServiceSeams, "disk" | "clock" | "random" | "network" | "serveHttp">,
): Promise<Service> {
  const declaration = brokerSettings("host");
  const { values } = loadSettings(declaration, {
    args: ["--ring-bytes=32MiB", ...args],
    env: {},
    readFile: () => "",
  });
  return await Service.start({ declaration, values, hostname: "host", nodeIdGiven: false }, {
    ...seams,
    logger: new Logger({ sink: () => {}, clock: seams.clock }),
    serveHttps: () => Promise.reject(new Error("there is no TLS")),
    readTextFile: () => Promise.reject(new Error("there is no TLS")),
    httpGet: () => Promise.reject(new Error("nobody is asked")),
    askHttp: () => Promise.reject(new Error("nobody is asked")),
    memory: () => ({}),
    onBroken: (error) => {
      throw error;
    },
  });
}

/** Uses a service in memory. */
async function inMemory(test: (stage: Stage) => Promise<void>): Promise<void> {
  const clock = new SimClock();
  const network = new SimNetwork();
  const disk = new SimDisk();
  const nobody: HttpServer = { hostname: "", port: 0, shutdown: () => Promise.resolve() };
  const service = await start(["--data-path=/data", "--tcp-address=127.0.0.1:4150"], {
    disk,
    clock,
    network,
    random: new SeededRandom(1),
    serveHttp: () => nobody,
  });
  await test({
    network,
    host: "127.0.0.1",
    port: 4150,
    until: (promise) => clock.runUntil(promise, PATIENCE_MS),
    wait: (ms) => clock.run(ms),
    prefix: "topic_",
  });
  await clock.runUntil(service.stop(), PATIENCE_MS);
  equal([network.openEnds, disk.openFiles, clock.pendingTimers], [0, 0, 0]);
}

/** Uses a service behind real TCP, with real files. */
async function overTcp(test: (stage: Stage) => Promise<void>): Promise<void> {
  const folder = await Deno.makeTempDir({ prefix: "sluice_conformance_" });
  const clock = new SystemClock();
  const network = new SystemNetwork(clock);
  try {
    const service = await start(
      [`--data-path=${folder}`, "--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0"],
      { disk: new SystemDisk(), clock, network, random: new SystemRandom(), serveHttp },
    );
    try {
      await test(realStage(network, clock, "127.0.0.1", service.tcp.port, "topic_"));
    } finally {
      await service.stop();
    }
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

function realStage(
  network: SystemNetwork,
  clock: SystemClock,
  host: string,
  port: number,
  prefix: string,
): Stage {
  return {
    network,
    host,
    port,
    until: (promise) => promise,
    wait: (ms) => clock.sleep(ms),
    prefix,
  };
}

for (const script of SCRIPTS) {
  Deno.test(`over memory: ${script.title} (${script.name})`, () => {
    return inMemory((stage) => playScript(script, stage));
  });
}

// All at once, since some of them wait for real time to pass.
Deno.test("over TCP: every script gets the same bytes", async (t) => {
  await overTcp(async (stage) => {
    await Promise.all(SCRIPTS.map((script, index) =>
      t.step({
        name: script.name,
        fn: () => playScript(script, { ...stage, prefix: `topic_${index}_` }),
        // Steps that run side by side cannot be checked one by one; the whole test is.
        sanitizeOps: false,
        // As above.
        sanitizeResources: false,
        // As above.
        sanitizeExit: false,
      })
    ));
  });
});

const EXTERNAL = Deno.env.get("NSQ_ADDRESS") ?? "";
for (const script of EXTERNAL === "" ? [] : SCRIPTS) {
  Deno.test({
    name: `at ${EXTERNAL}: ${script.title} (${script.name})`,
    // What only ours does is not expected of others.
    ignore: script.onlyOurs !== "",
    fn: async () => {
      const colon = EXTERNAL.lastIndexOf(":");
      const clock = new SystemClock();
      const prefix = `conformance_${Date.now()}_`;
      await playScript(
        script,
        realStage(
          new SystemNetwork(clock),
          clock,
          EXTERNAL.slice(0, colon),
          Number(EXTERNAL.slice(colon + 1)),
          prefix,
        ),
      );
    },
  });
}
