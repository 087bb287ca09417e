/**
 * The sidecar of a sealed log file: where each topic's messages are in it. A start reads its
 * directory; the pages with the places of the messages are read when they are needed, each verified
 * alone. A sidecar that is missing, damaged or of another format is made again from its file.
 *
 * ```
 * sidecar   = directory *page                                     ; little endian
 * directory = format:u32 crc:u32 runs:u32 pages:u32 stored:u64 *run *end  ; crc of what is behind it
 * run       = topic:u32 count:u32 first_offset:u64 due_count:u32 messages:u32 bytes:u64
 * end       = u32                    ; where a page ends, from the sidecar's start
 * page      = crc:u32 (*word | *due)                              ; crc of the page behind it
 * word      = varint                 ; 0: missing, else eighths of the distance from the record
 *                                    ; before in the page, for its first from the file's start
 * due       = index:u32 due_ms:u64   ; index of the message in the run
 * ```
 *
 * `stored` is what the log file takes, without its holes; `messages` are those of the run that are
 * there, and `bytes` what their records take.
 *
 * A page has the words of 4096 offsets of one run, a run's last page those that are left. The pages
 * of all runs come in the order of the runs, and after them the pages of due times, in the same way.
 */
import { readU64, RECORD_ALIGN_BYTES, writeU64 } from "@sluice/shared/log";
import { invariant } from "@sluice/shared/runtime";
import { crc32 } from "node:zlib";
import { MISSING_WORD } from "./index_word.ts";
import { IndexRun } from "./topic_index.ts";

const FORMAT = 3;
/** What has to be read to know how long the directory is. */
export const DIRECTORY_HEADER_BYTES = 24;
const RUN_BYTES = 32;
const END_BYTES = 4;
const CRC_BYTES = 4;
const WORD_BYTES_MAX = 5;
const DUE_BYTES = 12;
/** Offsets, or due times, of a page. */
export const PAGE_ENTRIES = 4096;

/** One topic's part of a sidecar. */
export interface SidecarRun {
  readonly topic: number;
  readonly run: IndexRun;
}

/** One topic's part of a directory. */
export interface DirectoryRun {
  readonly topic: number;
  readonly count: number;
  readonly firstOffset: number;
  readonly dueCount: number;
  readonly messages: number;
  readonly bytes: number;
  /** Numbers of its first pages. */
  readonly firstPage: number;
  readonly firstDuePage: number;
}

/** What a sidecar says of itself. */
export interface SidecarDirectory {
  /** What its log file takes, without its holes. */
  readonly storedBytes: number;
  readonly runs: readonly DirectoryRun[];
  /** Where page `n` begins (`bounds[n]`) and ends (`bounds[n + 1]`). */
  readonly bounds: Uint32Array;
}

/**
 * The bytes of a sidecar with these runs; their words and due times are in memory. `storedBytes` is
 * what the log file takes.
 */
export function encodeSidecar(runs: readonly SidecarRun[], storedBytes = 0): Uint8Array {
  let pages = 0;
  let pageBytesMax = 0;
  for (const { run: { count, due } } of runs) {
    pages += pagesOf(count) + pagesOf(due.length / 2);
    pageBytesMax += count * WORD_BYTES_MAX + due.length / 2 * DUE_BYTES;
  }
  const directoryBytes = DIRECTORY_HEADER_BYTES + runs.length * RUN_BYTES + pages * END_BYTES;
  const into = new Uint8Array(directoryBytes + pages * CRC_BYTES + pageBytesMax);
  const view = new DataView(into.buffer);
  view.setUint32(0, FORMAT, true);
  view.setUint32(8, runs.length, true);
  view.setUint32(12, pages, true);
  writeU64(view, 16, storedBytes);
  let at = DIRECTORY_HEADER_BYTES;
  for (const { topic, run } of runs) {
    view.setUint32(at, topic, true);
    view.setUint32(at + 4, run.count, true);
    writeU64(view, at + 8, run.firstOffset);
    view.setUint32(at + 16, run.due.length / 2, true);
    view.setUint32(at + 20, run.messages, true);
    writeU64(view, at + 24, run.bytes);
    at += RUN_BYTES;
  }
  let end = directoryBytes;
  const page = (write: (at: number) => number) => {
    const start = end;
    end = write(start + CRC_BYTES);
    view.setUint32(start, crc32(into.subarray(start + CRC_BYTES, end)), true);
    view.setUint32(at, end, true);
    at += END_BYTES;
  };
  for (const { run: { words, count } } of runs) {
    invariant(words !== null, "a run that is written has its words in memory");
    for (let from = 0; from < count; from += PAGE_ENTRIES) {
      const to = Math.min(from + PAGE_ENTRIES, count);
      page((start) => writeWords(into, start, words, from, to));
    }
  }
  for (const { run: { due } } of runs) {
    for (let from = 0; from < due.length; from += PAGE_ENTRIES * 2) {
      const to = Math.min(from + PAGE_ENTRIES * 2, due.length);
      page((start) => writeDue(view, start, due, from, to));
    }
  }
  view.setUint32(4, crc32(into.subarray(8, directoryBytes)), true);
  return into.subarray(0, end);
}

