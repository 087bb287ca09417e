/**
 * One page of a finished set: a bitmap of 32768 offsets in 32-bit words, the low bits first. Bits are
 * numbers from 0 to 32767, ranges of them `[from, to)`; whatever works on a range goes by words.
 */
export const PAGE_OFFSETS = 2 ** 15;
export const PAGE_WORDS = PAGE_OFFSETS / 32;

/** Bits of the range that are set. */
export function countRun(page: Uint32Array, from: number, to: number): number {
  let count = 0;
  for (let word = from >>> 5; word * 32 < to; word++) {
    count += popCount(page[word]! & maskOf(word, from, to));
  }
  return count;
}

/** The first bit from `from` on that is not set; {@linkcode PAGE_OFFSETS} when all are. */
export function firstClear(page: Uint32Array, from: number): number {
  // What is below counts as set.
  let clear = ~page[from >>> 5]! & (-1 << (from & 31));
  for (let word = from >>> 5; word < PAGE_WORDS;) {
    if (clear !== 0) return word * 32 + lowestBit(clear);
    clear = ~page[++word]!;
  }
  return PAGE_OFFSETS;
}

/** Clears the bits of the range. */
export function clearRun(page: Uint32Array, from: number, to: number): void {
  for (let word = from >>> 5; word * 32 < to; word++) {
    page[word] = page[word]! & ~maskOf(word, from, to);
  }
}

/** Sets the bits of the range; returns how many of them were not set before. */
export function fillRun(page: Uint32Array, from: number, to: number): number {
  let added = 0;
  for (let word = from >>> 5; word * 32 < to; word++) {
    const before = page[word]!;
    const mask = maskOf(word, from, to);
    added += popCount(mask & ~before);
    page[word] = before | mask;
  }
  return added;
}

/**
 * Finds the runs of set bits and writes them to `into` as pairs, the first and the last bit of each,
 * ascending. Returns how many there are, or -1 when they do not fit.
 */
export function findRuns(page: Uint32Array, into: Uint16Array): number {
  let firsts = 0;
  let lasts = 0;
  let isInRun = 0;
  for (let at = 0; at < PAGE_WORDS; at++) {
    const word = page[at]!;
    if (word !== 0) {
      let starts = word & ~((word << 1) | isInRun);
      for (; starts !== 0; starts &= starts - 1) {
        if (2 * firsts === into.length) return -1;
        into[2 * firsts++] = at * 32 + lowestBit(starts);
      }
      const next = at + 1 < PAGE_WORDS ? page[at + 1]! : 0;
      let ends = word & ~((word >>> 1) | (next << 31));
      for (; ends !== 0; ends &= ends - 1) into[2 * lasts++ + 1] = at * 32 + lowestBit(ends);
    }
    isInRun = word >>> 31;
  }
  return firsts;
}

/** The bits of a word, given by its index, that are in the range. */
function maskOf(word: number, from: number, to: number): number {
  const low = Math.max(0, from - word * 32);
  const high = Math.min(32, to - word * 32);
  return (-1 << low) & (-1 >>> (32 - high));
}

function lowestBit(word: number): number {
  return 31 - Math.clz32(word & -word);
}

function popCount(word: number): number {
  let count = word - ((word >>> 1) & 0x55555555);
  count = (count & 0x33333333) + ((count >>> 2) & 0x33333333);
  count = (count + (count >>> 4)) & 0x0f0f0f0f;
  return Math.imul(count, 0x01010101) >>> 24;
}
