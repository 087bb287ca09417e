/**
 * A {@linkcode LogStore} in a folder of files, the embedded default.
 *
 * ```
 * <start, 16 digits>.log      blocks; the name is the position of the first byte
 * <start, 16 digits>.log.tmp  a replacement of that file under way, removed at the next opening
 * <start, 16 digits>.idx      the owner's sidecar of a sealed file: "SLX1" crc:u32 bytes
 * <position, 16 digits>.ckp   a checkpoint, see checkpoint_file.ts
 * ```
 *
 * A file's end is its successor's start, so a gap between files is seen at once. Small files are
 * replaced whole: write, sync, rename, sync the folder.
 *
 * While groups are small, zeros are written some way ahead of the log in the last file: a sync that
 * need not make the file longer takes half the time. Large groups gain nothing from it, and zeros
 * would only compete with them. Zeros behind the last block are the end of the log like any other.
 */
import { crc32 } from "node:zlib";
import {
  type Disk,
  DiskError,
  type DiskFile,
  invariant,
  readWhole,
  replaceFile,
} from "../runtime/mod.ts";
import type { BlockHeader } from "./block.ts";
import { readCheckpointFile, writeCheckpointFile } from "./checkpoint_file.ts";
import {
  type Damage,
  LogError,
  type LogFileInfo,
  type LogReplacement,
  type LogStore,
  type Recovery,
  type RecoveryVisitor,
} from "./log_store.ts";
import { recoverFile } from "./recovery.ts";

const SIDECAR_MAGIC = 0x31584c53; // "SLX1"
/** Magic and checksum in front of a small file's content. */
const SMALL_FILE_HEADER_BYTES = 8;
const SMALL_FILE_BYTES_MAX = 2 ** 31 - 1;
/** Read handles kept open; more files than this are opened again as needed. */
const READERS_MAX = 128;
/** Zeros are kept at least half this far ahead, and written in slices of a quarter. */
const ZERO_AHEAD_BYTES = 4 * 1024 * 1024;
const ZEROS = new Uint8Array(ZERO_AHEAD_BYTES / 4);
/** Larger groups are not helped by zeros. */
const ZERO_GROUP_BYTES_MAX = 64 * 1024;
const NAME_REGEXP = /^(\d{16})\.(log|idx|ckp)$/;

interface Reader {
  readonly file: Promise<DiskFile>;
  users: number;
}

/** See the module. Made by {@linkcode FileLogStore.open}; `recover` comes before `write`. */
export class FileLogStore implements LogStore {
  readonly #disk: Disk;
  readonly #directory: string;
  readonly #epoch: number;
  #files: LogFileInfo[];
  #writer: DiskFile | null = null;
  /** The next file to take appends, while its name is not on disk yet. */
  #created: DiskFile | null = null;
  readonly #zeroFileBytes: number;
  /** The last file holds zeros from the log's end up to this position. */
  #zeroedEnd = 0;
  /** Bytes of blocks that were written since the last sync. */
  #unsyncedBytes = 0;
  /** Zeros on their way to the last file. */
  #zeroing: Promise<void> | null = null;
  /** By path, the one used least lately first. */
  #readers = new Map<string, Reader>();
  /** The file being replaced; nobody else reads it, or its sidecar, until `done`. */
  #swap: { readonly start: number; readonly done: Promise<void> } | null = null;
  /** How many read a file or its sidecar, by the start of the file; told when none is left. */
  readonly #users = new Map<number, number>();
  #unused: (() => void) | null = null;

  private constructor(
    disk: Disk,
    directory: string,
    epoch: number,
    files: LogFileInfo[],
    zeroFileBytes: number,
  ) {
    this.#zeroFileBytes = zeroFileBytes;
    this.#disk = disk;
    this.#directory = directory;
    this.#epoch = epoch;
    this.#files = files;
  }

