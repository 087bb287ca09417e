/**
 * The services of a chaos run: brokers, gateways and discoveries as real processes, each with ports and a
 * folder that it keeps over all its lives, and a log on disk of all of them.
 *
 * Ports are below those that the system gives to outgoing connections: while a service is down nobody
 * else may get its port, not even whoever tries to connect to it.
 */
import { ok } from "node:assert/strict";
import { HttpProcess, runToEnd } from "../integration/process.ts";
import { eventually } from "../integration/wait.ts";

/** What runs, and how many of each. */
export interface FleetOptions {
  /** Where folders and logs are made. */
  readonly path: string;
  readonly brokers: number;
  readonly gateways: number;
  readonly discoveries: number;
  readonly gatewayFlags: readonly string[];
  /** The spools are on disks of their own, of this size; that takes root. */
  readonly gatewayDiskBytes?: number;
}

const LOOPBACK = "127.0.0.1";
const PORT_MIN = 15_000;
const PORT_MAX = 32_000;
const START_MS_MAX = 60_000;
const LINES_TOLD = 20;
const BROKER_FLAGS = [
  "--min-free-bytes=0",
  "--log-bytes-max=64MiB",
  "--log-file-bytes=4MiB",
  "--msg-timeout=10s",
];

type Kind = "broker" | "gateway" | "discovery";

/** A service over all its lives. */
export class Member {
  readonly name: string;
  readonly tcpPort: number;
  readonly httpPort: number;
  readonly logPath: string;
  /** Exit codes of orderly stops that were not 0, and ends that nobody asked for. */
  readonly mishaps: string[] = [];
  readonly #kind: Kind;
  readonly #args: readonly string[];
  #process: HttpProcess | null = null;
  /** Processes that are to end. */
  readonly #asked = new WeakSet<HttpProcess>();

