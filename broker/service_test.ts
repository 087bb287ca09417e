/** The service put together, in a simulated world. */
import { deepStrictEqual as equal, match, ok, rejects } from "node:assert/strict";
import { loadSettings } from "@sluice/shared/config";
import {
  AddressInUseError,
  type AskHttp,
  DiskError,
  HttpAskError,
  replaceFile,
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
  tlsAuthority,
  type TlsIdentity,
  tlsPair,
} from "@sluice/shared/testing";
import { encodeAuth, encodeIdentify, encodeSub, utf8Bytes } from "@sluice/shared/protocol";
import {
  ListenError,
  READY_WAIT_MS,
  RELOAD_INTERVAL_MS,
  TlsFilesError,
} from "@sluice/shared/server";
import { brokerSettings } from "./config.ts";
import { Client, HeldDisk, pub } from "./server/world_test.ts";
import { Service, StartStoppedError } from "./service.ts";

class Machine {
  readonly simDisk = new SimDisk();
  readonly disk = new HeldDisk(this.simDisk);
  readonly clock = new SimClock();
  readonly network = new SimNetwork();
  readonly datagrams = new SimDatagrams();
  readonly broken: unknown[] = [];
  readonly lines: string[] = [];
  askHttp: AskHttp = () => Promise.reject(new HttpAskError("nobody is asked"));
  httpTaken = false;
  http: ServeHttpOptions | null = null;
  https: ServeHttpOptions | null = null;
  /** Files of certificates and keys. */
  readonly files = new Map<string, string>();
  /** The runtime takes no certificate. */
  isWeak = false;
  /** Certificates that HTTPS was told to use from then on. */
  readonly renewed: string[] = [];
  /** Resolves what `shutdown` of the HTTP server waits for. */
  httpBusy: Promise<void> = Promise.resolve();

  start(...args: string[]): Promise<Service> {
    return this.startUntil(new AbortController().signal, ...args);
  }

