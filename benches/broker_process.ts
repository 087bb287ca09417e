/** The broker as a process of its own, for benchmarks that look into it while it works. */
import { Latencies, type LatenciesDocument } from "./latencies.ts";
import type { LoadResult } from "./load.ts";

export const ROOT = new URL("..", import.meta.url).pathname.replace(/\/$/, "");
const START_MS_MAX = 60_000;
const POLL_MS = 10;
const CLOCK_TICKS_PER_SECOND = 100;

/** A running broker; see the module. */
export class BrokerProcess implements AsyncDisposable {
  private constructor(
    readonly child: Deno.ChildProcess,
    readonly tcpAddress: string,
    readonly httpAddress: string,
  ) {}

  /** Starts one on a data folder and waits until it answers. */
  static async start(folder: string, flags: readonly string[]): Promise<BrokerProcess> {
    const [tcpAddress, httpAddress] = [freeAddress(), freeAddress()];
    const child = new Deno.Command(Deno.execPath(), {
      args: [
        "run",
        "-P=broker",
        "broker/main.ts",
        `--tcp-address=${tcpAddress}`,
        `--http-address=${httpAddress}`,
        `--data-path=${folder}`,
        "--log-level=warn",
        ...flags,
      ],
      cwd: ROOT,
      stdin: "null",
      stdout: "null",
      stderr: "inherit",
    }).spawn();
    const broker = new BrokerProcess(child, tcpAddress, httpAddress);
    const endMs = performance.now() + START_MS_MAX;
    while (performance.now() < endMs) {
      try {
        if ((await broker.get("/ping")) === "OK") return broker;
      } catch {
        // Not up yet.
      }
      await sleep(POLL_MS);
    }
    await broker[Symbol.asyncDispose]();
    throw new Error(`Cannot start the broker: no answer within ${START_MS_MAX} ms`);
  }

  async get(path: string): Promise<string> {
    const response = await fetch(`http://${this.httpAddress}${path}`);
    return await response.text();
  }

  async post(path: string): Promise<void> {
    const response = await fetch(`http://${this.httpAddress}${path}`, { method: "POST" });
    const text = await response.text();
    if (!response.ok) throw new Error(`Cannot POST ${path}: ${response.status} ${text}`);
  }

  /** Every series of `/metrics` without labels other than `le`, by its name as written there. */
  async metrics(): Promise<Map<string, number>> {
    const series = new Map<string, number>();
    for (const line of (await this.get("/metrics")).split("\n")) {
      const [, name, value] = /^(\w+(?:\{le="[^"]+"\})?) (\S+)$/.exec(line) ?? [];
      if (name !== undefined) series.set(name, Number(value));
    }
    return series;
  }

  /** The resident size of the process, from the kernel. */
  async residentBytes(): Promise<number> {
    const status = await Deno.readTextFile(`/proc/${this.child.pid}/status`);
    return Number(/VmRSS:\s+(\d+) kB/.exec(status)?.[1]) * 1024;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    try {
      this.child.kill("SIGTERM");
    } catch {
      // It has ended by itself.
    }
    await this.child.status;
  }
}

/** A load generator of its own process; resolves with what it prints. `isNice`: it yields to others. */
export async function load(
  script: string,
  args: readonly string[],
  isNice = false,
): Promise<string> {
  const command = [Deno.execPath(), "run", "--allow-net", `${ROOT}/benches/${script}`, ...args];
  if (isNice) command.unshift("nice", "-n", "19");
  const { success, stdout, stderr } = await new Deno.Command(command[0]!, {
    args: command.slice(1),
    stdin: "null",
  }).output();
  const decoder = new TextDecoder();
  if (!success) throw new Error(`Cannot load: ${decoder.decode(stderr).trim()}`);
  return decoder.decode(stdout);
}

/** Runs `load.ts`. */
export async function runLoad(args: readonly string[], isNice = false): Promise<LoadResult> {
  return JSON.parse(await load("load.ts", args, isNice)) as LoadResult;
}

/** What `open_loop.ts` measures at `rate` publishes a second. */
export async function runOpenLoop(
  address: string,
  rate: number | string,
  seconds: number | string,
): Promise<Latencies> {
  const lines = await load("open_loop.ts", [
    `--address=${address}`,
    `--rate=${rate}`,
    `--seconds=${seconds}`,
    `--window-ms=${Number(seconds) * 1000}`,
  ]);
  const all = new Latencies();
  for (const line of lines.trim().split("\n")) {
    all.add((JSON.parse(line) as { latencies: LatenciesDocument }).latencies);
  }
  return all;
}

/** Seconds of processor time that a process has taken. */
export function cpuSeconds(pid: number): number {
  const text = Deno.readTextFileSync(`/proc/${pid}/stat`);
  const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
  return (Number(fields[11]) + Number(fields[12])) / CLOCK_TICKS_PER_SECOND;
}

/** Runs something with a folder that is removed afterwards. */
export async function inFolder<T>(
  dir: string | undefined,
  run: (folder: string) => Promise<T>,
): Promise<T> {
  const folder = await Deno.makeTempDir({
    prefix: "sluice-bench-",
    ...(dir === undefined ? {} : { dir }),
  });
  try {
    return await run(folder);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

export function sleep(forMs: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, forMs));
}

/** An address of loopback that nobody listened on a moment ago. */
export function freeAddress(): string {
  const listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const { port } = listener.addr;
  listener.close();
  return `127.0.0.1:${port}`;
}