  constructor(name: string, kind: Kind, ports: readonly number[], path: string, args: string[]) {
    this.name = name;
    this.#kind = kind;
    this.tcpPort = ports[0]!;
    this.httpPort = ports[1]!;
    this.logPath = `${path}/${name}.log`;
    this.#args = [
      `--tcp-address=${LOOPBACK}:${this.tcpPort}`,
      `--http-address=${LOOPBACK}:${this.httpPort}`,
      `--broadcast-address=${LOOPBACK}`,
      ...args,
    ];
  }

  get url(): string {
    return `http://${LOOPBACK}:${this.httpPort}`;
  }

  get isRunning(): boolean {
    return this.#process !== null && this.#process.code === null;
  }

  /** Starts a process and waits for nothing. */
  spawn(more: readonly string[] = []): void {
    ok(!this.isRunning, `${this.name} runs already`);
    const command = ["run", "--quiet", `-P=${this.#kind}`, `${this.#kind}/main.ts`, ...this.#args];
    const service = new HttpProcess(this.name, "/bin/sh", [
      "-c",
      // All of the log, and the same process id.
      'log=$1; shift; exec "$@" >>"$log" 2>&1',
      "sh",
      this.logPath,
      Deno.execPath(),
      ...command,
      ...more,
    ]);
    this.#process = service;
    void service.endsWithin(2 ** 31 - 1).then(() => {
      if (this.#asked.has(service)) return;
      this.mishaps.push(`${this.name} ended by itself with ${service.code}, see ${this.logPath}`);
    });
  }

  /** Resolves when it takes what it is there for. */
  async ready(): Promise<void> {
    const path = this.#kind === "gateway" ? "/v1/health" : "/ping";
    await eventually(`${this.name} to be ready`, async () => {
      if (!this.isRunning) throw new Error(`${this.name} has ended:\n${this.#lastLines()}`);
      return await this.tryGet(path) !== null;
    }, START_MS_MAX);
  }

  async start(more: readonly string[] = []): Promise<void> {
    this.spawn(more);
    await this.ready();
  }

  async kill(): Promise<void> {
    const service = this.#process;
    if (service === null) return;
    this.#asked.add(service);
    await service.kill();
  }

  /** An orderly stop. */
  async terminate(): Promise<void> {
    const service = this.#process;
    if (service === null) return;
    this.#asked.add(service);
    service.askToStop();
    if (!await service.endsWithin(START_MS_MAX)) {
      this.mishaps.push(`${this.name} did not stop in ${START_MS_MAX} ms`);
      await service.kill();
    } else if (service.code !== 0) {
      this.mishaps.push(`${this.name} stopped with ${service.code}, see ${this.logPath}`);
    }
  }

  /** The process stands still. */
  pause(): void {
    if (this.isRunning) Deno.kill(this.#process!.pid, "SIGSTOP");
  }

  resume(): void {
    if (this.isRunning) Deno.kill(this.#process!.pid, "SIGCONT");
  }

  /** The answer to a GET; null when there is none, or another status than 200. */
  async tryGet(path: string): Promise<string | null> {
    try {
      const response = await fetch(this.url + path);
      const text = await response.text();
      return response.status === 200 ? text : null;
    } catch {
      return null;
    }
  }

  /** The document at a path; waits until there is one. */
  async document<T>(path: string): Promise<T> {
    const text = await eventually(`${path} of ${this.name}`, async () => {
      return await this.tryGet(path) ?? false;
    });
    return JSON.parse(text) as T;
  }

  #lastLines(): string {
    return Deno.readTextFileSync(this.logPath).split("\n").slice(-LINES_TOLD).join("\n");
  }

  /** Posts, and fails unless the answer is 200. */
  async order(path: string, body: BodyInit = ""): Promise<void> {
    const response = await fetch(this.url + path, { method: "POST", body });
    const text = await response.text();
    if (response.status !== 200) throw new Error(`POST ${path}: ${response.status} ${text}`);
  }
}

/** See the module. */
export class Fleet implements AsyncDisposable {
  readonly brokers: readonly Member[];
  readonly gateways: readonly Member[];
  readonly discoveries: readonly Member[];

  /** Folders that are disks of their own. */
  readonly #disks: string[] = [];

  private constructor(options: FleetOptions) {
    const { path, gatewayFlags } = options;
    const total = options.brokers + options.gateways + options.discoveries;
    const ports = freePorts(2 * total);
    const next = () => ports.splice(0, 2);
    const brokerPorts = Array.from({ length: options.brokers }, next);
    const polled = brokerPorts.map(([, http]) => `--broker=${LOOPBACK}:${http}`);
    this.discoveries = numbered(options.discoveries, (number) =>
      new Member(
        `discovery-${number}`,
        "discovery",
        next(),
        path,
        // The first one asks brokers as well; the others know those that register.
        number === 1 ? polled : [],
      ));
    const tcp = this.discoveries.map(({ tcpPort }) => `${LOOPBACK}:${tcpPort}`).join(",");
    this.brokers = brokerPorts.map((own, index) => {
      const name = `broker-${index + 1}`;
      return new Member(name, "broker", own, path, [
        `--data-path=${path}/${name}`,
        `--lookupd-tcp-address=${tcp}`,
        // Ids tell which broker they are of.
        `--node-id=${index + 1}`,
        ...BROKER_FLAGS,
      ]);
    });
    this.gateways = numbered(
      options.gateways,
      (number) =>
        new Member(`gateway-${number}`, "gateway", next(), path, [
          ...this.discoveries.map(({ httpPort }) =>
            `--discovery-http-address=${LOOPBACK}:${httpPort}`
          ),
          `--data-path=${path}/gateway-${number}`,
          ...gatewayFlags,
        ]),
    );
  }

  /** Starts everything. */
  static async start(options: FleetOptions): Promise<Fleet> {
    const fleet = new Fleet(options);
    for (const { name } of [...fleet.brokers, ...fleet.gateways]) {
      await Deno.mkdir(`${options.path}/${name}`);
    }
    try {
      for (const { name } of fleet.gateways) {
        const { gatewayDiskBytes: bytes } = options;
        if (bytes !== undefined) await fleet.#mount(`${options.path}/${name}`, bytes);
      }
      await Promise.all(fleet.discoveries.map((member) => member.start()));
      await Promise.all(fleet.brokers.map((member) => member.start()));
      await Promise.all(fleet.gateways.map((member) => member.start()));
      return fleet;
    } catch (error) {
      await fleet[Symbol.asyncDispose]();
      throw error;
    }
  }

  get all(): readonly Member[] {
    return [...this.discoveries, ...this.brokers, ...this.gateways];
  }

  /** Makes topics with one channel each on all brokers, so that nothing is published before it. */
  async createChannels(topics: readonly string[], channel: string): Promise<void> {
    for (const broker of this.brokers) {
      for (const topic of topics) {
        await broker.order(`/topic/create?topic=${topic}`);
        await broker.order(`/channel/create?topic=${topic}&channel=${channel}`);
      }
    }
  }

  /** Resolves when each gateway can publish to every broker. */
  async connected(): Promise<void> {
    for (const gateway of this.gateways) {
      await eventually(`${gateway.name} at all brokers`, async () => {
        const { brokers } = await gatewayFigures(gateway);
        const usable = brokers.filter((broker) => broker.usable).length;
        return usable === this.brokers.length;
      }, START_MS_MAX);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.all.map((member) => member.kill()));
    for (const path of this.#disks.splice(0)) await run("umount", [path]);
  }

  async #mount(path: string, bytes: number): Promise<void> {
    await run("mount", ["-t", "tmpfs", "-o", `size=${bytes}`, "tmpfs", path]);
    this.#disks.push(path);
  }
}

async function run(command: string, args: readonly string[]): Promise<void> {
  const { code, stderr } = await runToEnd(command, args);
  if (code !== 0) throw new Error(`${command} ${args.join(" ")}: ${stderr}`);
}

/** What is read of a gateway's `/stats`. */
export interface GatewayFigures {
  readonly publishes: Readonly<Record<string, number>>;
  readonly held_publishes: number;
  readonly brokers: readonly { readonly id: string; readonly usable: boolean }[];
  readonly spool: { readonly depth: number; readonly quarantined: number };
}

/** The figures of a gateway. */
export async function gatewayFigures(gateway: Member): Promise<GatewayFigures> {
  const document = await gateway.document<{ gateway: GatewayFigures }>("/stats?format=json");
  return document.gateway;
}

function numbered(count: number, make: (number: number) => Member): Member[] {
  return Array.from({ length: count }, (_, index) => make(index + 1));
}

/** Ports that are free now, and that the system gives to nobody who does not ask for them. */
function freePorts(count: number): number[] {
  const ports = new Set<number>();
  while (ports.size < count) {
    const port = PORT_MIN + Math.floor(Math.random() * (PORT_MAX - PORT_MIN));
    try {
      Deno.listen({ hostname: LOOPBACK, port }).close();
      ports.add(port);
    } catch {
      // Somebody has it.
    }
  }
  return [...ports];
}
