/** The brokers a benchmark measures, each started as a process with an empty folder. */
import { freeAddress, sleep } from "./broker_process.ts";

/** How a broker is started. Its addresses and data path are added in nsqd's spelling. */
export interface Target {
  readonly name: string;
  readonly command: readonly string[];
}

/** A broker that runs. */
export interface RunningTarget {
  readonly name: string;
  readonly pid: number;
  readonly tcpAddress: string;
  readonly httpAddress: string;
  stop(): Promise<void>;
}

const START_MS_MAX = 15_000;
const POLL_MS = 25;

/** Ours, with its defaults: every OK is on disk. */
export function sluiceTarget(root: string): Target {
  return {
    name: "sluice",
    command: [Deno.execPath(), "run", "-P=broker", `${root}/broker/main.ts`],
  };
}

/** Starts a target, at addresses that are free if not said, and waits until it answers. */
export async function startTarget(
  target: Target,
  [tcpAddress, httpAddress]: readonly [tcp: string, http: string] = [freeAddress(), freeAddress()],
): Promise<RunningTarget> {
  const folder = await Deno.makeTempDir({ prefix: "sluice-bench-" });
  const [program, ...args] = target.command;
  if (program === undefined) throw new TypeError(`Cannot start "${target.name}": no command`);
  const child = new Deno.Command(program, {
    args: [
      ...args,
      `--tcp-address=${tcpAddress}`,
      `--http-address=${httpAddress}`,
      `--data-path=${folder}`,
    ],
    stdin: "null",
    stdout: "null",
    stderr: "null",
  }).spawn();
  const stop = async () => {
    try {
      child.kill("SIGTERM");
    } catch {
      // It has ended by itself.
    }
    await child.status;
    await Deno.remove(folder, { recursive: true });
  };
  const running = { name: target.name, pid: child.pid, tcpAddress, httpAddress, stop };
  try {
    await answers(running);
  } catch (error) {
    await stop();
    throw error;
  }
  return running;
}

/** Waits until a broker answers. */
export async function answers(
  { name, httpAddress }: { readonly name: string; readonly httpAddress: string },
): Promise<void> {
  const deadlineMs = performance.now() + START_MS_MAX;
  while (performance.now() < deadlineMs) {
    try {
      const response = await fetch(`http://${httpAddress}/info`);
      await response.body?.cancel();
      if (response.ok) return;
    } catch {
      // Not up yet.
    }
    await sleep(POLL_MS);
  }
  throw new Error(`Cannot start "${name}": no answer within ${START_MS_MAX} ms`);
}
