/**
 * A gateway put together in a simulated world, with brokers, for tests. Its process can be killed: what
 * it still had to do does not happen. Has no tests of its own.
 */
import { deepStrictEqual as equal, ok } from "node:assert/strict";
import { loadSettings } from "@sluice/shared/config";
import {
  FrameDecoder,
  FrameEvent,
  HEARTBEAT_TEXT,
  MAGIC_V2,
  NOP_COMMAND,
} from "@sluice/shared/protocol";
import {
  AddressInUseError,
  type AskHttp,
  type Connection,
  ConnectionError,
  type DiskFile,
  HttpAskError,
  type Listener,
  type Network,
  type ServeHttpOptions,
} from "@sluice/shared/runtime";
import { Logger } from "@sluice/shared/telemetry";
import {
  DiskFileWrapper,
  DiskWrapper,
  SeededRandom,
  settle,
  SimClock,
  SimDisk,
  SimNetwork,
} from "@sluice/shared/testing";
import { gatewaySettings } from "./config.ts";
import { FakeBroker } from "./fake_broker_test.ts";
import { Gateway } from "./service.ts";
import { MortalDisk } from "./spool/mortal_disk_test.ts";

/** A disk whose reads of the log can be held back, as on a slow start. */
class SlowDisk extends DiskWrapper {
  gate: Promise<void> = Promise.resolve();

  override wrapFile(file: DiskFile, path: string): DiskFile {
    return path.endsWith(".log") ? new SlowFile(file, () => this.gate) : file;
  }
}

class SlowFile extends DiskFileWrapper {
  readonly #gate: () => Promise<void>;

  constructor(inner: DiskFile, gate: () => Promise<void>) {
    super(inner);
    this.#gate = gate;
  }

  override async readAt(position: number, into: Uint8Array): Promise<number> {
    await this.#gate();
    return await super.readAt(position, into);
  }
}

/** The network as one process sees it: after `kill` it has no connections and makes none. */
class MortalNetwork implements Network {
  readonly #inner: Network;
  readonly #open = new Set<{ close(): void }>();
  #isDead = false;

  constructor(inner: Network) {
    this.#inner = inner;
  }

  listen(hostname: string, port: number): Listener {
    const listener = this.#inner.listen(hostname, port);
    this.#open.add(listener);
    return {
      hostname: listener.hostname,
      port: listener.port,
      close: () => listener.close(),
      accept: async () => {
        const connection = await listener.accept();
        return connection && this.#kept(connection);
      },
    };
  }

  listenUpgradable(hostname: string, port: number): Promise<Listener> {
    return Promise.resolve().then(() => this.listen(hostname, port));
  }

  async connect(hostname: string, port: number, timeoutMs: number): Promise<Connection> {
    if (this.#isDead) throw new ConnectionError("the process is dead");
    return this.#kept(await this.#inner.connect(hostname, port, timeoutMs));
  }

  kill(): void {
    this.#isDead = true;
    for (const end of this.#open) end.close();
  }

  #kept(connection: Connection): Connection {
    this.#open.add(connection);
    if (this.#isDead) connection.close();
    return connection;
  }
}

/** What a process has of the world. */
interface Process {
  readonly disk: MortalDisk;
  readonly network: MortalNetwork;
  isDead: boolean;
}

/** A producer. */
export class Client {
  frames: string[] = [];
  isOver = false;

  constructor(readonly connection: Connection) {
    void this.#read();
  }

  async send(...parts: Uint8Array[]): Promise<void> {
    for (const part of parts) await this.connection.writeAll(part);
    await settle();
  }

  /** What came since the last call, without heartbeats. */
  take(): string[] {
    return this.frames.splice(0).filter((text) => text !== HEARTBEAT_TEXT);
  }

  async #read(): Promise<void> {
    const decoder = new FrameDecoder(2 ** 20);
    const buffer = new Uint8Array(65_536);
    try {
      while (true) {
        const bytes = await this.connection.read(buffer);
        if (bytes === null) break;
        decoder.feed(buffer, 0, bytes);
        while (decoder.next() === FrameEvent.FRAME) {
          this.frames.push(decoder.text());
          if (decoder.text() === HEARTBEAT_TEXT) void this.connection.writeAll(NOP_COMMAND);
        }
      }
    } catch {
      // Reset.
    }
    this.isOver = true;
    this.connection.close();
  }
}

/** See the module. */
export class Machine {
  readonly simDisk = new SimDisk();
  readonly disk = new SlowDisk(this.simDisk);
  readonly clock = new SimClock();
  readonly network = new SimNetwork();
  readonly brokers: readonly FakeBroker[];
  readonly broken: unknown[] = [];
  readonly lines: string[] = [];
  readonly files = new Map<string, string>();
  askHttp: AskHttp = () => Promise.reject(new HttpAskError("nobody is asked"));
  httpTaken = false;
  http: ServeHttpOptions | null = null;
  https: ServeHttpOptions | null = null;
  /** Resolves what `shutdown` of the HTTP server waits for. */
  httpBusy: Promise<void> = Promise.resolve();
  #starts = 0;
  #process: Process | null = null;

