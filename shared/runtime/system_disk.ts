/**
 * The real disk. Operations on one file share its cursor, so they run one at a time in the order of
 * their calls; only `syncData` runs beside them, on a descriptor of its own, because the runtime lets
 * a descriptor do one thing at a time and a read must not wait for a sync.
 *
 * A write of up to {@linkcode WRITE_INLINE_BYTES_MAX} to an idle file is done within the call: it goes
 * to the page cache, which costs a few microseconds where a helper thread costs tens. Larger ones
 * leave the event loop free.
 */
import { statfs } from "node:fs/promises";
import {
  directoryOf,
  type Disk,
  DiskError,
  type DiskErrorKind,
  type DiskFile,
  type DiskLock,
  type DiskSpace,
} from "./disk.ts";
import { Serial } from "./serial.ts";

/** The largest write that is done within the call. */
export const WRITE_INLINE_BYTES_MAX = 256 * 1024;
/** A larger write goes to a helper thread in slices of this many bytes. */
export const WRITE_SLICE_BYTES = 1024 * 1024;

const KIND_OF_CODE: Readonly<Record<string, DiskErrorKind>> = {
  ENOENT: "not_found",
  EEXIST: "exists",
  ENOSPC: "no_space",
  EDQUOT: "no_space",
  EMFILE: "no_descriptors",
  ENFILE: "no_descriptors",
};
/** Codes of a sync that says this folder cannot be synced by us, not that a sync failed. */
const SYNC_REFUSED_CODES: ReadonlySet<string> = new Set(["EACCES", "EPERM", "EINVAL", "EROFS"]);

/** {@linkcode Disk} over the machine's file systems. */
export class SystemDisk implements Disk {
  async open(path: string, mode: "create" | "read" | "write"): Promise<DiskFile> {
    try {
      const file = await Deno.open(path, {
        read: true,
        write: mode !== "read",
        createNew: mode === "create",
      });
      if (mode === "read") return new SystemFile(path, file, file);
      try {
        return new SystemFile(path, file, await Deno.open(path, { write: true }));
      } catch (error) {
        file.close();
        // So that whoever tries again may create it.
        if (mode === "create") await Deno.remove(path);
        throw error;
      }
    } catch (error) {
      throw diskError(mode === "create" ? "create" : "open", path, error);
    }
  }

  async list(directory: string): Promise<string[]> {
    try {
      const names: string[] = [];
      for await (const entry of Deno.readDir(directory)) names.push(entry.name);
      return names.sort();
    } catch (error) {
      throw diskError("list", directory, error);
    }
  }

  async rename(from: string, to: string): Promise<void> {
    try {
      await Deno.rename(from, to);
    } catch (error) {
      throw diskError(`rename to "${to}" from`, from, error);
    }
  }

  async remove(path: string): Promise<void> {
    try {
      // Deno.remove would also take an empty folder.
      if ((await Deno.lstat(path)).isDirectory) throw new Error("it is a directory");
      await Deno.remove(path);
    } catch (error) {
      throw diskError("remove", path, error);
    }
  }

  /**
   * Each folder is made and its parent synced before anything is made in it. So at most the deepest
   * one can be left unsynced by a process that was killed here, and the parent of a folder that was
   * there already is synced too, in case it is that one.
   */
  async makeDirectory(path: string): Promise<void> {
    try {
      if (await isDirectory(path)) return await syncFolder(directoryOf(path), true);
      const parent = directoryOf(path);
      await this.makeDirectory(parent);
      await Deno.mkdir(path).catch(async (error) => {
        if (!(await isDirectory(path))) throw error;
      });
      await syncFolder(parent, false);
    } catch (error) {
      throw diskError("make directory", path, error);
    }
  }

  async syncDirectory(path: string): Promise<void> {
    try {
      await syncFolder(path, false);
    } catch (error) {
      throw diskError("sync directory", path, error);
    }
  }

  async lock(path: string): Promise<DiskLock> {
    try {
      const file = await Deno.open(path, { create: true, write: true });
      try {
        if (!file.tryLockSync(true)) {
          throw new DiskError("locked", `Cannot lock "${path}": another holder has it`);
        }
        return new SystemLock(file);
      } catch (error) {
        file.close();
        throw error;
      }
    } catch (error) {
      throw diskError("lock", path, error);
    }
  }

  async space(path: string): Promise<DiskSpace> {
    try {
      const { bsize, blocks, bavail } = await statfs(path);
      // What is reserved for the superuser is not free to us.
      return { totalBytes: blocks * bsize, freeBytes: bavail * bsize };
    } catch (error) {
      throw diskError("measure the space of", path, error);
    }
  }
}

class SystemLock implements DiskLock {
  #file: Deno.FsFile | null;

