/**
 * What a server sends: frames. Encoders and the client's decoder.
 *
 *     frame   = int32-size int32-type data      ; size = 4 + bytes of data
 *     type    = 0 (response) / 1 (error) / 2 (message)
 *     message = int64-timestamp uint16-attempts 16OCTET-id body
 *
 * The `write...` functions fill a buffer of the caller, which must have room, and return the bytes
 * written; the `encode...` functions make new memory. A timestamp is Unix time in nanoseconds, made
 * here from whole milliseconds without rounding. Attempts stop at 32767, see ATTEMPTS_MAX.
 */
import { invariant } from "../runtime/invariant.ts";
import { type BlockBounds, BlockDecoder, BlockEvent } from "./block_decoder.ts";
import { copyBytes, readInt32, utf8Bytes, utf8Text, writeInt32, writeUtf8 } from "./bytes.ts";
import type { ProtocolError } from "./error_code.ts";
import { ATTEMPTS_MAX } from "./limits.ts";
import { MESSAGE_ID_BYTES, writeMessageId } from "./message_id.ts";

export const FrameType = { RESPONSE: 0, ERROR: 1, MESSAGE: 2 } as const;
export type FrameType = typeof FrameType[keyof typeof FrameType];

/** Size and type. */
export const FRAME_HEADER_BYTES = 8;

/** Offsets in the data of a message frame. */
export const MESSAGE_TIMESTAMP_OFFSET = 0;
export const MESSAGE_ATTEMPTS_OFFSET = 8;
export const MESSAGE_ID_OFFSET = 10;
export const MESSAGE_BODY_OFFSET = MESSAGE_ID_OFFSET + MESSAGE_ID_BYTES;

/** The whole frames and the data of the responses that never change. Shared: never written to. */
export const OK_TEXT = "OK";
export const HEARTBEAT_TEXT = "_heartbeat_";
export const CLOSE_WAIT_TEXT = "CLOSE_WAIT";
export const OK_FRAME: Uint8Array = encodeFrame(FrameType.RESPONSE, utf8Bytes(OK_TEXT));
export const HEARTBEAT_FRAME: Uint8Array = encodeFrame(
  FrameType.RESPONSE,
  utf8Bytes(HEARTBEAT_TEXT),
);
export const CLOSE_WAIT_FRAME: Uint8Array = encodeFrame(
  FrameType.RESPONSE,
  utf8Bytes(CLOSE_WAIT_TEXT),
);

/** Writes size and type of a frame with `dataBytes` of data. */
export function writeFrameHeader(
  buffer: Uint8Array,
  offset: number,
  type: FrameType,
  dataBytes: number,
): number {
  writeInt32(buffer, offset, dataBytes + 4);
  writeInt32(buffer, offset + 4, type);
  return FRAME_HEADER_BYTES;
}

/** Writes a response whose data is text. */
export function writeResponseFrame(buffer: Uint8Array, offset: number, text: string): number {
  return writeTextFrame(buffer, offset, FrameType.RESPONSE, text);
}

/** Writes an error. Room for `FRAME_HEADER_BYTES + 3 * error.text.length` is always enough. */
export function writeErrorFrame(buffer: Uint8Array, offset: number, error: ProtocolError): number {
  return writeTextFrame(buffer, offset, FrameType.ERROR, error.text);
}

/** What a message frame says besides the body. */
export interface MessageHead {
  /** When it was published; whole milliseconds. */
  readonly timestampMs: number;
  /** Deliveries so far, this one included. */
  readonly attempts: number;
  readonly nodeId: number;
  readonly sequence: number;
}

