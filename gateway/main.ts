/**
 * Starts the gateway: the only place that touches arguments, environment, signals, the process and the
 * real clock, disk and network.
 *
 * Exit codes: 0 stopped as asked, 1 could not start, 2 a mistake of ours or stopping took too long.
 */
import { AuthorizationFileError } from "@sluice/shared/authorization";
import { logLevelReloader, SettingsError, settleReload, startUp } from "@sluice/shared/config";
import { LogError } from "@sluice/shared/log";
import { AddressInUseError, DiskError } from "@sluice/shared/runtime";
import {
  askHttp,
  onReloadRequest,
  processFigures,
  reclaimUnixSocket,
  serveHttp,
  serveHttps,
  stopRequest,
  streamHttp,
  SystemClock,
  SystemDisk,
  SystemNetwork,
  SystemRandom,
} from "@sluice/shared/runtime/system";
import { ListenError, TlsFilesError } from "@sluice/shared/server";
import { gatewaySettings } from "./config.ts";
import { Gateway } from "./service.ts";

async function main(): Promise<number> {
  const hostname = Deno.hostname();
  const clock = new SystemClock();
  const declaration = gatewaySettings(hostname);
  const started = startUp(declaration, {
    args: Deno.args,
    env: (name) => Deno.env.get(name),
    readFile: (path) => Deno.readTextFileSync(path),
    print: (text) => console.log(text),
    log: (line) => console.error(line),
    clock,
  });
  if (started === null) return 0;
  const { values, logger } = started;

  const asked = stopRequest();
  const reloader = logLevelReloader(declaration, started);
  onReloadRequest(() => void settleReload(reloader.reload()));
  for (const address of [values.tcpAddress, values.httpAddress, ...values.tunnelAddress]) {
    if (address.transport === "unix") await reclaimUnixSocket(address.path);
  }
  const gateway = await Gateway.start({ values, hostname }, {
    disk: new SystemDisk(),
    clock,
    random: new SystemRandom(),
    network: new SystemNetwork(clock),
    serveHttp,
    serveHttps,
    readTextFile: (path) => Deno.readTextFile(path),
    askHttp,
    streamHttp,
    logger,
    process: processFigures,
    onBroken: (error) => {
      logger.fatal("Stopping: the state cannot be trusted any more", {
        error: error instanceof Error ? error : String(error),
      });
      Deno.exit(2);
    },
  });
  logger.info("Stopping", { signal: await asked });
  const cap = clock.setTimer(values.shutdownTimeoutMs + values.drainDelayMs, () => {
    logger.error("Stopping took too long; what is in the spool goes to brokers at the next start");
    Deno.exit(2);
  });
  await gateway.stop();
  cap.cancel();
  logger.info("Stopped");
  return 0;
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
