/**
 * Starts the discovery service: the only place that touches arguments, environment, signals and the
 * real clock and network.
 */
import {
  type Address,
  environmentNames,
  helpText,
  loadSettings,
  SettingsError,
} from "@sluice/shared/config";
import { NSQ_VERSION, SLUICE_VERSION } from "@sluice/shared/runtime";
import { serveHttp, SystemClock, SystemNetwork } from "@sluice/shared/runtime/system";
import { Logger } from "@sluice/shared/telemetry";
import { discoverySettings, registryLimits } from "./config.ts";
import { Discovery, type ListenAddress, ListenError } from "./discovery.ts";

async function main(): Promise<number> {
  const hostname = Deno.hostname();
  const declaration = discoverySettings(hostname);
  // Named one by one: the service is not allowed to read the whole environment.
  const env = Object.fromEntries(
    environmentNames(declaration).map((name) => [name, Deno.env.get(name)]),
  );
  const { request, values, notices, listing } = loadSettings(declaration, {
    args: Deno.args,
    env,
    readFile: (path) => Deno.readTextFileSync(path),
  });
  if (request === "help") {
    console.log(helpText(declaration));
    return 0;
  }
  if (request === "version") {
    console.log(`${declaration.program} v${SLUICE_VERSION} (compatible with NSQ ${NSQ_VERSION})`);
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
  logger.info(`${declaration.program} v${SLUICE_VERSION} (compatible with NSQ ${NSQ_VERSION})`);
  for (const notice of notices) logger.warn(notice);
  for (const { name, value, origin } of listing()) {
    if (origin !== "default") logger.info("setting", { name, value, origin });
  }

  const asked = stopRequest();
  const discovery = new Discovery({
    tcpAddress: listenAddress("--tcp-address", values.tcpAddress),
    httpAddress: listenAddress("--http-address", values.httpAddress),
    broadcastAddress: values.broadcastAddress,
    hostname,
    inactiveTimeoutMs: values.inactiveProducerTimeoutMs,
    tombstoneLifetimeMs: values.tombstoneLifetimeMs,
    connectionsMax: values.connectionsMax,
    limits: registryLimits(values),
  }, {
    clock,
    network: new SystemNetwork(clock),
    serveHttp,
    logger,
    onBroken: (error) => {
      logger.fatal("the state cannot be trusted any more", {
        error: error instanceof Error ? error : String(error),
      });
      Deno.exit(1);
    },
  });
  logger.info("stopping", { signal: await asked });
  await discovery.close();
  return 0;
}

function listenAddress(flag: string, address: Address): ListenAddress {
  if (address.transport === "tcp") return address;
  throw new ListenError(`Cannot listen on ${flag}=${address.path}: Unix sockets are not supported`);
}

/** Resolves with the first signal that asks the service to stop. */
function stopRequest(): Promise<string> {
  return new Promise((resolve) => {
    for (const signal of ["SIGTERM", "SIGINT"] as const) {
      Deno.addSignalListener(signal, () => resolve(signal));
    }
  });
}

try {
  Deno.exit(await main());
} catch (error) {
  if (!(error instanceof SettingsError || error instanceof ListenError)) throw error;
  console.error(error.message);
  Deno.exit(1);
}
