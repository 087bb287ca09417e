/**
 * Who waits for the log: told of every group that becomes durable, or is written, until they wait for
 * no more; or once that nothing will become durable any more.
 */
import type { CommitLog } from "@sluice/shared/log";

/** Someone who must not speak before the disk has. */
export interface DurableWaiter {
  /** Everything below `end` is on disk. Returns whether it waits for more. */
  durable(end: number): boolean;
  /** Publishes to relaxed topics that end below `end` may be confirmed. Returns the same. */
  written?(end: number): boolean;
  /** Nothing more will become durable. */
  failed(error: Error): void;
}

/** See the module. */
export class DurableWaiters {
  #waiters: DurableWaiter[] = [];

  add(waiter: DurableWaiter): void {
    this.#waiters.push(waiter);
  }

  /** Publishes to relaxed topics that end below `end` may be confirmed. */
  written(end: number): void {
    this.#tell((waiter) => waiter.written?.(end) ?? true);
  }

  /** Everything below `end` is on disk. */
  durable(end: number): void {
    this.#tell((waiter) => waiter.durable(end));
  }

  /** Nothing more becomes durable. */
  failed(error: Error): void {
    this.#tell((waiter) => {
      waiter.failed(error);
      return false;
    });
  }

  /** Resolves when the log is durable up to `position`; rejects when it never will be. */
  durableTo(log: CommitLog, position: number): Promise<void> {
    if (log.durableEnd >= position) return Promise.resolve();
    if (log.error !== null) return Promise.reject(log.error);
    return new Promise((resolve, reject) =>
      this.add({
        durable(end) {
          if (end < position) return true;
          resolve();
          return false;
        },
        failed: reject,
      })
    );
  }

  /** Resolves when relaxed publishes up to `position` may be confirmed; rejects when nothing will be. */
  confirmableTo(position: number): Promise<void> {
    return new Promise((resolve, reject) => {
      const told = (end: number) => {
        if (end < position) return true;
        resolve();
        return false;
      };
      this.add({ written: told, durable: told, failed: reject });
    });
  }

  /** Tells all of them; those that wait for more stay, and whoever comes meanwhile. */
  #tell(waitsOn: (waiter: DurableWaiter) => boolean): void {
    const waiters = this.#waiters;
    this.#waiters = [];
    for (const waiter of waiters) if (waitsOn(waiter)) this.#waiters.push(waiter);
  }
}
