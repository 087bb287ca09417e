/**
 * Replies in the order of their commands, each as soon as it and all before it are known. A client
 * matches replies first in, first out.
 */
import type { Outbox } from "@sluice/shared/server";

/** What an entry takes besides its frame. */
const ENTRY_BYTES = 64;

/** The place of a reply. */
export interface ReplySlot {
  frame: Uint8Array | null;
}

/** See the module. */
export class OrderedReplies {
  readonly #outbox: Outbox;
  #slots: ReplySlot[] = [];
  #head = 0;
  #frameBytes = 0;

  constructor(outbox: Outbox) {
    this.#outbox = outbox;
  }

  get isEmpty(): boolean {
    return this.#head === this.#slots.length;
  }

  /** Memory that replies take which wait for others, about. */
  get heldBytes(): number {
    return (this.#slots.length - this.#head) * ENTRY_BYTES + this.#frameBytes;
  }

  /** Takes a place for a reply that is not known yet. */
  place(): ReplySlot {
    const slot: ReplySlot = { frame: null };
    this.#slots.push(slot);
    return slot;
  }

  /** Adds a reply that is known. */
  add(frame: Uint8Array): void {
    if (this.isEmpty) return this.#outbox.add(frame);
    this.#slots.push({ frame });
    this.#frameBytes += frame.length;
  }

  /** Fills a place; returns whether anything went out. */
  fill(slot: ReplySlot, frame: Uint8Array): boolean {
    slot.frame = frame;
    this.#frameBytes += frame.length;
    let isOut = false;
    for (let known = this.#known(); known !== null; known = this.#known()) {
      this.#outbox.add(known);
      this.#frameBytes -= known.length;
      this.#head++;
      isOut = true;
    }
    if (this.#head > 256 && this.#head * 2 > this.#slots.length) {
      this.#slots = this.#slots.slice(this.#head);
      this.#head = 0;
    }
    return isOut;
  }

  /** The reply that is next to go out, if it is known. */
  #known(): Uint8Array | null {
    return this.#slots[this.#head]?.frame ?? null;
  }

  /** None of them is sent. */
  clear(): void {
    this.#slots = [];
    this.#head = 0;
    this.#frameBytes = 0;
  }
}
