/** Snappy and raw DEFLATE as streams: the contract's bytes, any cut, hostile input, bounds. */
import { deepStrictEqual as equal, ok, rejects, throws } from "node:assert/strict";
import { deflateRawSync, inflateRawSync } from "node:zlib";
import { concatBytes, utf8Bytes } from "./bytes.ts";
import { CompressionError, type StreamDecoder, type StreamEncoder } from "./compression.ts";
import { crc32c } from "./crc32c.ts";
import { DeflateDecoder, DeflateEncoder } from "./deflate.ts";
import { OK_FRAME } from "./frame.ts";
import { SnappyDecoder, SnappyEncoder } from "./snappy.ts";
import {
  BLOCK_BYTES_MAX,
  compressBlock,
  compressedBytesMax,
  decompressBlock,
} from "./snappy_block.ts";

const SEEDS = [1, 2, 3, Math.floor(Math.random() * 2 ** 32)];
const IDENTIFIER = [0xff, 6, 0, 0, ...utf8Bytes("sNaPpY")];

const FORMATS = [
  { name: "snappy", encoder: () => new SnappyEncoder(), decoder: () => new SnappyDecoder() },
  { name: "deflate", encoder: () => new DeflateEncoder(6), decoder: () => new DeflateDecoder() },
] as const;

/** xorshift32: enough for tests, and the same everywhere. */
function seeded(seed: number): (below: number) => number {
  let state = (seed ^ 0x9e3779b9) >>> 0 || 1;
  return (below) => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>>= 0) % below;
  };
}

/** Bytes from noise to long repeats. */
function someBytes(random: (below: number) => number): Uint8Array {
  const bytes = new Uint8Array(random(8) === 0 ? random(200_000) : random(2_000));
  const kind = random(3);
  const period = 1 + random(40);
  for (let index = 0; index < bytes.length; index++) {
    if (kind === 0 || index < period) bytes[index] = random(256);
    else if (kind === 1) bytes[index] = bytes[index - period]!;
    else bytes[index] = random(10) === 0 ? random(256) : bytes[index - period]!;
  }
  return bytes;
}

/** All that comes out for `input` cut into parts of `partBytes()`. */
async function decodeAll(
  decoder: StreamDecoder,
  input: Uint8Array,
  partBytes: () => number,
  intoBytes = 65_536,
): Promise<Uint8Array> {
  const out: Uint8Array[] = [];
  const into = new Uint8Array(intoBytes);
  for (let start = 0; start < input.length;) {
    const end = Math.min(input.length, start + partBytes());
    decoder.feed(input.subarray(start, end));
    start = end;
    for (let count; (count = await decoder.read(into)) > 0;) out.push(into.slice(0, count));
  }
  return concatBytes(...out);
}

function hex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join(" ");
}

/** A chunk with a right checksum. */
function chunk(type: number, data: Uint8Array, content = data): number[] {
  const crc = crc32c(data);
  const masked = ((crc >>> 15 | crc << 17) + 0xa282ead8) >>> 0;
  const bytes = [0, 8, 16, 24].map((shift) => masked >>> shift & 0xff);
  const length = content.length + 4;
  return [type, length & 0xff, length >>> 8 & 0xff, length >>> 16, ...bytes, ...content];
}

function snappyOf(...chunks: readonly number[][]): Promise<Uint8Array> {
  const input = new Uint8Array([...IDENTIFIER, ...chunks.flat()]);
  return decodeAll(new SnappyDecoder(), input, () => input.length);
}

Deno.test("crc32c() gives the published checksums", () => {
  equal(crc32c(utf8Bytes("123456789")), 0xe3069283);
  equal(crc32c(new Uint8Array(32)), 0x8a9136aa);
  equal(crc32c(new Uint8Array(32).fill(0xff)), 0x62a8ab43);
  equal(crc32c(utf8Bytes("x123456789y"), 1, 10), 0xe3069283);
  equal(crc32c(new Uint8Array(0)), 0);
});

Deno.test("the first OK in snappy has the bytes that nsqd sends", () => {
  equal(
    hex(new SnappyEncoder().encode(OK_FRAME)),
    "ff 06 00 00 73 4e 61 50 70 59 01 0e 00 00 26 98 2b cf 00 00 00 06 00 00 00 00 4f 4b",
  );
});

Deno.test("the first OK in deflate has the bytes that nsqd sends", async () => {
  const encoder = new DeflateEncoder(6);
  equal(hex(await encoder.encode(OK_FRAME)), "62 60 60 60 63 60 60 60 f0 f7 06 00 00 00 ff ff");
  encoder.close();
});

