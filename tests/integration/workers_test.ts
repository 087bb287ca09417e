/** Several brokers as one unit, as real processes. */
import { deepStrictEqual as equal } from "node:assert/strict";
import { Process, ROOT_PATH, TemporaryFolder } from "./process.ts";
import { eventually } from "./wait.ts";

/** A free port such that the one `step` above it is free too. */
function freePorts(step: number): number {
  for (;;) {
    const first = Deno.listen({ hostname: "127.0.0.1", port: 0 });
    const { port } = first.addr;
    try {
      Deno.listen({ hostname: "127.0.0.1", port: port + step }).close();
      return port;
    } catch (error) {
      if (!(error instanceof Deno.errors.AddrInUse || error instanceof RangeError)) throw error;
    } finally {
      first.close();
    }
  }
}

class Unit {
  readonly tcpPort = freePorts(7);
  readonly httpPort = freePorts(7);
  readonly process: Process;

  constructor(dataPath: string, args: readonly string[] = []) {
    this.process = new Process("brokers", Deno.execPath(), [
      "run",
      "--quiet",
      "-P=brokers",
      `${ROOT_PATH}broker/main.ts`,
      "--workers=2",
      "--worker-port-step=7",
      `--tcp-address=127.0.0.1:${this.tcpPort}`,
      `--http-address=127.0.0.1:${this.httpPort}`,
      `--data-path=${dataPath}`,
      ...args,
    ]);
  }

  /** Publishes to a worker; whether that was confirmed. */
  async publish(index: number): Promise<boolean> {
    const url = `http://127.0.0.1:${this.httpPort + 7 * index}/pub?topic=t`;
    try {
      const response = await fetch(url, { method: "POST", body: "x" });
      await response.body?.cancel();
      return response.ok;
    } catch {
      return false;
    }
  }

  async ready(): Promise<void> {
    for (const index of [0, 1]) {
      await eventually(`worker ${index} serves`, () => this.publish(index));
    }
  }

  /** The processes of the workers, as the log names them. */
  get pids(): number[] {
    return [...this.process.log.matchAll(/A worker has started worker=\d pid=(\d+)/g)]
      .map(([, pid]) => Number(pid));
  }
}

Deno.test("a unit of workers serves on all ports, replaces one that is killed, and stops as one", async () => {
  await using folder = await TemporaryFolder.create();
  const unit = new Unit(folder.path);
  await using process = unit.process;
  await unit.ready();
  Deno.kill(unit.pids[1]!, "SIGKILL");
  await eventually("the worker is started again", () => unit.pids.length === 3);
  await unit.ready();
  equal(await process.terminate(), 0);
  equal([await unit.publish(0), await unit.publish(1)], [false, false]);
});

Deno.test("workers do not outlive a supervisor that is killed", async () => {
  await using folder = await TemporaryFolder.create();
  const unit = new Unit(folder.path);
  await using process = unit.process;
  await unit.ready();
  // Its output ends when the last worker has ended.
  await process.kill();
  equal([await unit.publish(0), await unit.publish(1)], [false, false]);
  const next = new Unit(folder.path);
  await using again = next.process;
  await next.ready();
  equal(await again.terminate(), 0);
});
