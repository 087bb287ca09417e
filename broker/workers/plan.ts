/**
 * Several brokers of one machine as one unit: what each of them is started with. All have the settings
 * of the unit, but for what must be their own:
 *
 * | Setting | Of worker N, from 0 |
 * |---|---|
 * | `tcp-address`, `http-address`, `https-address` | the port plus N x `worker-port-step`; a path with `.N` |
 * | `broadcast-tcp-port`, `broadcast-http-port` | the same, where they are set |
 * | `data-path` | `<data-path>/worker-N` |
 * | `node-id` | plus N, from 0 again above the highest |
 * | `log-prefix` | with N, so that lines can be told apart |
 */
import { type Address, showAddress } from "@sluice/shared/config";
import type { BrokerValues } from "../config.ts";
import { NODE_ID_MAX } from "./relations.ts";

/** One broker of a unit. */
export interface WorkerPlan {
  readonly index: number;
  /** Its command line. */
  readonly args: readonly string[];
}

/** Settings that a worker has of its own, or that make it one. */
const OWN: readonly string[] = [
  "tcp-address",
  "http-address",
  "https-address",
  "broadcast-tcp-port",
  "broadcast-http-port",
  "data-path",
  "node-id",
  "log-prefix",
  "workers",
];

/** The workers of a unit that was started with `args`, which came to `values`. */
export function planWorkers(args: readonly string[], values: BrokerValues): WorkerPlan[] {
  const common = withoutOwn(args);
  return Array.from({ length: values.workers }, (_, index) => ({
    index,
    args: [...common, ...ownFlags(values, index)],
  }));
}

function ownFlags(values: BrokerValues, index: number): string[] {
  const shift = index * values.workerPortStep;
  const flags = [
    "--workers=1",
    `--tcp-address=${shifted(values.tcpAddress, shift, index)}`,
    `--http-address=${shifted(values.httpAddress, shift, index)}`,
    `--https-address=${shifted(values.httpsAddress, shift, index)}`,
    `--data-path=${values.dataPath.replace(/(.)\/+$/, "$1")}/worker-${index}`,
    `--node-id=${(values.nodeId + index) % (NODE_ID_MAX + 1)}`,
    `--log-prefix=${values.logPrefix.trimEnd()}[${index}] `,
  ];
  const { broadcastTcpPort, broadcastHttpPort } = values;
  if (broadcastTcpPort !== 0) flags.push(`--broadcast-tcp-port=${broadcastTcpPort + shift}`);
  if (broadcastHttpPort !== 0) flags.push(`--broadcast-http-port=${broadcastHttpPort + shift}`);
  return flags;
}

function shifted(address: Address, shift: number, index: number): string {
  if (address.transport === "unix") return `${address.path}.${index}`;
  // Port 0 picks a free one for each.
  const port = address.port === 0 ? 0 : address.port + shift;
  return showAddress({ ...address, port });
}

/** A command line without the flags that workers have of their own. */
function withoutOwn(args: readonly string[]): string[] {
  const kept: string[] = [];
  for (let at = 0; at < args.length; at++) {
    const argument = args[at] ?? "";
    const [, name = "", value] = /^--?([^-=][^=]*)(=[^]*)?$/.exec(argument) ?? [];
    if (!OWN.includes(name)) kept.push(argument);
    // All of them have a value.
    else if (value === undefined) at++;
  }
  return kept;
}
