/**
 * Moving the messages that wait in a channel to another topic, which also is how dead letters are driven
 * again.
 *
 * - A message is published to the other topic and on disk there before it is finished here. A crash, or
 *   an end at any moment, leaves it here, there, or in both: at least once.
 * - Messages on their way are in flight: consumers do not get them as well, unless the move takes longer than
 *   {@linkcode MOVE_TIMEOUT_MS} for a batch. The channel may be paused meanwhile, or have no consumers.
 * - What is deferred or in flight is not moved. A moved message is a new one: with an id and a time of
 *   its own, and no attempts.
 * - One call is bounded in messages, bytes in memory and time, and says how far it came; the next call goes
 *   on from there.
 */
import { type Clock, InvariantError } from "@sluice/shared/runtime";
import type { Audit } from "./audit.ts";
import { type BodyReader, DamagedBodyError } from "./large_delivery.ts";
import type { LargeUpload } from "./large_upload.ts";
import {
  type Channel,
  type Consumer,
  type ConsumerPort,
  type LargeMessage,
  type MessageSource,
  type MessageView,
  type Topic,
} from "./queue/mod.ts";
import { RefusedError } from "./refused.ts";
import { type LargeBody, WIRE_HEADER_BYTES } from "./storage/mod.ts";

/** The most messages of one call. */
export const MOVE_COUNT_MAX = 10_000;
/** No batch begins later than this in a call. */
export const MOVE_MS_MAX = 10_000;
/** Calls at a time; more are refused. */
export const MOVES_MAX = 4;
/** How long a batch may take before its messages are anybody's again. */
export const MOVE_TIMEOUT_MS = 60_000;
/** Messages that are published before they are waited for. */
const BATCH_COUNT = 64;
const BATCH_BYTES = 256 * 1024;

/** The broker that messages move in. */
export interface MoveBroker {
  readonly clock: Clock;
  readonly audit: Pick<Audit, "record">;
  readonly source: MessageSource & { passOver(message: LargeMessage): void };
  readonly position: number;
  readonly storage: { drain(): Promise<void> };
  admit(): void;
  admitTo(topic: Topic): void;
  ensureTopic(name: string): Topic;
  hasRoom(bytes: number, messages: number): boolean;
  room(): Promise<void>;
  durableTo(position: number): Promise<void>;
  publish(topic: Topic, body: Uint8Array, start: number, end: number, dueMs: number): void;
  beginUpload(stalled: () => void): LargeUpload | null;
  readBody(body: LargeBody): BodyReader;
}

/** What a call came to. */
export interface MoveReport {
  readonly moved: number;
  readonly movedBytes: number;
  /** Left out because they are damaged; they are finished. */
  readonly damaged: number;
  /** Whether nothing waits in the channel any more. */
  readonly complete: boolean;
  /** Why it has ended early; null when it has not. */
  readonly stopped: RefusedError | null;
}

interface Held {
  readonly sequence: number;
  readonly body: Uint8Array;
  readonly large: LargeMessage | null;
}

/** See the module. */
export class Mover {
  /** Calls refused because too many were under way. */
  refusedCount = 0;
  readonly #broker: MoveBroker;
  #count = 0;

  constructor(broker: MoveBroker) {
    this.#broker = broker;
  }

  /** Moves under way. */
  get underWayCount(): number {
    return this.#count;
  }

  /**
   * Moves up to `count` messages. Null when as many moves as may be are under way, or the channel takes no
   * more consumers. Rejects when the log fails.
   */
  async move(channel: Channel, to: string, count: number): Promise<MoveReport | null> {
    if (this.#count >= MOVES_MAX) {
      this.refusedCount++;
      return null;
    }
    const taker = new Taker();
    const consumer = channel.join(taker, MOVE_TIMEOUT_MS, 0);
    if (consumer === null) return null;
    this.#count++;
    try {
      const report = await new Move(this.#broker, channel, consumer, taker, to).run(count);
      await this.#broker.storage.drain();
      return report;
    } finally {
      this.#count--;
      channel.leave(consumer);
    }
  }
}

/** The consumer that a move is: it takes what it is handed and asks for nothing. */
class Taker implements ConsumerPort {
  readonly writable = false;
  readonly held: Held[] = [];

  deliver({ bytes, start, length, sequence, large }: MessageView): void {
    const body = large === null
      ? bytes.slice(start + WIRE_HEADER_BYTES, start + length)
      : new Uint8Array();
    this.held.push({ sequence, body, large });
  }

