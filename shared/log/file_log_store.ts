/**
 * A {@linkcode LogStore} in a folder of files, the embedded default.
 *
 * ```
 * log/<start, 16 digits>.log      blocks; the name is the position of the first byte
 * log/<start, 16 digits>.idx      the owner's sidecar of a sealed file: "SLX1" crc:u32 bytes
 * log/<position, 16 digits>.ckp   a checkpoint: "SLC1" crc:u32 bytes
 * ```
 *
 * A file's end is its successor's start, so a gap between files is seen at once. Small files are
 * replaced whole: write, sync, rename, sync the folder.
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
import {
  type Damage,
  LogError,
  type LogFileInfo,
  type LogStore,
  type Recovery,
  type RecoveryVisitor,
} from "./log_store.ts";
import { recoverFile } from "./recovery.ts";

const SIDECAR_MAGIC = 0x31584c53; // "SLX1"
const CHECKPOINT_MAGIC = 0x31434c53; // "SLC1"
const SMALL_FILE_BYTES_MAX = 2 ** 31 - 1;
const CHECKPOINTS_KEPT = 2;
/** Read handles kept open; more files than this are opened again as needed. */
const READERS_MAX = 128;
const NAME_REGEXP = /^(\d{16})\.(log|idx|ckp)$/;

interface Reader {
  readonly file: Promise<DiskFile>;
  users: number;
}

/** See the module. Made by {@linkcode FileLogStore.open}; `recover` comes before `append`. */
export class FileLogStore implements LogStore {
  readonly #disk: Disk;
  readonly #directory: string;
  readonly #epoch: number;
  #files: LogFileInfo[];
  #writer: DiskFile | null = null;
  #readers = new Map<number, Reader>();

  private constructor(disk: Disk, directory: string, epoch: number, files: LogFileInfo[]) {
    this.#disk = disk;
    this.#directory = directory;
    this.#epoch = epoch;
    this.#files = files;
  }

