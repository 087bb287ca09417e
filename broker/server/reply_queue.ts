/**
 * Replies in the order of their commands, each held back until what it confirms is on disk, or for a
 * publish to a relaxed topic until it is written. A client matches replies first in, first out, so a
 * reply that is ready waits for those before it.
 */
import { OK_FRAME } from "@sluice/shared/protocol";
import type { Outbox } from "@sluice/shared/server";

interface Held {
  /** The log has to be durable up to here, or written. */
  position: number;
  readonly isRelaxed: boolean;
  /** The group of the log it belongs to; OKs of one group are one entry. */
  readonly group: number;
  /** OKs to send, or the frame. */
  oks: number;
  readonly frame: Uint8Array | null;
}

/** What an entry takes besides its frame. */
const ENTRY_BYTES = 64;

/** The held replies of one connection. */
export class ReplyQueue {
  readonly #held: Held[] = [];
  readonly #outbox: Outbox;
  #heldBytes = 0;

  constructor(outbox: Outbox) {
    this.#outbox = outbox;
  }

  get isEmpty(): boolean {
    return this.#held.length === 0;
  }

  /** Memory that the held replies take, about. OKs of one group count once. */
  get heldBytes(): number {
    return this.#heldBytes;
  }

  /** Adds an OK for what belongs to `group` and ends at `position`. */
  ok(group: number, position: number, isRelaxed = false): void {
    const last = this.#held.at(-1);
    if (
      last !== undefined && last.frame === null && last.group === group &&
      last.isRelaxed === isRelaxed
    ) {
      last.oks++;
      last.position = position;
      return;
    }
    this.#held.push({ position, isRelaxed, group, oks: 1, frame: null });
    this.#heldBytes += ENTRY_BYTES;
  }

  /** Adds a frame; `position` is 0 when it confirms nothing. */
  frame(frame: Uint8Array, position: number, isRelaxed = false): void {
    if (this.#held.length === 0 && position === 0) return this.#outbox.add(frame);
    this.#held.push({ position, isRelaxed, group: -1, oks: 0, frame });
    this.#heldBytes += ENTRY_BYTES + frame.length;
  }

  /** Releases what the ends of the log allow; returns whether anything went out. */
  release(durableEnd: number, confirmableEnd = durableEnd): boolean {
    let count = 0;
    for (const held of this.#held) {
      if (held.position > (held.isRelaxed ? confirmableEnd : durableEnd)) break;
      count++;
      this.#heldBytes -= ENTRY_BYTES + (held.frame?.length ?? 0);
      if (held.frame !== null) this.#outbox.add(held.frame);
      else addOks(this.#outbox, held.oks);
    }
    this.#held.splice(0, count);
    return count > 0;
  }

  /** What was held back will never be confirmed. */
  clear(): void {
    this.#held.length = 0;
    this.#heldBytes = 0;
  }
}

function addOks(outbox: Outbox, count: number): void {
  const bytes = OK_FRAME.length;
  let offset = outbox.reserve(count * bytes);
  for (let index = 0; index < count; index++, offset += bytes) outbox.buffer.set(OK_FRAME, offset);
}