  startUntil(stop: AbortSignal, ...args: string[]): Promise<Service> {
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
      serveHttps: (options) => {
        if (this.isWeak) return Promise.reject(new Error("key too small"));
        this.https = options;
        const { hostname, port } = options;
        return Promise.resolve({
          hostname,
          port,
          shutdown: () => Promise.resolve(),
          renew: (tls) => {
            if (this.isWeak) throw new Error("key too small");
            this.renewed.push(tls.certificate);
          },
        });
      },
      readTextFile: (path) => {
        const text = this.files.get(path);
        return text === undefined ? Promise.reject(new Error("not found")) : Promise.resolve(text);
      },
      httpGet: () => Promise.reject(new Error("nobody is asked")),
      askHttp: this.askHttp,
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
    }, stop);
  }

  async connect(...first: (string | Uint8Array)[]): Promise<Client> {
    const client = new Client(await this.network.connect("127.0.0.1", 4150, 1000));
    client.read();
    await client.send("  V2", ...first);
    return client;
  }

  async ask(method: string, path: string, body?: string, token?: string): Promise<string> {
    ok(this.http !== null);
    const request = new Request(`http://127.0.0.1:4151${path}`, {
      method,
      headers: token === undefined ? {} : { Authorization: `Bearer ${token}` },
      ...(body === undefined ? {} : { body }),
    });
    return await (await this.http.handler(request, "127.0.0.1:5")).text();
  }

  async askHttps(path: string): Promise<string> {
    ok(this.https !== null);
    const request = new Request(`https://127.0.0.1:4152${path}`);
    return await (await this.https.handler(request, "127.0.0.1:5")).text();
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
  equal(await machine.health(), [503, "unavailable", ["stopping"]]);
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

Deno.test("for drain-delay health says stopping, and everything else goes on", async () => {
  const machine = new Machine();
  const service = await machine.start("--drain-delay=5s");
  const consumer = await machine.connect(encodeSub("t", "c"), "RDY 5\n");
  equal(consumer.take(), ["OK"]);
  const stopping = service.stop();
  await machine.clock.run(4_990);
  equal(await machine.health(), [503, "unavailable", ["stopping"]]);
  const { publish_ready, consume_ready } = JSON.parse(
    await machine.ask("GET", "/v1/registry/head"),
  );
  equal([publish_ready, consume_ready], [false, false]);
  const late = await machine.connect(pub("t", "one"), pub("new", "x"));
  equal(late.take(), ["OK", "OK"]);
  equal(await machine.ask("POST", "/pub?topic=t", "two"), "OK");
  equal(consumer.take(), ["one #1", "two #1"]);
  equal(machine.http!.signal!.aborted, false);
  await machine.clock.runUntil(stopping, 20);
  equal([late.take(), consumer.take()], [["end"], ["end"]]);
  late.close();
  consumer.close();
  await settle();
  machine.checkClean();
});

Deno.test("a body that is half here is answered when the end begins, and not before", async () => {
  const machine = new Machine();
  const service = await machine.start("--drain-delay=1s");
  const answers: string[] = [];
  const post = (path: string, headers: Record<string, string> = {}) => {
    const body = new ReadableStream({
      start: (controller) => controller.enqueue(utf8Bytes("half")),
    });
    const request = new Request(`http://127.0.0.1:4151${path}?topic=t`, {
      method: "POST",
      headers,
      body,
    });
    void Promise.resolve(machine.http!.handler(request, "127.0.0.1:5")).then(async (response) =>
      answers.push(`${response.status} ${await response.text()}`)
    );
  };
  post("/pub", { "content-length": "100" });
  post("/mpub", { "content-length": "100" });
  // Without a length it may be a large one, which goes another way.
  post("/pub");
  await settle();
  const stopping = service.stop();
  await machine.clock.run(999);
  equal(answers, []);
  await machine.clock.run(1);
  equal(answers, Array.from({ length: 3 }, () => '503 {"message":"EXITING"}'));
  await machine.clock.runUntil(stopping, 0);
  equal(service.broker.exit.waitingCount, 0);
  machine.checkClean();
});

Deno.test("a probe that writes is answered in a stop, and a disk that hangs does not delay its answer", async () => {
  const machine = new Machine();
  const service = await machine.start();
  const release = machine.disk.hold();
  let answer = "";
  void machine.ask("GET", "/v1/health?probe=write").then((text) => answer = text);
  await settle();
  const stopping = service.stop();
  await machine.clock.run(2_000);
  match(answer, /write_probe_slow/);
  release();
  await machine.clock.runUntil(stopping, 2_000);
  machine.checkClean();
});

Deno.test("what a consumer had in flight at a stop comes again at once after the start, and counts", async () => {
  const machine = new Machine();
  const first = await machine.start();
  const client = await machine.connect(
    ...["a", "b", "c"].map((body) => pub("t", body)),
    encodeSub("t", "c"),
    "RDY 5\n",
  );
  equal(client.take().slice(4), ["a #1", "b #1", "c #1"]);
  await client.send(`FIN ${client.ids[1]}\n`);
  await machine.stop(first, client);
  const second = await machine.start();
  const next = await machine.connect(encodeSub("t", "c"), "RDY 5\n");
  equal(next.take(), ["OK", "a #2", "c #2"]);
  await machine.stop(second, next);
});

for (const when of ["before it listens for HTTP", "while it reads the log"]) {
  Deno.test(`a start that is told to stop ${when} ends at once and answers who waits`, async () => {
    const machine = new Machine();
    const first = await machine.start();
    const client = await machine.connect(pub("t", "kept"));
    equal(client.take(), ["OK"]);
    await machine.stop(first, client);
    const stop = new AbortController();
    const isListening = when.startsWith("while");
    if (!isListening) stop.abort();
    // The start waits here for as long as it takes.
    const release = machine.disk.holdReads();
    const starting = rejects(machine.startUntil(stop.signal), StartStoppedError);
    await settle();
    let answer = "";
    if (isListening) void machine.ask("GET", "/stats").then((text) => answer = text);
    stop.abort();
    await machine.clock.runUntil(starting, 0);
    if (isListening) match(answer, /RECOVERING/);
    release();
    await settle();
    // In the real world the process is gone by now.
    await machine.clock.run(5_000);
    machine.checkClean();
    const second = await machine.start();
    const consumer = await machine.connect(encodeSub("t", "c"), "RDY 5\n");
    equal(consumer.take(), ["OK", "kept #1"]);
    await machine.stop(second, consumer);
  });
}

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
  match(await machine.ask("GET", "/config/statsd_prefix"), /^(?:200 )?nsq\.10_0_0_7_4151\.$/);
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
  equal([logger.level, service.broker.administration.knownChannels], ["info", null]);
  equal(await machine.ask("PUT", "/config/log_level", "error"), "4");
  equal(logger.level, "error");
  const listener = machine.network.listen("lookup", 4160);
  equal(
    await machine.ask("PUT", "/config/nsqlookupd_tcp_addresses", '["lookup:4160"]'),
    '["lookup:4160"]',
  );
  const connection = await listener.accept();
  ok(connection !== null && service.broker.administration.knownChannels !== null);
  equal(await machine.ask("PUT", "/config/nsqlookupd_tcp_addresses", "[]"), "[]");
  equal(service.broker.administration.knownChannels, null);
  connection.close();
  listener.close();
  await machine.stop(service);
});
const TLS_FLAGS = ["--tls-cert=cert", "--tls-key=key", "--https-address=127.0.0.1:4152"];

