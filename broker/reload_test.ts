/** Reloading a service, in a simulated world. */
import { deepStrictEqual as equal, match, ok, rejects } from "node:assert/strict";
import { loadSettings, SettingsError } from "@sluice/shared/config";
import { encodeIdentify, encodeSub, utf8Bytes } from "@sluice/shared/protocol";
import { replaceFile, type ServeHttpOptions } from "@sluice/shared/runtime";
import { Logger } from "@sluice/shared/telemetry";
import {
  SeededRandom,
  settle,
  SimClock,
  SimDisk,
  SimNetwork,
  tlsPair,
} from "@sluice/shared/testing";
import { brokerSettings } from "./config.ts";
import { RELOADED_KEYS } from "./reload.ts";
import { Client, pub } from "./server/world_test.ts";
import { Service } from "./service.ts";

const FILE = "/etc/sluice.toml";

class Machine {
  file = "";
  readonly disk = new SimDisk();
  readonly clock = new SimClock();
  readonly network = new SimNetwork();
  readonly lines: string[] = [];
  pair = tlsPair("server");
  readonly renewed: string[] = [];
  #http: ServeHttpOptions | null = null;

  async start(...args: string[]): Promise<Service> {
    await this.disk.makeDirectory("/etc");
    const declaration = brokerSettings("host");
    const read = () =>
      loadSettings(declaration, {
        args: [`--config=${FILE}`, "--ring-bytes=32MiB", "--data-path=/data", ...args],
        env: { SLUICE_MSG_TIMEOUT: "30s" },
        readFile: () => this.file,
      });
    const { values } = read();
    return await Service.start(
      { declaration, values, hostname: "host", nodeIdGiven: false, read },
      {
        disk: this.disk,
        clock: this.clock,
        random: new SeededRandom(1),
        network: this.network,
        serveHttp: (options) => {
          this.#http = options;
          const { hostname, port } = options;
          return { hostname, port, shutdown: () => Promise.resolve() };
        },
        serveHttps: ({ hostname, port }) =>
          Promise.resolve({
            hostname,
            port,
            shutdown: () => Promise.resolve(),
            renew: (tls) => this.renewed.push(tls.certificate),
          }),
        readTextFile: (path) => Promise.resolve(path === "/cert" ? this.pair.cert : this.pair.key),
        httpGet: () => Promise.reject(new Error("nobody is asked")),
        askHttp: () => Promise.reject(new Error("nobody is asked")),
        logger: new Logger({ sink: (line) => this.lines.push(line), clock: this.clock }),
        memory: () => ({}),
        onBroken: (error) => {
          throw error;
        },
      },
    );
  }

