/**
 * What each file of the log takes on disk. That is its length, but for what a compaction has given
 * back: a part at its end that is covered by blocks of nothing and was never written.
 */
import { BLOCK_HEADER_BYTES, type BlockHeader, RECORD_HEADER_BYTES } from "@sluice/shared/log";

/** What a block of nothing takes: its header and that of its one record. */
export const HOLE_BLOCK_BYTES = BLOCK_HEADER_BYTES + RECORD_HEADER_BYTES;

/** Whether a compaction wrote the block: it says that what is behind its start was durable before. */
export function isRewritten({ synced, position }: BlockHeader): boolean {
  return synced > position;
}

/** Adds up the holes of a file from its blocks and records in their order. */
export class HoleMeter {
  #bytes = 0;
  /** Of the last block, if it holds nothing so far. */
  #hole = 0;

  block(header: BlockHeader): void {
    this.#bytes += this.#hole;
    const isHole = isRewritten(header) && header.recordCount === 1;
    this.#hole = isHole ? header.recordsBytes - RECORD_HEADER_BYTES : 0;
  }

  /** A record of the last block that is not a skip. */
  record(): void {
    this.#hole = 0;
  }

  /** The bytes of all holes. */
  finish(): number {
    return this.#bytes + this.#hole;
  }
}

/** The holes of the files that have one, by the start of the file. */
export class FileUsage {
  readonly #holes = new Map<number, number>();
  #holeBytes = 0;

  /** Bytes of the log, between its start and its end, that take no space. */
  get holeBytes(): number {
    return this.#holeBytes;
  }

  /** The bytes of one file that take no space. */
  holeOf(fileStart: number): number {
    return this.#holes.get(fileStart) ?? 0;
  }

  setHole(fileStart: number, bytes: number): void {
    this.#holeBytes += bytes - this.holeOf(fileStart);
    if (bytes === 0) this.#holes.delete(fileStart);
    else this.#holes.set(fileStart, bytes);
  }
}
