/**
 * The Snappy block format: a block of at most 64 KiB, compressed alone.
 *
 *     block   = varint-length *element
 *     element = literal | copy                    ; the low two bits of the first byte tell which
 *
 * Compressing never fails and may make a block longer, by {@linkcode compressedBytesMax} at most.
 * Decompressing trusts nothing: it reads inside its input, writes inside its block, and a block that
 * does not come out at the length it claims is a {@linkcode CompressionError}.
 */
import { invariant } from "../runtime/invariant.ts";
import { CompressionError } from "./compression.ts";

/** The most bytes of a block before compression. */
export const BLOCK_BYTES_MAX = 65_536;

const LITERAL = 0;
const COPY_1 = 1;
const COPY_2 = 2;
const HASH_BITS_MAX = 14;
const HASH_BITS_MIN = 8;
/** The end of the input that is not searched, so that four bytes can be read anywhere before it. */
const MARGIN_BYTES = 15;

/** Where four bytes were seen last, by their hash; cleared for each block. */
const seen = new Uint16Array(1 << HASH_BITS_MAX);

/** The most bytes that `length` bytes may compress to. */
export function compressedBytesMax(length: number): number {
  return 32 + length + Math.floor(length / 6);
}

/** Compresses `input` to `output` from `start` on and returns where it ends. */
export function compressBlock(input: Uint8Array, output: Uint8Array, start: number): number {
  const length = input.length;
  invariant(length <= BLOCK_BYTES_MAX, "a block has at most 64 KiB");
  invariant(output.length - start >= compressedBytesMax(length), "the output has room");
  let end = start;
  for (let rest = length;; rest >>>= 7) {
    if (rest < 0x80) {
      output[end++] = rest;
      break;
    }
    output[end++] = rest & 0x7f | 0x80;
  }
  if (length < MARGIN_BYTES) return writeLiteral(input, 0, length, output, end);

  let bits = HASH_BITS_MIN;
  while (bits < HASH_BITS_MAX && 1 << bits < length) bits++;
  const shift = 32 - bits;
  seen.fill(0, 0, 1 << bits);
  const limit = length - MARGIN_BYTES;
  let literalStart = 0;
  let position = 1;
  // The longer nothing matches, the larger the steps: what does not compress costs little.
  let misses = 32;
  while (position <= limit) {
    const word = readWord(input, position);
    const slot = Math.imul(word, 0x1e35a7bd) >>> shift;
    const candidate = seen[slot]!;
    seen[slot] = position;
    if (candidate >= position || readWord(input, candidate) !== word) {
      position += misses++ >>> 5;
      continue;
    }
    end = writeLiteral(input, literalStart, position, output, end);
    let matched = 4;
    while (
      position + matched < length && input[candidate + matched] === input[position + matched]
    ) {
      matched++;
    }
    end = writeCopy(position - candidate, matched, output, end);
    position += matched;
    literalStart = position;
    misses = 32;
    if (position <= limit) {
      // The word before is the likeliest to be met again.
      seen[Math.imul(readWord(input, position - 1), 0x1e35a7bd) >>> shift] = position - 1;
    }
  }
  return writeLiteral(input, literalStart, length, output, end);
}

/** Decompresses `input[start, end)` to the start of `output` and returns the length. */
export function decompressBlock(
  input: Uint8Array,
  start: number,
  end: number,
  output: Uint8Array,
): number {
  let position = start;
  let length = 0;
  for (let shift = 0;; shift += 7) {
    if (position >= end || shift > 14) throw new CompressionError("a block has no valid length");
    const byte = input[position++]!;
    length |= (byte & 0x7f) << shift;
    if (byte < 0x80) break;
  }
  if (length > BLOCK_BYTES_MAX || length > output.length) {
    throw new CompressionError(`a block of ${length} bytes is too long`);
  }
  let written = 0;
  while (position < end) {
    const tag = input[position++]!;
    const kind = tag & 3;
    if (kind === LITERAL) {
      let count = (tag >>> 2) + 1;
      if (count > 60) {
        const bytes = count - 60;
        if (position + bytes > end) throw cutShort();
        count = 1;
        // Multiplied, not shifted: four bytes do not fit a signed number.
        for (let index = 0; index < bytes; index++) count += input[position++]! * 2 ** (8 * index);
      }
      if (count > end - position) throw cutShort();
      if (count > length - written) throw tooMuch();
      copyForward(input, position, output, written, count);
      position += count;
      written += count;
      continue;
    }
    let count: number;
    let distance: number;
    if (kind === COPY_1) {
      if (position >= end) throw cutShort();
      count = (tag >>> 2 & 7) + 4;
      distance = (tag >>> 5) << 8 | input[position++]!;
    } else {
      const bytes = kind === COPY_2 ? 2 : 4;
      if (position + bytes > end) throw cutShort();
      count = (tag >>> 2) + 1;
      distance = input[position]! | input[position + 1]! << 8;
      if (bytes === 4) {
        distance += input[position + 2]! * 0x1_0000 + input[position + 3]! * 0x100_0000;
      }
      position += bytes;
    }
    if (distance === 0 || distance > written) {
      throw new CompressionError("a copy reaches before its block");
    }
    if (count > length - written) throw tooMuch();
    copyForward(output, written - distance, output, written, count);
    written += count;
  }
  if (written !== length) throw new CompressionError("a block is shorter than it says");
  return length;
}

function readWord(bytes: Uint8Array, at: number): number {
  return bytes[at]! | bytes[at + 1]! << 8 | bytes[at + 2]! << 16 | bytes[at + 3]! << 24;
}

/** Byte after byte where it is short, or where a copy repeats what it has just written. */
function copyForward(
  from: Uint8Array,
  start: number,
  to: Uint8Array,
  at: number,
  count: number,
): void {
  if (count > 32 && (from !== to || start + count <= at)) {
    to.set(from.subarray(start, start + count), at);
    return;
  }
  for (let index = 0; index < count; index++) to[at + index] = from[start + index]!;
}

function writeLiteral(
  input: Uint8Array,
  start: number,
  end: number,
  output: Uint8Array,
  at: number,
): number {
  const count = end - start;
  if (count === 0) return at;
  const last = count - 1;
  if (last < 60) {
    output[at++] = last << 2 | LITERAL;
  } else if (last < 0x100) {
    output[at++] = 60 << 2 | LITERAL;
    output[at++] = last;
  } else {
    output[at++] = 61 << 2 | LITERAL;
    output[at++] = last & 0xff;
    output[at++] = last >>> 8;
  }
  copyForward(input, start, output, at, count);
  return at + count;
}

function writeCopy(distance: number, count: number, output: Uint8Array, at: number): number {
  let rest = count;
  // One copy has at most 64 bytes; the last one gets at least the four that the short form needs.
  while (rest > 0) {
    const part = rest > 64 ? (rest < 68 ? 60 : 64) : rest;
    rest -= part;
    if (part >= 4 && part <= 11 && distance < 2048) {
      output[at++] = (distance >>> 8) << 5 | (part - 4) << 2 | COPY_1;
      output[at++] = distance & 0xff;
    } else {
      output[at++] = (part - 1) << 2 | COPY_2;
      output[at++] = distance & 0xff;
      output[at++] = distance >>> 8;
    }
  }
  return at;
}

function cutShort(): CompressionError {
  return new CompressionError("a block ends in the middle of an element");
}

function tooMuch(): CompressionError {
  return new CompressionError("a block is longer than it says");
}
