/**
 * How a log is read back after a stop of any kind. At each place where a block should start, what is
 * observed is looked up in one table; nothing is decided anywhere else.
 *
 * Why the table is right: each block says up to where the log was synced when it was written. So a bad
 * place that nothing vouches for was written after the last sync, and nobody was told that it is on
 * disk: cut it off, and with it what was written behind it, so that what is kept is a beginning of the
 * log. A bad place below a later block's mark, below what the caller knows to be synced (a checkpoint's
 * position), or in a file that has a successor, was synced once: it is damage, whatever is still good
 * around it is served, and the log goes on. A block of an epoch to come means that the small files
 * beside the log are not its own.
 */
import { crc32 } from "node:zlib";
import { type DiskFile, invariant } from "../runtime/mod.ts";
import { BLOCK_HEADER_BYTES, BLOCK_MAGIC, readBlockHeader, walkRecords } from "./block.ts";
import type { BlockHeader } from "./block.ts";
import { type Damage, LogError, type LogFileInfo, type RecoveryVisitor } from "./log_store.ts";

/** What stands at a place where a block should start. */
export type Found =
  | "end" // exactly the end of the file's bytes
  | "short" // fewer bytes than a header needs
  | "zero" // a header's length of zeros
  | "bad_header" // checksum or magic wrong
  | "foreign_block" // a whole header that belongs elsewhere: other position, or an earlier epoch
  | "future_block" // a whole header of this place whose epoch has not begun yet
  | "cut_block" // a good header whose records reach past the end of the file's bytes
  | "bad_records" // a good header whose records' checksum is wrong
  | "newer_format"
  | "good_block";

/** What recovery does about it. */
export type Decision = "keep" | "stop" | "truncate" | "quarantine" | "refuse";

interface Row {
  readonly file: "sealed" | "last" | "any";
  readonly found: readonly Found[];
  /** Whether a later block or the caller says that this place was synced; `any`: no matter. */
  readonly vouched: boolean | "any";
  readonly decision: Decision;
  readonly because: string;
}

/** The first row that matches decides; a test proves that every combination meets exactly one. */
export const RECOVERY_TABLE: readonly Row[] = [
  row("any", ["good_block"], "any", "keep", "it is whole"),
  row("any", ["newer_format"], "any", "refuse", "a newer release wrote it"),
  row("any", ["future_block"], "any", "refuse", "what counts the epochs is older than the log"),
  row("any", ["end"], "any", "stop", "the file ends here"),
  row(
    "sealed",
    ["short", "zero", "bad_header", "foreign_block", "cut_block", "bad_records"],
    "any",
    "quarantine",
    "a later file exists, so this was synced once",
  ),
  row(
    "last",
    ["short", "zero", "bad_header", "foreign_block", "cut_block", "bad_records"],
    true,
    "quarantine",
    "it was synced once",
  ),
  row(
    "last",
    ["short", "zero", "bad_header", "foreign_block", "cut_block", "bad_records"],
    false,
    "truncate",
    "it was written after the last sync",
  ),
];

function row(
  file: Row["file"],
  found: readonly Found[],
  vouched: Row["vouched"],
  decision: Decision,
  because: string,
): Row {
  return { file, found, vouched, decision, because };
}

/** The decision for one observation. */
export function decide(file: "sealed" | "last", found: Found, vouched: boolean): Decision {
  const match = RECOVERY_TABLE.find((candidate) =>
    (candidate.file === "any" || candidate.file === file) &&
    candidate.found.includes(found) &&
    (candidate.vouched === "any" || candidate.vouched === vouched)
  );
  invariant(match !== undefined, `recovery has a row for ${file} ${found} ${vouched}`);
  return match.decision;
}

/** What reading one file yields. */
export interface FileRecovery {
  /** Position behind the last block kept. */
  readonly end: number;
  /** Whether there is nothing but zeros behind it. */
  readonly isTailZero: boolean;
  readonly damage: readonly Damage[];
}

