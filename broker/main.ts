/**
 * Starts the broker: the only place that touches arguments, environment, signals, the process and the
 * real clock, disk and network.
 *
 * Exit codes: 0 stopped as asked, 1 could not start, 2 the log failed or stopping took too long (restart
 * it: it recovers), 3 ended at once by a second signal (the same).
 */
import { AuthorizationFileError } from "@sluice/shared/authorization";
import { type Address, SettingsError, settleReload, startUp } from "@sluice/shared/config";
import { readBody } from "@sluice/shared/http";
import { LogError } from "@sluice/shared/log";
import { AddressInUseError, type Clock, DiskError } from "@sluice/shared/runtime";
import {
  askHttp,
  onReloadRequest,
  processFigures,
  reclaimUnixSocket,
  serveHttp,
  serveHttps,
  stopRequest,
  SystemClock,
  SystemDatagrams,
  SystemDisk,
  SystemNetwork,
  SystemRandom,
  systemTracer,
} from "@sluice/shared/runtime/system";
import { ListenError, TlsFilesError } from "@sluice/shared/server";
import type { Logger } from "@sluice/shared/telemetry";
import { brokerSettings, type BrokerValues } from "./config.ts";
import type { HttpGet } from "./server/lookup_channels.ts";
import { Service, StartStoppedError } from "./service.ts";
import { planWorkers } from "./workers/plan.ts";
import { Supervisor, type WorkerProcess } from "./workers/supervisor.ts";

const EXIT_HURRIED = 3;
/** The process that a worker must not outlive. */
const PARENT_VARIABLE = "SLUICE_WORKER_OF";
const PARENT_LOOK_MS = 1_000;

async function main(): Promise<number> {
  const hostname = Deno.hostname();
  const declaration = brokerSettings(hostname);
  const clock = new SystemClock();
  const started = startUp(declaration, {
    args: Deno.args,
    env: (name) => Deno.env.get(name),
    readFile: (path) => Deno.readTextFileSync(path),
    print: (text) => console.log(text),
    log: (line) => console.error(line),
    clock,
  });
  if (started === null) return 0;
  const { values, origin, logger, read } = started;

  if (values.workers > 1) return await runWorkers(values, { clock, logger });
  const asked = Promise.race([
    stopRequest((signal) => {
      logger.warn("Ending at once; what is on disk stays, the rest is delivered again", { signal });
      Deno.exit(EXIT_HURRIED);
    }),
    parentLost(clock),
  ]);
  let running: Service | null = null;
  onReloadRequest(() => {
    if (running === null) logger.warn("Nothing is reloaded during the start");
    else void settleReload(running.reload());
  });
  await reclaimSockets(values.tcpAddress, values.httpAddress);
  const stop = new AbortController();
  void asked.then((reason) => stop.abort(reason));
  const starting = Service.start(
    { declaration, values, hostname, nodeIdGiven: origin("nodeId") !== "default", read },
    {
      disk: new SystemDisk(),
      clock,
      random: new SystemRandom(),
      network: new SystemNetwork(clock),
      serveHttp,
      datagrams: new SystemDatagrams(),
      serveHttps,
      readTextFile: (path) => Deno.readTextFile(path),
      httpGet,
      askHttp,
      logger,
      memory: memoryFigures,
      process: processFigures,
      tracer: systemTracer(),
      onBroken: (error) => {
        logger.fatal("Stopping: the state cannot be trusted any more", {
          error: error instanceof Error ? error : String(error),
        });
        Deno.exit(2);
      },
    },
    stop.signal,
  );
  const service = await unlessStopped(starting);
  if (service === null) {
    logger.info("Stopped during the start", { signal: await asked });
    return 0;
  }
  running = service;
  logger.info("Stopping", { signal: await asked });
  const cap = clock.setTimer(values.drainDelayMs + values.shutdownTimeoutMs, () => {
    logger.error("Stopping took too long; what is on disk stays, the rest is delivered again");
    Deno.exit(2);
  });
  await service.stop();
  cap.cancel();
  logger.info("Stopped");
  logger.tellRepeats();
  return 0;
}

