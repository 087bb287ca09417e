/**
 * `deno task bench:profile`: where the broker's or the gateway's time goes under a load. Starts it with
 * the inspector, records a CPU profile while `load.ts` runs, and writes a flame graph to docs/perf/.
 */
import { parseArgs } from "node:util";
import { type CpuProfile, flameOf, flameSvg, selfTimes } from "./flame.ts";
import { sluiceTarget, startTarget } from "./targets.ts";

const HELP = `Records where the time goes.

  deno task bench:profile --name NAME [--of broker|gateway] [--seconds S] -- LOAD...

  --name NAME   of the flame graph, docs/perf/flame-NAME.svg
  --of WHAT     the broker (default), or a gateway in front of one
  --seconds S   how long is recorded (default 4)
  LOAD          arguments of benches/load.ts, such as: publish --connections=64; several at the same
                time with "and" between them

Examples: deno task bench:profile --name mpub -- publish --connections=16 --batch=100
          deno task bench:profile --name through -- publish --batch=100 and consume --connections=4
`;
const ROOT = new URL("..", import.meta.url).pathname.replace(/\/$/, "");
const SAMPLE_US = 200;
const SHOWN = 25;

/** A session of the inspector's protocol. */
class Inspector {
  readonly #socket: WebSocket;
  readonly #waiting = new Map<number, (result: unknown) => void>();
  #next = 1;

  private constructor(socket: WebSocket) {
    this.#socket = socket;
    socket.onmessage = ({ data }) => {
      const { id, result } = JSON.parse(data);
      this.#waiting.get(id)?.(result);
    };
  }

  static async connect(port: number): Promise<Inspector> {
    const list = await (await fetch(`http://127.0.0.1:${port}/json`)).json();
    const socket = new WebSocket(list[0].webSocketDebuggerUrl);
    await new Promise((resolve, reject) => {
      socket.onopen = resolve;
      socket.onerror = reject;
    });
    return new Inspector(socket);
  }

  send<T>(method: string, params: Record<string, unknown> = {}): Promise<T> {
    const id = this.#next++;
    this.#socket.send(JSON.stringify({ id, method, params }));
    return new Promise((resolve) => this.#waiting.set(id, (result) => resolve(result as T)));
  }

  close(): void {
    this.#socket.close();
  }
}

/** The loads that are to run at the same time, each its arguments. */
function loadsOf(words: readonly string[]): string[][] {
  const loads: string[][] = [[]];
  for (const word of words) {
    if (word === "and") loads.push([]);
    else loads.at(-1)!.push(word);
  }
  return loads;
}

async function main(): Promise<void> {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      name: { type: "string", default: "" },
      of: { type: "string", default: "broker" },
      seconds: { type: "string", default: "4" },
      help: { type: "boolean", default: false },
    },
  });
  if (values.help || values.name === "" || positionals.length === 0) return console.log(HELP);
  const probe = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const { port } = probe.addr;
  probe.close();
  const inspected = (command: readonly string[]) =>
    command.flatMap((part) => part === "run" ? [part, `--inspect=127.0.0.1:${port}`] : [part]);
  const broker = sluiceTarget(ROOT);
  const isBroker = values.of === "broker";
  const behind = await startTarget(
    isBroker ? { ...broker, command: inspected(broker.command) } : broker,
  );
  const front = isBroker ? behind : await startTarget({
    name: "gateway",
    command: inspected([
      Deno.execPath(),
      "run",
      "-P=gateway",
      `${ROOT}/gateway/main.ts`,
      `--broker-tcp-address=${behind.tcpAddress}`,
    ]),
  });
  try {
    const loads = loadsOf(positionals).map((args) =>
      new Deno.Command(Deno.execPath(), {
        args: [
          "run",
          "--allow-net",
          `${ROOT}/benches/load.ts`,
          ...args,
          `--address=${front.tcpAddress}`,
          `--seconds=${Number(values.seconds) + 2}`,
        ],
        stdin: "null",
        stdout: "piped",
      }).spawn()
    );
    await new Promise((resolve) => setTimeout(resolve, 1000));
    const inspector = await Inspector.connect(port);
    await inspector.send("Profiler.enable");
    await inspector.send("Profiler.setSamplingInterval", { interval: SAMPLE_US });
    await inspector.send("Profiler.start");
    await new Promise((resolve) => setTimeout(resolve, Number(values.seconds) * 1000));
    const { profile } = await inspector.send<{ profile: CpuProfile }>("Profiler.stop");
    inspector.close();
    for (const load of loads) {
      const { stdout } = await load.output();
      console.log(`load: ${new TextDecoder().decode(stdout).trim()}`);
    }
    const root = flameOf(profile);
    const busyMs = root.totalUs / 1000;
    console.log(`busy ${busyMs.toFixed(0)} ms of ${Number(values.seconds) * 1000}`);
    for (const { name, share } of selfTimes(root).slice(0, SHOWN)) {
      console.log(`${(share * 100).toFixed(1).padStart(5)} %  ${name}`);
    }
    await Deno.mkdir(`${ROOT}/docs/perf`, { recursive: true });
    const title = `${values.of}: ${positionals.join(" ")}`;
    await Deno.writeTextFile(`${ROOT}/docs/perf/flame-${values.name}.svg`, flameSvg(root, title));
  } finally {
    if (front !== behind) await front.stop();
    await behind.stop();
  }
}

await main();