  /**
   * Opens a folder, made when missing. `epoch` is above every epoch used on it before. The last file
   * is filled with zeros ahead of the log up to a size of `zeroFileBytes`; 0 for not at all.
   */
  static async open(
    disk: Disk,
    directory: string,
    epoch: number,
    zeroFileBytes = 0,
  ): Promise<FileLogStore> {
    await disk.makeDirectory(directory);
    // A process that died may have left names in memory only; all that follows relies on them.
    await disk.syncDirectory(directory);
    const starts: number[] = [];
    const names = await disk.list(directory);
    for (const name of names) {
      const match = NAME_REGEXP.exec(name);
      if (match !== null && match[2] === "log") starts.push(Number(match[1]));
      // Left behind by a crash: half a replacement, or the sidecar of a file that is gone.
      const isOrphan = match !== null && match[2] === "idx" && !names.includes(`${match[1]}.log`);
      if (isOrphan || name.endsWith(".tmp")) await disk.remove(`${directory}/${name}`);
    }
    starts.sort((a, b) => a - b);
    const files: LogFileInfo[] = [];
    for (const [index, start] of starts.entries()) {
      const size = await sizeOf(disk, pathOf(directory, start, "log"));
      const next = starts[index + 1];
      if (next !== undefined && start + size < next) {
        throw new LogError(
          "missing_file",
          `Cannot open the log in "${directory}": ${
            next - start - size
          } bytes are missing between ` +
            `position ${start + size} and the file of position ${next}`,
        );
      }
      files.push({ start, end: next ?? start + size });
    }
    return new FileLogStore(disk, directory, epoch, files, zeroFileBytes);
  }

  get files(): readonly LogFileInfo[] {
    return this.#files;
  }

  async recover(from: number, visitor: RecoveryVisitor, syncedTo = from): Promise<Recovery> {
    const first = this.#files[0];
    if (first !== undefined ? from < first.start : from > 0) {
      throw new LogError(
        "missing_file",
        `Cannot open the log in "${this.#directory}": the files from position ${from} on are missing`,
      );
    }
    const newest = this.#files.at(-1);
    if (newest !== undefined && newest.end < syncedTo) {
      throw new LogError(
        "damaged",
        `Cannot open the log in "${this.#directory}": it ends at position ${newest.end}, but was on ` +
          `disk up to ${syncedTo}`,
      );
    }
    let tornBytes = await this.#rewriteUnsynced(syncedTo);
    const damage: Damage[] = [];
    let end = from;
    for (const [index, info] of this.#files.entries()) {
      const last = index === this.#files.length - 1;
      if (info.end <= from && !last) continue;
      const file = await this.#disk.open(pathOf(this.#directory, info.start, "log"), "write");
      let keep = false;
      try {
        const start = Math.max(from, info.start);
        const found = await recoverFile(
          file,
          { info, last, epochMax: this.#epoch - 1, from: start, syncedTo },
          visitor,
        );
        damage.push(...found.damage);
        end = last ? found.end : info.end;
        if (!last) continue;
        this.#zeroedEnd = info.end;
        if (found.end < info.end && !found.isTailZero) {
          tornBytes += info.end - found.end;
          await file.truncate(found.end - info.start);
          this.#zeroedEnd = found.end;
        }
        // What was read may still be in memory only, if the process died and the machine did not.
        await file.syncData();
        this.#files[index] = { start: info.start, end: found.end };
        this.#writer = file;
        keep = true;
      } finally {
        if (!keep) file.close();
      }
    }
    return { end, tornBytes, damage };
  }

  scan(info: LogFileInfo, visitor: RecoveryVisitor): Promise<readonly Damage[]> {
    return this.#using(info.start, () => this.#scan(info, visitor));
  }

  async #scan(info: LogFileInfo, visitor: RecoveryVisitor): Promise<readonly Damage[]> {
    const file = await this.#disk.open(pathOf(this.#directory, info.start, "log"), "read");
    try {
      const recover = {
        info,
        last: false,
        epochMax: this.#epoch,
        from: info.start,
        syncedTo: info.end,
      };
      return (await recoverFile(file, recover, visitor)).damage;
    } finally {
      file.close();
    }
  }