for (const format of FORMATS) {
  for (const seed of SEEDS) {
    Deno.test(`${format.name} gives back what it was given, however it is cut (seed ${seed})`, async () => {
      const random = seeded(seed);
      const encoder: StreamEncoder = format.encoder();
      const decoder: StreamDecoder = format.decoder();
      for (let round = 0; round < 60; round++) {
        const bytes = someBytes(random);
        const encoded = (await encoder.encode(bytes)).slice();
        const most = random(2) === 0 ? 1 + random(9) : 1 + random(70_000);
        const small = encoded.length < 5_000;
        const part = () => small ? 1 + random(most) : 65_536;
        const decoded = await decodeAll(decoder, encoded, part, small ? 1 + random(300) : 65_536);
        ok(hex(decoded) === hex(bytes), `round ${round} of ${bytes.length} bytes`);
      }
      encoder.close();
      decoder.close();
    });

    Deno.test(`${format.name} ends in an error or in bytes on hostile input (seed ${seed})`, async () => {
      const random = seeded(seed);
      let errors = 0;
      for (let round = 0; round < 150; round++) {
        const encoder: StreamEncoder = format.encoder();
        const decoder: StreamDecoder = format.decoder();
        const input = (await encoder.encode(someBytes(random).subarray(0, 3_000))).slice();
        for (let change = 0; change <= random(4); change++) {
          if (input.length > 0) input[random(input.length)] = random(256);
        }
        try {
          await decodeAll(decoder, input, () => 1 + random(500));
        } catch (error) {
          ok(error instanceof CompressionError, String(error));
          errors++;
          // It stays broken.
          decoder.feed(new Uint8Array(1));
          await rejects(async () => await decoder.read(new Uint8Array(1)), CompressionError);
        }
        encoder.close();
        decoder.close();
      }
      ok(errors > 20, `${errors} errors`);
    });
  }

  Deno.test(`${format.name} lets a peer decode each flush without waiting for more`, async () => {
    const encoder: StreamEncoder = format.encoder();
    const decoder: StreamDecoder = format.decoder();
    for (const text of ["one", "two", "", "x".repeat(200_000), "three"]) {
      const encoded = await encoder.encode(utf8Bytes(text));
      const decoded = await decodeAll(decoder, encoded, () => 50_000);
      equal(new TextDecoder().decode(decoded), text);
    }
    encoder.close();
    decoder.close();
  });
}

Deno.test("a snappy block of any length up to 64 KiB keeps its bound and comes back", () => {
  const random = seeded(7);
  const noise = Uint8Array.from({ length: BLOCK_BYTES_MAX }, () => random(256));
  for (const length of [0, 1, 14, 15, 16, 59, 60, 61, 255, 256, 257, 4_096, 65_535, 65_536]) {
    for (const input of [noise.subarray(0, length), new Uint8Array(length)]) {
      const output = new Uint8Array(compressedBytesMax(length) + 3);
      const end = compressBlock(input, output, 3);
      const decoded = new Uint8Array(length);
      equal(decompressBlock(output, 3, end, decoded), length);
      ok(hex(decoded) === hex(input), `${length} bytes`);
    }
  }
});

Deno.test("snappy decodes elements that its own encoder never makes", () => {
  const cases: [number[], string][] = [
    // A copy with a four-byte distance.
    [[6, 2 << 2, 0x61, 0x62, 0x63, 2 << 2 | 3, 3, 0, 0, 0], "abcabc"],
    // A copy that repeats what it has just written.
    [[6, 0, 0x61, 4 << 2 | 2, 1, 0], "aaaaaa"],
    // Literals with lengths in one, two, three and four bytes.
    [[1, 60 << 2, 0, 0x61], "a"],
    [[1, 61 << 2, 0, 0, 0x61], "a"],
    [[1, 62 << 2, 0, 0, 0, 0x61], "a"],
    [[1, 63 << 2, 0, 0, 0, 0, 0x61], "a"],
  ];
  for (const [block, text] of cases) {
    const output = new Uint8Array(10);
    const length = decompressBlock(new Uint8Array(block), 0, block.length, output);
    equal(new TextDecoder().decode(output.subarray(0, length)), text);
  }
});

Deno.test("snappy refuses a block that lies", () => {
  const cases: [string, number[]][] = [
    ["no length", []],
    ["an endless length", [0x80, 0x80, 0x80, 0x80, 1]],
    ["more than 64 KiB", [0x81, 0x80, 0x04]],
    ["shorter than it says", [5, 0, 0x61]],
    ["longer than it says", [1, 1 << 2, 0x61, 0x62]],
    ["a literal past the end", [5, 4 << 2, 0x61]],
    ["a literal of 4 GiB", [5, 63 << 2, 0xff, 0xff, 0xff, 0xff]],
    ["a length cut short", [5, 61 << 2, 1]],
    ["a copy from before", [5, 0, 0x61, 4 << 2 | 2, 2, 0]],
    ["a copy from nowhere", [5, 0, 0x61, 4 << 2 | 2, 0, 0]],
    ["a copy from far before", [5, 0, 0x61, 4 << 2 | 3, 1, 0, 0, 0x80]],
    ["a copy past the end", [3, 0, 0x61, 9 << 2 | 2, 1, 0]],
    ["a copy cut short", [5, 0, 0x61, 4 << 2 | 2, 1]],
  ];
  for (const [what, block] of cases) {
    const output = new Uint8Array(BLOCK_BYTES_MAX);
    throws(
      () => decompressBlock(new Uint8Array(block), 0, block.length, output),
      CompressionError,
      what,
    );
  }
});

