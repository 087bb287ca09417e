/**
 * Protective eviction, which is opt-in: when publishes have been refused for want of space for longer
 * than a grace period, the oldest log file is given up, so that new messages find room at the price
 * of the oldest ones.
 *
 * - One file at a time: the next one is looked at only when the one before has left the disk and
 *   publishes are still refused.
 * - Before a file is given up, a report of what each channel loses is on disk
 *   (`audit/evicted-<position>.jsonl`), and then the decision itself is in the log. When either cannot
 *   be written, nothing is given up.
 * - A report names what is lost at least: after a crash in an attempt it has the lines of that one too.
 * - It goes by files, whatever is in them: messages in flight, requeued and deferred ones go too.
 *
 * ```
 * {"topic":"orders","channel":"billing","from":12,"to":4096,"messages":4000}
 * ```
 * `from` and `to` are offsets of the topic: the channel does not get what it was owed of `[from, to)`.
 * A line without a channel is what a topic kept for its first one.
 */
import { type Clock, type Disk, DiskError, readWhole, replaceFile } from "@sluice/shared/runtime";
import type { LogFileInfo } from "@sluice/shared/log";
import type { Logger } from "@sluice/shared/telemetry";
import { type Audit, AUDIT_FOLDER, FILES_MAX } from "./audit.ts";
import type { TopicState } from "./storage/mod.ts";

/** Bounds of an {@linkcode Evictor}. */
export interface EvictionOptions {
  /** How long publishes have to have been refused; 0: nothing is ever given up. */
  readonly afterMs: number;
}

/** What an {@linkcode Evictor} works on. */
export interface EvictionWorld {
  readonly disk: Disk;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly dataPath: string;
  readonly topics: () => Iterable<TopicState>;
  /** Oldest first; the last one takes appends and stays. */
  readonly files: () => readonly LogFileInfo[];
  /** Since when publishes are refused for want of space, Unix ms; 0 while they are taken. */
  readonly pressedSinceMs: () => number;
  /** Whether what is written gets to the disk. */
  readonly isWritable: () => boolean;
  /** Gives up what a topic has below an offset. */
  trim(topic: TopicState, to: number): void;
  /** Resolves when all that was decided is on disk; rejects when it never will be. */
  durable(): Promise<void>;
  readonly audit: Pick<Audit, "record">;
}

/** What one channel, or a topic without one, loses. Offsets are of the topic. */
export interface Gap {
  readonly topic: string;
  readonly channel?: string;
  readonly from: number;
  readonly to: number;
  readonly messages: number;
}

interface Trim {
  readonly topic: TopicState;
  readonly to: number;
}

/** More lines than any report has: one for each channel that there may be. */
const REPORT_BYTES_MAX = 2 ** 30;
const REPORT_REGEXP = /^evicted-\d{16}\.jsonl$/;

/** See the module. */
export class Evictor {
  /** Messages given up since the start: a message counts once for each channel that was owed it. */
  messageCount = 0;
  fileCount = 0;
  readonly #world: EvictionWorld;
  readonly #options: EvictionOptions;
  /** Start of the file that was given up last. */
  #evictedStart = -1;
  #isFailing = false;

  constructor(world: EvictionWorld, options: EvictionOptions) {
    this.#world = world;
    this.#options = options;
  }

