/**
 * `deno task bench:discovery`: a discovery process that finds 500 brokers by DNS, each with 2,000
 * topics, and what it costs: the time until it knows all, its memory, what it asks and how much of a
 * core it takes while nothing changes, how long a lookup takes that finds all 500 meanwhile, and how
 * soon a new topic of one broker is told of.
 *
 * The brokers are addresses of loopback that a thread of this process answers for. Exits with 1 when
 * a lookup takes 2 ms or more at the 99th percentile, or when anything but heads is asked while
 * nothing changes: on a machine that does nothing else. `--brokers=N --topics=N --lookups=N` change the size.
 */
import { parseArgs } from "node:util";
import { NameServerFixture } from "@sluice/shared/testing";
import { cpuSeconds, freeAddress, ROOT, sleep } from "./broker_process.ts";
import { BrokerThread, fakeBrokerHost } from "./fake_brokers.ts";
import { Latencies } from "./latencies.ts";

const LOOKUP_P99_MS_MAX = 2;
const STEADY_MS = 10_000;
/** As many addresses as fit an answer over UDP. */
const ADDRESSES_PER_NAME = 32;
const DEADLINE_MS = 120_000;

const { values } = parseArgs({
  options: {
    brokers: { type: "string", default: "500" },
    topics: { type: "string", default: "2000" },
    lookups: { type: "string", default: "20000" },
  },
});
const brokerCount = Number(values.brokers);
const topicCount = Number(values.topics);
const lookupCount = Number(values.lookups);

function megabytes(bytes: number): string {
  return `${Math.round(bytes / 1e6)} MB`;
}

/** A discovery service as a process of its own. */
class DiscoveryProcess {
  readonly #child: Deno.ChildProcess;
  readonly httpAddress = freeAddress();

  constructor(flags: readonly string[]) {
    this.#child = new Deno.Command(Deno.execPath(), {
      args: [
        "run",
        "-P=discovery",
        "discovery/main.ts",
        `--tcp-address=${freeAddress()}`,
        `--http-address=${this.httpAddress}`,
        "--log-level=warn",
        ...flags,
      ],
      cwd: ROOT,
      stdin: "null",
      stdout: "null",
      stderr: "inherit",
    }).spawn();
  }

  get pid(): number {
    return this.#child.pid;
  }

  get residentBytes(): number {
    return this.#statusBytes("VmRSS");
  }

  get residentBytesPeak(): number {
    return this.#statusBytes("VmHWM");
  }

  /** The body of an answer with status 200; `null` for any other, or while it does not answer. */
  async get(path: string): Promise<string | null> {
    try {
      const response = await fetch(`http://${this.httpAddress}${path}`);
      const text = await response.text();
      return response.ok ? text : null;
    } catch {
      return null;
    }
  }

  async stop(): Promise<void> {
    this.#child.kill("SIGTERM");
    await this.#child.status;
  }

  #statusBytes(key: string): number {
    const status = Deno.readTextFileSync(`/proc/${this.pid}/status`);
    return Number(new RegExp(`^${key}:\\s*(\\d+) kB$`, "m").exec(status)?.[1]) * 1024;
  }
}

/**
 * Asks over one connection and reads answers into one buffer, without a look at them: a client that makes
 * 100 KB of garbage a lookup measures its own collections.
 */
class LookupClient {
  readonly #connection: Deno.TcpConn;
  readonly #buffer = new Uint8Array(4 * 2 ** 20);

  private constructor(connection: Deno.TcpConn) {
    this.#connection = connection;
  }

  static async connect(address: string): Promise<LookupClient> {
    const [hostname, port] = address.split(":");
    return new LookupClient(await Deno.connect({ hostname: hostname!, port: Number(port) }));
  }

  /** Resolves with the size of the body. */
  async lookup(topic: string): Promise<number> {
    const request = `GET /lookup?topic=${topic} HTTP/1.1\r\nHost: discovery\r\n\r\n`;
    await this.#connection.write(new TextEncoder().encode(request));
    let [received, whole, bodyBytes] = [0, Infinity, 0];
    while (received < whole) {
      const read = await this.#connection.read(this.#buffer.subarray(received));
      if (read === null) throw new Error("the service has closed the connection");
      received += read;
      if (whole < Infinity) continue;
      const head = new TextDecoder("latin1").decode(
        this.#buffer.subarray(0, Math.min(received, 1024)),
      );
      const end = head.indexOf("\r\n\r\n");
      if (end < 0) continue;
      bodyBytes = Number(/^content-length: (\d+)\r$/im.exec(head)?.[1]);
      if (!head.startsWith("HTTP/1.1 200 ") || Number.isNaN(bodyBytes)) throw new Error(head);
      whole = end + 4 + bodyBytes;
    }
    return bodyBytes;
  }

