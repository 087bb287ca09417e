/**
 * A byte array that grows by doubling, so that appends cost what they append. Bytes beyond the size
 * read as zero when the size reaches them later.
 */
const CAPACITY_BYTES_MIN = 512;

export class GrowingBytes {
  #bytes = new Uint8Array(0);
  #size = 0;
  /** Everything from here on is zero. */
  #touched = 0;

  get size(): number {
    return this.#size;
  }

  /** The content, valid until the next change. */
  view(): Uint8Array {
    return this.#bytes.subarray(0, this.#size);
  }

  /** Places bytes anywhere and leaves the size alone; what lies beyond it goes with the next resize. */
  put(position: number, bytes: Uint8Array): void {
    const end = position + bytes.length;
    this.#reserve(end);
    this.#bytes.set(bytes, position);
    this.#touched = Math.max(this.#touched, end);
  }

  /** Cuts or extends with zeros. */
  resize(size: number): void {
    this.#reserve(size);
    if (size < this.#touched) {
      this.#bytes.fill(0, size, this.#touched);
      this.#touched = size;
    }
    this.#size = size;
  }

  /** Places bytes and grows to hold them. */
  write(position: number, bytes: Uint8Array): void {
    this.put(position, bytes);
    this.#size = Math.max(this.#size, position + bytes.length);
  }

  /** Copies from `position` and returns how many bytes there were, at most `into.length`. */
  read(position: number, into: Uint8Array): number {
    const bytes = this.#bytes.subarray(
      Math.min(position, this.#size),
      Math.min(position + into.length, this.#size),
    );
    into.set(bytes);
    return bytes.length;
  }

  flipBit(position: number, bit: number): void {
    const byte = this.#bytes[position];
    if (byte !== undefined && position < this.#size) this.#bytes[position] = byte ^ (1 << bit);
  }

  /** Becomes a copy of `other`. */
  copyFrom(other: GrowingBytes): void {
    this.resize(0);
    this.write(0, other.view());
  }

  #reserve(capacity: number): void {
    if (capacity <= this.#bytes.length) return;
    const doubled = Math.max(CAPACITY_BYTES_MIN, capacity, this.#bytes.length * 2);
    const grown = new Uint8Array(doubled);
    grown.set(this.#bytes.subarray(0, this.#touched));
    this.#bytes = grown;
  }
}
