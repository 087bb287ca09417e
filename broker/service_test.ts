/** The service put together, in a simulated world. */
import { deepStrictEqual as equal, match, ok, rejects } from "node:assert/strict";
import { loadSettings } from "@sluice/shared/config";
import {
  AddressInUseError,
  DiskError,
  type ServeHttpOptions,
  UNIX_PORT,
} from "@sluice/shared/runtime";
import { Logger } from "@sluice/shared/telemetry";
import {
  SeededRandom,
  settle,
  SimClock,
  SimDatagrams,
  SimDisk,
  SimNetwork,
} from "@sluice/shared/testing";
import { encodeSub } from "@sluice/shared/protocol";
import { brokerSettings } from "./config.ts";
import { Client, HeldDisk, pub } from "./server/world_test.ts";
import { READY_WAIT_MS } from "./server/http_listener.ts";
import { ListenError, Service } from "./service.ts";

class Machine {
  readonly simDisk = new SimDisk();
  readonly disk = new HeldDisk(this.simDisk);
  readonly clock = new SimClock();
  readonly network = new SimNetwork();
  readonly datagrams = new SimDatagrams();
  readonly broken: unknown[] = [];
  readonly lines: string[] = [];
  httpTaken = false;
  http: ServeHttpOptions | null = null;
  /** Resolves what `shutdown` of the HTTP server waits for. */
  httpBusy: Promise<void> = Promise.resolve();

  start(...args: string[]): Promise<Service> {
    const declaration = brokerSettings("host");
    const { values } = loadSettings(declaration, {
      args: [
        "--ring-bytes=32MiB",
        "--data-path=/data",
        "--tcp-address=127.0.0.1:4150",
        "--http-address=127.0.0.1:4151",
        ...args,
      ],
      env: {},
      readFile: () => "",
    });
    return Service.start({ declaration, values, hostname: "host", nodeIdGiven: false }, {
      disk: this.disk,
      clock: this.clock,
      random: new SeededRandom(1),
      network: this.network,
      serveHttp: (options) => {
        if (this.httpTaken) throw new AddressInUseError(options.hostname, options.port);
        this.http = options;
        const { hostname, port } = options;
        return { hostname, port, acceptFailureCount: 3, shutdown: () => this.httpBusy };
      },
      httpGet: () => Promise.reject(new Error("nobody is asked")),
      datagrams: this.datagrams,
      logger: new Logger({ sink: (line) => this.lines.push(line), clock: this.clock }),
      memory: () => ({ heap_objects: 1 }),
      process: () => ({
        residentBytes: 5,
        heapBytes: 4,
        heapUsedBytes: 3,
        externalBytes: 2,
        cpuSeconds: 0.5,
        startSeconds: 1_700_000_000,
      }),
      onBroken: (error) => this.broken.push(error),
    });
  }

  async connect(...first: (string | Uint8Array)[]): Promise<Client> {
    const client = new Client(await this.network.connect("127.0.0.1", 4150, 1000));
    client.read();
    await client.send("  V2", ...first);
    return client;
  }

  async ask(method: string, path: string, body?: string): Promise<string> {
    ok(this.http !== null);
    const request = new Request(`http://127.0.0.1:4151${path}`, {
      method,
      ...(body === undefined ? {} : { body }),
    });
    return await (await this.http.handler(request, "127.0.0.1:5")).text();
  }

  /** What `/v1/health` says in short: HTTP status, status, codes of the reasons. */
  async health(): Promise<[number, string, string[]]> {
    ok(this.http !== null);
    const request = new Request("http://127.0.0.1:4151/v1/health");
    const response = await this.http.handler(request, "127.0.0.1:5");
    const { status, reasons } = await response.json();
    return [response.status, status, reasons.map(({ code }: { code: string }) => code)];
  }

