/**
 * A topic with its channels as pure machines, in a world of recorded effects that moves by commands.
 * Has no tests of its own.
 *
 * Commands; `<m>` is a message's offset, times are ms:
 *
 *     publish <count> [due=<ms>] [hidden]   durable at once unless hidden; `durable` shows the rest
 *     channel <name>                        as created now
 *     join <consumer> [on=<channel>] [timeout=<ms>] [sample=<percent>] [stuck]
 *     rdy <consumer> <n>    fin|touch <consumer> <m>    req <consumer> <m> <ms>
 *     cls|leave|stuck|unstuck <consumer>
 *     pause|unpause|empty|delete [<channel>]
 *     topic-pause | topic-unpause
 *     cold <m> | loaded | gone <m>
 *     advance <ms> | wall <ms> (the wall clock jumps) | restart
 *     options [consumers=<n>] [orphans] [touch=<ms>]
 */
import { ok } from "node:assert/strict";
import type { Random } from "@sluice/shared/runtime";
import {
  applyEmptied,
  applyFinish,
  applyRequeue,
  ChannelState,
  TopicState,
} from "../storage/mod.ts";
import type { Channel, ChannelEffects, ChannelOptions } from "./channel.ts";
import type { Consumer, ConsumerPort } from "./consumer.ts";
import { COLD, FOUND, GONE, type MessageSource, type MessageView } from "./message_source.ts";
import { NOT_SCHEDULED, Schedule, type Timed } from "./schedule.ts";
import { Topic } from "./topic.ts";

const WALL_START_MS = 1_000_000;
const SEQUENCE_FIRST = 100;

class Port implements ConsumerPort {
  writable = true;
  constructor(readonly name: string, readonly world: World) {}

  deliver(message: MessageView, attempts: number): void {
    this.world.note(`deliver ${this.name} ${message.sequence - SEQUENCE_FIRST} #${attempts}`);
  }

  channelDeleted(): void {
    this.world.note(`closed ${this.name}`);
  }
}

interface Member {
  readonly channel: Channel;
  readonly consumer: Consumer;
  readonly port: Port;
}

