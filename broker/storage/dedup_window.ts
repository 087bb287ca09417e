/**
 * Which publishes of which producers a topic has: what makes a repeat of one known as such.
 *
 * - A producer is 16 bytes of its own choosing and numbers its publishes. Of each producer the newest
 *   {@linkcode DedupLimits.sequences} numbers are told apart, below its highest; what is older cannot be
 *   decided. A number that was left out is new whenever it comes.
 * - A number is in it only if a record that the log holds, or will, has it: {@linkcode DedupWindow.add} is
 *   the only change, live and in replay alike, by the record's own timestamp. So nothing that was
 *   lost is taken for a repeat.
 * - A producer that has published nothing to the topic for {@linkcode DedupLimits.windowMs} is forgotten,
 *   and so is the one idle longest when there are more than {@linkcode DedupLimits.producers}.
 * - Memory: about {@linkcode PRODUCER_BYTES} and a bit for each number of the span in use, for each
 *   producer. {@linkcode DedupBudget} counts it over all topics; whoever publishes asks before.
 */
import { invariant } from "@sluice/shared/runtime";
import { PAGE_OFFSETS, PAGE_WORDS } from "./finished_page.ts";
import { type Origin, PRODUCER_ID_BYTES } from "./records.ts";

/** Bounds of what is remembered. */
export interface DedupLimits {
  /** How long an idle producer is remembered. */
  readonly windowMs: number;
  /** Numbers of a producer that are told apart; {@linkcode DEDUP_SEQUENCES_MAX} at most. */
  readonly sequences: number;
  /** Producers of one topic. */
  readonly producers: number;
  /** Memory over all topics. */
  readonly bytes: number;
}

export const DEDUP_LIMITS_DEFAULT: DedupLimits = {
  windowMs: 600_000,
  sequences: 65_536,
  producers: 1024,
  bytes: 64 * 2 ** 20,
};
export const DEDUP_SEQUENCES_MAX = 2 ** 20;
/** What a producer takes besides its bits, about. */
export const PRODUCER_BYTES = 512;
/** Bits that a producer has at first; all sizes are this times a power of two. */
const BITS_MIN = 1024;
/** What a producer with one number takes. */
export const FIRST_PRODUCER_BYTES: number = PRODUCER_BYTES + BITS_MIN / 8;

/** What all topics of a broker share. */
export class DedupBudget {
  /** Memory in use. */
  bytes = 0;
  /** Producers that are remembered, over all topics. */
  producers = 0;
  /** Producers forgotten before their time, since the start. */
  displaced = 0;

  constructor(readonly limits: DedupLimits = DEDUP_LIMITS_DEFAULT) {
    invariant(limits.sequences <= DEDUP_SEQUENCES_MAX, "the numbers told apart are bounded");
  }
}

/** What is known of a publish. */
export type DedupVerdict = "new" | "repeat" | "too_old";

/** What a checkpoint says of one producer. */
export interface ProducerEntry {
  readonly id: Uint8Array;
  /** Unix ms of its newest message. */
  readonly lastMs: number;
  readonly low: number;
  readonly highest: number;
}

/** The numbers of one producer. Bits outside of `[low, highest]` mean nothing. */
class Producer implements ProducerEntry {
  highest = 0;
  low = 0;
  words = new Uint32Array(BITS_MIN / 32);
  /** The log has to be durable up to here for all of its messages to be; 0 after a start. */
  end = 0;

  constructor(readonly id: Uint8Array, readonly key: string, public lastMs: number) {}

