/** Several brokers as one unit. */
import { deepStrictEqual as equal, ok } from "node:assert/strict";
import { loadSettings } from "@sluice/shared/config";
import { Logger } from "@sluice/shared/telemetry";
import { settle, SimClock } from "@sluice/shared/testing";
import { brokerSettings, type BrokerValues } from "../config.ts";
import { planWorkers, type WorkerPlan } from "./plan.ts";
import { PAUSE_MS_MAX, PAUSE_MS_MIN, STEADY_MS, Supervisor } from "./supervisor.ts";

const HOSTNAME = "machine";

function load(...args: string[]): BrokerValues {
  const declaration = brokerSettings(HOSTNAME);
  return loadSettings(declaration, { args, env: {}, readFile: () => "" }).values;
}

Deno.test("planWorkers() gives each what must be its own, and the rest of the command line to all", () => {
  const args = [
    "--workers=2",
    "-tcp-address",
    "127.0.0.1:5150",
    "--http-address=/run/broker.sock",
    "--data-path=/d/",
    "--node-id=7",
    "--broadcast-tcp-port=80",
    "--lookupd-tcp-address=a:4160",
    "--lookupd-tcp-address=b:4160",
    "--log-format=json",
  ];
  const plans = planWorkers(args, load(...args));
  equal(plans.map(({ index }) => index), [0, 1]);
  equal(plans[1]?.args, [
    "--lookupd-tcp-address=a:4160",
    "--lookupd-tcp-address=b:4160",
    "--log-format=json",
    "--workers=1",
    "--tcp-address=127.0.0.1:5250",
    "--http-address=/run/broker.sock.1",
    "--https-address=0.0.0.0:4252",
    "--data-path=/d/worker-1",
    "--node-id=8",
    "--log-prefix=[nsqd][1] ",
    "--broadcast-tcp-port=180",
  ]);
  for (const { args: own, index } of plans) {
    const values = load(...own);
    equal([values.workers, values.nodeId, values.dataPath], [1, 7 + index, `/d/worker-${index}`]);
  }
});

Deno.test("a unit whose workers would be in each other's way is refused", () => {
  for (
    const [args, message] of [
      [
        ["--workers=3", "--worker-port-step=1", "--node-id=1"],
        /two workers would listen on port 4151/,
      ],
      [["--workers=8", "--worker-port-step=10000", "--node-id=1"], /go above 65535/],
    ] as const
  ) {
    let text = "";
    try {
      load(...args);
    } catch (error) {
      text = String(error);
    }
    ok(message.test(text), text);
  }
});

/** Processes that end when they are told to. */
class Stage {
  readonly clock = new SimClock();
  readonly started: number[] = [];
  readonly #ends = new Map<number, (code: number) => void>();
  readonly supervisor: Supervisor;
  readonly plans: WorkerPlan[];
  code: number | null = null;

  constructor(count: number) {
    this.plans = Array.from({ length: count }, (_, index) => ({ index, args: [] }));
    this.supervisor = new Supervisor({
      clock: this.clock,
      logger: new Logger({ sink: () => {}, clock: this.clock }),
      spawn: ({ index }) => {
        this.started.push(index);
        const { promise, resolve } = Promise.withResolvers<number>();
        this.#ends.set(index, resolve);
        return { pid: index, ended: promise, stop: () => this.end(index, 0) };
      },
    });
    void this.supervisor.run(this.plans).then((code) => this.code = code);
  }

  end(index: number, code: number): void {
    this.#ends.get(index)?.(code);
    this.#ends.delete(index);
  }
}

Deno.test("a worker that crashes is started again after a growing pause, and the others go on", async () => {
  const stage = new Stage(3);
  await stage.clock.run(STEADY_MS);
  stage.end(1, 2);
  await stage.clock.run(PAUSE_MS_MIN - 1);
  equal(stage.started, [0, 1, 2]);
  await stage.clock.run(1);
  equal(stage.started, [0, 1, 2, 1]);
  for (let pauseMs = PAUSE_MS_MIN * 2; pauseMs < PAUSE_MS_MAX; pauseMs *= 2) {
    stage.end(1, 2);
    const before = stage.started.length;
    await stage.clock.run(pauseMs - 1);
    equal(stage.started.length, before);
    await stage.clock.run(1);
    equal(stage.started.length, before + 1);
  }
  equal(stage.supervisor.restartCount, stage.started.length - 3);
  stage.supervisor.stop();
  await settle();
  equal([stage.code, stage.clock.pendingTimers], [0, 0]);
});

Deno.test("a worker that cannot start at first ends the unit with its code", async () => {
  const stage = new Stage(2);
  await stage.clock.run(100);
  stage.end(0, 1);
  await settle();
  equal(stage.code, 1);
  equal(stage.started, [0, 1]);
});

Deno.test("stopped in the middle of a pause, a unit ends at once, with the worst code", async () => {
  const stage = new Stage(2);
  await stage.clock.run(STEADY_MS);
  stage.end(1, 2);
  await settle();
  stage.supervisor.stop();
  await settle();
  equal([stage.code, stage.started, stage.clock.pendingTimers], [2, [0, 1], 0]);
});
