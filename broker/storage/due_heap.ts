/**
 * Things that become due at a wall-clock time: a 4-ary heap, 16 bytes an entry. It is kept in chunks,
 * so that it grows without a copy of all there is and gives memory back as it empties. Entries are
 * never removed but by popping; whoever pops checks whether the entry still means anything.
 */
import { invariant } from "@sluice/shared/runtime";

const CHUNK_BITS = 14;
const CHUNK_SLOTS = 1 << CHUNK_BITS;
const CHUNK_MASK = CHUNK_SLOTS - 1;
const SLOTS_MIN = 16;
/** The root's slot: the children of slot `s` are the four from `4 * (s - 2)` on, in one chunk. */
const ROOT = 3;

/** What is due when. */
export interface DueEntry {
  readonly dueMs: number;
  readonly offset: number;
}

/** Ordered by due time; entries of the same time come in no particular order. */
export class DueHeap {
  /** Slots of two numbers, due time and offset. The first chunk is smaller while it is alone. */
  #chunks: Float64Array[] = [new Float64Array(SLOTS_MIN * 2)];
  /** The slot behind the last entry's. */
  #end = ROOT;
  /** What the last `pop` took out. */
  poppedOffset = 0;

  get size(): number {
    return this.#end - ROOT;
  }

  /** Memory that holds entries. */
  get heldBytes(): number {
    return this.#chunks.reduce((sum, chunk) => sum + chunk.byteLength, 0);
  }

  /** The earliest due time, or Infinity. */
  get earliestMs(): number {
    return this.#end === ROOT ? Infinity : this.#chunks[0]![ROOT * 2]!;
  }

  push(dueMs: number, offset: number): void {
    let slot = this.#end++;
    const chunks = this.#chunks;
    let chunk = chunks[slot >>> CHUNK_BITS];
    let place = (slot & CHUNK_MASK) * 2;
    if (chunk === undefined || place >= chunk.length) chunk = this.#makeRoom(slot);
    while (slot > ROOT) {
      const parent = (slot >>> 2) + 2;
      const parentChunk = chunks[parent >>> CHUNK_BITS]!;
      const parentPlace = (parent & CHUNK_MASK) * 2;
      const parentMs = parentChunk[parentPlace]!;
      if (parentMs <= dueMs) break;
      chunk[place] = parentMs;
      chunk[place + 1] = parentChunk[parentPlace + 1]!;
      slot = parent;
      chunk = parentChunk;
      place = parentPlace;
    }
    chunk[place] = dueMs;
    chunk[place + 1] = offset;
  }

  /** Takes the earliest entry out, into `poppedOffset`. */
  pop(): void {
    invariant(this.#end > ROOT, "there is an entry to pop");
    const chunks = this.#chunks;
    let chunk = chunks[0]!;
    let place = ROOT * 2;
    this.poppedOffset = chunk[place + 1]!;
    const last = --this.#end;
    const dueMs = this.#dueMs(last);
    const offset = this.#offset(last);
    let slot = ROOT;
    while (true) {
      let child = (slot - 2) * 4;
      if (child >= last) break;
      const childChunk = chunks[child >>> CHUNK_BITS]!;
      let childPlace = (child & CHUNK_MASK) * 2;
      const endPlace = childPlace + Math.min(4, last - child) * 2;
      let childMs = childChunk[childPlace]!;
      for (let other = childPlace + 2; other < endPlace; other += 2) {
        const otherMs = childChunk[other]!;
        if (otherMs >= childMs) continue;
        child += (other - childPlace) >>> 1;
        childPlace = other;
        childMs = otherMs;
      }
      if (childMs >= dueMs) break;
      chunk[place] = childMs;
      chunk[place + 1] = childChunk[childPlace + 1]!;
      slot = child;
      chunk = childChunk;
      place = childPlace;
    }
    chunk[place] = dueMs;
    chunk[place + 1] = offset;
    // One spare chunk is left, so that a size that goes up and down makes no new ones.
    if ((last & CHUNK_MASK) === 0) chunks.length = (last >>> CHUNK_BITS) + 1;
  }

  clear(): void {
    this.#end = ROOT;
    this.#chunks.length = 1;
  }

  /** Calls `visit` for every entry, in no particular order. */
  each(visit: (dueMs: number, offset: number) => void): void {
    for (let slot = ROOT; slot < this.#end; slot++) visit(this.#dueMs(slot), this.#offset(slot));
  }

  /** Entries whose offset passes `test`. */
  countWhere(test: (offset: number) => boolean): number {
    let count = 0;
    for (let slot = ROOT; slot < this.#end; slot++) if (test(this.#offset(slot))) count++;
    return count;
  }

  /** The offset of an entry that is due earliest; there is one. */
  get earliestOffset(): number {
    invariant(this.#end > ROOT, "there is an earliest entry");
    return this.#chunks[0]![ROOT * 2 + 1]!;
  }

  /**
   * The first `count` entries whose offset passes `test`, by due time; of no more than `looksMax` that
   * come first. Nothing changes.
   */
  first(count: number, test: (offset: number) => boolean, looksMax: number): DueEntry[] {
    const found: DueEntry[] = [];
    const open = new DueHeap();
    if (this.#end > ROOT) open.push(this.#dueMs(ROOT), ROOT);
    for (let looks = 0; open.size > 0 && found.length < count && looks < looksMax; looks++) {
      open.pop();
      const slot = open.poppedOffset;
      const offset = this.#offset(slot);
      if (test(offset)) found.push({ dueMs: this.#dueMs(slot), offset });
      const child = (slot - 2) * 4;
      const end = Math.min(child + 4, this.#end);
      for (let next = child; next < end; next++) open.push(this.#dueMs(next), next);
    }
    return found;
  }

  /** Keeps only the entries whose offset passes `test`. */
  retain(test: (offset: number) => boolean): void {
    // In place: an entry goes back to a slot that has been read.
    const end = this.#end;
    this.#end = ROOT;
    for (let slot = ROOT; slot < end; slot++) {
      const offset = this.#offset(slot);
      if (test(offset)) this.push(this.#dueMs(slot), offset);
    }
    this.#chunks.length = Math.ceil(this.#end / CHUNK_SLOTS);
  }

  #dueMs(slot: number): number {
    return this.#chunks[slot >>> CHUNK_BITS]![(slot & CHUNK_MASK) * 2]!;
  }

  #offset(slot: number): number {
    return this.#chunks[slot >>> CHUNK_BITS]![(slot & CHUNK_MASK) * 2 + 1]!;
  }

  /** The chunk for `slot`, which is the one behind all there is room for. */
  #makeRoom(slot: number): Float64Array {
    const first = this.#chunks[0]!;
    if (first.length === CHUNK_SLOTS * 2) {
      const chunk = new Float64Array(CHUNK_SLOTS * 2);
      this.#chunks.push(chunk);
      return chunk;
    }
    const larger = new Float64Array(slot * 4);
    larger.set(first);
    this.#chunks[0] = larger;
    return larger;
  }
}
