/**
 * The bytes of a checkpoint under work: what one slice has written, and reading it back. Numbers are
 * little endian, texts are a length (2 bytes) and UTF-8.
 */
import { readU64, writeU64 } from "@sluice/shared/log";
import { invariant } from "@sluice/shared/runtime";

/** How much one slice does: it ends with the entry that reaches either. */
export interface SliceLimits {
  readonly bytes: number;
  /** See {@linkcode ChunkWriter.work}. */
  readonly work: number;
}

/** Room for the entry that reaches the limit: a page, or a topic or channel with its name. */
const ENTRY_BYTES_MAX = 8192;

const textEncoder = new TextEncoder();
const textDecoder = new TextDecoder();

/** Gathers entries until the slice is over; its memory is used again for each. */
export class ChunkWriter {
  /** What has been looked at in this slice, written or not, in units of one small entry. */
  work = 0;
  readonly #limits: SliceLimits;
  readonly #bytes: Uint8Array;
  readonly #view: DataView;
  #at = 0;

  constructor(limits: SliceLimits) {
    this.#limits = limits;
    this.#bytes = new Uint8Array(limits.bytes + ENTRY_BYTES_MAX);
    this.#view = new DataView(this.#bytes.buffer);
  }

  /** Whether it is time to let others run. */
  get isOver(): boolean {
    return this.#at >= this.#limits.bytes || this.work >= this.#limits.work;
  }

  /** The slice's bytes, maybe none, valid until the next one is begun by writing. */
  take(): Uint8Array {
    const chunk = this.#bytes.subarray(0, this.#at);
    this.#at = 0;
    this.work = 0;
    return chunk;
  }

  u8(value: number): void {
    this.#bytes[this.#at++] = value;
  }

  u16(value: number): void {
    this.#view.setUint16(this.#at, value, true);
    this.#at += 2;
  }

  u32(value: number): void {
    this.#view.setUint32(this.#at, value, true);
    this.#at += 4;
  }

  u64(value: number): void {
    writeU64(this.#view, this.#at, value);
    this.#at += 8;
  }

  text(value: string): void {
    const into = this.#bytes.subarray(this.#at + 2, this.#at + 2 + ENTRY_BYTES_MAX / 2);
    const { read, written } = textEncoder.encodeInto(value, into);
    invariant(read === value.length, "a name is short");
    this.u16(written);
    this.#at += written;
  }
}

/** Reads what a {@linkcode ChunkWriter} wrote; throws `RangeError` where it ends too early. */
export class ChunkReader {
  readonly #bytes: Uint8Array;
  readonly #view: DataView;
  #at = 0;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  get isAtEnd(): boolean {
    return this.#at >= this.#bytes.length;
  }

  u8(): number {
    return this.#view.getUint8(this.#at++);
  }

  u16(): number {
    this.#at += 2;
    return this.#view.getUint16(this.#at - 2, true);
  }

  u32(): number {
    this.#at += 4;
    return this.#view.getUint32(this.#at - 4, true);
  }

  u64(): number {
    this.#at += 8;
    return readU64(this.#view, this.#at - 8);
  }

  text(): string {
    const bytes = this.u16();
    this.#at += bytes;
    return textDecoder.decode(this.#bytes.subarray(this.#at - bytes, this.#at));
  }
}
