import { deepStrictEqual as equal, match, rejects, throws } from "node:assert/strict";
import {
  BlockEvent,
  createLookupReplyDecoder,
  decodeLookupReply,
  encodeLookupIdentify,
  encodeRegister,
  encodeUnregister,
  lookupReplyText,
  MAGIC_V1,
} from "@sluice/shared/protocol";
import type { Connection } from "@sluice/shared/runtime";
import { serveHttp, SystemClock, SystemNetwork, SystemRandom } from "@sluice/shared/runtime/system";
import { Logger } from "@sluice/shared/telemetry";
import { Discovery, type DiscoveryOptions, ListenError } from "./discovery.ts";
import { REGISTRY_LIMITS } from "./registry.ts";

const CLOCK = new SystemClock();
const NETWORK = new SystemNetwork(CLOCK);

function start(options: Partial<DiscoveryOptions> = {}) {
  const lines: string[] = [];
  const broken: unknown[] = [];
  const discovery = new Discovery({
    tcpAddress: { host: "127.0.0.1", port: 0 },
    httpAddress: { host: "127.0.0.1", port: 0 },
    broadcastAddress: "lookup",
    hostname: "vm",
    inactiveTimeoutMs: 300_000,
    tombstoneLifetimeMs: 45_000,
    connectionsMax: 10,
    limits: REGISTRY_LIMITS,
    ...options,
  }, {
    clock: CLOCK,
    network: NETWORK,
    serveHttp,
    random: new SystemRandom(),
    logger: new Logger({ sink: (line) => lines.push(line), clock: CLOCK }),
    onBroken: (error) => broken.push(error),
  });
  const get = async (path: string) => {
    const response = await fetch(`http://127.0.0.1:${discovery.httpAddress.port}${path}`);
    return await response.json();
  };
  return { discovery, lines, broken, get };
}

/** A broker as the protocol's client functions make one. */
class TestBroker {
  readonly #connection: Connection;
  readonly #decoder = createLookupReplyDecoder(65_536);

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  async send(bytes: Uint8Array): Promise<void> {
    await this.#connection.writeAll(bytes);
  }

  /** The next reply; rejects at the end of the stream. */
  async reply(): Promise<string> {
    while (this.#decoder.next() !== BlockEvent.BLOCK) {
      const chunk = new Uint8Array(1_024);
      const count = await this.#connection.read(chunk);
      if (count === null) throw new Error("the stream has ended");
      this.#decoder.feed(chunk, 0, count);
    }
    return lookupReplyText(this.#decoder);
  }

  close(): void {
    this.#connection.close();
  }
}

Deno.test("Discovery shows over HTTP what a broker registers over TCP, until it leaves", async () => {
  const { discovery, lines, broken, get } = start();
  match(
    lines.join("\n"),
    /TCP: listening on 127\.0\.0\.1:\d+\n.*HTTP: listening on 127\.0\.0\.1:\d+/,
  );
  const { tcpAddress, httpAddress } = discovery;
  const broker = new TestBroker(await NETWORK.connect("127.0.0.1", tcpAddress.port, 1_000));
  await broker.send(MAGIC_V1);
  await broker.send(encodeLookupIdentify({
    broadcastAddress: "ip.address",
    hostname: "host",
    httpPort: 5_555,
    tcpPort: 5_000,
    version: "fake",
    topologyRegion: "",
    topologyZone: "",
  }));
  equal(decodeLookupReply(new TextEncoder().encode(await broker.reply())), {
    broadcastAddress: "lookup",
    hostname: "vm",
    httpPort: httpAddress.port,
    tcpPort: tcpAddress.port,
    version: (await get("/info")).version,
  });
  await broker.send(encodeRegister("t", "c"));
  equal(await broker.reply(), "OK");
  const { producers: [producer], channels } = await get("/lookup?topic=t");
  equal(channels, ["c"]);
  const { remote_address, ...rest } = producer;
  match(remote_address, /^127\.0\.0\.1:\d+$/);
  equal(rest, {
    hostname: "host",
    broadcast_address: "ip.address",
    tcp_port: 5_000,
    http_port: 5_555,
    version: "fake",
    topology_zone: "",
    topology_region: "",
  });
  equal((await get("/topics")).topics, ["t"]);
  equal((await get("/nodes")).producers.length, 1);

  await broker.send(encodeUnregister("bad", "bad"));
  equal(await broker.reply(), "OK");
  await broker.send(new TextEncoder().encode("FOO\n"));
  equal(await broker.reply(), "E_INVALID invalid command FOO");
  await rejects(broker.reply());
  equal(await get("/lookup?topic=t"), { channels: ["c"], producers: [] });
  broker.close();
  await discovery.close();
  equal(broken, []);
});

Deno.test("Discovery counts connections and commands in its metrics", async () => {
  const { discovery } = start();
  const broker = new TestBroker(
    await NETWORK.connect("127.0.0.1", discovery.tcpAddress.port, 1_000),
  );
  await broker.send(new TextEncoder().encode("  V1PING\n"));
  equal(await broker.reply(), "OK");
  const response = await fetch(`http://127.0.0.1:${discovery.httpAddress.port}/metrics`);
  const text = await response.text();
  match(text, /^sluice_discovery_connections 1$/m);
  match(text, /^sluice_discovery_commands_total\{command="PING"\} 1$/m);
  match(text, /^sluice_discovery_connections_total\{outcome="accepted"\} 1$/m);
  broker.close();
  await discovery.close();
});

Deno.test("Discovery names the flag of an address that is in use and leaves nothing open", async () => {
  const { discovery } = start();
  const { tcpAddress, httpAddress } = discovery;
  const wanted = (flag: string, port: number) => ({
    name: ListenError.name,
    message: `Cannot listen on ${flag}=127.0.0.1:${port}: the address is in use`,
  });
  throws(() => start({ tcpAddress }), wanted("--tcp-address", tcpAddress.port));
  throws(() => start({ httpAddress }), wanted("--http-address", httpAddress.port));
  await discovery.close();
});

Deno.test("Discovery.close() ends open connections and frees both ports", async () => {
  const { discovery } = start();
  const { tcpAddress, httpAddress } = discovery;
  const broker = new TestBroker(await NETWORK.connect("127.0.0.1", tcpAddress.port, 1_000));
  await broker.send(new TextEncoder().encode("  V1PING\n"));
  equal(await broker.reply(), "OK");
  await discovery.close();
  await rejects(broker.reply());
  broker.close();
  await start({ tcpAddress, httpAddress }).discovery.close();
});
