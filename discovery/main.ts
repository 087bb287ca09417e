/**
 * Starts the discovery service: the only place that touches arguments, environment, signals and the
 * real clock and network.
 */
import { type Address, SettingsError, startUp } from "@sluice/shared/config";
import {
  KeptHttp,
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

  const asked = stopRequest();
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

try {
  Deno.exit(await main());
} catch (error) {
  if (!(error instanceof SettingsError || error instanceof ListenError)) throw error;
  console.error(error.message);
  Deno.exit(1);
}