  async ask(
    method: string,
    path: string,
    from = "127.0.0.1:5",
    body?: string,
  ): Promise<[number, string]> {
    ok(this.#http !== null);
    const init = { method, ...(body === undefined ? {} : { body }) };
    const request = new Request(`http://127.0.0.1:4151${path}`, init);
    const response = await this.#http.handler(request, from);
    return [response.status, await response.text()];
  }

  async connect(...first: (string | Uint8Array)[]): Promise<Client> {
    const client = new Client(await this.network.connect("0.0.0.0", 4150, 1000));
    client.read();
    await client.send("  V2", ...first);
    return client;
  }

  async stop(service: Service, ...clients: readonly Client[]): Promise<void> {
    await this.clock.runUntil(service.stop(), 20_000);
    await settle();
    for (const client of clients) client.close();
  }
}

Deno.test("what the table of effects names is what the declaration says can be reloaded", () => {
  const { settings } = brokerSettings("host");
  const declared = Object.entries(settings).filter(([, { reload }]) => reload).map(([key]) => key);
  equal([...RELOADED_KEYS].sort(), declared.sort());
});

Deno.test("a reload applies what can change, and says what needs a restart", async () => {
  const machine = new Machine();
  const service = await machine.start();
  const before = await machine.connect(
    encodeIdentify({ feature_negotiation: true }),
    encodeSub("t", "c"),
  );
  equal(JSON.parse(before.take()[0]!).max_rdy_count, 2500);
  machine.file = [
    'log_level = "warn"',
    "max_rdy_count = 10",
    "topic_publish_rate = 1",
    'msg_timeout = "50s"',
    'data_path = "/other"',
    "snappy = false",
    'nsqlookupd_tcp_addresses = ["lookup:4160"]',
  ].join("\n");
  const { changed, needsRestart } = await service.reload();
  equal(changed.map(({ name, before, after }) => [name, before, after]), [
    ["lookupd-tcp-address", "", "lookup:4160"],
    ["max-rdy-count", "2500", "10"],
    ["topic-publish-rate", "0", "1"],
    ["log-level", "info", "warn"],
  ]);
  equal(needsRestart.map(({ name, before, after }) => [name, before, after]), [
    ["snappy", "true", "false"],
  ], "a flag and the environment win over the file");
  match(machine.lines.join("\n"), /WARN +A setting needs a restart .*name=snappy in_use=true/);
  const after = await machine.connect(encodeIdentify({ feature_negotiation: true }));
  const { max_rdy_count, msg_timeout } = JSON.parse(after.take()[0]!);
  equal([max_rdy_count, msg_timeout], [10, 30_000]);
  await before.send("RDY 2500\n");
  equal(before.take(), [], "what a connection was told holds for it");
  await after.send(pub("t", "a"), pub("t", "a"));
  match(after.take().join(), /^OK,E_THROTTLED/);
  equal((await machine.ask("GET", "/config/log_level"))[1], "3");
  equal((await machine.ask("GET", "/config/max_rdy_count"))[1], "10");
  ok(service.broker.administration.knownChannels !== null);
  machine.file = "";
  equal((await service.reload()).changed.length, 4, "what is configured no more is the default");
  ok(service.broker.administration.knownChannels === null);
  await machine.stop(service, before, after);
});

Deno.test("POST /v1/reload is for admins, says what SIGHUP would log, and 422 for what is wrong", async () => {
  const machine = new Machine();
  const service = await machine.start();
  equal((await machine.ask("POST", "/v1/reload", "192.0.2.1:5"))[0], 403);
  machine.file = 'log_level = "error"\nsnappy = false\n';
  const [status, text] = await machine.ask("POST", "/v1/reload");
  equal([status, JSON.parse(text)], [200, {
    changed: [{ name: "log-level", before: "info", after: "error", origin: "file" }],
    needs_restart: [{ name: "snappy", in_use: "true", configured: "false" }],
    files: [],
  }]);
  machine.file = 'log_level = "loud"\nmax_rdy_count = 1\n';
  const [refused, why] = await machine.ask("POST", "/v1/reload");
  const { message, problems } = JSON.parse(why);
  equal([refused, message, problems.length], [422, "INVALID_SETTINGS", 1]);
  match(problems[0], /log_level in \/etc\/sluice\.toml: got "loud"/);
  equal((await machine.ask("GET", "/config/max_rdy_count"))[1], "2500", "nothing has changed");
  machine.file = 'nsqlookupd_tcp_addresses = ["/a/socket"]\n';
  await rejects(service.reload(), SettingsError);
  match(machine.lines.at(-1)!, /ERROR The settings cannot be used; those before stay in use/);
  await machine.stop(service);
});

Deno.test("a reload takes what was changed over HTTP back to what is configured", async () => {
  const machine = new Machine();
  machine.file = 'log_level = "warn"\n';
  const service = await machine.start();
  equal(await machine.ask("PUT", "/config/log_level", "127.0.0.1:5", "debug"), [200, "1"]);
  equal((await service.reload()).changed, [
    { name: "log-level", before: "debug", after: "warn", origin: "file" },
  ]);
  equal(await machine.ask("GET", "/config/log_level"), [200, "3"]);
  await machine.stop(service);
});

Deno.test("a level of the log for a while goes back to the one before, and a reload ends it", async () => {
  const machine = new Machine();
  machine.file = 'log_level = "warn,storage=debug"\n';
  const service = await machine.start();
  const put = (body: string) => machine.ask("PUT", "/v1/log-level", "127.0.0.1:5", body);
  const level = async () => JSON.parse((await machine.ask("GET", "/v1/log-level"))[1]).level;
  equal((await put('{"level":"error","for_ms":60000}'))[0], 200);
  equal(await level(), "error");
  await machine.clock.run(61_000);
  equal(await level(), "warn,storage=debug");
  equal((await put('{"level":"debug","for_ms":60000}'))[0], 200);
  await service.reload();
  equal(await level(), "warn,storage=debug");
  await machine.stop(service);
});

Deno.test("certificates and grants are read at once, and those that do not fit stay as they were", async () => {
  const machine = new Machine();
  const grants = (token: string) => {
    const allow = [{ scopes: ["publish"], topics: ["*"] }];
    const text = JSON.stringify({ identity: [{ name: "shop", token, allow }] });
    return replaceFile(machine.disk, "/etc/grants", utf8Bytes(text));
  };
  await machine.disk.makeDirectory("/etc");
  await grants("first");
  const service = await machine.start(
    "--tls-cert=/cert",
    "--tls-key=/key",
    "--grants-file=/etc/grants",
  );
  equal((await service.reload()).files, [
    { setting: "tls-cert", path: "/cert", outcome: "unchanged" },
    { setting: "grants-file", path: "/etc/grants", outcome: "unchanged" },
  ]);
  machine.pair = tlsPair("renewed");
  await grants("second");
  equal((await service.reload()).files.map(({ outcome }) => outcome), ["changed", "changed"]);
  equal(machine.renewed, [machine.pair.cert]);
  machine.pair = { ...machine.pair, key: "none" };
  await replaceFile(machine.disk, "/etc/grants", utf8Bytes("{"));
  const { files } = await service.reload();
  equal(files.map(({ outcome }) => outcome), ["refused", "refused"]);
  match(files[0]!.reason!, /^Cannot use --tls-key=\/key: it holds no private key/);
  await machine.stop(service);
});