/** See the module. */
export class World implements ChannelEffects, MessageSource {
  readonly source: MessageSource = this;
  readonly view = {
    bytes: new Uint8Array(),
    start: 0,
    length: 0,
    sequence: 0,
    dueMs: 0,
    large: null,
  };
  isCold = false;
  /** Draws 0, 10, 20 ... 90 of a hundred, in turn. */
  readonly random: Random = { u32: () => (this.#draws++ % 10) / 10 * 2 ** 32 };
  #draws = 0;
  #nowMs = 0;
  #wallMs = WALL_START_MS;
  #schedule = new Schedule();
  #topic: Topic;
  #state = new TopicState(1, "t", false);
  #options: ChannelOptions = {
    msgTimeoutMsMax: 900_000,
    consumersMax: 0,
    requeueOnDisconnect: true,
  };
  #woken: Channel[] = [];
  #notes: string[] = [];
  readonly #members = new Map<string, Member>();
  readonly #due = new Map<number, number>();
  readonly #cold = new Set<number>();
  readonly #gone = new Set<number>();
  #loads: (() => void)[] = [];

  constructor() {
    this.#topic = new Topic(this.#state, this, this.#options);
  }

  note(text: string): void {
    this.#notes.push(text);
  }

  // Effects

  finish(channel: ChannelState, offset: number): void {
    this.note(`finish ${channel.name} ${offset}`);
    applyFinish(channel, offset);
  }

  requeue(channel: ChannelState, offset: number, attempts: number, dueMs: number): void {
    this.note(`requeue ${channel.name} ${offset} #${attempts} ${this.#at(dueMs)}`);
    applyRequeue(channel, offset, attempts, dueMs);
  }

  empty(channel: ChannelState, to: number): void {
    this.note(`empty ${channel.name} <${to}`);
    applyEmptied(channel, to);
  }

  schedule(timed: Timed, dueMs: number): void {
    this.#schedule.add(timed, dueMs);
  }

  wake(channel: Channel): void {
    channel.woken = true;
    this.#woken.push(channel);
  }

  find(_topic: TopicState, offset: number): typeof FOUND | typeof COLD | typeof GONE {
    if (this.#gone.has(offset)) return GONE;
    if (this.#cold.has(offset)) return COLD;
    this.view.sequence = SEQUENCE_FIRST + offset;
    this.view.dueMs = this.#due.get(offset) ?? 0;
    return FOUND;
  }

  timestampMs(): number {
    return WALL_START_MS;
  }

  load(_topic: TopicState, offset: number): Promise<void> {
    this.note(`load ${offset}`);
    return new Promise((resolve) =>
      this.#loads.push(() => {
        this.#cold.delete(offset);
        resolve();
      })
    );
  }

  /** Runs the commands of a block; returns what they led to. */
  async run(commands: readonly string[]): Promise<string[]> {
    this.#notes = [];
    for (const command of commands) {
      await this.#command(command.split(" "));
      this.#settle();
    }
    return [...this.#notes, ...this.#states()];
  }

  #settle(): void {
    while (this.#woken.length > 0) {
      for (const channel of this.#woken.splice(0)) {
        channel.woken = false;
        channel.dispatch(this.#nowMs);
      }
    }
  }

  async #command([verb = "", ...words]: string[]): Promise<void> {
    const options = new Map(
      words.filter((word) => word.includes("=")).map((word) => {
        const [key = "", value = ""] = word.split("=");
        return [key, value];
      }),
    );
    const [name = "", second = ""] = words;
    const number = (key: string, otherwise: number) => Number(options.get(key) ?? otherwise);
    const member = () => {
      const found = this.#members.get(name);
      ok(found !== undefined, `there is a consumer ${name}`);
      return found;
    };
    const channel = () => this.#channel(name === "" ? "c" : name);
    const topic = this.#topic;
    switch (verb) {
      case "options":
        this.#options = {
          msgTimeoutMsMax: number("touch", 900_000),
          consumersMax: number("consumers", 0),
          requeueOnDisconnect: !words.includes("orphans"),
        };
        this.#topic = new Topic(this.#state, this, this.#options);
        return;
      case "publish":
        for (let index = 0; index < Number(name); index++) {
          const dueMs = options.has("due") ? this.#wallMs + number("due", 0) : 0;
          if (dueMs !== 0) {
            this.#due.set(this.#state.tail, dueMs);
            this.#state.hiddenDue.push(dueMs, this.#state.tail);
          }
          this.#state.tail++;
        }
        if (!words.includes("hidden")) this.#durable();
        return;
      case "durable":
        return this.#durable();
      case "channel": {
        const state = new ChannelState(
          this.#state.channels.size + 1,
          this.#state,
          name,
          false,
          this.#state.channelStart,
        );
        this.#state.channels.set(name, state);
        topic.addChannel(state);
        return;
      }
      case "join": {
        const port = new Port(name, this);
        port.writable = !words.includes("stuck");
        const joined = this.#channel(options.get("on") ?? "c");
        const consumer = joined.join(port, number("timeout", 60_000), number("sample", 0));
        if (consumer === null) return this.note(`refused ${name}`);
        this.#members.set(name, { channel: joined, consumer, port });
        return;
      }
      case "rdy":
        return member().channel.credit(member().consumer, Number(second));
      case "fin":
        return this.#outcome(
          member().channel.finish(member().consumer, SEQUENCE_FIRST + Number(second)),
        );
      case "touch":
        return this.#outcome(
          member().channel.touch(member().consumer, SEQUENCE_FIRST + Number(second), this.#nowMs),
        );
      case "req":
        return this.#outcome(
          member().channel.requeue(
            member().consumer,
            SEQUENCE_FIRST + Number(second),
            Number(words[2]),
            this.#nowMs,
            this.#wallMs,
          ),
        );
      case "cls":
        return member().channel.close(member().consumer);
      case "leave":
        member().channel.leave(member().consumer);
        this.#members.delete(name);
        return;
      case "stuck":
        member().port.writable = false;
        return member().channel.writable(member().consumer);
      case "unstuck":
        member().port.writable = true;
        return member().channel.writable(member().consumer);
      case "pause":
        return channel().setPaused(true);
      case "unpause":
        return channel().setPaused(false);
      case "empty":
        return channel().empty();
      case "delete":
        this.#state.channels.delete(channel().state.name);
        channel().delete();
        topic.channels.delete(channel().state.name);
        return;
      case "topic-pause":
        this.#state.paused = true;
        this.#state.pausedAt = this.#state.tail;
        return;
      case "topic-unpause":
        this.#state.paused = false;
        return topic.appended(this.#nowMs, this.#wallMs);
      case "cold":
        this.#cold.add(Number(name));
        return;
      case "gone":
        this.#gone.add(Number(name));
        return;
      case "loaded":
        for (const loaded of this.#loads.splice(0)) loaded();
        for (let turn = 0; turn < 3; turn++) await Promise.resolve();
        return;
      case "wall":
        this.#wallMs += Number(name);
        return;
      case "advance":
        return this.#advance(Number(name));
      case "restart":
        return this.#restart();
      default:
        throw new Error(`Unknown command "${verb}"`);
    }
  }

