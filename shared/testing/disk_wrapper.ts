/**
 * A disk that passes everything on. A subclass overrides one operation: to plant a fault that a crash
 * test must find (a `syncDirectory` that does nothing), to count, to hold an operation back.
 */
import type { Disk, DiskFile, DiskLock, DiskSpace } from "../runtime/mod.ts";

export class DiskWrapper implements Disk {
  readonly inner: Disk;

  constructor(inner: Disk) {
    this.inner = inner;
  }

  async open(path: string, mode: "create" | "read" | "write"): Promise<DiskFile> {
    return this.wrapFile(await this.inner.open(path, mode), path);
  }

  /** The file that {@linkcode open} hands out; a subclass returns a {@linkcode DiskFileWrapper}. */
  wrapFile(file: DiskFile, _path: string): DiskFile {
    return file;
  }

  list(directory: string): Promise<string[]> {
    return this.inner.list(directory);
  }

  rename(from: string, to: string): Promise<void> {
    return this.inner.rename(from, to);
  }

  remove(path: string): Promise<void> {
    return this.inner.remove(path);
  }

  makeDirectory(path: string): Promise<void> {
    return this.inner.makeDirectory(path);
  }

  syncDirectory(path: string): Promise<void> {
    return this.inner.syncDirectory(path);
  }

  lock(path: string): Promise<DiskLock> {
    return this.inner.lock(path);
  }

  space(path: string): Promise<DiskSpace> {
    return this.inner.space(path);
  }
}

/** A file that passes everything on, for {@linkcode DiskWrapper.wrapFile}. */
export class DiskFileWrapper implements DiskFile {
  readonly inner: DiskFile;

  constructor(inner: DiskFile) {
    this.inner = inner;
  }

  writeAt(position: number, bytes: Uint8Array): Promise<void> {
    return this.inner.writeAt(position, bytes);
  }

  readAt(position: number, into: Uint8Array): Promise<number> {
    return this.inner.readAt(position, into);
  }

  syncData(): Promise<void> {
    return this.inner.syncData();
  }

  truncate(bytes: number): Promise<void> {
    return this.inner.truncate(bytes);
  }

  size(): Promise<number> {
    return this.inner.size();
  }

  close(): void {
    this.inner.close();
  }
}
