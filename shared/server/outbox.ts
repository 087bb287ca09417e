/**
 * What is on its way to one client. Output gathers in one buffer while the other is being written, so
 * there is one write at a time and a slow peer costs only its own two buffers.
 *
 * - A large buffer goes to those of all connections ({@linkcode OutboxBuffers}) while nothing waits.
 * - Messages are taken while less than `messageBytesMax` wait ({@linkcode Outbox.hasRoom}), so
 *   memory is bounded by twice that and one message.
 * - Replies are always taken; who makes them stops reading from a client that does not read
 *   ({@linkcode Outbox.waitingBytes}).
 * - The body of a large message is asked for piece by piece, each when the one before is written;
 *   frames added meanwhile follow it ({@linkcode Outbox.stream}).
 * - A write has no deadline of its own: the session closes a connection whose write has been pending
 *   for too long ({@linkcode Outbox.pendingSinceMs}).
 */
import { type Clock, type Connection, invariant, InvariantError } from "../runtime/mod.ts";
import { LARGE_BUFFER_BYTES, type OutboxBuffers } from "./outbox_buffers.ts";

const NO_BYTES = new Uint8Array(0);
const BYTES_MIN = 256;
/** A buffer larger than this is not kept while nothing waits. */
const KEEP_BYTES_MAX = 16 * 1024;

/** Called by an {@linkcode Outbox}. */
export interface OutboxListener {
  /** A write has ended and there may be room again. */
  drained(): void;
  /** After `endAfterFlush`: everything is written. */
  finished(): void;
  /** The connection is broken: nothing is written any more. */
  broken(): void;
}

/** A body that is written as it is read. */
export interface BodySource {
  /** The next piece, valid until the next call; null at the end. A rejection breaks the connection. */
  next(): Promise<Uint8Array | null>;
  /** Nothing more is asked for; also called during a `next`, which may then reject. */
  close(): void;
}

/** See the module. */
export class Outbox {
  /** The buffer being filled; `reserve` says where. */
  buffer: Uint8Array = NO_BYTES;
  messageBytesMax: number;
  /** Monotonic ms at which the write under way began, if one is. */
  pendingSinceMs: number | null = null;

  readonly #connection: Connection;
  readonly #clock: Clock;
  readonly #listener: OutboxListener;
  readonly #buffers: OutboxBuffers | null;
  #length = 0;
  #spare: Uint8Array = NO_BYTES;
  #writingBytes = 0;
  /** The body that is next after the first `#sourceAt` bytes, or that is being written. */
  #source: BodySource | null = null;
  #sourceAt = 0;
  #streaming = false;
  #broken = false;
  #ending = false;

  constructor(
    connection: Connection,
    clock: Clock,
    listener: OutboxListener,
    messageBytesMax: number,
    buffers: OutboxBuffers | null = null,
  ) {
    this.#buffers = buffers;
    this.#connection = connection;
    this.#clock = clock;
    this.#listener = listener;
    this.messageBytesMax = messageBytesMax;
  }

  /** Whether a message may be added. */
  get hasRoom(): boolean {
    return this.#length < this.messageBytesMax && this.#source === null && !this.#broken;
  }

  /** Whether the rest of a message is on its way, which nothing can be put in front of. */
  get isStreaming(): boolean {
    return this.#source !== null;
  }

  /** Bytes that the peer has not taken. */
  get waitingBytes(): number {
    return this.#length + this.#writingBytes;
  }

  /** Makes room for `bytes` in `buffer` and returns where they go; they count as written there. */
  reserve(bytes: number): number {
    const offset = this.#length;
    const needed = offset + bytes;
    if (needed > this.buffer.length) this.#grow(offset, needed);
    this.#length = needed;
    return offset;
  }

  #grow(length: number, needed: number): void {
    const before = this.buffer;
    const bytes = Math.max(BYTES_MIN, needed, before.length * 2);
    const isLarge = bytes > KEEP_BYTES_MAX && bytes <= LARGE_BUFFER_BYTES;
    this.buffer = (isLarge ? this.#buffers?.take() : null) ?? new Uint8Array(bytes);
    this.buffer.set(before.subarray(0, length));
    this.#buffers?.give(before);
  }

  /** A buffer for when nothing waits. */
  #kept(buffer: Uint8Array): Uint8Array {
    if (buffer.length <= KEEP_BYTES_MAX) return buffer;
    this.#buffers?.give(buffer);
    return NO_BYTES;
  }

  /** Adds a whole frame. */
  add(frame: Uint8Array): void {
    const offset = this.reserve(frame.length);
    this.buffer.set(frame, offset);
  }

  /** Puts a body behind what was added so far; `hasRoom` was true. */
  stream(source: BodySource): void {
    invariant(this.#source === null, "one body is on its way at a time");
    this.#source = source;
    this.#sourceAt = this.#length;
  }

  /** The connection is gone. */
  close(): void {
    this.#broken = true;
    this.#source?.close();
  }

  /** Starts writing what waits, unless a write is under way: then it goes next. */
  flush(): void {
    if (this.#writingBytes > 0 || this.#streaming || this.#broken) return;
    if (this.#source !== null) {
      void this.#writeBody(this.#source);
      return;
    }
    if (this.#length === 0) {
      if (this.#ending) this.#listener.finished();
      return;
    }
    const writing = this.buffer;
    this.#writingBytes = this.#length;
    this.buffer = this.#spare;
    this.#length = 0;
    this.pendingSinceMs = this.#clock.monoMs();
    this.#connection.writeAll(writing.subarray(0, this.#writingBytes)).then(
      () => {
        this.#writingBytes = 0;
        this.pendingSinceMs = null;
        this.#spare = writing;
        if (this.#length === 0) {
          this.buffer = this.#kept(this.buffer);
          this.#spare = this.#kept(writing);
        }
        // The next write first: it is what makes room.
        this.flush();
        this.#listener.drained();
      },
      () => {
        this.#broken = true;
        this.#writingBytes = 0;
        this.#length = 0;
        this.#listener.broken();
      },
    );
  }

  /** Writes what is before a body, and the body. */
  async #writeBody(source: BodySource): Promise<void> {
    this.#streaming = true;
    const before = this.buffer.subarray(0, this.#sourceAt);
    this.buffer = this.buffer.slice(this.#sourceAt, this.#length);
    this.#length -= this.#sourceAt;
    try {
      await this.#write(before);
      for (let piece = await source.next(); piece !== null; piece = await source.next()) {
        await this.#write(piece);
      }
    } catch (error) {
      source.close();
      this.#broken = true;
      this.#writingBytes = 0;
      this.#length = 0;
      if (error instanceof InvariantError) throw error;
      return this.#listener.broken();
    }
    source.close();
    this.#source = null;
    this.#streaming = false;
    this.flush();
    this.#listener.drained();
  }

  async #write(bytes: Uint8Array): Promise<void> {
    this.#writingBytes = bytes.length;
    this.pendingSinceMs = this.#clock.monoMs();
    await this.#connection.writeAll(bytes);
    this.#writingBytes = 0;
    this.pendingSinceMs = null;
  }

  /** Tells the listener once everything that waits is written. */
  endAfterFlush(): void {
    this.#ending = true;
    this.flush();
  }
}
