/**
 * The records of a spool's log. Numbers are little endian, a `varint` is 7 bits a byte, the low ones
 * first. A publish is named by its **lane** (0 for anybody's, 1 for pinned ones) and its **number**,
 * counted in its lane without a gap; and by its **id**, the position of its first record.
 *
 * ```
 * publish(1)    = flags:u8 topic_bytes:u8 broker_bytes:u16 message_count:u32 number:u64 spooled_ms:u64
 *                 due_ms:u64 sequence:u64 producer:16 topic broker body      ; flags: 1 batch, 2 pinned
 * assign(2)     = assigned_ms:u64 count:u32 broker_bytes:u16 0:u16 broker *(lane_number id)
 * settle(3)     = count:u32 *(lane_number length:varint)
 * quarantine(4) = id:u64 number:u64 spooled_ms:u64 assigned_ms:u64 body_bytes:u32 message_count:u32
 *                 flags:u8 topic_bytes:u8 broker_bytes:u16 reason_bytes:u16 0:u16 topic broker reason
 *                                                           ; flags: 2 pinned, 4 damaged
 * retry(5)      = id:u64 lane:u32 0:u32 number:u64
 * keep(6)       = id:u64 assigned_ms:u64 flags:u16 broker_bytes:u16 reason_bytes:u16 0:u16
 *                 broker reason publish                     ; flags: 1 quarantined, 2 has a broker
 * lane_number   = varint of (number - end of the one before in the lane) * 2 + lane
 * id            = varint of the difference to the one before
 * ```
 */
import { invariant } from "@sluice/shared/runtime";
import { readU64, writeU64 } from "@sluice/shared/log";
import { VARINT_BYTES_MAX, VarintReader, VarintWriter } from "./varint.ts";

export const PUBLISH_KIND = 1;
export const ASSIGN_KIND = 2;
export const SETTLE_KIND = 3;
export const QUARANTINE_KIND = 4;
export const RETRY_KIND = 5;
export const KEEP_KIND = 6;

/** Bytes of a publish record's payload before its topic. */
export const PUBLISH_HEADER_BYTES = 56;
const PRODUCER_OFFSET = 40;
const PRODUCER_BYTES = 16;
const BATCH_FLAG = 1;
const PINNED_FLAG = 2;
const DAMAGED_FLAG = 4;
const ASSIGN_HEADER_BYTES = 16;
const SETTLE_HEADER_BYTES = 4;
const QUARANTINE_HEADER_BYTES = 48;
const RETRY_BYTES = 24;
const KEEP_HEADER_BYTES = 24;
const KEEP_QUARANTINED_FLAG = 1;
const KEEP_BROKER_FLAG = 2;
/** Reasons and names of brokers are cut to this. */
export const TEXT_BYTES_MAX = 1024;
const TOPIC_BYTES_MAX = 255;
/** The most bytes that an entry takes in an assign record, and a run in a settle record. */
export const ASSIGNED_BYTES_MAX = 2 * VARINT_BYTES_MAX;
export const RUN_BYTES_MAX = 2 * VARINT_BYTES_MAX;

/** Anybody's publishes, and pinned ones. */
export type SpoolLane = 0 | 1;
export const FREE_LANE: SpoolLane = 0;
export const PINNED_LANE: SpoolLane = 1;

const textEncoder = new TextEncoder();
const textDecoder = new TextDecoder();

/** What is in a publish record; the texts are apart. */
export interface PublishHeader {
  isBatch: boolean;
  lane: SpoolLane;
  number: number;
  messageCount: number;
  spooledWallMs: number;
  dueWallMs: number;
  sequence: number;
  /** Where the topic, the broker and the body are in the bytes given. */
  topicStart: number;
  brokerStart: number;
  bodyStart: number;
}

/** One to be read into. */
export function emptyPublishHeader(): PublishHeader {
  return {
    isBatch: false,
    lane: FREE_LANE,
    number: 0,
    messageCount: 0,
    spooledWallMs: 0,
    dueWallMs: 0,
    sequence: 0,
    topicStart: 0,
    brokerStart: 0,
    bodyStart: 0,
  };
}

/** The bytes of a text, at most so many. */
export function textBytes(text: string, bytesMax = TEXT_BYTES_MAX): Uint8Array {
  const bytes = textEncoder.encode(text);
  if (bytes.length <= bytesMax) return bytes;
  let end = bytesMax;
  // Not in the middle of a character.
  while (end > 0 && (bytes[end]! & 0xc0) === 0x80) end--;
  return bytes.subarray(0, end);
}