  constructor(file: Deno.FsFile) {
    this.#file = file;
  }

  release(): void {
    this.#file?.close();
    this.#file = null;
  }
}

class SystemFile implements DiskFile {
  readonly #path: string;
  readonly #file: Deno.FsFile;
  readonly #syncFile: Deno.FsFile;
  readonly #serial = new Serial();
  #closed = false;

  constructor(path: string, file: Deno.FsFile, syncFile: Deno.FsFile) {
    this.#path = path;
    this.#file = file;
    this.#syncFile = syncFile;
  }

  writeAt(position: number, bytes: Uint8Array): Promise<void> {
    if (bytes.length > WRITE_INLINE_BYTES_MAX || !this.#serial.idle) {
      return this.#run("write", () => this.#writeAside(position, bytes));
    }
    try {
      this.#seek(position);
      for (let written = 0; written < bytes.length;) {
        written += accepted(this.#file.writeSync(bytes.subarray(written)));
      }
      return Promise.resolve();
    } catch (error) {
      return Promise.reject(this.#failed("write", error));
    }
  }

  readAt(position: number, into: Uint8Array): Promise<number> {
    return this.#run("read", async () => {
      this.#seek(position);
      let filled = 0;
      while (filled < into.length) {
        const read = await this.#file.read(into.subarray(filled));
        if (read === null) break;
        filled += read;
      }
      return filled;
    });
  }

  async syncData(): Promise<void> {
    try {
      this.#requireOpen();
      await this.#syncFile.syncData();
    } catch (error) {
      throw this.#failed("sync", error);
    }
  }

  truncate(bytes: number): Promise<void> {
    return this.#run("truncate", () => this.#file.truncate(bytes));
  }

  size(): Promise<number> {
    return this.#run("measure", async () => (await this.#file.stat()).size);
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#file.close();
    if (this.#syncFile !== this.#file) this.#syncFile.close();
  }

  async #writeAside(position: number, bytes: Uint8Array): Promise<void> {
    this.#seek(position);
    for (let written = 0; written < bytes.length;) {
      const slice = bytes.subarray(written, written + WRITE_SLICE_BYTES);
      written += accepted(await this.#file.write(slice));
    }
  }

  #seek(position: number): void {
    this.#requireOpen();
    this.#file.seekSync(position, Deno.SeekMode.Start);
  }

  #run<T>(action: string, operation: () => Promise<T>): Promise<T> {
    return this.#serial.run(async () => {
      try {
        this.#requireOpen();
        return await operation();
      } catch (error) {
        throw this.#failed(action, error);
      }
    });
  }

  #requireOpen(): void {
    if (this.#closed) throw new DiskError("closed", `Cannot use "${this.#path}": it is closed`);
  }

  #failed(action: string, error: unknown): DiskError {
    if (!this.#closed) return diskError(action, this.#path, error);
    // Whatever a closed descriptor answers, the reason is that it was closed.
    return new DiskError("closed", `Cannot ${action} "${this.#path}": it is closed`, {
      cause: error,
    });
  }
}

/** A write that takes nothing and says nothing would loop forever. */
function accepted(written: number): number {
  if (written === 0) throw new Error("the disk accepts no bytes");
  return written;
}

async function isDirectory(path: string): Promise<boolean> {
  try {
    const information = await Deno.stat(path);
    if (information.isDirectory) return true;
  } catch (error) {
    if (codeOf(error) === "ENOENT") return false;
    throw error;
  }
  throw new DiskError("exists", `Cannot make directory "${path}": a file has that name`);
}

/** With `mayRefuse`, a folder that we are not allowed or not able to sync is passed over. */
async function syncFolder(path: string, mayRefuse: boolean): Promise<void> {
  try {
    const folder = await Deno.open(path, { read: true });
    try {
      if (!(await folder.stat()).isDirectory) throw new Error("it is not a directory");
      await folder.sync();
    } finally {
      folder.close();
    }
  } catch (error) {
    const refused = error instanceof Deno.errors.NotCapable ||
      SYNC_REFUSED_CODES.has(codeOf(error));
    if (!mayRefuse || !refused) throw error;
  }
}

function diskError(action: string, path: string, error: unknown): DiskError {
  if (error instanceof DiskError) return error;
  const kind = error instanceof Deno.errors.BadResource
    ? "closed"
    : KIND_OF_CODE[codeOf(error)] ?? "io";
  const detail = error instanceof Error ? error.message : String(error);
  return new DiskError(kind, `Cannot ${action} "${path}": ${detail}`, { cause: error });
}

function codeOf(error: unknown): string {
  if (!(error instanceof Error) || !("code" in error)) return "";
  return typeof error.code === "string" ? error.code : "";
}
