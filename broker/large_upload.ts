/**
 * One body on its way into the log as a large message: cut into parts, which are written as soon as
 * the broker has room for them.
 *
 * - It holds memory for one part, taken from what all publishes share; none when the body is in
 *   memory already.
 * - Whoever feeds it stops when it takes less than it was given, and goes on after `Broker.room`.
 * - The message exists, with its offset and id, once `finish` was true; before that, nothing does.
 * - One that does not complete a part within {@linkcode UPLOAD_PART_MS_MAX}, while there is room, is
 *   stalled: it keeps the log from giving space back. `stalled` is called, and is to abandon it.
 */
import { type Clock, invariant } from "@sluice/shared/runtime";
import type { Topic } from "./queue/mod.ts";
import {
  type Origin,
  PRODUCER_ATTRIBUTE_BYTES,
  type Storage,
  WIRE_HEADER_BYTES,
  WrittenBody,
} from "./storage/mod.ts";

/** How long a peer may take for one part. */
export const UPLOAD_PART_MS_MAX = 60_000;

/** The broker that an upload is to; see there. */
export interface UploadBroker {
  readonly storage: Storage;
  readonly clock: Clock;
  /** Those under way. */
  readonly uploads: Set<LargeUpload>;
  admit(): void;
  stage(bytes: number): boolean;
  unstage(bytes: number): void;
  publishLarge(topic: Topic, body: WrittenBody, dueMs: number, origin: Origin | null): void;
}

/** See the module. */
export class LargeUpload {
  readonly #broker: UploadBroker;
  readonly #body = new WrittenBody();
  readonly #partBytes: number;
  readonly #stalled: () => void;
  #staged: Uint8Array | null;
  #length = 0;
  #ended = false;
  #partSinceMs: number;
  /** It has a part that there was no room for: that time is not the peer's. */
  #isWaiting = false;

  private constructor(broker: UploadBroker, staged: Uint8Array | null, stalled: () => void) {
    this.#broker = broker;
    this.#partBytes = broker.storage.large.partBytes;
    this.#staged = staged;
    this.#stalled = stalled;
    this.#partSinceMs = broker.clock.monoMs();
    broker.uploads.add(this);
  }

  /** Begins one of bytes that are yet to arrive; null when all memory for publishes is in use. */
  static begin(broker: UploadBroker, stalled: () => void): LargeUpload | null {
    const { partBytes } = broker.storage.large;
    if (!broker.stage(partBytes)) return null;
    return new LargeUpload(broker, new Uint8Array(partBytes), stalled);
  }

  /** Begins one of a body that is in memory. */
  static ofMemory(broker: UploadBroker): LargeUpload {
    return new LargeUpload(broker, null, () => {});
  }

  /** Bytes taken so far. */
  get bytes(): number {
    return this.#body.bytes + this.#length;
  }

  /**
   * Takes bytes of `bytes[start, end)`, copied, and returns how many: fewer when there is no room for
   * more. Throws `RefusedError`.
   */
  receive(bytes: Uint8Array, start: number, end: number): number {
    const staged = this.#staged;
    invariant(staged !== null, "what arrives has memory");
    let at = start;
    while (at < end) {
      if (this.#length === staged.length && !this.#flush()) break;
      const count = Math.min(end - at, staged.length - this.#length);
      staged.set(bytes.subarray(at, at + count), this.#length);
      this.#length += count;
      at += count;
    }
    return at - start;
  }

  /** As `receive`, for the whole of a body that stays where it is. */
  store(bytes: Uint8Array, start: number, end: number): number {
    let at = start;
    while (at < end) {
      const count = Math.min(end - at, this.#partBytes);
      if (!this.#write(bytes, at, at + count)) break;
      at += count;
    }
    return at - start;
  }

  /**
   * All bytes are here: makes a message of them, `dueMs` and `origin` as for `Broker.publish`. False when there is
   * no room yet. Throws `RefusedError`.
   */
  finish(topic: Topic, dueMs: number, origin: Origin | null = null): boolean {
    if (!this.#flush()) return false;
    const { storage } = this.#broker;
    const bytes = origin === null
      ? WIRE_HEADER_BYTES
      : WIRE_HEADER_BYTES + PRODUCER_ATTRIBUTE_BYTES;
    if (!storage.hasPartRoom(bytes, this.#body.parts.length)) return false;
    this.#broker.publishLarge(topic, this.#body, dueMs, origin);
    this.#end();
    return true;
  }

  /** Nothing comes of it. Safe to call again, and after `finish`. */
  abandon(): void {
    if (this.#ended) return;
    const { large } = this.#broker.storage;
    large.unpin(this.#body.pin);
    large.counters.abandonedBytes += this.#body.bytes;
    this.#end();
  }

  /** Tells whether it has stalled, by way of `stalled`. */
  check(nowMs: number): void {
    if (!this.#isWaiting && nowMs - this.#partSinceMs >= UPLOAD_PART_MS_MAX) this.#stalled();
  }

  #flush(): boolean {
    if (this.#length === 0) return true;
    if (!this.#write(this.#staged!, 0, this.#length)) return false;
    this.#length = 0;
    return true;
  }

  #write(bytes: Uint8Array, start: number, end: number): boolean {
    const { storage, clock } = this.#broker;
    this.#broker.admit();
    this.#isWaiting = !storage.hasPartRoom(end - start, 1);
    if (this.#isWaiting) return false;
    this.#partSinceMs = clock.monoMs();
    storage.large.write(this.#body, bytes, start, end);
    return true;
  }

  #end(): void {
    this.#ended = true;
    this.#broker.uploads.delete(this);
    if (this.#staged !== null) this.#broker.unstage(this.#partBytes);
    this.#staged = null;
  }
}
