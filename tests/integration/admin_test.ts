/** `sluicectl topic`, `channel`, `peek`, `deferred` and `move` against a whole broker in a simulated world. */
import { deepStrictEqual as equal, match, ok } from "node:assert/strict";
import { brokerSettings } from "@sluice/broker/config";
import { Service } from "@sluice/broker/service";
import { run } from "@sluice/ctl/cli";
import { loadSettings } from "@sluice/shared/config";
import { type AskHttp, HttpAskError, type ServeHttpOptions } from "@sluice/shared/runtime";
import { Logger } from "@sluice/shared/telemetry";
import { SeededRandom, settle, SimClock, SimDisk, SimNetwork } from "@sluice/shared/testing";

const ADDRESS = "--http-address=broker:4151";

class Stage {
  readonly clock = new SimClock();
  readonly disk = new SimDisk();
  http: ServeHttpOptions | null = null;
  service: Service | null = null;
  /** In place of the broker. */
  instead: { status: number; text: string } | string | null = null;

  static async use(test: (stage: Stage) => Promise<void>): Promise<void> {
    const stage = new Stage();
    await stage.#start();
    await test(stage);
    await stage.clock.runUntil(stage.service!.stop(), 20_000);
    await settle();
  }

  async #start(): Promise<void> {
    const declaration = brokerSettings("host");
    const { values } = loadSettings(declaration, {
      args: ["--ring-bytes=32MiB", "--data-path=/data", "--http-address=127.0.0.1:4151"],
      env: {},
      readFile: () => "",
    });
    this.service = await Service.start(
      { declaration, values, hostname: "host", nodeIdGiven: false },
      {
        disk: this.disk,
        clock: this.clock,
        random: new SeededRandom(1),
        network: new SimNetwork(),
        serveHttp: (options) => {
          this.http = options;
          const { hostname, port } = options;
          return { hostname, port, shutdown: () => Promise.resolve() };
        },
        serveHttps: () => Promise.reject(new Error("there is no TLS")),
        readTextFile: () => Promise.reject(new Error("there are no files")),
        httpGet: () => Promise.reject(new Error("nobody is asked")),
        askHttp: () => Promise.reject(new HttpAskError("nobody is asked")),
        logger: new Logger({ sink: () => {}, clock: this.clock }),
        memory: () => ({}),
        onBroken: (error) => {
          throw error;
        },
      },
    );
  }

  readonly askHttp: AskHttp = async ({ method, url, headers, body }) => {
    const { instead } = this;
    if (typeof instead === "string") throw new HttpAskError(instead);
    if (instead !== null) {
      return { status: instead.status, body: new TextEncoder().encode(instead.text) };
    }
    ok(this.http !== null);
    const request = new Request(url, {
      method,
      headers,
      ...(body === undefined ? {} : { body: new Uint8Array(body) }),
    });
    const response = await this.http.handler(request, "127.0.0.1:5000");
    return { status: response.status, body: new Uint8Array(await response.arrayBuffer()) };
  };

  /** The exit code, what was written, and what went wrong. */
  async run(...args: string[]): Promise<[code: number, out: string, err: string]> {
    let [out, err] = ["", ""];
    const code = await this.clock.runUntil(
      run([...args, ADDRESS], {
        disk: this.disk,
        clock: this.clock,
        askHttp: this.askHttp,
        out: (bytes) => out += new TextDecoder().decode(bytes),
        err: (text) => err += text,
        errIsTerminal: false,
      }),
      60_000,
    );
    return [code, out, err];
  }

  async publish(topic: string, body: string, query = ""): Promise<void> {
    ok(this.http !== null);
    const request = new Request(`http://h/pub?topic=${topic}${query}`, { method: "POST", body });
    const asked = Promise.resolve(this.http.handler(request, "127.0.0.1:5000"));
    equal((await this.clock.runUntil(asked, 1000)).status, 200);
  }
}

function test(promise: string, use: (stage: Stage) => Promise<void>): void {
  Deno.test(promise, () => Stage.use(use));
}