  async write(parts: readonly Uint8Array[], roll: boolean): Promise<void> {
    let last = this.#files.at(-1);
    // An empty last file is the one that an attempt before this made, and found the disk full.
    if (last === undefined || (roll && last.end > last.start)) {
      invariant(this.#unsyncedBytes === 0, "a file is synced before the next one begins");
      last = await this.#roll(last?.end ?? 0);
    }
    const writer = this.#writer;
    invariant(writer !== null, "recover() comes before write()");
    let end = last.end;
    try {
      for (const part of parts) {
        await writer.writeAt(end - last.start, part);
        end += part.length;
      }
    } catch (error) {
      // Whatever of the block has been written, the next attempt writes the same over it.
      throw repeatable(error);
    }
    this.#unsyncedBytes += end - last.end;
    this.#files[this.#files.length - 1] = { start: last.start, end };
  }

  async sync(): Promise<void> {
    const writer = this.#writer;
    const last = this.#files.at(-1);
    invariant(writer !== null && last !== undefined, "write() comes before sync()");
    await writer.syncData();
    const syncedBytes = this.#unsyncedBytes;
    this.#unsyncedBytes = 0;
    if (syncedBytes <= ZERO_GROUP_BYTES_MAX) this.#zeroAhead(writer, last.start, last.end);
  }

  async read(position: number, into: Uint8Array): Promise<number> {
    const info = this.#fileAt(position);
    if (info === undefined || position >= info.end) return 0;
    const want = Math.min(into.length, info.end - position);
    const path = pathOf(this.#directory, info.start, "log");
    return await this.#using(
      info.start,
      () => this.#read(path, position - info.start, into.subarray(0, want)),
    );
  }

  async remove(info: LogFileInfo): Promise<void> {
    while (this.#swap?.start === info.start) await this.#swap.done;
    invariant(this.#files[0]?.start === info.start, "files go oldest first");
    invariant(this.#files.length > 1, "the file that takes appends stays");
    this.#files.shift();
    const path = pathOf(this.#directory, info.start, "log");
    const sidecarPath = pathOf(this.#directory, info.start, "idx");
    await this.#forgetReader(path);
    await this.#forgetReader(sidecarPath);
    await this.#disk.remove(path);
    // One name at a time, so that a crash cannot leave an older file without its successor.
    await this.#disk.syncDirectory(this.#directory);
    await this.#removeIfThere(sidecarPath);
  }

  async replace(info: LogFileInfo): Promise<LogReplacement> {
    invariant(this.#files.at(-1)?.start !== info.start, "the file that takes appends stays");
    const path = pathOf(this.#directory, info.start, "log");
    const temporary = `${path}.tmp`;
    await this.#removeIfThere(temporary);
    const file = await this.#disk.open(temporary, "create");
    let state: "open" | "closed" | "swapped" = "open";
    const abandon = async () => {
      if (state === "open") file.close();
      if (state !== "swapped") await this.#disk.remove(temporary).catch(() => {});
      state = "swapped";
    };
    try {
      // All of it is a hole at first.
      await file.truncate(info.end - info.start);
    } catch (error) {
      await abandon();
      throw error;
    }
    return {
      write: (position, bytes) => file.writeAt(position - info.start, bytes),
      swap: async (swapped) => {
        invariant(state === "open", "a replacement is swapped once");
        await file.syncData();
        file.close();
        state = "closed";
        await this.#swapIn(info, temporary, () => {
          state = "swapped";
          swapped();
        });
      },
      abandon,
    };
  }

  async #swapIn(info: LogFileInfo, temporary: string, swapped: () => void): Promise<void> {
    invariant(this.#swap === null, "files are replaced one at a time");
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#swap = { start: info.start, done: promise };
    try {
      while (this.#users.has(info.start)) {
        await new Promise<void>((unused) => this.#unused = unused);
      }
      this.#unused = null;
      const index = this.#files.findIndex(({ start }) => start === info.start);
      if (index < 0) throw new LogError("missing_file", "Cannot replace a file: it is gone");
      const path = pathOf(this.#directory, info.start, "log");
      const sidecarPath = pathOf(this.#directory, info.start, "idx");
      await this.#forgetReader(path);
      await this.#forgetReader(sidecarPath);
      await this.#removeIfThere(sidecarPath);
      // A crash must never leave the places of the old file beside the new one.
      await this.#disk.syncDirectory(this.#directory);
      await this.#disk.rename(temporary, path);
      this.#files[index] = { start: info.start, end: info.end, version: (info.version ?? 0) + 1 };
      swapped();
      await this.#disk.syncDirectory(this.#directory);
    } finally {
      this.#swap = null;
      resolve();
    }
  }

  async putSidecar(info: LogFileInfo, bytes: Uint8Array): Promise<void> {
    const path = pathOf(this.#directory, info.start, "idx");
    await replaceFile(this.#disk, path, withChecksum(SIDECAR_MAGIC, bytes));
    // What is open still is the one that was replaced.
    await this.#forgetReader(path);
  }

  async readSidecar(info: LogFileInfo, position: number, into: Uint8Array): Promise<number> {
    // Not of a file that is gone or going: what is opened now would stay open.
    if (this.#fileAt(info.start)?.start !== info.start) return 0;
    try {
      const path = pathOf(this.#directory, info.start, "idx");
      return await this.#using(
        info.start,
        () => this.#read(path, SMALL_FILE_HEADER_BYTES + position, into),
      );
    } catch (error) {
      if (error instanceof DiskError && error.kind === "not_found") return 0;
      throw error;
    }
  }

  async getSidecar(info: LogFileInfo): Promise<Uint8Array | null> {
    try {
      const path = pathOf(this.#directory, info.start, "idx");
      return withoutChecksum(
        SIDECAR_MAGIC,
        await readWhole(this.#disk, path, SMALL_FILE_BYTES_MAX),
      );
    } catch (error) {
      if (error instanceof DiskError && error.kind === "not_found") return null;
      throw error;
    }
  }

  async putCheckpoint(
    position: number,
    chunks: AsyncIterable<Uint8Array>,
    older: number,
  ): Promise<number> {
    const path = pathOf(this.#directory, position, "ckp");
    const bytes = await writeCheckpointFile(this.#disk, path, position, chunks);
    for (const stored of await this.listCheckpoints()) {
      if (stored === position || stored === older) continue;
      await this.#disk.remove(pathOf(this.#directory, stored, "ckp"));
    }
    return bytes;
  }

  async listCheckpoints(): Promise<readonly number[]> {
    const positions: number[] = [];
    for (const name of await this.#disk.list(this.#directory)) {
      const match = NAME_REGEXP.exec(name);
      if (match !== null && match[2] === "ckp") positions.push(Number(match[1]));
    }
    return positions.sort((a, b) => b - a);
  }

  getCheckpoint(position: number): AsyncIterable<Uint8Array> {
    const path = pathOf(this.#directory, position, "ckp");
    return readCheckpointFile(this.#disk, path, position);
  }

  async close(): Promise<void> {
    await this.#zeroing;
    this.#writer?.close();
    this.#writer = null;
    this.#created?.close();
    this.#created = null;
    for (const path of [...this.#readers.keys()]) await this.#forgetReader(path);
  }

  /** The last file that starts at a position or before; there may be very many. */
  #fileAt(position: number): LogFileInfo | undefined {
    let low = 0;
    let high = this.#files.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (this.#files[middle]!.start <= position) low = middle + 1;
      else high = middle;
    }
    return this.#files[low - 1];
  }

  /** Reads something of a file, or its sidecar, while it is not being replaced. */
  async #using<T>(start: number, read: () => Promise<T>): Promise<T> {
    while (this.#swap !== null && this.#swap.start === start) await this.#swap.done;
    this.#users.set(start, (this.#users.get(start) ?? 0) + 1);
    try {
      return await read();
    } finally {
      const left = this.#users.get(start)! - 1;
      if (left > 0) this.#users.set(start, left);
      else {
        this.#users.delete(start);
        if (this.#swap?.start === start) this.#unused?.();
      }
    }
  }

  async #read(path: string, position: number, into: Uint8Array): Promise<number> {
    const reader = this.#reader(path);
    reader.users++;
    try {
      return await (await reader.file).readAt(position, into);
    } finally {
      reader.users--;
      if (reader.users === 0 && this.#readers.get(path) !== reader) {
        await closeReader(reader);
      }
    }
  }

  /** Makes the file that starts at `start` the one that takes appends. */
  async #roll(start: number): Promise<LogFileInfo> {
    try {
      this.#created ??= await this.#disk.open(pathOf(this.#directory, start, "log"), "create");
    } catch (error) {
      throw repeatable(error);
    }
    try {
      // The name must survive whatever is said to be durable in the file.
      await this.#disk.syncDirectory(this.#directory);
    } catch (error) {
      // Without a descriptor for the folder there has been no sync that could have failed.
      throw isWithoutDescriptors(error) ? repeatable(error) : error;
    }
    await this.#zeroing;
    this.#writer?.close();
    this.#writer = this.#created;
    this.#created = null;
    const info = { start, end: start };
    this.#files.push(info);
    return info;
  }

  /**
   * Writes the next slice of zeros, beside the log. A group that comes meanwhile may begin in the
   * slice: it is written after it, since operations on a file run in order.
   */
  #zeroAhead(writer: DiskFile, fileStart: number, end: number): void {
    const from = Math.max(this.#zeroedEnd, end);
    const limit = Math.min(fileStart + this.#zeroFileBytes, from + ZEROS.length);
    if (this.#zeroing !== null || from - end > ZERO_AHEAD_BYTES / 2 || limit <= from) return;
    this.#zeroedEnd = limit;
    // Zeros are never missed: if the disk is in trouble, the next group meets it.
    this.#zeroing = writer.writeAt(from - fileStart, ZEROS.subarray(0, limit - from))
      .catch(() => {})
      .finally(() => this.#zeroing = null);
  }

  #reader(path: string): Reader {
    const known = this.#readers.get(path);
    if (known !== undefined) {
      this.#readers.delete(path);
      this.#readers.set(path, known);
      return known;
    }
    const oldest = this.#readers.keys().next();
    if (this.#readers.size >= READERS_MAX && !oldest.done) void this.#forgetReader(oldest.value);
    const file = this.#disk.open(path, "read");
    const reader = { file, users: 0 };
    this.#readers.set(path, reader);
    file.catch(() => {
      if (this.#readers.get(path) === reader) this.#readers.delete(path);
    });
    return reader;
  }

  async #forgetReader(path: string): Promise<void> {
    const reader = this.#readers.get(path);
    if (reader === undefined) return;
    this.#readers.delete(path);
    // Whoever still reads closes it.
    if (reader.users === 0) await closeReader(reader);
  }

  /**
   * Writes the blocks that may not be on disk again, as a file of their own; returns the torn bytes
   * behind them. A sync of them may have failed before the process stopped, and then the system shows
   * bytes that no later sync puts on disk. The newest block says up to where the log had been synced:
   * what stands below was, and after a failed sync no block was written.
   */
  async #rewriteUnsynced(syncedTo: number): Promise<number> {
    const info = this.#files.at(-1);
    if (info === undefined || info.end <= syncedTo) return 0;
    const file = await this.#disk.open(pathOf(this.#directory, info.start, "log"), "read");
    let start: number;
    let bytes: Uint8Array;
    let found;
    try {
      const headers = new NewestHeader();
      found = await recoverFile(
        file,
        { info, last: true, epochMax: this.#epoch - 1, from: info.start, syncedTo },
        headers,
      );
      const newest = headers.header;
      if (newest === null || found.end <= syncedTo) return 0;
      // A file is synced before the next one takes blocks.
      start = Math.min(Math.max(newest.synced, info.start), newest.position);
      bytes = new Uint8Array(found.end - start);
      await file.readAt(start - info.start, bytes);
    } finally {
      file.close();
    }
    await replaceFile(this.#disk, pathOf(this.#directory, start, "log"), bytes);
    this.#files.pop();
    if (start > info.start) this.#files.push({ start: info.start, end: start });
    this.#files.push({ start, end: start + bytes.length });
    return found.isTailZero ? 0 : info.end - start - bytes.length;
  }

  async #removeIfThere(path: string): Promise<void> {
    try {
      await this.#disk.remove(path);
    } catch (error) {
      if (!(error instanceof DiskError) || error.kind !== "not_found") throw error;
    }
  }
}

/** Keeps the header of the last block it is shown. */
class NewestHeader implements RecoveryVisitor {
  header: BlockHeader | null = null;

  block(header: BlockHeader): void {
    this.header = header;
  }

  record(): void {}
}

/** One that could not be opened has nothing to close. */
async function closeReader(reader: Reader): Promise<void> {
  (await reader.file.catch(() => null))?.close();
}

function pathOf(directory: string, position: number, kind: "log" | "idx" | "ckp"): string {
  return `${directory}/${String(position).padStart(16, "0")}.${kind}`;
}

/** What a write fails with: a disk that was full before any sync has a word of its own. */
function repeatable(error: unknown): unknown {
  if (isWithoutDescriptors(error)) {
    return new LogError("no_descriptors", error.message, { cause: error });
  }
  if (!(error instanceof DiskError) || error.kind !== "no_space") return error;
  return new LogError("no_space", error.message, { cause: error });
}

function isWithoutDescriptors(error: unknown): error is DiskError {
  return error instanceof DiskError && error.kind === "no_descriptors";
}

async function sizeOf(disk: Disk, path: string): Promise<number> {
  const file = await disk.open(path, "read");
  try {
    return await file.size();
  } finally {
    file.close();
  }
}

function withChecksum(magic: number, bytes: Uint8Array): Uint8Array {
  const whole = new Uint8Array(SMALL_FILE_HEADER_BYTES + bytes.length);
  const view = new DataView(whole.buffer);
  view.setUint32(0, magic, true);
  view.setUint32(4, crc32(bytes), true);
  whole.set(bytes, SMALL_FILE_HEADER_BYTES);
  return whole;
}

function withoutChecksum(magic: number, whole: Uint8Array): Uint8Array | null {
  if (whole.length < SMALL_FILE_HEADER_BYTES) return null;
  const view = new DataView(whole.buffer, whole.byteOffset, whole.byteLength);
  const bytes = whole.subarray(SMALL_FILE_HEADER_BYTES);
  if (view.getUint32(0, true) !== magic || view.getUint32(4, true) !== crc32(bytes)) return null;
  return bytes;
}
