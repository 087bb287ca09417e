/**
 * The Snappy framing format.
 *
 *     stream     = identifier *chunk
 *     chunk      = type uint24le-length content
 *     identifier = %xff %x06 %x00 %x00 "sNaPpY"         ; also allowed again later
 *     data       = %x00 length crc block | %x01 length crc bytes
 *     skipped    = %x80-fe length bytes                 ; 0xfe is padding
 *
 * `crc` is the masked CRC-32C of the data before compression, little endian. A chunk has at most
 * 64 KiB of data; the types %x02-7f are reserved and end the stream.
 *
 * The encoder starts with the identifier, and leaves alone what compression does not make an eighth
 * shorter. The decoder holds one chunk as it came and one decoded; what it skips it does not hold.
 */
import { EMPTY_BYTES, equalBytes, utf8Bytes } from "./bytes.ts";
import { CompressionError, type StreamDecoder, type StreamEncoder } from "./compression.ts";
import { crc32c } from "./crc32c.ts";
import {
  BLOCK_BYTES_MAX,
  compressBlock,
  compressedBytesMax,
  decompressBlock,
} from "./snappy_block.ts";

const ChunkType = {
  COMPRESSED: 0x00,
  UNCOMPRESSED: 0x01,
  FIRST_SKIPPED: 0x80,
  IDENTIFIER: 0xff,
} as const;
const HEADER_BYTES = 4;
const CRC_BYTES = 4;
const IDENTIFIER = utf8Bytes("sNaPpY");
const BYTES_MIN = 256;
/** An encoder keeps a buffer up to this size. */
const KEEP_BYTES_MAX = 16 * 1024;

/** Encodes one direction of a connection. */
export class SnappyEncoder implements StreamEncoder {
  #started = false;
  #kept: Uint8Array = EMPTY_BYTES;

  encode(bytes: Uint8Array): Uint8Array {
    const blocks = Math.ceil(bytes.length / BLOCK_BYTES_MAX);
    const perBlock = HEADER_BYTES + CRC_BYTES;
    // Room for compressing the last block; the ones before take no more than they are long.
    const last = bytes.length - Math.max(0, blocks - 1) * BLOCK_BYTES_MAX;
    const needed = HEADER_BYTES + IDENTIFIER.length + blocks * perBlock + bytes.length - last +
      compressedBytesMax(blocks > 1 ? BLOCK_BYTES_MAX : last);
    const output = needed <= this.#kept.length ? this.#kept : new Uint8Array(needed);
    if (needed <= KEEP_BYTES_MAX) this.#kept = output;
    let end = 0;
    if (!this.#started) {
      this.#started = true;
      end = writeHeader(output, 0, ChunkType.IDENTIFIER, IDENTIFIER.length);
      output.set(IDENTIFIER, end);
      end += IDENTIFIER.length;
    }
    for (let start = 0; start < bytes.length; start += BLOCK_BYTES_MAX) {
      end = writeChunk(bytes.subarray(start, start + BLOCK_BYTES_MAX), output, end);
    }
    return output.subarray(0, end);
  }

  close(): void {
    this.#kept = EMPTY_BYTES;
  }
}

/** Decodes one direction of a connection. */
export class SnappyDecoder implements StreamDecoder {
  #input: Uint8Array = EMPTY_BYTES;
  #position = 0;
  /** The chunk under way: header bytes seen, then its type and length. */
  #headerBytes = 0;
  #header = new Uint8Array(HEADER_BYTES);
  #type = 0;
  /** Content of the chunk still to come; of what is skipped, or in `#content`. */
  #missingBytes = 0;
  #content: Uint8Array = EMPTY_BYTES;
  #contentBytes = 0;
  /** Data decoded and not yet read. */
  #data: Uint8Array = EMPTY_BYTES;
  #dataStart = 0;
  #dataEnd = 0;
  #isFirst = true;
  #failure: CompressionError | null = null;

  feed(bytes: Uint8Array): void {
    this.#input = bytes;
    this.#position = 0;
  }

