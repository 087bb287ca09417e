/**
 * A disk as one process sees it: after `kill` nothing that the process still had to do happens, while
 * the disk, and what was written to it, live on.
 */
import { type Disk, DiskError, type DiskFile, type DiskLock } from "@sluice/shared/runtime";

/** See the module. */
export class MortalDisk {
  readonly disk: Disk;
  readonly #files = new Set<DiskFile>();
  readonly #locks = new Set<DiskLock>();
  #isDead = false;

  constructor(inner: Disk) {
    this.disk = this.#guarded(inner, (result) => {
      if (isLock(result)) this.#locks.add(result);
      if (!isFile(result)) return result;
      this.#files.add(result);
      return this.#guarded(result, (nothing) => nothing);
    });
  }

  /** Ends the process: its files are closed, and its lock is free. */
  kill(): void {
    this.#isDead = true;
    for (const file of this.#files) file.close();
    for (const lock of this.#locks) lock.release();
  }

  #guarded<T extends object>(inner: T, wrap: (result: unknown) => unknown): T {
    return new Proxy(inner, {
      get: (target, name) => {
        const method: unknown = Reflect.get(target, name);
        // An await asks whether it is a promise.
        if (typeof method !== "function") return method;
        return (...given: unknown[]) => {
          if (name === "close") return method.apply(target, given);
          if (this.#isDead) return Promise.reject(dead());
          return (method.apply(target, given) as Promise<unknown>).then((result) => {
            if (!this.#isDead) return wrap(result);
            if (isFile(result)) result.close();
            if (isLock(result)) result.release();
            throw dead();
          });
        };
      },
    });
  }
}

function isFile(result: unknown): result is DiskFile {
  return typeof result === "object" && result !== null && "readAt" in result;
}

function isLock(result: unknown): result is DiskLock {
  return typeof result === "object" && result !== null && "release" in result;
}

function dead(): DiskError {
  return new DiskError("io", "Cannot use the disk: the process is dead");
}
