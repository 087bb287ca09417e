/**
 * The few byte operations every codec here needs. Integers on the wire are big-endian. Nothing
 * allocates unless its name says text or bytes. Callers own all buffers and check their bounds.
 */

/** Stands in for "no buffer". */
export const EMPTY_BYTES: Uint8Array = new Uint8Array(0);

const ENCODER = new TextEncoder();
const DECODER = new TextDecoder("utf-8", { ignoreBOM: true });

/** Below this a loop beats making the view that `set` needs (measured on V8). */
const LOOP_COPY_BYTES_MAX = 64;

/** Reads a signed 32-bit integer. */
export function readInt32(buffer: Uint8Array, offset: number): number {
  return (buffer[offset]! << 24) | (buffer[offset + 1]! << 16) | (buffer[offset + 2]! << 8) |
    buffer[offset + 3]!;
}

/** Writes the low 32 bits of `value`. */
export function writeInt32(buffer: Uint8Array, offset: number, value: number): void {
  buffer[offset] = value >>> 24;
  buffer[offset + 1] = value >>> 16;
  buffer[offset + 2] = value >>> 8;
  buffer[offset + 3] = value;
}

/** Copies `source[start, end)` to `target` at `at`. */
export function copyBytes(
  target: Uint8Array,
  at: number,
  source: Uint8Array,
  start: number,
  end: number,
): void {
  if (end - start >= LOOP_COPY_BYTES_MAX) {
    target.set(source.subarray(start, end), at);
    return;
  }
  for (let from = start, to = at; from < end; from++, to++) target[to] = source[from]!;
}

/** Whether `buffer[start, end)` holds exactly `bytes`. */
export function equalBytes(
  buffer: Uint8Array,
  start: number,
  end: number,
  bytes: Uint8Array,
): boolean {
  if (end - start !== bytes.length) return false;
  for (let index = 0; index < bytes.length; index++) {
    if (buffer[start + index] !== bytes[index]) return false;
  }
  return true;
}

/**
 * The value of ASCII digits, -1 when any byte is not a digit, 0 when there is none (as nsqd reads
 * an empty parameter). Values past 2^53 - 1 come back as 2^53 - 1.
 */
export function parseDecimal(buffer: Uint8Array, start: number, end: number): number {
  let value = 0;
  for (let index = start; index < end; index++) {
    const digit = buffer[index]! - 0x30;
    if (digit < 0 || digit > 9) return -1;
    value = value * 10 + digit;
  }
  return value <= Number.MAX_SAFE_INTEGER ? value : Number.MAX_SAFE_INTEGER;
}

/** Bytes as text; what is not UTF-8 becomes U+FFFD. */
export function utf8Text(buffer: Uint8Array, start = 0, end = buffer.length): string {
  return DECODER.decode(buffer.subarray(start, end));
}

/** Text as UTF-8 in new memory. */
export function utf8Bytes(text: string): Uint8Array {
  return ENCODER.encode(text);
}

/** Writes text as UTF-8 and returns the bytes written; `buffer` must have room for all of it. */
export function writeUtf8(buffer: Uint8Array, offset: number, text: string): number {
  return ENCODER.encodeInto(text, buffer.subarray(offset)).written;
}

/** `parts` one after the other in new memory. */
export function concatBytes(...parts: Uint8Array[]): Uint8Array {
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let offset = 0;
  for (const part of parts) {
    whole.set(part, offset);
    offset += part.length;
  }
  return whole;
}

/** An `int32` size and then the bytes, in new memory. */
export function sizedBytes(bytes: Uint8Array): Uint8Array {
  const sized = new Uint8Array(4 + bytes.length);
  writeInt32(sized, 0, bytes.length);
  sized.set(bytes, 4);
  return sized;
}
