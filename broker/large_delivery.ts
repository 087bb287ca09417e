/**
 * Reads the body of a large message part by part, for one consumer.
 *
 * - One part is in memory at a time, of a budget that all deliveries share; who finds it used up
 *   waits in line.
 * - No byte is given that was not verified: each part against the checksum in the message's table.
 * - From the first to the last part the log is kept, whoever finishes the message meanwhile.
 */
import { RECORD_HEADER_BYTES } from "@sluice/shared/log";
import { invariant } from "@sluice/shared/runtime";
import { type BodyPart, isPart, type LargeBody, type LogPin, type Storage } from "./storage/mod.ts";

/** A part is not what was written. */
export class DamagedBodyError extends Error {
  override name = "DamagedBodyError";
}

/** Memory that is given out in the order in which it was asked for. */
export class DeliveryMemory {
  readonly bytesMax: number;
  /** Times that somebody had to wait in line. */
  waitCount = 0;
  readonly #waiting: { readonly bytes: number; readonly grant: () => void }[] = [];
  #usedBytes = 0;

  constructor(bytesMax: number) {
    this.bytesMax = bytesMax;
  }

  get usedBytes(): number {
    return this.#usedBytes;
  }

  /** Resolves with the bytes taken, which are to be given back: `bytes`, or all that there are. */
  take(bytes: number): Promise<number> {
    const taken = Math.min(bytes, this.bytesMax);
    if (this.#waiting.length === 0 && this.#usedBytes + taken <= this.bytesMax) {
      this.#usedBytes += taken;
      return Promise.resolve(taken);
    }
    this.waitCount++;
    return new Promise((resolve) =>
      this.#waiting.push({ bytes: taken, grant: () => resolve(taken) })
    );
  }

  give(bytes: number): void {
    this.#usedBytes -= bytes;
    invariant(this.#usedBytes >= 0, "what is given back was taken");
    while (true) {
      const next = this.#waiting[0];
      if (next === undefined || this.#usedBytes + next.bytes > this.bytesMax) return;
      this.#waiting.shift();
      this.#usedBytes += next.bytes;
      next.grant();
    }
  }
}

/** See the module. One `next` at a time. */
export class BodyReader {
  readonly #storage: Storage;
  readonly #memory: DeliveryMemory;
  readonly #body: LargeBody;
  readonly #pin: LogPin;
  #buffer: Uint8Array | null = null;
  #takenBytes = 0;
  #next = 0;
  #isReading = false;
  #isClosed = false;

  constructor(storage: Storage, memory: DeliveryMemory, body: LargeBody) {
    this.#storage = storage;
    this.#memory = memory;
    this.#body = body;
    this.#pin = storage.large.pin(body.parts[0]!.position);
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  /**
   * The next part, valid until the next call, or null at the end. Rejects with
   * {@linkcode DamagedBodyError}, or as the disk does, or when it is closed.
   */
  async next(): Promise<Uint8Array | null> {
    this.#isReading = true;
    try {
      return await this.#read();
    } finally {
      this.#isReading = false;
      if (this.#isClosed) this.#release();
    }
  }

  /** Nothing more is asked for. Safe to call again. */
  close(): void {
    this.#isClosed = true;
    if (!this.#isReading) this.#release();
  }

  async #read(): Promise<Uint8Array | null> {
    const part = this.#body.parts[this.#next];
    if (part === undefined) return null;
    if (this.#buffer === null) {
      const partBytesMax = this.#body.parts.reduce((most, { bytes }) => Math.max(most, bytes), 0);
      this.#takenBytes = await this.#memory.take(partBytesMax);
      this.#throwIfClosed();
      this.#buffer = new Uint8Array(partBytesMax);
    }
    const into = this.#buffer.subarray(0, part.bytes);
    const isThere = await readPart(this.#storage, part, into);
    this.#throwIfClosed();
    if (!isThere || !isPart(part, into)) {
      throw new DamagedBodyError(`The part at position ${part.position} is damaged`);
    }
    this.#next++;
    return into;
  }

  #throwIfClosed(): void {
    if (this.#isClosed) throw new Error("the delivery has ended");
  }

  #release(): void {
    this.#storage.large.unpin(this.#pin);
    this.#memory.give(this.#takenBytes);
    this.#takenBytes = 0;
    this.#buffer = null;
  }
}

/** False when the log has fewer bytes. */
async function readPart(
  { log, blocks }: Storage,
  { position }: BodyPart,
  into: Uint8Array,
): Promise<boolean> {
  const from = position + RECORD_HEADER_BYTES;
  if (position >= log.hotStart) {
    const index = from & log.mask;
    into.set(log.ring.subarray(index, index + into.length));
    return true;
  }
  for (let filled = 0; filled < into.length;) {
    const read = await blocks.read(from + filled, into.subarray(filled));
    if (read === 0) return false;
    filled += read;
  }
  return true;
}