  channelDeleted(): void {}
}

class Move {
  readonly #broker: MoveBroker;
  readonly #channel: Channel;
  readonly #consumer: Consumer;
  readonly #taker: Taker;
  readonly #to: string;
  #moved = 0;
  #movedBytes = 0;
  #damaged = 0;

  constructor(
    broker: MoveBroker,
    channel: Channel,
    consumer: Consumer,
    taker: Taker,
    to: string,
  ) {
    this.#broker = broker;
    this.#channel = channel;
    this.#consumer = consumer;
    this.#taker = taker;
    this.#to = to;
  }

  async run(count: number): Promise<MoveReport> {
    const { clock } = this.#broker;
    const untilMs = clock.monoMs() + MOVE_MS_MAX;
    let complete = false;
    try {
      while (!complete && this.#done < count && clock.monoMs() < untilMs) {
        this.#broker.admit();
        complete = !await this.#take(Math.min(BATCH_COUNT, count - this.#done), untilMs);
        await this.#pass();
      }
      return this.#report(complete, null);
    } catch (error) {
      if (error instanceof InvariantError || !(error instanceof RefusedError)) throw error;
      return this.#report(false, error);
    } finally {
      this.#audit();
    }
  }

  get #done(): number {
    return this.#moved + this.#damaged;
  }

  /** Takes a batch, a small one when it is late; false when nothing more waits. */
  async #take(count: number, untilMs: number): Promise<boolean> {
    const { held } = this.#taker;
    const { clock, source } = this.#broker;
    for (let bytes = 0; held.length < count && bytes < BATCH_BYTES;) {
      const taken = this.#channel.takeNext(this.#consumer, clock.monoMs());
      if (taken === "none") return false;
      if (taken === "taken") bytes += held.at(-1)!.body.length;
      else if (clock.monoMs() >= untilMs) return true;
      else if (taken === "later") await clock.sleep(0);
      else await source.load(this.#channel.topic, taken.load);
    }
    return true;
  }

  /** Publishes what was taken, and finishes it here once that is on disk. */
  async #pass(): Promise<void> {
    const broker = this.#broker;
    const batch = this.#taker.held.splice(0);
    const passed: Held[] = [];
    try {
      for (const held of batch) {
        if (held.large === null) await this.#publish(held.body);
        else if (!await this.#publishLarge(held.large, held.sequence)) continue;
        passed.push(held);
      }
    } finally {
      if (passed.length > 0) await broker.durableTo(broker.position);
      for (const { sequence, body, large } of passed) {
        if (!this.#channel.deleted) this.#channel.finish(this.#consumer, sequence);
        this.#moved++;
        this.#movedBytes += large?.body.bytes ?? body.length;
      }
    }
  }

  async #publish(body: Uint8Array): Promise<void> {
    const broker = this.#broker;
    while (!broker.hasRoom(body.length, 1)) {
      await broker.room();
      broker.admit();
    }
    broker.publish(this.#target(), body, 0, body.length, 0);
  }

  /** The topic, which may have been deleted meanwhile. */
  #target(): Topic {
    const topic = this.#broker.ensureTopic(this.#to);
    this.#broker.admitTo(topic);
    return topic;
  }

  /** False when its body is damaged: it is finished then. */
  async #publishLarge(large: LargeMessage, sequence: number): Promise<boolean> {
    const broker = this.#broker;
    const upload = broker.beginUpload(() => {});
    if (upload === null) throw new RefusedError("throttled", "too many bytes are being received");
    const reader = broker.readBody(large.body);
    try {
      for (let part = await reader.next(); part !== null; part = await reader.next()) {
        for (let at = 0; at < part.length;) {
          at += upload.receive(part, at, part.length);
          if (at < part.length) await broker.room();
        }
        this.#channel.touch(this.#consumer, sequence, broker.clock.monoMs());
      }
      while (!upload.finish(this.#target(), 0)) await broker.room();
      return true;
    } catch (error) {
      if (!(error instanceof DamagedBodyError)) throw error;
      broker.source.passOver(large);
      this.#channel.finish(this.#consumer, sequence);
      this.#damaged++;
      return false;
    } finally {
      upload.abandon();
      reader.close();
    }
  }

  #report(complete: boolean, stopped: RefusedError | null): MoveReport {
    return {
      moved: this.#moved,
      movedBytes: this.#movedBytes,
      damaged: this.#damaged,
      complete,
      stopped,
    };
  }

  #audit(): void {
    if (this.#moved === 0) return;
    const { topic, state } = this.#channel;
    this.#broker.audit.record({
      event: "messages_moved",
      topic: topic.name,
      channel: state.name,
      to: this.#to,
      messages: this.#moved,
    });
  }
}