/** What is known of a file before it is read. */
export interface FileToRecover {
  readonly info: LogFileInfo;
  readonly last: boolean;
  /** Blocks of this epoch or earlier are possible. */
  readonly epochMax: number;
  /** Position to start from; a block starts there. */
  readonly from: number;
  /** Everything below is known to have been synced once. */
  readonly syncedTo: number;
}

const CHUNK_BYTES = 1 << 20;

/** Visits the good records of a file and says where its log ends. */
export async function recoverFile(
  file: DiskFile,
  recover: FileToRecover,
  visitor: RecoveryVisitor,
): Promise<FileRecovery> {
  const { info, last } = recover;
  const limit = info.end;
  const window = new Window(file, info.start, limit);
  const damage: Damage[] = [];
  let epoch = 0;
  let position = recover.from;
  while (true) {
    const seen = await look(window, position, limit, epoch, recover.epochMax);
    const bad = seen.found !== "good_block" && seen.found !== "end";
    const vouched = bad && last && (position < recover.syncedTo ||
      await hasVouchingBlock(window, position, limit, epoch, recover));
    switch (decide(last ? "last" : "sealed", seen.found, vouched)) {
      case "keep": {
        invariant(seen.header !== undefined, "a good block has a header");
        visitBlock(window, position, seen.header, false, visitor, damage);
        epoch = seen.header.epoch;
        position += BLOCK_HEADER_BYTES + seen.header.recordsBytes;
        break;
      }
      case "stop":
        return { end: position, isTailZero: true, damage };
      case "truncate":
        return { end: position, isTailZero: await window.isZero(position), damage };
      case "refuse":
        throw seen.found === "future_block"
          ? new LogError(
            "foreign",
            `Cannot open the log: the block at ${position} is of a later epoch than any known`,
          )
          : new LogError(
            "newer_format",
            `Cannot open the log: the block at ${position} was written by a newer release`,
          );
      case "quarantine": {
        if (seen.found === "bad_records" && seen.header !== undefined) {
          // The search for a block that vouches may have moved the window.
          await window.load(position, BLOCK_HEADER_BYTES + seen.header.recordsBytes);
          visitBlock(window, position, seen.header, true, visitor, damage);
          epoch = seen.header.epoch;
          position += BLOCK_HEADER_BYTES + seen.header.recordsBytes;
          break;
        }
        const next = await nextBlock(window, position + 8, limit, epoch, recover.epochMax);
        damage.push({
          position,
          bytes: (next ?? limit) - position,
          reason: `no block can be read here (${seen.found})`,
        });
        // Blocks start at multiples of 8, whatever the length of what is lost.
        if (next === null) return { end: limit - (limit % 8), isTailZero: false, damage };
        position = next;
        break;
      }
    }
  }
}

interface Seen {
  readonly found: Found;
  readonly header?: BlockHeader;
}

async function look(
  window: Window,
  position: number,
  limit: number,
  epoch: number,
  epochMax: number,
): Promise<Seen> {
  if (position === limit) return { found: "end" };
  if (limit - position < BLOCK_HEADER_BYTES) return { found: "short" };
  const at = await window.load(position, BLOCK_HEADER_BYTES);
  if (at < 0) return { found: "short" };
  const reading = readBlockHeader(window.view, at);
  switch (reading.kind) {
    case "zero":
      return { found: "zero" };
    case "bad":
      return { found: "bad_header" };
    case "newer_format":
      return { found: "newer_format" };
    case "block": {
      const { header } = reading;
      if (header.position !== position || header.epoch < epoch) return { found: "foreign_block" };
      if (header.epoch > epochMax) return { found: "future_block" };
      const bytes = BLOCK_HEADER_BYTES + header.recordsBytes;
      if (position + bytes > limit) return { found: "cut_block" };
      const start = await window.load(position, bytes);
      if (start < 0) return { found: "cut_block" };
      const records = window.bytes.subarray(start + BLOCK_HEADER_BYTES, start + bytes);
      if (crc32(records) !== header.recordsCrc) return { found: "bad_records", header };
      return { found: "good_block", header };
    }
  }
}

