/**
 * Reads a stream of bytes chunk by chunk, into the same memory again and again where the stream allows
 * it: what is read anew for each chunk is given back only when memory is collected, and a long body
 * would take as much as it has bytes until then.
 */

const CHUNK_BYTES = 64 * 1024;

/** See the module. */
export class ChunkReader {
  readonly #reader: ReadableStreamBYOBReader | ReadableStreamDefaultReader<Uint8Array>;
  #buffer = new ArrayBuffer(CHUNK_BYTES);

  constructor(stream: ReadableStream<Uint8Array>) {
    this.#reader = byobReader(stream) ?? stream.getReader();
  }

  /** The next chunk, valid until the next call; null at the end. Rejects when the stream breaks. */
  async read(): Promise<Uint8Array | null> {
    if (!(this.#reader instanceof ReadableStreamBYOBReader)) {
      return (await this.#reader.read()).value ?? null;
    }
    const { done, value } = await this.#reader.read(new Uint8Array(this.#buffer));
    if (value === undefined) return null;
    this.#buffer = value.buffer;
    return done ? null : value;
  }

  /** Wants no more; a pending `read` ends. */
  cancel(): Promise<void> {
    return this.#reader.cancel();
  }
}

/** Null for a stream that hands out memory of its own. */
function byobReader(stream: ReadableStream<Uint8Array>): ReadableStreamBYOBReader | null {
  try {
    return stream.getReader({ mode: "byob" });
  } catch (error) {
    if (error instanceof TypeError) return null;
    throw error;
  }
}
