import { deepStrictEqual as equal, throws } from "node:assert/strict";
import { InvariantError } from "@sluice/shared/runtime/invariant";
import type { ProducerInfo, RegistryObserver } from "./producer.ts";
import { Registry, REGISTRY_LIMITS, type RegistryLimits } from "./registry.ts";

const INACTIVE_MS = 300_000;
const TOMBSTONE_MS = 45_000;

function newRegistry(limits: Partial<RegistryLimits> = {}): Registry {
  return new Registry({
    inactiveTimeoutMs: INACTIVE_MS,
    tombstoneLifetimeMs: TOMBSTONE_MS,
    limits: { ...REGISTRY_LIMITS, ...limits },
  });
}

function info(name: string, ports: Partial<ProducerInfo> = {}): ProducerInfo {
  return {
    broadcastAddress: name,
    hostname: `${name}.host`,
    tcpPort: 4150,
    httpPort: 4151,
    version: "1.3.0",
    topologyRegion: "",
    topologyZone: "",
    ...ports,
  };
}

function withProducers(registry: Registry, ...addresses: string[]): Registry {
  for (const address of addresses) {
    registry.addProducer(address, { remoteAddress: address, info: info(address) }, 0);
  }
  return registry;
}

/** Remote addresses of the answer. */
function found(registry: Registry, topic: string, nowMs = 0): string[] | null {
  return registry.lookup(topic, nowMs)?.map((producer) => producer.remoteAddress) ?? null;
}

Deno.test("register() with a channel registers the topic too and is idempotent", () => {
  const registry = withProducers(newRegistry(), "p1");
  equal(registry.register("p1", "t", "c"), null);
  equal(registry.register("p1", "t", "c"), null);
  equal(registry.register("p1", "t", null), null);
  equal(registry.topics(), ["t"]);
  equal(registry.channels("t"), ["c"]);
  equal(found(registry, "t"), ["p1"]);
  equal(registry.registrationCount, 2);
});

Deno.test("lookup() answers null for an unknown topic and channels() an empty list", () => {
  const registry = newRegistry();
  equal(found(registry, "t"), null);
  equal(registry.channels("t"), []);
});

Deno.test("removeProducer() takes all registrations and keeps topic and channel names", () => {
  const registry = withProducers(newRegistry(), "p1", "p2");
  registry.register("p1", "t", "c");
  registry.register("p1", "u", null);
  registry.register("p2", "t", "c");
  registry.removeProducer("p1");
  equal(found(registry, "t"), ["p2"]);
  equal(found(registry, "u"), []);
  equal(registry.topics(), ["t", "u"]);
  equal(registry.channels("t"), ["c"]);
  equal(registry.nodes(0).map((node) => node.producer.remoteAddress), ["p2"]);
  equal(registry.registrationCount, 2);
  registry.removeProducer("p1");
  registry.touch("p1", 1);
  equal(registry.producerCount, 1);
});

Deno.test("unregister() of a channel keeps its name and the producer's topic", () => {
  const registry = withProducers(newRegistry(), "p1");
  registry.register("p1", "t", "c");
  registry.unregister("p1", "t", "c");
  equal(registry.channels("t"), ["c"]);
  equal(found(registry, "t"), ["p1"]);
  equal(registry.registrations().map((row) => row.category), ["client", "topic"]);
});

Deno.test("unregister() of a topic takes the producer from all its channels", () => {
  const registry = withProducers(newRegistry(), "p1", "p2");
  for (const producer of ["p1", "p2"]) {
    registry.register(producer, "t", "c1");
    registry.register(producer, "t", "c2");
  }
  registry.unregister("p1", "t", null);
  equal(found(registry, "t"), ["p2"]);
  equal(
    registry.registrations().filter((row) => row.producer.remoteAddress === "p1")
      .map((row) => row.category),
    ["client"],
  );
  registry.unregister("p2", "t", null);
  equal(registry.channels("t"), ["c1", "c2"]);
  equal(found(registry, "t"), []);
});

Deno.test("unregister() of unknown names changes nothing", () => {
  const registry = withProducers(newRegistry(), "p1");
  registry.unregister("p1", "t", null);
  registry.unregister("p1", "t", "c");
  registry.createTopic("t");
  registry.unregister("p1", "t", null);
  registry.unregister("p1", "t", "c");
  equal(registry.topics(), ["t"]);
  equal(registry.channels("t"), []);
});

