import { deepStrictEqual as equal, match, ok } from "node:assert/strict";
import { SimClock } from "@sluice/shared/testing";
import type { ProducerInfo } from "./producer.ts";
import { Registry } from "./registry.ts";
import { Roster } from "./roster.ts";
import { BATCH_MS, CHANGES_MAX, HEARTBEAT_MS, WatchHub } from "./watch.ts";

interface Event {
  readonly name: string;
  readonly data: {
    readonly id?: string;
    readonly revision: number;
    readonly broker?: { readonly publish_ready: boolean };
    readonly topics?: readonly { readonly topic: string; readonly channels: readonly string[] }[];
    readonly registrations?: readonly {
      readonly topic: string;
      readonly channel: string | null;
      readonly present: boolean;
    }[];
  };
}

const READY = { publishReady: true, consumeReady: true, reasons: [] };
const FRESH_MS = 5_000;

function info(name: string): ProducerInfo {
  return {
    broadcastAddress: name,
    hostname: name,
    tcpPort: 4150,
    httpPort: 4151,
    version: "1.3.0",
    topologyRegion: "",
    topologyZone: "",
  };
}

/** A registry with watchers, in simulated time. */
class WatchStage {
  readonly clock = new SimClock();
  readonly registry = new Registry({ inactiveTimeoutMs: 300_000, tombstoneLifetimeMs: 45_000 });
  readonly roster = new Roster(this.registry, this.clock);
  readonly hub: WatchHub;

  constructor(watchersMax = 10, queueBytesMax = 64 * 1024) {
    const { roster, clock } = this;
    this.hub = new WatchHub({ roster, clock, instance: "i", watchersMax, queueBytesMax });
  }

  add(key: string, name = key): void {
    this.registry.addProducer(key, { remoteAddress: key, info: info(name) }, this.clock.monoMs());
  }

  watch(): WatchReader {
    const stream = this.hub.open();
    ok(stream !== null);
    return new WatchReader(stream);
  }
}

/** Reads a stream as a client does, and keeps the state that it tells of. */
class WatchReader {
  readonly #reader: ReadableStreamDefaultReader<Uint8Array>;
  readonly state = new Map<string, Set<string>>();

  constructor(stream: ReadableStream<Uint8Array>) {
    this.#reader = stream.getReader();
  }

  /** The next block as it is on the wire; `null` at the end. */
  async text(): Promise<string | null> {
    const { value } = await this.#reader.read();
    return value === undefined ? null : new TextDecoder().decode(value);
  }

  async next(): Promise<Event> {
    const text = await this.text();
    const found = /^event: (\w+)\nid: (\d+)\ndata: (.*)\n\n$/.exec(text ?? "");
    ok(found !== null, `an event: ${text}`);
    const [, name = "", id, data = ""] = found;
    const event: Event = { name, data: JSON.parse(data) };
    equal(Number(id), event.data.revision);
    this.#apply(event);
    return event;
  }

  /** All up to `synced`. */
  async synced(): Promise<string[]> {
    const names: string[] = [];
    while (true) {
      const { name, data } = await this.next();
      if (name === "synced") return names;
      names.push(`${name} ${data.id}`);
    }
  }

  cancel(): Promise<void> {
    return this.#reader.cancel();
  }

  #apply({ name, data }: Event): void {
    const { id = "", topics = [], registrations = [] } = data;
    if (name === "removed") this.state.delete(id);
    if (name === "added") {
      this.state.set(
        id,
        new Set(
          topics.flatMap(({ topic, channels }) => [topic, ...channels.map((c) => `${topic} ${c}`)]),
        ),
      );
    }
    for (const { topic, channel, present } of registrations) {
      const key = channel === null ? topic : `${topic} ${channel}`;
      if (present) this.state.get(id)?.add(key);
      else this.state.get(id)?.delete(key);
    }
  }
}

Deno.test("a watcher first gets every broker with its topics, then that it has seen all, then changes", async () => {
  const stage = new WatchStage();
  stage.add("a");
  stage.registry.register("a", "t", "c");
  stage.add("b");
  const reader = stage.watch();
  equal(await reader.synced(), ["added a:4150", "added b:4150"]);
  equal([...reader.state], [["a:4150", new Set(["t", "t c"])], ["b:4150", new Set()]]);
  stage.registry.register("b", "new", null);
  stage.clock.advance(BATCH_MS);
  const { name, data } = await reader.next();
  equal([name, data.id, data.registrations], ["changed", "b:4150", [
    { topic: "new", channel: null, present: true },
  ]]);
  stage.registry.removeProducer("a");
  stage.clock.advance(BATCH_MS);
  equal((await reader.next()).name, "removed");
  equal([...reader.state], [["b:4150", new Set(["new"])]]);
  stage.hub.close();
  equal(await reader.text(), null);
  equal(stage.clock.pendingTimers, 0);
});