  close(): void {
    this.#connection.close();
  }
}

/** Asks until the answer is yes. */
async function until(what: string, probe: () => Promise<boolean>): Promise<void> {
  const endMs = performance.now() + DEADLINE_MS;
  while (!await probe()) {
    if (performance.now() >= endMs) throw new Error(`Gave up waiting for ${what}`);
    await sleep(5);
  }
}

async function main(): Promise<number> {
  const brokers = await BrokerThread.start(brokerCount, topicCount);
  const names = await NameServerFixture.start();
  const records: Record<string, { A: string[] }> = {};
  for (let index = 0; index < brokerCount; index++) {
    const name = `b${Math.floor(index / ADDRESSES_PER_NAME)}.test`;
    (records[name] ??= { A: [] }).A.push(fakeBrokerHost(index));
  }
  names.records = records;

  const startedMs = performance.now();
  const discovery = new DiscoveryProcess([
    `--broker-dns=${Object.keys(records).map((name) => `${name}:${brokers.port}`).join(",")}`,
    `--broker-dns-server=127.0.0.1:${names.port}`,
    "--registrations-max=4000000",
  ]);
  await until("all brokers", async () => {
    const text = await discovery.get("/v1/health");
    return text !== null && JSON.parse(text).polled.fresh === brokerCount;
  });
  console.log(
    `${brokerCount} brokers x ${topicCount} topics known after ` +
      `${Math.round(performance.now() - startedMs)} ms`,
  );

  await brokers.asked();
  const cpuBefore = cpuSeconds(discovery.pid);
  await sleep(STEADY_MS);
  const asked = await brokers.asked();
  const cpu = (cpuSeconds(discovery.pid) - cpuBefore) / (STEADY_MS / 1_000);
  console.log(
    `asked in ${STEADY_MS} ms without news: ${JSON.stringify(asked)}`,
  );
  console.log(`which takes ${(cpu * 100).toFixed(1)} % of a core`);
  const onlyHeads = Object.keys(asked).every((path) => path === "/v1/registry/head");
  console.log(
    `memory: ${megabytes(discovery.residentBytes)}, ` +
      `${megabytes(discovery.residentBytesPeak)} at the most`,
  );

  const client = await LookupClient.connect(discovery.httpAddress);
  const latencies = new Latencies();
  const lookupCpu = cpuSeconds(discovery.pid);
  const lookupsMs = performance.now();
  let bytes = 0;
  for (let index = 0; index < lookupCount; index++) {
    const sinceMs = performance.now();
    bytes = await client.lookup(`topic-${index % topicCount}`);
    latencies.observe(performance.now() - sinceMs);
  }
  client.close();
  const lookupsSeconds = (performance.now() - lookupsMs) / 1_000;
  const ownCpu = cpuSeconds(discovery.pid) - lookupCpu - cpu * lookupsSeconds;
  const p99Ms = latencies.quantileMs(0.99);
  console.log(
    `lookup of ${brokerCount} producers (${bytes} bytes), one after the other: ` +
      `p50 ${latencies.quantileMs(0.5).toFixed(2)} ms, p99 ${p99Ms.toFixed(2)} ms, ` +
      `${(ownCpu * 1_000 / lookupCount).toFixed(2)} ms of a core each ` +
      `(load of the machine ${Deno.loadavg()[0]?.toFixed(1)})`,
  );

  await brokers.addTopic();
  const newMs = performance.now();
  await until("the new topic", async () => {
    return await discovery.get("/lookup?topic=new-topic") !== null;
  });
  console.log(`a new topic is found after ${Math.round(performance.now() - newMs)} ms`);

  await discovery.stop();
  await names.close();
  await brokers.stop();
  return onlyHeads && p99Ms < LOOKUP_P99_MS_MAX ? 0 : 1;
}

Deno.exit(await main());
