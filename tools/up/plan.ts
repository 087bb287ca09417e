/**
 * What `deno task up` starts, decided from its arguments alone: ports, folders, command lines. The
 * ports are nsqd's and nsqlookupd's, each moved by the offset, so that NSQ programs find a local
 * Sluice with their own defaults.
 */
import { parseArgs } from "node:util";

/** What the user asked for. */
export interface UpOptions {
  /** An absolute folder. */
  readonly dataPath: string;
  readonly portOffset: number;
  readonly once: boolean;
  readonly verbose: boolean;
  readonly help: boolean;
}

/** A service to start. */
export interface ServicePlan {
  readonly name: "broker" | "discovery" | "gateway";
  readonly tcpPort: number;
  readonly httpPort: number;
  /** Arguments for the Deno executable. */
  readonly command: readonly string[];
  readonly logPath: string;
}

/** Everything that will run. */
export interface Plan {
  readonly dataPath: string;
  readonly portOffset: number;
  readonly broker: ServicePlan;
  readonly discovery: ServicePlan;
  readonly gateway: ServicePlan;
}

/** Everything listens here and nowhere else: this is for trying out. */
export const HOST = "127.0.0.1";
const BROKER_TCP_PORT = 4150;
const DISCOVERY_TCP_PORT = 4160;
const GATEWAY_TCP_PORT = 4170;
/** The highest default port is 4171, and ports end at 65535. */
export const PORT_OFFSET_MAX = 65_535 - (GATEWAY_TCP_PORT + 1);

/** Reads the arguments; a text says what is wrong with them. `cwd` is where a relative path starts. */
export function parseUpOptions(
  args: readonly string[],
  cwd: string,
  defaultDataPath: string,
): UpOptions | string {
  let values;
  try {
    ({ values } = parseArgs({
      args: [...args],
      options: {
        data: { type: "string" },
        "port-offset": { type: "string", default: "0" },
        once: { type: "boolean", default: false },
        verbose: { type: "boolean", default: false },
        help: { type: "boolean", short: "h", default: false },
      },
    }));
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
  const portOffset = Number(values["port-offset"]);
  if (!/^\d+$/.test(values["port-offset"]) || portOffset > PORT_OFFSET_MAX) {
    return `--port-offset must be from 0 to ${PORT_OFFSET_MAX}, not "${values["port-offset"]}"`;
  }
  if (values.data === "") return "--data must name a folder";
  const { data = defaultDataPath, once, verbose, help } = values;
  const dataPath = data.startsWith("/") ? data : `${cwd.replace(/\/$/, "")}/${data}`;
  return { dataPath: dataPath.replace(/(.)\/+$/, "$1"), portOffset, once, verbose, help };
}

/** Plans ports, folders and command lines. */
export function planUp({ dataPath, portOffset }: UpOptions): Plan {
  const brokerPort = BROKER_TCP_PORT + portOffset;
  const discoveryPort = DISCOVERY_TCP_PORT + portOffset;
  return {
    dataPath,
    portOffset,
    broker: planService("broker", brokerPort, dataPath, [
      `--data-path=${dataPath}/broker`,
      `--lookupd-tcp-address=${HOST}:${discoveryPort}`,
    ]),
    discovery: planService("discovery", discoveryPort, dataPath, []),
    gateway: planService("gateway", GATEWAY_TCP_PORT + portOffset, dataPath, [
      `--data-path=${dataPath}/gateway`,
      `--discovery-http-address=${HOST}:${discoveryPort + 1}`,
    ]),
  };
}

function planService(
  name: ServicePlan["name"],
  tcpPort: number,
  dataPath: string,
  more: readonly string[],
): ServicePlan {
  return {
    name,
    tcpPort,
    httpPort: tcpPort + 1,
    command: [
      "run",
      `-P=${name}`,
      `${name}/main.ts`,
      `--tcp-address=${HOST}:${tcpPort}`,
      `--http-address=${HOST}:${tcpPort + 1}`,
      `--broadcast-address=${HOST}`,
      ...more,
    ],
    logPath: `${dataPath}/${name}.log`,
  };
}

/** Every port the plan needs. */
export function portsOf({ broker, discovery, gateway }: Plan): number[] {
  return [broker, discovery, gateway].flatMap(({ tcpPort, httpPort }) => [tcpPort, httpPort]);
}