/** Runs several brokers as one unit; resolves with the exit code. */
async function runWorkers(
  values: BrokerValues,
  seams: { readonly clock: Clock; readonly logger: Logger },
): Promise<number> {
  const supervisor = new Supervisor({ ...seams, spawn: ({ args }) => spawnSelf(args) });
  void stopRequest().then((signal) => {
    seams.logger.info("Stopping the workers", { signal });
    supervisor.stop();
  });
  return await supervisor.run(planWorkers(Deno.args, values));
}

/** Resolves when the supervisor of this worker is gone: it would be in the way of the next one. */
async function parentLost(clock: Clock): Promise<string> {
  const parent = Deno.env.get(PARENT_VARIABLE);
  if (parent === undefined) return await new Promise(() => {});
  while (String(Deno.ppid) === parent) await clock.sleep(PARENT_LOOK_MS);
  return "the supervisor is gone";
}

/** This program once more: itself when it is compiled, else Deno with this file. */
function spawnSelf(args: readonly string[]): WorkerProcess {
  const path = decodeURIComponent(new URL(Deno.mainModule).pathname);
  const itself = Deno.build.standalone ? [] : ["run", "-P=broker", path];
  const child = new Deno.Command(Deno.execPath(), {
    args: [...itself, ...args],
    env: { [PARENT_VARIABLE]: String(Deno.pid) },
    stdin: "null",
    stdout: "inherit",
    stderr: "inherit",
  }).spawn();
  const forget = onReloadRequest(() => {
    try {
      child.kill("SIGHUP");
    } catch {
      // It has ended by itself.
    }
  });
  return {
    pid: child.pid,
    ended: child.status.then(({ code }) => {
      forget();
      return code;
    }),
    stop: () => {
      try {
        child.kill("SIGTERM");
      } catch {
        // It has ended by itself.
      }
    },
  };
}

/** Null for a start that was told to stop. */
async function unlessStopped(starting: Promise<Service>): Promise<Service | null> {
  try {
    return await starting;
  } catch (error) {
    if (error instanceof StartStoppedError) return null;
    throw error;
  }
}

/** An HTTP GET with a deadline and a bound on the body; see {@linkcode HttpGet}. */
async function httpGet(
  url: string,
  { timeoutMs, bodyBytesMax }: Parameters<HttpGet>[1],
): ReturnType<HttpGet> {
  const response = await fetch(url, {
    headers: { Accept: "application/vnd.nsq; version=1.0" },
    signal: AbortSignal.timeout(timeoutMs),
  });
  const body = await readBody(response, bodyBytesMax);
  if (body.kind !== "whole") throw new RangeError(`Cannot read the answer of ${url}: ${body.kind}`);
  return { status: response.status, body: body.bytes };
}

/** Removes what a killed broker has left of its Unix sockets. */
async function reclaimSockets(...addresses: readonly Address[]): Promise<void> {
  for (const address of addresses) {
    if (address.transport === "unix") await reclaimUnixSocket(address.path);
  }
}

/** nsqd's memory figures, as far as this runtime has them. */
function memoryFigures(): Record<string, number> {
  const { heapBytes, heapUsedBytes, residentBytes } = processFigures();
  return {
    heap_objects: 0,
    heap_idle_bytes: heapBytes - heapUsedBytes,
    heap_in_use_bytes: heapUsedBytes,
    heap_released_bytes: 0,
    gc_pause_usec_100: 0,
    gc_pause_usec_99: 0,
    gc_pause_usec_95: 0,
    next_gc_bytes: heapBytes,
    gc_total_runs: 0,
    resident_bytes: residentBytes,
  };
}

try {
  Deno.exit(await main());
} catch (error) {
  const expected = error instanceof SettingsError || error instanceof ListenError ||
    error instanceof DiskError || error instanceof LogError ||
    error instanceof AddressInUseError || error instanceof TlsFilesError ||
    error instanceof AuthorizationFileError;
  if (!expected) throw error;
  console.error(error.message);
  Deno.exit(1);
}
