/** What a spool is opened with, and what there is to see of it. */
import { recordBytes } from "@sluice/shared/log";
import { type Clock, type Disk, invariant } from "@sluice/shared/runtime";
import type { Logger } from "@sluice/shared/telemetry";
import { PUBLISH_HEADER_BYTES } from "./records.ts";
import type { SpoolRefusalCode } from "./spool_entry.ts";

/** Sizes in bytes, unless their names say another unit. */
export interface SpoolOptions {
  readonly path: string;
  /** What the log may take on disk. Publishes are refused some way below, decisions never. */
  readonly bytesMax: number;
  /** When the oldest entry has waited for longer, publishes are refused, but for pinned ones. */
  readonly ageMsMax: number;
  readonly fileBytes: number;
  /** The largest publish, with its names: decides the size of the ring. */
  readonly recordBytesMax: number;
  /** Entries in hand. Four times as many may be handed out and wait for a broker of theirs. */
  readonly heldMax: number;
  readonly quarantineMax: number;
  /** Pinned entries; 65,536 when absent. */
  readonly pinnedMax?: number;
  /** Topics with a backlog; 65,536 when absent. */
  readonly topicsMax?: number;
  /** What is given back to a disk that is full; 4 MiB when absent. */
  readonly reserveBytes?: number;
}

/** The world of a spool. */
export interface SpoolSeams {
  readonly disk: Disk;
  readonly clock: Clock;
  readonly logger: Logger;
  /** A write or sync failed: nothing is taken any more, and what is on disk shows at the next start. */
  readonly onFailed: (error: Error) => void;
}

/** What there is to see of a spool. Counts but for names that say another unit. */
export interface SpoolFigures {
  /** Entries that are not settled, without those in quarantine; and their bodies. */
  readonly count: number;
  readonly bodyBytes: number;
  /** What the log takes on disk, without zeros ahead of its end. */
  readonly fileBytes: number;
  /** Of those in `count`, to a thousandth of `ageMsMax`; null when there is none. */
  readonly oldestWallMs: number | null;
  readonly pinned: number;
  readonly held: number;
  readonly quarantined: number;
  /** Since the start. */
  readonly settledTotal: number;
  readonly appendedTotal: number;
  readonly refusedTotal: Readonly<Record<SpoolRefusalCode, number>>;
  /** Entries found damaged, since the start. */
  readonly damaged: number;
  /** A publish would be refused for want of space. */
  readonly isFull: boolean;
  readonly failure: Error | null;
}

const RING_BYTES_MIN = 8 * 1024 * 1024;
const RING_RECORDS = 4;
/** The largest `recordBytesMax`: a record with its header takes a quarter of the largest ring. */
export const RECORD_BYTES_LIMIT = 2 ** 28 - 8192;

/** A power of two that takes four of the largest records. */
export function ringBytesFor(recordBytesMax: number): number {
  let bytes = RING_BYTES_MIN;
  while (bytes < RING_RECORDS * recordBytes(recordBytesMax)) bytes *= 2;
  return bytes;
}

/** Settings that make no sense are a mistake of ours. */
export function checkOptions(options: SpoolOptions): void {
  const { bytesMax, ageMsMax, fileBytes, recordBytesMax, heldMax } = options;
  invariant(heldMax >= 1 && ageMsMax >= 1, "a spool may hand out something, of some age");
  invariant(fileBytes >= 4096 && bytesMax >= 2 * fileBytes, "a spool has space for two files");
  invariant(
    recordBytesMax >= PUBLISH_HEADER_BYTES && recordBytesMax <= RECORD_BYTES_LIMIT,
    "four of the largest publishes fit a ring of 1 GiB",
  );
}
