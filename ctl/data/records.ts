/**
 * Whether a record makes sense: its checksum, and what its kind asks for. A record whose checksum
 * is right and whose content is not was written so, or damaged before it was written.
 */
import {
  decodeEvent,
  decodeFinish,
  EVENT_KIND,
  FINISH_KIND,
  LARGE_MESSAGE_KIND,
  MESSAGE_HEADER_BYTES,
  MESSAGE_KIND,
  type MessageHeader,
  PART_KIND,
  readMessageHeader,
  readTable,
  REQUEUE_BYTES,
  REQUEUE_KIND,
  WIRE_HEADER_BYTES,
  WIRE_ID_OFFSET,
} from "@sluice/broker/storage/format";
import { LogError, RECORD_HEADER_BYTES, recordCrc, recordWord } from "@sluice/shared/log";

const FINISH_BYTES_MIN = 16;

/**
 * What is wrong with a record's payload `bytes[start, end)`, behind its header in `bytes`, or null. A
 * message's header is read into `header`. Throws `LogError` `newer_format` for a kind that is not known.
 */
export function recordProblem(
  kind: number,
  bytes: Uint8Array,
  start: number,
  end: number,
  position: number,
  header: MessageHeader,
): string | null {
  const at = start - RECORD_HEADER_BYTES;
  const view = new DataView(
    bytes.buffer,
    bytes.byteOffset + at,
    RECORD_HEADER_BYTES,
  );
  const crc = recordCrc(
    recordWord(kind, end - start),
    bytes.subarray(start, end),
  );
  if (view.getUint32(4, true) !== crc) return "the record's checksum is wrong";
  switch (kind) {
    case MESSAGE_KIND:
      if (end - start < MESSAGE_HEADER_BYTES + WIRE_HEADER_BYTES) {
        return "the message is too short";
      }
      readMessageHeader(bytes, start, header);
      return header.wireStart + WIRE_HEADER_BYTES > end ? "the message is too short" : null;
    case LARGE_MESSAGE_KIND: {
      if (end - start < MESSAGE_HEADER_BYTES + WIRE_HEADER_BYTES) {
        return "the message is too short";
      }
      readMessageHeader(bytes, start, header);
      const table = readTable(bytes, header.wireStart + WIRE_HEADER_BYTES, end, position);
      return table === null ? "the message's table of parts does not add up" : null;
    }
    case PART_KIND:
      return end > start ? null : "the part is empty";
    case FINISH_KIND:
      return finishProblem(bytes, start, end);
    case REQUEUE_KIND:
      return end - start === REQUEUE_BYTES ? null : "the requeue has another length";
    case EVENT_KIND:
      return eventProblem(bytes.subarray(start, end));
    default:
      throw new LogError(
        "newer_format",
        `Cannot read the log: the record at ${position} is of kind ${kind}, which this release ` +
          "does not know",
      );
  }
}

function finishProblem(
  bytes: Uint8Array,
  start: number,
  end: number,
): string | null {
  if (end - start < FINISH_BYTES_MIN) return "the finish is too short";
  const view = new DataView(
    bytes.buffer,
    bytes.byteOffset + start,
    FINISH_BYTES_MIN,
  );
  const declared = view.getUint32(4, true);
  let count = 0;
  decodeFinish(bytes, start, end, () => count++);
  return count === declared && count > 0 ? null : "the finish does not hold what it counts";
}

function eventProblem(bytes: Uint8Array): string | null {
  try {
    const event: unknown = decodeEvent(bytes);
    const isEvent = typeof event === "object" && event !== null &&
      "type" in event;
    return isEvent ? null : "the event has no type";
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    return "the event is not JSON";
  }
}

/** The node and the sequence in a message's id, or null when it is not one of ours. */
export function readMessageId(
  bytes: Uint8Array,
  wireStart: number,
): { nodeId: number; sequence: number } | null {
  const text = idText(bytes, wireStart);
  if (!/^[0-9a-f]{16}$/.test(text)) return null;
  return {
    nodeId: parseInt(text.slice(0, 4), 16),
    sequence: parseInt(text.slice(4), 16),
  };
}

/** A message's id as clients see it. */
export function idText(bytes: Uint8Array, wireStart: number): string {
  const id = wireStart + WIRE_ID_OFFSET;
  return String.fromCharCode(
    ...bytes.subarray(id, wireStart + WIRE_HEADER_BYTES),
  );
}