Deno.test("an ephemeral channel goes with its last producer, by unregister or close", () => {
  for (const leave of ["unregister", "unregister topic", "close"]) {
    const registry = withProducers(newRegistry(), "p1", "p2");
    registry.register("p1", "t", "c#ephemeral");
    registry.register("p2", "t", "c#ephemeral");
    registry.unregister("p2", "t", "c#ephemeral");
    equal(registry.channels("t"), ["c#ephemeral"], leave);
    if (leave === "close") registry.removeProducer("p1");
    else registry.unregister("p1", "t", leave === "unregister" ? "c#ephemeral" : null);
    equal(registry.channels("t"), [], leave);
    equal(registry.topics(), ["t"], leave);
    equal(registry.channelCount, 0, leave);
  }
});

Deno.test("an ephemeral topic goes with its last producer, by unregister or close", () => {
  for (const leave of ["unregister", "close"]) {
    const registry = withProducers(newRegistry(), "p1", "p2");
    registry.register("p1", "t#ephemeral", "c");
    registry.register("p2", "t#ephemeral", null);
    registry.unregister("p2", "t#ephemeral", null);
    equal(registry.topics(), ["t#ephemeral"], leave);
    if (leave === "close") registry.removeProducer("p1");
    else registry.unregister("p1", "t#ephemeral", null);
    equal(registry.topics(), [], leave);
    equal([registry.channelCount, registry.registrationCount], [0, 0], leave);
  }
});

Deno.test("an ephemeral channel made by hand stays when a producer that never held it leaves", () => {
  const registry = withProducers(newRegistry(), "p1");
  registry.register("p1", "t", null);
  registry.createChannel("t", "c#ephemeral");
  registry.unregister("p1", "t", null);
  equal(registry.channels("t"), ["c#ephemeral"]);
});

Deno.test("a tombstone hides a node of one topic until its lifetime has passed", () => {
  const registry = withProducers(newRegistry(), "p1", "p2");
  for (const producer of ["p1", "p2"]) {
    registry.register(producer, "t", null);
    registry.register(producer, "u", null);
  }
  registry.tombstone("t", "p1:4151", 1_000);
  equal(found(registry, "t", 1_000), ["p2"]);
  equal(found(registry, "u", 1_000), ["p1", "p2"]);
  equal(
    registry.nodes(1_000).map((
      node,
    ) => [node.producer.remoteAddress, node.topics, node.tombstones]),
    [["p1", ["t", "u"], [true, false]], ["p2", ["t", "u"], [false, false]]],
  );
  registry.register("p1", "t", "c");
  equal(found(registry, "t", 1_000 + TOMBSTONE_MS - 1), ["p2"]);
  equal(found(registry, "t", 1_000 + TOMBSTONE_MS), ["p1", "p2"]);
  equal(registry.nodes(1_000 + TOMBSTONE_MS)[0]?.tombstones, [false, false]);
});

Deno.test("a tombstoned producer that unregisters the topic stays hidden after the lifetime", () => {
  const registry = withProducers(newRegistry(), "p1");
  registry.register("p1", "t", null);
  registry.tombstone("t", "p1:4151", 0);
  registry.unregister("p1", "t", null);
  equal(found(registry, "t", TOMBSTONE_MS + 1), []);
  equal(registry.nodes(0)[0]?.topics, []);
  registry.register("p1", "t", null);
  equal(found(registry, "t", 1), ["p1"]);
});

Deno.test("tombstone() of an unknown topic or node changes nothing", () => {
  const registry = withProducers(newRegistry(), "p1");
  registry.register("p1", "t", null);
  registry.tombstone("u", "p1:4151", 0);
  registry.tombstone("t", "p1:4150", 0);
  equal(found(registry, "t"), ["p1"]);
  equal(registry.topics(), ["t"]);
});

Deno.test("a producer is active up to the inactive timeout and again once touched", () => {
  const registry = withProducers(newRegistry(), "p1");
  registry.register("p1", "t", null);
  equal(found(registry, "t", INACTIVE_MS), ["p1"]);
  equal(found(registry, "t", INACTIVE_MS + 1), []);
  equal(registry.nodes(INACTIVE_MS + 1), []);
  equal(registry.registrations().length, 2);
  registry.touch("p1", INACTIVE_MS + 1);
  equal(found(registry, "t", INACTIVE_MS + 1), ["p1"]);
});

Deno.test("deleteTopic() forgets names and registrations until the producer registers again", () => {
  const registry = withProducers(newRegistry(), "p1");
  registry.register("p1", "t", "c");
  registry.deleteTopic("t");
  registry.deleteTopic("t");
  equal(registry.topics(), []);
  equal(registry.nodes(0)[0]?.topics, []);
  equal([registry.topicCount, registry.channelCount, registry.registrationCount], [0, 0, 0]);
  registry.register("p1", "t", "c");
  equal(found(registry, "t"), ["p1"]);
});