Deno.test("snappy skips padding and skippable chunks, and takes a second identifier", async () => {
  const data = utf8Bytes("data");
  const decoded = await snappyOf(
    [0x80, 0, 0, 0],
    [0xfe, 3, 0, 0, 1, 2, 3],
    chunk(1, data),
    IDENTIFIER,
    chunk(1, new Uint8Array(0)),
    chunk(0, new Uint8Array(0), new Uint8Array([0])),
    chunk(1, data),
  );
  equal(new TextDecoder().decode(decoded), "datadata");
});

Deno.test("snappy refuses a broken stream", async () => {
  const data = utf8Bytes("data");
  const badCrc = chunk(1, data);
  badCrc[4]! ^= 1;
  const cases: [string, number[][]][] = [
    ["a wrong checksum", [badCrc]],
    ["a reserved type", [[0x02, 0, 0, 0]]],
    ["the last reserved type", [[0x7f, 0, 0, 0]]],
    ["too much uncompressed data", [[1, 5, 0, 1]]],
    ["too much compressed data", [[0, 0xff, 0xff, 0xff]]],
    ["no room for a checksum", [[1, 3, 0, 0]]],
    ["no room for a block", [[0, 4, 0, 0]]],
    ["an identifier of another length", [[0xff, 5, 0, 0]]],
    ["another identifier", [[0xff, 6, 0, 0, ...utf8Bytes("snappy")]]],
  ];
  for (const [what, chunks] of cases) {
    await rejects(snappyOf(...chunks), CompressionError, what);
  }
  const missing = new Uint8Array(chunk(1, data));
  await rejects(decodeAll(new SnappyDecoder(), missing, () => 99), CompressionError);
});

Deno.test("snappy holds none of a skipped chunk, and no more of a chunk than has come", () => {
  const decoder = new SnappyDecoder();
  const into = new Uint8Array(10);
  decoder.feed(new Uint8Array([...IDENTIFIER, 0x80, 0xff, 0xff, 0xff]));
  equal(decoder.read(into), 0);
  const part = new Uint8Array(65_536);
  for (let skipped = 0; skipped < 0xffffff; skipped += part.length) {
    decoder.feed(part.subarray(0, Math.min(part.length, 0xffffff - skipped)));
    equal(decoder.read(into), 0);
  }
  decoder.feed(new Uint8Array(chunk(1, utf8Bytes("after"))));
  equal(decoder.read(into), 5);
});

Deno.test("deflate keeps a bomb packed until it is read", async () => {
  const bomb = deflateRawSync(new Uint8Array(64 * 1024 * 1024));
  const decoder = new DeflateDecoder();
  const into = new Uint8Array(65_536);
  const before = Deno.memoryUsage().external;
  decoder.feed(bomb);
  let most = 0;
  for (let round = 0; round < 200; round++) {
    ok(await decoder.read(into) > 0);
    most = Math.max(most, Deno.memoryUsage().external - before);
  }
  ok(most < 16 * 1024 * 1024, `${most} bytes`);
  decoder.close();
});

Deno.test("deflate is a raw stream that is never finished, and takes no other", async () => {
  const encoder = new DeflateEncoder(9);
  const encoded = await encoder.encode(utf8Bytes("text"));
  equal(Array.from(encoded.subarray(-4)), [0, 0, 0xff, 0xff]);
  throws(() => inflateRawSync(encoded), /unexpected end/);
  encoder.close();
  const finished = new DeflateDecoder();
  const into = new Uint8Array(10);
  finished.feed(deflateRawSync(utf8Bytes("text")));
  equal(await finished.read(into), 4);
  equal(await finished.read(into), 0);
  finished.feed(new Uint8Array(3));
  await rejects(finished.read(into), CompressionError);
  finished.close();
});

Deno.test("deflate that is closed under a pending call rejects it", async () => {
  const encoder = new DeflateEncoder(6);
  const encoding = encoder.encode(new Uint8Array(1_000_000));
  encoder.close();
  await rejects(Promise.resolve(encoding), CompressionError);
  const decoder = new DeflateDecoder();
  decoder.feed(new Uint8Array(1));
  decoder.close();
  await rejects(decoder.read(new Uint8Array(1)), CompressionError);
});
