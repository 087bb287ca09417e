/**
 * What reading a whole data folder comes to.
 *
 * **Damage** is what cost something, or what would stop a broker or mislead it. A **note** is what a
 * broker mends by itself at its next start, or what is worth knowing.
 */
import { type LogGap, logPath, type RecoveredState } from "@sluice/broker/storage/format";
import type { Damage, LogFileInfo } from "@sluice/shared/log";

/** Something that was found. */
export interface Finding {
  readonly severity: "damage" | "note";
  /** Relative to the folder. */
  readonly file: string;
  readonly text: string;
  /** Where in the log, and how many bytes, if it is about bytes of it. */
  readonly position?: number;
  readonly bytes?: number;
}

/** One log file, read. */
export interface FileReport {
  readonly info: LogFileInfo;
  readonly last: boolean;
  /** Where its log ends; behind that are zeros or torn bytes. */
  readonly end: number;
  /** Behind the last block that can be read, at least in part. */
  readonly blocksEnd: number;
  readonly tornBytes: number;
  readonly blocks: number;
  readonly records: number;
  readonly messages: number;
  /** Bad bytes and records, ascending, without overlaps. */
  readonly damage: readonly Damage[];
  readonly sidecar: "good" | "missing" | "damaged" | "none";
  /** Of its newest block, or of the one before it in the log. */
  readonly epoch: number;
}

/** One checkpoint, read. */
export interface CheckpointReport {
  readonly position: number;
  /** The log was on disk up to here once; the position if the checkpoint is damaged. */
  readonly end: number;
  readonly problem: string | null;
}

/** Offsets of a topic, `[from, to)`, that were given out and of which no message is left. */
export interface LostMessages {
  readonly topic: number;
  readonly from: number;
  readonly to: number;
}

/** What reading a whole folder found. */
export interface Examination {
  readonly files: readonly FileReport[];
  /** Newest first. */
  readonly checkpoints: readonly CheckpointReport[];
  /** Missing bytes: between files, before the first one, behind the last one. */
  readonly gaps: readonly LogGap[];
  /** Null when it cannot be rebuilt as things are. */
  readonly state: RecoveredState | null;
  /** Whether nothing at all leads to the state: repair cannot help. */
  readonly isStateLost: boolean;
  readonly lost: readonly LostMessages[];
  /** By number; of the newest checkpoint when there is no state. */
  readonly topicNames: ReadonlyMap<number, string>;
  /** The highest epoch of any block; 0 without one. */
  readonly epochMax: number;
  /** Above the sequence of any message, as far as it can be read. */
  readonly sequenceNext: number;
  /** The nodes in the ids of messages. */
  readonly nodeIds: readonly number[];
  readonly metaIsBad: boolean;
  readonly findings: readonly Finding[];
}

/** Gathers findings. */
export class Findings {
  readonly list: Finding[] = [];

  damage(file: string, text: string, place: Place = {}): void {
    this.list.push({ severity: "damage", file, text, ...place });
  }

  note(file: string, text: string, place: Place = {}): void {
    this.list.push({ severity: "note", file, text, ...place });
  }
}

type Place = Pick<Finding, "position" | "bytes">;

/** Whether something is wrong that a broker would not mend by itself. */
export function hasDamage({ findings }: { readonly findings: readonly Finding[] }): boolean {
  return findings.some(({ severity }) => severity === "damage");
}

/** A topic for people: its name, or its number when the name is not known. */
export function nameOf(
  { topicNames }: { readonly topicNames: ReadonlyMap<number, string> },
  topic: number,
): string {
  return topicNames.get(topic) ?? `number ${topic}`;
}

/** `journal/0000000000004096.log`. */
export function nameIn(kind: "log" | "idx" | "ckp", position: number): string {
  return logPath("journal", position, kind);
}