Deno.test("deleteChannel() tells whether there was one and keeps the topic", () => {
  const registry = withProducers(newRegistry(), "p1");
  equal(registry.deleteChannel("t", "c"), false);
  registry.register("p1", "t", "c");
  equal(registry.deleteChannel("t", "d"), false);
  equal(registry.deleteChannel("t", "c"), true);
  equal(registry.channels("t"), []);
  equal(found(registry, "t"), ["p1"]);
  equal(registry.registrationCount, 1);
});

Deno.test("createTopic() and createChannel() make names without producers", () => {
  const registry = newRegistry();
  equal(registry.createTopic("t"), null);
  equal(registry.createChannel("u", "c"), null);
  equal(registry.createChannel("u", "c"), null);
  equal(registry.topics(), ["t", "u"]);
  equal(registry.channels("u"), ["c"]);
  equal(found(registry, "u"), []);
  equal([registry.topicCount, registry.channelCount], [2, 1]);
});

Deno.test("all answers are sorted", () => {
  const registry = newRegistry();
  registry.addProducer("r3", { remoteAddress: "r3", info: info("b") }, 0);
  registry.addProducer("r2", { remoteAddress: "r2", info: info("a", { tcpPort: 5000 }) }, 0);
  registry.addProducer("r1", { remoteAddress: "r1", info: info("a", { tcpPort: 4000 }) }, 0);
  registry.addProducer("r0", { remoteAddress: "r0", info: info("a", { tcpPort: 4000 }) }, 0);
  for (const producer of ["r3", "r2", "r1", "r0"]) {
    registry.register(producer, "u", "d");
    registry.register(producer, "t", "c");
    registry.register(producer, "t", "b");
  }
  equal(registry.topics(), ["t", "u"]);
  equal(registry.channels("t"), ["b", "c"]);
  equal(found(registry, "t"), ["r0", "r1", "r2", "r3"]);
  equal(registry.nodes(0)[0]?.topics, ["t", "u"]);
  equal(
    registry.registrations().map((row) =>
      `${row.category}:${row.key}:${row.subkey} ${row.producer.remoteAddress}`
    ).filter((_, index) => index % 4 === 0),
    [
      "client:: r0",
      "topic:t: r0",
      "channel:t:b r0",
      "channel:t:c r0",
      "topic:u: r0",
      "channel:u:d r0",
    ],
  );
});

Deno.test("registrations() tells when a topic was tombstoned, even long ago", () => {
  const registry = withProducers(newRegistry(), "p1");
  registry.register("p1", "t", null);
  registry.tombstone("t", "p1:4151", 7);
  equal(registry.registrations().map((row) => row.tombstonedAtMs), [null, 7]);
});

Deno.test("at every limit a change is refused by name, changes nothing, and known names still work", () => {
  const limits = {
    producersMax: 2,
    topicsMax: 2,
    channelsMax: 3,
    channelsPerTopicMax: 2,
    registrationsMax: 6,
    registrationsPerProducerMax: 5,
  };
  const registry = withProducers(newRegistry(limits), "p1", "p2");
  equal(registry.addProducer("p3", { remoteAddress: "p3", info: info("p3") }, 0), {
    limit: "producersMax",
    max: 2,
  });
  registry.register("p1", "t", "a");
  registry.register("p1", "t", "b");
  equal(registry.register("p1", "t", "c"), { limit: "channelsPerTopicMax", max: 2 });
  equal(registry.createChannel("t", "c"), { limit: "channelsPerTopicMax", max: 2 });
  registry.register("p1", "u", null);
  equal(registry.register("p2", "v", null), { limit: "topicsMax", max: 2 });
  equal(registry.createTopic("v"), { limit: "topicsMax", max: 2 });
  equal(registry.createChannel("v", "a"), { limit: "topicsMax", max: 2 });
  registry.createChannel("u", "a");
  equal(registry.createChannel("u", "b"), { limit: "channelsMax", max: 3 });
  registry.register("p1", "u", "a");
  registry.deleteChannel("u", "a");
  registry.register("p1", "u", "a");
  equal(registry.registrationCount, 5);
  equal(registry.register("p1", "u", "b"), { limit: "registrationsPerProducerMax", max: 5 });
  equal(registry.register("p2", "t", "a"), { limit: "registrationsMax", max: 6 });
  equal(found(registry, "t"), ["p1"]);
  equal(registry.register("p1", "t", "a"), null);
  equal(registry.register("p2", "t", null), null);
  equal(registry.topics(), ["t", "u"]);
  equal(registry.channels("t"), ["a", "b"]);
});

