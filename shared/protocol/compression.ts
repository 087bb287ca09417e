/**
 * Compression of a whole byte stream, as IDENTIFY negotiates it: what an encoder and a decoder
 * promise, whatever the format.
 *
 * - Each `encode` ends in a flush: a peer can decode all of it at once, without waiting for more.
 * - A decoder gives no more than it is asked for. What it holds is bounded by its format and never
 *   by what a peer claims, so input that unpacks to a thousandfold costs time, not memory.
 * - Input that breaks the format is a {@linkcode CompressionError}, which comes again on every read.
 */

/** Input that is not in the format. Nothing after it can be trusted. */
export class CompressionError extends Error {
  override name = "CompressionError";
}

/** The sending side of one direction of a connection. */
export interface StreamEncoder {
  /**
   * The bytes to send for `bytes`, which are borrowed until then. One at a time; what it gives is
   * good until the next one.
   */
  encode(bytes: Uint8Array): Uint8Array | Promise<Uint8Array>;
  /** Gives back its memory. Nothing is encoded after it. */
  close(): void;
}

/** The receiving side of one direction of a connection. */
export interface StreamDecoder {
  /** Gives the next bytes of the stream, borrowed until `read` gives 0; only after that or at the start. */
  feed(bytes: Uint8Array): void;
  /** Decodes into `into` and tells how many bytes; 0 when all that was fed is used up. */
  read(into: Uint8Array): number | Promise<number>;
  /** Gives back its memory. Nothing is read after it. */
  close(): void;
}
