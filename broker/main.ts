/**
 * Starts the broker: the only place that touches arguments, environment, signals, the process and the
 * real clock, disk and network.
 *
 * Exit codes: 0 stopped as asked, 1 could not start, 2 the log failed (restart it: it recovers).
 */
import { AuthorizationFileError } from "@sluice/shared/authorization";
import { type Address, SettingsError, startUp } from "@sluice/shared/config";
import { readBody } from "@sluice/shared/http";
import { LogError } from "@sluice/shared/log";
import { AddressInUseError, DiskError } from "@sluice/shared/runtime";
import {
  askHttp,
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
} from "@sluice/shared/runtime/system";
import { ListenError, TlsFilesError } from "@sluice/shared/server";
import { brokerSettings } from "./config.ts";
import type { HttpGet } from "./server/lookup_channels.ts";
import { Service } from "./service.ts";

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
  const { values, origin, logger } = started;

  const asked = stopRequest();
  await reclaimSockets(values.tcpAddress, values.httpAddress);
  const service = await Service.start(
    { declaration, values, hostname, nodeIdGiven: origin("nodeId") !== "default" },
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
      onBroken: (error) => {
        logger.fatal("Stopping: the state cannot be trusted any more", {
          error: error instanceof Error ? error : String(error),
        });
        Deno.exit(2);
      },
    },
  );
  logger.info("Stopping", { signal: await asked });
  const cap = clock.setTimer(values.shutdownTimeoutMs, () => {
    logger.error("Stopping took too long; what is on disk stays, the rest is delivered again");
    Deno.exit(2);
  });
  await service.stop();
  cap.cancel();
  logger.info("Stopped");
  return 0;
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
