/**
 * The records of a broker's log. Numbers in record headers are little endian, the part of a message
 * that goes to clients is exactly what NSQ puts in a message frame, big endian.
 *
 * ```
 * message(1)  = topic:u32 offset_high:u16 attributes_bytes:u16 offset_low:u32 attributes wire
 * attributes  = *attribute
 * attribute   = tag:u8 length:u8 value              ; unknown tags are kept and ignored
 * due(1)      = u64                                  ; tag 1: Unix ms before which nobody gets it
 * producer(2) = id:16 sequence:u64                   ; tag 2: the publish that this message completes
 * wire        = timestamp_ns:i64be attempts:u16be id:16hex body   ; attempts is 0 in the log
 * finish(2)   = channel:u32 count:u32 first:u64 *varint           ; ascending, as differences
 * requeue(3)  = channel:u32 attempts:u32 offset:u64 due:u64       ; due 0: at once
 * event(4)    = UTF-8 JSON, see Event
 * part(5)     = a slice of a body                    ; means nothing before a large message names it
 * large_message(6) = as message, with a table of parts for a body: see large_body.ts
 * ```
 */
import { invariant } from "@sluice/shared/runtime";
import { readU64, writeU64 } from "@sluice/shared/log";
import type { TopicPolicy } from "./topic_policy.ts";

export const MESSAGE_KIND = 1;
export const FINISH_KIND = 2;
export const REQUEUE_KIND = 3;
export const EVENT_KIND = 4;
export const PART_KIND = 5;
export const LARGE_MESSAGE_KIND = 6;

/** Bytes of a message record's payload before its attributes. */
export const MESSAGE_HEADER_BYTES = 12;
/** Bytes of the wire part before the body. */
export const WIRE_HEADER_BYTES = 26;
/** Where the id is in the wire part. */
export const WIRE_ID_OFFSET = 10;
const DUE_TAG = 1;
/** An attribute part that holds a due time and nothing else. */
export const DUE_ATTRIBUTE_BYTES = 10;

const PRODUCER_TAG = 2;
/** Bytes of the id that a producer has chosen. */
export const PRODUCER_ID_BYTES = 16;
/** The attribute of a message that completes a publish with a sequence. */
export const PRODUCER_ATTRIBUTE_BYTES = 2 + PRODUCER_ID_BYTES + 8;

/** Whose publish something is, and which. */
export interface Origin {
  /** {@linkcode PRODUCER_ID_BYTES}; must not change. */
  readonly producer: Uint8Array;
  /** Whole, and at most 2^53 - 2. */
  readonly sequence: number;
}

export const OFFSET_MAX = 2 ** 48 - 1;

/** A durable decision that is not about one message. Numbers are never used again. */
export type Event =
  | {
    readonly type: "topic_created";
    readonly topic: number;
    readonly name: string;
    readonly ephemeral: boolean;
  }
  | { readonly type: "topic_deleted"; readonly topic: number }
  | {
    readonly type: "topic_paused";
    readonly topic: number;
    readonly paused: boolean;
    readonly at: number;
  }
  /** The whole policy, in place of the one before. */
  | { readonly type: "topic_configured"; readonly topic: number; readonly policy: TopicPolicy }
  | {
    readonly type: "topic_emptied";
    readonly topic: number;
    readonly from: number;
    readonly to: number;
  }
  /** What is below `to` was given up for want of space: nobody is owed it any more. */
  | { readonly type: "topic_trimmed"; readonly topic: number; readonly to: number }
  | {
    readonly type: "channel_created";
    readonly topic: number;
    readonly channel: number;
    readonly name: string;
    readonly start: number;
  }
  | { readonly type: "channel_deleted"; readonly channel: number; readonly keepFrom: number }
  | { readonly type: "channel_paused"; readonly channel: number; readonly paused: boolean }
  | { readonly type: "channel_emptied"; readonly channel: number; readonly to: number };

const textEncoder = new TextEncoder();
const textDecoder = new TextDecoder();