  async stop(service: Service, ...clients: readonly Client[]): Promise<void> {
    await this.clock.runUntil(service.stop(), 20_000);
    await settle();
    for (const client of clients) {
      equal(client.state, "end");
      client.close();
    }
    this.checkClean();
  }

  checkClean(): void {
    const { simDisk, clock, network } = this;
    equal([simDisk.openFiles, clock.pendingTimers, network.openEnds], [0, 0, 0]);
  }
}

Deno.test("a service serves TCP and HTTP over one broker, and keeps it over a restart", async () => {
  const machine = new Machine();
  const first = await machine.start();
  equal(await machine.ask("POST", "/pub?topic=t", "by http"), "OK");
  const client = await machine.connect(pub("t", "by tcp"));
  equal(client.take(), ["OK"]);
  await machine.stop(first, client);
  const second = await machine.start();
  const consumer = await machine.connect(encodeSub("t", "c"), "RDY 5\n");
  equal(consumer.take(), ["OK", "by http #1", "by tcp #1"]);
  await machine.stop(second, consumer);
});

Deno.test("a service tells its settings, addresses and memory over HTTP", async () => {
  const machine = new Machine();
  const service = await machine.start("--broadcast-tcp-port=5", "--msg-timeout=90s");
  const info = await machine.ask("GET", "/info");
  match(info, /"broadcast_address":"host","hostname":"host","http_port":4151,"tcp_port":5,/);
  equal(await machine.ask("GET", "/config/msg_timeout"), "90000000000");
  match(await machine.ask("GET", "/stats?format=json"), /"memory":{"heap_objects":1}/);
  match(await machine.ask("GET", "/metrics"), /\nsluice_connections 0\n/);
  await machine.stop(service);
});

Deno.test("a publish is deferred as far as max-defer-timeout, or else max-req-timeout, allows", async () => {
  const year = 365 * 24 * 60 * 60 * 1000;
  const machine = new Machine();
  const own = await machine.start("--max-defer-timeout=8760h");
  equal(await machine.ask("POST", `/pub?topic=t&defer=${year}`, "a"), "OK");
  match(await machine.ask("POST", `/pub?topic=t&defer=${year + 1}`, "a"), /INVALID_DEFER/);
  const client = await machine.connect(`DPUB t ${year + 1}\n`);
  match(client.take()[0]!, /^E_INVALID DPUB timeout 31536000001 out of range 0-31536000000$/);
  await machine.stop(own, client);
  const shared = await machine.start("--max-req-timeout=2h");
  equal(await machine.ask("POST", "/pub?topic=t&defer=7200000", "a"), "OK");
  match(await machine.ask("POST", "/pub?topic=t&defer=7200001", "a"), /INVALID_DEFER/);
  await machine.stop(shared);
});

Deno.test("a taken address is refused with the flag to change, and everything is given back", async () => {
  const machine = new Machine();
  const listener = machine.network.listen("127.0.0.1", 4150);
  const inUse = (flag: string) => (error: unknown) => {
    ok(error instanceof ListenError);
    match(error.message, new RegExp(`is in use\\. Choose another address with ${flag}$`));
    return true;
  };
  await rejects(machine.start(), inUse("--tcp-address"));
  machine.checkClean();
  listener.close();
  machine.httpTaken = true;
  await rejects(machine.start(), inUse("--http-address"));
  machine.checkClean();
  machine.httpTaken = false;
  await machine.stop(await machine.start());
});

