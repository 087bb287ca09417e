/**
 * Where scripts are played: a service of ours in memory with simulated time, one behind real TCP with
 * a folder on disk, and NSQ's own program. Each is started empty, with the flags that the scripts ask
 * for, and gone afterwards.
 */
import { deepStrictEqual as equal } from "node:assert/strict";
import { brokerSettings } from "@sluice/broker/config";
import { Service, type ServiceSeams } from "@sluice/broker/service";
import { discoverySettings, registryLimits } from "@sluice/discovery/config";
import { Discovery } from "@sluice/discovery/discovery";
import { loadSettings } from "@sluice/shared/config";
import type { HttpServer, ServeHttpOptions } from "@sluice/shared/runtime";
import {
  serveHttp,
  SystemClock,
  SystemDisk,
  SystemNetwork,
  SystemRandom,
} from "@sluice/shared/runtime/system";
import { Logger } from "@sluice/shared/telemetry";
import { SeededRandom, SimClock, SimDisk, SimNetwork } from "@sluice/shared/testing";
import { HttpProcess, TemporaryFolder } from "../integration/process.ts";
import type { Answer, ScriptServer, Stage } from "./stage.ts";

/** The longest simulated time that a script may wait for one thing. */
const PATIENCE_MS = 120_000;
const FREE_PORTS = ["--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0"];

/** What a script is played on. */
export interface Scene {
  readonly server: ScriptServer;
  readonly flags: readonly string[];
}

type Seams = Pick<ServiceSeams, "disk" | "clock" | "random" | "network" | "serveHttp">;

/** What of a running service the stages use. */
interface Running {
  readonly tcpPort: number;
  stop(): Promise<void>;
}

function onBroken(error: unknown): never {
  throw error;
}

async function start({ server, flags }: Scene, args: readonly string[], seams: Seams) {
  const input = { env: {}, readFile: () => "" };
  const logger = new Logger({ sink: () => {}, clock: seams.clock });
  if (server === "broker") {
    const declaration = brokerSettings("host");
    const { values } = loadSettings(declaration, {
      args: ["--ring-bytes=32MiB", ...args, ...flags],
      ...input,
    });
    const service = await Service.start(
      { declaration, values, hostname: "host", nodeIdGiven: false },
      {
        ...seams,
        logger,
        serveHttps: () => Promise.reject(new Error("there is no TLS")),
        readTextFile: () => Promise.reject(new Error("there is no TLS")),
        httpGet: () => Promise.reject(new Error("nobody is asked")),
        askHttp: () => Promise.reject(new Error("nobody is asked")),
        memory: () => ({}),
        onBroken,
      },
    );
    return { tcpPort: service.tcp.port, stop: () => service.stop() } satisfies Running;
  }
  const { values } = loadSettings(discoverySettings("host"), {
    args: [...args.filter((flag) => !flag.startsWith("--data-path")), ...flags],
    ...input,
  });
  const tcp = { host: "127.0.0.1", port: seams.network instanceof SimNetwork ? 4150 : 0 };
  const discovery = new Discovery({
    tcpAddress: tcp,
    httpAddress: { host: "127.0.0.1", port: 0 },
    broadcastAddress: "127.0.0.1",
    hostname: "host",
    inactiveTimeoutMs: values.inactiveProducerTimeoutMs,
    tombstoneLifetimeMs: values.tombstoneLifetimeMs,
    connectionsMax: values.connectionsMax,
    limits: registryLimits(values),
  }, { ...seams, logger, onBroken });
  return {
    tcpPort: discovery.tcpAddress.port,
    stop: () => discovery.close(),
  } satisfies Running;
}

/** Uses a service in memory. */
export async function inMemory(scene: Scene, test: (stage: Stage) => Promise<void>): Promise<void> {
  const clock = new SimClock();
  const network = new SimNetwork();
  const disk = new SimDisk();
  let handler: ServeHttpOptions["handler"] | null = null;
  const server: HttpServer = { hostname: "", port: 4151, shutdown: () => Promise.resolve() };
  const running = await start(scene, ["--data-path=/data", "--tcp-address=127.0.0.1:4150"], {
    disk,
    clock,
    network,
    random: new SeededRandom(1),
    serveHttp: (options) => {
      handler = options.handler;
      return server;
    },
  });
  await test({
    network,
    host: "127.0.0.1",
    port: 4150,
    until: (promise) => clock.runUntil(promise, PATIENCE_MS),
    wait: (ms) => clock.run(ms),
    nowMs: () => clock.monoMs(),
    http: async (method, path, body) => {
      const request = new Request(`http://host${path}`, {
        method,
        ...(body === "" ? {} : { body }),
      });
      const response = await clock.runUntil(
        Promise.resolve(handler?.(request, "127.0.0.1:1")),
        PATIENCE_MS,
      );
      return { status: response?.status ?? 0, text: await response?.text() ?? "" };
    },
    prefix: "topic_",
  });
  await clock.runUntil(running.stop(), PATIENCE_MS);
  equal([network.openEnds, disk.openFiles, clock.pendingTimers], [0, 0, 0]);
}

/** Uses a service behind real TCP, with real files. */
export async function overTcp(scene: Scene, test: (stage: Stage) => Promise<void>): Promise<void> {
  await using folder = await TemporaryFolder.create();
  const clock = new SystemClock();
  let httpPort = 0;
  const running = await start(
    scene,
    [`--data-path=${folder.path}`, ...FREE_PORTS],
    {
      disk: new SystemDisk(),
      clock,
      network: new SystemNetwork(clock),
      random: new SystemRandom(),
      serveHttp: (options) => {
        const server = serveHttp(options);
        httpPort = server.port;
        return server;
      },
    },
  );
  try {
    await test(realStage(running.tcpPort, httpPort));
  } finally {
    await running.stop();
  }
}

/** Uses a program of NSQ. */
export async function original(
  scene: Scene,
  program: string,
  test: (stage: Stage) => Promise<void>,
): Promise<void> {
  await using folder = await TemporaryFolder.create();
  await using daemon = new HttpProcess("NSQ", program, [
    ...FREE_PORTS,
    "--broadcast-address=127.0.0.1",
    ...(scene.server === "broker" ? [`--data-path=${folder.path}`] : []),
    ...scene.flags,
  ]);
  await daemon.ready();
  await test(realStage(daemon.tcpPort, daemon.httpPort));
}

function realStage(tcpPort: number, httpPort: number): Stage {
  const clock = new SystemClock();
  return {
    network: new SystemNetwork(clock),
    host: "127.0.0.1",
    port: tcpPort,
    until: (promise) => promise,
    wait: (ms) => clock.sleep(ms),
    nowMs: () => clock.monoMs(),
    http: (method, path, body) => ask(`http://127.0.0.1:${httpPort}${path}`, method, body),
    prefix: "topic_",
  };
}

async function ask(url: string, method: string, body: string): Promise<Answer> {
  const response = await fetch(url, { method, ...(body === "" ? {} : { body }) });
  return { status: response.status, text: await response.text() };
}
