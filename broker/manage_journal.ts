/**
 * The file of a data folder that has what management has to know after a restart: answers of operations
 * and tombstones. One entry is one line, its checksum in front:
 *
 * ```
 * 1c291ca3 {"operation":{"id":"...","request":"...","answer":{...}}}
 * 6522df69 {"tombstone":{"topic":"t","channel":null,"until_ms":1700000000000}}
 * ```
 *
 * - Lines are added and synced; an entry is there after a crash once `append` has resolved.
 * - A line whose checksum is wrong is passed over: it was being added when the power went, and nobody was
 *   told that it is there.
 * - The file is bounded: with {@linkcode LINES_MAX} lines it is replaced by one of those entries that
 *   still count. So it is after a failed write, too: nobody knows what stands there.
 */
import { crc32 } from "node:zlib";
import {
  type Disk,
  DiskError,
  type DiskFile,
  readWhole,
  replaceFile,
  Serial,
} from "@sluice/shared/runtime";
import type { Tombstone } from "./tombstones.ts";

/** Where it is in a data folder. */
export const MANAGEMENT_FILE = "management.jsonl";
/** Lines before the file is written anew: more than twice what may count. */
export const LINES_MAX = 32_768;
/** More than so many lines of the longest names may take. */
const FILE_BYTES_MAX = 64 * 1024 * 1024;

/** What was answered to an operation. */
export interface OperationAnswer {
  readonly instance: string;
  readonly revision: number;
  readonly changed: boolean;
}

/** An operation that was carried out; `request` is a digest of what was asked for. */
export interface DoneOperation {
  readonly id: string;
  readonly request: string;
  readonly answer: OperationAnswer;
}

/** What a line has. */
export type ManagementEntry =
  | { readonly operation: DoneOperation }
  | { readonly tombstone: Tombstone };

/** See the module. */
export class ManagementJournal {
  readonly #disk: Disk;
  readonly #path: string;
  readonly #current: () => Iterable<ManagementEntry>;
  readonly #serial = new Serial();
  #bytes: number;
  #lines: number;
  #isUnknown: boolean;

  private constructor(
    disk: Disk,
    path: string,
    current: () => Iterable<ManagementEntry>,
    { bytes, lines, isWhole }: ReadLines,
  ) {
    this.#disk = disk;
    this.#path = path;
    this.#current = current;
    this.#bytes = bytes;
    this.#lines = lines;
    this.#isUnknown = !isWhole;
  }

  /**
   * Reads what is there, in order. `current` tells what counts when the file is written anew, with all
   * that was appended so far. Rejects with `DiskError`.
   */
  static async open(
    disk: Disk,
    dataPath: string,
    current: () => Iterable<ManagementEntry>,
  ): Promise<{ journal: ManagementJournal; entries: ManagementEntry[] }> {
    const path = `${dataPath}/${MANAGEMENT_FILE}`;
    const read = await readLines(disk, path);
    return { journal: new ManagementJournal(disk, path, current, read), entries: read.entries };
  }

  /** Resolves when the entries are on disk. Rejects with `DiskError`. */
  append(entries: readonly ManagementEntry[]): Promise<void> {
    return this.#serial.run(() => this.#append(entries));
  }

  /** Resolves when nothing is being written any more. */
  settled(): Promise<void> {
    return this.#serial.run(() => Promise.resolve());
  }

  async #append(entries: readonly ManagementEntry[]): Promise<void> {
    if (this.#isUnknown || this.#lines + entries.length > LINES_MAX) return await this.#rewrite();
    const bytes = encode(entries);
    this.#isUnknown = true;
    const file = await this.#open();
    try {
      await file.writeAt(this.#bytes, bytes);
      await file.syncData();
    } finally {
      file.close();
    }
    this.#isUnknown = false;
    this.#bytes += bytes.length;
    this.#lines += entries.length;
  }

  async #open(): Promise<DiskFile> {
    try {
      return await this.#disk.open(this.#path, "write");
    } catch (error) {
      if (!(error instanceof DiskError) || error.kind !== "not_found") throw error;
    }
    const file = await this.#disk.open(this.#path, "create");
    try {
      await this.#disk.syncDirectory(this.#path.slice(0, this.#path.lastIndexOf("/")));
      return file;
    } catch (error) {
      file.close();
      throw error;
    }
  }

  async #rewrite(): Promise<void> {
    const entries = [...this.#current()];
    const bytes = encode(entries);
    this.#isUnknown = true;
    await replaceFile(this.#disk, this.#path, bytes);
    this.#isUnknown = false;
    this.#bytes = bytes.length;
    this.#lines = entries.length;
  }
}

interface ReadLines {
  readonly entries: ManagementEntry[];
  readonly bytes: number;
  readonly lines: number;
  /** Whether every byte belongs to a good line. */
  readonly isWhole: boolean;
}

async function readLines(disk: Disk, path: string): Promise<ReadLines> {
  let content: Uint8Array;
  try {
    content = await readWhole(disk, path, FILE_BYTES_MAX);
  } catch (error) {
    if (!(error instanceof DiskError) || error.kind !== "not_found") throw error;
    return { entries: [], bytes: 0, lines: 0, isWhole: true };
  }
  // What is no UTF-8 fails its checksum.
  const lines = new TextDecoder().decode(content).split("\n");
  const last = lines.pop();
  const entries: ManagementEntry[] = [];
  let isWhole = last === "";
  for (const line of lines) {
    const entry = decode(line);
    if (entry === null) isWhole = false;
    else entries.push(entry);
  }
  return { entries, bytes: content.length, lines: lines.length, isWhole };
}

function encode(entries: readonly ManagementEntry[]): Uint8Array {
  const lines = entries.map((entry) => {
    const text = JSON.stringify(document(entry));
    return `${checksum(text)} ${text}\n`;
  });
  return new TextEncoder().encode(lines.join(""));
}

function document(entry: ManagementEntry): unknown {
  if ("operation" in entry) return entry;
  const { topic, channel, untilMs } = entry.tombstone;
  return { tombstone: { topic, channel, until_ms: untilMs } };
}

/** The entry of a line; null when it is not whole. */
function decode(line: string): ManagementEntry | null {
  const text = line.slice(9);
  if (line.slice(0, 9) !== `${checksum(text)} `) return null;
  const { operation, tombstone } = JSON.parse(text) as {
    readonly operation?: DoneOperation;
    readonly tombstone?: {
      readonly topic: string;
      readonly channel: string | null;
      readonly until_ms: number;
    };
  };
  if (operation !== undefined) return { operation };
  // What a newer release has added means nothing here.
  if (tombstone === undefined) return null;
  const { topic, channel, until_ms: untilMs } = tombstone;
  return { tombstone: { topic, channel, untilMs } };
}

function checksum(text: string): string {
  return crc32(text).toString(16).padStart(8, "0");
}