Deno.test("HTTP is up while the log is read: alive, not ready, and TCP is not there yet", async () => {
  const machine = new Machine();
  const first = await machine.start();
  await machine.ask("POST", "/pub?topic=t", "kept");
  await machine.stop(first);
  const release = machine.disk.hold();
  const starting = machine.start();
  await settle();
  const late = [
    machine.ask("GET", "/ping"),
    machine.ask("POST", "/pub?topic=t", "early"),
    machine.ask("GET", "/nothing"),
  ];
  equal(await machine.health(), [503, "unavailable", ["recovering"]]);
  const health = JSON.parse(await machine.ask("GET", "/v1/health"));
  ok(health.recovery.total_bytes > 0);
  ok(health.recovery.replayed_bytes <= health.recovery.total_bytes);
  await rejects(machine.network.connect("127.0.0.1", 4150, 1000));
  // After a moment: alive, and nothing else.
  await machine.clock.run(READY_WAIT_MS);
  equal(await Promise.all(late), ["OK", '{"message":"RECOVERING"}', '{"message":"RECOVERING"}']);
  // What comes shortly before the end finds the broker.
  const patient = machine.ask("GET", "/info");
  release();
  const second = await starting;
  match(await patient, /"tcp_port":4150/);
  equal(await machine.health(), [200, "ok", []]);
  match(await machine.ask("GET", "/stats"), /\[t\s*\] depth: 1 /);
  await machine.stop(second);
});

Deno.test("a path is a Unix socket; tools are told -1 for its port", async () => {
  const machine = new Machine();
  const service = await machine.start("--tcp-address=/run/tcp", "--http-address=/run/http");
  const listening = machine.lines.filter((line) => line.includes("listening on"));
  match(listening[0] ?? "", /HTTP: listening on \/run\/http$/);
  match(listening[1] ?? "", /TCP: listening on \/run\/tcp$/);
  const client = new Client(await machine.network.connect("/run/tcp", UNIX_PORT, 1000));
  client.read();
  await client.send("  V2", pub("t", "x"));
  equal(client.state, "open");
  match(await machine.ask("GET", "/info"), /"http_port":-1,"tcp_port":-1,/);
  match(await machine.ask("GET", "/stats"), /\[t {14}\] depth: 1 /);
  await machine.stop(service, client);
  await rejects(
    machine.start("--lookupd-tcp-address=/run/lookup"),
    /--lookupd-tcp-address=.*no host/,
  );
  machine.checkClean();
});

Deno.test("a data folder that another service holds is refused", async () => {
  const machine = new Machine();
  const service = await machine.start();
  await rejects(machine.start("--tcp-address=127.0.0.1:5150"), DiskError);
  // The HTTP listener of the one that was refused is closed.
  equal(machine.http?.signal?.aborted, true);
  await machine.stop(service);
});

Deno.test("stopping answers what was accepted, refuses what is new, and waits for HTTP", async () => {
  const machine = new Machine();
  const service = await machine.start();
  const release = machine.disk.hold();
  const early = await machine.connect(pub("t", "early"));
  const idle = await machine.connect();
  let finishHttp: () => void = () => {};
  machine.httpBusy = new Promise((resolve) => finishHttp = resolve);
  const stopping = service.stop();
  await settle();
  await idle.send(pub("t", "late"));
  equal(idle.take(), ["E_PUB_FAILED PUB failed exiting", "end"]);
  match(await machine.ask("POST", "/pub?topic=t", "late"), /EXITING/);
  equal(await machine.health(), [503, "unavailable", ["draining"]]);
  equal(early.take(), []);
  finishHttp();
  await settle();
  release();
  await machine.clock.runUntil(stopping, 5_000);
  equal(early.take(), ["OK", "end"]);
  early.close();
  idle.close();
  machine.checkClean();
});

for (const [timeout, graceMs] of [["10s", 1_000], ["2s", 500]] as const) {
  Deno.test(`HTTP requests that do not end are cut off in time to stop within ${timeout}`, async () => {
    const machine = new Machine();
    const service = await machine.start(`--shutdown-timeout=${timeout}`);
    const { signal } = machine.http!;
    machine.httpBusy = new Promise((resolve) => signal!.addEventListener("abort", () => resolve()));
    const stopping = service.stop();
    await machine.clock.run(graceMs - 1);
    equal(signal?.aborted, false);
    await machine.clock.runUntil(stopping, 1);
    equal(signal?.aborted, true);
    machine.checkClean();
  });
}