/** The payload of an event record. */
export function encodeEvent(event: Event): Uint8Array {
  return textEncoder.encode(JSON.stringify(event));
}

/** Reads an event; throws `SyntaxError` when it is not one. Unknown types are for the caller. */
export function decodeEvent(bytes: Uint8Array): Event {
  return JSON.parse(textDecoder.decode(bytes)) as Event;
}

/** What the log needs to know of a message record; positions are indexes in the bytes given. */
export interface MessageHeader {
  topic: number;
  offset: number;
  /** 0 when it is not deferred. */
  dueMs: number;
  wireStart: number;
}

/** Reads a message record's header into `header`, which is reused. */
export function readMessageHeader(
  bytes: Uint8Array,
  start: number,
  header: MessageHeader,
): void {
  // By byte: a DataView for each message would cost more than reading it.
  header.topic = readU32(bytes, start);
  header.offset = readU32(bytes, start + 8) +
    (bytes[start + 4]! | (bytes[start + 5]! << 8)) * 2 ** 32;
  const length = bytes[start + 6]! | (bytes[start + 7]! << 8);
  header.wireStart = start + MESSAGE_HEADER_BYTES + length;
  header.dueMs = length === 0 ? 0 : readDue(bytes, start + MESSAGE_HEADER_BYTES, header.wireStart);
}

/** Bytes of the attributes of a message; `dueMs` is 0 and `origin` null for what it does not have. */
export function attributesBytes(dueMs: number, origin: Origin | null): number {
  const dueBytes = dueMs === 0 ? 0 : DUE_ATTRIBUTE_BYTES;
  return origin === null ? dueBytes : dueBytes + PRODUCER_ATTRIBUTE_BYTES;
}

/** Writes a message record's header with its {@linkcode attributesBytes}; returns where the wire part goes. */
export function writeMessageHeader(
  view: DataView,
  start: number,
  topic: number,
  offset: number,
  dueMs: number,
  origin: Origin | null = null,
): number {
  view.setUint32(start, topic, true);
  view.setUint16(start + 4, Math.floor(offset / 2 ** 32), true);
  view.setUint16(start + 6, attributesBytes(dueMs, origin), true);
  view.setUint32(start + 8, offset >>> 0, true);
  let at = start + MESSAGE_HEADER_BYTES;
  if (dueMs !== 0) {
    view.setUint8(at, DUE_TAG);
    view.setUint8(at + 1, 8);
    writeU64(view, at + 2, dueMs);
    at += DUE_ATTRIBUTE_BYTES;
  }
  return origin === null ? at : writeProducer(view, at, origin);
}

function writeProducer(view: DataView, at: number, { producer, sequence }: Origin): number {
  view.setUint8(at, PRODUCER_TAG);
  view.setUint8(at + 1, PRODUCER_ID_BYTES + 8);
  new Uint8Array(view.buffer, view.byteOffset + at + 2).set(producer);
  writeU64(view, at + 2 + PRODUCER_ID_BYTES, sequence);
  return at + PRODUCER_ATTRIBUTE_BYTES;
}

/**
 * Where the producer's id is in a message record that starts at `start`, -1 when it has none. Its
 * sequence follows the id: {@linkcode readSequence}.
 */
export function findProducer(bytes: Uint8Array, start: number, wireStart: number): number {
  let at = start + MESSAGE_HEADER_BYTES;
  while (at + 2 <= wireStart) {
    const length = bytes[at + 1]!;
    const isProducer = bytes[at] === PRODUCER_TAG && length === PRODUCER_ID_BYTES + 8;
    if (isProducer && at + PRODUCER_ATTRIBUTE_BYTES <= wireStart) return at + 2;
    at += 2 + length;
  }
  return -1;
}

/** The sequence behind a producer's id at `at`. */
export function readSequence(bytes: Uint8Array, at: number): number {
  const sequence = at + PRODUCER_ID_BYTES;
  return readU32(bytes, sequence) + readU32(bytes, sequence + 4) * 2 ** 32;
}