/** A machine with the certificate of an identity. */
function machineWithTls(identity: TlsIdentity = "server"): Machine {
  const machine = new Machine();
  putCertificate(machine, identity);
  machine.files.set("ca", tlsAuthority());
  return machine;
}

function putCertificate(machine: Machine, identity: TlsIdentity): void {
  const { cert, key } = tlsPair(identity);
  machine.files.set("cert", cert);
  machine.files.set("key", key);
}

Deno.test("a service with a certificate serves HTTPS too, and offers TLS", async () => {
  const machine = machineWithTls();
  const service = await machine.start(...TLS_FLAGS);
  equal([service.httpPort, service.httpsPort], [4151, 4152]);
  equal(await machine.ask("GET", "/ping"), "OK");
  equal(await machine.askHttps("/ping"), "OK");
  match(
    await machine.askHttps("/metrics"),
    /\nsluice_tls_certificate_expiry_timestamp_seconds 4\d/,
  );
  const client = await machine.connect(
    encodeIdentify({ feature_negotiation: true, deflate: true, deflate_level: 9 }),
  );
  const reply = JSON.parse(client.take()[0] ?? "");
  equal([reply.tls_v1, reply.deflate, reply.deflate_level], [false, true, 6]);
  client.close();
  await machine.stop(service);
});

Deno.test("a service without a certificate has no HTTPS, and no TLS to offer", async () => {
  const machine = new Machine();
  const service = await machine.start("--snappy=false", "--deflate=false");
  equal([service.httpsPort, machine.https], [null, null]);
  const client = await machine.connect(
    encodeIdentify({ feature_negotiation: true, tls_v1: true, snappy: true, deflate: true }),
  );
  const reply = JSON.parse(client.take()[0] ?? "");
  equal([reply.tls_v1, reply.snappy, reply.deflate], [false, false, false]);
  await machine.stop(service, client);
});

Deno.test("where TLS is required HTTP in clear says so to everything", async () => {
  const machine = machineWithTls();
  const service = await machine.start(...TLS_FLAGS, "--tls-required");
  for (const path of ["/ping", "/stats", "/metrics", "/v1/health", "/nothing"]) {
    equal(await machine.ask("GET", path), '{"message": "TLS_REQUIRED", "https_port": 4152}');
  }
  equal(await machine.askHttps("/ping"), "OK");
  const client = await machine.connect(pub("t", "in clear"));
  equal(client.take(), ["E_INVALID cannot PUB in current state (TLS required)", "end"]);
  client.close();
  await machine.stop(service);
});

Deno.test("tcp-https requires TLS of NSQ clients and leaves HTTP open", async () => {
  const machine = machineWithTls();
  const service = await machine.start(...TLS_FLAGS, "--tls-required=tcp-https");
  equal(await machine.ask("POST", "/pub?topic=t", "by http"), "OK");
  const client = await machine.connect("NOP\n");
  equal(client.take(), ["E_INVALID cannot NOP in current state (TLS required)", "end"]);
  client.close();
  await machine.stop(service);
});

Deno.test("a service does not start with files that are no certificate and key", async () => {
  const { cert } = tlsPair("server");
  const other = tlsPair("renewed").key;
  const rows: [files: Record<string, string>, problem: RegExp][] = [
    [{}, /Cannot read --tls-cert=cert: not found/],
    [{ cert }, /Cannot read --tls-key=key: not found/],
    [{ cert: "x", key: other }, /Cannot use --tls-cert=cert: it holds no certificate in PEM/],
    [{ cert, key: "x" }, /Cannot use --tls-key=key: it holds no private key in PEM without a pass/],
    [{ cert, key: other }, /Cannot use --tls-key=key: it is not the key of --tls-cert=cert/],
    [{ ...tlsFiles(), ca: "x" }, /Cannot use --tls-root-ca-file=ca: it holds no certificate/],
  ];
  for (const [files, problem] of rows) {
    const machine = new Machine();
    machine.files.set("ca", tlsAuthority());
    for (const [path, text] of Object.entries(files)) machine.files.set(path, text);
    await rejects(machine.start(...TLS_FLAGS, "--tls-root-ca-file=ca"), (error: Error) => {
      ok(error instanceof TlsFilesError);
      match(error.message, problem);
      return true;
    });
    machine.checkClean();
  }
});