/** Writes a message whose body is `body[start, end)`. */
export function writeMessageFrame(
  buffer: Uint8Array,
  offset: number,
  head: MessageHead,
  body: Uint8Array,
  start = 0,
  end = body.length,
): number {
  const data = offset + writeFrameHeader(
    buffer,
    offset,
    FrameType.MESSAGE,
    MESSAGE_BODY_OFFSET + end - start,
  );
  writeTimestampMs(buffer, data + MESSAGE_TIMESTAMP_OFFSET, head.timestampMs);
  writeAttempts(buffer, data, head.attempts);
  writeMessageId(buffer, data + MESSAGE_ID_OFFSET, head.nodeId, head.sequence);
  copyBytes(buffer, data + MESSAGE_BODY_OFFSET, body, start, end);
  return messageFrameBytes(end - start);
}

/** Writes a message that is stored as frame data in `data[start, end)`, with its attempts replaced. */
export function writeStoredMessageFrame(
  buffer: Uint8Array,
  offset: number,
  data: Uint8Array,
  start: number,
  end: number,
  attempts: number,
): number {
  writeFrameHeader(buffer, offset, FrameType.MESSAGE, end - start);
  copyBytes(buffer, offset + FRAME_HEADER_BYTES, data, start, end);
  writeAttempts(buffer, offset + FRAME_HEADER_BYTES, attempts);
  return FRAME_HEADER_BYTES + end - start;
}

/** The size of a whole message frame. */
export function messageFrameBytes(bodyBytes: number): number {
  return FRAME_HEADER_BYTES + MESSAGE_BODY_OFFSET + bodyBytes;
}

/** Replaces the attempts in a message's data that starts at `dataOffset`. */
export function writeAttempts(buffer: Uint8Array, dataOffset: number, attempts: number): void {
  const value = attempts < ATTEMPTS_MAX ? attempts : ATTEMPTS_MAX;
  buffer[dataOffset + MESSAGE_ATTEMPTS_OFFSET] = value >>> 8;
  buffer[dataOffset + MESSAGE_ATTEMPTS_OFFSET + 1] = value;
}

/** The attempts in a message's data that starts at `dataOffset`, as an unsigned number. */
export function readAttempts(buffer: Uint8Array, dataOffset: number): number {
  const at = dataOffset + MESSAGE_ATTEMPTS_OFFSET;
  return (buffer[at]! << 8) | buffer[at + 1]!;
}

const NANOSECONDS_PER_MS = 1_000_000;
/** The last millisecond whose nanoseconds fit a signed 64-bit integer: in the year 2262. */
export const TIMESTAMP_MS_MAX = 9_223_372_036_854;

/** Writes whole milliseconds (0 to TIMESTAMP_MS_MAX) as int64 nanoseconds. */
export function writeTimestampMs(buffer: Uint8Array, offset: number, ms: number): void {
  // ms * 10^6 does not fit 2^53, so the product is made in two parts that do: of the low 20 bits
  // of the milliseconds, and of the rest.
  const rest = Math.floor(ms / 2 ** 20);
  const restProduct = rest * NANOSECONDS_PER_MS;
  const restHigh = Math.floor(restProduct / 2 ** 12);
  const low = (ms - rest * 2 ** 20) * NANOSECONDS_PER_MS +
    (restProduct - restHigh * 2 ** 12) * 2 ** 20;
  const carry = Math.floor(low / 2 ** 32);
  writeInt32(buffer, offset, restHigh + carry);
  writeInt32(buffer, offset + 4, low - carry * 2 ** 32);
}

/** Reads int64 nanoseconds that are not negative as whole milliseconds, rounded down. */
export function readTimestampMs(buffer: Uint8Array, offset: number): number {
  const high = readInt32(buffer, offset) >>> 0;
  const low = readInt32(buffer, offset + 4) >>> 0;
  const quotient = Math.floor(high / NANOSECONDS_PER_MS);
  const remainder = high - quotient * NANOSECONDS_PER_MS;
  return quotient * 2 ** 32 + Math.floor((remainder * 2 ** 32 + low) / NANOSECONDS_PER_MS);
}

/** A frame in new memory. */
export function encodeFrame(type: FrameType, data: Uint8Array): Uint8Array {
  const frame = new Uint8Array(FRAME_HEADER_BYTES + data.length);
  writeFrameHeader(frame, 0, type, data.length);
  frame.set(data, FRAME_HEADER_BYTES);
  return frame;
}

