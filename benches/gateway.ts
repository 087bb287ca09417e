/**
 * `deno task bench:gateway`: publishing through a gateway beside publishing to the same broker
 * directly, in alternating rounds of one run. Throughput, and the latency of publishes at a fixed rate,
 * timed from the moment each was due. The gateway has a spool; nothing goes into it here.
 */
import { parseArgs } from "node:util";
import { ROOT, runOpenLoop, sleep } from "./broker_process.ts";
import { Latencies } from "./latencies.ts";
import { publishedWithCpu } from "./loads.ts";
import { median, ratioOf, showFigure, showRatio } from "./summary.ts";
import { type RunningTarget, sluiceTarget, startTarget } from "./targets.ts";

const HELP = `Measures publishing through a gateway beside publishing to its broker directly.

  deno task bench:gateway [--rounds N] [--seconds S] [--rate R] [--only TEXT]

  --rounds N    rounds of each figure, alternating; medians are shown (default 5)
  --seconds S   length of a run (default 3)
  --rate R      publishes a second for latencies (default 1000)
  --only TEXT   only scenarios whose name contains TEXT
`;

/** A rest for the disk before latencies are measured. */
const SETTLE_MS = 3_000;

/** A load by its name: connections and messages a command. */
const SCENARIOS = [
  ["PUB, 1 connection", 1, 1],
  ["PUB, 16 connections", 16, 1],
  ["PUB, 64 connections", 64, 1],
  ["MPUB x100, 16 connections", 16, 100],
] as const;

/** A gateway in front of a broker. */
function gatewayTarget(broker: RunningTarget) {
  return {
    name: "gateway",
    command: [
      Deno.execPath(),
      "run",
      "-P=gateway",
      `${ROOT}/gateway/main.ts`,
      `--broker-tcp-address=${broker.tcpAddress}`,
    ],
  };
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      rounds: { type: "string", default: "5" },
      seconds: { type: "string", default: "3" },
      rate: { type: "string", default: "1000" },
      only: { type: "string", default: "" },
      help: { type: "boolean", default: false },
    },
  });
  if (values.help) return console.log(HELP);
  const figures = new Map<string, { direct: number[]; gateway: number[]; cpu: number[] }>();
  const latencies = { direct: new Latencies(), gateway: new Latencies() };
  for (let round = 1; round <= Number(values.rounds); round++) {
    const broker = await startTarget(sluiceTarget(ROOT));
    const gateway = await startTarget(gatewayTarget(broker));
    try {
      // Before the disk is busy with what the throughput has left to it.
      if ("latency".includes(values.only)) {
        await sleep(SETTLE_MS);
        for (const [kind, { tcpAddress }] of Object.entries({ direct: broker, gateway })) {
          const measured = await runOpenLoop(tcpAddress, values.rate, values.seconds);
          latencies[kind as "direct" | "gateway"].add(measured.toJSON());
        }
      }
      for (const [name, connections, batch] of SCENARIOS) {
        if (!name.includes(values.only)) continue;
        const figure = figures.get(name) ?? { direct: [], gateway: [], cpu: [] };
        figures.set(name, figure);
        for (const [kind, { tcpAddress }] of Object.entries({ direct: broker, gateway })) {
          const { perSecond, cpuUs } = await publishedWithCpu(gateway.pid, tcpAddress, [
            `--connections=${connections}`,
            `--batch=${batch}`,
            `--seconds=${values.seconds}`,
          ]);
          figure[kind as "direct" | "gateway"].push(perSecond);
          if (kind === "gateway") figure.cpu.push(cpuUs);
          console.error(
            `round ${round}  ${name.padEnd(28)} ${kind.padEnd(8)} ${showFigure(perSecond)}`,
          );
        }
      }
    } finally {
      await gateway.stop();
      await broker.stop();
    }
  }
  console.log(
    "| messages/s, 200-byte bodies | direct | through the gateway | ratio | CPU of the gateway, us a message |",
  );
  console.log("|---|---:|---:|---:|---:|");
  for (const [name, { direct, gateway, cpu }] of figures) {
    console.log(
      `| ${name} | ${showFigure(median(direct))} | ${showFigure(median(gateway))} | ` +
        `${showRatio(ratioOf(gateway, direct))} | ${median(cpu).toFixed(1)} |`,
    );
  }
  if (latencies.direct.count === 0) return;
  console.log(
    `\n| ms, at ${values.rate} publishes a second | p50 | p99 | p99.9 |\n|---|---:|---:|---:|`,
  );
  for (const [kind, found] of Object.entries(latencies)) {
    const cells = [0.5, 0.99, 0.999].map((quantile) => found.quantileMs(quantile).toFixed(2));
    console.log(
      `| ${kind === "direct" ? "direct" : "through the gateway"} | ${cells.join(" | ")} |`,
    );
  }
}

await main();
