/**
 * Starts the broker: the only place that touches arguments, environment, signals, the process and the
 * real clock, disk and network.
 *
 * Exit codes: 0 stopped as asked, 1 could not start, 2 the log failed (restart it: it recovers).
 */
import { environmentNames, helpText, loadSettings, SettingsError } from "@sluice/shared/config";
import { readBody } from "@sluice/shared/http";
import { LogError } from "@sluice/shared/log";
import { DiskError, NSQ_VERSION, SLUICE_VERSION } from "@sluice/shared/runtime";
import {
  serveHttp,
  SystemClock,
  SystemDisk,
  SystemNetwork,
  SystemRandom,
} from "@sluice/shared/runtime/system";
import { Logger } from "@sluice/shared/telemetry";
import { brokerSettings } from "./config.ts";
import type { HttpGet } from "./server/lookup_channels.ts";
import { ListenError, Service } from "./service.ts";

async function main(): Promise<number> {
  const hostname = Deno.hostname();
  const declaration = brokerSettings(hostname);
  // Named one by one: the service is not allowed to read the whole environment.
  const env = Object.fromEntries(
    environmentNames(declaration).map((name) => [name, Deno.env.get(name)]),
  );
  const { request, values, notices, listing, origin } = loadSettings(declaration, {
    args: Deno.args,
    env,
    readFile: (path) => Deno.readTextFileSync(path),
  });
  const versionText = `v${SLUICE_VERSION} (compatible with NSQ ${NSQ_VERSION})`;
  if (request === "help") {
    console.log(helpText(declaration));
    return 0;
  }
  if (request === "version") {
    console.log(`${declaration.program} ${versionText}`);
    return 0;
  }

  const clock = new SystemClock();
  const logger = new Logger({
    sink: (line) => console.error(line),
    clock,
    level: values.logLevel,
    format: values.logFormat,
    prefix: values.logPrefix,
  });
  logger.info(`${declaration.program} ${versionText}`);
  for (const notice of notices) logger.warn(notice);
  for (const { name, value, origin } of listing()) {
    if (origin !== "default") logger.info("setting", { name, value, origin });
  }

  const asked = stopRequest();
  const service = await Service.start(
    { declaration, values, hostname, nodeIdGiven: origin("nodeId") !== "default" },
    {
      disk: new SystemDisk(),
      clock,
      random: new SystemRandom(),
      network: new SystemNetwork(clock),
      serveHttp,
      httpGet,
      logger,
      memory: memoryFigures,
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

/** Resolves with the first signal that asks the service to stop. */
function stopRequest(): Promise<string> {
  return new Promise((resolve) => {
    for (const signal of ["SIGTERM", "SIGINT"] as const) {
      Deno.addSignalListener(signal, () => resolve(signal));
    }
  });
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

/** nsqd's memory figures, as far as this runtime has them. */
function memoryFigures(): Record<string, number> {
  const { heapTotal, heapUsed, rss } = Deno.memoryUsage();
  return {
    heap_objects: 0,
    heap_idle_bytes: heapTotal - heapUsed,
    heap_in_use_bytes: heapUsed,
    heap_released_bytes: 0,
    gc_pause_usec_100: 0,
    gc_pause_usec_99: 0,
    gc_pause_usec_95: 0,
    next_gc_bytes: heapTotal,
    gc_total_runs: 0,
    resident_bytes: rss,
  };
}

try {
  Deno.exit(await main());
} catch (error) {
  const expected = error instanceof SettingsError || error instanceof ListenError ||
    error instanceof DiskError || error instanceof LogError;
  if (!expected) throw error;
  console.error(error.message);
  Deno.exit(1);
}
