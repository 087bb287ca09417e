import { deepStrictEqual as equal, match } from "node:assert/strict";
import {
  CommandDecoder,
  CommandEvent,
  encodeLookupIdentifyReply,
  encodeLookupReply,
  LOOKUP_OK_REPLY,
  Verb,
} from "@sluice/shared/protocol";
import { type Connection, ConnectionError, type Listener } from "@sluice/shared/runtime";
import { Logger } from "@sluice/shared/telemetry";
import { SeededRandom, settle, SimClock, SimNetwork } from "@sluice/shared/testing";
import { LookupPeers } from "./lookup_peer.ts";

/** A discovery service that notes the commands of its latest connection. */
class FakeDiscovery {
  commands: string[] = [];
  connections = 0;
  /** What to answer commands with; `null` for no answer. */
  reply: Uint8Array | null = LOOKUP_OK_REPLY;
  readonly #listener: Listener;
  readonly #host: string;
  #connection: Connection | null = null;

  constructor(network: SimNetwork, host: string) {
    this.#host = host;
    this.#listener = network.listen(host, 4160);
    this.#accept();
  }

  drop(): void {
    this.#connection?.close();
  }

  close(): void {
    this.#listener.close();
    this.drop();
  }

  async #accept(): Promise<void> {
    while (true) {
      const connection = await this.#listener.accept();
      if (connection === null) return;
      this.#connection = connection;
      this.connections += 1;
      this.commands = [];
      this.#serve(connection).catch((error) => equal(error instanceof ConnectionError, true));
    }
  }

  async #serve(connection: Connection): Promise<void> {
    const decoder = new CommandDecoder({ protocol: "V1" });
    const chunk = new Uint8Array(1_000);
    while (true) {
      const count = await connection.read(chunk);
      if (count === null) return connection.close();
      decoder.feed(chunk, 0, count);
      while (true) {
        const event = decoder.next();
        if (event === CommandEvent.NEED_MORE) break;
        if (event === CommandEvent.BODY_SIZE) decoder.acceptBody();
        if (event === CommandEvent.BODY) await this.#identified(connection);
        if (event !== CommandEvent.LINE) continue;
        this.commands.push(decoder.line.text());
        if (decoder.line.verb === Verb.IDENTIFY) decoder.expectBody();
        else if (this.reply !== null) await connection.writeAll(this.reply);
      }
    }
  }

  async #identified(connection: Connection): Promise<void> {
    await connection.writeAll(encodeLookupIdentifyReply({
      broadcastAddress: this.#host,
      hostname: "h",
      httpPort: 4161,
      tcpPort: 4160,
      version: "1.3.0",
    }));
  }
}

function newPeers(topics: Record<string, string[]>, hosts = ["one"]) {
  const clock = new SimClock();
  const network = new SimNetwork();
  const lines: string[] = [];
  const broken: unknown[] = [];
  const asked: string[] = [];
  const peers = new LookupPeers({
    identity: {
      broadcastAddress: "broker",
      hostname: "vm",
      httpPort: 4151,
      tcpPort: 4150,
      version: "1.3.0",
      topologyRegion: "",
      topologyZone: "",
    },
    source: {
      topics: () => Object.entries(topics).map(([name, channels]) => ({ name, channels })),
    },
    clock,
    network,
    random: new SeededRandom(7),
    logger: new Logger({ sink: (line) => lines.push(line), clock }),
    onBroken: (error) => broken.push(error),
    httpGet: (url) => {
      asked.push(url);
      return Promise.resolve({ status: 200, body: new TextEncoder().encode('{"channels":["c"]}') });
    },
  });
  peers.replace(hosts.map((host) => ({ host, port: 4160 })));
  const finish = async (...services: FakeDiscovery[]) => {
    await peers.stop();
    for (const service of services) service.close();
    await settle();
    equal([broken, clock.pendingTimers, network.openEnds], [[], 0, 0]);
  };
  return { clock, network, lines, asked, peers, finish };
}

Deno.test("LookupPeers registers everything, then each change as it happens", async () => {
  const { network, peers, finish } = newPeers({ t: ["a"], u: [] }, ["one", "two"]);
  const services = [new FakeDiscovery(network, "one"), new FakeDiscovery(network, "two")];
  peers.start();
  await settle();
  peers.topicAdded("v");
  peers.channelAdded("v", "c");
  await settle();
  peers.channelRemoved("v", "c");
  peers.topicRemoved("v");
  await settle();
  for (const service of services) {
    equal(service.commands, [
      "IDENTIFY",
      "REGISTER t a",
      "REGISTER u",
      "REGISTER v",
      "REGISTER v c",
      "UNREGISTER v c",
      "UNREGISTER v",
    ]);
  }
  equal(peers.peers.map((peer) => peer.isUp), [true, true]);
  await finish(...services);
});

