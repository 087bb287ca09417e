/**
 * The audit trail: what was dropped on purpose or by damage, one JSON line each in
 * `audit/<date>.jsonl` (UTC) of the data folder.
 *
 * ```
 * {"at":"2026-05-01T08:00:00.000Z","event":"topic_emptied","topic":"orders","messages":12}
 * ```
 *
 * - {@linkcode Audit.record} only puts a line in memory: it never waits, throws or fails what it
 *   tells of. Lines are written and synced together, about a second later, and when the broker stops.
 * - So a crash may take the lines of the last second, and a failed write those it was to write: that
 *   is logged once and counted in the next line that is written. A line may also tell of a decision
 *   that a crash took back.
 * - Bounds: {@linkcode WAITING_LINES_MAX} lines wait, {@linkcode LINE_BYTES_MAX} bytes a line,
 *   {@linkcode LINES_MAX} lines a day, {@linkcode FILES_MAX} files, of which the oldest goes. What
 *   does not fit is not recorded; the line `lines_lost` says how many, `day_full` ends a full day.
 */
import {
  type Clock,
  type Disk,
  DiskError,
  type DiskFile,
  type Timer,
} from "@sluice/shared/runtime";
import type { Logger } from "@sluice/shared/telemetry";

/** Where the trail is in a data folder. */
export const AUDIT_FOLDER = "audit";
export const LINES_MAX = 10_000;
export const FILES_MAX = 64;
export const WAITING_LINES_MAX = 1000;
export const LINE_BYTES_MAX = 1024;
/** How long a line may wait for others to be written with. */
export const AUDIT_WRITE_MS = 1000;
/** A text in a line: topic and channel names are shorter. So a line stays below its bound. */
const TEXT_CHARACTERS_MAX = 128;
const READ_BYTES = 65_536;
const NAME_REGEXP = /^\d{4}-\d{2}-\d{2}\.jsonl$/;
const NEWLINE = 10;

/** What is recorded. */
export type AuditEvent =
  /** A place of the log that could not be read when it was opened, or when it was read through. */
  | {
    readonly event: "log_damaged" | "scrub_damaged";
    readonly position: number;
    readonly bytes: number;
    readonly reason: string;
  }
  /** A message that a channel did not get because its record is damaged. */
  | {
    readonly event: "message_damaged";
    readonly topic: string;
    readonly offset: number;
    readonly position: number;
  }
  /** `messages` no channel was given; `owed` is the sum over its channels. */
  | {
    readonly event: "topic_deleted";
    readonly topic: string;
    readonly messages: number;
    readonly channels: number;
    readonly owed: number;
  }
  | { readonly event: "topic_configured"; readonly topic: string; readonly policy: string }
  | { readonly event: "topic_emptied"; readonly topic: string; readonly messages: number }
  /** Given up below the offset `to`, at a topic's limit; a message counts for each channel owed it. */
  | {
    readonly event: "topic_trimmed";
    readonly topic: string;
    readonly to: number;
    readonly messages: number;
  }
  /** The file of `position` was given up for want of space; `report` is beside this trail. */
  | {
    readonly event: "evicted";
    readonly position: number;
    readonly bytes: number;
    readonly topics: number;
    readonly messages: number;
    readonly report: string;
  }
  /** Moved to the end of another topic. */
  | {
    readonly event: "messages_moved";
    readonly topic: string;
    readonly channel: string;
    readonly to: string;
    readonly messages: number;
  }
  /** Finished before it was due, by request. */
  | {
    readonly event: "deferred_cancelled";
    readonly topic: string;
    readonly channel: string;
    readonly id: string;
  }
  | {
    readonly event: "channel_deleted" | "channel_emptied";
    readonly topic: string;
    readonly channel: string;
    readonly messages: number;
  };

/** The file that lines go to now. */
interface Day {
  readonly path: string;
  bytes: number;
  lines: number;
  /** Whether what is there ends in the middle of a line. */
  isTorn: boolean;
}

/** See the module. */
export class Audit {
  readonly #disk: Disk;
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #folder: string;
  #waiting: string[] = [];
  #lost = 0;
  #day: Day | null = null;
  #timer: Timer | null = null;
  #writing: Promise<void> | null = null;
  #isFailing = false;
  #closed = false;

  constructor(
    seams: { readonly disk: Disk; readonly clock: Clock; readonly logger: Logger },
    dataPath: string,
  ) {
    this.#disk = seams.disk;
    this.#clock = seams.clock;
    this.#logger = seams.logger.component("storage");
    this.#folder = `${dataPath}/${AUDIT_FOLDER}`;
  }

  /** Adds a line. Does nothing once closed. */
  record(event: AuditEvent): void {
    if (this.#closed) return;
    if (this.#waiting.length >= WAITING_LINES_MAX) {
      this.#lost++;
      return;
    }
    this.#waiting.push(this.#line(event));
    this.#arm();
  }

