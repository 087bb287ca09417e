/**
 * A disk that writes down what it is asked for, in the order of the event loop: when each change of
 * bytes or names began, and when its caller heard of it. `power_images.ts` makes of it what a power
 * cut at any moment could have left.
 *
 * Assumed: what is there at first is known and synced, folders are not renamed, and nobody else writes
 * there.
 */
import type { Disk, DiskFile } from "@sluice/shared/runtime";
import { DiskFileWrapper, DiskWrapper } from "@sluice/shared/testing";

/** One thing that was asked of the disk. `file` is a number of ours: names change. */
export type DiskChange =
  | { readonly type: "create"; readonly path: string; readonly file: number }
  | { readonly type: "rename"; readonly path: string; readonly to: string }
  | { readonly type: "remove" | "syncDirectory"; readonly path: string }
  | {
    readonly type: "write";
    readonly path: string;
    readonly file: number;
    readonly position: number;
    readonly bytes: Uint8Array;
  }
  | {
    readonly type: "truncate";
    readonly path: string;
    readonly file: number;
    readonly size: number;
  }
  | { readonly type: "sync"; readonly path: string; readonly file: number };

/** A change that begins, or of which the caller hears. */
export interface DiskEvent {
  readonly kind: "begin" | "heard";
  readonly change: DiskChange;
}

/** See the module. */
export class RecordingDisk extends DiskWrapper {
  readonly events: DiskEvent[] = [];
  /** Changes that were refused: they changed nothing. */
  readonly failed = new Set<DiskChange>();
  readonly #fileOf = new Map<string, number>();
  #files = 0;

  /** `known` are the paths of the files that are there, in the order of `power_images.ts`. */
  constructor(inner: Disk, known: Iterable<string> = []) {
    super(inner);
    for (const path of known) this.#fileOf.set(path, ++this.#files);
  }

  /** How much has happened so far: what is heard from now on is at this index or behind it. */
  get now(): number {
    return this.events.length;
  }

  override async open(path: string, mode: "create" | "read" | "write"): Promise<DiskFile> {
    if (mode === "read") return await this.inner.open(path, mode);
    if (mode === "write") {
      const file = await this.inner.open(path, mode);
      return new RecordingFile(this, file, path, this.#fileOf.get(path)!);
    }
    const file = ++this.#files;
    return await this.record({ type: "create", path, file }, async () => {
      const opened = await this.inner.open(path, mode);
      this.#fileOf.set(path, file);
      return new RecordingFile(this, opened, path, file);
    });
  }

  override rename(from: string, to: string): Promise<void> {
    return this.record({ type: "rename", path: from, to }, async () => {
      await this.inner.rename(from, to);
      this.#fileOf.set(to, this.#fileOf.get(from)!);
      this.#fileOf.delete(from);
    });
  }

  override remove(path: string): Promise<void> {
    return this.record({ type: "remove", path }, async () => {
      await this.inner.remove(path);
      this.#fileOf.delete(path);
    });
  }

  override syncDirectory(path: string): Promise<void> {
    return this.record({ type: "syncDirectory", path }, () => this.inner.syncDirectory(path));
  }

  /** Carries out a change and writes it down. */
  async record<T>(change: DiskChange, run: () => Promise<T>): Promise<T> {
    this.events.push({ kind: "begin", change });
    try {
      const result = await run();
      this.events.push({ kind: "heard", change });
      return result;
    } catch (error) {
      this.failed.add(change);
      throw error;
    }
  }
}

class RecordingFile extends DiskFileWrapper {
  readonly #disk: RecordingDisk;
  readonly #path: string;
  readonly #file: number;

  constructor(disk: RecordingDisk, inner: DiskFile, path: string, file: number) {
    super(inner);
    this.#disk = disk;
    this.#path = path;
    this.#file = file;
  }

  override writeAt(position: number, bytes: Uint8Array): Promise<void> {
    // The memory is used again once it is written.
    const change = { type: "write" as const, position, bytes: bytes.slice(), ...this.#what };
    return this.#disk.record(change, () => this.inner.writeAt(position, bytes));
  }

  override truncate(size: number): Promise<void> {
    return this.#disk.record(
      { type: "truncate", size, ...this.#what },
      () => this.inner.truncate(size),
    );
  }

  override syncData(): Promise<void> {
    return this.#disk.record({ type: "sync", ...this.#what }, () => this.inner.syncData());
  }

  get #what(): { readonly path: string; readonly file: number } {
    return { path: this.#path, file: this.#file };
  }
}
