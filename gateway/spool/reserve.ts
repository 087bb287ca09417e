/**
 * A file of zeros that is given back to a disk that is full. A spool can only get smaller by writing
 * down what has gone to brokers, so without some space of its own a full disk would stay full.
 *
 * While it is given back no publish is taken; it is made again once the disk has room for it twice.
 */
import { type Disk, DiskError } from "@sluice/shared/runtime";

const ZEROS_BYTES = 1024 * 1024;

/** See the module. One call at a time. */
export class SpoolReserve {
  readonly #disk: Disk;
  readonly #directory: string;
  readonly #path: string;
  readonly #bytes: number;
  #isWhole = false;

  constructor(disk: Disk, directory: string, bytes: number) {
    this.#disk = disk;
    this.#directory = directory;
    this.#path = `${directory}/RESERVE`;
    this.#bytes = bytes;
  }

  /** The space is there. */
  get isWhole(): boolean {
    return this.#isWhole;
  }

  /** Makes it whole where the disk has the room; rejects for any other reason. */
  async fill(): Promise<void> {
    if (this.#isWhole) return;
    const size = await this.#size();
    if (size < this.#bytes) {
      const { freeBytes } = await this.#disk.space(this.#directory);
      if (freeBytes < 2 * this.#bytes) return;
      try {
        await this.#write(size);
      } catch (error) {
        if (!(error instanceof DiskError) || error.kind !== "no_space") throw error;
        await this.release();
        return;
      }
    }
    this.#isWhole = true;
  }

  /** Gives the space back; returns whether there was any. Never rejects: a full disk is trouble enough. */
  async release(): Promise<boolean> {
    this.#isWhole = false;
    try {
      if (await this.#size() === 0) return false;
      const file = await this.#disk.open(this.#path, "write");
      try {
        await file.truncate(0);
      } finally {
        file.close();
      }
      return true;
    } catch {
      return false;
    }
  }

  async #size(): Promise<number> {
    try {
      const file = await this.#disk.open(this.#path, "read");
      try {
        return await file.size();
      } finally {
        file.close();
      }
    } catch (error) {
      if (error instanceof DiskError && error.kind === "not_found") return 0;
      throw error;
    }
  }

  async #write(size: number): Promise<void> {
    const file = await this.#open();
    try {
      const zeros = new Uint8Array(Math.min(ZEROS_BYTES, this.#bytes));
      for (let at = size; at < this.#bytes; at += zeros.length) {
        await file.writeAt(at, zeros.subarray(0, this.#bytes - at));
      }
      // Only now some file systems say that there is no space.
      await file.syncData();
    } finally {
      file.close();
    }
  }

  async #open() {
    try {
      return await this.#disk.open(this.#path, "write");
    } catch (error) {
      if (!(error instanceof DiskError) || error.kind !== "not_found") throw error;
      return await this.#disk.open(this.#path, "create");
    }
  }
}