  has(sequence: number): boolean {
    if (sequence < this.low || sequence > this.highest) return false;
    return (this.words[this.#word(sequence)]! >>> (sequence % 32) & 1) === 1;
  }

  /** Starts with one number. */
  restart(sequence: number): void {
    this.low = sequence;
    this.highest = sequence;
    this.words[this.#word(sequence)] = 1 << (sequence % 32);
  }

  /** Adds a number that is not too old; there are words for `[low, highest]` as they will be. */
  add(sequence: number, sequencesMax: number): void {
    if (sequence > this.highest) {
      const low = Math.max(this.low, sequence - sequencesMax + 1);
      this.#clear(Math.max(this.highest + 1, low), sequence + 1);
      this.highest = sequence;
      this.low = low;
    } else if (sequence < this.low) {
      this.#clear(sequence, this.low);
      this.low = sequence;
    }
    this.words[this.#word(sequence)]! |= 1 << (sequence % 32);
  }

  /** Has so many bits: a power of two, not fewer than before. */
  grow(bits: number): void {
    const before = this.words;
    this.words = new Uint32Array(bits / 32);
    for (let at = this.low - this.low % 32; at <= this.highest; at += 32) {
      this.words[this.#word(at)] = before[at % (before.length * 32) / 32]!;
    }
  }

  /** A page of the bits that mean something; it has some. */
  page(number: number): Uint32Array {
    const page = new Uint32Array(PAGE_WORDS);
    const start = number * PAGE_OFFSETS;
    const first = Math.max(0, Math.floor((this.low - start) / 32));
    const last = Math.min(PAGE_WORDS - 1, Math.floor((this.highest - start) / 32));
    let word = this.#word(start + first * 32);
    for (let index = first; index <= last; index++) {
      page[index] = this.words[word]!;
      word = (word + 1) & (this.words.length - 1);
    }
    for (const index of [first, last]) {
      page[index] = page[index]! & maskOf(start + index * 32, this.low, this.highest);
    }
    return page;
  }

  /** Sets bits from `at` on; those that mean nothing are left out. */
  setBits(at: number, bits: number): void {
    this.words[this.#word(at)]! |= bits & maskOf(at, this.low, this.highest);
  }

  #clear(from: number, to: number): void {
    for (let at = from - from % 32; at < to; at += 32) {
      const word = this.#word(at);
      this.words[word] = this.words[word]! & ~maskOf(at, from, to - 1);
    }
  }

  #word(sequence: number): number {
    return Math.floor(sequence % (this.words.length * 32) / 32);
  }
}

/** The producers of one topic. */
export class DedupWindow {
  /** Records below this position are in it already. */
  includes = 0;
  readonly #budget: DedupBudget;
  /** The one idle longest first. */
  readonly #producers = new Map<string, Producer>();
  #latest: Producer | null = null;

  constructor(budget: DedupBudget) {
    this.#budget = budget;
  }

  get producerCount(): number {
    return this.#producers.size;
  }

  /** What is known of a publish at `nowMs`, Unix ms. */
  judge({ producer: id, sequence }: Origin, nowMs: number): DedupVerdict {
    const producer = this.#find(id, 0);
    if (producer === null || this.#isForgotten(producer, nowMs)) return "new";
    if (producer.has(sequence)) return "repeat";
    const { sequences } = this.#budget.limits;
    return sequence <= producer.highest - sequences ? "too_old" : "new";
  }

  /** The log is durable up to here when all is that the producer of `origin` has here. */
  endOf({ producer }: Origin): number {
    return this.#find(producer, 0)?.end ?? 0;
  }

  /** Memory that adding a publish would take, at most. */
  bytesFor({ producer: id, sequence }: Origin): number {
    const producer = this.#find(id, 0);
    if (producer === null) return FIRST_PRODUCER_BYTES;
    return (this.#bitsFor(producer, sequence) - producer.words.length * 32) / 8;
  }

  /**
   * A record whose timestamp is `timeMs`, Unix ms, has the number `sequence` of the producer
   * `bytes[start, start + 16)`; the log has it when it is durable up to `end`.
   */
  add(bytes: Uint8Array, start: number, sequence: number, timeMs: number, end: number): void {
    let producer = this.#find(bytes, start);
    if (producer === null) {
      this.forgetIdle(timeMs);
      if (this.#producers.size >= this.#budget.limits.producers) this.#displace();
      producer = this.#new(bytes.slice(start, start + PRODUCER_ID_BYTES), timeMs);
      producer.restart(sequence);
    } else {
      if (producer !== this.#latest) {
        this.#producers.delete(producer.key);
        this.#producers.set(producer.key, producer);
      }
      const { sequences } = this.#budget.limits;
      if (this.#isForgotten(producer, timeMs)) producer.restart(sequence);
      else if (sequence > producer.highest - sequences) {
        this.#grow(producer, this.#bitsFor(producer, sequence));
        producer.add(sequence, sequences);
      }
    }
    producer.lastMs = Math.max(producer.lastMs, timeMs);
    producer.end = Math.max(producer.end, end);
    this.#latest = producer;
  }

  /** Forgets whom nobody has heard of for the window's time. */
  forgetIdle(nowMs: number): void {
    for (const producer of this.#producers.values()) {
      if (!this.#isForgotten(producer, nowMs)) return;
      this.#forget(producer);
    }
  }

  /** Forgets all; of no use afterwards. */
  close(): void {
    for (const producer of this.#producers.values()) this.#forget(producer);
  }

  /** All producers, the one idle longest first, as they are when they are come to. */
  entries(): readonly ProducerEntry[] {
    return [...this.#producers.values()];
  }

  /** The numbers of an entry by pages as of a finished set, of which only `[low, highest]` count. */
  pagesOf(entry: ProducerEntry): [number: number, page: Uint32Array][] {
    invariant(entry instanceof Producer, "the entry is of this window");
    const pages: [number, Uint32Array][] = [];
    const last = Math.floor(entry.highest / PAGE_OFFSETS);
    for (let number = Math.floor(entry.low / PAGE_OFFSETS); number <= last; number++) {
      pages.push([number, entry.page(number)]);
    }
    return pages;
  }

  /** Takes up what a checkpoint has; what the limits do not allow any more is left out. */
  restore({ id, lastMs, low, highest }: ProducerEntry): void {
    if (this.#producers.size >= this.#budget.limits.producers) this.#displace();
    const producer = this.#new(id, lastMs);
    producer.highest = highest;
    producer.low = highest;
    const { sequences } = this.#budget.limits;
    const lowest = Math.max(low, highest - sequences + 1);
    this.#grow(producer, this.#bitsFor(producer, lowest));
    producer.low = lowest;
    this.#latest = producer;
  }

  /** The numbers of the producer that was restored last. */
  addPage(number: number, page: Uint32Array): void {
    const producer = this.#latest;
    invariant(producer !== null, "a page follows its producer");
    for (const [index, bits] of page.entries()) {
      if (bits !== 0) producer.setBits(number * PAGE_OFFSETS + index * 32, bits);
    }
  }

  #new(id: Uint8Array, lastMs: number): Producer {
    const key = keyOf(id, 0);
    const producer = new Producer(id, key, lastMs);
    this.#producers.set(key, producer);
    this.#budget.producers++;
    this.#budget.bytes += FIRST_PRODUCER_BYTES;
    return producer;
  }

  /** Bits that the numbers of a producer need with `sequence`. */
  #bitsFor(producer: Producer, sequence: number): number {
    const { sequences } = this.#budget.limits;
    const highest = Math.max(producer.highest, sequence);
    const span = highest - Math.min(producer.low, sequence) + 1;
    let bits = producer.words.length * 32;
    while (bits < Math.min(span, sequences)) bits *= 2;
    return bits;
  }

  #grow(producer: Producer, bits: number): void {
    const before = producer.words.length * 32;
    if (bits === before) return;
    producer.grow(bits);
    this.#budget.bytes += (bits - before) / 8;
  }

  #isForgotten(producer: Producer, nowMs: number): boolean {
    return nowMs - producer.lastMs > this.#budget.limits.windowMs;
  }

  /** Forgets the one idle longest. */
  #displace(): void {
    for (const producer of this.#producers.values()) {
      this.#budget.displaced++;
      return this.#forget(producer);
    }
  }

  #forget(producer: Producer): void {
    this.#producers.delete(producer.key);
    if (this.#latest === producer) this.#latest = null;
    this.#budget.producers--;
    this.#budget.bytes -= PRODUCER_BYTES + producer.words.length * 4;
  }

  #find(bytes: Uint8Array, start: number): Producer | null {
    const latest = this.#latest;
    if (latest !== null && isSame(latest.id, bytes, start)) return latest;
    return this.#producers.get(keyOf(bytes, start)) ?? null;
  }
}

function isSame(id: Uint8Array, bytes: Uint8Array, start: number): boolean {
  for (let index = 0; index < PRODUCER_ID_BYTES; index++) {
    if (id[index] !== bytes[start + index]) return false;
  }
  return true;
}

/** A character for each byte. */
function keyOf(bytes: Uint8Array, start: number): string {
  // One by one: several times as fast as spreading.
  const at = (index: number) => bytes[start + index]!;
  // deno-fmt-ignore
  return String.fromCharCode(
    at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7),
    at(8), at(9), at(10), at(11), at(12), at(13), at(14), at(15),
  );
}

/** The bits from `at` on, a multiple of 32, that are in `[low, highest]`. */
function maskOf(at: number, low: number, highest: number): number {
  if (highest < at || low > at + 31) return 0;
  const from = Math.max(0, low - at);
  const to = Math.min(31, highest - at);
  return (-1 << from) & (-1 >>> (31 - to));
}
