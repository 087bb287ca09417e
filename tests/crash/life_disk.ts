/**
 * The disk as one process sees it: when the process dies, nothing that it still had to do happens,
 * while the machine and its page cache live on. Without this, what a process left behind would go on
 * running in the same JavaScript world and touch the disk of its successor.
 */
import { type Disk, DiskError, type DiskFile, type DiskLock } from "@sluice/shared/runtime";
import { DiskFileWrapper, DiskWrapper } from "@sluice/shared/testing";

/** When a life ends: at one of its changes of the disk. */
export interface LifeEndPlan {
  /** The how many-th change from now; 1 is the next. */
  readonly after: number;
  /** Count only changes of names and syncs of folders, which are rare among writes. */
  readonly namesOnly: boolean;
  /** Whether that change takes effect; nobody hears of it either way. */
  readonly effectFirst: boolean;
  /** Ends the whole machine instead of the process. */
  readonly cutPower?: () => void;
}

type Touches = "nothing" | "bytes" | "names";

/** {@linkcode Disk} of a process that can be killed. */
export class LifeDisk extends DiskWrapper {
  readonly #locks = new Set<DiskLock>();
  readonly #files = new Set<DiskFile>();
  #dead = false;
  #plan: LifeEndPlan | null = null;
  #left = 0;

  constructor(inner: Disk) {
    super(inner);
  }

  get dead(): boolean {
    return this.#dead;
  }

  /** Ends the life at an operation to come. */
  endAt(plan: LifeEndPlan): void {
    this.#plan = plan;
    this.#left = plan.after;
  }

  /** Kills it now: the system closes its files and gives back its locks. */
  kill(): void {
    this.#dead = true;
    for (const lock of this.#locks) lock.release();
    for (const file of this.#files) file.close();
    this.#locks.clear();
    this.#files.clear();
  }

  /** Runs an operation for the process that is alive now. */
  async pass<T>(touches: Touches, run: () => Promise<T>): Promise<T> {
    this.#requireLife();
    const plan = this.#plan;
    const counts = touches === "names" || (touches === "bytes" && plan?.namesOnly === false);
    if (plan !== null && counts && --this.#left === 0) {
      if (plan.cutPower !== undefined) {
        plan.cutPower();
      } else {
        if (plan.effectFirst) await run().catch(() => {});
        this.kill();
      }
    }
    this.#requireLife();
    const result = await run();
    this.#requireLife();
    return result;
  }

  override open(path: string, mode: "create" | "read" | "write"): Promise<DiskFile> {
    return this.pass(mode === "create" ? "names" : "nothing", async () => {
      const file = await this.inner.open(path, mode);
      if (this.#dead) file.close();
      else this.#files.add(file);
      return new LifeFile(this, file, () => this.#files.delete(file));
    });
  }

  override list(directory: string): Promise<string[]> {
    return this.pass("nothing", () => this.inner.list(directory));
  }

  override rename(from: string, to: string): Promise<void> {
    return this.pass("names", () => this.inner.rename(from, to));
  }

  override remove(path: string): Promise<void> {
    return this.pass("names", () => this.inner.remove(path));
  }

  override makeDirectory(path: string): Promise<void> {
    return this.pass("names", () => this.inner.makeDirectory(path));
  }

  override syncDirectory(path: string): Promise<void> {
    return this.pass("names", () => this.inner.syncDirectory(path));
  }

  override lock(path: string): Promise<DiskLock> {
    return this.pass("nothing", async () => {
      const lock = await this.inner.lock(path);
      if (this.#dead) lock.release();
      this.#locks.add(lock);
      return {
        release: () => {
          this.#locks.delete(lock);
          if (!this.#dead) lock.release();
        },
      };
    });
  }

  #requireLife(): void {
    if (this.#dead) throw new DiskError("io", "Cannot use the disk: the process is dead");
  }
}

class LifeFile extends DiskFileWrapper {
  readonly #disk: LifeDisk;
  readonly #closed: () => void;

  constructor(disk: LifeDisk, inner: DiskFile, closed: () => void) {
    super(inner);
    this.#disk = disk;
    this.#closed = closed;
  }

  override writeAt(position: number, bytes: Uint8Array): Promise<void> {
    return this.#disk.pass("bytes", () => this.inner.writeAt(position, bytes));
  }

  override readAt(position: number, into: Uint8Array): Promise<number> {
    return this.#disk.pass("nothing", () => this.inner.readAt(position, into));
  }

  override syncData(): Promise<void> {
    return this.#disk.pass("bytes", () => this.inner.syncData());
  }

  override truncate(bytes: number): Promise<void> {
    return this.#disk.pass("bytes", () => this.inner.truncate(bytes));
  }

  override size(): Promise<number> {
    return this.#disk.pass("nothing", () => this.inner.size());
  }

  override close(): void {
    if (this.#disk.dead) return;
    this.#closed();
    this.inner.close();
  }
}