function visitBlock(
  window: Window,
  position: number,
  header: BlockHeader,
  verify: boolean,
  visitor: RecoveryVisitor,
  damage: Damage[],
): void {
  const start = window.offsetOf(position);
  const toPosition = position - start;
  visitor.block(header);
  const problem = walkRecords(
    window.bytes,
    start + BLOCK_HEADER_BYTES,
    start + BLOCK_HEADER_BYTES + header.recordsBytes,
    (kind, payloadStart, payloadEnd) =>
      visitor.record(kind, window.bytes, payloadStart, payloadEnd, toPosition + payloadStart - 8),
    verify,
    (badStart, badEnd) =>
      damage.push({
        position: toPosition + badStart,
        bytes: badEnd - badStart,
        reason: "the record's checksum is wrong",
      }),
  );
  if (problem !== null) {
    damage.push({ position, bytes: BLOCK_HEADER_BYTES + header.recordsBytes, reason: problem });
  }
}

/** Whether a later block says that `position` had been synced when it was written. */
async function hasVouchingBlock(
  window: Window,
  position: number,
  limit: number,
  epoch: number,
  recover: FileToRecover,
): Promise<boolean> {
  let at: number | null = position;
  while ((at = await nextBlock(window, at + 8, limit, epoch, recover.epochMax)) !== null) {
    const offset = await window.load(at, BLOCK_HEADER_BYTES);
    const reading = readBlockHeader(window.view, offset);
    if (reading.kind === "block" && reading.header.synced > position) return true;
  }
  return false;
}

/** The next place from `from` on at which a header of this log stands. */
async function nextBlock(
  window: Window,
  from: number,
  limit: number,
  epoch: number,
  epochMax: number,
): Promise<number | null> {
  for (let at = from; at + BLOCK_HEADER_BYTES <= limit;) {
    const want = Math.min(CHUNK_BYTES, limit - at);
    const start = await window.load(at, want);
    if (start < 0) return null;
    for (let offset = 0; offset + BLOCK_HEADER_BYTES <= want; offset += 8) {
      if (window.view.getUint32(start + offset, true) !== BLOCK_MAGIC) continue;
      const reading = readBlockHeader(window.view, start + offset);
      if (
        reading.kind === "block" && reading.header.position === at + offset &&
        reading.header.epoch >= epoch && reading.header.epoch <= epochMax
      ) {
        return at + offset;
      }
    }
    at += want - (want % 8) - BLOCK_HEADER_BYTES + 8;
    if (want < CHUNK_BYTES) return null;
  }
  return null;
}

/** A sliding part of a file in memory: at least one chunk, and any block whole. */
class Window {
  bytes = new Uint8Array(CHUNK_BYTES);
  view = new DataView(this.bytes.buffer);
  #position = 0;
  #length = 0;
  readonly #file: DiskFile;
  readonly #fileStart: number;
  readonly #limit: number;

  constructor(file: DiskFile, fileStart: number, limit: number) {
    this.#file = file;
    this.#fileStart = fileStart;
    this.#limit = limit;
  }

  /** Has `length` bytes from `position` in memory and returns their offset, or -1 when there are fewer. */
  async load(position: number, length: number): Promise<number> {
    if (position >= this.#position && position + length <= this.#position + this.#length) {
      return position - this.#position;
    }
    if (length > this.bytes.length) {
      this.bytes = new Uint8Array(length);
      this.view = new DataView(this.bytes.buffer);
    }
    const want = Math.min(this.bytes.length, this.#limit - position);
    this.#position = position;
    this.#length = await this.#file.readAt(
      position - this.#fileStart,
      this.bytes.subarray(0, want),
    );
    return length <= this.#length ? 0 : -1;
  }

  /** Whether the file holds nothing but zeros from a position on. */
  async isZero(position: number): Promise<boolean> {
    for (let at = position; at < this.#limit;) {
      const bytes = Math.min(CHUNK_BYTES, this.#limit - at);
      const start = await this.load(at, bytes);
      if (start < 0 || this.bytes.subarray(start, start + bytes).some((byte) => byte !== 0)) {
        return false;
      }
      at += bytes;
    }
    return true;
  }

  /** The offset of a position that was just loaded. */
  offsetOf(position: number): number {
    return position - this.#position;
  }
}