test("topics and channels are made, listed, paused, emptied and deleted", async (stage) => {
  const done = async (...args: string[]) => {
    const [code, out, err] = await stage.run(...args);
    equal([code, err], [0, ""], args.join(" "));
    match(out, /^done; the registry is at [0-9a-f]{16} \d+\n$/);
    const [again, text] = await stage.run(...args);
    equal([again, text.split(";")[0]], [0, "nothing to do"], args.join(" "));
  };
  await done("topic", "create", "orders");
  await done("channel", "create", "orders", "billing");
  await done("topic", "pause", "orders");
  await done("topic", "unpause", "orders");
  await done("channel", "pause", "orders", "billing");
  await stage.publish("orders", "a");
  equal(await stage.run("topic", "list"), [0, "TOPIC   CHANNELS\norders         1\n", ""]);
  const [, list] = await stage.run("channel", "list", "orders");
  match(list, /^CHANNEL +DEPTH +IN FLIGHT.*PAUSED\nbilling +1 +0 +0 +0 +0 +0s +0 +yes\n$/);
  const [, stats] = await stage.run("topic", "stats", "orders");
  match(stats, /^topic +orders\n[^]*messages published +1\n[^]*\nbilling /);
  const [, channel] = await stage.run("channel", "stats", "orders", "billing");
  match(channel, /^channel +billing\ndepth +1\n/);
  await done("channel", "empty", "orders", "billing");
  await done("channel", "delete", "orders", "billing");
  await done("topic", "delete", "orders");
});

test("--json tells what the broker answers, and an operation id makes a repeat do nothing", async (stage) => {
  const args = ["topic", "create", "orders", "--operation-id=an-id-of-a-script", "--json"];
  const [, first] = await stage.run(...args);
  const [, second] = await stage.run(...args);
  equal({ ...JSON.parse(first), repeated: true }, JSON.parse(second));
  const [, stats] = await stage.run("topic", "stats", "orders", "--json");
  equal(JSON.parse(stats).topic, "orders");
  const [, list] = await stage.run("topic", "list", "--json");
  equal(JSON.parse(list), [{ topic: "orders", channels: [] }]);
});

test("what the broker refuses is told with its reason and ends with 1", async (stage) => {
  const refused = async (...args: string[]) => {
    const [code, out, err] = await stage.run(...args);
    equal([code, out], [1, ""]);
    return err;
  };
  equal(await refused("topic", "pause", "none"), "broker:4151 refuses: TOPIC_NOT_FOUND\n");
  equal(await refused("topic", "stats", "none"), 'there is no topic "none"\n');
  match(
    await refused("topic", "create", "a b"),
    /^broker:4151 refuses: INVALID_OPERATION: topic is the name of a topic\n$/,
  );
  match(
    await refused("topic", "create", "t", "--expected-revision=7"),
    /^broker:4151 refuses: REVISION_CONFLICT: the registry is at [0-9a-f]{16} 0\n$/,
  );
  equal((await stage.run("topic", "delete", "t", "--keep-away=1h"))[0], 0);
  equal(await refused("topic", "create", "t"), "broker:4151 refuses: TOMBSTONED\n");
});