  constructor(brokers = 1, readonly seed = 1) {
    const ports = Array.from({ length: brokers }, (_, at) => 4150 + at);
    this.brokers = ports.map((port) => new FakeBroker(this.network, port));
  }

  /** The first broker. */
  get broker(): FakeBroker {
    return this.brokers[0]!;
  }

  start(...args: string[]): Promise<Gateway> {
    const { values } = loadSettings(gatewaySettings("host"), {
      args: [
        "--tcp-address=127.0.0.1:4150",
        "--http-address=127.0.0.1:4151",
        ...(args.some((argument) => /^--(?:broker-tcp|discovery-http)-address/.test(argument))
          ? []
          : [`--broker-tcp-address=${this.brokers.map(({ id }) => id).join(",")}`]),
        ...args,
      ],
      env: {},
      readFile: () => "",
    });
    const process: Process = {
      disk: new MortalDisk(this.disk),
      network: new MortalNetwork(this.network),
      isDead: false,
    };
    this.#process = process;
    return Gateway.start({ values, hostname: "host" }, {
      disk: process.disk.disk,
      clock: this.clock,
      random: new SeededRandom(`${this.seed} ${++this.#starts}`),
      network: process.network,
      serveHttp: (options) => {
        if (this.httpTaken) throw new AddressInUseError(options.hostname, options.port);
        this.http = options;
        const { hostname, port } = options;
        return { hostname, port, acceptFailureCount: 3, shutdown: () => this.httpBusy };
      },
      serveHttps: (options) => {
        this.https = options;
        const { hostname, port } = options;
        return Promise.resolve({
          hostname,
          port,
          shutdown: () => Promise.resolve(),
          renew: () => {},
        });
      },
      readTextFile: (path) => {
        const text = this.files.get(path);
        return text === undefined ? Promise.reject(new Error("not found")) : Promise.resolve(text);
      },
      askHttp: (...asked) => this.askHttp(...asked),
      streamHttp: () => Promise.reject(new HttpAskError("nobody answers")),
      logger: new Logger({ sink: (line) => this.lines.push(line), clock: this.clock }),
      process: () => ({
        residentBytes: 5,
        heapBytes: 4,
        heapUsedBytes: 3,
        externalBytes: 2,
        cpuSeconds: 0.5,
        startSeconds: 1_700_000_000,
      }),
      onBroken: (error) => {
        if (!process.isDead) this.broken.push(error);
      },
    });
  }

  /** Starts, and waits until the broker is connected. */
  async ready(...args: string[]): Promise<Gateway> {
    const gateway = await this.clock.runUntil(this.start(...args), 10_000);
    await settle();
    return gateway;
  }

  /** The process that was started last ends here and now. Resolves when nothing of it is left. */
  async kill(gateway: Gateway): Promise<void> {
    const process = this.#process!;
    process.isDead = true;
    process.network.kill();
    process.disk.kill();
    await gateway.stop().catch(() => {});
  }

  async connect(...first: Uint8Array[]): Promise<Client> {
    const client = new Client(await this.network.connect("127.0.0.1", 4150, 1000));
    await client.send(MAGIC_V2, ...first);
    return client;
  }

  async fetch(method: string, path: string, body?: string, token?: string): Promise<Response> {
    ok(this.http !== null);
    const request = new Request(`http://127.0.0.1:4151${path}`, {
      method,
      headers: token === undefined ? {} : { Authorization: `Bearer ${token}` },
      ...(body === undefined ? {} : { body }),
    });
    return await this.http.handler(request, "127.0.0.1:5");
  }

  async ask(method: string, path: string, body?: string, token?: string): Promise<string> {
    return await (await this.fetch(method, path, body, token)).text();
  }

  /** What `/v1/health` says in short: HTTP status, status, codes of the reasons. */
  async health(): Promise<[number, string, string[]]> {
    const response = await this.fetch("GET", "/v1/health");
    const { status, reasons } = await response.json();
    return [response.status, status, reasons.map(({ code }: { code: string }) => code)];
  }

  get bodies(): string[] {
    return this.broker.bodies("t");
  }

  async stop(gateway: Gateway, ...clients: readonly Client[]): Promise<void> {
    await this.clock.runUntil(gateway.stop(), 40_000);
    await settle();
    for (const client of clients) ok(client.isOver);
    await this.checkClean();
  }

  async checkClean(): Promise<void> {
    const up = this.brokers.filter((broker) => broker.isUp);
    for (const broker of up) broker.down();
    await settle();
    const { simDisk, clock, network, broken } = this;
    equal([simDisk.openFiles, clock.pendingTimers, network.openEnds, broken], [0, 0, 0, []]);
    for (const broker of up) broker.up();
  }
}