Deno.test("a changed certificate is used within a minute, and one that does not fit is not", async () => {
  const machine = machineWithTls();
  const service = await machine.start(...TLS_FLAGS);
  const renewed = tlsPair("renewed");
  machine.files.set("cert", renewed.cert);
  await machine.clock.run(RELOAD_INTERVAL_MS);
  await machine.clock.run(RELOAD_INTERVAL_MS);
  equal(machine.renewed, []);
  equal(machine.lines.filter((line) => line.includes("do not fit")).length, 1);
  machine.files.set("key", renewed.key);
  await machine.clock.run(RELOAD_INTERVAL_MS);
  equal(machine.renewed, [renewed.cert]);
  await machine.clock.run(RELOAD_INTERVAL_MS);
  equal(machine.renewed.length, 1);
  await machine.stop(service);
});

Deno.test("a certificate that the runtime refuses fails the start, and changes nothing later", async () => {
  const machine = machineWithTls();
  machine.isWeak = true;
  await rejects(machine.start(...TLS_FLAGS), (error: Error) => {
    ok(error instanceof TlsFilesError);
    equal(error.message, "Cannot serve TLS with --tls-cert and --tls-key: key too small");
    return true;
  });
  machine.checkClean();
  machine.isWeak = false;
  const service = await machine.start(...TLS_FLAGS);
  machine.isWeak = true;
  putCertificate(machine, "renewed");
  await machine.clock.run(RELOAD_INTERVAL_MS);
  await machine.clock.run(RELOAD_INTERVAL_MS);
  equal(machine.renewed, []);
  equal(machine.lines.filter((line) => line.includes("key too small")).length, 1);
  machine.isWeak = false;
  await machine.clock.run(RELOAD_INTERVAL_MS);
  equal(machine.renewed, [tlsPair("renewed").cert]);
  await machine.stop(service);
});

Deno.test("a certificate that is not valid any more is used, with a warning", async () => {
  const machine = machineWithTls("expired");
  // Simulated time starts before the fixture was made.
  machine.clock.jumpWall(Date.parse("2126-01-01T00:00:00Z") - machine.clock.wallMs());
  const service = await machine.start(...TLS_FLAGS);
  ok(machine.lines.some((line) => line.includes("The TLS certificate is not valid any more")));
  await machine.stop(service);
});

function tlsFiles(): Record<string, string> {
  const { cert, key } = tlsPair("server");
  return { cert, key };
}

const AUTH_REPLY = {
  ttl: 60,
  identity: "joe",
  authorizations: [{ topic: "^t$", channels: [".*"], permissions: ["publish", "subscribe"] }],
};

Deno.test("a service without a source of grants says so once, and with one it does not", async () => {
  const machine = new Machine();
  const open = /Everybody who can connect may publish, consume and delete/;
  await machine.stop(await machine.start());
  equal(machine.lines.filter((line) => open.test(line)).length, 1);
  machine.lines.length = 0;
  await machine.stop(await machine.start("--auth-http-address=auth:1"));
  equal(machine.lines.filter((line) => open.test(line)).length, 0);
});