  #outcome(outcome: string): void {
    if (outcome !== "done") this.note(outcome);
  }

  #durable(): void {
    this.#state.durableTail = this.#state.tail;
    this.#topic.appended(this.#nowMs, this.#wallMs);
  }

  #channel(name: string): Channel {
    const channel = this.#topic.channels.get(name);
    ok(channel !== undefined, `there is a channel ${name}`);
    return channel;
  }

  /** Lets time pass in steps of what is scheduled, as the one timer does. */
  #advance(ms: number): void {
    const untilMs = this.#nowMs + ms;
    while (this.#schedule.earliestMs <= untilMs) {
      const stepMs = Math.max(0, this.#schedule.earliestMs - this.#nowMs);
      this.#nowMs += stepMs;
      this.#wallMs += stepMs;
      this.#schedule.run(this.#nowMs, this.#wallMs);
      this.#settle();
    }
    this.#wallMs += untilMs - this.#nowMs;
    this.#nowMs = untilMs;
  }

  /** What is durable stays; consumers, flights and counters go. */
  #restart(): void {
    for (const { channel, consumer } of this.#members.values()) channel.leave(consumer);
    this.#members.clear();
    this.#woken = [];
    this.#schedule = new Schedule();
    this.#state.durableTail = this.#state.tail;
    this.#state.hiddenDue = [];
    this.#state.keptDue = [];
    this.#state.due.clear();
    for (const [offset, dueMs] of this.#due) {
      const channels = [...this.#state.channels.values()];
      if (channels.length === 0 || channels.some((channel) => !channel.finished.has(offset))) {
        this.#state.due.push(dueMs, offset);
      }
    }
    this.#topic = new Topic(this.#state, this, this.#options);
    this.#topic.scheduledMs = NOT_SCHEDULED;
    this.#topic.recover(this.#nowMs, this.#wallMs);
  }

  /** Offsets below can be seen by channels. */
  get visibleTail(): number {
    return this.#state.visibleTail;
  }

  /** The first offset a channel ever owed. */
  startOf(name: string): number {
    return this.#channel(name).state.start;
  }

  /** The messages a channel could deliver now, has in flight, and has deferred. */
  counts(name: string): [number, number, number] {
    const { depth, inFlightCount, deferredCount } = this.#channel(name);
    return [depth, inFlightCount, deferredCount];
  }

  #states(): string[] {
    const lines = this.#topic.depth > 0 ? [`t depth ${this.#topic.depth}`] : [];
    for (const channel of this.#topic.channels.values()) {
      const { depth, inFlightCount, deferredCount, messageCount, requeueCount, timeoutCount } =
        channel;
      let line = `${channel.state.name} depth ${depth} in-flight ${inFlightCount}` +
        ` deferred ${deferredCount} messages ${messageCount}`;
      if (requeueCount > 0) line += ` requeued ${requeueCount}`;
      if (timeoutCount > 0) line += ` timed-out ${timeoutCount}`;
      for (const [name, { channel: joined, consumer }] of this.#members) {
        if (joined !== channel) continue;
        line += ` | ${name} ${consumer.deliveries.count}/${consumer.ready}`;
      }
      lines.push(line);
    }
    return lines;
  }

  #at(dueMs: number): string {
    return dueMs === 0 ? "now" : `at +${dueMs - WALL_START_MS}`;
  }
}
