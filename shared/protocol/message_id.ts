/**
 * Message ids. To clients an id is 16 opaque bytes; to us it is where the message came from and
 * which one it is:
 *
 *     id = 4HEX 12HEX        ; node id (16 bits), sequence (48 bits); lowercase hex, big-endian
 *
 * Both halves are numbers (a sequence is exact to 2^48 - 1), so that nothing on the way of a
 * message needs a BigInt or a string. A node id is below 65536 (nsqd's are below 1024).
 */
import { invariant } from "../runtime/invariant.ts";
import { utf8Text } from "./bytes.ts";

export const MESSAGE_ID_BYTES = 16;
export const NODE_ID_MAX = 0xffff;
export const SEQUENCE_MAX = 2 ** 48 - 1;

/** A sequence is handled in two halves of 24 bits, which stay small integers. */
const HALF = 2 ** 24;
const NOT_HEX = 0x80;
const HEX_DIGITS = new TextEncoder().encode("0123456789abcdef");
const HEX_VALUES = hexValueTable();

/** Writes the 16 bytes of an id at `offset`. */
export function writeMessageId(
  buffer: Uint8Array,
  offset: number,
  nodeId: number,
  sequence: number,
): void {
  const high = Math.floor(sequence / HALF);
  const low = sequence - high * HALF;
  buffer[offset] = HEX_DIGITS[nodeId >>> 12]!;
  buffer[offset + 1] = HEX_DIGITS[(nodeId >>> 8) & 15]!;
  buffer[offset + 2] = HEX_DIGITS[(nodeId >>> 4) & 15]!;
  buffer[offset + 3] = HEX_DIGITS[nodeId & 15]!;
  writeHalf(buffer, offset + 4, high);
  writeHalf(buffer, offset + 10, low);
}

/**
 * The sequence of the id in `buffer[offset, offset + 16)`, or -1 when the bytes are not lowercase
 * hex or the id is of another node.
 */
export function parseMessageId(buffer: Uint8Array, offset: number, nodeId: number): number {
  let bad = 0;
  let node = 0;
  let high = 0;
  let low = 0;
  for (let index = offset; index < offset + 4; index++) {
    const value = HEX_VALUES[buffer[index]!]!;
    bad |= value;
    node = (node << 4) | value;
  }
  for (let index = offset + 4; index < offset + 10; index++) {
    const value = HEX_VALUES[buffer[index]!]!;
    bad |= value;
    high = (high << 4) | value;
  }
  for (let index = offset + 10; index < offset + 16; index++) {
    const value = HEX_VALUES[buffer[index]!]!;
    bad |= value;
    low = (low << 4) | value;
  }
  if ((bad & NOT_HEX) !== 0 || node !== nodeId) return -1;
  return high * HALF + low;
}

/** An id as text, for logs and HTTP. */
export function messageIdText(nodeId: number, sequence: number): string {
  invariant(nodeId >= 0 && nodeId <= NODE_ID_MAX, "a node id has 16 bits");
  invariant(sequence >= 0 && sequence <= SEQUENCE_MAX, "a sequence has 48 bits");
  const bytes = new Uint8Array(MESSAGE_ID_BYTES);
  writeMessageId(bytes, 0, nodeId, sequence);
  return utf8Text(bytes);
}

/** The two parts of an id given as text; `undefined` when it is not 16 lowercase hex characters. */
export function splitMessageId(text: string): { nodeId: number; sequence: number } | undefined {
  if (!/^[0-9a-f]{16}$/.test(text)) return undefined;
  return { nodeId: parseInt(text.slice(0, 4), 16), sequence: parseInt(text.slice(4), 16) };
}

function writeHalf(buffer: Uint8Array, offset: number, half: number): void {
  buffer[offset] = HEX_DIGITS[half >>> 20]!;
  buffer[offset + 1] = HEX_DIGITS[(half >>> 16) & 15]!;
  buffer[offset + 2] = HEX_DIGITS[(half >>> 12) & 15]!;
  buffer[offset + 3] = HEX_DIGITS[(half >>> 8) & 15]!;
  buffer[offset + 4] = HEX_DIGITS[(half >>> 4) & 15]!;
  buffer[offset + 5] = HEX_DIGITS[half & 15]!;
}

function hexValueTable(): Uint8Array {
  const table = new Uint8Array(256).fill(NOT_HEX);
  HEX_DIGITS.forEach((byte, value) => table[byte] = value);
  return table;
}