/** The text of bytes. */
export function textOf(bytes: Uint8Array): string {
  return textDecoder.decode(bytes);
}

/** What a publish record says of its publish. */
export interface PublishFields {
  readonly isBatch: boolean;
  readonly messageCount: number;
  readonly dueWallMs: number;
  readonly producer: Uint8Array;
  readonly sequence: number;
  readonly body: Uint8Array;
}

/** Writes a publish record's payload at `start`: {@linkcode PUBLISH_HEADER_BYTES} and the three parts. */
export function writePublish(
  into: Uint8Array,
  view: DataView,
  start: number,
  publish: PublishFields,
  place: { readonly lane: SpoolLane; readonly number: number; readonly spooledWallMs: number },
  topic: Uint8Array,
  broker: Uint8Array,
): void {
  invariant(topic.length <= TOPIC_BYTES_MAX, "a topic's name is short");
  invariant(publish.producer.length === PRODUCER_BYTES, "a producer id has 16 bytes");
  view.setUint8(
    start,
    (publish.isBatch ? BATCH_FLAG : 0) | (place.lane === PINNED_LANE ? PINNED_FLAG : 0),
  );
  view.setUint8(start + 1, topic.length);
  view.setUint16(start + 2, broker.length, true);
  view.setUint32(start + 4, publish.messageCount, true);
  writeU64(view, start + 8, place.number);
  writeU64(view, start + 16, place.spooledWallMs);
  writeU64(view, start + 24, publish.dueWallMs);
  writeU64(view, start + 32, publish.sequence);
  into.set(publish.producer, start + PRODUCER_OFFSET);
  const topicStart = start + PUBLISH_HEADER_BYTES;
  into.set(topic, topicStart);
  into.set(broker, topicStart + topic.length);
  into.set(publish.body, topicStart + topic.length + broker.length);
}

/** Reads a publish record's header into `header`, which is reused; false when it is none. */
export function readPublish(
  view: DataView,
  start: number,
  end: number,
  header: PublishHeader,
): boolean {
  if (end - start < PUBLISH_HEADER_BYTES) return false;
  const flags = view.getUint8(start);
  header.isBatch = (flags & BATCH_FLAG) !== 0;
  header.lane = (flags & PINNED_FLAG) !== 0 ? PINNED_LANE : FREE_LANE;
  header.messageCount = view.getUint32(start + 4, true);
  header.number = readU64(view, start + 8);
  header.spooledWallMs = readU64(view, start + 16);
  header.dueWallMs = readU64(view, start + 24);
  header.sequence = readU64(view, start + 32);
  header.topicStart = start + PUBLISH_HEADER_BYTES;
  header.brokerStart = header.topicStart + view.getUint8(start + 1);
  header.bodyStart = header.brokerStart + view.getUint16(start + 2, true);
  return header.bodyStart <= end;
}

/** A copy of the producer's id in a publish record that starts at `start`. */
export function copyProducer(bytes: Uint8Array, start: number): Uint8Array {
  return bytes.slice(start + PRODUCER_OFFSET, start + PRODUCER_OFFSET + PRODUCER_BYTES);
}

/** Names an entry in decisions. */
export interface EntryName {
  readonly lane: SpoolLane;
  readonly number: number;
  readonly id: number;
}

/** The payload of an assign record; `entries` ascend by id, and so by number in each lane. */
export function encodeAssign(
  broker: Uint8Array,
  assignedWallMs: number,
  entries: readonly EntryName[],
): Uint8Array {
  const bytes = new Uint8Array(
    ASSIGN_HEADER_BYTES + broker.length + entries.length * ASSIGNED_BYTES_MAX,
  );
  const view = new DataView(bytes.buffer);
  writeU64(view, 0, assignedWallMs);
  view.setUint32(8, entries.length, true);
  view.setUint16(12, broker.length, true);
  bytes.set(broker, ASSIGN_HEADER_BYTES);
  const writer = new VarintWriter(bytes, ASSIGN_HEADER_BYTES + broker.length);
  const ends = [0, 0];
  let before = 0;
  for (const { lane, number, id } of entries) {
    writer.write((number - ends[lane]!) * 2 + lane);
    writer.write(id - before);
    ends[lane] = number + 1;
    before = id;
  }
  return bytes.subarray(0, writer.at);
}