/** A response in new memory. */
export function encodeResponseFrame(text: string): Uint8Array {
  return encodeFrame(FrameType.RESPONSE, utf8Bytes(text));
}

/** An error in new memory. */
export function encodeErrorFrame(error: ProtocolError): Uint8Array {
  return encodeFrame(FrameType.ERROR, utf8Bytes(error.text));
}

/** A message in new memory. */
export function encodeMessageFrame(head: MessageHead, body: Uint8Array): Uint8Array {
  const frame = new Uint8Array(messageFrameBytes(body.length));
  writeMessageFrame(frame, 0, head, body);
  return frame;
}

function writeTextFrame(
  buffer: Uint8Array,
  offset: number,
  type: FrameType,
  text: string,
): number {
  const bytes = writeUtf8(buffer, offset + FRAME_HEADER_BYTES, text);
  writeFrameHeader(buffer, offset, type, bytes);
  return FRAME_HEADER_BYTES + bytes;
}

/** What `FrameDecoder.next()` found. */
export const FrameEvent = {
  /** All of the chunk is used: feed another one. */
  NEED_MORE: 0,
  FRAME: 1,
  /**
   * The size is below 4, above the cap, or too small for a message: the peer speaks something else.
   * Final: comes again on every call.
   */
  BAD_FRAME: 2,
} as const;
export type FrameEvent = typeof FrameEvent[keyof typeof FrameEvent];

/**
 * Frames out of a byte stream that is cut anywhere; see {@linkcode BlockDecoder} for who owns what.
 * A frame's type is handed on as it came, known or not.
 */
export class FrameDecoder {
  /** After FRAME: one of {@linkcode FrameType}, or whatever else the server sent. */
  type = 0;
  /** After FRAME: the data is `buffer[start, end)`. */
  buffer: Uint8Array;
  start = 0;
  end = 0;
  readonly #blocks: BlockDecoder;
  #failed = false;

  /** `frameBytesMax` caps the size field: type and data. */
  constructor(frameBytesMax: number, options: Pick<BlockBounds, "retainBytesMax"> = {}) {
    invariant(frameBytesMax >= 4, "a frame has at least its type");
    this.#blocks = new BlockDecoder({ sizeMin: 4, sizeMax: frameBytesMax, ...options });
    this.buffer = this.#blocks.buffer;
  }

  feed(buffer: Uint8Array, start = 0, end = buffer.length): void {
    this.#blocks.feed(buffer, start, end);
  }

  next(): FrameEvent {
    if (this.#failed) return FrameEvent.BAD_FRAME;
    const blocks = this.#blocks;
    switch (blocks.next()) {
      case BlockEvent.NEED_MORE:
        this.buffer = blocks.buffer;
        this.start = 0;
        this.end = 0;
        return FrameEvent.NEED_MORE;
      case BlockEvent.BLOCK:
        this.type = readInt32(blocks.buffer, blocks.start);
        this.buffer = blocks.buffer;
        this.start = blocks.start + 4;
        this.end = blocks.end;
        if (this.type !== FrameType.MESSAGE || this.end - this.start >= MESSAGE_BODY_OFFSET) {
          return FrameEvent.FRAME;
        }
        break;
      case BlockEvent.BAD_SIZE:
        break;
    }
    this.#failed = true;
    return FrameEvent.BAD_FRAME;
  }

  /** The size field of the frame last seen; for the message about a bad one. */
  get size(): number {
    return this.#blocks.size;
  }

  /** The data as text: a response or an error. */
  text(): string {
    return utf8Text(this.buffer, this.start, this.end);
  }

  takeRemaining(): Uint8Array {
    return this.#blocks.takeRemaining();
  }

  get stagedBytes(): number {
    return this.#blocks.stagedBytes;
  }

  /** Whether the stream stands between two frames: an end here is clean. */
  get isBetweenFrames(): boolean {
    return this.#blocks.isBetweenBlocks;
  }
}