/** Whether a sidecar is of another format: then it is made again, as if it were not there. */
export function isOtherFormat(bytes: Uint8Array): boolean {
  if (bytes.length < 4) return false;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return view.getUint32(0, true) !== FORMAT;
}

/** The length of the directory that begins with these bytes; null when they are of another format. */
export function directoryBytesOf(header: Uint8Array): number | null {
  if (header.length < DIRECTORY_HEADER_BYTES) return null;
  const view = new DataView(header.buffer, header.byteOffset, header.byteLength);
  if (view.getUint32(0, true) !== FORMAT) return null;
  const [runs, pages] = [view.getUint32(8, true), view.getUint32(12, true)];
  return DIRECTORY_HEADER_BYTES + runs * RUN_BYTES + pages * END_BYTES;
}

/** The directory that `bytes` begins with, or null when it is damaged or not all there. */
export function decodeDirectory(bytes: Uint8Array): SidecarDirectory | null {
  const directoryBytes = directoryBytesOf(bytes);
  if (directoryBytes === null || directoryBytes > bytes.length) return null;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (view.getUint32(4, true) !== crc32(bytes.subarray(8, directoryBytes))) return null;
  const runCount = view.getUint32(8, true);
  const endsAt = DIRECTORY_HEADER_BYTES + runCount * RUN_BYTES;
  let firstDuePage = 0;
  for (let at = DIRECTORY_HEADER_BYTES; at < endsAt; at += RUN_BYTES) {
    firstDuePage += pagesOf(view.getUint32(at + 4, true));
  }
  let firstPage = 0;
  const runs: DirectoryRun[] = [];
  for (let at = DIRECTORY_HEADER_BYTES; at < endsAt; at += RUN_BYTES) {
    const count = view.getUint32(at + 4, true);
    const dueCount = view.getUint32(at + 16, true);
    runs.push({
      topic: view.getUint32(at, true),
      count,
      firstOffset: readU64(view, at + 8),
      dueCount,
      messages: view.getUint32(at + 20, true),
      bytes: readU64(view, at + 24),
      firstPage,
      firstDuePage,
    });
    firstPage += pagesOf(count);
    firstDuePage += pagesOf(dueCount);
  }
  const pages = view.getUint32(12, true);
  if (firstDuePage !== pages) return null;
  const bounds = new Uint32Array(pages + 1);
  bounds[0] = directoryBytes;
  for (let page = 1; page <= pages; page++) {
    bounds[page] = view.getUint32(endsAt + (page - 1) * END_BYTES, true);
    if (bounds[page]! < bounds[page - 1]! + CRC_BYTES) return null;
  }
  return { storedBytes: readU64(view, 16), runs, bounds };
}

