/** Whole numbers of any size in few bytes: 7 bits a byte, the low ones first. */
import { invariant } from "@sluice/shared/runtime";

/** The most bytes of one number: 54 bits. */
export const VARINT_BYTES_MAX = 8;

/** Writes numbers one after the other. */
export class VarintWriter {
  at: number;
  readonly #bytes: Uint8Array;

  constructor(bytes: Uint8Array, at: number) {
    this.#bytes = bytes;
    this.at = at;
  }

  write(value: number): void {
    invariant(value >= 0, "what is written as differences ascends");
    let rest = value;
    while (rest >= 128) {
      this.#bytes[this.at++] = (rest % 128) | 128;
      rest = Math.floor(rest / 128);
    }
    this.#bytes[this.at++] = rest;
  }
}

/** Reads what {@linkcode VarintWriter} wrote. */
export class VarintReader {
  readonly #bytes: Uint8Array;
  #at: number;

  constructor(bytes: Uint8Array, at: number) {
    this.#bytes = bytes;
    this.#at = at;
  }

  /** The next number, -1 when the bytes end before it does. */
  read(): number {
    let value = 0;
    let scale = 1;
    while (this.#at < this.#bytes.length) {
      const byte = this.#bytes[this.#at++]!;
      value += (byte & 127) * scale;
      if (byte < 128) return value;
      scale *= 128;
    }
    return -1;
  }
}
