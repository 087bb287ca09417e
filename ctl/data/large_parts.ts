/**
 * Whether the parts of large messages are all there. It is shown the log in order and remembers a few
 * numbers for each part and each message that lacks one; parts that no message names are nobody's.
 */
import {
  type BrokerState,
  type MessageHeader,
  readTable,
  type TopicState,
  WIRE_HEADER_BYTES,
} from "@sluice/broker/storage/format";
import { RECORD_HEADER_BYTES } from "@sluice/shared/log";
import { Buffer } from "node:buffer";

/** A message that cannot be delivered. */
export interface IncompleteMessage {
  readonly topic: string;
  readonly offset: number;
  /** Of the message's record. */
  readonly position: number;
  /** Position of the first part that is not there. */
  readonly part: number;
}

interface Incomplete {
  readonly topic: number;
  readonly offset: number;
  readonly position: number;
  readonly part: number;
}

/** See the module. */
export class LargeParts {
  /** Length and checksum by position. */
  readonly #seen = new Map<number, { readonly bytes: number; readonly crc: number }>();
  readonly #incomplete: Incomplete[] = [];

  /** A part whose checksum is right. */
  see(bytes: Uint8Array, start: number, end: number, position: number): void {
    const crc = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
      .readUInt32LE(start - RECORD_HEADER_BYTES + 4);
    this.#seen.set(position, { bytes: end - start, crc });
  }

  /** A large message whose table adds up. */
  need(header: MessageHeader, bytes: Uint8Array, end: number, position: number): void {
    const body = readTable(bytes, header.wireStart + WIRE_HEADER_BYTES, end, position);
    const missing = body?.parts.find((part) => {
      const seen = this.#seen.get(part.position);
      return seen?.bytes !== part.bytes || seen.crc !== part.crc;
    });
    if (missing === undefined) return;
    const { topic, offset } = header;
    this.#incomplete.push({ topic, offset, position, part: missing.position });
  }

  /** The messages that lack a part and are owed: parts of others go with their files. */
  *missing(state: BrokerState): Iterable<IncompleteMessage> {
    for (const { topic, ...message } of this.#incomplete) {
      const owner = state.topicsByNumber.get(topic);
      if (owner !== undefined && isOwed(owner, message.offset)) {
        yield { topic: owner.name, ...message };
      }
    }
  }
}

/** Whether any channel is owed a message, or the first one will be. */
export function isOwed(topic: TopicState, offset: number): boolean {
  if (topic.channels.size === 0) return offset >= topic.keepFrom;
  return [...topic.channels.values()].some(({ finished }) => !finished.has(offset));
}
