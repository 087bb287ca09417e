/**
 * `deno task bench:floor`: what the runtime leaves room for. The broker beside the least program that
 * reads PUB and writes OK (`floor_server.ts`), without a disk and with a sync a group: messages a second
 * and processor time of each for a message. What the broker takes above `sync` is ours to spare; the rest
 * is reads, writes, wake-ups and syncs as the runtime and the kernel do them.
 */
import { parseArgs } from "node:util";
import { inFolder, ROOT } from "./broker_process.ts";
import { type Published, publishedWithCpu } from "./loads.ts";
import { median, showFigure } from "./summary.ts";
import { sluiceTarget, startTarget } from "./targets.ts";

const HELP = `Measures the broker beside the least program that could answer PUB.

  deno task bench:floor [--rounds N] [--seconds S] [--connections N]

  --rounds N       alternating rounds; medians are shown (default 5)
  --seconds S      length of a run (default 2)
  --connections N  each waits for its OK (default 64)
`;
const MODES = ["answer", "gather", "sync"] as const;
const BROKER = "broker";
const SERVER = new URL("./floor_server.ts", import.meta.url).pathname;

async function ofBroker(args: readonly string[]): Promise<Published> {
  const running = await startTarget(sluiceTarget(ROOT));
  try {
    return await publishedWithCpu(running.pid, running.tcpAddress, args);
  } finally {
    await running.stop();
  }
}

async function ofServer(mode: string, args: readonly string[]): Promise<Published> {
  return await inFolder(undefined, async (folder) => {
    const child = new Deno.Command(Deno.execPath(), {
      args: ["run", "--allow-all", SERVER, `--mode=${mode}`, `--file=${folder}/records`],
      stdin: "null",
      stdout: "piped",
    }).spawn();
    const output = child.stdout.getReader();
    try {
      const port = new TextDecoder().decode((await output.read()).value).trim();
      return await publishedWithCpu(child.pid, `127.0.0.1:${port}`, args);
    } finally {
      child.kill("SIGKILL");
      await output.cancel();
      await child.status;
    }
  });
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      rounds: { type: "string", default: "5" },
      seconds: { type: "string", default: "2" },
      connections: { type: "string", default: "64" },
      help: { type: "boolean", default: false },
    },
  });
  if (values.help) return console.log(HELP);
  const args = [`--connections=${values.connections}`, `--seconds=${values.seconds}`];
  const names = [...MODES, BROKER];
  const taken = new Map<string, Published[]>(names.map((name) => [name, []]));
  for (let round = 1; round <= Number(values.rounds); round++) {
    for (const name of names) {
      const one = name === BROKER ? await ofBroker(args) : await ofServer(name, args);
      taken.get(name)!.push(one);
      console.error(
        `round ${round}  ${name.padEnd(8)} ${showFigure(one.perSecond)}  ${
          showFigure(one.cpuUs)
        } us`,
      );
    }
  }
  console.log(`| PUB, ${values.connections} connections | messages/s | CPU, us a message |`);
  console.log("|---|---:|---:|");
  for (const [name, all] of taken) {
    const [perSecond, cpuUs] = [
      median(all.map((one) => one.perSecond)),
      median(all.map((one) => one.cpuUs)),
    ];
    console.log(`| ${name} | ${showFigure(perSecond)} | ${showFigure(cpuUs)} |`);
  }
}

await main();