  /** Opens a folder, made when missing. `epoch` is above every epoch used on it before. */
  static async open(disk: Disk, directory: string, epoch: number): Promise<FileLogStore> {
    await disk.makeDirectory(directory);
    const starts: number[] = [];
    for (const name of await disk.list(directory)) {
      if (name.endsWith(".tmp")) await disk.remove(`${directory}/${name}`);
      const match = NAME_REGEXP.exec(name);
      if (match !== null && match[2] === "log") starts.push(Number(match[1]));
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
    return new FileLogStore(disk, directory, epoch, files);
  }

  get files(): readonly LogFileInfo[] {
    return this.#files;
  }

  async recover(from: number, visitor: RecoveryVisitor): Promise<Recovery> {
    const first = this.#files[0];
    if (first !== undefined ? from < first.start : from > 0) {
      throw new LogError(
        "missing_file",
        `Cannot open the log in "${this.#directory}": the files from position ${from} on are missing`,
      );
    }
    const newest = this.#files.at(-1);
    if (newest !== undefined && newest.end < from) {
      throw new LogError(
        "damaged",
        `Cannot open the log in "${this.#directory}": it ends at position ${newest.end}, but was on ` +
          `disk up to ${from}`,
      );
    }
    const damage: Damage[] = [];
    let end = from;
    let tornBytes = 0;
    for (const [index, info] of this.#files.entries()) {
      const last = index === this.#files.length - 1;
      if (info.end <= from && !last) continue;
      const file = await this.#disk.open(pathOf(this.#directory, info.start, "log"), "write");
      let keep = false;
      try {
        const start = Math.max(from, info.start);
        const found = await recoverFile(
          file,
          { info, last, epochMax: this.#epoch - 1, from: start },
          visitor,
        );
        damage.push(...found.damage);
        end = last ? found.end : info.end;
        if (!last) continue;
        if (found.end < info.end) {
          tornBytes = info.end - found.end;
          await file.truncate(found.end - info.start);
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

  async scan(info: LogFileInfo, visitor: RecoveryVisitor): Promise<readonly Damage[]> {
    const file = await this.#disk.open(pathOf(this.#directory, info.start, "log"), "read");
    try {
      const recover = { info, last: false, epochMax: this.#epoch - 1, from: info.start };
      return (await recoverFile(file, recover, visitor)).damage;
    } finally {
      file.close();
    }
  }

  async append(parts: readonly Uint8Array[], roll: boolean): Promise<void> {
    let last = this.#files.at(-1);
    if (last === undefined || roll) {
      const start = last?.end ?? 0;
      const path = pathOf(this.#directory, start, "log");
      const file = await this.#disk.open(path, "create");
      this.#writer?.close();
      this.#writer = file;
      // The name must survive whatever is said to be durable in the file.
      await this.#disk.syncDirectory(this.#directory);
      last = { start, end: start };
      this.#files.push(last);
    }
    const writer = this.#writer;
    invariant(writer !== null, "recover() comes before append()");
    let end = last.end;
    for (const part of parts) {
      await writer.writeAt(end - last.start, part);
      end += part.length;
    }
    await writer.syncData();
    this.#files[this.#files.length - 1] = { start: last.start, end };
  }

  async read(position: number, into: Uint8Array): Promise<number> {
    const info = this.#files.findLast((file) => file.start <= position);
    if (info === undefined || position >= info.end) return 0;
    const want = Math.min(into.length, info.end - position);
    const reader = this.#reader(info.start);
    reader.users++;
    try {
      return await (await reader.file).readAt(position - info.start, into.subarray(0, want));
    } finally {
      reader.users--;
      if (reader.users === 0 && this.#readers.get(info.start) !== reader) {
        (await reader.file).close();
      }
    }
  }

  async remove(info: LogFileInfo): Promise<void> {
    invariant(this.#files[0]?.start === info.start, "files go oldest first");
    invariant(this.#files.length > 1, "the file that takes appends stays");
    this.#files.shift();
    await this.#forgetReader(info.start);
    await this.#disk.remove(pathOf(this.#directory, info.start, "log"));
    // One name at a time, so that a crash cannot leave an older file without its successor.
    await this.#disk.syncDirectory(this.#directory);
    await this.#removeIfThere(pathOf(this.#directory, info.start, "idx"));
  }

  async putSidecar(info: LogFileInfo, bytes: Uint8Array): Promise<void> {
    await replaceFile(
      this.#disk,
      pathOf(this.#directory, info.start, "idx"),
      withChecksum(SIDECAR_MAGIC, bytes),
    );
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

  async putCheckpoint(position: number, bytes: Uint8Array): Promise<void> {
    const path = pathOf(this.#directory, position, "ckp");
    await replaceFile(this.#disk, path, withChecksum(CHECKPOINT_MAGIC, bytes));
    const stored = await this.listCheckpoints();
    for (const old of stored.slice(CHECKPOINTS_KEPT)) {
      await this.#disk.remove(pathOf(this.#directory, old, "ckp"));
    }
  }

  async listCheckpoints(): Promise<readonly number[]> {
    const positions: number[] = [];
    for (const name of await this.#disk.list(this.#directory)) {
      const match = NAME_REGEXP.exec(name);
      if (match !== null && match[2] === "ckp") positions.push(Number(match[1]));
    }
    return positions.sort((a, b) => b - a);
  }

  async getCheckpoint(position: number): Promise<Uint8Array> {
    const path = pathOf(this.#directory, position, "ckp");
    const bytes = await readWhole(this.#disk, path, SMALL_FILE_BYTES_MAX);
    const content = withoutChecksum(CHECKPOINT_MAGIC, bytes);
    if (content === null) {
      throw new LogError("damaged", `The checkpoint of position ${position} is damaged`);
    }
    return content;
  }

  async close(): Promise<void> {
    this.#writer?.close();
    this.#writer = null;
    for (const start of [...this.#readers.keys()]) await this.#forgetReader(start);
  }

  #reader(start: number): Reader {
    const known = this.#readers.get(start);
    if (known !== undefined) return known;
    const oldest = this.#readers.keys().next();
    if (this.#readers.size >= READERS_MAX && !oldest.done) void this.#forgetReader(oldest.value);
    const file = this.#disk.open(pathOf(this.#directory, start, "log"), "read");
    const reader = { file, users: 0 };
    this.#readers.set(start, reader);
    file.catch(() => this.#readers.delete(start));
    return reader;
  }

  async #forgetReader(start: number): Promise<void> {
    const reader = this.#readers.get(start);
    if (reader === undefined) return;
    this.#readers.delete(start);
    // Whoever still reads closes it; one that could not be opened has nothing to close.
    const file = await reader.file.catch(() => null);
    if (reader.users === 0) file?.close();
  }

  async #removeIfThere(path: string): Promise<void> {
    try {
      await this.#disk.remove(path);
    } catch (error) {
      if (!(error instanceof DiskError) || error.kind !== "not_found") throw error;
    }
  }
}

function pathOf(directory: string, position: number, kind: "log" | "idx" | "ckp"): string {
  return `${directory}/${String(position).padStart(16, "0")}.${kind}`;
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
  const whole = new Uint8Array(8 + bytes.length);
  const view = new DataView(whole.buffer);
  view.setUint32(0, magic, true);
  view.setUint32(4, crc32(bytes), true);
  whole.set(bytes, 8);
  return whole;
}

function withoutChecksum(magic: number, whole: Uint8Array): Uint8Array | null {
  if (whole.length < 8) return null;
  const view = new DataView(whole.buffer, whole.byteOffset, whole.byteLength);
  const bytes = whole.subarray(8);
  if (view.getUint32(0, true) !== magic || view.getUint32(4, true) !== crc32(bytes)) return null;
  return bytes;
}
