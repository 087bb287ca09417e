/**
 * The file in which a scrub notes how far it has come. Nothing depends on it: when it is missing or
 * damaged, the log is read from the start again.
 */
import type { Damage } from "@sluice/shared/log";
import { type Disk, DiskError, readWhole, replaceFile } from "@sluice/shared/runtime";

/** Its name in the data folder. */
export const SCRUB_FILE = "scrub.json";
/** Damaged places that are kept; more are only counted. */
export const SCRUB_DAMAGE_MAX = 100;
const FILE_BYTES_MAX = 262_144;

/** The content. Times are Unix milliseconds. */
export interface ScrubNote {
  /** Where the pass under way goes on; null when there is none. */
  readonly position: number | null;
  readonly started_ms: number | null;
  readonly ended_ms: number | null;
  readonly damage_count: number;
  /** By position. */
  readonly damage: readonly Damage[];
}

/** Reads the note in a data folder; null when there is none that can be used. */
export async function readScrubNote(disk: Disk, folder: string): Promise<ScrubNote | null> {
  try {
    const bytes = await readWhole(disk, `${folder}/${SCRUB_FILE}`, FILE_BYTES_MAX);
    return noteOf(JSON.parse(new TextDecoder().decode(bytes)));
  } catch (error) {
    if (error instanceof DiskError || error instanceof SyntaxError) return null;
    throw error;
  }
}

/** Replaces the note in a data folder. */
export function writeScrubNote(disk: Disk, folder: string, note: ScrubNote): Promise<void> {
  const bytes = new TextEncoder().encode(JSON.stringify(note) + "\n");
  return replaceFile(disk, `${folder}/${SCRUB_FILE}`, bytes);
}

function noteOf(value: unknown): ScrubNote | null {
  if (!isObject(value)) return null;
  const { position, started_ms, ended_ms, damage_count, damage } = value;
  const isGood = isCountOrNull(position) && isCountOrNull(started_ms) && isCountOrNull(ended_ms) &&
    isCount(damage_count) && Array.isArray(damage) && damage.length <= SCRUB_DAMAGE_MAX &&
    damage_count >= damage.length && damage.every(isDamage);
  return isGood ? { position, started_ms, ended_ms, damage_count, damage } : null;
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null;
}

function isDamage(value: unknown): value is Damage {
  return isObject(value) && isCount(value.position) && isCount(value.bytes) &&
    typeof value.reason === "string";
}

function isCount(value: unknown): value is number {
  return typeof value === "number" && Number.isSafeInteger(value) && value >= 0;
}

function isCountOrNull(value: unknown): value is number | null {
  return value === null || isCount(value);
}
