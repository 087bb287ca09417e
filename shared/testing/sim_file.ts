/** An open file of a simulated disk. */
import { DiskError, type DiskFile, invariant, Serial } from "../runtime/mod.ts";
import type { SeededRandom } from "./seeded_random.ts";
import type { SimDiskPower, SimOperation } from "./sim_disk_power.ts";
import type { SimFileData } from "./sim_file_data.ts";

/** What an open file needs of its disk. */
export interface SimFileHost {
  readonly power: SimDiskPower;
  readonly random: SeededRandom;
  /** Bytes the disk can still take. */
  freeBytes(): number;
  /** A handle was closed. */
  closed(data: SimFileData): void;
}

/** Which file was opened, and how. */
export interface SimFileOptions {
  readonly path: string;
  readonly data: SimFileData;
  readonly writable: boolean;
  /** The life of the disk in which it was opened. */
  readonly life: number;
}

export class SimFile implements DiskFile {
  readonly #host: SimFileHost;
  readonly #path: string;
  readonly #data: SimFileData;
  readonly #writable: boolean;
  readonly #life: number;
  readonly #serial = new Serial();
  #closed = false;

  constructor(host: SimFileHost, options: SimFileOptions) {
    this.#host = host;
    this.#path = options.path;
    this.#data = options.data;
    this.#writable = options.writable;
    this.#life = options.life;
  }

  async writeAt(position: number, bytes: Uint8Array): Promise<void> {
    const sequence = await this.#run({
      operation: "write",
      path: this.#path,
      detail: `${position}+${bytes.length}`,
      effect: () => {
        requirePosition(position);
        this.#requireWritable("write");
        // A full disk takes what still fits, and says so only then.
        const room = this.#data.size + Math.max(0, this.#host.freeBytes());
        const length = Math.max(0, Math.min(bytes.length, room - position));
        const sequence = this.#data.write(position, bytes.subarray(0, length));
        if (length < bytes.length) throw this.#error("no_space", "write", "the disk is full");
        return sequence;
      },
      failedEffect: () => {
        this.#data.write(
          position,
          bytes.subarray(0, this.#host.random.below(bytes.length + 1)),
        );
      },
    });
    this.#data.hear(sequence);
  }

  readAt(position: number, into: Uint8Array): Promise<number> {
    return this.#run({
      operation: "read",
      path: this.#path,
      detail: `${position}+${into.length}`,
      effect: () => {
        requirePosition(position);
        return this.#data.read(position, into);
      },
    });
  }

  /** Runs beside the other operations: it covers what was heard of before the call, no more. */
  async syncData(): Promise<void> {
    const covered = this.#data.heard;
    await this.#perform({
      operation: "sync",
      path: this.#path,
      effect: () => this.#data.makeDurable(covered),
      // The kernel marks pages clean whether or not they reached the disk.
      failedEffect: () => this.#data.settlePending(this.#host.random, 0),
    });
  }

  async truncate(bytes: number): Promise<void> {
    const sequence = await this.#run({
      operation: "truncate",
      path: this.#path,
      detail: String(bytes),
      effect: () => {
        requirePosition(bytes);
        this.#requireWritable("truncate");
        if (bytes - this.#data.size > this.#host.freeBytes()) {
          throw this.#error("no_space", "truncate", "the disk is full");
        }
        return this.#data.truncate(bytes);
      },
    });
    this.#data.hear(sequence);
  }

  size(): Promise<number> {
    return this.#run({
      operation: "size",
      path: this.#path,
      effect: () => this.#data.size,
    });
  }

  close(): void {
    if (this.#closed || this.#life !== this.#host.power.life) return;
    this.#closed = true;
    this.#host.closed(this.#data);
  }

  #run<T>(call: SimOperation<T>): Promise<T> {
    return this.#host.power.delays
      ? this.#serial.run(() => this.#perform(call))
      : this.#perform(call);
  }

  async #perform<T>(call: SimOperation<T>): Promise<T> {
    this.#requireOpen(call.operation);
    try {
      return await this.#host.power.perform({
        ...call,
        effect: () => {
          this.#requireOpen(call.operation);
          return call.effect();
        },
      });
    } catch (error) {
      // After a crash the reason is that the handle is of an earlier life.
      this.#requireOpen(call.operation);
      throw error;
    }
  }

  #requireOpen(action: string): void {
    if (!this.#closed && this.#life === this.#host.power.life) return;
    throw this.#error("closed", action, "it is closed");
  }

  #requireWritable(action: string): void {
    if (!this.#writable) throw this.#error("io", action, "it is open for reading");
  }

  #error(kind: "closed" | "io" | "no_space", action: string, detail: string): DiskError {
    return new DiskError(kind, `Cannot ${action} "${this.#path}": ${detail}`);
  }
}

function requirePosition(position: number): void {
  invariant(Number.isSafeInteger(position) && position >= 0, "a position is a natural number");
}