  /** Writes what waits. Never rejects. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#timer?.cancel();
    this.#timer = null;
    await this.#writing;
    await this.#write();
  }

  /** Ends as a crash would: nothing more is written but what is under way. Never rejects. */
  async abandon(): Promise<void> {
    this.#waiting = [];
    this.#lost = 0;
    await this.close();
  }

  #line(event: AuditEvent | { readonly event: string; readonly lines?: number }): string {
    const at = new Date(this.#clock.wallMs()).toISOString();
    return JSON.stringify(
      { at, ...event },
      (_key, value: unknown) =>
        typeof value === "string" ? value.slice(0, TEXT_CHARACTERS_MAX) : value,
    ) + "\n";
  }

  #arm(): void {
    if (this.#timer !== null || this.#writing !== null || this.#closed) return;
    this.#timer = this.#clock.setTimer(AUDIT_WRITE_MS, () => {
      this.#timer = null;
      this.#writing = this.#write().finally(() => {
        this.#writing = null;
        if (this.#waiting.length > 0) this.#arm();
      });
    });
  }

  /** Writes all that waits. Never rejects. */
  async #write(): Promise<void> {
    const lines = this.#waiting;
    if (lines.length === 0) return;
    this.#waiting = [];
    const lostBefore = this.#lost;
    this.#lost = 0;
    if (lostBefore > 0) lines.push(this.#line({ event: "lines_lost", lines: lostBefore }));
    try {
      await this.#append(lines);
      this.#isFailing = false;
    } catch (error) {
      // What is there now is read again before the next line.
      this.#day = null;
      this.#lost += lostBefore + lines.length - (lostBefore > 0 ? 1 : 0);
      // Once for all the attempts that fail in a row.
      if (!this.#isFailing) {
        this.#logger.warn("Cannot write the audit trail", { error: String(error) });
      }
      this.#isFailing = true;
    }
  }

  async #append(lines: readonly string[]): Promise<void> {
    const date = new Date(this.#clock.wallMs()).toISOString().slice(0, 10);
    const path = `${this.#folder}/${date}.jsonl`;
    const { file, day } = await this.#open(path, `${date}.jsonl`);
    try {
      if (day.lines >= LINES_MAX) return;
      const room = LINES_MAX - 1 - day.lines;
      const taken = lines.slice(0, Math.max(0, room));
      // The last line of a day is for saying that it is full.
      if (taken.length < lines.length) taken.push(this.#line({ event: "day_full" }));
      const bytes = new TextEncoder().encode((day.isTorn ? "\n" : "") + taken.join(""));
      await file.writeAt(day.bytes, bytes);
      await file.syncData();
      day.bytes += bytes.length;
      day.lines += taken.length;
      day.isTorn = false;
    } finally {
      file.close();
    }
  }

  async #open(path: string, name: string): Promise<{ file: DiskFile; day: Day }> {
    let file: DiskFile;
    try {
      file = await this.#disk.open(path, "write");
    } catch (error) {
      if (!(error instanceof DiskError) || error.kind !== "not_found") throw error;
      file = await this.#create(path, name);
    }
    try {
      if (this.#day?.path !== path) this.#day = await readDay(file, path);
      return { file, day: this.#day };
    } catch (error) {
      file.close();
      throw error;
    }
  }

  async #create(path: string, name: string): Promise<DiskFile> {
    await this.#disk.makeDirectory(this.#folder);
    const names = (await this.#disk.list(this.#folder))
      .filter((other) => NAME_REGEXP.test(other) && other !== name);
    for (const oldest of names.slice(0, Math.max(0, names.length - FILES_MAX + 1))) {
      await this.#disk.remove(`${this.#folder}/${oldest}`);
    }
    this.#day = null;
    const file = await this.#disk.open(path, "create");
    try {
      await this.#disk.syncDirectory(this.#folder);
      return file;
    } catch (error) {
      file.close();
      throw error;
    }
  }
}

/** Finds how much of a day's file is used. */
async function readDay(file: DiskFile, path: string): Promise<Day> {
  const chunk = new Uint8Array(READ_BYTES);
  const day: Day = { path, bytes: 0, lines: 0, isTorn: false };
  while (day.bytes < LINES_MAX * LINE_BYTES_MAX) {
    const read = await file.readAt(day.bytes, chunk);
    if (read === 0) return day;
    for (let at = 0; at < read; at++) if (chunk[at] === NEWLINE) day.lines++;
    day.bytes += read;
    day.isTorn = chunk[read - 1] !== NEWLINE;
  }
  // Larger than anything of ours: left as it is.
  return { ...day, lines: LINES_MAX };
}