/** What an assign record says. */
export interface Assignment {
  readonly broker: string;
  readonly assignedWallMs: number;
  readonly entries: readonly EntryName[];
}

/** Reads an assign record's payload; null when it is none. */
export function decodeAssign(bytes: Uint8Array): Assignment | null {
  if (bytes.length < ASSIGN_HEADER_BYTES) return null;
  const view = viewOf(bytes);
  const count = view.getUint32(8, true);
  const start = ASSIGN_HEADER_BYTES + view.getUint16(12, true);
  if (start > bytes.length) return null;
  const reader = new VarintReader(bytes, start);
  const ends = [0, 0];
  const entries: EntryName[] = [];
  let id = 0;
  for (let index = 0; index < count; index++) {
    const word = reader.read();
    const difference = reader.read();
    if (word < 0 || difference < 0) return null;
    const lane = word % 2 === 0 ? FREE_LANE : PINNED_LANE;
    const number = ends[lane]! + Math.floor(word / 2);
    ends[lane] = number + 1;
    id += difference;
    entries.push({ lane, number, id });
  }
  return {
    broker: textOf(bytes.subarray(ASSIGN_HEADER_BYTES, start)),
    assignedWallMs: readU64(view, 0),
    entries,
  };
}

/** Numbers `[start, end)` of a lane. */
export interface LaneRun {
  readonly lane: SpoolLane;
  readonly start: number;
  readonly end: number;
}

/** The payload of a settle record; the runs of a lane ascend. */
export function encodeSettle(runs: readonly LaneRun[]): Uint8Array {
  const bytes = new Uint8Array(SETTLE_HEADER_BYTES + runs.length * RUN_BYTES_MAX);
  viewOf(bytes).setUint32(0, runs.length, true);
  const writer = new VarintWriter(bytes, SETTLE_HEADER_BYTES);
  const ends = [0, 0];
  for (const { lane, start, end } of runs) {
    writer.write((start - ends[lane]!) * 2 + lane);
    writer.write(end - start);
    ends[lane] = end;
  }
  return bytes.subarray(0, writer.at);
}

/** Reads a settle record's payload; null when it is none. */
export function decodeSettle(bytes: Uint8Array): LaneRun[] | null {
  if (bytes.length < SETTLE_HEADER_BYTES) return null;
  const count = viewOf(bytes).getUint32(0, true);
  const reader = new VarintReader(bytes, SETTLE_HEADER_BYTES);
  const ends = [0, 0];
  const runs: LaneRun[] = [];
  for (let index = 0; index < count; index++) {
    const word = reader.read();
    const length = reader.read();
    if (word < 0 || length < 0) return null;
    const lane = word % 2 === 0 ? FREE_LANE : PINNED_LANE;
    const start = ends[lane]! + Math.floor(word / 2);
    ends[lane] = start + length;
    runs.push({ lane, start, end: start + length });
  }
  return runs;
}

/** All that is known of an entry in quarantine. */
export interface QuarantineFields extends EntryName {
  readonly topic: string;
  readonly bodyBytes: number;
  readonly messageCount: number;
  readonly spooledWallMs: number;
  readonly broker: string | null;
  readonly assignedWallMs: number;
  readonly reason: string;
  readonly isDamaged: boolean;
}

/** The payload of a quarantine record. */
export function encodeQuarantine(fields: QuarantineFields): Uint8Array {
  const topic = textBytes(fields.topic, TOPIC_BYTES_MAX);
  const broker = textBytes(fields.broker ?? "");
  const reason = textBytes(fields.reason);
  const bytes = new Uint8Array(
    QUARANTINE_HEADER_BYTES + topic.length + broker.length + reason.length,
  );
  const view = viewOf(bytes);
  writeU64(view, 0, fields.id);
  writeU64(view, 8, fields.number);
  writeU64(view, 16, fields.spooledWallMs);
  writeU64(view, 24, fields.assignedWallMs);
  view.setUint32(32, fields.bodyBytes, true);
  view.setUint32(36, fields.messageCount, true);
  view.setUint8(
    40,
    (fields.lane === PINNED_LANE ? PINNED_FLAG : 0) | (fields.isDamaged ? DAMAGED_FLAG : 0),
  );
  view.setUint8(41, topic.length);
  view.setUint16(42, broker.length, true);
  view.setUint16(44, reason.length, true);
  bytes.set(topic, QUARANTINE_HEADER_BYTES);
  bytes.set(broker, QUARANTINE_HEADER_BYTES + topic.length);
  bytes.set(reason, QUARANTINE_HEADER_BYTES + topic.length + broker.length);
  return bytes;
}

