/**
 * Loads of `load.ts` on a running broker: what `bench`, `bench:axes`, `bench:gate` and, where programs of
 * others cannot do it, `bench:peers` are made of. All are about the topic `bench`.
 */
import { tlsAuthority } from "@sluice/shared/testing";
import { cpuSeconds, runLoad } from "./broker_process.ts";
import type { Transport } from "./load_link.ts";
import type { RunningTarget } from "./targets.ts";

/** How a load publishes; by default, one message after the other from 16 connections for 2 s. */
export interface Publishing {
  readonly connections?: number;
  readonly batch?: number;
  /** `bench-0` and so on instead of `bench`, if more than one. */
  readonly topics?: number;
  readonly bytes?: number;
  readonly seconds?: number;
  /** In clear, unless said. */
  readonly transport?: Transport;
  /** Other arguments of `load.ts`. */
  readonly others?: readonly string[];
}

/** A load that takes longer than this has failed. */
const SECONDS_MAX = 60;

/** Messages confirmed a second. */
export async function published(
  running: RunningTarget,
  publishing: Publishing,
): Promise<number> {
  const { connections = 16, batch = 1, topics = 1, bytes = 200, seconds = 2 } = publishing;
  const { transport = "plain", others = [] } = publishing;
  const args = [
    "publish",
    ...reaching(running, transport),
    `--connections=${connections}`,
    `--batch=${batch}`,
    `--topics=${topics}`,
    `--bytes=${bytes}`,
    ...others,
  ];
  // Topics are made by their first message, which is not what is measured.
  if (topics > 1) {
    await runLoad([...args, `--messages=${topics * batch}`, `--seconds=${SECONDS_MAX}`]);
  }
  return (await runLoad([...args, `--seconds=${seconds}`])).messagesPerSecond;
}

/** What a run of publishing has come to, and what it took of a process. */
export interface Published {
  readonly perSecond: number;
  /** Of the process, for each message. */
  readonly cpuUs: number;
}

/** Publishes to an address as `load.ts` is told to, and measures process `pid` meanwhile. */
export async function publishedWithCpu(
  pid: number,
  address: string,
  args: readonly string[],
): Promise<Published> {
  const before = cpuSeconds(pid);
  const { messages, messagesPerSecond } = await runLoad([
    "publish",
    `--address=${address}`,
    ...args,
  ]);
  const cpuUs = (cpuSeconds(pid) - before) * 1e6 / messages;
  return { perSecond: messagesPerSecond, cpuUs };
}

/** Makes the topic `bench` with channels `bench`, or of these names. */
export async function created(
  { httpAddress }: Pick<RunningTarget, "httpAddress">,
  channels: readonly string[] = ["bench"],
  topic = "bench",
): Promise<void> {
  const paths = channels.map((channel) => `channel/create?topic=${topic}&channel=${channel}`);
  for (const path of [`topic/create?topic=${topic}`, ...paths]) {
    const response = await fetch(`http://${httpAddress}/${path}`, { method: "POST" });
    await response.body?.cancel();
    if (!response.ok) throw new Error(`Cannot POST ${path}: ${response.status}`);
  }
}

/** Publishes so many messages of 200 bytes. */
export async function filled({ tcpAddress }: RunningTarget, messages: number): Promise<void> {
  await runLoad([
    "publish",
    `--address=${tcpAddress}`,
    "--connections=4",
    "--batch=100",
    `--messages=${messages}`,
    `--seconds=${SECONDS_MAX}`,
  ]);
}

/** Messages received and finished a second of a backlog that is there. */
export async function consumed(
  running: RunningTarget,
  rdy: number,
  messages: number,
  others: readonly string[] = [],
  transport: Transport = "plain",
): Promise<number> {
  const result = await runLoad([
    "consume",
    ...reaching(running, transport),
    `--rdy=${rdy}`,
    `--messages=${messages}`,
    `--seconds=${SECONDS_MAX}`,
    ...others,
  ]);
  return result.messagesPerSecond;
}

/** As {@linkcode consumed}, of a backlog that is made first. */
export async function drained(
  running: RunningTarget,
  rdy: number,
  messages: number,
  others: readonly string[] = [],
  transport: Transport = "plain",
): Promise<number> {
  await created(running);
  await filled(running, messages);
  return await consumed(running, rdy, messages, others, transport);
}

/** Where a load goes to. Over TLS the target has the certificate of the tests. */
function reaching({ tcpAddress, httpAddress }: RunningTarget, transport: Transport): string[] {
  return [
    `--address=${transport === "http" ? httpAddress : tcpAddress}`,
    `--transport=${transport}`,
    ...(transport === "tls" ? [`--ca=${tlsAuthority()}`] : []),
  ];
}

/** What came of publishing and consuming at the same time. */
export interface Through {
  readonly receivedPerSecond: number;
  /** Of the broker, for each message that was received: its publish, delivery and FIN. */
  readonly cpuUs: number;
}

/** Publishes and consumes at the same time, each from a process of its own. */
export async function through(
  running: RunningTarget,
  { producers, consumers, batch = 1, rdy = 200, seconds }: {
    readonly producers: number;
    readonly consumers: number;
    readonly batch?: number;
    readonly rdy?: number;
    readonly seconds: number;
  },
): Promise<Through> {
  const address = `--address=${running.tcpAddress}`;
  await created(running);
  const before = cpuSeconds(running.pid);
  const consuming = runLoad([
    "consume",
    address,
    `--connections=${consumers}`,
    `--rdy=${rdy}`,
    `--seconds=${seconds}`,
  ]);
  await runLoad([
    "publish",
    address,
    `--connections=${producers}`,
    `--batch=${batch}`,
    `--seconds=${seconds}`,
  ]);
  const { messages, messagesPerSecond } = await consuming;
  const cpuUs = (cpuSeconds(running.pid) - before) * 1e6 / messages;
  return { receivedPerSecond: messagesPerSecond, cpuUs };
}