Deno.test("a service with --auth-http-address authorizes TCP as nsqd does, and HTTP by bearer token", async () => {
  const machine = new Machine();
  const asked: string[] = [];
  machine.askHttp = ({ url, method }, bounds) => {
    asked.push(`${method} ${url}`);
    equal([bounds.connectTimeoutMs, bounds.timeoutMs], [1_000, 3_000]);
    const isKnown = url.includes("opensesame");
    const text = JSON.stringify(isKnown ? AUTH_REPLY : { ttl: 1 });
    return Promise.resolve({ status: 200, body: new TextEncoder().encode(text) });
  };
  const service = await machine.start(
    "--auth-http-address=auth:1",
    "--http-client-connect-timeout=1s",
    "--http-client-request-timeout=3s",
  );
  const client = await machine.connect(
    encodeIdentify({ feature_negotiation: true }),
    encodeAuth(utf8Bytes("opensesame")),
    pub("t", "a"),
    encodeSub("t", "c"),
  );
  const [identified = "", ...rest] = client.take();
  equal(JSON.parse(identified).auth_required, true);
  equal(rest, ['{"identity":"joe","identity_url":"","permission_count":1}', "OK", "OK"]);
  match(asked[0] ?? "", /^GET http:\/\/auth:1\/auth\?common_name=&remote_ip=.*&secret=opensesame&/);
  const denied = await machine.connect(encodeAuth(utf8Bytes("wrong")));
  equal(denied.take(), ["E_UNAUTHORIZED AUTH no authorizations found", "end"]);
  match(await machine.ask("POST", "/pub?topic=t", "a"), /AUTH_REQUIRED/);
  match(await machine.ask("GET", "/stats"), /AUTH_REQUIRED/);
  equal(await machine.ask("POST", "/pub?topic=t", "a", "opensesame"), "OK");
  match(await machine.ask("POST", "/pub?topic=other", "a", "opensesame"), /FORBIDDEN/);
  equal(await machine.ask("GET", "/ping"), "OK");
  equal(await machine.health(), [200, "ok", []]);
  denied.close();
  await machine.stop(service, client);
  ok(!machine.lines.some((line) => /opensesame|wrong/.test(line)));
});

Deno.test("a service with --auth-http-api=false keeps nsqd's HTTP open", async () => {
  const machine = new Machine();
  const service = await machine.start("--auth-http-address=auth:1", "--auth-http-api=false");
  equal(await machine.ask("POST", "/pub?topic=t", "a"), "OK");
  match(await machine.ask("POST", "/v1/storage/scrub"), /AUTH_REQUIRED/);
  const client = await machine.connect(pub("t", "a"));
  equal(client.take(), ["E_AUTH_FIRST AUTH required before PUB", "end"]);
  client.close();
  await machine.stop(service);
});

Deno.test("a service takes changed grants without a restart, and stops watching when it stops", async () => {
  const machine = new Machine();
  const write = async (token: string) => {
    const allow = [{ scopes: ["publish", "consume"], topics: ["t"] }];
    const text = JSON.stringify({ identity: [{ name: "shop", token, allow }] });
    await machine.simDisk.makeDirectory("/etc");
    await replaceFile(machine.simDisk, "/etc/grants", utf8Bytes(text));
  };
  await rejects(machine.start("--grants-file=/etc/grants"), /Cannot use --grants-file/);
  await write("first");
  const service = await machine.start("--grants-file=/etc/grants");
  const client = await machine.connect(
    encodeAuth(utf8Bytes("first")),
    encodeSub("t", "c"),
    pub("t", "a"),
  );
  equal(client.take(), ['{"identity":"shop","identity_url":"","permission_count":1}', "OK", "OK"]);
  await machine.clock.run(8_000);
  equal(client.take(), []);
  await write("second");
  await machine.clock.run(11_000);
  equal(client.take(), ['E_UNAUTHORIZED AUTH failed for SUB on "t" "c"', "end"]);
  match(await machine.ask("POST", "/pub?topic=t", "a", "first"), /INVALID_TOKEN/);
  equal(await machine.ask("POST", "/pub?topic=t", "a", "second"), "OK");
  await machine.stop(service, client);
});

Deno.test("a client that has said who it is has one rate of publishes, wherever it comes from", async () => {
  const machine = new Machine();
  const allow = [{ scopes: ["publish"], topics: ["*"] }];
  const identity = ["shop", "mail"].map((name) => ({ name, token: `token-${name}`, allow }));
  await machine.simDisk.makeDirectory("/etc");
  const text = JSON.stringify({ identity });
  await replaceFile(machine.simDisk, "/etc/grants", utf8Bytes(text));
  const service = await machine.start("--grants-file=/etc/grants", "--client-publish-rate=2");
  const auth = (name: string) => encodeAuth(utf8Bytes(`token-${name}`));
  const shop = await machine.connect(auth("shop"), pub("t", "a"));
  equal(await machine.ask("POST", "/pub?topic=t", "a", "token-shop"), "OK");
  match(await machine.ask("POST", "/pub?topic=t", "a", "token-shop"), /THROTTLED/);
  const mail = await machine.connect(auth("mail"), pub("t", "a"), pub("t", "a"));
  equal(mail.take().slice(1), ["OK", "OK"]);
  await shop.send(pub("t", "a"));
  equal(shop.take().slice(1), ["OK", "E_THROTTLED PUB the client publishes too fast", "end"]);
  shop.close();
  await machine.stop(service, mail);
});
