/**
 * The disk as a parameter. What a caller may assume is exactly what POSIX promises after a power
 * cut: bytes are on disk once `syncData` has resolved, and a name (a new file, a rename, a removal)
 * once `syncDirectory` of its folder has. Anything else may be lost, torn or reordered.
 *
 * Paths use `/`. Every operation rejects with {@linkcode DiskError} and nothing else.
 */
export interface Disk {
  /** `create` makes a new file and fails with `exists` when there is one; `read` and `write` need it. */
  open(path: string, mode: "create" | "read" | "write"): Promise<DiskFile>;
  /** Names (not paths) in a folder, sorted. */
  list(directory: string): Promise<string[]>;
  /** Replaces `to` when it exists. Atomic, but durable only after `syncDirectory`. */
  rename(from: string, to: string): Promise<void>;
  remove(path: string): Promise<void>;
  /** Makes the folder and its parents; does nothing when it exists. */
  makeDirectory(path: string): Promise<void>;
  /** Makes the names in the folder durable. */
  syncDirectory(path: string): Promise<void>;
  /** Takes the lock file at `path` (made when missing) for this process, or fails with `locked`. */
  lock(path: string): Promise<DiskLock>;
  /** Space of the file system that holds `path`. */
  space(path: string): Promise<DiskSpace>;
}

/**
 * An open file. Positions and sizes are bytes. Operations on one handle run in the order of their
 * calls; only `syncData` runs beside them.
 */
export interface DiskFile {
  /** Writes all of `bytes` at `position`, growing the file as needed. `bytes` is borrowed until it resolves. */
  writeAt(position: number, bytes: Uint8Array): Promise<void>;
  /** Fills `into` from `position`; resolves with the bytes read, fewer only at the end of the file. */
  readAt(position: number, into: Uint8Array): Promise<number>;
  /** Makes all bytes whose `writeAt` has resolved durable (fdatasync). */
  syncData(): Promise<void>;
  /** Cuts or extends (with zeros) the file to `bytes`. */
  truncate(bytes: number): Promise<void>;
  size(): Promise<number>;
  close(): void;
}

/** A lock held on a folder until released or until the process ends. */
export interface DiskLock {
  release(): void;
}

/** Bytes of a file system. */
export interface DiskSpace {
  readonly totalBytes: number;
  readonly freeBytes: number;
}

/** What went wrong, in the words a caller decides by. `io` is everything that has no word of its own. */
export type DiskErrorKind =
  | "not_found"
  | "exists"
  | "no_space"
  /** As many files and connections are open as the process, or the machine, may have. */
  | "no_descriptors"
  | "locked"
  | "closed"
  | "io";

/** A failed disk operation. */
export class DiskError extends Error {
  override name = "DiskError";
  constructor(readonly kind: DiskErrorKind, message: string, options?: ErrorOptions) {
    super(message, options);
  }
}

/** Reads a whole file of at most `bytesMax` bytes; rejects with kind `io` when it is larger. */
export async function readWhole(disk: Disk, path: string, bytesMax: number): Promise<Uint8Array> {
  const file = await disk.open(path, "read");
  try {
    const bytes = await file.size();
    if (bytes > bytesMax) {
      throw new DiskError("io", `Cannot read "${path}": ${bytes} bytes, more than ${bytesMax}`);
    }
    const into = new Uint8Array(bytes);
    const read = await file.readAt(0, into);
    return into.subarray(0, read);
  } finally {
    file.close();
  }
}

/**
 * Replaces a small file so that a crash leaves the old or the new content, whole: writes
 * `<path>.tmp`, syncs it, renames it, syncs the folder. On a full disk it leaves nothing behind.
 */
export async function replaceFile(disk: Disk, path: string, bytes: Uint8Array): Promise<void> {
  const temporary = `${path}.tmp`;
  try {
    await disk.remove(temporary);
  } catch (error) {
    if (!(error instanceof DiskError) || error.kind !== "not_found") throw error;
  }
  const file = await disk.open(temporary, "create");
  try {
    await file.writeAt(0, bytes);
    await file.syncData();
  } catch (error) {
    // Half a file would take the space that others wait for. That it cannot be removed is no news.
    if (error instanceof DiskError && error.kind === "no_space") {
      await disk.remove(temporary).catch(() => {});
    }
    throw error;
  } finally {
    file.close();
  }
  await disk.rename(temporary, path);
  await disk.syncDirectory(directoryOf(path));
}

/** The folder part of a path; `.` when it has none. */
export function directoryOf(path: string): string {
  const slash = path.lastIndexOf("/");
  if (slash < 0) return ".";
  return slash === 0 ? "/" : path.slice(0, slash);
}
