/**
 * The body of MPUB, also of a binary `POST /mpub`: many messages in one.
 *
 *     mpub-body = int32-count 1*( int32-size body )
 *
 * The scanner judges a body while it arrives, then walks its messages; neither makes an object per
 * message. It refuses with nsqd's texts in nsqd's order, and is stricter in one point: nsqd never
 * compares the size of the body with what is in it, here they must agree exactly. A body that ends
 * too early is answered like a stream that ends there; one with bytes to spare is refused with
 * `E_BAD_BODY MPUB body size N does not match its messages`, which is ours.
 */
import { invariant } from "../runtime/invariant.ts";
import { readInt32, writeInt32 } from "./bytes.ts";
import { ProtocolError } from "./error_code.ts";

const COUNT_BYTES = 4;
const SIZE_BYTES = 4;
/** The least a message takes in a body. */
const MESSAGE_BYTES_MIN = SIZE_BYTES + 1;

/** `bodies` as one MPUB body, without the size that goes before it on TCP. */
export function encodeMpubBody(bodies: readonly Uint8Array[]): Uint8Array {
  const bytes = bodies.reduce((sum, body) => sum + SIZE_BYTES + body.length, COUNT_BYTES);
  const encoded = new Uint8Array(bytes);
  writeInt32(encoded, 0, bodies.length);
  let offset = COUNT_BYTES;
  for (const body of bodies) {
    writeInt32(encoded, offset, body.length);
    encoded.set(body, offset + SIZE_BYTES);
    offset += SIZE_BYTES + body.length;
  }
  return encoded;
}

/** Bounds of a body and of the messages in it, in bytes. */
export interface MpubLimits {
  readonly messageBytesMax: number;
  /** Bounds the count too: no more messages than one-byte ones would fit. */
  readonly bodyBytesMax: number;
}

/** One for a connection; `begin()` starts it again for the next body. */
export class MpubScanner {
  /** Messages in the body, as announced; 0 before the count is here. */
  messageCount = 0;
  /** The size of the largest message that was judged. */
  largestBytes = 0;
  /** After `nextMessage()` was true: where that message's body is. */
  messageStart = 0;
  messageEnd = 0;

  /** After `check` of a whole body that may be longer than announced: bytes it has besides. */
  missingBytes = 0;

  readonly #limits: MpubLimits;
  #isMinimum = false;
  #bodyBytes = 0;
  /** How much of the body has been looked at. */
  #available = 0;
  /** Where the next size is, from the start of the body; 0 before the count is here. */
  #offset = 0;
  /** Messages whose size was judged. */
  #judged = 0;
  #refusal: ProtocolError | undefined;
  /** The walk: where the next size is, and the messages left. */
  #walkOffset = 0;
  #walkLeft = 0;

  constructor(limits: MpubLimits) {
    this.#limits = limits;
  }

  /**
   * Starts with a body of `bodyBytes` in all. With `isMinimum` it may turn out to be longer, as on a
   * stream, where nsqd does not compare the size with the content and clients get it wrong: `check`
   * then sets `missingBytes`, and `extend` goes on.
   */
  begin(bodyBytes: number, isMinimum = false): void {
    this.#isMinimum = isMinimum;
    this.missingBytes = 0;
    this.messageCount = 0;
    this.largestBytes = 0;
    this.#bodyBytes = bodyBytes;
    this.#available = 0;
    this.#offset = 0;
    this.#judged = 0;
    this.#refusal = undefined;
    this.#walkLeft = 0;
  }