/** The timestamp of a wire part, in whole ms. */
export function readWireMs(bytes: Uint8Array, wireStart: number): number {
  const view = viewOf(bytes);
  // Rounded to less than 1 us: enough for whole ms.
  const timestampNs = view.getUint32(wireStart) * 2 ** 32 + view.getUint32(wireStart + 4);
  return Math.round(timestampNs / 1e6);
}

function readDue(bytes: Uint8Array, start: number, end: number): number {
  let at = start;
  while (at + 2 <= end) {
    const length = bytes[at + 1]!;
    if (bytes[at] === DUE_TAG && length === 8 && at + 10 <= end) {
      return readU32(bytes, at + 2) + readU32(bytes, at + 6) * 2 ** 32;
    }
    at += 2 + length;
  }
  return 0;
}

/** A little-endian number, read by byte. */
export function readU32(bytes: Uint8Array, at: number): number {
  return (bytes[at]! | (bytes[at + 1]! << 8) | (bytes[at + 2]! << 16) | (bytes[at + 3]! << 24)) >>>
    0;
}

/** Bytes of a finish record's header, before the differences. */
const FINISH_HEADER_BYTES = 16;
/** An upper bound of a finish record's payload. */
export function finishBytesMax(count: number): number {
  return FINISH_HEADER_BYTES + count * 7;
}

/** Encodes ascending offsets into `into`; returns the bytes used. */
export function encodeFinish(
  into: Uint8Array,
  channel: number,
  offsets: Float64Array,
): number {
  const first = offsets[0];
  invariant(first !== undefined, "a finish record names an offset");
  const view = new DataView(into.buffer, into.byteOffset, into.byteLength);
  view.setUint32(0, channel, true);
  view.setUint32(4, offsets.length, true);
  writeU64(view, 8, first);
  let at = FINISH_HEADER_BYTES;
  let before = first;
  for (let index = 1; index < offsets.length; index++) {
    const offset = offsets[index]!;
    let difference = offset - before;
    before = offset;
    while (difference >= 128) {
      into[at++] = (difference % 128) | 128;
      difference = Math.floor(difference / 128);
    }
    into[at++] = difference;
  }
  return at;
}

/** Calls `each` for every offset of a finish record. */
export function decodeFinish(
  bytes: Uint8Array,
  start: number,
  end: number,
  each: (channel: number, offset: number) => void,
): void {
  const view = viewOf(bytes);
  const channel = view.getUint32(start, true);
  const count = view.getUint32(start + 4, true);
  let offset = readU64(view, start + 8);
  if (count > 0) each(channel, offset);
  let at = start + FINISH_HEADER_BYTES;
  for (let index = 1; index < count && at < end; index++) {
    let difference = 0;
    let scale = 1;
    let byte;
    do {
      byte = bytes[at++]!;
      difference += (byte & 127) * scale;
      scale *= 128;
    } while (byte >= 128 && at < end);
    offset += difference;
    each(channel, offset);
  }
}

/** A durable requeue. */
export interface Requeue {
  readonly channel: number;
  readonly offset: number;
  readonly attempts: number;
  /** Unix ms; 0 for at once. */
  readonly dueMs: number;
}

export const REQUEUE_BYTES = 24;

/** Writes the payload of a requeue record; {@linkcode REQUEUE_BYTES}. */
export function writeRequeue(view: DataView, start: number, requeue: Requeue): void {
  view.setUint32(start, requeue.channel, true);
  view.setUint32(start + 4, requeue.attempts, true);
  writeU64(view, start + 8, requeue.offset);
  writeU64(view, start + 16, requeue.dueMs);
}

/** Reads what {@linkcode writeRequeue} wrote. */
export function readRequeue(bytes: Uint8Array, start: number): Requeue {
  const view = viewOf(bytes);
  return {
    channel: view.getUint32(start, true),
    attempts: view.getUint32(start + 4, true),
    offset: readU64(view, start + 8),
    dueMs: readU64(view, start + 16),
  };
}

function viewOf(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}