Deno.test("LookupPeers pings every 15 seconds", async () => {
  const { clock, network, peers, finish } = newPeers({});
  const service = new FakeDiscovery(network, "one");
  peers.start();
  await clock.run(45_000);
  equal(service.commands, ["IDENTIFY", "PING", "PING", "PING"]);
  await finish(service);
});

Deno.test("LookupPeers finds a service that comes later within five seconds, warning once", async () => {
  const { clock, network, lines, peers, finish } = newPeers({ t: [] });
  peers.start();
  await clock.run(60_000);
  peers.topicAdded("ignored until up");
  const service = new FakeDiscovery(network, "one");
  await clock.run(5_000);
  equal(service.commands, ["IDENTIFY", "REGISTER t"]);
  equal(lines.filter((line) => line.includes("WARN")).length, 1);
  match(lines[0] ?? "", /not registered with discovery lookupd=one:4160 reason=".*nobody listens/);
  await finish(service);
});

Deno.test("LookupPeers registers everything anew after a connection is lost", async () => {
  const topics: Record<string, string[]> = { t: [] };
  const { clock, network, peers, finish } = newPeers(topics);
  const service = new FakeDiscovery(network, "one");
  peers.start();
  await settle();
  service.drop();
  await settle();
  equal(peers.peers[0]?.isUp, false);
  topics.u = ["c"];
  peers.channelAdded("u", "c");
  await clock.run(250);
  equal(service.commands, ["IDENTIFY", "REGISTER t", "REGISTER u c"]);
  equal(service.connections, 2);
  await finish(service);
});

Deno.test("LookupPeers drops a service that stops answering and tries it again", async () => {
  const { clock, network, lines, peers, finish } = newPeers({});
  const service = new FakeDiscovery(network, "one");
  peers.start();
  await settle();
  service.reply = null;
  peers.topicAdded("t");
  await clock.run(999);
  equal([service.connections, peers.peers[0]?.isUp], [1, true]);
  await clock.run(1);
  equal(peers.peers[0]?.isUp, false);
  match(lines.at(-1) ?? "", /no reply within 1000 ms/);
  await clock.run(250);
  equal(service.connections, 2);
  await finish(service);
});

Deno.test("LookupPeers drops a service that answers with an error", async () => {
  const { network, lines, peers, finish } = newPeers({ t: [] });
  const service = new FakeDiscovery(network, "one");
  service.reply = encodeLookupReply("E_INVALID REGISTER limit reached: at most 1 topics");
  peers.start();
  await settle();
  equal(peers.peers[0]?.isUp, false);
  match(lines.at(-1) ?? "", /limit reached/);
  await finish(service);
});

Deno.test("LookupPeers.stop() closes connections and does nothing more", async () => {
  const { clock, network, peers, finish } = newPeers({ t: [] });
  const service = new FakeDiscovery(network, "one");
  peers.topicAdded("before the start");
  await clock.run(20_000);
  equal(service.connections, 0);
  peers.start();
  await settle();
  await peers.stop();
  await settle();
  equal(network.openEnds, 0);
  peers.topicAdded("after the stop");
  await clock.run(60_000);
  equal([service.connections, service.commands], [1, ["IDENTIFY", "REGISTER t"]]);
  await finish(service);
});

Deno.test("LookupPeers.stop() closes a connection that was just being made", async () => {
  const { network, peers, finish } = newPeers({});
  const service = new FakeDiscovery(network, "one");
  peers.start();
  await finish(service);
});

Deno.test("LookupPeers.lookupChannels() asks the services that have told where they are", async () => {
  const { network, asked, peers, finish } = newPeers({}, ["one", "down", "::1"]);
  const services = [new FakeDiscovery(network, "one"), new FakeDiscovery(network, "::1")];
  equal(await peers.lookupChannels("t"), []);
  peers.start();
  await settle();
  equal(await peers.lookupChannels("t#ephemeral"), ["c"]);
  equal(asked, [
    "http://one:4161/channels?topic=t%23ephemeral",
    "http://[::1]:4161/channels?topic=t%23ephemeral",
  ]);
  await finish(...services);
});

Deno.test("LookupPeers.replace() leaves who is not named, joins who is new, and keeps the others", async () => {
  const { network, peers, finish } = newPeers({ t: [] }, ["one", "two"]);
  const services = ["one", "two", "three"].map((host) => new FakeDiscovery(network, host));
  const commands = () => services.map((service) => service.commands.length);
  peers.start();
  await settle();
  equal(commands(), [2, 2, 0]);
  peers.replace([{ host: "two", port: 4160 }, { host: "three", port: 4160 }]);
  await settle();
  equal(commands(), [2, 2, 2], "the connection to two has stayed");
  equal(peers.peers.map(({ address }) => address), ["two:4160", "three:4160"]);
  peers.topicAdded("u");
  await settle();
  equal(commands(), [2, 3, 3]);
  peers.replace([]);
  await settle();
  equal([network.openEnds, peers.peers.length], [0, 0]);
  await finish(...services);
  peers.replace([{ host: "one", port: 4160 }]);
  equal(peers.peers, [], "nothing begins once they are stopped");
});
