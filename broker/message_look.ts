/**
 * Looking at the messages of a channel without consuming them, and finding one by its id. Nothing of the
 * channel changes, and nobody's message waits for it.
 *
 * - Bounded in messages, in bytes, and in places looked at: {@linkcode LOOK_STEPS_MAX}. Where an answer ends
 *   early it says where to go on.
 * - A message that is damaged is left out.
 */
import { parseMessageId } from "@sluice/shared/protocol";
import { type Clock, Slices } from "@sluice/shared/runtime";
import type { MessageReader } from "./message_reader.ts";
import { type Channel, COLD, FOUND, type Looked } from "./queue/mod.ts";
import { type Storage, type TopicState, WIRE_HEADER_BYTES, WIRE_ID_OFFSET } from "./storage/mod.ts";

/** Messages read for one answer, those that are left out included. */
export const LOOK_STEPS_MAX = 10_000;
/** Tries at one message: what was read may be pushed out before it is looked at. */
const TRIES_MAX = 5;
const ID_BYTES = 16;
/** Unreadable messages passed over to find one that tells where an id is. */
const NEIGHBOURS_MAX = 1000;

/** A message as it is in the log. */
export interface ReadMessage {
  readonly offset: number;
  readonly id: string;
  readonly sequence: number;
  /** When it was published, Unix ms. */
  readonly timestampMs: number;
  /** When its publisher wanted it delivered, Unix ms; 0 for at once. */
  readonly dueMs: number;
  readonly bodyBytes: number;
  /** The beginning of the body; empty for a large message. */
  readonly body: Uint8Array;
}

/** A message with its place in a channel. */
export interface LookedMessage {
  readonly message: ReadMessage;
  readonly place: Looked;
}

/** What is asked for. */
export interface PeekBounds {
  /** The first offset to look at. */
  readonly from: number;
  readonly count: number;
  /** Of one body. */
  readonly bodyBytesMax: number;
  /** Of all bodies. */
  readonly bytesMax: number;
}

/** See the module. */
export class MessageLook {
  readonly #storage: Storage;
  readonly #source: MessageReader;
  readonly #clock: Clock;

  constructor(storage: Storage, source: MessageReader, clock: Clock) {
    this.#storage = storage;
    this.#source = source;
    this.#clock = clock;
  }

  /** Messages of a channel that are not finished, by offset; `next` is where to go on, null at the end. */
  async peek(
    channel: Channel,
    { from, count, bodyBytesMax, bytesMax }: PeekBounds,
  ): Promise<{ messages: LookedMessage[]; next: number | null }> {
    const { state, topic } = channel;
    const slices = new Slices(this.#clock);
    const messages: LookedMessage[] = [];
    let bytesLeft = bytesMax;
    let offset = Math.max(from, state.finished.floor);
    for (let steps = 0; !channel.deleted; steps++) {
      offset = state.finished.firstMissing(offset, topic.visibleTail);
      if (offset >= topic.visibleTail) return { messages, next: null };
      const isEnough = messages.length >= count || bytesLeft <= 0 || steps >= LOOK_STEPS_MAX;
      if (isEnough) return { messages, next: offset };
      const message = await this.read(topic, offset, Math.min(bodyBytesMax, bytesLeft));
      const place = message && this.#placeOf(channel, message);
      if (message !== null && place !== null) {
        messages.push({ message, place });
        bytesLeft -= message.body.length;
      }
      offset++;
      if (slices.isOver) await slices.pause();
    }
    return { messages, next: null };
  }

  /** The deferred messages that are due first, without their bodies. */
  async deferred(channel: Channel, count: number): Promise<LookedMessage[]> {
    const slices = new Slices(this.#clock);
    const messages: LookedMessage[] = [];
    for (const { offset } of channel.firstDeferred(count)) {
      const message = await this.read(channel.topic, offset, 0);
      const place = message && this.#placeOf(channel, message);
      if (message !== null && place?.state === "deferred") messages.push({ message, place });
      if (slices.isOver) await slices.pause();
    }
    return messages;
  }

  /** The visible message of an id that a channel has not finished; null when there is none. */
  async find(channel: Channel, id: string): Promise<LookedMessage | null> {
    const bytes = new TextEncoder().encode(id);
    if (bytes.length !== ID_BYTES) return null;
    const sequence = parseMessageId(bytes, 0, this.#storage.nodeId);
    if (sequence < 0) return null;
    const { topic } = channel;
    // In a topic ids grow with offsets.
    let [low, high] = [channel.state.finished.floor, topic.visibleTail];
    while (low < high) {
      const middle = Math.floor((low + high) / 2);
      const message = await this.#readFrom(topic, middle, high);
      if (message === null) {
        high = middle;
        continue;
      }
      if (message.sequence === sequence) {
        const place = channel.deleted ? null : this.#placeOf(channel, message);
        return place && { message, place };
      }
      if (message.sequence < sequence) low = message.offset + 1;
      else high = middle;
    }
    return null;
  }

  /** A message with so much of its body; null when it cannot be read. */
  async read(
    topic: TopicState,
    offset: number,
    bodyBytesMax: number,
  ): Promise<ReadMessage | null> {
    for (let tries = 0; tries < TRIES_MAX; tries++) {
      const found = this.#source.find(topic, offset);
      if (found === FOUND) return this.#copy(offset, bodyBytesMax);
      if (found !== COLD) return null;
      await this.#source.load(topic, offset);
    }
    return null;
  }

  /** The first message of `[from, end)` that can be read. */
  async #readFrom(topic: TopicState, from: number, end: number): Promise<ReadMessage | null> {
    const last = Math.min(end, from + NEIGHBOURS_MAX);
    for (let offset = from; offset < last; offset++) {
      const message = await this.read(topic, offset, 0);
      if (message !== null) return message;
    }
    return null;
  }

  #copy(offset: number, bodyBytesMax: number): ReadMessage {
    const { bytes, start, length, sequence, dueMs, large } = this.#source.view;
    const idStart = start + WIRE_ID_OFFSET;
    const bodyStart = start + WIRE_HEADER_BYTES;
    const bodyBytes = length - WIRE_HEADER_BYTES;
    return {
      offset,
      id: new TextDecoder().decode(bytes.subarray(idStart, idStart + ID_BYTES)),
      sequence,
      timestampMs: this.#source.timestampMs(),
      dueMs,
      bodyBytes: large?.body.bytes ?? bodyBytes,
      body: bytes.slice(bodyStart, bodyStart + Math.min(bodyBytes, bodyBytesMax)),
    };
  }

  #placeOf(channel: Channel, { offset, sequence, dueMs }: ReadMessage): Looked | null {
    return channel.look(offset, sequence, dueMs, this.#clock.wallMs());
  }
}
