/**
 * Decisions about one topic that a broker is killed in the middle of: a lane does one thing after the
 * other to a topic of its own (create, delete, empty, pause, publish, take), so it always knows what
 * the broker has confirmed, and that at most one thing is in doubt. After a start the topic must be
 * as before that thing or after it; a publish of many may have come in part.
 *
 * The model of the seeded crash test says what each thing does. What was finished without a
 * confirmation stays in doubt until the channel has been taken to its end.
 */
import type { SeededRandom } from "@sluice/shared/testing";
import { Model, type ModelEvent } from "../crash/model.ts";
import { type Ledger, nameOf } from "./ledger.ts";
import type { Service, TopicFigures } from "./process.ts";
import { RawClient } from "./raw_client.ts";
import { eventually } from "./wait.ts";

const CHANNELS = ["a", "b"];
const DEFER_MS_MAX = 3_000;
const BACKLOG_MAX = 200;
const BATCH_MAX = 8;
/** The broker counts a deferral from when it got the publish, not from when that was sent. */
const DUE_MARGIN_MS = 2_000;

type Act = (broker: Service) => Promise<void>;

/** See the module. */
export class Lane {
  readonly #model = new Model();
  readonly #topic: string;
  readonly #ledger: Ledger;
  readonly #random: SeededRandom;
  readonly #names = new Map<string, number>();
  /** By channel: finished, and maybe not on disk. */
  readonly #doubtful = new Map<string, Set<number>>();
  #step = 0;
  /** What the topic may look like after a start, by how many of the events in doubt took place. */
  #candidates: { readonly step: number; readonly look: string }[] = [];
  #last = "nothing";
  acts = 0;

  constructor(name: string, ledger: Ledger, random: SeededRandom) {
    this.#topic = name;
    this.#ledger = ledger;
    this.#random = random;
  }

  /** Does one thing after the other until the broker does not answer any more. */
  async run(broker: Service): Promise<void> {
    try {
      while (broker.code === null) {
        await this.#chooseAct()(broker);
        this.acts++;
      }
    } catch {
      // What was under way is in doubt.
    }
  }