Deno.test("a failed log is reported once, and stopping still gives everything back", async () => {
  const machine = new Machine();
  const service = await machine.start();
  machine.disk.failSyncs();
  const client = await machine.connect(pub("t", "x"));
  equal(client.take(), ["E_PUB_FAILED PUB failed the log cannot be written", "end"]);
  equal(machine.broken.length, 1);
  equal(await machine.ask("GET", "/ping"), "NOK - the disk is broken");
  equal(await machine.health(), [503, "unavailable", ["storage_fault"]]);
  await machine.stop(service, client);
});

Deno.test("a log that fails while the service stops is reported, and everything is given back", async () => {
  const machine = new Machine();
  const service = await machine.start();
  const release = machine.disk.hold();
  const client = await machine.connect(pub("t", "x"));
  const stopping = machine.stop(service, client);
  await settle();
  equal(machine.broken.length, 0);
  machine.disk.failSyncs();
  release();
  await stopping;
  equal(machine.broken.length, 1);
});

Deno.test("a handler that breaks an invariant is reported", async () => {
  const machine = new Machine();
  const service = await machine.start();
  const response = await machine.http!.onError(new Error("a mistake"));
  equal([response.status, machine.broken.length], [500, 1]);
  await response.text();
  await machine.stop(service);
});

Deno.test("Service tells its figures, to statsd while it runs and no longer", async () => {
  const machine = new Machine();
  const service = await machine.start(
    "--statsd-address=metrics:8125",
    "--statsd-interval=5s",
    "--broadcast-address=10.0.0.7",
    "--statsd-udp-packet-size=65507",
    "--e2e-processing-latency-percentile=0.99",
  );
  await machine.ask("POST", "/topic/create?topic=t");
  await machine.clock.run(5_000);
  await settle();
  equal(machine.datagrams.packets, [{
    to: "metrics:8125",
    text: [
      "topic.t.message_count:0|c",
      "topic.t.message_bytes:0|c",
      "topic.t.depth:0|g",
      "topic.t.backend_depth:0|g",
      "mem.heap_objects:1|g",
    ].map((line) => `nsq.10_0_0_7_4151.${line}\n`).join(""),
  }]);
  const metrics = await machine.ask("GET", "/metrics");
  match(metrics, /^sluice_statsd_packets_total 1$/m);
  match(metrics, /^sluice_accept_failures_total\{protocol="tcp"\} 0$/m);
  match(metrics, /^sluice_accept_failures_total\{protocol="http"\} 3$/m);
  match(metrics, /^sluice_process_resident_bytes 5$/m);
  match(metrics, /^sluice_process_cpu_seconds_total 0\.5$/m);
  match(metrics, /^sluice_build_info\{version="1\.3\.0\+sluice\.[^"]+"\} 1$/m);
  await machine.stop(service);
  equal([machine.datagrams.packets.length, machine.datagrams.open], [1, 0]);
});

Deno.test("Service takes another log level and other discovery services while it runs", async () => {
  const machine = new Machine();
  const service = await machine.start();
  const { logger } = service.broker;
  equal([logger.level, service.broker.knownChannels], ["info", null]);
  equal(await machine.ask("PUT", "/config/log_level", "error"), "4");
  equal(logger.level, "error");
  const listener = machine.network.listen("lookup", 4160);
  equal(
    await machine.ask("PUT", "/config/nsqlookupd_tcp_addresses", '["lookup:4160"]'),
    '["lookup:4160"]',
  );
  const connection = await listener.accept();
  ok(connection !== null && service.broker.knownChannels !== null);
  equal(await machine.ask("PUT", "/config/nsqlookupd_tcp_addresses", "[]"), "[]");
  equal(service.broker.knownChannels, null);
  connection.close();
  listener.close();
  await machine.stop(service);
});