  /**
   * Judges as much as `buffer[start, end)` holds: the body from its first byte, so far or whole.
   * Work done for an earlier part is not done again. A refusal is the same at whatever point it is
   * found, and stays.
   */
  check(buffer: Uint8Array, start: number, end: number): ProtocolError | undefined {
    this.#available = end - start;
    invariant(this.#available <= this.#bodyBytes, "a body is not longer than announced");
    this.#refusal ??= this.#judge(buffer, start);
    if (this.#refusal === undefined && this.#available === this.#bodyBytes) {
      this.missingBytes = this.#isMinimum ? this.#countMissing() : 0;
      if (this.missingBytes === 0) this.#refusal = this.#judgeEnd();
    }
    return this.#refusal;
  }

  /** The body has its `missingBytes` too. */
  extend(): void {
    this.#bodyBytes += this.missingBytes;
    this.missingBytes = 0;
  }

  /** The refusal when the stream ends with the body as far as it was checked. */
  endOfStream(): ProtocolError {
    return this.#refusal ?? this.#judgeEnd() ?? failedToReadMessage();
  }

  /** Starts the walk over a body that was checked whole and not refused. */
  rewind(): void {
    invariant(
      this.#judged === this.messageCount && this.#offset === this.#bodyBytes,
      "a body is walked once it was checked",
    );
    this.#walkOffset = COUNT_BYTES;
    this.#walkLeft = this.messageCount;
  }

  /** Steps to the next message of the body that starts at `start`; false when there is none left. */
  nextMessage(buffer: Uint8Array, start: number): boolean {
    if (this.#walkLeft === 0) return false;
    this.#walkLeft--;
    const sizeAt = start + this.#walkOffset;
    const bytes = readInt32(buffer, sizeAt);
    this.messageStart = sizeAt + SIZE_BYTES;
    this.messageEnd = this.messageStart + bytes;
    this.#walkOffset += SIZE_BYTES + bytes;
    return true;
  }

  /** Judges the count and all sizes that are here. */
  #judge(buffer: Uint8Array, start: number): ProtocolError | undefined {
    const available = this.#available;
    if (this.#offset === 0) {
      if (available < COUNT_BYTES) return undefined;
      const count = readInt32(buffer, start);
      if (count <= 0 || count > (this.#limits.bodyBytesMax - COUNT_BYTES) / MESSAGE_BYTES_MIN) {
        return new ProtocolError("E_BAD_BODY", `MPUB invalid message count ${count}`);
      }
      this.messageCount = count;
      this.#offset = COUNT_BYTES;
    }
    const count = this.messageCount;
    const messageBytesMax = this.#limits.messageBytesMax;
    let offset = this.#offset;
    let judged = this.#judged;
    while (judged < count && offset + SIZE_BYTES <= available) {
      const bytes = readInt32(buffer, start + offset);
      if (bytes <= 0) {
        const description = `MPUB invalid message(${judged}) body size ${bytes}`;
        return new ProtocolError("E_BAD_MESSAGE", description);
      }
      if (bytes > messageBytesMax) {
        const description = `MPUB message too big ${bytes} > ${messageBytesMax}`;
        return new ProtocolError("E_BAD_MESSAGE", description);
      }
      if (bytes > this.largestBytes) this.largestBytes = bytes;
      offset += SIZE_BYTES + bytes;
      judged++;
    }
    this.#offset = offset;
    this.#judged = judged;
    if (offset > this.#bodyBytes) {
      if (!this.#isMinimum) return failedToReadMessage();
      const { bodyBytesMax } = this.#limits;
      if (offset <= bodyBytesMax) return undefined;
      return new ProtocolError("E_BAD_BODY", `MPUB body too big ${offset} > ${bodyBytesMax}`);
    }
    return judged === count && offset < this.#bodyBytes ? this.#mismatch() : undefined;
  }

  /** Bytes that the body has for certain beyond those that are here. */
  #countMissing(): number {
    if (this.#offset === 0) return COUNT_BYTES - this.#available;
    if (this.#offset > this.#available) return this.#offset - this.#available;
    if (this.#judged === this.messageCount) return 0;
    return this.#offset + SIZE_BYTES - this.#available;
  }

  /** What is missing when nothing comes after the part that was looked at. */
  #judgeEnd(): ProtocolError | undefined {
    if (this.#offset === 0) {
      return new ProtocolError("E_BAD_BODY", "MPUB failed to read message count");
    }
    if (this.#offset > this.#available) return failedToReadMessage();
    if (this.#judged === this.messageCount) return undefined;
    const description = `MPUB failed to read message(${this.#judged}) body size`;
    return new ProtocolError("E_BAD_MESSAGE", description);
  }

  #mismatch(): ProtocolError {
    const description = `MPUB body size ${this.#bodyBytes} does not match its messages`;
    return new ProtocolError("E_BAD_BODY", description);
  }
}

function failedToReadMessage(): ProtocolError {
  return new ProtocolError("E_BAD_MESSAGE", "MPUB failed to read message body");
}