  /** Looks whether a file has to go, and gives it up. One call at a time. Never rejects. */
  async run(): Promise<void> {
    const [oldest, next] = this.#world.files();
    if (oldest === undefined || next === undefined || !this.#isDue(oldest)) return;
    try {
      await this.#evict(oldest);
      this.#isFailing = false;
    } catch (error) {
      // Once for all the attempts that fail in a row.
      if (!this.#isFailing) {
        this.#world.logger.error("Cannot give up the oldest messages to make room", {
          error: String(error),
        });
      }
      this.#isFailing = true;
    }
  }

  #isDue(oldest: LogFileInfo): boolean {
    const { clock, pressedSinceMs, isWritable } = this.#world;
    const { afterMs } = this.#options;
    const sinceMs = pressedSinceMs();
    return afterMs > 0 && sinceMs > 0 && clock.wallMs() - sinceMs >= afterMs &&
      oldest.start !== this.#evictedStart && isWritable();
  }

  async #evict(file: LogFileInfo): Promise<void> {
    const { disk, dataPath, topics, logger } = this.#world;
    const trims: Trim[] = [];
    for (const topic of topics()) {
      const to = endIn(topic, file);
      if (to > topic.liveFrom) trims.push({ topic, to });
    }
    const folder = `${dataPath}/${AUDIT_FOLDER}`;
    const name = `evicted-${String(file.start).padStart(16, "0")}.jsonl`;
    await disk.makeDirectory(folder);
    let report = await readReport(disk, `${folder}/${name}`);
    let gaps: Gap[];
    // Once more when a channel was made while the report was written, and would lose something too.
    do {
      gaps = gapsOfAll(trims);
      report = merged(report, gaps);
      const text = report.map((gap) => JSON.stringify(gap) + "\n").join("");
      await replaceFile(disk, `${folder}/${name}`, new TextEncoder().encode(text));
    } while (!areNamed(gapsOfAll(trims), gaps));
    // What was deleted while the report was written has nothing to give up any more.
    const live = new Set(topics());
    for (const { topic, to } of trims) if (live.has(topic)) this.#world.trim(topic, to);
    await this.#world.durable();
    this.#evictedStart = file.start;
    const messages = gaps.reduce((sum, gap) => sum + gap.messages, 0);
    this.fileCount++;
    this.messageCount += messages;
    logger.warn("Gave up the oldest messages to make room on the disk", {
      position: file.start,
      topics: trims.length,
      messages,
      report: `${AUDIT_FOLDER}/${name}`,
    });
    const bytes = file.end - file.start;
    this.#world.audit.record({
      event: "evicted",
      position: file.start,
      bytes,
      topics: trims.length,
      messages,
      report: name,
    });
    await this.#removeOldReports(folder);
  }

  /** As many reports are kept as days of the trail. */
  async #removeOldReports(folder: string): Promise<void> {
    const { disk } = this.#world;
    const reports = (await disk.list(folder)).filter((name) => REPORT_REGEXP.test(name)).sort();
    for (const name of reports.slice(0, Math.max(0, reports.length - FILES_MAX))) {
      await disk.remove(`${folder}/${name}`);
    }
  }
}

/**
 * The offset behind the last message that a topic has in a file or before it, parts of it included;
 * 0 when there is none.
 */
function endIn(topic: TopicState, file: LogFileInfo): number {
  let end = 0;
  for (const run of topic.index.runs) {
    if (run.fileStart > file.start) break;
    end = run.endOffset;
  }
  for (const { offset, first } of topic.largePins) {
    if (first < file.end && offset < topic.durableTail) end = Math.max(end, offset + 1);
  }
  return end;
}

function gapsOfAll(trims: readonly Trim[]): Gap[] {
  return trims.flatMap(({ topic, to }) => gapsOf(topic, to));
}

/**
 * The gaps of a report. One from before says what an attempt has given up that a crash ended: the log
 * may have a part of its decisions, so what is not lost once more stays in the report.
 */
function merged(before: readonly Gap[], gaps: readonly Gap[]): Gap[] {
  const names = new Set(gaps.map(nameOf));
  return [...before.filter((gap) => !names.has(nameOf(gap))), ...gaps];
}

/** Whether `named` has all topics and channels that lose something. */
function areNamed(gaps: readonly Gap[], named: readonly Gap[]): boolean {
  const names = new Set(named.map(nameOf));
  return gaps.every((gap) => names.has(nameOf(gap)));
}

function nameOf({ topic, channel = "" }: Gap): string {
  return `${topic} ${channel}`;
}

/** An earlier report of a file; nothing when there is none. */
async function readReport(disk: Disk, path: string): Promise<Gap[]> {
  try {
    const text = new TextDecoder().decode(await readWhole(disk, path, REPORT_BYTES_MAX));
    return text.split("\n").flatMap(parseGap);
  } catch (error) {
    if (error instanceof DiskError && error.kind === "not_found") return [];
    throw error;
  }
}

/** The gap that a line names; none when it is not one, as somebody else may have written it. */
function parseGap(line: string): Gap[] {
  try {
    return [JSON.parse(line) as Gap];
  } catch {
    return [];
  }
}

/** What is lost when a topic's messages below `to` are given up. */
export function gapsOf(topic: TopicState, to: number): Gap[] {
  const gaps: Gap[] = [];
  if (topic.durableChannelCount === 0 && topic.keepFrom < to) {
    gaps.push({ topic: topic.name, from: topic.keepFrom, to, messages: to - topic.keepFrom });
  }
  for (const { name, finished } of topic.channels.values()) {
    const from = finished.floor;
    if (from >= to) continue;
    const messages = to - from - finished.count(from, to);
    gaps.push({ topic: topic.name, channel: name, from, to, messages });
  }
  return gaps;
}
