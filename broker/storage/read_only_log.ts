/**
 * A {@linkcode LogStore} over the files of a log that changes none of them: files are opened for
 * reading, nothing is cut off, written again or made. What recovery puts (sidecars) stays in memory.
 * So a folder can be looked at as the broker would find it, and found the same afterwards.
 *
 * Unlike the broker's store it opens a log with gaps and names them; `recover` then refuses as the
 * broker would. A log that somebody appends to meanwhile is read up to where it ended at the opening;
 * of a file that is removed meanwhile the reading rejects with `DiskError` `not_found`.
 */
import {
  type Damage,
  type FileRecovery,
  LogError,
  type LogFileInfo,
  type LogReplacement,
  type LogStore,
  readCheckpointFile,
  recoverFile,
  type Recovery,
  type RecoveryVisitor,
} from "@sluice/shared/log";
import { type Disk, DiskError, readWhole } from "@sluice/shared/runtime";
import { crc32 } from "node:zlib";

const SIDECAR_MAGIC = 0x31584c53; // "SLX1"
const SIDECAR_HEADER_BYTES = 8;
const SIDECAR_BYTES_MAX = 2 ** 31 - 1;
const NAME_REGEXP = /^(\d{16})\.(log|idx|ckp)$/;
/** Which epochs there can be is for the caller to judge: see {@linkcode ReadOnlyLog.epochMax}. */
const EPOCH_MAX = 2 ** 32 - 1;

/** Bytes that are missing between two files, `[from, to)`. */
export interface LogGap {
  readonly from: number;
  readonly to: number;
}

/** See the module. */
export class ReadOnlyLog implements LogStore {
  /** The highest epoch of any block read so far. */
  epochMax = 0;
  readonly #disk: Disk;
  readonly #directory: string;
  #files: LogFileInfo[];
  /** What was put, by the start of its file. */
  readonly #sidecars = new Map<number, Uint8Array>();

  private constructor(
    disk: Disk,
    directory: string,
    /** All names in the folder. */
    readonly names: readonly string[],
    files: LogFileInfo[],
    readonly gaps: readonly LogGap[],
  ) {
    this.#disk = disk;
    this.#directory = directory;
    this.#files = files;
  }

  /** Lists a folder; one that is missing holds an empty log. */
  static async open(disk: Disk, directory: string): Promise<ReadOnlyLog> {
    const names = await disk.list(directory).catch((error) => {
      if (error instanceof DiskError && error.kind === "not_found") return [];
      throw error;
    });
    const starts = startsOf(names, "log").sort((a, b) => a - b);
    const files: LogFileInfo[] = [];
    const gaps: LogGap[] = [];
    for (const [index, start] of starts.entries()) {
      const file = await disk.open(logPath(directory, start, "log"), "read");
      const end = start + await file.size().finally(() => file.close());
      const next = starts[index + 1];
      files.push({ start, end: Math.min(end, next ?? end) });
      if (next !== undefined && end < next) gaps.push({ from: end, to: next });
    }
    return new ReadOnlyLog(disk, directory, names, files, gaps);
  }

  get files(): readonly LogFileInfo[] {
    return this.#files;
  }

  /** Visits one file; the last one ends where the broker would end it. See {@linkcode recoverFile}. */
  async walk(
    info: LogFileInfo,
    from: number,
    syncedTo: number,
    visitor: RecoveryVisitor,
  ): Promise<FileRecovery> {
    const last = this.#files.at(-1)?.start === info.start;
    const file = await this.#disk.open(logPath(this.#directory, info.start, "log"), "read");
    try {
      return await recoverFile(file, { info, last, epochMax: EPOCH_MAX, from, syncedTo }, {
        block: (header) => {
          this.epochMax = Math.max(this.epochMax, header.epoch);
          visitor.block(header);
        },
        record: (kind, bytes, start, end, position) =>
          visitor.record(kind, bytes, start, end, position),
      });
    } finally {
      file.close();
    }
  }

