/**
 * The bytes of one simulated file: what its readers see, and what a power cut would leave.
 *
 * - Each change (write or truncate) is pending until a sync that began after it was heard of.
 * - A power cut keeps or loses each 512-byte sector of each pending write by itself. Two writes to
 *   the same sector keep their order, because the page cache holds one version of it: what survives
 *   is the state after some number of them, from none to all.
 * - The size is a piece of metadata of its own: it survives up to some pending change, with zeros
 *   where the size came through and the data did not.
 * - A truncate that survives has emptied its range; one that is lost takes all later changes of that
 *   range with it.
 * - With torn sectors on, the last surviving sector of a write may hold garbage instead, within the
 *   range of that write.
 */
import { GrowingBytes } from "./growing_bytes.ts";
import type { SeededRandom } from "./seeded_random.ts";

/** What a disk writes whole or not at all. */
export const SECTOR_BYTES = 512;

/** How likely one sector survives, drawn once a file and power cut: the extremes find most faults. */
const KEEP_CHANCES: readonly number[] = [0, 0.1, 0.5, 0.9, 1];

type Change =
  | {
    readonly kind: "write";
    readonly sequence: number;
    readonly position: number;
    readonly bytes: Uint8Array;
  }
  | { readonly kind: "truncate"; readonly sequence: number; readonly size: number };

export class SimFileData {
  /** Open handles; the file's space is free once it has neither a name nor a handle. */
  handles = 0;
  readonly #visible = new GrowingBytes();
  readonly #durable = new GrowingBytes();
  #pending: Change[] = [];
  #sequence = 0;
  #heard = 0;

  get size(): number {
    return this.#visible.size;
  }

  /** The newest change whose caller has heard of it: what a sync that starts now must cover. */
  get heard(): number {
    return this.#heard;
  }

  /** The content as readers see it, valid until the next change. */
  view(): Uint8Array {
    return this.#visible.view();
  }

  read(position: number, into: Uint8Array): number {
    return this.#visible.read(position, into);
  }

  /** Applies a write and returns its sequence number, for {@linkcode hear}. */
  write(position: number, bytes: Uint8Array): number {
    // A write of nothing changes nothing, not even the size.
    if (bytes.length === 0) return 0;
    this.#visible.write(position, bytes);
    const sequence = ++this.#sequence;
    this.#pending.push({ kind: "write", sequence, position, bytes: bytes.slice() });
    return sequence;
  }

  truncate(size: number): number {
    this.#visible.resize(size);
    const sequence = ++this.#sequence;
    this.#pending.push({ kind: "truncate", sequence, size });
    return sequence;
  }

  hear(sequence: number): void {
    this.#heard = Math.max(this.#heard, sequence);
  }

  /** A sync that had to cover the changes up to `sequence` has succeeded. */
  makeDurable(sequence: number): void {
    let count = 0;
    for (const change of this.#pending) {
      if (change.sequence > sequence) break;
      if (change.kind === "write") this.#durable.write(change.position, change.bytes);
      else this.#durable.resize(change.size);
      count++;
    }
    this.#pending.splice(0, count);
  }

  /** Decides for each pending change what of it reached the disk; nothing is pending afterwards. */
  settlePending(random: SeededRandom, tornSectorChance: number): void {
    if (this.#pending.length === 0) return;
    const survivors = new Survivors(this.#durable, random, tornSectorChance);
    for (const change of this.#pending) {
      if (change.kind === "write") survivors.write(change.position, change.bytes);
      else survivors.truncate(change.size);
    }
    this.#pending = [];
    // Drops what was placed beyond the size that survived.
    this.#durable.resize(this.#durable.size);
  }

  /** Forgets what the disk does not hold; call it once nothing is pending. */
  restart(): void {
    this.#visible.copyFrom(this.#durable);
    this.handles = 0;
  }

  /** Replaces the content, durable at once. */
  replace(bytes: Uint8Array): void {
    this.#pending = [];
    this.#durable.resize(0);
    this.#durable.write(0, bytes);
    this.#visible.copyFrom(this.#durable);
  }

  /** Damages one bit on the disk and in the view of the readers. */
  flipBit(position: number, bit: number): void {
    this.#visible.flipBit(position, bit);
    this.#durable.flipBit(position, bit);
  }
}

/** One power cut's choices for one file. */
class Survivors {
  readonly #durable: GrowingBytes;
  readonly #random: SeededRandom;
  readonly #keepChance: number;
  readonly #tornSectorChance: number;
  /** Sectors of which a write was lost: no later write to them survives either. */
  readonly #stopped = new Set<number>();
  /** Every sector from here on was to be emptied by a truncate that is lost. */
  #stoppedFrom = Infinity;
  #sizeStopped = false;

  constructor(durable: GrowingBytes, random: SeededRandom, tornSectorChance: number) {
    this.#durable = durable;
    this.#random = random;
    this.#keepChance = random.pick(KEEP_CHANCES);
    this.#tornSectorChance = tornSectorChance;
  }

  write(position: number, bytes: Uint8Array): void {
    const end = position + bytes.length;
    if (end > this.#durable.size && this.#sizeSurvives()) this.#durable.resize(end);
    let lastKept = -1;
    for (let sector = sectorOf(position); sector * SECTOR_BYTES < end; sector++) {
      if (!this.#sectorSurvives(sector)) continue;
      const from = Math.max(position, sector * SECTOR_BYTES);
      const to = Math.min(end, (sector + 1) * SECTOR_BYTES);
      this.#durable.put(from, bytes.subarray(from - position, to - position));
      lastKept = sector;
    }
    if (lastKept < 0 || !this.#random.chance(this.#tornSectorChance)) return;
    const from = Math.max(position, lastKept * SECTOR_BYTES);
    const to = Math.min(end, (lastKept + 1) * SECTOR_BYTES);
    this.#durable.put(from, this.#random.bytes(to - from));
    this.#stopped.add(lastKept);
  }

  truncate(size: number): void {
    if (this.#sizeSurvives()) this.#durable.resize(size);
    else this.#stoppedFrom = Math.min(this.#stoppedFrom, sectorOf(size));
  }

  #sizeSurvives(): boolean {
    if (!this.#sizeStopped) this.#sizeStopped = !this.#random.chance(this.#keepChance);
    return !this.#sizeStopped;
  }

  #sectorSurvives(sector: number): boolean {
    if (sector >= this.#stoppedFrom || this.#stopped.has(sector)) return false;
    if (this.#random.chance(this.#keepChance)) return true;
    this.#stopped.add(sector);
    return false;
  }
}

function sectorOf(position: number): number {
  return Math.floor(position / SECTOR_BYTES);
}
