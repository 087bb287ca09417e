/**
 * A byte stream in memory between two ends. Each direction holds a bounded number of bytes, so a
 * writer waits for a reader as it does on a socket. What the peer sent before it closed can still be
 * read, then comes the end; a write to a closed end fails at once (where TCP may take one write more).
 */
import { type Connection, ConnectionError, invariant } from "../runtime/mod.ts";

/** How a {@linkcode connectionPair} is made. */
export interface ConnectionPairOptions {
  /** What each direction holds before its writer waits; 64 KiB by default. */
  readonly bufferBytesMax?: number;
  /** Addresses of the first and the second end. */
  readonly addresses?: readonly [string, string];
  /** Called once for each end that is closed. */
  readonly onClose?: () => void;
}

/** Two connected ends. */
export function connectionPair(
  options: ConnectionPairOptions = {},
): [SimConnection, SimConnection] {
  const bufferBytesMax = options.bufferBytesMax ?? 64 * 1024;
  const [first, second] = options.addresses ?? ["127.0.0.1:40001", "127.0.0.1:40002"];
  const onClose = options.onClose ?? (() => {});
  const there = new Pipe(bufferBytesMax);
  const back = new Pipe(bufferBytesMax);
  return [
    new SimConnection({ incoming: back, outgoing: there, local: first, remote: second, onClose }),
    new SimConnection({ incoming: there, outgoing: back, local: second, remote: first, onClose }),
  ];
}

interface SimConnectionOptions {
  readonly incoming: Pipe;
  readonly outgoing: Pipe;
  readonly local: string;
  readonly remote: string;
  readonly onClose: () => void;
}

/** One end of a pair. */
export class SimConnection implements Connection {
  readonly remoteAddress: string;
  readonly localAddress: string;
  readonly #incoming: Pipe;
  readonly #outgoing: Pipe;
  readonly #onClose: () => void;
  #closed = false;

  constructor(options: SimConnectionOptions) {
    this.#incoming = options.incoming;
    this.#outgoing = options.outgoing;
    this.localAddress = options.local;
    this.remoteAddress = options.remote;
    this.#onClose = options.onClose;
  }

  get closed(): boolean {
    return this.#closed;
  }

  /** Bytes written by this end that the peer has not read. */
  get unreadByPeerBytes(): number {
    return this.#outgoing.heldBytes;
  }

  async read(into: Uint8Array): Promise<number | null> {
    invariant(into.length > 0, "a read has room for at least one byte");
    return await this.#incoming.read(into);
  }

  async writeAll(bytes: Uint8Array): Promise<void> {
    await this.#outgoing.write(bytes);
  }

  closeWrite(): void {
    this.#outgoing.end();
  }

  close(): void {
    this.#shut("the connection is closed", false);
  }

  /** Breaks the connection: both ends fail and what was not read is lost. */
  reset(): void {
    this.#shut("the connection was reset", true);
  }

  #shut(reason: string, loseUnread: boolean): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#incoming.fail(reason, "the peer closed the connection");
    if (loseUnread) this.#outgoing.fail("the connection was reset by the peer", reason);
    else this.#outgoing.endByClose();
    this.#onClose();
  }
}

interface PendingRead {
  readonly into: Uint8Array;
  readonly resolve: (count: number | null) => void;
  readonly reject: (error: ConnectionError) => void;
}

interface PendingWrite {
  readonly bytes: Uint8Array;
  written: number;
  readonly resolve: () => void;
  readonly reject: (error: ConnectionError) => void;
}

/** One direction: a ring of bytes, at most one waiting reader and one waiting writer. */
class Pipe {
  readonly #ring: Uint8Array;
  #start = 0;
  #held = 0;
  #ended = false;
  #readFailure: string | null = null;
  #writeFailure: string | null = null;
  #reader: PendingRead | null = null;
  #writer: PendingWrite | null = null;

  constructor(bytesMax: number) {
    invariant(bytesMax > 0, "a direction holds at least one byte");
    this.#ring = new Uint8Array(bytesMax);
  }

  get heldBytes(): number {
    return this.#held;
  }

  read(into: Uint8Array): Promise<number | null> {
    invariant(this.#reader === null, "one read at a time");
    return new Promise((resolve, reject) => {
      this.#reader = { into, resolve, reject };
      this.#move();
    });
  }

  write(bytes: Uint8Array): Promise<void> {
    invariant(this.#writer === null, "one write at a time");
    return new Promise((resolve, reject) => {
      this.#writer = { bytes, written: 0, resolve, reject };
      this.#move();
    });
  }

  /** The writing end writes no more. */
  end(): void {
    this.#writeFailure ??= "the stream was ended";
    this.#ended = true;
    this.#move();
  }

  /** The writing end is closed: a write of its own that waits is given up. */
  endByClose(): void {
    this.#writeFailure = "the connection is closed";
    this.#ended = true;
    this.#move();
  }

  /** Nothing moves any more: reads and writes fail for these reasons. */
  fail(readReason: string, writeReason: string): void {
    this.#readFailure = readReason;
    this.#writeFailure ??= writeReason;
    this.#held = 0;
    this.#move();
  }

  /** Moves bytes from the waiting writer to the ring and from there to the waiting reader. */
  #move(): void {
    this.#fill();
    this.#serve();
    this.#fill();
  }

  #fill(): void {
    const writer = this.#writer;
    if (writer === null) return;
    if (this.#writeFailure !== null) {
      this.#writer = null;
      return writer.reject(new ConnectionError(`Cannot write: ${this.#writeFailure}`));
    }
    const count = Math.min(writer.bytes.length - writer.written, this.#ring.length - this.#held);
    this.#put(writer.bytes.subarray(writer.written, writer.written + count));
    writer.written += count;
    if (writer.written < writer.bytes.length) return;
    this.#writer = null;
    writer.resolve();
  }

  #serve(): void {
    const reader = this.#reader;
    if (reader === null) return;
    if (this.#readFailure !== null) {
      this.#reader = null;
      return reader.reject(new ConnectionError(`Cannot read: ${this.#readFailure}`));
    }
    if (this.#held === 0 && !this.#ended) return;
    this.#reader = null;
    reader.resolve(this.#held === 0 ? null : this.#take(reader.into));
  }

  #put(bytes: Uint8Array): void {
    const end = (this.#start + this.#held) % this.#ring.length;
    const first = bytes.subarray(0, this.#ring.length - end);
    this.#ring.set(first, end);
    this.#ring.set(bytes.subarray(first.length), 0);
    this.#held += bytes.length;
  }

  #take(into: Uint8Array): number {
    const count = Math.min(into.length, this.#held);
    const first = this.#ring.subarray(
      this.#start,
      Math.min(this.#start + count, this.#ring.length),
    );
    into.set(first);
    into.set(this.#ring.subarray(0, count - first.length), first.length);
    this.#start = (this.#start + count) % this.#ring.length;
    this.#held -= count;
    return count;
  }
}