  async recover(from: number, visitor: RecoveryVisitor, syncedTo = from): Promise<Recovery> {
    const gap = this.gaps[0];
    if (gap !== undefined) {
      throw new LogError(
        "missing_file",
        `Cannot read the log: ${
          gap.to - gap.from
        } bytes are missing between position ${gap.from} ` +
          `and the file of position ${gap.to}`,
      );
    }
    const first = this.#files[0];
    if (first !== undefined ? from < first.start : from > 0) {
      throw new LogError(
        "missing_file",
        `Cannot read the log: the files from position ${from} on are missing`,
      );
    }
    const newest = this.#files.at(-1);
    if (newest !== undefined && newest.end < syncedTo) {
      throw new LogError(
        "damaged",
        `Cannot read the log: it ends at position ${newest.end}, but was on disk up to ${syncedTo}`,
      );
    }
    const damage: Damage[] = [];
    let end = from;
    let tornBytes = 0;
    for (const info of [...this.#files]) {
      const last = info === newest;
      if (info.end <= from && !last) continue;
      const found = await this.walk(info, Math.max(from, info.start), syncedTo, visitor);
      damage.push(...found.damage);
      end = last ? found.end : info.end;
      if (!last) continue;
      if (!found.isTailZero) tornBytes = Math.max(0, info.end - found.end);
      this.#files = [...this.#files.slice(0, -1), { start: info.start, end: found.end }];
    }
    return { end, tornBytes, damage };
  }

  async scan(file: LogFileInfo, visitor: RecoveryVisitor): Promise<readonly Damage[]> {
    return (await this.walk(file, file.start, file.end, visitor)).damage;
  }

  write(): Promise<void> {
    return Promise.reject(refused("append to"));
  }

  sync(): Promise<void> {
    return Promise.reject(refused("sync"));
  }

  remove(): Promise<void> {
    return Promise.reject(refused("remove a file of"));
  }

  replace(): Promise<LogReplacement> {
    return Promise.reject(refused("replace a file of"));
  }

  putCheckpoint(): Promise<number> {
    return Promise.reject(refused("store a checkpoint in"));
  }

  async read(position: number, into: Uint8Array): Promise<number> {
    const info = this.#files.findLast((file) => file.start <= position);
    if (info === undefined || position >= info.end) return 0;
    const file = await this.#disk.open(logPath(this.#directory, info.start, "log"), "read");
    try {
      const want = Math.min(into.length, info.end - position);
      return await file.readAt(position - info.start, into.subarray(0, want));
    } finally {
      file.close();
    }
  }

  putSidecar(file: LogFileInfo, bytes: Uint8Array): Promise<void> {
    this.#sidecars.set(file.start, bytes.slice());
    return Promise.resolve();
  }

  async getSidecar(file: LogFileInfo): Promise<Uint8Array | null> {
    const put = this.#sidecars.get(file.start);
    if (put !== undefined) return put;
    let whole: Uint8Array;
    try {
      const path = logPath(this.#directory, file.start, "idx");
      whole = await readWhole(this.#disk, path, SIDECAR_BYTES_MAX);
    } catch (error) {
      if (error instanceof DiskError && error.kind === "not_found") return null;
      throw error;
    }
    return contentOf(whole);
  }

  async readSidecar(info: LogFileInfo, position: number, into: Uint8Array): Promise<number> {
    const put = this.#sidecars.get(info.start)?.subarray(position, position + into.length);
    if (put !== undefined) {
      into.set(put);
      return put.length;
    }
    if (!this.names.includes(logName(info.start, "idx"))) return 0;
    const file = await this.#disk.open(logPath(this.#directory, info.start, "idx"), "read");
    try {
      return await file.readAt(SIDECAR_HEADER_BYTES + position, into);
    } finally {
      file.close();
    }
  }

  listCheckpoints(): Promise<readonly number[]> {
    return Promise.resolve(startsOf(this.names, "ckp").sort((a, b) => b - a));
  }

  getCheckpoint(position: number): AsyncIterable<Uint8Array> {
    return readCheckpointFile(this.#disk, logPath(this.#directory, position, "ckp"), position);
  }

  close(): Promise<void> {
    return Promise.resolve();
  }
}

/** The content of a sidecar's file, or null when its magic or checksum is wrong. */
function contentOf(whole: Uint8Array): Uint8Array | null {
  if (whole.length < SIDECAR_HEADER_BYTES) return null;
  const view = new DataView(whole.buffer, whole.byteOffset, whole.byteLength);
  const content = whole.subarray(SIDECAR_HEADER_BYTES);
  const isWhole = view.getUint32(0, true) === SIDECAR_MAGIC &&
    view.getUint32(4, true) === crc32(content);
  return isWhole ? content : null;
}

/** The name of a log's file, sidecar or checkpoint. */
function logName(position: number, kind: "log" | "idx" | "ckp"): string {
  return `${String(position).padStart(16, "0")}.${kind}`;
}

/** The path of a log's file, sidecar or checkpoint. */
export function logPath(
  directory: string,
  position: number,
  kind: "log" | "idx" | "ckp",
): string {
  return `${directory}/${logName(position, kind)}`;
}

/** The positions in the names of one kind; other names are passed over. */
function startsOf(names: readonly string[], kind: "log" | "ckp"): number[] {
  return names.flatMap((name) => {
    const match = NAME_REGEXP.exec(name);
    return match !== null && match[2] === kind ? [Number(match[1])] : [];
  });
}

function refused(action: string): LogError {
  return new LogError("sealed", `Cannot ${action} a log that is open for reading only`);
}