Deno.test("a producer must be added once before it registers", () => {
  const registry = withProducers(newRegistry(), "p1");
  throws(() => registry.register("p2", "t", null), InvariantError);
  throws(
    () => registry.addProducer("p1", { remoteAddress: "p1", info: info("p1") }, 0),
    InvariantError,
  );
});

const READY = { publishReady: true, consumeReady: true, reasons: [] };

/** Writes down what it is told. */
class Notes implements RegistryObserver {
  readonly lines: string[] = [];

  producerAdded({ id }: { id: string }): void {
    this.lines.push(`+ ${id}`);
  }

  producerRemoved({ id }: { id: string }): void {
    this.lines.push(`- ${id}`);
  }

  readinessChanged({ id }: { id: string }): void {
    this.lines.push(`ready ${id}`);
  }

  registrationChanged({ id }: { id: string }, topic: string, channel: string | null): void {
    this.lines.push(`${id} ${topic} ${channel ?? "-"}`);
  }

  take(): string[] {
    return this.lines.splice(0);
  }
}

Deno.test("Registry.observe() is told of each change once, and of nothing that stays as it is", () => {
  const registry = newRegistry();
  const notes = new Notes();
  registry.observe(notes);
  withProducers(registry, "a");
  registry.register("a", "t", "c");
  registry.register("a", "t", "c");
  equal(notes.take(), ["+ a:4150", "a:4150 t -", "a:4150 t c"]);
  registry.touch("a", 1);
  registry.createTopic("other");
  registry.tombstone("t", "a:4151", 1);
  equal(notes.take(), []);
  registry.unregister("a", "t", null);
  equal(notes.take(), ["a:4150 t c", "a:4150 t -"]);
  registry.register("a", "t", "c");
  notes.take();
  registry.deleteChannel("t", "c");
  registry.deleteTopic("t");
  registry.removeProducer("a");
  equal(notes.take(), ["a:4150 t c", "a:4150 t -", "- a:4150"]);
});

Deno.test("Registry.setObservation() tells of another readiness, not of the same again", () => {
  const registry = newRegistry();
  const notes = new Notes();
  registry.observe(notes);
  const producer = { remoteAddress: "a:4151", info: info("a") };
  registry.addProducer("k", producer, 0, { readiness: READY, freshMs: 5_000 });
  notes.take();
  registry.setObservation("k", { readiness: { ...READY }, freshMs: 5_000 });
  equal(notes.take(), []);
  const full = { publishReady: false, consumeReady: true, reasons: ["disk_pressure"] };
  registry.setObservation("k", { readiness: full, freshMs: 5_000 });
  equal(notes.take(), ["ready a:4150"]);
});

Deno.test("Registry.replaceRegistrations() leaves exactly what is wanted, and changes only what differs", () => {
  const registry = withProducers(newRegistry(), "a", "b");
  const notes = new Notes();
  registry.register("b", "old", "x");
  registry.replaceRegistrations("a", [
    { topic: "old", channels: ["x"] },
    { topic: "t", channels: ["c", "d"] },
  ]);
  registry.observe(notes);
  registry.replaceRegistrations("a", [
    { topic: "t", channels: ["d", "e"] },
    { topic: "u", channels: [] },
  ]);
  equal(notes.take().sort(), [
    "a:4150 old -",
    "a:4150 old x",
    "a:4150 t c",
    "a:4150 t e",
    "a:4150 u -",
  ]);
  const [node, other] = registry.nodes(0).map(({ producer }) =>
    registry.registrationsOf([producer])
  );
  equal(node, [{ topic: "t", channels: ["d", "e"] }, { topic: "u", channels: [] }]);
  equal(other, [{ topic: "old", channels: ["x"] }]);
  equal(registry.registrationCount, 6);
});

Deno.test("an observed producer is active for its own time, and a lookup keeps its order as producers come and go", () => {
  const registry = newRegistry();
  for (const name of ["b", "c", "a"]) {
    const producer = { remoteAddress: name, info: info(name) };
    registry.addProducer(name, producer, 0, { readiness: READY, freshMs: 5_000 });
    registry.register(name, "t", null);
    found(registry, "t");
  }
  equal(found(registry, "t", 5_000), ["a", "b", "c"]);
  registry.removeProducer("b");
  registry.touch("c", 1);
  equal([found(registry, "t", 5_000), found(registry, "t", 5_001)], [["a", "c"], ["c"]]);
});