/** The `count` words of a page, or null when it is damaged. */
export function decodeWords(page: Uint8Array, count: number): Uint32Array | null {
  if (!isPageWhole(page)) return null;
  const words = new Uint32Array(count);
  let at = CRC_BYTES;
  let word = 0;
  for (let index = 0; index < count; index++) {
    let value = 0;
    let scale = 1;
    let byte;
    do {
      byte = page[at++];
      if (byte === undefined) return null;
      value += (byte & 0x7f) * scale;
      scale *= 128;
    } while (byte >= 0x80);
    if (value !== 0) word += value * RECORD_ALIGN_BYTES;
    words[index] = value === 0 ? MISSING_WORD : word;
  }
  return at === page.length ? words : null;
}

/** The `count` due times of a page as pairs of index and Unix ms, or null when it is damaged. */
export function decodeDue(page: Uint8Array, count: number): Float64Array | null {
  if (!isPageWhole(page) || page.length !== CRC_BYTES + count * DUE_BYTES) return null;
  const view = new DataView(page.buffer, page.byteOffset, page.byteLength);
  const due = new Float64Array(count * 2);
  for (let pair = 0, at = CRC_BYTES; pair < due.length; pair += 2, at += DUE_BYTES) {
    due[pair] = view.getUint32(at, true);
    due[pair + 1] = readU64(view, at + 4);
  }
  return due;
}

/** All runs of a sidecar, in memory, or null when any of its bytes is damaged. */
export function decodeSidecar(bytes: Uint8Array, fileStart: number): SidecarRun[] | null {
  const directory = decodeDirectory(bytes);
  if (directory === null || directory.bounds.at(-1) !== bytes.length) return null;
  const { bounds } = directory;
  const runs: SidecarRun[] = [];
  for (const entry of directory.runs) {
    const { topic, count, firstOffset, dueCount, firstPage, firstDuePage } = entry;
    const words = new Uint32Array(count);
    for (let from = 0, page = firstPage; from < count; from += PAGE_ENTRIES, page++) {
      const part = bytes.subarray(bounds[page], bounds[page + 1]);
      const some = decodeWords(part, Math.min(PAGE_ENTRIES, count - from));
      if (some === null) return null;
      words.set(some, from);
    }
    const due = new Float64Array(dueCount * 2);
    for (let from = 0, page = firstDuePage; from < dueCount; from += PAGE_ENTRIES, page++) {
      const part = bytes.subarray(bounds[page], bounds[page + 1]);
      const some = decodeDue(part, Math.min(PAGE_ENTRIES, dueCount - from));
      if (some === null) return null;
      due.set(some, from * 2);
    }
    const run = new IndexRun(fileStart, firstOffset, words, due);
    run.messages = entry.messages;
    run.bytes = entry.bytes;
    runs.push({ topic, run });
  }
  return runs;
}

/** Pages that so many entries take. */
function pagesOf(entries: number): number {
  return Math.ceil(entries / PAGE_ENTRIES);
}

/** Whether a page, its checksum in front, is as it was written. */
export function isPageWhole(page: Uint8Array): boolean {
  if (page.length < CRC_BYTES) return false;
  const view = new DataView(page.buffer, page.byteOffset, page.byteLength);
  return view.getUint32(0, true) === crc32(page.subarray(CRC_BYTES));
}

function writeWords(
  into: Uint8Array,
  start: number,
  words: Uint32Array,
  from: number,
  to: number,
): number {
  let at = start;
  let before = 0;
  for (let index = from; index < to; index++) {
    const word = words[index]!;
    let value = 0;
    if (word !== MISSING_WORD) {
      value = (word - before) / RECORD_ALIGN_BYTES;
      invariant(value > 0 && Number.isInteger(value), "records follow each other, aligned");
      before = word;
    }
    for (; value >= 0x80; value >>>= 7) into[at++] = value & 0x7f | 0x80;
    into[at++] = value;
  }
  return at;
}

function writeDue(
  view: DataView,
  start: number,
  due: Float64Array,
  from: number,
  to: number,
): number {
  let at = start;
  for (let pair = from; pair < to; pair += 2, at += DUE_BYTES) {
    view.setUint32(at, due[pair]!, true);
    writeU64(view, at + 4, due[pair + 1]!);
  }
  return at;
}
