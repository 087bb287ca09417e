/**
 * Which messages a power cut would take although they were confirmed or delivered: those of relaxed
 * topics that are written and not synced. It asks for a sync at the first of three limits, and never
 * lets more into the window than the limits say:
 *
 * ```
 *             closing()           written(): fits              synced()
 *  filling ---------------> closed ---------------> exposed ---------------> durable
 *                             '--- written(): does not fit, so not exposed -----^
 * ```
 *
 * - Once a group does not fit, nothing more is exposed before the next sync: such groups are confirmed
 *   when they are durable.
 * - Time is no hard bound: what was exposed for `intervalMs` stays so until the sync is done, however
 *   long the disk takes. Nothing is added meanwhile.
 * - Nothing is made per message; there is one timer a window.
 */
import type { Clock, Timer } from "@sluice/shared/runtime";

/** Limits of a {@linkcode LossWindow}. */
export interface LossWindowLimits {
  readonly messages: number;
  readonly bytes: number;
  readonly intervalMs: number;
}

/** Those of the contract, section 2.12. */
export const LOSS_WINDOW_LIMITS: LossWindowLimits = {
  messages: 2500,
  bytes: 8 * 2 ** 20,
  intervalMs: 10,
};

/** Which limit a sync was asked for by; `other`: it came for something that has to be durable. */
export type SyncCause = "messages" | "bytes" | "time" | "other";

/** See the module. */
export class LossWindow {
  /** Syncs that ended a window, by cause. */
  readonly syncs: Record<SyncCause, number> = { messages: 0, bytes: 0, time: 0, other: 0 };
  /** Messages that are exposed now, and their bytes. */
  messages = 0;
  bytes = 0;
  /** The most there ever was. */
  messagesHighest = 0;
  bytesHighest = 0;
  ageMsHighest = 0;

  readonly #clock: Clock;
  readonly #limits: LossWindowLimits;
  readonly #sync: () => void;
  #fillingMessages = 0;
  #fillingBytes = 0;
  #closedMessages = 0;
  #closedBytes = 0;
  /** When the oldest message that is exposed was. */
  #sinceMs = 0;
  #isFull = false;
  #cause: SyncCause | null = null;
  #timer: Timer | null = null;

  /** `sync` asks for all that is written, or is to be, to be made durable. */
  constructor(clock: Clock, limits: LossWindowLimits, sync: () => void) {
    this.#clock = clock;
    this.#limits = limits;
    this.#sync = sync;
  }

  /** How long the oldest message that is exposed has been. */
  get ageMs(): number {
    return this.messages === 0 ? 0 : this.#clock.monoMs() - this.#sinceMs;
  }

  /** A message was added to the group being filled. */
  add(bytes: number): void {
    this.#fillingMessages++;
    this.#fillingBytes += bytes;
    if (this.#timer === null) this.#arm();
    if (this.#cause !== null) return;
    const { messages, bytes: bytesMax } = this.#limits;
    if (this.messages + this.#closedMessages + this.#fillingMessages >= messages) {
      this.#ask("messages");
    } else if (this.bytes + this.#closedBytes + this.#fillingBytes >= bytesMax) {
      this.#ask("bytes");
    }
  }

  /** The group being filled is closed; what is added now is for the next one. */
  closing(): void {
    this.#closedMessages += this.#fillingMessages;
    this.#closedBytes += this.#fillingBytes;
    this.#fillingMessages = 0;
    this.#fillingBytes = 0;
  }

  /** The closed group is written. Returns whether its messages are exposed now. */
  written(): boolean {
    if (this.#closedMessages === 0) return false;
    const messages = this.messages + this.#closedMessages;
    const bytes = this.bytes + this.#closedBytes;
    this.#closedMessages = 0;
    this.#closedBytes = 0;
    if (messages > this.#limits.messages) this.#fill("messages");
    else if (bytes > this.#limits.bytes) this.#fill("bytes");
    if (this.#isFull) return false;
    if (this.messages === 0) this.#sinceMs = this.#clock.monoMs();
    this.messages = messages;
    this.bytes = bytes;
    this.messagesHighest = Math.max(this.messagesHighest, messages);
    this.bytesHighest = Math.max(this.bytesHighest, bytes);
    return true;
  }

  /** All that was written is durable. */
  synced(): void {
    if (this.messages > 0 || this.#isFull) this.syncs[this.#cause ?? "other"]++;
    this.ageMsHighest = Math.max(this.ageMsHighest, this.ageMs);
    this.messages = 0;
    this.bytes = 0;
    this.#isFull = false;
    this.#cause = null;
    if (this.#timer === null) return;
    this.stop();
    if (this.#fillingMessages + this.#closedMessages > 0) this.#arm();
  }

  /** Asks for nothing more by itself. */
  stop(): void {
    this.#timer?.cancel();
    this.#timer = null;
  }

  #fill(cause: SyncCause): void {
    this.#isFull = true;
    this.#ask(cause);
  }

  #arm(): void {
    this.#timer = this.#clock.setTimer(this.#limits.intervalMs, () => {
      this.#timer = null;
      this.#ask("time");
    });
  }

  #ask(cause: SyncCause): void {
    // Once asked for, a sync comes.
    if (this.#cause !== null) return;
    this.#cause = cause;
    this.#sync();
  }
}
