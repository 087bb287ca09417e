/**
 * Memory of a decoder for what arrived in pieces. It grows to what was asked for and no further,
 * is used again for the next piece, and gives back what an idle connection should not hold.
 */
import { copyBytes, EMPTY_BYTES } from "./bytes.ts";

/** Sizes are rounded up to this, so that bodies of about one size share one buffer. */
const GRANULE_BYTES = 1024;

export class ByteStage {
  buffer: Uint8Array = EMPTY_BYTES;
  /** Bytes filled, from the start of `buffer`. */
  length = 0;

  /** Memory held. */
  get capacity(): number {
    return this.buffer.length;
  }

  /**
   * Empties the stage and makes room for `bytes`, so that appending up to that many copies each byte
   * once. A buffer more than four times too large is given back first.
   */
  begin(bytes: number): void {
    this.length = 0;
    const wanted = Math.ceil(bytes / GRANULE_BYTES) * GRANULE_BYTES;
    if (this.buffer.length < wanted || this.buffer.length > 4 * wanted) {
      this.buffer = new Uint8Array(wanted);
    }
  }

  /** Makes room for `bytes` in all, with what is there; by doubling, since it is asked for again. */
  grow(bytes: number): void {
    if (this.buffer.length >= bytes) return;
    const larger = new Uint8Array(Math.max(bytes, 2 * this.buffer.length));
    copyBytes(larger, 0, this.buffer, 0, this.length);
    this.buffer = larger;
  }

  /** Appends `source[start, end)`; there must be room. */
  append(source: Uint8Array, start: number, end: number): void {
    copyBytes(this.buffer, this.length, source, start, end);
    this.length += end - start;
  }

  /** {@linkcode append} that grows by doubling, for short pieces of unknown length. */
  appendGrowing(source: Uint8Array, start: number, end: number): void {
    const needed = this.length + end - start;
    if (needed > this.buffer.length) {
      const grown = new Uint8Array(Math.max(256, needed, 2 * this.buffer.length));
      copyBytes(grown, 0, this.buffer, 0, this.length);
      this.buffer = grown;
    }
    this.append(source, start, end);
  }

  /** Empties the stage and gives its memory back when it holds more than `retainBytesMax`. */
  release(retainBytesMax: number): void {
    this.length = 0;
    if (this.buffer.length > retainBytesMax) this.buffer = EMPTY_BYTES;
  }
}
