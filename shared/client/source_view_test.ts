import { deepStrictEqual as equal } from "node:assert/strict";
import { SeededRandom } from "../testing/mod.ts";
import type { BrokerWord, WatchWord } from "./discovery_answers.ts";
import { SourceView } from "./source_view.ts";

const HOSTS = ["a", "b", "c", "d"];
const TOPICS = ["t", "u", "v"];

function word(host: string, publishReady = true): BrokerWord {
  return {
    id: host,
    host,
    tcpPort: 1,
    httpPort: null,
    publishReady,
    consumeReady: true,
    reasons: [],
    isObserved: false,
    ageMs: 0,
  };
}

Deno.test("SourceView keeps so many brokers and topics at most, and says what it does not know", () => {
  const limits = { brokersMax: 2, registrationsMax: 4 };
  const changed: string[] = [];
  const view = new SourceView("watch", () => true, (id) => changed.push(id), limits);
  const add = (host: string, ...topics: string[]) =>
    view.apply({ kind: "added", broker: word(host), topics }, 0);
  const change = (id: string, topic: string, present: boolean) =>
    view.apply({ kind: "changed", id, broker: null, topics: [{ topic, present }] }, 0);
  const topics = () => [...view.brokers.values()].map(({ topics }) => topics && [...topics].join());
  const reason = () => view.status(null, 0).reason;
  view.begin();
  add("a", "t", "u");
  add("b", "t");
  view.apply({ kind: "synced" }, 0);
  // What goes makes room, and what is replaced does not count twice.
  add("a", "t", "v");
  add("b", "t", "u");
  change("a", "v", false);
  change("b", "v", true);
  view.apply({ kind: "removed", id: "b" }, 0);
  add("b", "t", "u", "v");
  equal([topics(), reason()], [["t", "t,u,v"], null]);
  add("c", "t");
  equal([view.brokers.size, reason()], [2, "not all of its brokers are known: there are over 2"]);
  change("c", "t", true);
  changed.length = 0;
  change("a", "w", true);
  equal([topics(), changed], [[null, null], ["a", "a", "b"]]);
  equal(
    reason(),
    "not all of its brokers are known: there are over 2; its topics are not known: there are over 4",
  );
  change("a", "t", true);
  add("b", "t");
  equal([topics(), view.state], [[null, null], "current"]);
  // The next snapshot begins anew.
  view.lost("gone");
  view.begin();
  add("a", "t", "u");
  add("b", "t", "u");
  equal(reason(), "gone");
  view.apply({ kind: "synced" }, 0);
  equal([topics(), reason()], [["t,u", "t,u"], null]);
});

/** A service: brokers with readiness and topics, and the words that a watcher gets of its changes. */
class Service {
  readonly brokers = new Map<string, { ready: boolean; readonly topics: Set<string> }>();
  readonly #random: SeededRandom;

  constructor(random: SeededRandom) {
    this.#random = random;
  }

  added(host: string): WatchWord {
    const broker = this.brokers.get(host);
    return broker === undefined
      ? { kind: "removed", id: host }
      : { kind: "added", broker: word(host, broker.ready), topics: [...broker.topics] };
  }

  /** Something changes. */
  step(): WatchWord {
    const random = this.#random;
    const host = random.pick(HOSTS);
    const broker = this.brokers.get(host);
    if (broker === undefined) {
      this.brokers.set(host, { ready: true, topics: new Set([random.pick(TOPICS)]) });
      return this.added(host);
    }
    if (random.chance(0.2)) {
      this.brokers.delete(host);
      return { kind: "removed", id: host };
    }
    const topic = random.pick(TOPICS);
    const isRemoved = broker.topics.delete(topic);
    if (!isRemoved) broker.topics.add(topic);
    const isTold = random.chance(0.3);
    if (isTold) broker.ready = !broker.ready;
    return {
      kind: "changed",
      id: host,
      broker: isTold ? word(host, broker.ready) : null,
      topics: [{ topic, present: !isRemoved }],
    };
  }

  get state(): string[] {
    return [...this.brokers].map(([host, { ready, topics }]) => shown(host, ready, topics)).sort();
  }
}

function shown(host: string, ready: boolean, topics: Iterable<string>): string {
  return `${host} ${ready} ${[...topics].sort().join()}`;
}

function stateOf(view: SourceView): string[] {
  return [...view.brokers].map(([id, { word, topics }]) =>
    shown(id, word.publishReady, topics ?? [])
  ).sort();
}

Deno.test("SourceView ends with what the service has, however often the stream breaks and changes overlap a snapshot", () => {
  for (let seed = 0; seed < 20; seed++) follow(seed);
});

function follow(seed: number): void {
  const random = new SeededRandom(seed);
  const service = new Service(random);
  /** What listeners know who look only at what they are told of. */
  const told = new Map<string, string>();
  const view: SourceView = new SourceView("watch", () => true, (id) => {
    const broker = view.brokers.get(id);
    if (broker === undefined) told.delete(id);
    else told.set(id, shown(id, broker.word.publishReady, broker.topics ?? []));
  });
  for (let round = 0; round < 30; round++) {
    const before = stateOf(view);
    view.begin();
    // As a service tells: what there is as it is read, and then the changes meanwhile.
    const changes: WatchWord[] = [];
    for (const host of [...service.brokers.keys()]) {
      while (random.chance(0.3)) changes.push(service.step());
      view.apply(service.added(host), 0);
    }
    for (const change of changes) view.apply(change, 0);
    equal(stateOf(view), before, `seed ${seed}`);
    if (random.chance(0.3)) {
      view.lost("cut off");
      equal(stateOf(view), before, `seed ${seed}`);
      continue;
    }
    view.apply({ kind: "synced" }, 0);
    while (random.chance(0.9)) view.apply(service.step(), 0);
    equal(stateOf(view), service.state, `seed ${seed}`);
    equal([...told.values()].sort(), service.state, `seed ${seed}`);
    view.lost("ended");
  }
}