Deno.test("a new broker and all it registers at once is one event", async () => {
  const stage = new WatchStage();
  const reader = stage.watch();
  equal(await reader.synced(), []);
  stage.add("a");
  for (let index = 0; index < 100; index++) stage.registry.register("a", `t${index}`, "c");
  stage.clock.advance(BATCH_MS);
  const { name, data } = await reader.next();
  equal([name, data.topics?.length], ["added", 100]);
  // More changes than are worth telling one by one.
  for (let index = 0; index <= CHANGES_MAX; index++) {
    stage.registry.register("a", "t0", `c${index}`);
  }
  stage.clock.advance(BATCH_MS);
  equal((await reader.next()).name, "added");
  equal(reader.state.get("a:4150")?.has(`t0 c${CHANGES_MAX}`), true);
  stage.hub.close();
});

Deno.test("a broker that leaves one of two places it is known by stays, with what is left", async () => {
  const stage = new WatchStage();
  stage.add("1", "a");
  stage.registry.register("1", "t", null);
  const observation = { readiness: READY, freshMs: FRESH_MS };
  stage.registry.addProducer("2", { remoteAddress: "x", info: info("a") }, 0, observation);
  stage.registry.register("2", "t", null);
  stage.registry.register("2", "u", null);
  const reader = stage.watch();
  equal(await reader.synced(), ["added a:4150"]);
  stage.registry.setObservation("2", {
    readiness: { ...READY, publishReady: false, reasons: ["disk_pressure"] },
    freshMs: FRESH_MS,
  });
  stage.clock.advance(BATCH_MS);
  equal((await reader.next()).data.broker?.publish_ready, false);
  stage.registry.removeProducer("2");
  stage.clock.advance(BATCH_MS);
  const { name, data } = await reader.next();
  equal([name, data.broker?.publish_ready], ["changed", true]);
  equal([...reader.state], [["a:4150", new Set(["t"])]]);
  stage.hub.close();
});

Deno.test("whatever changes while the first part is read, a watcher ends with what there is", async () => {
  const stage = new WatchStage();
  for (const name of ["a", "b", "c", "d"]) {
    stage.add(name);
    stage.registry.register(name, "t", "x");
  }
  const reader = stage.watch();
  await reader.next();
  stage.registry.unregister("a", "t", null);
  stage.registry.register("d", "u", null);
  stage.registry.removeProducer("c");
  stage.clock.advance(BATCH_MS);
  stage.add("c");
  stage.registry.register("d", "u", "y");
  stage.registry.unregister("b", "t", "x");
  stage.registry.removeProducer("d");
  stage.clock.advance(BATCH_MS);
  stage.add("e");
  await reader.synced();
  stage.clock.advance(BATCH_MS);
  await reader.next();
  equal(
    [...reader.state].sort(),
    stage.roster.ids().map((id) => [
      id,
      new Set(
        stage.roster.topics(id).flatMap(({ topic, channels }) => [
          topic,
          ...channels.map((channel) => `${topic} ${channel}`),
        ]),
      ),
    ]),
  );
  stage.hub.close();
});

Deno.test("a watcher that does not read is closed at its bound, and the others go on", async () => {
  const stage = new WatchStage(10, 2_000);
  stage.add("a");
  const slow = stage.watch();
  const quick = stage.watch();
  await slow.synced();
  await quick.synced();
  for (let index = 0; stage.hub.figures.slow === 0; index++) {
    ok(index < 100);
    stage.registry.register("a", `t${index}`, null);
    stage.clock.advance(BATCH_MS);
    await quick.next();
  }
  equal(stage.hub.figures, { watchers: 1, opened: 2, slow: 1, refused: 0 });
  // What it had before it was closed ends without the rest: it starts anew.
  let last: string | null = "";
  for (let index = 0; last !== null; index++) {
    ok(index < 3);
    last = await slow.text();
  }
  stage.registry.register("a", "after", null);
  stage.clock.advance(BATCH_MS);
  equal((await quick.next()).name, "changed");
  stage.hub.close();
});

Deno.test("a silent watch has a comment now and then, and one that is cancelled costs nothing", async () => {
  const stage = new WatchStage();
  const reader = stage.watch();
  await reader.synced();
  const text = reader.text();
  stage.clock.advance(HEARTBEAT_MS);
  match(await text ?? "", /^: .*\n\n$/);
  await reader.cancel();
  equal([stage.hub.figures.watchers, stage.clock.pendingTimers], [0, 0]);
  stage.add("a");
  equal(stage.clock.pendingTimers, 0);
});

Deno.test("more watchers than allowed are refused, until one leaves; none begins once the hub is closed", async () => {
  const stage = new WatchStage(1);
  const reader = stage.watch();
  equal(stage.hub.open(), null);
  await reader.cancel();
  stage.watch();
  stage.hub.close();
  equal(stage.hub.open(), null);
  equal(stage.hub.figures, { watchers: 0, opened: 2, slow: 0, refused: 2 });
});