/** Reads a quarantine record's payload; null when it is none. */
export function decodeQuarantine(bytes: Uint8Array): QuarantineFields | null {
  if (bytes.length < QUARANTINE_HEADER_BYTES) return null;
  const view = viewOf(bytes);
  const topicEnd = QUARANTINE_HEADER_BYTES + view.getUint8(41);
  const brokerEnd = topicEnd + view.getUint16(42, true);
  const reasonEnd = brokerEnd + view.getUint16(44, true);
  if (reasonEnd > bytes.length) return null;
  const flags = view.getUint8(40);
  return {
    id: readU64(view, 0),
    number: readU64(view, 8),
    lane: (flags & PINNED_FLAG) !== 0 ? PINNED_LANE : FREE_LANE,
    spooledWallMs: readU64(view, 16),
    assignedWallMs: readU64(view, 24),
    bodyBytes: view.getUint32(32, true),
    messageCount: view.getUint32(36, true),
    isDamaged: (flags & DAMAGED_FLAG) !== 0,
    topic: textOf(bytes.subarray(QUARANTINE_HEADER_BYTES, topicEnd)),
    broker: brokerEnd === topicEnd ? null : textOf(bytes.subarray(topicEnd, brokerEnd)),
    reason: textOf(bytes.subarray(brokerEnd, reasonEnd)),
  };
}

/** The payload of a retry record. */
export function encodeRetry({ id, lane, number }: EntryName): Uint8Array {
  const bytes = new Uint8Array(RETRY_BYTES);
  const view = viewOf(bytes);
  writeU64(view, 0, id);
  view.setUint32(8, lane, true);
  writeU64(view, 16, number);
  return bytes;
}

/** Reads a retry record's payload; null when it is none. */
export function decodeRetry(bytes: Uint8Array): EntryName | null {
  if (bytes.length < RETRY_BYTES) return null;
  const view = viewOf(bytes);
  const lane = view.getUint32(8, true) === 0 ? FREE_LANE : PINNED_LANE;
  return { id: readU64(view, 0), lane, number: readU64(view, 16) };
}

/** What a keep record says of its entry besides the publish. */
export interface KeepFields {
  readonly id: number;
  readonly broker: string | null;
  readonly assignedWallMs: number;
  /** Null when it is not in quarantine. */
  readonly reason: string | null;
}

/** The part of a keep record's payload in front of the payload of the publish. */
export function encodeKeep(fields: KeepFields): Uint8Array {
  const broker = textBytes(fields.broker ?? "");
  const reason = textBytes(fields.reason ?? "");
  const bytes = new Uint8Array(KEEP_HEADER_BYTES + broker.length + reason.length);
  const view = viewOf(bytes);
  writeU64(view, 0, fields.id);
  writeU64(view, 8, fields.assignedWallMs);
  view.setUint16(
    16,
    (fields.reason === null ? 0 : KEEP_QUARANTINED_FLAG) |
      (fields.broker === null ? 0 : KEEP_BROKER_FLAG),
    true,
  );
  view.setUint16(18, broker.length, true);
  view.setUint16(20, reason.length, true);
  bytes.set(broker, KEEP_HEADER_BYTES);
  bytes.set(reason, KEEP_HEADER_BYTES + broker.length);
  return bytes;
}

/** Reads the front of a keep record; null when it is none. The publish begins at `publishStart`. */
export function decodeKeep(
  bytes: Uint8Array,
  start: number,
  end: number,
): (KeepFields & { readonly publishStart: number }) | null {
  if (end - start < KEEP_HEADER_BYTES) return null;
  const view = viewOf(bytes);
  const flags = view.getUint16(start + 16, true);
  const brokerStart = start + KEEP_HEADER_BYTES;
  const reasonStart = brokerStart + view.getUint16(start + 18, true);
  const publishStart = reasonStart + view.getUint16(start + 20, true);
  if (publishStart > end) return null;
  const broker = textOf(bytes.subarray(brokerStart, reasonStart));
  const reason = textOf(bytes.subarray(reasonStart, publishStart));
  return {
    id: readU64(view, start),
    assignedWallMs: readU64(view, start + 8),
    broker: (flags & KEEP_BROKER_FLAG) === 0 ? null : broker,
    reason: (flags & KEEP_QUARANTINED_FLAG) === 0 ? null : reason,
    publishStart,
  };
}

function viewOf(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}