  read(into: Uint8Array): number {
    if (this.#failure !== null) throw this.#failure;
    try {
      while (this.#dataStart === this.#dataEnd) {
        if (this.#position === this.#input.length) {
          this.#input = EMPTY_BYTES;
          this.#position = 0;
          return 0;
        }
        this.#advance();
      }
    } catch (error) {
      if (error instanceof CompressionError) this.#failure = error;
      throw error;
    }
    const count = Math.min(into.length, this.#dataEnd - this.#dataStart);
    into.set(this.#data.subarray(this.#dataStart, this.#dataStart + count));
    this.#dataStart += count;
    return count;
  }

  close(): void {
    this.#input = this.#content = this.#data = EMPTY_BYTES;
    this.#position = this.#dataStart = this.#dataEnd = 0;
  }

  /** Takes input up to the end of a header or a chunk. */
  #advance(): void {
    if (this.#headerBytes < HEADER_BYTES) {
      this.#header[this.#headerBytes++] = this.#input[this.#position++]!;
      if (this.#headerBytes === HEADER_BYTES) this.#beginChunk();
    } else if (this.#type >= ChunkType.FIRST_SKIPPED && this.#type < ChunkType.IDENTIFIER) {
      const skipped = Math.min(this.#missingBytes, this.#input.length - this.#position);
      this.#position += skipped;
      this.#missingBytes -= skipped;
    } else {
      this.#takeContent();
    }
    if (this.#headerBytes === HEADER_BYTES && this.#missingBytes === 0) this.#headerBytes = 0;
  }

  #beginChunk(): void {
    const [type = 0, low = 0, middle = 0, high = 0] = this.#header;
    const length = low | middle << 8 | high << 16;
    if (this.#isFirst && type !== ChunkType.IDENTIFIER) {
      throw new CompressionError("the stream does not start with its identifier");
    }
    this.#isFirst = false;
    let isValid = true;
    if (type === ChunkType.IDENTIFIER) isValid = length === IDENTIFIER.length;
    else if (type === ChunkType.COMPRESSED) {
      isValid = length > CRC_BYTES && length <= CRC_BYTES + compressedBytesMax(BLOCK_BYTES_MAX);
    } else if (type === ChunkType.UNCOMPRESSED) {
      isValid = length >= CRC_BYTES && length <= CRC_BYTES + BLOCK_BYTES_MAX;
    } else if (type < ChunkType.FIRST_SKIPPED) {
      throw new CompressionError(`a chunk of the reserved type ${type}`);
    }
    if (!isValid) throw new CompressionError(`a chunk of type ${type} with ${length} bytes`);
    this.#type = type;
    this.#missingBytes = length;
    this.#contentBytes = 0;
  }

  /** Gathers the content of a chunk, unless it is whole in the input, and takes it. */
  #takeContent(): void {
    const available = this.#input.length - this.#position;
    if (this.#contentBytes === 0 && available >= this.#missingBytes) {
      const start = this.#position;
      this.#position += this.#missingBytes;
      this.#missingBytes = 0;
      return this.#take(this.#input, start, this.#position);
    }
    const count = Math.min(this.#missingBytes, available);
    const needed = this.#contentBytes + count;
    if (this.#content.length < needed) {
      // Grows with what is here, not with what the chunk claims.
      const larger = new Uint8Array(Math.max(BYTES_MIN, needed, this.#content.length * 2));
      larger.set(this.#content.subarray(0, this.#contentBytes));
      this.#content = larger;
    }
    this.#content.set(
      this.#input.subarray(this.#position, this.#position + count),
      this.#contentBytes,
    );
    this.#contentBytes = needed;
    this.#position += count;
    this.#missingBytes -= count;
    if (this.#missingBytes === 0) this.#take(this.#content, 0, needed);
  }

  #take(bytes: Uint8Array, start: number, end: number): void {
    if (this.#type === ChunkType.IDENTIFIER) {
      if (!equalBytes(bytes, start, end, IDENTIFIER)) {
        throw new CompressionError("the identifier of the stream is wrong");
      }
      return;
    }
    const crc = (bytes[start]! | bytes[start + 1]! << 8 | bytes[start + 2]! << 16 |
      bytes[start + 3]! << 24) >>> 0;
    const dataStart = start + CRC_BYTES;
    let length: number;
    if (this.#type === ChunkType.COMPRESSED) {
      this.#growData(claimedBytes(bytes, dataStart, end));
      length = decompressBlock(bytes, dataStart, end, this.#data);
    } else {
      length = end - dataStart;
      this.#growData(length);
      this.#data.set(bytes.subarray(dataStart, end));
    }
    if (maskedCrc(this.#data, 0, length) !== crc) {
      throw new CompressionError("a chunk does not match its checksum");
    }
    this.#dataStart = 0;
    this.#dataEnd = length;
  }

  #growData(bytes: number): void {
    if (this.#data.length >= bytes) return;
    this.#data = new Uint8Array(Math.max(BYTES_MIN, Math.min(BLOCK_BYTES_MAX, 2 * bytes)));
  }
}

/** The length at the start of a block, as far as there is room for one. */
function claimedBytes(bytes: Uint8Array, start: number, end: number): number {
  let length = 0;
  for (let index = 0; index < 3 && start + index < end; index++) {
    const byte = bytes[start + index]!;
    length |= (byte & 0x7f) << 7 * index;
    if (byte < 0x80) break;
  }
  return Math.min(length, BLOCK_BYTES_MAX);
}

function writeHeader(output: Uint8Array, at: number, type: number, length: number): number {
  output[at] = type;
  output[at + 1] = length & 0xff;
  output[at + 2] = length >>> 8 & 0xff;
  output[at + 3] = length >>> 16;
  return at + HEADER_BYTES;
}

function writeChunk(data: Uint8Array, output: Uint8Array, at: number): number {
  const crc = maskedCrc(data, 0, data.length);
  const crcAt = at + HEADER_BYTES;
  const dataAt = crcAt + CRC_BYTES;
  for (let index = 0; index < CRC_BYTES; index++) output[crcAt + index] = crc >>> 8 * index;
  let end = compressBlock(data, output, dataAt);
  const isWorthIt = end - dataAt < data.length - (data.length >>> 3);
  if (!isWorthIt) {
    output.set(data, dataAt);
    end = dataAt + data.length;
  }
  const type = isWorthIt ? ChunkType.COMPRESSED : ChunkType.UNCOMPRESSED;
  writeHeader(output, at, type, end - crcAt);
  return end;
}

function maskedCrc(bytes: Uint8Array, start: number, end: number): number {
  const crc = crc32c(bytes, start, end);
  return ((crc >>> 15 | crc << 17) + 0xa282ead8) >>> 0;
}
