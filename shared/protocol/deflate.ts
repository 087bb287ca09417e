/**
 * Raw DEFLATE as a stream: no header and no checksum, one stream for the life of a connection, never
 * finished, and flushed (`00 00 ff ff`) after each `encode`. Coding is the runtime's; it keeps
 * 280 to 420 KiB for both directions of a connection.
 *
 * A peer that does finish its stream ends it: what comes after is an error.
 */
import { constants, createDeflateRaw, createInflateRaw } from "node:zlib";
import { concatBytes, EMPTY_BYTES } from "./bytes.ts";
import { CompressionError, type StreamDecoder, type StreamEncoder } from "./compression.ts";

/** Encodes one direction of a connection. */
export class DeflateEncoder implements StreamEncoder {
  readonly #deflate;
  #parts: Uint8Array[] = [];

  /** `level` from 1 (fast) to 9 (small). */
  constructor(level: number) {
    this.#deflate = createDeflateRaw({ level, flush: constants.Z_SYNC_FLUSH });
    this.#deflate.on("data", (part: Uint8Array) => this.#parts.push(part));
    // Told by the callback of the write.
    this.#deflate.on("error", () => {});
  }

  encode(bytes: Uint8Array): Promise<Uint8Array> {
    return new Promise((resolve, reject) => {
      this.#deflate.write(bytes, (error) => {
        if (error || this.#deflate.destroyed) {
          return reject(new CompressionError(error?.message ?? "the stream is closed"));
        }
        // What is buffered comes by "data" as well.
        while (this.#deflate.read() !== null);
        const encoded = concatBytes(...this.#parts);
        this.#parts = [];
        resolve(encoded);
      });
    });
  }

  close(): void {
    this.#deflate.destroy();
  }
}

/** Decodes one direction of a connection. */
export class DeflateDecoder implements StreamDecoder {
  readonly #inflate = createInflateRaw({ flush: constants.Z_SYNC_FLUSH });
  #output: Uint8Array = EMPTY_BYTES;
  #position = 0;
  /** Whether what was fed last is still being decoded. */
  #isBusy = false;
  #fedBytes = 0;
  #failure: CompressionError | null = null;
  #wake: () => void = () => {};

  constructor() {
    const woken = () => this.#wake();
    this.#inflate.on("readable", woken);
    this.#inflate.on("error", (error: Error) => this.#fail(error.message));
    this.#inflate.on("end", () => this.#fail("the stream is finished"));
    this.#inflate.on("close", () => this.#fail("the stream is closed"));
  }

  feed(bytes: Uint8Array): void {
    if (this.#failure !== null) return;
    this.#isBusy = true;
    this.#fedBytes += bytes.length;
    this.#inflate.write(bytes, () => {
      this.#isBusy = false;
      // A finished stream takes nothing more, without a word.
      if (this.#inflate.bytesWritten < this.#fedBytes) this.#fail("the stream is finished");
      this.#wake();
    });
  }

  async read(into: Uint8Array): Promise<number> {
    while (this.#position === this.#output.length) {
      const output: Uint8Array | null = this.#inflate.read();
      if (output !== null) {
        this.#output = output;
        this.#position = 0;
        break;
      }
      if (this.#failure !== null) throw this.#failure;
      if (!this.#isBusy) return 0;
      await new Promise<void>((resolve) => this.#wake = resolve);
    }
    const count = Math.min(into.length, this.#output.length - this.#position);
    into.set(this.#output.subarray(this.#position, this.#position + count));
    this.#position += count;
    return count;
  }

  close(): void {
    this.#inflate.destroy();
  }

  #fail(message: string): void {
    this.#failure ??= new CompressionError(message);
    this.#wake();
  }
}