  /** Compares the topic with what it may be, and takes that for certain. */
  async settle(broker: Service): Promise<void> {
    const seen = lookOf(await broker.topic(this.#topic));
    if (this.#candidates.length > 0) {
      const found = this.#candidates.findLast(({ look }) => this.#fits(look, seen));
      if (found === undefined) {
        const expected = this.#candidates.map(({ look }) => look).join(" or ");
        this.#undone(`after "${this.#last}" it is ${seen}, and should be ${expected}`);
      }
      this.#model.restart(found?.step ?? this.#step);
      this.#candidates = [];
    } else if (!this.#fits(this.#look(), seen)) {
      this.#undone(`it is ${seen}, and should be ${this.#look()}`);
    }
    for (const [channel, doubtful] of this.#doubtful) {
      const known = this.#model.topics.get(this.#topic)?.channels.get(channel);
      if (known === undefined) this.#doubtful.delete(channel);
      else if (!known.paused && doubtful.size > 0) await this.#take(broker, channel);
    }
  }

  #undone(words: string): void {
    this.#ledger.problem("undone", `topic ${this.#topic}: ${words}`);
  }

  #chooseAct(): Act {
    const random = this.#random;
    const topic = this.#model.topics.get(this.#topic);
    if (topic === undefined) {
      return this.#order("/topic/create", [{ type: "topic_created", topic: this.#topic }]);
    }
    const channel = random.pick(CHANNELS);
    const known = topic.channels.get(channel);
    const about = { topic: this.#topic, channel };
    const query = `&channel=${channel}`;
    const choice = random.below(24);
    if (choice === 0) {
      return this.#order("/topic/delete", [{ type: "topic_deleted", topic: this.#topic }]);
    }
    if (choice === 1) {
      return this.#order("/topic/empty", [{ type: "topic_emptied", topic: this.#topic }]);
    }
    if (choice === 2) {
      const paused = !topic.paused;
      return this.#order(paused ? "/topic/pause" : "/topic/unpause", [
        { type: "topic_paused", topic: this.#topic, paused, held: topic.channels.size === 0 },
      ]);
    }
    if (choice < 15 || known === undefined) {
      if (known === undefined && choice < 8) {
        return this.#order("/channel/create", [{ type: "channel_created", ...about }], query);
      }
      return (broker) => this.#publish(broker, topic.kept.size + topic.held.size);
    }
    if (choice === 15) {
      return this.#order("/channel/delete", [{ type: "channel_deleted", ...about }], query);
    }
    if (choice === 16) {
      const emptied: ModelEvent = { type: "channel_emptied", ...about, shownEnd: this.#step };
      return this.#order("/channel/empty", [emptied], query);
    }
    if (choice === 17 || known.paused) {
      const paused = !known.paused;
      return this.#order(paused ? "/channel/pause" : "/channel/unpause", [
        { type: "channel_paused", ...about, paused },
      ], query);
    }
    return (broker) => this.#take(broker, channel);
  }

  #order(path: string, events: readonly ModelEvent[], query = ""): Act {
    return (broker) =>
      this.#decide(
        path,
        events,
        () => broker.order(`${path}?topic=${this.#topic}${query}`),
      );
  }

  /** Sends something; until it is confirmed any beginning of `events` may have taken place. */
  async #decide(
    what: string,
    events: readonly ModelEvent[],
    send: () => Promise<void>,
  ): Promise<void> {
    this.#last = what;
    const before = this.#step;
    const candidates = [{ step: before, look: this.#look() }];
    for (const event of events) {
      this.#model.record(event, ++this.#step);
      candidates.push({ step: this.#step, look: this.#look() });
    }
    this.#candidates = candidates;
    await send();
    this.#candidates = [];
    this.#model.confirm(this.#step);
  }

  async #publish(broker: Service, waiting: number): Promise<void> {
    const random = this.#random;
    const topic = this.#model.topics.get(this.#topic);
    const backlog = [...topic?.channels.values() ?? []]
      .reduce((most, { owed }) => Math.max(most, owed.size), waiting);
    if (backlog > BACKLOG_MAX) {
      return this.#order("/topic/delete", [{ type: "topic_deleted", topic: this.#topic }])(broker);
    }
    const isDeferred = random.below(4) === 0;
    const deferMs = isDeferred ? 1 + random.below(DEFER_MS_MAX) : 0;
    const bodies = this.#ledger.newBodies(
      this.#topic,
      isDeferred ? 1 : 1 + random.below(BATCH_MAX),
      random.below(2_000),
      deferMs,
    );
    const dueMs = deferMs === 0 ? 0 : Date.now() + deferMs;
    const events = bodies.map((body): ModelEvent => {
      const sequence = this.#names.size + 1;
      this.#names.set(nameOf(body), sequence);
      return { type: "published", topic: this.#topic, sequence, bytes: body.length, dueMs };
    });
    const path = isDeferred
      ? `/pub?topic=${this.#topic}&defer=${deferMs}`
      : `/mpub?topic=${this.#topic}`;
    await this.#decide(path, events, () => broker.order(path, bodies.join("\n")));
    // Confirmed, and in some modes not shown to a channel yet: what follows would miss it. This
    // changes nothing and is answered when all before it is on disk.
    await broker.order(`/topic/create?topic=${this.#topic}`);
  }

  /** Takes what a channel hands out, all of it, and finishes most. */
  async #take(broker: Service, channel: string): Promise<void> {
    const about = { topic: this.#topic, channel };
    const key = `${this.#topic}/${channel}`;
    const { owed } = this.#model.channel(this.#topic, channel);
    const doubtful = this.#doubtful.get(channel) ?? new Set<number>();
    const got = new Map<number, string>();
    await using client = await RawClient.connect(broker.tcpPort);
    client.onMessage = (delivery) => {
      const name = this.#ledger.deliver(delivery, key);
      const sequence = this.#names.get(name) ?? 0;
      if (got.has(sequence)) this.#ledger.problem("twice", `"${name}" on ${key}`);
      if (!owed.has(sequence)) this.#undone(`"${name}" came on ${key}, which does not owe it`);
      got.set(sequence, delivery.id);
    };
    await client.sub(this.#topic, channel);
    client.rdy(BACKLOG_MAX * 2);
    const fromMs = Date.now();
    await eventually(`all of ${key}`, async () => {
      const figures = await broker.channel(this.#topic, channel);
      return figures === undefined || (figures.depth === 0 && figures.in_flight_count === got.size);
    });
    for (const [sequence, debt] of [...owed]) {
      if (got.has(sequence) || debt.dueMs > fromMs - DUE_MARGIN_MS) continue;
      if (!doubtful.has(sequence)) this.#undone(`message ${sequence} is lost on ${key}`);
      // Nothing hands it out any more: its finish did get to the disk.
      this.#finished(about, sequence);
    }
    const share = this.#random.below(4);
    const finished = [...got].filter(([sequence]) =>
      doubtful.has(sequence) || sequence % 4 > share
    );
    this.#doubtful.set(channel, new Set(finished.map(([sequence]) => sequence)));
    for (const [, id] of finished) client.fin(id);
    const bodies = this.#ledger.newBodies("alone", 1, 0);
    await client.pub("alone", bodies[0]!);
    this.#ledger.confirm(bodies);
    this.#doubtful.delete(channel);
    for (const [sequence] of finished) this.#finished(about, sequence);
  }

  #finished(about: { readonly topic: string; readonly channel: string }, sequence: number): void {
    this.#model.record({ type: "finished", ...about, sequence }, ++this.#step);
    this.#model.confirm(this.#step);
  }

  /** How the topic looks by the model: a text with the count of messages of each channel. */
  #look(): string {
    const topic = this.#model.topics.get(this.#topic);
    if (topic === undefined) return "absent";
    const depth = topic.held.size + (topic.channels.size === 0 ? topic.kept.size : 0);
    const channels = [...topic.channels].map(([name, { paused, owed }]) => ({
      name,
      paused,
      owed: owed.size,
    }));
    return look(topic.paused, depth, channels);
  }

  /** Whether what is seen is what is expected, up to finishes in doubt. */
  #fits(expected: string, seen: string): boolean {
    if (expected === seen) return true;
    const [wanted, found] = [expected.split(" "), seen.split(" ")];
    return wanted.length === found.length && wanted.every((part, at) => {
      const [, name = "", paused, owed] = /^(\w+)(!?)=(\d+)$/.exec(part) ?? [];
      const [, foundName, foundPaused, foundOwed] = /^(\w+)(!?)=(\d+)$/.exec(found[at]!) ?? [];
      if (part === found[at]) return true;
      if (name === "" || name !== foundName || paused !== foundPaused) return false;
      const fewer = Number(owed) - Number(foundOwed);
      return fewer >= 0 && fewer <= (this.#doubtful.get(name)?.size ?? 0);
    });
  }
}

function lookOf(figures: TopicFigures | undefined): string {
  if (figures === undefined) return "absent";
  const channels = figures.channels.map((channel) => ({
    name: channel.channel_name,
    paused: channel.paused,
    owed: channel.depth + channel.deferred_count + channel.in_flight_count,
  }));
  return look(figures.paused, figures.depth, channels);
}

function look(
  paused: boolean,
  depth: number,
  channels: readonly { readonly name: string; readonly paused: boolean; readonly owed: number }[],
): string {
  const parts = channels.map(({ name, paused, owed }) => `${name}${paused ? "!" : ""}=${owed}`);
  return [`${paused ? "paused" : "open"}:${depth}`, ...parts.sort()].join(" ");
}
