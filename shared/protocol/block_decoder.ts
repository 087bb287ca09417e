/**
 * The client's side of a byte stream made of sized blocks, whatever is in them.
 *
 *     stream = *( int32-size data )      ; size = bytes of data
 *
 * It pulls, as the command decoder does. A block that is whole in its chunk is not copied, any other
 * is copied once into memory of the decoder, which is taken when its first byte arrives and is at
 * most `sizeMax` (rounded up to 1 KiB). A chunk is borrowed from `feed()` until `next()` returns
 * NEED_MORE; a block lasts until the next call of `next()`.
 */
import { invariant } from "../runtime/invariant.ts";
import { ByteStage } from "./byte_stage.ts";
import { EMPTY_BYTES, readInt32 } from "./bytes.ts";

/** What `next()` found. */
export const BlockEvent = {
  /** All of the chunk is used: feed another one. */
  NEED_MORE: 0,
  BLOCK: 1,
  /** The size is outside the bounds. Final: comes again on every call. */
  BAD_SIZE: 2,
} as const;
export type BlockEvent = typeof BlockEvent[keyof typeof BlockEvent];

/** Which block sizes are accepted, and how much memory is kept. */
export interface BlockBounds {
  readonly sizeMin: number;
  readonly sizeMax: number;
  /** Memory kept while no block is pending. Default 4096. */
  readonly retainBytesMax?: number;
}

const SIZE_BYTES = 4;

export class BlockDecoder {
  /** After BLOCK: where its data is. */
  buffer: Uint8Array = EMPTY_BYTES;
  start = 0;
  end = 0;
  /** After BLOCK and BAD_SIZE: the size as announced. */
  size = 0;

  readonly #sizeMin: number;
  readonly #sizeMax: number;
  readonly #retainBytesMax: number;
  #chunk: Uint8Array = EMPTY_BYTES;
  #position = 0;
  #chunkEnd = 0;
  #sizeBytes = 0;
  #staged = false;
  #failed = false;
  readonly #stage = new ByteStage();

  constructor(bounds: BlockBounds) {
    this.#sizeMin = bounds.sizeMin;
    this.#sizeMax = bounds.sizeMax;
    this.#retainBytesMax = bounds.retainBytesMax ?? 4096;
    invariant(this.#sizeMin >= 0, "a size is not negative");
  }

  /** Gives the next `buffer[start, end)` of the stream; only after NEED_MORE or at the start. */
  feed(buffer: Uint8Array, start = 0, end = buffer.length): void {
    invariant(this.#position === this.#chunkEnd, "a chunk is fed when the last one is used up");
    this.#chunk = buffer;
    this.#position = start;
    this.#chunkEnd = end;
  }

  /** Decodes up to the next event. */
  next(): BlockEvent {
    if (this.#failed) return BlockEvent.BAD_SIZE;
    if (this.#sizeBytes < SIZE_BYTES) {
      if (!this.#readSize()) return this.#needMore();
      if (this.size < this.#sizeMin || this.size > this.#sizeMax) return this.#fail();
    }
    return this.#nextBlock();
  }

  /** Takes back the part of the chunk that no block has used, as a view; see the command decoder. */
  takeRemaining(): Uint8Array {
    const remaining = this.#chunk.subarray(this.#position, this.#chunkEnd);
    this.#position = this.#chunkEnd;
    return remaining;
  }

  /** Memory held for a block. */
  get stagedBytes(): number {
    return this.#stage.capacity;
  }

  /** Whether the stream stands between two blocks. */
  get isBetweenBlocks(): boolean {
    return this.#sizeBytes === 0;
  }

  #readSize(): boolean {
    if (this.#sizeBytes === 0 && this.#chunkEnd - this.#position >= SIZE_BYTES) {
      this.size = readInt32(this.#chunk, this.#position);
      this.#position += SIZE_BYTES;
      this.#sizeBytes = SIZE_BYTES;
      return true;
    }
    while (this.#sizeBytes < SIZE_BYTES && this.#position < this.#chunkEnd) {
      this.size = (this.size << 8) | this.#chunk[this.#position]!;
      this.#position++;
      this.#sizeBytes++;
    }
    return this.#sizeBytes === SIZE_BYTES;
  }

  #nextBlock(): BlockEvent {
    const available = this.#chunkEnd - this.#position;
    if (!this.#staged && available >= this.size) {
      this.buffer = this.#chunk;
      this.start = this.#position;
      this.#position += this.size;
      this.end = this.#position;
      this.#sizeBytes = 0;
      return BlockEvent.BLOCK;
    }
    if (available === 0) return this.#needMore();
    if (!this.#staged) {
      this.#stage.begin(this.size);
      this.#staged = true;
    }
    const bytes = Math.min(available, this.size - this.#stage.length);
    this.#stage.append(this.#chunk, this.#position, this.#position + bytes);
    this.#position += bytes;
    if (this.#stage.length < this.size) return this.#needMore();
    this.buffer = this.#stage.buffer;
    this.start = 0;
    this.end = this.size;
    this.#staged = false;
    this.#sizeBytes = 0;
    return BlockEvent.BLOCK;
  }

  #needMore(): BlockEvent {
    if (this.isBetweenBlocks) this.#stage.release(this.#retainBytesMax);
    this.buffer = EMPTY_BYTES;
    this.start = 0;
    this.end = 0;
    this.#chunk = EMPTY_BYTES;
    this.#position = 0;
    this.#chunkEnd = 0;
    return BlockEvent.NEED_MORE;
  }

  #fail(): BlockEvent {
    this.#failed = true;
    this.#stage.release(0);
    this.#position = this.#chunkEnd;
    return BlockEvent.BAD_SIZE;
  }
}
