/** `sluicectl drain` against a broker that answers as it is told to. */
import { deepStrictEqual as equal, match } from "node:assert/strict";
import { type AskHttp, HttpAskError } from "@sluice/shared/runtime";
import { settle, SimClock, SimDisk } from "@sluice/shared/testing";
import { run } from "./cli.ts";

const REPORT = {
  draining: true,
  delivery_frozen: false,
  quiesced: false,
  empty: false,
  since: "2026-05-01T08:00:00.000Z",
  depth: 7,
  in_flight: 2,
  deferred: 0,
  publish_bytes: 0,
  delivery_bytes: 0,
};
const DONE = { ...REPORT, empty: true, depth: 0, in_flight: 0 };
const ADDRESS = "--http-address=broker:4151";

type Answer = object | number | string;

class Stage {
  readonly clock = new SimClock();
  readonly disk = new SimDisk();
  readonly asked: string[] = [];
  isTerminal = false;
  out = "";
  err = "";

  constructor(readonly answers: Answer[]) {}

  readonly askHttp: AskHttp = ({ method, url, headers, body }) => {
    const sent = body === undefined ? "" : ` ${new TextDecoder().decode(body)}`;
    this.asked.push(`${method} ${url}${sent}${headers["Authorization"] ?? ""}`);
    const answer = this.answers.length > 1 ? this.answers.shift() : this.answers[0];
    if (typeof answer === "string") return Promise.reject(new HttpAskError(answer));
    const status = typeof answer === "number" ? answer : 200;
    const text = JSON.stringify(typeof answer === "number" ? { message: "NO" } : answer);
    return Promise.resolve({ status, body: new TextEncoder().encode(text) });
  };

  run(...args: string[]): Promise<number> {
    return run(["drain", ...args], {
      disk: this.disk,
      clock: this.clock,
      askHttp: this.askHttp,
      out: (bytes) => this.out += new TextDecoder().decode(bytes),
      err: (text) => this.err += text,
      errIsTerminal: this.isTerminal,
    });
  }
}

Deno.test("start, stop and status ask one thing and tell the report", async () => {
  for (
    const [args, asked] of [
      [["status"], "GET http://broker:4151/v1/drain"],
      [["stop"], 'POST http://broker:4151/v1/drain {"enabled":false}'],
      [
        ["start"],
        'POST http://broker:4151/v1/drain {"enabled":true,"freeze_deliveries":false}',
      ],
      [
        ["start", "--freeze"],
        'POST http://broker:4151/v1/drain {"enabled":true,"freeze_deliveries":true}',
      ],
    ] as const
  ) {
    const stage = new Stage([REPORT]);
    equal(await stage.run(...args, ADDRESS), 0);
    equal([stage.asked, stage.err], [[asked], ""]);
    match(stage.out, /^draining {8}true\n[^]*since {11}2026[^]*depth {11}7\n/);
  }
});

Deno.test("--json gives the report as it came, HTTPS is asked by URL, a token comes from a file", async () => {
  const stage = new Stage([REPORT]);
  stage.disk.writeDurable("/token", new TextEncoder().encode("secret\n"));
  const args = ["--json", "--token-file=/token", "--http-address=https://broker:4152/"];
  equal(await stage.run("status", ...args), 0);
  equal(stage.asked, ["GET https://broker:4152/v1/drainBearer secret"]);
  equal(JSON.parse(stage.out), REPORT);
});

Deno.test("a broker that cannot be asked, or refuses, ends with 2 and the reason", async () => {
  for (const [answer, reason] of [["no connection", /no connection/], [403, /403.*NO/]] as const) {
    for (const command of ["start", "stop", "status", "wait"]) {
      const stage = new Stage([answer]);
      equal(await stage.run(command, ADDRESS), 2);
      match(stage.err, reason);
    }
  }
  for (const answer of [{}, [], null as unknown as object, { ...REPORT, depth: "7" }]) {
    equal(await new Stage([answer]).run("status", ADDRESS), 2);
  }
});

Deno.test("a command line that cannot be followed says why", async () => {
  for (
    const [args, reason] of [
      [["status"], /--http-address is missing/],
      [["status", "--http-address=:::"], /HOST:PORT/],
      [["wait", ADDRESS, "--timeout=soon"], /--timeout takes a duration/],
    ] as const
  ) {
    const stage = new Stage([REPORT]);
    equal(await stage.run(...args), 2);
    match(stage.err, reason);
    equal(stage.asked, []);
  }
});

Deno.test("wait asks until the broker is empty, also while it is away, and ends with 0", async () => {
  const stage = new Stage([REPORT, "no connection", 503, { ...REPORT, depth: 1 }, DONE]);
  equal(await stage.clock.runUntil(stage.run("wait", ADDRESS), 60_000), 0);
  equal(stage.asked.length, 5);
  equal(stage.clock.monoMs() > 0, true);
  match(stage.err, /^left: depth 7, in_flight 2\n$/);
  match(stage.out, /empty {11}true/);
});

Deno.test("wait ends with 1 when it takes too long, and says what is left", async () => {
  const stage = new Stage([{ ...REPORT, delivery_frozen: true }]);
  equal(await stage.clock.runUntil(stage.run("wait", ADDRESS, "--timeout=1s"), 2_000), 1);
  equal(stage.asked.length, 3);
  match(stage.err, /deliveries are frozen\nnot empty within 1s\n$/);
  match(stage.out, /depth {11}7/);
});

Deno.test("wait for rest does not ask for an empty broker", async () => {
  const stage = new Stage([REPORT, { ...REPORT, delivery_frozen: true, quiesced: true }]);
  equal(await stage.clock.runUntil(stage.run("wait", ADDRESS, "--quiesced"), 2_000), 0);
});

Deno.test("a broker that does not drain is not waited for, unless it is empty", async () => {
  const stage = new Stage([REPORT, { ...REPORT, draining: false }]);
  equal(await stage.clock.runUntil(stage.run("wait", ADDRESS), 2_000), 2);
  match(stage.err, /does not drain/);
  equal(await new Stage([{ ...DONE, draining: false }]).run("wait", ADDRESS), 0);
});

Deno.test("for a person the line is written over, elsewhere it is told twice a minute", async () => {
  const watched = new Stage([REPORT, { ...REPORT, depth: 1 }, DONE]);
  watched.isTerminal = true;
  equal(await watched.clock.runUntil(watched.run("wait", ADDRESS), 5_000), 0);
  equal(watched.err, "\rleft: depth 7, in_flight 2\rleft: depth 1, in_flight 2\n");
  const logged = new Stage([REPORT]);
  const waiting = logged.run("wait", ADDRESS, "--timeout=65s");
  await settle();
  equal(await logged.clock.runUntil(waiting, 70_000), 1);
  equal(logged.err.split("left:").length - 1, 3);
});