test("peek shows messages on one line each, and nothing that a terminal would act on", async (stage) => {
  await stage.run("topic", "create", "orders");
  await stage.run("channel", "create", "orders", "billing");
  await stage.publish("orders", "first");
  await stage.publish("orders", "\x1b[31mred\n" + "x".repeat(100));
  await stage.publish("orders", "later", "&defer=60000");
  const [code, out] = await stage.run("peek", "orders", "billing", "--count=2");
  equal(code, 0);
  const lines = out.split("\n");
  match(lines[0]!, /^OFFSET +ID +STATE +ATTEMPTS +PUBLISHED +DUE +BYTES +BODY$/);
  match(lines[1]!, /^ +0 +[0-9a-f]{16} +ready +0 +2023-11-14T22:13:20.000Z +- +5 +first$/);
  match(lines[2]!, / \\u\{1b\}\[31mred\\u\{a\}x+\.\.\.$/);
  equal(lines.slice(3), ["more with --from=2", ""]);
  const [, rest] = await stage.run("peek", "orders", "billing", "--from=2", "--json");
  const { messages } = JSON.parse(rest);
  equal(messages.map(({ state, body }: { state: string; body: string }) => [state, body]), [[
    "deferred",
    "later",
  ]]);
});

test("deferred messages are listed and cancelled", async (stage) => {
  await stage.run("topic", "create", "orders");
  await stage.run("channel", "create", "orders", "billing");
  await stage.publish("orders", "later", "&defer=60000");
  const [, out] = await stage.run("deferred", "list", "orders", "billing");
  const id = /[0-9a-f]{16}/.exec(out)?.[0] ?? "";
  match(out, /\n1 of 1\n$/);
  equal(await stage.run("deferred", "cancel", "orders", "billing", id), [
    0,
    `cancelled ${id}\n`,
    "",
  ]);
  equal(await stage.run("deferred", "cancel", "orders", "billing", id), [
    1,
    "",
    "broker:4151 refuses: MESSAGE_NOT_FOUND\n",
  ]);
});

test("move goes on until nothing waits, or as many are moved as were asked for", async (stage) => {
  await stage.run("topic", "create", "dead");
  await stage.run("channel", "create", "dead", "all");
  for (let count = 0; count < 5; count++) await stage.publish("dead", `m${count}`);
  equal(await stage.run("move", "dead", "all", "orders", "--count=2"), [
    0,
    "moved 2 messages (4 bytes), 3 wait still\n",
    "",
  ]);
  equal(await stage.run("move", "dead", "all", "orders"), [
    0,
    "moved 3 messages (6 bytes), nothing waits any more\n",
    "",
  ]);
  const [, json] = await stage.run("move", "dead", "all", "orders", "--json");
  equal(JSON.parse(json), {
    moved: 0,
    moved_bytes: 0,
    damaged: 0,
    remaining: 0,
    complete: true,
    stopped: null,
  });
});

test("the log level of a whole broker is told in words, and goes back by itself", async (stage) => {
  const ask = async (method: string, body?: object) => {
    const { askHttp } = stage;
    const url = "http://broker:4151/v1/log-level";
    const bytes = body && new TextEncoder().encode(JSON.stringify(body));
    const question = { method: method as "GET", url, headers: {}, ...(bytes && { body: bytes }) };
    const bounds = { connectTimeoutMs: 1000, timeoutMs: 1000, bodyBytesMax: 1000 };
    const answer = await askHttp(question, bounds);
    return JSON.parse(new TextDecoder().decode(answer.body));
  };
  const info = { level: "info", until_ms: null, then: null };
  equal(await ask("GET"), info);
  const debug = await ask("PUT", { level: "debug,http=warn", for_ms: 5000 });
  equal([debug.level, debug.then], ["debug,http=warn", "info"]);
  await stage.clock.run(5000);
  equal(await ask("GET"), info);
});

test("what cannot be asked, or is no answer of a broker, ends with 2", async (stage) => {
  const rows = [
    ["connection refused", "Cannot ask broker:4151: connection refused\n"],
    [{ status: 500, text: "oops" }, "broker:4151 answers 500: oops\n"],
    [{ status: 200, text: "\x1b[2J" }, "broker:4151 answers 200: \\u{1b}[2J\n"],
    [{ status: 404, text: "not found" }, "broker:4151 answers 404: not found\n"],
  ] as const;
  for (const [instead, text] of rows) {
    stage.instead = instead;
    equal(await stage.run("topic", "list"), [2, "", text]);
  }
  stage.instead = { status: 200, text: '{"moved":"many","stopped":null}' };
  equal((await stage.run("move", "a", "b", "c"))[0], 0, "an answer without progress ends it");
  stage.instead = null;
});
