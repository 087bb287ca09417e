/**
 * Starts the discovery service: the only place that touches arguments, environment, signals and the
 * real clock and network.
 *
 * Exit codes: 0 stopped as asked, 1 could not start, 2 a mistake of ours or stopping took too long, 3 ended
 * at once by a second signal.
 */
import {
  type Address,
  logLevelReloader,
  SettingsError,
  settleReload,
  startUp,
} from "@sluice/shared/config";
import {
  KeptHttp,
  onReloadRequest,
  processFigures,
  serveHttp,
  stopRequest,
  SystemClock,
  SystemNameResolver,
  SystemNetwork,
  SystemRandom,
} from "@sluice/shared/runtime/system";
import { discoverySettings, registryLimits, tcpEndpoints } from "./config.ts";
import { Discovery, type ListenAddress, ListenError } from "./discovery.ts";

const EXIT_HURRIED = 3;

async function main(): Promise<number> {
  const hostname = Deno.hostname();
  const declaration = discoverySettings(hostname);
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
  const { values, logger } = started;

  const asked = stopRequest((signal) => {
    logger.warn("ending at once", { signal });
    Deno.exit(EXIT_HURRIED);
  });
  const reloader = logLevelReloader(declaration, started);
  onReloadRequest(() => void settleReload(reloader.reload()));
  const [nameServer] = tcpEndpoints(values.brokerDnsServer);
  const discovery = new Discovery({
    tcpAddress: listenAddress("--tcp-address", values.tcpAddress),
    httpAddress: listenAddress("--http-address", values.httpAddress),
    broadcastAddress: values.broadcastAddress,
    hostname,
    inactiveTimeoutMs: values.inactiveProducerTimeoutMs,
    tombstoneLifetimeMs: values.tombstoneLifetimeMs,
    connectionsMax: values.connectionsMax,
    limits: registryLimits(values),
    watchersMax: values.watchersMax,
    corsOrigins: values.corsOrigins,
    polling: {
      brokers: tcpEndpoints(values.brokers),
      dnsNames: values.brokerDnsNames,
      dnsIntervalMs: values.brokerDnsIntervalMs,
      headIntervalMs: values.brokerHeadIntervalMs,
      freshMs: values.brokerFreshMs,
      token: values.brokerToken,
    },
  }, {
    clock,
    network: new SystemNetwork(clock),
    serveHttp,
    random: new SystemRandom(),
    askHttp: new KeptHttp().ask,
    resolver: new SystemNameResolver(
      nameServer === undefined ? null : { ipAddress: nameServer.host, port: nameServer.port },
    ),
    process: processFigures,
    logger,
    onBroken: (error) => {
      logger.fatal("the state cannot be trusted any more", {
        error: error instanceof Error ? error : String(error),
      });
      Deno.exit(2);
    },
  });
  logger.info("stopping", { signal: await asked });
  const cap = clock.setTimer(values.drainDelayMs + values.shutdownTimeoutMs, () => {
    logger.error("stopping took too long");
    Deno.exit(2);
  });
  await discovery.close(values.drainDelayMs);
  cap.cancel();
  return 0;
}

function listenAddress(flag: string, address: Address): ListenAddress {
  if (address.transport === "tcp") return address;
  throw new ListenError(`Cannot listen on ${flag}=${address.path}: Unix sockets are not supported`);
}

try {
  Deno.exit(await main());
} catch (error) {
  if (!(error instanceof SettingsError || error instanceof ListenError)) throw error;
  console.error(error.message);
  Deno.exit(1);
}
